//! The driver: a real libcuda loaded by path, or the software GPU. Both are the same table of functions.

// UNSAFETY: loads a shared library and calls it.

use std::ffi::{CStr, c_void};
use std::path::PathBuf;
use std::ptr;

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;
use orion_wire::agent::Gpu;
use orion_wire::hello::{Device, PEER_ACCESS, PEER_ATOMICS, PEER_SAME_GPU, PcieLink, RELEASE_BYTES_MAX};
use orion_wire::text::acts;

use crate::vgpu::set_apart;
use crate::worker::driver::cupti;
use crate::worker::driver::rounding::Rounding;

/// NVIDIA's longest are half of that.
const GPU_NAME_CHARS_MAX: usize = 64;

pub fn is_software(name: &str) -> bool {
    name == "soft"
}

/// Loads `soft`, or the libcuda at a path. Never Orion's own shim, which would call itself.
pub fn load(name: &str) -> Result<Driver, String> {
    if is_software(name) {
        // SAFETY: the software GPU implements each function with the header's signature.
        return Ok(unsafe { Driver::load(&mut |symbol| orion_soft::symbol(symbol).unwrap_or(ptr::null())) });
    }
    // SAFETY: runs the initialisers of the library that the operator named.
    let library = unsafe { libloading::Library::new(name) }
        .map_err(|e| format!("loading the driver {name} failed: {e}; is an NVIDIA driver installed?"))?;
    // SAFETY: only the presence of the symbol matters.
    if unsafe { library.get::<*const c_void>(b"orion_shim_marker\0") }.is_ok() {
        return Err(format!("{name} is Orion's own libcuda, not a driver; give the path of NVIDIA's with --driver"));
    }
    let library = Box::leak(Box::new(library));
    let mut find = |symbol: &str| {
        let mut name = symbol.as_bytes().to_vec();
        name.push(0);
        // SAFETY: the address is only used with the signature of the header for that name.
        unsafe { library.get::<*const c_void>(name.as_slice()) }.map_or(ptr::null(), |s| *s)
    };
    // SAFETY: NVIDIA's libcuda implements each function with its header's signature; the library stays loaded.
    Ok(unsafe { Driver::load(&mut find) })
}

/// Loads libraries that NVIDIA's driver opens when it first needs them, which a sealed worker cannot: its compiler of
/// PTX, and what that needs for intermediate code; and the profiler. Returns what is read again: the driver's own file,
/// at which the profiler looks.
pub fn load_late_libraries(driver: &str, profiler: &cupti::Source) -> Vec<PathBuf> {
    if is_software(driver) {
        return Vec::new();
    }
    let own = std::fs::canonicalize(driver).unwrap_or_else(|_| driver.into());
    let version = own.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_prefix("libcuda.so.")).unwrap_or("1");
    let names = [
        "libnvidia-ptxjitcompiler.so.1".to_owned(),
        "libnvidia-nvvm.so.4".to_owned(),
        format!("libnvidia-gpucomp.so.{version}"),
    ];
    for name in names {
        let beside = own.with_file_name(&name);
        for path in [PathBuf::from(&name), beside] {
            // SAFETY: runs the initialisers of a library of the driver that the operator named.
            if let Ok(library) = unsafe { libloading::Library::new(&path) } {
                std::mem::forget(library);
                break;
            }
        }
    }
    cupti::load_early(profiler);
    vec![own]
}

/// How it rounds what it allocates. NVIDIA's driver gives larger allocations pages of 2 MiB, and smaller ones parts of
/// such pages.
pub fn rounding(name: &str) -> Rounding {
    match is_software(name) {
        true => Rounding { granule: 512, page: 512 },
        false => Rounding { granule: 512, page: 2 << 20 },
    }
}

pub fn version(driver: &Driver) -> u32 {
    let mut version = 0;
    // SAFETY: a valid out pointer.
    unsafe { driver.cuDriverGetVersion(&mut version) };
    version as u32
}

/// A device as the agent of a pool hears of it.
pub fn gpu(driver: &Driver, device: CUdevice) -> Gpu {
    let mut text = [0i8; 256];
    let mut gpu = Gpu { uuid: [0; 16], name: String::new(), memory_bytes: 0 };
    // SAFETY: plain calls with valid out pointers and their lengths; the string is NUL-terminated on success.
    unsafe {
        if driver.cuDeviceGetName(text.as_mut_ptr(), text.len() as i32, device) == CUDA_SUCCESS {
            let name = CStr::from_ptr(text.as_ptr()).to_string_lossy();
            gpu.name = name.chars().filter(|c| !acts(*c)).take(GPU_NAME_CHARS_MAX).collect();
        }
        let mut uuid: CUuuid = std::mem::zeroed();
        if driver.cuDeviceGetUuid_v2(&mut uuid, device) == CUDA_SUCCESS {
            gpu.uuid = uuid.bytes.map(|b| b as u8);
        }
        let mut total = 0usize;
        driver.cuDeviceTotalMem_v2(&mut total, device);
        gpu.memory_bytes = total as u64;
    }
    gpu
}

/// What the shim may answer about a device, or the vGPU of that number on it. A context of the first device is current.
pub fn describe(driver: &Driver, device: CUdevice, number: u32, link: PcieLink) -> Device {
    let mut d = Device::default();
    let mut text = [0i8; 256];
    // SAFETY: plain calls with valid out pointers and their lengths; the strings are NUL-terminated on success.
    unsafe {
        if driver.cuDeviceGetName(text.as_mut_ptr(), text.len() as i32, device) == CUDA_SUCCESS {
            d.name = CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned();
        }
        if driver.cuDeviceGetPCIBusId(text.as_mut_ptr(), text.len() as i32, device) == CUDA_SUCCESS {
            d.pci_bus_id = CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned();
        }
        let mut uuid: CUuuid = std::mem::zeroed();
        if driver.cuDeviceGetUuid_v2(&mut uuid, device) == CUDA_SUCCESS {
            d.uuid = uuid.bytes.map(|b| b as u8);
        }
        let mut total = 0usize;
        driver.cuDeviceTotalMem_v2(&mut total, device);
        d.total_memory = total as u64;
        for id in 1..CU_DEVICE_ATTRIBUTE_MAX {
            let mut value = 0;
            if driver.cuDeviceGetAttribute(&mut value, id, device) == CUDA_SUCCESS {
                d.attributes.push((id, value));
            }
        }
        let (mut least, mut greatest) = (0, 0);
        driver.cuCtxGetStreamPriorityRange(&mut least, &mut greatest);
        d.stream_priorities = (least, greatest);
        for limit in 0..CU_LIMIT_MAX {
            let mut value = 0usize;
            if driver.cuCtxGetLimit(&mut value, limit) == CUDA_SUCCESS {
                d.limits.push((limit, value as u64));
            }
        }
        let mut plain: CUmemAllocationProp = std::mem::zeroed();
        plain.type_ = CU_MEM_ALLOCATION_TYPE_PINNED;
        plain.location.type_ = CU_MEM_LOCATION_TYPE_DEVICE;
        plain.location.id = device;
        let mut granularity = [0usize; 2];
        for (i, option) in [CU_MEM_ALLOC_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED].iter().enumerate() {
            driver.cuMemGetAllocationGranularity(&mut granularity[i], &plain, *option);
        }
        d.granularity = (granularity[0] as u64, granularity[1] as u64);
    }
    d.pcie = link;
    if number > 0 {
        set_apart(&mut d, number);
    }
    d
}

/// What the software GPU says, for programs that want to hear something: the link of those with its capability.
const SOFTWARE_LINK: PcieLink = PcieLink { generation: 5, generation_max: 5, width: 16, width_max: 16 };

/// As Linux says in sysfs, which a worker in its cell cannot read; zeros of what it does not say.
pub fn pcie_link(driver: &Driver, is_software: bool, device: CUdevice) -> PcieLink {
    if is_software {
        return SOFTWARE_LINK;
    }
    let mut text = [0i8; 32];
    // SAFETY: a valid out pointer and its length.
    if unsafe { driver.cuDeviceGetPCIBusId(text.as_mut_ptr(), text.len() as i32, device) } != CUDA_SUCCESS {
        return PcieLink::default();
    }
    // SAFETY: NUL-terminated on success.
    let bus_id = unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().to_lowercase();
    let folder = std::path::Path::new("/sys/bus/pci/devices").join(bus_id);
    let read = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap_or_default();
    PcieLink {
        generation: generation_of(&read("current_link_speed")),
        generation_max: generation_of(&read("max_link_speed")),
        width: read("current_link_width").trim().parse().unwrap_or(0),
        width_max: read("max_link_width").trim().parse().unwrap_or(0),
    }
}

/// Of the kernel's module, which a worker in its cell cannot ask; empty where that is not there, as beside the software
/// GPU or on Windows' Linux.
pub fn release(is_software: bool) -> String {
    let read = || std::fs::read_to_string("/sys/module/nvidia/version").unwrap_or_default();
    if is_software { String::new() } else { release_in(&read()) }
}

fn release_in(text: &str) -> String {
    let is_part = |c: char| c.is_ascii_digit() || c == '.';
    let text = text.trim();
    let is_release = text.contains('.') && text.chars().all(is_part) && text.len() <= RELEASE_BYTES_MAX;
    if is_release { text.to_owned() } else { String::new() }
}

/// Of a speed as in `32.0 GT/s PCIe`; 0 of what is none.
fn generation_of(speed: &str) -> u16 {
    let speeds = ["2.5", "5.0", "8.0", "16.0", "32.0", "64.0"];
    let known = speeds.iter().position(|known| speed.split(' ').next() == Some(known));
    known.map_or(0, |place| place as u16 + 1)
}

/// `[i * n + j]`: how device i can access device j, of [`orion_wire::hello`]'s `PEER_*`.
pub fn peer_access(driver: &Driver, devices: &[CUdevice]) -> Vec<u8> {
    let way = |a: CUdevice, b: CUdevice| {
        if a == b {
            return PEER_SAME_GPU;
        }
        let (mut can, mut atomics) = (0, 0);
        // SAFETY: a valid out pointer.
        if unsafe { driver.cuDeviceCanAccessPeer(&mut can, a, b) } != CUDA_SUCCESS || can == 0 {
            return 0;
        }
        let which = CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED;
        // SAFETY: the same.
        let code = unsafe { driver.cuDeviceGetP2PAttribute(&mut atomics, which, a, b) };
        PEER_ACCESS | if code == CUDA_SUCCESS && atomics != 0 { PEER_ATOMICS } else { 0 }
    };
    devices.iter().flat_map(|a| devices.iter().map(move |b| way(*a, *b))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_are_told_by_their_speeds() {
        let known = ["2.5 GT/s PCIe\n", "8.0 GT/s PCIe\n", "32.0 GT/s PCIe\n", "Unknown\n", ""];
        assert_eq!(known.map(generation_of), [1, 3, 5, 0, 0]);
    }

    #[test]
    fn a_release_is_numbers_with_dots_and_nothing_else_is() {
        assert_eq!(["580.159.04\n", "470.82"].map(release_in), ["580.159.04", "470.82"]);
        let long = "1.".repeat(16);
        for text in ["", "\n", "580", "580.x", "NVRM version: 580.159.04", &long] {
            assert_eq!(release_in(text), "", "{text:?}");
        }
    }
}
