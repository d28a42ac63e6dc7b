//! What a device is.

// UNSAFETY: pointers of NVML's interface are null or valid for what the function reads or writes.

use std::ffi::{c_char, c_int, c_uint};

use orion_cuda::nvml_table::{PEER_ACCESS, PEER_ATOMICS};

use super::links;
use super::place::Place;
use crate::arguments::{answer, characters, known, put, put_text, until_zero, uuid_text};
use crate::library;
use crate::types::*;

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

/// None of those that have a name: memory that GPUs of several machines share, and its like.
pub unsafe fn nvmlDeviceGetCapabilities(device: nvmlDevice_t, caps: *mut nvmlDeviceCapabilities_t) -> nvmlReturn_t {
    answer(known(device).and_then(|_| {
        if caps.is_null() {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        // SAFETY: not null; the caller has set this field.
        if unsafe { (*caps).version } != NVML_DEVICE_CAPABILITIES_V1 {
            return Err(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
        }
        // SAFETY: the caller's promise.
        unsafe { put(caps, nvmlDeviceCapabilities_t { version: NVML_DEVICE_CAPABILITIES_V1, capMask: 0 }) }
    }))
}

pub unsafe fn nvmlDeviceGetPciInfoExt(device: nvmlDevice_t, pci: *mut nvmlPciInfoExt_t) -> nvmlReturn_t {
    /// A display controller that draws nothing.
    const DISPLAY_CONTROLLER: (c_uint, c_uint) = (3, 2);
    answer(known(device).and_then(|(_, d)| {
        if pci.is_null() {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        // SAFETY: not null; the caller has set this field.
        if unsafe { (*pci).version } != NVML_PCI_INFO_EXT_V1 {
            return Err(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
        }
        let at = Place::of(d).ok_or(NVML_ERROR_UNKNOWN)?;
        let info = nvmlPciInfoExt_t {
            version: NVML_PCI_INFO_EXT_V1,
            domain: at.domain,
            bus: at.bus,
            device: at.device,
            pciDeviceId: d.pci_device_id,
            pciSubSystemId: d.pci_subsystem_id,
            baseClass: DISPLAY_CONTROLLER.0,
            subClass: DISPLAY_CONTROLLER.1,
            busId: characters(&at.text(8)),
        };
        // SAFETY: the caller's promise.
        unsafe { put(pci, info) }
    }))
}

pub unsafe fn nvmlDeviceGetBrand(device: nvmlDevice_t, r#type: *mut nvmlBrandType_t) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    answer(known(device).and_then(|(_, d)| unsafe { put(r#type, brand(until_zero(&d.name))) }))
}

/// By the name: the driver API does not tell it otherwise.
fn brand(name: &str) -> nvmlBrandType_t {
    const UNKNOWN: nvmlBrandType_t = 0;
    let brands = [("GeForce", 5), ("TITAN", 6), ("Quadro", 1), ("Tesla", 2), ("NVIDIA RTX", 13), ("NVIDIA", 14)];
    brands.iter().find(|(word, _)| name.contains(word)).map_or(UNKNOWN, |(_, brand)| *brand)
}

pub unsafe fn nvmlDeviceGetArchitecture(device: nvmlDevice_t, arch: *mut nvmlDeviceArchitecture_t) -> nvmlReturn_t {
    answer(known(device).and_then(|(_, d)| {
        const UNKNOWN: nvmlDeviceArchitecture_t = c_uint::MAX;
        let generation = match (d.compute_major, d.compute_minor) {
            (3, _) => 2,
            (5, _) => 3,
            (6, _) => 4,
            (7, 0..5) => 5,
            (7, _) => 6,
            (8, 9) => 8,
            (8, _) => 7,
            (9, _) => 9,
            (10..=12, _) => 10,
            _ => UNKNOWN,
        };
        // SAFETY: the caller's promise.
        unsafe { put(arch, generation) }
    }))
}

/// As many as NVIDIA's documentation says for a multiprocessor of that compute capability.
pub unsafe fn nvmlDeviceGetNumGpuCores(device: nvmlDevice_t, numCores: *mut c_uint) -> nvmlReturn_t {
    answer(known(device).and_then(|(_, d)| {
        let each = match (d.compute_major, d.compute_minor) {
            (3, _) => 192,
            (6, 0) | (7, _) | (8, 0) => 64,
            (5..=12, _) => 128,
            _ => return Err(NVML_ERROR_NOT_SUPPORTED),
        };
        // SAFETY: the caller's promise.
        unsafe { put(numCores, said(d.multiprocessors)? * each) }
    }))
}

pub unsafe fn nvmlDeviceGetMemoryBusWidth(device: nvmlDevice_t, busWidth: *mut c_uint) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    answer(known(device).and_then(|(_, d)| unsafe { put(busWidth, said(d.memory_bus_bits)?) }))
}

// The link between the GPU and its own machine, which a program that is elsewhere reaches by way of the network.

pub unsafe fn nvmlDeviceGetMaxPcieLinkGeneration(device: nvmlDevice_t, maxLinkGen: *mut c_uint) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    answer(known(device).and_then(|(_, d)| unsafe { put(maxLinkGen, said(d.pcie_generation_max)?) }))
}

pub unsafe fn nvmlDeviceGetGpuMaxPcieLinkGeneration(
    device: nvmlDevice_t,
    maxLinkGenDevice: *mut c_uint,
) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    answer(known(device).and_then(|(_, d)| unsafe { put(maxLinkGenDevice, said(d.pcie_generation_max)?) }))
}

pub unsafe fn nvmlDeviceGetMaxPcieLinkWidth(device: nvmlDevice_t, maxLinkWidth: *mut c_uint) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    answer(known(device).and_then(|(_, d)| unsafe { put(maxLinkWidth, said(d.pcie_width_max)?) }))
}

pub unsafe fn nvmlDeviceGetCurrPcieLinkGeneration(device: nvmlDevice_t, currLinkGen: *mut c_uint) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    answer(known(device).and_then(|(_, d)| unsafe { put(currLinkGen, said(d.pcie_generation)?) }))
}

pub unsafe fn nvmlDeviceGetCurrPcieLinkWidth(device: nvmlDevice_t, currLinkWidth: *mut c_uint) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    answer(known(device).and_then(|(_, d)| unsafe { put(currLinkWidth, said(d.pcie_width)?) }))
}

/// As `NVML_PCIE_LINK_MAX_SPEED_*`, which number the generations.
pub unsafe fn nvmlDeviceGetPcieLinkMaxSpeed(device: nvmlDevice_t, maxSpeed: *mut c_uint) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    answer(known(device).and_then(|(_, d)| unsafe { put(maxSpeed, said(d.pcie_generation_max)?) }))
}

/// In Mbit/s a lane.
pub unsafe fn nvmlDeviceGetPcieSpeed(device: nvmlDevice_t, pcieSpeed: *mut c_uint) -> nvmlReturn_t {
    const SPEEDS: [c_uint; 6] = [2_500, 5_000, 8_000, 16_000, 32_000, 64_000];
    answer(known(device).and_then(|(_, d)| {
        let speed = SPEEDS.get(said(d.pcie_generation)? as usize - 1).ok_or(NVML_ERROR_NOT_SUPPORTED)?;
        // SAFETY: the caller's promise.
        unsafe { put(pcieSpeed, *speed) }
    }))
}

/// Of the multiprocessors and of the memory.
pub unsafe fn nvmlDeviceGetMaxClockInfo(
    device: nvmlDevice_t,
    r#type: nvmlClockType_t,
    clock: *mut c_uint,
) -> nvmlReturn_t {
    answer(known(device).and_then(|(_, d)| {
        let khz = match r#type {
            0 | 1 => d.clock_khz,
            2 => d.memory_clock_khz,
            3 => return Err(NVML_ERROR_NOT_SUPPORTED),
            _ => return Err(NVML_ERROR_INVALID_ARGUMENT),
        };
        // SAFETY: the caller's promise.
        unsafe { put(clock, said(khz)? / 1000) }
    }))
}

pub unsafe fn nvmlDeviceGetComputeMode(device: nvmlDevice_t, mode: *mut nvmlComputeMode_t) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    answer(known(device).and_then(|(_, d)| unsafe { put(mode, d.compute_mode as c_uint) }))
}

/// What was set for the next start of the driver is the host's business: it is answered what is.
pub unsafe fn nvmlDeviceGetEccMode(
    device: nvmlDevice_t,
    current: *mut nvmlEnableState_t,
    pending: *mut nvmlEnableState_t,
) -> nvmlReturn_t {
    answer(known(device).and_then(|(_, d)| {
        if current.is_null() || pending.is_null() {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        // SAFETY: the caller's promise.
        unsafe { put(current, d.has_ecc as c_uint).and(put(pending, d.has_ecc as c_uint)) }
    }))
}

/// A vGPU has no screen.
pub unsafe fn nvmlDeviceGetDisplayMode(device: nvmlDevice_t, display: *mut nvmlEnableState_t) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    answer(known(device).and_then(|_| unsafe { put(display, NVML_FEATURE_DISABLED) }))
}

pub unsafe fn nvmlDeviceGetDisplayActive(device: nvmlDevice_t, isActive: *mut nvmlEnableState_t) -> nvmlReturn_t {
    // SAFETY: the same.
    answer(known(device).and_then(|_| unsafe { put(isActive, NVML_FEATURE_DISABLED) }))
}

/// Which vGPUs share a board is not told.
pub unsafe fn nvmlDeviceGetMultiGpuBoard(device: nvmlDevice_t, multiGpuBool: *mut c_uint) -> nvmlReturn_t {
    // SAFETY: the same.
    answer(known(device).and_then(|_| unsafe { put(multiGpuBool, 0) }))
}

/// None of NVIDIA's. `nvidia-smi` shows no processes where it does not hear so.
pub unsafe fn nvmlDeviceGetVirtualizationMode(
    device: nvmlDevice_t,
    pVirtualMode: *mut nvmlGpuVirtualizationMode_t,
) -> nvmlReturn_t {
    const NONE: nvmlGpuVirtualizationMode_t = 0;
    // SAFETY: the caller's promise.
    answer(known(device).and_then(|_| unsafe { put(pVirtualMode, NONE) }))
}

/// By NVLink where kernels do all atomic operations in each other's memory, else by PCIe where there is peer access at
/// all: as the driver 580 answers of two H100s that NVLink joins.
pub unsafe fn nvmlDeviceGetP2PStatus(
    device1: nvmlDevice_t,
    device2: nvmlDevice_t,
    p2pIndex: nvmlGpuP2PCapsIndex_t,
    p2pStatus: *mut nvmlGpuP2PStatus_t,
) -> nvmlReturn_t {
    const OK: nvmlGpuP2PStatus_t = 0;
    const NOT_SUPPORTED: nvmlGpuP2PStatus_t = 5;
    const READ: nvmlGpuP2PCapsIndex_t = 0;
    const WRITE: nvmlGpuP2PCapsIndex_t = 1;
    const NVLINK: nvmlGpuP2PCapsIndex_t = 2;
    const ATOMICS: nvmlGpuP2PCapsIndex_t = 3;
    const PCI: nvmlGpuP2PCapsIndex_t = 4;
    const PROPRIETARY: nvmlGpuP2PCapsIndex_t = 5;
    answer(known(device1).and_then(|(from, _)| {
        let (to, _) = known(device2)?;
        let way = library::peer_access(from, to)?;
        let (access, linked) = (way & PEER_ACCESS != 0, way & PEER_ATOMICS != 0);
        let can = match p2pIndex {
            READ | WRITE | PROPRIETARY => access,
            NVLINK | ATOMICS => linked,
            PCI => access && !linked,
            _ => return Err(NVML_ERROR_INVALID_ARGUMENT),
        };
        let status = if can { OK } else { NOT_SUPPORTED };
        // SAFETY: the caller's promise.
        unsafe { put(p2pStatus, status) }
    }))
}

/// Each field says for itself that it is not supported, but for those of links: what fields tell is the host's.
pub unsafe fn nvmlDeviceGetFieldValues(
    device: nvmlDevice_t,
    valuesCount: c_int,
    values: *mut nvmlFieldValue_t,
) -> nvmlReturn_t {
    answer(known(device).and_then(|known| {
        let count = usize::try_from(valuesCount).map_err(|_| NVML_ERROR_INVALID_ARGUMENT)?;
        if values.is_null() || count == 0 {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        for i in 0..count {
            // SAFETY: the caller has room for so many.
            let value = unsafe { &mut *values.add(i) };
            value.nvmlReturn = match links::field(known, value.fieldId, value.scopeId) {
                Ok(told) => {
                    (value.valueType, value.value) = (NVML_VALUE_TYPE_UNSIGNED_INT, told.into());
                    NVML_SUCCESS
                }
                Err(code) => code,
            };
        }
        Ok(())
    }))
}

/// What the driver does not say is 0.
fn said(value: c_int) -> Result<c_uint, nvmlReturn_t> {
    match value {
        1.. => Ok(value as c_uint),
        _ => Err(NVML_ERROR_NOT_SUPPORTED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_brand_is_read_off_the_name() {
        assert_eq!((brand("NVIDIA H200"), brand("Tesla V100-SXM2-16GB"), brand("NVIDIA GeForce RTX 4090")), (14, 2, 5));
        assert_eq!(brand("Orion software GPU"), 0);
    }
}
