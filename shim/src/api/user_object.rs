//! Objects of the application's that graphs keep.

// UNSAFETY: writes a handle through the application's pointer.

use std::ffi::c_void;

use orion_cuda::sys::*;
use orion_wire::handle::Kind;
use orion_wire::message::field::{CallbackId, Existing};
use orion_wire::message::user_object::{
    GraphReleaseUserObject, GraphRetainUserObject, UserObjectCreate, UserObjectRelease, UserObjectRetain,
};

use crate::answer::code;
use crate::objects::callback::will_be_served;
use crate::session::call::call;
use crate::state::callback::Function;
use crate::state::process::state;

/// # Safety
/// As CUDA's `cuUserObjectCreate`.
pub unsafe fn cuUserObjectCreate(
    out: *mut CUuserObject,
    data: *mut c_void,
    destroy: CUhostFn,
    references: u32,
    flags: u32,
) -> CUresult {
    let Some(destroy) = destroy else { return CUDA_ERROR_INVALID_VALUE };
    if out.is_null() || references == 0 || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if let Err(code) = will_be_served() {
        return code;
    }
    let name = state().handles.reserve(Kind::UserObject);
    let number = state().callbacks.register(Function::Destroy(destroy, name), data, false);
    let q = UserObjectCreate { object: name.into(), destructor: CallbackId(number), references, flags };
    code(crate::objects::handles::made(name, call(UserObjectCreate::OP, |w| q.encode(w), |_| Ok(()))).map(|()| {
        // SAFETY: not null, and valid by the contract.
        unsafe { out.write(name.0 as CUuserObject) };
    }))
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuUserObjectRetain(object: CUuserObject, count: u32) -> CUresult {
    let q = UserObjectRetain { object: Existing(object as u64), references: count };
    code(call(UserObjectRetain::OP, |w| q.encode(w), |_| Ok(())))
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuUserObjectRelease(object: CUuserObject, count: u32) -> CUresult {
    let q = UserObjectRelease { object: Existing(object as u64), references: count };
    code(call(UserObjectRelease::OP, |w| q.encode(w), |_| Ok(())))
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuGraphRetainUserObject(graph: CUgraph, object: CUuserObject, count: u32, flags: u32) -> CUresult {
    let (graph, object) = (Existing(graph as u64), Existing(object as u64));
    let q = GraphRetainUserObject { graph, object, references: count, flags };
    code(call(GraphRetainUserObject::OP, |w| q.encode(w), |_| Ok(())))
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuGraphReleaseUserObject(graph: CUgraph, object: CUuserObject, count: u32) -> CUresult {
    let (graph, object) = (Existing(graph as u64), Existing(object as u64));
    let q = GraphReleaseUserObject { graph, object, references: count };
    code(call(GraphReleaseUserObject::OP, |w| q.encode(w), |_| Ok(())))
}
