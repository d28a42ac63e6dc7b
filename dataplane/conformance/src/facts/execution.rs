//! Launches: arguments, geometry, and the mistakes that are reported at once.
//!
//! UNSAFETY: sets an environment variable that the driver reads.

use std::ffi::c_void;
use std::ptr::{null_mut, without_provenance_mut};

use orion_cuda::sys::*;

use crate::driver::Cuda;
use crate::fact::{Verdict, answers, facts, holds, ok, same};
use crate::lab::{as_void, use_primary, zeroed};

facts! { launch:
    Nothing [
        a_blocking_launch_returns_when_its_kernel_has_run.not_in_a_crowd("it sets an environment variable"),
    ]
    Context [
        vectors_are_added,
        what_is_only_told_of_a_function_cannot_be_set,
        every_thread_counts_once,
        arguments_of_every_width_arrive,
        a_struct_by_value_arrives,
        a_packed_buffer_of_arguments_arrives,
        arguments_both_ways_are_invalid_value,
        arguments_are_read_at_the_call,
        blocks_have_three_coordinates,
        static_shared_memory_and_barriers,
        dynamic_shared_memory,
        a_grid_of_nothing_is_invalid_value,
        a_block_of_nothing_is_invalid_value,
        too_many_threads_are_invalid_value,
        a_block_too_deep_is_invalid_value,
        a_grid_too_high_is_invalid_value,
        more_threads_than_the_kernel_allows_are_refused,
        too_much_shared_memory_is_invalid_value,
        a_null_function_is_invalid_handle,
        a_refused_launch_leaves_the_context_well,
        the_extended_form_launches,
        a_null_configuration_is_invalid_value,
        a_cooperative_launch_that_fits_runs,
        a_cooperative_launch_too_large_is_refused,
        the_per_thread_entry_launches,
        a_thousand_run_in_order,
        cuda_3_launches_with_what_was_set_of_the_function,
        a_function_begins_with_blocks_of_one_thread,
        what_cuda_3_launches_is_what_cuda_4_launched_last,
        what_is_no_block_for_cuda_3_leaves_the_one_that_was_set,
        more_arguments_than_a_function_takes_are_found_at_cuda_3s_launch,
        cuda_3_sets_nothing_without_a_context,
    ]
}

fn a_blocking_launch_returns_when_its_kernel_has_run(cu: &'static Cuda) -> Verdict {
    // SAFETY: no other thread of this process runs yet.
    unsafe { std::env::set_var("CUDA_LAUNCH_BLOCKING", "1") };
    ok!(cu.cuInit(0));
    use_primary(cu)?;
    let ((module, count), stream) = (cu.kernel("count")?, cu.stream()?);
    let address = cu.words(&[0])?;
    // Something in front of the kernel that ends a while after the launch has begun, and not because of it.
    let gate = cu.gate(stream)?;
    let opener = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(30));
        gate.open();
    });
    ok!(cu.launch_on(count, address, stream));
    ok!(cu.cuStreamQuery(stream));
    same!(cu.word(address)?, 1);
    holds!(opener.join().is_ok(), "the thread that opens the gate failed");
    ok!(cu.cuModuleUnload(module));
    cu.free(address)
}

fn vectors_are_added(cu: &'static Cuda) -> Verdict {
    let (module, add) = cu.kernel("add")?;
    let count = 10_000u32;
    let (mut a, mut b) = (cu.alloc(40_000)?, cu.alloc(40_000)?);
    let (mut c, mut n) = (cu.alloc(40_000)?, count);
    cu.upload(a, &(0..count).map(|i| i as f32).collect::<Vec<_>>())?;
    cu.upload(b, &(0..count).map(|i| 0.5 * i as f32).collect::<Vec<_>>())?;
    let mut arguments = [as_void(&mut a), as_void(&mut b), as_void(&mut c), as_void(&mut n)];
    ok!(cu.launch(add, count.div_ceil(256), 256, null_mut(), &mut arguments));
    same!(cu.download::<f32>(c, count as usize)?, (0..count).map(|i| 1.5 * i as f32).collect::<Vec<_>>());
    ok!(cu.cuModuleUnload(module));
    [a, b, c].iter().try_for_each(|address| cu.free(*address))
}

fn every_thread_counts_once(cu: &'static Cuda) -> Verdict {
    let (module, count) = cu.kernel("count")?;
    let mut address = cu.words(&[0])?;
    ok!(cu.launch(count, 33, 96, null_mut(), &mut [as_void(&mut address)]));
    same!(cu.word(address)?, 33 * 96);
    ok!(cu.cuModuleUnload(module));
    cu.free(address)
}

fn arguments_of_every_width_arrive(cu: &'static Cuda) -> Verdict {
    let (module, mixed) = cu.kernel("mixed")?;
    let mut out = cu.alloc(32)?;
    let (mut a, mut b, mut c, mut d) = (0xabu8, 0xcdefu16, 0x1234_5678u32, 0x9abc_def0_1122_3344u64);
    let mut arguments = [as_void(&mut a), as_void(&mut b), as_void(&mut c), as_void(&mut d), as_void(&mut out)];
    ok!(cu.launch(mixed, 1, 1, null_mut(), &mut arguments));
    same!(cu.download::<u64>(out, 4)?, [0xab, 0xcdef, 0x1234_5678, 0x9abc_def0_1122_3344]);
    ok!(cu.cuModuleUnload(module));
    cu.free(out)
}

fn a_struct_by_value_arrives(cu: &'static Cuda) -> Verdict {
    let (module, record) = cu.kernel("record")?;
    let (mut value, mut out) = ([100u64, 2, 3, 4, 11], cu.alloc(8)?);
    ok!(cu.launch(record, 1, 1, null_mut(), &mut [as_void(&mut value), as_void(&mut out)]));
    same!(cu.download::<u64>(out, 1)?, [111]);
    ok!(cu.cuModuleUnload(module));
    cu.free(out)
}

#[repr(C)]
struct Packed {
    a: u8,
    b: u16,
    c: u32,
    d: u64,
    out: u64,
}

fn extra(packed: &mut Packed, bytes: &mut usize) -> [*mut c_void; 5] {
    [
        without_provenance_mut(CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT as usize),
        as_void(packed),
        without_provenance_mut(CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT as usize),
        as_void(bytes),
        null_mut(),
    ]
}

fn a_packed_buffer_of_arguments_arrives(cu: &'static Cuda) -> Verdict {
    let (module, mixed) = cu.kernel("mixed")?;
    let out = cu.alloc(32)?;
    let (mut packed, mut bytes) = (Packed { a: 1, b: 2, c: 3, d: 4, out }, size_of::<Packed>());
    let mut extra = extra(&mut packed, &mut bytes);
    ok!(cu.cuLaunchKernel(mixed, 1, 1, 1, 1, 1, 1, 0, null_mut(), null_mut(), extra.as_mut_ptr()));
    same!(cu.download::<u64>(out, 4)?, [1, 2, 3, 4]);
    ok!(cu.cuModuleUnload(module));
    cu.free(out)
}

fn arguments_both_ways_are_invalid_value(cu: &'static Cuda) -> Verdict {
    let (module, mixed) = cu.kernel("mixed")?;
    let mut out = cu.alloc(32)?;
    let (mut packed, mut bytes) = (Packed { a: 1, b: 2, c: 3, d: 4, out }, size_of::<Packed>());
    let mut arguments = [as_void(&mut out); 5];
    answers!(
        CUDA_ERROR_INVALID_VALUE,
        cu.cuLaunchKernel(
            mixed,
            1,
            1,
            1,
            1,
            1,
            1,
            0,
            null_mut(),
            arguments.as_mut_ptr(),
            extra(&mut packed, &mut bytes).as_mut_ptr()
        )
    );
    ok!(cu.cuModuleUnload(module));
    cu.free(out)
}

fn arguments_are_read_at_the_call(cu: &'static Cuda) -> Verdict {
    let (module, fill) = cu.kernel("fill")?;
    let (stream, mut out) = (cu.stream()?, cu.words(&[0; 4])?);
    let (mut value, mut n) = (5u32, 4u32);
    let gate = cu.gate(stream)?;
    let mut arguments = [as_void(&mut out), as_void(&mut value), as_void(&mut n)];
    ok!(cu.launch(fill, 1, 32, stream, &mut arguments));
    crate::lab::write(as_void(&mut value), 6u32);
    arguments.fill(null_mut());
    gate.open();
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu.download::<u32>(out, 4)?, [5; 4]);
    ok!(cu.cuModuleUnload(module));
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(out)
}

fn blocks_have_three_coordinates(cu: &'static Cuda) -> Verdict {
    let (module, place) = cu.kernel("where")?;
    let mut out = cu.alloc(4 * 24)?;
    let mut arguments = [as_void(&mut out)];
    ok!(cu.cuLaunchKernel(place, 2, 3, 4, 1, 1, 1, 0, null_mut(), arguments.as_mut_ptr(), null_mut()));
    let expected: Vec<u32> =
        (0..4).flat_map(|z| (0..3).flat_map(move |y| (0..2).map(move |x| x + 100 * y + 10_000 * z))).collect();
    same!(cu.download::<u32>(out, 24)?, expected);
    ok!(cu.cuModuleUnload(module));
    cu.free(out)
}

fn static_shared_memory_and_barriers(cu: &'static Cuda) -> Verdict {
    let (module, reverse) = cu.kernel("reverse")?;
    let mut data = cu.words(&(0..64).collect::<Vec<u32>>())?;
    ok!(cu.launch(reverse, 1, 64, null_mut(), &mut [as_void(&mut data)]));
    same!(cu.download::<u32>(data, 64)?, (0..64).rev().collect::<Vec<u32>>());
    ok!(cu.cuModuleUnload(module));
    cu.free(data)
}

fn dynamic_shared_memory(cu: &'static Cuda) -> Verdict {
    let (module, neighbour) = cu.kernel("neighbour")?;
    let mut out = cu.alloc(4 * 200)?;
    let mut arguments = [as_void(&mut out)];
    ok!(cu.cuLaunchKernel(neighbour, 1, 1, 1, 200, 1, 1, 800, null_mut(), arguments.as_mut_ptr(), null_mut()));
    same!(cu.download::<u32>(out, 200)?, (1..=200).map(|i| i % 200).collect::<Vec<u32>>());
    ok!(cu.cuModuleUnload(module));
    cu.free(out)
}

fn launch_noop(cu: &Cuda, grid: [u32; 3], block: [u32; 3], shared_bytes: u32) -> Result<CUresult, String> {
    let (module, noop) = cu.kernel("noop")?;
    let ([gx, gy, gz], [bx, by, bz]) = (grid, block);
    let code = cu.cuLaunchKernel(noop, gx, gy, gz, bx, by, bz, shared_bytes, null_mut(), null_mut(), null_mut());
    ok!(cu.cuCtxSynchronize());
    ok!(cu.cuModuleUnload(module));
    Ok(code)
}

fn a_grid_of_nothing_is_invalid_value(cu: &'static Cuda) -> Verdict {
    for grid in [[0, 1, 1], [1, 0, 1], [1, 1, 0]] {
        answers!(CUDA_ERROR_INVALID_VALUE, launch_noop(cu, grid, [1, 1, 1], 0)?);
    }
    Ok(())
}

fn a_block_of_nothing_is_invalid_value(cu: &'static Cuda) -> Verdict {
    for block in [[0, 1, 1], [1, 0, 1], [1, 1, 0]] {
        answers!(CUDA_ERROR_INVALID_VALUE, launch_noop(cu, [1, 1, 1], block, 0)?);
    }
    Ok(())
}

fn too_many_threads_are_invalid_value(cu: &'static Cuda) -> Verdict {
    answers!(CUDA_ERROR_INVALID_VALUE, launch_noop(cu, [1, 1, 1], [1025, 1, 1], 0)?);
    answers!(CUDA_ERROR_INVALID_VALUE, launch_noop(cu, [1, 1, 1], [64, 64, 1], 0)?);
    ok!(launch_noop(cu, [1, 1, 1], [32, 32, 1], 0)?);
    Ok(())
}

fn a_block_too_deep_is_invalid_value(cu: &'static Cuda) -> Verdict {
    answers!(CUDA_ERROR_INVALID_VALUE, launch_noop(cu, [1, 1, 1], [1, 1, 65], 0)?);
    Ok(())
}

fn a_grid_too_high_is_invalid_value(cu: &'static Cuda) -> Verdict {
    answers!(CUDA_ERROR_INVALID_VALUE, launch_noop(cu, [1, 65_536, 1], [1, 1, 1], 0)?);
    answers!(CUDA_ERROR_INVALID_VALUE, launch_noop(cu, [1, 1, 65_536], [1, 1, 1], 0)?);
    Ok(())
}

fn more_threads_than_the_kernel_allows_are_refused(cu: &'static Cuda) -> Verdict {
    let (module, bounded) = cu.kernel("bounded")?;
    let mut out = cu.words(&[0])?;
    answers!(
        [CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES],
        cu.launch(bounded, 1, 65, null_mut(), &mut [as_void(&mut out)])
    );
    ok!(cu.launch(bounded, 1, 64, null_mut(), &mut [as_void(&mut out)]));
    same!(cu.word(out)?, 64);
    ok!(cu.cuModuleUnload(module));
    cu.free(out)
}

fn too_much_shared_memory_is_invalid_value(cu: &'static Cuda) -> Verdict {
    answers!(CUDA_ERROR_INVALID_VALUE, launch_noop(cu, [1, 1, 1], [1, 1, 1], 48 * 1024 + 4)?);
    ok!(launch_noop(cu, [1, 1, 1], [1, 1, 1], 48 * 1024)?);
    Ok(())
}

fn a_null_function_is_invalid_handle(cu: &'static Cuda) -> Verdict {
    answers!(CUDA_ERROR_INVALID_HANDLE, cu.launch(null_mut(), 1, 1, null_mut(), &mut []));
    Ok(())
}

fn a_refused_launch_leaves_the_context_well(cu: &'static Cuda) -> Verdict {
    answers!(CUDA_ERROR_INVALID_VALUE, launch_noop(cu, [1, 1, 1], [2000, 1, 1], 0)?);
    let address = cu.words(&[4])?;
    same!(cu.word(address)?, 4);
    cu.free(address)
}

fn the_extended_form_launches(cu: &'static Cuda) -> Verdict {
    let (module, fill) = cu.kernel("fill")?;
    let (mut out, mut value, mut n) = (cu.words(&[0; 5])?, 9u32, 5u32);
    let mut configuration: CUlaunchConfig = zeroed();
    (configuration.gridDimX, configuration.gridDimY, configuration.gridDimZ) = (2, 1, 1);
    (configuration.blockDimX, configuration.blockDimY, configuration.blockDimZ) = (4, 1, 1);
    let mut arguments = [as_void(&mut out), as_void(&mut value), as_void(&mut n)];
    ok!(cu.cuLaunchKernelEx(&configuration, fill, arguments.as_mut_ptr(), null_mut()));
    same!(cu.download::<u32>(out, 5)?, [9; 5]);
    ok!(cu.cuModuleUnload(module));
    cu.free(out)
}

fn a_null_configuration_is_invalid_value(cu: &'static Cuda) -> Verdict {
    let (module, noop) = cu.kernel("noop")?;
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuLaunchKernelEx(std::ptr::null(), noop, null_mut(), null_mut()));
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

fn a_cooperative_launch_that_fits_runs(cu: &'static Cuda) -> Verdict {
    let (module, count) = cu.kernel("count")?;
    let mut address = cu.words(&[0])?;
    let mut arguments = [as_void(&mut address)];
    ok!(cu.cuLaunchCooperativeKernel(count, 1, 1, 1, 64, 1, 1, 0, null_mut(), arguments.as_mut_ptr()));
    same!(cu.word(address)?, 64);
    ok!(cu.cuModuleUnload(module));
    cu.free(address)
}

fn a_cooperative_launch_too_large_is_refused(cu: &'static Cuda) -> Verdict {
    let (module, count) = cu.kernel("count")?;
    let mut address = cu.words(&[0])?;
    let mut arguments = [as_void(&mut address)];
    answers!(
        CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
        cu.cuLaunchCooperativeKernel(count, 1 << 20, 1, 1, 64, 1, 1, 0, null_mut(), arguments.as_mut_ptr())
    );
    ok!(cu.cuModuleUnload(module));
    cu.free(address)
}

fn the_per_thread_entry_launches(cu: &'static Cuda) -> Verdict {
    let (module, increment) = cu.kernel("increment")?;
    let mut address = cu.words(&[1])?;
    let mut arguments = [as_void(&mut address)];
    let arguments = arguments.as_mut_ptr();
    ok!(cu.cuLaunchKernel_ptsz(increment, 1, 1, 1, 1, 1, 1, 0, null_mut(), arguments, null_mut()));
    ok!(cu.cuStreamSynchronize_ptsz(null_mut()));
    same!(cu.word(address)?, 2);
    ok!(cu.cuModuleUnload(module));
    cu.free(address)
}

fn a_thousand_run_in_order(cu: &'static Cuda) -> Verdict {
    let (module, increment) = cu.kernel("increment")?;
    let address = cu.words(&[0])?;
    for _ in 0..1000 {
        ok!(cu.launch_on(increment, address, null_mut()));
    }
    same!(cu.word(address)?, 1000);
    ok!(cu.cuModuleUnload(module));
    cu.free(address)
}

/// Arguments of `mixed` by calls that CUDA 4.0 deprecated, as PyCUDA makes them.
fn set_arguments(cu: &Cuda, function: CUfunction, packed: &mut Packed) -> Verdict {
    ok!(cu.cuParamSetSize(function, size_of::<Packed>() as u32));
    ok!(cu.cuParamSetv(function, 0, as_void(packed), size_of::<Packed>() as u32));
    Ok(())
}

fn cuda_3_launches_with_what_was_set_of_the_function(cu: &'static Cuda) -> Verdict {
    let (module, count) = cu.kernel("count")?;
    let (stream, mut address) = (cu.stream()?, cu.words(&[0])?);
    ok!(cu.cuFuncSetBlockShape(count, 32, 2, 1));
    ok!(cu.cuFuncSetSharedSize(count, 100));
    ok!(cu.cuParamSetSize(count, 8));
    ok!(cu.cuParamSetv(count, 0, as_void(&mut address), 8));
    ok!(cu.cuLaunchGrid(count, 3, 2));
    same!(cu.word(address)?, 384);
    ok!(cu.cuLaunch(count));
    same!(cu.word(address)?, 384 + 64);
    ok!(cu.cuLaunchGridAsync(count, 5, 1, stream));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu.word(address)?, 384 + 64 + 320);
    ok!(cu.cuModuleUnload(module));

    let (module, mixed) = cu.kernel("mixed")?;
    let out = cu.alloc(32)?;
    set_arguments(cu, mixed, &mut Packed { a: 1, b: 2, c: 3, d: 4, out })?;
    ok!(cu.cuLaunch(mixed));
    same!(cu.download::<u64>(out, 4)?, [1, 2, 3, 4]);
    ok!(cu.cuParamSeti(mixed, 4, 0x0102_0304));
    ok!(cu.cuLaunch(mixed));
    same!(cu.download::<u64>(out, 4)?, [1, 2, 0x0102_0304, 4]);
    ok!(cu.cuParamSetf(mixed, 4, 1.5));
    ok!(cu.cuLaunch(mixed));
    same!(cu.download::<u64>(out, 4)?, [1, 2, u64::from(1.5f32.to_bits()), 4]);
    ok!(cu.cuModuleUnload(module));
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(address)?;
    cu.free(out)
}

fn a_function_begins_with_blocks_of_one_thread(cu: &'static Cuda) -> Verdict {
    let (module, count) = cu.kernel("count")?;
    let mut address = cu.words(&[0])?;
    // The size may come last.
    ok!(cu.cuParamSetv(count, 0, as_void(&mut address), 8));
    ok!(cu.cuParamSetSize(count, 8));
    ok!(cu.cuLaunchGrid(count, 7, 1));
    same!(cu.word(address)?, 7);
    ok!(cu.cuModuleUnload(module));
    cu.free(address)
}

fn what_cuda_3_launches_is_what_cuda_4_launched_last(cu: &'static Cuda) -> Verdict {
    let (module, count) = cu.kernel("count")?;
    let (mut first, mut second) = (cu.words(&[0])?, cu.words(&[0])?);
    ok!(cu.cuFuncSetBlockShape(count, 16, 1, 1));
    ok!(cu.cuParamSetSize(count, 8));
    ok!(cu.cuParamSetv(count, 0, as_void(&mut first), 8));
    ok!(cu.launch(count, 2, 48, null_mut(), &mut [as_void(&mut second)]));
    ok!(cu.cuLaunch(count));
    same!([cu.word(first)?, cu.word(second)?], [0, 2 * 48 + 48]);
    ok!(cu.cuModuleUnload(module));
    cu.free(first)?;
    cu.free(second)
}

fn what_is_no_block_for_cuda_3_leaves_the_one_that_was_set(cu: &'static Cuda) -> Verdict {
    let (module, count) = cu.kernel("count")?;
    let mut address = cu.words(&[0])?;
    ok!(cu.cuFuncSetBlockShape(count, 8, 1, 1));
    ok!(cu.cuParamSetSize(count, 8));
    ok!(cu.cuParamSetv(count, 0, as_void(&mut address), 8));
    for (x, y, z) in [(0, 1, 1), (-1, 1, 1), (2048, 1, 1), (1024, 2, 1), (1, 1, 65)] {
        answers!(CUDA_ERROR_INVALID_VALUE, cu.cuFuncSetBlockShape(count, x, y, z));
    }
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuFuncSetSharedSize(count, 49_153));
    for (width, height) in [(0, 1), (-1, 1), (1, 0), (1, 65_536)] {
        answers!(CUDA_ERROR_INVALID_VALUE, cu.cuLaunchGrid(count, width, height));
    }
    ok!(cu.cuLaunch(count));
    same!(cu.word(address)?, 8);
    ok!(cu.cuModuleUnload(module));
    cu.free(address)
}

fn more_arguments_than_a_function_takes_are_found_at_cuda_3s_launch(cu: &'static Cuda) -> Verdict {
    let (module, mixed) = cu.kernel("mixed")?;
    let out = cu.alloc(32)?;
    set_arguments(cu, mixed, &mut Packed { a: 1, b: 2, c: 3, d: 4, out })?;
    for bytes in [size_of::<Packed>() as u32 + 8, 4096, 32_764] {
        ok!(cu.cuParamSetSize(mixed, bytes));
        answers!(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, cu.cuLaunch(mixed));
    }
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuParamSetSize(mixed, 32_768));
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuParamSetv(mixed, 0, null_mut(), 0));
    ok!(cu.cuParamSetSize(mixed, size_of::<Packed>() as u32));
    ok!(cu.cuLaunch(mixed));
    same!(cu.download::<u64>(out, 4)?, [1, 2, 3, 4]);
    ok!(cu.cuModuleUnload(module));
    cu.free(out)
}

fn cuda_3_sets_nothing_without_a_context(cu: &'static Cuda) -> Verdict {
    let (module, count) = cu.kernel("count")?;
    let context = cu.context()?;
    ok!(cu.cuCtxSetCurrent(null_mut()));
    let said = [
        cu.cuFuncSetBlockShape(count, 8, 1, 1),
        cu.cuParamSetSize(count, 8),
        cu.cuParamSeti(count, 0, 1),
        cu.cuLaunch(count),
    ];
    ok!(cu.cuCtxSetCurrent(context));
    same!(said, [CUDA_ERROR_INVALID_CONTEXT; 4]);
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

fn what_is_only_told_of_a_function_cannot_be_set(cu: &'static Cuda) -> Verdict {
    let (module, noop) = cu.kernel("noop")?;
    for attribute in (0..8).chain([CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET, 16, 17]) {
        let mut value = 0;
        // What it is already is no exception.
        cu.cuFuncGetAttribute(&mut value, attribute, noop);
        let code = cu.cuFuncSetAttribute(noop, attribute, value);
        same!((attribute, code), (attribute, CUDA_ERROR_INVALID_VALUE));
    }
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuFuncSetAttribute(noop, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, -1));
    ok!(cu.cuModuleUnload(module));
    Ok(())
}
