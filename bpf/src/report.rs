//! What was seen, for programs as JSON and for people as text.

use std::fmt::Write;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::histogram::Times;
use crate::numbers::NO_OPCODE;
use crate::processes::Role;
use crate::question::Question;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The process that was looked at: an oriond, or a program.
    pub subject: u32,
    pub seconds: f64,
    pub questions: Vec<Question>,
    pub threads: Vec<Threads>,
    pub connections: Vec<Connection>,
    /// Of those whose connections were seen.
    pub sessions: Vec<OfSession>,
    pub completions: Vec<Completions>,
    pub ioctls: Vec<Ioctls>,
    pub usdt: Vec<Usdt>,
    pub pairs: Vec<Pair>,
    /// What the programs in the kernel themselves took.
    pub cost: Vec<Cost>,
    pub cost_is_known: bool,
    /// What was not counted because a table in the kernel was full.
    pub lost: u64,
    /// Processes for which there was no room.
    pub left_out: u64,
    /// What was not answered, and why.
    pub notes: Vec<String>,
}

/// Threads of one role in one process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Threads {
    pub process: u32,
    pub name: String,
    pub session: Option<u64>,
    pub role: Role,
    /// How long they waited for a core.
    pub run_queue: Option<Times>,
    pub asleep: Option<Asleep>,
}

/// How long they slept, of sleeps that have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Asleep(pub Times);

/// One TCP connection of a port of oriond's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// `None` where oriond did not tell of it while it was looked: a stranger's, one that was too short, and one whose
    /// address several sessions had one after the other.
    pub session: Option<u64>,
    /// Which of the session's connections for bulk data; `None` of its main one.
    pub lane: Option<u32>,
    pub peer: SocketAddr,
    pub port: u16,
    /// Segments from the peer, and segments that were sent to it again.
    pub received: u64,
    pub retransmits: u64,
    /// The round trip as the kernel smooths it.
    pub smoothed_ns: u64,
    /// On the way to the peer, waiting to be sent, and not read by oriond yet: when the last segment came, and at most.
    pub unacked_bytes: u64,
    pub unsent_bytes: u64,
    pub unread_bytes: u64,
    pub unacked_bytes_max: u64,
    pub unsent_bytes_max: u64,
    pub unread_bytes_max: u64,
    pub round_trips: Times,
}

/// The connections of one session together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfSession {
    pub session: u64,
    /// By its own word.
    pub program: String,
    pub tenant: Option<String>,
    pub connections: u64,
    /// Segments from the peer, and segments that were sent to it again.
    pub received: u64,
    pub retransmits: u64,
    pub round_trips: Times,
}

/// What io_uring completed of one operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completions {
    pub process: u32,
    pub session: Option<u64>,
    pub role: Role,
    pub opcode: u32,
    pub count: u64,
    pub failures: u64,
    /// The sum of what succeeded: bytes, of operations that move some.
    pub bytes: u64,
}

/// One ioctl of one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ioctls {
    pub process: u32,
    pub session: Option<u64>,
    pub role: Role,
    pub device: String,
    pub command: u32,
    pub count: u64,
    pub failures: u64,
    pub times: Times,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usdt {
    pub probe: String,
    pub count: u64,
}

/// From `PAIR_begin` to `PAIR_end`, of one session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    pub pair: String,
    pub session: u64,
    pub times: Times,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    pub program: String,
    pub runs: u64,
    pub ns: u64,
}

impl Report {
    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        let sessions = self.threads.iter().filter(|t| t.role == Role::Executor && t.session.is_some()).count();
        let mut text = format!("process {}, {:.1} s, {sessions} sessions\n", self.subject, self.seconds);
        for (question, table) in [
            (Question::RunQueue, self.of_threads("waited for a core", |threads| threads.run_queue)),
            (Question::OffCpu, self.of_threads("asleep", |threads| threads.asleep.map(|asleep| asleep.0))),
            (Question::Tcp, self.of_connections()),
            (Question::Tcp, self.of_sessions()),
            (Question::IoUring, self.of_completions()),
            (Question::Ioctl, self.of_ioctls()),
            (Question::Usdt, self.of_usdt()),
        ] {
            if self.questions.contains(&question) {
                let _ = write!(text, "\n{}", table.text());
            }
        }
        if self.cost_is_known {
            let _ = write!(text, "\n{}", self.of_cost().text());
        }
        if self.lost > 0 {
            let _ = writeln!(text, "\n{} events were not counted, because a table in the kernel was full", self.lost);
        }
        if self.left_out > 0 {
            let _ = writeln!(text, "\n{} processes were left out, because there were too many", self.left_out);
        }
        self.notes.iter().for_each(|note| {
            let _ = writeln!(text, "\n{note}");
        });
        text
    }

    fn of_threads(&self, what: &str, times: impl Fn(&Threads) -> Option<Times>) -> Table {
        let mut table = Table::new(what, &["session", "process", "threads of", "times", "sum", "p50", "p99", "most"]);
        for threads in &self.threads {
            if let Some(times) = times(threads).filter(|times| times.count > 0) {
                let role = format!("{} {}", threads.name, role(threads.role));
                table.row([who(threads.session, threads.process), vec![role], shown(&times)].concat());
            }
        }
        table
    }

    fn of_connections(&self) -> Table {
        let head = [
            "session",
            "connection of",
            "peer",
            "port",
            "segments",
            "sent again",
            "smoothed",
            "round trips",
            "sum",
            "p50",
            "p99",
            "most",
            "unacked",
            "unsent",
            "unread",
        ];
        let mut table = Table::new("TCP connections; queues in bytes, at most", &head);
        for c in &self.connections {
            let [session, of] = self.whose(c);
            let head = [
                session,
                of,
                c.peer.to_string(),
                c.port.to_string(),
                c.received.to_string(),
                c.retransmits.to_string(),
            ];
            let queues = [c.unacked_bytes_max, c.unsent_bytes_max, c.unread_bytes_max].map(|n| n.to_string());
            table.row([&head[..], &[time(c.smoothed_ns)], &shown(&c.round_trips), &queues].concat());
        }
        table
    }

    /// The session of a connection, and which of that one's it is.
    fn whose(&self, connection: &Connection) -> [String; 2] {
        let Some(session) = connection.session else { return ["-", "-"].map(str::to_owned) };
        let program = self.sessions.iter().find(|s| s.session == session).map_or("?", |s| s.program.as_str());
        let which = connection.lane.map_or("main".to_owned(), |lane| format!("lane {lane}"));
        [session.to_string(), format!("{program} ({which})")]
    }

    fn of_sessions(&self) -> Table {
        let head = ["session", "tenant", "program", "connections", "segments", "sent again", "round trips"];
        let mut table = Table::new("TCP by session", &[&head[..], &["sum", "p50", "p99", "most"]].concat());
        for s in &self.sessions {
            let whose = [s.session.to_string(), s.tenant.clone().unwrap_or("-".to_owned()), s.program.clone()];
            let numbers = [s.connections, s.received, s.retransmits].map(|n| n.to_string());
            table.row([&whose[..], &numbers, &shown(&s.round_trips)].concat());
        }
        table
    }

    fn of_completions(&self) -> Table {
        let mut table =
            Table::new("completed by io_uring", &["session", "process", "operation", "times", "failed", "bytes"]);
        let mut all: Vec<&Completions> = self.completions.iter().collect();
        all.sort_by_key(|c| (c.process, std::cmp::Reverse(c.count)));
        for c in all {
            let numbers = [c.count, c.failures, c.bytes].map(|n| n.to_string());
            table.row([who(c.session, c.process), vec![operation(c.opcode)], numbers.to_vec()].concat());
        }
        table
    }

    fn of_ioctls(&self) -> Table {
        let head = ["session", "process", "device", "command", "failed", "times", "sum", "p50", "p99", "most"];
        let mut table = Table::new("ioctls of device files", &head);
        let mut all: Vec<&Ioctls> = self.ioctls.iter().collect();
        all.sort_by_key(|i| (i.process, std::cmp::Reverse(i.times.sum_ns)));
        for i in all {
            let what = vec![i.device.clone(), format!("{:#010x}", i.command), i.failures.to_string()];
            table.row([who(i.session, i.process), what, shown(&i.times)].concat());
        }
        table
    }

    fn of_usdt(&self) -> Table {
        let mut table = Table::new("USDT probes", &["probe", "session", "times", "sum", "p50", "p99", "most"]);
        for usdt in &self.usdt {
            table.row(vec![usdt.probe.clone(), String::new(), usdt.count.to_string()]);
        }
        for pair in &self.pairs {
            let head = vec![format!("{}_begin to _end", pair.pair), pair.session.to_string()];
            table.row([head, shown(&pair.times)].concat());
        }
        table
    }

    fn of_cost(&self) -> Table {
        let mut table = Table::new("what these probes took", &["program", "runs", "time", "each", "of one core"]);
        for cost in &self.cost {
            let share = cost.ns as f64 / 1e7 / self.seconds.max(1e-9);
            let each = time(cost.ns.checked_div(cost.runs).unwrap_or(0));
            let row = [cost.program.clone(), cost.runs.to_string(), time(cost.ns), each, format!("{share:.3}%")];
            table.row(row.to_vec());
        }
        table
    }
}

fn who(session: Option<u64>, process: u32) -> Vec<String> {
    vec![session.map_or("-".to_owned(), |session| session.to_string()), process.to_string()]
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Engine => "(engines)",
        Role::Oriond => "(others)",
        Role::Executor => "(executor)",
        Role::Worker => "(others)",
        Role::Client => "(client)",
    }
}

fn shown(times: &Times) -> Vec<String> {
    let durations = [times.sum_ns, times.p50_ns, times.p99_ns, times.max_ns].map(time);
    [&[times.count.to_string()][..], &durations].concat()
}

/// Three digits and a unit.
fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

/// What the kernel calls an operation of io_uring.
fn operation(opcode: u32) -> String {
    const NAMES: &str = "nop readv writev fsync read_fixed write_fixed poll_add poll_remove sync_file_range sendmsg \
        recvmsg timeout timeout_remove accept async_cancel link_timeout connect fallocate openat close files_update \
        statx read write fadvise madvise send recv openat2 epoll_ctl splice provide_buffers remove_buffers tee \
        shutdown renameat unlinkat mkdirat symlinkat linkat msg_ring fsetxattr setxattr fgetxattr getxattr socket \
        uring_cmd send_zc sendmsg_zc read_multishot waitid futex_wait futex_wake futex_waitv fixed_fd_install \
        ftruncate bind listen recv_zc epoll_wait readv_fixed writev_fixed pipe";
    match NAMES.split(' ').nth(opcode as usize) {
        Some(name) => name.to_owned(),
        // One more result of a request that goes on, such as an accept, or what another ring has sent.
        None if opcode == NO_OPCODE => "multishot or message".to_owned(),
        None => format!("operation {opcode}"),
    }
}

/// A device file by its numbers: its path where the system tells it, else its driver.
#[must_use]
pub fn device_name((major, minor): (u32, u32)) -> String {
    let told = std::fs::read_to_string(format!("/sys/dev/char/{major}:{minor}/uevent")).unwrap_or_default();
    if let Some(name) = told.lines().find_map(|line| line.strip_prefix("DEVNAME=")) {
        return format!("/dev/{name}");
    }
    let drivers = std::fs::read_to_string("/proc/devices").unwrap_or_default();
    let of_major = |line: &str| line.trim().strip_prefix(&major.to_string())?.strip_prefix(' ').map(str::to_owned);
    match drivers.lines().take_while(|line| *line != "Block devices:").find_map(of_major) {
        Some(driver) => format!("{driver} {major}:{minor}"),
        None => format!("{major}:{minor}"),
    }
}

struct Table {
    title: String,
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new(title: &str, head: &[&str]) -> Table {
        Table { title: title.to_owned(), rows: vec![head.iter().map(|word| (*word).to_owned()).collect()] }
    }

    fn row(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    fn text(&self) -> String {
        if self.rows.len() == 1 {
            return format!("{}: nothing\n", self.title);
        }
        let width = |column: usize| self.rows.iter().filter_map(|row| row.get(column)).map(String::len).max();
        let widths: Vec<usize> = (0..self.rows[0].len()).map(|column| width(column).unwrap_or(0)).collect();
        let mut text = format!("{}\n", self.title);
        for row in &self.rows {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("  {cell:>width$}"));
            let _ = writeln!(text, "{}", cells.collect::<String>().trim_end());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_have_the_kernels_names() {
        let some = [0, 6, 13, 27, 40, 48, 51, 62].map(operation);
        assert_eq!(some, ["nop", "poll_add", "accept", "recv", "msg_ring", "sendmsg_zc", "futex_wait", "pipe"]);
        assert_eq!(operation(200), "operation 200");
        assert_eq!(operation(NO_OPCODE), "multishot or message");
    }

    #[test]
    fn device_files_have_their_paths() {
        assert_eq!(device_name((1, 3)), "/dev/null");
        assert_eq!(device_name((4095, 7)), "4095:7");
    }

    #[test]
    fn connections_are_shown_with_whose_they_are() {
        let round_trips = Times { count: 3, sum_ns: 3_000, p50_ns: 1000, p99_ns: 1000, max_ns: 1000 };
        let connection = |session, lane, peer: &str| Connection {
            session,
            lane,
            peer: peer.parse().expect("an address"),
            port: 7,
            received: 20,
            retransmits: 1,
            smoothed_ns: 900,
            unacked_bytes: 0,
            unsent_bytes: 0,
            unread_bytes: 0,
            unacked_bytes_max: 4,
            unsent_bytes_max: 5,
            unread_bytes_max: 6,
            round_trips,
        };
        let (main, lane) = (connection(Some(5), None, "10.0.0.7:1"), connection(Some(5), Some(0), "[fe80::7]:2"));
        let sum = OfSession {
            session: 5,
            program: "train.py".to_owned(),
            tenant: Some("team".to_owned()),
            connections: 2,
            received: 40,
            retransmits: 2,
            round_trips,
        };
        let report = Report {
            questions: vec![Question::Tcp],
            connections: vec![main, lane, connection(None, None, "10.0.0.8:3")],
            sessions: vec![sum],
            ..Report::default()
        };
        let text = report.text();
        let rows: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let times = "3 3.0 us 1.0 us 1.0 us 1.0 us";
        for row in [
            format!("5 train.py (main) 10.0.0.7:1 7 20 1 900 ns {times} 4 5 6"),
            format!("5 train.py (lane 0) [fe80::7]:2 7 20 1 900 ns {times} 4 5 6"),
            format!("- - 10.0.0.8:3 7 20 1 900 ns {times} 4 5 6"),
            format!("5 team train.py 2 40 2 {times}"),
        ] {
            assert!(rows.contains(&row), "{row} is not in\n{text}");
        }
    }

    #[test]
    fn what_was_asked_is_shown_and_nothing_else() {
        let times = Times { count: 3, sum_ns: 3_500_000, p50_ns: 999, p99_ns: 1_000_000, max_ns: 2_000_000_000 };
        let mut report = Report { subject: 7, seconds: 2.0, questions: vec![Question::RunQueue], ..Report::default() };
        report.threads.push(Threads {
            process: 8,
            name: "oriond-worker".to_owned(),
            session: Some(5),
            role: Role::Executor,
            run_queue: Some(times),
            asleep: None,
        });
        let text = report.text();
        let row = "5        8  oriond-worker (executor)      3  3.5 ms  999 ns  1.0 ms  2.00 s";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("1 sessions") && !text.contains("TCP") && !text.contains("took"), "{text}");
        let back: Report = serde_json::from_str(&serde_json::to_string(&report).expect("JSON")).expect("the same");
        assert_eq!(back, report);
    }
}
