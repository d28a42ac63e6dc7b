//! What is asked over plain HTTP, on the same port: by the original's tools, by Prometheus, by whoever wants to know
//! whether the controller is well.

use std::collections::HashMap;

use axum::Router;
use axum::extract::{Query, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use orion_pool::pool::Pool;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::desk::Counter;
use crate::service::devices;

/// What the original's controllers of 2020 answered.
const VERSIONS: &str = "api_version=0.2,data_version=0.2";
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub fn routes(counter: Counter) -> Router {
    Router::new()
        .route("/info", get(|| async { VERSIONS }))
        .route("/devices", get(free_or_all))
        .route("/healthz", get(health))
        .route("/metrics", get(metrics))
        .with_state(counter)
}

/// What is at no path: gRPC has a status of its own for that.
pub async fn nothing(request: Request) -> Response {
    let content = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if content.is_some_and(|content| content.starts_with("application/grpc")) {
        let text = format!("there is no call {}; is the client of another version?", request.uri().path());
        return tonic::Status::unimplemented(text).into_http::<axum::body::Body>();
    }
    (StatusCode::NOT_FOUND, "there are /info, /devices, /healthz and /metrics\n").into_response()
}

fn unavailable(why: String) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response()
}

/// `/devices?res=nvidia_cuda` is the number of vGPUs, with `used=true` that of those that are free: the original's
/// orion-check prints it as that.
async fn free_or_all(State(counter): State<Counter>, Query(query): Query<HashMap<String, String>>) -> Response {
    if let Some(other) = query.get("res").filter(|res| *res != "nvidia_cuda") {
        return (StatusCode::BAD_REQUEST, format!("res is {other:?}; it is nvidia_cuda\n")).into_response();
    }
    let wants_free = query.get("used").is_some_and(|used| used == "true");
    let count = counter.ask(move |d| {
        let count = |device: &orion_proto::Device| if wants_free { device.free_vgpus } else { device.vgpus };
        devices(&d.pool).iter().map(count).sum::<u32>()
    });
    match count.await {
        Ok(count) => format!("nvidia_cuda={count}").into_response(),
        Err(why) => unavailable(why),
    }
}

async fn health(State(counter): State<Counter>) -> Response {
    match counter.ask(|d| d.trouble.clone()).await {
        Ok(None) => "ok\n".into_response(),
        Ok(Some(why)) | Err(why) => unavailable(why),
    }
}

async fn metrics(State(counter): State<Counter>) -> Response {
    match counter.ask(|d| text(&d.pool)).await {
        Ok(Ok(text)) => ([(header::CONTENT_TYPE, OPENMETRICS)], text).into_response(),
        Ok(Err(e)) => (StatusCode::INTERNAL_SERVER_ERROR, e.to_string()).into_response(),
        Err(why) => unavailable(why),
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

/// As it is at this moment: nothing is counted between two questions.
fn text(pool: &Pool) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::with_prefix("orion");
    let gpu = |registry: &mut Registry, name: &str, help: &str, unit: Option<Unit>| {
        let family = Family::<OfGpu, Gauge>::default();
        match unit {
            Some(unit) => registry.register_with_unit(name, help, unit, family.clone()),
            None => registry.register(name, help, family.clone()),
        }
        family
    };
    let memory = gpu(&mut registry, "gpu_memory", "Memory that vGPUs of the GPU may have", Some(Unit::Bytes));
    let free = gpu(&mut registry, "gpu_memory_free", "Memory that no vGPU has", Some(Unit::Bytes));
    let ratio = gpu(&mut registry, "gpu_ratio_free_percent", "Time of the GPU that no vGPU has", None);
    let vgpus = gpu(&mut registry, "gpu_vgpus", "vGPUs that the GPU is split into", None);
    let vgpus_free = gpu(&mut registry, "gpu_vgpus_free", "vGPUs that nobody has", None);
    for device in devices(pool) {
        let of = OfGpu { node: device.node, gpu: device.gpu, uuid: device.uuid, name: device.name };
        memory.get_or_create(&of).set(device.memory_bytes as i64);
        free.get_or_create(&of).set(device.free_bytes as i64);
        ratio.get_or_create(&of).set(device.free_ratio.into());
        vgpus.get_or_create(&of).set(device.vgpus.into());
        vgpus_free.get_or_create(&of).set(device.free_vgpus.into());
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
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}
