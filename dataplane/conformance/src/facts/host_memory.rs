//! Pinned host memory: allocated, registered, mapped.
//!
//! UNSAFETY: maps and unmaps pages of its own with libc.

use std::ffi::{OsString, c_void};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

use orion_cuda::sys::*;

use crate::driver::Cuda;
use crate::fact::{Verdict, answers, facts, holds, ok, same};
use crate::facts::thread::in_a_fork;
use crate::lab::{as_void, comes_to_hold, counter, counter_argument, floats, read, tally, write};

facts! { pinned:
    Context [
        it_is_ordinary_memory_to_the_host,
        flags_are_told_back,
        the_device_address_is_the_host_address,
        a_kernel_reads_and_writes_it,
        a_memset_of_it_comes_before_a_kernel,
        a_copy_from_it_sees_what_a_kernel_wrote,
        a_copy_to_it_covers_what_the_host_wrote_before,
        the_host_and_a_running_kernel_see_each_other,
        what_a_kernel_wrote_is_seen_without_a_call,
        a_kernel_finds_it_by_an_address_in_device_memory,
        a_kernel_finds_it_by_an_address_in_pinned_memory,
        a_kernel_finds_it_by_an_address_that_was_written_while_the_device_worked,
        a_kernel_finds_it_where_other_memory_was_before,
        a_running_kernel_and_the_host_tell_each_other_of_megabytes,
        every_second_word_of_megabytes_may_change_at_once,
        alloc_of_nothing_gives_nothing,
        unknown_flags_are_invalid_value,
        freeing_it_waits_for_the_device,
        unregistering_it_waits_for_the_device,
        who_waits_to_free_lets_the_host_answer_a_kernel,
        who_waits_to_free_beside_a_capture_lets_the_host_answer_a_kernel
            .not_in_a_crowd("another's freeing may be refused beside it"),
        freeing_twice_is_invalid_value.not_in_a_crowd("another may be given the freed address"),
        freeing_unknown_memory_is_invalid_value,
        the_device_address_of_unknown_memory_is_invalid_value,
        registered_memory_keeps_its_bytes_and_place,
        what_others_write_beside_registered_memory_is_kept,
        a_kernel_writes_registered_memory,
        registering_twice_is_already_registered,
        unregistering_unknown_memory_is_not_registered,
        registering_nothing_is_invalid_value,
        memory_can_be_registered_again,
        what_was_registered_is_the_processs_own_and_needs_room_no_longer,
        registered_memory_needs_no_room_for_twice.not_in_a_crowd("others allocate while the process may not grow"),
        memory_is_registered_also_where_no_file_can_be_opened
            .alone()
            .not_in_a_crowd("a process has one root folder"),
        names_of_mapped_files_may_be_any_bytes,
        many_allocations_are_distinct,
        pinned_memory_of_any_size_is_copied_whole,
        a_copy_that_ends_beyond_registered_memory_is_invalid_value,
        a_copy_across_two_registrations_is_invalid_value,
        what_reaches_beyond_pinned_memory_is_invalid_value,
        a_flag_in_memory_that_was_used_before_is_clear_to_kernels,
        memory_that_the_host_cleared_is_clear_to_kernels_after_a_large_image,
        a_copy_to_freed_memory_does_not_reach_who_has_it_next.not_in_a_crowd("another may be given the freed address"),
        freed_memory_is_used_again_while_the_device_is_busy.not_in_a_crowd("its bound is for one thread's buffers"),
    ]
}

fn it_is_ordinary_memory_to_the_host(cu: &'static Cuda) -> Verdict {
    let mut address = null_mut();
    ok!(cu.cuMemAllocHost_v2(&mut address, 10_000));
    for i in 0..10_000 {
        write(address.wrapping_byte_add(i), i as u8);
    }
    for i in 0..10_000 {
        same!(read::<u8>(address.wrapping_byte_add(i)), i as u8);
    }
    ok!(cu.cuMemFreeHost(address));
    Ok(())
}

fn flags_are_told_back(cu: &'static Cuda) -> Verdict {
    let (mut address, mut flags) = (null_mut(), 0);
    ok!(cu.cuMemHostAlloc(&mut address, 64, CU_MEMHOSTALLOC_PORTABLE));
    ok!(cu.cuMemHostGetFlags(&mut flags, address));
    holds!(flags & CU_MEMHOSTALLOC_PORTABLE != 0, "flags are {flags:#x} after PORTABLE was asked for");
    holds!(flags & CU_MEMHOSTALLOC_WRITECOMBINED == 0, "flags are {flags:#x}");
    ok!(cu.cuMemFreeHost(address));
    Ok(())
}

fn the_device_address_is_the_host_address(cu: &'static Cuda) -> Verdict {
    let (address, mut device) = (cu.pinned(64)?, 0);
    ok!(cu.cuMemHostGetDevicePointer_v2(&mut device, address, 0));
    same!(device, address.addr() as u64);
    ok!(cu.cuMemFreeHost(address));
    Ok(())
}

fn a_kernel_reads_and_writes_it(cu: &'static Cuda) -> Verdict {
    let (address, mut device) = (cu.pinned(8)?, 0);
    let (module, increment) = cu.kernel("increment")?;
    write(address, 41u32);
    ok!(cu.cuMemHostGetDevicePointer_v2(&mut device, address, 0));
    ok!(cu.launch_on(increment, device, null_mut()));
    ok!(cu.cuCtxSynchronize());
    same!(read::<u32>(address), 42);
    write(address, 100u32);
    ok!(cu.launch_on(increment, device, null_mut()));
    ok!(cu.cuStreamSynchronize(null_mut()));
    same!(read::<u32>(address), 101);
    ok!(cu.cuModuleUnload(module));
    ok!(cu.cuMemFreeHost(address));
    Ok(())
}

/// XLA keeps the result of a comparison so: zeroed by the stream, counted up by a kernel, never touched by the host.
fn a_memset_of_it_comes_before_a_kernel(cu: &'static Cuda) -> Verdict {
    let (module, increment) = cu.kernel("increment")?;
    for round in 0..3u32 {
        let address = cu.pinned(8)?;
        write(address, 1000u32);
        ok!(cu.cuMemsetD32Async(address.addr() as u64, 5 + round, 1, null_mut()));
        ok!(cu.launch_on(increment, address.addr() as u64, null_mut()));
        let mut copied = 0u32;
        ok!(cu.cuMemcpyDtoHAsync_v2(as_void(&mut copied), address.addr() as u64, 4, null_mut()));
        ok!(cu.cuStreamSynchronize(null_mut()));
        same!(copied, 6 + round);
        same!(read::<u32>(address), 6 + round);
        ok!(cu.cuMemFreeHost(address));
    }
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

fn a_copy_from_it_sees_what_a_kernel_wrote(cu: &'static Cuda) -> Verdict {
    let (address, copy) = (cu.pinned(8)?, cu.words(&[0, 0])?);
    let (module, increment) = cu.kernel("increment")?;
    write(address, [41u32, 7]);
    ok!(cu.launch_on(increment, address.addr() as u64, null_mut()));
    ok!(cu.cuMemcpyHtoDAsync_v2(copy, address, 8, null_mut()));
    let words = cu.download::<u32>(copy, 2)?;
    same!(words.as_slice(), [42, 7].as_slice());
    ok!(cu.cuModuleUnload(module));
    ok!(cu.cuMemFreeHost(address));
    cu.free(copy)
}

fn a_copy_to_it_covers_what_the_host_wrote_before(cu: &'static Cuda) -> Verdict {
    let (address, from) = (cu.pinned(64)?, cu.words(&[5, 6])?);
    let (module, increment) = cu.kernel("increment")?;
    write(address, [0u32; 4]);
    ok!(cu.launch_on(increment, address.addr() as u64 + 8, null_mut()));
    ok!(cu.cuCtxSynchronize());
    for round in 0..20u32 {
        write(address, [1000 + round, 2000 + round]);
        ok!(cu.cuMemcpyDtoHAsync_v2(address, from, 8, null_mut()));
        ok!(cu.cuStreamSynchronize(null_mut()));
        same!(read::<[u32; 2]>(address), [5, 6]);
    }
    ok!(cu.cuModuleUnload(module));
    ok!(cu.cuMemFreeHost(address));
    cu.free(from)
}

fn the_host_and_a_running_kernel_see_each_other(cu: &'static Cuda) -> Verdict {
    let (address, stream, mut rounds) = (cu.pinned(256)?, cu.stream()?, 20u32);
    let (module, converse) = cu.kernel("converse")?;
    write(address, [0u8; 256]);
    let mut device = address.addr() as u64;
    ok!(cu.launch(converse, 1, 1, stream, &mut [as_void(&mut device), as_void(&mut rounds)]));
    for i in 1..=rounds {
        let (flag, answer) = (address.wrapping_byte_add(64), address.wrapping_byte_add(68));
        holds!(comes_to_hold(flag, i), "the kernel's word is {} in round {i}", read::<u32>(flag));
        same!(read::<[u32; 4]>(address), [i * 0x0101_0101; 4]);
        write(answer, i + 100);
    }
    ok!(cu.cuStreamSynchronize(stream));
    same!(read::<u32>(address.wrapping_byte_add(128)), rounds);
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuModuleUnload(module));
    ok!(cu.cuMemFreeHost(address));
    Ok(())
}

fn what_a_kernel_wrote_is_seen_without_a_call(cu: &'static Cuda) -> Verdict {
    let address = cu.pinned(64)?;
    let (module, increment) = cu.kernel("increment")?;
    for i in 0..3u32 {
        write(address, 10 * i);
        ok!(cu.launch_on(increment, address.addr() as u64, null_mut()));
        holds!(comes_to_hold(address, 10 * i + 1), "the word is {} in round {i}", read::<u32>(address));
    }
    ok!(cu.cuCtxSynchronize());
    ok!(cu.cuModuleUnload(module));
    ok!(cu.cuMemFreeHost(address));
    Ok(())
}

/// However the address came to device memory.
fn a_kernel_finds_it_by_an_address_in_device_memory(cu: &'static Cuda) -> Verdict {
    let (module, through) = cu.kernel("through")?;
    let (stream, table, by_host) = (cu.stream()?, cu.alloc(256 << 10)?, cu.pinned(64)?);
    for way in ["copy", "large copy", "from pinned memory", "rows", "graph", "a stream's write"] {
        let hidden = cu.pinned(64)?;
        let (address, mut at) = (hidden.addr() as u64, table);
        write(hidden, 40u32);
        match way {
            "copy" => ok!(cu.cuMemcpyHtoD_v2(table, (&raw const address).cast(), 8)),
            "large copy" => {
                let mut words = vec![0u64; 32 << 10];
                words[20_001] = address;
                at = table + 8 * 20_001;
                ok!(cu.cuMemcpyHtoDAsync_v2(table, words.as_ptr().cast(), 8 * words.len(), stream));
            }
            "from pinned memory" => {
                write(by_host.wrapping_byte_add(16), address);
                ok!(cu.cuMemcpyHtoDAsync_v2(table, by_host, 24, stream));
                at = table + 16;
            }
            "rows" => {
                let words = [1, address, 2, 3];
                let copy = CUDA_MEMCPY2D {
                    srcMemoryType: CU_MEMORYTYPE_HOST,
                    srcHost: words.as_ptr().cast(),
                    srcPitch: 16,
                    dstMemoryType: CU_MEMORYTYPE_DEVICE,
                    dstDevice: table,
                    dstPitch: 64,
                    WidthInBytes: 16,
                    Height: 2,
                    // SAFETY: all numbers and pointers.
                    ..unsafe { std::mem::zeroed() }
                };
                ok!(cu.cuMemcpy2D_v2(&copy));
                at = table + 8;
            }
            "graph" => {
                let (mut graph, mut exec) = (null_mut(), null_mut());
                ok!(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
                ok!(cu.cuMemcpyHtoDAsync_v2(table, (&raw const address).cast(), 8, stream));
                ok!(cu.cuStreamEndCapture(stream, &mut graph));
                ok!(cu.cuGraphInstantiateWithFlags(&mut exec, graph, 0));
                ok!(cu.cuGraphLaunch(exec, stream));
                ok!(cu.cuStreamSynchronize(stream));
                ok!(cu.cuGraphExecDestroy(exec));
                ok!(cu.cuGraphDestroy(graph));
            }
            _ => ok!(cu.cuStreamWriteValue64_v2(stream, table, address, 0)),
        }
        ok!(cu.cuStreamSynchronize(stream));
        // Behind the copy, ahead of the launch.
        write(hidden, 41u32);
        ok!(cu.launch(through, 1, 1, stream, &mut [as_void(&mut at)]));
        ok!(cu.cuStreamSynchronize(stream));
        holds!(read::<u32>(hidden) == 42, "by {way}: {}", read::<u32>(hidden));
        ok!(cu.cuMemFreeHost(hidden));
    }
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuModuleUnload(module));
    ok!(cu.cuMemFreeHost(by_host));
    cu.free(table)
}

/// Also of an address that is written there later.
fn a_kernel_finds_it_by_an_address_in_pinned_memory(cu: &'static Cuda) -> Verdict {
    let (module, through) = cu.kernel("through")?;
    let (table, hidden, other) = (cu.pinned(64)?, cu.pinned(64)?, cu.pinned(64)?);
    let mut at = table.addr() as u64;
    for (to, first) in [(hidden, 10u32), (other, 20)] {
        write(to, first);
        write(table, to.addr() as u64);
        ok!(cu.launch(through, 1, 1, null_mut(), &mut [as_void(&mut at)]));
        ok!(cu.cuCtxSynchronize());
        same!(read::<u32>(to), first + 1);
    }
    ok!(cu.cuModuleUnload(module));
    for address in [table, hidden, other] {
        ok!(cu.cuMemFreeHost(address));
    }
    Ok(())
}

/// Changes are then looked for all the time, and may have been brought before the kernel is launched that follows them.
fn a_kernel_finds_it_by_an_address_that_was_written_while_the_device_worked(cu: &'static Cuda) -> Verdict {
    const ROUNDS: u32 = 200;
    let (module, through) = cu.kernel("through")?;
    let increment = cu.function(module, "increment")?;
    let (table, counter, stream) = (cu.pinned(64)?, cu.pinned(64)?, cu.stream()?);
    let mut all = vec![table, counter];
    write(counter, 0u32);
    let mut at = table.addr() as u64;
    for round in 0..ROUNDS {
        let to = cu.pinned(64)?;
        all.push(to);
        write(to, round);
        ok!(cu.launch_on(increment, counter.addr() as u64, stream));
        write(table, to.addr() as u64);
        let written = std::time::Instant::now();
        while written.elapsed().as_micros() < u128::from(round % 20 * 10) {
            std::hint::spin_loop();
        }
        ok!(cu.launch(through, 1, 1, null_mut(), &mut [as_void(&mut at)]));
        ok!(cu.cuCtxSynchronize());
        same!(read::<u32>(to), round + 1);
    }
    same!(read::<u32>(counter), ROUNDS);
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuModuleUnload(module));
    for address in all {
        ok!(cu.cuMemFreeHost(address));
    }
    Ok(())
}

/// An address stays where it is, in device memory or in pinned memory, and what lies there becomes other memory.
fn a_kernel_finds_it_where_other_memory_was_before(cu: &'static Cuda) -> Verdict {
    const ROUNDS: u32 = 40;
    let (module, through) = cu.kernel("through")?;
    let (in_host, in_device) = (cu.pinned(8 * ROUNDS as usize)?, cu.alloc(8 * ROUNDS as usize)?);
    for table in [in_host.addr() as u64, in_device] {
        let mut known = Vec::new();
        for round in 0..ROUNDS {
            let to = cu.pinned(64)?;
            write(to, round);
            let slot = known.iter().position(|address| *address == to.addr()).unwrap_or(known.len());
            let mut at = table + 8 * slot as u64;
            if slot == known.len() {
                known.push(to.addr());
                ok!(cu.cuMemcpyHtoD_v2(at, [to.addr() as u64].as_ptr().cast(), 8));
            }
            ok!(cu.launch(through, 1, 1, null_mut(), &mut [as_void(&mut at)]));
            ok!(cu.cuCtxSynchronize());
            same!(read::<u32>(to), round + 1);
            ok!(cu.cuMemFreeHost(to));
        }
    }
    ok!(cu.cuModuleUnload(module));
    ok!(cu.cuMemFreeHost(in_host));
    cu.free(in_device)?;
    Ok(())
}

/// What lies megabytes away from the flag that tells of it is there when the flag is, both ways.
fn a_running_kernel_and_the_host_tell_each_other_of_megabytes(cu: &'static Cuda) -> Verdict {
    const APART: usize = 5 << 20;
    for is_flag_behind in [false, true] {
        let (area, stream, mut rounds) = (cu.pinned(8 << 20)?, cu.stream()?, 20u32);
        let (data, flags) = match is_flag_behind {
            true => (area, area.wrapping_byte_add(7 << 20)),
            false => (area.wrapping_byte_add(1 << 20), area),
        };
        let (module, relay) = cu.kernel("relay")?;
        // SAFETY: all of an allocation of that size.
        unsafe { area.cast::<u8>().write_bytes(0, 8 << 20) };
        let table = cu.alloc(16)?;
        ok!(cu.cuMemcpyHtoD_v2(table, [data.addr() as u64, flags.addr() as u64].as_ptr().cast(), 16));
        let (mut at, mut apart) = (table, APART as u64);
        let mut parameters = [as_void(&mut at), as_void(&mut rounds), as_void(&mut apart)];
        ok!(cu.launch(relay, 1, 1, stream, &mut parameters));
        for i in 1..=rounds {
            holds!(comes_to_hold(flags, i), "the kernel's word is {} in round {i}", read::<u32>(flags));
            let word = i * 0x0101_0101;
            let there = (read::<[u32; 4]>(data), read::<[u32; 4]>(data.wrapping_byte_add(APART)));
            same!(there, ([word; 4], [word; 4]));
            write(data.wrapping_byte_add(64), [3 * word; 4]);
            write(data.wrapping_byte_add(64 + APART), [3 * word; 4]);
            std::sync::atomic::fence(Ordering::SeqCst);
            write(flags.wrapping_byte_add(4), i + 100);
        }
        ok!(cu.cuStreamSynchronize(stream));
        same!(read::<[u32; 2]>(flags.wrapping_byte_add(8)), [0, rounds + 1]);
        ok!(cu.cuStreamDestroy_v2(stream));
        ok!(cu.cuModuleUnload(module));
        ok!(cu.cuMemFreeHost(area));
        cu.free(table)?;
    }
    Ok(())
}

/// As of a protocol that keeps a flag beside each word of data.
fn every_second_word_of_megabytes_may_change_at_once(cu: &'static Cuda) -> Verdict {
    const WORDS: usize = (4 << 20) / 8;
    let (area, mut device) = (cu.pinned(8 * WORDS)?, 0);
    // SAFETY: all of an allocation of that size.
    unsafe { area.cast::<u8>().write_bytes(0, 8 * WORDS) };
    ok!(cu.cuMemHostGetDevicePointer_v2(&mut device, area, 0));
    ok!(cu.cuMemsetD2D32_v2(device, 16, 0x0707_0707, 2, WORDS / 2));
    ok!(cu.cuCtxSynchronize());
    for i in 0..WORDS {
        let word = read::<u64>(area.wrapping_byte_add(8 * i));
        holds!(word == [0x0707_0707_0707_0707, 0][i % 2], "the device's word {i} is {word:#x}");
    }
    for i in (1..WORDS).step_by(2) {
        write(area.wrapping_byte_add(8 * i), i as u64);
    }
    let (copy, mut back) = (cu.alloc(8 * WORDS)?, vec![0u64; WORDS]);
    ok!(cu.cuMemcpyHtoD_v2(copy, area, 8 * WORDS));
    ok!(cu.cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), copy, 8 * WORDS));
    for (i, word) in back.into_iter().enumerate() {
        holds!(word == [0x0707_0707_0707_0707, i as u64][i % 2], "the host's word {i} is {word:#x}");
    }
    cu.free(copy)?;
    ok!(cu.cuMemFreeHost(area));
    Ok(())
}

fn alloc_of_nothing_gives_nothing(cu: &'static Cuda) -> Verdict {
    let mut address = std::ptr::dangling_mut();
    ok!(cu.cuMemHostAlloc(&mut address, 0, 0));
    holds!(address.is_null(), "nothing has an address");
    Ok(())
}

fn unknown_flags_are_invalid_value(cu: &'static Cuda) -> Verdict {
    let mut address = null_mut();
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemHostAlloc(&mut address, 64, 0x1000));
    Ok(())
}

extern "C" fn sleep(_: *mut c_void) {
    std::thread::sleep(std::time::Duration::from_millis(5));
}

/// `act` ends memory that nothing uses, and what was queued before is there when it returns: what a kernel wrote to
/// pinned memory, and what a copy brought there.
fn waits_for_the_device(cu: &'static Cuda, mut act: impl FnMut() -> Verdict) -> Verdict {
    let (result, copy, device, stream) = (cu.pinned(64)?, cu.pinned(64)?, cu.alloc(64)?, cu.stream()?);
    let (module, increment) = cu.kernel("increment")?;
    ok!(cu.cuMemsetD32Async(device, 0, 1, stream));
    write(result, 0u32);
    for round in 1..10u32 {
        ok!(cu.cuLaunchHostFunc(stream, Some(sleep), null_mut()));
        ok!(cu.launch_on(increment, result.addr() as u64, stream));
        ok!(cu.launch_on(increment, device, stream));
        ok!(cu.cuMemcpyDtoHAsync_v2(copy, device, 4, stream));
        act()?;
        same!((read::<u32>(result), read::<u32>(copy)), (round, round));
    }
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuModuleUnload(module));
    ok!(cu.cuMemFreeHost(result));
    ok!(cu.cuMemFreeHost(copy));
    cu.free(device)
}

fn freeing_it_waits_for_the_device(cu: &'static Cuda) -> Verdict {
    let mut others = Vec::new();
    for bytes in (1..10).map(|i| i << 10) {
        others.push(cu.pinned(bytes)?);
    }
    waits_for_the_device(cu, || {
        ok!(cu.cuMemFreeHost(others.pop().ok_or("one for each round")?));
        Ok(())
    })
}

fn unregistering_it_waits_for_the_device(cu: &'static Cuda) -> Verdict {
    let mut others = Vec::new();
    for bytes in (1..10).map(|i| i << 13) {
        let pages = Pages::new(bytes);
        ok!(cu.cuMemHostRegister_v2(pages.address, pages.bytes, 0));
        others.push(pages);
    }
    waits_for_the_device(cu, || {
        ok!(cu.cuMemHostUnregister(others.pop().ok_or("one for each round")?.address));
        Ok(())
    })
}

/// A kernel waits for a word of the host's while `act` waits for the kernel. The word comes just before, or meanwhile
/// by a thread that makes no call of CUDA's.
fn is_answered(cu: &'static Cuda, meanwhile: bool, act: impl FnOnce() -> CUresult) -> Verdict {
    let (address, stream, mut rounds) = (cu.pinned(256)?, cu.stream()?, 1u32);
    let (module, converse) = cu.kernel("converse")?;
    write(address, [0u8; 256]);
    let mut device = address.addr() as u64;
    ok!(cu.launch(converse, 1, 1, stream, &mut [as_void(&mut device), as_void(&mut rounds)]));
    holds!(comes_to_hold(address.wrapping_byte_add(64), 1u32), "the kernel says nothing");
    let word = address.wrapping_byte_add(68).expose_provenance();
    let answer = move || write(std::ptr::with_exposed_provenance_mut(word), 101u32);
    let code = std::thread::scope(|scope| {
        match meanwhile {
            true => _ = scope.spawn(move || [sleep(null_mut()), answer()]),
            false => answer(),
        }
        act()
    });
    same!(code, CUDA_SUCCESS);
    same!(read::<u32>(address.wrapping_byte_add(128)), 1);
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuModuleUnload(module));
    ok!(cu.cuMemFreeHost(address));
    Ok(())
}

fn who_waits_to_free_lets_the_host_answer_a_kernel(cu: &'static Cuda) -> Verdict {
    each_way_to_free_is_answered(cu, false)?;
    each_way_to_free_is_answered(cu, true)
}

/// A thread that opts out frees, and so waits, beside the capture of another stream.
fn who_waits_to_free_beside_a_capture_lets_the_host_answer_a_kernel(cu: &'static Cuda) -> Verdict {
    let (stream, mut mode) = (cu.stream()?, CU_STREAM_CAPTURE_MODE_RELAXED);
    ok!(cu.cuThreadExchangeStreamCaptureMode(&mut mode));
    ok!(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    let (answered, mut graph) = (each_way_to_free_is_answered(cu, true), null_mut());
    let ended = cu.cuStreamEndCapture(stream, &mut graph);
    ok!(cu.cuThreadExchangeStreamCaptureMode(&mut mode));
    answered?;
    same!(ended, CUDA_SUCCESS);
    ok!(cu.cuGraphDestroy(graph));
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}

fn each_way_to_free_is_answered(cu: &'static Cuda, meanwhile: bool) -> Verdict {
    let device = cu.alloc(64)?;
    is_answered(cu, meanwhile, || cu.cuMemFree_v2(device))?;
    let pinned = cu.pinned(64)?;
    is_answered(cu, meanwhile, || cu.cuMemFreeHost(pinned))?;
    let pages = Pages::new(8192);
    ok!(cu.cuMemHostRegister_v2(pages.address, pages.bytes, 0));
    is_answered(cu, meanwhile, || cu.cuMemHostUnregister(pages.address))?;
    let mut array = null_mut();
    ok!(cu.cuArray3DCreate_v2(&mut array, &floats(64, 4)));
    is_answered(cu, meanwhile, || cu.cuArrayDestroy(array))?;
    let module = cu.module()?;
    is_answered(cu, meanwhile, || cu.cuModuleUnload(module))
}

fn freeing_twice_is_invalid_value(cu: &'static Cuda) -> Verdict {
    let address = cu.pinned(64)?;
    ok!(cu.cuMemFreeHost(address));
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemFreeHost(address));
    Ok(())
}

fn freeing_unknown_memory_is_invalid_value(cu: &'static Cuda) -> Verdict {
    let mut word = 0u64;
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemFreeHost(as_void(&mut word)));
    Ok(())
}

fn the_device_address_of_unknown_memory_is_invalid_value(cu: &'static Cuda) -> Verdict {
    let (mut word, mut device) = (0u64, 0);
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemHostGetDevicePointer_v2(&mut device, as_void(&mut word), 0));
    Ok(())
}

/// Page-aligned, zeroed memory of the program's own.
struct Pages {
    address: *mut c_void,
    bytes: usize,
}

impl Pages {
    fn new(bytes: usize) -> Self {
        // SAFETY: an anonymous private mapping, unmapped by Drop.
        let address = unsafe {
            libc::mmap(
                null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(address, libc::MAP_FAILED, "no memory for {bytes} bytes");
        Self { address, bytes }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, which nothing refers to any more.
        unsafe { libc::munmap(self.address, self.bytes) };
    }
}

fn registered_memory_keeps_its_bytes_and_place(cu: &'static Cuda) -> Verdict {
    let pages = Pages::new(3 * 4096);
    for i in 0..pages.bytes {
        write(pages.address.wrapping_byte_add(i), (i % 251) as u8);
    }
    ok!(cu.cuMemHostRegister_v2(pages.address, pages.bytes, CU_MEMHOSTREGISTER_DEVICEMAP));
    for i in 0..pages.bytes {
        same!(read::<u8>(pages.address.wrapping_byte_add(i)), (i % 251) as u8);
    }
    let device = cu.alloc(pages.bytes)?;
    ok!(cu.cuMemcpyHtoDAsync_v2(device, pages.address, pages.bytes, null_mut()));
    ok!(cu.cuMemHostUnregister(pages.address));
    let back = cu.download::<u8>(device, pages.bytes)?;
    for (i, byte) in back.iter().enumerate() {
        same!(*byte, (i % 251) as u8);
        same!(read::<u8>(pages.address.wrapping_byte_add(i)), (i % 251) as u8);
    }
    cu.free(device)
}

fn a_kernel_writes_registered_memory(cu: &'static Cuda) -> Verdict {
    let (pages, mut device) = (Pages::new(4096), 0);
    let (module, increment) = cu.kernel("increment")?;
    write(pages.address, 6u32);
    ok!(cu.cuMemHostRegister_v2(pages.address, pages.bytes, CU_MEMHOSTREGISTER_DEVICEMAP));
    ok!(cu.cuMemHostGetDevicePointer_v2(&mut device, pages.address, 0));
    ok!(cu.launch_on(increment, device, null_mut()));
    ok!(cu.cuCtxSynchronize());
    same!(read::<u32>(pages.address), 7);
    ok!(cu.cuMemHostUnregister(pages.address));
    same!(read::<u32>(pages.address), 7);
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

fn registering_twice_is_already_registered(cu: &'static Cuda) -> Verdict {
    let pages = Pages::new(4096);
    ok!(cu.cuMemHostRegister_v2(pages.address, pages.bytes, 0));
    answers!(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cu.cuMemHostRegister_v2(pages.address, pages.bytes, 0));
    ok!(cu.cuMemHostUnregister(pages.address));
    Ok(())
}

fn unregistering_unknown_memory_is_not_registered(cu: &'static Cuda) -> Verdict {
    let pages = Pages::new(4096);
    answers!(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cu.cuMemHostUnregister(pages.address));
    Ok(())
}

fn registering_nothing_is_invalid_value(cu: &'static Cuda) -> Verdict {
    let pages = Pages::new(4096);
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemHostRegister_v2(pages.address, 0, 0));
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemHostRegister_v2(null_mut(), 4096, 0));
    Ok(())
}

/// A program may map a file whose name is not UTF-8, and register other memory beside it.
/// Memory of an allocator begins anywhere: what lies beside it in its first page and its last is somebody else's.
fn what_others_write_beside_registered_memory_is_kept(cu: &'static Cuda) -> Verdict {
    const ROUNDS: usize = 300;
    let (pages, stops) = (Pages::new(2 * 4096), AtomicBool::new(false));
    let words = [pages.address as usize, pages.address as usize + 2 * 4096 - 8];
    let (codes, lost) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let (mut number, mut lost) = (0u64, 0u64);
            while !stops.load(Ordering::Relaxed) {
                number += 1;
                for word in words {
                    write(word as *mut c_void, number);
                    lost += u64::from(read::<u64>(word as *mut c_void) != number);
                }
            }
            lost
        });
        let memory = pages.address.wrapping_byte_add(64);
        let round = |_| [cu.cuMemHostRegister_v2(memory, 2 * 4096 - 128, 0), cu.cuMemHostUnregister(memory)];
        let codes = (0..ROUNDS).flat_map(round).find(|code| *code != CUDA_SUCCESS);
        stops.store(true, Ordering::Relaxed);
        (codes, writer.join())
    });
    same!(codes, None);
    same!(lost.map_err(|_| "the writer died")?, 0);
    Ok(())
}

/// As for a container whose memory is almost all in use.
fn registered_memory_needs_no_room_for_twice(cu: &'static Cuda) -> Verdict {
    const BYTES: usize = 192 << 20;
    const PAGE: usize = 4096;
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh mapping.
    let place = unsafe { libc::mmap(null_mut(), BYTES, access, flags, -1, 0) };
    holds!(place != libc::MAP_FAILED, "no memory for the test");
    (0..BYTES).step_by(PAGE).for_each(|at| write(place.wrapping_byte_add(at), at as u64 ^ 0x5a5a));
    ok!(cu.cuMemHostRegister_v2(place, BYTES, 0));
    let statm = std::fs::read_to_string("/proc/self/statm").map_err(|e| e.to_string())?;
    let pages: u64 = statm.split(' ').next().and_then(|pages| pages.parse().ok()).ok_or("statm has no size")?;
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a valid place.
    unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut before) };
    let little = libc::rlimit { rlim_cur: pages * PAGE as u64 + (BYTES as u64 / 3), ..before };
    // SAFETY: plain calls; whatever the process maps meanwhile fails, and the limit is what it was afterwards.
    let codes = unsafe {
        libc::setrlimit(libc::RLIMIT_AS, &little);
        let codes =
            [cu.cuMemHostUnregister(place), cu.cuMemHostRegister_v2(place, BYTES, 0), cu.cuMemHostUnregister(place)];
        libc::setrlimit(libc::RLIMIT_AS, &before);
        codes
    };
    same!(codes, [CUDA_SUCCESS; 3]);
    let is_kept = |at: usize| read::<u64>(place.wrapping_byte_add(at)) == at as u64 ^ 0x5a5a;
    let lost = (0..BYTES).step_by(PAGE).find(|at| !is_kept(*at));
    holds!(lost.is_none(), "byte {lost:?} is another one");
    // SAFETY: of this function's own.
    unsafe { libc::munmap(place, BYTES) };
    Ok(())
}

fn names_of_mapped_files_may_be_any_bytes(cu: &'static Cuda) -> Verdict {
    let pages = Pages::new(4096);
    let mut name = format!("orion-facts-{}-{:p}-", std::process::id(), pages.address).into_bytes();
    name.push(0xff);
    let path = std::env::temp_dir().join(OsString::from_vec(name));
    let file = std::fs::File::create_new(&path).map_err(|e| format!("making {} failed: {e}", path.display()))?;
    file.set_len(4096).map_err(|e| format!("making {} longer failed: {e}", path.display()))?;
    // SAFETY: a fresh mapping, which nobody reads, and which stays for a moment.
    let mapped = unsafe { libc::mmap(null_mut(), 4096, libc::PROT_NONE, libc::MAP_PRIVATE, file.as_raw_fd(), 0) };
    let _ = std::fs::remove_file(&path);
    assert_ne!(mapped, libc::MAP_FAILED, "no memory for a page of a file");
    let code = cu.cuMemHostRegister_v2(pages.address, pages.bytes, 0);
    // SAFETY: the mapping from above.
    unsafe { libc::munmap(mapped, 4096) };
    same!(code, CUDA_SUCCESS);
    ok!(cu.cuMemHostUnregister(pages.address));
    Ok(())
}

fn memory_is_registered_also_where_no_file_can_be_opened(cu: &'static Cuda) -> Verdict {
    let folder = std::env::temp_dir().join(format!("orion-facts-empty-{}", std::process::id()));
    // Nobody can remove it from within, so an earlier one may be there.
    std::fs::create_dir_all(&folder).map_err(|e| format!("making a folder: {e}"))?;
    let entered = std::os::unix::fs::chroot(&folder);
    if entered.is_err() {
        // Only root may.
        return std::fs::remove_dir(&folder).map_err(|e| format!("removing a folder: {e}"));
    }
    let pages = Pages::new(3 * 4096);
    write(pages.address, 5u8);
    ok!(cu.cuMemHostRegister_v2(pages.address, pages.bytes, 0));
    let device = cu.alloc(pages.bytes)?;
    ok!(cu.cuMemcpyHtoD_v2(device, pages.address, pages.bytes));
    same!(cu.download::<u8>(device, 1)?, [5]);
    ok!(cu.cuMemHostUnregister(pages.address));
    same!(cu.cuMemHostRegister_v2(4096 as *mut c_void, 4096, 0), CUDA_ERROR_INVALID_VALUE);
    cu.free(device)
}

fn memory_can_be_registered_again(cu: &'static Cuda) -> Verdict {
    let pages = Pages::new(8192);
    for round in 0..3u32 {
        write(pages.address, round);
        ok!(cu.cuMemHostRegister_v2(pages.address, pages.bytes, 0));
        ok!(cu.cuMemHostUnregister(pages.address));
        same!(read::<u32>(pages.address), round);
    }
    Ok(())
}

/// More of it, one after the other, than a small server sets aside for memory that is registered at once.
fn what_was_registered_is_the_processs_own_and_needs_room_no_longer(cu: &'static Cuda) -> Verdict {
    let pages = Pages::new(8 << 20);
    let last = pages.address.wrapping_byte_add(pages.bytes - 4);
    for round in 0..150u32 {
        write(pages.address, round);
        write(last, round);
        ok!(cu.cuMemHostRegister_v2(pages.address, pages.bytes, 0));
        ok!(cu.cuMemHostUnregister(pages.address));
        same!([read::<u32>(pages.address), read(last)], [round, round]);
    }
    let child = || {
        write(pages.address, 99u32);
        write(last, 99u32);
        3
    };
    same!(in_a_fork(child)?, 3);
    same!([read::<u32>(pages.address), read(last)], [149, 149]);
    Ok(())
}

/// Sizes that are no power of two, so that what a driver carves them from does not come out even.
fn pinned_memory_of_any_size_is_copied_whole(cu: &'static Cuda) -> Verdict {
    const WORDS: usize = 100_000;
    let (stream, mut all) = (cu.stream()?, Vec::new());
    for i in 0..12u32 {
        let (host, device) = (cu.pinned(WORDS * 4)?, cu.alloc(WORDS * 4)?);
        // SAFETY: pinned memory of that many words, which nothing else refers to.
        unsafe { std::slice::from_raw_parts_mut(host.cast::<u32>(), WORDS) }.fill(i);
        ok!(cu.cuMemcpyHtoDAsync_v2(device, host, WORDS * 4, stream));
        ok!(cu.cuMemsetD32Async(device, 100 + i, 1, stream));
        ok!(cu.cuMemcpyDtoHAsync_v2(host, device, WORDS * 4, stream));
        all.push((host, device));
    }
    ok!(cu.cuStreamSynchronize(stream));
    for (i, (host, device)) in all.into_iter().enumerate() {
        // SAFETY: as above; the copies into it are done.
        let words = unsafe { std::slice::from_raw_parts(host.cast::<u32>(), WORDS) };
        same!(words[0], 100 + i as u32);
        same!(words[1..].iter().filter(|w| **w != i as u32).count(), 0);
        ok!(cu.cuMemFreeHost(host));
        cu.free(device)?;
    }
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}

/// Copies of two pages both ways, of which `registered` bytes at a time were registered.
fn copies_of_two_pages(cu: &'static Cuda, registered: &[usize]) -> Verdict {
    let (pages, device) = (Pages::new(2 * 4096), cu.alloc(2 * 4096)?);
    for at in registered {
        ok!(cu.cuMemHostRegister_v2(pages.address.wrapping_byte_add(*at), 4096, 0));
    }
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyHtoD_v2(device, pages.address, pages.bytes));
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyHtoDAsync_v2(device, pages.address, pages.bytes, null_mut()));
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyDtoH_v2(pages.address, device, pages.bytes));
    ok!(cu.cuMemcpyHtoD_v2(device, pages.address, 4096));
    for at in registered {
        ok!(cu.cuMemHostUnregister(pages.address.wrapping_byte_add(*at)));
    }
    ok!(cu.cuMemcpyHtoD_v2(device, pages.address, pages.bytes));
    cu.free(device)
}

fn a_copy_that_ends_beyond_registered_memory_is_invalid_value(cu: &'static Cuda) -> Verdict {
    copies_of_two_pages(cu, &[0])
}

fn a_copy_across_two_registrations_is_invalid_value(cu: &'static Cuda) -> Verdict {
    copies_of_two_pages(cu, &[0, 4096])
}

/// By more than its last page. Another allocation may lie there, which would be read or written instead.
fn what_reaches_beyond_pinned_memory_is_invalid_value(cu: &'static Cuda) -> Verdict {
    const BYTES: usize = 64 << 10;
    let all: Vec<_> = (0..4).map(|_| cu.pinned(BYTES)).collect::<Result<_, _>>()?;
    let device = cu.alloc(4 * BYTES)?;
    for pinned in &all {
        let address = pinned.addr() as CUdeviceptr;
        for bytes in [BYTES + 4096, 2 * BYTES] {
            answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD8Async(address, 1, bytes, null_mut()));
            answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyDtoD_v2(device, address, bytes));
            answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyHtoD_v2(device, *pinned, bytes));
            answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyDtoHAsync_v2(*pinned, device, bytes, null_mut()));
        }
        ok!(cu.cuMemsetD8Async(address, 1, BYTES, null_mut()));
        ok!(cu.cuMemcpyHtoD_v2(device, *pinned, BYTES));
    }
    ok!(cu.cuStreamSynchronize(null_mut()));
    for pinned in all {
        ok!(cu.cuMemFreeHost(pinned));
    }
    cu.free(device)
}

fn many_allocations_are_distinct(cu: &'static Cuda) -> Verdict {
    let mut all = Vec::new();
    for i in 0..200u32 {
        let address = cu.pinned(100)?;
        write(address, i);
        all.push(address);
    }
    for (i, address) in all.iter().enumerate() {
        same!(read::<u32>(*address), i as u32);
        ok!(cu.cuMemFreeHost(*address));
    }
    Ok(())
}

/// A host function that takes a millisecond.
extern "C" fn dawdle(count: *mut c_void) {
    let start = std::time::Instant::now();
    while start.elapsed() < std::time::Duration::from_millis(1) {
        std::hint::spin_loop();
    }
    tally(count);
}

/// A program that always has work queued, and never waits for all of it, lives in bounded memory.
fn freed_memory_is_used_again_while_the_device_is_busy(cu: &'static Cuda) -> Verdict {
    let (streams, done) = ([cu.stream()?, cu.stream()?], counter());
    let mut seen = std::collections::HashSet::new();
    for i in 0..100 {
        ok!(cu.cuLaunchHostFunc(streams[i % 2], Some(dawdle), counter_argument(done)));
        seen.insert(cu.pinned(64 << 10).and_then(|address| {
            ok!(cu.cuMemFreeHost(address));
            Ok(address.addr())
        })?);
        // Four are under way at any time, and so there is always one.
        while (done.load(Ordering::SeqCst) as usize) + 4 < i {
            std::thread::yield_now();
        }
    }
    ok!(cu.cuCtxSynchronize());
    for stream in streams {
        ok!(cu.cuStreamDestroy_v2(stream));
    }
    holds!(seen.len() <= 60, "100 buffers, one after the other, took {} places", seen.len());
    Ok(())
}

/// A library keeps a flag there, clears it, and tells its kernels where it is by a structure in device memory.
fn a_flag_in_memory_that_was_used_before_is_clear_to_kernels(cu: &'static Cuda) -> Verdict {
    let (module, follow) = cu.kernel("follow")?;
    let (at, from) = (cu.alloc(16)?, cu.words(&[0x5a5a_5a5a; 256])?);
    for _ in 0..8 {
        let used = cu.pinned(1024)?;
        ok!(cu.cuMemcpyDtoHAsync_v2(used, from, 1024, null_mut()));
        ok!(cu.cuCtxSynchronize());
        ok!(cu.cuMemFreeHost(used));
        ok!(cu.cuCtxSynchronize());
        let flag = cu.pinned(4)?;
        crate::lab::write(flag, 0u32);
        cu.upload(at, &[flag as u64, u64::MAX])?;
        ok!(cu.launch_on(follow, at, null_mut()));
        same!(cu.word(at + 8)?, 0);
        ok!(cu.cuMemFreeHost(flag));
    }
    ok!(cu.cuModuleUnload(module));
    cu.free(at)?;
    cu.free(from)
}

/// Images may have travelled through the memory that is pinned next.
fn memory_that_the_host_cleared_is_clear_to_kernels_after_a_large_image(cu: &'static Cuda) -> Verdict {
    const BYTES: usize = 3 << 20;
    let image = format!("{}\n//{}\n\0", crate::lab::PTX.trim_end_matches('\0'), "x".repeat(2 * BYTES));
    let mut module = null_mut();
    ok!(cu.cuModuleLoadData(&mut module, image.as_ptr().cast()));
    let follow = cu.function(module, "follow")?;
    let (at, pinned) = (cu.alloc(16)?, cu.pinned(BYTES)?);
    for i in (0..BYTES).step_by(4096) {
        let flag = pinned.wrapping_byte_add(i);
        write(flag, 0u32);
        cu.upload(at, &[flag as u64, u64::MAX])?;
        ok!(cu.launch_on(follow, at, null_mut()));
        same!(cu.word(at + 8)?, 0);
    }
    ok!(cu.cuMemFreeHost(pinned));
    ok!(cu.cuModuleUnload(module));
    cu.free(at)
}

/// The freed memory's last copy is over before it is given to anybody else, and nothing of it comes later.
fn a_copy_to_freed_memory_does_not_reach_who_has_it_next(cu: &'static Cuda) -> Verdict {
    let (stream, from) = (cu.stream()?, cu.words(&[0x5a5a_5a5a; 4])?);
    for _ in 0..8 {
        let freed = cu.pinned(4096)?;
        ok!(cu.cuMemcpyDtoHAsync_v2(freed, from, 16, stream));
        ok!(cu.cuMemFreeHost(freed));
        // It comes back when the copy is done, which nobody waits for.
        let (began, mut others) = (std::time::Instant::now(), Vec::new());
        while others.last() != Some(&freed) && began.elapsed().as_millis() < 50 {
            others.push(cu.pinned(4096)?);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        for other in &others {
            write(*other, [7u32; 4]);
        }
        ok!(cu.cuStreamSynchronize(stream));
        for other in others {
            same!(read::<[u32; 4]>(other), [7; 4]);
            ok!(cu.cuMemFreeHost(other));
        }
    }
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(from)
}
