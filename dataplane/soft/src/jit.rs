//! Images become syntax; what a program asked to be told of it.

// UNSAFETY: writes to where JIT options point.

use std::ffi::{c_char, c_uint, c_void};
use std::sync::Arc;

use orion_cuda::sys::*;

use crate::api::{R, list, text};
use crate::ptx::{check, link, parse};
use crate::{context, image, say};

/// JIT options that carry answers back.
pub struct Jit {
    pub options: Vec<(CUjit_option, usize)>,
    pub values: *mut *mut c_void,
}

impl Jit {
    /// # Safety
    /// Both arrays have `n` entries, and stay valid for the call.
    pub(crate) unsafe fn new(n: c_uint, options: *mut CUjit_option, values: *mut *mut c_void) -> R<Self> {
        if n == 0 || options.is_null() || values.is_null() {
            return Ok(Self { options: Vec::new(), values });
        }
        // SAFETY: forwarded from this function's contract.
        let options = unsafe { list(options, n as usize)? };
        // SAFETY: as above.
        let given = unsafe { list(values, n as usize)? };
        Ok(Self { options: options.into_iter().zip(given.into_iter().map(|v| v as usize)).collect(), values })
    }

    pub(crate) fn value(&self, which: CUjit_option) -> Option<usize> {
        self.options.iter().find(|(o, _)| *o == which).map(|(_, v)| *v)
    }

    pub(crate) fn answer(&self, which: CUjit_option, v: usize) {
        if let Some(at) = self.options.iter().position(|(o, _)| *o == which) {
            // SAFETY: the index is inside the caller's array.
            unsafe { self.values.add(at).write_unaligned(v as *mut c_void) };
        }
    }

    fn report(&self, error: &str) {
        self.log(CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, error);
    }

    pub(crate) fn log(&self, buffer: CUjit_option, size: CUjit_option, message: &str) {
        let (Some(to), Some(room)) = (self.value(buffer), self.value(size)) else { return };
        if to == 0 || room == 0 {
            return;
        }
        let n = message.len().min(room - 1);
        // SAFETY: the caller's buffer has `room` bytes, and n is less.
        unsafe {
            std::ptr::copy_nonoverlapping(message.as_ptr(), to as *mut u8, n);
            (to as *mut u8).add(n).write(0);
        }
        self.answer(size, n + usize::from(n > 0));
    }

    fn succeeded(&self) {
        self.log(CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, "");
        self.log(CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, "");
        self.answer(CU_JIT_WALL_TIME, 0);
    }
}

/// CUDA 13 writes version 9.
const PTX_MAJOR_MAX: u32 = 9;

pub(crate) fn parse_ptx(text: &image::Text, jit: &Jit) -> R<Arc<parse::Module>> {
    let fail = |message: String, code| {
        say::say(&format!("PTX{} rejected: {message}", image::from(&text.owner)));
        jit.report(&message);
        if text.compiled {
            context::lacks();
        }
        Err(code)
    };
    match syntax(text) {
        // A minor version more has instructions more, which only the kernels that use them lack.
        Ok(m) if m.version.0 > PTX_MAJOR_MAX => {
            fail(format!("PTX is of version {}.{}", m.version.0, m.version.1), CUDA_ERROR_UNSUPPORTED_PTX_VERSION)
        }
        Ok(m) => {
            jit.succeeded();
            Ok(Arc::new(parse::Module { owner: text.owner.clone(), ..m }))
        }
        Err(message) => fail(message, CUDA_ERROR_INVALID_PTX),
    }
}

/// One text of a compiler's may have thousands of kernels of which a program launches three, so the functions of such a
/// text are read when they are needed. Others are checked here, and what is linked is linked here.
fn syntax(text: &image::Text) -> Result<parse::Module, String> {
    let is_one = memchr::memmem::find(text.ptx.as_bytes(), link::NEXT.as_bytes()).is_none();
    if text.compiled && is_one {
        return parse::outline(&text.ptx);
    }
    let parse_one = |text| parse::parse(text).and_then(|m| check::check(&m).map(|()| m));
    text.ptx.split(link::NEXT).map(parse_one).collect::<Result<_, _>>().and_then(link::link)
}

pub(crate) fn read_file(name: *const c_char) -> R<image::Text> {
    // SAFETY: the caller's string.
    let path = unsafe { text(name)? };
    let bytes = std::fs::read(&path).map_err(|_| CUDA_ERROR_FILE_NOT_FOUND)?;
    let name = std::path::Path::new(&path).file_name().unwrap_or_default().to_string_lossy();
    image::of_file(&name, || image::ptx_in(&bytes))
}

pub(crate) fn no_jit() -> Jit {
    Jit { options: Vec::new(), values: std::ptr::null_mut() }
}
