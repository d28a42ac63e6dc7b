//! Host functions and stream callbacks: they run here, in order, and may not call the library.
//!
//! UNSAFETY: callbacks reach what the fact gave them through raw pointers.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use orion_cuda::sys::*;

use crate::driver::Cuda;
use crate::fact::{Verdict, answers, facts, ok, same};
use crate::lab::{Gate, Get, as_void, counter, counter_argument, read, tally, write, zeroed};

facts! { callback:
    Context [
        it_runs_in_this_process,
        it_sees_the_copy_before_it,
        work_after_it_waits,
        the_caller_does_not_wait,
        many_run_in_order,
        each_runs_once_while_the_host_waits_for_it,
        a_null_function_is_invalid_value,
        the_library_may_not_be_called_inside,
        a_stream_callback_gets_stream_and_status,
        a_stream_callback_with_flags_is_invalid_value,
        it_runs_on_the_default_stream,
        what_it_writes_is_copied_after_it,
        more_launches_than_a_queue_holds_may_follow_it,
        more_bytes_than_any_queue_holds_may_follow_it,
        what_it_writes_for_kernels_is_there_although_a_call_waits_for_it,
        it_ends_although_rows_for_pageable_memory_wait_for_it,
        work_after_it_is_taken_although_much_was_written_for_kernels_before_it,
    ]
}

extern "C" fn note_process(into: *mut c_void) {
    write(into, std::process::id());
}

fn it_runs_in_this_process(cu: &'static Cuda) -> Verdict {
    let (stream, mut process) = (cu.stream()?, 0u32);
    ok!(cu.cuLaunchHostFunc(stream, Some(note_process), as_void(&mut process)));
    ok!(cu.cuStreamSynchronize(stream));
    same!(read::<u32>(as_void(&mut process)), std::process::id());
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}

/// A GPU's queue takes about a thousand; the launch after those waits until the function has returned. So many that no
/// other queue on the way holds them either.
fn more_launches_than_a_queue_holds_may_follow_it(cu: &'static Cuda) -> Verdict {
    const LAUNCHES: u32 = 30_000;
    let (stream, address) = (cu.stream()?, cu.words(&[0])?);
    let (module, increment) = cu.kernel("increment")?;
    let gate = cu.gate(stream)?;
    let opener = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        gate.open();
    });
    for _ in 0..LAUNCHES {
        ok!(cu.launch_on(increment, address, stream));
    }
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu.word(address)?, LAUNCHES);
    opener.join().expect("a panic ends the process");
    ok!(cu.cuModuleUnload(module));
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(address)
}

/// Opens the gate when `count` has not grown for a while: whoever counts is held up by what waits at the gate.
fn open_when_stuck(gate: Gate, count: Arc<AtomicU32>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let mut last = (Instant::now(), 0);
        while last.0.elapsed() < Duration::from_millis(200) {
            let now = count.load(Ordering::SeqCst);
            if now != last.1 {
                last = (Instant::now(), now);
            }
            std::thread::yield_now();
        }
        gate.open();
    })
}

/// Adds one to a word. Its parameters are four kilobytes, so that neither rings nor sockets hold many launches.
const WIDE_PTX: &CStr = c".version 7.0
    .target sm_70
    .address_size 64
    .visible .entry wide(.param .u64 out, .param .align 8 .b8 rest[4000])
    {
        .reg .b64 %a;
        .reg .b32 %v;
        ld.param.u64 %a, [out];
        ld.global.u32 %v, [%a];
        add.u32 %v, %v, 1;
        st.global.u32 [%a], %v;
        ret;
    }";

/// That kernel, launched once: the driver waits for the device when it loads one.
fn wide(cu: &Cuda, address: CUdeviceptr) -> Get<(CUmodule, CUfunction)> {
    let (mut module, mut wide) = (null_mut(), null_mut());
    ok!(cu.cuModuleLoadData(&mut module, WIDE_PTX.as_ptr().cast()));
    ok!(cu.cuModuleGetFunction(&mut wide, module, c"wide".as_ptr()));
    launch_wide(cu, wide, 1, address, null_mut(), &AtomicU32::new(0))?;
    ok!(cu.cuStreamSynchronize(null_mut()));
    Ok((module, wide))
}

fn launch_wide(
    cu: &Cuda,
    wide: CUfunction,
    launches: u32,
    address: CUdeviceptr,
    stream: CUstream,
    count: &AtomicU32,
) -> Verdict {
    let (mut address, mut rest) = (address, [0u8; 4000]);
    for launch in 0..launches {
        rest.fill(launch as u8);
        ok!(cu.launch(wide, 1, 1, stream, &mut [as_void(&mut address), as_void(&mut rest)]));
        count.fetch_add(1, Ordering::SeqCst);
    }
    Ok(())
}

fn more_bytes_than_any_queue_holds_may_follow_it(cu: &'static Cuda) -> Verdict {
    const LAUNCHES: u32 = 8000;
    let (stream, address) = (cu.stream()?, cu.words(&[0])?);
    let (module, wide) = wide(cu, address)?;
    let count = Arc::new(AtomicU32::new(0));
    let opener = open_when_stuck(cu.gate(stream)?, count.clone());
    launch_wide(cu, wide, LAUNCHES, address, stream, &count)?;
    ok!(cu.cuStreamSynchronize(stream));
    opener.join().expect("a panic ends the process");
    same!(cu.word(address)?, LAUNCHES + 1);
    ok!(cu.cuModuleUnload(module));
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(address)
}

const LATE_WORDS: usize = 64 << 10;

/// Waits at the gate, then writes for a kernel.
struct Late {
    gate: Gate,
    words: usize,
}

extern "C" fn write_late(late: *mut c_void) {
    // SAFETY: the fact keeps it until the stream is done.
    let late = unsafe { &*late.cast::<Late>() };
    late.gate.pass();
    (0..LATE_WORDS).for_each(|i| write((late.words + 4 * i) as *mut c_void, i as u32 + 7));
}

/// A launch waits inside the driver, which waits for the function. What the function writes to memory that kernels use
/// in place has to reach the GPU all the same, and the function's end behind it.
fn what_it_writes_for_kernels_is_there_although_a_call_waits_for_it(cu: &'static Cuda) -> Verdict {
    const LAUNCHES: u32 = 4000;
    let (stream, counted) = (cu.stream()?, cu.words(&[0])?);
    let (module, increment) = cu.kernel("increment")?;
    let (mut words, mut mapped) = (null_mut(), 0);
    ok!(cu.cuMemHostAlloc(&mut words, 4 * LATE_WORDS, CU_MEMHOSTALLOC_DEVICEMAP));
    ok!(cu.cuMemHostGetDevicePointer_v2(&mut mapped, words, 0));
    write(words, 1u32);
    ok!(cu.launch_on(increment, mapped, stream));
    ok!(cu.cuStreamSynchronize(stream));
    same!(read::<u32>(words), 2);
    let (wide_module, wide) = wide(cu, counted)?;

    let late = Late { gate: Gate::closed(), words: words as usize };
    ok!(cu.cuLaunchHostFunc(stream, Some(write_late), std::ptr::from_ref(&late).cast_mut().cast()));
    let last = 4 * (LATE_WORDS as u64 - 1);
    for address in [mapped, mapped + last] {
        ok!(cu.launch_on(increment, address, stream));
    }
    let count = Arc::new(AtomicU32::new(0));
    let opener = open_when_stuck(late.gate.clone(), count.clone());
    launch_wide(cu, wide, LAUNCHES, counted, stream, &count)?;
    ok!(cu.cuStreamSynchronize(stream));
    opener.join().expect("a panic ends the process");
    let seen = (read::<u32>(words), read::<u32>(words.wrapping_byte_add(last as usize)), cu.word(counted)?);
    same!(seen, (8, LATE_WORDS as u32 + 7, LAUNCHES + 1));
    ok!(cu.cuMemFreeHost(words));
    ok!(cu.cuModuleUnload(wide_module));
    ok!(cu.cuModuleUnload(module));
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(counted)
}

/// A copy to pageable memory ends when its call does, and here that waits for a host function, which writes for a
/// kernel behind the copy.
fn it_ends_although_rows_for_pageable_memory_wait_for_it(cu: &'static Cuda) -> Verdict {
    let (stream, address) = (cu.stream()?, cu.words(&[1, 2, 3, 4])?);
    let (module, increment) = cu.kernel("increment")?;
    let (mut words, mut mapped) = (null_mut(), 0);
    ok!(cu.cuMemHostAlloc(&mut words, 4 * LATE_WORDS, CU_MEMHOSTALLOC_DEVICEMAP));
    ok!(cu.cuMemHostGetDevicePointer_v2(&mut mapped, words, 0));
    ok!(cu.launch_on(increment, mapped, stream));
    ok!(cu.cuStreamSynchronize(stream));

    let late = Late { gate: Gate::closed(), words: words as usize };
    ok!(cu.cuLaunchHostFunc(stream, Some(write_late), std::ptr::from_ref(&late).cast_mut().cast()));
    // Nothing counts: the gate opens after a while.
    let opener = open_when_stuck(late.gate.clone(), Arc::new(AtomicU32::new(0)));
    let mut rows = vec![0u32; 16];
    let mut copy: CUDA_MEMCPY2D = zeroed();
    (copy.srcMemoryType, copy.srcDevice, copy.srcPitch) = (CU_MEMORYTYPE_DEVICE, address, 8);
    (copy.dstMemoryType, copy.dstHost, copy.dstPitch) = (CU_MEMORYTYPE_HOST, rows.as_mut_ptr().cast(), 32);
    (copy.WidthInBytes, copy.Height) = (8, 2);
    ok!(cu.cuMemcpy2DAsync_v2(&copy, stream));
    same!([rows[0], rows[1], rows[8], rows[9]], [1, 2, 3, 4]);
    ok!(cu.launch_on(increment, mapped, stream));
    ok!(cu.cuStreamSynchronize(stream));
    same!(read::<u32>(words), 8);
    opener.join().expect("a panic ends the process");
    ok!(cu.cuMemFreeHost(words));
    ok!(cu.cuModuleUnload(module));
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(address)
}

/// What was written is on its way, as much as half of what a session's commands may take up. It comes to no end by
/// itself that there is room for more.
fn work_after_it_is_taken_although_much_was_written_for_kernels_before_it(cu: &'static Cuda) -> Verdict {
    const LEAST: usize = 261_000;
    const STEP: usize = 300;
    const ROUNDS: u32 = 100;
    let most = LEAST + STEP * ROUNDS as usize;
    let stream = cu.stream()?;
    let (module, increment) = cu.kernel("increment")?;
    let (mut words, mut mapped) = (null_mut(), 0);
    ok!(cu.cuMemHostAlloc(&mut words, 4 * most, CU_MEMHOSTALLOC_DEVICEMAP));
    ok!(cu.cuMemHostGetDevicePointer_v2(&mut mapped, words, 0));
    let set = |count: usize, value: u32| (0..count).for_each(|i| write(words.wrapping_byte_add(4 * i), value));
    set(most, 0);
    ok!(cu.launch_on(increment, mapped, stream));
    ok!(cu.cuStreamSynchronize(stream));
    for round in 1..=ROUNDS {
        let last = 4 * (LEAST + STEP * round as usize - 1);
        set(last / 4 + 1, round);
        ok!(cu.launch_on(increment, mapped, stream));
        let gate = cu.gate(stream)?;
        ok!(cu.launch_on(increment, mapped, stream));
        ok!(cu.launch_on(increment, mapped + last as u64, stream));
        gate.open();
        ok!(cu.cuStreamSynchronize(stream));
        same!((read::<u32>(words), read::<u32>(words.wrapping_byte_add(last))), (round + 2, round + 1));
    }
    ok!(cu.cuMemFreeHost(words));
    ok!(cu.cuModuleUnload(module));
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}

extern "C" fn keep_first_word(words: *mut c_void) {
    write(words.wrapping_byte_add(4), read::<u32>(words));
}

fn it_sees_the_copy_before_it(cu: &'static Cuda) -> Verdict {
    let (stream, address, pinned) = (cu.stream()?, cu.words(&[31])?, cu.pinned(8)?);
    write(pinned, [0u32; 2]);
    ok!(cu.cuMemcpyDtoHAsync_v2(pinned, address, 4, stream));
    ok!(cu.cuLaunchHostFunc(stream, Some(keep_first_word), pinned));
    ok!(cu.cuStreamSynchronize(stream));
    same!(read::<[u32; 2]>(pinned), [31, 31]);
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuMemFreeHost(pinned));
    cu.free(address)
}

fn work_after_it_waits(cu: &'static Cuda) -> Verdict {
    let (stream, event, address) = (cu.stream()?, cu.event()?, cu.words(&[1])?);
    let gate = cu.gate(stream)?;
    ok!(cu.cuMemsetD32Async(address, 2, 1, stream));
    ok!(cu.cuEventRecord(event, stream));
    answers!(CUDA_ERROR_NOT_READY, cu.cuEventQuery(event));
    same!(cu.word(address)?, 1);
    gate.open();
    ok!(cu.cuEventSynchronize(event));
    same!(cu.word(address)?, 2);
    ok!(cu.cuEventDestroy_v2(event));
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(address)
}

fn the_caller_does_not_wait(cu: &'static Cuda) -> Verdict {
    let stream = cu.stream()?;
    let gate = cu.gate(stream)?;
    let count = counter();
    // If this waited for the gate, nothing would ever open it.
    ok!(cu.cuLaunchHostFunc(stream, Some(tally), counter_argument(count)));
    same!(count.load(Ordering::SeqCst), 0);
    gate.open();
    ok!(cu.cuStreamSynchronize(stream));
    same!(count.load(Ordering::SeqCst), 1);
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}

struct Step {
    number: u32,
    done: &'static AtomicU32,
}

extern "C" fn take_step(step: *mut c_void) {
    // SAFETY: each step was leaked by the fact and is used by this one call.
    let step = unsafe { &*step.cast::<Step>() };
    // A step out of turn leaves the count behind for good.
    let _ = step.done.compare_exchange(step.number, step.number + 1, Ordering::SeqCst, Ordering::SeqCst);
}

fn many_run_in_order(cu: &'static Cuda) -> Verdict {
    let (stream, done) = (cu.stream()?, counter());
    for number in 0..200 {
        let step = Box::leak(Box::new(Step { number, done }));
        ok!(cu.cuLaunchHostFunc(stream, Some(take_step), as_void(step)));
    }
    ok!(cu.cuStreamSynchronize(stream));
    same!(done.load(Ordering::SeqCst), 200);
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}

/// Nobody waits for the stream, as in JAX: the host waits for what the function does. The copy before it is there, and
/// it runs once, also after the stream has been waited for.
fn each_runs_once_while_the_host_waits_for_it(cu: &'static Cuda) -> Verdict {
    const ROUNDS: u32 = 300;
    let (streams, address, pinned) = ([cu.stream()?, cu.stream()?], cu.words(&[0])?, cu.pinned(8)?);
    let (count, other) = (counter(), counter());
    for round in 1..=ROUNDS {
        ok!(cu.cuMemsetD32Async(address, round, 1, streams[0]));
        ok!(cu.cuMemcpyDtoHAsync_v2(pinned, address, 4, streams[0]));
        ok!(cu.cuLaunchHostFunc(streams[0], Some(keep_first_word), pinned));
        ok!(cu.cuLaunchHostFunc(streams[0], Some(tally), counter_argument(count)));
        ok!(cu.cuLaunchHostFunc(streams[1], Some(tally), counter_argument(other)));
        let start = Instant::now();
        while count.load(Ordering::SeqCst) < round && start.elapsed() < Duration::from_secs(10) {
            std::thread::yield_now();
        }
        same!(read::<[u32; 2]>(pinned), [round, round]);
        same!(count.load(Ordering::SeqCst), round);
        // Some come when a server that spins for a while has gone to sleep.
        if round.is_multiple_of(100) {
            std::thread::sleep(Duration::from_millis(150));
        }
    }
    for stream in streams {
        ok!(cu.cuStreamSynchronize(stream));
    }
    same!([count.load(Ordering::SeqCst), other.load(Ordering::SeqCst)], [ROUNDS, ROUNDS]);
    for stream in streams {
        ok!(cu.cuStreamDestroy_v2(stream));
    }
    ok!(cu.cuMemFreeHost(pinned));
    cu.free(address)
}

fn a_null_function_is_invalid_value(cu: &'static Cuda) -> Verdict {
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuLaunchHostFunc(null_mut(), None, null_mut()));
    Ok(())
}

struct Inside {
    cu: &'static Cuda,
    code: CUresult,
}

extern "C" fn call_inside(inside: *mut c_void) {
    // SAFETY: the fact keeps its Inside alive until the stream is idle, and reads it only then.
    let inside = unsafe { &mut *inside.cast::<Inside>() };
    let mut address = 0;
    inside.code = inside.cu.cuMemAlloc_v2(&mut address, 64);
}

fn the_library_may_not_be_called_inside(cu: &'static Cuda) -> Verdict {
    let stream = cu.stream()?;
    let mut inside = Inside { cu, code: CUDA_SUCCESS };
    ok!(cu.cuLaunchHostFunc(stream, Some(call_inside), as_void(&mut inside)));
    ok!(cu.cuStreamSynchronize(stream));
    same!(read::<CUresult>(as_void(&mut inside.code)), CUDA_ERROR_NOT_PERMITTED);
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}

extern "C" fn note_stream(stream: CUstream, status: CUresult, into: *mut c_void) {
    // SAFETY: the fact's two words outlive the stream's work.
    let into = unsafe { &*into.cast::<[AtomicU64; 2]>() };
    into[0].store(stream.addr() as u64, Ordering::SeqCst);
    into[1].store(u64::from(status) + 1, Ordering::SeqCst);
}

fn a_stream_callback_gets_stream_and_status(cu: &'static Cuda) -> Verdict {
    let stream = cu.stream()?;
    let mut seen = [AtomicU64::new(0), AtomicU64::new(0)];
    ok!(cu.cuStreamAddCallback(stream, Some(note_stream), as_void(&mut seen), 0));
    ok!(cu.cuStreamSynchronize(stream));
    same!(seen[0].load(Ordering::SeqCst), stream.addr() as u64);
    same!(seen[1].load(Ordering::SeqCst), u64::from(CUDA_SUCCESS) + 1);
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}

fn a_stream_callback_with_flags_is_invalid_value(cu: &'static Cuda) -> Verdict {
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuStreamAddCallback(null_mut(), Some(note_stream), null_mut(), 1));
    Ok(())
}

fn it_runs_on_the_default_stream(cu: &'static Cuda) -> Verdict {
    let count = counter();
    ok!(cu.cuLaunchHostFunc(null_mut(), Some(tally), counter_argument(count)));
    ok!(cu.cuCtxSynchronize());
    same!(count.load(Ordering::SeqCst), 1);
    Ok(())
}

extern "C" fn write_99(into: *mut c_void) {
    write(into, 99u32);
}

fn what_it_writes_is_copied_after_it(cu: &'static Cuda) -> Verdict {
    let (stream, address, pinned) = (cu.stream()?, cu.words(&[0])?, cu.pinned(4)?);
    write(pinned, 1u32);
    ok!(cu.cuLaunchHostFunc(stream, Some(write_99), pinned));
    ok!(cu.cuMemcpyHtoDAsync_v2(address, pinned, 4, stream));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu.word(address)?, 99);
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuMemFreeHost(pinned));
    cu.free(address)
}
