//! What the library tells about an address.

use std::ffi::c_void;
use std::ptr::null_mut;

use orion_cuda::sys::*;

use crate::driver::Cuda;
use crate::fact::{Verdict, answers, facts, holds, ok, same};
use crate::lab::{Get, as_void};

facts! { pointer:
    Context [
        device_memory_is_device_memory,
        pinned_memory_is_host_memory,
        device_memory_has_no_host_address,
        pinned_memory_has_both_addresses,
        the_context_and_device_are_told,
        the_range_is_the_allocation,
        an_id_is_never_given_twice,
        inside_an_allocation_is_the_same_id,
        nothing_is_managed,
        what_is_said_to_be_capable_is,
        unknown_memory_alone_is_invalid_value,
        unknown_memory_among_many_is_zeroes,
        device_memory_among_many,
        freed_memory_is_unknown.not_in_a_crowd("another may be given the freed address"),
        an_unknown_attribute_is_invalid_value,
        sync_memops_can_be_set,
        module_globals_are_device_memory,
        one_attribute_needs_no_context,
        the_address_range_needs_a_current_context,
        many_attributes_need_no_context,
    ]
}

fn of<T: Default>(cu: &Cuda, attribute: CUpointer_attribute, address: CUdeviceptr) -> Get<T> {
    let mut value = T::default();
    ok!(cu.cuPointerGetAttribute(as_void(&mut value), attribute, address));
    Ok(value)
}

fn device_memory_is_device_memory(cu: &'static Cuda) -> Verdict {
    let address = cu.alloc(64)?;
    same!(of::<u32>(cu, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address)?, CU_MEMORYTYPE_DEVICE);
    same!(of::<u64>(cu, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address + 3)?, address + 3);
    cu.free(address)
}

fn pinned_memory_is_host_memory(cu: &'static Cuda) -> Verdict {
    let address = cu.pinned(64)?;
    same!(of::<u32>(cu, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address.addr() as u64)?, CU_MEMORYTYPE_HOST);
    ok!(cu.cuMemFreeHost(address));
    Ok(())
}

fn device_memory_has_no_host_address(cu: &'static Cuda) -> Verdict {
    let (address, mut host) = (cu.alloc(64)?, 0u64);
    answers!(
        CUDA_ERROR_INVALID_VALUE,
        cu.cuPointerGetAttribute(as_void(&mut host), CU_POINTER_ATTRIBUTE_HOST_POINTER, address)
    );
    cu.free(address)
}

fn pinned_memory_has_both_addresses(cu: &'static Cuda) -> Verdict {
    let memory = cu.pinned(64)?;
    let address = memory.addr() as u64;
    same!(of::<u64>(cu, CU_POINTER_ATTRIBUTE_HOST_POINTER, address + 4)?, address + 4);
    same!(of::<u64>(cu, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address + 4)?, address + 4);
    ok!(cu.cuMemFreeHost(memory));
    Ok(())
}

fn the_context_and_device_are_told(cu: &'static Cuda) -> Verdict {
    let address = cu.alloc(64)?;
    same!(of::<usize>(cu, CU_POINTER_ATTRIBUTE_CONTEXT, address)?, cu.context()?.addr());
    let mut ordinal = -5;
    ok!(cu.cuPointerGetAttribute(as_void(&mut ordinal), CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
    same!(ordinal, 0);
    cu.free(address)
}

fn the_range_is_the_allocation(cu: &'static Cuda) -> Verdict {
    let address = cu.alloc(1000)?;
    same!(of::<u64>(cu, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address + 7)?, address);
    same!(of::<usize>(cu, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address + 7)?, 1000);
    cu.free(address)
}

fn an_id_is_never_given_twice(cu: &'static Cuda) -> Verdict {
    let mut seen = std::collections::HashSet::new();
    for _ in 0..10 {
        let address = cu.alloc(64)?;
        let id = of::<u64>(cu, CU_POINTER_ATTRIBUTE_BUFFER_ID, address)?;
        holds!(seen.insert(id), "the id {id} was given twice");
        cu.free(address)?;
    }
    Ok(())
}

fn inside_an_allocation_is_the_same_id(cu: &'static Cuda) -> Verdict {
    let address = cu.alloc(1000)?;
    let id = of::<u64>(cu, CU_POINTER_ATTRIBUTE_BUFFER_ID, address)?;
    same!(of::<u64>(cu, CU_POINTER_ATTRIBUTE_BUFFER_ID, address + 999)?, id);
    cu.free(address)
}

fn nothing_is_managed(cu: &'static Cuda) -> Verdict {
    let address = cu.alloc(64)?;
    let mut managed = 9u32;
    ok!(cu.cuPointerGetAttribute(as_void(&mut managed), CU_POINTER_ATTRIBUTE_IS_MANAGED, address));
    same!(managed & 0xff, 0);
    cu.free(address)
}

/// A program that believes an address fails for good where the function then says no, as UCX does.
fn what_is_said_to_be_capable_is(cu: &'static Cuda) -> Verdict {
    let address = cu.alloc(1 << 20)?;
    let is = |attribute| -> Get<bool> { Ok(of::<u32>(cu, attribute, address)? & 0xff != 0) };
    let has = |attribute| -> Get<bool> {
        let (mut device, mut value) = (0, 0);
        ok!(cu.cuCtxGetDevice(&mut device));
        ok!(cu.cuDeviceGetAttribute(&mut value, attribute, device));
        Ok(value != 0)
    };
    if is(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE)? {
        let mut handle = CUipcMemHandle { reserved: [0; 64] };
        ok!(cu.cuIpcGetMemHandle(&mut handle, address));
    }
    if is(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE)? {
        holds!(has(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED)?, "an address reaches further than its device");
    }
    cu.free(address)
}

fn unknown_memory_alone_is_invalid_value(cu: &'static Cuda) -> Verdict {
    let (mut word, mut kind) = (0u64, 0u32);
    let address = std::ptr::from_mut(&mut word).addr() as u64;
    answers!(
        CUDA_ERROR_INVALID_VALUE,
        cu.cuPointerGetAttribute(as_void(&mut kind), CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address)
    );
    Ok(())
}

#[derive(Debug, PartialEq)]
struct Told {
    context: usize,
    kind: u32,
    device: u64,
    host: u64,
    managed: u32,
    ordinal: i32,
}

/// The six questions the runtime asks for cudaPointerGetAttributes.
fn told(cu: &Cuda, address: CUdeviceptr) -> Get<Told> {
    let mut told = Told { context: 9, kind: 9, device: 9, host: 9, managed: 9, ordinal: 9 };
    let mut attributes = [
        CU_POINTER_ATTRIBUTE_CONTEXT,
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
        CU_POINTER_ATTRIBUTE_HOST_POINTER,
        CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
    ];
    let mut into: [*mut c_void; 6] = [
        as_void(&mut told.context),
        as_void(&mut told.kind),
        as_void(&mut told.device),
        as_void(&mut told.host),
        as_void(&mut told.managed),
        as_void(&mut told.ordinal),
    ];
    ok!(cu.cuPointerGetAttributes(6, attributes.as_mut_ptr(), into.as_mut_ptr(), address));
    told.managed &= 0xff;
    Ok(told)
}

fn unknown_memory_among_many_is_zeroes(cu: &'static Cuda) -> Verdict {
    let mut word = 0u64;
    let host = std::ptr::from_mut(&mut word).addr() as u64;
    same!(told(cu, host)?, Told { context: 0, kind: 0, device: 0, host, managed: 0, ordinal: -2 });
    Ok(())
}

fn device_memory_among_many(cu: &'static Cuda) -> Verdict {
    let device = cu.alloc(64)?;
    let context = cu.context()?.addr();
    same!(told(cu, device)?, Told { context, kind: CU_MEMORYTYPE_DEVICE, device, host: 0, managed: 0, ordinal: 0 });
    cu.free(device)
}

fn freed_memory_is_unknown(cu: &'static Cuda) -> Verdict {
    let (address, mut kind) = (cu.alloc(8 << 20)?, 0u32);
    cu.free(address)?;
    answers!(
        CUDA_ERROR_INVALID_VALUE,
        cu.cuPointerGetAttribute(as_void(&mut kind), CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address)
    );
    Ok(())
}

fn an_unknown_attribute_is_invalid_value(cu: &'static Cuda) -> Verdict {
    let (address, mut value) = (cu.alloc(64)?, 0u64);
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuPointerGetAttribute(as_void(&mut value), 9999, address));
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuPointerGetAttribute(null_mut(), CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
    cu.free(address)
}

fn sync_memops_can_be_set(cu: &'static Cuda) -> Verdict {
    let (address, yes) = (cu.alloc(64)?, 1u32);
    ok!(cu.cuPointerSetAttribute(std::ptr::from_ref(&yes).cast(), CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address));
    same!(of::<u32>(cu, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address)? & 0xff, 1);
    cu.free(address)
}

fn module_globals_are_device_memory(cu: &'static Cuda) -> Verdict {
    let (module, mut address, mut bytes) = (cu.module()?, 0, 0);
    ok!(cu.cuModuleGetGlobal_v2(&mut address, &mut bytes, module, c"counter".as_ptr()));
    same!(of::<u32>(cu, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address)?, CU_MEMORYTYPE_DEVICE);
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

/// Asks with no context current.
fn without_context<T>(cu: &Cuda, ask: impl FnOnce() -> T) -> Get<T> {
    let context = cu.context()?;
    ok!(cu.cuCtxSetCurrent(null_mut()));
    let answer = ask();
    ok!(cu.cuCtxSetCurrent(context));
    Ok(answer)
}

fn one_attribute_needs_no_context(cu: &'static Cuda) -> Verdict {
    let (device, pinned) = (cu.alloc(64)?, cu.pinned(64)?);
    for address in [device, pinned.addr() as u64] {
        let mut kind = 0u32;
        let into = as_void(&mut kind);
        let code = without_context(cu, || cu.cuPointerGetAttribute(into, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address))?;
        answers!(CUDA_SUCCESS, code);
    }
    ok!(cu.cuMemFreeHost(pinned));
    cu.free(device)
}

fn the_address_range_needs_a_current_context(cu: &'static Cuda) -> Verdict {
    let (address, mut base, mut bytes) = (cu.alloc(64)?, 0, 0);
    let code = without_context(cu, || cu.cuMemGetAddressRange_v2(&mut base, &mut bytes, address))?;
    answers!(CUDA_ERROR_INVALID_CONTEXT, code);
    ok!(cu.cuMemGetAddressRange_v2(&mut base, &mut bytes, address));
    same!((base, bytes), (address, 64));
    cu.free(address)
}

fn many_attributes_need_no_context(cu: &'static Cuda) -> Verdict {
    let mut word = 0u64;
    let host = std::ptr::from_mut(&mut word).addr() as u64;
    let told = without_context(cu, || told(cu, host))??;
    same!(told, Told { context: 0, kind: 0, device: 0, host, managed: 0, ordinal: -2 });
    Ok(())
}
