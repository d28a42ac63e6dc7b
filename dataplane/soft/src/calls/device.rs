//! Devices: attributes, names, identifiers.

// UNSAFETY: C entry points.

use std::ffi::{c_char, c_int, c_uint};
use std::sync::atomic::Ordering;

use orion_cuda::sys::*;

use crate::api::{R, api, put, text};
use crate::device::{
    SHARED_DEFAULT, SHARED_OPTIN, SM_COUNT, capability, check, count, initialised, number, total_bytes,
};

fn attribute(attrib: CUdevice_attribute, dev: i32) -> Option<c_int> {
    Some(match attrib {
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK => 1024,
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X | CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y => 1024,
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z => 64,
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X => i32::MAX,
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y | CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z => 65535,
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK => SHARED_DEFAULT as c_int,
        CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY => 65536,
        CU_DEVICE_ATTRIBUTE_WARP_SIZE => 32,
        CU_DEVICE_ATTRIBUTE_MAX_PITCH => i32::MAX,
        CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK | CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR => 65536,
        CU_DEVICE_ATTRIBUTE_CLOCK_RATE => 1_000_000,
        CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT | CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT => 512,
        CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT => 32,
        CU_DEVICE_ATTRIBUTE_GPU_OVERLAP
        | CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY
        | CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS
        | CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING
        | CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY
        | CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
        | CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH
        | CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH
        | CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS
        | CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR
        | CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES
        | CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT
        | CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING => 1,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT => SM_COUNT as c_int,
        CU_DEVICE_ATTRIBUTE_PCI_BUS_ID => 0x40 + number(dev),
        CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE => 1_000_000,
        CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH => 128,
        CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE => 4 << 20,
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR => 2048,
        CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT => 2,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => (capability() / 10) as c_int,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR => (capability() % 10) as c_int,
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR => 228 << 10,
        CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO => 2,
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN => SHARED_OPTIN as c_int,
        CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR => 32,
        CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK => 1024,
        CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID | CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID => 0,
        CU_DEVICE_ATTRIBUTE_NUMA_ID | CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID => -1,
        0 | CU_DEVICE_ATTRIBUTE_MAX.. => return None,
        _ => crate::array::limit(attrib).unwrap_or(0),
    })
}

fn bus_id(dev: i32) -> String {
    format!("0000:{:02X}:00.0", 0x40 + number(dev))
}

fn uuid(dev: i32) -> CUuuid {
    CUuuid { bytes: crate::device::uuid(number(dev)).map(|b| b as c_char) }
}

/// # Safety
/// `to` is null or has room for `len` characters.
unsafe fn put_text(to: *mut c_char, len: c_int, from: &str) -> R {
    if to.is_null() || len <= 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let n = from.len().min(len as usize - 1);
    // SAFETY: n + 1 characters fit, by the line above and this function's contract.
    unsafe {
        std::ptr::copy_nonoverlapping(from.as_ptr().cast(), to, n);
        to.add(n).write(0);
    }
    Ok(())
}

api! {
    fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int) {
        put(device, check(ordinal)?)
    }
    fn cuDeviceGetCount(n: *mut c_int) {
        initialised()?;
        put(n, count() as c_int)
    }
    fn cuDeviceGetName(name: *mut c_char, len: c_int, dev: CUdevice) {
        check(dev)?;
        put_text(name, len, orion_cuda::SOFTWARE_GPU)
    }
    fn cuDeviceGetUuid(out: *mut CUuuid, dev: CUdevice) {
        put(out, uuid(check(dev)?))
    }
    fn cuDeviceGetUuid_v2(out: *mut CUuuid, dev: CUdevice) {
        put(out, uuid(check(dev)?))
    }
    fn cuDeviceTotalMem_v2(bytes: *mut usize, dev: CUdevice) {
        check(dev)?;
        put(bytes, total_bytes() as usize)
    }
    fn cuDeviceGetAttribute(pi: *mut c_int, attrib: CUdevice_attribute, dev: CUdevice) {
        let dev = check(dev)?;
        put(pi, attribute(attrib, dev).ok_or(CUDA_ERROR_INVALID_VALUE)?)
    }
    fn cuDeviceGetTexture1DLinearMaxWidth(max: *mut usize, _format: CUarray_format, _channels: c_uint, dev: CUdevice) {
        check(dev)?;
        put(max, 1 << 28)
    }
    fn cuDeviceComputeCapability(major: *mut c_int, minor: *mut c_int, dev: CUdevice) {
        check(dev)?;
        put(major, (capability() / 10) as c_int)?;
        put(minor, (capability() % 10) as c_int)
    }
    fn cuDeviceGetProperties(prop: *mut CUdevprop, dev: CUdevice) {
        check(dev)?;
        put(prop, CUdevprop {
            maxThreadsPerBlock: 1024,
            maxThreadsDim: [1024, 1024, 64],
            maxGridSize: [i32::MAX, 65535, 65535],
            sharedMemPerBlock: SHARED_DEFAULT as c_int,
            totalConstantMemory: 65536,
            SIMDWidth: 32,
            memPitch: i32::MAX,
            regsPerBlock: 65536,
            clockRate: 1_000_000,
            textureAlign: 512,
        })
    }
    fn cuDeviceGetPCIBusId(out: *mut c_char, len: c_int, dev: CUdevice) {
        let dev = check(dev)?;
        put_text(out, len, &bus_id(dev))
    }
    fn cuDeviceGetByPCIBusId(dev: *mut CUdevice, id: *const c_char) {
        initialised()?;
        let id = text(id)?.to_uppercase();
        let hit = (0..count() as i32).find(|&d| bus_id(d).ends_with(&id) || id.ends_with(&bus_id(d)));
        put(dev, hit.ok_or(CUDA_ERROR_INVALID_DEVICE)?)
    }
    fn cuDeviceGetExecAffinitySupport(pi: *mut c_int, _kind: CUexecAffinityType, dev: CUdevice) {
        check(dev)?;
        put(pi, 0)
    }
    fn cuFlushGPUDirectRDMAWrites(
        _target: CUflushGPUDirectRDMAWritesTarget,
        _scope: CUflushGPUDirectRDMAWritesScope,
    ) {
        std::sync::atomic::fence(Ordering::SeqCst);
        Ok(())
    }
}
