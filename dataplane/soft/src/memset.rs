//! Fills of memory.

// UNSAFETY: fills memory at addresses that were checked when the work was accepted.

use orion_cuda::sys::*;
use orion_ring::once;

use crate::api::R;
use crate::vram;

#[derive(Clone, Copy)]
pub struct Set {
    pub dst: u64,
    pub pitch: u64,
    pub value: u32,
    pub element: u32,
    pub width: u64,
    pub height: u64,
}

impl Set {
    /// What is asked while it is recorded; whether there is memory is asked when the graph is instantiated, as on a
    /// GPU.
    pub fn check_shape(&self) -> R {
        if !matches!(self.element, 1 | 2 | 4)
            || !self.dst.is_multiple_of(u64::from(self.element))
            || (self.height > 1 && self.pitch < self.width.saturating_mul(u64::from(self.element)))
        {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(())
    }

    pub fn check(&self) -> R {
        self.check_shape()?;
        let span = self.span().ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if span > 0 && !vram::covers(self.dst, span) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(())
    }

    pub(crate) fn span(&self) -> Option<u64> {
        let row = self.width.checked_mul(u64::from(self.element))?;
        if row == 0 || self.height == 0 {
            return Some(0);
        }
        self.pitch.checked_mul(self.height - 1)?.checked_add(row)
    }

    pub fn run(&self) {
        // The memory may have been freed since; a stale fill must not touch its next owner. Nothing may be anywhere.
        if self.check().is_err() || self.span() == Some(0) {
            return;
        }
        for y in 0..self.height {
            let at = self.dst + y * self.pitch;
            let n = self.width as usize;
            // SAFETY: the row is inside a live range by check().
            unsafe {
                match self.element {
                    1 => once::fill(at as *mut u8, self.value as u8, n),
                    2 => std::slice::from_raw_parts_mut(at as *mut u16, n).fill(self.value as u16),
                    _ => std::slice::from_raw_parts_mut(at as *mut u32, n).fill(self.value),
                }
            }
        }
    }
}
