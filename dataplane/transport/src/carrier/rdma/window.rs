//! Who may write how much, and by which way: credits take the place of TCP's flow control.
//!
//! A batch is some bytes of the stream, written into the other side's inbox, or records, written into its ring, and a
//! notice of how many. Notices take up receives that the other side has posted, so both are counted: bytes and batches.
//! The other side gives them back, some at a time, in notices of its own.
//!
//! Records may be written into the ring while all that goes ahead of them has been taken out of the inbox: the other
//! side says so at once, for a batch that asks it to. What is in no order with records asks nothing.
//!
//! Large ranges of the heap do not go through the inbox: they are shown, and the other side's device reads them. It
//! says so in a notice for each, and only then are they let go of, are there others in their place, and records again.

use std::collections::VecDeque;

use orion_wire::Fault;

use super::limits::{
    BATCH_WORKS_MAX, BATCHES_MAX, LANDING_BYTES, PLACED_BYTES_MAX, RING_BYTES, STAGE_BYTES, WORKS_MAX,
};
use super::works::Slot;
use crate::stream::{SHOWN_MAX, Shown, TAKEN_BYTES_MIN};

/// Credits are given back when so much of them has come together: a quarter, so that the other side never waits for
/// the rest of them.
const OWED_BYTES: u32 = RING_BYTES as u32 / 4;
const OWED_BATCHES: u32 = BATCHES_MAX / 4;
/// What is placed behind records: where they end.
pub const WORDS_BYTES: usize = orion_ring::control::PLACED_BYTES;

const KIND_BITS: u32 = 30;
const NUMBER_MASK: u32 = (1 << KIND_BITS) - 1;
const BYTES_MASK: u32 = (1 << 21) - 1;
const AHEAD: u32 = 1 << 21;
const BATCHES_MASK: u32 = (1 << 9) - 1;
const READ: u32 = 1 << 29;

/// What a notice says, in the 32 bits that come with a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// So many bytes were written behind those before, into the inbox. Where they are ahead of records, what comes
    /// into the ring waits for word that they were taken.
    Written { bytes: u32, ahead: bool },
    /// So many bytes were written behind those before, into the ring.
    Placed(u32),
    /// So much of what was written may be written over.
    Taken { bytes: u32, batches: u32 },
    /// So many bytes more of what was written into the ring, by either way, were taken from there.
    Room(u32),
    /// So many ranges more of those that were shown were read, the oldest first.
    Read(u32),
}

impl Notice {
    pub fn encode(self) -> u32 {
        match self {
            Notice::Written { bytes, ahead } => bytes | if ahead { AHEAD } else { 0 },
            Notice::Placed(bytes) => 1 << KIND_BITS | bytes,
            Notice::Taken { bytes, batches } => 2 << KIND_BITS | batches << 21 | bytes,
            Notice::Room(bytes) => 3 << KIND_BITS | bytes,
            Notice::Read(ranges) => 1 << KIND_BITS | READ | ranges,
        }
    }

    pub fn decode(word: u32) -> Notice {
        let number = word & NUMBER_MASK;
        match word >> KIND_BITS {
            0 => Notice::Written { bytes: number & !AHEAD, ahead: number & AHEAD != 0 },
            1 if number & READ != 0 => Notice::Read(number & !READ),
            1 => Notice::Placed(number),
            2 => Notice::Taken { bytes: word & BYTES_MASK, batches: word >> 21 & BATCHES_MASK },
            _ => Notice::Room(number),
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
    /// Records wait until the stream has been taken up to here.
    ahead: u64,
    /// Bytes of the stage, with those that are left out at its end: given to the device, and done with.
    staged: u64,
    unstaged: u64,
    /// Bytes of the other side's ring that it has taken, however they came there.
    ring_taken: u64,
    /// Batches that the other side has not given back.
    batches: u32,
    /// Work requests in the device's queue.
    works: u32,
    /// Ranges that are shown, by where they are registered, in order.
    shown: VecDeque<Slot>,
    /// Reads that the device has done since somebody asked.
    reads: usize,
}

/// What a device has done with which bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upto {
    Stream(u64),
    Stage(u64),
}

impl Out {
    /// Where the next byte of the stream goes.
    pub fn position(&self) -> u64 {
        self.posted
    }

    fn may_send(&self) -> bool {
        self.batches < BATCHES_MAX && self.works + BATCH_WORKS_MAX <= WORKS_MAX
    }

    /// How many bytes of the stream may be written now. The device may still read what it has not completed.
    pub fn room(&self) -> usize {
        match self.may_send() {
            true => RING_BYTES - (self.posted - self.taken.min(self.completed)) as usize,
            false => 0,
        }
    }

    /// How many bytes of records may be written into the other side's ring, of which `at` were written there so far, by
    /// either way.
    pub fn placeable(&self, at: u64, ring_bytes: usize) -> Result<usize, Fault> {
        let held = at.checked_sub(self.ring_taken).ok_or(Fault("room in a ring for more than was sent"))?;
        if !self.may_send() || self.taken < self.ahead || !self.shown.is_empty() {
            return Ok(0);
        }
        let ring = (ring_bytes as u64).saturating_sub(held) as usize;
        let stage = self.stage_room().saturating_sub(WORDS_BYTES);
        Ok(ring.min(stage).min(PLACED_BYTES_MAX))
    }

    /// Bytes of the stage that are free and lie in a row.
    fn stage_room(&self) -> usize {
        let free = STAGE_BYTES - (self.staged - self.unstaged) as usize;
        let to_end = STAGE_BYTES - (self.staged % STAGE_BYTES as u64) as usize;
        if free <= to_end { free } else { to_end.max(free - to_end) }
    }

    /// Takes bytes of the stage, and says where.
    pub fn stage(&mut self, bytes: usize) -> (usize, Upto) {
        assert!(bytes <= self.stage_room(), "more on the stage than there is room for");
        let at = (self.staged % STAGE_BYTES as u64) as usize;
        let left_out = if at + bytes <= STAGE_BYTES { 0 } else { STAGE_BYTES - at };
        self.staged += (left_out + bytes) as u64;
        ((at + left_out) % STAGE_BYTES, Upto::Stage(self.staged))
    }

    /// Whether it is this side's device that has to go on, and not the other side.
    pub fn waits_for_device(&self) -> bool {
        self.works + BATCH_WORKS_MAX > WORKS_MAX
            || self.batches < BATCHES_MAX
                && self.completed < self.taken
                && self.posted - self.completed >= RING_BYTES as u64
    }

    pub fn posted(&mut self, bytes: usize, works: u32, ahead: bool) -> Upto {
        self.posted += bytes as u64;
        if ahead {
            self.ahead = self.posted;
        }
        self.placed(works);
        Upto::Stream(self.posted)
    }

    pub fn placed(&mut self, works: u32) {
        self.batches += 1;
        self.works += works;
    }

    /// One more work request that carries nothing; false if there is no room for it.
    pub fn may_note(&mut self) -> bool {
        let may = self.works < WORKS_MAX;
        self.works += u32::from(may);
        may
    }

    pub fn is_idle(&self) -> bool {
        self.works == 0
    }

    /// The device has done so many work requests, and with them all bytes up to a position.
    pub fn completed(&mut self, works: u32, up_to: Upto) {
        self.works -= works;
        match up_to {
            Upto::Stream(position) => self.completed = position,
            Upto::Stage(position) => self.unstaged = position,
        }
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

    pub fn may_show(&self) -> bool {
        self.shown.len() < SHOWN_MAX
    }

    #[cfg(test)]
    pub fn shown_count(&self) -> usize {
        self.shown.len()
    }

    /// What is registered there is shown.
    pub fn shown(&mut self, slot: Slot) {
        assert!(self.may_show(), "more ranges shown than there may be");
        self.shown.push_back(slot);
    }

    /// The other side has read the oldest range. Answers where that was registered.
    pub fn was_read(&mut self) -> Result<Slot, Fault> {
        self.shown.pop_front().ok_or(Fault("more ranges were read than were shown"))
    }

    /// The device has read something.
    pub fn has_read(&mut self) {
        self.reads += 1;
    }

    pub fn has_reads(&self) -> bool {
        self.reads > 0
    }

    /// What it has read since this was asked before.
    pub fn take_reads(&mut self) -> usize {
        std::mem::take(&mut self.reads)
    }

    /// Room in the other side's ring. More than was sent is found by [`Self::placeable`].
    pub fn ring_given_back(&mut self, bytes: u32) {
        self.ring_taken += u64::from(bytes);
    }

    pub fn ring_taken(&self) -> u64 {
        self.ring_taken
    }
}

/// What one end has received.
#[derive(Debug, Default)]
pub struct In {
    /// Bytes of the stream.
    arrived: u64,
    taken: u64,
    /// Up to where the other side wants to hear at once that they were taken, and has not yet.
    ahead: u64,
    /// Bytes in the ring that nobody has been told of.
    placed: usize,
    /// Bytes of the ring that were taken, and those that the other side has heard of.
    ring_taken: u64,
    ring_told: u64,
    /// Ranges that the other side shows, as far as it knows, and those of them that were read.
    shown: u32,
    owed_reads: u32,
    owed_bytes: u32,
    owed_batches: u32,
}

impl In {
    pub fn arrived(&mut self, bytes: u32, ahead: bool) -> Result<(), Fault> {
        // What is owed may not be written over either: the other side does not know of it.
        let held = self.arrived - self.taken + u64::from(self.owed_bytes) + u64::from(bytes);
        if bytes == 0 || held > RING_BYTES as u64 {
            return Err(Fault("more was written than there is room for"));
        }
        self.arrived += u64::from(bytes);
        if ahead {
            self.ahead = self.arrived;
        }
        self.owed_batches += 1;
        Ok(())
    }

    /// Records have come into the ring. Whether there was room for them is for whoever knows the ring.
    pub fn placed(&mut self, bytes: u32) -> Result<(), Fault> {
        if self.ahead > self.taken || self.shown > 0 {
            return Err(Fault("records were written into a ring ahead of what is before them"));
        }
        if bytes == 0 || bytes as usize > PLACED_BYTES_MAX {
            return Err(Fault("an impossible number of records was written into a ring"));
        }
        self.placed += bytes as usize;
        self.owed_batches += 1;
        Ok(())
    }

    /// Bytes that have come into the ring since this was asked before.
    pub fn take_placed(&mut self) -> usize {
        std::mem::take(&mut self.placed)
    }

    /// Where in the inbox there are bytes, and how many in a row.
    pub fn ready(&self) -> (usize, usize) {
        let at = (self.taken % RING_BYTES as u64) as usize;
        (at, ((self.arrived - self.taken) as usize).min(RING_BYTES - at))
    }

    pub fn has_arrivals(&self) -> bool {
        self.arrived > self.taken || self.placed > 0
    }

    /// So many bytes of the inbox are where they belong.
    pub fn take(&mut self, bytes: usize) {
        assert!(bytes as u64 <= self.arrived - self.taken, "more bytes taken than have arrived");
        self.taken += bytes as u64;
        self.owed_bytes += bytes as u32;
    }

    /// Up to where bytes of the ring were taken.
    pub fn ring_taken(&mut self, up_to: u64) {
        self.ring_taken = self.ring_taken.max(up_to);
    }

    /// So many ranges more are shown.
    pub fn shown(&mut self, count: usize) {
        self.shown += count as u32;
    }

    /// All of so many ranges is where it belongs.
    pub fn have_read(&mut self, count: usize) {
        self.owed_reads += count as u32;
        assert!(self.owed_reads <= self.shown, "more ranges read than are shown");
    }

    fn owes_room(&self) -> bool {
        self.ring_taken - self.ring_told >= TAKEN_BYTES_MIN
    }

    fn is_awaited(&self) -> bool {
        self.ahead > 0 && self.taken >= self.ahead
    }

    fn owes_credits(&self) -> bool {
        self.owed_bytes >= OWED_BYTES || self.owed_batches >= OWED_BATCHES || self.is_awaited()
    }

    /// Whether it is time to give something back.
    pub fn is_due(&self) -> bool {
        self.owed_reads > 0 || self.owes_credits() || self.owes_room()
    }

    /// What is to be given back now, of one kind. There is some, as [`Self::is_due`] has said.
    pub fn give_back(&mut self) -> Notice {
        if self.owed_reads > 0 {
            self.shown -= self.owed_reads;
            return Notice::Read(std::mem::take(&mut self.owed_reads));
        }
        if !self.owes_credits() {
            let bytes = (self.ring_taken - self.ring_told).min(NUMBER_MASK.into());
            self.ring_told += bytes;
            return Notice::Room(bytes as u32);
        }
        if self.is_awaited() {
            self.ahead = 0;
        }
        let (bytes, batches) = (std::mem::take(&mut self.owed_bytes), std::mem::take(&mut self.owed_batches));
        Notice::Taken { bytes, batches }
    }
}

/// Ranges that the other side shows, until all of each is here: in their order, for a device reads in order.
#[derive(Debug, Default)]
pub struct Reading {
    queue: VecDeque<ToRead>,
    /// Of the first so many something is being read.
    under_way: usize,
    /// The last of those is read by way of the landing, which has room for one.
    lands: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToRead {
    pub shown: Shown,
    /// Where it belongs, in this process.
    pub to: usize,
    /// Where that is registered; it is read by way of the landing otherwise, a part at a time.
    slot: Option<Slot>,
    landed: usize,
}

/// What a read that is done has brought.
#[derive(Debug, PartialEq, Eq)]
pub enum Brought {
    /// All of a range, to where it belongs: what is registered in this slot can go.
    Whole { slot: Slot, bytes: usize },
    /// So many bytes to the landing, which belong there; and what is to be read next of that range, if any is left.
    Landed { to: usize, bytes: usize, next: Option<LandingPart> },
}

/// Of a range that is read by way of the landing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LandingPart {
    pub address: u64,
    pub key: u32,
    pub bytes: usize,
}

impl ToRead {
    fn landing_part(&self) -> Option<LandingPart> {
        let bytes = (self.shown.range.bytes as usize - self.landed).min(LANDING_BYTES);
        let part = LandingPart { address: self.shown.address + self.landed as u64, key: self.shown.key, bytes };
        (bytes > 0).then_some(part)
    }
}

impl Reading {
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// That there are not too many was looked at where they came.
    pub fn begin(&mut self, shown: Shown, to: usize) {
        self.queue.push_back(ToRead { shown, to, slot: None, landed: 0 });
    }

    /// What is to be read next, where a device has at most so many reads at a time.
    pub fn next(&self, most: usize) -> Option<ToRead> {
        let may = !self.lands && self.under_way < most;
        self.queue.get(self.under_way).filter(|_| may).copied()
    }

    /// All of that is being read, to what is registered in a slot.
    pub fn reads_whole(&mut self, slot: Slot) {
        self.queue[self.under_way].slot = Some(slot);
        self.under_way += 1;
    }

    /// That is being read by way of the landing; the first part of it is this.
    pub fn reads_to_landing(&mut self) -> LandingPart {
        let part = self.queue[self.under_way].landing_part();
        (self.under_way, self.lands) = (self.under_way + 1, true);
        part.expect("no range is empty")
    }

    /// The oldest read is done.
    pub fn completed(&mut self) -> Brought {
        let oldest = self.queue.front_mut().expect("nothing is read that is not shown");
        if let Some(slot) = oldest.slot {
            let bytes = oldest.shown.range.bytes as usize;
            self.finish();
            return Brought::Whole { slot, bytes };
        }
        let (to, part) = (oldest.to + oldest.landed, oldest.landing_part());
        let bytes = part.expect("something was being read").bytes;
        oldest.landed += bytes;
        let next = oldest.landing_part();
        if next.is_none() {
            self.lands = false;
            self.finish();
        }
        Brought::Landed { to, bytes, next }
    }

    fn finish(&mut self) {
        self.queue.pop_front();
        self.under_way -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use orion_wire::record::HeapRange;

    use crate::stream::SHOWN_BYTES_MAX;

    use super::*;

    #[test]
    fn notices_come_back() {
        for notice in [
            Notice::Written { bytes: 1, ahead: false },
            Notice::Written { bytes: RING_BYTES as u32, ahead: true },
            Notice::Placed(1),
            Notice::Placed(PLACED_BYTES_MAX as u32),
            Notice::Taken { bytes: 0, batches: BATCHES_MAX },
            Notice::Taken { bytes: RING_BYTES as u32, batches: 0 },
            Notice::Room(TAKEN_BYTES_MIN as u32),
            Notice::Room(NUMBER_MASK),
            Notice::Read(0),
            Notice::Read(SHOWN_MAX as u32),
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
                    let end = out.posted(n as usize, 1, false);
                    sent += n;
                    device.push((end, n as u32));
                    idle = 0;
                }
                if !device.is_empty() && below(2) > 0 {
                    let (position, n) = device.remove(0);
                    out.completed(1, position);
                    arrivals.arrived(n, false).unwrap();
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
        out.posted(10, 1, false);
        assert!(out.given_back(11, 0).is_err() && out.given_back(0, 2).is_err());
        assert_eq!(out.given_back(10, 1), Ok(()));
        assert!(out.given_back(1, 0).is_err());
    }

    #[test]
    fn more_than_there_is_room_for_is_a_fault() {
        let mut arrivals = In::default();
        assert!(arrivals.arrived(0, false).is_err());
        arrivals.arrived(RING_BYTES as u32, false).unwrap();
        assert!(arrivals.arrived(1, false).is_err());
        arrivals.take(OWED_BYTES as usize);
        // The other side does not know that there is room again.
        assert!(arrivals.arrived(8, false).is_err());
        assert_eq!(arrivals.give_back(), Notice::Taken { bytes: OWED_BYTES, batches: 1 });
        arrivals.arrived(8, false).unwrap();
    }
    #[test]
    fn records_ahead_of_what_is_before_them_are_a_fault() {
        let mut arrivals = In::default();
        assert_eq!(arrivals.placed(64), Ok(()));
        arrivals.arrived(8, false).unwrap();
        assert_eq!(arrivals.placed(64), Ok(()));
        arrivals.arrived(8, true).unwrap();
        assert!(arrivals.placed(64).is_err());
        arrivals.take(8);
        assert!(arrivals.placed(64).is_err());
        arrivals.take(8);
        assert_eq!((arrivals.placed(64), arrivals.take_placed(), arrivals.take_placed()), (Ok(()), 192, 0));
        assert!(arrivals.placed(0).is_err() && arrivals.placed(PLACED_BYTES_MAX as u32 + 1).is_err());
    }

    #[test]
    fn records_wait_for_word_of_what_is_before_them() {
        const RING: usize = 1 << 20;
        let (mut out, mut arrivals) = (Out::default(), In::default());
        assert_eq!(out.placeable(0, RING), Ok(PLACED_BYTES_MAX));
        out.posted(8, 1, false);
        assert_eq!(out.placeable(0, RING), Ok(PLACED_BYTES_MAX));
        out.posted(8, 1, true);
        assert_eq!(out.placeable(0, RING), Ok(0));
        arrivals.arrived(8, false).unwrap();
        arrivals.arrived(8, true).unwrap();
        arrivals.take(15);
        assert!(!arrivals.is_due());
        arrivals.take(1);
        assert!(arrivals.is_due());
        assert_eq!(arrivals.give_back(), Notice::Taken { bytes: 16, batches: 2 });
        assert!(!arrivals.is_due());
        out.given_back(16, 2).unwrap();
        assert_eq!(out.placeable(0, RING), Ok(PLACED_BYTES_MAX));
        // A ring that is full, all but eight bytes.
        assert_eq!(out.placeable(RING as u64 - 8, RING), Ok(8));
        arrivals.ring_taken(TAKEN_BYTES_MIN - 8);
        assert!(!arrivals.is_due());
        arrivals.ring_taken(TAKEN_BYTES_MIN);
        assert_eq!((arrivals.is_due(), arrivals.give_back()), (true, Notice::Room(TAKEN_BYTES_MIN as u32)));
        out.ring_given_back(4096);
        assert_eq!(out.placeable(RING as u64, RING), Ok(4096));
        assert!(out.placeable(4088, RING).is_err(), "it took more than it was sent");
    }

    #[test]
    fn ranges_are_shown_up_to_a_number_and_hold_up_records_until_they_were_read() {
        const RING: usize = 1 << 20;
        let (mut out, mut arrivals) = (Out::default(), In::default());
        for slot in 0..SHOWN_MAX {
            assert!(out.may_show());
            out.shown(Slot::Range(slot + 10));
        }
        assert!(!out.may_show());
        assert_eq!(out.placeable(0, RING), Ok(0));
        arrivals.shown(SHOWN_MAX);
        assert!(!arrivals.is_due() && arrivals.placed(64).is_err());
        arrivals.have_read(2);
        assert_eq!((arrivals.is_due(), arrivals.give_back(), arrivals.is_due()), (true, Notice::Read(2), false));
        let first = [10, 11].map(|slot| Ok(Slot::Range(slot)));
        assert_eq!(([out.was_read(), out.was_read()], out.may_show()), (first, true));
        assert!(arrivals.placed(64).is_err() && out.placeable(0, RING) == Ok(0));
        arrivals.have_read(SHOWN_MAX - 2);
        assert_eq!(arrivals.give_back(), Notice::Read(SHOWN_MAX as u32 - 2));
        for slot in 2..SHOWN_MAX {
            assert_eq!(out.was_read(), Ok(Slot::Range(slot + 10)));
        }
        assert_eq!((arrivals.placed(64), out.placeable(0, RING)), (Ok(()), Ok(PLACED_BYTES_MAX)));
        assert!(out.was_read().is_err(), "none is shown");
    }

    /// Whichever ranges can be registered where they belong, and however late a device is: each byte of each is read
    /// once, in order, and of as many at a time as there may be.
    #[test]
    fn ranges_are_read_whole_and_in_order_with_pages_that_can_be_registered_or_without() {
        for seed in 0..200u64 {
            let mut random = seed;
            let mut below = |n: u64| {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (random >> 33) % n
            };
            let most = 1 + below(4) as usize;
            let (mut reading, mut device) = (Reading::default(), VecDeque::new());
            // A number for each range, which is where it is, and where it goes.
            let place = |number: u64| number << 32;
            let (mut begun, mut finished, mut landed, mut slots) = (0u64, 0, 0, Vec::new());
            while finished < 60 {
                if begun < 60 && begun - finished < SHOWN_MAX as u64 && below(3) > 0 {
                    let largest = [4096, SHOWN_BYTES_MAX][below(2) as usize];
                    let bytes = 1 + below(largest);
                    let shown = Shown { range: HeapRange { offset: 0, bytes }, address: place(begun), key: 7 };
                    reading.begin(shown, place(begun) as usize);
                    begun += 1;
                }
                while let Some(next) = reading.next(most) {
                    assert!(device.len() < most);
                    if below(4) > 0 {
                        let slot = Slot::Range(place(next.shown.address >> 32) as usize + 1);
                        slots.push(slot);
                        reading.reads_whole(slot);
                        device.push_back((next.shown.address, next.shown.range.bytes as usize));
                    } else {
                        let part = reading.reads_to_landing();
                        assert!(part.bytes <= LANDING_BYTES && part.key == 7);
                        device.push_back((part.address, part.bytes));
                    }
                }
                if below(2) == 0 {
                    continue;
                }
                let Some((address, bytes)) = device.pop_front() else { continue };
                match reading.completed() {
                    Brought::Whole { slot, bytes: brought } => {
                        assert_eq!((slots.remove(0), address, bytes), (slot, place(finished), brought));
                        assert_eq!(slot, Slot::Range(place(finished) as usize + 1));
                        finished += 1;
                    }
                    Brought::Landed { to, bytes: brought, next } => {
                        assert_eq!((to as u64, brought), (address, bytes));
                        assert_eq!(address, place(finished) + landed);
                        landed += bytes as u64;
                        match next {
                            Some(part) => device.push_back((part.address, part.bytes)),
                            None => (landed, finished) = (0, finished + 1),
                        }
                    }
                }
            }
            assert!(reading.is_empty() && device.is_empty() && slots.is_empty(), "seed {seed}: {reading:?}");
        }
    }

    #[derive(Debug)]
    struct Sent {
        end: Upto,
        works: u32,
        notice: Notice,
        staged: Range<usize>,
        /// Of records: how many bytes of them go before these.
        at: u64,
    }

    /// One end of the model below, and what is on its way from it.
    #[derive(Default, Debug)]
    struct End {
        out: Out,
        arrivals: In,
        wire: VecDeque<Sent>,
        /// Of the stage, that the device has not done with.
        staged: Vec<Range<usize>>,
        /// Bytes of records that were sent, by either way, and by the inbox in each batch of it.
        at: u64,
        by_inbox: VecDeque<(u64, u64, usize)>,
        /// Ranges that were shown, by number, up to the oldest that the other side has not said to have read.
        shown: usize,
        oldest: usize,
        /// Of the other end's, that this one reads.
        reading: usize,
        /// Of the ring that this end has, and that the other writes into.
        came: u64,
        taken: u64,
        placed: u64,
        burst: u64,
    }

    impl End {
        fn place(&mut self, ring: usize, below: &mut impl FnMut(u64) -> u64) -> bool {
            let most = self.out.placeable(self.at, ring).unwrap() as u64 / 8;
            if most == 0 {
                return false;
            }
            let most = most.min([1, 30, 9000][below(3) as usize]);
            let bytes = 8 * (1 + below(most)) as usize;
            let (from, end) = self.out.stage(bytes + WORDS_BYTES);
            let range = from..from + bytes + WORDS_BYTES;
            assert!(range.end <= STAGE_BYTES, "{range:?}");
            let is_free = |held: &Range<usize>| held.end <= range.start || range.end <= held.start;
            assert!(self.staged.iter().all(is_free), "{range:?} {:?}", self.staged);
            self.staged.push(range.clone());
            self.out.placed(2);
            self.wire.push_back(Sent {
                end,
                works: 2,
                notice: Notice::Placed(bytes as u32),
                staged: range,
                at: self.at,
            });
            (self.at, self.placed) = (self.at + bytes as u64, self.placed + 1);
            self.burst = self.burst.saturating_sub(5);
            true
        }

        fn send(&mut self, below: &mut impl FnMut(u64) -> u64) -> bool {
            let most = [16, 128 << 10][below(2) as usize];
            let bytes = (self.out.room() as u64).min(1 + below(most));
            if bytes == 0 {
                return false;
            }
            let ahead = below(2) == 0;
            let mut ranges = 0;
            while ahead && self.out.may_show() && below(4) == 0 {
                self.out.shown(Slot::Range(self.shown));
                (self.shown, ranges) = (self.shown + 1, ranges + 1);
            }
            let records = if ahead && ranges == 0 { below(bytes + 1) } else { 0 };
            let end = self.out.posted(bytes as usize, 1, ahead);
            (self.at, self.burst) = (self.at + records, self.burst + 1);
            self.by_inbox.push_back((self.out.position(), records, ranges));
            let notice = Notice::Written { bytes: bytes as u32, ahead };
            self.wire.push_back(Sent { end, works: 1, notice, staged: 0..0, at: 0 });
            true
        }

        fn give_back(&mut self) -> bool {
            let may = self.arrivals.is_due() && self.out.may_note();
            if may {
                let notice = self.arrivals.give_back();
                let end = Upto::Stream(self.out.position());
                self.wire.push_back(Sent { end, works: 1, notice, staged: 0..0, at: 0 });
            }
            may
        }
    }

    /// The device of `from` does the next thing.
    fn write(from: &mut End, to: &mut End, ring: usize) -> bool {
        let Some(Sent { end, works, notice, staged, at }) = from.wire.pop_front() else { return false };
        from.out.completed(works, end);
        from.staged.retain(|held| *held != staged);
        match notice {
            Notice::Written { bytes, ahead } => to.arrivals.arrived(bytes, ahead).unwrap(),
            Notice::Placed(bytes) => {
                to.arrivals.placed(bytes).unwrap();
                assert_eq!(to.reading, 0, "records came before ranges that were shown before them");
                assert_eq!(to.came, at, "not all that was sent before it is in the ring");
                to.came += u64::from(bytes);
                assert!(to.came - to.taken <= ring as u64, "records lie over others");
            }
            Notice::Taken { bytes, batches } => to.out.given_back(bytes, batches).unwrap(),
            Notice::Room(bytes) => to.out.ring_given_back(bytes),
            Notice::Read(ranges) => {
                for _ in 0..ranges {
                    assert_eq!(to.out.was_read(), Ok(Slot::Range(to.oldest)));
                    to.oldest += 1;
                }
            }
        }
        true
    }

    /// What has come to `to` goes on, as far as its ring has room.
    fn take(from: &mut End, to: &mut End, ring: usize, below: &mut impl FnMut(u64) -> u64) -> bool {
        let (_, ready) = to.arrivals.ready();
        let Some(&(end, records, ranges)) = from.by_inbox.front() else { return false };
        let left = (end - to.arrivals.taken) as usize;
        // Of what follows ranges nothing passes.
        if ready == 0 || to.reading > 0 || ready >= left && to.came + records - to.taken > ring as u64 {
            return false;
        }
        let most = ready.min(left);
        let bytes = if below(2) == 0 { most } else { 1 + below(most as u64) as usize };
        to.arrivals.take(bytes);
        if bytes == left {
            to.came += records;
            to.reading += ranges;
            to.arrivals.shown(ranges);
            from.by_inbox.pop_front();
        }
        true
    }

    /// Whatever is sent by which way, and however late devices, readers and credits are: no record comes before what it
    /// waits for, nothing lies over anything else, and nobody waits for good.
    #[test]
    fn two_ways_both_ways_get_through_in_order() {
        for seed in 0..100u64 {
            let mut random = seed;
            let mut below = |n: u64| {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (random >> 33) % n
            };
            let ring = [256 << 10, 2 << 20][seed as usize % 2];
            let mut ends = [End::default(), End::default()];
            // Who is slow: readers, credits, devices, who takes from the inbox, or reading of what is shown.
            let slow = below(5);
            let mut idle = 0;
            while ends.iter().any(|end| end.at < 4 << 20) {
                let who = below(2) as usize;
                let [a, b] = &mut ends;
                let (a, b) = if who == 0 { (a, b) } else { (b, a) };
                let what = below(7);
                let skips = what == 2 + slow && below(20) > 0;
                let done = !skips
                    && match what {
                        0 => a.place(ring, &mut below),
                        // Now and then there are none, or records would hardly go the other way.
                        1 => a.burst < 50 && a.send(&mut below),
                        2 => {
                            let bytes = below(b.came - b.taken + 1);
                            b.taken += bytes;
                            b.arrivals.ring_taken(b.taken);
                            bytes > 0
                        }
                        3 => b.give_back(),
                        4 => write(a, b, ring),
                        5 => take(a, b, ring, &mut below),
                        _ => {
                            let ranges = below(b.reading as u64 + 1) as usize;
                            b.reading -= ranges;
                            b.arrivals.have_read(ranges);
                            ranges > 0
                        }
                    };
                idle = if done { 0 } else { idle + 1 };
                assert!(idle < 5000, "seed {seed}: {ends:?}");
            }
            assert!(ends.iter().all(|end| end.placed > 20 && end.shown > 20), "seed {seed}: {ends:?}");
        }
    }
}
