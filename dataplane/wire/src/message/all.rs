//! All messages, and the hash of what both sides have to agree on.

use crate::generated::ops;
use crate::message::layout::{self, Description, Direction};
use crate::message::{
    activity, array, callback, calls, capture, carrier, context, copy, event, execution, graph, graph_exec, graph_node,
    green_context, host_memory, image, ipc, library, link, log, memory, module, occupancy, pool, stream, tensor_map,
    texture, user_object, virtual_memory,
};

/// By subject.
const SUBJECTS: &[&[Description]] = &[
    activity::ALL,
    array::ALL,
    callback::ALL,
    calls::ALL,
    capture::ALL,
    carrier::ALL,
    context::ALL,
    copy::ALL,
    event::ALL,
    execution::ALL,
    graph::ALL,
    graph_exec::ALL,
    graph_node::ALL,
    green_context::ALL,
    host_memory::ALL,
    image::ALL,
    ipc::ALL,
    library::ALL,
    link::ALL,
    log::ALL,
    memory::ALL,
    module::ALL,
    occupancy::ALL,
    pool::ALL,
    stream::ALL,
    tensor_map::ALL,
    texture::ALL,
    user_object::ALL,
    virtual_memory::ALL,
];

/// Changes with everything that matters to the other side; compared before anything else is decoded.
pub const API_HASH: u64 = {
    let (mut all, mut i) = (ops::ROWS_HASH, 0);
    while i < SUBJECTS.len() {
        let mut j = 0;
        while j < SUBJECTS[i].len() {
            all = layout::number(all, SUBJECTS[i][j].layout);
            j += 1;
        }
        i += 1;
    }
    all
};

/// Each message of all subjects.
pub fn all() -> impl Iterator<Item = &'static Description> {
    SUBJECTS.iter().flat_map(|messages| messages.iter())
}

/// What a command of this operation consists of.
pub fn command(op: u16) -> Option<&'static Description> {
    all().find(|message| message.op == Some(op) && message.direction == Direction::Command)
}
