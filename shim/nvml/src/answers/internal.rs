//! The table of private functions that `nvidia-smi` asks for at its start, and without which it says that versions
//! mismatch.
//!
//! Of the 244 slots that nvidia-smi 535 knows it was seen to call these: how near two places on the buses are (23),
//! what writes a line of NVML's own log (26), whether a GPU can tell what its processes do (72), and a GPU's processes
//! with their names, of compute, graphics and MPS (213 to 215). Each is asked for only if the table is long enough, so
//! slots keep their numbers in later releases.
//! All others, and of these the log, say that they are not supported.

// UNSAFETY: pointers of NVML's interface are null or valid for what the function reads or writes.

use std::ffi::{c_char, c_uint, c_ulonglong, c_void};

use super::place::Place;
use super::processes::on;
use super::system::process_name;
use super::topology::are_one_gpu;
use crate::arguments::{answer, characters, known, put, put_all, text};
use crate::library::{devices, not_supported};
use crate::types::*;

/// Of the table, as NVIDIA's library knows it.
const ID: [u8; 16] = 0xc4fe3e6c_c98f6c4e_a327ee69_6e12f7c4_u128.to_be_bytes();
/// The table's first word is how many bytes it has.
const SLOTS: usize = 512;
const PATH: usize = 23;
const TELLS_OF_PROCESSES: usize = 72;
const COMPUTE_PROCESSES: usize = 213;
const GRAPHICS_PROCESSES: usize = 214;
const MPS_PROCESSES: usize = 215;

pub unsafe fn nvmlInternalGetExportTable(table: *mut *const c_void, id: *const u8) -> nvmlReturn_t {
    static TABLE: Table = Table::new();
    if table.is_null() || id.is_null() {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    // SAFETY: not null, and an identity has 16 bytes.
    if unsafe { id.cast::<[u8; 16]>().read() } != ID {
        return NVML_ERROR_NOT_FOUND;
    }
    // SAFETY: not null.
    unsafe { table.write((&raw const TABLE).cast()) };
    NVML_SUCCESS
}

/// Called with the arguments of whatever function it is.
type Slot = extern "C" fn() -> nvmlReturn_t;
type Processes = unsafe extern "C" fn(nvmlDevice_t, *mut c_uint, *mut NamedProcess) -> nvmlReturn_t;

#[repr(C)]
struct Table {
    bytes: usize,
    /// The second slot comes first: the first is the size.
    slots: [Slot; SLOTS - 1],
}

impl Table {
    const fn new() -> Table {
        let mut slots: [Slot; SLOTS - 1] = [private; SLOTS - 1];
        slots[PATH - 1] = {
            type Path = unsafe extern "C" fn(*const c_char, *const c_char, *mut c_uint) -> nvmlReturn_t;
            // SAFETY: a pointer to a function; who calls it by this slot passes what it takes.
            unsafe { std::mem::transmute::<Path, Slot>(path) }
        };
        slots[TELLS_OF_PROCESSES - 1] = {
            type Tells = unsafe extern "C" fn(nvmlDevice_t, *mut c_uint) -> nvmlReturn_t;
            // SAFETY: a pointer to a function; who calls it by this slot passes what it takes.
            unsafe { std::mem::transmute::<Tells, Slot>(tells_of_processes) }
        };
        slots[COMPUTE_PROCESSES - 1] = processes_slot(compute_processes);
        slots[GRAPHICS_PROCESSES - 1] = processes_slot(no_processes);
        slots[MPS_PROCESSES - 1] = processes_slot(no_processes);
        Table { bytes: size_of::<Table>(), slots }
    }
}

const fn processes_slot(function: Processes) -> Slot {
    // SAFETY: as above.
    unsafe { std::mem::transmute::<Processes, Slot>(function) }
}

extern "C" fn private() -> nvmlReturn_t {
    not_supported("a private function")
}

/// Between two places on the buses, which may be network cards' too, for the matrix of `nvidia-smi topo`. What is not
/// known to be near is as far as it can be.
unsafe extern "C" fn path(one: *const c_char, other: *const c_char, way: *mut c_uint) -> nvmlReturn_t {
    const AT_MOST_ONE_BRIDGE: c_uint = 0;
    const ACROSS_THE_SYSTEM: c_uint = 4;
    // SAFETY: the caller's promise.
    let place = |at| unsafe { text(at) }.and_then(Place::parse).ok_or(NVML_ERROR_INVALID_ARGUMENT);
    answer(devices().and_then(|all| {
        let at = |place| all.iter().position(|d| Place::of(d) == Some(place));
        let is_one = match (at(place(one)?), at(place(other)?)) {
            (Some(one), Some(other)) => are_one_gpu(one, other)?,
            _ => false,
        };
        // SAFETY: the caller's promise.
        unsafe { put(way, if is_one { AT_MOST_ONE_BRIDGE } else { ACROSS_THE_SYSTEM }) }
    }))
}

unsafe extern "C" fn tells_of_processes(device: nvmlDevice_t, tells: *mut c_uint) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    answer(known(device).and_then(|_| unsafe { put(tells, 1) }))
}

const NAME_BYTES: usize = 4096;

#[repr(C)]
struct NamedProcess {
    pid: c_uint,
    used: c_ulonglong,
    instances: [c_uint; 2],
    protected: c_ulonglong,
    name: [c_char; NAME_BYTES],
}

unsafe extern "C" fn compute_processes(
    device: nvmlDevice_t,
    count: *mut c_uint,
    to: *mut NamedProcess,
) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    answer(on(device).and_then(|mut all| unsafe {
        // Lists are merged by it.
        all.sort_by_key(|process| process.pid);
        put_all(&all, count, to)
    }))
}

unsafe extern "C" fn no_processes(device: nvmlDevice_t, count: *mut c_uint, _: *mut NamedProcess) -> nvmlReturn_t {
    // SAFETY: the caller's promise.
    answer(known(device).and_then(|_| unsafe { put(count, 0) }))
}

impl From<&orion_cuda::nvml_table::Process> for NamedProcess {
    fn from(p: &orion_cuda::nvml_table::Process) -> NamedProcess {
        let name = characters(&process_name(p));
        NamedProcess { pid: p.pid, used: p.used, instances: [NO_INSTANCE; 2], protected: 0, name }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_as_long_as_the_tool_takes_it_to_be() {
        assert_eq!(size_of::<NamedProcess>(), 0x1020);
        assert_eq!(std::mem::offset_of!(NamedProcess, name), 0x20);
        assert_eq!(size_of::<Table>(), 8 * SLOTS);
    }
}
