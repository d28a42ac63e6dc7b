//! What a pointer points to, from the map of addresses.
//!
//! Answers, also for pointers nobody knows and for questions that do not fit, are those of driver 580.

// UNSAFETY: C entry points that write where the application said.

use std::ffi::c_void;

use orion_cuda::sys::*;

use crate::answer::{code, not_null};
use crate::session::attached::session;
use crate::session::device::facts;
use crate::state::address_map::{MemoryKind, Range};
use crate::state::process::state;

/// Small allocations share blocks of this size in the driver.
const BLOCK: u64 = 2 << 20;
const PAGE: u64 = 4096;
/// `CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL` of a pointer without a device.
const NO_DEVICE: i32 = -2;

/// One attribute's value, as wide as the application's place for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    Word(u64),
    Int(i32),
    /// Left as it is in the application's memory.
    Untouched,
}

impl Value {
    /// # Safety
    /// `to` is valid for a write of the attribute's type.
    unsafe fn write(self, to: *mut c_void) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Value::Word(v) => to.cast::<u64>().write(v),
                Value::Int(v) => to.cast::<i32>().write(v),
                Value::Untouched => {}
            }
        }
    }
}

pub unsafe fn cuPointerGetAttribute(data: *mut c_void, attribute: CUpointer_attribute, ptr: CUdeviceptr) -> CUresult {
    code((|| {
        session()?;
        not_null(data)?;
        let range = state().addresses.find(ptr).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let value = known(&range, attribute, ptr).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: not null; the caller's place for this attribute.
        unsafe { value.write(data) };
        let absent = match attribute {
            CU_POINTER_ATTRIBUTE_HOST_POINTER => range.is_device() && !range.is_managed(),
            CU_POINTER_ATTRIBUTE_DEVICE_POINTER => range.device_pointer == 0,
            _ => false,
        };
        if absent { Err(CUDA_ERROR_INVALID_VALUE) } else { Ok(()) }
    })())
}

pub unsafe fn cuPointerGetAttributes(
    count: u32,
    attributes: *mut CUpointer_attribute,
    data: *mut *mut c_void,
    ptr: CUdeviceptr,
) -> CUresult {
    code((|| {
        session()?;
        not_null(attributes)?;
        not_null(data)?;
        if count == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let range = state().addresses.find(ptr);
        for i in 0..count as usize {
            // SAFETY: two arrays of `count` elements, by the caller's promise.
            let (attribute, place) = unsafe { (attributes.add(i).read(), data.add(i).read()) };
            not_null(place)?;
            let value = match &range {
                Some(range) => known(range, attribute, ptr),
                None => unknown(attribute, ptr),
            };
            // SAFETY: not null; the caller's place for this attribute.
            unsafe { value.ok_or(CUDA_ERROR_INVALID_VALUE)?.write(place) };
        }
        Ok(())
    })())
}

/// An attribute of an address inside `r`; nothing where there is no such attribute.
pub fn known(r: &Range, attribute: CUpointer_attribute, ptr: u64) -> Option<Value> {
    use Value::{Int, Word};
    let offset = ptr - r.base;
    let flag = |v: bool| Int(v as i32);
    Some(match attribute {
        CU_POINTER_ATTRIBUTE_CONTEXT => Word(r.context),
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE => {
            Int(if r.is_host() { CU_MEMORYTYPE_HOST } else { CU_MEMORYTYPE_DEVICE } as i32)
        }
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER if r.device_pointer == 0 => Word(0),
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER => Word(r.device_pointer + offset),
        CU_POINTER_ATTRIBUTE_HOST_POINTER => Word(if r.is_device() && !r.is_managed() { 0 } else { ptr }),
        CU_POINTER_ATTRIBUTE_SYNC_MEMOPS => flag(r.is_device() || r.sync_memops),
        CU_POINTER_ATTRIBUTE_BUFFER_ID => Word(r.id),
        CU_POINTER_ATTRIBUTE_IS_MANAGED => flag(r.is_managed()),
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => Int(r.device as i32),
        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE => flag(r.kind == MemoryKind::Device && gives_handles(r)),
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR => Word(reserved(r).0),
        CU_POINTER_ATTRIBUTE_RANGE_SIZE => Word(reserved(r).1),
        CU_POINTER_ATTRIBUTE_MAPPED => Int(1),
        CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES => {
            Word(if r.kind == MemoryKind::Vmm { state().virtual_memory.handle_types(r.owner) } else { 0 })
        }
        // The client's network card does not reach it: as CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED has it.
        CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE => Int(0),
        CU_POINTER_ATTRIBUTE_ACCESS_FLAGS => Int(r.access as i32),
        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE => {
            Word(if matches!(r.kind, MemoryKind::Pool | MemoryKind::Graph) { r.owner } else { 0 })
        }
        CU_POINTER_ATTRIBUTE_MAPPING_SIZE => Word(mapping(r).1),
        CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR => Word(mapping(r).0),
        // No two live blocks share an address.
        CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID => Word(mapping(r).0 / PAGE),
        // cuMemBatchDecompressAsync is refused: as CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK has it.
        CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE => Int(0),
        // Tokens for a kernel module of the GPU's host, and whatever comes after CUDA 13.0.
        _ => return None,
    })
}

/// Whether `cuIpcGetMemHandle` gives one for memory of that device, which the software GPU does not.
fn gives_handles(r: &Range) -> bool {
    facts().is_ok_and(|facts| facts.devices.get(r.device as usize).is_some_and(|device| !device.is_software()))
}

/// Start and size of the range of addresses an allocation lies in: the whole reservation for VMM.
fn reserved(r: &Range) -> (u64, u64) {
    state().virtual_memory.reservation(r.base).filter(|_| r.kind == MemoryKind::Vmm).unwrap_or((r.base, r.bytes))
}

/// Start and size of the physical block behind an allocation.
fn mapping(r: &Range) -> (u64, u64) {
    let unit = match r.kind {
        MemoryKind::RegisteredHost | MemoryKind::RegisteredFile => PAGE,
        _ => BLOCK,
    };
    let start = r.base / unit * unit;
    (start, r.end().next_multiple_of(unit) - start)
}

/// An attribute of an address that is nobody's: plain host memory, or nothing at all.
pub fn unknown(attribute: CUpointer_attribute, ptr: u64) -> Option<Value> {
    use Value::{Int, Untouched, Word};
    Some(match attribute {
        CU_POINTER_ATTRIBUTE_HOST_POINTER => Word(ptr),
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => Int(NO_DEVICE),
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR => {
            state().virtual_memory.reservation(ptr).map_or(Untouched, |(at, _)| Word(at))
        }
        CU_POINTER_ATTRIBUTE_RANGE_SIZE => state().virtual_memory.reservation(ptr).map_or(Untouched, |(_, n)| Word(n)),
        CU_POINTER_ATTRIBUTE_CONTEXT
        | CU_POINTER_ATTRIBUTE_DEVICE_POINTER
        | CU_POINTER_ATTRIBUTE_BUFFER_ID
        | CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES
        | CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE
        | CU_POINTER_ATTRIBUTE_MAPPING_SIZE
        | CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR
        | CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID => Word(0),
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE
        | CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
        | CU_POINTER_ATTRIBUTE_IS_MANAGED
        | CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
        | CU_POINTER_ATTRIBUTE_MAPPED
        | CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE
        | CU_POINTER_ATTRIBUTE_ACCESS_FLAGS
        | CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE => Int(0),
        _ => return None,
    })
}

/// Copies of device memory wait for the device anyway where the application cannot tell otherwise, so the
/// attribute is remembered and nothing else.
pub unsafe fn cuPointerSetAttribute(
    value: *const c_void,
    attribute: CUpointer_attribute,
    ptr: CUdeviceptr,
) -> CUresult {
    code((|| {
        session()?;
        not_null(value)?;
        if attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null; an unsigned int by the attribute's definition.
        let on = unsafe { value.cast::<u32>().read() } != 0;
        if state().addresses.update(ptr, |r| r.sync_memops = on) { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
    })())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::address_map::{MemoryKind, Range};

    #[test]
    fn answers_are_those_of_the_driver() {
        let mut r = Range::new(0x7e00_0000_0200, 1000, MemoryKind::Device, 77, 1);
        r.id = 9;
        let ask = |attribute| known(&r, attribute, r.base + 10);
        assert_eq!(ask(CU_POINTER_ATTRIBUTE_CONTEXT), Some(Value::Word(77)));
        assert_eq!(ask(CU_POINTER_ATTRIBUTE_MEMORY_TYPE), Some(Value::Int(2)));
        assert_eq!(ask(CU_POINTER_ATTRIBUTE_DEVICE_POINTER), Some(Value::Word(r.base + 10)));
        assert_eq!(ask(CU_POINTER_ATTRIBUTE_RANGE_SIZE), Some(Value::Word(1000)));
        assert_eq!(ask(CU_POINTER_ATTRIBUTE_MAPPING_SIZE), Some(Value::Word(2 << 20)));
        assert_eq!(ask(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR), Some(Value::Word(0x7e00_0000_0000)));
        assert_eq!(ask(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS), Some(Value::Int(1)));
        assert_eq!(ask(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS), Some(Value::Int(3)));
        assert_eq!(ask(CU_POINTER_ATTRIBUTE_P2P_TOKENS), None);
        assert_eq!(ask(22), None);
        assert_eq!(ask(0), None);
    }

    #[test]
    fn a_pointer_nobody_knows_is_host_memory_without_a_device() {
        let ask = |attribute| unknown(attribute, 0x1234);
        assert_eq!(ask(CU_POINTER_ATTRIBUTE_HOST_POINTER), Some(Value::Word(0x1234)));
        assert_eq!(ask(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL), Some(Value::Int(-2)));
        assert_eq!(ask(CU_POINTER_ATTRIBUTE_MEMORY_TYPE), Some(Value::Int(0)));
        assert_eq!(ask(CU_POINTER_ATTRIBUTE_RANGE_SIZE), Some(Value::Untouched));
        assert_eq!(ask(CU_POINTER_ATTRIBUTE_P2P_TOKENS), None);
    }
}
