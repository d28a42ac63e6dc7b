//! How many lines of the log asks are worth. Programs ask, and give back, as often as they like: a thousand times a
//! second it would be gigabytes a day.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use orion_pool::AllocationId;
use orion_pool::pool::Event;

/// Asks within [`WINDOW`] of which it is told what becomes of them: of one tenant, and of all.
const OF_ONE_MAX: u32 = 100;
const OF_ALL_MAX: u32 = 500;
const WINDOW: Duration = Duration::from_secs(10);

#[derive(Default)]
pub struct Lines {
    since: Option<Instant>,
    all: u32,
    of_tenants: HashMap<String, u32>,
    /// Asks that came when there had been too many, and are not over.
    quiet: HashSet<AllocationId>,
    unsaid: u64,
}

impl Lines {
    /// Whether there is a line for this, and then how many there were not for since the last one. `tenant` is whose ask
    /// it is, where it begins.
    pub fn says(&mut self, event: &Event, tenant: Option<&str>) -> Option<u64> {
        self.says_at(event, tenant, Instant::now())
    }

    fn says_at(&mut self, event: &Event, tenant: Option<&str>, now: Instant) -> Option<u64> {
        let is_said = match event {
            Event::Waits { id } | Event::Granted { id } => !self.quiet.contains(id) && self.begins(*id, tenant, now),
            Event::Confirmed { id } => !self.quiet.contains(id),
            // Nothing comes behind these.
            Event::Over { id, .. } | Event::GaveUp { id } => !self.quiet.remove(id),
            _ => return Some(0),
        };
        if is_said {
            return Some(std::mem::take(&mut self.unsaid));
        }
        self.unsaid += 1;
        None
    }

    fn begins(&mut self, id: AllocationId, tenant: Option<&str>, now: Instant) -> bool {
        if self.since.is_none_or(|since| now >= since + WINDOW) {
            (self.since, self.all) = (Some(now), 0);
            self.of_tenants.clear();
        }
        // Names are as many as somebody likes; those of whom nothing is said are not kept.
        let of_one = self.of_tenants.get(tenant.unwrap_or_default()).copied().unwrap_or(0);
        if self.all >= OF_ALL_MAX || of_one >= OF_ONE_MAX {
            self.quiet.insert(id);
            return false;
        }
        self.all += 1;
        self.of_tenants.insert(tenant.unwrap_or_default().to_owned(), of_one + 1);
        true
    }
}

#[cfg(test)]
mod tests {
    use orion_pool::pool::Why;

    use super::*;

    fn id(n: u128) -> AllocationId {
        AllocationId(n)
    }

    /// What is said of so many asks of a tenant that are given back at once.
    fn asks(lines: &mut Lines, tenant: &str, from: u128, count: u128, now: Instant) -> usize {
        let events = |n| {
            let id = id(n);
            [Event::Granted { id }, Event::Confirmed { id }, Event::Over { id, why: Why::Released }]
        };
        let all = (from..from + count).flat_map(events);
        all.filter(|event| lines.says_at(event, Some(tenant), now).is_some()).count()
    }

    #[test]
    fn a_tenant_that_asks_without_end_has_no_line_for_each_and_others_have_theirs() {
        let (mut lines, now) = (Lines::default(), Instant::now());
        assert_eq!(asks(&mut lines, "many", 0, 10_000, now), 3 * OF_ONE_MAX as usize);
        assert_eq!(asks(&mut lines, "few", 20_000, 7, now), 3 * 7);
        // A name of its own for each.
        let said: usize = (0..1000).map(|n| asks(&mut lines, &format!("t{n}"), 30_000 + n, 1, now)).sum();
        assert_eq!(said, 3 * (OF_ALL_MAX - OF_ONE_MAX - 7) as usize);
        assert!(lines.quiet.is_empty() && lines.of_tenants.len() <= OF_ALL_MAX as usize);
        assert_eq!(asks(&mut lines, "many", 0, 1, now + WINDOW), 3);
    }

    #[test]
    fn of_an_ask_of_which_the_beginning_is_said_so_is_the_end() {
        let (mut lines, now) = (Lines::default(), Instant::now());
        for n in 0..2 * u128::from(OF_ONE_MAX) {
            lines.says_at(&Event::Granted { id: id(n) }, Some("many"), now);
        }
        let over = |n| Event::Over { id: id(n), why: Why::Released };
        let later = now + 3 * WINDOW;
        assert_eq!(lines.says_at(&over(u128::from(OF_ONE_MAX)), None, later), None);
        // Of all that there was none for it is told how many.
        assert_eq!(lines.says_at(&over(0), None, later), Some(u64::from(OF_ONE_MAX) + 1));
        assert_eq!(lines.says_at(&over(1), None, later), Some(0));
        // One that was there before this controller led is nobody's too many.
        assert_eq!(lines.says_at(&over(7_000), None, later), Some(0));
    }
}
