//! The lines of the error log, and who is called back about them.

// UNSAFETY: sends data of the application's between threads.

use std::collections::VecDeque;
use std::ffi::{c_char, c_void};

use orion_cuda::sys::*;

use crate::state::lock::{Lock, Rank};

/// The driver documents 25,600 bytes for its buffer and cuts lines at 256.
pub const LINES_MAX: usize = 100;

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

    pub fn push(&mut self, line: String) {
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

pub struct Logs {
    pub lines: Lock<Log>,
    pub callbacks: Lock<Vec<Callback>>,
    /// Held while callbacks run: one that was unregistered runs no more.
    pub calling: Lock<()>,
}

impl Logs {
    pub const fn new() -> Logs {
        Logs {
            lines: Lock::new(Rank::Leaf, Log::new()),
            callbacks: Lock::new(Rank::Leaf, Vec::new()),
            calling: Lock::new(Rank::LogCallbacks, ()),
        }
    }
}

#[derive(Clone, Copy)]
pub struct Callback {
    pub handle: u64,
    pub function: unsafe extern "C" fn(*mut c_void, CUlogLevel, *mut c_char, usize),
    pub data: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
