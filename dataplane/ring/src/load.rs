//! Whether a core is free for a thread that only looks for news.
//!
//! Looking saves the 15 to 40 us that a sleeping core takes to wake up, as long as nobody else could have used the
//! core. Twelve programs on sixteen cores that all looked for 20 ms did a third of what they did when they slept at
//! once. So there is one judgement a process, made from two things that cost little:
//!
//! * how many threads of the machine can run just now, which Linux says in the fourth field of `/proc/loadavg`;
//! * that a thread which was looking had to give its core away, which it sees by the clock.
//!
//! Every process of every tenant reads the same number. While there are more such threads than cores, those that only
//! look go to sleep, and what sleeps is not counted; so what is left is what has work.

// UNSAFETY: sysconf, and opens, reads and closes a file.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How old a reading may be. One costs 3 us, so this is one or two hundredths of what looking costs.
const READING_AGE_MAX: Duration = Duration::from_micros(200);
/// So long a thread is not out of its core for anything but another thread.
const GIVEN_AWAY_MIN: Duration = Duration::from_micros(100);
/// So long nobody of this process looks after one of its threads has lost its core.
const GIVEN_AWAY_COUNTS: Duration = Duration::from_millis(3);

const FILE: &str = "/proc/loadavg";

struct Load {
    began: Instant,
    /// Threads that can run, beyond which nobody looks.
    runnable_max: u64,
    /// When it was read last, in microseconds since `began`, and what it was: in the upper 48 bits and the lower 16.
    reading: AtomicU64,
    /// Until when nobody looks, in microseconds since `began`.
    taken_until: AtomicU64,
}

fn load() -> &'static Load {
    static LOAD: OnceLock<Load> = OnceLock::new();
    LOAD.get_or_init(|| Load {
        began: Instant::now(),
        runnable_max: runnable_max(cores_online()),
        reading: AtomicU64::new(0),
        taken_until: AtomicU64::new(0),
    })
}

/// Whether a thread that only looks may go on with it. `now` is the caller's, who reads the clock anyway.
pub fn core_is_free(now: Instant) -> bool {
    let load = load();
    let now_us = now.saturating_duration_since(load.began).as_micros() as u64;
    if now_us < load.taken_until.load(Ordering::Relaxed) {
        return false;
    }
    let seen = load.reading.load(Ordering::Relaxed);
    let age = now_us.saturating_sub(seen >> 16);
    if seen != 0 && age < READING_AGE_MAX.as_micros() as u64 {
        return (seen & 0xffff) <= load.runnable_max;
    }
    // Whoever puts the time forward reads; the others go by the old number meanwhile.
    let forward = now_us << 16 | seen & 0xffff;
    if load.reading.compare_exchange(seen, forward, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        let runnable = runnable().min(0xffff);
        load.reading.store((now_us << 16 | runnable).max(1), Ordering::Relaxed);
        return runnable <= load.runnable_max;
    }
    (seen & 0xffff) <= load.runnable_max
}

/// A thread that did nothing but look between these two times has lost its core meanwhile, if they are far apart.
pub fn looked_between(before: Instant, now: Instant) {
    if now.saturating_duration_since(before) >= GIVEN_AWAY_MIN {
        let load = load();
        let until = now.saturating_duration_since(load.began) + GIVEN_AWAY_COUNTS;
        load.taken_until.fetch_max(until.as_micros() as u64, Ordering::Relaxed);
    }
}

/// One core in eight stays free for those who have work and wake up, and at least one.
fn runnable_max(cores: u64) -> u64 {
    cores.saturating_sub((cores / 8).max(1)).max(1)
}

/// The number is of the whole machine, so its cores are, too, however few of them this process may use.
fn cores_online() -> u64 {
    // SAFETY: a plain question.
    unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }.max(1) as u64
}

/// Threads of the machine that run or could; 0 where nobody says.
///
/// The file is opened each time: a descriptor that stays would be one more in somebody else's process, who closes it.
fn runnable() -> u64 {
    let mut text = [0u8; 64];
    // SAFETY: a path with its end, flags that take no mode, and a buffer of the length that is given.
    let len = unsafe {
        let file = libc::open(c"/proc/loadavg".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            return 0;
        }
        let len = libc::read(file, text.as_mut_ptr().cast(), text.len());
        libc::close(file);
        len
    };
    parse(&text[..len.max(0) as usize]).unwrap_or(0)
}

/// `0.20 0.18 0.12 3/80 11206`: the third of these eighty.
fn parse(text: &[u8]) -> Option<u64> {
    let field = text.split(|b| *b == b' ').nth(3)?;
    let digits = field.split(|b| *b == b'/').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The file that a process needs to be allowed to read.
pub fn file() -> &'static str {
    FILE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fourth_field_tells_how_many_can_run() {
        assert_eq!(parse(b"0.20 0.18 0.12 3/80 11206\n"), Some(3));
        assert_eq!(parse(b"0.00 0.00 0.00 0/0 0\n"), Some(0));
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"0.20 0.18 0.12 x/80 11206\n"), None);
    }

    #[test]
    fn one_core_in_eight_stays_free() {
        assert_eq!([1, 2, 4, 8, 16, 64].map(runnable_max), [1, 1, 3, 7, 14, 56]);
    }

    #[test]
    fn this_machine_says_that_somebody_runs() {
        assert!(runnable() >= 1, "{FILE} says that nothing runs, not even this test");
    }

    #[test]
    fn who_lost_his_core_stops_looking_for_a_while() {
        let now = Instant::now();
        looked_between(now - Duration::from_micros(5), now);
        looked_between(now - Duration::from_millis(1), now);
        assert!(!core_is_free(now));
        assert!(!core_is_free(now + Duration::from_millis(2)));
    }
}
