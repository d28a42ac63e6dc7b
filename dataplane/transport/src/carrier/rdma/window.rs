//! Who may write how much: credits take the place of TCP's flow control.
//!
//! A batch is some bytes of the stream, written into the other side's inbox, and a notice of how many. Notices take up
//! receives that the other side has posted, so both are counted: bytes and batches. The other side gives them back,
//! some at a time, in notices of their own.

use orion_wire::Fault;

use super::limits::{BATCHES_MAX, RING_BYTES, WORKS_MAX};

/// Credits are given back when so much of them has come together: a quarter, so that the other side never waits for
/// the rest of them.
const OWED_BYTES: u32 = RING_BYTES as u32 / 4;
const OWED_BATCHES: u32 = BATCHES_MAX / 4;

const CREDIT: u32 = 1 << 31;
const BYTES_MASK: u32 = (1 << 21) - 1;
const BATCHES_MASK: u32 = (1 << 10) - 1;

/// What a notice says, in the 32 bits that come with a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// So many bytes were written behind those before.
    Written(u32),
    /// So much of what was written may be written over.
    Taken { bytes: u32, batches: u32 },
}

impl Notice {
    pub fn encode(self) -> u32 {
        match self {
            Notice::Written(bytes) => bytes,
            Notice::Taken { bytes, batches } => CREDIT | batches << 21 | bytes,
        }
    }

    pub fn decode(word: u32) -> Notice {
        match word & CREDIT {
            0 => Notice::Written(word),
            _ => Notice::Taken { bytes: word & BYTES_MASK, batches: word >> 21 & BATCHES_MASK },
        }
    }
}

/// What one end has sent.
#[derive(Debug, Default)]
pub struct Out {
    /// Bytes of the stream: given to the device, done with by the device, and taken by the other side.
    posted: u64,
    completed: u64,
    taken: u64,
    /// Batches that the other side has not given back.
    batches: u32,
    /// Work requests in the device's queue.
    works: u32,
}

impl Out {
    /// Where the next byte goes.
    pub fn position(&self) -> u64 {
        self.posted
    }

    /// How many bytes may be written now. The device may still read what it has not completed.
    pub fn room(&self) -> usize {
        if self.batches >= BATCHES_MAX || self.works + 2 > WORKS_MAX {
            return 0;
        }
        RING_BYTES - (self.posted - self.taken.min(self.completed)) as usize
    }

    /// Whether it is this side's device that has to go on, and not the other side.
    pub fn waits_for_device(&self) -> bool {
        self.works + 2 > WORKS_MAX
            || self.batches < BATCHES_MAX
                && self.completed < self.taken
                && self.posted - self.completed >= RING_BYTES as u64
    }

    pub fn posted(&mut self, bytes: usize, works: u32) {
        self.posted += bytes as u64;
        self.batches += 1;
        self.works += works;
    }

    /// One more work request that carries no bytes of the stream; false if there is no room for it.
    pub fn may_note(&mut self) -> bool {
        let may = self.works < WORKS_MAX;
        self.works += u32::from(may);
        may
    }

    pub fn is_idle(&self) -> bool {
        self.works == 0
    }

    /// The device has done so many work requests, and with them all bytes up to a position.
    pub fn completed(&mut self, works: u32, position: u64) {
        self.works -= works;
        self.completed = position;
    }

    /// What the other side gives back, which it can only do once.
    pub fn given_back(&mut self, bytes: u32, batches: u32) -> Result<(), Fault> {
        if u64::from(bytes) > self.posted - self.taken || batches > self.batches {
            return Err(Fault("credits for more than was sent"));
        }
        self.taken += u64::from(bytes);
        self.batches -= batches;
        Ok(())
    }
}

/// What one end has received.
#[derive(Debug, Default)]
pub struct In {
    arrived: u64,
    taken: u64,
    owed_bytes: u32,
    owed_batches: u32,
}

impl In {
    pub fn arrived(&mut self, bytes: u32) -> Result<(), Fault> {
        // What is owed may not be written over either: the other side does not know of it.
        let held = self.arrived - self.taken + u64::from(self.owed_bytes) + u64::from(bytes);
        if bytes == 0 || held > RING_BYTES as u64 {
            return Err(Fault("more was written than there is room for"));
        }
        self.arrived += u64::from(bytes);
        self.owed_batches += 1;
        Ok(())
    }

    /// Where in the inbox there are bytes, and how many in a row.
    pub fn ready(&self) -> (usize, usize) {
        let at = (self.taken % RING_BYTES as u64) as usize;
        (at, ((self.arrived - self.taken) as usize).min(RING_BYTES - at))
    }

    pub fn take(&mut self, bytes: usize) {
        assert!(bytes as u64 <= self.arrived - self.taken, "more bytes taken than have arrived");
        self.taken += bytes as u64;
        self.owed_bytes += bytes as u32;
    }

    /// Whether it is time to give credits back.
    pub fn is_due(&self) -> bool {
        self.owed_bytes >= OWED_BYTES || self.owed_batches >= OWED_BATCHES
    }

    pub fn give_back(&mut self) -> Notice {
        let (bytes, batches) = (std::mem::take(&mut self.owed_bytes), std::mem::take(&mut self.owed_batches));
        Notice::Taken { bytes, batches }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_come_back() {
        for notice in [
            Notice::Written(1),
            Notice::Written(RING_BYTES as u32),
            Notice::Taken { bytes: 0, batches: BATCHES_MAX },
            Notice::Taken { bytes: RING_BYTES as u32, batches: 0 },
        ] {
            assert_eq!(Notice::decode(notice.encode()), notice);
        }
    }

    /// Whatever sizes batches have and however late who moves them is, nothing is written over and nobody waits for
    /// good.
    #[test]
    fn a_stream_of_any_batches_gets_through() {
        for seed in 0..200u64 {
            let mut random = seed;
            let mut below = |n: u64| {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (random >> 33) % n
            };
            let (mut out, mut arrivals) = (Out::default(), In::default());
            let (mut device, mut credits) = (Vec::new(), Vec::new());
            let (mut sent, mut got) = (0u64, 0u64);
            let largest = [8, 1 << 10, RING_BYTES as u64][seed as usize % 3];
            let total = 40 * largest.max(64 << 10);
            let mut idle = 0;
            while got < total {
                idle += 1;
                let n = (out.room() as u64).min(1 + below(largest)).min(total - sent);
                if n > 0 && below(3) > 0 {
                    out.posted(n as usize, 1);
                    sent += n;
                    device.push((out.position(), n as u32));
                    idle = 0;
                }
                if !device.is_empty() && below(2) > 0 {
                    let (position, n) = device.remove(0);
                    out.completed(1, position);
                    arrivals.arrived(n).unwrap();
                    idle = 0;
                }
                let (_, ready) = arrivals.ready();
                if ready > 0 && below(2) > 0 {
                    let n = 1 + below(ready as u64);
                    arrivals.take(n as usize);
                    got += n;
                    idle = 0;
                }
                if arrivals.is_due() {
                    credits.push(arrivals.give_back());
                }
                if !credits.is_empty() && below(4) == 0 {
                    let Notice::Taken { bytes, batches } = credits.remove(0) else { unreachable!() };
                    out.given_back(bytes, batches).unwrap();
                    idle = 0;
                }
                assert!(idle < 1000, "seed {seed}: {out:?} {arrivals:?}");
            }
        }
    }

    #[test]
    fn credits_for_what_was_not_sent_are_a_fault() {
        let mut out = Out::default();
        out.posted(10, 1);
        assert!(out.given_back(11, 0).is_err() && out.given_back(0, 2).is_err());
        assert_eq!(out.given_back(10, 1), Ok(()));
        assert!(out.given_back(1, 0).is_err());
    }

    #[test]
    fn more_than_there_is_room_for_is_a_fault() {
        let mut arrivals = In::default();
        assert!(arrivals.arrived(0).is_err());
        arrivals.arrived(RING_BYTES as u32).unwrap();
        assert!(arrivals.arrived(1).is_err());
        arrivals.take(8);
        // The other side does not know that there is room again.
        assert!(arrivals.arrived(8).is_err());
        arrivals.give_back();
        arrivals.arrived(8).unwrap();
    }
}
