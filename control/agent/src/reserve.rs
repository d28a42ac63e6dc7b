//! The node's own reserve: vGPUs that no controller ever lends, and that the agent lends while it reaches none. It is a
//! pool of one node, so what holds for a controller's pool (`orion-pool`) holds for it.

use std::sync::{Mutex, MutexGuard};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use orion_pool::pool::{Answer, Pool, Settings};
use orion_pool::{
    Allocation, AllocationId, Ask, Lease as Standing, Lender, NodeReport, Place, Standing as NodeStanding,
};
use orion_proto as pb;
use orion_tls::Fingerprint;
use orion_transport::lease::LeaseKey;
use orion_transport::proof::fresh_nonce;
use orion_wire::lease::{Lease, LeaseId, Vgpu};
use orion_wire::reserve::{self, Wanted};
use tracing::{info, warn};

use crate::oriond::State;

/// For so long a session can begin with a lease.
const LEASE_MS: u64 = 10_000;
/// And for so long the vGPUs stand for which none has begun, as far as the agent has heard. It hears late where a
/// controller that does not answer is waited for.
const OFFER_MS: u64 = 120_000;
/// What was lent ends when oriond says so, and by no time.
const NEVER_MS: u64 = u64::MAX / 4;

/// Shared by the agent's loop and the threads that answer programs.
pub struct Reserve {
    books: Mutex<Books>,
    clock: Instant,
}

struct Books {
    /// As long as there is an oriond.
    here: Option<Here>,
    /// Why nothing is lent: a controller is there, or nobody has looked yet.
    why_not: Option<String>,
}

/// What there is to lend.
pub struct Here {
    pool: Pool,
    /// Of the oriond, which programs know it by.
    certificate: Option<[u8; 32]>,
    key: LeaseKey,
}

/// What there is to lend once oriond knows its key.
pub struct Kept {
    pub here: Here,
    /// Sessions of an earlier agent's that have no place in the reserve as it is now.
    pub over: Vec<LeaseId>,
}

impl Reserve {
    pub fn new() -> Reserve {
        let why_not = Some("the agent has just been started, and looks for a controller first".to_owned());
        Reserve { books: Mutex::new(Books { here: None, why_not }), clock: Instant::now() }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().expect("nothing panics under this lock")
    }

    fn now(&self) -> u64 {
        self.clock.elapsed().as_millis() as u64
    }

    /// The reserve of an oriond, in which these sessions run that an earlier agent has lent.
    pub fn of(&self, report: &pb::RegisterRequest, running: &[Lease]) -> Result<Kept, String> {
        let report = node_report(report);
        let certificate = match report.certificate.as_str() {
            "" => None,
            text => Some(text.parse::<Fingerprint>()?.0),
        };
        let now = self.now();
        let restore = |lent: Vec<Allocation>| {
            let settings = Settings {
                offer_ms: OFFER_MS,
                lease_ms: NEVER_MS,
                node_ms: NEVER_MS,
                queue_max: 0,
                lender: Lender::Node,
                ..Settings::default()
            };
            Pool::restore(settings, [(report.clone(), NodeStanding::Up)], lent, [], now)
        };
        let (mut lent, mut over) = (Vec::new(), Vec::new());
        for lease in running {
            // The reserve may be another one than it was then.
            let with_it: Option<Vec<Allocation>> =
                again(&report, &lent, lease).map(|one| lent.iter().cloned().chain([one]).collect());
            match with_it.filter(|all| restore(all.clone()).is_ok()) {
                Some(all) => lent = all,
                None => over.push(lease.id),
            }
        }
        for id in &over {
            warn!("allocation {id} is of a reserve that this node does not have any more, ending its session");
        }
        let key = fresh_nonce().map_err(|e| format!("reading random bytes failed: {e}"))?;
        let pool = restore(lent)?;
        let running = pool.allocations().count();
        info!(vgpus_of_each_gpu = report.kept, running, "this node has a reserve of its own");
        Ok(Kept { here: Here { pool, certificate, key: LeaseKey::from_bytes(key) }, over })
    }

    /// From now on it is lent.
    pub fn has(&self, here: Here) {
        self.books().here = Some(here);
    }

    pub fn has_nothing(&self) {
        self.books().here = None;
    }

    /// Whether a controller is reached from here.
    pub fn reaches(&self, controller: Option<&str>) {
        let mut books = self.books();
        let why_not =
            controller.map(|controller| format!("its agent reaches the controller at {controller}; ask that"));
        if books.why_not.is_some() && why_not.is_none() {
            info!("no controller is reached; programs on this node are lent its own reserve");
        }
        books.why_not = why_not;
    }

    /// What oriond says of sessions. Answers those that have to end.
    pub fn look(&self, state: &State) -> Vec<LeaseId> {
        let (mut books, now) = (self.books(), self.now());
        let Some(here) = &mut books.here else { return Vec::new() };
        let name = here.name();
        let live: Vec<AllocationId> = state.reserve.iter().map(|lease| number(lease.id)).collect();
        let ended: Vec<AllocationId> = state.ended.iter().copied().map(number).collect();
        for id in ended.iter().filter(|id| here.pool.allocation(**id).is_some()) {
            info!("allocation {id} is back in this node's own reserve");
        }
        let over = here.pool.heartbeat(now, &name, &live, &ended).expect("it is registered");
        here.pool.tick(now);
        let (_, _) = (here.pool.take_changes(), here.pool.take_events());
        over.into_iter().map(lease_id).collect()
    }

    /// For the controller, when it is there again.
    pub fn lent(&self) -> Vec<pb::Allocation> {
        let books = self.books();
        let Some(here) = &books.here else { return Vec::new() };
        let one = |a: &Allocation| {
            let place = |p: &Place| pb::Place {
                node: p.node.clone(),
                address: here.address_for(&a.ask),
                gpu_uuid: p.gpu.clone(),
                gpu: p.number,
                vgpu: p.slot,
                memory_bytes: p.memory,
                ratio: p.ratio,
                used_bytes: None,
            };
            pb::Allocation {
                allocation: a.id.to_string(),
                vgpus: a.places.iter().map(place).collect(),
                confirmed: a.lease == Standing::Confirmed,
                stands_ms: 0,
                tenant: a.ask.tenant.clone(),
                group: a.ask.group.clone(),
                client: a.ask.client.clone(),
                of_reserve: true,
            }
        };
        here.pool.allocations().map(one).collect()
    }

    /// A program on this node asks. The error says why it gets nothing.
    pub fn lend(&self, wanted: Wanted) -> Result<reserve::Answer, String> {
        let (mut books, now) = (self.books(), self.now());
        let here = books.lends()?;
        let ask = asked(wanted)?;
        let nonce = fresh_nonce().map_err(|e| format!("reading random bytes failed: {e}"))?;
        let id = LeaseId(nonce[..16].try_into().expect("sixteen of 32 bytes"));
        let answer = here.pool.allocate(now, number(id), ask);
        let (_, _) = (here.pool.take_changes(), here.pool.take_events());
        let granted = match answer.map_err(|refused| refused.text().to_owned())? {
            Answer::Granted(granted) => granted,
            Answer::Waits(_) => unreachable!("nobody waits for a reserve"),
        };
        let tenant = &granted.ask.tenant;
        let (places, client) = (places(&granted), &granted.ask.client);
        info!(tenant, client, "allocation {id} is lent of this node's own reserve: {places}");
        Ok(here.answer(id, &granted, now_unix_ms() + LEASE_MS))
    }

    /// What a program would be lent. No session begins with the lease, for it ran out long ago.
    pub fn would_lend(&self, wanted: Wanted) -> Result<reserve::Answer, String> {
        let mut books = self.books();
        let here = books.lends()?;
        let ask = asked(wanted)?;
        let places = here.pool.would_give(&ask).map_err(|refused| refused.text().to_owned())?;
        let nobody = AllocationId(0);
        let would = Allocation { id: nobody, ask, places, lease: Standing::Offered, until: 0 };
        Ok(here.answer(lease_id(nobody), &would, 0))
    }

    /// Its program has come for it.
    pub fn has_begun(&self, id: LeaseId) {
        let now = self.now();
        if let Some(here) = &mut self.books().here {
            // It may have ended since.
            let _ = here.pool.confirm(now, number(id));
        }
    }

    /// Its program has gone before it came for it.
    pub fn forsake(&self, id: LeaseId) {
        let now = self.now();
        if let Some(here) = &mut self.books().here
            && here.pool.forsake(now, number(id))
        {
            info!("allocation {id} is back in this node's own reserve: its program has gone before its session began");
        }
    }
}

impl Books {
    /// What there is to lend, if it is lent now.
    fn lends(&mut self) -> Result<&mut Here, String> {
        match (&self.why_not, &mut self.here) {
            (Some(why_not), _) => Err(why_not.clone()),
            (None, None) => Err("there is no oriond at the moment".to_owned()),
            (None, Some(here)) => Ok(here),
        }
    }
}

fn asked(wanted: Wanted) -> Result<Ask, String> {
    if let Some(ratio @ 1..100) = wanted.ratio {
        return Err(format!("ORION_RATIO is {ratio}, and a reserve is lent by the node's split alone; leave it out"));
    }
    let memory = wanted.memory_mib.map(|mib| mib.saturating_mul(orion_pool::MIB));
    let Wanted { vgpus, ratio, tenant, group, client, carrier, .. } = wanted;
    Ok(Ask { vgpus, memory, ratio, tenant, group, client, carrier, ..Ask::default() })
}

/// GPU and vGPU of each.
fn places(granted: &Allocation) -> String {
    granted.places.iter().map(|p| format!("{}/{}", p.number, p.slot)).collect::<Vec<_>>().join(",")
}

impl Here {
    pub fn key(&self) -> &[u8; 32] {
        self.key.bytes()
    }

    fn report(&self) -> &NodeReport {
        &self.pool.nodes().next().expect("one").report
    }

    fn name(&self) -> String {
        self.report().name.clone()
    }

    /// By the carrier that was asked for: a node without it lends nothing. What an earlier agent has lent names none.
    fn address_for(&self, ask: &Ask) -> String {
        let report = self.report();
        report.address_by(&ask.carrier).unwrap_or(&report.address).to_owned()
    }

    fn answer(&self, id: LeaseId, granted: &Allocation, begins_before_unix_ms: u64) -> reserve::Answer {
        let vgpu = |p: &Place| Vgpu { gpu: p.gpu.clone(), memory_bytes: p.memory, ratio: p.ratio };
        let lease = Lease {
            id,
            node: self.name(),
            tenant: granted.ask.tenant.clone(),
            begins_before_unix_ms,
            vgpus: granted.places.iter().map(vgpu).collect(),
        };
        let signed = self.key.sign(&lease);
        reserve::Answer::Lent {
            allocation: id,
            node: lease.node,
            address: self.address_for(&granted.ask),
            places: places(granted),
            lease: signed.body,
            signature: signed.signature,
            certificate: self.certificate,
        }
    }
}

/// What an earlier agent has lent, as far as its lease says it: which vGPUs of the GPU those were nobody knows.
fn again(report: &NodeReport, lent: &[Allocation], lease: &Lease) -> Option<Allocation> {
    let mut places: Vec<Place> = Vec::new();
    for vgpu in &lease.vgpus {
        let number = report.gpus.iter().position(|gpu| gpu.uuid == vgpu.gpu)?;
        let taken = lent.iter().flat_map(|a| &a.places).chain(&places).filter(|p| p.gpu == vgpu.gpu).count() as u32;
        places.push(Place {
            node: report.name.clone(),
            gpu: vgpu.gpu.clone(),
            number: number as u32,
            slot: report.split - report.kept + taken,
            memory: vgpu.memory_bytes,
            reserve: report.gpus[number].reserve,
            ratio: vgpu.ratio,
        });
    }
    let client = "(lent before orion-agent was started)".to_owned();
    let ask = Ask { vgpus: places.len() as u32, tenant: lease.tenant.clone(), client, ..Ask::default() };
    Some(Allocation { id: number(lease.id), ask, places, lease: Standing::Confirmed, until: 0 })
}

fn node_report(request: &pb::RegisterRequest) -> NodeReport {
    let gpu = |gpu: &pb::Gpu| orion_pool::Gpu {
        uuid: gpu.uuid.clone(),
        name: gpu.name.clone(),
        memory: gpu.memory_bytes,
        reserve: gpu.reserve_bytes,
    };
    NodeReport {
        name: request.node.clone(),
        address: request.address.clone(),
        further: request.further.clone(),
        gpus: request.gpus.iter().map(gpu).collect(),
        split: request.split,
        oriond: request.oriond.clone(),
        kept: request.reserve,
        certificate: request.certificate.clone(),
    }
}

fn number(id: LeaseId) -> AllocationId {
    AllocationId(u128::from_be_bytes(id.0))
}

fn lease_id(id: AllocationId) -> LeaseId {
    LeaseId(id.0.to_be_bytes())
}

pub fn now_unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
