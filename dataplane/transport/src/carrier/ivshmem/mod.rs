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
use orion_wire::hello::Welcome;
use orion_wire::view::View;

use super::contract::{Attached, Carrier, Death, Security, Way};
use crate::channel::Channel;
use crate::client::handshake::{
    Caller, NoSession, Tuning, ask, greet, layout, map_heap, mapping_failed, shutdown, start,
};
use crate::scatter::Listener;
use crate::thread::{spawn, with_signals_blocked};
use ferry::Taken;
use front::Front;
use segment::Head;

/// An oriond that starts ends what it finds in its segment, and one that lacks something ends what it cannot serve;
/// with the next try it may be otherwise.
const CLAIMS_MAX: usize = 3;

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

    fn welcome_of(&self, server: &Server, caller: &Caller) -> Result<Welcome, NoSession> {
        let Slot { mut channel, taken, .. } = take(server)?;
        Ok(greet(server, &mut channel, caller, true).map_err(|no| how_it_ended(server, &taken, no))?.welcome)
    }

    fn view_of(&self, server: &Server, caller: &Caller) -> Result<View, NoSession> {
        let Slot { mut channel, taken, .. } = take(server)?;
        ask(server, &mut channel, caller, true).map_err(|no| how_it_ended(server, &taken, no))
    }

    fn attach(&self, server: &Server, caller: &Caller, _: Tuning, _: Listener) -> Result<Attached, NoSession> {
        let Slot { mut channel, taken, memory, head } = take(server)?;
        let lost = |no: NoSession| how_it_ended(server, &taken, no);
        // Whoever owns the host has this machine's memory anyway.
        let welcome = greet(server, &mut channel, caller, true).map_err(lost)?.welcome;
        let layout = layout(&welcome).expect("greet has checked it");
        if layout != head.shape.layout() {
            return Err(format!(
                "{server} announces a heap of {} bytes, and a session of this device has {}: was the host's oriond \
                 started anew with another --guest-sessions meanwhile? Run the program again",
                layout.heap_bytes,
                head.shape.layout().heap_bytes
            )
            .into());
        }
        let memory = Memory::open_in(memory, head.shape.offset(taken.slot), layout)
            .map_err(|e| format!("mapping the session memory of {server} failed: {e}"))?;
        let heap = map_heap(&memory).map_err(|e| mapping_failed(layout.heap_bytes, e))?;
        start(server, &mut channel, &self.start(heap.base() as u64), &[]).map_err(lost)?;
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
    let failed = |e: std::io::Error| {
        format!("mapping {path} failed: {e}; is there a limit on virtual memory (ulimit -v) or on files (ulimit -n)?")
    };
    let bytes = std::fs::File::from(device.memory.try_clone().map_err(failed)?).metadata().map_err(failed)?.len();
    if bytes < segment::FRONT_BYTES as u64 {
        return Err(format!(
            "{path} has {bytes} bytes, and oriond divides {} at least; give the device 64 MiB or more, a power of two",
            segment::FRONT_BYTES
        ));
    }
    let claim = || {
        let front = Front::map(device.memory.as_fd()).map_err(failed)?;
        let head = Head::decode(front.head(), bytes).map_err(|why| format!("{path} is of no use: {why}"))?;
        let taken = Taken::take(front, &head, &device.memory, device.registers.clone());
        Ok::<_, String>((head, taken.map_err(|why| format!("{path}: {why}"))?))
    };
    let mut claimed = claim()?;
    for _ in 1..CLAIMS_MAX {
        if claimed.1.is_over() {
            claimed.1.leave();
            claimed = claim()?;
        }
    }
    let (head, taken) = claimed;
    if taken.is_over() {
        taken.leave();
        return Err(format!(
            "{path}: the host's oriond ended the session before it began, {CLAIMS_MAX} times: it is being started, or \
             lacks what it takes to bring a guest's program to its door, which its log tells"
        ));
    }
    let (ours, its) = UnixStream::pair().map_err(|e| format!("making a socket pair failed: {e}"))?;
    let ferried = Arc::clone(&taken);
    with_signals_blocked(|| spawn("orion-ferry".into(), move || ferried.ferry(its)))
        .map_err(|e| format!("starting a thread failed: {e}"))?;
    Ok(Slot { channel: Channel::from(OwnedFd::from(ours)), taken, memory: device.memory, head })
}

/// What the thread saw that carries the mail, where that says more than that there is no connection any more.
fn how_it_ended(server: &Server, taken: &Taken, no: NoSession) -> NoSession {
    match taken.lost.death().filter(|_| no.refused.is_none()) {
        Some(death @ (Death::Cut(_) | Death::Broke(_))) => {
            format!("{server}, before the session began: {}; oriond's log says why", death.of("the host's oriond"))
                .into()
        }
        _ => no,
    }
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

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::time::{Duration, Instant};

    use orion_wire::address::{Place, carrier};

    use super::segment::{GUEST_WORDS_AT, HOST_WORDS_AT, Shape, Words};
    use super::*;

    const BYTES: u64 = 64 << 20;
    const PATIENCE: Duration = Duration::from_secs(20);

    /// A host that sees a program take the only slot `times` times, and says `words` of each session.
    fn told_by_host(times: usize, words: impl Fn(u64) -> Words + Send + 'static) -> String {
        let memory = orion_ring::sealed(c"test", BYTES).expect("a memfd");
        let file = File::from(memory.try_clone().expect("a descriptor"));
        let shape = Shape::of(BYTES, 1).expect("room enough");
        let head: Vec<u8> =
            Head { shape, has_bell: false, beat: 1 }.encode().into_iter().flat_map(u64::to_le_bytes).collect();
        file.write_all_at(&head, 0).expect("writing");
        let host = std::thread::spawn(move || {
            let (mut last, began) = (0, Instant::now());
            for _ in 0..times {
                let mut word = [0; 8];
                while u64::from_le_bytes(word) == last || word == [0; 8] {
                    assert!(began.elapsed() < PATIENCE, "the program asks no more");
                    file.read_exact_at(&mut word, GUEST_WORDS_AT).expect("reading");
                    std::thread::sleep(Duration::from_micros(100));
                }
                last = u64::from_le_bytes(word);
                let Words { session, state, sent, taken } = words(last);
                // The session last, as the host does.
                for (at, word) in [(8, state), (16, sent), (24, taken), (0, session)] {
                    file.write_all_at(&word.to_le_bytes(), HOST_WORDS_AT + at).expect("writing");
                }
            }
        });
        let place = Place::Device(format!("/proc/self/fd/{}", memory.as_raw_fd()));
        let server = Server { carrier: carrier("ivshmem").expect("it is one"), place };
        let caller = Caller::new("test", None);
        let no = Ivshmem.welcome_of(&server, &caller).expect_err("nobody welcomes").text;
        host.join().unwrap_or_else(|_| panic!("the host saw no further session, and the program was told: {no}"));
        no
    }

    #[test]
    fn a_host_that_ends_each_session_before_it_begins_is_asked_some_times_and_told_of() {
        let no = told_by_host(CLAIMS_MAX, |session| Words { session, state: 1, sent: 0, taken: 0 });
        assert!(no.contains("ended the session before it began, 3 times") && no.contains("its log tells"), "{no}");
    }

    #[test]
    fn how_a_host_was_seen_to_end_in_the_handshake_is_said() {
        let no = told_by_host(1, |session| Words { session, state: 0, sent: u64::MAX, taken: 0 });
        assert!(no.contains("the host's oriond broke the protocol: more mail is on its way"), "{no}");
    }
}
