//! The messages, as they are declared; and those of which the declaration says less than they need: numbers with which
//! a session goes on and something happens.

use std::sync::LazyLock;

use orion_cuda::sys::*;
use orion_wire::Kind;
use orion_wire::generated::ops;
use orion_wire::message::all;
use orion_wire::message::layout::{Description, Direction};
use orion_wire::record::op;

use crate::field::Field::{self, *};

const STREAM: Field = Handle(Kind::Stream);
const GRAPH: Field = Handle(Kind::Graph);
const NODE: Field = Handle(Kind::GraphNode);
const EXEC: Field = Handle(Kind::GraphExec);
const FUNCTION: Field = Handle(Kind::Function);
const NAMES: Field = List(&[New(Kind::GraphNode)]);
const ON: Field = List(&[NODE, Choice(2)]);
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
    // Graphs.
    (ops::CU_GRAPH_DESTROY, &[GRAPH]),
    (ops::CU_GRAPH_DESTROY_NODE, &[NODE]),
    (
        ops::CU_GRAPH_ADD_KERNEL_NODE_V2,
        &[GRAPH, New(Kind::GraphNode), Choice(2), ON, NodeOf(CU_GRAPH_NODE_TYPE_KERNEL)],
    ),
    (ops::CU_GRAPH_KERNEL_NODE_GET_PARAMS_V2, &[NODE, NAMES]),
    (ops::CU_GRAPH_KERNEL_NODE_SET_PARAMS_V2, &[NODE, NodeOf(CU_GRAPH_NODE_TYPE_KERNEL)]),
    (ops::CU_GRAPH_EXEC_KERNEL_NODE_SET_PARAMS_V2, &[EXEC, NODE, NodeOf(CU_GRAPH_NODE_TYPE_KERNEL)]),
    (ops::CU_GRAPH_ADD_MEMCPY_NODE, &[GRAPH, New(Kind::GraphNode), Choice(2), ON, NodeOf(CU_GRAPH_NODE_TYPE_MEMCPY)]),
    (ops::CU_GRAPH_MEMCPY_NODE_GET_PARAMS, &[NODE]),
    (ops::CU_GRAPH_MEMCPY_NODE_SET_PARAMS, &[NODE, NodeOf(CU_GRAPH_NODE_TYPE_MEMCPY)]),
    (ops::CU_GRAPH_EXEC_MEMCPY_NODE_SET_PARAMS, &[EXEC, NODE, NodeOf(CU_GRAPH_NODE_TYPE_MEMCPY)]),
    (ops::CU_GRAPH_ADD_HOST_NODE, &[GRAPH, New(Kind::GraphNode), Choice(2), ON, NodeOf(CU_GRAPH_NODE_TYPE_HOST)]),
    (ops::CU_GRAPH_HOST_NODE_GET_PARAMS, &[NODE]),
    (ops::CU_GRAPH_HOST_NODE_SET_PARAMS, &[NODE, NodeOf(CU_GRAPH_NODE_TYPE_HOST)]),
    (ops::CU_GRAPH_EXEC_HOST_NODE_SET_PARAMS, &[EXEC, NODE, NodeOf(CU_GRAPH_NODE_TYPE_HOST)]),
    (ops::CU_GRAPH_CHILD_GRAPH_NODE_GET_GRAPH, &[NODE, NAMES]),
    (ops::CU_GRAPH_EVENT_RECORD_NODE_GET_EVENT, &[NODE]),
    (ops::CU_GRAPH_EVENT_WAIT_NODE_GET_EVENT, &[NODE]),
    (ops::CU_GRAPH_NODE_FIND_IN_CLONE, &[NODE, GRAPH, NAMES]),
    (ops::CU_GRAPH_EXEC_CHILD_GRAPH_NODE_SET_PARAMS, &[EXEC, NODE, NodeOf(CU_GRAPH_NODE_TYPE_GRAPH)]),
    (
        ops::CU_GRAPH_ADD_BATCH_MEM_OP_NODE,
        &[GRAPH, New(Kind::GraphNode), Choice(2), ON, NodeOf(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP)],
    ),
    (ops::CU_GRAPH_BATCH_MEM_OP_NODE_GET_PARAMS, &[NODE]),
    (ops::CU_GRAPH_BATCH_MEM_OP_NODE_SET_PARAMS, &[NODE, NodeOf(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP)]),
    (ops::CU_GRAPH_EXEC_BATCH_MEM_OP_NODE_SET_PARAMS, &[EXEC, NODE, NodeOf(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP)]),
    (
        ops::CU_GRAPH_ADD_MEM_ALLOC_NODE,
        &[GRAPH, New(Kind::GraphNode), Choice(2), ON, NodeOf(CU_GRAPH_NODE_TYPE_MEM_ALLOC)],
    ),
    (ops::CU_GRAPH_MEM_ALLOC_NODE_GET_PARAMS, &[NODE]),
    (ops::CU_GRAPH_GET_NODES, &[GRAPH, SMALL, SMALL, NAMES]),
    (ops::CU_GRAPH_GET_ROOT_NODES, &[GRAPH, SMALL, SMALL, NAMES]),
    (ops::CU_GRAPH_GET_EDGES, &[GRAPH, SMALL, SMALL, NAMES]),
    (ops::CU_GRAPH_GET_EDGES_V2, &[GRAPH, SMALL, SMALL, NAMES]),
    (ops::CU_GRAPH_NODE_GET_DEPENDENCIES, &[NODE, SMALL, SMALL, NAMES]),
    (ops::CU_GRAPH_NODE_GET_DEPENDENCIES_V2, &[NODE, SMALL, SMALL, NAMES]),
    (ops::CU_GRAPH_NODE_GET_DEPENDENT_NODES, &[NODE, SMALL, SMALL, NAMES]),
    (ops::CU_GRAPH_NODE_GET_DEPENDENT_NODES_V2, &[NODE, SMALL, SMALL, NAMES]),
    (ops::CU_GRAPH_INSTANTIATE_WITH_FLAGS, &[New(Kind::GraphExec), GRAPH, SMALL, Choice(2)]),
    (ops::CU_GRAPH_INSTANTIATE_WITH_PARAMS, &[New(Kind::GraphExec), GRAPH, SMALL, STREAM, Choice(2), NAMES]),
    (ops::CU_GRAPH_LAUNCH, &[EXEC, STREAM, Choice(2)]),
    (ops::CU_GRAPH_EXEC_DESTROY, &[EXEC]),
    (ops::CU_GRAPH_EXEC_UPDATE_V2, &[EXEC, GRAPH, Choice(2), NAMES]),
    (ops::CU_GRAPH_KERNEL_NODE_GET_ATTRIBUTE, &[NODE, Choice(17)]),
    (ops::CU_GRAPH_KERNEL_NODE_SET_ATTRIBUTE, &[NODE, Choice(17), Address, WORD, WORD, WORD, WORD, WORD, WORD, WORD]),
    (ops::CU_GRAPH_DEBUG_DOT_PRINT, &[GRAPH, Word(16), SMALL]),
    (ops::CU_GRAPH_ADD_NODE_V2, ADDED),
    (ops::CU_GRAPH_NODE_SET_PARAMS, &[NODE, Node]),
    (ops::CU_GRAPH_EXEC_NODE_SET_PARAMS, &[EXEC, NODE, Node]),
];

/// A dimension of 1 beside one of 1 to 4, for launches that happen.
const LINE: Field = Exactly(1 << 32 | 1);
const ONE: Field = Exactly(1);
const BYTES_8: Field = Exactly(8);
const BYTES_16: Field = Exactly(16);
/// What virtual memory is made of.
const PAGES: Field = Pages;
const ADDED: &[Field] = &[GRAPH, New(Kind::GraphNode), Choice(2), ON, Node];

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
