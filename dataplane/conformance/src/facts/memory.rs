//! Device memory: allocating, freeing, running out.

use std::ptr::null_mut;

use orion_cuda::sys::*;

use crate::driver::Cuda;
use crate::fact::{Verdict, answers, facts, holds, ok, same};
use crate::lab::Get;

const MIB: usize = 1 << 20;

facts! { memory:
    Context [
        alloc_of_nothing_is_invalid_value,
        alloc_into_null_is_invalid_value,
        free_of_null_succeeds,
        double_free_is_invalid_value.not_in_a_crowd("another may be given the freed address"),
        free_inside_an_allocation_is_invalid_value,
        free_of_a_host_address_is_invalid_value,
        allocations_are_aligned_to_256,
        allocations_do_not_overlap,
        the_range_of_an_address_is_its_allocation,
        the_range_may_be_asked_in_part,
        the_range_of_an_unknown_address_is_not_found,
        more_than_there_is_is_out_of_memory,
        the_largest_size_is_out_of_memory,
        running_out_has_no_side_effect.not_in_a_crowd("it counts free memory"),
        free_memory_moves_with_allocations.not_in_a_crowd("it counts free memory"),
        pitch_is_wide_and_aligned,
        pitch_of_an_odd_element_is_invalid_value,
        pitch_of_nothing_is_invalid_value,
        a_thousand_allocations_hold_their_own_data,
    ]
}

fn free_bytes(cu: &Cuda) -> Get<usize> {
    let (mut free, mut total) = (0, 0);
    ok!(cu.cuMemGetInfo_v2(&mut free, &mut total));
    Ok(free)
}

fn alloc_of_nothing_is_invalid_value(cu: &'static Cuda) -> Verdict {
    let mut address = 0;
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemAlloc_v2(&mut address, 0));
    Ok(())
}

fn alloc_into_null_is_invalid_value(cu: &'static Cuda) -> Verdict {
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemAlloc_v2(null_mut(), 16));
    Ok(())
}

fn free_of_null_succeeds(cu: &'static Cuda) -> Verdict {
    ok!(cu.cuMemFree_v2(0));
    Ok(())
}

fn double_free_is_invalid_value(cu: &'static Cuda) -> Verdict {
    let address = cu.alloc(64)?;
    ok!(cu.cuMemFree_v2(address));
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemFree_v2(address));
    Ok(())
}

fn free_inside_an_allocation_is_invalid_value(cu: &'static Cuda) -> Verdict {
    let address = cu.alloc(4096)?;
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemFree_v2(address + 256));
    cu.free(address)
}

fn free_of_a_host_address_is_invalid_value(cu: &'static Cuda) -> Verdict {
    let mut word = 0u32;
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemFree_v2(std::ptr::from_mut(&mut word).addr() as u64));
    Ok(())
}

fn allocations_are_aligned_to_256(cu: &'static Cuda) -> Verdict {
    for bytes in [1, 3, 100, 4097, MIB + 1] {
        let address = cu.alloc(bytes)?;
        holds!(address % 256 == 0, "{bytes} bytes at {address:#x}");
        cu.free(address)?;
    }
    Ok(())
}

fn allocations_do_not_overlap(cu: &'static Cuda) -> Verdict {
    let mut ranges = Vec::new();
    for bytes in [1usize, 255, 256, 257, 4096, 100_000, MIB, 3 * MIB + 5] {
        ranges.push((cu.alloc(bytes)?, bytes as u64));
    }
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        holds!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:x?} overlap");
    }
    ranges.iter().try_for_each(|(address, _)| cu.free(*address))
}

fn the_range_of_an_address_is_its_allocation(cu: &'static Cuda) -> Verdict {
    let address = cu.alloc(1000)?;
    let (mut base, mut bytes) = (0, 0);
    ok!(cu.cuMemGetAddressRange_v2(&mut base, &mut bytes, address + 500));
    same!((base, bytes), (address, 1000));
    cu.free(address)
}

fn the_range_may_be_asked_in_part(cu: &'static Cuda) -> Verdict {
    let address = cu.alloc(1000)?;
    let (mut base, mut bytes) = (0, 0);
    ok!(cu.cuMemGetAddressRange_v2(&mut base, null_mut(), address));
    ok!(cu.cuMemGetAddressRange_v2(null_mut(), &mut bytes, address));
    same!((base, bytes), (address, 1000));
    cu.free(address)
}

fn the_range_of_an_unknown_address_is_not_found(cu: &'static Cuda) -> Verdict {
    let (mut base, mut bytes) = (0, 0);
    answers!(CUDA_ERROR_NOT_FOUND, cu.cuMemGetAddressRange_v2(&mut base, &mut bytes, 0x1000));
    Ok(())
}

fn more_than_there_is_is_out_of_memory(cu: &'static Cuda) -> Verdict {
    let (mut free, mut total, mut address) = (0, 0, 0);
    ok!(cu.cuMemGetInfo_v2(&mut free, &mut total));
    answers!(CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAlloc_v2(&mut address, total + MIB));
    Ok(())
}

fn the_largest_size_is_out_of_memory(cu: &'static Cuda) -> Verdict {
    let mut address = 0;
    answers!(CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAlloc_v2(&mut address, usize::MAX));
    Ok(())
}

fn running_out_has_no_side_effect(cu: &'static Cuda) -> Verdict {
    let kept = cu.words(&[11, 22])?;
    let (mut before, mut total, mut address) = (0, 0, 0);
    ok!(cu.cuMemGetInfo_v2(&mut before, &mut total));
    answers!(CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAlloc_v2(&mut address, total * 2));
    same!(free_bytes(cu)?, before);
    same!(cu.download::<u32>(kept, 2)?, [11, 22]);
    let small = cu.words(&[33])?;
    same!(cu.word(small)?, 33);
    cu.free(small)?;
    cu.free(kept)
}

fn free_memory_moves_with_allocations(cu: &'static Cuda) -> Verdict {
    let before = free_bytes(cu)?;
    let address = cu.alloc(64 * MIB)?;
    let during = free_bytes(cu)?;
    holds!(before - during >= 64 * MIB, "{} bytes fewer are free after 64 MiB were taken", before - during);
    cu.free(address)?;
    same!(free_bytes(cu)?, before);
    Ok(())
}

fn pitch_is_wide_and_aligned(cu: &'static Cuda) -> Verdict {
    let (mut address, mut pitch) = (0, 0);
    ok!(cu.cuMemAllocPitch_v2(&mut address, &mut pitch, 100, 7, 4));
    holds!(pitch >= 100, "a pitch of {pitch} for rows of 100");
    let alignment = cu.attribute(CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT)? as usize;
    holds!(pitch % alignment == 0, "a pitch of {pitch} is not a multiple of {alignment}");
    cu.free(address)
}

fn pitch_of_an_odd_element_is_invalid_value(cu: &'static Cuda) -> Verdict {
    let (mut address, mut pitch) = (0, 0);
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemAllocPitch_v2(&mut address, &mut pitch, 100, 7, 3));
    Ok(())
}

fn pitch_of_nothing_is_invalid_value(cu: &'static Cuda) -> Verdict {
    let (mut address, mut pitch) = (0, 0);
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemAllocPitch_v2(&mut address, &mut pitch, 0, 7, 4));
    Ok(())
}

fn a_thousand_allocations_hold_their_own_data(cu: &'static Cuda) -> Verdict {
    let mut all = Vec::new();
    for i in 0..1000u32 {
        all.push(cu.words(&[i])?);
    }
    for (i, address) in all.iter().enumerate() {
        same!(cu.word(*address)?, i as u32);
    }
    all.iter().try_for_each(|address| cu.free(*address))
}
