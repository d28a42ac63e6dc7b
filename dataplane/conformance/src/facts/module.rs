//! Modules: loading images, finding functions and globals, attributes, occupancy, linking.
//!
//! UNSAFETY: sets an environment variable that the driver reads.

use std::ffi::{c_char, c_void};
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use orion_cuda::sys::*;

use crate::driver::Cuda;
use crate::fact::{Verdict, answers, facts, holds, ok, same};
use crate::lab::{EMPTY_PTX, Get, PTX, string_at, use_primary};

facts! { module:
    Nothing [
        an_eager_function_is_loaded_from_the_start.not_in_a_crowd("it sets an environment variable"),
    ]
    Init [loading_without_a_context_is_invalid_context]
    Context [
        a_missing_function_is_not_found,
        a_null_image_is_invalid_value,
        an_image_of_nonsense_is_invalid_ptx,
        an_elf_of_nonsense_is_invalid_image,
        broken_ptx_is_invalid_ptx,
        ptx_of_the_future_is_unsupported,
        the_error_log_says_what_is_wrong,
        unloading_null_is_invalid_handle,
        a_global_has_its_size_and_value,
        a_global_can_be_written,
        a_constant_has_its_value,
        a_missing_global_is_not_found,
        a_global_may_be_asked_in_part,
        two_loads_have_their_own_globals,
        functions_are_counted_and_listed,
        a_function_knows_its_name_and_module,
        parameters_have_offsets_and_sizes,
        attributes_tell_static_shared_memory,
        attributes_tell_the_bound_on_threads,
        attributes_tell_the_ptx_version,
        an_unknown_attribute_is_invalid_value,
        dynamic_shared_memory_can_be_raised,
        dynamic_shared_memory_beyond_the_device_is_invalid_value,
        occupancy_is_positive,
        occupancy_of_an_empty_block_is_invalid_value,
        a_potential_block_size_can_be_launched,
        the_loading_mode_is_eager_or_lazy,
        loading_a_function_loads_it,
        a_function_that_has_run_is_loaded,
        a_loading_state_into_null_is_invalid_value,
        linked_ptx_can_be_loaded,
        linking_holds_up_nobody_else,
        threads_link_and_load_at_once,
        options_are_accepted,
        another_thread_can_use_it,
        many_are_loaded_used_and_unloaded_one_after_the_other,
    ]
}

fn loading_without_a_context_is_invalid_context(cu: &'static Cuda) -> Verdict {
    let mut module = null_mut();
    answers!(CUDA_ERROR_INVALID_CONTEXT, cu.cuModuleLoadData(&mut module, PTX.as_ptr().cast()));
    Ok(())
}

fn a_missing_function_is_not_found(cu: &'static Cuda) -> Verdict {
    let (module, mut function) = (cu.module()?, null_mut());
    answers!(CUDA_ERROR_NOT_FOUND, cu.cuModuleGetFunction(&mut function, module, c"absent".as_ptr()));
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

fn a_null_image_is_invalid_value(cu: &'static Cuda) -> Verdict {
    let mut module = null_mut();
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuModuleLoadData(&mut module, std::ptr::null()));
    Ok(())
}

fn an_image_of_nonsense_is_invalid_ptx(cu: &'static Cuda) -> Verdict {
    let mut module = null_mut();
    answers!(
        [CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_INVALID_PTX, CUDA_ERROR_UNSUPPORTED_PTX_VERSION],
        cu.cuModuleLoadData(&mut module, c"this is no image of any kind".as_ptr().cast())
    );
    Ok(())
}

fn an_elf_of_nonsense_is_invalid_image(cu: &'static Cuda) -> Verdict {
    let mut image = [0u8; 4096];
    image[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    let mut module = null_mut();
    answers!(
        [CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_NO_BINARY_FOR_GPU],
        cu.cuModuleLoadData(&mut module, image.as_ptr().cast())
    );
    Ok(())
}

const BROKEN: &str =
    ".version 7.5\n.target sm_75\n.address_size 64\n.visible .entry broken()\n{\n    add.nonsense;\n}\n\0";

fn broken_ptx_is_invalid_ptx(cu: &'static Cuda) -> Verdict {
    let mut module = null_mut();
    answers!(CUDA_ERROR_INVALID_PTX, cu.cuModuleLoadData(&mut module, BROKEN.as_ptr().cast()));
    Ok(())
}

fn ptx_of_the_future_is_unsupported(cu: &'static Cuda) -> Verdict {
    let mut module = null_mut();
    let future = PTX.replacen(".version 7.5", ".version 99.0", 1);
    answers!(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, cu.cuModuleLoadData(&mut module, future.as_ptr().cast()));
    Ok(())
}

fn the_error_log_says_what_is_wrong(cu: &'static Cuda) -> Verdict {
    let (mut module, mut log) = (null_mut(), vec![0u8; 4096]);
    let mut options = [CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), without_provenance_mut(4096)];
    answers!(
        CUDA_ERROR_INVALID_PTX,
        cu.cuModuleLoadDataEx(&mut module, BROKEN.as_ptr().cast(), 2, options.as_mut_ptr(), values.as_mut_ptr())
    );
    holds!(log[0] != 0 && log.contains(&0), "the error log is empty or has no end");
    Ok(())
}

fn unloading_null_is_invalid_handle(cu: &'static Cuda) -> Verdict {
    answers!([CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE], cu.cuModuleUnload(null_mut()));
    Ok(())
}

fn a_global_has_its_size_and_value(cu: &'static Cuda) -> Verdict {
    let (module, mut address, mut bytes) = (cu.module()?, 0, 0);
    ok!(cu.cuModuleGetGlobal_v2(&mut address, &mut bytes, module, c"counter".as_ptr()));
    same!((bytes, cu.word(address)?), (4, 7));
    ok!(cu.cuModuleGetGlobal_v2(&mut address, &mut bytes, module, c"table".as_ptr()));
    same!((bytes, cu.download::<u8>(address, 64)?), (64, vec![0; 64]));
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

fn a_global_can_be_written(cu: &'static Cuda) -> Verdict {
    let (module, globals) = cu.kernel("globals")?;
    let (out, mut address) = (cu.words(&[0])?, 0);
    ok!(cu.cuModuleGetGlobal_v2(&mut address, null_mut(), module, c"counter".as_ptr()));
    cu.upload(address, &[1000u32])?;
    ok!(cu.launch_on(globals, out, null_mut()));
    same!(cu.word(out)?, 1040);
    ok!(cu.cuModuleUnload(module));
    cu.free(out)
}

fn a_constant_has_its_value(cu: &'static Cuda) -> Verdict {
    let (module, mut address, mut bytes) = (cu.module()?, 0, 0);
    ok!(cu.cuModuleGetGlobal_v2(&mut address, &mut bytes, module, c"weights".as_ptr()));
    same!((bytes, cu.download::<u32>(address, 4)?), (16, vec![10, 20, 30, 40]));
    let globals = cu.function(module, "globals")?;
    let out = cu.words(&[0])?;
    cu.upload(address + 12, &[500u32])?;
    ok!(cu.launch_on(globals, out, null_mut()));
    same!(cu.word(out)?, 507);
    ok!(cu.cuModuleUnload(module));
    cu.free(out)
}

fn a_missing_global_is_not_found(cu: &'static Cuda) -> Verdict {
    let (module, mut address, mut bytes) = (cu.module()?, 0, 0);
    answers!(CUDA_ERROR_NOT_FOUND, cu.cuModuleGetGlobal_v2(&mut address, &mut bytes, module, c"absent".as_ptr()));
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

fn a_global_may_be_asked_in_part(cu: &'static Cuda) -> Verdict {
    let (module, mut address, mut bytes) = (cu.module()?, 0, 0);
    ok!(cu.cuModuleGetGlobal_v2(null_mut(), &mut bytes, module, c"table".as_ptr()));
    ok!(cu.cuModuleGetGlobal_v2(&mut address, null_mut(), module, c"table".as_ptr()));
    holds!(bytes == 64 && address != 0, "{bytes} bytes at {address:#x}");
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

fn two_loads_have_their_own_globals(cu: &'static Cuda) -> Verdict {
    let (first, second) = (cu.module()?, cu.module()?);
    let (mut one, mut two) = (0, 0);
    ok!(cu.cuModuleGetGlobal_v2(&mut one, null_mut(), first, c"counter".as_ptr()));
    ok!(cu.cuModuleGetGlobal_v2(&mut two, null_mut(), second, c"counter".as_ptr()));
    cu.upload(one, &[70u32])?;
    same!(cu.word(two)?, 7);
    ok!(cu.cuModuleUnload(first));
    same!(cu.word(two)?, 7);
    ok!(cu.cuModuleUnload(second));
    Ok(())
}

fn functions_are_counted_and_listed(cu: &'static Cuda) -> Verdict {
    let (module, mut count) = (cu.module()?, 0);
    ok!(cu.cuModuleGetFunctionCount(&mut count, module));
    same!(count as usize, PTX.matches("\n.visible .entry").count());
    let mut functions = vec![null_mut(); count as usize];
    ok!(cu.cuModuleEnumerateFunctions(functions.as_mut_ptr(), count, module));
    let mut names = Vec::new();
    for function in functions {
        let mut name: *const c_char = std::ptr::null();
        ok!(cu.cuFuncGetName(&mut name, function));
        names.push(string_at(name));
    }
    for expected in ["noop", "add", "stop"] {
        holds!(names.iter().any(|name| name == expected), "{expected} is not among {names:?}");
    }
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

fn a_function_knows_its_name_and_module(cu: &'static Cuda) -> Verdict {
    let (module, function) = cu.kernel("add")?;
    let (mut name, mut owner) = (std::ptr::null(), null_mut());
    ok!(cu.cuFuncGetName(&mut name, function));
    same!(string_at(name), "add");
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuFuncGetName(&mut name, null_mut()));
    ok!(cu.cuFuncGetModule(&mut owner, function));
    same!(owner, module);
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

fn parameters_have_offsets_and_sizes(cu: &'static Cuda) -> Verdict {
    let (module, function) = cu.kernel("mixed")?;
    for (index, expected) in [(0, 1), (2, 2), (4, 4), (8, 8), (16, 8)].into_iter().enumerate() {
        let (mut offset, mut bytes) = (0, 0);
        ok!(cu.cuFuncGetParamInfo(function, index, &mut offset, &mut bytes));
        same!((offset, bytes), expected);
    }
    let mut offset = 0;
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuFuncGetParamInfo(function, 5, &mut offset, null_mut()));
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

fn attributes_tell_static_shared_memory(cu: &'static Cuda) -> Verdict {
    let (module, mut bytes) = (cu.module()?, -1);
    for (name, expected) in [("reverse", 256), ("noop", 0)] {
        let function = cu.function(module, name)?;
        ok!(cu.cuFuncGetAttribute(&mut bytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function));
        same!(bytes, expected);
    }
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

fn attributes_tell_the_bound_on_threads(cu: &'static Cuda) -> Verdict {
    let (module, mut threads) = (cu.module()?, -1);
    for (name, expected) in [("bounded", 64), ("noop", 1024)] {
        let function = cu.function(module, name)?;
        ok!(cu.cuFuncGetAttribute(&mut threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
        same!(threads, expected);
    }
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

fn attributes_tell_the_ptx_version(cu: &'static Cuda) -> Verdict {
    let (module, function) = cu.kernel("noop")?;
    let mut version = 0;
    ok!(cu.cuFuncGetAttribute(&mut version, CU_FUNC_ATTRIBUTE_PTX_VERSION, function));
    same!(version, 75);
    let mut binary = 0;
    ok!(cu.cuFuncGetAttribute(&mut binary, CU_FUNC_ATTRIBUTE_BINARY_VERSION, function));
    let (major, minor) = (
        cu.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        cu.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
    );
    same!(binary, major * 10 + minor);
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

fn an_unknown_attribute_is_invalid_value(cu: &'static Cuda) -> Verdict {
    let (module, function) = cu.kernel("noop")?;
    let mut value = 0;
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuFuncGetAttribute(&mut value, 9999, function));
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

fn dynamic_shared_memory_can_be_raised(cu: &'static Cuda) -> Verdict {
    let (module, function) = cu.kernel("neighbour")?;
    let most = cu.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
    ok!(cu.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most));
    let mut bytes = 0;
    ok!(cu.cuFuncGetAttribute(&mut bytes, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function));
    same!(bytes, most);
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

fn dynamic_shared_memory_beyond_the_device_is_invalid_value(cu: &'static Cuda) -> Verdict {
    let (module, function) = cu.kernel("neighbour")?;
    let most = cu.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
    answers!(
        CUDA_ERROR_INVALID_VALUE,
        cu.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most + 4)
    );
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

fn occupancy_is_positive(cu: &'static Cuda) -> Verdict {
    let (module, function) = cu.kernel("noop")?;
    let mut blocks = 0;
    ok!(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, function, 128, 0));
    holds!(blocks > 0, "{blocks} blocks of 128 threads fit");
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

fn occupancy_of_an_empty_block_is_invalid_value(cu: &'static Cuda) -> Verdict {
    let (module, function) = cu.kernel("noop")?;
    let mut blocks = 0;
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, function, 0, 0));
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

fn a_potential_block_size_can_be_launched(cu: &'static Cuda) -> Verdict {
    let (module, function) = cu.kernel("noop")?;
    let (mut blocks, mut threads) = (0, 0);
    ok!(cu.cuOccupancyMaxPotentialBlockSize(&mut blocks, &mut threads, function, None, 0, 0));
    holds!(blocks > 0 && threads > 0, "{blocks} blocks of {threads} threads");
    ok!(cu.launch(function, blocks as u32, threads as u32, null_mut(), &mut []));
    ok!(cu.cuCtxSynchronize());
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

fn the_loading_mode_is_eager_or_lazy(cu: &'static Cuda) -> Verdict {
    let mut mode = 0;
    ok!(cu.cuModuleGetLoadingMode(&mut mode));
    holds!([CU_MODULE_EAGER_LOADING, CU_MODULE_LAZY_LOADING].contains(&mode), "mode {mode}");
    Ok(())
}

fn linked_ptx_can_be_loaded(cu: &'static Cuda) -> Verdict {
    let (mut state, mut cubin, mut bytes, mut module) = (null_mut(), null_mut(), 0, null_mut());
    ok!(cu.cuLinkCreate_v2(0, null_mut(), null_mut(), &mut state));
    ok!(cu.cuLinkAddData_v2(
        state,
        CU_JIT_INPUT_PTX,
        PTX.as_ptr().cast_mut().cast(),
        PTX.len(),
        c"facts.ptx".as_ptr(),
        0,
        null_mut(),
        null_mut()
    ));
    ok!(cu.cuLinkComplete(state, &mut cubin, &mut bytes));
    holds!(bytes > 0, "linking made nothing");
    ok!(cu.cuModuleLoadData(&mut module, cubin));
    ok!(cu.cuLinkDestroy(state));
    let (increment, address) = (cu.function(module, "increment")?, cu.words(&[1])?);
    ok!(cu.launch_on(increment, address, null_mut()));
    same!(cu.word(address)?, 2);
    ok!(cu.cuModuleUnload(module));
    cu.free(address)
}

fn options_are_accepted(cu: &'static Cuda) -> Verdict {
    let (mut module, mut log) = (null_mut(), vec![0u8; 256]);
    let mut options =
        [CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_OPTIMIZATION_LEVEL, CU_JIT_MAX_REGISTERS];
    let mut values: [*mut c_void; 4] =
        [log.as_mut_ptr().cast(), without_provenance_mut(256), without_provenance_mut(3), without_provenance_mut(64)];
    ok!(cu.cuModuleLoadDataEx(&mut module, PTX.as_ptr().cast(), 4, options.as_mut_ptr(), values.as_mut_ptr()));
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

fn another_thread_can_use_it(cu: &'static Cuda) -> Verdict {
    let (module, increment) = cu.kernel("increment")?;
    let address = cu.words(&[1])?;
    let increment = increment.addr();
    std::thread::spawn(move || {
        use_primary(cu)?;
        ok!(cu.launch_on(without_provenance_mut(increment), address, null_mut()));
        ok!(cu.cuStreamSynchronize(null_mut()));
        Ok::<(), String>(())
    })
    .join()
    .expect("a panic ends the process")?;
    same!(cu.word(address)?, 2);
    ok!(cu.cuModuleUnload(module));
    cu.free(address)
}

fn loading_state(cu: &Cuda, function: CUfunction) -> Get<CUfunctionLoadingState> {
    let mut state = 99;
    ok!(cu.cuFuncIsLoaded(&mut state, function));
    Ok(state)
}

/// A function of a fresh module, as a list of all of them gives it: nothing has asked for this one.
fn listed(cu: &Cuda) -> Get<(CUmodule, CUfunction)> {
    let (module, mut function) = (cu.module()?, null_mut());
    ok!(cu.cuModuleEnumerateFunctions(&mut function, 1, module));
    Ok((module, function))
}

fn an_eager_function_is_loaded_from_the_start(cu: &'static Cuda) -> Verdict {
    // SAFETY: no other thread of this process runs yet.
    unsafe { std::env::set_var("CUDA_MODULE_LOADING", "EAGER") };
    ok!(cu.cuInit(0));
    use_primary(cu)?;
    let mut mode = 0;
    ok!(cu.cuModuleGetLoadingMode(&mut mode));
    same!(mode, CU_MODULE_EAGER_LOADING);
    let (module, function) = listed(cu)?;
    same!(loading_state(cu, function)?, CU_FUNCTION_LOADING_STATE_LOADED);
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

fn loading_a_function_loads_it(cu: &'static Cuda) -> Verdict {
    let (module, function) = listed(cu)?;
    let before = loading_state(cu, function)?;
    let mut name = [0; 64];
    ok!(cu.cuDeviceGetName(name.as_mut_ptr(), 64, 0));
    if string_at(name.as_ptr()).contains("software GPU") {
        // When a driver loads what nobody has used is its own affair, but for this one.
        same!(before, CU_FUNCTION_LOADING_STATE_UNLOADED);
    }
    holds!(
        matches!(before, CU_FUNCTION_LOADING_STATE_UNLOADED | CU_FUNCTION_LOADING_STATE_LOADED),
        "the loading state {before} is none"
    );
    ok!(cu.cuFuncLoad(function));
    same!(loading_state(cu, function)?, CU_FUNCTION_LOADING_STATE_LOADED);
    ok!(cu.cuFuncLoad(function));
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

fn a_function_that_has_run_is_loaded(cu: &'static Cuda) -> Verdict {
    let (module, count) = cu.kernel("count")?;
    let address = cu.words(&[0])?;
    ok!(cu.launch_on(count, address, null_mut()));
    ok!(cu.cuCtxSynchronize());
    same!(loading_state(cu, count)?, CU_FUNCTION_LOADING_STATE_LOADED);
    ok!(cu.cuModuleUnload(module));
    cu.free(address)
}

fn a_loading_state_into_null_is_invalid_value(cu: &'static Cuda) -> Verdict {
    let (module, function) = listed(cu)?;
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuFuncIsLoaded(null_mut(), function));
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

fn many_are_loaded_used_and_unloaded_one_after_the_other(cu: &'static Cuda) -> Verdict {
    for _ in 0..1100 {
        let (mut module, mut function) = (null_mut(), null_mut());
        ok!(cu.cuModuleLoadData(&mut module, EMPTY_PTX.as_ptr().cast()));
        ok!(cu.cuModuleGetFunction(&mut function, module, c"nothing".as_ptr()));
        ok!(cu.launch(function, 1, 1, null_mut(), &mut []));
        ok!(cu.cuCtxSynchronize());
        ok!(cu.cuModuleUnload(module));
    }
    Ok(())
}

/// Another thread goes on with its own work while one compiles for long.
fn linking_holds_up_nobody_else(cu: &'static Cuda) -> Verdict {
    let mut text = String::from(".version 7.0\n.target sm_70\n.address_size 64\n");
    for kernel in 0..400 {
        text += &format!(".visible .entry long{kernel}(.param .u64 p) {{\n.reg .u32 %r<300>;\n");
        for i in 1..299 {
            text += &format!("add.u32 %r{}, %r{}, {i};\n", i + 1, i);
        }
        text += "ret;\n}\n";
    }
    text.push('\0');
    let linked = Arc::new(AtomicBool::new(false));
    let is_linked = linked.clone();
    let linker = std::thread::spawn(move || {
        use_primary(cu)?;
        let (mut state, mut cubin, mut bytes) = (null_mut(), null_mut(), 0);
        ok!(cu.cuLinkCreate_v2(0, null_mut(), null_mut(), &mut state));
        let (data, length) = (text.as_ptr().cast_mut().cast(), text.len());
        let name = c"long.ptx".as_ptr();
        ok!(cu.cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, data, length, name, 0, null_mut(), null_mut()));
        ok!(cu.cuLinkComplete(state, &mut cubin, &mut bytes));
        is_linked.store(true, Ordering::SeqCst);
        ok!(cu.cuLinkDestroy(state));
        Ok::<(), String>(())
    });
    let (stream, mut answers) = (cu.stream()?, 0);
    while !linked.load(Ordering::SeqCst) && !linker.is_finished() {
        ok!(cu.cuStreamSynchronize(stream));
        let event = cu.event()?;
        ok!(cu.cuEventRecord(event, stream));
        ok!(cu.cuEventSynchronize(event));
        ok!(cu.cuEventDestroy_v2(event));
        answers += 1;
    }
    linker.join().map_err(|_| "the linking thread panicked".to_owned())??;
    // Whoever is held up by the linker's calls is answered once between two of them: three times at most.
    holds!(answers > 6, "only {answers} rounds of calls were answered while another thread linked");
    Ok(())
}

/// A link is one thread's from its first input to its image, whatever others compile meanwhile.
fn threads_link_and_load_at_once(cu: &'static Cuda) -> Verdict {
    const ROUNDS: usize = 40;
    let load = move || {
        use_primary(cu)?;
        for _ in 0..ROUNDS {
            let mut module = null_mut();
            ok!(cu.cuModuleLoadData(&mut module, EMPTY_PTX.as_ptr().cast()));
            ok!(cu.cuModuleUnload(module));
        }
        Ok::<(), String>(())
    };
    let link = move || {
        use_primary(cu)?;
        for _ in 0..ROUNDS {
            let (mut state, mut cubin, mut bytes, mut module) = (null_mut(), null_mut(), 0, null_mut());
            let (text, length) = (EMPTY_PTX.as_ptr().cast_mut().cast(), EMPTY_PTX.count_bytes() + 1);
            ok!(cu.cuLinkCreate_v2(0, null_mut(), null_mut(), &mut state));
            let name = c"nothing.ptx".as_ptr();
            ok!(cu.cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, text, length, name, 0, null_mut(), null_mut()));
            ok!(cu.cuLinkComplete(state, &mut cubin, &mut bytes));
            ok!(cu.cuModuleLoadData(&mut module, cubin));
            ok!(cu.cuLinkDestroy(state));
            ok!(cu.cuModuleUnload(module));
        }
        Ok::<(), String>(())
    };
    let threads =
        [load, load, load].map(std::thread::spawn).into_iter().chain([link, link, link].map(std::thread::spawn));
    for thread in threads {
        thread.join().map_err(|_| "a thread panicked".to_owned())??;
    }
    Ok(())
}
