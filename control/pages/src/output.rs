//! What a program answers on standard output.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};

/// As a shell says of a program that SIGPIPE has ended.
const NOBODY_READS: i32 = 128 + 13;

/// Writes it at once, and ends the program where that cannot be done: quietly if nobody reads any more, as behind `|
/// head`, else with a line that says why.
pub fn put(text: Arguments) {
    let mut output = io::stdout().lock();
    match output.write_fmt(text).and_then(|()| output.flush()) {
        Ok(()) => {}
        Err(e) if e.kind() == ErrorKind::BrokenPipe => std::process::exit(NOBODY_READS),
        Err(e) => {
            let program = std::env::args().next().unwrap_or_default();
            let name = program.rsplit('/').next().unwrap_or_default();
            // Nobody may read that either.
            let _ = writeln!(io::stderr(), "{name}: writing to standard output failed: {e}");
            std::process::exit(1);
        }
    }
}

/// As `println!`, by [`put`].
#[macro_export]
macro_rules! putln {
    ($($argument:tt)*) => { $crate::output::put(format_args!("{}\n", format_args!($($argument)*))) };
}
