//! The messages, as they are declared; and those of which the declaration says less than they need: numbers with which
//! a session goes on and something happens.

use std::sync::LazyLock;

use orion_wire::Kind;
use orion_wire::generated::ops;
use orion_wire::message::all;
use orion_wire::message::layout::{Description, Direction};
use orion_wire::record::op;

use crate::field::Field::{self, *};

const STREAM: Field = Handle(Kind::Stream);
const NODE: Field = Handle(Kind::GraphNode);
const FUNCTION: Field = Handle(Kind::Function);
const WORD: Field = Word(64);
const SMALL: Field = Choice(4);

/// Each command that is declared, if it is not told below.
pub static DECLARED: LazyLock<Vec<(u16, Vec<Field>)>> =
    LazyLock::new(|| declared(Direction::Command, |op| op != op::HEAP_PATCH));
/// Copies are where the addresses are.
pub static COPIES: LazyLock<Vec<(u16, Vec<Field>)>> =
    LazyLock::new(|| declared(Direction::Command, |op| (op::HAND_FIRST..op::ROW_FIRST).contains(&op)));

fn declared(direction: Direction, wanted: impl Fn(u16) -> bool) -> Vec<(u16, Vec<Field>)> {
    let messages = all::all().filter(|message| message.direction == direction);
    let fields = |message: &Description| message.fields.iter().map(|part| Declared(part.shape)).collect();
    let ops = messages.filter_map(|message| Some((message.op?, fields(message))));
    ops.filter(|(op, _)| wanted(*op) && !BY_HAND.iter().any(|(told, _)| told == op)).collect()
}

/// What the worker says and no client does, patches, which are for sessions over a network, and an operation that there
/// is none of: most sessions end for those.
pub static FATAL: LazyLock<Vec<(u16, Vec<Field>)>> = LazyLock::new(|| {
    let mut fatal = declared(Direction::Event, |_| true);
    fatal.extend(declared(Direction::Command, |op| op == op::HEAP_PATCH));
    fatal.push((0x0005, vec![WORD]));
    fatal
});

pub static BY_HAND: &[(u16, &[Field])] = &[
    // Between shim, carrier and worker.
    (op::ACTIVITY_ENABLE, &[SMALL]),
    // What does not fit into a reply ends a session.
    (op::COPY_OUT_INLINE, &[Address, Choice(4096), STREAM]),
    // Functions.
    (ops::CU_LAUNCH_KERNEL, &[FUNCTION, WORD, WORD, WORD, Word(40), STREAM, Exactly(24), WORD, WORD, WORD]),
    (ops::CU_LAUNCH_KERNEL, &[FUNCTION, LINE, LINE, LINE, ONE, STREAM, BYTES_8, Address]),
    (ops::CU_LAUNCH_KERNEL, &[FUNCTION, LINE, LINE, LINE, ONE, STREAM, BYTES_16, Address, SMALL]),
    (ops::CU_FUNC_SET_ATTRIBUTE, &[FUNCTION, Choice(16), Size, Device]),
    (ops::CU_MEM_ADDRESS_RESERVE, &[PAGES, Choice(2), Address, Choice(2)]),
    (ops::CU_MEM_CREATE, &[New(Kind::MemAllocation), PAGES, Choice(2), Choice(2), Location, SMALL, SMALL, SMALL]),
    (ops::CU_MEM_MAP, &[Address, PAGES, Size, Handle(Kind::MemAllocation)]),
    (ops::CU_MEM_UNMAP, &[Address, PAGES]),
    (ops::CU_MEM_SET_ACCESS, &[Address, PAGES, List(&[Location, SMALL])]),
    (ops::CU_MEM_POOL_CREATE, &[New(Kind::MemPool), Choice(2), Choice(2), Device, Size, SMALL]),
    // Attributes that there are.
    (ops::CU_GRAPH_KERNEL_NODE_GET_ATTRIBUTE, &[NODE, Choice(17)]),
    (ops::CU_GRAPH_KERNEL_NODE_SET_ATTRIBUTE, &[NODE, Choice(17), Address, WORD, WORD, WORD, WORD, WORD, WORD, WORD]),
];

/// A dimension of 1 beside one of 1 to 4, for launches that happen.
const LINE: Field = Exactly(1 << 32 | 1);
const ONE: Field = Exactly(1);
const BYTES_8: Field = Exactly(8);
const BYTES_16: Field = Exactly(16);
/// What virtual memory is made of.
const PAGES: Field = Pages;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_a_message() {
        let described = |id: u16| BY_HAND.iter().any(|(op, _)| *op == id) || DECLARED.iter().any(|(op, _)| *op == id);
        let missing: Vec<_> = ops::OPS.iter().filter(|op| !described(op.id)).map(|op| op.name).collect();
        assert!(missing.is_empty(), "nobody attacks {missing:?}");
    }
}
