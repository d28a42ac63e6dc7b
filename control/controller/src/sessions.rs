//! Metrics of each session of the pool, with whom it is for: what its node has last said.

use std::sync::atomic::AtomicU64;

use orion_pool::{Allocation, Lease, Place};
use orion_telemetry::events::{Event, Unit, of_class, of_session};
use orion_telemetry::report::{Report, Session};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit as Of};

use crate::desk::Desk;
use crate::leases::nodes_of;

/// Characters of what a client says of itself.
const CLIENT_CHARS_MAX: usize = 64;

/// As labels. There are as many values as allocations, and as nodes of each.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Who {
    /// The part of its name by which it cannot be ended.
    allocation: String,
    node: String,
    client: String,
    tenant: String,
    group: String,
    pod: String,
}

type Counters = Family<Who, Counter<f64, AtomicU64>>;
type Gauges = Family<Who, Gauge<f64, AtomicU64>>;

pub fn register(registry: &mut Registry, desk: &Desk) {
    let [limit, used, target] = gauges(registry);
    let of_session = of_session::ALL.iter().filter(|event| matches!(event.unit, Unit::Nanoseconds | Unit::Count));
    let of_session: Vec<(Event, Counters)> = of_session.map(|event| (*event, counter(registry, *event))).collect();
    let of_classes = [of_class::CALLS, of_class::BYTES].map(|event| (event, counter(registry, event)));
    let confirmed = desk.pool.allocations().filter(|a| a.lease == Lease::Confirmed);
    for (allocation, node) in confirmed.flat_map(|a| nodes_of(a).into_iter().map(move |node| (a, node))) {
        let session = session(desk, allocation, node);
        let who = who(allocation, node, session.as_ref());
        let here: Vec<&Place> = allocation.places.iter().filter(|place| place.node == *node).collect();
        limit.get_or_create(&who).set(here.iter().map(|place| place.memory as f64).sum());
        if let Some(used_here) = desk.used.get(&allocation.id).and_then(|of_nodes| of_nodes.get(node)) {
            used.get_or_create(&who).set(used_here.iter().map(|bytes| *bytes as f64).sum());
        }
        if let Some(place) = here.first() {
            target.get_or_create(&who).set(f64::from(place.ratio) / 100.0);
        }
        let Some(session) = session else { continue };
        for (event, family) in &of_classes {
            family.get_or_create(&who).inc_by(session.sum(*event) as f64);
        }
        for (event, family) in &of_session {
            let scale = if event.unit == Unit::Nanoseconds { 1e9 } else { 1.0 };
            if let Some(value) = session.told(*event) {
                family.get_or_create(&who).inc_by(value as f64 / scale);
            }
        }
    }
}

/// What a node has last said of the session that a program has there.
fn session(desk: &Desk, allocation: &Allocation, node: &String) -> Option<Session> {
    let text = desk.reports.get(&allocation.id)?.get(node)?;
    serde_json::from_str::<Report>(text).ok()?.sessions.into_iter().next()
}

/// What may be used of memory, what is, and what part of a GPU's time is meant.
fn gauges(registry: &mut Registry) -> [Gauges; 3] {
    let [limit, used, target] = [(); 3].map(|()| Gauges::default());
    let bytes = || Of::Bytes;
    registry.register_with_unit("allocation_memory_limit", "device memory that it may use", bytes(), limit.clone());
    registry.register_with_unit("allocation_memory_used", "device memory that it uses", bytes(), used.clone());
    let what = "part of a GPU's time of each of its vGPUs";
    registry.register("allocation_share_target_ratio", what, target.clone());
    [limit, used, target]
}

fn counter(registry: &mut Registry, event: Event) -> Counters {
    let family = Counters::default();
    let name = if event == of_class::BYTES { "moved" } else { event.name };
    let name = format!("allocation_{name}");
    match event.unit {
        Unit::Nanoseconds => registry.register_with_unit(name, event.what, Of::Seconds, family.clone()),
        Unit::Bytes => registry.register_with_unit(name, event.what, Of::Bytes, family.clone()),
        _ => registry.register(name, event.what, family.clone()),
    }
    family
}

fn who(allocation: &Allocation, node: &str, session: Option<&Session>) -> Who {
    let cut = |text: &str| text.chars().take(CLIENT_CHARS_MAX).collect::<String>();
    Who {
        allocation: allocation.id.to_string().chars().take(8).collect(),
        node: node.to_owned(),
        client: cut(&allocation.ask.client),
        tenant: cut(&allocation.ask.tenant),
        group: cut(&allocation.ask.group),
        pod: session.and_then(|session| session.client.pod.clone()).unwrap_or_default(),
    }
}
