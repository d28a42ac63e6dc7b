//! Copies: every direction, shape and moment.

use std::ptr::null_mut;
use std::thread;
use std::time::Duration;

use orion_cuda::sys::*;

use crate::driver::Cuda;
use crate::fact::{Verdict, answers, facts, holds, ok, same};
use crate::lab::{as_void, comes_to_hold, read, write, zeroed};

facts! { copy:
    Context [
        every_size_comes_back,
        nothing_may_be_copied,
        device_to_device_copies,
        part_of_an_allocation_is_copied,
        past_the_end_is_invalid_value,
        an_unknown_device_address_is_invalid_value,
        what_no_driver_knows_is_no_devices,
        a_null_host_address_is_invalid_value,
        freed_memory_is_invalid_value.not_in_a_crowd("another may be given the freed address"),
        unified_copies_know_the_direction,
        asynchronous_copies_of_pageable_memory,
        asynchronous_copies_of_pinned_memory,
        a_pageable_source_is_captured_at_the_call,
        a_chain_through_pinned_memory_sees_each_step,
        a_chain_through_pinned_memory_is_never_behind,
        a_copy_on_a_destroyed_null_stream_is_legacy,
        the_default_stream_waits_for_blocking_streams,
        two_dimensional_keeps_the_padding,
        two_dimensional_takes_offsets,
        two_dimensional_on_the_device,
        two_dimensional_without_rows_succeeds,
        two_dimensional_wider_than_the_pitch_is_invalid_value,
        two_dimensional_unified_addresses,
        two_dimensional_asynchronous,
        two_dimensional_captured_is_made_at_each_launch,
        two_dimensional_to_or_from_no_memory_is_refused_at_once,
        two_dimensional_of_pinned_memory_that_is_said_to_be_the_devices,
        two_dimensional_between_pinned_memory_of_the_devices_names_is_in_order,
        three_dimensional_slices,
        peer_copies_within_a_device,
        a_peer_copy_is_in_order_with_the_work_of_both_contexts,
        sixteen_mebibytes_come_back,
        one_number_comes_back_again_and_again,
        one_number_comes_back_behind_kernels,
        one_number_is_there_for_whatever_follows,
        what_a_kernel_wrote_to_the_host_is_there_when_a_number_is,
        numbers_of_two_threads_do_not_mix,
        what_a_copy_brings_comes_although_nobody_asks,
    ]
}

fn pattern(count: usize, seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    (0..count)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            (state >> 8) as u8
        })
        .collect()
}

fn every_size_comes_back(cu: &'static Cuda) -> Verdict {
    for count in [1, 2, 3, 4, 7, 63, 255, 256, 1000, 4095, 4096, 4097, 65_535, 65_537, 1_000_003] {
        let data = pattern(count, count as u32);
        let address = cu.alloc(count)?;
        cu.upload(address, &data)?;
        same!(cu.download::<u8>(address, count)?, data);
        cu.free(address)?;
    }
    Ok(())
}

fn sixteen_mebibytes_come_back(cu: &'static Cuda) -> Verdict {
    let data = pattern((16 << 20) + 13, 7);
    let address = cu.alloc(data.len())?;
    cu.upload(address, &data)?;
    same!(cu.download::<u8>(address, data.len())? == data, true);
    cu.free(address)
}

/// A number at a time, as `tensor.item()` reads it: into pinned and into pageable memory, the same one twice, and in
/// particular those that nobody would expect.
fn one_number_comes_back_again_and_again(cu: &'static Cuda) -> Verdict {
    let (stream, pinned, device) = (cu.stream()?, cu.pinned(16)?, cu.alloc(16)?);
    let unlikely = u64::from_le_bytes([0xa7, 0x5c, 0x91, 0x3e, 0xd8, 0x26, 0x6b, 0xf4]);
    for value in [0, 1, unlikely, unlikely, u64::MAX, 1 << 32, unlikely & 0xffff_ffff, 0x3e91_5ca7] {
        cu.upload(device, &[value, !value])?;
        for bytes in [1usize, 2, 4, 8] {
            for place in [0, 8] {
                let expected = if place == 0 { value } else { !value } & (u64::MAX >> (64 - 8 * bytes));
                let mut pageable = 0u64;
                let from = device + place;
                ok!(cu.cuMemcpyDtoH_v2(std::ptr::from_mut(&mut pageable).cast(), from, bytes));
                same!(pageable, expected);
                write(pinned, [0u64; 2]);
                ok!(cu.cuMemcpyDtoHAsync_v2(pinned, from, bytes, stream));
                ok!(cu.cuStreamSynchronize(stream));
                same!(read::<[u64; 2]>(pinned), [expected, 0]);
            }
        }
        // Not where such a number begins.
        let mut pageable = [0u8; 4];
        ok!(cu.cuMemcpyDtoH_v2(pageable.as_mut_ptr().cast(), device + 3, 4));
        same!(pageable.as_slice(), &[value, !value].map(u64::to_le_bytes).concat()[3..7]);
    }
    ok!(cu.cuMemFreeHost(pinned));
    cu.free(device)
}

fn one_number_comes_back_behind_kernels(cu: &'static Cuda) -> Verdict {
    let (stream, pinned, device) = (cu.stream()?, cu.pinned(4)?, cu.words(&[0])?);
    let (module, increment) = cu.kernel("increment")?;
    for round in 1..200u32 {
        ok!(cu.launch_on(increment, device, stream));
        ok!(cu.cuMemcpyDtoHAsync_v2(pinned, device, 4, stream));
        // What comes behind the copy is not what it reads.
        if round % 3 == 0 {
            ok!(cu.launch_on(increment, device, stream));
            ok!(cu.cuMemsetD32Async(device, round, 1, stream));
        }
        ok!(cu.cuStreamSynchronize(stream));
        same!(read::<u32>(pinned), round);
    }
    ok!(cu.cuModuleUnload(module));
    ok!(cu.cuMemFreeHost(pinned));
    cu.free(device)
}

/// After a small copy into pinned memory nobody need wait for its stream: an event, another stream, a kernel that
/// reads the memory or a copy from it will do.
fn one_number_is_there_for_whatever_follows(cu: &'static Cuda) -> Verdict {
    let (stream, other, event, pinned) = (cu.stream()?, cu.stream()?, cu.event()?, cu.pinned(8)?);
    let (device, copy) = (cu.words(&[7])?, cu.words(&[0])?);
    let (module, increment) = cu.kernel("increment")?;
    for round in 0..50u32 {
        cu.upload(device, &[round])?;
        write(pinned, u64::MAX);
        ok!(cu.cuMemcpyDtoHAsync_v2(pinned, device, 4, stream));
        match round % 5 {
            0 => {
                ok!(cu.cuEventRecord(event, stream));
                ok!(cu.cuEventSynchronize(event));
            }
            1 => {
                ok!(cu.cuEventRecord(event, stream));
                ok!(cu.cuStreamWaitEvent(other, event, 0));
                ok!(cu.cuStreamSynchronize(other));
            }
            2 => {
                ok!(cu.launch_on(increment, pinned.addr() as u64, stream));
                ok!(cu.cuStreamSynchronize(stream));
                same!(read::<u32>(pinned), round + 1);
                continue;
            }
            3 => {
                ok!(cu.cuMemcpyHtoDAsync_v2(copy, pinned, 4, stream));
                ok!(cu.cuStreamSynchronize(stream));
                same!(cu.word(copy)?, round);
            }
            _ => while cu.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY {},
        }
        same!(read::<[u32; 2]>(pinned), [round, u32::MAX]);
    }
    ok!(cu.cuModuleUnload(module));
    ok!(cu.cuMemFreeHost(pinned));
    cu.free(copy)?;
    cu.free(device)
}

/// A wait for one number covers everything before it on the stream, and so what a kernel wrote to mapped memory.
fn what_a_kernel_wrote_to_the_host_is_there_when_a_number_is(cu: &'static Cuda) -> Verdict {
    let mut count = 4096u32;
    let (stream, pinned, mapped) = (cu.stream()?, cu.pinned(4)?, cu.pinned(4 * count as usize)?);
    let (module, fill) = cu.kernel("fill")?;
    let device = cu.words(&[0])?;
    for mut round in 1..=30u32 {
        let mut into = mapped.addr() as u64;
        let arguments = &mut [as_void(&mut into), as_void(&mut round), as_void(&mut count)];
        ok!(cu.launch(fill, 16, 256, stream, arguments));
        ok!(cu.cuMemcpyDtoHAsync_v2(pinned, device, 4, stream));
        ok!(cu.cuStreamSynchronize(stream));
        let stale = (0..count as usize).find(|i| read::<u32>(mapped.wrapping_byte_add(4 * i)) != round);
        holds!(stale.is_none(), "word {stale:?} is older than round {round}");
    }
    ok!(cu.cuModuleUnload(module));
    ok!(cu.cuMemFreeHost(mapped));
    ok!(cu.cuMemFreeHost(pinned));
    cu.free(device)
}

fn numbers_of_two_threads_do_not_mix(cu: &'static Cuda) -> Verdict {
    let work = move |first: u32| -> Verdict {
        crate::lab::use_primary(cu)?;
        let (stream, pinned, device) = (cu.stream()?, cu.pinned(4)?, cu.words(&[first])?);
        let (module, increment) = cu.kernel("increment")?;
        for round in 1..300 {
            ok!(cu.launch_on(increment, device, stream));
            ok!(cu.cuMemcpyDtoHAsync_v2(pinned, device, 4, stream));
            ok!(cu.cuStreamSynchronize(stream));
            same!(read::<u32>(pinned), first + round);
        }
        ok!(cu.cuModuleUnload(module));
        ok!(cu.cuMemFreeHost(pinned));
        cu.free(device)
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = [1000, 2000, 3000].map(|first| scope.spawn(move || work(first))).into_iter().collect();
        work(0)?;
        others.into_iter().try_for_each(|t| t.join().map_err(|_| "a thread panicked".to_string())?)
    })
}

fn nothing_may_be_copied(cu: &'static Cuda) -> Verdict {
    let address = cu.words(&[5])?;
    let mut word = 1u32;
    ok!(cu.cuMemcpyHtoD_v2(address, std::ptr::from_ref(&word).cast(), 0));
    ok!(cu.cuMemcpyDtoH_v2(std::ptr::from_mut(&mut word).cast(), address, 0));
    same!((cu.word(address)?, word), (5, 1));
    cu.free(address)
}

fn device_to_device_copies(cu: &'static Cuda) -> Verdict {
    let (from, to) = (cu.words(&[1, 2, 3])?, cu.words(&[0, 0, 0])?);
    ok!(cu.cuMemcpyDtoD_v2(to + 4, from, 8));
    same!(cu.download::<u32>(to, 3)?, [0, 1, 2]);
    ok!(cu.cuMemcpyDtoDAsync_v2(to, from, 12, null_mut()));
    same!(cu.download::<u32>(to, 3)?, [1, 2, 3]);
    cu.free(from)?;
    cu.free(to)
}

fn part_of_an_allocation_is_copied(cu: &'static Cuda) -> Verdict {
    let address = cu.words(&[1, 2, 3, 4])?;
    cu.upload(address + 4, &[9u32])?;
    same!(cu.download::<u32>(address, 4)?, [1, 9, 3, 4]);
    same!(cu.download::<u16>(address + 6, 2)?, [0, 3]);
    cu.free(address)
}

fn past_the_end_is_invalid_value(cu: &'static Cuda) -> Verdict {
    let address = cu.alloc(4 << 20)?;
    let data = vec![0u8; 8 << 20];
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyHtoD_v2(address, data.as_ptr().cast(), data.len()));
    cu.free(address)
}

fn an_unknown_device_address_is_invalid_value(cu: &'static Cuda) -> Verdict {
    let mut word = 0u32;
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyHtoD_v2(0x1000, std::ptr::from_ref(&word).cast(), 4));
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyDtoH_v2(std::ptr::from_mut(&mut word).cast(), 0x1000, 4));
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyHtoD_v2(0, std::ptr::from_ref(&word).cast(), 4));
    Ok(())
}

/// Memory of the program's own, null, and what is nobody's, named for a device's; pinned memory may be.
fn what_no_driver_knows_is_no_devices(cu: &'static Cuda) -> Verdict {
    let (memory, pinned, stream, mut own) = (cu.words(&[7; 64])?, cu.pinned(256)?, cu.stream()?, [0u32; 64]);
    for at in [0, 8, 4096, 0xdead_0000_0000_0000, as_void(&mut own) as CUdeviceptr] {
        answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyDtoD_v2(at, memory, 256));
        answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyDtoD_v2(memory, at, 256));
        answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyDtoDAsync_v2(at, memory, 256, stream));
        answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyDtoDAsync_v2(memory, at, 256, stream));
        answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyHtoDAsync_v2(at, pinned, 256, stream));
        answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyDtoHAsync_v2(pinned, at, 256, stream));
        answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD8Async(at, 0, 256, stream));
    }
    ok!(cu.cuMemcpyDtoD_v2(pinned as CUdeviceptr, memory, 256));
    ok!(cu.cuStreamSynchronize(std::ptr::null_mut()));
    same!(read::<[u32; 64]>(pinned), [7; 64]);
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuMemFreeHost(pinned));
    cu.free(memory)
}

fn a_null_host_address_is_invalid_value(cu: &'static Cuda) -> Verdict {
    let address = cu.words(&[5])?;
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyHtoD_v2(address, std::ptr::null(), 4));
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyDtoH_v2(null_mut(), address, 4));
    cu.free(address)
}

fn freed_memory_is_invalid_value(cu: &'static Cuda) -> Verdict {
    let address = cu.alloc(8 << 20)?;
    cu.free(address)?;
    let word = 0u32;
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyHtoD_v2(address, std::ptr::from_ref(&word).cast(), 4));
    Ok(())
}

fn host(words: &mut [u32]) -> CUdeviceptr {
    words.as_mut_ptr().addr() as CUdeviceptr
}

fn unified_copies_know_the_direction(cu: &'static Cuda) -> Verdict {
    let (first, second) = (cu.words(&[0, 0])?, cu.words(&[0, 0])?);
    let (mut from, mut to, mut third) = ([7u32, 8], [0u32, 0], [0u32, 0]);
    ok!(cu.cuMemcpy(first, host(&mut from), 8));
    ok!(cu.cuMemcpy(second, first, 8));
    ok!(cu.cuMemcpy(host(&mut to), second, 8));
    ok!(cu.cuMemcpy(host(&mut third), host(&mut to), 8));
    same!((to, third), ([7, 8], [7, 8]));
    let stream = cu.stream()?;
    from = [3, 4];
    ok!(cu.cuMemcpyAsync(first, host(&mut from), 8, stream));
    ok!(cu.cuMemcpyAsync(second, first, 8, stream));
    ok!(cu.cuMemcpyAsync(host(&mut to), second, 8, stream));
    ok!(cu.cuStreamSynchronize(stream));
    same!(to, [3, 4]);
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(first)?;
    cu.free(second)
}

fn asynchronous_copies_of_pageable_memory(cu: &'static Cuda) -> Verdict {
    let (stream, data) = (cu.stream()?, pattern(300_001, 3));
    let (address, mut back) = (cu.alloc(data.len())?, vec![0u8; data.len()]);
    ok!(cu.cuMemcpyHtoDAsync_v2(address, data.as_ptr().cast(), data.len(), stream));
    ok!(cu.cuMemcpyDtoHAsync_v2(back.as_mut_ptr().cast(), address, data.len(), stream));
    ok!(cu.cuStreamSynchronize(stream));
    same!(back == data, true);
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(address)
}

fn asynchronous_copies_of_pinned_memory(cu: &'static Cuda) -> Verdict {
    let (stream, event) = (cu.stream()?, cu.event()?);
    let (address, pinned) = (cu.alloc(8)?, cu.pinned(16)?);
    write::<[u32; 4]>(pinned, [1, 2, 0, 0]);
    ok!(cu.cuMemcpyHtoDAsync_v2(address, pinned, 8, stream));
    ok!(cu.cuMemcpyDtoHAsync_v2(pinned.wrapping_byte_add(8), address, 8, stream));
    ok!(cu.cuEventRecord(event, stream));
    ok!(cu.cuEventSynchronize(event));
    same!(read::<[u32; 4]>(pinned), [1, 2, 1, 2]);
    ok!(cu.cuMemFreeHost(pinned));
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(address)
}

fn a_pageable_source_is_captured_at_the_call(cu: &'static Cuda) -> Verdict {
    let stream = cu.stream()?;
    let (address, mut source) = (cu.alloc(1024)?, vec![1u32; 256]);
    ok!(cu.cuMemcpyHtoDAsync_v2(address, source.as_ptr().cast(), 1024, stream));
    source.fill(2);
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu.download::<u32>(address, 256)?, vec![1; 256]);
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(address)
}

/// A pinned source is read when the copy runs, so it must hold what the copy before it has written.
fn a_chain_through_pinned_memory_sees_each_step(cu: &'static Cuda) -> Verdict {
    let (stream, pinned) = (cu.stream()?, cu.pinned(4)?);
    let (from, to) = (cu.words(&[42])?, cu.words(&[0])?);
    write(pinned, 7u32);
    let gate = cu.gate(stream)?;
    ok!(cu.cuMemcpyDtoHAsync_v2(pinned, from, 4, stream));
    ok!(cu.cuMemcpyHtoDAsync_v2(to, pinned, 4, stream));
    gate.open();
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu.word(to)?, 42);
    ok!(cu.cuMemFreeHost(pinned));
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(from)?;
    cu.free(to)
}

/// Whenever the second copy is asked for.
fn a_chain_through_pinned_memory_is_never_behind(cu: &'static Cuda) -> Verdict {
    let (stream, pinned) = (cu.stream()?, cu.pinned(4)?);
    let (from, to) = (cu.words(&[0])?, cu.words(&[0])?);
    for round in 1..500u32 {
        write(pinned, 0u32);
        ok!(cu.cuMemsetD32Async(from, round, 1, stream));
        ok!(cu.cuMemcpyDtoHAsync_v2(pinned, from, 4, stream));
        let asked = std::time::Instant::now();
        while asked.elapsed().as_micros() < u128::from(round % 61) {
            std::hint::spin_loop();
        }
        ok!(cu.cuMemcpyHtoDAsync_v2(to, pinned, 4, stream));
        ok!(cu.cuStreamSynchronize(stream));
        same!(cu.word(to)?, round);
        // What the host writes later counts again.
        write(pinned, round + 1000);
        ok!(cu.cuMemcpyHtoDAsync_v2(to, pinned, 4, stream));
        ok!(cu.cuStreamSynchronize(stream));
        same!(cu.word(to)?, round + 1000);
    }
    ok!(cu.cuMemFreeHost(pinned));
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(to)?;
    cu.free(from)
}

fn a_copy_on_a_destroyed_null_stream_is_legacy(cu: &'static Cuda) -> Verdict {
    let address = cu.words(&[0])?;
    let word = 6u32;
    ok!(cu.cuMemcpyHtoDAsync_v2(address, std::ptr::from_ref(&word).cast(), 4, null_mut()));
    ok!(cu.cuStreamSynchronize(std::ptr::without_provenance_mut(1)));
    same!(cu.word(address)?, 6);
    cu.free(address)
}

fn the_default_stream_waits_for_blocking_streams(cu: &'static Cuda) -> Verdict {
    let (stream, address) = (cu.blocking_stream()?, cu.words(&[1])?);
    let pinned = cu.pinned(4)?;
    write(pinned, 9u32);
    ok!(cu.cuMemcpyHtoDAsync_v2(address, pinned, 4, stream));
    same!(cu.word(address)?, 9);
    ok!(cu.cuMemFreeHost(pinned));
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(address)
}

fn to_device(host: &[u8], host_pitch: usize, device: CUdeviceptr, device_pitch: usize) -> CUDA_MEMCPY2D {
    let mut copy: CUDA_MEMCPY2D = zeroed();
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = host.as_ptr().cast();
    copy.srcPitch = host_pitch;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = device;
    copy.dstPitch = device_pitch;
    copy
}

fn to_host(device: CUdeviceptr, device_pitch: usize, host: &mut [u8], host_pitch: usize) -> CUDA_MEMCPY2D {
    let mut copy: CUDA_MEMCPY2D = zeroed();
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = device;
    copy.srcPitch = device_pitch;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = host.as_mut_ptr().cast();
    copy.dstPitch = host_pitch;
    copy
}

fn sized(mut copy: CUDA_MEMCPY2D, width: usize, height: usize) -> CUDA_MEMCPY2D {
    copy.WidthInBytes = width;
    copy.Height = height;
    copy
}

/// The source may be read until then. While the stream is held up an H200's driver keeps the call.
fn two_dimensional_between_pinned_memory_of_the_devices_names_is_in_order(cu: &'static Cuda) -> Verdict {
    let (from, to, stream) = (cu.pinned(64)?, cu.pinned(64)?, cu.stream()?);
    let mut copy: CUDA_MEMCPY2D = zeroed();
    (copy.srcMemoryType, copy.srcDevice, copy.srcPitch) = (CU_MEMORYTYPE_DEVICE, from.addr() as CUdeviceptr, 16);
    (copy.dstMemoryType, copy.dstDevice, copy.dstPitch) = (CU_MEMORYTYPE_DEVICE, to.addr() as CUdeviceptr, 16);
    for round in 1..5u8 {
        let gate = cu.gate(stream)?;
        write(from, [round; 64]);
        write(to, [0xee_u8; 64]);
        let opens = thread::spawn({
            let (gate, to) = (gate.clone(), to.expose_provenance());
            move || {
                thread::sleep(Duration::from_millis(20));
                let before = read::<u8>(std::ptr::with_exposed_provenance_mut(to));
                gate.open();
                before
            }
        });
        ok!(cu.cuMemcpy2DAsync_v2(&sized(copy, 8, 3), stream));
        ok!(cu.cuStreamSynchronize(stream));
        same!(opens.join().expect("a panic ends the process"), 0xee);
        let mut expected = [0xee_u8; 64];
        (0..3).for_each(|row| expected[16 * row..16 * row + 8].fill(round));
        same!(read::<[u8; 64]>(to), expected);
    }
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuMemFreeHost(from));
    ok!(cu.cuMemFreeHost(to));
    Ok(())
}

/// Both ways, several times: what the host and copies wrote before is there, and nothing older.
fn two_dimensional_of_pinned_memory_that_is_said_to_be_the_devices(cu: &'static Cuda) -> Verdict {
    let (pinned, stream, device) = (cu.pinned(64)?, cu.stream()?, cu.alloc(64)?);
    let address = pinned.addr() as CUdeviceptr;
    for round in 1..20u8 {
        let (rows, mut back) = ([round; 24], [0u8; 64]);
        write(pinned, [0xee_u8; 64]);
        ok!(cu.cuMemcpy2DAsync_v2(&sized(to_device(&rows, 8, address, 16), 8, 3), stream));
        ok!(cu.cuStreamSynchronize(stream));
        let mut expected = [0xee_u8; 64];
        (0..3).for_each(|row| expected[16 * row..16 * row + 8].fill(round));
        same!(read::<[u8; 64]>(pinned), expected);
        write(pinned.wrapping_byte_add(8), round + 100);
        expected[8] = round + 100;
        let mut across = sized(to_device(&[], 16, device, 16), 16, 4);
        (across.srcMemoryType, across.srcDevice) = (CU_MEMORYTYPE_DEVICE, address);
        ok!(cu.cuMemcpy2DAsync_v2(&across, stream));
        ok!(cu.cuMemcpyDtoHAsync_v2(back.as_mut_ptr().cast(), device, 64, stream));
        ok!(cu.cuStreamSynchronize(stream));
        same!(back, expected);
    }
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuMemFreeHost(pinned));
    cu.free(device)
}

/// Also of pinned memory, where nothing else has to be known before the call returns; and nobody hears of it later.
fn two_dimensional_to_or_from_no_memory_is_refused_at_once(cu: &'static Cuda) -> Verdict {
    let (pinned, stream, device) = (cu.pinned(256)?, cu.stream()?, cu.alloc(256)?);
    for height in [1, 4] {
        let mut there = sized(to_device(&[], 64, 0, 64), 32, height);
        there.srcHost = pinned;
        answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpy2DAsync_v2(&there, stream));
        let mut again = sized(to_host(0, 64, &mut [], 64), 32, height);
        again.dstHost = pinned;
        answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpy2DAsync_v2(&again, stream));
        ok!(cu.cuStreamSynchronize(stream));
        there.dstDevice = device;
        ok!(cu.cuMemcpy2DAsync_v2(&there, stream));
        ok!(cu.cuStreamSynchronize(stream));
    }
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuMemFreeHost(pinned));
    cu.free(device)
}

/// Of pageable memory, both ways; what lies between the rows is left alone.
fn two_dimensional_captured_is_made_at_each_launch(cu: &'static Cuda) -> Verdict {
    let (stream, device) = (cu.stream()?, cu.alloc(32)?);
    let (mut source, mut back) = (vec![0u8; 10], vec![0xaau8; 12]);
    let there = sized(to_device(&source, 5, device, 8), 3, 2);
    let again = sized(to_host(device, 8, &mut back, 6), 3, 2);
    ok!(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    ok!(cu.cuMemcpy2DAsync_v2(&there, stream));
    ok!(cu.cuMemcpy2DAsync_v2(&again, stream));
    let (mut graph, mut exec) = (null_mut(), null_mut());
    ok!(cu.cuStreamEndCapture(stream, &mut graph));
    ok!(cu.cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    for round in [1u8, 101] {
        // Through the pointer that the copy was given.
        let first = source.as_mut_ptr().cast();
        write(first, [round, round + 1, round + 2, 0xbb, 0xbb, round + 5, round + 6, round + 7, 0xbb, 0xbb]);
        ok!(cu.cuGraphLaunch(exec, stream));
        ok!(cu.cuStreamSynchronize(stream));
        let gap = [0xaa; 3];
        let rows = [[round, round + 1, round + 2], gap, [round + 5, round + 6, round + 7], gap];
        same!(read::<[[u8; 3]; 4]>(back.as_mut_ptr().cast()), rows);
    }
    ok!(cu.cuGraphExecDestroy(exec));
    ok!(cu.cuGraphDestroy(graph));
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(device)
}

fn two_dimensional_keeps_the_padding(cu: &'static Cuda) -> Verdict {
    let device = cu.alloc(32)?;
    ok!(cu.cuMemsetD8_v2(device, 0xee, 32));
    let rows = [1u8, 2, 3, 4, 5, 6];
    ok!(cu.cuMemcpy2D_v2(&sized(to_device(&rows, 3, device, 8), 3, 2)));
    let whole = cu.download::<u8>(device, 16)?;
    same!(whole, [1, 2, 3, 0xee, 0xee, 0xee, 0xee, 0xee, 4, 5, 6, 0xee, 0xee, 0xee, 0xee, 0xee]);
    let mut back = [0xaau8; 12];
    ok!(cu.cuMemcpy2D_v2(&sized(to_host(device, 8, &mut back, 5), 3, 2)));
    same!(back, [1, 2, 3, 0xaa, 0xaa, 4, 5, 6, 0xaa, 0xaa, 0xaa, 0xaa]);
    cu.free(device)
}

fn two_dimensional_takes_offsets(cu: &'static Cuda) -> Verdict {
    let device = cu.alloc(32)?;
    ok!(cu.cuMemsetD8_v2(device, 0, 32));
    let source: Vec<u8> = (0..12).collect();
    let mut copy = sized(to_device(&source, 4, device, 8), 2, 2);
    (copy.srcXInBytes, copy.srcY, copy.dstXInBytes, copy.dstY) = (1, 1, 3, 2);
    ok!(cu.cuMemcpy2DUnaligned_v2(&copy));
    let mut expected = [0u8; 32];
    (expected[19], expected[20], expected[27], expected[28]) = (5, 6, 9, 10);
    same!(cu.download::<u8>(device, 32)?, expected);
    cu.free(device)
}

fn two_dimensional_on_the_device(cu: &'static Cuda) -> Verdict {
    let (from, to) = (cu.alloc(16)?, cu.alloc(16)?);
    cu.upload(from, &(0..16).collect::<Vec<u8>>())?;
    ok!(cu.cuMemsetD8_v2(to, 0, 16));
    let mut copy: CUDA_MEMCPY2D = sized(zeroed(), 2, 3);
    (copy.srcMemoryType, copy.srcDevice, copy.srcPitch) = (CU_MEMORYTYPE_DEVICE, from, 4);
    (copy.dstMemoryType, copy.dstDevice, copy.dstPitch) = (CU_MEMORYTYPE_DEVICE, to, 5);
    ok!(cu.cuMemcpy2DUnaligned_v2(&copy));
    same!(cu.download::<u8>(to, 16)?, [0, 1, 0, 0, 0, 4, 5, 0, 0, 0, 8, 9, 0, 0, 0, 0]);
    cu.free(from)?;
    cu.free(to)
}

fn two_dimensional_without_rows_succeeds(cu: &'static Cuda) -> Verdict {
    let device = cu.alloc(16)?;
    ok!(cu.cuMemcpy2D_v2(&sized(to_device(&[1, 2], 2, device, 8), 2, 0)));
    cu.free(device)
}

fn two_dimensional_wider_than_the_pitch_is_invalid_value(cu: &'static Cuda) -> Verdict {
    let (device, rows) = (cu.alloc(64)?, [0u8; 64]);
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpy2D_v2(&sized(to_device(&rows, 16, device, 8), 9, 2)));
    cu.free(device)
}

fn two_dimensional_unified_addresses(cu: &'static Cuda) -> Verdict {
    let device = cu.alloc(8)?;
    let mut rows = [1u8, 2, 3, 4];
    let mut copy: CUDA_MEMCPY2D = sized(zeroed(), 2, 2);
    (copy.srcMemoryType, copy.srcPitch) = (CU_MEMORYTYPE_UNIFIED, 2);
    copy.srcDevice = rows.as_mut_ptr().addr() as CUdeviceptr;
    (copy.dstMemoryType, copy.dstDevice, copy.dstPitch) = (CU_MEMORYTYPE_UNIFIED, device, 4);
    ok!(cu.cuMemcpy2DUnaligned_v2(&copy));
    let whole = cu.download::<u8>(device, 8)?;
    same!((&whole[..2], &whole[4..6]), (&[1, 2][..], &[3, 4][..]));
    cu.free(device)
}

fn two_dimensional_asynchronous(cu: &'static Cuda) -> Verdict {
    let (stream, device) = (cu.stream()?, cu.alloc(64)?);
    let (rows, mut back) = (pattern(30, 5), vec![0u8; 30]);
    ok!(cu.cuMemcpy2DAsync_v2(&sized(to_device(&rows, 10, device, 16), 10, 3), stream));
    ok!(cu.cuMemcpy2DAsync_v2(&sized(to_host(device, 16, &mut back, 10), 10, 3), stream));
    ok!(cu.cuStreamSynchronize(stream));
    same!(back, rows);
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(device)
}

fn three_dimensional_slices(cu: &'static Cuda) -> Verdict {
    let device = cu.alloc(64)?;
    ok!(cu.cuMemsetD8_v2(device, 0, 64));
    let source: Vec<u8> = (1..=12).collect();
    let mut copy: CUDA_MEMCPY3D = zeroed();
    (copy.srcMemoryType, copy.srcHost) = (CU_MEMORYTYPE_HOST, source.as_ptr().cast());
    (copy.srcPitch, copy.srcHeight) = (3, 2);
    (copy.dstMemoryType, copy.dstDevice, copy.dstPitch, copy.dstHeight) = (CU_MEMORYTYPE_DEVICE, device, 4, 3);
    (copy.WidthInBytes, copy.Height, copy.Depth) = (3, 2, 2);
    ok!(cu.cuMemcpy3D_v2(&copy));
    let whole = cu.download::<u8>(device, 24)?;
    same!(whole, [1, 2, 3, 0, 4, 5, 6, 0, 0, 0, 0, 0, 7, 8, 9, 0, 10, 11, 12, 0, 0, 0, 0, 0]);
    let mut back = vec![0u8; 12];
    let mut copy: CUDA_MEMCPY3D = zeroed();
    (copy.srcMemoryType, copy.srcDevice, copy.srcPitch, copy.srcHeight) = (CU_MEMORYTYPE_DEVICE, device, 4, 3);
    (copy.dstMemoryType, copy.dstHost) = (CU_MEMORYTYPE_HOST, back.as_mut_ptr().cast());
    (copy.dstPitch, copy.dstHeight) = (3, 2);
    (copy.WidthInBytes, copy.Height, copy.Depth) = (3, 2, 2);
    ok!(cu.cuMemcpy3DAsync_v2(&copy, null_mut()));
    ok!(cu.cuStreamSynchronize(null_mut()));
    same!(back, source);
    cu.free(device)
}

fn peer_copies_within_a_device(cu: &'static Cuda) -> Verdict {
    let context = cu.context()?;
    let (from, to) = (cu.words(&[5, 6])?, cu.words(&[0, 0])?);
    ok!(cu.cuMemcpyPeer(to, context, from, context, 4));
    ok!(cu.cuMemcpyPeerAsync(to + 4, context, from + 4, context, 4, null_mut()));
    same!(cu.download::<u32>(to, 2)?, [5, 6]);
    cu.free(from)?;
    cu.free(to)
}

/// Not with what is in the default stream alone: what it copies is queued in another context, and changed there
/// afterwards.
fn a_peer_copy_is_in_order_with_the_work_of_both_contexts(cu: &'static Cuda) -> Verdict {
    let (context, to, mut other) = (cu.context()?, cu.words(&[0])?, null_mut());
    ok!(cu.cuCtxCreate_v2(&mut other, 0, 0));
    let (stream, from) = (cu.blocking_stream()?, cu.words(&[1])?);
    let gate = cu.gate(stream)?;
    ok!(cu.cuMemsetD32Async(from, 5, 1, stream));
    ok!(cu.cuCtxSetCurrent(context));
    ok!(cu.cuMemcpyPeer(to, context, from, other, 4));
    ok!(cu.cuCtxSetCurrent(other));
    ok!(cu.cuMemsetD32Async(from, 9, 1, stream));
    gate.open();
    ok!(cu.cuCtxSynchronize());
    same!(cu.word(from)?, 9);
    ok!(cu.cuCtxSetCurrent(context));
    same!(cu.word(to)?, 5);
    ok!(cu.cuCtxDestroy_v2(other));
    ok!(cu.cuCtxSetCurrent(context));
    cu.free(to)
}

/// The host looks at the memory alone, and makes no call until the bytes are there. What was copied before is, too.
fn what_a_copy_brings_comes_although_nobody_asks(cu: &'static Cuda) -> Verdict {
    const BYTES: usize = 400 << 10;
    let (stream, source, to, flag) = (cu.stream()?, cu.alloc(BYTES)?, cu.pinned(BYTES)?, cu.pinned(64)?);
    write(flag, [0u8; 64]);
    for round in 1..=50u32 {
        let bytes = if round % 2 == 0 { 8 } else { BYTES };
        ok!(cu.cuMemsetD32Async(source, round, BYTES / 4, stream));
        ok!(cu.cuMemcpyDtoHAsync_v2(to, source, bytes, stream));
        ok!(cu.cuMemcpyDtoHAsync_v2(flag, source, 4, stream));
        holds!(comes_to_hold(flag, round), "the host's word is {} in round {round}", read::<u32>(flag));
        let last = read::<u32>(to.wrapping_byte_add(bytes - 4));
        holds!(last == round, "the end of the copy before it is {last} in round {round}");
    }
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuMemFreeHost(to));
    ok!(cu.cuMemFreeHost(flag));
    cu.free(source)
}
