//! The way to the process's `libcuda.so.1`, and what is known of the devices.

// UNSAFETY: functions of another library, found by name.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use orion_cuda::nvml_table::{DEVICES_MAX, Device, Functions, PROCESSES_MAX, Process, TABLE_ID, Usage};
use orion_cuda::sys::*;

use crate::types::*;

/// How often the application has initialized the library and not shut it down.
static USERS: AtomicUsize = AtomicUsize::new(0);

pub fn initialize() -> nvmlReturn_t {
    let Some(table) = table() else { return NVML_ERROR_DRIVER_NOT_LOADED };
    // SAFETY: a function of the table, which asks for nothing.
    let result = unsafe { (table.ready)() };
    if result == CUDA_SUCCESS {
        USERS.fetch_add(1, Ordering::Relaxed);
    }
    code_of(result)
}

pub fn shut_down() -> nvmlReturn_t {
    let one_less = |users: usize| users.checked_sub(1);
    match USERS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less) {
        Ok(_) => NVML_SUCCESS,
        Err(_) => NVML_ERROR_UNINITIALIZED,
    }
}

pub fn initialized() -> Result<&'static Functions, nvmlReturn_t> {
    if USERS.load(Ordering::Relaxed) == 0 {
        return Err(NVML_ERROR_UNINITIALIZED);
    }
    table().ok_or(NVML_ERROR_DRIVER_NOT_LOADED)
}

/// Asked for once: a session's devices do not change.
pub fn devices() -> Result<&'static [Device], nvmlReturn_t> {
    static DEVICES: OnceLock<Result<Vec<Device>, nvmlReturn_t>> = OnceLock::new();
    let table = initialized()?;
    let asked = DEVICES.get_or_init(|| {
        let mut devices = Vec::with_capacity(DEVICES_MAX);
        let mut count = 0;
        // SAFETY: there is room for as many as it says.
        match unsafe { (table.devices)(devices.as_mut_ptr(), DEVICES_MAX, &mut count) } {
            CUDA_SUCCESS => {
                // SAFETY: that many have been written, and no more than there is room for.
                unsafe { devices.set_len(count) };
                Ok(devices)
            }
            code => Err(code_of(code)),
        }
    });
    asked.as_deref().map_err(|code| *code)
}

pub fn driver_version() -> Result<i32, nvmlReturn_t> {
    let table = initialized()?;
    let mut version = 0;
    // SAFETY: a place of our own.
    match unsafe { (table.driver_version)(&mut version) } {
        CUDA_SUCCESS => Ok(version),
        code => Err(code_of(code)),
    }
}

pub fn usage(index: usize) -> Result<Usage, nvmlReturn_t> {
    let table = initialized()?;
    let mut usage = Usage::default();
    // SAFETY: a place of our own.
    match unsafe { (table.usage)(index, &mut usage) } {
        CUDA_SUCCESS => Ok(usage),
        code => Err(code_of(code)),
    }
}

/// For how much of the last second a device worked, in percent, or `UNKNOWN`.
pub fn busy(index: usize) -> Result<u32, nvmlReturn_t> {
    let table = initialized()?;
    let mut percent = 0;
    // SAFETY: a place of our own.
    match unsafe { (table.busy)(index, &mut percent) } {
        CUDA_SUCCESS => Ok(percent),
        code => Err(code_of(code)),
    }
}

pub fn processes() -> Result<Vec<Process>, nvmlReturn_t> {
    let table = initialized()?;
    let mut processes = Vec::with_capacity(PROCESSES_MAX);
    let mut count = 0;
    // SAFETY: there is room for as many as it says.
    match unsafe { (table.processes)(processes.as_mut_ptr(), PROCESSES_MAX, &mut count) } {
        CUDA_SUCCESS => {
            // SAFETY: that many have been written, and no more than there is room for.
            unsafe { processes.set_len(count.min(PROCESSES_MAX)) };
            Ok(processes)
        }
        code => Err(code_of(code)),
    }
}

/// How one device can access another, of `PEER_*`.
pub fn peer_access(from: usize, to: usize) -> Result<u8, nvmlReturn_t> {
    let table = initialized()?;
    let mut way = 0;
    // SAFETY: a place of our own.
    match unsafe { (table.peer_access)(from, to, &mut way) } {
        CUDA_SUCCESS => Ok(way),
        code => Err(code_of(code)),
    }
}

/// What NVML says where CUDA says that.
fn code_of(result: CUresult) -> nvmlReturn_t {
    match result {
        CUDA_SUCCESS => NVML_SUCCESS,
        CUDA_ERROR_NO_DEVICE => NVML_ERROR_DRIVER_NOT_LOADED,
        CUDA_ERROR_NOT_PERMITTED => NVML_ERROR_NO_PERMISSION,
        CUDA_ERROR_SYSTEM_DRIVER_MISMATCH => NVML_ERROR_LIB_RM_VERSION_MISMATCH,
        CUDA_ERROR_SYSTEM_NOT_READY => NVML_ERROR_INSUFFICIENT_RESOURCES,
        // What a lost session answers, too.
        CUDA_ERROR_DEVICE_UNAVAILABLE => NVML_ERROR_GPU_IS_LOST,
        _ => NVML_ERROR_UNKNOWN,
    }
}

fn table() -> Option<&'static Functions> {
    static TABLE: OnceLock<Option<&'static Functions>> = OnceLock::new();
    *TABLE.get_or_init(|| match find() {
        Ok(found) => Some(found),
        Err(why) => {
            say(&format!("NVML does not work: {why}"));
            None
        }
    })
}

fn find() -> Result<&'static Functions, &'static str> {
    type GetExportTable = unsafe extern "C" fn(*mut *const c_void, *const CUuuid) -> CUresult;
    let open = |flags: c_int| {
        // SAFETY: a C string. What is loaded by this name is a driver, which programs load and keep.
        unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), flags) }
    };
    let mut library = open(libc::RTLD_NOW | libc::RTLD_NOLOAD);
    if library.is_null() {
        library = open(libc::RTLD_NOW);
    }
    if library.is_null() {
        return Err("there is no libcuda.so.1; Orion's has to lie where the program's loader looks for it");
    }
    // SAFETY: a library that was just opened and is never closed.
    let function = unsafe { libc::dlsym(library, c"cuGetExportTable".as_ptr()) };
    if function.is_null() {
        return Err("libcuda.so.1 has no cuGetExportTable");
    }
    // SAFETY: a function of this name has this signature.
    let get: GetExportTable = unsafe { std::mem::transmute(function) };
    let mut table = std::ptr::null();
    // SAFETY: a valid place, and sixteen bytes.
    let result = unsafe { get(&mut table, TABLE_ID.as_ptr().cast()) };
    if result != CUDA_SUCCESS || table.is_null() {
        return Err("this libcuda.so.1 is not Orion's; without Orion's libnvidia-ml.so.1 the program has NVIDIA's");
    }
    // SAFETY: a table of this name is Orion's, and begins with its size.
    if unsafe { table.cast::<usize>().read() } != size_of::<Functions>() {
        return Err("libnvidia-ml.so.1 and libcuda.so.1 are of different versions of Orion");
    }
    // SAFETY: of this layout, and static.
    Ok(unsafe { &*table.cast() })
}

fn say(text: &str) {
    orion_transport::client::say::put(format!("orion: {text}\n").as_bytes());
}

/// Functions that are not answered say so to who wants to know: libraries try many and do without them.
pub fn not_supported(name: &'static str) -> nvmlReturn_t {
    not_done(name, "not supported", NVML_ERROR_NOT_SUPPORTED)
}

/// What only root may do where the driver is is not a tenant's to do; programs go on without it as other users' do.
pub fn not_permitted(name: &'static str) -> nvmlReturn_t {
    not_done(name, "the operator's to do", NVML_ERROR_NO_PERMISSION)
}

fn not_done(name: &'static str, why: &str, code: nvmlReturn_t) -> nvmlReturn_t {
    if let Err(code) = initialized() {
        return code;
    }
    static VERBOSE: OnceLock<bool> = OnceLock::new();
    if *VERBOSE.get_or_init(|| std::env::var_os("ORION_VERBOSE").is_some_and(|v| !v.is_empty() && v != "0")) {
        say(&format!("{name} is {why}"));
    }
    code
}
