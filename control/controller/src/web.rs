//! What is asked over plain HTTP, on the same port: by programs that want vGPUs, by the original's tools, by
//! Prometheus, by whoever wants to know whether the controller is well.

use std::collections::{BTreeMap, HashMap};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, DefaultBodyLimit, Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use orion_pool::pool::{Pool, RETURNS_MS};
use orion_pool::{Node, Why};
use orion_proto::leader::HEADER;
use orion_proto::{AllocateRequest, Allocation, Gpus};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use serde::{Deserialize, Serialize};
use tonic::Code;
use tonic::metadata::MetadataValue;

use crate::claims::{self, SESSION};
use crate::desk::{Desk, Refusal};
use crate::doors::Caller;
use crate::doors::Role;
use crate::leases::Signed;
use crate::service::{MAY_PASS, Seen, Service, devices, id};
use crate::sessions;

/// What the original's controllers of 2020 answered.
const VERSIONS: &str = "api_version=0.2,data_version=0.2";
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const INSECURE: &str = "orion-insecure";

/// A program says little.
const BODY_BYTES_MAX: usize = 16 << 10;

pub fn routes(service: Service) -> Router {
    Router::new()
        .route("/allocations", post(allocate))
        .route("/allocations/{allocation}", delete(release))
        .route(&format!("/allocations/{{allocation}}{SESSION}"), post(session))
        .route("/look", post(look))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .route("/info", get(info))
        .route("/devices", get(free_or_all))
        .route("/healthz", get(health))
        .route("/metrics", get(metrics))
        .method_not_allowed_fallback(other_method)
        .with_state(service)
}

/// The original's tools read the text. Ours say so too where other machines may speak in the clear.
async fn info(State(service): State<Service>) -> Response {
    match service.security.insecure {
        true => ([(INSECURE, "1")], VERSIONS).into_response(),
        false => VERSIONS.into_response(),
    }
}

async fn other_method(request: Request) -> Response {
    let text = format!(
        "{} is not what is asked here: POST /allocations, DELETE /allocations/NAME, POST /allocations/NAME/session, \
         POST /look; all other paths by GET\n",
        request.method()
    );
    (StatusCode::METHOD_NOT_ALLOWED, text).into_response()
}

/// What is at no path: gRPC has a status of its own for that.
pub async fn nothing(request: Request) -> Response {
    let content = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if content.is_some_and(|content| content.starts_with("application/grpc")) {
        let text = format!("there is no call {}; is the client of another version?", request.uri().path());
        return tonic::Status::unimplemented(text).into_http::<axum::body::Body>();
    }
    (StatusCode::NOT_FOUND, "there are /allocations, /look, /info, /devices, /healthz and /metrics\n").into_response()
}

/// What a program asks for, as JSON. What it does not name has the controller's defaults.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Wanted {
    /// A UUID, so that it can be asked for again when the answer was lost.
    allocation: String,
    vgpus: u32,
    memory_mib: Option<u64>,
    ratio: Option<u32>,
    tenant: String,
    group: String,
    client: String,
    wait_ms: u64,
    /// `ORION_RES_GROUP=BOX`.
    with_group: bool,
    /// `ORION_CROSS_NODE=1`.
    cross_node: bool,
    /// `ORION_TRANSPORT`.
    carrier: String,
}

impl Default for Wanted {
    fn default() -> Wanted {
        let text = String::new;
        Wanted {
            allocation: text(),
            vgpus: 1,
            memory_mib: None,
            ratio: None,
            tenant: text(),
            group: text(),
            client: text(),
            wait_ms: 0,
            with_group: false,
            cross_node: false,
            carrier: text(),
        }
    }
}

impl From<Wanted> for AllocateRequest {
    fn from(w: Wanted) -> AllocateRequest {
        AllocateRequest {
            allocation: w.allocation,
            vgpus: w.vgpus,
            memory_mib: w.memory_mib,
            ratio: w.ratio,
            cross_node: w.cross_node,
            gpus: Gpus::Any.into(),
            tenant: w.tenant,
            group: w.group,
            client: w.client,
            wait_ms: w.wait_ms,
            with_group: w.with_group,
            carrier: w.carrier,
        }
    }
}

/// What it gets: where to go, and what to show there.
#[derive(Debug, Serialize)]
struct Granted {
    allocation: String,
    /// On how many nodes it lies.
    nodes: usize,
    /// Of each node. The names of what is of the second one end in `_2`, and so on.
    #[serde(flatten)]
    parts: BTreeMap<String, String>,
    /// As long as nobody comes.
    stands_ms: u64,
    /// Whether nodes keep programs to their ratios. They do, unless a node's operator has told its oriond not to.
    ratio_is_kept: bool,
    /// Of what is only looked at: why it could not be had at this moment; empty if it could.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_now: Option<String>,
}

async fn allocate(
    State(service): State<Service>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let given = async {
        let asked = wanted(&service, &caller, &headers, &body)?;
        let claimed = match headers.contains_key(claims::HEADER) {
            true => Some(id(&asked.allocation)?),
            false => None,
        };
        if claimed.is_some_and(|id| !caller.claims.await_claim(id, service.counter.clone())) {
            return Err(tonic::Status::resource_exhausted(
                "this connection has been given more than any program comes for; give some back, or open another one",
            ));
        }
        let given = give(&service, &asked, claimed.is_some()).await;
        claimed.filter(|_| given.is_err()).inspect(|id| caller.claims.settle(*id));
        given
    };
    answered(given.await, &uri)
}

async fn give(service: &Service, asked: &AllocateRequest, claims: bool) -> Result<Granted, tonic::Status> {
    let had = service.grant(asked, claims).await?;
    match service.leases(&had.allocation).await {
        Ok(leases) => Ok(granted(had, leases)),
        // It is asked for again, under the same name.
        Err(status) if status.code() == Code::Unavailable => Err(status),
        Err(mut status) => {
            // Its node has gone between the two, and what was given is over: another one may be given.
            if !service.end(&had.allocation, Why::Released).await? {
                status.metadata_mut().insert(MAY_PASS, MetadataValue::from(RETURNS_MS));
            }
            Err(status)
        }
    }
}

/// What a program would be given, for who only wants to see it.
async fn look(
    State(service): State<Service>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let seen = async {
        let Seen { would, leases, not_now } = service.look(&wanted(&service, &caller, &headers, &body)?).await?;
        Ok(Granted { not_now: Some(not_now.unwrap_or_default()), ..granted(would, leases) })
    };
    answered(seen.await, &uri)
}

fn answered(granted: Result<Granted, tonic::Status>, uri: &Uri) -> Response {
    match granted {
        Ok(granted) => (StatusCode::OK, json(&granted)).into_response(),
        Err(status) => refused(&status, uri),
    }
}

/// What somebody asks for who may.
fn wanted(
    service: &Service,
    caller: &Caller,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<AllocateRequest, tonic::Status> {
    let who = service.admit_by(Some(caller), authorization(headers), Role::Client)?;
    let mut wanted: Wanted = serde_json::from_slice(body)
        .map_err(|e| tonic::Status::invalid_argument(format!("the request is not what is asked here: {e}")))?;
    wanted.tenant = who.tenant(&wanted.tenant)?;
    Ok(wanted.into())
}

fn granted(had: Allocation, leases: Vec<Signed>) -> Granted {
    let nodes = leases.len();
    let mut parts = BTreeMap::new();
    let by_node = had.vgpus.chunk_by(|a, b| a.node == b.node);
    for (number, (vgpus, Signed { lease, certificate })) in (1..).zip(by_node.zip(leases)) {
        // GPU and vGPU of each, as the original wrote them: `0/0,0/1`.
        let places: Vec<String> = vgpus.iter().map(|p| format!("{}/{}", p.gpu, p.vgpu)).collect();
        let mut put = |name: &str, value: String| {
            parts.insert(if number == 1 { name.to_owned() } else { format!("{name}_{number}") }, value)
        };
        put("node", vgpus[0].node.clone());
        put("address", vgpus[0].address.clone());
        put("places", places.join(","));
        // SHA-256 of what the node's oriond shows over a network; empty if it shows nothing.
        put("certificate", certificate);
        put("lease", hex(&lease.body));
        put("signature", hex(&lease.signature));
    }
    let Allocation { allocation, stands_ms, .. } = had;
    Granted { nodes, parts, stands_ms, ratio_is_kept: true, allocation, not_now: None }
}

/// A program that got no session gives back what it has had.
async fn release(
    State(service): State<Service>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    Path(allocation): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let released = async {
        let who = service.admit_by(Some(&caller), authorization(&headers), Role::Client)?;
        let id = id(&allocation)?;
        service.is_theirs(&who, id).await?;
        caller.claims.settle(id);
        service.end(&allocation, Why::Released).await
    };
    match released.await {
        Ok(was_there) => (StatusCode::OK, json(&serde_json::json!({ "was_there": was_there }))).into_response(),
        Err(status) => refused(&status, &uri),
    }
}

/// A program says here, by the body of its request, that its session has begun. It lets the body wait until then: if
/// its connection ends before, what it was offered is free again.
async fn session(
    State(service): State<Service>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    Path(allocation): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let admitted = async {
        let who = service.admit_by(Some(&caller), authorization(&headers), Role::Client)?;
        service.is_theirs(&who, id(&allocation)?).await
    };
    if let Err(status) = admitted.await {
        return refused(&status, &uri);
    }
    id(&allocation).into_iter().for_each(|id| caller.claims.settle(id));
    // What it says does not matter, only that it is still there to say it.
    let word = async { axum::body::to_bytes(body, BODY_BYTES_MAX).await.map(drop) };
    match service.awaited(&allocation, word).await {
        Ok(()) => (StatusCode::OK, json(&serde_json::json!({ "confirmed": true }))).into_response(),
        Err(status) => refused(&status, &uri),
    }
}

fn authorization(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::AUTHORIZATION)?.to_str().ok()
}

fn refused(status: &tonic::Status, uri: &Uri) -> Response {
    let code = match status.code() {
        Code::InvalidArgument => StatusCode::BAD_REQUEST,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::ResourceExhausted | Code::FailedPrecondition | Code::Aborted => StatusCode::CONFLICT,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let leader = status.metadata().get(HEADER).and_then(|value| value.to_str().ok());
    let Some(leader) = leader else {
        let mut said = serde_json::json!({ "error": status.message() });
        let may_pass = status.metadata().get(MAY_PASS).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        if let Some(within_ms) = may_pass {
            said["may_pass_ms"] = within_ms.into();
        }
        return (code, json(&said)).into_response();
    };
    let said = serde_json::json!({ "error": status.message(), "leader": leader });
    // By the scheme of the request, whichever that is.
    let location = [(header::LOCATION, format!("//{leader}{uri}"))];
    (StatusCode::TEMPORARY_REDIRECT, location, json(&said)).into_response()
}

fn json(value: &impl Serialize) -> ([(header::HeaderName, &'static str); 1], String) {
    let text = serde_json::to_string(value).expect("plain words and numbers");
    ([(header::CONTENT_TYPE, "application/json")], text)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// `/devices?res=nvidia_cuda` is the number of vGPUs, with `used=true` that of those that are free: the original's
/// orion-check prints it as that.
async fn free_or_all(
    State(service): State<Service>,
    uri: Uri,
    Query(query): Query<HashMap<String, String>>,
) -> Response {
    if let Some(other) = query.get("res").filter(|res| *res != "nvidia_cuda") {
        return (StatusCode::BAD_REQUEST, format!("res is {other:?}; it is nvidia_cuda\n")).into_response();
    }
    let wants_free = query.get("used").is_some_and(|used| used == "true");
    let count = service.ask(move |d| {
        let count = |node: &Node| match wants_free {
            // Of a node that is not heard of, or that takes no more, nobody is given any.
            true if !node.takes_more() => 0,
            true => (0..node.report.gpus.len()).map(|number| node.free(number).slots() as u32).sum(),
            false => node.report.gpus.len() as u32 * (node.report.split - node.report.kept),
        };
        d.pool.nodes().map(count).sum::<u32>()
    });
    match count.await {
        Ok(count) => format!("nvidia_cuda={count}").into_response(),
        Err(status) => refused(&status, &uri),
    }
}

/// Well is also who follows: the pool has a leader.
async fn health(State(service): State<Service>) -> Response {
    let well = |text: String| (StatusCode::OK, text).into_response();
    let why = match (service.counter.ask(|d| d.trouble.clone()).await, &service.shares_as) {
        (Ok(None), None) => return well("ok\n".to_owned()),
        (Ok(None), Some(here)) => return well(format!("ok; this controller, {here}, leads the pool\n")),
        (Err(Refusal::Follows(leader)), _) => return well(format!("ok; the controller at {leader} leads the pool\n")),
        (Ok(Some(why)), _) => why,
        (Err(refusal), _) => refusal.to_string(),
    };
    (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response()
}

/// Who leads is known to all; the pool to the one that does.
async fn metrics(State(service): State<Service>) -> Response {
    let (here, last) = (service.shares_as.clone().unwrap_or_default(), service.last_metrics.clone());
    let text = match service.counter.ask(move |d| last.or_made(|| text(Some(d), Some(&here)))).await {
        Ok(text) => text,
        Err(Refusal::Follows(leader)) => text(None, Some(&leader)).map(Bytes::from),
        Err(Refusal::NoLeader(_)) => text(None, None).map(Bytes::from),
        Err(refusal) => return (StatusCode::SERVICE_UNAVAILABLE, format!("{refusal}\n")).into_response(),
    };
    match text {
        Ok(text) => ([(header::CONTENT_TYPE, OPENMETRICS)], text).into_response(),
        Err(e) => (StatusCode::INTERNAL_SERVER_ERROR, e.to_string()).into_response(),
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfGpu {
    node: String,
    gpu: u32,
    uuid: String,
    name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfNode {
    node: String,
    standing: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfTenant {
    tenant: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfController {
    address: String,
}

/// As it is: nothing is counted between two questions.
fn text(desk: Option<&Desk>, leader: Option<&str>) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::with_prefix("orion");
    let (leads, leads_where) = (Gauge::<i64>::default(), Family::<OfController, Gauge>::default());
    leads.set(desk.is_some().into());
    registry.register("controller_leads", "Whether this controller leads the pool", leads);
    if let Some(address) = leader.filter(|address| !address.is_empty()) {
        registry.register("controller_leader", "The controller that leads the pool", leads_where.clone());
        leads_where.get_or_create(&OfController { address: address.to_owned() }).set(1);
    }
    if let Some(desk) = desk {
        of_pool(&mut registry, &desk.pool);
        sessions::register(&mut registry, desk);
    }
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

fn of_pool(registry: &mut Registry, pool: &Pool) {
    let gpu = |registry: &mut Registry, name: &str, help: &str, unit: Option<Unit>| {
        let family = Family::<OfGpu, Gauge>::default();
        match unit {
            Some(unit) => registry.register_with_unit(name, help, unit, family.clone()),
            None => registry.register(name, help, family.clone()),
        }
        family
    };
    let memory = gpu(registry, "gpu_memory", "Memory that vGPUs of the GPU may have", Some(Unit::Bytes));
    let free = gpu(registry, "gpu_memory_free", "Memory that no vGPU has", Some(Unit::Bytes));
    let ratio = gpu(registry, "gpu_ratio_free_percent", "Time of the GPU that no vGPU has", None);
    let vgpus = gpu(registry, "gpu_vgpus", "vGPUs that the GPU is split into", None);
    let vgpus_free = gpu(registry, "gpu_vgpus_free", "vGPUs that nobody has", None);
    let kept = gpu(registry, "gpu_vgpus_reserve", "More vGPUs, which are the node's own reserve", None);
    let lent = gpu(registry, "gpu_vgpus_reserve_lent", "Those of the reserve that the node has lent", None);
    for device in devices(pool) {
        let of = OfGpu { node: device.node, gpu: device.gpu, uuid: device.uuid, name: device.name };
        memory.get_or_create(&of).set(device.memory_bytes as i64);
        free.get_or_create(&of).set(device.free_bytes as i64);
        ratio.get_or_create(&of).set(device.free_ratio.into());
        vgpus.get_or_create(&of).set(device.vgpus.into());
        vgpus_free.get_or_create(&of).set(device.free_vgpus.into());
        kept.get_or_create(&of).set(device.reserve_vgpus.into());
        lent.get_or_create(&of).set(device.reserve_lent.into());
    }
    let nodes = Family::<OfNode, Gauge>::default();
    registry.register("node", "Nodes that have registered, by what may be placed there", nodes.clone());
    for node in pool.nodes() {
        let standing = if node.is_lost { "lost".to_owned() } else { format!("{:?}", node.standing).to_lowercase() };
        nodes.get_or_create(&OfNode { node: node.report.name.clone(), standing }).set(1);
    }
    let (held, held_memory) = (Family::<OfTenant, Gauge>::default(), Family::<OfTenant, Gauge>::default());
    registry.register("tenant_vgpus", "vGPUs that the tenant has", held.clone());
    registry.register_with_unit("tenant_memory", "Memory of the tenant's vGPUs", Unit::Bytes, held_memory.clone());
    for allocation in pool.allocations() {
        let of = OfTenant { tenant: allocation.ask.tenant.clone() };
        held.get_or_create(&of).inc_by(allocation.places.len() as i64);
        held_memory.get_or_create(&of).inc_by(allocation.places.iter().map(|p| p.memory as i64).sum());
    }
    let (allocations, waiting) = (Gauge::<i64>::default(), Gauge::<i64>::default());
    allocations.set(pool.allocations().count() as i64);
    waiting.set(pool.waiting().count() as i64);
    registry.register("allocations", "Allocations that stand", allocations);
    registry.register("clients_waiting", "Clients that wait for room", waiting);
}
