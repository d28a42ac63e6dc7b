//! The service, as `orion.proto` describes it: from requests to the pool and back.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::ConnectInfo;
use orion_pool::pool::{Answer, Event, Pool, Refused, Why};
use orion_pool::{Allocation, AllocationId, Ask, Gpus, Lease, MIB, NodeReport, Place, Standing, Time};
use orion_proto as pb;
use orion_tls::identity::{self, Identity};
use orion_wire::agent::ENDED_MAX;
use prost::Message;
use tokio_stream::{Stream, StreamExt, wrappers::BroadcastStream, wrappers::errors::BroadcastStreamRecvError};
use tonic::metadata::MetadataValue;
use tonic::{Request, Response, Status};

use crate::config::Keys;
use crate::desk::{Counter, Desk, News, Refusal, Waited};
use crate::doors::{Caller, Role, Security};
use crate::last::LastMetrics;
use crate::leases::{self, Signed};
use crate::load::Weight;

/// Of one request, so that a mistake does not fill the memory.
const NAMES_MAX: usize = ENDED_MAX;
const REPORT_BYTES_MAX: usize = 64 << 10;
/// Of all reports in one answer, with room for what else is in it.
const SESSIONS_BYTES_MAX: usize = pb::ANSWER_BYTES_MAX / 2;
/// How soon an agent registers with a controller that has begun to lead.
const REGISTERS_WITHIN: Duration = Duration::from_secs(4);
/// Longer than anybody waits; a client that wants to, asks again.
const WAIT_MAX: Duration = Duration::from_secs(3600);

#[derive(Clone)]
pub struct Service {
    pub counter: Counter,
    pub keys: Keys,
    pub security: Arc<Security>,
    /// Where this controller listens, as others of the pool are told; nothing if the pool is this one's alone.
    pub shares_as: Option<String>,
    /// Takes shares of a GPU's time to which nobody is held.
    pub places_by_ratio: bool,
    pub last_metrics: LastMetrics,
    pub node_ms: Time,
    pub lease_ms: Time,
}

/// What would be given to who asks for it.
pub struct Seen {
    pub would: pb::Allocation,
    pub leases: Vec<Signed>,
    /// Why it could not be had at this moment, where that is so.
    pub not_now: Option<String>,
}

/// Who a certificate says that somebody is, where one is wanted.
pub struct Who(Option<Identity>);

impl Who {
    /// A tenant's program asks as that tenant.
    pub fn tenant(&self, asked_as: &str) -> Result<String, Status> {
        match &self.0 {
            Some(Identity { role: identity::Role::Client, name, .. }) if asked_as.is_empty() || asked_as == name => {
                Ok(name.clone())
            }
            Some(who @ Identity { role: identity::Role::Client, .. }) => Err(Status::permission_denied(format!(
                "the certificate {who} is not tenant {asked_as:?}'s; leave ORION_TENANT out"
            ))),
            _ => Ok(asked_as.to_owned()),
        }
    }

    /// A node speaks for itself alone.
    fn speaks_for(&self, node: &str) -> Result<(), Status> {
        match &self.0 {
            Some(who @ Identity { role: identity::Role::Node, name, .. }) if name != node => {
                Err(Status::permission_denied(format!("the certificate {who} is not node {node:?}'s")))
            }
            _ => Ok(()),
        }
    }
}

type Reply<T> = Result<Response<T>, Status>;

impl Service {
    fn admit<T>(&self, request: &Request<T>, role: Role) -> Result<Who, Status> {
        let caller = request.extensions().get::<ConnectInfo<Caller>>().map(|ConnectInfo(caller)| caller);
        let key = request.metadata().get("authorization").and_then(|v| v.to_str().ok());
        self.admit_by(caller, key, role)
    }

    /// By the certificate, where one is wanted, and by the value of a header "authorization".
    pub fn admit_by(&self, caller: Option<&Caller>, authorization: Option<&str>, role: Role) -> Result<Who, Status> {
        let who = Who(self.security.admit(caller, role)?);
        self.check_key(authorization, role).map(|()| who)
    }

    fn check_key(&self, authorization: Option<&str>, role: Role) -> Result<(), Status> {
        let (key, name) = match role {
            Role::Client => (&self.keys.client_key, "client-key"),
            Role::Server => (&self.keys.server_key, "server-key"),
            Role::Administrator => (&self.keys.administrator_key, "administrator-key"),
        };
        let Some(key) = key else { return Ok(()) };
        let shown = authorization.unwrap_or("").strip_prefix("Bearer ").unwrap_or("");
        let operators = self.keys.administrator_key.as_ref();
        if is_same(shown, key) || operators.is_some_and(|operators| is_same(shown, operators)) {
            return Ok(());
        }
        let what = if shown.is_empty() { "no key was given" } else { "the key is wrong" };
        Err(Status::unauthenticated(format!(
            "{what}; this needs the controller's {name}, as \"authorization: Bearer …\""
        )))
    }

    pub async fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Desk) -> T + Send + 'static,
    ) -> Result<T, Status> {
        self.counter.ask(work).await.map_err(|refusal| unavailable(&refusal))
    }

    /// All that is asked for, when there is room for it; or why not.
    /// `claims` says that it is given back where the connection ends over which it is asked for.
    pub async fn grant(&self, r: &pb::AllocateRequest, claims: bool) -> Result<pb::Allocation, Status> {
        let ask = Ask { claims, ..asked(r, self.places_by_ratio)? };
        let id = if r.allocation.is_empty() { fresh_id()? } else { id(&r.allocation)? };
        let answer = self.ask(move |d| {
            let answer = d.pool.allocate(d.now, id, ask.clone()).map_err(|no| refused_now(d, &ask, no))?;
            Ok::<_, Status>(match answer {
                Answer::Granted(a) => Ok(told_to_program(d, &a)?),
                Answer::Waits(_) => Err(d.await_grant(id, ask)),
            })
        });
        let waits = match answer.await?? {
            Ok(granted) => return Ok(granted),
            Err(waits) => waits,
        };
        match waits.await {
            Ok(Waited::Granted(a)) => self.ask(move |d| told_to_program(d, &a)).await?,
            Ok(Waited::InVain(why)) => Err(Status::resource_exhausted(why)),
            Ok(Waited::Refused(refusal)) => Err(unavailable(&refusal)),
            Err(_) => Err(Status::aborted("somebody else asked under the same name, or released it")),
        }
    }

    /// What would be given, and leases to look at it with.
    pub async fn look(&self, r: &pb::AllocateRequest) -> Result<Seen, Status> {
        let ask = asked(r, self.places_by_ratio)?;
        let seen = self.ask(move |d| {
            let places = d.pool.would_give(&ask).map_err(|no| refused_now(d, &ask, no))?;
            let not_now = d.pool.why_not_now(&ask);
            let would = Allocation { id: AllocationId(0), ask, places, lease: Lease::Offered, until: d.now };
            let leases = leases::sign_to_look(d, &would).map_err(Status::failed_precondition)?;
            Ok(Seen { would: told_to_program(d, &would)?, leases, not_now })
        });
        seen.await?
    }

    /// A lease of each session that an allocation is for, as it stands now.
    pub async fn leases(&self, allocation: &str) -> Result<Vec<Signed>, Status> {
        let (id, shares) = (id(allocation)?, self.shares_as.is_some());
        let until = Instant::now() + REGISTERS_WITHIN;
        loop {
            match self.sign(id, shares).await? {
                Ok(signed) => return Ok(signed),
                Err(_) if Instant::now() < until => tokio::time::sleep(Duration::from_millis(50)).await,
                Err(node) => {
                    let text =
                        format!("node {node} has not registered since this controller leads the pool; ask again");
                    return Err(Status::unavailable(text));
                }
            }
        }
    }

    /// Or the node that has to register first: the clock by which it judges leases may be another controller's still.
    async fn sign(&self, id: AllocationId, shares: bool) -> Result<Result<Vec<Signed>, String>, Status> {
        let signed = self.ask(move |d| {
            let nodes = d.pool.allocation(id).map(leases::nodes_of).unwrap_or_default();
            let untold = nodes.into_iter().find(|node| !d.told_time.contains(*node));
            match untold.filter(|_| shares) {
                Some(node) => Ok(Err(node.clone())),
                None => leases::sign(d, id).map(Ok).map_err(Status::failed_precondition),
            }
        });
        signed.await?
    }

    /// The program that an allocation was offered to lets us wait for its word that its session has begun. If it goes
    /// before, what it was offered is free again.
    pub async fn awaited<E>(&self, allocation: &str, word: impl Future<Output = Result<(), E>>) -> Result<(), Status> {
        let id = id(allocation)?;
        let claim = self.counter.claimed.claim(id);
        if !self.ask(move |d| d.pool.claim(id)).await? {
            return Err(Status::not_found(format!("there is no allocation {id}, or not any more")));
        }
        if word.await.is_ok() {
            return self.ask(move |d| d.pool.confirm(d.now, id).map(drop)).await?.map_err(refused);
        }
        drop(claim);
        self.ask(move |d| d.pool.forsake(d.now, id)).await?;
        Err(Status::aborted(format!("the program went away before the session of {id} had begun")))
    }

    /// What another tenant has is as good as not there.
    pub async fn is_theirs(&self, who: &Who, id: AllocationId) -> Result<(), Status> {
        let Some(Identity { role: identity::Role::Client, name, .. }) = &who.0 else { return Ok(()) };
        let tenant = self.ask(move |d| d.pool.allocation(id).map(|a| a.ask.tenant.clone())).await?;
        match tenant.is_some_and(|tenant| tenant != *name) {
            true => Err(Status::not_found(format!("there is no allocation {id}, or not any more"))),
            false => Ok(()),
        }
    }

    /// Whether there was one.
    pub async fn end(&self, allocation: &str, why: Why) -> Result<bool, Status> {
        let id = id(allocation)?;
        self.ask(move |d| d.pool.release(d.now, id, why)).await
    }
}

/// Where another controller leads its address goes along, for those who look for it.
fn unavailable(refusal: &Refusal) -> Status {
    let mut status = Status::unavailable(refusal.to_string());
    if let Refusal::Follows(leader) = refusal
        && let Ok(value) = leader.parse()
    {
        status.metadata_mut().insert(pb::leader::HEADER, value);
    }
    status
}

/// Takes as long wherever they differ.
fn is_same(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |all, (x, y)| all | (x ^ y)) == 0
}

fn refused(refused: Refused) -> Status {
    let text = refused.text().to_owned();
    match refused {
        Refused::Invalid(_) => Status::invalid_argument(text),
        Refused::Full(_) => Status::resource_exhausted(text),
        Refused::Quota(_) => Status::failed_precondition(text),
        Refused::Unknown(_) => Status::not_found(text),
    }
}

/// For how many milliseconds it is worth to ask again.
pub const MAY_PASS: &str = "orion-may-pass";

fn refused_now(d: &Desk, ask: &Ask, no: Refused) -> Status {
    let is_room = matches!(no, Refused::Full(_) | Refused::Quota(_));
    let within = if is_room { d.pool.may_give_within(ask) } else { None };
    let mut status = refused(no);
    if let Some(within) = within {
        status.metadata_mut().insert(MAY_PASS, MetadataValue::from(within));
    }
    status
}

pub fn id(text: &str) -> Result<AllocationId, Status> {
    text.parse().map_err(Status::invalid_argument)
}

fn ids(texts: &[String]) -> Result<Vec<AllocationId>, Status> {
    if texts.len() > NAMES_MAX {
        return Err(Status::invalid_argument(format!(
            "{} allocations; at most {NAMES_MAX} are named at once",
            texts.len()
        )));
    }
    texts.iter().map(|text| id(text)).collect()
}

/// vGPUs of a lease are those of one node, in the allocation's order.
fn usage(all: Vec<pb::Usage>) -> Result<Vec<(AllocationId, Vec<u64>)>, Status> {
    if all.len() > NAMES_MAX {
        let text = format!("usage of {} allocations; at most {NAMES_MAX} are named at once", all.len());
        return Err(Status::invalid_argument(text));
    }
    all.into_iter().map(|used| Ok((id(&used.allocation)?, used.vgpu_bytes))).collect()
}

/// What sessions do, as it was said: who shows it reads it.
fn reports(all: &[pb::Usage]) -> Result<Vec<(AllocationId, String)>, Status> {
    if let Some(used) = all.iter().find(|used| used.report.len() > REPORT_BYTES_MAX) {
        let (id, bytes) = (&used.allocation, used.report.len());
        return Err(Status::invalid_argument(format!("the report of {id} has {bytes} bytes, over {REPORT_BYTES_MAX}")));
    }
    all.iter().take(NAMES_MAX).map(|used| Ok((id(&used.allocation)?, used.report.clone()))).collect()
}

/// A number that nobody guesses.
fn fresh_id() -> Result<AllocationId, Status> {
    let mut bytes = [0u8; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut bytes))
        .map_err(|e| Status::internal(format!("reading /dev/urandom failed: {e}")))?;
    // As a UUID of version 4 has it.
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Ok(AllocationId(u128::from_be_bytes(bytes)))
}

fn asked(r: &pb::AllocateRequest, places_by_ratio: bool) -> Result<Ask, Status> {
    if let Some(ratio @ 1..100) = r.ratio
        && !places_by_ratio
    {
        return Err(Status::invalid_argument(format!(
            "ORION_RATIO is {ratio}, and this pool gives no shares of a GPU's time: its operator has set \
             controller.places_by_ratio: false; leave it out or set it to 100"
        )));
    }
    let memory = match r.memory_mib {
        Some(mib) => Some(mib.checked_mul(MIB).ok_or_else(|| {
            Status::invalid_argument(format!("{mib} MiB are more than any machine has; ORION_GMEM is in MiB"))
        })?),
        None => None,
    };
    let gpus = match pb::Gpus::try_from(r.gpus) {
        Ok(pb::Gpus::Any) => Gpus::Any,
        Ok(pb::Gpus::Same) => Gpus::Same,
        Ok(pb::Gpus::Distinct) => Gpus::Distinct,
        Err(_) => return Err(Status::invalid_argument(format!("gpus is {}; it is 0, 1 or 2", r.gpus))),
    };
    let wait_max = WAIT_MAX.as_millis() as u64;
    if r.wait_ms > wait_max {
        let text = format!("wait_ms is {}; a request waits {wait_max} at most", r.wait_ms);
        return Err(Status::invalid_argument(text));
    }
    Ok(Ask {
        vgpus: r.vgpus,
        memory,
        ratio: r.ratio,
        cross_node: r.cross_node,
        gpus,
        tenant: r.tenant.clone(),
        group: r.group.clone(),
        client: r.client.clone(),
        wait_ms: r.wait_ms,
        with_group: r.with_group,
        carrier: r.carrier.clone(),
        claims: false,
    })
}

/// To who goes there: each node is reached by the carrier that was asked for, or he is told that it is not any more.
fn told_to_program(d: &Desk, a: &Allocation) -> Result<pb::Allocation, Status> {
    let carrier = &a.ask.carrier;
    let is_reached = |node: &str| d.pool.node(node).is_some_and(|node| node.is_reached_by(carrier));
    match a.places.iter().find(|place| !is_reached(&place.node)) {
        Some(Place { node, .. }) if !carrier.is_empty() => Err(Status::failed_precondition(format!(
            "node {node} is not reached by {carrier} any more; release {} and ask again, or unset ORION_TRANSPORT",
            a.id
        ))),
        _ => Ok(told(d, a)),
    }
}

fn told(d: &Desk, a: &Allocation) -> pb::Allocation {
    let pool = &d.pool;
    // By the carrier that was asked for, if the node still has it.
    let address = |node: &str| {
        let report = &pool.node(node)?.report;
        Some(report.address_by(&a.ask.carrier).unwrap_or(&report.address).to_owned())
    };
    // A node tells of those that are its own.
    let used = |i: usize| {
        let node = &a.places[i].node;
        let before = a.places[..i].iter().filter(|p| p.node == *node).count();
        d.used.get(&a.id)?.get(node)?.get(before).copied()
    };
    let places = a.places.iter().zip(0..).map(|(p, i)| pb::Place {
        node: p.node.clone(),
        address: address(&p.node).unwrap_or_default(),
        gpu_uuid: p.gpu.clone(),
        gpu: p.number,
        vgpu: p.slot,
        memory_bytes: p.memory,
        ratio: p.ratio,
        used_bytes: used(i),
    });
    pb::Allocation {
        allocation: a.id.to_string(),
        vgpus: places.collect(),
        confirmed: a.lease == Lease::Confirmed,
        stands_ms: a.until.saturating_sub(d.now),
        tenant: a.ask.tenant.clone(),
        group: a.ask.group.clone(),
        client: a.ask.client.clone(),
        of_reserve: false,
    }
}

/// What a node has lent of its own reserve.
fn lent(node: &str, all: Vec<pb::Allocation>) -> Result<Vec<Allocation>, Status> {
    if all.len() > NAMES_MAX {
        let text = format!("{} allocations of a reserve; at most {NAMES_MAX} are named at once", all.len());
        return Err(Status::invalid_argument(text));
    }
    let one = |a: pb::Allocation| {
        let id = id(&a.allocation)?;
        let places: Vec<Place> = a.vgpus.into_iter().map(|p| place_of(node, p)).collect();
        let vgpus = places.len() as u32;
        let ask = Ask { vgpus, tenant: a.tenant, group: a.group, client: a.client, ..Ask::default() };
        Ok(Allocation { id, ask, places, lease: Lease::Confirmed, until: Time::MAX })
    };
    all.into_iter().map(one).collect()
}

/// What its context takes is the node's to know: the controller lends nothing of it.
fn place_of(node: &str, p: pb::Place) -> Place {
    let (gpu, memory) = (p.gpu_uuid, p.memory_bytes);
    Place { node: node.to_owned(), gpu, number: p.gpu, slot: p.vgpu, memory, reserve: 0, ratio: p.ratio }
}

/// An answer that may be long says how long it is.
fn weighed<T: Message>(answer: T) -> Response<T> {
    let weight = Weight(answer.encoded_len());
    let mut response = Response::new(answer);
    response.extensions_mut().insert(weight);
    response
}

/// Of reports as many as have so many bytes, and how many there are beside. How long one is, is up to its session,
/// which keeps nobody else's out.
fn shortest<N>(mut reports: Vec<(N, &String)>, bytes_max: usize) -> (Vec<(N, &String)>, u32) {
    let mut bytes = 0;
    let count = reports.len();
    reports.sort_by_key(|(_, text)| text.len());
    let fits = reports.iter().take_while(|(_, text)| {
        bytes += text.len();
        bytes <= bytes_max
    });
    let fits = fits.count();
    reports.truncate(fits);
    (reports, (count - fits) as u32)
}

/// Without the part of its name by which it could be ended.
fn hidden(mut a: pb::Allocation) -> pb::Allocation {
    a.allocation.truncate(8);
    a
}

/// As [`hidden`], of a report.
fn without_name(report: &str, id: AllocationId) -> String {
    let name = id.to_string();
    report.replace(&name, &name[..8])
}

#[tonic::async_trait]
impl pb::pool_server::Pool for Service {
    async fn register(&self, request: Request<pb::RegisterRequest>) -> Reply<pb::RegisterReply> {
        let who = self.admit(&request, Role::Server)?;
        let r = request.into_inner();
        who.speaks_for(&r.node)?;
        let gpus = r.gpus.into_iter().map(|g| orion_pool::Gpu {
            uuid: g.uuid,
            name: g.name,
            memory: g.memory_bytes,
            reserve: g.reserve_bytes,
        });
        let (name, gpus) = (r.node.clone(), gpus.collect());
        let instance = leases::instance(&r.oriond);
        let (split, kept, prepares) = (r.split, r.reserve, r.prepares);
        let report = NodeReport {
            name: r.node,
            address: r.address,
            further: r.further,
            gpus,
            split,
            oriond: r.oriond,
            kept,
            certificate: r.certificate,
        };
        let key = self.ask(move |d| {
            if prepares {
                d.pool.may_register(d.now, &report)?;
            } else {
                d.pool.register(d.now, report)?;
                d.told_time.insert(name.clone());
            }
            Ok(instance.map(|instance| d.master.key_of(&name, &instance)))
        });
        let key = key.await?.map_err(refused)?;
        Ok(Response::new(pb::RegisterReply {
            node_ms: self.node_ms,
            lease_ms: self.lease_ms,
            lease_key: key.map(|key| key.bytes().to_vec()).unwrap_or_default(),
            now_unix_ms: leases::now_unix_ms(),
        }))
    }

    async fn heartbeat(&self, request: Request<pb::HeartbeatRequest>) -> Reply<pb::HeartbeatReply> {
        let who = self.admit(&request, Role::Server)?;
        let r = request.into_inner();
        who.speaks_for(&r.node)?;
        let reports = reports(&r.used)?;
        let (live, ended, used) = (ids(&r.live)?, ids(&r.ended)?, usage(r.used)?);
        let lent = lent(&r.node, r.lent)?;
        let over = self.ask(move |d| {
            d.pool.hear_of_reserve(&r.node, lent)?;
            let over = d.pool.heartbeat(d.now, &r.node, &live, &ended)?;
            let again_ms = d.pool.wants_word(d.now, &r.node);
            d.hear_usage(&r.node, used);
            d.hear_reports(&r.node, reports);
            Ok((over, again_ms))
        });
        let (over, again_ms) = over.await?.map_err(refused)?;
        let over = over.iter().map(AllocationId::to_string).collect();
        Ok(Response::new(pb::HeartbeatReply { over, again_ms }))
    }

    async fn allocate(&self, request: Request<pb::AllocateRequest>) -> Reply<pb::Allocation> {
        let who = self.admit(&request, Role::Client)?;
        let mut wanted = request.into_inner();
        wanted.tenant = who.tenant(&wanted.tenant)?;
        Ok(Response::new(self.grant(&wanted, false).await?))
    }

    async fn confirm(&self, request: Request<pb::AllocationName>) -> Reply<pb::Allocation> {
        let who = self.admit(&request, Role::Client)?;
        let id = id(&request.into_inner().allocation)?;
        self.is_theirs(&who, id).await?;
        let confirmed = self.ask(move |d| {
            let a = d.pool.confirm(d.now, id)?.clone();
            Ok(told(d, &a))
        });
        Ok(Response::new(confirmed.await?.map_err(refused)?))
    }

    async fn renew(&self, request: Request<pb::AllocationName>) -> Reply<pb::Renewed> {
        let who = self.admit(&request, Role::Client)?;
        let id = id(&request.into_inner().allocation)?;
        self.is_theirs(&who, id).await?;
        let renewed = self.ask(move |d| {
            d.pool.renew(d.now, id)?;
            Ok(d.pool.allocation(id).map_or(0, |a| a.until.saturating_sub(d.now)))
        });
        Ok(Response::new(pb::Renewed { stands_ms: renewed.await?.map_err(refused)? }))
    }

    async fn release(&self, request: Request<pb::AllocationName>) -> Reply<pb::Released> {
        let who = self.admit(&request, Role::Client)?;
        let allocation = request.into_inner().allocation;
        self.is_theirs(&who, id(&allocation)?).await?;
        let was_there = self.end(&allocation, Why::Released).await?;
        Ok(Response::new(pb::Released { was_there }))
    }

    async fn list_devices(&self, request: Request<pb::ListDevicesRequest>) -> Reply<pb::Devices> {
        self.admit(&request, Role::Client)?;
        let devices = self.ask(|d| devices(&d.pool)).await?;
        Ok(weighed(pb::Devices { devices }))
    }

    async fn list_allocations(&self, request: Request<pb::ListAllocationsRequest>) -> Reply<pb::Allocations> {
        let is_operator = self.admit(&request, Role::Administrator).is_ok();
        let who = self.admit(&request, Role::Client)?;
        let tenant = who.tenant(&request.into_inner().tenant)?;
        let list = self.ask(move |d| {
            let pool = &d.pool;
            let of_pool = pool.allocations().map(|a| told(d, a));
            let all = of_pool.chain(pool.lent_by_nodes().map(|a| pb::Allocation { of_reserve: true, ..told(d, a) }));
            let mine = all.filter(|a| tenant.is_empty() || a.tenant == tenant);
            let shown = mine.map(|a| if is_operator { a } else { hidden(a) });
            pb::Allocations { allocations: shown.collect(), waiting: pool.waiting().count() as u32 }
        });
        Ok(weighed(list.await?))
    }

    async fn list_sessions(&self, request: Request<pb::ListSessionsRequest>) -> Reply<pb::Sessions> {
        let is_operator = self.admit(&request, Role::Administrator).is_ok();
        let who = self.admit(&request, Role::Client)?;
        let tenant = who.tenant(&request.into_inner().tenant)?;
        let sessions = self.ask(move |d| {
            let is_wanted = |id| d.pool.allocation(id).is_some_and(|a| tenant.is_empty() || a.ask.tenant == tenant);
            let wanted = d.reports.iter().filter(|(id, _)| is_wanted(**id));
            let reports = wanted.flat_map(|(id, of_nodes)| of_nodes.values().map(move |text| (id, text)));
            let (reports, left_out) = shortest(reports.collect(), SESSIONS_BYTES_MAX);
            let shown =
                |(id, text): (&AllocationId, &String)| if is_operator { text.clone() } else { without_name(text, *id) };
            pb::Sessions { reports: reports.into_iter().map(shown).collect(), left_out }
        });
        Ok(weighed(sessions.await?))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<pb::Event, Status>> + Send>>;

    async fn watch(&self, request: Request<pb::WatchRequest>) -> Reply<Self::WatchStream> {
        self.admit(&request, Role::Administrator)?;
        let news = self.counter.watch();
        // Who does not lead sees nothing happen.
        self.ask(|_| ()).await?;
        let events = BroadcastStream::new(news).map(|news| match news {
            Ok(News::Event(event)) => Ok(shown(&event)),
            Ok(News::Over(refusal)) => Err(unavailable(&refusal)),
            Err(BroadcastStreamRecvError::Lagged(n)) => {
                Ok(pb::Event { what: "missed".into(), detail: n.to_string(), ..Default::default() })
            }
        });
        Ok(Response::new(Box::pin(events)))
    }

    async fn drain(&self, request: Request<pb::DrainRequest>) -> Reply<pb::Drained> {
        self.admit(&request, Role::Administrator)?;
        let r = request.into_inner();
        let left = self.ask(move |d| {
            d.pool.drain(d.now, &r.node, !r.undo)?;
            Ok(d.pool.allocations().filter(|a| a.is_on(&r.node)).count() as u32)
        });
        Ok(Response::new(pb::Drained { left: left.await?.map_err(refused)? }))
    }

    async fn forget(&self, request: Request<pb::NodeName>) -> Reply<pb::Forgotten> {
        self.admit(&request, Role::Administrator)?;
        let node = request.into_inner().node;
        self.ask(move |d| d.pool.forget(d.now, &node)).await?.map_err(refused)?;
        Ok(Response::new(pb::Forgotten {}))
    }

    async fn kill(&self, request: Request<pb::AllocationName>) -> Reply<pb::Released> {
        self.admit(&request, Role::Administrator)?;
        let was_there = self.end(&request.into_inner().allocation, Why::Killed).await?;
        Ok(Response::new(pb::Released { was_there }))
    }

    async fn set_quota(&self, request: Request<pb::SetQuotaRequest>) -> Reply<pb::QuotaSet> {
        self.admit(&request, Role::Administrator)?;
        let q =
            request.into_inner().quota.ok_or_else(|| Status::invalid_argument("there is no quota in the request"))?;
        let memory = match q.memory_mib.map(|mib| mib.checked_mul(MIB)) {
            Some(None) => return Err(Status::invalid_argument("memory_mib is more than any pool has")),
            Some(memory) => memory,
            None => None,
        };
        let quota = orion_pool::Quota { vgpus: q.vgpus, memory, ratio: q.ratio };
        let quota = (quota != orion_pool::Quota::default()).then_some(quota);
        self.ask(move |d| d.pool.set_quota(d.now, &q.tenant, quota)).await?.map_err(refused)?;
        Ok(Response::new(pb::QuotaSet {}))
    }

    /// Nobody is asked for a key: who looks for the leader does not know yet whom he shows his.
    async fn leader(&self, _: Request<pb::LeaderRequest>) -> Reply<pb::Leader> {
        let (leads, address, why) = match self.counter.ask(|_| ()).await {
            Ok(()) => (true, self.shares_as.clone().unwrap_or_default(), String::new()),
            Err(Refusal::Follows(leader)) => (false, leader, String::new()),
            Err(Refusal::NoLeader(why)) => (false, String::new(), why),
            // It leads, and says what is wrong to who asks for something.
            Err(Refusal::Store(why)) => (true, self.shares_as.clone().unwrap_or_default(), why),
        };
        Ok(Response::new(pb::Leader { leads, address, why, insecure: self.security.insecure }))
    }

    async fn list_quotas(&self, request: Request<pb::ListQuotasRequest>) -> Reply<pb::Quotas> {
        self.admit(&request, Role::Administrator)?;
        let shown = |(tenant, q): (&str, &orion_pool::Quota)| pb::Quota {
            tenant: tenant.to_owned(),
            vgpus: q.vgpus,
            memory_mib: q.memory.map(|m| m / MIB),
            ratio: q.ratio,
        };
        let quotas = self.ask(move |d| d.pool.quotas().map(shown).collect()).await?;
        Ok(weighed(pb::Quotas { quotas }))
    }
}

/// How a device stands that programs are given vGPUs of.
const UP: &str = "up";

pub fn devices(pool: &Pool) -> Vec<pb::Device> {
    let mut lent: HashMap<(&str, u32), u32> = HashMap::new();
    for place in pool.lent_by_nodes().flat_map(|a| &a.places) {
        *lent.entry((&place.node, place.number)).or_default() += 1;
    }
    let of = |node: &orion_pool::Node| {
        let standing = match (node.is_lost, node.standing) {
            (true, _) => "lost",
            (false, Standing::Draining) => "draining",
            (false, Standing::Up) => UP,
        };
        let device = |(number, gpu): (usize, &orion_pool::Gpu)| pb::Device {
            node: node.report.name.clone(),
            address: node.report.address.clone(),
            gpu: number as u32,
            uuid: gpu.uuid.clone(),
            name: gpu.name.clone(),
            memory_bytes: gpu.memory,
            free_bytes: node.free(number).memory,
            free_ratio: node.free(number).ratio,
            vgpus: node.report.split - node.report.kept,
            free_vgpus: node.free(number).slots() as u32,
            standing: standing.to_owned(),
            reserve_vgpus: node.report.kept,
            reserve_lent: lent.get(&(node.report.name.as_str(), number as u32)).copied().unwrap_or(0),
        };
        node.report.gpus.iter().enumerate().map(device).collect::<Vec<_>>()
    };
    pool.nodes().flat_map(of).collect()
}

fn shown(event: &Event) -> pb::Event {
    let mut out = pb::Event::default();
    let (what, node, id) = match event {
        Event::NodeJoined { node } => ("node_joined", Some(node), None),
        Event::GpuAdded { node, uuid, name } => {
            (out.gpu_uuid, out.detail) = (uuid.clone(), name.clone());
            ("gpu_added", Some(node), None)
        }
        Event::GpuGone { node, uuid } => {
            out.gpu_uuid = uuid.clone();
            ("gpu_gone", Some(node), None)
        }
        Event::NodeLost { node } => ("node_lost", Some(node), None),
        Event::NodeBack { node } => ("node_back", Some(node), None),
        Event::NodeForgotten { node } => ("node_forgotten", Some(node), None),
        Event::Drains { node, is_draining: true } => ("draining", Some(node), None),
        Event::Drains { node, is_draining: false } => ("undrained", Some(node), None),
        Event::Granted { id } => ("granted", None, Some(id)),
        Event::Confirmed { id } => ("confirmed", None, Some(id)),
        Event::Over { id, why } => {
            out.detail = format!("{why:?}");
            ("over", None, Some(id))
        }
        Event::Waits { id } => ("waits", None, Some(id)),
        Event::GaveUp { id } => ("gave_up", None, Some(id)),
        Event::LentByNode { node, id } => ("lent_by_node", Some(node), Some(id)),
        Event::BackAtNode { node, id } => ("back_at_node", Some(node), Some(id)),
    };
    out.what = what.to_owned();
    out.node = node.cloned().unwrap_or_default();
    out.allocation = id.map(AllocationId::to_string).unwrap_or_default();
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_there_is_no_room_for_all_reports_the_longest_are_left_out() {
        let texts = [9, 2, 5, 1].map(|bytes| "x".repeat(bytes));
        let of = |bytes_max| {
            let (reports, left_out) = shortest((0..).zip(&texts).collect::<Vec<(u32, _)>>(), bytes_max);
            (reports.iter().map(|(n, _)| *n).collect::<Vec<_>>(), left_out)
        };
        assert_eq!(of(100), (vec![3, 1, 2, 0], 0));
        assert_eq!(of(8), (vec![3, 1, 2], 1));
        assert_eq!(of(0), (vec![], 4));
    }
}
