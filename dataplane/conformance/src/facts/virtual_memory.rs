//! Virtual memory management: reserve, create, map, allow.

use std::ptr::null_mut;

use orion_cuda::sys::*;

use crate::driver::Cuda;
use crate::fact::{Verdict, answers, facts, holds, ok, same};
use crate::lab::{Get, zeroed};

facts! { vmm:
    Context [
        the_granularity_is_a_power_of_two,
        mapped_memory_holds_data,
        what_cannot_be_mapped_anywhere_is_not_supported,
        one_handle_can_be_mapped_twice,
        an_odd_size_is_invalid_value,
        reserving_nothing_is_invalid_value,
        unmapped_memory_cannot_be_copied,
        memory_outlives_its_handle_while_mapped,
        access_is_told,
        properties_are_told,
        a_mapping_leads_back_to_its_handle,
        a_range_grows_piece_by_piece,
        freeing_what_was_not_reserved_is_invalid_value,
        created_memory_is_counted.not_in_a_crowd("it counts free memory"),
    ]
}

fn properties() -> CUmemAllocationProp {
    let mut properties: CUmemAllocationProp = zeroed();
    properties.type_ = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };
    properties
}

fn granularity(cu: &Cuda) -> Get<usize> {
    let mut bytes = 0;
    ok!(cu.cuMemGetAllocationGranularity(&mut bytes, &properties(), CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    Ok(bytes)
}

fn create(cu: &Cuda, bytes: usize) -> Get<CUmemGenericAllocationHandle> {
    let mut handle = 0;
    ok!(cu.cuMemCreate(&mut handle, bytes, &properties(), 0));
    Ok(handle)
}

fn reserve(cu: &Cuda, bytes: usize) -> Get<CUdeviceptr> {
    let mut address = 0;
    ok!(cu.cuMemAddressReserve(&mut address, bytes, 0, 0, 0));
    Ok(address)
}

fn map(cu: &Cuda, address: CUdeviceptr, bytes: usize, handle: CUmemGenericAllocationHandle) -> Verdict {
    ok!(cu.cuMemMap(address, bytes, 0, handle, 0));
    let access = CUmemAccessDesc { location: properties().location, flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    ok!(cu.cuMemSetAccess(address, bytes, &access, 1));
    Ok(())
}

fn the_granularity_is_a_power_of_two(cu: &'static Cuda) -> Verdict {
    let (least, mut good) = (granularity(cu)?, 0);
    ok!(cu.cuMemGetAllocationGranularity(&mut good, &properties(), CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    holds!(least.is_power_of_two() && good % least == 0, "{least} is the least and {good} recommended");
    Ok(())
}

fn mapped_memory_holds_data(cu: &'static Cuda) -> Verdict {
    let bytes = granularity(cu)?;
    let (address, handle) = (reserve(cu, bytes)?, create(cu, bytes)?);
    map(cu, address, bytes, handle)?;
    let (module, increment) = cu.kernel("increment")?;
    let last = address + bytes as u64 - 4;
    cu.upload(last, &[41u32])?;
    ok!(cu.launch_on(increment, last, null_mut()));
    same!(cu.word(last)?, 42);
    ok!(cu.cuModuleUnload(module));
    ok!(cu.cuMemUnmap(address, bytes));
    ok!(cu.cuMemRelease(handle));
    ok!(cu.cuMemAddressFree(address, bytes));
    Ok(())
}

fn one_handle_can_be_mapped_twice(cu: &'static Cuda) -> Verdict {
    let bytes = granularity(cu)?;
    let (address, handle) = (reserve(cu, 2 * bytes)?, create(cu, bytes)?);
    let second = address + bytes as u64;
    map(cu, address, bytes, handle)?;
    map(cu, second, bytes, handle)?;
    cu.upload(address, &[77u32])?;
    same!(cu.word(second)?, 77);
    ok!(cu.cuMemUnmap(address, bytes));
    same!(cu.word(second)?, 77);
    ok!(cu.cuMemUnmap(second, bytes));
    ok!(cu.cuMemRelease(handle));
    ok!(cu.cuMemAddressFree(address, 2 * bytes));
    Ok(())
}

fn an_odd_size_is_invalid_value(cu: &'static Cuda) -> Verdict {
    let mut handle = 0;
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemCreate(&mut handle, 1000, &properties(), 0));
    Ok(())
}

fn reserving_nothing_is_invalid_value(cu: &'static Cuda) -> Verdict {
    let mut address = 0;
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemAddressReserve(&mut address, 0, 0, 0, 0));
    Ok(())
}

fn unmapped_memory_cannot_be_copied(cu: &'static Cuda) -> Verdict {
    let bytes = granularity(cu)?;
    let (address, word) = (reserve(cu, bytes)?, 1u32);
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyHtoD_v2(address, std::ptr::from_ref(&word).cast(), 4));
    ok!(cu.cuMemAddressFree(address, bytes));
    Ok(())
}

fn memory_outlives_its_handle_while_mapped(cu: &'static Cuda) -> Verdict {
    let bytes = granularity(cu)?;
    let (address, handle) = (reserve(cu, bytes)?, create(cu, bytes)?);
    map(cu, address, bytes, handle)?;
    cu.upload(address, &[5u32])?;
    ok!(cu.cuMemRelease(handle));
    same!(cu.word(address)?, 5);
    ok!(cu.cuMemUnmap(address, bytes));
    ok!(cu.cuMemAddressFree(address, bytes));
    Ok(())
}

fn access_is_told(cu: &'static Cuda) -> Verdict {
    let bytes = granularity(cu)?;
    let (address, handle) = (reserve(cu, bytes)?, create(cu, bytes)?);
    let (location, mut flags) = (properties().location, 99);
    ok!(cu.cuMemMap(address, bytes, 0, handle, 0));
    ok!(cu.cuMemGetAccess(&mut flags, &location, address));
    same!(flags, u64::from(CU_MEM_ACCESS_FLAGS_PROT_NONE));
    let access = CUmemAccessDesc { location, flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    ok!(cu.cuMemSetAccess(address, bytes, &access, 1));
    ok!(cu.cuMemGetAccess(&mut flags, &location, address));
    same!(flags, u64::from(CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    ok!(cu.cuMemUnmap(address, bytes));
    ok!(cu.cuMemRelease(handle));
    ok!(cu.cuMemAddressFree(address, bytes));
    Ok(())
}

fn properties_are_told(cu: &'static Cuda) -> Verdict {
    let (handle, mut told) = (create(cu, granularity(cu)?)?, zeroed::<CUmemAllocationProp>());
    ok!(cu.cuMemGetAllocationPropertiesFromHandle(&mut told, handle));
    same!((told.type_, told.location.id), (CU_MEM_ALLOCATION_TYPE_PINNED, 0));
    ok!(cu.cuMemRelease(handle));
    Ok(())
}

fn a_mapping_leads_back_to_its_handle(cu: &'static Cuda) -> Verdict {
    let bytes = granularity(cu)?;
    let (address, handle, mut again) = (reserve(cu, bytes)?, create(cu, bytes)?, 0);
    map(cu, address, bytes, handle)?;
    ok!(cu.cuMemRetainAllocationHandle(&mut again, std::ptr::without_provenance_mut(address as usize)));
    same!(again, handle);
    ok!(cu.cuMemRelease(again));
    ok!(cu.cuMemUnmap(address, bytes));
    ok!(cu.cuMemRelease(handle));
    ok!(cu.cuMemAddressFree(address, bytes));
    Ok(())
}

/// What PyTorch's expandable segments do.
fn a_range_grows_piece_by_piece(cu: &'static Cuda) -> Verdict {
    let bytes = granularity(cu)?;
    let address = reserve(cu, 64 * bytes)?;
    let piece = |i: u64| address + i * bytes as u64;
    for i in 0..4 {
        let handle = create(cu, bytes)?;
        map(cu, piece(i), bytes, handle)?;
        ok!(cu.cuMemRelease(handle));
        ok!(cu.cuMemsetD32_v2(piece(i), i as u32, bytes / 4));
    }
    for i in 0..4 {
        same!(cu.word(piece(i))?, i as u32);
    }
    // One copy over the seam of two pieces.
    same!(cu.download::<u32>(piece(1) - 4, 2)?, [0, 1]);
    for i in 0..4 {
        ok!(cu.cuMemUnmap(piece(i), bytes));
    }
    ok!(cu.cuMemAddressFree(address, 64 * bytes));
    Ok(())
}

fn freeing_what_was_not_reserved_is_invalid_value(cu: &'static Cuda) -> Verdict {
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemAddressFree(0x10000, granularity(cu)?));
    Ok(())
}

fn created_memory_is_counted(cu: &'static Cuda) -> Verdict {
    let bytes = granularity(cu)? * 16;
    let (mut before, mut during, mut total) = (0, 0, 0);
    ok!(cu.cuMemGetInfo_v2(&mut before, &mut total));
    let handle = create(cu, bytes)?;
    ok!(cu.cuMemGetInfo_v2(&mut during, &mut total));
    holds!(before - during >= bytes, "{} bytes fewer are free after {bytes} were created", before - during);
    ok!(cu.cuMemRelease(handle));
    Ok(())
}

/// What is not whole, or not there. What cannot be mapped at that address is an invalid value.
fn what_cannot_be_mapped_anywhere_is_not_supported(cu: &'static Cuda) -> Verdict {
    let unit = granularity(cu)?;
    let (address, handle) = (reserve(cu, 2 * unit)?, create(cu, unit)?);
    let at = |beyond: usize| address + beyond as u64;
    for (bytes, offset) in [(4096, 0), (unit / 2, 0), (unit + 4096, 0), (2 * unit, 0), (unit, 4096), (unit, unit)] {
        answers!(CUDA_ERROR_NOT_SUPPORTED, cu.cuMemMap(address, bytes, offset, handle, 0));
    }
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemMap(at(4096), unit, 0, handle, 0));
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemMap(at(1 << 40), unit, 0, handle, 0));
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemMap(address, 0, 0, handle, 0));
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemMap(address, unit, 0, handle, 1));
    ok!(cu.cuMemMap(address, unit, 0, handle, 0));
    ok!(cu.cuMemUnmap(address, unit));
    ok!(cu.cuMemRelease(handle));
    ok!(cu.cuMemAddressFree(address, 2 * unit));
    Ok(())
}
