//! Functions: parameters, attributes, occupancy.

// UNSAFETY: reads kernel parameters from the application's memory, as CUDA defines them.

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use orion_cuda::sys::*;
use orion_wire::handle::{Handle, Kind};
use orion_wire::message::execution::{FuncAttribute, FuncGetAttributes, FuncGetAttributesReply};
use orion_wire::message::execution::{FuncSetAttribute, FuncSetCacheConfig};
use orion_wire::message::field::{Existing, Ordinal};
use orion_wire::message::occupancy::{Occupancy, OccupancyReply, Question};

use crate::answer::code;
use crate::session::call::call;
use crate::state::context;
use crate::state::function::Function;
use crate::state::process::state;

impl Function {
    /// One attribute on one device, asked for once with all its siblings.
    pub fn attribute(&self, id: u32, device: u32) -> Result<i32, CUresult> {
        let slot = self.attributes.get(id as usize).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if let Some(known) = Attribute(slot.load(Ordering::Relaxed)).on(device) {
            return known;
        }
        let q = FuncGetAttributes { function: Existing(self.handle), device: Ordinal(device as i32) };
        let all = call(FuncGetAttributes::OP, |w| q.encode(w), FuncGetAttributesReply::decode)?;
        for (slot, FuncAttribute { result, value }) in self.attributes.iter().zip(all.attributes.iter()) {
            slot.store(Attribute::pack(device, *result, *value), Ordering::Relaxed);
        }
        self.is_refused.store(all.is_refused, Ordering::Relaxed);
        Attribute(slot.load(Ordering::Relaxed)).on(device).unwrap_or(Err(CUDA_ERROR_UNKNOWN))
    }

    /// Sets an attribute; the worker is asked only if the value is not the one known to be set.
    pub fn set_attribute(&self, id: u32, value: i32, device: u32) -> CUresult {
        let may_be_set = matches!(
            id,
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                | CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
                | CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH
                ..=CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE
        );
        let Some(slot) = self.attributes.get(id as usize).filter(|_| may_be_set) else {
            return CUDA_ERROR_INVALID_VALUE;
        };
        if Attribute(slot.load(Ordering::Relaxed)).on(device) == Some(Ok(value)) {
            return CUDA_SUCCESS;
        }
        let (function, on) = (Existing(self.handle), Ordinal(device as i32));
        let q = FuncSetAttribute { function, attribute: id, value, device: on };
        match call(FuncSetAttribute::OP, |w| q.encode(w), |_| Ok(())) {
            Ok(()) => {
                // Others may have moved with it (the carve-out limits shared memory); they are asked for again.
                for other in self.attributes.iter().chain([&self.limits]) {
                    other.store(0, Ordering::Relaxed);
                }
                slot.store(Attribute::pack(device, 0, value), Ordering::Relaxed);
                self.occupancy.lock().clear();
                CUDA_SUCCESS
            }
            Err(code) => code,
        }
    }

    /// What a launch on `device` may ask for; `None` if the driver has to say.
    #[inline]
    pub fn limits(&self, device: u32) -> Option<Limits> {
        let known = Limits(self.limits.load(Ordering::Relaxed));
        if known.is_of(device) { Some(known) } else { self.ask_limits(device) }
    }

    #[cold]
    fn ask_limits(&self, device: u32) -> Option<Limits> {
        let threads = self.attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, device).ok()?;
        let shared = self.attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, device).ok()?;
        // No block is within the limits of one that is refused, so that each launch of it waits for the refusal.
        let threads = if self.is_refused.load(Ordering::Relaxed) { 0 } else { threads };
        let limits = Limits::pack(device, threads, shared);
        self.limits.store(limits.0, Ordering::Relaxed);
        Some(limits)
    }

    /// An answer of the occupancy calculator, asked for once per question.
    pub fn occupancy(&self, question: Question<'_>) -> Result<u64, CUresult> {
        let q = Occupancy { function: Existing(self.handle), question };
        let mut question = Vec::new();
        q.encode(&mut question);
        if let Some(known) = self.occupancy.lock().get(&question) {
            return *known;
        }
        let answer = call(Occupancy::OP, |w| q.encode(w), OccupancyReply::decode).map(|q| q.answer);
        // Errors of the question itself are as constant as answers; anything else may pass.
        if matches!(answer, Ok(_) | Err(CUDA_ERROR_INVALID_VALUE) | Err(CUDA_ERROR_INVALID_CLUSTER_SIZE)) {
            self.occupancy.lock().insert(question, answer);
        }
        answer
    }
}

/// The upper 16 bits of a word that is known of a device; 0 is known of none.
fn known_of(device: u32) -> u64 {
    1 << 15 | device as u64 & 0x7fff
}

/// `1 << 63 | device << 48 | result << 32 | value`.
struct Attribute(u64);

impl Attribute {
    fn pack(device: u32, result: CUresult, value: i32) -> u64 {
        known_of(device) << 48 | (result as u64 & 0xffff) << 32 | value as u32 as u64
    }

    fn on(&self, device: u32) -> Option<Result<i32, CUresult>> {
        if self.0 >> 48 != known_of(device) {
            return None;
        }
        let result = (self.0 >> 32) as u16 as u32;
        Some(if result == CUDA_SUCCESS { Ok(self.0 as u32 as i32) } else { Err(result) })
    }
}

/// `1 << 63 | device << 48 | threads of a block << 32 | bytes of dynamic shared memory`.
#[derive(Clone, Copy)]
pub struct Limits(u64);

impl Limits {
    fn pack(device: u32, threads: i32, shared_bytes: i32) -> Limits {
        let threads = threads.clamp(0, u16::MAX as i32) as u64;
        Limits(known_of(device) << 48 | threads << 32 | shared_bytes.max(0) as u64)
    }

    fn is_of(self, device: u32) -> bool {
        self.0 >> 48 == known_of(device)
    }

    pub fn allow(self, threads: u64, shared_bytes: u32) -> bool {
        threads <= self.0 >> 32 & 0xffff && shared_bytes <= self.0 as u32
    }
}

/// The function behind a handle the application passed.
pub fn function(f: *const c_void) -> Result<&'static Function, CUresult> {
    let handle = Handle(f as u64);
    if !handle.is(Kind::Function) {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    state().functions.table.get(handle).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

/// Ordinal of the current context's device, or `CUDA_ERROR_INVALID_CONTEXT`.
pub fn current_device() -> Result<u32, CUresult> {
    context::current_device().ok_or(CUDA_ERROR_INVALID_CONTEXT)
}

/// Where a launch's parameters lie.
pub enum Parameters {
    None,
    Each(*mut *mut c_void),
    Buffer(*const u8, usize),
}

impl Parameters {
    /// # Safety
    /// As `cuLaunchKernel`: `each` has one pointer a parameter, `extra` is a list that ends with
    /// `CU_LAUNCH_PARAM_END`.
    #[inline]
    pub unsafe fn new(
        f: &Function,
        each: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> Result<(Parameters, usize), CUresult> {
        if !each.is_null() && !extra.is_null() {
            // One that takes none is launched all the same.
            return if f.layout.is_empty() { Ok((Parameters::None, 0)) } else { Err(CUDA_ERROR_INVALID_VALUE) };
        }
        if !extra.is_null() {
            let (mut buffer, mut size) = (std::ptr::null(), None);
            // Five words are all that CUDA defines; a longer list has no end mark.
            for pair in 0..3 {
                // SAFETY: by the contract the list goes on until its end mark.
                let key = unsafe { *extra.add(2 * pair) } as usize as u32;
                match key {
                    CU_LAUNCH_PARAM_END_AS_INT => break,
                    // SAFETY: a key is followed by its value.
                    CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT => {
                        buffer = unsafe { *extra.add(2 * pair + 1) }.cast_const().cast::<u8>()
                    }
                    // SAFETY: the value of the size key points to a size_t.
                    CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT => {
                        size = Some(unsafe { *(*extra.add(2 * pair + 1)).cast::<usize>() })
                    }
                    _ => return Err(CUDA_ERROR_INVALID_VALUE),
                }
            }
            let size = size.unwrap_or(0);
            if buffer.is_null() || size == 0 {
                return if f.parameter_bytes == 0 { Ok((Parameters::None, 0)) } else { Err(CUDA_ERROR_INVALID_VALUE) };
            }
            return Ok((Parameters::Buffer(buffer, size), size));
        }
        if f.layout.is_empty() {
            return Ok((Parameters::None, 0));
        }
        if each.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok((Parameters::Each(each), f.parameter_bytes as usize))
    }

    /// Every eight bytes of the packed parameters that may be a pointer: pointers are aligned, and lie within one
    /// parameter.
    ///
    /// # Safety
    /// As [`Self::new`].
    pub unsafe fn each_word(&self, layout: &[(u32, u32)], mut visit: impl FnMut(u64)) {
        let mut words = |from: *const u8, first: usize, bytes: usize| {
            for at in (first..bytes.saturating_sub(7)).step_by(8) {
                // SAFETY: eight bytes from there on lie within the parameter.
                visit(unsafe { from.add(at).cast::<u64>().read_unaligned() });
            }
        };
        match self {
            Parameters::None => {}
            Parameters::Buffer(from, size) => words(*from, 0, *size),
            Parameters::Each(each) => {
                for (i, (offset, size)) in layout.iter().enumerate() {
                    // SAFETY: one pointer a parameter, each to as many bytes as the parameter has.
                    let from = unsafe { *each.add(i) }.cast_const().cast();
                    words(from, (offset.next_multiple_of(8) - offset) as usize, *size as usize);
                }
            }
        }
    }

    /// Writes the packed parameters.
    ///
    /// # Safety
    /// `to` has the size that `new` answered, rounded up to 8, and is zeroed where no parameter lies.
    pub unsafe fn pack(&self, f: &Function, to: *mut u8) {
        match self {
            Parameters::None => {}
            // SAFETY: the application gave that many bytes.
            Parameters::Buffer(from, size) => unsafe { std::ptr::copy_nonoverlapping(*from, to, *size) },
            Parameters::Each(each) => {
                for (i, (offset, size)) in f.layout.iter().enumerate() {
                    // SAFETY: one pointer a parameter, each to as many bytes as the parameter has; the common
                    // sizes are copied as words because a call to memcpy costs more than the copy.
                    unsafe {
                        let from = (*each.add(i)).cast_const().cast::<u8>();
                        let at = to.add(*offset as usize);
                        match size {
                            8 => at.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned()),
                            4 => at.cast::<u32>().write_unaligned(from.cast::<u32>().read_unaligned()),
                            _ => std::ptr::copy_nonoverlapping(from, at, *size as usize),
                        }
                    }
                }
            }
        }
    }
}

/// Packs a launch's parameters, for graph nodes, into `out`, which is empty.
///
/// # Safety
/// As `cuLaunchKernel` of `f` with these parameters.
pub unsafe fn pack(f: u64, each: *mut *mut c_void, extra: *mut *mut c_void, out: &mut Vec<u8>) -> Result<(), CUresult> {
    let f = function(f as *const c_void)?;
    // SAFETY: the caller's promise.
    let (parameters, bytes) = unsafe { Parameters::new(f, each, extra) }?;
    out.resize(bytes.next_multiple_of(8), 0);
    // SAFETY: as many bytes as `new` asked for, zeroed.
    unsafe { parameters.pack(f, out.as_mut_ptr()) };
    out.truncate(bytes);
    Ok(())
}

pub fn set_cache_config(f: *const c_void, config: CUfunc_cache, device: u32) -> CUresult {
    let answer = function(f).and_then(|f| {
        let q = FuncSetCacheConfig { function: Existing(f.handle), config, device: Ordinal(device as i32) };
        call(FuncSetCacheConfig::OP, |w| q.encode(w), |_| Ok(()))?;
        f.occupancy.lock().clear();
        Ok(())
    });
    code(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_a_pointer_is_what_is_aligned_once_packed() {
        let bytes: [u8; 32] = std::array::from_fn(|i| i as u8);
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let words = |parameters: &Parameters, layout: &[(u32, u32)]| {
            let mut words = Vec::new();
            // SAFETY: each parameter has 32 bytes, more than any layout here asks for.
            unsafe { parameters.each_word(layout, |word| words.push(word)) };
            words
        };
        let from = bytes.as_ptr().cast_mut().cast::<c_void>();
        let mut each = [from; 5];
        let each = Parameters::Each(each.as_mut_ptr());
        assert_eq!(words(&each, &[(0, 8), (8, 8)]), [word(0), word(0)]);
        // Two numbers that fill a word are no pointer, and neither is what a structure ends with.
        assert_eq!(words(&each, &[(0, 4), (4, 4), (8, 1), (16, 20), (36, 20)]), [word(0), word(8), word(4), word(12)]);
        assert_eq!(words(&each, &[(0, 7)]), []);
        let buffer = Parameters::Buffer(bytes.as_ptr(), 23);
        assert_eq!(words(&buffer, &[]), [word(0), word(8)]);
        assert_eq!(words(&Parameters::None, &[]), []);
    }
}
