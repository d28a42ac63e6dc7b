//! Stream capture, and everything that may not be done during one.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use orion_cuda::sys::*;

use crate::driver::Cuda;
use crate::fact::{Verdict, answers, facts, holds, ok, same};
use crate::lab::{Get, as_void, counter, counter_argument, floats, read, tally, use_primary, write};

facts! { capture:
    Context [
        nothing_runs_until_the_graph_is_launched.not_in_a_crowd("a global capture forbids others to allocate"),
        the_status_is_told,
        a_captured_stream_does_not_say_what_it_is.not_in_a_crowd("a global capture forbids others to free"),
        a_launch_that_is_refused_ends_it.not_in_a_crowd("a global capture forbids others to free"),
        information_is_told.not_in_a_crowd("a global capture forbids others to allocate"),
        ending_without_beginning_is_illegal_state,
        beginning_twice_is_illegal_state,
        an_unknown_mode_is_invalid_value,
        the_default_stream_cannot_be_captured,
        an_empty_one_is_an_empty_graph.not_in_a_crowd("a global capture forbids others to wait"),
        synchronizing_the_stream_is_unsupported,
        querying_the_stream_is_unsupported,
        what_is_unsupported_invalidates.not_in_a_crowd("a global capture forbids others to wait"),
        launching_a_graph_is_unsupported,
        synchronizing_the_context_is_unsupported,
        an_event_recorded_inside_cannot_be_queried,
        an_event_recorded_inside_cannot_be_waited_for,
        a_second_stream_joins_by_events.not_in_a_crowd("a global capture forbids others to allocate"),
        an_unjoined_stream_is_refused.not_in_a_crowd("a global capture forbids others to allocate"),
        ending_a_stream_that_joined_is_unmatched_and_ends_it,
        two_captures_do_not_merge,
        a_wait_for_an_event_from_outside_is_isolation,
        the_default_stream_is_implicitly_forbidden,
        the_default_stream_is_not_told_of_while_it_encompasses_one
            .not_in_a_crowd("others may be using the default stream"),
        the_default_stream_may_not_be_waited_for_or_asked_while_it_encompasses_one
            .not_in_a_crowd("others may be using the default stream"),
        whoever_waits_for_the_default_stream_does_not_end_what_begins_meanwhile
            .not_in_a_crowd("others may be using the default stream"),
        whoever_waits_for_the_default_stream_beside_others_does_not_end_what_begins_meanwhile
            .not_in_a_crowd("others may be using the default stream"),
        a_blocking_allocation_is_unsupported_in_global_mode,
        a_blocking_allocation_is_allowed_in_relaxed_mode,
        what_may_wait_for_the_device_is_unsupported_in_global_mode
            .not_in_a_crowd("a global capture forbids others to allocate"),
        what_may_wait_for_the_device_is_allowed_in_relaxed_mode
            .not_in_a_crowd("what is freed beside another's capture is not waited for"),
        what_another_thread_frees_does_not_end_what_begins_meanwhile
            .not_in_a_crowd("it waits for the context that others capture in"),
        another_thread_may_not_end_it,
        the_mode_of_a_thread_can_be_exchanged.not_in_a_crowd("a global capture forbids others to allocate"),
        copies_memsets_and_host_functions_are_captured.not_in_a_crowd("a global capture forbids others to allocate"),
        allocations_in_stream_order_are_captured.not_in_a_crowd("a global capture forbids others to allocate"),
        one_can_add_to_a_graph.not_in_a_crowd("a global capture forbids others to allocate"),
        destroying_the_stream_is_clean.not_in_a_crowd("a global capture forbids others to allocate"),
        a_fill_of_any_address_is_recorded_and_refused_when_the_graph_is_instantiated,
        a_stream_write_or_wait_of_any_address_is_recorded,
        a_copy_to_or_from_no_memory_is_refused_at_once,
        copies_within_host_memory_are_recorded,
        copies_that_are_under_way_do_not_end_it.not_in_a_crowd("a global capture forbids others to allocate"),
        global_mode_forbids_to_ask_to_wait_and_to_free.not_in_a_crowd("a global capture forbids others to allocate"),
        global_mode_allows_what_cannot_wait.not_in_a_crowd("a global capture forbids others to allocate"),
    ]
}

const GLOBAL: CUstreamCaptureMode = CU_STREAM_CAPTURE_MODE_GLOBAL;
const RELAXED: CUstreamCaptureMode = CU_STREAM_CAPTURE_MODE_RELAXED;

fn capturing(cu: &Cuda, mode: CUstreamCaptureMode) -> Get<CUstream> {
    let stream = cu.stream()?;
    ok!(cu.cuStreamBeginCapture_v2(stream, mode));
    Ok(stream)
}

/// Ends a capture whose graph does not matter.
fn abandon(cu: &Cuda, stream: CUstream) -> Verdict {
    let mut graph = null_mut();
    cu.cuStreamEndCapture(stream, &mut graph);
    if !graph.is_null() {
        ok!(cu.cuGraphDestroy(graph));
    }
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}

fn end(cu: &Cuda, stream: CUstream) -> Get<CUgraph> {
    let mut graph = null_mut();
    ok!(cu.cuStreamEndCapture(stream, &mut graph));
    holds!(!graph.is_null(), "the capture ended without a graph");
    Ok(graph)
}

fn node_count(cu: &Cuda, graph: CUgraph) -> Get<usize> {
    let mut count = 0;
    ok!(cu.cuGraphGetNodes(graph, null_mut(), &mut count));
    Ok(count)
}

fn replay(cu: &Cuda, graph: CUgraph, stream: CUstream, times: u32) -> Verdict {
    let mut exec = null_mut();
    ok!(cu.cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    for _ in 0..times {
        ok!(cu.cuGraphLaunch(exec, stream));
    }
    ok!(cu.cuStreamSynchronize(stream));
    ok!(cu.cuGraphExecDestroy(exec));
    Ok(())
}

fn nothing_runs_until_the_graph_is_launched(cu: &'static Cuda) -> Verdict {
    let (module, increment) = cu.kernel("increment")?;
    let address = cu.words(&[0])?;
    let stream = capturing(cu, GLOBAL)?;
    ok!(cu.launch_on(increment, address, stream));
    ok!(cu.launch_on(increment, address, stream));
    let graph = end(cu, stream)?;
    same!((cu.word(address)?, node_count(cu, graph)?), (0, 2));
    replay(cu, graph, stream, 3)?;
    same!(cu.word(address)?, 6);
    ok!(cu.cuGraphDestroy(graph));
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuModuleUnload(module));
    cu.free(address)
}

fn the_status_is_told(cu: &'static Cuda) -> Verdict {
    let (stream, mut status) = (cu.stream()?, 99);
    ok!(cu.cuStreamIsCapturing(stream, &mut status));
    same!(status, CU_STREAM_CAPTURE_STATUS_NONE);
    ok!(cu.cuStreamBeginCapture_v2(stream, GLOBAL));
    ok!(cu.cuStreamIsCapturing(stream, &mut status));
    same!(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    ok!(cu.cuGraphDestroy(end(cu, stream)?));
    ok!(cu.cuStreamIsCapturing(stream, &mut status));
    same!(status, CU_STREAM_CAPTURE_STATUS_NONE);
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}

fn information_is_told(cu: &'static Cuda) -> Verdict {
    let address = cu.words(&[0])?;
    let stream = capturing(cu, GLOBAL)?;
    ok!(cu.cuMemsetD32Async(address, 1, 1, stream));
    let (mut status, mut id, mut graph, mut nodes, mut count) = (99, 0, null_mut(), std::ptr::null(), 9);
    ok!(cu.cuStreamGetCaptureInfo_v2(stream, &mut status, &mut id, &mut graph, &mut nodes, &mut count));
    same!((status, count), (CU_STREAM_CAPTURE_STATUS_ACTIVE, 1));
    holds!(id != 0 && !graph.is_null() && !nodes.is_null(), "an id, graph or dependencies are missing");
    let null = null_mut();
    ok!(cu.cuStreamGetCaptureInfo_v3(stream, &mut status, null, null_mut(), null_mut(), null_mut(), null_mut()));
    same!(end(cu, stream)?, graph);
    ok!(cu.cuGraphDestroy(graph));
    ok!(cu.cuStreamGetCaptureInfo_v2(stream, &mut status, null_mut(), null_mut(), null_mut(), null_mut()));
    same!(status, CU_STREAM_CAPTURE_STATUS_NONE);
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(address)
}

fn ending_without_beginning_is_illegal_state(cu: &'static Cuda) -> Verdict {
    let (stream, mut graph) = (cu.stream()?, null_mut());
    answers!(CUDA_ERROR_ILLEGAL_STATE, cu.cuStreamEndCapture(stream, &mut graph));
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}

fn beginning_twice_is_illegal_state(cu: &'static Cuda) -> Verdict {
    let stream = capturing(cu, GLOBAL)?;
    answers!(CUDA_ERROR_ILLEGAL_STATE, cu.cuStreamBeginCapture_v2(stream, GLOBAL));
    abandon(cu, stream)
}

fn an_unknown_mode_is_invalid_value(cu: &'static Cuda) -> Verdict {
    let stream = cu.stream()?;
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuStreamBeginCapture_v2(stream, 9));
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}

fn the_default_stream_cannot_be_captured(cu: &'static Cuda) -> Verdict {
    answers!(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.cuStreamBeginCapture_v2(null_mut(), GLOBAL));
    Ok(())
}

fn an_empty_one_is_an_empty_graph(cu: &'static Cuda) -> Verdict {
    let stream = capturing(cu, GLOBAL)?;
    let graph = end(cu, stream)?;
    same!(node_count(cu, graph)?, 0);
    replay(cu, graph, stream, 1)?;
    ok!(cu.cuGraphDestroy(graph));
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}

fn synchronizing_the_stream_is_unsupported(cu: &'static Cuda) -> Verdict {
    let stream = capturing(cu, GLOBAL)?;
    answers!(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.cuStreamSynchronize(stream));
    abandon(cu, stream)
}

fn querying_the_stream_is_unsupported(cu: &'static Cuda) -> Verdict {
    let stream = capturing(cu, GLOBAL)?;
    answers!(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.cuStreamQuery(stream));
    abandon(cu, stream)
}

fn what_is_unsupported_invalidates(cu: &'static Cuda) -> Verdict {
    let stream = capturing(cu, GLOBAL)?;
    answers!(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.cuStreamSynchronize(stream));
    let (mut status, mut graph) = (99, std::ptr::dangling_mut());
    ok!(cu.cuStreamIsCapturing(stream, &mut status));
    same!(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    answers!(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.cuStreamEndCapture(stream, &mut graph));
    holds!(graph.is_null(), "an invalidated capture left a graph");
    ok!(cu.cuStreamSynchronize(stream));
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}

fn launching_a_graph_is_unsupported(cu: &'static Cuda) -> Verdict {
    let address = cu.words(&[0])?;
    let stream = capturing(cu, RELAXED)?;
    ok!(cu.cuMemsetD32Async(address, 9, 1, stream));
    let (graph, mut exec) = (end(cu, stream)?, std::ptr::null_mut());
    ok!(cu.cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    ok!(cu.cuStreamBeginCapture_v2(stream, RELAXED));
    answers!(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.cuGraphLaunch(exec, stream));
    let mut outer = std::ptr::dangling_mut();
    answers!(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.cuStreamEndCapture(stream, &mut outer));
    same!(cu.word(address)?, 0);
    ok!(cu.cuGraphExecDestroy(exec));
    ok!(cu.cuGraphDestroy(graph));
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(address)
}

fn synchronizing_the_context_is_unsupported(cu: &'static Cuda) -> Verdict {
    let stream = capturing(cu, GLOBAL)?;
    answers!(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.cuCtxSynchronize());
    abandon(cu, stream)
}

fn an_event_recorded_inside_cannot_be_queried(cu: &'static Cuda) -> Verdict {
    let (event, stream) = (cu.event()?, capturing(cu, GLOBAL)?);
    ok!(cu.cuEventRecord(event, stream));
    answers!(CUDA_ERROR_CAPTURED_EVENT, cu.cuEventQuery(event));
    abandon(cu, stream)?;
    ok!(cu.cuEventDestroy_v2(event));
    Ok(())
}

fn an_event_recorded_inside_cannot_be_waited_for(cu: &'static Cuda) -> Verdict {
    let (event, stream) = (cu.event()?, capturing(cu, GLOBAL)?);
    ok!(cu.cuEventRecord(event, stream));
    answers!(CUDA_ERROR_CAPTURED_EVENT, cu.cuEventSynchronize(event));
    abandon(cu, stream)?;
    ok!(cu.cuEventDestroy_v2(event));
    Ok(())
}

fn a_second_stream_joins_by_events(cu: &'static Cuda) -> Verdict {
    let (module, increment) = cu.kernel("increment")?;
    let (first, second, second_stream) = (cu.words(&[0])?, cu.words(&[0])?, cu.stream()?);
    let (fork, join) = (cu.event()?, cu.event()?);
    let stream = capturing(cu, GLOBAL)?;
    ok!(cu.launch_on(increment, first, stream));
    ok!(cu.cuEventRecord(fork, stream));
    ok!(cu.cuStreamWaitEvent(second_stream, fork, 0));
    let mut status = 99;
    ok!(cu.cuStreamIsCapturing(second_stream, &mut status));
    same!(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    ok!(cu.launch_on(increment, second, second_stream));
    ok!(cu.launch_on(increment, first, stream));
    ok!(cu.cuEventRecord(join, second_stream));
    ok!(cu.cuStreamWaitEvent(stream, join, 0));
    let graph = end(cu, stream)?;
    same!(node_count(cu, graph)?, 3);
    replay(cu, graph, stream, 2)?;
    same!((cu.word(first)?, cu.word(second)?), (4, 2));
    ok!(cu.cuGraphDestroy(graph));
    ok!(cu.cuEventDestroy_v2(fork));
    ok!(cu.cuEventDestroy_v2(join));
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuStreamDestroy_v2(second_stream));
    ok!(cu.cuModuleUnload(module));
    cu.free(first)?;
    cu.free(second)
}

fn an_unjoined_stream_is_refused(cu: &'static Cuda) -> Verdict {
    let (module, noop) = cu.kernel("noop")?;
    let (other, fork) = (cu.stream()?, cu.event()?);
    let (stream, mut graph) = (capturing(cu, GLOBAL)?, null_mut());
    ok!(cu.cuEventRecord(fork, stream));
    ok!(cu.cuStreamWaitEvent(other, fork, 0));
    ok!(cu.launch(noop, 1, 1, other, &mut []));
    answers!(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cu.cuStreamEndCapture(stream, &mut graph));
    holds!(graph.is_null(), "an unjoined capture left a graph");
    ok!(cu.cuEventDestroy_v2(fork));
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuStreamDestroy_v2(other));
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

/// CuPy's `test_stream_capture_failure2` is about it.
fn ending_a_stream_that_joined_is_unmatched_and_ends_it(cu: &'static Cuda) -> Verdict {
    let (first, second, event, mut graph) = (capturing(cu, RELAXED)?, cu.stream()?, cu.event()?, null_mut());
    ok!(cu.cuEventRecord(event, first));
    ok!(cu.cuStreamWaitEvent(second, event, 0));
    answers!(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cu.cuStreamEndCapture(second, &mut graph));
    answers!(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.cuStreamEndCapture(first, &mut graph));
    for stream in [first, second] {
        ok!(cu.cuStreamSynchronize(stream));
        ok!(cu.cuStreamDestroy_v2(stream));
    }
    ok!(cu.cuEventDestroy_v2(event));
    Ok(())
}

fn two_captures_do_not_merge(cu: &'static Cuda) -> Verdict {
    let event = cu.event()?;
    let (first, second) = (capturing(cu, RELAXED)?, capturing(cu, RELAXED)?);
    ok!(cu.cuEventRecord(event, first));
    answers!(CUDA_ERROR_STREAM_CAPTURE_MERGE, cu.cuStreamWaitEvent(second, event, 0));
    abandon(cu, first)?;
    abandon(cu, second)?;
    ok!(cu.cuEventDestroy_v2(event));
    Ok(())
}

fn a_wait_for_an_event_from_outside_is_isolation(cu: &'static Cuda) -> Verdict {
    let (event, outside) = (cu.event()?, cu.stream()?);
    let gate = cu.gate(outside)?;
    ok!(cu.cuEventRecord(event, outside));
    let stream = capturing(cu, RELAXED)?;
    answers!(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cu.cuStreamWaitEvent(stream, event, 0));
    gate.open();
    abandon(cu, stream)?;
    ok!(cu.cuStreamSynchronize(outside));
    ok!(cu.cuStreamDestroy_v2(outside));
    ok!(cu.cuEventDestroy_v2(event));
    Ok(())
}

fn the_default_stream_is_implicitly_forbidden(cu: &'static Cuda) -> Verdict {
    let (module, noop) = cu.kernel("noop")?;
    let stream = cu.blocking_stream()?;
    ok!(cu.cuStreamBeginCapture_v2(stream, RELAXED));
    answers!(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cu.launch(noop, 1, 1, null_mut(), &mut []));
    abandon(cu, stream)?;
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

/// CUDA's `cuStreamIsCapturing` says so; CuPy's `Stream.null.is_capturing()` is tested for it.
fn the_default_stream_is_not_told_of_while_it_encompasses_one(cu: &'static Cuda) -> Verdict {
    let (stream, mut status, mut id) = (cu.blocking_stream()?, 0, 0);
    ok!(cu.cuStreamBeginCapture_v2(stream, RELAXED));
    answers!(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cu.cuStreamIsCapturing(null_mut(), &mut status));
    let info = cu.cuStreamGetCaptureInfo_v2(null_mut(), &mut status, &mut id, null_mut(), null_mut(), null_mut());
    answers!(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, info);
    ok!(cu.cuStreamIsCapturing(stream, &mut status));
    same!(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    ok!(cu.cuGraphDestroy(end(cu, stream)?));
    ok!(cu.cuStreamIsCapturing(null_mut(), &mut status));
    same!(status, CU_STREAM_CAPTURE_STATUS_NONE);
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}

/// CUDA's Programming Guide, "Prohibited and Unhandled Operations": whoever asks about the legacy stream asks about
/// each stream that it encompasses.
fn the_default_stream_may_not_be_waited_for_or_asked_while_it_encompasses_one(cu: &'static Cuda) -> Verdict {
    type Ask = fn(&Cuda) -> CUresult;
    let asks: [Ask; 2] = [|cu| cu.cuStreamQuery(null_mut()), |cu| cu.cuStreamSynchronize(null_mut())];
    for ask in asks {
        let stream = cu.blocking_stream()?;
        ok!(cu.cuStreamBeginCapture_v2(stream, RELAXED));
        answers!(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, ask(cu));
        abandon(cu, stream)?;
    }
    Ok(())
}

/// Also where an event in the default stream would order other streams.
fn whoever_waits_for_the_default_stream_beside_others_does_not_end_what_begins_meanwhile(cu: &'static Cuda) -> Verdict {
    let (other, word) = (cu.blocking_stream()?, cu.words(&[0, 0])?);
    let (module, increment) = cu.kernel("increment")?;
    let gate = cu.gate(null_mut())?;
    ok!(cu.launch_on(increment, word, null_mut()));
    ok!(cu.launch_on(increment, word + 4, other));
    let waits = std::thread::spawn(move || {
        use_primary(cu)?;
        Ok::<CUresult, String>(cu.cuStreamSynchronize(null_mut()))
    });
    std::thread::sleep(MOMENT);
    let stream = cu.blocking_stream()?;
    ok!(cu.cuStreamBeginCapture_v2(stream, RELAXED));
    std::thread::sleep(MOMENT);
    holds!(!waits.is_finished(), "the wait is over before what it is for");
    let graph = end(cu, stream)?;
    holds!(!waits.is_finished(), "the end of the capture has ended the wait");
    gate.open();
    same!(waits.join().expect("a panic ends the process")?, CUDA_SUCCESS);
    same!(cu.word(word)?, 1);
    ok!(cu.cuGraphDestroy(graph));
    for stream in [stream, other] {
        ok!(cu.cuStreamDestroy_v2(stream));
    }
    ok!(cu.cuModuleUnload(module));
    cu.free(word)
}

const MOMENT: Duration = Duration::from_millis(30);

/// The wait was allowed when it began, and is over when what it was for is.
fn whoever_waits_for_the_default_stream_does_not_end_what_begins_meanwhile(cu: &'static Cuda) -> Verdict {
    let event = cu.event()?;
    let (word, event_handle) = (cu.words(&[0])?, event.addr());
    let (module, increment) = cu.kernel("increment")?;
    for (round, name) in ["stream", "context", "event"].into_iter().enumerate() {
        let gate = cu.gate(null_mut())?;
        ok!(cu.launch_on(increment, word, null_mut()));
        ok!(cu.cuEventRecord(event, null_mut()));
        let waits = std::thread::spawn(move || {
            use_primary(cu)?;
            Ok::<CUresult, String>(match name {
                "stream" => cu.cuStreamSynchronize(null_mut()),
                "context" => cu.cuCtxSynchronize(),
                _ => cu.cuEventSynchronize(std::ptr::without_provenance_mut(event_handle)),
            })
        });
        std::thread::sleep(MOMENT);
        let stream = cu.blocking_stream()?;
        ok!(cu.cuStreamBeginCapture_v2(stream, RELAXED));
        std::thread::sleep(MOMENT);
        let (mut status, mut graph) = (0, null_mut());
        ok!(cu.cuStreamIsCapturing(stream, &mut status));
        holds!(!waits.is_finished(), "{name}: the wait is over before what it is for");
        gate.open();
        let (code, ended) =
            (waits.join().expect("a panic ends the process")?, cu.cuStreamEndCapture(stream, &mut graph));
        same!((name, status, code, ended), (name, CU_STREAM_CAPTURE_STATUS_ACTIVE, CUDA_SUCCESS, CUDA_SUCCESS));
        ok!(cu.cuGraphDestroy(graph));
        ok!(cu.cuStreamDestroy_v2(stream));
        same!(cu.word(word)?, round as u32 + 1);
    }
    ok!(cu.cuModuleUnload(module));
    ok!(cu.cuEventDestroy_v2(event));
    cu.free(word)
}

/// Whoever looks whether they have come must not be noticed.
fn copies_that_are_under_way_do_not_end_it(cu: &'static Cuda) -> Verdict {
    const BYTES: usize = 64 << 10;
    let (outside, numbers) = (cu.stream()?, cu.words(&[7; BYTES / 4])?);
    let (pinned, pageable) = (cu.pinned(BYTES)?, vec![9u32; BYTES / 4]);
    let mut one = 0u32;
    let gate = cu.gate(outside)?;
    ok!(cu.cuMemcpyDtoHAsync_v2(pinned, numbers, BYTES, outside));
    ok!(cu.cuMemcpyDtoHAsync_v2(pinned, numbers, 4, outside));
    ok!(cu.cuMemcpyHtoDAsync_v2(numbers, pageable.as_ptr().cast(), BYTES, outside));
    let stream = capturing(cu, GLOBAL)?;
    for _ in 0..100 {
        let mut status = 99;
        ok!(cu.cuStreamIsCapturing(stream, &mut status));
        same!(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
        ok!(cu.cuMemsetD32Async(numbers, 5, 1, stream));
    }
    let graph = end(cu, stream)?;
    same!(node_count(cu, graph)?, 100);
    gate.open();
    ok!(cu.cuMemcpyDtoHAsync_v2(as_void(&mut one), numbers, 4, outside));
    ok!(cu.cuStreamSynchronize(outside));
    same!((read::<u32>(pinned), one), (7, 9));
    replay(cu, graph, stream, 1)?;
    same!(cu.word(numbers)?, 5);
    ok!(cu.cuGraphDestroy(graph));
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuStreamDestroy_v2(outside));
    ok!(cu.cuMemFreeHost(pinned));
    cu.free(numbers)
}

/// What calls other than the captured stream's find in global mode, and whether the capture is still good.
fn beside_a_capture(cu: &'static Cuda, call: &mut dyn FnMut() -> CUresult) -> Get<(CUresult, bool)> {
    let (stream, mut status) = (capturing(cu, GLOBAL)?, 99);
    let code = call();
    ok!(cu.cuStreamIsCapturing(stream, &mut status));
    abandon(cu, stream)?;
    Ok((code, status == CU_STREAM_CAPTURE_STATUS_ACTIVE))
}

/// So are `cuMemFreeHost`, `cuMemHostRegister`, `cuMemHostUnregister` and `cuModuleUnload`, which Orion puts off or
/// does beside the capture, unnoticed by it.
fn global_mode_forbids_to_ask_to_wait_and_to_free(cu: &'static Cuda) -> Verdict {
    let (other, event) = (cu.stream()?, cu.event()?);
    let (mut pool, mut empty, mut address, mut exec) = (null_mut(), null_mut(), 0, null_mut());
    ok!(cu.cuEventRecord(event, other));
    ok!(cu.cuStreamSynchronize(other));
    ok!(cu.cuDeviceGetDefaultMemPool(&mut pool, 0));
    ok!(cu.cuGraphCreate(&mut empty, 0));
    let device = cu.alloc(64)?;
    let mut calls: [(&str, &mut dyn FnMut() -> CUresult); 9] = [
        ("cuEventQuery", &mut || cu.cuEventQuery(event)),
        ("cuStreamQuery", &mut || cu.cuStreamQuery(other)),
        ("cuEventSynchronize", &mut || cu.cuEventSynchronize(event)),
        ("cuStreamSynchronize", &mut || cu.cuStreamSynchronize(other)),
        ("cuCtxSynchronize", &mut || cu.cuCtxSynchronize()),
        ("cuMemAlloc", &mut || cu.cuMemAlloc_v2(&mut address, 64)),
        ("cuMemFree", &mut || cu.cuMemFree_v2(device)),
        ("cuMemPoolTrimTo", &mut || cu.cuMemPoolTrimTo(pool, 0)),
        ("cuGraphInstantiate", &mut || cu.cuGraphInstantiateWithFlags(&mut exec, empty, 0)),
    ];
    for (name, call) in &mut calls {
        same!((*name, beside_a_capture(cu, *call)?), (*name, (CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, false)));
    }
    ok!(cu.cuGraphDestroy(empty));
    ok!(cu.cuEventDestroy_v2(event));
    ok!(cu.cuStreamDestroy_v2(other));
    cu.free(device)
}

fn global_mode_allows_what_cannot_wait(cu: &'static Cuda) -> Verdict {
    let (other, first, second) = (cu.stream()?, cu.event()?, cu.event()?);
    let (device, pinned) = (cu.alloc(64)?, cu.pinned(64)?);
    ok!(cu.cuEventRecord(second, other));
    ok!(cu.cuStreamSynchronize(other));
    let (mut free, mut total, mut made) = (0, 0, null_mut());
    let mut calls: [(&str, &mut dyn FnMut() -> CUresult); 6] = [
        ("cuMemGetInfo", &mut || cu.cuMemGetInfo_v2(&mut free, &mut total)),
        ("cuEventCreate", &mut || cu.cuEventCreate(&mut made, CU_EVENT_DISABLE_TIMING)),
        ("cuEventRecord", &mut || cu.cuEventRecord(first, other)),
        ("cuStreamWaitEvent", &mut || cu.cuStreamWaitEvent(other, second, 0)),
        ("cuMemcpyDtoHAsync", &mut || cu.cuMemcpyDtoHAsync_v2(pinned, device, 64, other)),
        ("cuMemcpyHtoD", &mut || cu.cuMemcpyHtoD_v2(device, pinned, 64)),
    ];
    for (name, call) in &mut calls {
        same!((*name, beside_a_capture(cu, *call)?), (*name, (CUDA_SUCCESS, true)));
    }
    ok!(cu.cuStreamSynchronize(other));
    for event in [first, second, made] {
        ok!(cu.cuEventDestroy_v2(event));
    }
    ok!(cu.cuMemFreeHost(pinned));
    ok!(cu.cuStreamDestroy_v2(other));
    cu.free(device)
}

fn a_blocking_allocation_is_unsupported_in_global_mode(cu: &'static Cuda) -> Verdict {
    let (stream, mut address) = (capturing(cu, GLOBAL)?, 0);
    answers!(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.cuMemAlloc_v2(&mut address, 64));
    abandon(cu, stream)
}

fn a_blocking_allocation_is_allowed_in_relaxed_mode(cu: &'static Cuda) -> Verdict {
    let stream = capturing(cu, RELAXED)?;
    let address = cu.alloc(64)?;
    ok!(cu.cuGraphDestroy(end(cu, stream)?));
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(address)
}

/// What is refused has not happened, and can be done once the capture is over.
fn what_may_wait_for_the_device_is_unsupported_in_global_mode(cu: &'static Cuda) -> Verdict {
    freeing_answers(cu, GLOBAL, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
}

fn what_may_wait_for_the_device_is_allowed_in_relaxed_mode(cu: &'static Cuda) -> Verdict {
    freeing_answers(cu, RELAXED, CUDA_SUCCESS)
}

/// In this order, so that what is made is freed again.
fn freeing_answers(cu: &'static Cuda, mode: CUstreamCaptureMode, expected: CUresult) -> Verdict {
    let description = floats(64, 4);
    let (mut array, mut pages) = (null_mut(), vec![0u8; 8192]);
    ok!(cu.cuArray3DCreate_v2(&mut array, &description));
    let (pages, pinned) = (pages.as_mut_ptr().cast::<c_void>(), Cell::new(null_mut()));
    let (device, module) = (cu.alloc(64)?, cu.module()?);
    let pin = || {
        let mut address = null_mut();
        let code = cu.cuMemHostAlloc(&mut address, 64, 0);
        pinned.set(address);
        code
    };
    let acts: [(&str, &dyn Fn() -> CUresult); 7] = [
        ("cuMemHostAlloc", &pin),
        ("cuMemFreeHost", &|| cu.cuMemFreeHost(pinned.get())),
        ("cuMemHostRegister", &|| cu.cuMemHostRegister_v2(pages, 8192, 0)),
        ("cuMemHostUnregister", &|| cu.cuMemHostUnregister(pages)),
        ("cuMemFree", &|| cu.cuMemFree_v2(device)),
        ("cuArrayDestroy", &|| cu.cuArrayDestroy(array)),
        ("cuModuleUnload", &|| cu.cuModuleUnload(module)),
    ];
    for (name, act) in acts {
        let stream = capturing(cu, mode)?;
        same!((name, act()), (name, expected));
        if expected == CUDA_SUCCESS {
            ok!(cu.cuGraphDestroy(end(cu, stream)?));
            ok!(cu.cuStreamDestroy_v2(stream));
        } else {
            abandon(cu, stream)?;
            same!((name, act()), (name, CUDA_SUCCESS));
        }
    }
    Ok(())
}

/// It waits for the device, which a third thread keeps at work, and streams go away that are not done.
fn what_another_thread_frees_does_not_end_what_begins_meanwhile(cu: &'static Cuda) -> Verdict {
    const ROUNDS: u32 = 150;
    const WORDS: usize = 64 << 10;
    let (module, increment) = cu.kernel("increment")?;
    let (words, captured, stream) = (cu.words(&[0; WORDS])?, cu.words(&[0])?, cu.stream()?);
    let (function, is_over) = (increment.addr(), &AtomicBool::new(false));
    let frees = move || {
        use_primary(cu)?;
        while !is_over.load(Ordering::Relaxed) {
            let pinned = cu.pinned(64)?;
            ok!(cu.cuMemFreeHost(pinned));
            ok!(cu.cuModuleUnload(cu.module()?));
        }
        Ok::<(), String>(())
    };
    let keeps_it_at_work = move || {
        use_primary(cu)?;
        let mut launched = 0;
        while !is_over.load(Ordering::Relaxed) && launched < WORDS {
            let (stream, word) = (cu.stream()?, words + 4 * launched as u64);
            ok!(cu.launch_on(std::ptr::without_provenance_mut(function), word, stream));
            launched += 1;
            if launched % 4 == 0 {
                ok!(cu.cuStreamSynchronize(stream));
            }
            ok!(cu.cuStreamDestroy_v2(stream));
        }
        Ok::<usize, String>(launched)
    };
    let capture = || {
        for round in 0..ROUNDS {
            ok!(cu.cuStreamBeginCapture_v2(stream, RELAXED));
            ok!(cu.launch_on(increment, captured, stream));
            let (mut graph, mut nodes) = (null_mut(), 0);
            same!((round, cu.cuStreamEndCapture(stream, &mut graph)), (round, CUDA_SUCCESS));
            ok!(cu.cuGraphGetNodes(graph, null_mut(), &mut nodes));
            same!((round, nodes), (round, 1));
            ok!(cu.cuGraphDestroy(graph));
        }
        Ok::<(), String>(())
    };
    let (captures, freed, launched) = std::thread::scope(|scope| {
        let (freed, launched) = (scope.spawn(frees), scope.spawn(keeps_it_at_work));
        let captures = capture();
        is_over.store(true, Ordering::Relaxed);
        let no_panic = "a panic ends the process";
        (captures, freed.join().expect(no_panic), launched.join().expect(no_panic))
    });
    captures?;
    freed?;
    let (launched, mut seen) = (launched?, vec![0u32; WORDS]);
    ok!(cu.cuCtxSynchronize());
    ok!(cu.cuMemcpyDtoHAsync_v2(seen.as_mut_ptr().cast(), words, 4 * WORDS, stream));
    ok!(cu.cuStreamSynchronize(stream));
    same!((seen.iter().sum::<u32>() as usize, cu.word(captured)?), (launched, 0));
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuModuleUnload(module));
    cu.free(captured)?;
    cu.free(words)
}

fn another_thread_may_not_end_it(cu: &'static Cuda) -> Verdict {
    let stream = capturing(cu, GLOBAL)?;
    let handle = stream.addr();
    let code = std::thread::spawn(move || {
        use_primary(cu)?;
        let mut graph = null_mut();
        Ok::<CUresult, String>(cu.cuStreamEndCapture(std::ptr::without_provenance_mut(handle), &mut graph))
    })
    .join()
    .expect("a panic ends the process")?;
    same!(code, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    abandon(cu, stream)
}

fn the_mode_of_a_thread_can_be_exchanged(cu: &'static Cuda) -> Verdict {
    let mut mode = RELAXED;
    ok!(cu.cuThreadExchangeStreamCaptureMode(&mut mode));
    same!(mode, GLOBAL);
    let stream = capturing(cu, GLOBAL)?;
    let address = cu.alloc(64)?;
    ok!(cu.cuThreadExchangeStreamCaptureMode(&mut mode));
    same!(mode, RELAXED);
    ok!(cu.cuGraphDestroy(end(cu, stream)?));
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(address)
}

fn copies_memsets_and_host_functions_are_captured(cu: &'static Cuda) -> Verdict {
    let (address, pinned, count) = (cu.words(&[0, 0])?, cu.pinned(8)?, counter());
    let mut word = 5u32;
    let stream = capturing(cu, GLOBAL)?;
    ok!(cu.cuMemcpyHtoDAsync_v2(address, pinned, 4, stream));
    ok!(cu.cuMemcpyDtoDAsync_v2(address + 4, address, 4, stream));
    ok!(cu.cuMemcpyDtoHAsync_v2(pinned.wrapping_byte_add(4), address + 4, 4, stream));
    ok!(cu.cuMemsetD32Async(address, 9, 1, stream));
    ok!(cu.cuMemcpyDtoHAsync_v2(as_void(&mut word), address, 4, stream));
    ok!(cu.cuLaunchHostFunc(stream, Some(tally), counter_argument(count)));
    let graph = end(cu, stream)?;
    same!(node_count(cu, graph)?, 6);
    same!(count.load(Ordering::SeqCst), 0);
    for round in [40u32, 41] {
        write(pinned, [round, 0]);
        replay(cu, graph, stream, 1)?;
        same!(read::<[u32; 2]>(pinned), [round, round]);
        same!((cu.word(address)?, read::<u32>(as_void(&mut word))), (9, 9));
    }
    same!(count.load(Ordering::SeqCst), 2);
    ok!(cu.cuGraphDestroy(graph));
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuMemFreeHost(pinned));
    cu.free(address)
}

fn allocations_in_stream_order_are_captured(cu: &'static Cuda) -> Verdict {
    let (pinned, mut address) = (cu.pinned(4)?, 0);
    let stream = capturing(cu, GLOBAL)?;
    ok!(cu.cuMemAllocAsync(&mut address, 4096, stream));
    ok!(cu.cuMemsetD32Async(address, 12, 1, stream));
    ok!(cu.cuMemcpyDtoHAsync_v2(pinned, address, 4, stream));
    ok!(cu.cuMemFreeAsync(address, stream));
    let graph = end(cu, stream)?;
    same!(node_count(cu, graph)?, 4);
    write(pinned, 0u32);
    replay(cu, graph, stream, 2)?;
    same!(read::<u32>(pinned), 12);
    ok!(cu.cuGraphDestroy(graph));
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuMemFreeHost(pinned));
    Ok(())
}

fn one_can_add_to_a_graph(cu: &'static Cuda) -> Verdict {
    let (module, increment) = cu.kernel("increment")?;
    let (mut graph, mut node, address, stream) = (null_mut(), null_mut(), cu.words(&[0])?, cu.stream()?);
    ok!(cu.cuGraphCreate(&mut graph, 0));
    ok!(cu.cuGraphAddEmptyNode(&mut node, graph, std::ptr::null(), 0));
    ok!(cu.cuStreamBeginCaptureToGraph(stream, graph, &node, std::ptr::null(), 1, GLOBAL));
    ok!(cu.launch_on(increment, address, stream));
    same!(end(cu, stream)?, graph);
    same!(node_count(cu, graph)?, 2);
    replay(cu, graph, stream, 1)?;
    same!(cu.word(address)?, 1);
    ok!(cu.cuGraphDestroy(graph));
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuModuleUnload(module));
    cu.free(address)
}

fn destroying_the_stream_is_clean(cu: &'static Cuda) -> Verdict {
    let stream = capturing(cu, GLOBAL)?;
    ok!(cu.cuStreamDestroy_v2(stream));
    let address = cu.words(&[3])?;
    same!(cu.word(address)?, 3);
    cu.free(address)
}

/// Addresses that no memory of a program has, whatever it has allocated.
const NO_MEMORY: [CUdeviceptr; 4] = [0, 8, 4096, 0xdead_0000_0000_0000];

/// What is recorded by `call` on a stream of its own: its answer, how many nodes there are, and what instantiating
/// says.
fn recorded(cu: &Cuda, call: impl FnOnce(CUstream) -> CUresult) -> Get<(CUresult, usize, CUresult)> {
    let stream = capturing(cu, RELAXED)?;
    let code = call(stream);
    let (graph, mut exec) = (end(cu, stream)?, null_mut());
    let instantiated = cu.cuGraphInstantiateWithFlags(&mut exec, graph, 0);
    if instantiated == CUDA_SUCCESS {
        ok!(cu.cuGraphExecDestroy(exec));
    }
    let nodes = node_count(cu, graph)?;
    ok!(cu.cuGraphDestroy(graph));
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok((code, nodes, instantiated))
}

/// cuDNN 9.19 captures a convolution with addresses that it has made up, to see which kernels there are.
fn a_fill_of_any_address_is_recorded_and_refused_when_the_graph_is_instantiated(cu: &'static Cuda) -> Verdict {
    let memory = cu.words(&[0; 64])?;
    let mut gone = 0;
    ok!(cu.cuMemAlloc_v2(&mut gone, 64 << 20));
    ok!(cu.cuMemFree_v2(gone));
    let refused = (CUDA_SUCCESS, 1, CUDA_ERROR_INVALID_VALUE);
    for at in NO_MEMORY {
        same!(recorded(cu, |stream| cu.cuMemsetD8Async(at, 0, 256, stream))?, refused);
        same!(recorded(cu, |stream| cu.cuMemsetD32Async(at, 0, 256, stream))?, refused);
        same!(recorded(cu, |stream| cu.cuMemsetD2D16Async(at, 64, 0, 16, 4, stream))?, refused);
    }
    same!(recorded(cu, |stream| cu.cuMemsetD8Async(memory, 0, 1 << 40, stream))?, refused);
    same!(recorded(cu, |stream| cu.cuMemsetD8Async(memory, 0, 256, stream))?, (CUDA_SUCCESS, 1, CUDA_SUCCESS));
    let nothing = (CUDA_ERROR_INVALID_VALUE, 0, CUDA_SUCCESS);
    same!(recorded(cu, |stream| cu.cuMemsetD32Async(4097, 0, 256, stream))?, nothing);
    same!(recorded(cu, |stream| cu.cuMemsetD8Async(0, 0, 0, stream))?, (CUDA_SUCCESS, 0, CUDA_SUCCESS));
    cu.free(memory)
}

fn a_stream_write_or_wait_of_any_address_is_recorded(cu: &'static Cuda) -> Verdict {
    let recorded_once = (CUDA_SUCCESS, 1, CUDA_SUCCESS);
    for at in NO_MEMORY {
        same!(recorded(cu, |stream| cu.cuStreamWriteValue32_v2(stream, at, 1, 0))?, recorded_once);
        same!(recorded(cu, |stream| cu.cuStreamWaitValue32_v2(stream, at, 1, 0))?, recorded_once);
    }
    for at in NO_MEMORY {
        let mut op = CUstreamBatchMemOpParams { pad: [CU_STREAM_MEM_OP_WRITE_VALUE_32.into(), at, 1, 0, 0, 0] };
        same!(recorded(cu, |stream| cu.cuStreamBatchMemOp_v2(stream, 1, &mut op, 0))?, recorded_once);
    }
    let nothing = (CUDA_ERROR_INVALID_VALUE, 0, CUDA_SUCCESS);
    same!(recorded(cu, |stream| cu.cuStreamWriteValue32_v2(stream, 4097, 1, 0))?, nothing);
    Ok(())
}

fn a_copy_to_or_from_no_memory_is_refused_at_once(cu: &'static Cuda) -> Verdict {
    let (memory, pinned, mut pageable) = (cu.words(&[0; 64])?, cu.pinned(256)?, [0u32; 64]);
    let host = as_void(&mut pageable);
    let nothing = (CUDA_ERROR_INVALID_VALUE, 0, CUDA_SUCCESS);
    for at in NO_MEMORY.into_iter().chain([host as CUdeviceptr]) {
        same!(recorded(cu, |stream| cu.cuMemcpyHtoDAsync_v2(at, pinned, 256, stream))?, nothing);
        same!(recorded(cu, |stream| cu.cuMemcpyDtoHAsync_v2(pinned, at, 256, stream))?, nothing);
        same!(recorded(cu, |stream| cu.cuMemcpyDtoDAsync_v2(at, memory, 256, stream))?, nothing);
        same!(recorded(cu, |stream| cu.cuMemcpyDtoDAsync_v2(memory, at, 256, stream))?, nothing);
    }
    let once = (CUDA_SUCCESS, 1, CUDA_SUCCESS);
    same!(recorded(cu, |stream| cu.cuMemcpyHtoDAsync_v2(memory, host, 256, stream))?, once);
    same!(recorded(cu, |stream| cu.cuMemcpyDtoDAsync_v2(pinned as CUdeviceptr, memory, 256, stream))?, once);
    ok!(cu.cuMemFreeHost(pinned));
    cu.free(memory)
}

/// Addresses are unified: pinned memory may be named for a device's.
fn copies_within_host_memory_are_recorded(cu: &'static Cuda) -> Verdict {
    let pinned = cu.pinned(16)?;
    let at = |offset: usize| pinned.wrapping_byte_add(offset);
    write(pinned, [0u32; 4]);
    let stream = capturing(cu, RELAXED)?;
    ok!(cu.cuMemcpyHtoDAsync_v2(at(4) as CUdeviceptr, pinned, 4, stream));
    ok!(cu.cuMemcpyDtoHAsync_v2(at(8), at(4) as CUdeviceptr, 4, stream));
    ok!(cu.cuMemcpyAsync(at(12) as CUdeviceptr, at(8) as CUdeviceptr, 4, stream));
    let graph = end(cu, stream)?;
    same!(node_count(cu, graph)?, 3);
    same!(read::<[u32; 4]>(pinned), [0; 4]);
    for round in [7u32, 8] {
        write(pinned, [round, 0, 0, 0]);
        replay(cu, graph, stream, 1)?;
        same!(read::<[u32; 4]>(pinned), [round; 4]);
    }
    ok!(cu.cuGraphDestroy(graph));
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuMemFreeHost(pinned));
    Ok(())
}

/// What an H200's driver refuses of a captured stream, and its capture is over.
fn a_captured_stream_does_not_say_what_it_is(cu: &'static Cuda) -> Verdict {
    let (mut flags, mut id, mut device, mut priority, mut context) = (0, 0, 0, 0, null_mut());
    let refused = (CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    let told = (CUDA_SUCCESS, CUDA_SUCCESS);
    type Asked<'a> = &'a mut dyn FnMut(CUstream) -> CUresult;
    let mut calls: [(&str, _, Asked<'_>); 5] = [
        ("cuStreamGetFlags", refused, &mut |stream| cu.cuStreamGetFlags(stream, &mut flags)),
        ("cuStreamGetId", refused, &mut |stream| cu.cuStreamGetId(stream, &mut id)),
        ("cuStreamGetDevice", refused, &mut |stream| cu.cuStreamGetDevice(stream, &mut device)),
        ("cuStreamGetPriority", told, &mut |stream| cu.cuStreamGetPriority(stream, &mut priority)),
        ("cuStreamGetCtx", told, &mut |stream| cu.cuStreamGetCtx(stream, &mut context)),
    ];
    for (name, expected, call) in &mut calls {
        let (stream, mut graph) = (capturing(cu, GLOBAL)?, null_mut());
        let code = call(stream);
        same!((*name, (code, cu.cuStreamEndCapture(stream, &mut graph))), (*name, *expected));
        if !graph.is_null() {
            ok!(cu.cuGraphDestroy(graph));
        }
        ok!(cu.cuStreamDestroy_v2(stream));
    }
    Ok(())
}

fn a_launch_that_is_refused_ends_it(cu: &'static Cuda) -> Verdict {
    let (module, noop) = cu.kernel("noop")?;
    let (stream, mut graph) = (capturing(cu, GLOBAL)?, null_mut());
    answers!(CUDA_ERROR_INVALID_VALUE, cu.launch(noop, 0, 1, stream, &mut []));
    answers!(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.cuStreamEndCapture(stream, &mut graph));
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuModuleUnload(module));
    Ok(())
}
