//! Metrics of each session of the pool, with whom it is for: what its node has last said.

use std::sync::atomic::AtomicU64;

use orion_pool::{Allocation, Lease};
use orion_telemetry::events::{Event, Unit, of_class, of_session};
use orion_telemetry::report::{Report, Session};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit as Of};

use crate::desk::Desk;

/// Characters of what a client says of itself.
const CLIENT_CHARS_MAX: usize = 64;

/// As labels. There are as many values as allocations.
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
    for allocation in desk.pool.allocations().filter(|a| a.lease == Lease::Confirmed) {
        let report = desk.reports.get(&allocation.id).and_then(|text| serde_json::from_str::<Report>(text).ok());
        let session = report.and_then(|report| report.sessions.into_iter().next());
        let who = who(allocation, session.as_ref());
        limit.get_or_create(&who).set(allocation.places.iter().map(|place| place.memory as f64).sum());
        if let Some(of_nodes) = desk.used.get(&allocation.id) {
            used.get_or_create(&who).set(of_nodes.values().flatten().map(|bytes| *bytes as f64).sum());
        }
        if let Some(place) = allocation.places.first() {
            target.get_or_create(&who).set(f64::from(place.ratio) / 100.0);
        }
        let Some(session) = session else { continue };
        for (event, family) in &of_classes {
            family.get_or_create(&who).inc_by(session.sum(*event) as f64);
        }
        for (event, family) in &of_session {
            let scale = if event.unit == Unit::Nanoseconds { 1e9 } else { 1.0 };
            family.get_or_create(&who).inc_by(session.counter(*event) as f64 / scale);
        }
    }
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

fn who(allocation: &Allocation, session: Option<&Session>) -> Who {
    let cut = |text: &str| text.chars().take(CLIENT_CHARS_MAX).collect::<String>();
    Who {
        allocation: allocation.id.to_string().chars().take(8).collect(),
        node: allocation.places.first().map(|place| place.node.clone()).unwrap_or_default(),
        client: cut(&allocation.ask.client),
        tenant: cut(&allocation.ask.tenant),
        group: cut(&allocation.ask.group),
        pod: session.and_then(|session| session.client.pod.clone()).unwrap_or_default(),
    }
}
