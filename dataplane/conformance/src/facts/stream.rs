//! Streams: their rules of order, and what they tell about themselves.

use std::ptr::null_mut;
use std::sync::atomic::Ordering;
use std::thread;

use orion_cuda::sys::*;

use crate::driver::Cuda;
use crate::fact::{Verdict, answers, facts, holds, ok, same};
use crate::lab::{Get, as_void, comes_to_hold, counter, counter_argument, read, tally, use_primary, write};

facts! { stream:
    Context [
        flags_are_told_back,
        a_value_is_written_and_waited_for_as_the_flags_allow,
        one_of_ones_own_needs_no_current_context,
        unknown_flags_are_invalid_value,
        creating_into_null_is_invalid_value,
        destroying_null_is_invalid_handle,
        priorities_are_clamped_to_the_range,
        an_idle_one_is_ready,
        a_busy_one_is_not_ready,
        synchronize_waits,
        ids_differ_and_the_default_has_two_names,
        the_context_is_told,
        the_device_is_told,
        work_runs_in_order,
        a_wait_holds_a_stream_until_the_event,
        waiting_for_an_event_never_recorded_is_nothing,
        a_wait_means_the_record_before_it,
        non_blocking_ones_ignore_the_default_stream,
        the_default_stream_waits_for_blocking_ones.not_in_a_crowd("blocking streams wait for others' work too"),
        blocking_ones_wait_for_the_default_stream,
        the_per_thread_default_differs_by_thread,
        destroying_a_busy_one_lets_its_work_finish,
        a_thousand_can_be_made_and_destroyed,
        wait_flags_must_be_zero,
        values_can_be_written_and_waited_for,
        one_waits_for_a_value_that_the_host_writes,
        a_batch_waits_for_the_host_and_answers_it,
        what_a_stream_wrote_before_its_flag_is_there_with_it,
        what_the_host_wrote_before_the_flag_that_a_stream_waits_for_is_there,
        handles_have_the_lowest_bits_of_pointers,
    ]
}

const LEGACY: CUstream = std::ptr::without_provenance_mut(1);
const PER_THREAD: CUstream = std::ptr::without_provenance_mut(2);

fn flags_are_told_back(cu: &'static Cuda) -> Verdict {
    for (stream, expected) in [(cu.stream()?, CU_STREAM_NON_BLOCKING), (cu.blocking_stream()?, CU_STREAM_DEFAULT)] {
        let mut flags = 99;
        ok!(cu.cuStreamGetFlags(stream, &mut flags));
        same!(flags, expected);
        ok!(cu.cuStreamDestroy_v2(stream));
    }
    Ok(())
}

fn unknown_flags_are_invalid_value(cu: &'static Cuda) -> Verdict {
    let mut stream = null_mut();
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuStreamCreate(&mut stream, 0x40));
    Ok(())
}

fn creating_into_null_is_invalid_value(cu: &'static Cuda) -> Verdict {
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuStreamCreate(null_mut(), 0));
    Ok(())
}

fn destroying_null_is_invalid_handle(cu: &'static Cuda) -> Verdict {
    answers!(CUDA_ERROR_INVALID_HANDLE, cu.cuStreamDestroy_v2(null_mut()));
    Ok(())
}

fn priorities_are_clamped_to_the_range(cu: &'static Cuda) -> Verdict {
    let (mut least, mut greatest) = (0, 0);
    ok!(cu.cuCtxGetStreamPriorityRange(&mut least, &mut greatest));
    for (asked, expected) in [(-1000, greatest), (1000, least), (0, 0)] {
        let (mut stream, mut priority) = (null_mut(), 99);
        ok!(cu.cuStreamCreateWithPriority(&mut stream, CU_STREAM_NON_BLOCKING, asked));
        ok!(cu.cuStreamGetPriority(stream, &mut priority));
        same!(priority, expected);
        ok!(cu.cuStreamDestroy_v2(stream));
    }
    Ok(())
}

fn an_idle_one_is_ready(cu: &'static Cuda) -> Verdict {
    let stream = cu.stream()?;
    ok!(cu.cuStreamQuery(stream));
    ok!(cu.cuStreamQuery(null_mut()));
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}

fn a_busy_one_is_not_ready(cu: &'static Cuda) -> Verdict {
    let stream = cu.stream()?;
    let gate = cu.gate(stream)?;
    answers!(CUDA_ERROR_NOT_READY, cu.cuStreamQuery(stream));
    gate.open();
    ok!(cu.cuStreamSynchronize(stream));
    ok!(cu.cuStreamQuery(stream));
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}

fn synchronize_waits(cu: &'static Cuda) -> Verdict {
    let (stream, count) = (cu.stream()?, counter());
    for _ in 0..50 {
        ok!(cu.cuLaunchHostFunc(stream, Some(tally), counter_argument(count)));
    }
    ok!(cu.cuStreamSynchronize(stream));
    same!(count.load(Ordering::SeqCst), 50);
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}

fn id(cu: &Cuda, stream: CUstream) -> Get<u64> {
    let mut id = 0;
    ok!(cu.cuStreamGetId(stream, &mut id));
    Ok(id)
}

fn ids_differ_and_the_default_has_two_names(cu: &'static Cuda) -> Verdict {
    let (first, second) = (cu.stream()?, cu.stream()?);
    let ids = [id(cu, first)?, id(cu, second)?, id(cu, null_mut())?, id(cu, PER_THREAD)?];
    same!(id(cu, LEGACY)?, ids[2]);
    let distinct: std::collections::HashSet<u64> = ids.into_iter().collect();
    holds!(distinct.len() == 4, "ids {ids:?} are not all different");
    ok!(cu.cuStreamDestroy_v2(first));
    ok!(cu.cuStreamDestroy_v2(second));
    Ok(())
}

fn the_context_is_told(cu: &'static Cuda) -> Verdict {
    for stream in [cu.stream()?, null_mut(), LEGACY] {
        let mut context = null_mut();
        ok!(cu.cuStreamGetCtx(stream, &mut context));
        same!(context, cu.context()?);
    }
    Ok(())
}

fn the_device_is_told(cu: &'static Cuda) -> Verdict {
    let (stream, mut device) = (cu.stream()?, -1);
    ok!(cu.cuStreamGetDevice(stream, &mut device));
    same!(device, 0);
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}

fn work_runs_in_order(cu: &'static Cuda) -> Verdict {
    let (stream, address) = (cu.stream()?, cu.words(&[0])?);
    let module = cu.module()?;
    let (increment, twice) = (cu.function(module, "increment")?, cu.function(module, "twice")?);
    // ((0 + 1) * 2 + 1) * 2 … ten times is 2^11 - 2.
    for _ in 0..10 {
        ok!(cu.launch_on(increment, address, stream));
        ok!(cu.launch_on(twice, address, stream));
    }
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu.word(address)?, 2046);
    ok!(cu.cuModuleUnload(module));
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(address)
}

fn a_wait_holds_a_stream_until_the_event(cu: &'static Cuda) -> Verdict {
    let (first, second, event) = (cu.stream()?, cu.stream()?, cu.event()?);
    let address = cu.words(&[0])?;
    // Loading waits for the device, so it comes before the gate.
    let (module, twice) = cu.kernel("twice")?;
    let gate = cu.gate(first)?;
    ok!(cu.cuMemsetD32Async(address, 1, 1, first));
    ok!(cu.cuEventRecord(event, first));
    ok!(cu.cuStreamWaitEvent(second, event, 0));
    ok!(cu.launch_on(twice, address, second));
    answers!(CUDA_ERROR_NOT_READY, cu.cuStreamQuery(second));
    gate.open();
    ok!(cu.cuStreamSynchronize(second));
    same!(cu.word(address)?, 2);
    ok!(cu.cuModuleUnload(module));
    ok!(cu.cuEventDestroy_v2(event));
    ok!(cu.cuStreamDestroy_v2(first));
    ok!(cu.cuStreamDestroy_v2(second));
    cu.free(address)
}

fn waiting_for_an_event_never_recorded_is_nothing(cu: &'static Cuda) -> Verdict {
    let (stream, event) = (cu.stream()?, cu.event()?);
    ok!(cu.cuStreamWaitEvent(stream, event, 0));
    ok!(cu.cuStreamSynchronize(stream));
    ok!(cu.cuEventDestroy_v2(event));
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}

/// Recording the event again after the wait was queued does not move the wait.
fn a_wait_means_the_record_before_it(cu: &'static Cuda) -> Verdict {
    let (first, second, event) = (cu.stream()?, cu.stream()?, cu.event()?);
    ok!(cu.cuEventRecord(event, first));
    ok!(cu.cuStreamWaitEvent(second, event, 0));
    let gate = cu.gate(first)?;
    ok!(cu.cuEventRecord(event, first));
    ok!(cu.cuStreamSynchronize(second));
    gate.open();
    ok!(cu.cuStreamSynchronize(first));
    ok!(cu.cuEventDestroy_v2(event));
    ok!(cu.cuStreamDestroy_v2(first));
    ok!(cu.cuStreamDestroy_v2(second));
    Ok(())
}

fn non_blocking_ones_ignore_the_default_stream(cu: &'static Cuda) -> Verdict {
    let (stream, address) = (cu.stream()?, cu.words(&[0])?);
    let gate = cu.gate(stream)?;
    ok!(cu.cuMemsetD32Async(address, 1, 1, null_mut()));
    ok!(cu.cuStreamSynchronize(null_mut()));
    answers!(CUDA_ERROR_NOT_READY, cu.cuStreamQuery(stream));
    gate.open();
    ok!(cu.cuStreamSynchronize(stream));
    ok!(cu.cuStreamDestroy_v2(stream));
    same!(cu.word(address)?, 1);
    cu.free(address)
}

fn the_default_stream_waits_for_blocking_ones(cu: &'static Cuda) -> Verdict {
    let (stream, address) = (cu.blocking_stream()?, cu.words(&[0])?);
    let gate = cu.gate(stream)?;
    ok!(cu.cuMemsetD32Async(address, 3, 1, null_mut()));
    answers!(CUDA_ERROR_NOT_READY, cu.cuStreamQuery(null_mut()));
    gate.open();
    ok!(cu.cuStreamSynchronize(null_mut()));
    ok!(cu.cuStreamQuery(stream));
    same!(cu.word(address)?, 3);
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(address)
}

fn blocking_ones_wait_for_the_default_stream(cu: &'static Cuda) -> Verdict {
    let (stream, address) = (cu.blocking_stream()?, cu.words(&[0])?);
    let gate = cu.gate(null_mut())?;
    ok!(cu.cuMemsetD32Async(address, 3, 1, stream));
    answers!(CUDA_ERROR_NOT_READY, cu.cuStreamQuery(stream));
    gate.open();
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu.word(address)?, 3);
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(address)
}

fn the_per_thread_default_differs_by_thread(cu: &'static Cuda) -> Verdict {
    let gate = cu.gate(PER_THREAD)?;
    answers!(CUDA_ERROR_NOT_READY, cu.cuStreamQuery(PER_THREAD));
    let (mine, other) = (
        id(cu, PER_THREAD)?,
        thread::spawn(|| {
            use_primary(cu)?;
            ok!(cu.cuStreamQuery(PER_THREAD));
            id(cu, PER_THREAD)
        })
        .join()
        .expect("a panic ends the process")?,
    );
    gate.open();
    ok!(cu.cuStreamSynchronize(PER_THREAD));
    holds!(mine != other, "two threads share the per-thread stream {mine}");
    Ok(())
}

fn destroying_a_busy_one_lets_its_work_finish(cu: &'static Cuda) -> Verdict {
    let (stream, address, event) = (cu.stream()?, cu.words(&[0])?, cu.event()?);
    let gate = cu.gate(stream)?;
    ok!(cu.cuMemsetD32Async(address, 8, 1, stream));
    ok!(cu.cuEventRecord(event, stream));
    ok!(cu.cuStreamDestroy_v2(stream));
    gate.open();
    ok!(cu.cuEventSynchronize(event));
    same!(cu.word(address)?, 8);
    ok!(cu.cuEventDestroy_v2(event));
    cu.free(address)
}

fn a_thousand_can_be_made_and_destroyed(cu: &'static Cuda) -> Verdict {
    for _ in 0..1000 {
        let stream = cu.stream()?;
        ok!(cu.cuStreamDestroy_v2(stream));
    }
    Ok(())
}

fn wait_flags_must_be_zero(cu: &'static Cuda) -> Verdict {
    let event = cu.event()?;
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuStreamWaitEvent(null_mut(), event, 0x80));
    ok!(cu.cuEventDestroy_v2(event));
    Ok(())
}

fn one_waits_for_a_value_that_the_host_writes(cu: &'static Cuda) -> Verdict {
    let (stream, flags) = (cu.stream()?, cu.pinned(256)?);
    let (mine, theirs) = (flags, flags.wrapping_byte_add(128));
    write(flags, [0u8; 256]);
    for i in 1..=5u32 {
        ok!(cu.cuStreamWaitValue32_v2(stream, mine.addr() as u64, i, CU_STREAM_WAIT_VALUE_GEQ));
        ok!(cu.cuStreamWriteValue32_v2(stream, theirs.addr() as u64, i, CU_STREAM_WRITE_VALUE_DEFAULT));
        answers!(CUDA_ERROR_NOT_READY, cu.cuStreamQuery(stream));
        same!(read::<u32>(theirs), i - 1);
        write(mine, i);
        holds!(comes_to_hold(theirs, i), "the stream's word is {} in round {i}", read::<u32>(theirs));
    }
    ok!(cu.cuStreamSynchronize(stream));
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuMemFreeHost(flags));
    Ok(())
}

fn a_batch_waits_for_the_host_and_answers_it(cu: &'static Cuda) -> Verdict {
    let (stream, flags) = (cu.stream()?, cu.pinned(64)?);
    let theirs = flags.wrapping_byte_add(8);
    write(flags, [0u64; 8]);
    let operation = |kind, address: *mut std::ffi::c_void, value: u64, flags: u64| CUstreamBatchMemOpParams {
        pad: [u64::from(kind), address.addr() as u64, value, flags, 0, 0],
    };
    let mut both = [
        operation(CU_STREAM_MEM_OP_WAIT_VALUE_64, flags, 1 << 40, u64::from(CU_STREAM_WAIT_VALUE_EQ)),
        operation(CU_STREAM_MEM_OP_WRITE_VALUE_64, theirs, 3 << 40, u64::from(CU_STREAM_WRITE_VALUE_DEFAULT)),
    ];
    ok!(cu.cuStreamBatchMemOp_v2(stream, 2, both.as_mut_ptr(), 0));
    answers!(CUDA_ERROR_NOT_READY, cu.cuStreamQuery(stream));
    write(flags, 1u64 << 40);
    holds!(comes_to_hold(theirs, 3u64 << 40), "the stream's word is {:#x}", read::<u64>(theirs));
    ok!(cu.cuStreamSynchronize(stream));
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuMemFreeHost(flags));
    Ok(())
}

/// Bytes from a word to the next: each in a line of its own, and none of them changes more than its flag does.
const APART: usize = 128;

/// The flag lies before its data, of which the host looks at what lies last first.
fn what_a_stream_wrote_before_its_flag_is_there_with_it(cu: &'static Cuda) -> Verdict {
    const WORDS: usize = 16;
    let (stream, flag) = (cu.stream()?, cu.pinned((WORDS + 1) * APART)?);
    let word = |i: usize| flag.wrapping_byte_add(i * APART);
    (0..=WORDS).for_each(|i| write(word(i), 0u32));
    for round in 1..=1000u32 {
        for i in (1..=WORDS).chain([0]) {
            ok!(cu.cuStreamWriteValue32_v2(stream, word(i).addr() as u64, round, CU_STREAM_WRITE_VALUE_DEFAULT));
        }
        holds!(comes_to_hold(flag, round), "the stream's flag is {} in round {round}", read::<u32>(flag));
        for i in (1..=WORDS).rev() {
            let got = read::<u32>(word(i));
            holds!(got == round, "word {i} is {got} when the flag is {round}");
        }
    }
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuMemFreeHost(flag));
    Ok(())
}

/// The other way round: a kernel looks behind the flag.
fn what_the_host_wrote_before_the_flag_that_a_stream_waits_for_is_there(cu: &'static Cuda) -> Verdict {
    const WORDS: usize = 256;
    const BYTES: usize = (WORDS + 1) * APART;
    let (_, add) = cu.kernel("add")?;
    let (stream, flag, zeros, seen) = (cu.stream()?, cu.pinned(BYTES)?, cu.alloc(BYTES)?, cu.alloc(BYTES)?);
    let word = |i: usize| flag.wrapping_byte_add(i * APART);
    ok!(cu.cuMemsetD8Async(zeros, 0, BYTES, stream));
    (0..BYTES / 4).for_each(|i| write(flag.wrapping_byte_add(4 * i), 0u32));
    for round in 1..=200u32 {
        ok!(cu.cuStreamWaitValue32_v2(stream, flag.addr() as u64, round, CU_STREAM_WAIT_VALUE_GEQ));
        let (mut a, mut b, mut c, mut n) = (flag.addr() as u64, zeros, seen, (BYTES / 4) as u32);
        let arguments = &mut [as_void(&mut a), as_void(&mut b), as_void(&mut c), as_void(&mut n)];
        ok!(cu.launch(add, n.div_ceil(256), 256, stream, arguments));
        (1..=WORDS).for_each(|i| write(word(i), round as f32));
        write(flag, round);
        ok!(cu.cuStreamSynchronize(stream));
        let found = cu.download::<f32>(seen, BYTES / 4)?;
        for i in 1..=WORDS {
            let got = found[i * APART / 4];
            holds!(got == round as f32, "word {i} is {got} behind the flag of round {round}");
        }
    }
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuMemFreeHost(flag));
    cu.free(zeros)?;
    cu.free(seen)
}

fn values_can_be_written_and_waited_for(cu: &'static Cuda) -> Verdict {
    let (first, second, address) = (cu.stream()?, cu.stream()?, cu.words(&[0, 0])?);
    ok!(cu.cuStreamWaitValue32_v2(second, address, 5, CU_STREAM_WAIT_VALUE_GEQ));
    ok!(cu.cuMemsetD32Async(address + 4, 7, 1, second));
    ok!(cu.cuStreamWriteValue32_v2(first, address, 5, CU_STREAM_WRITE_VALUE_DEFAULT));
    ok!(cu.cuStreamSynchronize(second));
    same!(cu.download::<u32>(address, 2)?, [5, 7]);
    ok!(cu.cuStreamDestroy_v2(first));
    ok!(cu.cuStreamDestroy_v2(second));
    cu.free(address)
}

/// Programs put marks into them: PyTorch takes an odd `CUstream` for the number of one of its own.
fn handles_have_the_lowest_bits_of_pointers(cu: &'static Cuda) -> Verdict {
    let mut context = null_mut();
    ok!(cu.cuCtxGetCurrent(&mut context));
    let mut handles = vec![("context", context.addr())];
    for _ in 0..3 {
        let (module, kernel) = cu.kernel("increment")?;
        let (mut graph, mut node, mut exec) = (null_mut(), null_mut(), null_mut());
        ok!(cu.cuGraphCreate(&mut graph, 0));
        ok!(cu.cuGraphAddEmptyNode(&mut node, graph, std::ptr::null(), 0));
        ok!(cu.cuGraphInstantiateWithFlags(&mut exec, graph, 0));
        handles.extend([
            ("stream", cu.stream()?.addr()),
            ("blocking stream", cu.blocking_stream()?.addr()),
            ("event", cu.event()?.addr()),
            ("module", module.addr()),
            ("kernel", kernel.addr()),
            ("graph", graph.addr()),
            ("node", node.addr()),
            ("executable graph", exec.addr()),
        ]);
    }
    for (what, handle) in &handles {
        holds!(handle % 8 == 0, "a {what}'s handle is {handle:#x}");
    }
    for (what, handle) in handles {
        let handle = std::ptr::without_provenance_mut::<()>(handle);
        match what {
            "stream" | "blocking stream" => ok!(cu.cuStreamDestroy_v2(handle.cast())),
            "event" => ok!(cu.cuEventDestroy_v2(handle.cast())),
            "module" => ok!(cu.cuModuleUnload(handle.cast())),
            "executable graph" => ok!(cu.cuGraphExecDestroy(handle.cast())),
            "graph" => ok!(cu.cuGraphDestroy(handle.cast())),
            _ => {}
        }
    }
    Ok(())
}

/// As an H200 answers: at once, and not by what is asked next.
fn a_value_is_written_and_waited_for_as_the_flags_allow(cu: &'static Cuda) -> Verdict {
    let (stream, words) = (cu.stream()?, cu.words(&[1, 1, 1, 1])?);
    for flags in [1, 2, 4, 8, CU_STREAM_WAIT_VALUE_FLUSH] {
        answers!(CUDA_ERROR_INVALID_VALUE, cu.cuStreamWriteValue32_v2(stream, words, 1, flags));
        answers!(CUDA_ERROR_INVALID_VALUE, cu.cuStreamWriteValue64_v2(stream, words, 1, flags));
    }
    for flags in [4, 5, 8, 1 << 31] {
        answers!(CUDA_ERROR_INVALID_VALUE, cu.cuStreamWaitValue32_v2(stream, words, 1, flags));
    }
    answers!(CUDA_ERROR_NOT_SUPPORTED, cu.cuStreamWaitValue32_v2(stream, words, 1, CU_STREAM_WAIT_VALUE_FLUSH));
    for (at, bytes) in [(words + 2, 4), (words + 4, 8), (0, 4), (64, 4), (words + (1 << 40), 4)] {
        let code = match bytes {
            4 => cu.cuStreamWriteValue32_v2(stream, at, 1, 0),
            _ => cu.cuStreamWriteValue64_v2(stream, at, 1, 0),
        };
        same!((at.wrapping_sub(words), code), (at.wrapping_sub(words), CUDA_ERROR_INVALID_VALUE));
    }
    ok!(cu.cuStreamWriteValue32_v2(stream, words + 4, 7, 0));
    ok!(cu.cuStreamWaitValue32_v2(stream, words + 4, 7, CU_STREAM_WAIT_VALUE_EQ));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu.word(words + 4)?, 7);
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(words)
}

/// It has a context of its own. What does not name it is refused at once.
fn one_of_ones_own_needs_no_current_context(cu: &'static Cuda) -> Verdict {
    let (stream, event, words, context) = (cu.stream()?, cu.event()?, cu.words(&[1])?, cu.context()?);
    let mut address = 0;
    ok!(cu.cuCtxSetCurrent(null_mut()));
    let codes = [
        ("query", cu.cuStreamQuery(stream)),
        ("write", cu.cuStreamWriteValue32_v2(stream, words, 5, 0)),
        ("record", cu.cuEventRecord(event, stream)),
        ("allocate", cu.cuMemAllocAsync(&mut address, 64, stream)),
        ("free", cu.cuMemFreeAsync(address, stream)),
        ("synchronize", cu.cuStreamSynchronize(stream)),
        ("event", cu.cuEventSynchronize(event)),
    ];
    let refused = [
        ("query", cu.cuStreamQuery(null_mut())),
        ("write", cu.cuStreamWriteValue32_v2(null_mut(), words, 5, 0)),
        ("record", cu.cuEventRecord(null_mut(), null_mut())),
        ("free", cu.cuMemFreeAsync(0, null_mut())),
        ("copy", cu.cuMemcpyDtoD_v2(words, words, 4)),
    ];
    ok!(cu.cuCtxSetCurrent(context));
    codes.iter().try_for_each(|told| if told.1 == CUDA_SUCCESS { Ok(()) } else { Err(format!("{told:?}")) })?;
    for told in refused {
        same!(told, (told.0, CUDA_ERROR_INVALID_CONTEXT));
    }
    same!(cu.word(words)?, 5);
    ok!(cu.cuEventDestroy_v2(event));
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(words)
}
