//! Green contexts: resources, their partitions, and contexts on a part of a device.
//!
//! UNSAFETY: reads the member of the resource union that its type names.

use std::ptr::{null, null_mut};
use std::sync::atomic::Ordering;
use std::thread;

use orion_cuda::sys::*;

use crate::driver::Cuda;
use crate::fact::{Verdict, answers, facts, holds, ok, same};
use crate::lab::{Get, as_void, counter, counter_argument, tally, zeroed};

facts! { green_context:
    Context [
        a_device_has_multiprocessors_to_give,
        the_primary_context_has_them_all,
        no_other_resource_is_known,
        asking_into_null_is_invalid_value,
        a_split_makes_equal_groups,
        a_split_makes_no_more_groups_than_asked_for,
        a_split_for_more_than_there_is_fails,
        what_is_no_resource_is_refused,
        one_has_the_resource_it_was_made_from,
        the_default_stream_flag_is_required,
        ids_differ_and_null_means_the_current_one,
        its_context_can_be_current,
        converting_again_gives_the_same_context,
        kernels_run_on_its_streams,
        kernels_run_while_it_is_current,
        a_stream_knows_its_green_context,
        other_streams_have_none,
        its_streams_do_not_block,
        an_event_records_all_of_its_work,
        all_of_its_work_waits_for_an_event,
        synchronizing_the_primary_waits_for_it,
        synchronizing_it_waits_for_its_streams,
        no_green_context_cannot_be_destroyed,
        ten_can_be_made_and_destroyed,
        streams_outlive_it_only_to_say_so,
    ]
}

fn sm_of(resource: &CUdevResource) -> CUdevSmResource {
    // SAFETY: callers have seen that the type is SM.
    unsafe { resource.__bindgen_anon_1.sm }
}

fn whole(cu: &Cuda) -> Get<CUdevResource> {
    let mut all: CUdevResource = zeroed();
    ok!(cu.cuDeviceGetDevResource(0, &mut all, CU_DEV_RESOURCE_TYPE_SM));
    same!(all.type_, CU_DEV_RESOURCE_TYPE_SM);
    Ok(all)
}

/// One group of the smallest size there is, and what remains.
fn part(cu: &Cuda) -> Get<(CUdevResource, CUdevResource)> {
    let all = whole(cu)?;
    let (mut group, mut rest, mut count): (CUdevResource, CUdevResource, _) = (zeroed(), zeroed(), 1);
    let least = sm_of(&all).minSmPartitionSize;
    ok!(cu.cuDevSmResourceSplitByCount(&mut group, &mut count, &all, &mut rest, 0, least));
    same!(count, 1);
    Ok((group, rest))
}

fn descriptor(cu: &Cuda, resource: &CUdevResource) -> Get<CUdevResourceDesc> {
    let (mut resource, mut descriptor) = (*resource, null_mut());
    ok!(cu.cuDevResourceGenerateDesc(&mut descriptor, &mut resource, 1));
    holds!(!descriptor.is_null(), "the descriptor is null");
    Ok(descriptor)
}

/// A green context on a part of the device, and the context it converts to.
fn green(cu: &Cuda) -> Get<(CUgreenCtx, CUcontext)> {
    let descriptor = descriptor(cu, &part(cu)?.0)?;
    let (mut green, mut context) = (null_mut(), null_mut());
    ok!(cu.cuGreenCtxCreate(&mut green, descriptor, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    holds!(!green.is_null(), "the green context is null");
    ok!(cu.cuCtxFromGreenCtx(&mut context, green));
    Ok((green, context))
}

fn stream_of(cu: &Cuda, green: CUgreenCtx) -> Get<CUstream> {
    let mut stream = null_mut();
    ok!(cu.cuGreenCtxStreamCreate(&mut stream, green, CU_STREAM_NON_BLOCKING, 0));
    Ok(stream)
}

fn end(cu: &Cuda, green: CUgreenCtx, streams: &[CUstream]) -> Verdict {
    for stream in streams {
        ok!(cu.cuStreamDestroy_v2(*stream));
    }
    ok!(cu.cuGreenCtxDestroy(green));
    Ok(())
}

fn a_device_has_multiprocessors_to_give(cu: &'static Cuda) -> Verdict {
    let all = sm_of(&whole(cu)?);
    let processors = cu.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as u32;
    holds!(all.smCount > 0 && all.smCount <= processors, "{} of {processors} multiprocessors", all.smCount);
    holds!(all.minSmPartitionSize > 0, "partitions may be empty");
    holds!(all.minSmPartitionSize <= all.smCount, "no partition is possible");
    Ok(())
}

fn the_primary_context_has_them_all(cu: &'static Cuda) -> Verdict {
    let mut resource: CUdevResource = zeroed();
    ok!(cu.cuCtxGetDevResource(cu.context()?, &mut resource, CU_DEV_RESOURCE_TYPE_SM));
    same!(sm_of(&resource).smCount, sm_of(&whole(cu)?).smCount);
    Ok(())
}

fn no_other_resource_is_known(cu: &'static Cuda) -> Verdict {
    let mut resource: CUdevResource = zeroed();
    answers!(
        [CUDA_ERROR_INVALID_RESOURCE_TYPE, CUDA_ERROR_INVALID_VALUE],
        cu.cuDeviceGetDevResource(0, &mut resource, CU_DEV_RESOURCE_TYPE_INVALID)
    );
    answers!(CUDA_ERROR_INVALID_DEVICE, cu.cuDeviceGetDevResource(4096, &mut resource, CU_DEV_RESOURCE_TYPE_SM));
    Ok(())
}

fn asking_into_null_is_invalid_value(cu: &'static Cuda) -> Verdict {
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuDeviceGetDevResource(0, null_mut(), CU_DEV_RESOURCE_TYPE_SM));
    let mut count = 1;
    let (all, mut group): (_, CUdevResource) = (whole(cu)?, zeroed());
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuDevSmResourceSplitByCount(&mut group, null_mut(), &all, null_mut(), 0, 1));
    answers!(
        CUDA_ERROR_INVALID_VALUE,
        cu.cuDevSmResourceSplitByCount(&mut group, &mut count, null(), null_mut(), 0, 1)
    );
    Ok(())
}

fn a_split_makes_equal_groups(cu: &'static Cuda) -> Verdict {
    let all = whole(cu)?;
    let (total, least) = (sm_of(&all).smCount, sm_of(&all).minSmPartitionSize);
    let mut possible = 0;
    ok!(cu.cuDevSmResourceSplitByCount(null_mut(), &mut possible, &all, null_mut(), 0, least));
    holds!(possible > 0 && possible * least <= total, "{possible} groups of {least} out of {total}");
    // One place more than will be used.
    let mut groups = vec![zeroed::<CUdevResource>(); possible as usize + 1];
    let (mut made, mut rest) = (possible + 1, zeroed::<CUdevResource>());
    ok!(cu.cuDevSmResourceSplitByCount(groups.as_mut_ptr(), &mut made, &all, &mut rest, 0, least));
    same!(made, possible);
    let each = sm_of(&groups[0]).smCount;
    holds!(each >= least, "a group has {each} multiprocessors, asked for {least}");
    for group in &groups[..made as usize] {
        same!(group.type_, CU_DEV_RESOURCE_TYPE_SM);
        same!(sm_of(group).smCount, each);
    }
    let left = if rest.type_ == CU_DEV_RESOURCE_TYPE_SM { sm_of(&rest).smCount } else { 0 };
    holds!(each * made + left <= total, "{made} groups of {each} and {left} are more than {total}");
    Ok(())
}

fn a_split_makes_no_more_groups_than_asked_for(cu: &'static Cuda) -> Verdict {
    let (all, (group, rest)) = (whole(cu)?, part(cu)?);
    let left = if rest.type_ == CU_DEV_RESOURCE_TYPE_SM { sm_of(&rest).smCount } else { 0 };
    holds!(sm_of(&group).smCount + left <= sm_of(&all).smCount, "the parts are more than the whole");
    Ok(())
}

fn a_split_for_more_than_there_is_fails(cu: &'static Cuda) -> Verdict {
    let (all, mut count) = (whole(cu)?, 0);
    let too_many = sm_of(&all).smCount + 1;
    answers!(
        [CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION],
        cu.cuDevSmResourceSplitByCount(null_mut(), &mut count, &all, null_mut(), 0, too_many)
    );
    Ok(())
}

fn what_is_no_resource_is_refused(cu: &'static Cuda) -> Verdict {
    let (mut nothing, mut count, mut descriptor): (CUdevResource, _, _) = (zeroed(), 0, null_mut());
    answers!(
        [CUDA_ERROR_INVALID_RESOURCE_TYPE, CUDA_ERROR_INVALID_VALUE],
        cu.cuDevSmResourceSplitByCount(null_mut(), &mut count, &nothing, null_mut(), 0, 1)
    );
    answers!(
        [CUDA_ERROR_INVALID_RESOURCE_TYPE, CUDA_ERROR_INVALID_VALUE],
        cu.cuDevResourceGenerateDesc(&mut descriptor, &mut nothing, 1)
    );
    Ok(())
}

fn one_has_the_resource_it_was_made_from(cu: &'static Cuda) -> Verdict {
    let group = part(cu)?.0;
    let (mut green, mut context) = (null_mut(), null_mut());
    ok!(cu.cuGreenCtxCreate(&mut green, descriptor(cu, &group)?, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    ok!(cu.cuCtxFromGreenCtx(&mut context, green));
    let (mut of_green, mut of_context): (CUdevResource, CUdevResource) = (zeroed(), zeroed());
    ok!(cu.cuGreenCtxGetDevResource(green, &mut of_green, CU_DEV_RESOURCE_TYPE_SM));
    ok!(cu.cuCtxGetDevResource(context, &mut of_context, CU_DEV_RESOURCE_TYPE_SM));
    same!(sm_of(&of_green).smCount, sm_of(&group).smCount);
    same!(sm_of(&of_context).smCount, sm_of(&group).smCount);
    end(cu, green, &[])
}

fn the_default_stream_flag_is_required(cu: &'static Cuda) -> Verdict {
    let (descriptor, mut green) = (descriptor(cu, &part(cu)?.0)?, null_mut());
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuGreenCtxCreate(&mut green, descriptor, 0, 0));
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuGreenCtxCreate(null_mut(), descriptor, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    Ok(())
}

fn ids_differ_and_null_means_the_current_one(cu: &'static Cuda) -> Verdict {
    let ((first, context), (second, _)) = (green(cu)?, green(cu)?);
    let (mut a, mut b, mut current) = (0, 0, 0);
    ok!(cu.cuGreenCtxGetId(first, &mut a));
    ok!(cu.cuGreenCtxGetId(second, &mut b));
    holds!(a != b, "both have the id {a}");
    ok!(cu.cuCtxPushCurrent_v2(context));
    ok!(cu.cuGreenCtxGetId(null_mut(), &mut current));
    ok!(cu.cuCtxPopCurrent_v2(null_mut()));
    same!(current, a);
    end(cu, first, &[])?;
    end(cu, second, &[])
}

fn its_context_can_be_current(cu: &'static Cuda) -> Verdict {
    let primary = cu.context()?;
    let (green, context) = green(cu)?;
    same!(cu.context()?, primary);
    ok!(cu.cuCtxSetCurrent(context));
    same!(cu.context()?, context);
    let mut device = 99;
    ok!(cu.cuCtxGetDevice(&mut device));
    same!(device, 0);
    ok!(cu.cuCtxSetCurrent(primary));
    end(cu, green, &[])
}

fn converting_again_gives_the_same_context(cu: &'static Cuda) -> Verdict {
    let ((green, first), mut again) = (green(cu)?, null_mut());
    ok!(cu.cuCtxFromGreenCtx(&mut again, green));
    same!(again, first);
    end(cu, green, &[])
}

/// Fills `n` words from the device and reads them back, on `stream` and with the present context.
fn fills(cu: &Cuda, stream: CUstream, function: CUfunction, mut data: CUdeviceptr, value: u32) -> Verdict {
    let (mut value, mut n) = (value, 64u32);
    ok!(cu.launch(function, 2, 32, stream, &mut [as_void(&mut data), as_void(&mut value), as_void(&mut n)]));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu.download::<u32>(data, 64)?, vec![value; 64]);
    Ok(())
}

fn kernels_run_on_its_streams(cu: &'static Cuda) -> Verdict {
    let (module, function) = cu.kernel("fill")?;
    let data = cu.alloc(256)?;
    let (green, _) = green(cu)?;
    let stream = stream_of(cu, green)?;
    fills(cu, stream, function, data, 7)?;
    end(cu, green, &[stream])?;
    cu.free(data)?;
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

/// It shares memory and modules with the primary context, both ways.
fn kernels_run_while_it_is_current(cu: &'static Cuda) -> Verdict {
    let primary = cu.context()?;
    let (green, context) = green(cu)?;
    ok!(cu.cuCtxSetCurrent(context));
    let (module, function) = cu.kernel("fill")?;
    let data = cu.alloc(256)?;
    let mut stream = null_mut();
    ok!(cu.cuStreamCreate(&mut stream, CU_STREAM_NON_BLOCKING));
    fills(cu, stream, function, data, 9)?;
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuCtxSetCurrent(primary));
    end(cu, green, &[])?;
    same!(cu.download::<u32>(data, 1)?, vec![9]);
    cu.free(data)?;
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

fn a_stream_knows_its_green_context(cu: &'static Cuda) -> Verdict {
    let primary = cu.context()?;
    let (green, context) = green(cu)?;
    let stream = stream_of(cu, green)?;
    let (mut of, mut owner, mut both) = (null_mut(), null_mut(), (null_mut(), null_mut()));
    ok!(cu.cuStreamGetGreenCtx(stream, &mut of));
    same!(of, green);
    ok!(cu.cuStreamGetCtx(stream, &mut owner));
    same!(owner, context);
    ok!(cu.cuStreamGetCtx_v2(stream, &mut both.0, &mut both.1));
    same!(both, (primary, green));
    let mut flags = 0;
    ok!(cu.cuStreamGetFlags(stream, &mut flags));
    same!(flags, CU_STREAM_NON_BLOCKING);
    // The default stream is that of the current context.
    ok!(cu.cuCtxPushCurrent_v2(context));
    ok!(cu.cuStreamGetGreenCtx(null_mut(), &mut of));
    ok!(cu.cuCtxPopCurrent_v2(null_mut()));
    same!(of, green);
    end(cu, green, &[stream])
}

fn other_streams_have_none(cu: &'static Cuda) -> Verdict {
    let own = cu.stream()?;
    for stream in [own, null_mut()] {
        let (mut green, mut context) = (std::ptr::dangling_mut(), null_mut());
        ok!(cu.cuStreamGetGreenCtx(stream, &mut green));
        holds!(green.is_null(), "an ordinary stream has a green context");
        green = std::ptr::dangling_mut();
        ok!(cu.cuStreamGetCtx_v2(stream, &mut context, &mut green));
        same!(context, cu.context()?);
        holds!(green.is_null(), "an ordinary stream has a green context");
    }
    ok!(cu.cuStreamDestroy_v2(own));
    Ok(())
}

fn its_streams_do_not_block(cu: &'static Cuda) -> Verdict {
    let ((green, _), mut stream) = (green(cu)?, null_mut());
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuGreenCtxStreamCreate(&mut stream, green, CU_STREAM_DEFAULT, 0));
    end(cu, green, &[])
}

fn an_event_records_all_of_its_work(cu: &'static Cuda) -> Verdict {
    let (green, _) = green(cu)?;
    let (stream, event, count) = (stream_of(cu, green)?, cu.event()?, counter());
    let gate = cu.gate(stream)?;
    ok!(cu.cuLaunchHostFunc(stream, Some(tally), counter_argument(count)));
    ok!(cu.cuGreenCtxRecordEvent(green, event));
    answers!(CUDA_ERROR_NOT_READY, cu.cuEventQuery(event));
    gate.open();
    ok!(cu.cuEventSynchronize(event));
    same!(count.load(Ordering::SeqCst), 1);
    ok!(cu.cuEventDestroy_v2(event));
    end(cu, green, &[stream])
}

fn all_of_its_work_waits_for_an_event(cu: &'static Cuda) -> Verdict {
    let (green, _) = green(cu)?;
    let (stream, other, event) = (stream_of(cu, green)?, cu.stream()?, cu.event()?);
    let (gate, count) = (cu.gate(other)?, counter());
    ok!(cu.cuEventRecord(event, other));
    ok!(cu.cuGreenCtxWaitEvent(green, event));
    ok!(cu.cuLaunchHostFunc(stream, Some(tally), counter_argument(count)));
    answers!(CUDA_ERROR_NOT_READY, cu.cuStreamQuery(stream));
    same!(count.load(Ordering::SeqCst), 0);
    gate.open();
    ok!(cu.cuStreamSynchronize(stream));
    same!(count.load(Ordering::SeqCst), 1);
    ok!(cu.cuStreamDestroy_v2(other));
    ok!(cu.cuEventDestroy_v2(event));
    end(cu, green, &[stream])
}

/// Queues a count behind a gate that another thread opens, and counts what is done when `wait` returns.
fn waits(cu: &'static Cuda, stream: CUstream, wait: impl FnOnce() -> CUresult) -> Verdict {
    let (gate, count) = (cu.gate(stream)?, counter());
    ok!(cu.cuLaunchHostFunc(stream, Some(tally), counter_argument(count)));
    let opener = thread::spawn(move || gate.open());
    ok!(wait());
    same!(count.load(Ordering::SeqCst), 1);
    opener.join().map_err(|_| "the thread that opens the gate failed".to_owned())
}

fn synchronizing_the_primary_waits_for_it(cu: &'static Cuda) -> Verdict {
    let (green, _) = green(cu)?;
    let stream = stream_of(cu, green)?;
    waits(cu, stream, || cu.cuCtxSynchronize())?;
    end(cu, green, &[stream])
}

fn synchronizing_it_waits_for_its_streams(cu: &'static Cuda) -> Verdict {
    let primary = cu.context()?;
    let (green, context) = green(cu)?;
    let stream = stream_of(cu, green)?;
    waits(cu, stream, || {
        let pushed = cu.cuCtxSetCurrent(context);
        if pushed == CUDA_SUCCESS { cu.cuCtxSynchronize() } else { pushed }
    })?;
    ok!(cu.cuCtxSetCurrent(primary));
    end(cu, green, &[stream])
}

fn no_green_context_cannot_be_destroyed(cu: &'static Cuda) -> Verdict {
    answers!(
        [CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_HANDLE],
        cu.cuGreenCtxDestroy(null_mut())
    );
    Ok(())
}

fn streams_outlive_it_only_to_say_so(cu: &'static Cuda) -> Verdict {
    let (green, _) = green(cu)?;
    let stream = stream_of(cu, green)?;
    ok!(cu.cuStreamSynchronize(stream));
    ok!(cu.cuGreenCtxDestroy(green));
    answers!(CUDA_ERROR_CONTEXT_IS_DESTROYED, cu.cuStreamQuery(stream));
    answers!(CUDA_ERROR_CONTEXT_IS_DESTROYED, cu.cuStreamDestroy_v2(stream));
    Ok(())
}

fn ten_can_be_made_and_destroyed(cu: &'static Cuda) -> Verdict {
    for _ in 0..10 {
        let (green, _) = green(cu)?;
        let stream = stream_of(cu, green)?;
        end(cu, green, &[stream])?;
    }
    Ok(())
}
