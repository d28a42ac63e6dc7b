//! Access between devices.

// UNSAFETY: C entry points.

use std::ffi::{c_int, c_uint};

use orion_cuda::sys::*;

use crate::api::{api, put};
use crate::context::{current, from_handle};
use crate::device::check;

api! {
    fn cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint) {
        let c = current()?;
        let p = from_handle(peer)?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if p.device == c.device {
            return Err(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
        }
        let mut peers = c.peers.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?;
        if peers.contains(&p.id) {
            return Err(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
        }
        peers.push(p.id);
        Ok(())
    }
    fn cuCtxDisablePeerAccess(peer: CUcontext) {
        let c = current()?;
        let p = from_handle(peer)?;
        let mut peers = c.peers.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?;
        let at = peers.iter().position(|&id| id == p.id).ok_or(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED)?;
        peers.remove(at);
        Ok(())
    }
    fn cuDeviceCanAccessPeer(can: *mut c_int, dev: CUdevice, peer: CUdevice) {
        let (dev, peer) = (check(dev)?, check(peer)?);
        put(can, c_int::from(dev != peer))
    }
    fn cuDeviceGetP2PAttribute(value: *mut c_int, attrib: CUdevice_P2PAttribute, src: CUdevice, dst: CUdevice) {
        let (src, dst) = (check(src)?, check(dst)?);
        if src == dst {
            return Err(CUDA_ERROR_INVALID_DEVICE);
        }
        put(value, match attrib {
            CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED
            | CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED
            | CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED => 1,
            CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK
            | CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED => 0,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        })
    }
}
