//! Libraries: modules that belong to no context, and their kernels.

use std::ptr::null_mut;

use orion_cuda::sys::*;

use crate::driver::Cuda;
use crate::fact::{Verdict, answers, facts, holds, ok, same};
use crate::lab::{EMPTY_PTX, Get, PTX, as_void, string_at, text, use_primary};

facts! { library:
    Init [
        one_loads_without_a_context,
        kernels_are_counted_and_listed,
        a_kernel_knows_its_name_and_library,
        a_kernel_has_attributes_by_device,
        a_missing_kernel_is_not_found,
        a_null_image_is_invalid_value,
        broken_ptx_is_found_at_once_or_at_first_use,
        unloading_null_is_invalid_handle,
        one_loaded_before_any_context_is_used_after,
    ]
    Context [
        a_kernel_is_launched_as_a_function,
        a_kernel_becomes_a_function,
        a_kernel_has_parameters,
        one_has_a_module,
        one_has_globals,
        a_missing_global_is_not_found,
        the_image_may_be_preserved,
        many_are_loaded_used_and_unloaded_one_after_the_other,
    ]
}

fn library(cu: &Cuda) -> Get<CUlibrary> {
    let mut library = null_mut();
    ok!(cu.cuLibraryLoadData(&mut library, PTX.as_ptr().cast(), null_mut(), null_mut(), 0, null_mut(), null_mut(), 0));
    Ok(library)
}

fn kernel(cu: &Cuda, library: CUlibrary, name: &str) -> Get<CUkernel> {
    let (mut kernel, name) = (null_mut(), text(name));
    ok!(cu.cuLibraryGetKernel(&mut kernel, library, name.as_ptr()));
    Ok(kernel)
}

fn one_loads_without_a_context(cu: &'static Cuda) -> Verdict {
    let library = library(cu)?;
    kernel(cu, library, "add")?;
    holds!(cu.context()?.is_null(), "loading a library made a context current");
    ok!(cu.cuLibraryUnload(library));
    Ok(())
}

fn kernels_are_counted_and_listed(cu: &'static Cuda) -> Verdict {
    let (library, mut count) = (library(cu)?, 0);
    ok!(cu.cuLibraryGetKernelCount(&mut count, library));
    same!(count as usize, PTX.matches("\n.visible .entry").count());
    let mut kernels = vec![null_mut(); count as usize];
    ok!(cu.cuLibraryEnumerateKernels(kernels.as_mut_ptr(), count, library));
    holds!(kernels.contains(&kernel(cu, library, "add")?), "add is not among the listed kernels");
    ok!(cu.cuLibraryUnload(library));
    Ok(())
}

fn a_kernel_knows_its_name_and_library(cu: &'static Cuda) -> Verdict {
    let library = library(cu)?;
    let kernel = kernel(cu, library, "reverse")?;
    let (mut name, mut owner) = (std::ptr::null(), null_mut());
    ok!(cu.cuKernelGetName(&mut name, kernel));
    same!(string_at(name), "reverse");
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuKernelGetName(&mut name, null_mut()));
    ok!(cu.cuKernelGetLibrary(&mut owner, kernel));
    same!(owner, library);
    ok!(cu.cuLibraryUnload(library));
    Ok(())
}

fn a_kernel_has_parameters(cu: &'static Cuda) -> Verdict {
    let library = library(cu)?;
    let record = kernel(cu, library, "record")?;
    for (index, expected) in [(0, 40), (40, 8)].into_iter().enumerate() {
        let (mut offset, mut bytes) = (0, 0);
        ok!(cu.cuKernelGetParamInfo(record, index, &mut offset, &mut bytes));
        same!((offset, bytes), expected);
    }
    let (mut offset, mut bytes) = (0, 0);
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuKernelGetParamInfo(record, 2, &mut offset, &mut bytes));
    let mut current = null_mut();
    ok!(cu.cuCtxPopCurrent_v2(&mut current));
    // NVIDIA's tests of cuda.core want some error here; which one no GPU has been asked yet.
    let code = cu.cuKernelGetParamInfo(record, 0, &mut offset, &mut bytes);
    holds!(code != CUDA_SUCCESS, "cuKernelGetParamInfo answered without a current context");
    ok!(cu.cuCtxPushCurrent_v2(current));
    ok!(cu.cuLibraryUnload(library));
    Ok(())
}

fn a_kernel_has_attributes_by_device(cu: &'static Cuda) -> Verdict {
    let library = library(cu)?;
    let (bounded, mut value) = (kernel(cu, library, "bounded")?, 0);
    ok!(cu.cuKernelGetAttribute(&mut value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, bounded, 0));
    same!(value, 64);
    answers!(
        CUDA_ERROR_INVALID_DEVICE,
        cu.cuKernelGetAttribute(&mut value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, bounded, 4096)
    );
    ok!(cu.cuLibraryUnload(library));
    Ok(())
}

fn a_missing_kernel_is_not_found(cu: &'static Cuda) -> Verdict {
    let (library, mut kernel) = (library(cu)?, null_mut());
    answers!(CUDA_ERROR_NOT_FOUND, cu.cuLibraryGetKernel(&mut kernel, library, c"absent".as_ptr()));
    ok!(cu.cuLibraryUnload(library));
    Ok(())
}

fn a_null_image_is_invalid_value(cu: &'static Cuda) -> Verdict {
    let (mut library, none) = (null_mut(), null_mut());
    answers!(
        CUDA_ERROR_INVALID_VALUE,
        cu.cuLibraryLoadData(&mut library, std::ptr::null(), null_mut(), null_mut(), 0, null_mut(), none, 0)
    );
    Ok(())
}

/// Compilation may be lazy, but never silent.
fn broken_ptx_is_found_at_once_or_at_first_use(cu: &'static Cuda) -> Verdict {
    let broken = c".version 7.5\n.target sm_75\n.address_size 64\n.visible .entry broken()\n{\n    add.nonsense;\n}\n";
    let mut library = null_mut();
    let code = cu.cuLibraryLoadData(
        &mut library,
        broken.as_ptr().cast(),
        null_mut(),
        null_mut(),
        0,
        null_mut(),
        null_mut(),
        0,
    );
    if code != CUDA_SUCCESS {
        same!(code, CUDA_ERROR_INVALID_PTX);
        return Ok(());
    }
    use_primary(cu)?;
    let mut module = null_mut();
    answers!(CUDA_ERROR_INVALID_PTX, cu.cuLibraryGetModule(&mut module, library));
    Ok(())
}

fn unloading_null_is_invalid_handle(cu: &'static Cuda) -> Verdict {
    answers!([CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE], cu.cuLibraryUnload(null_mut()));
    Ok(())
}

fn one_loaded_before_any_context_is_used_after(cu: &'static Cuda) -> Verdict {
    let library = library(cu)?;
    let increment = kernel(cu, library, "increment")?;
    use_primary(cu)?;
    let address = cu.words(&[1])?;
    ok!(cu.launch_on(increment.cast(), address, null_mut()));
    same!(cu.word(address)?, 2);
    ok!(cu.cuLibraryUnload(library));
    cu.free(address)
}

fn a_kernel_is_launched_as_a_function(cu: &'static Cuda) -> Verdict {
    let (library, address) = (library(cu)?, cu.words(&[5])?);
    let increment: CUfunction = kernel(cu, library, "increment")?.cast();
    ok!(cu.launch_on(increment, address, null_mut()));
    same!(cu.word(address)?, 6);
    let mut blocks = 0;
    ok!(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, increment, 32, 0));
    holds!(blocks > 0, "{blocks} blocks fit");
    ok!(cu.cuLibraryUnload(library));
    cu.free(address)
}

fn a_kernel_becomes_a_function(cu: &'static Cuda) -> Verdict {
    let (library, mut function) = (library(cu)?, null_mut());
    let increment = kernel(cu, library, "increment")?;
    ok!(cu.cuKernelGetFunction(&mut function, increment));
    let address = cu.words(&[5])?;
    ok!(cu.launch_on(function, address, null_mut()));
    same!(cu.word(address)?, 6);
    let mut threads = 0;
    ok!(cu.cuFuncGetAttribute(&mut threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
    same!(threads, 1024);
    ok!(cu.cuLibraryUnload(library));
    cu.free(address)
}

fn one_has_a_module(cu: &'static Cuda) -> Verdict {
    let (library, mut module) = (library(cu)?, null_mut());
    ok!(cu.cuLibraryGetModule(&mut module, library));
    let (globals, out) = (cu.function(module, "globals")?, cu.words(&[0])?);
    ok!(cu.launch_on(globals, out, null_mut()));
    same!(cu.word(out)?, 47);
    ok!(cu.cuLibraryUnload(library));
    cu.free(out)
}

fn one_has_globals(cu: &'static Cuda) -> Verdict {
    let (library, mut address, mut bytes) = (library(cu)?, 0, 0);
    ok!(cu.cuLibraryGetGlobal(&mut address, &mut bytes, library, c"counter".as_ptr()));
    same!((bytes, cu.word(address)?), (4, 7));
    ok!(cu.cuLibraryUnload(library));
    Ok(())
}

fn a_missing_global_is_not_found(cu: &'static Cuda) -> Verdict {
    let (library, mut address, mut bytes) = (library(cu)?, 0, 0);
    answers!(CUDA_ERROR_NOT_FOUND, cu.cuLibraryGetGlobal(&mut address, &mut bytes, library, c"absent".as_ptr()));
    ok!(cu.cuLibraryUnload(library));
    Ok(())
}

/// The runtime passes this option with every image that is part of the program.
fn the_image_may_be_preserved(cu: &'static Cuda) -> Verdict {
    let mut library = null_mut();
    let (mut options, mut yes) = ([CU_LIBRARY_BINARY_IS_PRESERVED], 1u32);
    let mut values = [as_void(&mut yes)];
    ok!(cu.cuLibraryLoadData(
        &mut library,
        PTX.as_ptr().cast(),
        null_mut(),
        null_mut(),
        0,
        options.as_mut_ptr(),
        values.as_mut_ptr(),
        1
    ));
    let address = cu.words(&[8])?;
    ok!(cu.launch_on(kernel(cu, library, "twice")?.cast(), address, null_mut()));
    same!(cu.word(address)?, 16);
    ok!(cu.cuLibraryUnload(library));
    cu.free(address)
}

fn many_are_loaded_used_and_unloaded_one_after_the_other(cu: &'static Cuda) -> Verdict {
    let none = null_mut();
    for _ in 0..1100 {
        let (mut library, mut module, mut function) = (null_mut(), null_mut(), null_mut());
        let image = EMPTY_PTX.as_ptr().cast();
        ok!(cu.cuLibraryLoadData(&mut library, image, null_mut(), null_mut(), 0, null_mut(), null_mut(), 0));
        let kernel = kernel(cu, library, "nothing")?;
        ok!(cu.launch(kernel.cast(), 1, 1, none, &mut []));
        ok!(cu.cuLibraryGetModule(&mut module, library));
        ok!(cu.cuModuleGetFunction(&mut function, module, c"nothing".as_ptr()));
        ok!(cu.launch(function, 1, 1, none, &mut []));
        ok!(cu.cuCtxSynchronize());
        ok!(cu.cuLibraryUnload(library));
    }
    Ok(())
}
