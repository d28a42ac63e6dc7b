//! NVLinks. NCCL finds by them how GPUs are joined, and without any it goes through the host's memory.
//!
//! What is told is what CUDA tells: devices of a session whose kernels do all atomic operations in each other's
//! memory are joined by NVLink. Each then has as many links as its generation has, all of them to a switch that is not
//! seen, as a virtual machine has it. A device that is joined to none of the session's has no links: the others are not
//! there.

// UNSAFETY: pointers of NVML's interface are null or valid for what the function reads or writes.

use std::ffi::{c_int, c_uint};

use orion_cuda::nvml_table::{Device, PEER_ATOMICS};

use crate::arguments::{answer, characters, known, put};
use crate::library;
use crate::types::*;

/// Of a switch that the machine does not see, as the driver 580 has it in a virtual machine, in the long form and in
/// the short one.
const UNSEEN: [&str; 2] = ["FFFFFFFF:FF:FF.0", "FFFFFFF:FF:FF.0"];
/// A link's speed in MB/s, as that driver says of an H100. Of others it is not known.
const SPEED_MB: [((c_int, c_int), c_uint); 1] = [((9, 0), 26_562)];

/// How many links a device of this generation has, and NVML's number of their version.
fn generation(compute: (c_int, c_int)) -> Option<(c_uint, c_uint)> {
    const VERSIONS: [c_uint; 6] = [0, 1, 2, 4, 6, 7];
    match compute {
        (6, 0) => Some((4, VERSIONS[1])),
        (7, 0) => Some((6, VERSIONS[2])),
        (8, 0) => Some((12, VERSIONS[3])),
        (8, 6) => Some((4, VERSIONS[3])),
        (9, 0) => Some((18, VERSIONS[4])),
        (10, _) => Some((18, VERSIONS[5])),
        _ => None,
    }
}

/// Links of a device, and their version.
fn links((index, device): (usize, &Device)) -> Result<(c_uint, c_uint), nvmlReturn_t> {
    let of_generation = generation((device.compute_major, device.compute_minor)).ok_or(NVML_ERROR_NOT_SUPPORTED)?;
    for other in 0..library::devices()?.len() {
        if library::peer_access(index, other)? & PEER_ATOMICS != 0 {
            return Ok(of_generation);
        }
    }
    Err(NVML_ERROR_NOT_SUPPORTED)
}

/// The version of the link with that number.
fn link(device: nvmlDevice_t, number: c_uint) -> Result<c_uint, nvmlReturn_t> {
    match links(known(device)?)? {
        (count, version) if number < count => Ok(version),
        _ => Err(NVML_ERROR_INVALID_ARGUMENT),
    }
}

/// What a field about links says.
pub(super) fn field(device: (usize, &Device), id: c_uint, number: c_uint) -> Result<c_uint, nvmlReturn_t> {
    const LINK_COUNT: c_uint = 91;
    const LINKS_TO_SWITCHES: c_uint = 147;
    const SPEED: c_uint = 164;
    const STATE: c_uint = 165;
    const VERSION: c_uint = 166;
    if ![LINK_COUNT, LINKS_TO_SWITCHES, SPEED, STATE, VERSION].contains(&id) {
        return Err(NVML_ERROR_NOT_SUPPORTED);
    }
    let (count, version) = links(device)?;
    let compute = (device.1.compute_major, device.1.compute_minor);
    match id {
        LINK_COUNT | LINKS_TO_SWITCHES => Ok(count),
        _ if number >= count => Err(NVML_ERROR_NOT_SUPPORTED),
        STATE => Ok(NVML_FEATURE_ENABLED),
        SPEED => {
            SPEED_MB.iter().find(|(of, _)| *of == compute).map(|(_, speed)| *speed).ok_or(NVML_ERROR_NOT_SUPPORTED)
        }
        _ => Ok(version),
    }
}

pub unsafe fn nvmlDeviceGetNvLinkState(
    device: nvmlDevice_t,
    number: c_uint,
    isActive: *mut nvmlEnableState_t,
) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    answer(link(device, number).and_then(|_| unsafe { put(isActive, NVML_FEATURE_ENABLED) }))
}

pub unsafe fn nvmlDeviceGetNvLinkVersion(device: nvmlDevice_t, number: c_uint, version: *mut c_uint) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    answer(link(device, number).and_then(|found| unsafe { put(version, found) }))
}

pub unsafe fn nvmlDeviceGetNvLinkCapability(
    device: nvmlDevice_t,
    number: c_uint,
    capability: nvmlNvLinkCapability_t,
    capResult: *mut c_uint,
) -> nvmlReturn_t {
    // The last one: that the others are known.
    const VALID: c_uint = 5;
    answer(link(device, number).and_then(|_| match capability {
        // SAFETY: the caller's promise.
        0..=VALID => unsafe { put(capResult, 1) },
        _ => Err(NVML_ERROR_INVALID_ARGUMENT),
    }))
}

pub unsafe fn nvmlDeviceGetNvLinkRemoteDeviceType(
    device: nvmlDevice_t,
    number: c_uint,
    pNvLinkDeviceType: *mut nvmlIntNvLinkDeviceType_t,
) -> nvmlReturn_t {
    const SWITCH: nvmlIntNvLinkDeviceType_t = 2;
    // SAFETY: the caller's promise.
    answer(link(device, number).and_then(|_| unsafe { put(pNvLinkDeviceType, SWITCH) }))
}

pub unsafe fn nvmlDeviceGetNvLinkRemotePciInfo_v2(
    device: nvmlDevice_t,
    number: c_uint,
    pci: *mut nvmlPciInfo_t,
) -> nvmlReturn_t {
    answer(link(device, number).and_then(|_| {
        let unseen = nvmlPciInfo_t {
            busIdLegacy: characters(UNSEEN[1]),
            domain: c_uint::MAX,
            bus: 0xff,
            device: 0xff,
            pciDeviceId: c_uint::MAX,
            pciSubSystemId: 0,
            busId: characters(UNSEEN[0]),
        };
        // SAFETY: the caller's promise.
        unsafe { put(pci, unseen) }
    }))
}

pub unsafe fn nvmlDeviceGetNvLinkRemotePciInfo(
    device: nvmlDevice_t,
    number: c_uint,
    pci: *mut nvmlPciInfo_v2_t,
) -> nvmlReturn_t {
    answer(link(device, number).and_then(|_| {
        let unseen = nvmlPciInfo_v2_t {
            busId: characters(UNSEEN[1]),
            domain: c_uint::MAX,
            bus: 0xff,
            device: 0xff,
            pciDeviceId: c_uint::MAX,
            pciSubSystemId: 0,
            reserved: [0; 4],
        };
        // SAFETY: the caller's promise.
        unsafe { put(pci, unseen) }
    }))
}
