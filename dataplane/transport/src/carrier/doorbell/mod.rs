//! For tests: pages of the worker's that are mapped here, as over [`super::shm`], and doorbells that are rung from
//! outside of them. A guest and its host are like that (ivshmem): they see the same bytes, but no kernel sees both
//! sleepers, so a word in the pages cannot be slept on. Each seat has an eventfd in place of an interrupt's vector.
//!
//! It shows that a carrier is its folder, and keeps the rings free of what only one kernel could know. Release builds
//! have neither its name nor its code.

// UNSAFETY: eventfd, ppoll, and reading and writing eight bytes.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use orion_ring::bell::{Bell, SEATS, Seat};
use orion_wire::Pages;
use orion_wire::address::Server;

use super::contract::{Attached, Security, Way};
use super::shm::{LocalSession, Mapped, map, reach_locally};
use crate::channel::Channel;
use crate::client::handshake::{Caller, NoSession, Tuning, start};
use crate::scatter::Listener;

pub struct Doorbell;

impl Way for Doorbell {
    fn name(&self) -> &'static str {
        "doorbell"
    }

    fn pages(&self) -> Pages {
        Pages::Shared
    }

    fn bell_number(&self) -> u64 {
        u64::from_le_bytes(*b"doorbell")
    }

    fn worker_bell(&self, fds: Vec<OwnedFd>) -> Result<Arc<dyn Bell>, String> {
        let wrong = |fds: Vec<OwnedFd>| format!("{} descriptors came with START, and doorbells are {SEATS}", fds.len());
        Ok(Arc::new(Doorbells(fds.try_into().map_err(wrong)?)))
    }

    fn reach(&self, server: &Server, caller: &Caller) -> Result<(Channel, bool), NoSession> {
        reach_locally(server, caller)
    }

    fn attach(&self, server: &Server, caller: &Caller, _: Tuning, _: Listener) -> Result<Attached, NoSession> {
        let Mapped { mut channel, welcome, memory, heap } = map(server, caller)?;
        let bells = Doorbells::new().map_err(|e| format!("making doorbells failed: {e}"))?;
        let fds = bells.0.each_ref().map(AsFd::as_fd);
        start(server, &mut channel, &self.start(heap.base() as u64), &fds)?;
        let session = Arc::new(LocalSession::new(channel, Arc::new(bells)));
        Ok(Attached::new(welcome, memory, heap, Security::LOCAL, session))
    }
}

/// One for each seat; both sides have all of them.
struct Doorbells([OwnedFd; SEATS]);

impl Doorbells {
    fn new() -> io::Result<Doorbells> {
        let mut all = Vec::new();
        for _ in 0..SEATS {
            // SAFETY: a plain system call.
            let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: a new descriptor that nobody else owns.
            all.push(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        Ok(Doorbells(all.try_into().expect("as many as there are seats")))
    }
}

impl Bell for Doorbells {
    fn ring(&self, seat: Seat) {
        let one = 1u64;
        // SAFETY: eight bytes from a local. Where they find no room the bell has rung already.
        unsafe { libc::write(self.0[seat.number].as_raw_fd(), (&raw const one).cast(), 8) };
    }

    fn sleep(&self, seat: Seat, timeout: Duration) {
        let fd = self.0[seat.number].as_raw_fd();
        let mut entry = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let time = libc::timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos() as i64 };
        let mut rung = 0u64;
        // SAFETY: one valid entry and time; eight bytes into a local. What rang before whoever slept has looked counts
        // for nothing any more.
        unsafe {
            if libc::ppoll(&raw mut entry, 1, &raw const time, std::ptr::null()) > 0 {
                libc::read(fd, (&raw mut rung).cast(), 8);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Instant;

    use orion_ring::memory::{Layout, Memory, Which};
    use orion_ring::{Consumer, Spin};

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn a_bell_that_was_rung_before_is_heard_and_another_seat_s_is_not() {
        static FLAG: AtomicU32 = AtomicU32::new(0);
        let (bells, flag) = (Doorbells::new().unwrap(), &FLAG);
        let begin = Instant::now();
        bells.ring(Seat { number: 2, flag });
        bells.sleep(Seat { number: 2, flag }, LONG);
        assert!(begin.elapsed() < LONG);
        bells.ring(Seat { number: 3, flag });
        let short = Duration::from_millis(5);
        let begin = Instant::now();
        bells.sleep(Seat { number: 2, flag }, short);
        assert!(begin.elapsed() >= short);
    }

    #[test]
    fn who_sleeps_without_looking_is_rung_for_records_and_for_room() {
        let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).unwrap();
        let memory = memory.with_bell(Arc::new(Doorbells::new().unwrap()));
        let mut commands = memory.producer(Which::Command).unwrap();
        let mut consumer: Consumer = memory.consumer(Which::Command).unwrap();
        let at_once = Spin { budget: Duration::ZERO, yields: false };
        let begin = Instant::now();
        let reader = std::thread::spawn(move || {
            let mut read = 0;
            while read < 3 * orion_ring::memory::COMMAND_BYTES {
                match consumer.ready().unwrap() {
                    0 => consumer.sleep(LONG),
                    n => {
                        consumer.consume(n as usize);
                        read += n;
                    }
                }
            }
        });
        let record = [0u8; 1 << 10];
        for _ in 0..3 * orion_ring::memory::COMMAND_BYTES / record.len() as u64 {
            while !commands.push(&[&record]).unwrap() {
                commands.wait_room(record.len(), at_once, LONG).unwrap();
            }
        }
        reader.join().unwrap();
        assert!(begin.elapsed() < LONG, "somebody slept until his time was over");
        assert_eq!(commands.seat().flag.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_start_without_a_bell_for_each_seat_is_refused_in_words() {
        let Err(said) = Doorbell.worker_bell(Vec::new()) else { panic!("no doorbells are enough") };
        assert!(said.contains("0 descriptors") && said.contains('6'), "{said}");
    }
}
