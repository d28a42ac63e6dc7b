//! How many lines of a log strangers are worth: there is no end of them.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines within [`WINDOW`]; the rest is counted.
const LINES_MAX: u32 = 10;
const WINDOW: Duration = Duration::from_secs(10);

/// Lines of one kind.
#[derive(Default)]
pub struct Few(Mutex<Told>);

#[derive(Default)]
struct Told {
    since: Option<Instant>,
    lines: u32,
    unsaid: u64,
}

impl Few {
    /// Whether one more is said, and then how many were not since the last one.
    pub fn says(&self) -> Option<u64> {
        self.says_at(Instant::now())
    }

    fn says_at(&self, now: Instant) -> Option<u64> {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.since.is_none_or(|since| now >= since + WINDOW) {
            (told.since, told.lines) = (Some(now), 0);
        }
        if told.lines >= LINES_MAX {
            told.unsaid += 1;
            return None;
        }
        told.lines += 1;
        Some(std::mem::take(&mut told.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_lines_a_few_are_said_and_the_rest_is_counted() {
        let (few, now) = (Few::default(), Instant::now());
        let said = (0..1000).filter_map(|_| few.says_at(now)).collect::<Vec<_>>();
        assert_eq!(said, [0; LINES_MAX as usize]);
        assert_eq!(few.says_at(now + WINDOW), Some(1000 - u64::from(LINES_MAX)));
        assert_eq!(few.says_at(now + WINDOW), Some(0));
    }
}
