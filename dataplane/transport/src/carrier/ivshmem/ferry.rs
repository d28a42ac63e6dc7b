//! A slot of the segment, taken for a session, and the thread that carries mail between it and a socket: the handshake
//! speaks to a socket, as with any other carrier.

// UNSAFETY: locks a file, polls a socket, and has a function called when the process ends.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, Weak};
use std::time::{Duration, Instant};

use super::device::Registers;
use super::front::Front;
use super::segment::{HOST_PEER, Head, MAIL_BYTES, MAIL_VECTOR, Words, under_way};
use crate::carrier::contract::{Death, Lost};
use crate::client::handshake::WELCOME_SECONDS_MAX;
use crate::client::say;
use crate::proof::fresh_nonce;
use crate::socket::SILENCE_SECONDS_MAX;

const SILENCE_MAX: Duration = Duration::from_secs(SILENCE_SECONDS_MAX as u64);
const BEAT_INTERVAL: Duration = Duration::from_secs(1);
/// While mail is expected.
const LOOK_INTERVAL: Duration = Duration::from_micros(200);
/// Once the session runs, nothing comes.
const REST_INTERVAL: Duration = Duration::from_millis(250);
/// A program that lives gives its slot back in a part of this, once its session is over.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(3);
/// Longer nobody is left to wait without a word.
const SILENT_FOR: Duration = Duration::from_secs(3);
/// Another program holds the lock for some stores, or for that long.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// A slot that is this program's.
pub struct Taken {
    front: Front,
    pub slot: usize,
    session: u64,
    /// Where the device's host hears its bell.
    pub registers: Option<Arc<Registers>>,
    pub lost: Lost,
    /// The handshake is over.
    pub has_begun: AtomicBool,
    /// A forked child has it too, and must leave it alone.
    pid: u32,
    /// The slot may be another program's from then on.
    has_left: Mutex<bool>,
}

impl Taken {
    /// Takes a slot that is free and waits for the host to see it. `head` was read from the same segment.
    pub fn take(
        front: Front,
        head: &Head,
        memory: &OwnedFd,
        registers: Option<Arc<Registers>>,
    ) -> Result<Arc<Taken>, String> {
        let nonce = fresh_nonce().map_err(|e| format!("reading random bytes failed: {e}"))?;
        let (number, _) = nonce.split_first_chunk::<8>().expect("a nonce is longer");
        let session = u64::from_le_bytes(*number) | 1;
        let registers = registers.filter(|_| head.has_bell);
        let slot = claim(&front, head.shape.slots, memory, session)?;
        let taken = Taken {
            front,
            slot,
            session,
            registers,
            lost: Lost::default(),
            has_begun: AtomicBool::new(false),
            pid: std::process::id(),
            has_left: Mutex::new(false),
        };
        taken.ring();
        taken.wait_for_host(Duration::from_secs(WELCOME_SECONDS_MAX as u64))?;
        let taken = Arc::new(taken);
        leave_at_exit(&taken);
        Ok(taken)
    }

    fn wait_for_host(&self, patience: Duration) -> Result<(), String> {
        let (begin, mut has_said) = (Instant::now(), false);
        let mut beat = (self.front.beat(), Instant::now());
        while self.front.of_host(self.slot).session != self.session {
            if self.front.beat() != beat.0 {
                beat = (self.front.beat(), Instant::now());
            }
            if beat.1.elapsed() > SILENCE_MAX {
                self.leave();
                return Err(format!(
                    "the host's oriond was not heard of for {SILENCE_SECONDS_MAX} s: it has ended or does not run"
                ));
            }
            if !has_said && begin.elapsed() > SILENT_FOR {
                has_said = true;
                say::say(format_args!(
                    "waiting up to {} s for session {} of this virtual machine's device: the worker of the one before \
                     there has not ended",
                    patience.as_secs(),
                    self.slot
                ));
            }
            if begin.elapsed() > patience {
                self.leave();
                return Err(format!(
                    "the host's oriond lives, and has not begun session {} of this device for {} s: the worker of the \
                     one before there has not ended. Its log says why; or have more of them (--guest-sessions)",
                    self.slot,
                    patience.as_secs()
                ));
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        Ok(())
    }

    fn ring(&self) {
        if let Some(registers) = &self.registers {
            registers.ring(HOST_PEER, MAIL_VECTOR);
        }
    }

    /// Gives the slot back.
    pub fn leave(&self) {
        if self.pid != std::process::id() {
            return;
        }
        let mut has_left = self.has_left.lock().expect("nothing panics under this lock");
        if !std::mem::replace(&mut has_left, true) && self.front.of_guest(self.slot).session == self.session {
            self.front.say(self.slot, Words::SESSION_AT, 0);
            self.ring();
        }
    }

    /// Writes what is this slot's, unless it was given back.
    fn write(&self, f: impl FnOnce(&Front)) {
        let has_left = self.has_left.lock().expect("nothing panics under this lock");
        if !*has_left {
            f(&self.front);
        }
    }

    /// Whether the host says that the session is over.
    pub fn is_over(&self) -> bool {
        let host = self.front.of_host(self.slot);
        host.session != self.session || host.state != 0
    }

    /// Carries mail until either end closes.
    pub fn ferry(&self, socket: UnixStream) {
        let death = match self.carry(&socket) {
            Ok(death) => death,
            Err(e) => e.into(),
        };
        self.lost.set(death);
        self.leave();
        // Last: whoever finds it closed asks how that was seen.
        drop(socket);
    }

    fn carry(&self, mut socket: &UnixStream) -> io::Result<Death> {
        socket.set_nonblocking(true)?;
        let (mut sent, mut taken) = (0u64, 0u64);
        let (mut beats, mut beat_after) = (1u64, Instant::now());
        let mut heard = (self.front.beat(), Instant::now());
        let mut buffer = vec![0u8; MAIL_BYTES as usize];
        loop {
            // Before the mail is looked at: what came ahead of the end is still brought.
            let is_over = self.is_over();
            let host = self.front.of_host(self.slot);
            let bytes = match under_way(host.sent, taken) {
                Ok(bytes) => bytes,
                Err(_) if is_over => 0,
                Err(fault) => return Ok(fault.into()),
            };
            let mut has_moved = bytes > 0;
            if bytes > 0 {
                let mail = self.front.take(self.slot, taken, bytes);
                let n = would_block(socket.write(&mail))?.unwrap_or(0);
                taken = taken.wrapping_add(n as u64);
                self.write(|front| front.say(self.slot, Words::TAKEN_AT, taken));
            }
            if is_over {
                return Ok(Death::Gone);
            }
            let room = match under_way(sent, host.taken) {
                Ok(bytes) => MAIL_BYTES - bytes,
                Err(fault) => return Ok(fault.into()),
            };
            if room > 0 {
                match would_block(socket.read(&mut buffer[..room as usize]))? {
                    Some(0) => return Ok(Death::Closed),
                    Some(n) => {
                        self.write(|front| {
                            front.put(self.slot, sent, &buffer[..n]);
                            sent = sent.wrapping_add(n as u64);
                            front.say(self.slot, Words::SENT_AT, sent);
                        });
                        has_moved = true;
                    }
                    None => {}
                }
            }
            if has_moved {
                self.ring();
            }
            let now = Instant::now();
            if now >= beat_after {
                beats += 1;
                self.write(|front| front.say(self.slot, Words::STATE_AT, beats));
                beat_after = now + BEAT_INTERVAL;
            }
            match self.front.beat() {
                beat if beat != heard.0 => heard = (beat, now),
                _ if now - heard.1 > SILENCE_MAX => {
                    let text = format!("nothing was heard of the host's oriond for {SILENCE_SECONDS_MAX} s");
                    return Ok(Death::Cut(text));
                }
                _ => {}
            }
            let has_begun = self.has_begun.load(Ordering::Relaxed);
            wait(socket, if has_begun { REST_INTERVAL } else { LOOK_INTERVAL });
        }
    }
}

fn would_block(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(n) => Ok(Some(n)),
        Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
        Err(e) => Err(e),
    }
}

fn wait(socket: &UnixStream, timeout: Duration) {
    let mut entry = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let time = libc::timespec { tv_sec: 0, tv_nsec: timeout.subsec_nanos() as i64 };
    // SAFETY: one valid entry and time.
    unsafe { libc::ppoll(&raw mut entry, 1, &raw const time, std::ptr::null()) };
}

/// A slot that nobody has, for the session of that number.
fn claim(front: &Front, slots: usize, memory: &OwnedFd, session: u64) -> Result<usize, String> {
    let copy = memory.as_fd().try_clone_to_owned();
    let file = File::from(copy.map_err(|e| format!("copying a descriptor failed: {e}"))?);
    let mut left = Vec::new();
    loop {
        lock(&file, libc::F_WRLCK).map_err(|e| {
            let why = match is_held(&e) {
                true => format!("another one has held it for {} s; was it stopped?", LOCK_TIMEOUT.as_secs()),
                false => e.to_string(),
            };
            format!("locking the device against other programs of this virtual machine failed: {why}")
        })?;
        let is_left = |(slot, before): &(usize, Words)| (front.of_guest(*slot) == *before).then_some(*slot);
        let free = free_slot(front, slots).or_else(|| left.iter().find_map(is_left));
        if let Some(slot) = free {
            for which in [Words::SENT_AT, Words::TAKEN_AT] {
                front.say(slot, which, 0);
            }
            front.say(slot, Words::STATE_AT, 1);
            front.say(slot, Words::SESSION_AT, session);
        }
        lock(&file, libc::F_UNLCK).map_err(|e| format!("unlocking the device failed: {e}"))?;
        if let Some(slot) = free {
            return Ok(slot);
        }
        let before = std::mem::replace(&mut left, left_behind(front, slots));
        if !before.is_empty() || left.is_empty() {
            return Err(format!(
                "all {slots} sessions that this virtual machine may have are taken; wait for one to end (that of a \
                 program that was killed ends after {SILENCE_SECONDS_MAX} s), or have more of them on the host \
                 (--guest-sessions)"
            ));
        }
        // A program that lives gives its slot back soon. Nobody else has to wait for the lock meanwhile.
        let until = Instant::now() + LEAVE_TIMEOUT;
        while free_slot(front, slots).is_none() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// One that the host is done with, if there is: in another its program waits for the end of the worker before.
fn free_slot(front: &Front, slots: usize) -> Option<usize> {
    let is_done = |slot: usize| {
        let host = front.of_host(slot);
        host.session == 0 || host.state != 0
    };
    (0..slots).filter(|slot| front.of_guest(*slot).session == 0).min_by_key(|slot| !is_done(*slot))
}

/// Slots whose sessions are over, and whose programs do not say so: they have been killed, or are about to.
fn left_behind(front: &Front, slots: usize) -> Vec<(usize, Words)> {
    let is_over = |slot: &usize| {
        let (guest, host) = (front.of_guest(*slot), front.of_host(*slot));
        host.session == guest.session && host.state != 0
    };
    (0..slots).filter(is_over).map(|slot| (slot, front.of_guest(slot))).collect()
}

/// A lock of the open file's, in the guest's own kernel: the host knows nothing of it.
fn lock(file: &File, kind: i32) -> io::Result<()> {
    let start = Instant::now();
    // SAFETY: an all-zero flock is valid.
    let mut region: libc::flock = unsafe { std::mem::zeroed() };
    region.l_type = kind as libc::c_short;
    region.l_len = 1;
    loop {
        // SAFETY: a valid region.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const region) } == 0 {
            return Ok(());
        }
        let e = io::Error::last_os_error();
        if !is_held(&e) || start.elapsed() > LOCK_TIMEOUT {
            return Err(e);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether another program has the lock.
fn is_held(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES))
}

/// A program that ends gives its slot back at once. One that is killed is missed by its beat.
fn leave_at_exit(taken: &Arc<Taken>) {
    static BEGUN: Once = Once::new();
    static ALL: Mutex<Vec<Weak<Taken>>> = Mutex::new(Vec::new());
    extern "C" fn at_exit() {
        // Another thread may be about to have one more; then that one is missed too.
        if let Ok(all) = ALL.try_lock() {
            all.iter().filter_map(Weak::upgrade).for_each(|taken| taken.leave());
        }
    }
    // SAFETY: the function stores words, by way of statics that are never dropped.
    BEGUN.call_once(|| {
        let _ = unsafe { libc::atexit(at_exit) };
    });
    let mut all = ALL.lock().expect("nothing panics under this lock");
    all.retain(|weak| weak.strong_count() > 0);
    all.push(Arc::downgrade(taken));
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::super::segment::{FRONT_BYTES, GUEST_WORDS_AT, HOST_WORDS_AT, WORDS_BYTES};
    use super::*;

    /// The front of a segment, and a way to write whatever a side says of a slot: session and state.
    fn front() -> (Front, File, OwnedFd) {
        let memory = orion_ring::sealed(c"test", FRONT_BYTES as u64).expect("a memfd");
        let file = File::from(memory.try_clone().expect("a descriptor"));
        (Front::map(memory.as_fd()).expect("mapping"), file, memory)
    }

    fn say(file: &File, words_at: u64, slot: usize, (session, state): (u64, u64)) {
        let words = [session, state].map(u64::to_le_bytes).concat();
        file.write_all_at(&words, words_at + slot as u64 * WORDS_BYTES).expect("writing");
    }

    #[test]
    fn a_slot_whose_worker_has_not_ended_yet_is_taken_last() {
        let (front, file, memory) = front();
        // Given back by their programs; the host has ended one of the sessions only.
        say(&file, HOST_WORDS_AT, 0, (7, 0));
        say(&file, HOST_WORDS_AT, 1, (8, 1));
        let claimed: Vec<_> = (1..=3).map(|session| claim(&front, 3, &memory, session).expect("a slot")).collect();
        assert_eq!(claimed, [1, 2, 0]);
        assert!(claim(&front, 3, &memory, 4).expect_err("there are three").contains("all 3 sessions"));
    }

    #[test]
    fn a_host_that_lives_and_does_not_begin_a_session_is_told_of() {
        let (front, file, memory) = front();
        say(&file, HOST_WORDS_AT, 0, (7, 0));
        let slot = claim(&front, 1, &memory, 9).expect("a slot");
        let taken = Taken {
            front,
            slot,
            session: 9,
            registers: None,
            lost: Lost::default(),
            has_begun: AtomicBool::new(false),
            pid: std::process::id(),
            has_left: Mutex::new(false),
        };
        let no = taken.wait_for_host(Duration::from_millis(20)).expect_err("the one before is still there");
        assert!(no.contains("has not begun session 0") && no.contains("--guest-sessions"), "{no}");
        assert_eq!(taken.front.of_guest(slot).session, 0);
    }

    /// Each waits for who may be alive, and none for the others.
    #[test]
    fn several_who_find_slots_of_killed_programs_wait_beside_each_other() {
        const SLOTS: usize = 4;
        let (front, file, memory) = front();
        for slot in 0..SLOTS {
            say(&file, GUEST_WORDS_AT, slot, (7 + slot as u64, 5));
            say(&file, HOST_WORDS_AT, slot, (7 + slot as u64, 1));
        }
        let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
        let began = Instant::now();
        let mut claimed: Vec<usize> = std::thread::scope(|scope| {
            let one = |session| {
                // As another program opens it: locks are the open file's.
                let own = File::options().read(true).write(true).open(&path).expect("opening").into();
                claim(&front, SLOTS, &own, session).expect("a slot")
            };
            let all = [20, 21, 22, 23].map(|session| scope.spawn(move || one(session)));
            all.map(|thread| thread.join().expect("it claims")).into()
        });
        claimed.sort();
        assert_eq!(claimed, [0, 1, 2, 3]);
        assert!(began.elapsed() < 2 * LEAVE_TIMEOUT, "{:?}", began.elapsed());
    }
}
