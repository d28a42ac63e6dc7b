//! The name of the file that an image is in, for what is said of it where it does not run. That is the software GPU's
//! to say, so nobody looks for it where there is none.

// UNSAFETY: reads what the dynamic linker tells of the program's objects.

use std::ffi::{CStr, CString, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::session::device::facts;
use crate::state::device::Device;

/// As long as a file's name can be.
const NAME_BYTES_MAX: usize = 255;

/// Of an image in memory.
pub fn of(image: *const c_void, bytes: &[u8]) -> CString {
    match facts().is_ok_and(|facts| facts.devices.iter().any(Device::is_software)) {
        true => found(image, bytes),
        false => CString::default(),
    }
}

/// Of the program or library that has it in itself, by where the image is or, of a wrapper, its
/// bytes are; or else, since cuBLAS unpacks its images first, of the one that calls.
fn found(image: *const c_void, bytes: &[u8]) -> CString {
    let _whole = orion_transport::thread::Uncancelled::hold();
    let own = |at: *const u8| object_at(at.addr() as u64);
    match own(image.cast()).or_else(|| own(bytes.as_ptr())).or_else(caller) {
        Some(path) if !path.is_empty() => name(&path),
        // The linker has no name for the program itself.
        Some(_) => match std::fs::read_link("/proc/self/exe") {
            Ok(path) => name(&CString::new(path.as_os_str().as_bytes()).unwrap_or_default()),
            Err(_) => CString::default(),
        },
        None => CString::default(),
    }
}

/// The last part of a path.
pub fn name(path: &CStr) -> CString {
    let path = Path::new(std::ffi::OsStr::from_bytes(path.to_bytes()));
    let name = path.file_name().map_or(&b""[..], |name| name.as_bytes());
    CString::new(&name[..name.len().min(NAME_BYTES_MAX)]).unwrap_or_default()
}

/// The path of the object that has an address in one of its segments. Not by `dladdr`: that waits for whoever loads a
/// library, and such a one may wait, in the library's constructors, for what this thread's caller holds.
fn object_at(address: u64) -> Option<CString> {
    struct Search {
        address: u64,
        found: Option<CString>,
    }

    unsafe extern "C" fn look(object: *mut libc::dl_phdr_info, _bytes: usize, search: *mut c_void) -> c_int {
        // SAFETY: the linker's own, and what was passed below; both stay during the call.
        let (object, search) = unsafe { (&*object, &mut *search.cast::<Search>()) };
        for i in 0..usize::from(object.dlpi_phnum) {
            // SAFETY: it has so many segments.
            let segment = unsafe { &*object.dlpi_phdr.add(i) };
            let begin = object.dlpi_addr.wrapping_add(segment.p_vaddr);
            if segment.p_type == libc::PT_LOAD && search.address.wrapping_sub(begin) < segment.p_memsz {
                if !object.dlpi_name.is_null() {
                    // SAFETY: NUL-terminated, as the linker has it.
                    search.found = Some(unsafe { CStr::from_ptr(object.dlpi_name) }.to_owned());
                }
                return 1;
            }
        }
        0
    }

    let mut search = Search { address, found: None };
    // SAFETY: the function is given what it expects, for the call alone, and does not unwind.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.found
}

/// Frames of this library's own that a call can have.
const FRAMES_MAX: u32 = 32;

/// The path of the object that has called this library.
fn caller() -> Option<CString> {
    struct Search {
        own: Option<CString>,
        frames: u32,
        found: Option<CString>,
    }

    // What Rust's own backtraces are made with: it is linked whether or not this asks for it.
    unsafe extern "C" {
        fn _Unwind_Backtrace(
            look: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int,
            search: *mut c_void,
        ) -> c_int;
        fn _Unwind_GetIP(frame: *mut c_void) -> usize;
    }

    unsafe extern "C" fn look(frame: *mut c_void, search: *mut c_void) -> c_int {
        const GO_ON: c_int = 0;
        const END: c_int = 4;
        // SAFETY: the unwinder's own, and what was passed below; both stay during the call.
        let (at, search) = unsafe { (_Unwind_GetIP(frame), &mut *search.cast::<Search>()) };
        search.frames += 1;
        let object = object_at(at as u64);
        if object != search.own {
            search.found = object;
            return END;
        }
        if search.frames == FRAMES_MAX { END } else { GO_ON }
    }

    let own = object_at((look as *const ()).addr() as u64);
    let mut search = Search { own, frames: 0, found: None };
    // SAFETY: the function is given what it expects, for the call alone, and does not unwind.
    unsafe { _Unwind_Backtrace(look, (&raw mut search).cast()) };
    search.found
}

#[cfg(test)]
mod tests {
    use super::*;

    static OWN: [u8; 4] = *b"mine";

    #[test]
    fn what_is_in_a_program_or_library_has_its_name() {
        let test = std::env::current_exe().expect("Linux tells it");
        let test = name(&CString::new(test.as_os_str().as_bytes()).expect("no NUL"));
        assert_eq!(found(OWN.as_ptr().cast(), &[]), test);
        // Of a wrapper that the program made, its bytes decide.
        let made = Box::new(7u64);
        assert_eq!(found((&raw const *made).cast(), &OWN), test);
        // Nobody but the test calls, but the C library, whose thread it is.
        assert!(found((&raw const *made).cast(), &[]).to_string_lossy().starts_with("libc"));
        // Where there is no software GPU.
        crate::state::device::fixture::initialise();
        assert_eq!(of(OWN.as_ptr().cast(), &OWN), CString::default());
        let library = found(libc::getpid as *const c_void, &[]);
        assert!(library.to_string_lossy().starts_with("libc"), "{library:?}");
    }

    #[test]
    fn names_are_the_last_parts_of_paths() {
        assert_eq!(name(c"/opt/a b/libx.so.1").as_c_str(), c"libx.so.1");
        assert_eq!(name(c"kernels.ptx").as_c_str(), c"kernels.ptx");
        assert_eq!(name(c"/").as_c_str(), c"");
        assert_eq!(name(&CString::new([b'x'; 300]).expect("no NUL")).count_bytes(), NAME_BYTES_MAX);
    }
}
