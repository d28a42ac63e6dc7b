//! Objects of the application that graphs keep alive.

// UNSAFETY: C entry points.

use std::ffi::{c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use orion_cuda::sys::*;

use crate::api::{Raw, api, put};
use crate::graph::{OBJECTS, Share, UserObject, graph, lock, release};

api! {
    fn cuUserObjectCreate(
        out: *mut CUuserObject,
        data: *mut c_void,
        destroy: CUhostFn,
        count: c_uint,
        _flags: c_uint,
    ) {
        if count == 0 || destroy.is_none() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let o = Arc::new(UserObject { destroy: Raw((destroy, data)), count: AtomicU64::new(count.into()) });
        put(out, OBJECTS.add(&o))
    }
    fn cuUserObjectRetain(o: CUuserObject, count: c_uint) {
        let o = OBJECTS.get(o).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        o.count.fetch_add(count.into(), Ordering::AcqRel);
        Ok(())
    }
    fn cuUserObjectRelease(o: CUuserObject, count: c_uint) {
        release(&OBJECTS.get(o).ok_or(CUDA_ERROR_INVALID_VALUE)?, count.into());
        Ok(())
    }
    fn cuGraphRetainUserObject(g: CUgraph, o: CUuserObject, count: c_uint, flags: c_uint) {
        let o = OBJECTS.get(o).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let g = graph(g)?;
        let mut all = lock(&g.objects)?;
        for _ in 0..count {
            // Moved, the caller's reference becomes the graph's.
            all.push(if flags & CU_GRAPH_USER_OBJECT_MOVE == 0 { Share::new(&o) } else { Share(o.clone()) });
        }
        Ok(())
    }
    fn cuGraphReleaseUserObject(g: CUgraph, o: CUuserObject, count: c_uint) {
        let o = OBJECTS.get(o).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let g = graph(g)?;
        for _ in 0..count {
            let mut all = lock(&g.objects)?;
            let at = all.iter().position(|x| Arc::ptr_eq(&x.0, &o)).ok_or(CUDA_ERROR_INVALID_VALUE)?;
            let gone = all.remove(at);
            drop(all);
            drop(gone);
        }
        Ok(())
    }
}
