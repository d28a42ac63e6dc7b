//! What a message consists of, told as data: for the hash that both sides compare, for tests that make messages, for
//! logs and for a hostile client.

use crate::codec::Fault;
use crate::handle::Kind;

/// One kind of field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A number of so many bits; the rest of its word is zero.
    Number(u32),
    /// Two numbers of 32 bits.
    Halves,
    /// 0 or 1.
    Flag,
    /// One of these numbers.
    Choice(&'static [(&'static str, u64)]),
    /// How much memory.
    Size,
    /// How many elements the arrays of the message have.
    Count,
    /// The application's number of a device.
    Ordinal,
    /// The client's name of something, or 0.
    Existing(Kind),
    /// The name that the client chose for something to be made.
    New(Kind),
    /// The number of a callback function, which itself never crosses.
    Callback,
    DeviceAddress,
    HostAddress,
    /// Where something is to be mapped.
    Place,
    /// A range of the host heap.
    Range,
    /// A byte string of at most so many bytes.
    Bytes(usize),
    /// As above, without a zero byte.
    Text(usize),
    /// A byte string of so many bytes.
    Exactly(usize),
    /// All bytes to the end of the record.
    Rest,
    /// The bytes of the C struct of this name.
    Plain(&'static str),
    /// As many of them as the count says, and that is not more than this.
    Plains(&'static str, usize),
    /// As many names as the count says.
    Handles(Kind, usize),
    Maybe(&'static Shape),
    /// Exactly so many of them.
    Several(&'static Shape, usize),
    /// A count of at most so many, and so often what follows.
    List(&'static Shape, usize),
    /// The fields of a part, one behind the other.
    Part(&'static str, &'static [Part]),
    /// A number, and what follows it.
    OneOf(&'static str, &'static [(&'static str, u64, Shape)]),
}

/// A field with its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    pub name: &'static str,
    pub shape: Shape,
}

/// Where a message goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Command,
    Reply,
    Event,
    /// A part of others.
    Part,
}

/// All there is to know about a message.
#[derive(Debug, Clone, Copy)]
pub struct Description {
    pub name: &'static str,
    pub direction: Direction,
    /// The operation, if it is a whole body.
    pub op: Option<u16>,
    pub fields: &'static [Part],
    /// The hash of all above.
    pub layout: u64,
    /// Decodes a whole body, and encodes what it says.
    pub again: fn(&[u8]) -> Result<Vec<u8>, Fault>,
}

pub const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

const fn byte(h: u64, byte: u8) -> u64 {
    (h ^ byte as u64).wrapping_mul(0x0000_0100_0000_01b3)
}

pub const fn number(h: u64, number: u64) -> u64 {
    // A round a word is enough to tell layouts apart; nobody forges them.
    (h.rotate_left(23) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

pub const fn text(mut h: u64, text: &str) -> u64 {
    let (bytes, mut i) = (text.as_bytes(), 0);
    while i < bytes.len() {
        h = byte(h, bytes[i]);
        i += 1;
    }
    byte(h, 0xff)
}

pub const fn fields(mut h: u64, parts: &[Part]) -> u64 {
    let mut i = 0;
    while i < parts.len() {
        h = shape(text(h, parts[i].name), &parts[i].shape);
        i += 1;
    }
    number(h, parts.len() as u64)
}

/// Of a whole message.
pub const fn message(name: &str, direction: Direction, op: Option<u16>, parts: &[Part]) -> u64 {
    let h = number(text(FNV_START, name), direction as u64);
    let h = match op {
        Some(op) => number(h, op as u64),
        None => number(h, u64::MAX),
    };
    fields(h, parts)
}

const fn shape(h: u64, shape_of: &Shape) -> u64 {
    match shape_of {
        Shape::Number(bits) => number(number(h, 1), *bits as u64),
        Shape::Flag => number(h, 2),
        Shape::Choice(values) => {
            let (mut h, mut i) = (number(h, 3), 0);
            while i < values.len() {
                h = number(text(h, values[i].0), values[i].1);
                i += 1;
            }
            h
        }
        Shape::Size => number(h, 4),
        Shape::Count => number(h, 5),
        Shape::Ordinal => number(h, 6),
        Shape::Existing(kind) => number(number(h, 7), *kind as u64),
        Shape::New(kind) => number(number(h, 8), *kind as u64),
        Shape::Callback => number(h, 9),
        Shape::DeviceAddress => number(h, 10),
        Shape::HostAddress => number(h, 11),
        Shape::Place => number(h, 12),
        Shape::Range => number(h, 13),
        Shape::Bytes(max) => number(number(h, 14), *max as u64),
        Shape::Text(max) => number(number(h, 15), *max as u64),
        Shape::Exactly(bytes) => number(number(h, 16), *bytes as u64),
        Shape::Rest => number(h, 17),
        Shape::Plain(name) => text(number(h, 18), name),
        Shape::Plains(name, max) => number(text(number(h, 19), name), *max as u64),
        Shape::Handles(kind, max) => number(number(number(h, 20), *kind as u64), *max as u64),
        Shape::Maybe(of) => shape(number(h, 21), of),
        Shape::List(of, max) => shape(number(number(h, 22), *max as u64), of),
        Shape::Part(name, parts) => fields(text(number(h, 23), name), parts),
        Shape::Halves => number(h, 25),
        Shape::Several(of, count) => shape(number(number(h, 26), *count as u64), of),
        Shape::OneOf(name, variants) => {
            let (mut h, mut i) = (text(number(h, 24), name), 0);
            while i < variants.len() {
                h = shape(number(text(h, variants[i].0), variants[i].1), &variants[i].2);
                i += 1;
            }
            h
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::message::field::Message;

    /// A module with one message each, so that their names are the same.
    macro_rules! declared {
        ($($module:ident { $($message:tt)* })*) => { $(
            mod $module {
                #![allow(dead_code, unused_imports)]
                use crate::message::address::ClaimedDevice;
                use crate::message::declare::{choices, messages};
                use crate::message::field::{Bytes, List, Size};

                choices! { Way { Up = 0, Down = 1 } }
                messages! { $($message)* }
            }
        )* };
    }

    declared! {
        plain { command Copy(7) { to: ClaimedDevice, bytes: Size, way: Way } }
        documented {
            /// A copy.
            command Copy(7) {
                /// Where it goes.
                to: ClaimedDevice,
                // How much.
                bytes: Size,
                way: Way,
            }
        }
        ordered { command Copy(7) { bytes: Size, to: ClaimedDevice, way: Way } }
        named { command Copy(7) { to: ClaimedDevice, size: Size, way: Way } }
        typed { command Copy(7) { to: u64, bytes: Size, way: Way } }
        longer { command Copy(7) { to: ClaimedDevice, bytes: Size, way: Way, more: u64 } }
        moved { command Copy(8) { to: ClaimedDevice, bytes: Size, way: Way } }
        answered { reply Copy(7) { to: ClaimedDevice, bytes: Size, way: Way } }
        limited { command Copy(7) { text: List<u64, 7> } }
        unlimited { command Copy(7) { text: List<u64, 8> } }
        short { command Copy<'a>(7) { text: Bytes<'a, 7> } }
    }

    #[test]
    fn a_fields_type_name_or_place_changes_the_hash_and_a_comment_does_not() {
        assert_eq!(plain::Copy::LAYOUT, documented::Copy::LAYOUT);
        let all = [
            plain::Copy::LAYOUT,
            ordered::Copy::LAYOUT,
            named::Copy::LAYOUT,
            typed::Copy::LAYOUT,
            longer::Copy::LAYOUT,
            moved::Copy::LAYOUT,
            answered::Copy::LAYOUT,
            limited::Copy::LAYOUT,
            unlimited::Copy::LAYOUT,
            short::Copy::LAYOUT,
        ];
        for (i, one) in all.iter().enumerate() {
            assert!(!all[..i].contains(one), "the layout with index {i} has another one's hash");
        }
    }

    #[test]
    fn what_the_type_does_not_allow_is_a_fault() {
        use crate::codec::{Reader, Writer};
        let words = |words: &[u64]| {
            let mut out = Vec::new();
            words.iter().for_each(|word| out.word(*word));
            out
        };
        let ways: Vec<bool> =
            (0..4).map(|way| plain::Copy::decode(&mut Reader::new(&words(&[1, 2, way]))).is_ok()).collect();
        assert_eq!(ways, [true, true, false, false]);
        let list = |count: usize| words(&[&[count as u64][..], &vec![0; count]].concat());
        assert!(limited::Copy::decode(&mut Reader::new(&list(7))).is_ok());
        assert!(limited::Copy::decode(&mut Reader::new(&list(8))).is_err());
        let text = |bytes: &[u8]| {
            let mut out = Vec::new();
            out.bytes(bytes);
            out
        };
        assert!(short::Copy::decode(&mut Reader::new(&text(&[1; 7]))).is_ok());
        assert!(short::Copy::decode(&mut Reader::new(&text(&[1; 8]))).is_err());
    }
}
