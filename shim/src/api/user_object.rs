//! Objects of the application's that graphs keep.

// UNSAFETY: writes a handle through the application's pointer.

use std::ffi::c_void;

use orion_cuda::sys::*;
use orion_wire::generated::ops;
use orion_wire::handle::Kind;

use crate::session::call::{call, put_words};
use crate::state::callback::Function;
use crate::state::process::state;

fn ask(op: u16, words: &[u64]) -> CUresult {
    let encode = |w: &mut Vec<u8>| {
        put_words(w, words);
    };
    call(op, encode, |_| Ok(())).err().unwrap_or(CUDA_SUCCESS)
}

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
    let name = state().handles.reserve(Kind::UserObject);
    let number = state().callbacks.register(Function::Destroy(destroy, name), data, false);
    let words = [name.0, number, references as u64, flags as u64];
    let code = ask(ops::CU_USER_OBJECT_CREATE, &words);
    if code == CUDA_SUCCESS {
        // SAFETY: not null, and valid by the contract.
        unsafe { out.write(name.0 as CUuserObject) };
    } else {
        crate::objects::handles::release(name);
    }
    code
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuUserObjectRetain(object: CUuserObject, count: u32) -> CUresult {
    ask(ops::CU_USER_OBJECT_RETAIN, &[object as u64, count as u64])
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuUserObjectRelease(object: CUuserObject, count: u32) -> CUresult {
    ask(ops::CU_USER_OBJECT_RELEASE, &[object as u64, count as u64])
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuGraphRetainUserObject(graph: CUgraph, object: CUuserObject, count: u32, flags: u32) -> CUresult {
    ask(ops::CU_GRAPH_RETAIN_USER_OBJECT, &[graph as u64, object as u64, count as u64, flags as u64])
}

/// # Safety
/// None beyond the C ABI.
pub unsafe fn cuGraphReleaseUserObject(graph: CUgraph, object: CUuserObject, count: u32) -> CUresult {
    ask(ops::CU_GRAPH_RELEASE_USER_OBJECT, &[graph as u64, object as u64, count as u64])
}
