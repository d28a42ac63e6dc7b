//! Contexts: the stack of each thread, primary contexts, limits.
//!
//! UNSAFETY: calls a slot of the private table the runtime uses.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::thread;

use orion_cuda::sys::*;

use crate::driver::Cuda;
use crate::fact::{Verdict, answers, facts, holds, ok, same};
use crate::lab::{EMPTY_PTX, Get, floats, use_primary, zeroed};

facts! { context:
    Init [
        a_new_thread_has_none,
        popping_an_empty_stack_is_invalid_context,
        alloc_without_one_is_invalid_context,
        synchronize_without_one_is_invalid_context,
        its_device_without_one_is_invalid_context,
        setting_null_on_an_empty_stack_succeeds,
        retaining_for_an_unknown_device_is_invalid_device,
        the_primary_is_inactive_before_the_first_retain.alone().not_in_a_crowd("another may retain the primary one"),
        releasing_what_was_not_retained_is_invalid_context.alone(),
        the_last_release_ends_the_primary.alone().not_in_a_crowd("another may retain the primary one"),
        retain_gives_the_same_handle_again.alone(),
        primary_flags_are_kept_while_inactive.alone().not_in_a_crowd("another may retain the primary one"),
        the_primary_may_be_current_before_it_is_retained.alone().not_in_a_crowd("another may retain the primary one"),
        a_reset_primary_can_be_retained_again.alone().not_in_a_crowd("it resets the context of all"),
    ]
    Context [
        pop_into_null_succeeds,
        push_then_pop_gives_it_back,
        set_current_replaces_the_top,
        set_current_null_pops,
        pushing_null_is_invalid_value,
        get_current_into_null_is_invalid_value,
        another_thread_does_not_see_it,
        an_array_that_is_not_destroyed_without_one_is_still_there,
        its_device_is_told,
        its_api_version_is_3020,
        its_id_does_not_change,
        bad_primary_flags_are_invalid_value,
        a_created_one_is_current_until_destroyed,
        created_ones_have_their_own_id_and_flags,
        another_can_be_made_while_a_destroyed_one_is_current,
        destroying_null_is_invalid_context,
        memory_of_a_destroyed_one_is_gone.not_in_a_crowd("another may be given the freed address"),
        an_event_is_not_recorded_on_anothers_stream,
        a_stream_waits_for_anothers_event,
        a_function_is_not_launched_on_anothers_stream,
        a_kernel_runs_in_its_streams_context,
        limits_can_be_read_and_set.not_in_a_crowd("it sets a limit for all"),
        an_unknown_limit_is_refused,
        whether_graphics_shares_a_context_is_answered_as_cublas_expects,
        greater_priority_is_a_smaller_number,
        synchronize_waits_for_every_stream,
        what_is_in_one_ends_with_it.alone(),
        one_that_has_ended_leaves_nothing_in_the_way_of_copies,
    ]
}

fn a_new_thread_has_none(cu: &'static Cuda) -> Verdict {
    let mut context = std::ptr::dangling_mut();
    ok!(cu.cuCtxGetCurrent(&mut context));
    holds!(context.is_null(), "a new thread has a context");
    Ok(())
}

fn popping_an_empty_stack_is_invalid_context(cu: &'static Cuda) -> Verdict {
    let mut context = null_mut();
    answers!(CUDA_ERROR_INVALID_CONTEXT, cu.cuCtxPopCurrent_v2(&mut context));
    Ok(())
}

fn alloc_without_one_is_invalid_context(cu: &'static Cuda) -> Verdict {
    let mut address = 0;
    answers!(CUDA_ERROR_INVALID_CONTEXT, cu.cuMemAlloc_v2(&mut address, 16));
    Ok(())
}

fn synchronize_without_one_is_invalid_context(cu: &'static Cuda) -> Verdict {
    answers!(CUDA_ERROR_INVALID_CONTEXT, cu.cuCtxSynchronize());
    Ok(())
}

fn its_device_without_one_is_invalid_context(cu: &'static Cuda) -> Verdict {
    let mut device = 0;
    answers!(CUDA_ERROR_INVALID_CONTEXT, cu.cuCtxGetDevice(&mut device));
    Ok(())
}

fn setting_null_on_an_empty_stack_succeeds(cu: &'static Cuda) -> Verdict {
    ok!(cu.cuCtxSetCurrent(null_mut()));
    Ok(())
}

fn retaining_for_an_unknown_device_is_invalid_device(cu: &'static Cuda) -> Verdict {
    let mut context = null_mut();
    answers!(CUDA_ERROR_INVALID_DEVICE, cu.cuDevicePrimaryCtxRetain(&mut context, 4096));
    Ok(())
}

fn primary_state(cu: &Cuda) -> Get<(u32, i32)> {
    let (mut flags, mut active) = (99, 99);
    ok!(cu.cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
    Ok((flags, active))
}

fn the_primary_is_inactive_before_the_first_retain(cu: &'static Cuda) -> Verdict {
    same!(primary_state(cu)?, (0, 0));
    use_primary(cu)?;
    same!(primary_state(cu)?.1, 1);
    Ok(())
}

fn releasing_what_was_not_retained_is_invalid_context(cu: &'static Cuda) -> Verdict {
    answers!(CUDA_ERROR_INVALID_CONTEXT, cu.cuDevicePrimaryCtxRelease_v2(0));
    Ok(())
}

fn the_last_release_ends_the_primary(cu: &'static Cuda) -> Verdict {
    let mut context = null_mut();
    ok!(cu.cuDevicePrimaryCtxRetain(&mut context, 0));
    ok!(cu.cuDevicePrimaryCtxRetain(&mut context, 0));
    ok!(cu.cuDevicePrimaryCtxRelease_v2(0));
    same!(primary_state(cu)?.1, 1);
    ok!(cu.cuDevicePrimaryCtxRelease_v2(0));
    same!(primary_state(cu)?.1, 0);
    answers!(CUDA_ERROR_INVALID_CONTEXT, cu.cuDevicePrimaryCtxRelease_v2(0));
    Ok(())
}

fn retain_gives_the_same_handle_again(cu: &'static Cuda) -> Verdict {
    let (mut first, mut second, mut third) = (null_mut(), null_mut(), null_mut());
    ok!(cu.cuDevicePrimaryCtxRetain(&mut first, 0));
    ok!(cu.cuDevicePrimaryCtxRetain(&mut second, 0));
    same!(first, second);
    ok!(cu.cuDevicePrimaryCtxRelease_v2(0));
    ok!(cu.cuDevicePrimaryCtxRelease_v2(0));
    ok!(cu.cuDevicePrimaryCtxRetain(&mut third, 0));
    same!(first, third);
    Ok(())
}

fn primary_flags_are_kept_while_inactive(cu: &'static Cuda) -> Verdict {
    ok!(cu.cuDevicePrimaryCtxSetFlags_v2(0, CU_CTX_SCHED_BLOCKING_SYNC));
    same!(primary_state(cu)?, (CU_CTX_SCHED_BLOCKING_SYNC, 0));
    use_primary(cu)?;
    same!(primary_state(cu)?, (CU_CTX_SCHED_BLOCKING_SYNC, 1));
    Ok(())
}

/// The runtime gets the handle from its private table and sets it current before it retains.
fn the_primary_may_be_current_before_it_is_retained(cu: &'static Cuda) -> Verdict {
    const CUDART_INTERFACE: [u8; 16] =
        [0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9];
    let id = CUuuid { bytes: CUDART_INTERFACE.map(|b| b as i8) };
    let mut table: *const c_void = std::ptr::null();
    ok!(cu.cuGetExportTable(&mut table, &id));
    type PrimaryOf = unsafe extern "C" fn(*mut CUcontext, CUdevice) -> CUresult;
    // SAFETY: slot 2 of this table has held this function in every driver since CUDA 7.
    let primary_of = unsafe { *table.cast::<PrimaryOf>().add(2) };
    let (mut early, mut retained) = (null_mut(), null_mut());
    // SAFETY: a writable handle and a valid device.
    ok!(unsafe { primary_of(&mut early, 0) });
    same!(primary_state(cu)?.1, 0);
    ok!(cu.cuCtxSetCurrent(early));
    ok!(cu.cuDevicePrimaryCtxRetain(&mut retained, 0));
    same!(retained, early);
    same!(cu.context()?, early);
    Ok(())
}

fn a_reset_primary_can_be_retained_again(cu: &'static Cuda) -> Verdict {
    use_primary(cu)?;
    cu.words(&[1])?;
    ok!(cu.cuDevicePrimaryCtxReset_v2(0));
    same!(primary_state(cu)?.1, 0);
    use_primary(cu)?;
    let address = cu.words(&[5])?;
    same!(cu.word(address)?, 5);
    Ok(())
}

fn pop_into_null_succeeds(cu: &'static Cuda) -> Verdict {
    ok!(cu.cuCtxPopCurrent_v2(null_mut()));
    holds!(cu.context()?.is_null(), "the context is still current");
    Ok(())
}

fn push_then_pop_gives_it_back(cu: &'static Cuda) -> Verdict {
    let (context, mut popped) = (cu.context()?, null_mut());
    ok!(cu.cuCtxPushCurrent_v2(context));
    ok!(cu.cuCtxPopCurrent_v2(&mut popped));
    same!(popped, context);
    same!(cu.context()?, context);
    Ok(())
}

fn set_current_replaces_the_top(cu: &'static Cuda) -> Verdict {
    let context = cu.context()?;
    ok!(cu.cuCtxSetCurrent(context));
    ok!(cu.cuCtxPopCurrent_v2(null_mut()));
    holds!(cu.context()?.is_null(), "set-current pushed instead of replacing");
    Ok(())
}

fn set_current_null_pops(cu: &'static Cuda) -> Verdict {
    let context = cu.context()?;
    ok!(cu.cuCtxPushCurrent_v2(context));
    ok!(cu.cuCtxSetCurrent(null_mut()));
    same!(cu.context()?, context);
    ok!(cu.cuCtxSetCurrent(null_mut()));
    holds!(cu.context()?.is_null(), "the last one was not popped");
    Ok(())
}

fn pushing_null_is_invalid_value(cu: &'static Cuda) -> Verdict {
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuCtxPushCurrent_v2(null_mut()));
    Ok(())
}

fn get_current_into_null_is_invalid_value(cu: &'static Cuda) -> Verdict {
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuCtxGetCurrent(null_mut()));
    Ok(())
}

fn another_thread_does_not_see_it(cu: &'static Cuda) -> Verdict {
    let seen = thread::spawn(|| cu.context().map(|c| c.is_null())).join().expect("a panic ends the process")?;
    holds!(seen, "the context of this thread is current in another");
    Ok(())
}

fn an_array_that_is_not_destroyed_without_one_is_still_there(cu: &'static Cuda) -> Verdict {
    let (mut array, mut told) = (null_mut(), zeroed::<CUDA_ARRAY3D_DESCRIPTOR>());
    let description = floats(64, 4);
    ok!(cu.cuArray3DCreate_v2(&mut array, &description));
    ok!(cu.cuCtxSetCurrent(null_mut()));
    let code = cu.cuArrayDestroy(array);
    use_primary(cu)?;
    if code != CUDA_SUCCESS {
        same!(code, CUDA_ERROR_INVALID_CONTEXT);
        ok!(cu.cuArray3DGetDescriptor_v2(&mut told, array));
        same!((told.Width, told.Height), (64, 4));
        ok!(cu.cuArrayDestroy(array));
    }
    Ok(())
}

fn its_device_is_told(cu: &'static Cuda) -> Verdict {
    let mut device = -1;
    ok!(cu.cuCtxGetDevice(&mut device));
    same!(device, 0);
    Ok(())
}

fn its_api_version_is_3020(cu: &'static Cuda) -> Verdict {
    let mut version = 0;
    ok!(cu.cuCtxGetApiVersion(cu.context()?, &mut version));
    same!(version, 3020);
    Ok(())
}

fn its_id_does_not_change(cu: &'static Cuda) -> Verdict {
    let (mut named, mut current) = (0, 0);
    ok!(cu.cuCtxGetId(cu.context()?, &mut named));
    ok!(cu.cuCtxGetId(null_mut(), &mut current));
    same!(named, current);
    Ok(())
}

fn bad_primary_flags_are_invalid_value(cu: &'static Cuda) -> Verdict {
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuDevicePrimaryCtxSetFlags_v2(0, 0x8000_0000));
    Ok(())
}

fn a_created_one_is_current_until_destroyed(cu: &'static Cuda) -> Verdict {
    let (primary, mut created) = (cu.context()?, null_mut());
    ok!(cu.cuCtxCreate_v2(&mut created, 0, 0));
    same!(cu.context()?, created);
    holds!(created != primary, "the created context is the primary one");
    ok!(cu.cuCtxDestroy_v2(created));
    same!(cu.context()?, primary);
    Ok(())
}

fn another_can_be_made_while_a_destroyed_one_is_current(cu: &'static Cuda) -> Verdict {
    let (primary, mut first, mut second, mut popped) = (cu.context()?, null_mut(), null_mut(), null_mut());
    ok!(cu.cuCtxCreate_v2(&mut first, 0, 0));
    ok!(cu.cuCtxPushCurrent_v2(first));
    // Destroying takes it from the stack once, where it lies twice.
    ok!(cu.cuCtxDestroy_v2(first));
    same!(cu.context()?, first);
    ok!(cu.cuCtxCreate_v2(&mut second, 0, 0));
    same!(cu.context()?, second);
    let word = cu.words(&[7])?;
    ok!(cu.cuMemFree_v2(word));
    // And one is destroyed then that is not current.
    ok!(cu.cuCtxPopCurrent_v2(&mut popped));
    same!(cu.context()?, first);
    ok!(cu.cuCtxDestroy_v2(second));
    ok!(cu.cuCtxPopCurrent_v2(&mut popped));
    same!(cu.context()?, primary);
    Ok(())
}

fn created_ones_have_their_own_id_and_flags(cu: &'static Cuda) -> Verdict {
    let (mut primary_id, mut id, mut flags, mut created) = (0, 0, 0, null_mut());
    ok!(cu.cuCtxGetId(cu.context()?, &mut primary_id));
    ok!(cu.cuCtxCreate_v2(&mut created, CU_CTX_SCHED_YIELD, 0));
    ok!(cu.cuCtxGetId(created, &mut id));
    ok!(cu.cuCtxGetFlags(&mut flags));
    ok!(cu.cuCtxDestroy_v2(created));
    holds!(id != primary_id, "two contexts have the id {id}");
    same!(flags & CU_CTX_SCHED_MASK, CU_CTX_SCHED_YIELD);
    Ok(())
}

fn destroying_null_is_invalid_context(cu: &'static Cuda) -> Verdict {
    answers!([CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_VALUE], cu.cuCtxDestroy_v2(null_mut()));
    Ok(())
}

fn memory_of_a_destroyed_one_is_gone(cu: &'static Cuda) -> Verdict {
    let mut created = null_mut();
    ok!(cu.cuCtxCreate_v2(&mut created, 0, 0));
    let address = cu.words(&[1])?;
    ok!(cu.cuCtxDestroy_v2(created));
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemFree_v2(address));
    Ok(())
}

/// A second context, with a stream and an event of its own; the first one is current again.
fn another(cu: &Cuda) -> Get<(CUcontext, CUstream, CUevent)> {
    let mut created = null_mut();
    ok!(cu.cuCtxCreate_v2(&mut created, 0, 0));
    let (stream, event) = (cu.stream()?, cu.event()?);
    ok!(cu.cuCtxPopCurrent_v2(null_mut()));
    Ok((created, stream, event))
}

fn an_event_is_not_recorded_on_anothers_stream(cu: &'static Cuda) -> Verdict {
    let (stream, event) = (cu.stream()?, cu.event()?);
    let (other, its_stream, its_event) = another(cu)?;
    answers!(CUDA_ERROR_INVALID_HANDLE, cu.cuEventRecord(event, its_stream));
    answers!(CUDA_ERROR_INVALID_HANDLE, cu.cuEventRecord(its_event, stream));
    answers!(CUDA_ERROR_INVALID_HANDLE, cu.cuEventRecord(its_event, null_mut()));
    // Whichever is current, as long as they belong together.
    ok!(cu.cuEventRecord(its_event, its_stream));
    ok!(cu.cuEventRecord(event, stream));
    ok!(cu.cuEventSynchronize(its_event));
    ok!(cu.cuEventSynchronize(event));
    let mut ms = 0.0;
    answers!(CUDA_ERROR_INVALID_HANDLE, cu.cuEventElapsedTime_v2(&mut ms, event, its_event));
    ok!(cu.cuCtxDestroy_v2(other));
    ok!(cu.cuEventDestroy_v2(event));
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}

fn a_stream_waits_for_anothers_event(cu: &'static Cuda) -> Verdict {
    let (stream, count) = (cu.stream()?, crate::lab::counter());
    let (other, its_stream, its_event) = another(cu)?;
    let gate = cu.gate(its_stream)?;
    ok!(cu.cuEventRecord(its_event, its_stream));
    ok!(cu.cuStreamWaitEvent(stream, its_event, 0));
    ok!(cu.cuLaunchHostFunc(stream, Some(crate::lab::tally), crate::lab::counter_argument(count)));
    answers!(CUDA_ERROR_NOT_READY, cu.cuStreamQuery(stream));
    same!(count.load(std::sync::atomic::Ordering::SeqCst), 0);
    gate.open();
    ok!(cu.cuStreamSynchronize(stream));
    same!(count.load(std::sync::atomic::Ordering::SeqCst), 1);
    ok!(cu.cuCtxDestroy_v2(other));
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}

fn a_function_is_not_launched_on_anothers_stream(cu: &'static Cuda) -> Verdict {
    let (module, noop) = cu.kernel("noop")?;
    let (other, its_stream, _) = another(cu)?;
    answers!(CUDA_ERROR_INVALID_HANDLE, cu.launch(noop, 1, 1, its_stream, &mut []));
    // Nothing is left of it.
    ok!(cu.launch(noop, 1, 1, null_mut(), &mut []));
    ok!(cu.cuCtxSynchronize());
    ok!(cu.cuCtxDestroy_v2(other));
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

fn a_kernel_runs_in_its_streams_context(cu: &'static Cuda) -> Verdict {
    let mut library = null_mut();
    let source = crate::lab::PTX.as_ptr().cast();
    ok!(cu.cuLibraryLoadData(&mut library, source, null_mut(), null_mut(), 0, null_mut(), null_mut(), 0));
    let (mut kernel, name) = (null_mut(), crate::lab::text("noop"));
    ok!(cu.cuLibraryGetKernel(&mut kernel, library, name.as_ptr()));
    let (other, its_stream, _) = another(cu)?;
    ok!(cu.launch(kernel.cast(), 1, 1, its_stream, &mut []));
    ok!(cu.cuStreamSynchronize(its_stream));
    ok!(cu.cuCtxDestroy_v2(other));
    ok!(cu.cuLibraryUnload(library));
    Ok(())
}

fn limits_can_be_read_and_set(cu: &'static Cuda) -> Verdict {
    let (mut before, mut after) = (0, 0);
    ok!(cu.cuCtxGetLimit(&mut before, CU_LIMIT_STACK_SIZE));
    holds!(before > 0, "no stack");
    ok!(cu.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
    ok!(cu.cuCtxGetLimit(&mut after, CU_LIMIT_STACK_SIZE));
    holds!(after >= 4096, "a stack of {after} bytes after 4096 were asked for");
    ok!(cu.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, before));
    let mut printf = 0;
    ok!(cu.cuCtxGetLimit(&mut printf, CU_LIMIT_PRINTF_FIFO_SIZE));
    holds!(printf > 0, "no room for printf");
    Ok(())
}

fn an_unknown_limit_is_refused(cu: &'static Cuda) -> Verdict {
    let mut value = 0;
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuCtxGetLimit(&mut value, 4096));
    Ok(())
}

/// cuBLAS 13 knows these three answers. After any other it goes on without one of its own.
fn whether_graphics_shares_a_context_is_answered_as_cublas_expects(cu: &'static Cuda) -> Verdict {
    let mut value = usize::MAX;
    let code = cu.cuCtxGetLimit(&mut value, CU_LIMIT_CIG_ENABLED);
    holds!(
        matches!(code, CUDA_SUCCESS | CUDA_ERROR_INVALID_VALUE | CUDA_ERROR_INVALID_CONTEXT),
        "the answer is {}",
        crate::driver::name_of(code)
    );
    holds!(code != CUDA_SUCCESS || value == 0, "graphics shares a context of this program's: {value}");
    Ok(())
}

fn greater_priority_is_a_smaller_number(cu: &'static Cuda) -> Verdict {
    let (mut least, mut greatest) = (99, 99);
    ok!(cu.cuCtxGetStreamPriorityRange(&mut least, &mut greatest));
    same!(least, 0);
    holds!(greatest <= 0, "the greatest priority is {greatest}");
    ok!(cu.cuCtxGetStreamPriorityRange(null_mut(), null_mut()));
    Ok(())
}

fn synchronize_waits_for_every_stream(cu: &'static Cuda) -> Verdict {
    let (first, second) = (cu.stream()?, cu.stream()?);
    let (count, argument) = {
        let counter = crate::lab::counter();
        (counter, crate::lab::counter_argument(counter))
    };
    for stream in [first, second] {
        ok!(cu.cuLaunchHostFunc(stream, Some(crate::lab::tally), argument));
    }
    ok!(cu.cuCtxSynchronize());
    same!(count.load(std::sync::atomic::Ordering::SeqCst), 2);
    ok!(cu.cuStreamDestroy_v2(first));
    ok!(cu.cuStreamDestroy_v2(second));
    Ok(())
}

/// Few bytes come to the host by way of memory of the driver's or a worker's, which must not be of a context that is
/// gone. What PyCUDA's tests do: each has a context of its own.
fn one_that_has_ended_leaves_nothing_in_the_way_of_copies(cu: &'static Cuda) -> Verdict {
    for round in 0..4u32 {
        let mut context = null_mut();
        ok!(cu.cuCtxCreate_v2(&mut context, 0, 0));
        let mut blocks: Vec<(CUdeviceptr, Vec<u32>)> = Vec::new();
        for block in 0..24 {
            let words: Vec<u32> = (0..24 << 10).map(|word| round << 28 | block << 20 | word).collect();
            let address = cu.words(&words)?;
            // Every other context reads when it has one block only: what it reads by lies where the next one's are.
            if round % 2 == 0 {
                same!(cu.download::<u32>(address, 4)?, words[..4]);
            }
            blocks.push((address, words));
        }
        for (address, words) in &blocks {
            for count in [1, 4, 250, 5_000] {
                same!(cu.download::<u32>(*address, count)?, words[..count]);
            }
        }
        for (address, words) in &blocks {
            same!(&cu.download::<u32>(*address, words.len())?, words);
        }
        ok!(cu.cuCtxDestroy_v2(context));
    }
    use_primary(cu)
}

/// Handles of what ended with a context may be given to something else at any time, and 1,100 contexts are more than
/// a table has room for that waits before it does so.
fn what_is_in_one_ends_with_it(cu: &'static Cuda) -> Verdict {
    // More objects than handles wait before they are used again, of few contexts: a GPU takes 0.1 s for each.
    for _ in 0..30 {
        let mut context = null_mut();
        ok!(cu.cuCtxCreate_v2(&mut context, 0, 0));
        for _ in 0..40 {
            let (mut module, mut function) = (null_mut(), null_mut());
            let stream = cu.stream()?;
            ok!(cu.cuEventRecord(cu.event()?, stream));
            ok!(cu.cuModuleLoadData(&mut module, EMPTY_PTX.as_ptr().cast()));
            ok!(cu.cuModuleGetFunction(&mut function, module, c"nothing".as_ptr()));
            ok!(cu.launch(function, 1, 1, stream, &mut []));
        }
        ok!(cu.cuCtxSynchronize());
        ok!(cu.cuCtxDestroy_v2(context));
    }
    use_primary(cu)?;
    let (stream, event) = (cu.stream()?, cu.event()?);
    ok!(cu.cuEventRecord(event, stream));
    ok!(cu.cuEventSynchronize(event));
    Ok(())
}
