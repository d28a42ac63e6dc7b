//! Nodes and their GPUs, and how much of each is free.

use std::collections::BTreeSet;
use std::ops::Range;

use orion_wire::address::{Carrier, Server};
use orion_wire::text::acts;
use serde::{Deserialize, Serialize};

use crate::allocation::Place;
use crate::ask::{Ask, Invalid, MEMORY_MAX, TEXT_BYTES_MAX};
use crate::quote::quoted;
use crate::units::{MIB, Time};

pub const VGPUS_OF_A_GPU_MAX: u32 = 100;
pub const GPUS_MAX: usize = 64;
/// One by each carrier that there is, and more.
pub const FURTHER_MAX: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    pub uuid: String,
    pub name: String,
    /// In bytes, of all vGPUs together.
    pub memory: u64,
    /// What a vGPU takes besides its own memory: its context, and what the driver keeps with it.
    pub reserve: u64,
}

/// What a node says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    pub name: String,
    /// Where its oriond listens, as clients write it. Who names no carrier is sent there.
    pub address: String,
    /// And where else, each by another carrier, for who names that one.
    #[serde(default)]
    pub further: Vec<String>,
    pub gpus: Vec<Gpu>,
    /// vGPUs that each of its GPUs is split into, `vgpu_count`.
    pub split: u32,
    /// Which oriond serves there: another number after each of its starts, 32 hexadecimal digits. Empty if nobody has
    /// said it; then nobody can be given a lease for the node.
    #[serde(default)]
    pub oriond: String,
    /// vGPUs of each GPU, the last ones, that are the node's own reserve: it lends them by itself while it reaches no
    /// controller, and no controller ever does.
    #[serde(default)]
    pub kept: u32,
    /// SHA-256 of the certificate that its oriond shows over a network, 64 hexadecimal digits. Empty if it shows none.
    #[serde(default)]
    pub certificate: String,
}

/// Who lends what of a node. The two have no vGPU, no byte and no percent in common, so neither has to know what the
/// other one does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lender {
    /// All but the reserve.
    #[default]
    Controller,
    /// The reserve.
    Node,
}

impl NodeReport {
    pub fn check(&self) -> Result<(), Invalid> {
        let wrong = |text: String| Err(Invalid(text));
        if self.name.is_empty() || self.name.len() > 253 || self.name.chars().any(|c| acts(c) || c == '/') {
            return wrong(format!("{} is no name of a node", quoted(&self.name)));
        }
        let is_number = self.oriond.len() == 32 && self.oriond.bytes().all(|b| b.is_ascii_hexdigit());
        if !self.oriond.is_empty() && !is_number {
            return wrong(format!("{} is no number of an oriond: 32 hexadecimal digits", quoted(&self.oriond)));
        }
        let is_hash = self.certificate.len() == 64 && self.certificate.bytes().all(|b| b.is_ascii_hexdigit());
        if !self.certificate.is_empty() && !is_hash {
            return wrong(format!(
                "{} is no fingerprint of a certificate: 64 hexadecimal digits",
                quoted(&self.certificate)
            ));
        }
        if self.split == 0 || self.split > VGPUS_OF_A_GPU_MAX {
            return wrong(format!("vgpu_count is {}; it is 1 to {VGPUS_OF_A_GPU_MAX}", self.split));
        }
        if self.kept >= self.split {
            return wrong(format!(
                "reserve is {} of {} vGPUs of each GPU; leave the controller one at least",
                self.kept, self.split
            ));
        }
        if self.gpus.len() > GPUS_MAX {
            return wrong(format!("{} GPUs of one node; at most {GPUS_MAX} are managed", self.gpus.len()));
        }
        let texts = self.gpus.iter().flat_map(|gpu| [("UUID of a GPU", &gpu.uuid), ("name of a GPU", &gpu.name)]);
        if self.further.len() > FURTHER_MAX {
            let count = self.further.len();
            return wrong(format!("{count} further addresses of one oriond; at most {FURTHER_MAX} are told"));
        }
        let addresses = [&self.address].into_iter().chain(&self.further).map(|text| ("address of an oriond", text));
        for (what, text) in texts.chain(addresses) {
            if text.len() > TEXT_BYTES_MAX || text.chars().any(acts) {
                return wrong(format!(
                    "{} is no {what}: it is longer than {TEXT_BYTES_MAX} bytes or holds control characters",
                    quoted(text)
                ));
            }
        }
        self.check_carriers()?;
        let uuids: BTreeSet<&str> = self.gpus.iter().map(|g| g.uuid.as_str()).collect();
        if uuids.len() != self.gpus.len() {
            return wrong(format!("two GPUs of node {} have one UUID", self.name));
        }
        for gpu in &self.gpus {
            if gpu.memory > MEMORY_MAX {
                return wrong(format!(
                    "GPU {} has {} bytes of memory, and no GPU has more than {MEMORY_MAX}",
                    gpu.uuid, gpu.memory
                ));
            }
            if gpu.memory <= gpu.reserve {
                return wrong(format!(
                    "GPU {} has {} bytes of memory, and a vGPU keeps {} for itself",
                    gpu.uuid, gpu.memory, gpu.reserve
                ));
            }
        }
        Ok(())
    }

    /// Each further address leads there, by a carrier of its own.
    fn check_carriers(&self) -> Result<(), Invalid> {
        let is_of_a_pool = |server: &Server| server.carrier.leads_to.is_of_a_pool();
        let first = Server::parse(&self.address).ok();
        if let Some(server) = first.as_ref().filter(|server| !is_of_a_pool(server)) {
            return Err(Invalid(not_of_a_pool(server)));
        }
        let mut carriers: Vec<&str> = first.iter().map(Server::transport).collect();
        for text in &self.further {
            let server = Server::parse(text).map_err(|why| Invalid(format!("a further address of oriond: {why}")))?;
            if !is_of_a_pool(&server) {
                return Err(Invalid(not_of_a_pool(&server)));
            }
            let name = server.transport();
            if carriers.contains(&name) {
                return Err(Invalid(format!(
                    "{} is a second address of one oriond by {name}; leave one of them out",
                    quoted(text)
                )));
            }
            carriers.push(name);
        }
        Ok(())
    }

    /// The carriers by which it is reached.
    fn carriers(&self) -> Vec<&'static Carrier> {
        let all = [&self.address].into_iter().chain(&self.further);
        all.filter_map(|text| Server::parse(text).ok()).map(|server| server.carrier).collect()
    }

    /// By which address a program reaches it that wants this carrier, or has no wish.
    pub fn address_by(&self, carrier: &str) -> Option<&str> {
        let leads_there = |text: &&String| Server::parse(text).is_ok_and(|server| server.carrier.name == carrier);
        match carrier {
            "" => Some(&self.address),
            _ => [&self.address].into_iter().chain(&self.further).find(leads_there).map(String::as_str),
        }
    }

    /// Memory, ratio and slots that a lender has of a GPU while nobody has anything of him.
    fn whole(&self, gpu: &Gpu, lender: Lender) -> (u64, u32, Range<u32>) {
        let first_kept = self.split - self.kept;
        let memory = gpu.memory / u64::from(self.split) * u64::from(self.kept);
        let ratio = 100 / self.split * self.kept;
        match lender {
            Lender::Controller => (gpu.memory - memory, 100 - ratio, 0..first_kept),
            Lender::Node => (memory, ratio, first_kept..self.split),
        }
    }
}

fn not_of_a_pool(server: &Server) -> String {
    let address = server.to_string();
    let address = quoted(&address);
    format!("{address} leads from a virtual machine to its host's oriond; no node of a pool is reached by it")
}

/// Whether new vGPUs may lie on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Standing {
    Up,
    /// An operator wants it empty: what runs there goes on, nothing new comes.
    Draining,
}

#[derive(Debug, Clone)]
pub struct Node {
    pub report: NodeReport,
    pub standing: Standing,
    /// Has not been heard of for a while.
    pub is_lost: bool,
    /// Nor for a whole lease, after which nothing that it had stands: nobody waits for it any more.
    pub is_given_up: bool,
    pub seen: Time,
    /// By which it is reached, as the report's addresses say.
    carriers: Vec<&'static Carrier>,
    /// Of each GPU, as they stand in the report.
    free: Vec<Free>,
}

/// What is left of a GPU.
#[derive(Debug, Clone)]
pub struct Free {
    pub memory: u64,
    pub ratio: u32,
    slots: BTreeSet<u32>,
}

impl Free {
    pub fn slots(&self) -> usize {
        self.slots.len()
    }
}

impl Node {
    pub fn new(report: NodeReport, standing: Standing, now: Time, lender: Lender) -> Node {
        let whole = |gpu| {
            let (memory, ratio, slots) = report.whole(gpu, lender);
            Free { memory, ratio, slots: slots.collect() }
        };
        let free = report.gpus.iter().map(whole).collect();
        let carriers = report.carriers();
        Node { report, standing, is_lost: false, is_given_up: false, seen: now, carriers, free }
    }

    pub fn takes_more(&self) -> bool {
        self.standing == Standing::Up && !self.is_lost
    }

    /// Whoever has no wish reaches it.
    pub fn is_reached_by(&self, carrier: &str) -> bool {
        carrier.is_empty() || self.carriers.iter().any(|one| one.name == carrier)
    }

    pub fn gpu(&self, uuid: &str) -> Option<&Gpu> {
        self.report.gpus.iter().find(|g| g.uuid == uuid)
    }

    pub(crate) fn takes_more_of(&self, ask: &Ask) -> bool {
        self.takes_more() && self.is_reached_by(&ask.carrier)
    }

    /// Whether it may take it one day: a node that is lost for a moment comes back.
    pub(crate) fn is_expected_to_take(&self, ask: &Ask) -> bool {
        self.standing == Standing::Up && !self.is_given_up && self.is_reached_by(&ask.carrier)
    }

    /// With room on these of its GPUs alone.
    pub(crate) fn only(&self, numbers: &BTreeSet<usize>) -> Node {
        let mut node = self.clone();
        for (_, free) in node.free.iter_mut().enumerate().filter(|(number, _)| !numbers.contains(number)) {
            free.slots.clear();
        }
        node
    }

    /// How much of it is free, in thousandths of a GPU: of time or of memory, whichever is less.
    pub(crate) fn freedom(&self) -> u64 {
        (0..self.report.gpus.len()).map(|number| self.freedom_of(number)).sum()
    }

    /// Of the GPU with this number.
    pub(crate) fn freedom_of(&self, number: usize) -> u64 {
        let free = self.free(number);
        // In MiB, so that the product fits.
        let memory = (free.memory >> 20) * 1000 / (self.report.gpus[number].memory >> 20).max(1);
        memory.min(free.ratio as u64 * 10)
    }

    /// Whether there can be room for so many vGPUs, without a look at their size.
    pub(crate) fn has_slots(&self, count: u32) -> bool {
        self.free.iter().map(Free::slots).sum::<usize>() >= count as usize
    }

    /// What is left of the GPU with this number.
    pub fn free(&self, number: usize) -> &Free {
        &self.free[number]
    }

    pub fn number(&self, uuid: &str) -> Option<usize> {
        self.report.gpus.iter().position(|g| g.uuid == uuid)
    }

    /// Memory (without the reserve) and ratio that a vGPU of this ask has on this GPU.
    pub fn size(&self, gpu: &Gpu, ask: &Ask) -> (u64, u32) {
        let share = gpu.memory / self.report.split as u64;
        let memory = ask.memory.unwrap_or(share.saturating_sub(gpu.reserve) / MIB * MIB);
        (memory, ask.ratio.unwrap_or(100 / self.report.split))
    }

    /// How many vGPUs of this ask the GPU has room for.
    pub fn room(&self, number: usize, ask: &Ask) -> u32 {
        let free = &self.free[number];
        self.room_of(&self.report.gpus[number], free.memory, free.ratio, free.slots.len(), ask)
    }

    /// And if nobody had anything of it.
    pub(crate) fn whole_room(&self, gpu: &Gpu, lender: Lender, ask: &Ask) -> u32 {
        let (memory, ratio, slots) = self.report.whole(gpu, lender);
        self.room_of(gpu, memory, ratio, slots.len(), ask)
    }

    fn room_of(&self, gpu: &Gpu, memory_free: u64, ratio_free: u32, slots_free: usize, ask: &Ask) -> u32 {
        let (memory, ratio) = self.size(gpu, ask);
        if memory == 0 {
            return 0;
        }
        let by_memory = memory_free / memory.saturating_add(gpu.reserve);
        (by_memory.min(slots_free as u64) as u32).min(ratio_free / ratio)
    }

    /// Takes room for one more on the GPU with this number.
    pub(crate) fn take(&mut self, number: usize, ask: &Ask) -> Place {
        let gpu = self.report.gpus[number].clone();
        let (memory, ratio) = self.size(&gpu, ask);
        let free = &mut self.free[number];
        let slot = free.slots.pop_first().expect("there was room");
        free.memory -= memory + gpu.reserve;
        free.ratio -= ratio;
        let (node, number, reserve) = (self.report.name.clone(), number as u32, gpu.reserve);
        Place { node, gpu: gpu.uuid, number, slot, memory, reserve, ratio }
    }

    /// What a place had taken is free again.
    pub(crate) fn give_back(&mut self, place: &Place) {
        let number = self.number(&place.gpu).expect("places lie on GPUs that are there");
        let free = &mut self.free[number];
        free.memory += place.memory + place.reserve;
        free.ratio += place.ratio;
        free.slots.insert(place.slot);
    }

    /// Takes exactly this room, which an allocation has that is older than what is known of the node. False if it is
    /// not there any more.
    pub(crate) fn take_again(&mut self, place: &Place) -> bool {
        let Some(number) = self.number(&place.gpu) else { return false };
        let free = &mut self.free[number];
        let fits = free.memory >= place.memory + place.reserve && free.ratio >= place.ratio;
        if !fits || !free.slots.remove(&place.slot) {
            return false;
        }
        free.memory -= place.memory + place.reserve;
        free.ratio -= place.ratio;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(address: &str, further: &[&str]) -> NodeReport {
        let text = |text: &str| text.to_owned();
        NodeReport {
            name: text("a"),
            address: text(address),
            further: further.iter().copied().map(text).collect(),
            gpus: Vec::new(),
            split: 1,
            oriond: String::new(),
            kept: 0,
            certificate: String::new(),
        }
    }

    #[test]
    fn further_addresses_lead_there_each_by_a_carrier_of_its_own() {
        assert_eq!(report("a:1", &["rdma:a:2", "unix:/run/a"]).check(), Ok(()));
        for (address, further, words) in [
            ("a:1", &["rdma:a"][..], "a further address of oriond: server address \"rdma:a\""),
            ("a:1", &["tcp:a:2"], "\"tcp:a:2\" is a second address of one oriond by tcp"),
            ("a:1", &["rdma:a:2", "rdma:b:2"], "\"rdma:b:2\" is a second address of one oriond by rdma"),
            ("a:1", &["ivshmem:"], "\"ivshmem:\" leads from a virtual machine"),
            ("vsock:2:7411", &[], "\"vsock:2:7411\" leads from a virtual machine"),
        ] {
            let Invalid(why) = report(address, further).check().expect_err(words);
            assert!(why.contains(words), "{why}");
        }
    }

    #[test]
    fn a_gpu_with_more_memory_than_any_has_is_refused() {
        let with = |memory, reserve| {
            let gpu = Gpu { uuid: "u".to_owned(), name: "g".to_owned(), memory, reserve };
            NodeReport { gpus: vec![gpu], ..report("a:1", &[]) }.check()
        };
        assert_eq!(with(MEMORY_MAX, 0), Ok(()));
        for (memory, reserve) in [(MEMORY_MAX + 1, 0), (u64::MAX, 0), (u64::MAX, u64::MAX - 1)] {
            let Invalid(why) = with(memory, reserve).expect_err("no GPU has that");
            assert!(why.contains("no GPU has more than"), "{why}");
        }
    }

    #[test]
    fn a_node_is_reached_by_the_carriers_of_its_addresses() {
        let node = Node::new(report("a:1", &["rdma:a:2"]), Standing::Up, 0, Lender::Controller);
        let reached = ["", "tcp", "rdma", "shm"].map(|carrier| node.is_reached_by(carrier));
        assert_eq!(reached, [true, true, true, false]);
    }
}
