//! Sessions that have begun, as the door knows them: who serves whom, what further connections have to know, and when
//! one that should be over is ended.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use orion_tls::identity::Identity;
use orion_transport::proof::LaneKey;
use orion_wire::lease::LeaseId;
use orion_wire::view::{UNKNOWN, Use};

use super::view::Client;
use crate::engine::carrier::contract;
use crate::engine::leases::book::Held;
use crate::engine::time::arbiters::Seats;
use crate::engine::watch::directory::Directory;
use crate::meter::Meter;

/// A worker whose client is gone and that does not end by itself is killed after this.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);

pub struct Session {
    pub worker: u32,
    /// The connection of a client that its worker has got, and until when it has to say START; what a worker tells
    /// another goes through us.
    pub guest: Option<u32>,
    pub start_by: Option<Instant>,
    /// What its further connections have to know.
    pub lane_key: LaneKey,
    /// For a carried session: what joining connections need.
    pub shared: Option<Weak<dyn contract::Session>>,
    pub kill_after: Option<Instant>,
    /// By which it was let in, where this server belongs to a pool. It is over when the worker has ended.
    pub lease: Option<Held>,
    pub client: Client,
    /// By which certificate it was let in, where that takes one.
    pub identity: Option<Identity>,
    /// What its vGPUs use.
    pub meter: Arc<Meter>,
    /// Where the time of its GPUs is divided.
    pub seats: Option<Seats>,
}

impl Session {
    /// Each of which has so much memory.
    pub fn has_leased_vgpus(&self) -> bool {
        self.lease.as_ref().is_some_and(|held| !held.lease.vgpus.is_empty())
    }

    /// What its vGPUs use, in the order of what is offered.
    fn uses(&self, number: u64, directory: &Directory) -> Vec<Use> {
        let busy = directory.busy_percents(number);
        let busy_percent = |vgpu: usize| busy.get(vgpu).copied().flatten().unwrap_or(UNKNOWN);
        let all = self.meter.read().into_iter().enumerate();
        all.map(|(i, r)| Use { device: i as u32, total: r.total, used: r.used, busy_percent: busy_percent(i) })
            .collect()
    }
}

#[derive(Default)]
pub struct Sessions(HashMap<u64, Session>);

/// A session that has to be ended, and why.
pub struct Late {
    pub session: u64,
    pub worker: u32,
    pub why: &'static str,
}

impl Sessions {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Those that are not about to end. The place of one that is will be free in a moment, for which it is worth while
    /// to wait.
    pub fn staying(&self) -> usize {
        self.0.values().filter(|s| s.kill_after.is_none()).count()
    }

    pub fn begin(&mut self, number: u64, session: Session) {
        self.0.insert(number, session);
    }

    pub fn get(&self, number: u64) -> Option<&Session> {
        self.0.get(&number)
    }

    pub fn get_mut(&mut self, number: u64) -> Option<&mut Session> {
        self.0.get_mut(&number)
    }

    /// Who they are for, and what their vGPUs use.
    pub fn in_use(&self, directory: &Directory) -> impl Iterator<Item = (&Client, Vec<Use>)> {
        self.0.iter().map(|(number, s)| (&s.client, s.uses(*number, directory)))
    }

    /// The session and the worker of a lease.
    pub fn of_lease(&self, id: LeaseId) -> Option<(u64, u32)> {
        self.with_lease(id).map(|(number, s)| (number, s.worker))
    }

    /// Who has a session by this lease, and what its vGPUs use.
    pub fn use_of(&self, id: LeaseId, directory: &Directory) -> Option<(&Client, Vec<Use>)> {
        self.with_lease(id).map(|(number, s)| (&s.client, s.uses(number, directory)))
    }

    fn with_lease(&self, id: LeaseId) -> Option<(u64, &Session)> {
        let is_its = |s: &Session| s.lease.as_ref().is_some_and(|held| held.lease.id == id);
        self.0.iter().find(|(_, s)| is_its(s)).map(|(number, s)| (*number, s))
    }

    /// The sessions, and their workers, of those for whom this is so.
    pub fn whose(&self, is_so: impl Fn(&Identity) -> bool) -> Vec<(u64, u32)> {
        let its = self.0.iter().filter(|(_, s)| s.identity.as_ref().is_some_and(&is_so));
        its.map(|(number, s)| (*number, s.worker)).collect()
    }

    /// Its worker greets the client, who has to start by then. Said again it does not lengthen that.
    pub fn settled(&mut self, number: u64, start_by: Instant) {
        if let Some(by) = self.0.get_mut(&number).and_then(|session| session.start_by.as_mut()) {
            *by = start_by.min(*by);
        }
    }

    /// The client has said START to its worker.
    pub fn started(&mut self, number: u64) {
        if let Some(session) = self.0.get_mut(&number) {
            session.start_by = None;
        }
    }

    /// Its client is gone: its worker should end soon.
    pub fn left(&mut self, number: u64) {
        if let Some(session) = self.0.get_mut(&number) {
            session.start_by = None;
            session.kill_after = Some(Instant::now() + LEAVE_TIMEOUT);
        }
    }

    /// Its worker has ended. Answers the connection of a local client, who is to learn of it.
    pub fn over(&mut self, number: u64) -> Option<u32> {
        self.0.remove(&number)?.guest
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        self.0.values().filter_map(|s| s.kill_after.or(s.start_by)).min()
    }

    /// Those whose time is over. They are listed again if they do not end.
    pub fn late(&mut self, now: Instant) -> Vec<Late> {
        let mut late = Vec::new();
        for (&session, s) in &mut self.0 {
            let why = if s.start_by.take_if(|t| now >= *t).is_some() {
                "the client did not start its session, ending it"
            } else if s.kill_after.is_some_and(|t| now >= t) {
                "the worker did not end with its client, killing it"
            } else {
                continue;
            };
            s.kill_after = Some(now + LEAVE_TIMEOUT);
            late.push(Late { session, worker: s.worker, why });
        }
        late
    }
}

#[cfg(test)]
mod tests {
    use orion_transport::proof::Said;

    use crate::engine::peer::Source;

    use super::*;

    fn session(start_by: Option<Instant>) -> Session {
        let lane_key = LaneKey::new(None, &Said { first: Vec::new(), nonce: [0; 32], certificate: None });
        let client = Client { source: Source::User(0), home: [0; 16], pid: 1, program: String::new() };
        let meter = Arc::new(Meter::create().expect("a page"));
        let (worker, guest) = (3, Some(9));
        Session {
            worker,
            guest,
            start_by,
            lane_key,
            shared: None,
            kill_after: None,
            lease: None,
            client,
            identity: None,
            meter,
            seats: None,
        }
    }

    #[test]
    fn who_does_not_start_is_ended_and_who_has_started_is_not() {
        let (mut sessions, now) = (Sessions::default(), Instant::now());
        let soon = now + Duration::from_secs(1);
        sessions.begin(1, session(Some(soon)));
        sessions.begin(2, session(Some(soon)));
        sessions.started(2);
        assert!(sessions.late(now).is_empty());
        let late = sessions.late(soon);
        assert_eq!(late.iter().map(|l| (l.session, l.worker)).collect::<Vec<_>>(), [(1, 3)]);
        // Not in every turn, and again if it did not help.
        assert!(sessions.late(soon).is_empty());
        assert_eq!(sessions.late(soon + LEAVE_TIMEOUT).len(), 1);
    }

    #[test]
    fn the_time_to_start_begins_once_the_worker_has_settled_and_not_again() {
        let (mut sessions, now) = (Sessions::default(), Instant::now());
        let after = |seconds| now + Duration::from_secs(seconds);
        sessions.begin(1, session(Some(after(100))));
        assert!(sessions.late(after(50)).is_empty());
        for seconds in [55, 60] {
            sessions.settled(1, after(seconds));
        }
        assert_eq!(sessions.next_deadline(), Some(after(55)));
        sessions.started(1);
        sessions.settled(1, after(65));
        assert!(sessions.late(after(100)).is_empty());
    }

    #[test]
    fn a_worker_has_time_to_end_with_its_client() {
        let mut sessions = Sessions::default();
        sessions.begin(1, session(None));
        assert_eq!((sessions.next_deadline(), sessions.staying()), (None, 1));
        let before = Instant::now();
        sessions.left(1);
        assert_eq!((sessions.len(), sessions.staying()), (1, 0));
        assert!(sessions.late(before + LEAVE_TIMEOUT / 2).is_empty());
        let then = sessions.next_deadline().expect("it is to end");
        assert_eq!(sessions.late(then).len(), 1);
        assert_eq!(sessions.over(1), Some(9));
        assert_eq!(sessions.len(), 0);
    }
}
