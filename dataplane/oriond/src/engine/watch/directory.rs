//! The sessions that there are, as far as somebody may ask about them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use orion_telemetry::report::{Client, Memory, Report, SESSIONS_MAX, Session, VERSION};
use orion_telemetry::{Page, probe};

use super::system;
use crate::engine::carrier::contract;
use crate::engine::peer::Source;
use crate::meter::Meter;

/// Characters of what a client says of itself: it becomes a label.
const PROGRAM_CHARS_MAX: usize = 64;

pub struct Directory {
    node: String,
    begun: Instant,
    sessions: Mutex<BTreeMap<u64, Arc<Watched>>>,
}

/// A session, from when it has a worker.
pub struct Watched {
    pub source: Source,
    /// Where its program says it is from.
    pub from: String,
    pub program: String,
    pub pid: u32,
    /// The program's, by the system's word and as we see it; 0 for one elsewhere.
    pub local_pid: i32,
    pub transport: &'static str,
    pub tenant: Option<String>,
    pub lease: Option<String>,
    /// Percent of each GPU's time.
    pub ratio: Option<u32>,
    pub worker_pid: i32,
    pub begun: Instant,
    pub page: Page,
    pub meter: Arc<Meter>,
    pub carried: OnceLock<Weak<dyn contract::Session>>,
    pub place: OnceLock<system::Place>,
}

/// Whose sessions somebody sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sees {
    All,
    Of(Source),
}

impl Directory {
    pub fn new() -> Directory {
        Directory { node: system::host_name(), begun: Instant::now(), sessions: Mutex::default() }
    }

    fn sessions(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Watched>>> {
        self.sessions.lock().expect("nothing panics under this lock")
    }

    pub fn begins(&self, session: u64, watched: Watched) {
        probe::session_begin(session, watched.worker_pid as u64);
        self.sessions().insert(session, Arc::new(watched));
    }

    /// An engine carries it.
    pub fn is_carried(&self, session: u64, by: Weak<dyn contract::Session>) {
        if let Some(watched) = self.sessions().get(&session) {
            let _ = watched.carried.set(by);
        }
    }

    pub fn ends(&self, session: u64) {
        if self.sessions().remove(&session).is_some() {
            probe::session_end(session);
        }
    }

    pub fn report(&self, sees: Sees) -> Report {
        // Read without the lock, for an engine may want it.
        let is_seen = |watched: &Watched| sees == Sees::All || sees == Sees::Of(watched.source);
        let mut seen: Vec<(u64, Arc<Watched>)> =
            self.sessions().iter().filter(|(_, w)| is_seen(w)).map(|(n, w)| (*n, Arc::clone(w))).collect();
        let left_out = seen.len().saturating_sub(SESSIONS_MAX) as u64;
        seen.truncate(SESSIONS_MAX);
        Report {
            version: VERSION,
            node: self.node.clone(),
            unix_ms: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64),
            monotonic_ns: self.begun.elapsed().as_nanos() as u64,
            sessions: seen.into_iter().map(|(number, watched)| watched.report(number)).collect(),
            left_out,
        }
    }
}

impl Watched {
    fn report(&self, number: u64) -> Session {
        let place = self.place.get_or_init(|| system::place(self.local_pid));
        let carried = self.carried.get().and_then(Weak::upgrade);
        let mut session = Session {
            session: number,
            client: Client {
                program: self.program.chars().take(PROGRAM_CHARS_MAX).collect(),
                pid: self.pid,
                from: self.from.clone(),
                container: place.container.clone(),
                pod: place.pod.clone(),
            },
            transport: self.transport.to_owned(),
            tenant: self.tenant.clone(),
            lease: self.lease.clone(),
            age_ms: self.begun.elapsed().as_millis() as u64,
            worker_pid: self.worker_pid,
            entitled_percent: self.ratio,
            memory: self.meter.read().iter().map(|r| Memory { used: r.used, limit: r.total }).collect(),
            cores: system::cores(self.worker_pid),
            wire: carried.as_ref().and_then(|carried| carried.wire()),
            connections: carried.map_or_else(Vec::new, |carried| carried.connections()),
            ..Session::default()
        };
        session.has(&self.page.read());
        session
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn watched(source: Source) -> Watched {
        Watched {
            source,
            from: "uid 7".into(),
            program: "train.py".into(),
            pid: 4711,
            local_pid: 0,
            transport: "a carrier",
            tenant: Some("team".into()),
            lease: None,
            ratio: Some(50),
            worker_pid: std::process::id() as i32,
            begun: Instant::now(),
            page: Page::create().expect("a page"),
            meter: Arc::new(Meter::create().expect("a page")),
            carried: OnceLock::new(),
            place: OnceLock::new(),
        }
    }

    #[test]
    fn everybody_sees_his_own_sessions_and_its_owner_all() {
        let directory = Directory::new();
        directory.begins(1, watched(Source::User(7)));
        directory.begins(2, watched(Source::User(8)));
        directory.begins(3, watched(Source::V4([10, 0, 0, 7])));
        let seen = |sees| directory.report(sees).sessions.iter().map(|s| s.session).collect::<Vec<_>>();
        assert_eq!(seen(Sees::All), [1, 2, 3]);
        assert_eq!(seen(Sees::Of(Source::User(8))), [2]);
        assert!(seen(Sees::Of(Source::User(9))).is_empty());
        directory.ends(2);
        assert_eq!(seen(Sees::All), [1, 3]);
        let report = directory.report(Sees::All);
        let session = &report.sessions[0];
        assert_eq!((session.client.pid, session.entitled_percent), (4711, Some(50)));
        assert!(session.cores.expect("this process").run_ns > 0);
    }
}
