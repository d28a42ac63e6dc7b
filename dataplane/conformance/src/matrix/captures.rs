//! A thread that captures over and over again while others wait, copy and free: nothing that is done for them may end
//! a capture, and nothing that is captured may be done.

use std::ptr::null_mut;
use std::time::Duration;

use orion_cuda::sys::*;

use crate::driver::Cuda;
use crate::fact::{holds, ok, same};
use crate::lab::{Get, read, write};
use crate::round::Random;

const PAUSE_US: usize = 500;

/// In a context of its own, for others wait for all of theirs, and that CUDA refuses beside a capture. Answers how many
/// captures there were.
///
/// # Errors
/// What became of a capture instead.
pub fn capture_until(cu: &'static Cuda, seed: u64, is_over: impl Fn() -> bool) -> Get<u64> {
    let (mut context, mut random) = (null_mut(), Random::new(seed ^ 0x5eed));
    ok!(cu.cuCtxCreate_v2(&mut context, 0, 0));
    let (_, increment) = cu.kernel("increment")?;
    let (word, pinned, [forked, joined]) = (cu.words(&[0])?, cu.pinned(64)?, [cu.event()?, cu.event()?]);
    let (streams, other) = ([cu.stream()?, cu.blocking_stream()?], cu.stream()?);
    let mut pause = || std::thread::sleep(Duration::from_micros(random.below(PAUSE_US) as u64));
    let mut captures = 0u64;
    while !is_over() {
        let stream = streams[captures as usize % 2];
        let mode = [CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED][captures as usize / 2 % 2];
        let (mut graph, mut exec, mut status, mut nodes) = (null_mut(), null_mut(), 0, 0);
        write(pinned, 0u32);
        ok!(cu.cuStreamBeginCapture_v2(stream, mode));
        ok!(cu.launch_on(increment, word, stream));
        pause();
        ok!(cu.cuEventRecord(forked, stream));
        ok!(cu.cuStreamWaitEvent(other, forked, 0));
        ok!(cu.cuMemcpyDtoHAsync_v2(pinned, word, 4, other));
        pause();
        ok!(cu.cuEventRecord(joined, other));
        ok!(cu.cuStreamWaitEvent(stream, joined, 0));
        ok!(cu.cuStreamIsCapturing(stream, &mut status));
        holds!(status == CU_STREAM_CAPTURE_STATUS_ACTIVE, "capture {captures} in mode {mode} has status {status}");
        ok!(cu.cuStreamEndCapture(stream, &mut graph));
        ok!(cu.cuGraphGetNodes(graph, null_mut(), &mut nodes));
        same!((captures, nodes, read::<u32>(pinned)), (captures, 2, 0));
        ok!(cu.cuGraphInstantiateWithFlags(&mut exec, graph, 0));
        ok!(cu.cuGraphLaunch(exec, stream));
        ok!(cu.cuStreamSynchronize(stream));
        captures += 1;
        same!(read::<u32>(pinned), captures as u32);
        ok!(cu.cuGraphExecDestroy(exec));
        ok!(cu.cuGraphDestroy(graph));
        pause();
    }
    ok!(cu.cuCtxDestroy_v2(context));
    Ok(captures)
}
