//! Programs in virtual machines: a worker's session lies in memory that their guest has as a device.
//!
//! ```text
//! memory   the guest's segment, a file that QEMU maps          porter    the thread that carries its mail
//! qemu     hands the memory to QEMU, where it is our own       private   the porter's way to the door
//! ```
//! A guest has one segment, and no other guest has it. Its programs share it as they share that machine: whoever may
//! open the device there can read the sessions of all of them.

mod memory;
mod porter;
mod private;
mod qemu;

// UNSAFETY: eventfd, and writing one.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;

use orion_transport::carrier::ivshmem::segment::Shape;

use super::contract::{Lent, Listener, Prepare, Visitor};
use super::shm::{For, LocalSocket};
use crate::engine::peer::Peer;
use crate::engine::settings::{Guest, Memory, Settings};
use memory::Segment;
use porter::Porter;
use private::Entrance;
use qemu::Qemu;

pub fn open(settings: &Settings) -> Result<Vec<Box<dyn Listener>>, String> {
    let mut all: Vec<Box<dyn Listener>> = Vec::new();
    for (number, guest) in (0..).zip(&settings.guests) {
        let failed = |e: io::Error| format!("serving the guest of {} failed: {e}", guest.path().display());
        let (segment, socket) = match &guest.memory {
            Memory::File(path) => (Segment::open(path, guest.sessions)?, None),
            Memory::Socket { path, bytes, group } => {
                let segment = Segment::make(*bytes, guest.sessions)?;
                (segment, Some(LocalSocket::listen(path, group.map_or(For::Us, For::Group))?))
            }
        };
        all.push(Box::new(Place::open(number, guest, segment, socket).map_err(failed)?));
    }
    Ok(all)
}

struct Place {
    number: u32,
    path: PathBuf,
    entrance: Entrance,
    memory: Arc<OwnedFd>,
    shape: Shape,
    /// Of each slot's worker, where the device has bells.
    bells: Vec<Arc<OwnedFd>>,
    stop: Arc<OwnedFd>,
}

impl Place {
    fn open(number: u32, guest: &Guest, segment: Segment, socket: Option<LocalSocket>) -> io::Result<Place> {
        let (entrance, doorstep) = private::open()?;
        let (memory, shape) = (segment.descriptor()?, segment.shape);
        let qemu = socket.map(|socket| Qemu::new(socket, Arc::clone(&memory), shape.slots)).transpose()?;
        let bells = qemu.iter().flat_map(|qemu| &qemu.bells[1..]).cloned().collect();
        let path = guest.path().to_owned();
        let stop = Arc::new(stop()?);
        let porter = Porter::new(path.display().to_string(), segment, doorstep, qemu, Arc::clone(&stop))?;
        std::thread::Builder::new().name(format!("guest {number}")).spawn(move || porter.run())?;
        Ok(Place { number, path, entrance, memory, shape, bells, stop })
    }
}

impl Listener for Place {
    fn fd(&self) -> RawFd {
        self.entrance.listener.as_raw_fd()
    }

    fn address(&self) -> String {
        format!("ivshmem:{}", self.path.display())
    }

    fn receive(&self, socket: &OwnedFd) -> io::Result<Visitor> {
        let slot = self.entrance.slot_of(socket)?;
        let lent = Lent {
            memory: Arc::clone(&self.memory),
            offset: self.shape.offset(slot),
            bytes: self.shape.slot_bytes,
            bell: self.bells.get(slot).cloned(),
        };
        Ok(Visitor { peer: Peer::Guest { number: self.number }, lent: Some(lent) })
    }

    fn prepare(&self) -> Option<Prepare> {
        None
    }

    fn close(&self) {
        let one = 1u64;
        // SAFETY: eight bytes from a local; where they find no room it has been told before.
        unsafe { libc::write(self.stop.as_raw_fd(), (&raw const one).cast(), 8) };
    }
}

fn stop() -> io::Result<OwnedFd> {
    // SAFETY: a new descriptor that nobody else owns.
    unsafe {
        match libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}
