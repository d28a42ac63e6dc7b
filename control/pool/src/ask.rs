//! What somebody asks the pool for.

use orion_wire::address::{carrier, carrier_names};
use orion_wire::text::acts;
use serde::{Deserialize, Serialize};

use crate::quote::quoted;
use crate::units::MIB;

/// vGPUs of one program. More than any machine has is a mistake.
pub const VGPUS_MAX: u32 = 64;
pub const TEXT_BYTES_MAX: usize = 256;
/// Of one GPU, in bytes. More than any has is a mistake, and what a whole pool has is a number that fits.
pub const MEMORY_MAX: u64 = 1 << 44;

/// On which GPUs of a node the vGPUs of one allocation may lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Gpus {
    #[default]
    Any,
    /// All on one.
    Same,
    /// Each on one of its own.
    Distinct,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ask {
    /// `ORION_VGPU`.
    pub vgpus: u32,
    /// `ORION_GMEM`, of each, in bytes. Without it a vGPU has the share of its GPU that the node's split says.
    pub memory: Option<u64>,
    /// `ORION_RATIO`, of each, in percent of its GPU's time. Without it as for the memory.
    pub ratio: Option<u32>,
    /// `ORION_CROSS_NODE`: they may lie on several nodes.
    pub cross_node: bool,
    pub gpus: Gpus,
    /// Whose quota counts.
    pub tenant: String,
    /// `ORION_GROUP_ID`: what the program belongs to, such as a pod.
    pub group: String,
    /// `ORION_RES_GROUP=BOX`: on the GPUs on which the group has something already, if it has. A group is one tenant's.
    #[serde(default)]
    pub with_group: bool,
    /// `ORION_TRANSPORT`: on a node that is reached by this carrier. Empty is by whichever the node has.
    #[serde(default)]
    pub carrier: String,
    /// Host, process and program that ask. For people to read.
    pub client: String,
    /// How long to wait for room, in milliseconds; 0 is not at all.
    pub wait_ms: u64,
    /// What is offered stands on condition that the client's connection lasts until its session has begun.
    #[serde(default)]
    pub claims: bool,
}

/// What is wrong with an ask: the setting, its value, and what to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid(pub String);

impl Ask {
    pub fn check(&self) -> Result<(), Invalid> {
        let wrong = |text: String| Err(Invalid(text));
        if self.vgpus == 0 || self.vgpus > VGPUS_MAX {
            return wrong(format!("ORION_VGPU is {}; ask for 1 to {VGPUS_MAX} vGPUs", self.vgpus));
        }
        if let Some(memory) = self.memory
            && (memory == 0 || !memory.is_multiple_of(MIB))
        {
            return wrong(format!("{memory} bytes of memory are no whole number of MiB; set ORION_GMEM to one"));
        }
        if let Some(memory) = self.memory.filter(|memory| *memory > MEMORY_MAX) {
            let (asked, max) = (memory / MIB, MEMORY_MAX / MIB);
            return wrong(format!("ORION_GMEM is {asked} MiB of each vGPU, and no GPU has more than {max}"));
        }
        if let Some(ratio) = self.ratio
            && (ratio == 0 || ratio > 100)
        {
            return wrong(format!("ORION_RATIO is {ratio}; it is a percentage of a GPU's time, 1 to 100"));
        }
        if self.cross_node && self.ratio != Some(100) {
            let ratio = self.ratio.map_or("not set".to_owned(), |r| r.to_string());
            return wrong(format!("ORION_CROSS_NODE=1 needs ORION_RATIO=100, and it is {ratio}"));
        }
        if self.cross_node && self.gpus == Gpus::Same {
            return wrong("vGPUs on one GPU cannot lie on several nodes; leave out ORION_CROSS_NODE".to_owned());
        }
        if self.with_group && self.group.is_empty() {
            return wrong("ORION_RES_GROUP=BOX is about a group, and none is named; set ORION_GROUP_ID".to_owned());
        }
        if self.with_group && self.cross_node {
            return wrong("ORION_RES_GROUP=BOX and ORION_CROSS_NODE=1 contradict each other; unset one".to_owned());
        }
        if !self.carrier.is_empty() && carrier(&self.carrier).is_none() {
            return wrong(format!("ORION_TRANSPORT={} is none of {}", quoted(&self.carrier), carrier_names()));
        }
        if carrier(&self.carrier).is_some_and(|carrier| !carrier.leads_to.is_of_a_pool()) {
            return wrong(format!(
                "ORION_TRANSPORT={} leads from a virtual machine to its host's oriond, and no node of a pool is \
                 reached by it; set ORION_SERVER instead of a controller, or unset it",
                self.carrier
            ));
        }
        for (name, text) in [("tenant", &self.tenant), ("group", &self.group), ("client", &self.client)] {
            if text.len() > TEXT_BYTES_MAX || text.chars().any(acts) {
                return wrong(format!("the {name} is longer than {TEXT_BYTES_MAX} bytes or holds control characters"));
            }
        }
        Ok(())
    }
}

impl std::fmt::Display for Ask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} vGPU{}", self.vgpus, if self.vgpus == 1 { "" } else { "s" })?;
        let each = if self.vgpus == 1 { "" } else { " each" };
        match (self.memory, self.ratio) {
            (Some(m), Some(r)) => write!(f, " with {} MiB and {r} %{each}", m / MIB)?,
            (Some(m), None) => write!(f, " with {} MiB{each}", m / MIB)?,
            (None, Some(r)) => write!(f, " with {r} %{each}")?,
            (None, None) => {}
        }
        match (self.cross_node, self.gpus) {
            (true, Gpus::Distinct) => f.write_str(", each on a GPU of its own, on any nodes"),
            (true, _) => f.write_str(" on any nodes"),
            (false, Gpus::Any) => f.write_str(" on one node"),
            (false, Gpus::Same) => f.write_str(" on one GPU"),
            (false, Gpus::Distinct) => f.write_str(", each on a GPU of its own, on one node"),
        }?;
        if self.with_group {
            f.write_str(", on the GPUs of its group")?;
        }
        if self.carrier.is_empty() { Ok(()) } else { write!(f, ", reached by {}", self.carrier) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_refused_with_its_value() {
        let good = Ask { vgpus: 2, memory: Some(4096 * MIB), ratio: Some(50), ..Ask::default() };
        assert_eq!(good.check(), Ok(()));
        for (ask, said) in [
            (Ask { vgpus: 0, ..good.clone() }, "ORION_VGPU is 0"),
            (Ask { vgpus: 65, ..good.clone() }, "ORION_VGPU is 65"),
            (Ask { memory: Some(0), ..good.clone() }, "ORION_GMEM"),
            (Ask { memory: Some(MIB + 1), ..good.clone() }, "ORION_GMEM"),
            (Ask { memory: Some(MEMORY_MAX + MIB), ..good.clone() }, "ORION_GMEM is 16777217 MiB of each vGPU, and no"),
            (Ask { ratio: Some(0), ..good.clone() }, "ORION_RATIO is 0"),
            (Ask { ratio: Some(101), ..good.clone() }, "ORION_RATIO is 101"),
            (Ask { cross_node: true, ..good.clone() }, "needs ORION_RATIO=100, and it is 50"),
            (Ask { carrier: "pcie".into(), ..good.clone() }, "ORION_TRANSPORT=\"pcie\" is none of shm, tcp"),
            (Ask { carrier: "ivshmem".into(), ..good.clone() }, "ORION_TRANSPORT=ivshmem leads from a virtual"),
            (Ask { carrier: "vsock".into(), ..good.clone() }, "no node of a pool is reached by it"),
            (Ask { cross_node: true, ratio: None, ..good.clone() }, "it is not set"),
            (Ask { cross_node: true, ratio: Some(100), gpus: Gpus::Same, ..good.clone() }, "several nodes"),
            (Ask { with_group: true, ..good.clone() }, "set ORION_GROUP_ID"),
            (Ask { tenant: "a\nb".into(), ..good.clone() }, "the tenant"),
            (Ask { client: "x".repeat(257), ..good.clone() }, "the client"),
        ] {
            let Invalid(text) = ask.check().expect_err(said);
            assert!(text.contains(said), "{text}");
        }
    }
}
