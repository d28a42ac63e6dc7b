//! The thread that stands in for a guest at the door: it carries mail between the guest's segment and sockets, and ends
//! the sessions of programs that are not heard of any more. An engine must not wait for a guest, so this is none.
//!
//! Whatever it reads is a hostile guest's. Positions are compared with what it has itself counted, bytes go to the door
//! as they are, which takes none of them for granted, and no more than the mail's room is ever on its way.

// UNSAFETY: polls descriptors, and reads eventfds.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use orion_transport::carrier::ivshmem::segment::{Head, MAIL_BYTES, Words, under_way};
use orion_transport::socket::SILENCE_SECONDS_MAX;
use tracing::{error, info, warn};

use super::memory::Segment;
use super::private::Doorstep;
use super::qemu::{Qemu, is_readable};

const SILENCE_MAX: Duration = Duration::from_secs(SILENCE_SECONDS_MAX as u64);
const BEAT_INTERVAL: Duration = Duration::from_secs(1);
/// While mail comes and goes, and for a moment after.
const LOOK_INTERVAL: Duration = Duration::from_micros(500);
const BUSY_FOR: Duration = Duration::from_millis(100);
/// Whoever rings all the time is not looked at all the time: it would take a core of the host's.
const LOOK_INTERVAL_MIN: Duration = Duration::from_micros(100);
/// A guest without a bell is looked at a hundred times a second: two system calls each. One of which nothing was heard
/// for long is looked at more rarely: who comes then waits a 32nd longer at most, and a thirtieth of a second.
const REST_INTERVAL: Duration = Duration::from_millis(10);
const REST_INTERVAL_MAX: Duration = Duration::from_millis(33);

pub struct Porter {
    /// As the log names it.
    pub name: String,
    pub segment: Segment,
    pub doorstep: Doorstep,
    /// Where QEMU is told of the memory by us.
    pub qemu: Option<Qemu>,
    /// Readable once this has to end.
    pub stop: Arc<OwnedFd>,
    slots: Vec<Slot>,
    beats: u64,
    beat_after: Instant,
    busy_until: Instant,
    is_removed: bool,
    /// A virtual machine has ended, and what it left is still there.
    is_left_over: bool,
}

/// What is known of a slot.
enum Slot {
    /// The number of the session that was there last.
    Free(u64),
    Held(Held),
}

struct Held {
    session: u64,
    /// To the door, and from there to the worker.
    socket: UnixStream,
    /// Positions of the mail: what was taken from the guest and sent to it.
    taken: u64,
    sent: u64,
    /// The guest's, and since when it has been the same.
    beat: u64,
    heard: Instant,
    /// Its program is gone, and the worker's end is awaited.
    is_leaving: bool,
    /// What the guest lets in.
    room: u64,
}

impl Porter {
    pub fn new(
        name: String,
        segment: Segment,
        doorstep: Doorstep,
        qemu: Option<Qemu>,
        stop: Arc<OwnedFd>,
    ) -> io::Result<Porter> {
        let now = Instant::now();
        // Sessions of an oriond that was killed: who has them learns that they are over.
        let left = segment.of_guest()?;
        let mut slots = Vec::new();
        for (slot, words) in left.into_iter().enumerate() {
            let session = words.map_or(0, |words| words.session);
            segment.say(slot, Words { session, state: 1, ..Words::default() })?;
            slots.push(Slot::Free(session));
        }
        segment.begin(&Head { shape: segment.shape, has_bell: qemu.is_some(), beat: 0 })?;
        Ok(Porter {
            name,
            segment,
            doorstep,
            qemu,
            stop,
            slots,
            beats: 0,
            beat_after: now,
            busy_until: now,
            is_removed: false,
            is_left_over: false,
        })
    }

    /// Until it is stopped, or the segment is lost.
    pub fn run(mut self) {
        while !self.is_stopped() {
            let began = Instant::now();
            let looked = self.look();
            if let Err(error) = looked {
                error!(
                    guest = self.name, %error,
                    "the guest's memory is lost: its file was cut, or cannot be read; its sessions end, and it gets no \
                     more until oriond is started again"
                );
                self.slots.iter_mut().for_each(Slot::abandon);
                break;
            }
            self.wait();
            // Not before: what was rung for is seen in the next look.
            std::thread::sleep(LOOK_INTERVAL_MIN.saturating_sub(began.elapsed()));
        }
        // The guest is told if it still has the memory; where it has not there is nobody to tell.
        if !self.segment.has_front() {
            return;
        }
        for (slot, held) in self.slots.iter().enumerate() {
            if let Slot::Held(held) = held {
                let _ = self.segment.say(slot, held.words(1));
            }
        }
        let _ = self.segment.end();
    }

    fn is_stopped(&self) -> bool {
        is_readable(self.stop.as_raw_fd())
    }

    fn look(&mut self) -> io::Result<()> {
        let now = Instant::now();
        if now >= self.beat_after {
            self.beat_after = now + BEAT_INTERVAL;
            self.beats += 1;
            self.segment.is_whole()?;
            self.segment.beat(self.beats)?;
            self.look_for_name();
        }
        if let Some(qemu) = &mut self.qemu
            && qemu.look(&self.name, !self.is_left_over)
        {
            self.slots.iter_mut().for_each(Slot::leave);
            self.is_left_over = true;
        }
        for (slot, guest) in self.segment.of_guest()?.into_iter().enumerate() {
            // One that is just being changed is looked at again soon.
            let Some(guest) = guest else {
                self.busy_until = now + BUSY_FOR;
                continue;
            };
            if self.look_at(slot, guest, now)? {
                self.busy_until = now + BUSY_FOR;
            }
        }
        if self.is_left_over && self.slots.iter().all(|slot| matches!(slot, Slot::Free(_))) {
            self.is_left_over = false;
            self.begin_anew()?;
        }
        Ok(())
    }

    /// The next virtual machine finds nothing of the one before.
    fn begin_anew(&mut self) -> io::Result<()> {
        self.segment.clear_all()?;
        self.slots.iter_mut().for_each(|slot| *slot = Slot::Free(0));
        self.segment.begin(&self.head())
    }

    fn head(&self) -> Head {
        Head { shape: self.segment.shape, has_bell: self.qemu.is_some(), beat: self.beats }
    }

    fn look_for_name(&mut self) {
        // Memory of our own never had a name.
        if !self.is_removed && self.qemu.is_none() && self.segment.is_removed() {
            self.is_removed = true;
            warn!(
                guest = self.name,
                "the file of the guest's memory was removed: a guest that has it goes on, and no other can open it"
            );
        }
    }

    /// True if something has moved.
    fn look_at(&mut self, slot: usize, guest: Words, now: Instant) -> io::Result<bool> {
        let held = match &mut self.slots[slot] {
            Slot::Held(held) => held,
            Slot::Free(last) if guest.session == 0 || guest.session == *last => return Ok(false),
            Slot::Free(_) => return self.begin(slot, guest, now),
        };
        let moved = held.carry(&self.segment, slot, guest, now, &self.name)?;
        if moved == Moved::End {
            self.segment.say(slot, held.words(1))?;
            self.slots[slot] = Slot::Free(held.session);
        }
        Ok(moved != Moved::Nothing)
    }

    /// A program in the guest wants a session.
    fn begin(&mut self, slot: usize, guest: Words, now: Instant) -> io::Result<bool> {
        // Nothing of the one before.
        self.segment.clear(slot)?;
        let mut held = match self.doorstep.knock(slot) {
            Ok(socket) => Held {
                session: guest.session,
                socket,
                taken: 0,
                sent: 0,
                beat: guest.state,
                heard: now,
                is_leaving: false,
                room: MAIL_BYTES,
            },
            Err(error) => {
                warn!(
                    guest = self.name, slot, %error,
                    "a guest's program could not be brought to the door; it tries again, and then is told"
                );
                self.segment.say(slot, Words { session: guest.session, state: 1, ..Words::default() })?;
                self.slots[slot] = Slot::Free(guest.session);
                return Ok(true);
            }
        };
        self.segment.say(slot, held.words(0))?;
        held.carry(&self.segment, slot, guest, now, &self.name)?;
        self.slots[slot] = Slot::Held(held);
        Ok(true)
    }

    fn wait(&mut self) {
        let now = Instant::now();
        let timeout = match (now < self.busy_until, &self.qemu) {
            (true, _) => LOOK_INTERVAL,
            (false, None) => {
                let quiet = now.saturating_duration_since(self.busy_until);
                (quiet / 32).clamp(REST_INTERVAL, REST_INTERVAL_MAX)
            }
            (false, Some(_)) if self.is_left_over => LOOK_INTERVAL,
            (false, Some(_)) => self.beat_after.saturating_duration_since(now).max(LOOK_INTERVAL),
        };
        let sockets = self.slots.iter().filter_map(|slot| match slot {
            Slot::Held(held) if held.room > 0 => Some(held.socket.as_raw_fd()),
            _ => None,
        });
        let qemu = self.qemu.iter().flat_map(Qemu::descriptors);
        let all = [self.stop.as_raw_fd()].into_iter().chain(qemu).chain(sockets);
        let mut entries: Vec<_> = all.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
        let time = libc::timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos() as i64 };
        // SAFETY: valid entries and time.
        unsafe {
            libc::ppoll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, &raw const time, std::ptr::null());
        }
    }
}

impl Slot {
    fn leave(&mut self) {
        if let Slot::Held(held) = self {
            held.leave();
        }
    }

    /// Nothing more is read of the guest.
    fn abandon(&mut self) {
        if let Slot::Held(held) = self {
            let _ = held.socket.shutdown(Shutdown::Both);
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moved {
    Nothing,
    Something,
    /// The worker, or the door, has closed the connection.
    End,
}

impl Held {
    /// What the host says.
    fn words(&self, state: u64) -> Words {
        Words { session: self.session, state, sent: self.sent, taken: self.taken }
    }

    /// Its program is gone. The worker ends, and then the connection does.
    fn leave(&mut self) {
        self.is_leaving = true;
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    fn carry(&mut self, segment: &Segment, slot: usize, guest: Words, now: Instant, name: &str) -> io::Result<Moved> {
        if !self.is_leaving && guest.session != self.session {
            self.leave();
        }
        if guest.state != self.beat {
            (self.beat, self.heard) = (guest.state, now);
        } else if !self.is_leaving && now - self.heard > SILENCE_MAX {
            info!(
                guest = name,
                slot, "nothing was heard of a guest's program for {SILENCE_SECONDS_MAX} s: its session ends"
            );
            self.leave();
        }
        let (to_host, to_guest) = match (self.is_leaving, self.mail(guest)) {
            (true, _) => (0, MAIL_BYTES),
            (false, Ok(mail)) => mail,
            (false, Err(rule)) => {
                warn!(
                    guest = name,
                    slot,
                    rule,
                    says_sent = guest.sent,
                    of_it_taken = self.taken,
                    sent = self.sent,
                    says_taken = guest.taken,
                    "the guest broke the protocol: its session ends"
                );
                self.leave();
                (0, MAIL_BYTES)
            }
        };
        let mut moved = Moved::Nothing;
        if to_host > 0 {
            let mail = segment.take(slot, self.taken, to_host)?;
            if let Ok(n @ 1..) = self.socket.write(&mail) {
                self.taken = self.taken.wrapping_add(n as u64);
                moved = Moved::Something;
            }
        }
        self.room = to_guest;
        let mut buffer = vec![0; to_guest as usize];
        // Descriptors that come along are for clients that can take them, and are closed by the system.
        match self.socket.read(&mut buffer) {
            Ok(0) if to_guest > 0 => return Ok(Moved::End),
            Ok(n) if n > 0 && !self.is_leaving => {
                segment.put(slot, self.sent, &buffer[..n])?;
                self.sent = self.sent.wrapping_add(n as u64);
                moved = Moved::Something;
            }
            Err(e) if !matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return Ok(Moved::End);
            }
            _ => {}
        }
        if moved == Moved::Something {
            segment.say(slot, self.words(0))?;
        }
        Ok(moved)
    }

    /// Bytes that wait for us, and room for ours.
    fn mail(&self, guest: Words) -> Result<(u64, u64), &'static str> {
        let to_host = under_way(guest.sent, self.taken).map_err(|fault| fault.0)?;
        let to_guest = under_way(self.sent, guest.taken).map_err(|fault| fault.0)?;
        Ok((to_host, MAIL_BYTES - to_guest))
    }
}
