//! A guest and its host: the memory of a device that QEMU has (ivshmem) is the worker's too, as over shared memory of
//! one machine. The guest finds the device in sysfs and maps it; there is no module for its kernel.
//!
//! A program in the guest takes a slot of the segment ([`segment`]). The handshake goes by mail, which a thread here
//! and one of oriond's carry to sockets; then client and worker have the slot's pages, and the mail is silent. Each
//! side counts a word up while it lives, for no kernel sees the other's end.

mod bell;
mod device;
mod ferry;
mod front;
pub mod segment;

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use orion_ring::Memory;
use orion_ring::bell::Bell;
use orion_wire::Pages;
use orion_wire::address::Server;

use super::contract::{Attached, Carrier, Death, Security, Way};
use crate::channel::Channel;
use crate::client::handshake::{Caller, NoSession, Tuning, greet, layout, map_heap, mapping_failed, shutdown, start};
use crate::scatter::Listener;
use crate::thread::{spawn, with_signals_blocked};
use ferry::Taken;
use front::Front;
use segment::Head;

pub struct Ivshmem;

impl Way for Ivshmem {
    fn name(&self) -> &'static str {
        "ivshmem"
    }

    fn pages(&self) -> Pages {
        Pages::Shared
    }

    fn bell_number(&self) -> u64 {
        u64::from_le_bytes(*b"ivshmem\0")
    }

    /// The descriptor is oriond's, not the guest's, which cannot send any.
    fn worker_bell(&self, mut fds: Vec<OwnedFd>) -> Result<Arc<dyn Bell>, String> {
        Ok(Arc::new(bell::OfWorker { rung: fds.pop() }))
    }

    fn reach(&self, server: &Server, _: &Caller) -> Result<(Channel, bool), NoSession> {
        Ok((take(server)?.channel, true))
    }

    fn attach(&self, server: &Server, caller: &Caller, _: Tuning, _: Listener) -> Result<Attached, NoSession> {
        let Slot { mut channel, taken, memory, head } = take(server)?;
        // Whoever owns the host has this machine's memory anyway.
        let welcome = greet(server, &mut channel, caller, true)?.welcome;
        let layout = layout(&welcome).expect("greet has checked it");
        if layout != head.shape.layout() {
            return Err(format!(
                "{server} announces a heap of {} bytes, and a session of this device has {}",
                layout.heap_bytes,
                head.shape.layout().heap_bytes
            )
            .into());
        }
        let memory = Memory::open_in(memory, head.shape.offset(taken.slot), layout)
            .map_err(|e| format!("mapping the session memory of {server} failed: {e}"))?;
        let heap = map_heap(&memory).map_err(|e| mapping_failed(layout.heap_bytes, e))?;
        start(server, &mut channel, &self.start(heap.base() as u64), &[])?;
        taken.has_begun.store(true, Ordering::Relaxed);
        let vector = segment::MAIL_VECTOR + 1 + taken.slot as u32;
        let bell = Arc::new(bell::OfGuest { registers: taken.registers.clone().map(|r| (r, vector)) });
        let session = Arc::new(GuestSession { channel, taken, bell });
        Ok(Attached::new(welcome, memory, heap, Security::LOCAL, session))
    }
}

/// A slot of the segment, with a channel to the host's door.
struct Slot {
    channel: Channel,
    taken: Arc<Taken>,
    memory: OwnedFd,
    head: Head,
}

fn take(server: &Server) -> Result<Slot, String> {
    let named = server.device().ok_or_else(|| format!("{server} is no device of a virtual machine"))?;
    let device = device::open(Path::new(device::DEVICES), named)?;
    let path = device.path.display();
    let failed = |e: std::io::Error| format!("mapping {path} failed: {e}");
    let bytes = std::fs::File::from(device.memory.try_clone().map_err(failed)?).metadata().map_err(failed)?.len();
    if bytes < segment::FRONT_BYTES as u64 {
        return Err(format!("{path} has {bytes} bytes, and a segment has {} at least", segment::FRONT_BYTES));
    }
    let front = Front::map(device.memory.as_fd()).map_err(failed)?;
    let head = Head::decode(front.head(), bytes).map_err(|why| format!("{path} is of no use: {why}"))?;
    let taken = Taken::take(front, &head, &device.memory, device.registers).map_err(|why| format!("{path}: {why}"))?;
    let (ours, its) = UnixStream::pair().map_err(|e| format!("making a socket pair failed: {e}"))?;
    let ferried = Arc::clone(&taken);
    with_signals_blocked(|| spawn("orion-ferry".into(), move || ferried.ferry(its)))
        .map_err(|e| format!("starting a thread failed: {e}"))?;
    Ok(Slot { channel: Channel::from(OwnedFd::from(ours)), taken, memory: device.memory, head })
}

struct GuestSession {
    /// Whose other end the ferry has.
    channel: Channel,
    taken: Arc<Taken>,
    bell: Arc<bell::OfGuest>,
}

impl Carrier for GuestSession {
    fn pages(&self) -> Pages {
        Pages::Shared
    }

    fn bell(&self) -> Arc<dyn Bell> {
        self.bell.clone()
    }

    fn death(&self) -> Option<&Death> {
        if !self.taken.lost.is_set() && self.taken.is_over() {
            self.taken.lost.set(Death::Gone);
        }
        self.taken.lost.death()
    }

    fn close(&self) {
        self.taken.lost.set(Death::Closed);
        self.taken.leave();
        shutdown(self.channel.as_fd());
    }

    fn sockets(&self) -> Vec<RawFd> {
        vec![self.channel.as_fd().as_raw_fd()]
    }
}
