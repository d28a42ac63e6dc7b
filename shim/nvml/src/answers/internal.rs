//! The table of private functions that `nvidia-smi` asks for at its start, and without which it says that versions
//! mismatch.
//!
//! nvidia-smi 535 calls functions of it for what the public ones do not tell (that a GPU is a board's second, say) and
//! leaves the line out that one does not support. The table of that release has 244 slots, and this one more.

// UNSAFETY: pointers of NVML's interface are null or valid for what the function reads or writes.

use std::ffi::c_void;

use crate::library::not_supported;
use crate::types::*;

/// Of the table, as NVIDIA's library knows it.
const ID: [u8; 16] = 0xc4fe3e6c_c98f6c4e_a327ee69_6e12f7c4_u128.to_be_bytes();
/// The table's first word is how many bytes it has.
const SLOTS: usize = 512;

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

#[repr(C)]
struct Table {
    bytes: usize,
    slots: [extern "C" fn() -> nvmlReturn_t; SLOTS - 1],
}

impl Table {
    const fn new() -> Table {
        Table { bytes: size_of::<Table>(), slots: [private; SLOTS - 1] }
    }
}

/// Called with arguments that it does not look at, also as a function with any number of them.
extern "C" fn private() -> nvmlReturn_t {
    not_supported("a private function")
}
