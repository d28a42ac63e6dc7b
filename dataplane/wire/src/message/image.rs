//! What modules, libraries and links have in common: images, options of the JIT compiler, names and layouts.

use crate::message::address::ClaimedRange;
use crate::message::declare::{messages, variants};
use crate::message::field::{Bytes, Halves, List, Text};

/// The driver knows 35; a program that repeats one is not worth more.
pub const OPTIONS_MAX: usize = 64;
pub const SYMBOLS_MAX: usize = 1024;
/// Parameters that a function may have.
pub const PARAMETERS_MAX: usize = 4096;

/// In the application's order.
pub type JitOptions<'a> = List<JitOption<'a>, OPTIONS_MAX>;
/// One for each option.
pub type JitResults<'a> = List<JitResult<'a>, OPTIONS_MAX>;
/// Size and offset of each parameter.
pub type Layout = List<Halves, PARAMETERS_MAX>;

messages! {
    part Nothing {}

    part JitOption<'a> {
        /// `CUjit_option`.
        option: u32,
        value: JitValue<'a>,
    }
}

variants! {
    /// What an option points to, or the number itself.
    JitValue<'a> {
        /// There is no value that goes this way.
        Nothing(Nothing) = 0,
        /// For a buffer, whether there is one.
        Number(u64) = 1,
        Names(List<Text<'a>, SYMBOLS_MAX>) = 2,
        /// Of symbols, for the linker; only the device follows them.
        Addresses(List<u64, SYMBOLS_MAX>) = 3,
    }

    /// What the driver has written for an option.
    JitResult<'a> {
        Nothing(Nothing) = 0,
        Number(u32) = 1,
        Log(Bytes<'a>) = 2,
    }

    /// A byte string on its way: in the record, or in memory that is lent until the call has been answered.
    Payload<'a> {
        Inline(Bytes<'a>) = 0,
        Heap(ClaimedRange) = 1,
    }
}
