//! The NVML library and the shim.
//!
//! `libnvidia-ml.so.1` knows nothing by itself: it asks the loaded `libcuda.so.1` for one table of functions of Orion's
//! own. Both sides are built from this.

use crate::sys::CUresult;

/// What `cuGetExportTable` knows the table by: a random number that is nobody else's.
pub const TABLE_ID: [u8; 16] = 0xc41b6a37_0e5d4f92_a7f3185c_d96e02b4_u128.to_be_bytes();

/// The table. Its size comes first, as in the driver's own.
#[repr(C)]
pub struct Functions {
    pub size: usize,
    /// Whether there may be a server: without asking one, for this has to be cheap.
    pub ready: unsafe extern "C" fn() -> CUresult,
    /// The session's devices, whichever of them `CUDA_VISIBLE_DEVICES` lets CUDA see. `devices` has room for `room`.
    pub devices: unsafe extern "C" fn(devices: *mut Device, room: usize, count: *mut usize) -> CUresult,
    /// As `cuDriverGetVersion`.
    pub driver_version: unsafe extern "C" fn(version: *mut i32) -> CUresult,
    /// What is used of a device, by this process if it has a session, else by the user's programs.
    pub usage: unsafe extern "C" fn(index: usize, usage: *mut Usage) -> CUresult,
    /// For how much of the last second a device worked for the user's programs, or [`UNKNOWN`].
    pub busy: unsafe extern "C" fn(index: usize, percent: *mut u32) -> CUresult,
    /// Those programs. `processes` has room for `room`, and `count` says how many there are.
    pub processes: unsafe extern "C" fn(processes: *mut Process, room: usize, count: *mut usize) -> CUresult,
    /// How the first device can access the second one's memory, and whether they are one GPU: of `PEER_*`.
    pub peer_access: unsafe extern "C" fn(from: usize, to: usize, way: *mut u8) -> CUresult,
}

/// Texts end with zeros. What the driver does not say is 0.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Device {
    pub name: [u8; 96],
    pub pci_bus_id: [u8; 32],
    pub uuid: [u8; 16],
    pub total_memory: u64,
    pub compute_major: i32,
    pub compute_minor: i32,
    /// Device and vendor, and those of the board.
    pub pci_device_id: u32,
    pub pci_subsystem_id: u32,
    pub compute_mode: i32,
    pub has_ecc: i32,
    pub multiprocessors: i32,
    /// The highest, in kHz.
    pub clock_khz: i32,
    pub memory_clock_khz: i32,
    pub memory_bus_bits: i32,
    /// Of the link to its own machine.
    pub pcie_generation: i32,
    pub pcie_generation_max: i32,
    pub pcie_width: i32,
    pub pcie_width_max: i32,
    /// Of its node's driver, as in `580.159.04`; empty where that is not known.
    pub driver_release: [u8; 32],
}

/// Bytes of a device's memory.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    pub total: u64,
    pub used: u64,
}

/// A program that uses a device.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Process {
    pub pid: u32,
    pub device: u32,
    pub used: u64,
    /// As the device's.
    pub busy_percent: u32,
    pub name: [u8; 64],
}

/// A device can access another one's memory.
pub const PEER_ACCESS: u8 = 1;
/// And kernels do all of their atomic operations there, as over NVLink and not over PCIe.
pub const PEER_ATOMICS: u8 = 2;
/// Both are on one GPU, or the same device.
pub const PEER_SAME_GPU: u8 = 4;

pub const UNKNOWN: u32 = u32::MAX;
/// For bytes; NVML's own `NVML_VALUE_NOT_AVAILABLE`.
pub const NOT_AVAILABLE: u64 = u64::MAX;

/// As many as a session has at most.
pub const DEVICES_MAX: usize = 32;
/// Programs that are told of.
pub const PROCESSES_MAX: usize = 1024;
