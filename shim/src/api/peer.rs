//! Access of devices to each other.

// UNSAFETY: writes through the application's out pointers.

use std::ffi::c_int;

use orion_cuda::sys::*;
use orion_wire::hello::{PEER_ACCESS, PEER_ATOMICS};

use crate::answer::{code, not_null, put};
use crate::session::device::facts;

pub unsafe fn cuDeviceCanAccessPeer(canAccessPeer: *mut c_int, dev: CUdevice, peerDev: CUdevice) -> CUresult {
    code(facts().and_then(|f| {
        not_null(canAccessPeer)?;
        let access = f.peer_access(dev, peerDev)?;
        // SAFETY: a pointer of the C API: null or valid.
        unsafe { put(canAccessPeer, access as c_int) }
    }))
}

pub unsafe fn cuDeviceGetP2PAttribute(
    value: *mut c_int,
    attrib: CUdevice_P2PAttribute,
    srcDevice: CUdevice,
    dstDevice: CUdevice,
) -> CUresult {
    code(facts().and_then(|f| {
        not_null(value)?;
        let way = f.peer(srcDevice, dstDevice)?;
        if srcDevice == dstDevice {
            return Err(CUDA_ERROR_INVALID_DEVICE);
        }
        let answer = match attrib {
            CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED | CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED => {
                (way & PEER_ACCESS != 0) as c_int
            }
            CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED => (way & PEER_ATOMICS != 0) as c_int,
            // All pairs of a node rank alike; peers with access do all native atomics or none.
            CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK | CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED => {
                0
            }
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        // SAFETY: a pointer of the C API: null or valid.
        unsafe { put(value, answer) }
    }))
}
