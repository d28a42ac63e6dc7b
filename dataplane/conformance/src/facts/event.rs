//! Events.

use std::ptr::null_mut;

use orion_cuda::sys::*;

use crate::driver::Cuda;
use crate::fact::{Verdict, answers, facts, holds, ok};

facts! { event:
    Context [
        never_recorded_is_complete,
        what_is_external_to_a_graph_is_so_while_that_is_captured,
        elapsed_of_one_never_recorded_is_invalid_handle,
        elapsed_is_not_negative,
        elapsed_before_the_end_is_not_ready,
        elapsed_without_timing_is_invalid_handle,
        unknown_flags_are_invalid_value,
        interprocess_with_timing_is_invalid_value,
        creating_into_null_is_invalid_value,
        destroying_null_is_invalid_handle,
        query_tells_whether_the_work_before_is_done,
        recording_again_forgets_the_first,
        synchronize_waits_for_the_work_before,
        destroying_a_pending_one_succeeds,
        work_after_it_does_not_hold_it,
        record_with_flags_records,
        unknown_record_flags_are_invalid_value,
    ]
}

fn never_recorded_is_complete(cu: &'static Cuda) -> Verdict {
    let event = cu.event()?;
    ok!(cu.cuEventQuery(event));
    ok!(cu.cuEventSynchronize(event));
    ok!(cu.cuEventDestroy_v2(event));
    Ok(())
}

fn elapsed_of_one_never_recorded_is_invalid_handle(cu: &'static Cuda) -> Verdict {
    let (first, second, mut milliseconds) = (cu.event()?, cu.event()?, 0.0);
    answers!(CUDA_ERROR_INVALID_HANDLE, cu.cuEventElapsedTime_v2(&mut milliseconds, first, second));
    ok!(cu.cuEventRecord(first, null_mut()));
    ok!(cu.cuEventSynchronize(first));
    answers!(CUDA_ERROR_INVALID_HANDLE, cu.cuEventElapsedTime_v2(&mut milliseconds, first, second));
    ok!(cu.cuEventDestroy_v2(first));
    ok!(cu.cuEventDestroy_v2(second));
    Ok(())
}

fn elapsed_is_not_negative(cu: &'static Cuda) -> Verdict {
    let (first, second) = (cu.event()?, cu.event()?);
    let (mut newer, mut older) = (-1.0, -1.0);
    ok!(cu.cuEventRecord(first, null_mut()));
    ok!(cu.cuEventRecord(second, null_mut()));
    ok!(cu.cuEventSynchronize(second));
    ok!(cu.cuEventElapsedTime_v2(&mut newer, first, second));
    ok!(cu.cuEventElapsedTime(&mut older, first, second));
    holds!(newer >= 0.0 && older >= 0.0, "{newer} ms and {older} ms passed");
    ok!(cu.cuEventDestroy_v2(first));
    ok!(cu.cuEventDestroy_v2(second));
    Ok(())
}

fn elapsed_before_the_end_is_not_ready(cu: &'static Cuda) -> Verdict {
    let (stream, first, second, mut milliseconds) = (cu.stream()?, cu.event()?, cu.event()?, 0.0);
    ok!(cu.cuEventRecord(first, stream));
    let gate = cu.gate(stream)?;
    ok!(cu.cuEventRecord(second, stream));
    answers!(CUDA_ERROR_NOT_READY, cu.cuEventElapsedTime_v2(&mut milliseconds, first, second));
    gate.open();
    ok!(cu.cuStreamSynchronize(stream));
    ok!(cu.cuEventElapsedTime_v2(&mut milliseconds, first, second));
    ok!(cu.cuEventDestroy_v2(first));
    ok!(cu.cuEventDestroy_v2(second));
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}

fn elapsed_without_timing_is_invalid_handle(cu: &'static Cuda) -> Verdict {
    let (mut first, second, mut milliseconds) = (null_mut(), cu.event()?, 0.0);
    ok!(cu.cuEventCreate(&mut first, CU_EVENT_DISABLE_TIMING));
    ok!(cu.cuEventRecord(first, null_mut()));
    ok!(cu.cuEventRecord(second, null_mut()));
    ok!(cu.cuEventSynchronize(second));
    answers!(CUDA_ERROR_INVALID_HANDLE, cu.cuEventElapsedTime_v2(&mut milliseconds, first, second));
    ok!(cu.cuEventDestroy_v2(first));
    ok!(cu.cuEventDestroy_v2(second));
    Ok(())
}

fn unknown_flags_are_invalid_value(cu: &'static Cuda) -> Verdict {
    let mut event = null_mut();
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuEventCreate(&mut event, 0x80));
    Ok(())
}

fn interprocess_with_timing_is_invalid_value(cu: &'static Cuda) -> Verdict {
    let mut event = null_mut();
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuEventCreate(&mut event, CU_EVENT_INTERPROCESS));
    Ok(())
}

fn creating_into_null_is_invalid_value(cu: &'static Cuda) -> Verdict {
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuEventCreate(null_mut(), 0));
    Ok(())
}

fn destroying_null_is_invalid_handle(cu: &'static Cuda) -> Verdict {
    answers!(CUDA_ERROR_INVALID_HANDLE, cu.cuEventDestroy_v2(null_mut()));
    Ok(())
}

fn query_tells_whether_the_work_before_is_done(cu: &'static Cuda) -> Verdict {
    let (stream, event) = (cu.stream()?, cu.event()?);
    let gate = cu.gate(stream)?;
    ok!(cu.cuEventRecord(event, stream));
    answers!(CUDA_ERROR_NOT_READY, cu.cuEventQuery(event));
    gate.open();
    ok!(cu.cuStreamSynchronize(stream));
    ok!(cu.cuEventQuery(event));
    ok!(cu.cuEventDestroy_v2(event));
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}

fn recording_again_forgets_the_first(cu: &'static Cuda) -> Verdict {
    let (busy, idle, event) = (cu.stream()?, cu.stream()?, cu.event()?);
    let gate = cu.gate(busy)?;
    ok!(cu.cuEventRecord(event, busy));
    ok!(cu.cuEventRecord(event, idle));
    ok!(cu.cuEventSynchronize(event));
    answers!(CUDA_ERROR_NOT_READY, cu.cuStreamQuery(busy));
    gate.open();
    ok!(cu.cuStreamSynchronize(busy));
    ok!(cu.cuEventDestroy_v2(event));
    ok!(cu.cuStreamDestroy_v2(busy));
    ok!(cu.cuStreamDestroy_v2(idle));
    Ok(())
}

fn synchronize_waits_for_the_work_before(cu: &'static Cuda) -> Verdict {
    let (stream, event, pinned) = (cu.stream()?, cu.event()?, cu.pinned(4)?);
    let address = cu.words(&[77])?;
    crate::lab::write(pinned, 0u32);
    ok!(cu.cuMemcpyDtoHAsync_v2(pinned, address, 4, stream));
    ok!(cu.cuEventRecord(event, stream));
    ok!(cu.cuEventSynchronize(event));
    holds!(crate::lab::read::<u32>(pinned) == 77, "the copy before the event had not arrived");
    ok!(cu.cuEventDestroy_v2(event));
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuMemFreeHost(pinned));
    cu.free(address)
}

fn destroying_a_pending_one_succeeds(cu: &'static Cuda) -> Verdict {
    let (stream, event) = (cu.stream()?, cu.event()?);
    let gate = cu.gate(stream)?;
    ok!(cu.cuEventRecord(event, stream));
    ok!(cu.cuEventDestroy_v2(event));
    gate.open();
    ok!(cu.cuStreamSynchronize(stream));
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}

fn work_after_it_does_not_hold_it(cu: &'static Cuda) -> Verdict {
    let (stream, event) = (cu.stream()?, cu.event()?);
    ok!(cu.cuEventRecord(event, stream));
    let gate = cu.gate(stream)?;
    ok!(cu.cuEventSynchronize(event));
    gate.open();
    ok!(cu.cuStreamSynchronize(stream));
    ok!(cu.cuEventDestroy_v2(event));
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}

fn record_with_flags_records(cu: &'static Cuda) -> Verdict {
    let (stream, event) = (cu.stream()?, cu.event()?);
    let gate = cu.gate(stream)?;
    ok!(cu.cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_DEFAULT));
    answers!(CUDA_ERROR_NOT_READY, cu.cuEventQuery(event));
    gate.open();
    ok!(cu.cuEventSynchronize(event));
    ok!(cu.cuEventDestroy_v2(event));
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}

fn unknown_record_flags_are_invalid_value(cu: &'static Cuda) -> Verdict {
    let event = cu.event()?;
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuEventRecordWithFlags(event, null_mut(), 0x80));
    ok!(cu.cuEventDestroy_v2(event));
    Ok(())
}

fn what_is_external_to_a_graph_is_so_while_that_is_captured(cu: &'static Cuda) -> Verdict {
    let (stream, event) = (cu.stream()?, cu.event()?);
    answers!(CUDA_ERROR_ILLEGAL_STATE, cu.cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_EXTERNAL));
    answers!(CUDA_ERROR_ILLEGAL_STATE, cu.cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_EXTERNAL));
    let mut graph = null_mut();
    ok!(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    ok!(cu.cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_EXTERNAL));
    ok!(cu.cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_EXTERNAL));
    ok!(cu.cuStreamEndCapture(stream, &mut graph));
    ok!(cu.cuGraphDestroy(graph));
    ok!(cu.cuEventDestroy_v2(event));
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}
