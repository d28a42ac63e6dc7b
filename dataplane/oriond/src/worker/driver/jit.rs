//! JIT options, as the driver takes them: two arrays, with buffers of our own behind them.

use std::ffi::{CString, c_char, c_void};

use orion_cuda::sys::*;
use orion_wire::{Fault, Reader, Writer};

const OPTIONS_MAX: usize = 64;
const SYMBOLS_MAX: usize = 1024;
/// Room for one log, however much the application has: two of them and the rest of a reply fit a record.
const LOG_BYTES_MAX: u32 = 64 << 10;

/// Options with everything they point to. The arrays do not move while this lives, wherever it is moved.
#[derive(Default)]
pub struct Decoded {
    options: Vec<CUjit_option>,
    values: Vec<*mut c_void>,
    /// Buffers behind the pointers among the values, by index of their option.
    info_log: Vec<u8>,
    error_log: Vec<u8>,
    names: Vec<Vec<CString>>,
    pointers: Vec<Vec<*const c_char>>,
    addresses: Vec<Vec<u64>>,
}

impl Decoded {
    pub fn decode(r: &mut Reader<'_>) -> Result<Decoded, Fault> {
        let mut d = Decoded::default();
        let count = r.word()?;
        if count > OPTIONS_MAX as u64 {
            return Err(Fault("too many JIT options"));
        }
        // What the driver will read or write behind a pointer, and the size that the count option promises it.
        let mut lengths: Vec<(CUjit_option, usize)> = Vec::new();
        for _ in 0..count {
            let option = r.word()? as u32;
            let value = match option {
                CU_JIT_WALL_TIME => 0,
                CU_JIT_INFO_LOG_BUFFER => log_buffer(&mut d.info_log, r.word()? != 0),
                CU_JIT_ERROR_LOG_BUFFER => log_buffer(&mut d.error_log, r.word()? != 0),
                CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES | CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES => {
                    (r.word()? as u32).min(LOG_BYTES_MAX) as u64
                }
                CU_JIT_GLOBAL_SYMBOL_NAMES | CU_JIT_REFERENCED_KERNEL_NAMES | CU_JIT_REFERENCED_VARIABLE_NAMES => {
                    let names = r.list(SYMBOLS_MAX, |r| {
                        CString::new(r.bytes()?).map_err(|_| Fault("symbol name holds a NUL"))
                    })?;
                    // The count option follows its list in number.
                    let count = if option == CU_JIT_GLOBAL_SYMBOL_NAMES { option + 2 } else { option + 1 };
                    lengths.push((count, names.len()));
                    let pointers: Vec<_> = names.iter().map(|n| n.as_ptr()).collect();
                    let at = pointers.as_ptr() as u64;
                    d.names.push(names);
                    d.pointers.push(pointers);
                    at
                }
                CU_JIT_GLOBAL_SYMBOL_ADDRESSES => {
                    let addresses = r.list(SYMBOLS_MAX, |r| r.word())?;
                    lengths.push((CU_JIT_GLOBAL_SYMBOL_COUNT, addresses.len()));
                    let at = addresses.as_ptr() as u64;
                    d.addresses.push(addresses);
                    at
                }
                o if o < CU_JIT_NUM_OPTIONS => r.word()?,
                _ => return Err(Fault("unknown JIT option")),
            };
            d.options.push(option);
            d.values.push(value as *mut c_void);
        }
        for (option, len) in lengths {
            if d.options.iter().zip(&d.values).any(|(o, v)| *o == option && *v as u32 as usize > len) {
                return Err(Fault("JIT symbol list is shorter than its count"));
            }
        }
        Ok(d)
    }

    /// Options and values for the driver, which writes results into the values. What the values point to is valid
    /// while this lives.
    pub fn arrays(&self) -> (Vec<CUjit_option>, Vec<*mut c_void>) {
        (self.options.clone(), self.values.clone())
    }

    /// What the driver wrote, in the order of the options; `values` is the array that it was given.
    pub fn encode_results(&self, reply: &mut Vec<u8>, values: &[*mut c_void]) {
        for (option, value) in self.options.iter().zip(values) {
            match *option {
                CU_JIT_WALL_TIME
                | CU_JIT_THREADS_PER_BLOCK
                | CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES
                | CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES => reply.word(*value as u32 as u64),
                CU_JIT_INFO_LOG_BUFFER => reply.bytes(text(&self.info_log)),
                CU_JIT_ERROR_LOG_BUFFER => reply.bytes(text(&self.error_log)),
                _ => {}
            }
        }
    }
}

fn log_buffer(buffer: &mut Vec<u8>, wanted: bool) -> u64 {
    if !wanted {
        return 0;
    }
    // The driver writes up to the size option's value, which is never more than this.
    buffer.resize(LOG_BYTES_MAX as usize + 1, 0);
    buffer.as_mut_ptr() as u64
}

fn text(buffer: &[u8]) -> &[u8] {
    &buffer[..buffer.iter().position(|b| *b == 0).unwrap_or(buffer.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_beyond_its_list_is_a_fault() {
        let encode = |names: u64, count: u64| {
            let mut w = Vec::new();
            w.word(2);
            w.word(CU_JIT_REFERENCED_KERNEL_NAMES as u64);
            w.word(names);
            for _ in 0..names {
                w.bytes(b"kernel");
            }
            w.word(CU_JIT_REFERENCED_KERNEL_COUNT as u64);
            w.word(count);
            w
        };
        assert!(Decoded::decode(&mut Reader::new(&encode(2, 2))).is_ok());
        assert!(Decoded::decode(&mut Reader::new(&encode(2, 3))).is_err());
    }

    #[test]
    fn logs_are_bounded_whatever_the_client_says() {
        let mut w = Vec::new();
        w.word(2);
        w.word(CU_JIT_INFO_LOG_BUFFER as u64);
        w.word(1);
        w.word(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES as u64);
        w.word(u32::MAX as u64);
        let d = Decoded::decode(&mut Reader::new(&w)).unwrap();
        let (options, values) = d.arrays();
        assert_eq!(options, [CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES]);
        assert_eq!(values[1] as u64, LOG_BYTES_MAX as u64);
        let mut reply = Vec::new();
        d.encode_results(&mut reply, &values);
        let mut r = Reader::new(&reply);
        assert_eq!((r.bytes(), r.word()), (Ok(&b""[..]), Ok(LOG_BYTES_MAX as u64)));
    }
}
