//! The one session of this process: what it is made of, and how far it has come.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64};
use std::sync::{Condvar, OnceLock};

use orion_cuda::sys::*;
use orion_ring::{Heap, Producer};
use orion_wire::Pages;
use orion_wire::hello::{Device, Welcome};
use orion_wire::view::Offer;

use crate::state::heap::HeapAllocator;
use crate::state::lock::{Lock, Rank};
use crate::state::replies::Replies;

pub struct Attachment {
    /// Calls of this process whose reply was waited for. Posted commands do not come by here.
    pub answered: AtomicU64,
    pub published: AtomicPtr<Session>,
    /// Attaching may come before `cuInit` (`cuDriverGetVersion` needs the worker's answer); nothing else works then.
    pub initialized: AtomicBool,
    pub attaching: Lock<()>,
    pub refusal: OnceLock<CUresult>,
    pub greeted: OnceLock<Result<Greeted, CUresult>>,
}

impl Attachment {
    pub const fn new() -> Attachment {
        Attachment {
            answered: AtomicU64::new(0),
            published: AtomicPtr::new(std::ptr::null_mut()),
            initialized: AtomicBool::new(false),
            attaching: Lock::new(Rank::Attaching, ()),
            refusal: OnceLock::new(),
            greeted: OnceLock::new(),
        }
    }
}

/// Everything that exists once `cuInit` has succeeded.
pub struct Session {
    pub welcome: Welcome,
    pub heap: Heap,
    /// The memory behind heap and rings; open for the life of the process.
    pub memory_fd: RawFd,
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
}

/// What a server says of its devices and its driver.
pub struct Greeted {
    pub devices: Vec<Device>,
    pub driver_version: u32,
    pub peer_access: Vec<u8>,
}

impl From<&Welcome> for Greeted {
    fn from(welcome: &Welcome) -> Greeted {
        Greeted {
            devices: welcome.devices.clone(),
            driver_version: welcome.driver_version,
            peer_access: welcome.peer_access.clone(),
        }
    }
}

impl From<Offer> for Greeted {
    fn from(Offer { driver_version, devices, peer_access }: Offer) -> Greeted {
        Greeted { devices, driver_version, peer_access }
    }
}

impl Greeted {
    /// Nothing if there are no such devices.
    pub fn can_access(&self, from: usize, to: usize) -> Option<bool> {
        let count = self.devices.len();
        (from < count && to < count).then(|| self.peer_access[from * count + to] != 0)
    }
}
