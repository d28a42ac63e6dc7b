//! The functions that are answered.

// UNSAFETY: pointers of NVML's interface are null or valid for what the function reads or writes.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong};

use orion_cuda::nvml_table::Device;

use crate::library::{self, devices};
use crate::types::*;

/// Does not ask a server, as NVIDIA's does not open a device: whether there is one shows with the first device.
pub unsafe fn nvmlInit_v2() -> nvmlReturn_t {
    library::initialize()
}

pub unsafe fn nvmlInit() -> nvmlReturn_t {
    library::initialize()
}

/// The flags say what may be missing, and whatever they say nothing is asked for here.
pub unsafe fn nvmlInitWithFlags(_flags: c_uint) -> nvmlReturn_t {
    library::initialize()
}

pub unsafe fn nvmlShutdown() -> nvmlReturn_t {
    library::shut_down()
}

pub unsafe fn nvmlErrorString(result: nvmlReturn_t) -> *const c_char {
    let text = match result {
        NVML_SUCCESS => c"Success",
        NVML_ERROR_UNINITIALIZED => c"Uninitialized",
        NVML_ERROR_INVALID_ARGUMENT => c"Invalid Argument",
        NVML_ERROR_NOT_SUPPORTED => c"Not Supported",
        NVML_ERROR_NO_PERMISSION => c"Insufficient Permissions",
        5 => c"Already Initialized",
        NVML_ERROR_NOT_FOUND => c"Not Found",
        NVML_ERROR_INSUFFICIENT_SIZE => c"Insufficient Size",
        8 => c"Insufficient External Power",
        NVML_ERROR_DRIVER_NOT_LOADED => c"Driver Not Loaded",
        10 => c"Timeout",
        11 => c"Interrupt Request Issue",
        12 => c"NVML Shared Library Not Found",
        13 => c"Function Not Found",
        14 => c"Corrupted infoROM",
        NVML_ERROR_GPU_IS_LOST => c"GPU is lost",
        16 => c"GPU requires reset",
        17 => c"GPU access blocked by the operating system",
        NVML_ERROR_LIB_RM_VERSION_MISMATCH => c"Driver/library version mismatch",
        19 => c"In use by another client",
        20 => c"Insufficient Memory",
        21 => c"No data",
        22 => c"Virtual GPU does not support ECC",
        NVML_ERROR_INSUFFICIENT_RESOURCES => c"Insufficient Resources",
        24 => c"Frequency not supported",
        NVML_ERROR_ARGUMENT_VERSION_MISMATCH => c"Argument version mismatch",
        26 => c"Deprecated",
        27 => c"Not ready",
        28 => c"GPU not found",
        29 => c"Invalid state",
        30 => c"Reset type not supported",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}

pub unsafe fn nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    answer(library::driver_version().and_then(|cuda| unsafe { put_text(version, length, &driver_release(cuda)) }))
}

pub unsafe fn nvmlSystemGetNVMLVersion(version: *mut c_char, length: c_uint) -> nvmlReturn_t {
    let text = |cuda: i32| format!("{}.{}", cuda / 1000, driver_release(cuda));
    // SAFETY: the caller's promise.
    answer(library::driver_version().and_then(|cuda| unsafe { put_text(version, length, &text(cuda)) }))
}

pub unsafe fn nvmlSystemGetCudaDriverVersion(cudaDriverVersion: *mut c_int) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    answer(library::driver_version().and_then(|cuda| unsafe { put(cudaDriverVersion, cuda) }))
}

pub unsafe fn nvmlSystemGetCudaDriverVersion_v2(cudaDriverVersion: *mut c_int) -> nvmlReturn_t {
    // SAFETY: the same.
    unsafe { nvmlSystemGetCudaDriverVersion(cudaDriverVersion) }
}

pub unsafe fn nvmlDeviceGetCount_v2(deviceCount: *mut c_uint) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    answer(devices().and_then(|all| unsafe { put(deviceCount, all.len() as c_uint) }))
}

pub unsafe fn nvmlDeviceGetCount(deviceCount: *mut c_uint) -> nvmlReturn_t {
    // SAFETY: the same.
    unsafe { nvmlDeviceGetCount_v2(deviceCount) }
}

pub unsafe fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut nvmlDevice_t) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    unsafe { put_handle(device, NVML_ERROR_INVALID_ARGUMENT, |i, _| i == index as usize) }
}

pub unsafe fn nvmlDeviceGetHandleByIndex(index: c_uint, device: *mut nvmlDevice_t) -> nvmlReturn_t {
    // SAFETY: the same.
    unsafe { nvmlDeviceGetHandleByIndex_v2(index, device) }
}

pub unsafe fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut nvmlDevice_t) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    let Some(wanted) = (unsafe { text(uuid) }) else { return NVML_ERROR_INVALID_ARGUMENT };
    // SAFETY: the same.
    unsafe { put_handle(device, NVML_ERROR_NOT_FOUND, |_, d| uuid_text(&d.uuid).eq_ignore_ascii_case(wanted)) }
}

pub unsafe fn nvmlDeviceGetHandleByPciBusId_v2(pciBusId: *const c_char, device: *mut nvmlDevice_t) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    let wanted = unsafe { text(pciBusId) }.and_then(Place::parse);
    let Some(wanted) = wanted else { return NVML_ERROR_INVALID_ARGUMENT };
    // SAFETY: the same.
    unsafe { put_handle(device, NVML_ERROR_NOT_FOUND, |_, d| Place::of(d) == Some(wanted)) }
}

pub unsafe fn nvmlDeviceGetHandleByPciBusId(pciBusId: *const c_char, device: *mut nvmlDevice_t) -> nvmlReturn_t {
    // SAFETY: the same.
    unsafe { nvmlDeviceGetHandleByPciBusId_v2(pciBusId, device) }
}

/// Whose process is on a GPU, nobody in a session is told, as in a container. PyTorch takes anything but success for a
/// fault of its own when it has run out of memory.
macro_rules! no_processes {
    ($($name:ident($type:ty);)*) => {
        $(pub unsafe fn $name(device: nvmlDevice_t, infoCount: *mut c_uint, _infos: *mut $type) -> nvmlReturn_t {
            // SAFETY: the caller's promise.
            answer(known(device).and_then(|_| unsafe { put(infoCount, 0) }))
        })*
    };
}
no_processes! {
    nvmlDeviceGetComputeRunningProcesses_v3(nvmlProcessInfo_t);
    nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlProcessInfo_t);
    nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlProcessInfo_t);
    nvmlDeviceGetComputeRunningProcesses(nvmlProcessInfo_v1_t);
    nvmlDeviceGetComputeRunningProcesses_v2(nvmlProcessInfo_v2_t);
    nvmlDeviceGetGraphicsRunningProcesses(nvmlProcessInfo_v1_t);
    nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlProcessInfo_v2_t);
    nvmlDeviceGetMPSComputeRunningProcesses(nvmlProcessInfo_v1_t);
    nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlProcessInfo_v2_t);
}

pub unsafe fn nvmlDeviceGetName(device: nvmlDevice_t, name: *mut c_char, length: c_uint) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    answer(known(device).and_then(|(_, d)| unsafe { put_text(name, length, until_zero(&d.name)) }))
}

pub unsafe fn nvmlDeviceGetIndex(device: nvmlDevice_t, index: *mut c_uint) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    answer(known(device).and_then(|(i, _)| unsafe { put(index, i as c_uint) }))
}

pub unsafe fn nvmlDeviceGetUUID(device: nvmlDevice_t, uuid: *mut c_char, length: c_uint) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    answer(known(device).and_then(|(_, d)| unsafe { put_text(uuid, length, &uuid_text(&d.uuid)) }))
}

pub unsafe fn nvmlDeviceGetPciInfo_v3(device: nvmlDevice_t, pci: *mut nvmlPciInfo_t) -> nvmlReturn_t {
    answer(known(device).and_then(|(_, d)| {
        let at = Place::of(d).ok_or(NVML_ERROR_UNKNOWN)?;
        let info = nvmlPciInfo_t {
            busIdLegacy: characters(&at.text(4)),
            domain: at.domain,
            bus: at.bus,
            device: at.device,
            pciDeviceId: d.pci_device_id,
            pciSubSystemId: d.pci_subsystem_id,
            busId: characters(&at.text(8)),
        };
        // SAFETY: the caller's promise.
        unsafe { put(pci, info) }
    }))
}

pub unsafe fn nvmlDeviceGetPciInfo_v2(device: nvmlDevice_t, pci: *mut nvmlPciInfo_v2_t) -> nvmlReturn_t {
    answer(known(device).and_then(|(_, d)| {
        let at = Place::of(d).ok_or(NVML_ERROR_UNKNOWN)?;
        let info = nvmlPciInfo_v2_t {
            busId: characters(&at.text(4)),
            domain: at.domain,
            bus: at.bus,
            device: at.device,
            pciDeviceId: d.pci_device_id,
            pciSubSystemId: d.pci_subsystem_id,
            reserved: [0; 4],
        };
        // SAFETY: the caller's promise.
        unsafe { put(pci, info) }
    }))
}

/// The first form of the struct is as long as the second, which names one more of its words.
pub unsafe fn nvmlDeviceGetPciInfo(device: nvmlDevice_t, pci: *mut nvmlPciInfo_v2_t) -> nvmlReturn_t {
    // SAFETY: the same.
    unsafe { nvmlDeviceGetPciInfo_v2(device, pci) }
}

pub unsafe fn nvmlDeviceGetMemoryInfo(device: nvmlDevice_t, memory: *mut nvmlMemory_t) -> nvmlReturn_t {
    answer(known(device).and_then(|(i, d)| {
        let (total, free) = memory_of(i, d)?;
        // SAFETY: the caller's promise.
        unsafe { put(memory, nvmlMemory_t { total, free, used: total - free }) }
    }))
}

pub unsafe fn nvmlDeviceGetMemoryInfo_v2(device: nvmlDevice_t, memory: *mut nvmlMemory_v2_t) -> nvmlReturn_t {
    answer(known(device).and_then(|(i, d)| {
        if memory.is_null() {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        // SAFETY: not null; the caller has set this field.
        if unsafe { (*memory).version } != NVML_MEMORY_V2 {
            return Err(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
        }
        let (total, free) = memory_of(i, d)?;
        let info = nvmlMemory_v2_t { version: NVML_MEMORY_V2, total, reserved: 0, free, used: total - free };
        // SAFETY: the caller's promise.
        unsafe { put(memory, info) }
    }))
}

pub unsafe fn nvmlDeviceGetCudaComputeCapability(
    device: nvmlDevice_t,
    major: *mut c_int,
    minor: *mut c_int,
) -> nvmlReturn_t {
    answer(known(device).and_then(|(_, d)| {
        if major.is_null() || minor.is_null() {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        // SAFETY: the caller's promise.
        unsafe { put(major, d.compute_major).and(put(minor, d.compute_minor)) }
    }))
}

fn answer(outcome: Result<(), nvmlReturn_t>) -> nvmlReturn_t {
    outcome.err().unwrap_or(NVML_SUCCESS)
}

fn known(device: nvmlDevice_t) -> Result<(usize, &'static Device), nvmlReturn_t> {
    let index = device.addr().wrapping_sub(1);
    Ok((index, devices()?.get(index).ok_or(NVML_ERROR_INVALID_ARGUMENT)?))
}

fn memory_of(index: usize, device: &Device) -> Result<(c_ulonglong, c_ulonglong), nvmlReturn_t> {
    Ok((device.total_memory, library::free_memory(index)?.min(device.total_memory)))
}

/// The branch of the driver that brought this version of CUDA, in the form of a release: which one the node has is not
/// known here, and programs read the branch.
fn driver_release(cuda: i32) -> String {
    let branch = match cuda {
        ..12000 => 450,
        12000..12010 => 525,
        12010..12030 => 530,
        12030..12040 => 545,
        12040..12060 => 550,
        12060..12080 => 560,
        12080..13000 => 570,
        13000..13010 => 580,
        _ => 590,
    };
    format!("{branch}.00")
}

/// Where a device is on its node's buses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
}

impl Place {
    fn of(device: &Device) -> Option<Place> {
        Place::parse(until_zero(&device.pci_bus_id))
    }

    /// `domain:bus:device.function` or `bus:device.function`, all hexadecimal.
    fn parse(text: &str) -> Option<Place> {
        let (place, _function) = text.split_once('.').unwrap_or((text, "0"));
        let mut parts = place.rsplit(':').map(|part| c_uint::from_str_radix(part, 16).ok());
        let (device, bus) = (parts.next()??, parts.next()??);
        let domain = parts.next().unwrap_or(Some(0))?;
        parts.next().is_none().then_some(Place { domain, bus, device })
    }

    fn text(self, digits: usize) -> String {
        format!("{:0digits$X}:{:02X}:{:02X}.0", self.domain, self.bus, self.device)
    }
}

fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

fn until_zero(bytes: &[u8]) -> &str {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    std::str::from_utf8(&bytes[..end]).unwrap_or_default()
}

/// Cut short where it does not fit, and ended by zeros.
fn characters<const N: usize>(text: &str) -> [c_char; N] {
    let mut out = [0; N];
    for (to, from) in out[..N - 1].iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
    out
}

/// # Safety
/// Null, or a C string.
unsafe fn text<'a>(pointer: *const c_char) -> Option<&'a str> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(pointer) }.to_str().ok()
}

/// # Safety
/// Null, or valid for a write.
unsafe fn put<T>(to: *mut T, value: T) -> Result<(), nvmlReturn_t> {
    if to.is_null() {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    // SAFETY: the caller's promise.
    unsafe { to.write(value) };
    Ok(())
}

/// # Safety
/// Null, or valid for `length` bytes.
unsafe fn put_text(to: *mut c_char, length: c_uint, text: &str) -> Result<(), nvmlReturn_t> {
    if to.is_null() {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    if text.len() >= length as usize {
        return Err(NVML_ERROR_INSUFFICIENT_SIZE);
    }
    // SAFETY: there is room for it and its zero.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), to, text.len());
        to.add(text.len()).write(0);
    }
    Ok(())
}

/// # Safety
/// `to` must be null or valid for a write.
unsafe fn put_handle(
    to: *mut nvmlDevice_t,
    otherwise: nvmlReturn_t,
    wanted: impl Fn(usize, &Device) -> bool,
) -> nvmlReturn_t {
    answer(devices().and_then(|all| {
        let found = all.iter().enumerate().position(|(i, d)| wanted(i, d)).ok_or(otherwise)?;
        // SAFETY: the caller's promise.
        unsafe { put(to, std::ptr::without_provenance_mut(found + 1)) }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_in_both_forms_and_written_as_nvml_does() {
        let place = Place { domain: 1, bus: 0x3b, device: 0xa };
        assert_eq!(Place::parse("00000001:3B:0A.0"), Some(place));
        assert_eq!(Place::parse("0001:3b:0a.0"), Some(place));
        assert_eq!(Place::parse("3b:0a.0"), Some(Place { domain: 0, ..place }));
        assert_eq!((place.text(8), place.text(4)), ("00000001:3B:0A.0".into(), "0001:3B:0A.0".into()));
        for text in ["", "3b", "x:3b:0a.0", "0:0:0:0.0", ":"] {
            assert_eq!(Place::parse(text), None, "{text}");
        }
    }

    #[test]
    fn uuids_are_written_as_nvml_does() {
        let uuid = std::array::from_fn(|i| (i * 17) as u8);
        assert_eq!(uuid_text(&uuid), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }

    #[test]
    fn texts_fit_or_are_refused() {
        let mut room = [1; 4];
        // SAFETY: as long as it says.
        assert_eq!(unsafe { put_text(room.as_mut_ptr(), 4, "abcd") }, Err(NVML_ERROR_INSUFFICIENT_SIZE));
        // SAFETY: the same.
        assert_eq!(unsafe { put_text(room.as_mut_ptr(), 4, "abc") }, Ok(()));
        assert_eq!(room.map(|c| c as u8), *b"abc\0");
        assert_eq!(characters::<4>("abcdef").map(|c| c as u8), *b"abc\0");
    }
}
