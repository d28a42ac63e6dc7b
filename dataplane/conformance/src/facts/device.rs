//! Questions about devices.

use std::ffi::{CStr, c_char};
use std::ptr::null_mut;

use orion_cuda::sys::*;

use crate::driver::Cuda;
use crate::fact::{Verdict, answers, facts, holds, ok, same};
use crate::lab::{Get, zeroed};

facts! { device:
    Init [
        there_is_at_least_one,
        the_handle_of_device_zero_is_zero,
        an_ordinal_past_the_last_is_invalid_device,
        a_negative_ordinal_is_invalid_device,
        the_count_into_null_is_invalid_value,
        the_name_is_not_empty,
        the_name_ends_within_its_buffer,
        the_memory_is_positive,
        a_warp_is_32_threads,
        limits_are_those_every_gpu_has,
        addresses_are_unified,
        the_capability_is_told_the_same_twice,
        an_unknown_attribute_is_invalid_value,
        attributes_of_an_unknown_device_are_invalid_device,
        the_uuid_is_stable_and_not_zero,
        the_bus_id_agrees_with_the_attributes,
        the_bus_id_leads_back_to_the_device,
        it_has_a_default_memory_pool,
        a_device_is_no_peer_of_itself,
        old_properties_agree_with_attributes,
    ]
    Context [
        total_memory_is_what_the_context_says,
        managed_memory_is_there_if_the_attribute_says_so,
    ]
}

fn there_is_at_least_one(cu: &'static Cuda) -> Verdict {
    let mut count = 0;
    ok!(cu.cuDeviceGetCount(&mut count));
    holds!(count >= 1, "{count} devices");
    Ok(())
}

fn the_handle_of_device_zero_is_zero(cu: &'static Cuda) -> Verdict {
    let mut device = -1;
    ok!(cu.cuDeviceGet(&mut device, 0));
    same!(device, 0);
    Ok(())
}

fn an_ordinal_past_the_last_is_invalid_device(cu: &'static Cuda) -> Verdict {
    let (mut count, mut device) = (0, 0);
    ok!(cu.cuDeviceGetCount(&mut count));
    answers!(CUDA_ERROR_INVALID_DEVICE, cu.cuDeviceGet(&mut device, count));
    Ok(())
}

fn a_negative_ordinal_is_invalid_device(cu: &'static Cuda) -> Verdict {
    let mut device = 0;
    answers!(CUDA_ERROR_INVALID_DEVICE, cu.cuDeviceGet(&mut device, -1));
    Ok(())
}

fn the_count_into_null_is_invalid_value(cu: &'static Cuda) -> Verdict {
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuDeviceGetCount(null_mut()));
    Ok(())
}

fn name(cu: &Cuda, room: usize) -> Get<Vec<u8>> {
    let mut bytes = vec![b'#'; 256];
    ok!(cu.cuDeviceGetName(bytes.as_mut_ptr().cast(), room as i32, 0));
    Ok(bytes)
}

fn the_name_is_not_empty(cu: &'static Cuda) -> Verdict {
    let bytes = name(cu, 256)?;
    let name = CStr::from_bytes_until_nul(&bytes).map_err(|_| "the name has no end".to_string())?;
    holds!(!name.is_empty(), "the name is empty");
    Ok(())
}

fn the_name_ends_within_its_buffer(cu: &'static Cuda) -> Verdict {
    let (whole, cut) = (name(cu, 256)?, name(cu, 4)?);
    same!(&cut[..3], &whole[..3]);
    same!(cut[3], 0);
    same!(cut[4], b'#');
    Ok(())
}

fn the_memory_is_positive(cu: &'static Cuda) -> Verdict {
    let mut bytes = 0;
    ok!(cu.cuDeviceTotalMem_v2(&mut bytes, 0));
    holds!(bytes > 0, "no memory");
    Ok(())
}

fn a_warp_is_32_threads(cu: &'static Cuda) -> Verdict {
    same!(cu.attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE)?, 32);
    Ok(())
}

fn limits_are_those_every_gpu_has(cu: &'static Cuda) -> Verdict {
    for (attribute, expected) in [
        (CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024),
        (CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024),
        (CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024),
        (CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64),
        (CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 0x7fff_ffff),
        (CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535),
        (CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535),
        (CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152),
        (CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536),
    ] {
        let value = cu.attribute(attribute)?;
        holds!(value == expected, "attribute {attribute} is {value}, expected {expected}");
    }
    Ok(())
}

fn addresses_are_unified(cu: &'static Cuda) -> Verdict {
    same!(cu.attribute(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING)?, 1);
    same!(cu.attribute(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY)?, 1);
    Ok(())
}

fn the_capability_is_told_the_same_twice(cu: &'static Cuda) -> Verdict {
    let (mut major, mut minor) = (0, 0);
    ok!(cu.cuDeviceComputeCapability(&mut major, &mut minor, 0));
    same!(major, cu.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?);
    same!(minor, cu.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?);
    holds!((major, minor) >= (7, 5), "capability {major}.{minor} is older than CUDA 13 supports");
    Ok(())
}

fn an_unknown_attribute_is_invalid_value(cu: &'static Cuda) -> Verdict {
    let mut value = 0;
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuDeviceGetAttribute(&mut value, 0, 0));
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuDeviceGetAttribute(&mut value, 100_000, 0));
    Ok(())
}

fn attributes_of_an_unknown_device_are_invalid_device(cu: &'static Cuda) -> Verdict {
    let mut value = 0;
    answers!(CUDA_ERROR_INVALID_DEVICE, cu.cuDeviceGetAttribute(&mut value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 4096));
    Ok(())
}

fn the_uuid_is_stable_and_not_zero(cu: &'static Cuda) -> Verdict {
    let (mut first, mut second): (CUuuid, CUuuid) = (zeroed(), zeroed());
    ok!(cu.cuDeviceGetUuid_v2(&mut first, 0));
    ok!(cu.cuDeviceGetUuid_v2(&mut second, 0));
    same!(first.bytes, second.bytes);
    holds!(first.bytes.iter().any(|b| *b != 0), "the UUID is all zeroes");
    Ok(())
}

fn bus_id(cu: &Cuda) -> Get<Vec<u8>> {
    let mut bytes = vec![0u8; 64];
    ok!(cu.cuDeviceGetPCIBusId(bytes.as_mut_ptr().cast::<c_char>(), 64, 0));
    Ok(bytes)
}

fn the_bus_id_agrees_with_the_attributes(cu: &'static Cuda) -> Verdict {
    let bytes = bus_id(cu)?;
    let id = CStr::from_bytes_until_nul(&bytes).expect("the buffer is larger than any id").to_string_lossy();
    let expected = format!(
        "{:04x}:{:02x}:{:02x}.0",
        cu.attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?,
        cu.attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?,
        cu.attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?
    );
    same!(id.to_lowercase(), expected);
    Ok(())
}

fn the_bus_id_leads_back_to_the_device(cu: &'static Cuda) -> Verdict {
    let (bytes, mut device) = (bus_id(cu)?, -1);
    ok!(cu.cuDeviceGetByPCIBusId(&mut device, bytes.as_ptr().cast()));
    same!(device, 0);
    Ok(())
}

fn it_has_a_default_memory_pool(cu: &'static Cuda) -> Verdict {
    let (mut default, mut current) = (null_mut(), null_mut());
    ok!(cu.cuDeviceGetDefaultMemPool(&mut default, 0));
    ok!(cu.cuDeviceGetMemPool(&mut current, 0));
    holds!(!default.is_null(), "no default pool");
    same!(current, default);
    Ok(())
}

fn a_device_is_no_peer_of_itself(cu: &'static Cuda) -> Verdict {
    let mut value = 1;
    ok!(cu.cuDeviceCanAccessPeer(&mut value, 0, 0));
    same!(value, 0);
    answers!(
        CUDA_ERROR_INVALID_DEVICE,
        cu.cuDeviceGetP2PAttribute(&mut value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0)
    );
    Ok(())
}

fn old_properties_agree_with_attributes(cu: &'static Cuda) -> Verdict {
    let mut properties: CUdevprop = zeroed();
    ok!(cu.cuDeviceGetProperties(&mut properties, 0));
    same!(properties.maxThreadsPerBlock, cu.attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?);
    same!(properties.SIMDWidth, 32);
    same!(properties.maxGridSize, [0x7fff_ffff, 65535, 65535]);
    same!(properties.clockRate, cu.attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?);
    Ok(())
}

fn total_memory_is_what_the_context_says(cu: &'static Cuda) -> Verdict {
    let (mut device_bytes, mut free, mut total) = (0, 0, 0);
    ok!(cu.cuDeviceTotalMem_v2(&mut device_bytes, 0));
    ok!(cu.cuMemGetInfo_v2(&mut free, &mut total));
    same!(total, device_bytes);
    holds!(free <= total, "{free} of {total} bytes are free");
    Ok(())
}

fn managed_memory_is_there_if_the_attribute_says_so(cu: &'static Cuda) -> Verdict {
    let mut address = 0;
    let code = cu.cuMemAllocManaged(&mut address, 4096, CU_MEM_ATTACH_GLOBAL);
    match cu.attribute(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY)? {
        0 => answers!(CUDA_ERROR_NOT_SUPPORTED, code),
        _ => {
            answers!(CUDA_SUCCESS, code);
            cu.free(address)?;
        }
    }
    Ok(())
}
