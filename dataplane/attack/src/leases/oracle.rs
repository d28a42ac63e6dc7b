//! What a session had of the GPU, by the stamps of its own kernels: nothing that oriond says is believed.

use std::fmt;
use std::time::Duration;

pub const WINDOW_NS: u64 = 1_000_000_000;
const STEP_NS: u64 = 100_000_000;
/// Until sessions have come to know each other.
const SETTLED_NS: u64 = 300_000_000;

/// When something began and ended, in nanoseconds of one clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub begin: u64,
    pub end: u64,
}

impl Span {
    fn overlap(self, other: Span) -> u64 {
        self.end.min(other.end).saturating_sub(self.begin.max(other.begin))
    }
}

/// What a session that always had work has had.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Held {
    pub kernels: usize,
    /// The part of all windows in which its kernels ran.
    pub mean: f64,
    /// Windows, and of those the ones in which the machine let the session do what it wants.
    pub windows: usize,
    pub judged: usize,
    /// Of those: the least part in which its kernels ran. Nothing where the machine let it in none.
    pub least: Option<f64>,
    /// The longest between two kernels, less what the session itself was kept from its work.
    pub longest_wait: Duration,
}

/// From kernels in their order, and the times in which the session could not see to it that it has work.
pub fn judge(kernels: &[Span], stalls: &[Span]) -> Held {
    let (Some(first), Some(last)) = (kernels.first(), kernels.last()) else {
        return Held { kernels: 0, mean: 0.0, windows: 0, judged: 0, least: None, longest_wait: Duration::MAX };
    };
    let stalled = |span: Span| stalls.iter().map(|stall| stall.overlap(span)).sum::<u64>();
    let windows: Vec<Span> = (first.begin + SETTLED_NS..)
        .step_by(STEP_NS as usize)
        .map(|begin| Span { begin, end: begin + WINDOW_NS })
        .take_while(|window| window.end <= last.end)
        .collect();
    let judged: Vec<Span> = windows.iter().copied().filter(|window| stalled(*window) == 0).collect();
    let part = |window: &Span| {
        // Kernels of a session follow each other, so those of a window lie side by side.
        let from = kernels.partition_point(|kernel| kernel.end <= window.begin);
        let had = kernels[from..].iter().take_while(|kernel| kernel.begin < window.end);
        had.map(|kernel| kernel.overlap(*window)).sum::<u64>() as f64 / WINDOW_NS as f64
    };
    let wait = |pair: &[Span]| {
        let between = Span { begin: pair[0].end, end: pair[1].begin.max(pair[0].end) };
        (between.end - between.begin).saturating_sub(stalled(between))
    };
    Held {
        kernels: kernels.len(),
        windows: windows.len(),
        judged: judged.len(),
        least: judged.iter().map(part).reduce(f64::min),
        mean: windows.iter().map(part).sum::<f64>() / windows.len().max(1) as f64,
        longest_wait: Duration::from_nanos(kernels.windows(2).map(wait).max().unwrap_or(0)),
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Held { kernels, windows, judged, .. } = self;
        let (mean, longest) = (100.0 * self.mean, self.longest_wait.as_millis());
        match self.least.map(|least| 100.0 * least) {
            Some(least) => {
                write!(f, "{mean:.0} %, {least:.0} % at least in {judged} of {windows} windows without stalls, ")?
            }
            None => write!(f, "{mean:.0} %, with stalls in all of {windows} windows, ")?,
        }
        write!(f, "{longest} ms at most between two of {kernels} kernels")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A kernel of a millisecond each so many.
    fn one_in(each: u64, from_ms: u64, to_ms: u64) -> Vec<Span> {
        let begins = (from_ms..to_ms).step_by(each as usize);
        begins.map(|ms| Span { begin: ms * MS, end: (ms + 1) * MS }).collect()
    }

    #[test]
    fn who_has_every_second_millisecond_has_half() {
        let held = judge(&one_in(2, 0, 3000), &[]);
        assert!(held.judged == held.windows && held.windows > 10, "{held}");
        assert!(is_half(held) && held.longest_wait == Duration::from_millis(1), "{held}");
    }

    fn is_half(held: Held) -> bool {
        held.least.is_some_and(|least| (least - 0.5).abs() < 0.01)
    }

    #[test]
    fn where_every_window_has_a_stall_nothing_is_known_of_seconds() {
        let stalls: Vec<Span> = (0..30).map(|i| Span { begin: i * 100 * MS, end: (i * 100 + 20) * MS }).collect();
        let held = judge(&one_in(2, 0, 3000), &stalls);
        assert_eq!((held.judged, held.least), (0, None));
    }

    #[test]
    fn a_second_with_little_is_found_and_so_is_a_long_wait() {
        let kernels = [one_in(2, 0, 2000), one_in(5, 2000, 3000), one_in(2, 3300, 5000)].concat();
        let held = judge(&kernels, &[]);
        assert!(held.least.is_some_and(|least| least < 0.21), "{held}");
        assert!(held.longest_wait >= Duration::from_millis(300), "{held}");
    }

    #[test]
    fn what_the_machine_kept_it_from_is_nobodys_fault() {
        let kernels = [one_in(2, 0, 2000), one_in(2, 2400, 5000)].concat();
        let stall = Span { begin: 1990 * MS, end: 2400 * MS };
        let held = judge(&kernels, &[stall]);
        assert!(is_half(held) && held.longest_wait == Duration::from_millis(1), "{held}");
        assert!(held.judged < held.windows, "{held}");
    }

    #[test]
    fn who_had_nothing_has_waited_for_ever() {
        assert_eq!(judge(&[], &[]).longest_wait, Duration::MAX);
    }
}
