//! What `libnvidia-ml.so.1` asks: the table that it finds through `cuGetExportTable`.

// UNSAFETY: writes through pointers of Orion's own library, and a static table of functions.

use std::ffi::c_void;

use orion_cuda::nvml_table::{self, Device, Functions, NOT_AVAILABLE, Process, UNKNOWN, Usage};
use orion_cuda::sys::*;
use orion_wire::hello;
use orion_wire::view::{Program, Use};

use crate::answer::code;
use crate::objects::memory::free_and_total;
use crate::session::{attached, carrier, context, device};
use crate::start::attach;
use crate::state::session::Greeted;

pub fn table() -> *const c_void {
    static TABLE: Functions =
        Functions { size: size_of::<Functions>(), ready, devices, driver_version, usage, busy, processes, peer_access };
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
        let found = match attached::attached() {
            Ok(_) => Usage { total: device.total_memory, used: used_here(index, device)? },
            Err(_) => of_programs(index, device, &attach::programs()?),
        };
        // SAFETY: a place of the library's.
        unsafe { usage.write(found) };
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

/// What the user's programs together may have of a device, and have. As long as none runs it is what one would have.
/// Each has a part of its own, or they share the whole GPU and each counts all that is used there.
fn of_programs(index: usize, device: &hello::Device, programs: &[Program]) -> Usage {
    let vgpus = || programs.iter().flat_map(|p| &p.vgpus).filter(|vgpu| vgpu.device as usize == index);
    let (total, used) = match device.is_limited {
        true => (vgpus().map(|v| v.total).sum(), vgpus().map(|v| v.used).sum()),
        false => (device.total_memory, vgpus().map(|v| v.used).max().unwrap_or(0)),
    };
    let total = if vgpus().next().is_none() { device.total_memory } else { total };
    Usage { total, used }
}

/// Also who has a session asks the server, which measures.
unsafe extern "C" fn busy(index: usize, percent: *mut u32) -> CUresult {
    code(attach::greet().and_then(|greeted| {
        greeted.devices.get(index).ok_or(CUDA_ERROR_INVALID_DEVICE)?;
        let found = busy_for(index, &attach::programs()?);
        // SAFETY: a place of the library's.
        unsafe { percent.write(found) };
        Ok(())
    }))
}

/// For how much of the last second a device worked for these programs, if that is known of each: for nobody it did not.
fn busy_for(index: usize, programs: &[Program]) -> u32 {
    let vgpus = programs.iter().flat_map(|p| &p.vgpus).filter(|vgpu| vgpu.device as usize == index);
    let add = |sum: u32, vgpu: &Use| (vgpu.busy_percent != UNKNOWN).then(|| (sum + vgpu.busy_percent).min(100));
    vgpus.into_iter().try_fold(0, add).unwrap_or(UNKNOWN)
}

unsafe extern "C" fn processes(processes: *mut Process, room: usize, count: *mut usize) -> CUresult {
    code(attach::greet().and_then(|greeted| {
        let mut all = match attached::attached() {
            Ok(_) => own_process(greeted)?,
            Err(_) => attach::programs()?.iter().flat_map(|program| process(program, greeted)).collect(),
        };
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

/// On each device that it has a context on.
fn own_process(greeted: &Greeted) -> Result<Vec<Process>, CUresult> {
    let on = |index: &usize| device::active_primary_context(*index as u32).is_some();
    let all = (0..greeted.devices.len()).filter(on).map(|index| {
        let device = &greeted.devices[index];
        let used = attributable(device, used_here(index, device)?);
        let (pid, name) = (std::process::id(), padded(&carrier::program()));
        Ok(Process { pid, device: index as u32, used, busy_percent: UNKNOWN, name })
    });
    all.collect()
}

/// One that could not be found by its number is not named.
fn process(program: &Program, greeted: &Greeted) -> Vec<Process> {
    let vgpus = program.vgpus.iter().filter(|_| program.pid != 0);
    let known = vgpus.filter_map(|vgpu| Some((vgpu, greeted.devices.get(vgpu.device as usize)?)));
    let of = |(vgpu, device): (&Use, &hello::Device)| Process {
        pid: program.pid,
        device: vgpu.device,
        used: attributable(device, vgpu.used),
        busy_percent: vgpu.busy_percent,
        name: padded(&program.name),
    };
    known.map(of).collect()
}

/// Of a GPU that all share it is only known what is used in all.
fn attributable(device: &hello::Device, used: u64) -> u64 {
    if device.is_limited { used } else { NOT_AVAILABLE }
}

const _: () = assert!(nvml_table::PEER_ACCESS == hello::PEER_ACCESS && nvml_table::PEER_ATOMICS == hello::PEER_ATOMICS);
const _: () = assert!(nvml_table::PEER_SAME_GPU == hello::PEER_SAME_GPU);

unsafe extern "C" fn peer_access(from: usize, to: usize, way: *mut u8) -> CUresult {
    code(attach::greet().and_then(|greeted| {
        let found = greeted.peer(from, to).ok_or(CUDA_ERROR_INVALID_DEVICE)?;
        // SAFETY: a place of the library's.
        unsafe { way.write(found) };
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
        pcie_generation: d.pcie.generation.into(),
        pcie_generation_max: d.pcie.generation_max.into(),
        pcie_width: d.pcie.width.into(),
        pcie_width_max: d.pcie.width_max.into(),
        driver_release: padded(&d.driver_release),
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
