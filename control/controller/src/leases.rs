//! Leases: what an allocation allows one session, signed so that the node's oriond needs to ask nobody.

use std::time::{SystemTime, UNIX_EPOCH};

use orion_pool::AllocationId;
use orion_transport::lease::{Instance, SignedLease};
use orion_wire::lease::{Lease, LeaseId, Vgpu};

use crate::desk::Desk;

/// As a node has reported it.
pub fn instance(text: &str) -> Option<Instance> {
    text.parse().ok().map(|LeaseId(bytes)| bytes)
}

pub fn now_unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// A session's lease; the error says why there is none, and what to try.
pub fn sign(desk: &Desk, id: AllocationId) -> Result<SignedLease, String> {
    let Desk { pool, now, master, .. } = desk;
    let allocation = pool.allocation(id).ok_or_else(|| format!("allocation {id} is over"))?;
    let node = &allocation.places[0].node;
    if allocation.places.iter().any(|place| place.node != *node) {
        return Err("vGPUs of several nodes cannot be used by one program yet; ask for those of one".to_owned());
    }
    let report = pool.nodes().find(|n| n.report.name == *node).map(|n| &n.report);
    let Some(instance) = report.and_then(|report| instance(&report.oriond)) else {
        return Err(format!(
            "node {node} has reported GPUs and no oriond that knows leases; is orion-agent running there?"
        ));
    };
    let vgpus = allocation.places.iter().map(|place| Vgpu {
        gpu: place.gpu.clone(),
        memory_bytes: place.memory,
        ratio: place.ratio,
    });
    let lease = Lease {
        id: LeaseId(id.0.to_be_bytes()),
        node: node.clone(),
        tenant: allocation.ask.tenant.clone(),
        begins_before_unix_ms: now_unix_ms() + allocation.until.saturating_sub(*now),
        vgpus: vgpus.collect(),
    };
    Ok(master.key_of(node, &instance).sign(&lease))
}
