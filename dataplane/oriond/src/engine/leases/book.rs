//! Which leases have a session, which were used, and what the agent has not heard of yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use orion_tls::Fingerprint;
use orion_transport::lease::{Instance, LeaseKey, Shown};
use orion_transport::proof::{Token, fresh_nonce};
use orion_wire::agent::{Answer, ENDED_MAX, Gpu, Used};
use orion_wire::lease::{Lease, LeaseId};
use orion_wire::refusal::{Reason, Refusal};

use crate::meter::Meter;

/// No lease can be used for longer after it was given.
const OFFER_MS_MAX: u64 = 600_000;

const NO_LEASE: &str = "this server belongs to a pool and admits who has a lease of its controller; set \
                        ORION_CONTROLLER to the controller, and leave out ORION_SERVER";

/// Shared by the door and the thread that talks to the agent. Nobody waits while he has it locked.
pub struct Book {
    instance: Instance,
    is_software: bool,
    /// What clients elsewhere are shown.
    certificate: Option<Fingerprint>,
    pages: Mutex<Pages>,
    changed: Condvar,
}

#[derive(Default)]
struct Pages {
    /// Not known before an agent has come.
    belongs: Option<Belongs>,
    /// Whose leases are of the node's own reserve, which the agent lends.
    keeps: Option<Belongs>,
    /// As the first warm worker has found them.
    gpus: Option<Vec<Gpu>>,
    live: BTreeSet<LeaseId>,
    /// Those of them that are of the reserve.
    live_of_reserve: BTreeMap<LeaseId, Lease>,
    /// What their vGPUs use, from when each has a worker.
    meters: BTreeMap<LeaseId, Arc<Meter>>,
    /// Leases that were used, until they could not be used any more anyway; those of the reserve by its own clock.
    used: BTreeMap<LeaseId, u64>,
    used_of_reserve: BTreeMap<LeaseId, u64>,
    /// Leases that the controller has taken back, likewise.
    taken_back: BTreeMap<LeaseId, u64>,
    /// With the version by which they ended, the last ones. What is forgotten here nobody renews at the controller.
    ended: BTreeMap<LeaseId, u64>,
    version: u64,
}

/// The node that this is, and the key of leases for it.
struct Belongs {
    node: String,
    key: LeaseKey,
    /// The clock of who gives them, in milliseconds since 1970, at that time. Leases run out by it, so this machine's
    /// clock may be wrong.
    clock: (u64, Instant),
}

impl Belongs {
    fn now_unix_ms(&self) -> u64 {
        let (then, at) = self.clock;
        then.saturating_add(at.elapsed().as_millis() as u64)
    }
}

/// What a lease that is good lets its client have.
struct Checked {
    lease: Lease,
    token: Token,
    is_of_reserve: bool,
    now_unix_ms: u64,
}

impl Pages {
    /// By whom the lease was given: the pool's controller, or this node's agent. The error is the former's.
    fn check(&self, shown: &Shown<'_>) -> Result<Checked, Refusal> {
        self.by_either(|by, is_of_reserve| {
            let now_unix_ms = by.now_unix_ms();
            let (lease, token) = by.key.check(shown, &by.node, now_unix_ms)?;
            Ok(Checked { lease, token, is_of_reserve, now_unix_ms })
        })
    }

    fn by_either<T>(&self, check: impl Fn(&Belongs, bool) -> Result<T, Refusal>) -> Result<T, Refusal> {
        let mut refused = None;
        for (by, is_of_reserve) in [(&self.belongs, false), (&self.keeps, true)] {
            let Some(by) = by else { continue };
            match check(by, is_of_reserve) {
                Ok(checked) => return Ok(checked),
                Err(why) => drop(refused.get_or_insert(why)),
            }
        }
        let nobody = "no agent has told this server yet which pool it belongs to; is orion-agent running?";
        Err(refused.unwrap_or_else(|| Refusal::new(Reason::Lease, nobody)))
    }
}

/// The lease of a session that begins. When it is dropped the session is over.
pub struct Held {
    pub lease: Lease,
    /// What the session's further connections are proved by.
    pub token: Token,
    /// The node has lent it by itself.
    pub is_of_reserve: bool,
    book: Arc<Book>,
}

impl Held {
    /// Its session has a worker now.
    pub fn is_metered(&self, meter: &Arc<Meter>) {
        self.book.pages().meters.insert(self.lease.id, Arc::clone(meter));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.book.is_over(self.lease.id);
    }
}

impl Book {
    pub fn new(is_software: bool, certificate: Option<Fingerprint>) -> Result<Arc<Book>, String> {
        let nonce = fresh_nonce().map_err(|e| format!("reading random bytes failed: {e}"))?;
        let instance = nonce[..16].try_into().expect("sixteen of 32 bytes");
        Ok(Arc::new(Book { instance, is_software, certificate, pages: Mutex::default(), changed: Condvar::new() }))
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().expect("nothing panics under this lock")
    }

    /// What there is, as a worker has found it. The first word counts: GPUs do not come and go under a driver.
    pub fn has_gpus(&self, gpus: Vec<Gpu>) {
        self.pages().gpus.get_or_insert(gpus);
    }

    /// Answers whether that is news: the agent says it again, for the clock.
    pub fn belong(&self, node: String, key: LeaseKey, controller_unix_ms: u64) -> bool {
        let mut pages = self.pages();
        let is_known = |of: &Belongs| of.node == node && of.key == key;
        let is_news = !pages.belongs.as_ref().is_some_and(is_known);
        pages.belongs = Some(Belongs { node, key, clock: (controller_unix_ms, Instant::now()) });
        is_news
    }

    /// There is a reserve. What was lent of it by an earlier key and has no session yet gets none.
    pub fn keep(&self, node: String, key: LeaseKey, unix_ms: u64) {
        self.pages().keeps = Some(Belongs { node, key, clock: (unix_ms, Instant::now()) });
    }

    /// These are over. Whoever comes with one of them comes too late.
    pub fn taken_back(&self, ids: &[LeaseId]) {
        let mut pages = self.pages();
        let Some(belongs) = &pages.belongs else { return };
        let now_unix_ms = belongs.now_unix_ms();
        // Also where nobody comes with a lease: who asks and goes again and again has many taken back.
        pages.taken_back.retain(|_, until| *until > now_unix_ms);
        pages.taken_back.extend(ids.iter().map(|id| (*id, now_unix_ms + OFFER_MS_MAX)));
    }

    /// Who this is, for the agent.
    pub fn who(&self) -> Answer {
        match &self.pages().gpus {
            Some(gpus) => Answer::Server {
                instance: self.instance,
                is_software: self.is_software,
                certificate: self.certificate.map(|fingerprint| fingerprint.0),
                gpus: gpus.clone(),
            },
            None => Answer::No { reason: "no worker is warm yet, and before that nobody knows the GPUs".into() },
        }
    }

    /// Takes the lease that a client has shown, or says why not.
    pub fn take(self: &Arc<Self>, shown: &Shown<'_>) -> Result<Held, Refusal> {
        let refuse = |text: String| Err(Refusal::new(Reason::NotPermitted, text));
        if shown.lease.is_empty() {
            return refuse(NO_LEASE.to_owned());
        }
        let mut guard = self.pages();
        let pages = &mut *guard;
        let Checked { lease, token, is_of_reserve, now_unix_ms } = pages.check(shown)?;
        let used = if is_of_reserve { &mut pages.used_of_reserve } else { &mut pages.used };
        used.retain(|_, until| *until > now_unix_ms);
        if !is_of_reserve {
            pages.taken_back.retain(|_, until| *until > now_unix_ms);
        }
        if pages.taken_back.contains_key(&lease.id) {
            // Who comes so late was believed to have gone, and may ask the controller for another one.
            let text = format!("the lease {} was taken back by the pool's controller", lease.id);
            return Err(Refusal::new(Reason::Lease, text));
        }
        if used.insert(lease.id, lease.begins_before_unix_ms).is_some() {
            return refuse(format!("the lease {} was used before, and is for one session", lease.id));
        }
        if is_of_reserve {
            pages.live_of_reserve.insert(lease.id, lease.clone());
        }
        pages.live.insert(lease.id);
        pages.version += 1;
        self.changed.notify_all();
        drop(guard);
        Ok(Held { lease, token, is_of_reserve, book: self.clone() })
    }

    /// The lease of who wants to see its vGPUs and begins nothing with it. It may have run out, or have a session.
    pub fn look_with(&self, shown: &Shown<'_>) -> Result<Lease, Refusal> {
        if shown.lease.is_empty() {
            return Err(Refusal::new(Reason::NotPermitted, NO_LEASE));
        }
        let found = self.pages().by_either(|by, _| by.key.recognize(shown, &by.node));
        found.map(|(lease, _)| lease)
    }

    fn is_over(&self, id: LeaseId) {
        let mut pages = self.pages();
        pages.version += 1;
        let version = pages.version;
        pages.live.remove(&id);
        pages.live_of_reserve.remove(&id);
        pages.meters.remove(&id);
        pages.ended.insert(id, version);
        if pages.ended.len() > ENDED_MAX {
            let oldest = pages.ended.iter().min_by_key(|(_, version)| **version).map(|(id, _)| *id);
            if let Some(id) = oldest {
                pages.ended.remove(&id);
            }
        }
        self.changed.notify_all();
    }

    /// What the agent has heard of need not be told again. Answers when there is more, or after this time.
    pub fn look(&self, heard: u64, patience: Duration) -> Answer {
        let mut pages = self.pages();
        pages.ended.retain(|_, version| *version > heard);
        let (pages, _) = self
            .changed
            .wait_timeout_while(pages, patience, |pages| pages.version <= heard)
            .expect("nothing panics under this lock");
        Answer::State {
            version: pages.version,
            live: pages.live.iter().copied().collect(),
            ended: pages.ended.keys().copied().collect(),
            used: pages.meters.iter().map(|(lease, meter)| used(*lease, meter)).collect(),
            reserve: pages.live_of_reserve.values().cloned().collect(),
        }
    }
}

fn used(lease: LeaseId, meter: &Meter) -> Used {
    Used { lease, vgpu_bytes: meter.read().iter().map(|reading| reading.used).collect() }
}

#[cfg(test)]
mod tests {
    use orion_transport::lease::MasterKey;
    use orion_transport::proof::Said;
    use orion_wire::lease::{Vgpu, gpu_name};

    use super::*;

    /// The controller's clock, which no test outlives.
    const NOW: u64 = 1_000_000;
    const LIFE: u64 = 900_000;

    fn key() -> LeaseKey {
        MasterKey::new([1; 32]).key_of("a", &[2; 16])
    }

    fn lease(number: u8) -> Lease {
        let vgpus = vec![Vgpu { gpu: gpu_name(&[1; 16]), memory_bytes: 1 << 30, ratio: 100 }];
        Lease {
            id: LeaseId([number; 16]),
            node: "a".into(),
            tenant: String::new(),
            begins_before_unix_ms: NOW + LIFE,
            vgpus,
        }
    }

    fn try_with(book: &Arc<Book>, lease: &Lease) -> Result<Held, String> {
        show(book, lease).map_err(|refusal| refusal.text)
    }

    fn show(book: &Arc<Book>, lease: &Lease) -> Result<Held, Refusal> {
        let (signed, said) = (key().sign(lease), Said { first: b"hello".to_vec(), nonce: [7; 32], certificate: None });
        let proof = Some(signed.token().client_proof(&said, &signed.body));
        let shown = Shown { lease: &signed.body, said: &said, request: &signed.body, proof };
        book.take(&shown)
    }

    fn state(book: &Book, heard: u64) -> (u64, Vec<LeaseId>, Vec<LeaseId>) {
        match book.look(heard, Duration::ZERO) {
            Answer::State { version, live, ended, .. } => (version, live, ended),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_lease_is_for_one_session_and_its_end_is_told_until_it_is_heard_of() {
        let book = Book::new(true, None).expect("random bytes");
        let refused = try_with(&book, &lease(1)).err().expect("nobody has said where this belongs");
        assert!(refused.contains("orion-agent"), "{refused}");
        book.belong("a".into(), key(), NOW);
        let held = try_with(&book, &lease(1)).expect("a good lease");
        let refused = try_with(&book, &lease(1)).err().expect("it has a session");
        assert!(refused.contains("used before"), "{refused}");
        let (begun, live, ended) = state(&book, 0);
        assert_eq!((live, ended), (vec![lease(1).id], vec![]));
        drop(held);
        let refused = try_with(&book, &lease(1)).err().expect("it had a session");
        assert!(refused.contains("used before"), "{refused}");
        for _ in 0..2 {
            let (version, live, ended) = state(&book, begun);
            assert_eq!((version, live, ended), (begun + 1, vec![], vec![lease(1).id]));
        }
        assert_eq!(state(&book, begun + 1), (begun + 1, vec![], vec![]));
        // What is forgotten has run out.
        book.belong("a".into(), key(), NOW + LIFE);
        let other = Lease { begins_before_unix_ms: NOW + 2 * LIFE, ..lease(2) };
        let _held = try_with(&book, &other).expect("a good lease");
        assert_eq!(book.pages().used.len(), 1);
        assert!(try_with(&book, &lease(1)).err().expect("late").contains("ran out"));
    }

    #[test]
    fn a_lease_that_was_taken_back_lets_nobody_in() {
        let book = Book::new(true, None).expect("random bytes");
        book.belong("a".into(), key(), NOW);
        book.taken_back(&[lease(1).id]);
        let refused = show(&book, &lease(1)).err().expect("it is over");
        assert!(refused.text.contains("was taken back"), "{}", refused.text);
        // He asks the controller again.
        assert_eq!(refused.reason, Reason::Lease);
        drop(try_with(&book, &lease(2)).expect("another one"));
        book.belong("a".into(), key(), NOW + LIFE);
        assert!(try_with(&book, &lease(1)).err().expect("late").contains("ran out"));
    }

    #[test]
    fn what_is_kept_of_leases_that_are_over_has_an_end() {
        let book = Book::new(true, None).expect("random bytes");
        book.belong("a".into(), key(), NOW);
        let many = |from: u32| (from..from + 1000).map(|n| LeaseId((u128::from(n)).to_be_bytes())).collect::<Vec<_>>();
        book.taken_back(&many(0));
        // Nobody comes with a lease meanwhile, and the agent hears of nothing that ends.
        book.belong("a".into(), key(), NOW + OFFER_MS_MAX + 1000);
        book.taken_back(&many(1000));
        assert_eq!(book.pages().taken_back.len(), 1000);
        for id in (0..5).flat_map(|n| many(n * 1000)) {
            book.is_over(id);
        }
        let (_, _, ended) = state(&book, 0);
        assert_eq!((ended.len(), ended[0]), (ENDED_MAX, many(5000 - ENDED_MAX as u32)[0]));
    }

    #[test]
    fn a_lease_of_the_reserve_is_told_apart_and_a_new_key_makes_old_ones_worthless() {
        let book = Book::new(true, None).expect("random bytes");
        // Nobody knows a controller yet.
        book.keep("a".into(), key(), NOW);
        let held = try_with(&book, &lease(1)).expect("a good lease");
        assert!(held.is_of_reserve);
        assert!(try_with(&book, &lease(1)).err().expect("it has a session").contains("used before"));
        let told = |book: &Book| match book.look(0, Duration::ZERO) {
            Answer::State { live, reserve, .. } => (live, reserve.iter().map(|lease| lease.id).collect::<Vec<_>>()),
            other => panic!("{other:?}"),
        };
        assert_eq!(told(&book), (vec![lease(1).id], vec![lease(1).id]));
        // A controller is there, and gives leases too; the agent was started again.
        book.belong("a".into(), key(), NOW);
        book.keep("a".into(), MasterKey::new([9; 32]).key_of("a", &[2; 16]), NOW);
        assert!(!try_with(&book, &lease(2)).expect("the controller's").is_of_reserve);
        book.belong("a".into(), MasterKey::new([8; 32]).key_of("a", &[2; 16]), NOW);
        assert!(try_with(&book, &lease(3)).err().expect("of no key that counts").contains("made by somebody else"));
        assert_eq!(told(&book).1, vec![lease(1).id]);
        drop(held);
        assert_eq!(told(&book), (vec![], vec![]));
    }

    #[test]
    fn who_waits_for_a_change_hears_of_it() {
        let book = Book::new(false, None).expect("random bytes");
        assert!(matches!(book.who(), Answer::No { .. }));
        book.has_gpus(Vec::new());
        assert!(matches!(book.who(), Answer::Server { is_software: false, .. }));
        book.belong("a".into(), key(), NOW);
        let waiting = std::thread::spawn({
            let book = book.clone();
            move || book.look(0, Duration::from_secs(60))
        });
        let _held = try_with(&book, &lease(3)).expect("a good lease");
        let Answer::State { live, .. } = waiting.join().expect("no panic") else { panic!() };
        assert_eq!(live, [lease(3).id]);
    }
}
