//! JIT options, as the driver takes them: two arrays, with buffers of our own behind them.

// UNSAFETY: lets threads share arrays of pointers, which lead to memory of the same value.

use std::ffi::{CString, c_char, c_void};

use orion_cuda::sys::*;
use orion_wire::Fault;
use orion_wire::message::field::List;
use orion_wire::message::image::{JitOption, JitOptions, JitResult, JitResults, JitValue, Nothing};

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

// SAFETY: what its pointers lead to is its own and does not move. The driver writes to the logs during a call, and
// nobody looks at them before that is over.
unsafe impl Send for Decoded {}
// SAFETY: as above.
unsafe impl Sync for Decoded {}

impl Decoded {
    pub fn of(told: &JitOptions<'_>) -> Result<Decoded, Fault> {
        let mut d = Decoded::default();
        // What the driver will read or write behind a pointer, and the size that the count option promises it.
        let mut lengths: Vec<(CUjit_option, usize)> = Vec::new();
        for JitOption { option, value } in told.iter() {
            let option = *option;
            let value = match (option, value) {
                (CU_JIT_WALL_TIME, JitValue::Nothing(_)) => 0,
                (CU_JIT_INFO_LOG_BUFFER, JitValue::Number(wanted)) => log_buffer(&mut d.info_log, *wanted != 0),
                (CU_JIT_ERROR_LOG_BUFFER, JitValue::Number(wanted)) => log_buffer(&mut d.error_log, *wanted != 0),
                (CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES | CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, JitValue::Number(bytes)) => {
                    (*bytes as u32).min(LOG_BYTES_MAX) as u64
                }
                (
                    CU_JIT_GLOBAL_SYMBOL_NAMES | CU_JIT_REFERENCED_KERNEL_NAMES | CU_JIT_REFERENCED_VARIABLE_NAMES,
                    JitValue::Names(names),
                ) => {
                    let names: Vec<CString> = names.iter().map(|name| name.to_c()).collect();
                    // The count option follows its list in number.
                    let count = if option == CU_JIT_GLOBAL_SYMBOL_NAMES { option + 2 } else { option + 1 };
                    lengths.push((count, names.len()));
                    let pointers: Vec<_> = names.iter().map(|n| n.as_ptr()).collect();
                    let at = pointers.as_ptr() as u64;
                    d.names.push(names);
                    d.pointers.push(pointers);
                    at
                }
                (CU_JIT_GLOBAL_SYMBOL_ADDRESSES, JitValue::Addresses(addresses)) => {
                    let addresses = addresses.to_vec();
                    lengths.push((CU_JIT_GLOBAL_SYMBOL_COUNT, addresses.len()));
                    let at = addresses.as_ptr() as u64;
                    d.addresses.push(addresses);
                    at
                }
                (o, JitValue::Number(number)) if o < CU_JIT_NUM_OPTIONS && !is_pointer(o) => *number,
                _ => return Err(Fault("unknown JIT option, or one with another one's value")),
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
    pub fn results(&self, values: &[*mut c_void]) -> JitResults<'_> {
        let result = |(option, value): (&CUjit_option, &*mut c_void)| match *option {
            CU_JIT_WALL_TIME
            | CU_JIT_THREADS_PER_BLOCK
            | CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES
            | CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES => JitResult::Number(*value as u32),
            CU_JIT_INFO_LOG_BUFFER => JitResult::Log(text(&self.info_log).into()),
            CU_JIT_ERROR_LOG_BUFFER => JitResult::Log(text(&self.error_log).into()),
            _ => JitResult::Nothing(Nothing {}),
        };
        List::of(self.options.iter().zip(values).map(result).collect()).expect("one for each option that came")
    }
}

/// Whether the driver takes the value for an address: then it is one of this process's own, or nothing.
fn is_pointer(option: CUjit_option) -> bool {
    matches!(
        option,
        CU_JIT_WALL_TIME
            | CU_JIT_INFO_LOG_BUFFER
            | CU_JIT_ERROR_LOG_BUFFER
            | CU_JIT_GLOBAL_SYMBOL_NAMES
            | CU_JIT_GLOBAL_SYMBOL_ADDRESSES
            | CU_JIT_REFERENCED_KERNEL_NAMES
            | CU_JIT_REFERENCED_VARIABLE_NAMES
    )
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
    use orion_wire::message::field::Text;

    fn told<'a>(options: Vec<(CUjit_option, JitValue<'a>)>) -> JitOptions<'a> {
        List::of(options.into_iter().map(|(option, value)| JitOption { option, value }).collect()).expect("few")
    }

    fn names<'a>(count: usize) -> JitValue<'a> {
        JitValue::Names(List::of(vec![Text::from(c"kernel"); count]).expect("few"))
    }

    #[test]
    fn a_count_beyond_its_list_is_a_fault() {
        let decoded = |of: usize, count: u64| {
            Decoded::of(&told(vec![
                (CU_JIT_REFERENCED_KERNEL_NAMES, names(of)),
                (CU_JIT_REFERENCED_KERNEL_COUNT, JitValue::Number(count)),
            ]))
        };
        assert!(decoded(2, 2).is_ok());
        assert!(decoded(2, 3).is_err());
    }

    #[test]
    fn a_number_where_the_driver_takes_a_pointer_is_a_fault() {
        for option in [
            CU_JIT_WALL_TIME,
            CU_JIT_GLOBAL_SYMBOL_NAMES,
            CU_JIT_GLOBAL_SYMBOL_ADDRESSES,
            CU_JIT_REFERENCED_KERNEL_NAMES,
            CU_JIT_REFERENCED_VARIABLE_NAMES,
            CU_JIT_NUM_OPTIONS,
        ] {
            assert!(Decoded::of(&told(vec![(option, JitValue::Number(0x1000))])).is_err(), "{option}");
        }
        assert!(Decoded::of(&told(vec![(CU_JIT_MAX_REGISTERS, names(1))])).is_err());
        assert!(Decoded::of(&told(vec![(CU_JIT_MAX_REGISTERS, JitValue::Number(32))])).is_ok());
    }

    #[test]
    fn logs_are_bounded_whatever_the_client_says() {
        let d = Decoded::of(&told(vec![
            (CU_JIT_INFO_LOG_BUFFER, JitValue::Number(1)),
            (CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, JitValue::Number(u32::MAX.into())),
        ]))
        .unwrap();
        let (options, values) = d.arrays();
        assert_eq!(options, [CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES]);
        assert_eq!(values[1] as u64, LOG_BYTES_MAX as u64);
        let results = d.results(&values);
        assert_eq!(results[..], [JitResult::Log((&b""[..]).into()), JitResult::Number(LOG_BYTES_MAX)]);
    }
}
