//! The pool in an etcd that several controllers share.
//!
//! Who leads has made the key [`LEADER`], which hangs on a lease of etcd's that he keeps alive. Every transaction of
//! his asks whether the key is still the one that he has made, by the revision at which that was. So nothing is stored
//! and nobody is answered by a controller that only thinks that it leads, however long it slept and whatever its clock
//! says.
//!
//! Every transaction that stores something also writes [`TURN`], and asks that it is as the one before has left it. So
//! one that had no answer can be sent again: it is carried out once. And one that is given up cannot be carried out
//! later, after the pool was read: reading writes the key too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use orion_etcd::proto::{KeyValue, RangeRequest, RequestOp, TxnRequest, TxnResponse};
use orion_etcd::{Etcd, txn};
use orion_pool::pool::Change;
use orion_tls::trust::Trust;
use orion_transport::lease::MasterKey;
use tokio::runtime::Runtime;
use tracing::warn;

use super::{Campaign, FORM_NUMBER, Failed, Kept, Store, records};
use crate::key::{self, KeyFile};

const LEADER: &str = "orion/leader";
const TURN: &str = "orion/turn";
const FORM: &str = "orion/form";
/// What tells the controllers' secret from others, and does not tell it.
const FINGERPRINT: &str = "orion/lease-key-fingerprint";

/// After how long without a word from its leader a pool has another one. etcd's own elections take a second.
const LEAD: Duration = Duration::from_secs(5);
const KEEP_ALIVE: Duration = Duration::from_millis(1500);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(50);
/// How long an answer is tried for. Whoever asks is told after that.
const PATIENCE: Duration = Duration::from_secs(5);
/// Records of one answer, when all are read.
const PAGE: i64 = 1000;
/// Between two times that the leader has etcd forget what was before.
const COMPACTION: Duration = Duration::from_secs(300);

pub struct Shared {
    runtime: Runtime,
    etcd: Etcd,
    /// Where this controller listens, as others are told.
    address: String,
    key: KeyFile,
    lease: Option<Lease>,
    term: Option<Term>,
}

/// etcd's, kept alive by a task.
struct Lease {
    id: i64,
    is_over: Arc<AtomicBool>,
    keeper: tokio::task::JoinHandle<()>,
}

/// The time in which this controller leads.
struct Term {
    /// At which the key was made.
    revision: i64,
    /// At which [`TURN`] was written last.
    written: i64,
    /// Transactions so far, to tell one from another.
    count: u64,
    compacted: Instant,
}

impl Shared {
    /// Reaches nobody yet.
    pub fn open(urls: &str, trust: &Trust, address: String, key: KeyFile) -> Result<Shared, String> {
        // One thread beside the desk's: it keeps the lease alive while the desk waits.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("etcd")
            .enable_all()
            .build()
            .map_err(|e| format!("starting the runtime failed: {e}"))?;
        let etcd = runtime.block_on(async { Etcd::new(urls, trust) }).map_err(|why| format!("--kv {why}"))?;
        Ok(Shared { runtime, etcd, address, key, lease: None, term: None })
    }

    /// The number of a lease that is alive, as far as is known.
    fn lease(&mut self) -> Result<i64, orion_etcd::Failed> {
        if let Some(lease) = self.lease.take_if(|lease| lease.is_over.load(Ordering::Relaxed)) {
            lease.keeper.abort();
        }
        if let Some(lease) = &self.lease {
            return Ok(lease.id);
        }
        let id = self.runtime.block_on(self.etcd.grant(LEAD))?;
        let is_over = Arc::new(AtomicBool::new(false));
        let keeper = self.runtime.spawn(keep(self.etcd.clone(), id, is_over.clone()));
        self.lease = Some(Lease { id, is_over, keeper });
        Ok(id)
    }

    /// Asks again and again, as nothing is done twice. The error is the last one.
    fn ask(&self, request: &TxnRequest) -> Result<TxnResponse, orion_etcd::Failed> {
        let began = Instant::now();
        loop {
            match self.runtime.block_on(self.etcd.txn(request.clone())) {
                Err(failed) if !failed.is_final && began.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
                answer => return answer,
            }
        }
    }

    fn term(&mut self) -> Result<&mut Term, Failed> {
        self.term.as_mut().ok_or(Failed::Deposed(None))
    }

    /// What is over when another one has made the key, or nobody has.
    fn deposed(&mut self, leader: Option<&KeyValue>) -> Failed {
        self.term = None;
        Failed::Deposed(leader.map(|kv| String::from_utf8_lossy(&kv.value).into_owned()))
    }

    /// One transaction of a leader: `operations`, if this controller leads and the last one was his.
    fn store(&mut self, operations: Vec<RequestOp>) -> Result<(), Failed> {
        let term = self.term()?;
        term.count += 1;
        let (name, revision) = (format!("{}/{}", term.revision, term.count), term.revision);
        let request = TxnRequest {
            compare: vec![txn::created_at(LEADER, revision), txn::written_at(TURN, term.written)],
            success: [operations, vec![txn::put(TURN, name.as_str(), 0)]].concat(),
            failure: vec![txn::get(LEADER), txn::get(TURN)],
        };
        let answer = self.ask(&request).map_err(|failed| Failed::Store(format!("storing failed: {failed}")))?;
        let written = match (answer.succeeded, txn::found(&answer, 0), txn::found(&answer, 1)) {
            (true, _, _) => txn::revision(&answer),
            (false, Some(leader), Some(turn)) if leader.create_revision == revision => {
                // An answer was lost, and this is the second one.
                if turn.value != name.as_bytes() {
                    let text = "what etcd has is not what this controller has stored last; it is read again";
                    return Err(Failed::Store(text.to_owned()));
                }
                turn.mod_revision
            }
            (false, leader, _) => return Err(self.deposed(leader)),
        };
        self.term()?.written = written;
        Ok(())
    }

    /// Whether this controller leads, asked of a majority.
    fn affirm(&mut self) -> Result<(), Failed> {
        let revision = self.term()?.revision;
        let request = TxnRequest {
            compare: vec![txn::created_at(LEADER, revision)],
            success: Vec::new(),
            failure: vec![txn::get(LEADER)],
        };
        let answer = self.ask(&request).map_err(|failed| Failed::Store(failed.text))?;
        match answer.succeeded {
            true => Ok(()),
            false => Err(self.deposed(txn::found(&answer, 0))),
        }
    }

    /// All that is there at this revision.
    fn kept(&self, revision: i64) -> Result<Kept, String> {
        let mut kept = Kept::default();
        let end = [&records::ROOT.as_bytes()[..records::ROOT.len() - 1], &[b'/' + 1]].concat();
        let mut key = records::ROOT.as_bytes().to_vec();
        loop {
            let range = RangeRequest { key: key.clone(), range_end: end.clone(), limit: PAGE, revision };
            let page = self.runtime.block_on(self.etcd.range(range)).map_err(|failed| failed.text)?;
            for kv in &page.kvs {
                let name = String::from_utf8_lossy(&kv.key);
                kept.take(&kv.key, &kv.value).map_err(|e| format!("{name} in etcd is damaged: {e}"))?;
            }
            match page.kvs.last() {
                // The next possible name.
                Some(last) if page.more => key = [last.key.as_slice(), &[0]].concat(),
                _ => return Ok(kept),
            }
        }
    }

    /// Forgets what was before the last time, so that etcd does not become full.
    fn compact(&mut self) {
        let Ok(term) = self.term() else { return };
        if term.compacted.elapsed() < COMPACTION {
            return;
        }
        term.compacted = Instant::now();
        let (etcd, revision) = (self.etcd.clone(), self.term.as_ref().map_or(0, |term| term.written));
        self.runtime.spawn(async move {
            // Whoever reads the pool has time for it.
            tokio::time::sleep(COMPACTION / 2).await;
            if let Err(failed) = etcd.compact(revision).await {
                warn!(%failed, revision, "compacting failed; it is tried again");
            }
        });
    }

    /// The secret has to be the other controllers', and the form of what is stored this controller's.
    fn compare(&self) -> Result<MasterKey, Failed> {
        let store = |failed: orion_etcd::Failed| Failed::Store(failed.text);
        let get = TxnRequest { success: vec![txn::get(FINGERPRINT), txn::get(FORM)], ..Default::default() };
        let text = |kv: Option<&KeyValue>| kv.map(|kv| String::from_utf8_lossy(&kv.value).into_owned());
        let found = self.ask(&get).map_err(store)?;
        let form = text(txn::found(&found, 1)).unwrap_or_else(|| FORM_NUMBER.to_string());
        if form != FORM_NUMBER.to_string() {
            let text = format!("the pool in etcd has form {form}, and this controller reads form {FORM_NUMBER}");
            return Err(Failed::ForGood(text));
        }
        let fingerprint = text(txn::found(&found, 0));
        let master = self.key.shared(fingerprint.as_deref()).map_err(Failed::ForGood)?;
        if fingerprint.is_none() {
            let ours = key::fingerprint(&master);
            let first = TxnRequest {
                compare: vec![txn::created_at(FINGERPRINT, 0)],
                success: vec![txn::put(FINGERPRINT, ours.as_str(), 0), txn::put(FORM, FORM_NUMBER.to_string(), 0)],
                failure: vec![txn::get(FINGERPRINT)],
            };
            let answer = self.ask(&first).map_err(store)?;
            if let Some(theirs) = text(txn::found(&answer, 0)).filter(|_| !answer.succeeded) {
                return self.key.shared(Some(&theirs)).map_err(Failed::ForGood);
            }
        }
        Ok(master)
    }
}

impl Store for Shared {
    fn campaign(&mut self) -> Result<Campaign, String> {
        // Asking alone costs etcd no write.
        let range = RangeRequest { key: LEADER.into(), ..Default::default() };
        let found = self.runtime.block_on(self.etcd.range(range)).map_err(|failed| failed.text)?;
        let lease = self.lease().map_err(|failed| failed.text)?;
        if let Some(leader) = found.kvs.first().filter(|leader| leader.lease != lease) {
            return Ok(Campaign::Another(String::from_utf8_lossy(&leader.value).into_owned()));
        }
        let request = TxnRequest {
            compare: vec![txn::created_at(LEADER, 0)],
            success: vec![txn::put(LEADER, self.address.as_str(), lease), txn::get(LEADER)],
            failure: vec![txn::get(LEADER)],
        };
        let answer = match self.runtime.block_on(self.etcd.txn(request)) {
            Ok(answer) => answer,
            Err(failed) => {
                // It is over, if the answer is that it cannot be used.
                if let Some(lease) = self.lease.as_ref().filter(|_| failed.is_final) {
                    lease.is_over.store(true, Ordering::Relaxed);
                }
                return Err(failed.text);
            }
        };
        let leader = txn::found(&answer, usize::from(answer.succeeded)).ok_or("etcd does not say who leads")?;
        // Its own, also where the answer to the try that made it was lost.
        if leader.lease != lease {
            return Ok(Campaign::Another(String::from_utf8_lossy(&leader.value).into_owned()));
        }
        let (revision, compacted) = (leader.create_revision, Instant::now());
        self.term = Some(Term { revision, written: 0, count: 0, compacted });
        Ok(Campaign::Leads)
    }

    fn read(&mut self) -> Result<Kept, Failed> {
        let term = self.term()?;
        term.count += 1;
        let (count, revision) = (term.count, term.revision);
        let request = TxnRequest {
            compare: vec![txn::created_at(LEADER, revision)],
            success: vec![txn::put(TURN, format!("read/{revision}/{count}"), 0)],
            failure: vec![txn::get(LEADER)],
        };
        let answer = self.ask(&request).map_err(|failed| Failed::Store(failed.text))?;
        if !answer.succeeded {
            return Err(self.deposed(txn::found(&answer, 0)));
        }
        let written = txn::revision(&answer);
        let kept = self.kept(written).map_err(Failed::Store)?;
        self.term()?.written = written;
        Ok(kept)
    }

    fn write(&mut self, changes: &[Change]) -> Result<(), Failed> {
        if changes.is_empty() {
            return self.affirm();
        }
        let transactions = records::transactions(changes).map_err(|e| Failed::Store(e.to_string()))?;
        transactions.into_iter().try_for_each(|operations| self.store(operations))?;
        self.compact();
        Ok(())
    }

    fn master_key(&mut self) -> Result<MasterKey, Failed> {
        self.compare()
    }

    fn is_deposed(&self) -> bool {
        self.lease.as_ref().is_none_or(|lease| lease.is_over.load(Ordering::Relaxed))
    }

    fn resign(&mut self) {
        self.term = None;
        if let Some(lease) = self.lease.take() {
            lease.keeper.abort();
            if let Err(failed) = self.runtime.block_on(self.etcd.revoke(lease.id)) {
                warn!(%failed, "the other controllers were not told; one of them leads in {} s", LEAD.as_secs());
            }
        }
    }
}

/// Keeps a lease alive as long as it is, whoever leads.
async fn keep(etcd: Etcd, lease: i64, is_over: Arc<AtomicBool>) {
    let mut pace = tokio::time::interval(KEEP_ALIVE);
    pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        pace.tick().await;
        // Who does not answer has not said that it is over.
        match etcd.keep_alive(lease).await {
            Ok(true) => {}
            Ok(false) => return is_over.store(true, Ordering::Relaxed),
            Err(_) => pace.reset_after(PAUSE),
        }
    }
}
