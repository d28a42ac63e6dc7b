//! All messages, and the hash of what both sides have to agree on.

use crate::generated::ops;
use crate::message::layout::{self, Description, Direction};
use crate::message::{calls, copy, memory};

/// By subject.
pub static SUBJECTS: &[(&str, &[Description])] = &[("calls", calls::ALL), ("copy", copy::ALL), ("memory", memory::ALL)];

/// Changes with everything that matters to the other side; compared before anything else is decoded.
pub const API_HASH: u64 = {
    let subjects: &[&[Description]] = &[calls::ALL, copy::ALL, memory::ALL];
    let (mut all, mut i) = (ops::ROWS_HASH, 0);
    while i < subjects.len() {
        let mut j = 0;
        while j < subjects[i].len() {
            all = layout::number(all, subjects[i][j].layout);
            j += 1;
        }
        i += 1;
    }
    all
};

/// Each message of all subjects.
pub fn all() -> impl Iterator<Item = &'static Description> {
    SUBJECTS.iter().flat_map(|(_, messages)| messages.iter())
}

/// What a command of this operation consists of.
pub fn command(op: u16) -> Option<&'static Description> {
    all().find(|message| message.op == Some(op) && message.direction == Direction::Command)
}
