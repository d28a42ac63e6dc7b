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
    /// Free bytes of a device, once this process has a context there; before, all that the device has.
    pub free_memory: unsafe extern "C" fn(index: usize, free: *mut u64) -> CUresult,
}

/// Texts end with zeros.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Device {
    pub name: [u8; 96],
    pub pci_bus_id: [u8; 32],
    pub uuid: [u8; 16],
    pub total_memory: u64,
    pub compute_major: i32,
    pub compute_minor: i32,
    /// Device and vendor, and those of the board; 0 where the driver does not say.
    pub pci_device_id: u32,
    pub pci_subsystem_id: u32,
}

/// As many as a session has at most.
pub const DEVICES_MAX: usize = 32;
