//! What the generated calls are made with: values out of a message, as the driver takes them.

// UNSAFETY: looks at C data as bytes and the other way.

use std::ffi::c_void;
use std::marker::PhantomData;

use orion_cuda::sys::*;
use orion_wire::{Fault, Kind};

use crate::worker::outcome::Stop;
use crate::worker::session::Session;

/// C data without pointers, for which every bit pattern is a value: the generator has checked the types.
/// Its padding is zero, so that nothing of this process's memory goes out with it.
pub struct Plain<T> {
    words: Vec<u64>,
    count: usize,
    of: PhantomData<T>,
}

impl<T: Copy> Plain<T> {
    const ALIGNED: () = assert!(align_of::<T>() <= align_of::<u64>());

    pub fn zeroed(count: usize) -> Plain<T> {
        let () = Self::ALIGNED;
        // One element too many: a pointer to no elements is still a pointer to memory.
        Plain { words: vec![0; ((count + 1) * size_of::<T>()).div_ceil(8)], count, of: PhantomData }
    }

    pub fn of(bytes: &[u8], count: usize) -> Result<Plain<T>, Fault> {
        if Some(bytes.len()) != count.checked_mul(size_of::<T>()) {
            return Err(Fault("a value has another size than its type"));
        }
        let mut plain = Self::zeroed(count);
        // SAFETY: `zeroed` made room for `count` elements, and bytes may be written anywhere in it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), plain.words.as_mut_ptr().cast::<u8>(), bytes.len()) };
        Ok(plain)
    }

    pub fn at(&mut self) -> *mut T {
        self.words.as_mut_ptr().cast()
    }

    pub fn get(&self) -> T {
        // SAFETY: there is room for at least one element, aligned, and every bit pattern is a value.
        unsafe { self.words.as_ptr().cast::<T>().read() }
    }

    pub fn elements(&mut self) -> &mut [T] {
        let count = self.count;
        // SAFETY: as in `get`, for `count` elements.
        unsafe { std::slice::from_raw_parts_mut(self.at(), count) }
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: all of it is initialised memory of the vector.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.count * size_of::<T>()) }
    }
}

pub fn limit(count: usize, limit: usize) -> Result<(), Fault> {
    if count <= limit { Ok(()) } else { Err(Fault("more elements than the operation allows")) }
}

/// The driver's device for the application's ordinal. Negative ones (`CU_DEVICE_CPU`) mean the same everywhere.
pub fn device(s: &Session, ordinal: i32) -> Result<CUdevice, CUresult> {
    if ordinal < 0 { Ok(ordinal) } else { s.device(ordinal) }
}

/// Replaces the application's ordinals by the driver's devices.
pub fn places<T>(s: &Session, elements: &mut [T], location: fn(&mut T) -> &mut CUmemLocation) -> Result<(), CUresult> {
    for element in elements {
        let location = location(element);
        if location.type_ == CU_MEM_LOCATION_TYPE_DEVICE {
            location.id = device(s, location.id)?;
        }
    }
    Ok(())
}

/// The driver's handles for the client's.
pub fn handles(
    s: &mut Session,
    kind: Kind,
    words: Option<&[u64]>,
    count: usize,
) -> Result<Option<Vec<*mut c_void>>, Stop> {
    let Some(words) = words else { return Ok(None) };
    if words.len() != count {
        return Err(Fault("another number of handles than announced").into());
    }
    Ok(Some(words.iter().map(|word| s.handle(kind, *word)).collect::<Result<_, _>>()?))
}
