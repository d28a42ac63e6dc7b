//! What oriond says of its sessions at one moment, as JSON: what `orion-top` shows, records and replays.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::class::Class;
use crate::events::{Event, of_class, of_session, times};
use crate::histogram::{Counts, between, coarser};
use crate::page::Snapshot;

/// Raised when something changes its meaning.
pub const VERSION: u32 = 1;
/// Sessions in one report. There are no more on a server, as a rule.
pub const SESSIONS_MAX: usize = 1024;
/// Of one session, whatever its worker has written to its page.
pub const SESSION_BYTES_MAX: usize = 60 << 10;
/// What tools read of a report.
pub const BYTES_MAX: u64 = 64 << 20;

const _: () = assert!(((SESSIONS_MAX + 1) * SESSION_BYTES_MAX) as u64 <= BYTES_MAX);

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub version: u32,
    pub node: String,
    pub unix_ms: u64,
    /// A clock that does not jump.
    pub monotonic_ns: u64,
    pub sessions: Vec<Session>,
    /// The node's, in the order of their numbers, once they are known; none in what an earlier version said.
    #[serde(default)]
    pub gpus: Vec<Gpu>,
    /// There are more sessions than may be told of at once.
    pub left_out: u64,
}

/// A GPU of the node. Who does not see all sessions is told what is known of his own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    pub gpu: u64,
    pub uuid: String,
    pub name: String,
    pub memory_bytes: u64,
    /// Of the last second, in which it worked; nothing where that is not known.
    pub busy_percent: Option<u32>,
    /// In which its memory was read or written.
    pub memory_busy_percent: Option<u32>,
    pub used_bytes: Option<u64>,
}

/// For what part of the last second a GPU worked for these sessions, if that is known of all that have a vGPU there.
#[must_use]
pub fn busy_percent_of(gpu: u64, sessions: &[Session]) -> Option<u32> {
    // Several vGPUs of a session on one GPU are busy together.
    let of_session =
        |session: &Session| session.vgpus.iter().find(|vgpu| vgpu.gpu == gpu).map(|vgpu| vgpu.busy_percent);
    let parts: Option<Vec<u32>> = sessions.iter().filter_map(of_session).collect();
    parts.map(|parts| parts.into_iter().fold(0, u32::saturating_add).min(100))
}

/// One session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Session {
    pub session: u64,
    pub client: Client,
    /// How its bytes come here.
    pub transport: String,
    pub tenant: Option<String>,
    pub lease: Option<String>,
    pub age_ms: u64,
    pub worker_pid: i32,
    /// Percent of a GPU's time that each of its vGPUs may have, where that is known.
    pub entitled_percent: Option<u32>,
    pub memory: Vec<Memory>,
    /// As many as there are in `memory`, once they are known; none in what an earlier version said.
    #[serde(default)]
    pub vgpus: Vec<Vgpu>,
    /// Whether an arbiter divides the time of its GPUs, and so counts it.
    #[serde(default)]
    pub is_divided: bool,
    pub cores: Option<Cores>,
    pub wire: Option<Wire>,
    /// By which it is joined to what others see of the network; none of a session that has no TCP connection.
    #[serde(default)]
    pub connections: Vec<Connection>,
    /// Of [`of_session`], by name.
    pub counters: BTreeMap<String, u64>,
    /// Of classes with commands, by name.
    pub classes: BTreeMap<String, OfClass>,
    /// By how much their histograms are [`coarser`] than they were counted; none of what an earlier version said.
    #[serde(default)]
    pub coarse: u32,
}

/// Who a session is for, by the client's word but for user and address.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    pub program: String,
    pub pid: u32,
    /// A user of this machine, as `uid 7`, or an address.
    pub from: String,
    /// Where the system shows it: of programs on this machine.
    pub container: Option<String>,
    pub pod: Option<String>,
}

/// Bytes of a vGPU's memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    pub used: u64,
    pub limit: u64,
}

/// On which of its node's GPUs a vGPU lies, and how busy the session keeps that.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vgpu {
    pub gpu: u64,
    /// Of the last second in which the GPU worked for the session; nothing where nobody measures.
    pub busy_percent: Option<u32>,
}

/// Of the worker's threads, by the system's count: on a core, and wanting one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cores {
    /// Of the thread that executes commands.
    pub executor_run_ns: u64,
    pub executor_queued_ns: u64,
    /// Of all of them.
    pub run_ns: u64,
    pub queued_ns: u64,
    pub threads: u64,
}

/// The connection of a client elsewhere, by the system's count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wire {
    pub rtt_ns: u64,
    pub rtt_variance_ns: u64,
    /// Segments sent again, since it began, and those on the way.
    pub retransmits: u64,
    pub unacked: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
}

/// One TCP connection of a client elsewhere, from when it carries the session until that ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// Which one it is of those for bulk data; `None` of the main one.
    pub lane: Option<u32>,
    /// The other end, as this machine sees it. IPv4 is IPv4, however it came in.
    pub peer: SocketAddr,
    /// This end.
    pub port: u16,
}

/// One class.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfClass {
    /// Of [`of_class`], by name.
    pub counters: BTreeMap<String, u64>,
    /// Of [`times`], by name.
    pub histograms: BTreeMap<String, Counts>,
}

impl Report {
    /// All but what is said of sessions and GPUs.
    #[must_use]
    pub fn clone_head(&self) -> Report {
        let Report { version, node, unix_ms, monotonic_ns, sessions: _, gpus: _, left_out } = self;
        let (node, sessions, gpus) = (node.clone(), Vec::new(), Vec::new());
        Report {
            version: *version,
            node,
            unix_ms: *unix_ms,
            monotonic_ns: *monotonic_ns,
            sessions,
            gpus,
            left_out: *left_out,
        }
    }
}

impl Session {
    /// Takes over what a page says.
    pub fn has(&mut self, page: &Snapshot) {
        self.counters = of_session::ALL.iter().map(|e| (e.name.to_owned(), page.session(*e))).collect();
        let used = Class::ALL.iter().filter(|class| page.class(**class, of_class::CALLS) != 0);
        self.classes = used.map(|class| (class.name().to_owned(), of(*class, page))).collect();
        self.coarse = page.coarse();
    }

    /// What came into a histogram of a class since an earlier report.
    #[must_use]
    pub fn since(&self, before: &Session, class: Class, event: Event) -> Counts {
        let coarse = self.coarse.max(before.coarse).min(u16::BITS - 1);
        let of = |session: &Session| {
            session.class(class).map_or_else(Counts::new, |of| coarser(of.histogram(event), coarse))
        };
        between(&of(before), &of(self))
    }

    #[must_use]
    pub fn counter(&self, event: Event) -> u64 {
        self.counters.get(event.name).copied().unwrap_or(0)
    }

    /// Whether somebody counts the time that GPUs work for it: nothing is known of it otherwise, and counters say 0.
    #[must_use]
    pub fn gpu_time_is_known(&self) -> bool {
        self.is_divided || self.counter(of_session::LEASES) > 0
    }

    /// As [`Self::counter`], and nothing where nobody counts it.
    #[must_use]
    pub fn told(&self, event: Event) -> Option<u64> {
        let is_of_arbiter = [of_session::GPU_TIME, of_session::LEASES, of_session::LEASE_OVERRUN].contains(&event);
        let is_of_drift = [of_session::MEMORY_DRIFTS, of_session::MEMORY_LACKING].contains(&event);
        let is_known = match is_of_arbiter {
            true => self.gpu_time_is_known(),
            false => !is_of_drift || self.counters.contains_key(event.name),
        };
        is_known.then(|| self.counter(event))
    }

    #[must_use]
    pub fn class(&self, class: Class) -> Option<&OfClass> {
        self.classes.get(class.name())
    }

    /// Of all classes together.
    #[must_use]
    pub fn sum(&self, event: Event) -> u64 {
        self.classes.values().fold(0, |sum, of| sum.saturating_add(of.counter(event)))
    }
}

fn of(class: Class, page: &Snapshot) -> OfClass {
    OfClass {
        counters: of_class::ALL.iter().map(|e| (e.name.to_owned(), page.class(class, *e))).collect(),
        histograms: times::ALL.iter().map(|e| (e.name.to_owned(), page.histogram(class, *e).clone())).collect(),
    }
}

impl OfClass {
    #[must_use]
    pub fn counter(&self, event: Event) -> u64 {
        self.counters.get(event.name).copied().unwrap_or(0)
    }

    #[must_use]
    pub fn histogram(&self, event: Event) -> &Counts {
        static NOTHING: Counts = Counts::new();
        self.histograms.get(event.name).unwrap_or(&NOTHING)
    }
}

#[cfg(test)]
mod tests {
    use orion_wire::message::carrier::DEVICES_MAX;

    use crate::histogram::{BUCKETS, COUNT_MAX, middle};
    use crate::page::{OwnPage, add};

    use super::*;

    #[test]
    fn what_a_page_says_comes_back_from_json() {
        let page = OwnPage::alone().expect("a page");
        add(&page.line(Class::Graph)[of_class::CALLS.index], 3);
        page.record(Class::Graph, times::TIME, 1000, 2);
        page.add(of_session::CAP_WAIT, 9);
        let over_ipv6 = Connection { lane: Some(2), peer: "[2001:db8::7]:4711".parse().expect("an address"), port: 9 };
        let mut session = Session { session: 4, connections: vec![over_ipv6], ..Session::default() };
        session.has(&page.read());
        let report = Report { version: VERSION, sessions: vec![session], ..Report::default() };
        let text = serde_json::to_string(&report).expect("plain data");
        let back: Report = serde_json::from_str(&text).expect("what was written");
        assert_eq!(back, report);
        let session = &back.sessions[0];
        assert_eq!(session.counter(of_session::CAP_WAIT), 9);
        assert_eq!(session.sum(of_class::CALLS), 3);
        let counts = session.class(Class::Graph).expect("it was used").histogram(times::TIME);
        assert_eq!(counts.iter().map(|(_, n)| n).sum::<u64>(), 2);
        assert!(session.class(Class::Launch).is_none());
    }

    /// Its worker was taken over. Tools take no more than so much of a node, and have to be told of all others, too.
    #[test]
    fn a_page_that_is_full_of_nonsense_is_told_in_few_bytes() {
        let page = OwnPage::alone().expect("a page");
        of_session::ALL.iter().for_each(|event| page.set(*event, u64::MAX));
        for class in Class::ALL {
            page.line(*class).iter().for_each(|word| add(word, u64::MAX));
            for event in times::ALL {
                (0..BUCKETS).for_each(|bucket| page.record(*class, *event, middle(bucket), u64::MAX));
            }
        }
        let all = |one: &str| one.repeat(64);
        let most = Memory { used: u64::MAX, limit: u64::MAX };
        let peer = "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535".parse().expect("an address");
        let mut session = Session {
            session: u64::MAX,
            client: Client {
                program: all("\u{7}"),
                pid: u32::MAX,
                from: all("f"),
                container: None,
                pod: Some(all("p")),
            },
            tenant: Some(all("t")),
            lease: Some(all("l")),
            memory: vec![most; DEVICES_MAX],
            vgpus: vec![Vgpu { gpu: u64::MAX, busy_percent: Some(u32::MAX) }; DEVICES_MAX],
            connections: vec![Connection { lane: Some(u32::MAX), peer, port: u16::MAX }; 17],
            ..Session::default()
        };
        session.has(&page.read());
        let text = serde_json::to_string(&session).expect("plain data");
        assert!(text.len() < SESSION_BYTES_MAX, "{} bytes", text.len());
        let counts = session.class(Class::Graph).expect("it was used").histogram(times::TIME);
        assert!(counts.len() > 16 && counts.iter().all(|(_, count)| *count <= COUNT_MAX), "{counts:?}");
    }

    /// Between two reports a session's histograms have come to be told more coarsely.
    #[test]
    fn what_came_in_between_is_known_though_it_is_told_more_coarsely() {
        let page = OwnPage::alone().expect("a page");
        let read = || {
            let mut session = Session::default();
            session.has(&page.read());
            session
        };
        add(&page.line(Class::Graph)[of_class::CALLS.index], 1);
        (0..BUCKETS).for_each(|bucket| page.record(Class::Graph, times::TIME, middle(bucket), 7));
        let before = read();
        for event in times::ALL {
            page.record(Class::Graph, *event, 1000, 5);
            (0..BUCKETS).for_each(|bucket| page.record(Class::Graph, *event, middle(bucket), 1));
        }
        let now = read();
        assert_eq!((before.coarse, now.coarse), (0, 1));
        let came = now.since(&before, Class::Graph, times::TIME);
        assert_eq!(came.iter().map(|(_, count)| count).sum::<u64>(), BUCKETS as u64 + 5);
        assert_eq!(now.since(&now, Class::Graph, times::TIME), []);
    }

    #[test]
    fn a_session_that_was_recorded_without_its_vgpus_has_none_and_says_nothing_of_the_gpus_time() {
        let vgpus = vec![Vgpu { gpu: 3, busy_percent: Some(0) }];
        let session = Session { session: 4, vgpus, is_divided: true, ..Session::default() };
        let mut told = serde_json::to_value(session).expect("plain data");
        let back: Session = serde_json::from_value(told.clone()).expect("a session");
        assert!(back.gpu_time_is_known() && back.vgpus[0].gpu == 3);
        for name in ["vgpus", "is_divided"] {
            assert!(told.as_object_mut().and_then(|fields| fields.remove(name)).is_some());
        }
        let back: Session = serde_json::from_value(told).expect("a session");
        assert!(!back.gpu_time_is_known() && back.vgpus.is_empty());
        assert_eq!((back.told(of_session::GPU_TIME), back.told(of_session::IDLE)), (None, Some(0)));
    }

    #[test]
    fn a_gpu_works_for_all_its_sessions_together_as_long_as_that_is_known_of_each() {
        let session = |vgpus: &[(u64, Option<u32>)]| {
            let vgpus = vgpus.iter().map(|(gpu, busy_percent)| Vgpu { gpu: *gpu, busy_percent: *busy_percent });
            Session { vgpus: vgpus.collect(), ..Session::default() }
        };
        let mut sessions = vec![session(&[(0, Some(30)), (0, Some(30)), (1, Some(70))]), session(&[(1, Some(60))])];
        let told = |sessions: &[Session]| [0, 1, 2].map(|gpu| busy_percent_of(gpu, sessions));
        assert_eq!(told(&sessions), [Some(30), Some(100), Some(0)]);
        sessions.push(session(&[(1, None)]));
        assert_eq!(told(&sessions), [Some(30), None, Some(0)]);
    }

    #[test]
    fn a_session_that_was_recorded_without_its_connections_is_read() {
        let mut told = serde_json::to_value(Session { session: 4, ..Session::default() }).expect("plain data");
        assert!(told.as_object_mut().and_then(|fields| fields.remove("connections")).is_some());
        let back: Session = serde_json::from_value(told).expect("a session");
        assert_eq!((back.session, back.connections), (4, Vec::new()));
    }
}
