//! The sessions of this process, nearly always one: what each is made of, and how far it has come.

// UNSAFETY: publishes leaked objects through atomic pointers.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Condvar, OnceLock};

use orion_cuda::sys::*;
use orion_ring::{Heap, Memory, Producer};
use orion_transport::holes::Holes;
use orion_wire::Pages;
use orion_wire::hello::{Device, Welcome};
use orion_wire::view::Offer;

use crate::state::carrier::Carrier;
use crate::state::graph_copies::GraphCopies;
use crate::state::graph_launches::GraphLaunches;
use crate::state::heap::HeapAllocator;
use crate::state::host_memory::HostMemory;
use crate::state::in_step::InStep;
use crate::state::lock::{Lock, Rank};
use crate::state::memory_file::MemoryFile;
use crate::state::on_the_way::OnTheWay;
use crate::state::replies::Replies;
use crate::state::service::Service;
use crate::state::sources::Sources;

/// One process has vGPUs of so many nodes at most.
pub const SESSIONS_MAX: usize = orion_wire::handle::OWNERS_MAX;

pub struct Attachment {
    /// Calls of this process whose reply was waited for. Posted commands do not come by here.
    pub answered: AtomicU64,
    /// The only session there is. Where there are several this stays null, so that nobody pays for them who has one.
    pub published: AtomicPtr<Session>,
    /// All of them, by number.
    sessions: [AtomicPtr<Session>; SESSIONS_MAX],
    /// Attaching may come before `cuInit` (`cuDriverGetVersion` needs the worker's answer); nothing else works then.
    pub initialized: AtomicBool,
    pub attaching: Lock<()>,
    pub refusal: OnceLock<CUresult>,
    /// What was said of the devices before there was a session, and what its own servers have said.
    pub greeted: OnceLock<Result<Greeted, CUresult>>,
    pub own: OnceLock<Greeted>,
}

impl Attachment {
    pub const fn new() -> Attachment {
        Attachment {
            answered: AtomicU64::new(0),
            published: AtomicPtr::new(std::ptr::null_mut()),
            sessions: [const { AtomicPtr::new(std::ptr::null_mut()) }; SESSIONS_MAX],
            initialized: AtomicBool::new(false),
            attaching: Lock::new(Rank::Attaching, ()),
            refusal: OnceLock::new(),
            greeted: OnceLock::new(),
            own: OnceLock::new(),
        }
    }

    /// The session with a number.
    pub fn get(&self, number: usize) -> Option<&'static Session> {
        // Acquire pairs with the stores in `publish`.
        let p = self.sessions.get(number)?.load(Ordering::Acquire);
        // SAFETY: a published session is never freed.
        unsafe { p.as_ref() }
    }

    pub fn all(&self) -> impl Iterator<Item = &'static Session> {
        (0..SESSIONS_MAX).map_while(|number| self.get(number))
    }

    /// Whether this process has more than one.
    pub fn several(&self) -> bool {
        self.get(1).is_some()
    }

    pub fn publish(&self, sessions: &[&'static Session]) {
        // The first one last: who finds it finds the others.
        for (place, s) in self.sessions.iter().zip(sessions).rev() {
            place.store(std::ptr::from_ref(*s).cast_mut(), Ordering::Release);
        }
        if let [only] = sessions {
            self.published.store(std::ptr::from_ref(*only).cast_mut(), Ordering::Release);
        }
    }

    /// What their servers say, as of one.
    pub fn greeting(&self) -> Greeted {
        Greeted::of(self.all().map(|s| Greeted::from(&s.welcome)).collect())
    }
}

/// Everything that exists once `cuInit` has succeeded.
pub struct Session {
    /// Which of this process's sessions it is.
    pub number: usize,
    /// Where its oriond listens, for messages.
    pub server: String,
    pub carrier: Carrier,
    pub service: Service,
    pub welcome: Welcome,
    pub heap: Heap,
    /// Stays open and mapped for the life of the process.
    pub _memory: Memory,
    /// What is behind heap and rings.
    pub memory_file: MemoryFile,
    /// Of the heap, where it is this side's alone.
    pub holes: Option<Holes>,
    pub heap_allocator: Lock<HeapAllocator>,
    /// Whether the heap is the worker's own or a copy that the carrier keeps up to date.
    pub pages: Pages,
    /// Wakes those who wait for staging memory.
    pub staging_released: Condvar,
    pub sender: Lock<Producer>,
    /// Records sent so far. Equal before and after means that nothing happened in between.
    pub sent: AtomicU64,
    /// Commands among them that the worker executes: what a carrier consumes on the way is not. And the last of those
    /// that may have given the device something to do.
    pub commands: AtomicU64,
    pub last_work: AtomicU64,
    pub replies: Replies,
    /// Event records handled by the service thread.
    pub events_handled: AtomicU64,
    // What its heap is used for.
    pub graph_copies: GraphCopies,
    pub graph_launches: GraphLaunches,
    pub host_memory: HostMemory,
    pub in_step: InStep,
    pub on_the_way: OnTheWay,
    pub sources: Sources,
}

/// What a server says of its devices and its driver.
pub struct Greeted {
    pub devices: Vec<Device>,
    pub driver_version: u32,
    pub peer_access: Vec<u8>,
}

impl From<Offer> for Greeted {
    fn from(Offer { driver_version, devices, peer_access }: Offer) -> Greeted {
        Greeted { devices, driver_version, peer_access }
    }
}

impl From<&Welcome> for Greeted {
    fn from(Welcome { driver_version, devices, peer_access, .. }: &Welcome) -> Greeted {
        Greeted { devices: devices.clone(), driver_version: *driver_version, peer_access: peer_access.clone() }
    }
}

impl Greeted {
    /// The devices of several servers, one server's behind another's. None reaches those of another server.
    pub fn of(all: Vec<Greeted>) -> Greeted {
        let owners: Vec<(usize, usize)> =
            all.iter().enumerate().flat_map(|(w, one)| (0..one.devices.len()).map(move |d| (w, d))).collect();
        let access = |(w, from): (usize, usize), (v, to): (usize, usize)| match w == v {
            true => all[w].peer_access[from * all[w].devices.len() + to],
            false => 0,
        };
        let mut devices: Vec<Device> = Vec::new();
        for (server, one) in all.iter().enumerate() {
            let theirs = one.devices.iter().cloned().map(|device| set_apart(device, server as u32, &devices));
            let theirs: Vec<Device> = theirs.collect();
            devices.extend(theirs);
        }
        Greeted {
            devices,
            driver_version: all.iter().map(|one| one.driver_version).min().unwrap_or(0),
            peer_access: owners.iter().flat_map(|from| owners.iter().map(|to| access(*from, *to))).collect(),
        }
    }

    /// How one can access another, of `PEER_*`. Nothing if there are no such devices.
    pub fn peer(&self, from: usize, to: usize) -> Option<u8> {
        let count = self.devices.len();
        (from < count && to < count).then(|| self.peer_access[from * count + to])
    }
}

/// Programs tell devices apart by UUID and by place, which two nodes may have the same: each numbers its own places,
/// and software GPUs are numbered alike everywhere.
fn set_apart(mut device: Device, server: u32, others: &[Device]) -> Device {
    const DOMAINS: u32 = 0x1000;
    if others.iter().any(|other| other.uuid == device.uuid) {
        device.uuid[0] ^= server as u8;
    }
    if others.iter().any(|other| other.pci_bus_id == device.pci_bus_id)
        && let Some((domain, rest)) = device.pci_bus_id.split_once(':')
    {
        let domain = u32::from_str_radix(domain, 16).unwrap_or(0) + DOMAINS * server;
        device.pci_bus_id = format!("{domain:04X}:{rest}");
        let values = device.attributes.iter_mut().filter(|(id, _)| *id == CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
        values.for_each(|(_, value)| *value = domain as i32);
    }
    device
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_two_servers_are_told_apart_and_are_no_peers() {
        let device = |bus: &str| Device {
            uuid: [7; 16],
            pci_bus_id: bus.to_owned(),
            attributes: vec![(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 0)],
            ..Device::default()
        };
        let greeted = |devices: Vec<Device>, driver_version| Greeted {
            peer_access: vec![1; devices.len() * devices.len()],
            devices,
            driver_version,
        };
        let first = || greeted(vec![device("0000:00:06.0"), device("0000:00:07.0")], 13_000);
        let second = greeted(vec![device("0000:00:06.0")], 12_080);
        let one = Greeted::of(vec![first()]);
        assert_eq!((&one.devices, &one.peer_access), (&first().devices, &first().peer_access));
        let both = Greeted::of(vec![first(), second]);
        assert_eq!(both.driver_version, 12_080);
        assert_eq!(both.peer_access, [1, 1, 0, 1, 1, 0, 0, 0, 1]);
        assert_eq!((both.peer(1, 0), both.peer(1, 2), both.peer(2, 3)), (Some(1), Some(0), None));
        let other = &both.devices[2];
        assert_eq!((other.pci_bus_id.as_str(), other.attributes[0].1, other.uuid[0]), ("1000:00:06.0", 0x1000, 6));
    }
}
