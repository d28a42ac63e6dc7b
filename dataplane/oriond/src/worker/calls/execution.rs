//! Launches and questions about functions.

// UNSAFETY: calls the driver with parameters packed by the client; the driver copies them before it returns.

use std::ffi::c_void;
use std::ptr;

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;
use orion_wire::handle::Kind;
use orion_wire::message::execution::{FuncAttribute, FuncGetAttributes, FuncGetAttributesReply, FuncIsLoaded};
use orion_wire::message::execution::{FuncIsLoadedReply, FuncLoad, FuncSetAttribute, FuncSetCacheConfig, LaunchKernel};
use orion_wire::message::field::{Halves, List, Rest};
use orion_wire::record::Header;
use orion_wire::{Fault, Reader};

use crate::worker::outcome::{Handled, Outcome};
use crate::worker::session::Session;

const ATTRIBUTE_BYTES: usize = std::mem::size_of::<CUlaunchAttribute>();

pub fn cuLaunchKernel(s: &mut Session, header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let LaunchKernel { head, rest: Rest(rest) } = LaunchKernel::decode(&mut r)?;
    let f = match s.handle(Kind::Function, head.function.0) {
        Ok(f) if !f.is_null() => f.cast(),
        _ => return Ok(Outcome::Done(CUDA_ERROR_INVALID_HANDLE)),
    };
    let (Halves(gx, gy), Halves(gz, bx), Halves(by, bz)) = (head.gx_gy, head.gz_bx, head.by_bz);
    let Halves(shared_bytes, attributes) = head.shared_attributes;
    let stream = s.plain_stream(head.stream.0, header.thread)?;
    let parameter_bytes = head.parameter_bytes.0 as usize;
    let padded = parameter_bytes.checked_next_multiple_of(8).ok_or(Fault("launch parameters too long"))?;
    let attributes = attributes as usize;
    if attributes > 64 || Some(rest.len()) != padded.checked_add(attributes * ATTRIBUTE_BYTES) {
        return Err(Fault("launch record of the wrong length").into());
    }
    let mut size = parameter_bytes;
    let mut extra = [
        CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT as usize as *mut c_void,
        rest.as_ptr().cast_mut().cast(),
        CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT as usize as *mut c_void,
        ptr::from_mut(&mut size).cast(),
        CU_LAUNCH_PARAM_END_AS_INT as usize as *mut c_void,
    ];
    if !s.has_stacks_for(f, 0) {
        return Ok(Outcome::Done(CUDA_ERROR_OUT_OF_MEMORY));
    }
    let extra = if parameter_bytes == 0 { ptr::null_mut() } else { extra.as_mut_ptr() };
    if attributes == 0 {
        // SAFETY: handles were looked up; `extra` describes a buffer that lives through the call.
        let code =
            unsafe { s.driver.cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared_bytes, stream, ptr::null_mut(), extra) };
        return Ok(Outcome::Done(code));
    }
    let mut attrs = launch_attributes(s, &rest[padded..])??;
    let config = CUlaunchConfig {
        gridDimX: gx,
        gridDimY: gy,
        gridDimZ: gz,
        blockDimX: bx,
        blockDimY: by,
        blockDimZ: bz,
        sharedMemBytes: shared_bytes,
        hStream: stream,
        attrs: attrs.as_mut_ptr(),
        numAttrs: attributes as u32,
    };
    // SAFETY: as above; the attributes live through the call.
    Ok(Outcome::Done(unsafe { s.driver.cuLaunchKernelEx(&config, f, ptr::null_mut(), extra) }))
}

/// Launch attributes from their bytes; events in them become the driver's.
pub fn launch_attributes(s: &mut Session, bytes: &[u8]) -> Result<Result<Vec<CUlaunchAttribute>, CUresult>, Fault> {
    let mut attrs = Vec::with_capacity(bytes.len() / ATTRIBUTE_BYTES);
    for chunk in bytes.chunks_exact(ATTRIBUTE_BYTES) {
        // SAFETY: any bytes are a valid attribute: an integer and a union of plain data.
        let mut a: CUlaunchAttribute = unsafe { ptr::read_unaligned(chunk.as_ptr().cast()) };
        match a.id {
            CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT => {
                // SAFETY: the id says which member of the union is meant; all are plain data.
                let event = unsafe { a.value.programmaticEvent.event } as u64;
                match s.handle(Kind::Event, event) {
                    Ok(e) => a.value.programmaticEvent.event = e.cast(),
                    Err(code) => return Ok(Err(code)),
                }
            }
            CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT => {
                // SAFETY: as above.
                let event = unsafe { a.value.launchCompletionEvent.event } as u64;
                match s.handle(Kind::Event, event) {
                    Ok(e) => a.value.launchCompletionEvent.event = e.cast(),
                    Err(code) => return Ok(Err(code)),
                }
            }
            // Writes a handle through a pointer; the client refuses it, and so does this.
            CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE => return Ok(Err(CUDA_ERROR_NOT_SUPPORTED)),
            _ => {}
        }
        attrs.push(a);
    }
    Ok(Ok(attrs))
}

/// All attributes of a function on a device: result and value of each.
pub fn cuFuncGetAttribute(s: &mut Session, _header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let q = FuncGetAttributes::decode(&mut r)?;
    let (f, device) = (s.handle(Kind::Function, q.function.0)?, s.device(q.device.0)?);
    let is_kernel = s.kernels.contains(&(f as usize));
    let attribute = |id| {
        let mut value = 0;
        // SAFETY: a looked-up handle of the kind the function takes, and a valid out pointer.
        let result = unsafe {
            if is_kernel {
                s.driver.cuKernelGetAttribute(&mut value, id, f.cast(), device)
            } else {
                s.driver.cuFuncGetAttribute(&mut value, id, f.cast())
            }
        };
        FuncAttribute { result, value }
    };
    let all: Vec<FuncAttribute> = (0..CU_FUNC_ATTRIBUTE_MAX).map(attribute).collect();
    let attributes = List::of(all).expect("fewer attributes than there is room for");
    // What nobody waits for reaches the application too late for one that then waits for a host function.
    let is_refused = orion_soft::module::refuses(f.cast());
    FuncGetAttributesReply { attributes, is_refused }.encode(reply);
    Ok(Outcome::Done(CUDA_SUCCESS))
}

/// The driver's function behind a handle: of a kernel, the one in the current context.
fn driver_function(s: &Session, f: *mut c_void) -> Result<CUfunction, CUresult> {
    if !s.kernels.contains(&(f as usize)) {
        return Ok(f.cast());
    }
    let mut function = ptr::null_mut();
    // SAFETY: a kernel of this session and a valid out pointer.
    match unsafe { s.driver.cuKernelGetFunction(&mut function, f.cast()) } {
        CUDA_SUCCESS => Ok(function),
        code => Err(code),
    }
}

pub fn cuFuncIsLoaded(s: &mut Session, _header: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
    let q = FuncIsLoaded::decode(&mut r)?;
    let f = s.handle(Kind::Function, q.function.0).and_then(|f| driver_function(s, f));
    let mut state = 0;
    let code = match f {
        // SAFETY: a function of this session and a valid out pointer.
        Ok(f) => unsafe { s.driver.cuFuncIsLoaded(&mut state, f) },
        Err(code) => code,
    };
    FuncIsLoadedReply { state }.encode(reply);
    Ok(Outcome::Done(code))
}

/// On a helper thread, as loads of modules: what the driver does is the same.
pub fn cuFuncLoad(s: &mut Session, header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let q = FuncLoad::decode(&mut r)?;
    let f = match s.handle(Kind::Function, q.function.0).and_then(|f| driver_function(s, f)) {
        Ok(f) => f as usize,
        Err(code) => return Ok(Outcome::Done(code)),
    };
    // SAFETY: a function of this session; its module is unloaded by the executor, when the device is idle.
    let load = move |driver: &'static Driver| unsafe { driver.cuFuncLoad(f as CUfunction) };
    s.park_blocking(header, load, |_, code, _| code)
}

pub fn cuFuncSetAttribute(s: &mut Session, _header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let FuncSetAttribute { function, attribute: id, value, device } = FuncSetAttribute::decode(&mut r)?;
    let (f, device) = (s.handle(Kind::Function, function.0)?, s.device(device.0)?);
    // SAFETY: as above.
    Ok(Outcome::Done(unsafe {
        if s.kernels.contains(&(f as usize)) {
            s.driver.cuKernelSetAttribute(id, value, f.cast(), device)
        } else {
            s.driver.cuFuncSetAttribute(f.cast(), id, value)
        }
    }))
}

pub fn cuFuncSetCacheConfig(s: &mut Session, _header: &Header, mut r: Reader<'_>, _reply: &mut Vec<u8>) -> Handled {
    let FuncSetCacheConfig { function, config, device } = FuncSetCacheConfig::decode(&mut r)?;
    let (f, device) = (s.handle(Kind::Function, function.0)?, s.device(device.0)?);
    // SAFETY: a looked-up handle of the kind the function takes.
    Ok(Outcome::Done(unsafe {
        if s.kernels.contains(&(f as usize)) {
            s.driver.cuKernelSetCacheConfig(f.cast(), config, device)
        } else {
            s.driver.cuFuncSetCacheConfig(f.cast(), config)
        }
    }))
}
