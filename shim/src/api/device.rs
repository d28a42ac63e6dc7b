//! Devices: everything about them travelled with the session's Welcome.

// UNSAFETY: writes through the application's out pointers.

use std::ffi::{CStr, c_char, c_int, c_void};

use orion_cuda::sys::*;

use crate::answer::{code, not_null, put};
use crate::session::device::facts;
use crate::state::device::PciAddress;

pub unsafe fn cuDeviceGetCount(count: *mut c_int) -> CUresult {
    code(facts().and_then(|f| {
        // SAFETY: a pointer of the C API: null or valid.
        unsafe { put(count, f.devices.len() as c_int) }
    }))
}

pub unsafe fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int) -> CUresult {
    code(facts().and_then(|f| {
        not_null(device)?;
        f.device(ordinal)?;
        // SAFETY: a pointer of the C API: null or valid.
        unsafe { put(device, ordinal) }
    }))
}

pub unsafe fn cuDeviceGetName(name: *mut c_char, len: c_int, dev: CUdevice) -> CUresult {
    code(facts().and_then(|f| {
        not_null(name)?;
        let device = f.device(dev)?;
        let room = usize::try_from(len).ok().filter(|room| *room > 0).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the caller says that `len` bytes are writable.
        unsafe { put_text(name, room, &device.name) };
        Ok(())
    }))
}

pub unsafe fn cuDeviceGetUuid(uuid: *mut CUuuid, dev: CUdevice) -> CUresult {
    code(facts().and_then(|f| {
        not_null(uuid)?;
        let bytes = f.device(dev)?.uuid.map(|b| b as c_char);
        // SAFETY: a pointer of the C API: null or valid.
        unsafe { put(uuid, CUuuid { bytes }) }
    }))
}

/// Differs from the first version on MIG devices only, which a vGPU is not.
pub unsafe fn cuDeviceGetUuid_v2(uuid: *mut CUuuid, dev: CUdevice) -> CUresult {
    // SAFETY: the same contract.
    unsafe { cuDeviceGetUuid(uuid, dev) }
}

/// LUIDs exist on Windows.
pub unsafe fn cuDeviceGetLuid(luid: *mut c_char, deviceNodeMask: *mut u32, dev: CUdevice) -> CUresult {
    code(facts().and_then(|f| {
        not_null(luid)?;
        not_null(deviceNodeMask)?;
        f.device(dev)?;
        Err(CUDA_ERROR_NOT_SUPPORTED)
    }))
}

pub unsafe fn cuDeviceTotalMem_v2(bytes: *mut usize, dev: CUdevice) -> CUresult {
    code(facts().and_then(|f| {
        not_null(bytes)?;
        let total = f.device(dev)?.total_memory;
        // SAFETY: a pointer of the C API: null or valid.
        unsafe { put(bytes, total as usize) }
    }))
}

/// The 32-bit ABI of CUDA 2: as much as fits.
pub unsafe fn cuDeviceTotalMem(bytes: *mut u32, dev: CUdevice) -> CUresult {
    code(facts().and_then(|f| {
        not_null(bytes)?;
        let total = f.device(dev)?.total_memory;
        // SAFETY: a pointer of the C API: null or valid.
        unsafe { put(bytes, u32::try_from(total).unwrap_or(u32::MAX)) }
    }))
}

pub unsafe fn cuDeviceGetAttribute(pi: *mut c_int, attrib: CUdevice_attribute, dev: CUdevice) -> CUresult {
    code(not_null(pi).and_then(|()| {
        let value = facts()?.device(dev)?.attribute(attrib).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: a pointer of the C API: null or valid.
        unsafe { put(pi, value) }
    }))
}

pub unsafe fn cuDeviceComputeCapability(major: *mut c_int, minor: *mut c_int, dev: CUdevice) -> CUresult {
    code(facts().and_then(|f| {
        not_null(major)?;
        not_null(minor)?;
        let device = f.device(dev)?;
        let [a, b] = [CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR]
            .map(|id| device.attribute(id).unwrap_or(0));
        // SAFETY: pointers of the C API: null or valid.
        unsafe { put(major, a).and(put(minor, b)) }
    }))
}

pub unsafe fn cuDeviceGetProperties(prop: *mut CUdevprop, dev: CUdevice) -> CUresult {
    code(facts().and_then(|f| {
        not_null(prop)?;
        let device = f.device(dev)?;
        let a = |id| device.attribute(id).unwrap_or(0);
        let properties = CUdevprop {
            maxThreadsPerBlock: a(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
            maxThreadsDim: [
                a(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
                a(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
                a(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z),
            ],
            maxGridSize: [
                a(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X),
                a(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
                a(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z),
            ],
            sharedMemPerBlock: a(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
            totalConstantMemory: a(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY),
            SIMDWidth: a(CU_DEVICE_ATTRIBUTE_WARP_SIZE),
            memPitch: a(CU_DEVICE_ATTRIBUTE_MAX_PITCH),
            regsPerBlock: a(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
            clockRate: a(CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
            textureAlign: a(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT),
        };
        // SAFETY: a pointer of the C API: null or valid.
        unsafe { put(prop, properties) }
    }))
}

pub unsafe fn cuDeviceGetPCIBusId(pciBusId: *mut c_char, len: c_int, dev: CUdevice) -> CUresult {
    code(facts().and_then(|f| {
        not_null(pciBusId)?;
        let device = f.device(dev)?;
        let room = usize::try_from(len).ok().filter(|room| *room > 0).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the caller says that `len` bytes are writable.
        unsafe { put_text(pciBusId, room, &device.pci_bus_id) };
        // As the driver: what fits is written, and still it is an error.
        if room > device.pci_bus_id.len() { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
    }))
}

pub unsafe fn cuDeviceGetByPCIBusId(dev: *mut CUdevice, pciBusId: *const c_char) -> CUresult {
    code(facts().and_then(|f| {
        not_null(dev)?;
        not_null(pciBusId)?;
        // SAFETY: not null; a C string by the API's contract.
        let text = unsafe { CStr::from_ptr(pciBusId) };
        let wanted = text.to_str().ok().and_then(PciAddress::parse).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let ordinal = f.devices.iter().position(|d| d.pci == wanted).ok_or(CUDA_ERROR_INVALID_DEVICE)?;
        // SAFETY: a pointer of the C API: null or valid.
        unsafe { put(dev, ordinal as CUdevice) }
    }))
}

pub unsafe fn cuDeviceGetTexture1DLinearMaxWidth(
    maxWidthInElements: *mut usize,
    format: CUarray_format,
    numChannels: u32,
    dev: CUdevice,
) -> CUresult {
    code(facts().and_then(|f| {
        not_null(maxWidthInElements)?;
        let device = f.device(dev)?;
        let element_bytes = element_bytes(format, numChannels).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // An H200 answers 2^30 elements for 1 to 4 bytes, then 2^32 bytes' worth; its attribute says 2^28.
        let texels = device.attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH).unwrap_or(0).max(0) as usize;
        // SAFETY: a pointer of the C API: null or valid.
        unsafe { put(maxWidthInElements, (4 * texels).min(16 * texels / element_bytes)) }
    }))
}

/// Bytes of one texel, for the formats a linear texture can have.
fn element_bytes(format: CUarray_format, channels: u32) -> Option<usize> {
    let channel_bytes = match format {
        CU_AD_FORMAT_UNSIGNED_INT8 | CU_AD_FORMAT_SIGNED_INT8 => 1,
        CU_AD_FORMAT_UNSIGNED_INT16 | CU_AD_FORMAT_SIGNED_INT16 | CU_AD_FORMAT_HALF => 2,
        CU_AD_FORMAT_UNSIGNED_INT32 | CU_AD_FORMAT_SIGNED_INT32 | CU_AD_FORMAT_FLOAT => 4,
        _ => return None,
    };
    [1, 2, 4].contains(&channels).then_some(channel_bytes * channels as usize)
}

/// Affinity is for MPS clients; a device of a session is none. The driver does not look at the type here.
pub unsafe fn cuDeviceGetExecAffinitySupport(pi: *mut c_int, _type: CUexecAffinityType, dev: CUdevice) -> CUresult {
    code(facts().and_then(|f| {
        not_null(pi)?;
        f.device(dev)?;
        // SAFETY: a pointer of the C API: null or valid.
        unsafe { put(pi, 0) }
    }))
}

/// NvSciSync objects belong to processes of the GPU's own host.
pub unsafe fn cuDeviceGetNvSciSyncAttributes(_list: *mut c_void, dev: CUdevice, _flags: c_int) -> CUresult {
    code(facts().and_then(|f| f.device(dev).and(Err(CUDA_ERROR_NOT_SUPPORTED))))
}

/// Writes `text` and a NUL, cut to `room` bytes.
///
/// # Safety
/// `out` must be valid for `room > 0` bytes.
unsafe fn put_text(out: *mut c_char, room: usize, text: &[u8]) {
    let len = text.len().min(room - 1);
    // SAFETY: `len + 1 <= room` bytes; the source is our own.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), out.cast::<u8>(), len);
        out.add(len).write(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::peer::{cuDeviceCanAccessPeer, cuDeviceGetP2PAttribute};
    use crate::state::device::fixture::initialise;

    #[test]
    fn ordinals_out_of_range_are_invalid_devices() {
        initialise();
        let mut v = -7;
        // SAFETY: valid places.
        unsafe {
            assert_eq!(cuDeviceGetCount(&mut v), CUDA_SUCCESS);
            assert_eq!(v, 2);
            for bad in [-1, 2, 99] {
                assert_eq!(cuDeviceGet(&mut v, bad), CUDA_ERROR_INVALID_DEVICE);
                assert_eq!(cuDeviceGetAttribute(&mut v, 500, bad), CUDA_ERROR_INVALID_DEVICE);
            }
            assert_eq!(cuDeviceGet(std::ptr::null_mut(), 99), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(cuDeviceGetCount(std::ptr::null_mut()), CUDA_ERROR_INVALID_VALUE);
        }
    }

    #[test]
    fn attributes_are_those_of_the_welcome() {
        initialise();
        let mut v = -99;
        // SAFETY: valid places.
        unsafe {
            assert_eq!(cuDeviceGetAttribute(&mut v, CU_DEVICE_ATTRIBUTE_NUMA_ID, 1), CUDA_SUCCESS);
            assert_eq!(v, -1);
            assert_eq!(cuDeviceGetAttribute(&mut v, 300, 0), CUDA_SUCCESS);
            assert_eq!(v, 7);
            for unknown in [0, 200, 299, 500, u32::MAX] {
                assert_eq!(cuDeviceGetAttribute(&mut v, unknown, 0), CUDA_ERROR_INVALID_VALUE);
            }
            assert_eq!(v, 7);
        }
    }

    #[test]
    fn texts_are_cut_as_the_driver_cuts_them() {
        initialise();
        let mut text = [b'x' as c_char; 20];
        let of = |t: &[c_char]| t.iter().take_while(|c| **c != 0).map(|c| *c as u8 as char).collect::<String>();
        // SAFETY: the array is larger than every length given.
        unsafe {
            assert_eq!(cuDeviceGetName(text.as_mut_ptr(), 5, 0), CUDA_SUCCESS);
            assert_eq!(of(&text), "NVID");
            assert_eq!(cuDeviceGetName(text.as_mut_ptr(), 0, 0), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(cuDeviceGetPCIBusId(text.as_mut_ptr(), 12, 0), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(of(&text), "0000:00:06.");
            assert_eq!(cuDeviceGetPCIBusId(text.as_mut_ptr(), 13, 1), CUDA_SUCCESS);
            assert_eq!(of(&text), "0000:00:07.0");
        }
    }

    #[test]
    fn bus_ids_have_several_spellings() {
        initialise();
        let find = |id: &CStr| {
            let mut v = -1;
            // SAFETY: a valid place and a C string.
            (unsafe { cuDeviceGetByPCIBusId(&mut v, id.as_ptr()) }, v)
        };
        for id in [
            c"0000:00:07.0",
            c"00000000:00:07.0",
            c"00:07.0",
            c"0000:00:07",
            c"0:0:7.0",
            c" 0000:00:07.0",
            c"0x0:0x0:0x7.0x",
        ] {
            assert_eq!(find(id), (CUDA_SUCCESS, 1), "{id:?}");
        }
        for id in [c"00:07", c"", c"junk"] {
            assert_eq!(find(id), (CUDA_ERROR_INVALID_VALUE, -1), "{id:?}");
        }
        for id in [c"0000:00:07.1", c"ffff:ff:1f.0"] {
            assert_eq!(find(id), (CUDA_ERROR_INVALID_DEVICE, -1), "{id:?}");
        }
    }

    #[test]
    fn a_device_is_no_peer_of_itself() {
        initialise();
        let mut v = -1;
        // SAFETY: valid places.
        unsafe {
            assert_eq!(cuDeviceCanAccessPeer(&mut v, 0, 0), CUDA_SUCCESS);
            assert_eq!(v, 0);
            assert_eq!(cuDeviceCanAccessPeer(&mut v, 0, 1), CUDA_SUCCESS);
            assert_eq!(v, 1);
            let access = CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED;
            assert_eq!(cuDeviceGetP2PAttribute(&mut v, access, 0, 0), CUDA_ERROR_INVALID_DEVICE);
            assert_eq!(cuDeviceGetP2PAttribute(&mut v, access, 0, 1), CUDA_SUCCESS);
            assert_eq!(cuDeviceGetP2PAttribute(&mut v, 77, 0, 1), CUDA_ERROR_INVALID_VALUE);
        }
    }

    #[test]
    fn linear_textures_are_as_wide_as_on_an_h200() {
        initialise();
        let width = |format, channels| {
            let mut w = 0;
            // SAFETY: a valid place.
            (unsafe { cuDeviceGetTexture1DLinearMaxWidth(&mut w, format, channels, 0) }, w)
        };
        for (format, channels, w) in
            [(1, 1, 1 << 30), (1, 4, 1 << 30), (2, 4, 1 << 29), (3, 2, 1 << 29), (0x20, 4, 1 << 28)]
        {
            assert_eq!(width(format, channels), (CUDA_SUCCESS, w));
        }
        assert_eq!(width(1, 3).0, CUDA_ERROR_INVALID_VALUE);
        assert_eq!(width(0x77, 1).0, CUDA_ERROR_INVALID_VALUE);
    }
}
