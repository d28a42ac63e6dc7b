//! Bells between two kernels. Neither can sleep on a word that the other changes, and the guest's hears no interrupt
//! without a driver of its own. So whoever sleeps looks at his flag, which the other side takes away before it rings:
//! often at first, and ever more rarely. Only the worker's wait for commands, the longest and most frequent, has a
//! bell, where the device has one.

// UNSAFETY: ppoll, reading eight bytes, and nanosleep by way of the standard library; writes a device's register.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use orion_ring::bell::{Bell, Seat};

use super::device::Registers;
use super::segment::HOST_PEER;

/// Where the worker waits for commands.
const OF_COMMANDS: usize = 0;
const LOOK_INTERVAL_MIN: Duration = Duration::from_micros(20);
/// What has taken less than 160 ms takes an eighth longer at most; 200 looks a second are a percent of a core.
const LOOK_INTERVAL_SOON: Duration = Duration::from_millis(5);
/// And what takes longer a 32nd, up to this.
const LOOK_INTERVAL_MAX: Duration = Duration::from_millis(20);
/// Who has a bell looks all the same: a device may have been given fewer vectors than it takes.
const BELL_TIMEOUT: Duration = Duration::from_millis(50);

/// The guest's end.
pub struct OfGuest {
    /// Where the device has some, and which of the host's vectors is the worker's.
    pub registers: Option<(Arc<Registers>, u32)>,
}

impl Bell for OfGuest {
    fn ring(&self, seat: Seat) {
        if let (OF_COMMANDS, Some((registers, vector))) = (seat.number, &self.registers) {
            registers.ring(HOST_PEER, *vector);
        }
    }

    fn sleep(&self, seat: Seat, timeout: Duration) {
        look(seat, timeout);
    }
}

/// The worker's end.
pub struct OfWorker {
    /// Readable once the guest has rung.
    pub rung: Option<OwnedFd>,
}

impl Bell for OfWorker {
    /// The guest looks.
    fn ring(&self, _: Seat) {}

    fn sleep(&self, seat: Seat, timeout: Duration) {
        match (seat.number, &self.rung) {
            (OF_COMMANDS, Some(rung)) => wait(rung, timeout.min(BELL_TIMEOUT)),
            _ => look(seat, timeout),
        }
    }
}

/// Returns when the flag is taken away or the time is over.
fn look(seat: Seat, timeout: Duration) {
    let begin = Instant::now();
    loop {
        let waited = begin.elapsed();
        // Acquire pairs with the SeqCst swap of whoever takes it away.
        if waited >= timeout || seat.flag.load(Ordering::Acquire) == 0 {
            return;
        }
        std::thread::sleep(interval(waited).min(timeout - waited));
    }
}

/// How long who has waited so long sleeps until the next look.
fn interval(waited: Duration) -> Duration {
    (waited / 8).clamp(LOOK_INTERVAL_MIN, LOOK_INTERVAL_SOON).max((waited / 32).min(LOOK_INTERVAL_MAX))
}

fn wait(rung: &OwnedFd, timeout: Duration) {
    let mut entry = libc::pollfd { fd: rung.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let time = libc::timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos() as i64 };
    let mut count = 0u64;
    // SAFETY: one valid entry and time; eight bytes into a local.
    unsafe {
        if libc::ppoll(&raw mut entry, 1, &raw const time, std::ptr::null()) > 0 {
            libc::read(rung.as_raw_fd(), (&raw mut count).cast(), 8);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn what_has_taken_longer_takes_longer_by_an_ever_smaller_part() {
        let (ms, us) = (Duration::from_millis, Duration::from_micros);
        let intervals = [ms(0), ms(8), ms(40), ms(160), ms(320), ms(1000)].map(interval);
        assert_eq!(intervals, [us(20), ms(1), ms(5), ms(5), ms(10), ms(20)]);
    }

    #[test]
    fn who_sleeps_gets_up_when_his_flag_is_taken_away_or_his_time_is_over() {
        static FLAG: AtomicU32 = AtomicU32::new(1);
        let bell = OfWorker { rung: None };
        let seat = Seat { number: OF_COMMANDS, flag: &FLAG };
        let (begin, short) = (Instant::now(), Duration::from_millis(5));
        bell.sleep(seat, short);
        assert!(begin.elapsed() >= short);
        let waker = std::thread::spawn(move || {
            std::thread::sleep(short);
            FLAG.store(0, Ordering::SeqCst);
        });
        OfGuest { registers: None }.sleep(seat, LONG);
        assert!(begin.elapsed() < LONG);
        waker.join().expect("it stores a word");
    }
}
