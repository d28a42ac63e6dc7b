//! What `libnvidia-ml.so.1` asks: the table that it finds through `cuGetExportTable`.

// UNSAFETY: writes through pointers of Orion's own library, and a static table of functions.

use std::ffi::c_void;

use orion_cuda::nvml_table::{Device, Functions, Process, UNKNOWN, Usage};
use orion_cuda::sys::*;
use orion_wire::hello;

use crate::answer::code;
use crate::objects::memory::free_and_total;
use crate::session::{attached, carrier, context, device};
use crate::start::attach;

pub fn table() -> *const c_void {
    static TABLE: Functions =
        Functions { size: size_of::<Functions>(), ready, devices, driver_version, usage, processes, peer_access };
    std::ptr::from_ref(&TABLE).cast()
}

/// A server is not asked: that takes a worker.
unsafe extern "C" fn ready() -> CUresult {
    if attached::greeted().is_some() {
        return CUDA_SUCCESS;
    }
    match carrier::Settings::from_environment() {
        Ok(settings) if settings.may_be_there() => CUDA_SUCCESS,
        Ok(_) => CUDA_ERROR_NO_DEVICE,
        Err(why) => {
            crate::say!("{why}");
            CUDA_ERROR_NO_DEVICE
        }
    }
}

unsafe extern "C" fn devices(devices: *mut Device, room: usize, count: *mut usize) -> CUresult {
    code(attach::greet().map(|greeted| {
        let all = &greeted.devices[..greeted.devices.len().min(room)];
        for (i, d) in all.iter().enumerate() {
            // SAFETY: the library has room for `room` of them.
            unsafe { devices.add(i).write(described(d)) };
        }
        // SAFETY: a place of the library's.
        unsafe { count.write(all.len()) };
    }))
}

unsafe extern "C" fn driver_version(version: *mut i32) -> CUresult {
    // SAFETY: a place of the library's.
    code(attach::greet().map(|greeted| unsafe { version.write(greeted.driver_version as i32) }))
}

unsafe extern "C" fn usage(index: usize, usage: *mut Usage) -> CUresult {
    code(attach::greet().and_then(|greeted| {
        let device = greeted.devices.get(index).ok_or(CUDA_ERROR_INVALID_DEVICE)?;
        let used = used_here(index, device)?;
        // SAFETY: a place of the library's.
        unsafe { usage.write(Usage { total: device.total_memory, used, busy_percent: UNKNOWN }) };
        Ok(())
    }))
}

/// What this process uses. Whoever asks before there is a context must not get one by that: it takes hundreds of MiB
/// of the device.
fn used_here(index: usize, device: &hello::Device) -> Result<u64, CUresult> {
    let Some(context) = device::active_primary_context(index as u32) else { return Ok(0) };
    let mut found = Err(CUDA_ERROR_UNKNOWN);
    let ask = || {
        code(free_and_total().map(|(free, _)| {
            found = Ok(device.total_memory.saturating_sub(free as u64));
        }))
    };
    match context::with_current(context, ask) {
        CUDA_SUCCESS => found,
        code => Err(code),
    }
}

unsafe extern "C" fn processes(processes: *mut Process, room: usize, count: *mut usize) -> CUresult {
    code(attach::greet().and_then(|greeted| {
        let mut all = Vec::new();
        if attached::attached().is_ok() {
            for (index, device) in greeted.devices.iter().enumerate() {
                let used = used_here(index, device)?;
                let name = padded(&carrier::program());
                let (pid, device) = (std::process::id(), index as u32);
                all.push(Process { pid, device, used, busy_percent: UNKNOWN, name });
            }
        }
        all.truncate(room);
        for (i, process) in all.iter().enumerate() {
            // SAFETY: the library has room for `room` of them.
            unsafe { processes.add(i).write(*process) };
        }
        // SAFETY: a place of the library's.
        unsafe { count.write(all.len()) };
        Ok(())
    }))
}

unsafe extern "C" fn peer_access(from: usize, to: usize, can: *mut u8) -> CUresult {
    code(attach::greet().and_then(|greeted| {
        let can_access = greeted.can_access(from, to).ok_or(CUDA_ERROR_INVALID_DEVICE)?;
        // SAFETY: a place of the library's.
        unsafe { can.write(can_access.into()) };
        Ok(())
    }))
}

fn described(d: &hello::Device) -> Device {
    let attribute = |id: CUdevice_attribute| d.attributes.iter().find(|(i, _)| *i == id).map_or(0, |(_, value)| *value);
    Device {
        name: padded(&d.name),
        pci_bus_id: padded(&d.pci_bus_id),
        uuid: d.uuid,
        total_memory: d.total_memory,
        compute_major: attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
        compute_minor: attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        pci_device_id: attribute(CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID) as u32,
        pci_subsystem_id: attribute(CU_DEVICE_ATTRIBUTE_GPU_PCI_SUBSYSTEM_ID) as u32,
        compute_mode: attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_MODE),
        has_ecc: attribute(CU_DEVICE_ATTRIBUTE_ECC_ENABLED),
        multiprocessors: attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
        clock_khz: attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
        memory_clock_khz: attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE),
        memory_bus_bits: attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH),
    }
}

/// Ends with a zero, however long the text is.
fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut out = [0; N];
    for (to, from) in out[..N - 1].iter_mut().zip(text.bytes()) {
        *to = from;
    }
    out
}
