//! What lies where in the memory that a guest and its host share. One guest has one segment, and in it a slot for each
//! session that it may have at the same time.
//!
//! ```text
//! 0        head: what there is, and the host's beat          (written by the host)
//! 4 KiB    for each slot, the guest's words                  (written by the guest)
//! 8 KiB    for each slot, the host's words                   (written by the host)
//! 64 KiB   for each slot, its mail: bytes to the host, bytes to the guest
//! 2 MiB    slots: each the memory of one session (`orion_ring`)
//! ```
//! Mail carries the handshake, as a socket would; a session that has begun needs none. Either side writes its own words
//! and reads the other's, and believes none of them.

use orion_ring::memory::{HEAP_OFFSET, Layout};
use orion_wire::Fault;

/// The device's, of QEMU: Red Hat's inter-VM shared memory.
pub const VENDOR: &str = "0x1af4";
pub const DEVICE: &str = "0x1110";

const MAGIC: u64 = u64::from_le_bytes(*b"orionseg");
const VERSION: u64 = 1;

/// Sessions that a guest may have at the same time.
pub const SLOTS_MAX: usize = 16;
/// Of the heap of each.
const HEAP_BYTES_MIN: u64 = 8 << 20;
const SLOTS_AT: u64 = 2 << 20;
/// Slots begin at multiples of it, so that there can be huge pages.
const SLOT_STEP: u64 = 2 << 20;
/// What is mapped of a segment besides a slot.
pub const FRONT_BYTES: usize = SLOTS_AT as usize;

pub const HEAD_WORDS: usize = 6;
/// In the head.
pub const BEAT_AT: u64 = 5 * 8;
pub const GUEST_WORDS_AT: u64 = 4 << 10;
pub const HOST_WORDS_AT: u64 = 8 << 10;
pub const WORDS_BYTES: u64 = 64;
const MAIL_AT: u64 = 64 << 10;
/// Of each direction.
pub const MAIL_BYTES: u64 = 32 << 10;
const _: () = assert!(MAIL_AT + SLOTS_MAX as u64 * 2 * MAIL_BYTES <= SLOTS_AT);

/// The host's number where guests ring.
pub const HOST_PEER: u32 = 0;
/// The vector by which the host is told of mail; behind it comes one for each slot's worker.
pub const MAIL_VECTOR: u32 = 0;

/// How a segment is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub slots: usize,
    pub slot_bytes: u64,
}

impl Shape {
    /// Of a segment of so many bytes for so many sessions, or why not.
    pub fn of(bytes: u64, slots: usize) -> Result<Shape, String> {
        if !bytes.is_power_of_two() {
            return Err(format!(
                "{bytes} bytes are no power of two, and the memory of a PCI device is; try {} MiB",
                (bytes >> 20).next_power_of_two()
            ));
        }
        let slot_bytes = bytes.saturating_sub(SLOTS_AT) / slots.max(1) as u64 / SLOT_STEP * SLOT_STEP;
        let least = HEAP_OFFSET + HEAP_BYTES_MIN;
        if slots == 0 || slots > SLOTS_MAX || slot_bytes < least {
            return Err(format!(
                "{} MiB for {slots} sessions: a guest has 1 to {SLOTS_MAX} of them, and each takes {} MiB at least",
                bytes >> 20,
                least >> 20
            ));
        }
        Ok(Shape { slots, slot_bytes })
    }

    /// Where a slot begins.
    pub fn offset(self, slot: usize) -> u64 {
        SLOTS_AT + slot as u64 * self.slot_bytes
    }

    pub fn layout(self) -> Layout {
        Layout { heap_bytes: self.slot_bytes - HEAP_OFFSET }
    }
}

/// What a segment begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    pub shape: Shape,
    /// Whether writing to the device's register is heard by the host; else the host looks now and then.
    pub has_bell: bool,
    pub beat: u64,
}

impl Head {
    pub fn encode(&self) -> [u64; HEAD_WORDS] {
        let Shape { slots, slot_bytes } = self.shape;
        [MAGIC, VERSION, slots as u64, slot_bytes, self.has_bell.into(), self.beat]
    }

    /// Of a segment of so many bytes. An error says what is wrong with it.
    pub fn decode(words: [u64; HEAD_WORDS], bytes: u64) -> Result<Head, String> {
        let [magic, version, slots, slot_bytes, has_bell, beat] = words;
        if magic != MAGIC {
            return Err("no oriond serves it; is it given to one by --guest or --guest-socket?".to_owned());
        }
        if version != VERSION {
            return Err(format!(
                "it is divided in way {version}, and this program's Orion knows way {VERSION} only; install the same \
                 release in the virtual machine and on its host"
            ));
        }
        let shape = Shape { slots: usize::try_from(slots).unwrap_or(usize::MAX), slot_bytes };
        if Shape::of(bytes, shape.slots) != Ok(shape) {
            return Err(format!(
                "its {bytes} bytes are not {slots} sessions of {slot_bytes} bytes; start the host's oriond again, \
                 which divides it"
            ));
        }
        Ok(Head { shape, has_bell: has_bell != 0, beat })
    }
}

/// What one side says of a slot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Words {
    /// The number that the guest has drawn for the session that it wants; 0 for none. The host repeats it.
    pub session: u64,
    /// The guest's: counts while its program lives. The host's: 1 once the session is over.
    pub state: u64,
    /// Bytes that this side has sent in this session, and taken of what the other has sent.
    pub sent: u64,
    pub taken: u64,
}

impl Words {
    pub const COUNT: usize = 4;
    pub const SESSION_AT: u64 = 0;
    pub const STATE_AT: u64 = 8;
    pub const SENT_AT: u64 = 16;
    pub const TAKEN_AT: u64 = 24;

    pub fn of(words: [u64; Words::COUNT]) -> Words {
        let [session, state, sent, taken] = words;
        Words { session, state, sent, taken }
    }
}

/// Which way mail goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum To {
    Host,
    Guest,
}

/// What is on its way, of what the sender says that it has sent.
pub fn under_way(sent: u64, taken: u64) -> Result<u64, Fault> {
    let bytes = sent.wrapping_sub(taken);
    if bytes > MAIL_BYTES { Err(Fault("more mail is on its way than there is room for")) } else { Ok(bytes) }
}

/// Where `bytes` of mail lie that begin at position `at` of all that was ever sent: two pieces, as offset and length,
/// of which the second may be empty. `bytes` are at most [`MAIL_BYTES`].
pub fn pieces(slot: usize, to: To, at: u64, bytes: u64) -> [(u64, usize); 2] {
    let begin = MAIL_AT + (2 * slot as u64 + u64::from(to == To::Guest)) * MAIL_BYTES;
    let first = at % MAIL_BYTES;
    let until_end = (MAIL_BYTES - first).min(bytes);
    [(begin + first, until_end as usize), (begin, (bytes - until_end) as usize)]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_segment_is_divided_or_it_is_said_what_is_wrong() {
        for (bytes, slots) in [(64 * MIB, 1), (128 * MIB, 1), (128 * MIB, 3), (1024 * MIB, 16)] {
            let shape = Shape::of(bytes, slots).expect("room enough");
            assert!(shape.offset(slots) <= bytes && shape.layout().memory_bytes() == shape.slot_bytes);
            assert!(shape.offset(slots - 1).is_multiple_of(SLOT_STEP));
            let head = Head { shape, has_bell: true, beat: 7 };
            assert_eq!(Head::decode(head.encode(), bytes), Ok(head));
            assert!(Head::decode(head.encode(), bytes / 2).is_err());
        }
        assert!(Shape::of(100 * MIB, 1).expect_err("not a power").contains("128 MiB"));
        for (bytes, slots) in [(128 * MIB, 4), (32 * MIB, 1), (128 * MIB, 0), (1 << 40, 17)] {
            assert!(Shape::of(bytes, slots).expect_err("no room").contains("at least"));
        }
        assert!(Head::decode([0; HEAD_WORDS], 128 * MIB).expect_err("zeros").contains("no oriond serves it"));
    }

    proptest! {
        #[test]
        fn mail_lies_in_its_own_place(slot in 0..SLOTS_MAX, at: u64, bytes in 0..=MAIL_BYTES) {
            let of = |to| pieces(slot, to, at, bytes);
            for (offset, len) in of(To::Host).into_iter().chain(of(To::Guest)) {
                prop_assert!(offset >= MAIL_AT && offset + len as u64 <= SLOTS_AT);
            }
            prop_assert_eq!(of(To::Host)[0].1 + of(To::Host)[1].1, bytes as usize);
            prop_assert_eq!(of(To::Guest)[0].0 - of(To::Host)[0].0, MAIL_BYTES);
        }

        #[test]
        fn no_more_mail_is_believed_than_there_is_room_for(sent: u64, taken: u64) {
            match under_way(sent, taken) {
                Ok(bytes) => prop_assert!(bytes <= MAIL_BYTES && taken.wrapping_add(bytes) == sent),
                Err(_) => prop_assert!(sent.wrapping_sub(taken) > MAIL_BYTES),
            }
        }
    }
}
