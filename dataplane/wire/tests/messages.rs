//! Every message comes back as it was sent, and no bytes make a decoder panic. What is sent follows from what the
//! declarations say of themselves.

use orion_wire::Writer;
use orion_wire::message::all::{all, command};
use orion_wire::message::layout::{Description, Direction, Part, Shape};

/// xorshift64*: the same values in every run.
struct Random(u64);

impl Random {
    fn word(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let word = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d);
        // Small numbers and the extremes find more than uniform ones.
        match word >> 61 {
            0 => 0,
            1 => u64::MAX,
            2 => word & 0xff,
            _ => word,
        }
    }

    fn below(&mut self, n: usize) -> usize {
        (self.word() >> 7) as usize % n
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.word() as u8).collect()
    }

    fn put(&mut self, shape: &Shape, out: &mut Vec<u8>) {
        match shape {
            Shape::Number(bits) => out.word(self.word() >> (64 - bits)),
            Shape::Flag => out.word(self.word() & 1),
            Shape::Choice(values) => out.word(values[self.below(values.len())].1),
            Shape::Ordinal => out.word(self.word() >> 32),
            Shape::Count => out.word(self.word() >> 33),
            Shape::Size
            | Shape::Halves
            | Shape::Existing(_)
            | Shape::New(_)
            | Shape::Callback
            | Shape::DeviceAddress
            | Shape::HostAddress
            | Shape::Place => out.word(self.word()),
            Shape::Range => (0..2).for_each(|_| out.word(self.word())),
            Shape::Bytes(max) => {
                let len = self.below(67).min(*max);
                out.bytes(&self.bytes(len));
            }
            Shape::Text(max) => {
                let len = self.below(67).min(*max);
                let text: Vec<u8> = self.bytes(len).iter().map(|byte| byte | 1).collect();
                out.bytes(&text);
            }
            Shape::Exactly(bytes) => out.bytes(&self.bytes(*bytes)),
            Shape::Rest => {
                let words = self.below(9);
                out.put(&self.bytes(8 * words));
            }
            Shape::Plain(_) | Shape::Plains(..) => {
                let len = self.below(67);
                out.bytes(&self.bytes(len));
            }
            Shape::Handles(..) => {
                let count = self.below(9);
                out.word(count as u64);
                (0..count).for_each(|_| out.word(self.word()));
            }
            Shape::Maybe(of) => {
                let is_there = self.word() & 1;
                out.word(is_there);
                (0..is_there).for_each(|_| self.put(of, out));
            }
            Shape::Several(of, count) => (0..*count).for_each(|_| self.put(of, out)),
            Shape::List(of, max) => {
                let count = self.below(9).min(*max);
                out.word(count as u64);
                (0..count).for_each(|_| self.put(of, out));
            }
            Shape::Part(_, parts) => self.all(parts, out),
            Shape::OneOf(_, variants) => {
                let (_, number, of) = &variants[self.below(variants.len())];
                out.word(*number);
                self.put(of, out);
            }
        }
    }

    fn all(&mut self, parts: &[Part], out: &mut Vec<u8>) {
        parts.iter().for_each(|part| self.put(&part.shape, out));
    }

    fn message(&mut self, of: &Description) -> Vec<u8> {
        let mut out = Vec::new();
        self.all(of.fields, &mut out);
        out
    }
}

fn takes_all(of: &Description) -> bool {
    fn ends_open(shape: &Shape) -> bool {
        match shape {
            Shape::Rest => true,
            Shape::Part(_, parts) => parts.last().is_some_and(|part| ends_open(&part.shape)),
            Shape::OneOf(_, variants) => variants.iter().any(|(.., of)| ends_open(of)),
            _ => false,
        }
    }
    of.fields.last().is_some_and(|part| ends_open(&part.shape))
}

#[test]
fn what_was_sent_comes_back() {
    let mut random = Random(0x0123_4567_89ab_cdef);
    for of in all() {
        for _ in 0..20 {
            let sent = random.message(of);
            assert!(sent.len().is_multiple_of(8), "{}", of.name);
            assert_eq!((of.again)(&sent).as_ref(), Ok(&sent), "{}", of.name);
        }
    }
}

#[test]
fn a_truncated_or_longer_record_is_a_fault() {
    let mut random = Random(0xfeed_beef_0bad_cafe);
    for of in all().filter(|of| !takes_all(of)) {
        let mut sent = random.message(of);
        for cut in 0..sent.len() {
            assert!((of.again)(&sent[..cut]).is_err(), "{} cut to {cut} of {}", of.name, sent.len());
        }
        sent.push(0);
        assert!((of.again)(&sent).is_err(), "{} with a byte too many", of.name);
        sent.extend([0; 7]);
        assert!((of.again)(&sent).is_err(), "{} with a word too many", of.name);
    }
}

#[test]
fn random_bytes_do_not_panic() {
    let mut random = Random(0x5eed_5eed_5eed_5eed);
    for of in all() {
        for _ in 0..300 {
            let words = random.below(24);
            let mut bytes = Vec::new();
            (0..words).for_each(|_| bytes.word(random.word()));
            // Faults are fine; a panic is not. What is taken for a message is one.
            if let Ok(again) = (of.again)(&bytes) {
                assert_eq!((of.again)(&again).as_ref(), Ok(&again), "{}", of.name);
            }
        }
    }
}

#[test]
fn every_message_has_its_own_name_and_every_operation_one_command() {
    let mut names = std::collections::BTreeSet::new();
    for of in all() {
        assert!(names.insert(of.name), "two messages are called {}", of.name);
        assert_eq!(of.op.is_none(), of.direction == Direction::Part, "{}", of.name);
        if let (Some(op), Direction::Command) = (of.op, of.direction) {
            assert_eq!(command(op).map(|first| first.name), Some(of.name), "operation {op:#x} has two commands");
        }
    }
}
