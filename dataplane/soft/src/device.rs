//! The device model: count, names, attributes, memory accounting.

// UNSAFETY: C entry points.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use orion_cuda::sys::*;

use crate::api::{R, api, get, put, text};

/// Two partitions of the size that compute capability 9.0 asks for.
pub const SM_COUNT: u32 = 16;
pub const DRIVER_VERSION: c_int = 13000;
pub const SHARED_DEFAULT: u32 = 48 << 10;
pub const SHARED_OPTIN: u32 = 227 << 10;
pub const DEVICES_MAX: usize = 8;

struct Model {
    count: usize,
    memory_bytes: u64,
    /// `90` is 9.0.
    capability: u32,
}

const CAPABILITY: u32 = 90;

fn model() -> &'static Model {
    static MODEL: OnceLock<Model> = OnceLock::new();
    MODEL.get_or_init(|| {
        settings(|name| std::env::var(name).ok()).unwrap_or(Model { count: 0, memory_bytes: 0, capability: CAPABILITY })
    })
}

/// What the environment says about the devices, or why it cannot be.
fn settings(variable: impl Fn(&str) -> Option<String>) -> Result<Model, String> {
    let number = |name: &str, usual: u64, range: std::ops::RangeInclusive<u64>| {
        let Some(text) = variable(name).filter(|text| !text.is_empty()) else { return Ok(usual) };
        text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
            format!("{name}={text} is not a number from {} to {}; leave it out for {usual}", range.start(), range.end())
        })
    };
    let name = "ORION_SOFT_CAPABILITY";
    let capability = match variable(name).filter(|text| !text.is_empty()) {
        None => CAPABILITY,
        Some(text) => capability_of(&text).ok_or_else(|| {
            format!("{name}={text} is not a compute capability from 7.5 to 13.9, such as 9.0; leave it out for 9.0")
        })?,
    };
    Ok(Model {
        capability,
        count: number("ORION_SOFT_DEVICES", 1, 1..=DEVICES_MAX as u64)? as usize,
        memory_bytes: number("ORION_SOFT_MEMORY_MIB", 4096, 16..=1 << 20)? << 20,
    })
}

/// `9.0` is 90.
fn capability_of(text: &str) -> Option<u32> {
    let (major, minor) = text.split_once('.')?;
    let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    (minor <= 9).then_some(10 * major.min(99) + minor).filter(|capability| (75..=139).contains(capability))
}

/// The compute capability that the devices report; `90` is 9.0. What they can do is the same with any.
pub fn capability() -> u32 {
    model().capability
}

/// What is wrong with the environment's settings for the devices. With those there is no device.
pub fn objection() -> Option<String> {
    settings(|name| std::env::var(name).ok()).err()
}

/// The seed of the pauses that streams make, if they are to make any.
pub fn jitter() -> Option<u64> {
    static SEED: OnceLock<Option<u64>> = OnceLock::new();
    *SEED.get_or_init(|| {
        let text = std::env::var("ORION_SOFT_JITTER").ok()?;
        let seed = text.parse().ok();
        if seed.is_none() {
            eprintln!("orion-soft: ORION_SOFT_JITTER is {text:?}, not a number: streams make no pauses");
        }
        seed
    })
}

static USED: [AtomicU64; DEVICES_MAX] = [const { AtomicU64::new(0) }; DEVICES_MAX];

static INITIALISED: AtomicBool = AtomicBool::new(false);

pub fn count() -> usize {
    model().count
}

pub fn total_bytes() -> u64 {
    model().memory_bytes
}

pub fn used_bytes(device: i32) -> u64 {
    USED.get(device as usize).map_or(0, |u| u.load(Ordering::Relaxed))
}

/// Takes memory from a device; `None` when it has too little left.
pub fn charge(device: i32, bytes: u64) -> Option<()> {
    let used = USED.get(device as usize)?;
    used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |u| u.checked_add(bytes).filter(|&u| u <= total_bytes()))
        .ok()
        .map(drop)
}

pub fn refund(device: i32, bytes: u64) {
    if let Some(used) = USED.get(device as usize) {
        used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

thread_local! {
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// Runs an application's host function, which may not call CUDA.
pub fn host_function(f: impl FnOnce()) {
    IN_HOST_FUNCTION.set(true);
    f();
    IN_HOST_FUNCTION.set(false);
}

pub fn initialised() -> R {
    if IN_HOST_FUNCTION.get() {
        return Err(CUDA_ERROR_NOT_PERMITTED);
    }
    if INITIALISED.load(Ordering::Relaxed) { Ok(()) } else { Err(CUDA_ERROR_NOT_INITIALIZED) }
}

pub fn check(dev: CUdevice) -> R<i32> {
    initialised()?;
    if (0..count() as i32).contains(&dev) { Ok(dev) } else { Err(CUDA_ERROR_INVALID_DEVICE) }
}

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
        CU_DEVICE_ATTRIBUTE_PCI_BUS_ID => 0x40 + dev,
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
    format!("0000:{:02X}:00.0", 0x40 + dev)
}

fn uuid(dev: i32) -> CUuuid {
    let mut bytes = *b"orion-soft-gpu-0";
    bytes[15] = b'0' + dev as u8;
    CUuuid { bytes: bytes.map(|b| b as c_char) }
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
    fn cuInit(flags: c_uint) {
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        INITIALISED.store(true, Ordering::Relaxed);
        Ok(())
    }
    fn cuDriverGetVersion(version: *mut c_int) {
        put(version, DRIVER_VERSION)
    }
    fn cuGetErrorName(error: CUresult, out: *mut *const c_char) {
        match crate::errors::describe(error) {
            Some((name, _)) => put(out, name.as_ptr()),
            None => {
                crate::api::put_some(out, std::ptr::null());
                Err(CUDA_ERROR_INVALID_VALUE)
            }
        }
    }
    fn cuGetErrorString(error: CUresult, out: *mut *const c_char) {
        match crate::errors::describe(error) {
            Some((_, text)) => put(out, text.as_ptr()),
            None => {
                crate::api::put_some(out, std::ptr::null());
                Err(CUDA_ERROR_INVALID_VALUE)
            }
        }
    }
    fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int) {
        put(device, check(ordinal)?)
    }
    fn cuDeviceGetCount(n: *mut c_int) {
        initialised()?;
        put(n, count() as c_int)
    }
    fn cuDeviceGetName(name: *mut c_char, len: c_int, dev: CUdevice) {
        check(dev)?;
        put_text(name, len, "Orion software GPU")
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
    fn cuDeviceCanAccessPeer(can: *mut c_int, dev: CUdevice, peer: CUdevice) {
        let (dev, peer) = (check(dev)?, check(peer)?);
        put(can, c_int::from(dev != peer))
    }
    fn cuDeviceGetP2PAttribute(value: *mut c_int, attrib: CUdevice_P2PAttribute, src: CUdevice, dst: CUdevice) {
        let (src, dst) = (check(src)?, check(dst)?);
        if src == dst {
            return Err(CUDA_ERROR_INVALID_DEVICE);
        }
        put(value, match attrib {
            CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED
            | CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED
            | CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED => 1,
            _ => 0,
        })
    }
    fn cuFlushGPUDirectRDMAWrites(
        _target: CUflushGPUDirectRDMAWritesTarget,
        _scope: CUflushGPUDirectRDMAWritesScope,
    ) {
        std::sync::atomic::fence(Ordering::SeqCst);
        Ok(())
    }
    fn cuGetProcAddress(symbol: *const c_char, pfn: *mut *mut c_void, version: c_int, _flags: cuuint64_t) {
        let hit = crate::versioned_symbol(&text(symbol)?, version);
        put(pfn, hit.unwrap_or(std::ptr::null()).cast_mut())?;
        if hit.is_some() { Ok(()) } else { Err(CUDA_ERROR_NOT_FOUND) }
    }
    fn cuGetProcAddress_v2(
        symbol: *const c_char,
        pfn: *mut *mut c_void,
        version: c_int,
        _flags: cuuint64_t,
        status: *mut CUdriverProcAddressQueryResult,
    ) {
        let name = text(symbol)?;
        get(pfn)?;
        let hit = crate::versioned_symbol(&name, version);
        put(pfn, hit.unwrap_or(std::ptr::null()).cast_mut())?;
        let found = if hit.is_some() { CU_GET_PROC_ADDRESS_SUCCESS } else { CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND };
        crate::api::put_some(status, found);
        if hit.is_some() { Ok(()) } else { Err(CUDA_ERROR_NOT_FOUND) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_make_no_sense_are_said_to_be_so() {
        let with = |devices: &'static str, mib: &'static str| {
            settings(move |name| match name {
                "ORION_SOFT_DEVICES" => Some(devices.to_owned()),
                "ORION_SOFT_MEMORY_MIB" => Some(mib.to_owned()),
                _ => None,
            })
        };
        assert!(with("", "").is_ok_and(|m| (m.count, m.memory_bytes) == (1, 4 << 30)));
        assert!(with("8", "16").is_ok_and(|m| (m.count, m.memory_bytes) == (8, 16 << 20)));
        for (devices, mib, wrong) in [
            ("abc", "", "ORION_SOFT_DEVICES=abc"),
            ("0", "", "=0"),
            ("9", "", "=9"),
            ("1", "15", "MIB=15"),
            ("1", "1G", "1G"),
        ] {
            let Err(said) = with(devices, mib) else { panic!("{devices:?} and {mib:?} were taken") };
            assert!(said.contains(wrong) && said.contains(" to "), "{said}");
        }
    }

    #[test]
    fn a_compute_capability_is_two_numbers() {
        for (text, capability) in [("9.0", Some(90)), ("7.5", Some(75)), ("13.0", Some(130)), ("12.1", Some(121))] {
            assert_eq!(capability_of(text), capability, "{text}");
        }
        for text in ["", "9", "90", "7.4", "14.0", "9.10", "-9.0", "a.b", "9.0.1", "4294967295.9"] {
            assert_eq!(capability_of(text), None, "{text}");
        }
        let said = settings(|name| (name == "ORION_SOFT_CAPABILITY").then(|| "90".to_owned())).err();
        assert!(said.is_some_and(|said| said.contains("ORION_SOFT_CAPABILITY=90 is not")));
    }
}
