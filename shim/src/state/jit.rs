//! JIT options: pairs of a number and a `void *` that is a value, a buffer, or both ways, as the number says.

// UNSAFETY: reads option values from the application's arrays and writes logs and times back to them.

use std::ffi::{CStr, c_char, c_void};

use orion_cuda::sys::*;
use orion_wire::message::field::{List, Text};
use orion_wire::message::image::{JitOption, JitOptions, JitResult, JitResults, JitValue};
use orion_wire::message::image::{Nothing, OPTIONS_MAX, SYMBOLS_MAX};

/// One application's options. Where results are expected the application's arrays stay valid for as long as
/// this lives: that is CUDA's rule.
#[derive(Default)]
pub struct Options {
    options: Vec<Entry>,
}

struct Entry {
    option: CUjit_option,
    value: u64,
    /// The application's slot, for values that come back.
    slot: *mut *mut c_void,
}

// SAFETY: the slots are used only under the rule above, whichever thread does it.
unsafe impl Send for Options {}

impl Options {
    /// # Safety
    /// Two arrays of `count` elements, as for `cuModuleLoadDataEx`.
    pub unsafe fn from_raw(
        count: u32,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
    ) -> Result<Options, CUresult> {
        if count == 0 {
            return Ok(Options::default());
        }
        if count as usize > OPTIONS_MAX || options.is_null() || values.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut all = Vec::new();
        for i in 0..count as usize {
            // SAFETY: `i` is below `count`.
            let (option, slot) = unsafe { (options.add(i).read(), values.add(i)) };
            if option >= CU_JIT_NUM_OPTIONS {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            // SAFETY: as above.
            let value = unsafe { slot.read() } as u64;
            // Integers are written as 32 bits by many programs; the rest of the slot is whatever was there.
            let value = if is_pointer(option) { value } else { value as u32 as u64 };
            all.push(Entry { option, value, slot });
        }
        Ok(Options { options: all })
    }

    /// What the worker is told.
    pub fn told(&self) -> JitOptions<'_> {
        let told = |e: &Entry| JitOption { option: e.option, value: self.value_of(e) };
        List::of(self.options.iter().map(told).collect()).expect("no more than were taken")
    }

    fn value_of(&self, e: &Entry) -> JitValue<'_> {
        match e.option {
            CU_JIT_WALL_TIME => JitValue::Nothing(Nothing {}),
            CU_JIT_INFO_LOG_BUFFER | CU_JIT_ERROR_LOG_BUFFER => JitValue::Number((e.value != 0).into()),
            CU_JIT_GLOBAL_SYMBOL_NAMES => self.names(e, CU_JIT_GLOBAL_SYMBOL_COUNT),
            CU_JIT_REFERENCED_KERNEL_NAMES => self.names(e, CU_JIT_REFERENCED_KERNEL_COUNT),
            CU_JIT_REFERENCED_VARIABLE_NAMES => self.names(e, CU_JIT_REFERENCED_VARIABLE_COUNT),
            CU_JIT_GLOBAL_SYMBOL_ADDRESSES => {
                // SAFETY: an array of as many addresses as the count option says.
                let address = |i| unsafe { (e.value as *const u64).add(i).read() };
                let addresses = (0..self.count(e, CU_JIT_GLOBAL_SYMBOL_COUNT)).map(address).collect();
                JitValue::Addresses(List::of(addresses).expect("no more than are counted"))
            }
            _ => JitValue::Number(e.value),
        }
    }

    fn names(&self, e: &Entry, count: CUjit_option) -> JitValue<'_> {
        let name = |i| {
            // SAFETY: an array of as many C strings as the count option says.
            let name = unsafe { (e.value as *const *const c_char).add(i).read() };
            // SAFETY: as above.
            Text::from(if name.is_null() { c"" } else { unsafe { CStr::from_ptr(name) } })
        };
        JitValue::Names(List::of((0..self.count(e, count)).map(name).collect()).expect("no more than are counted"))
    }

    /// Elements behind a list option, from its count option.
    fn count(&self, list: &Entry, count: CUjit_option) -> usize {
        if list.value == 0 {
            return 0;
        }
        (self.value(count).unwrap_or(0) as usize).min(SYMBOLS_MAX)
    }

    fn value(&self, option: CUjit_option) -> Option<u64> {
        self.options.iter().find(|e| e.option == option).map(|e| e.value)
    }

    /// Writes what came back to the application: times, log texts and how long they are.
    pub fn absorb(&self, results: &JitResults<'_>) {
        for (e, result) in self.options.iter().zip(results.iter()) {
            match (e.option, result) {
                (
                    CU_JIT_WALL_TIME
                    | CU_JIT_THREADS_PER_BLOCK
                    | CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES
                    | CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                    JitResult::Number(value),
                ) => {
                    // SAFETY: the application's slot; these values are 32 bits wide.
                    unsafe { e.slot.cast::<u32>().write(*value) };
                }
                (CU_JIT_INFO_LOG_BUFFER, JitResult::Log(text)) => {
                    self.log(e, text.get(), CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES);
                }
                (CU_JIT_ERROR_LOG_BUFFER, JitResult::Log(text)) => {
                    self.log(e, text.get(), CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
                }
                _ => {}
            }
        }
    }

    /// Copies a text into the application's buffer, always with a NUL at its end.
    fn log(&self, buffer: &Entry, text: &[u8], size: CUjit_option) {
        let room = self.value(size).unwrap_or(0) as usize;
        if buffer.value == 0 || room == 0 {
            return;
        }
        let len = text.len().min(room - 1);
        // SAFETY: the application's buffer has the size that its size option gave before the call.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), buffer.value as *mut u8, len);
            (buffer.value as *mut u8).add(len).write(0);
        }
    }
}

fn is_pointer(option: CUjit_option) -> bool {
    matches!(
        option,
        CU_JIT_INFO_LOG_BUFFER
            | CU_JIT_ERROR_LOG_BUFFER
            | CU_JIT_GLOBAL_SYMBOL_NAMES
            | CU_JIT_GLOBAL_SYMBOL_ADDRESSES
            | CU_JIT_REFERENCED_KERNEL_NAMES
            | CU_JIT_REFERENCED_VARIABLE_NAMES
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_and_values_come_back_within_their_bounds() {
        let mut log = [0xffu8; 8];
        let mut options =
            [CU_JIT_MAX_REGISTERS, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_WALL_TIME];
        let mut values: [*mut c_void; 4] =
            [0xdead_0000_0020u64 as *mut c_void, log.as_mut_ptr().cast(), 4 as *mut c_void, std::ptr::null_mut()];
        // SAFETY: two arrays of four.
        let options = unsafe { Options::from_raw(4, options.as_mut_ptr(), values.as_mut_ptr()) }.unwrap();
        let told: Vec<_> = options.told().into_vec().into_iter().map(|o| (o.option, o.value)).collect();
        let number = JitValue::Number;
        assert_eq!(told, [(0, number(0x20)), (5, number(1)), (6, number(4)), (2, JitValue::Nothing(Nothing {}))]);

        let results = vec![
            JitResult::Nothing(Nothing {}),
            JitResult::Log((&b"a long message"[..]).into()),
            JitResult::Number(14),
            JitResult::Number(1.5f32.to_bits()),
        ];
        options.absorb(&List::of(results).unwrap());
        assert_eq!(&log, b"a l\0\xff\xff\xff\xff");
        assert_eq!(values[2] as u64, 14);
        assert_eq!(values[3] as u64, 1.5f32.to_bits() as u64);
    }

    #[test]
    fn unknown_options_are_refused() {
        let (mut option, mut value) = (CU_JIT_NUM_OPTIONS, std::ptr::null_mut());
        // SAFETY: two arrays of one.
        assert_eq!(unsafe { Options::from_raw(1, &mut option, &mut value) }.err(), Some(CUDA_ERROR_INVALID_VALUE));
        // SAFETY: no arrays are needed for none.
        let none = unsafe { Options::from_raw(0, std::ptr::null_mut(), std::ptr::null_mut()) };
        assert!(none.is_ok());
    }
}
