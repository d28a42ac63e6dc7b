//! Leases: what an allocation allows one session, signed so that the node's oriond needs to ask nobody.

use std::time::{SystemTime, UNIX_EPOCH};

use orion_pool::{Allocation, AllocationId};
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

/// A lease, and the oriond that it is for, as the node has reported it last: a moment later it may be another one.
pub struct Signed {
    pub lease: SignedLease,
    /// SHA-256 of what the oriond shows over a network; empty if it shows nothing.
    pub certificate: String,
}

/// The leases of a program's sessions, one on each node that its vGPUs lie on, in their order; the error says why there
/// are none, and what to try.
pub fn sign(desk: &Desk, id: AllocationId) -> Result<Vec<Signed>, String> {
    let allocation = desk.pool.allocation(id).ok_or_else(|| format!("allocation {id} is over"))?;
    let until = now_unix_ms() + allocation.until.saturating_sub(desk.now);
    nodes_of(allocation).into_iter().map(|node| sign_for(desk, allocation, node, until)).collect()
}

/// Leases of what was not given: with them one sees the vGPUs, and no session begins, for they ran out long ago.
pub fn sign_to_look(desk: &Desk, would: &Allocation) -> Result<Vec<Signed>, String> {
    nodes_of(would).into_iter().map(|node| sign_for(desk, would, node, 0)).collect()
}

/// In the order in which the program counts its vGPUs, which lie together by node.
pub fn nodes_of(allocation: &Allocation) -> Vec<&String> {
    let mut nodes: Vec<&String> = allocation.places.iter().map(|place| &place.node).collect();
    nodes.dedup();
    nodes
}

fn sign_for(desk: &Desk, allocation: &Allocation, node: &String, begins_before_unix_ms: u64) -> Result<Signed, String> {
    let Desk { pool, master, .. } = desk;
    let report = pool.nodes().find(|n| n.report.name == *node).map(|n| &n.report);
    let known = report.and_then(|report| Some((instance(&report.oriond)?, report.certificate.clone())));
    let Some((instance, certificate)) = known else {
        return Err(format!(
            "node {node} has reported GPUs and no oriond that knows leases; is orion-agent running there?"
        ));
    };
    let here = allocation.places.iter().filter(|place| place.node == *node);
    let vgpus = here.map(|place| Vgpu { gpu: place.gpu.clone(), memory_bytes: place.memory, ratio: place.ratio });
    let lease = Lease {
        id: LeaseId(allocation.id.0.to_be_bytes()),
        node: node.clone(),
        tenant: allocation.ask.tenant.clone(),
        begins_before_unix_ms,
        vgpus: vgpus.collect(),
    };
    Ok(Signed { lease: master.key_of(node, &instance).sign(&lease), certificate })
}
