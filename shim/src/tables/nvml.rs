//! What `libnvidia-ml.so.1` asks: the table that it finds through `cuGetExportTable`.

// UNSAFETY: writes through pointers of Orion's own library, and a static table of functions.

use std::ffi::c_void;

use orion_cuda::nvml_table::{Device, Functions};
use orion_cuda::sys::*;
use orion_wire::hello;

use crate::answer::code;
use crate::objects::memory::free_and_total;
use crate::session::{attached, carrier, context, device};
use crate::start::attach;

pub fn table() -> *const c_void {
    static TABLE: Functions = Functions { size: size_of::<Functions>(), ready, devices, driver_version, free_memory };
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

/// Whoever asks before there is a context must not get one by that: it takes hundreds of MiB of the device.
unsafe extern "C" fn free_memory(index: usize, free: *mut u64) -> CUresult {
    code(attach::greet().and_then(|greeted| {
        let device = greeted.devices.get(index).ok_or(CUDA_ERROR_INVALID_DEVICE)?;
        let mut bytes = device.total_memory as usize;
        if let Some(context) = device::active_primary_context(index as u32) {
            let ask = || {
                code(free_and_total().map(|(free, _)| {
                    bytes = free;
                }))
            };
            match context::with_current(context, ask) {
                CUDA_SUCCESS => {}
                code => return Err(code),
            }
        }
        // SAFETY: a place of the library's.
        unsafe { free.write(bytes as u64) };
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
