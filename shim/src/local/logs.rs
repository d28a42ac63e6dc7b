//! The error log: lines that say why a call failed.
//!
//! The driver of CUDA 12.9 and later has one in each process, so this process has one too. It holds what the shim has
//! to say itself, and what the worker's driver logged about a call, which comes ahead of the call's reply. Everything
//! works before `cuInit`.

// UNSAFETY: calls the application's callbacks with their own data; reads and writes through its pointers.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::{c_char, c_void};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, OnceLock};

use orion_cuda::sys::*;

/// The driver documents 25,600 bytes for its buffer and cuts lines at 256.
pub const LINES_MAX: usize = 100;
pub const LINE_BYTES_MAX: usize = 256;

/// Said in place of lines that are no longer there.
pub const OVERWRITTEN: &str = "[older messages were overwritten]\n";
/// Said in place of lines for which the application's buffer has no room.
pub const TOO_SMALL: &str = "[the buffer is too small for all messages; the newest follow]\n";

/// Lines, each with its newline, and the number of the line that comes next. Numbers wrap.
pub struct Log {
    lines: VecDeque<String>,
    pub next: CUlogIterator,
}

impl Log {
    const fn new() -> Log {
        Log { lines: VecDeque::new(), next: 0 }
    }

    fn push(&mut self, line: String) {
        if self.lines.len() == LINES_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
        self.next = self.next.wrapping_add(1);
    }

    /// The lines from an iterator on, and whether some of those are gone. Without one: all there are.
    pub fn since(&self, iterator: Option<CUlogIterator>) -> (bool, Vec<&str>) {
        let said = self.next.wrapping_sub(iterator.unwrap_or(0)) as usize;
        // One that is ahead of the log is nobody's; there is nothing behind it.
        let wanted = if iterator.is_some() && said > u32::MAX as usize / 2 { 0 } else { said };
        let kept = wanted.min(self.lines.len());
        (wanted > kept, self.lines.iter().skip(self.lines.len() - kept).map(String::as_str).collect())
    }
}

/// What fits into `room` bytes: everything, or a line that says so and the newest. `None` if not even one does.
pub fn fitted(room: usize, overwritten: bool, lines: &[&str]) -> Option<String> {
    let head = if overwritten { OVERWRITTEN } else { "" };
    let whole = format!("{head}{}", lines.concat());
    if whole.len() <= room {
        return Some(whole);
    }
    let newest_in = |room: usize| {
        let mut bytes = 0;
        lines.iter().rev().take_while(|l| (bytes + l.len() <= room).then(|| bytes += l.len()).is_some()).count()
    };
    let count = newest_in(room.saturating_sub(TOO_SMALL.len()));
    match (count, newest_in(room)) {
        (0, 0) => None,
        // A line counts for more than the remark.
        (0, _) => lines.last().map(|l| (*l).to_owned()),
        (count, _) => Some(format!("{TOO_SMALL}{}", lines[lines.len() - count..].concat())),
    }
}

pub static LOG: Mutex<Log> = Mutex::new(Log::new());

#[derive(Clone, Copy)]
pub struct Callback {
    pub handle: u64,
    pub function: unsafe extern "C" fn(*mut c_void, CUlogLevel, *mut c_char, usize),
    pub data: usize,
}

pub static CALLBACKS: Mutex<Vec<Callback>> = Mutex::new(Vec::new());
/// Held while callbacks run: one that was unregistered runs no more.
pub static CALLING: Mutex<()> = Mutex::new(());

thread_local! {
    pub static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Logs what the shim itself has to say about a call. `function` may be empty.
pub fn error(function: &str, message: &str) {
    let place = if function.is_empty() { String::new() } else { format!("[{function}]") };
    add(CU_LOG_LEVEL_ERROR, &format!("{}[CUDA][E]{place} {message}", prefix()));
}

/// Logs what the worker's driver said. It may have put time and thread in front, or not.
pub fn from_driver(level: CUlogLevel, message: &[u8]) {
    let message = String::from_utf8_lossy(message);
    let message = message.trim_end_matches(['\n', '\0']);
    if message.starts_with('[') {
        return add(level, message);
    }
    let severity = if level == CU_LOG_LEVEL_ERROR { 'E' } else { 'W' };
    add(level, &format!("{}[CUDA][{severity}] {message}", prefix()));
}

/// Local time and thread, as in the driver's lines.
fn prefix() -> String {
    // SAFETY: plain calls with valid places.
    unsafe {
        let mut now: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_REALTIME, &mut now);
        let mut local: libc::tm = std::mem::zeroed();
        libc::localtime_r(&now.tv_sec, &mut local);
        let (h, m, s, ms) = (local.tm_hour, local.tm_min, local.tm_sec, now.tv_nsec / 1_000_000);
        format!("[{h:02}:{m:02}:{s:02}.{ms:03}][{}]", libc::syscall(libc::SYS_gettid))
    }
}

/// Keeps one line, writes it where `CUDA_LOG_FILE` says, and calls back.
fn add(level: CUlogLevel, message: &str) {
    let mut line: String = message.chars().map(|c| if c == '\n' { ' ' } else { c }).collect();
    line.truncate(line.floor_char_boundary(LINE_BYTES_MAX - 1));
    line.push('\n');
    write_to_file(&line);
    let Ok(mut log) = LOG.lock() else { return };
    log.push(line.clone());
    drop(log);
    line.pop();
    call_back(level, line);
}

fn call_back(level: CUlogLevel, mut message: String) {
    // What a callback causes to be logged is not told to callbacks.
    if IN_CALLBACK.get() {
        return;
    }
    let Ok(_calling) = CALLING.lock() else { return };
    let callbacks = CALLBACKS.lock().map(|c| c.clone()).unwrap_or_default();
    let length = message.len();
    message.push('\0');
    IN_CALLBACK.set(true);
    for c in callbacks {
        // Each gets a copy of its own: the C type lets it write.
        let mut text = message.clone().into_bytes();
        // SAFETY: the application's function with its own data, and a NUL-terminated text of that length.
        unsafe { (c.function)(c.data as *mut c_void, level, text.as_mut_ptr().cast(), length) };
    }
    IN_CALLBACK.set(false);
}

fn write_to_file(line: &str) {
    enum Place {
        Nowhere,
        Stdout,
        Stderr,
        File(Mutex<std::fs::File>),
    }
    // Looked at when the first line comes, as the driver does: a wrong path is no reason not to start.
    static PLACE: OnceLock<Place> = OnceLock::new();
    let place = PLACE.get_or_init(|| {
        let Some(path) = std::env::var_os("CUDA_LOG_FILE").filter(|p| !p.is_empty()) else { return Place::Nowhere };
        match path.as_bytes() {
            b"stdout" => Place::Stdout,
            b"stderr" => Place::Stderr,
            // Appended to: programs that start others share the variable.
            _ => match std::fs::OpenOptions::new().create(true).append(true).open(&path) {
                Ok(file) => Place::File(Mutex::new(file)),
                Err(e) => {
                    crate::say!("opening CUDA_LOG_FILE={} failed: {e}; nothing is logged", path.display());
                    Place::Nowhere
                }
            },
        }
    });
    // A log that cannot be written has nowhere to say so.
    let _ = match place {
        Place::Nowhere => Ok(()),
        Place::Stdout => {
            crate::hand::output::print(line.as_bytes());
            Ok(())
        }
        Place::Stderr => std::io::stderr().write_all(line.as_bytes()),
        Place::File(file) => file.lock().map_or(Ok(()), |mut f| f.write_all(line.as_bytes())),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::log::{cuLogsCurrent, cuLogsDumpToMemory};

    fn log_of(lines: &[&str]) -> Log {
        let mut log = Log::new();
        lines.iter().for_each(|l| log.push((*l).to_owned()));
        log
    }

    #[test]
    fn an_iterator_starts_where_the_log_ended() {
        let mut log = log_of(&["a\n", "b\n"]);
        let here = log.next;
        assert_eq!(log.since(Some(here)), (false, vec![]));
        log.push("c\n".into());
        assert_eq!(log.since(Some(here)), (false, vec!["c\n"]));
        assert_eq!(log.since(None), (false, vec!["a\n", "b\n", "c\n"]));
        assert_eq!(log.since(Some(here + 7)), (false, vec![]));
    }

    #[test]
    fn the_oldest_lines_go_and_the_dump_says_so() {
        let mut log = Log { lines: VecDeque::new(), next: u32::MAX - 3 };
        let start = log.next;
        for i in 0..LINES_MAX + 2 {
            log.push(format!("{i}\n"));
        }
        let (overwritten, lines) = log.since(Some(start));
        assert!(overwritten);
        assert_eq!((lines.len(), lines[0]), (LINES_MAX, "2\n"));
        assert!(fitted(usize::MAX, overwritten, &lines).is_some_and(|t| t.starts_with(OVERWRITTEN)));
        assert_eq!(log.since(Some(log.next.wrapping_sub(1))), (false, vec!["101\n"]));
    }

    #[test]
    fn a_small_buffer_gets_the_newest_lines() {
        let lines = ["first line\n", "second\n", "third\n"];
        assert_eq!(fitted(24, false, &lines).as_deref(), Some("first line\nsecond\nthird\n"));
        assert_eq!(fitted(23, false, &lines).as_deref(), Some("third\n"));
        assert_eq!(fitted(5, false, &lines), None);
        let big = "x".repeat(100) + "\n";
        let lines = [big.as_str(), "second\n", "third\n"];
        assert_eq!(fitted(TOO_SMALL.len() + 13, false, &lines), Some(format!("{TOO_SMALL}second\nthird\n")));
        assert_eq!(fitted(0, false, &[]).as_deref(), Some(""));
    }

    #[test]
    fn messages_are_one_line_of_bounded_length() {
        let mut at = 0;
        // SAFETY: valid places; the buffer has the size it says.
        unsafe {
            assert_eq!(cuLogsCurrent(&mut at, 0), CUDA_SUCCESS);
            error("cuTest", &format!("one\ntwo {}", "é".repeat(300)));
            let mut buffer = vec![0u8; 32 << 10];
            let mut size = buffer.len();
            assert_eq!(cuLogsDumpToMemory(&mut at, buffer.as_mut_ptr().cast(), &mut size, 0), CUDA_SUCCESS);
            let text = std::str::from_utf8(&buffer[..size]).unwrap();
            let line = text.lines().find(|l| l.contains("cuTest")).unwrap();
            assert!(line.contains("[CUDA][E][cuTest] one two é"), "{line}");
            assert!(line.len() < LINE_BYTES_MAX);
        }
    }
}
