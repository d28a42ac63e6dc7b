//! The declaration. Each row is a word or a histogram in the page, a line in README.md, a metric, and what a column of
//! `orion-top` is called.

/// What a number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Count,
    Bytes,
    Nanoseconds,
    /// Not a sum: what is now.
    Picoseconds,
    BytesNow,
    /// Not a sum: a time of the system's monotonic clock in nanoseconds, or 0. For who reads the page, not for metrics.
    Moment,
}

/// One number of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Which of its kind.
    pub index: usize,
    /// In reports, and `orion_session_NAME` in metrics.
    pub name: &'static str,
    pub unit: Unit,
    /// Over a column.
    pub column: &'static str,
    pub what: &'static str,
}

macro_rules! events {
    ($($(#[doc = $of:literal])* $module:ident {
        $($(#[doc = $what:literal])* $name:ident: $unit:ident, $text:literal, $column:literal;)*
    })*) => {
        $(
            $(#[doc = $of])*
            pub mod $module {
                use $crate::events::{Event, Unit};

                #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
                enum Index { $($name,)* }

                $(
                    $(#[doc = $what])*
                    pub const $name: Event = Event {
                        index: Index::$name as usize,
                        name: $text,
                        unit: Unit::$unit,
                        column: $column,
                        what: concat!($($what,)*).trim_ascii(),
                    };
                )*

                /// All of them, in the order of the page.
                pub const ALL: &[Event] = &[$($name,)*];
            }
        )*
    };
}

events! {
    /// Of each class, in one cache line. Times but the wait are estimates from samples, each for all commands since the
    /// sample before.
    of_class {
        /// commands that the worker took out of the ring
        CALLS: Count, "calls", "CALLS/s";
        /// of these, those that the client waits for
        ANSWERED: Count, "answered", "ANSW/s";
        /// bytes of commands, and of what copies move
        BYTES: Bytes, "bytes", "BYTES/s";
        /// from being posted to being taken
        RING: Nanoseconds, "ring", "RING";
        /// in the worker, without the handler: copying out, contexts, the answer
        WORKER: Nanoseconds, "worker", "WORKER";
        /// in the handler: the driver's calls, and about 0.1 us of decoding and checks
        DRIVER: Nanoseconds, "driver", "DRIVER";
        /// waiting for the GPU, from the first look in vain to the last; not an estimate
        WAIT: Nanoseconds, "wait", "WAIT";
        /// commands that were timed
        SAMPLES: Count, "samples", "SAMPLES";
    }

    /// Histograms of each class.
    times {
        /// how long a command was in the worker: handled at once, or until what it waited for had come
        TIME: Nanoseconds, "time", "TIME";
        /// in the handler
        DRIVER: Nanoseconds, "driver_time", "DRIVER";
        /// in the ring
        RING: Nanoseconds, "ring_time", "RING";
    }

    /// Of the session.
    of_session {
        /// the worker had nothing to do
        IDLE: Nanoseconds, "idle", "IDLE";
        /// since when the worker sleeps for want of work; what is read of the page has added it to the time before
        ASLEEP_SINCE: Moment, "asleep_since", "SLEEPS";
        /// the worker had nothing to do but to wait for the GPU
        PARKED: Nanoseconds, "parked", "GPU";
        /// a client with more to post would have found no room in the ring
        RING_FULL: Nanoseconds, "ring_full", "FULL";
        /// held back by the session's own limit of GPU time; the arbiter of shares adds to it
        CAP_WAIT: Nanoseconds, "cap_wait", "CAP";
        /// held back because others had the GPU; the arbiter of shares adds to it
        LEASE_WAIT: Nanoseconds, "lease_wait", "TENANTS";
        /// the GPU was kept for longer than was due; the arbiter of shares adds to it
        LEASE_OVERRUN: Nanoseconds, "lease_overrun", "OVERRUN";
        /// how often the GPU was had; the arbiter of shares adds to it
        LEASES: Count, "leases", "LEASES";
        /// time of the GPU that the session had; the arbiter of shares adds to it
        GPU_TIME: Nanoseconds, "gpu_time", "GPU TIME";
        /// how often the driver was found to have given more memory than the session's ledger counts
        MEMORY_DRIFTS: Count, "memory_drifts", "DRIFTS";
        /// memory that the driver has given and the session's ledger lacks now, what is tolerated included
        MEMORY_LACKING: BytesNow, "memory_lacking_bytes", "LACKING";
        /// what telling costs a command, as measured when the worker started
        COST: Picoseconds, "telemetry_cost_picoseconds", "PROBES";
    }
}

/// README.md's table of them.
#[must_use]
pub fn table() -> String {
    let mut out = String::from("| of | name | column | what it is |\n| --- | --- | --- | --- |\n");
    for (of, all) in [("class", of_class::ALL), ("class, histogram", times::ALL), ("session", of_session::ALL)] {
        for event in all {
            out += &format!("| {of} | `{}` | {} | {} |\n", event.name, event.column, event.what);
        }
    }
    out
}

/// README.md's table of probes.
#[must_use]
pub fn probe_table() -> String {
    let mut out = String::from("| probe | arguments | when |\n| --- | --- | --- |\n");
    for probe in crate::probe::ALL {
        out += &format!("| `orion:{}` | {} | {} |\n", probe.name, probe.arguments.join(", "), probe.what);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_has_every_event_and_probe_as_declared() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
        let readme = std::fs::read_to_string(path).expect("the crate has a README");
        for table in [table(), probe_table()] {
            assert!(readme.contains(&table), "put this into dataplane/telemetry/README.md:\n{table}");
        }
    }

    #[test]
    fn names_are_ones_that_metrics_can_have_and_each_is_there_once() {
        let all = [of_class::ALL, times::ALL, of_session::ALL];
        let mut names: Vec<&str> = all.iter().flat_map(|all| all.iter().map(|event| event.name)).collect();
        assert!(names.iter().all(|name| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')), "{names:?}");
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
