//! The shape every exported function has: a C signature checked against `cuda.h`, a Rust body, a row in the table.

// UNSAFETY: reads and writes through the pointers that C callers pass, and lends them to stream threads.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, RwLock};

use orion_cuda::sys::*;

pub type R<T = ()> = Result<T, CUresult>;

/// Declares exported functions and this file's part of the symbol table from one list, so that they cannot diverge.
/// The constant beside each function fails to compile when its signature differs from the header's.
macro_rules! api {
    ($( fn $name:ident($($a:ident : $t:ty),* $(,)?) $body:block )*) => {
        $(
            /// # Safety
            /// As the CUDA driver API demands: pointers are null or valid for what the function reads and writes.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, clippy::too_many_arguments, reason = "the header's names and signatures")]
            pub unsafe extern "C" fn $name($($a: $t),*) -> orion_cuda::sys::CUresult {
                // SAFETY: the body dereferences only this function's own pointer arguments, under its contract.
                #[allow(unused_unsafe, clippy::redundant_closure_call, reason = "some bodies touch no pointer")]
                $crate::api::answer((|| -> $crate::api::R { unsafe { $body } })())
            }
            const _: unsafe extern "C" fn($($t),*) -> orion_cuda::sys::CUresult = orion_cuda::sys::$name;
        )*
        pub(crate) fn lookup(name: &str) -> Option<*const std::ffi::c_void> {
            match name {
                $( stringify!($name) => Some($name as *const std::ffi::c_void), )*
                _ => None,
            }
        }
    };
}
pub(crate) use api;

pub fn answer(r: R) -> CUresult {
    match r {
        Ok(()) => CUDA_SUCCESS,
        Err(e) => e,
    }
}

/// Writes an out parameter.
///
/// # Safety
/// `p` is null or valid for writing a `T`.
pub unsafe fn put<T>(p: *mut T, v: T) -> R {
    if p.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, and valid by this function's contract.
    unsafe { p.write_unaligned(v) };
    Ok(())
}

/// Writes an out parameter that may be null.
///
/// # Safety
/// As for `put`.
pub unsafe fn put_some<T>(p: *mut T, v: T) {
    if !p.is_null() {
        // SAFETY: not null, and valid by this function's contract.
        unsafe { p.write_unaligned(v) };
    }
}

/// Reads an in parameter.
///
/// # Safety
/// `p` is null or points to a `T`.
pub unsafe fn get<T: Copy>(p: *const T) -> R<T> {
    if p.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, and valid by this function's contract.
    Ok(unsafe { p.read_unaligned() })
}

/// # Safety
/// `p` is null or a NUL-terminated string.
pub unsafe fn text(p: *const std::ffi::c_char) -> R<String> {
    if p.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, and NUL-terminated by this function's contract.
    Ok(unsafe { std::ffi::CStr::from_ptr(p) }.to_string_lossy().into_owned())
}

/// # Safety
/// `p` points to `n` values, or `n` is zero.
pub unsafe fn list<T: Copy>(p: *const T, n: usize) -> R<Vec<T>> {
    if n == 0 {
        return Ok(Vec::new());
    }
    if p.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: each index is below n, within the array the contract promises.
    Ok((0..n).map(|i| unsafe { p.add(i).read_unaligned() }).collect())
}

/// Live objects of one kind by handle. A handle is the object's address, and only a known one is followed.
pub struct Registry<T> {
    map: RwLock<BTreeMap<usize, Arc<T>>>,
}

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Registry<T> {
    pub const fn new() -> Self {
        Self { map: RwLock::new(BTreeMap::new()) }
    }
    pub fn add<H>(&self, v: &Arc<T>) -> *mut H {
        let h = Arc::as_ptr(v) as usize;
        if let Ok(mut m) = self.map.write() {
            m.insert(h, v.clone());
        }
        h as *mut H
    }
    pub fn get<H>(&self, h: *mut H) -> Option<Arc<T>> {
        self.map.read().ok()?.get(&(h as usize)).cloned()
    }
    pub fn remove<H>(&self, h: *mut H) -> Option<Arc<T>> {
        self.map.write().ok()?.remove(&(h as usize))
    }
    pub fn retain(&self, keeps: impl Fn(&T) -> bool) {
        if let Ok(mut m) = self.map.write() {
            m.retain(|_, v| keeps(v));
        }
    }
    pub fn all(&self) -> Vec<Arc<T>> {
        self.map.read().map(|m| m.values().cloned().collect()).unwrap_or_default()
    }
}

pub fn handle<T, H>(v: &Arc<T>) -> *mut H {
    Arc::as_ptr(v) as *mut H
}

/// A pointer or C struct that another thread will use; CUDA's contract makes its owner keep it valid.
#[derive(Clone, Copy)]
pub struct Raw<T>(pub T);

// SAFETY: the values are plain data; the application promises their pointers stay valid until the work is done.
unsafe impl<T> Send for Raw<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Raw<T> {}

pub type Symbol = *const c_void;
