//! Objects of the application's that graphs keep.

use crate::generated::ops;
use crate::message::declare::messages;
use crate::message::field::{CallbackId, Existing, GRAPH, New, USER_OBJECT};

messages! {
    command UserObjectCreate(ops::CU_USER_OBJECT_CREATE) {
        object: New<USER_OBJECT>,
        destructor: CallbackId,
        references: u32,
        flags: u32,
    }

    command UserObjectRetain(ops::CU_USER_OBJECT_RETAIN) {
        object: Existing<USER_OBJECT>,
        references: u32,
    }

    command UserObjectRelease(ops::CU_USER_OBJECT_RELEASE) {
        object: Existing<USER_OBJECT>,
        references: u32,
    }

    command GraphRetainUserObject(ops::CU_GRAPH_RETAIN_USER_OBJECT) {
        graph: Existing<GRAPH>,
        object: Existing<USER_OBJECT>,
        references: u32,
        flags: u32,
    }

    command GraphReleaseUserObject(ops::CU_GRAPH_RELEASE_USER_OBJECT) {
        graph: Existing<GRAPH>,
        object: Existing<USER_OBJECT>,
        references: u32,
    }
}
