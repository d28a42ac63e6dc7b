//! Managed memory: what holds on every device that has it, also where the host stays away while a kernel runs.

use std::ptr::null_mut;
use std::sync::atomic::Ordering;

use orion_cuda::sys::*;

use crate::driver::Cuda;
use crate::fact::{Verdict, answers, facts, holds, ok, same};
use crate::lab::{Get, as_void, counter, counter_argument, read, tally, text, write};

facts! { managed:
    Context [
        flags_and_sizes_are_checked,
        host_and_kernel_take_turns,
        a_kernel_finds_it_by_an_address_in_managed_memory,
        copies_know_it_as_source_and_as_target,
        a_memset_of_it_is_seen_by_the_host,
        megabytes_go_there_and_back,
        freeing_it_waits_for_the_device,
        freeing_device_memory_tells_of_all_before_it,
        freed_managed_memory_is_unknown.not_in_a_crowd("another may be given the freed address"),
        an_address_in_it_says_so,
        its_range_is_told,
        a_graph_and_the_host_count_together,
        a_host_function_sees_what_a_kernel_wrote,
        what_a_query_covers_is_seen,
        streams_have_their_own_parts,
        it_may_be_attached,
        a_device_s_own_memory_is_not_attached,
        advice_is_told_back,
        advice_that_makes_no_sense_is_refused,
        several_answers_at_once_about_a_range,
        only_managed_ranges_are_asked_about,
        prefetches_change_no_byte,
        a_module_s_managed_variable_is_the_host_s_too,
        a_library_s_managed_variable_is_the_host_s_too,
        managed_variables_are_found_again_when_they_are_loaded_again,
        a_variable_of_another_kind_is_no_managed_one,
    ]
}

/// Two variables that the host has too, one beyond a page from the other, one that it has not, and a kernel that adds
/// what the first holds to the last word of the second.
const VARIABLES: &str = "\
.version 8.0
.target sm_75
.address_size 64
.visible .global .attribute(.managed) .align 4 .u32 first = 7;
.visible .global .attribute(.managed) .align 4 .u32 second[2000];
.visible .global .align 4 .u32 other = 1;
.visible .entry sum() {
.reg .u32 %r<3>;
ld.global.u32 %r0, [first];
ld.global.u32 %r1, [second+7996];
add.u32 %r2, %r0, %r1;
st.global.u32 [second+7996], %r2;
ret;
}
\0";

/// Nothing, where the device has none.
fn managed(cu: &Cuda, bytes: usize) -> Get<Option<CUdeviceptr>> {
    if cu.attribute(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY)? == 0 {
        return Ok(None);
    }
    let mut address = 0;
    ok!(cu.cuMemAllocManaged(&mut address, bytes, CU_MEM_ATTACH_GLOBAL));
    Ok(Some(address))
}

macro_rules! managed {
    ($cu:expr, $bytes:expr) => {
        match managed($cu, $bytes)? {
            Some(address) => address,
            None => return Ok(()),
        }
    };
}

fn on_host(address: CUdeviceptr) -> *mut std::ffi::c_void {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

fn put<T: Copy>(address: CUdeviceptr, value: T) {
    write(on_host(address), value);
}

fn get<T: Copy>(address: CUdeviceptr) -> T {
    read(on_host(address))
}

fn flags_and_sizes_are_checked(cu: &'static Cuda) -> Verdict {
    let mut address = managed!(cu, 64);
    cu.free(address)?;
    for (bytes, flags) in [(0, CU_MEM_ATTACH_GLOBAL), (64, 0), (64, CU_MEM_ATTACH_SINGLE), (64, 3)] {
        answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemAllocManaged(&mut address, bytes, flags));
    }
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemAllocManaged(null_mut(), 64, CU_MEM_ATTACH_GLOBAL));
    ok!(cu.cuMemAllocManaged(&mut address, 64, CU_MEM_ATTACH_HOST));
    put(address, 1u32);
    cu.free(address)
}

fn host_and_kernel_take_turns(cu: &'static Cuda) -> Verdict {
    let address = managed!(cu, 8);
    let (module, increment) = cu.kernel("increment")?;
    for round in 0..50u32 {
        put(address, round * 10);
        ok!(cu.launch_on(increment, address, null_mut()));
        ok!(cu.cuCtxSynchronize());
        same!(get::<u32>(address), round * 10 + 1);
        ok!(cu.launch_on(increment, address, null_mut()));
        ok!(cu.cuStreamSynchronize(null_mut()));
        same!(get::<u32>(address), round * 10 + 2);
    }
    ok!(cu.cuModuleUnload(module));
    cu.free(address)
}

fn a_kernel_finds_it_by_an_address_in_managed_memory(cu: &'static Cuda) -> Verdict {
    let mut table = managed!(cu, 64);
    let (module, through) = cu.kernel("through")?;
    for first in [10u32, 20] {
        let hidden = managed!(cu, 64);
        put(hidden, first);
        put(table, hidden);
        ok!(cu.launch(through, 1, 1, null_mut(), &mut [as_void(&mut table)]));
        ok!(cu.cuCtxSynchronize());
        same!(get::<u32>(hidden), first + 1);
        // The address in device memory.
        let (device, mut place) = (cu.alloc(8)?, 0);
        cu.upload(device, &[hidden])?;
        place += device;
        ok!(cu.launch(through, 1, 1, null_mut(), &mut [as_void(&mut place)]));
        ok!(cu.cuCtxSynchronize());
        same!(get::<u32>(hidden), first + 2);
        cu.free(device)?;
        cu.free(hidden)?;
    }
    ok!(cu.cuModuleUnload(module));
    cu.free(table)
}

fn copies_know_it_as_source_and_as_target(cu: &'static Cuda) -> Verdict {
    const COUNT: usize = 5_000;
    const BYTES: usize = 4 * COUNT;
    let (one, other) = (managed!(cu, BYTES), managed!(cu, BYTES));
    let words: Vec<u32> = (0..COUNT as u32).map(|i| i.wrapping_mul(2654435761)).collect();
    let mut back = vec![0u32; COUNT];
    let seen = |address: CUdeviceptr| (0..COUNT).map(|i| get::<u32>(address + 4 * i as u64)).collect::<Vec<_>>();
    // As memory of the device's.
    ok!(cu.cuMemcpyHtoD_v2(one, words.as_ptr().cast(), BYTES));
    ok!(cu.cuCtxSynchronize());
    holds!(seen(one) == words, "what was copied there is not what was read");
    ok!(cu.cuMemcpyDtoD_v2(other, one, BYTES));
    ok!(cu.cuCtxSynchronize());
    holds!(seen(other) == words, "what was copied from one to the other is not what was read");
    put(other + 8, 77u32);
    ok!(cu.cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), other, BYTES));
    same!((back[1], back[2], back[3]), (words[1], 77, words[3]));
    // As the host's.
    let device = cu.alloc(BYTES)?;
    put(one, 5u32);
    ok!(cu.cuMemcpyHtoD_v2(device, on_host(one), BYTES));
    ok!(cu.cuCtxSynchronize());
    same!(cu.download::<u32>(device, 2)?, vec![5, words[1]]);
    ok!(cu.cuMemcpyDtoH_v2(on_host(other), device, BYTES));
    same!((get::<u32>(other), get::<u32>(other + 8)), (5, words[2]));
    // As whatever it is.
    put(other, 6u32);
    ok!(cu.cuMemcpy(device, other, BYTES));
    ok!(cu.cuMemcpy(one, device, BYTES));
    ok!(cu.cuCtxSynchronize());
    same!((get::<u32>(one), get::<u32>(one + 4)), (6, words[1]));
    let stream = cu.stream()?;
    put(one, 7u32);
    ok!(cu.cuMemcpyAsync(device, one, BYTES, stream));
    ok!(cu.cuMemcpyAsync(other, device, BYTES, stream));
    ok!(cu.cuStreamSynchronize(stream));
    same!(get::<u32>(other), 7);
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(device)?;
    cu.free(one)?;
    cu.free(other)
}

fn a_memset_of_it_is_seen_by_the_host(cu: &'static Cuda) -> Verdict {
    let address = managed!(cu, 4096);
    for value in [3u32, 9] {
        put(address, 1u32);
        put(address + 4092, 1u32);
        ok!(cu.cuMemsetD32_v2(address, value, 1023));
        ok!(cu.cuCtxSynchronize());
        same!((get::<u32>(address), get::<u32>(address + 4088), get::<u32>(address + 4092)), (value, value, 1));
        ok!(cu.cuMemsetD8Async(address, value as u8, 4, null_mut()));
        ok!(cu.cuStreamSynchronize(null_mut()));
        same!(get::<u32>(address), value * 0x0101_0101);
    }
    cu.free(address)
}

fn megabytes_go_there_and_back(cu: &'static Cuda) -> Verdict {
    const COUNT: u32 = 1 << 20;
    let bytes = 4 * COUNT as usize;
    let (mut a, mut b, mut c) = (managed!(cu, bytes), managed!(cu, bytes), managed!(cu, bytes));
    let (module, add) = cu.kernel("add")?;
    let mut count = COUNT;
    for round in 1..4u32 {
        for i in 0..COUNT {
            put(a + 4 * u64::from(i), i * round);
            put(b + 4 * u64::from(i), 7 * i);
        }
        let mut arguments = [as_void(&mut a), as_void(&mut b), as_void(&mut c), as_void(&mut count)];
        ok!(cu.launch(add, COUNT / 256, 256, null_mut(), &mut arguments));
        ok!(cu.cuCtxSynchronize());
        let wrong = (0..COUNT).find(|i| get::<u32>(c + 4 * u64::from(*i)) != i * round + 7 * i);
        same!(wrong, None);
    }
    ok!(cu.cuModuleUnload(module));
    [a, b, c].into_iter().try_for_each(|address| cu.free(address))
}

fn freeing_it_waits_for_the_device(cu: &'static Cuda) -> Verdict {
    let (result, other) = (managed!(cu, 64), managed!(cu, 64));
    let (module, increment) = cu.kernel("increment")?;
    let stream = cu.stream()?;
    put(result, 0u32);
    for _ in 0..100 {
        ok!(cu.launch_on(increment, result, stream));
    }
    cu.free(other)?;
    same!(get::<u32>(result), 100);
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuModuleUnload(module));
    cu.free(result)
}

/// Of what kernels wrote, and of a copy to pinned memory.
fn freeing_device_memory_tells_of_all_before_it(cu: &'static Cuda) -> Verdict {
    let (result, copy, device) = (managed!(cu, 64), cu.pinned(64)?, cu.alloc(64)?);
    let (module, increment) = cu.kernel("increment")?;
    let mut variables = null_mut();
    ok!(cu.cuModuleLoadData(&mut variables, VARIABLES.as_ptr().cast()));
    let (sum, mut second, mut bytes, name) = (cu.function(variables, "sum")?, 0, 0, text("second"));
    ok!(cu.cuModuleGetGlobal_v2(&mut second, &mut bytes, variables, name.as_ptr()));
    let stream = cu.stream()?;
    ok!(cu.cuMemsetD32Async(device, 0, 1, stream));
    put(result, 0u32);
    for round in 1..50u32 {
        let other = cu.alloc(64)?;
        ok!(cu.launch_on(increment, result, stream));
        ok!(cu.launch(sum, 1, 1, stream, &mut []));
        ok!(cu.launch_on(increment, device, stream));
        ok!(cu.cuMemcpyDtoHAsync_v2(copy, device, 4, stream));
        cu.free(other)?;
        same!((get::<u32>(result), get::<u32>(second + 7996), read::<u32>(copy)), (round, 7 * round, round));
    }
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuModuleUnload(module));
    ok!(cu.cuModuleUnload(variables));
    ok!(cu.cuMemFreeHost(copy));
    cu.free(device)?;
    cu.free(result)
}

fn freed_managed_memory_is_unknown(cu: &'static Cuda) -> Verdict {
    let address = managed!(cu, 64);
    cu.free(address)?;
    let mut managed = 0u32;
    answers!(
        CUDA_ERROR_INVALID_VALUE,
        cu.cuPointerGetAttribute(as_void(&mut managed), CU_POINTER_ATTRIBUTE_IS_MANAGED, address)
    );
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemFree_v2(address));
    Ok(())
}

fn an_address_in_it_says_so(cu: &'static Cuda) -> Verdict {
    let address = managed!(cu, 64);
    let of = |attribute| -> Get<u64> {
        let mut value = 0u64;
        ok!(cu.cuPointerGetAttribute(as_void(&mut value), attribute, address + 4));
        Ok(value)
    };
    same!(of(CU_POINTER_ATTRIBUTE_IS_MANAGED)? & 0xff, 1);
    same!(of(CU_POINTER_ATTRIBUTE_DEVICE_POINTER)?, address + 4);
    same!(of(CU_POINTER_ATTRIBUTE_HOST_POINTER)?, address + 4);
    same!(of(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)? as u32, 0);
    cu.free(address)
}

fn its_range_is_told(cu: &'static Cuda) -> Verdict {
    let address = managed!(cu, 1000);
    let (mut base, mut bytes) = (0, 0);
    ok!(cu.cuMemGetAddressRange_v2(&mut base, &mut bytes, address + 10));
    same!((base, bytes), (address, 1000));
    cu.free(address)
}

fn a_graph_and_the_host_count_together(cu: &'static Cuda) -> Verdict {
    let mut address = managed!(cu, 64);
    let (module, increment) = cu.kernel("increment")?;
    let (mut graph, mut node, mut exec) = (null_mut(), null_mut(), null_mut());
    ok!(cu.cuGraphCreate(&mut graph, 0));
    let mut arguments = [as_void(&mut address)];
    let mut parameters: CUDA_KERNEL_NODE_PARAMS_v2 = crate::lab::zeroed();
    parameters.func = increment;
    (parameters.gridDimX, parameters.gridDimY, parameters.gridDimZ) = (1, 1, 1);
    (parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ) = (1, 1, 1);
    parameters.kernelParams = arguments.as_mut_ptr();
    ok!(cu.cuGraphAddKernelNode_v2(&mut node, graph, null_mut(), 0, &parameters));
    ok!(cu.cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    put(address, 0u32);
    for round in 0..100u32 {
        ok!(cu.cuGraphLaunch(exec, null_mut()));
        ok!(cu.cuStreamSynchronize(null_mut()));
        same!(get::<u32>(address), 2 * round + 1);
        put(address, 2 * round + 2);
    }
    ok!(cu.cuGraphExecDestroy(exec));
    ok!(cu.cuGraphDestroy(graph));
    ok!(cu.cuModuleUnload(module));
    cu.free(address)
}

fn a_host_function_sees_what_a_kernel_wrote(cu: &'static Cuda) -> Verdict {
    let address = managed!(cu, 64);
    let (module, increment) = cu.kernel("increment")?;
    let calls = counter();
    put(address, 0u32);
    ok!(cu.launch_on(increment, address, null_mut()));
    ok!(cu.cuLaunchHostFunc(null_mut(), Some(tally), counter_argument(calls)));
    ok!(cu.launch_on(increment, address, null_mut()));
    ok!(cu.cuStreamSynchronize(null_mut()));
    same!((calls.load(Ordering::SeqCst), get::<u32>(address)), (1, 2));
    ok!(cu.cuModuleUnload(module));
    cu.free(address)
}

fn what_a_query_covers_is_seen(cu: &'static Cuda) -> Verdict {
    let address = managed!(cu, 64);
    let (module, increment) = cu.kernel("increment")?;
    let (stream, event) = (cu.stream()?, cu.event()?);
    put(address, 0u32);
    for round in 0..50 {
        ok!(cu.launch_on(increment, address, stream));
        ok!(cu.cuEventRecord(event, stream));
        loop {
            match cu.cuEventQuery(event) {
                CUDA_ERROR_NOT_READY => std::thread::yield_now(),
                code => break ok!(code),
            }
        }
        same!(get::<u32>(address), round + 1);
    }
    ok!(cu.cuEventDestroy_v2(event));
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuModuleUnload(module));
    cu.free(address)
}

/// Each stream's memory is the host's when that stream has come to its end.
fn streams_have_their_own_parts(cu: &'static Cuda) -> Verdict {
    let (one, other) = (managed!(cu, 64), managed!(cu, 64));
    let (module, increment) = cu.kernel("increment")?;
    let streams = [cu.stream()?, cu.stream()?];
    for (address, stream) in [one, other].into_iter().zip(streams) {
        put(address, 0u32);
        ok!(cu.cuStreamAttachMemAsync(stream, address, 0, CU_MEM_ATTACH_SINGLE));
        ok!(cu.cuStreamSynchronize(stream));
    }
    for round in 0..50u32 {
        for (address, stream) in [one, other].into_iter().zip(streams) {
            ok!(cu.cuStreamSynchronize(stream));
            same!(get::<u32>(address), round * 2);
            put(address, round * 2 + 1);
            ok!(cu.launch_on(increment, address, stream));
        }
    }
    ok!(cu.cuCtxSynchronize());
    same!((get::<u32>(one), get::<u32>(other)), (100, 100));
    for stream in streams {
        ok!(cu.cuStreamDestroy_v2(stream));
    }
    ok!(cu.cuModuleUnload(module));
    cu.free(one)?;
    cu.free(other)
}

fn it_may_be_attached(cu: &'static Cuda) -> Verdict {
    let address = managed!(cu, 64);
    let stream = cu.stream()?;
    for flags in [CU_MEM_ATTACH_HOST, CU_MEM_ATTACH_GLOBAL, CU_MEM_ATTACH_SINGLE] {
        ok!(cu.cuStreamAttachMemAsync(stream, address, 0, flags));
        ok!(cu.cuStreamSynchronize(stream));
    }
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuStreamAttachMemAsync(stream, address, 0, 8));
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(address)
}

fn a_device_s_own_memory_is_not_attached(cu: &'static Cuda) -> Verdict {
    let address = cu.alloc(64)?;
    let stream = cu.stream()?;
    if cu.attribute(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY)? != 0 {
        answers!(CUDA_ERROR_INVALID_VALUE, cu.cuStreamAttachMemAsync(stream, address, 0, CU_MEM_ATTACH_HOST));
    }
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(address)
}

const HOST: CUdevice = -1;
const NOBODY: CUdevice = -2;

fn asked(cu: &Cuda, attribute: CUmem_range_attribute, address: CUdeviceptr, bytes: usize) -> Get<i32> {
    let mut value = 99i32;
    ok!(cu.cuMemRangeGetAttribute(as_void(&mut value), 4, attribute, address, bytes));
    Ok(value)
}

fn advice_is_told_back(cu: &'static Cuda) -> Verdict {
    const PART: usize = 2 << 20;
    let address = managed!(cu, 2 * PART);
    let second = address + PART as u64;
    let (mostly, preferred, by) = (
        CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY,
        CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION,
        CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY,
    );
    same!(asked(cu, mostly, address, 2 * PART)?, 0);
    same!(asked(cu, preferred, address, 2 * PART)?, NOBODY);
    same!(asked(cu, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, address, 2 * PART)?, NOBODY);
    ok!(cu.cuMemAdvise(address, PART, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
    same!((asked(cu, mostly, address, PART)?, asked(cu, mostly, address, 2 * PART)?), (1, 0));
    ok!(cu.cuMemAdvise(address, PART, CU_MEM_ADVISE_UNSET_READ_MOSTLY, 0));
    same!(asked(cu, mostly, address, PART)?, 0);
    ok!(cu.cuMemAdvise(address, 2 * PART, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, HOST));
    same!(asked(cu, preferred, address, 2 * PART)?, HOST);
    ok!(cu.cuMemAdvise(second, PART, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, HOST));
    same!((asked(cu, preferred, address, PART)?, asked(cu, preferred, address, 2 * PART)?), (HOST, NOBODY));
    let mut devices = [99i32; 3];
    ok!(cu.cuMemAdvise(address, PART, CU_MEM_ADVISE_SET_ACCESSED_BY, HOST));
    ok!(cu.cuMemRangeGetAttribute(devices.as_mut_ptr().cast(), 12, by, address, PART));
    same!(devices, [HOST, NOBODY, NOBODY]);
    ok!(cu.cuMemAdvise(address, PART, CU_MEM_ADVISE_UNSET_ACCESSED_BY, HOST));
    same!(asked(cu, by, address, PART)?, NOBODY);
    cu.free(address)
}

fn advice_that_makes_no_sense_is_refused(cu: &'static Cuda) -> Verdict {
    let address = managed!(cu, 4096);
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemAdvise(address, 0, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemAdvise(address, 4096, 77, 0));
    answers!(CUDA_ERROR_INVALID_DEVICE, cu.cuMemAdvise(address, 4096, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 999));
    let mut value = 0u64;
    let mostly = CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY;
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemRangeGetAttribute(as_void(&mut value), 3, mostly, address, 4096));
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemRangeGetAttribute(as_void(&mut value), 4, 99, address, 4096));
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemRangeGetAttribute(null_mut(), 4, mostly, address, 4096));
    cu.free(address)
}

fn several_answers_at_once_about_a_range(cu: &'static Cuda) -> Verdict {
    let address = managed!(cu, 4096);
    ok!(cu.cuMemAdvise(address, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
    let (mut mostly, mut devices) = (9i32, [9i32; 2]);
    let mut places = [as_void(&mut mostly), devices.as_mut_ptr().cast()];
    let mut sizes = [4, 8];
    let mut attributes = [CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY];
    let (places, sizes, attributes) = (places.as_mut_ptr(), sizes.as_mut_ptr(), attributes.as_mut_ptr());
    ok!(cu.cuMemRangeGetAttributes(places, sizes, attributes, 2, address, 4096));
    same!((mostly, devices), (1, [NOBODY, NOBODY]));
    cu.free(address)
}

fn only_managed_ranges_are_asked_about(cu: &'static Cuda) -> Verdict {
    let address = cu.alloc(4096)?;
    let mut value = 0i32;
    if cu.attribute(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY)? != 0 {
        let mostly = CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY;
        answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemRangeGetAttribute(as_void(&mut value), 4, mostly, address, 4096));
    }
    cu.free(address)
}

fn prefetches_change_no_byte(cu: &'static Cuda) -> Verdict {
    let address = managed!(cu, 1 << 20);
    let (module, increment) = cu.kernel("increment")?;
    let stream = cu.stream()?;
    put(address, 1u32);
    ok!(cu.cuMemPrefetchAsync(address, 1 << 20, 0, stream));
    ok!(cu.launch_on(increment, address, stream));
    ok!(cu.cuMemPrefetchAsync(address, 1 << 20, HOST, stream));
    ok!(cu.cuStreamSynchronize(stream));
    same!(get::<u32>(address), 2);
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuModuleUnload(module));
    cu.free(address)
}

/// `of` tells where a variable is.
fn add_up(cu: &Cuda, sum: CUfunction, of: impl Fn(&str) -> Get<(CUdeviceptr, usize)>) -> Verdict {
    let ((first, four), (second, many)) = (of("first")?, of("second")?);
    same!((four, many), (4, 8000));
    same!((get::<u32>(first), get::<u32>(second), get::<u32>(second + 7996)), (7, 0, 0));
    for round in 0..20u32 {
        put(first, round);
        put(second + 7996, 100u32);
        put(second, round);
        ok!(cu.launch(sum, 1, 1, null_mut(), &mut []));
        ok!(cu.cuCtxSynchronize());
        same!((get::<u32>(second + 7996), get::<u32>(second)), (100 + round, round));
    }
    // As memory of the device's.
    same!(cu.word(second + 7996)?, 119);
    cu.upload(first, &[5u32])?;
    same!(get::<u32>(first), 5);
    ok!(cu.launch(sum, 1, 1, null_mut(), &mut []));
    ok!(cu.cuCtxSynchronize());
    same!(get::<u32>(second + 7996), 124);
    let mut managed = 0u32;
    ok!(cu.cuPointerGetAttribute(as_void(&mut managed), CU_POINTER_ATTRIBUTE_IS_MANAGED, first));
    same!(managed & 0xff, 1);
    Ok(())
}

fn has_managed(cu: &Cuda) -> Get<bool> {
    Ok(cu.attribute(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY)? != 0)
}

fn of_a_module(cu: &'static Cuda) -> Verdict {
    let mut module = null_mut();
    ok!(cu.cuModuleLoadData(&mut module, VARIABLES.as_ptr().cast()));
    let sum = cu.function(module, "sum")?;
    add_up(cu, sum, |name| {
        let (mut address, mut bytes, name) = (0, 0, text(name));
        ok!(cu.cuModuleGetGlobal_v2(&mut address, &mut bytes, module, name.as_ptr()));
        Ok((address, bytes))
    })?;
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

/// As runtimes before 12.0 find them.
fn a_module_s_managed_variable_is_the_host_s_too(cu: &'static Cuda) -> Verdict {
    if has_managed(cu)? { of_a_module(cu) } else { Ok(()) }
}

fn load(cu: &Cuda) -> Get<CUlibrary> {
    let mut library = null_mut();
    let code = VARIABLES.as_ptr().cast();
    ok!(cu.cuLibraryLoadData(&mut library, code, null_mut(), null_mut(), 0, null_mut(), null_mut(), 0));
    Ok(library)
}

fn of_a_library(cu: &'static Cuda) -> Verdict {
    let library = load(cu)?;
    let (mut kernel, mut sum, name) = (null_mut(), null_mut(), text("sum"));
    ok!(cu.cuLibraryGetKernel(&mut kernel, library, name.as_ptr()));
    ok!(cu.cuKernelGetFunction(&mut sum, kernel));
    add_up(cu, sum, |name| {
        let (mut address, mut bytes, name) = (0, 0, text(name));
        ok!(cu.cuLibraryGetManaged(&mut address, &mut bytes, library, name.as_ptr()));
        Ok((address, bytes))
    })?;
    ok!(cu.cuLibraryUnload(library));
    Ok(())
}

fn a_library_s_managed_variable_is_the_host_s_too(cu: &'static Cuda) -> Verdict {
    if has_managed(cu)? { of_a_library(cu) } else { Ok(()) }
}

fn managed_variables_are_found_again_when_they_are_loaded_again(cu: &'static Cuda) -> Verdict {
    if has_managed(cu)? {
        for _ in 0..10 {
            of_a_module(cu)?;
            of_a_library(cu)?;
        }
    }
    Ok(())
}

fn a_variable_of_another_kind_is_no_managed_one(cu: &'static Cuda) -> Verdict {
    let library = load(cu)?;
    let (mut address, mut bytes) = (0, 0);
    for name in ["other", "nowhere"] {
        let name = text(name);
        answers!(CUDA_ERROR_NOT_FOUND, cu.cuLibraryGetManaged(&mut address, &mut bytes, library, name.as_ptr()));
    }
    ok!(cu.cuLibraryUnload(library));
    Ok(())
}
