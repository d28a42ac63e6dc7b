//! Runs kernels with more and more local memory and says what each took of the device: what a driver sets aside for
//! the stacks of kernels' threads, and whether a limit counts it
//! (`orion-run --memory-limit "4 GiB" -- local_memory`). Ends with what another context takes.

use std::ffi::{CString, c_int, c_void};
use std::ptr::null_mut;

use cudarc::driver::sys::{self, CUlimit_enum, CUresult};

fn main() {
    // SAFETY: out parameters that live through the calls, in the order in which the driver API wants them.
    unsafe {
        let (mut device, mut context) = (0, null_mut());
        ok(sys::cuInit(0));
        ok(sys::cuDeviceGet(&mut device, 0));
        ok(sys::cuDevicePrimaryCtxRetain(&mut context, device));
        ok(sys::cuCtxSetCurrent(context));
        let threads = attribute(device, sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
            * attribute(device, sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
        println!("stack limit {}, threads {threads}, free {} MiB", stack_limit(), free() >> 20);
        for bytes in [512, 1024, 2048, 4096, 16384, 65536, 1024, 131_072, 500_000] {
            let before = free();
            let (local, code) = run(bytes);
            let taken = before.saturating_sub(free());
            println!(
                "kernel of {local} bytes: {code:?}, took {:.1} MiB; for all threads {:.1} MiB",
                mib(taken),
                mib(local * threads)
            );
        }
        for bytes in [2048, 16384, 262_144] {
            let before = free();
            let code = sys::cuCtxSetLimit(CUlimit_enum::CU_LIMIT_STACK_SIZE, bytes);
            let (_, ran) = run(512);
            println!("limit of {bytes} bytes: {code:?}, {ran:?}, took {:.1} MiB", mib(before.saturating_sub(free())));
        }
        for _ in 0..3 {
            let (before, mut other) = (free(), null_mut());
            let code = sys::cuCtxCreate_v4(&mut other, null_mut(), 0, device);
            println!("another context: {code:?}, took {:.1} MiB", mib(before.saturating_sub(free())));
        }
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[track_caller]
fn ok(code: CUresult) {
    assert_eq!(code, CUresult::CUDA_SUCCESS);
}

fn attribute(device: c_int, attribute: sys::CUdevice_attribute) -> u64 {
    let mut value = 0;
    // SAFETY: a device that there is, and a valid out pointer.
    ok(unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, device) });
    value as u64
}

fn free() -> u64 {
    let (mut free, mut total) = (0, 0);
    // SAFETY: valid out pointers.
    ok(unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) });
    free as u64
}

fn stack_limit() -> usize {
    let mut value = 0;
    // SAFETY: a valid out pointer.
    ok(unsafe { sys::cuCtxGetLimit(&mut value, CUlimit_enum::CU_LIMIT_STACK_SIZE) });
    value
}

/// One block of a kernel whose threads have an array of so many bytes: what the driver says that they have, and what
/// launch and wait answered.
fn run(bytes: usize) -> (u64, CUresult) {
    let text = CString::new(format!(
        ".version 7.0\n.target sm_75\n.address_size 64\n\
         .visible .entry deep(.param .u64 out, .param .u32 n)\n{{\n\
         .local .align 4 .b8 stack[{bytes}];\n.reg .b64 %q<4>; .reg .b32 %r<4>; .reg .pred %p;\n\
         ld.param.u64 %q0, [out]; ld.param.u32 %r0, [n]; mov.u64 %q1, stack; mov.u32 %r1, 0;\n\
         more: cvt.u64.u32 %q2, %r1; add.u64 %q2, %q1, %q2; st.local.u32 [%q2], %r1; add.u32 %r1, %r1, 512;\n\
         setp.lt.u32 %p, %r1, {bytes}; @%p bra more;\n\
         cvt.u64.u32 %q2, %r0; add.u64 %q2, %q1, %q2; ld.local.u32 %r2, [%q2]; st.global.u32 [%q0], %r2; ret;\n}}\n"
    ))
    .expect("no NUL");
    // SAFETY: PTX that ends with a NUL, out parameters that live through the calls, and the kernel's two parameters.
    unsafe {
        let (mut module, mut function, mut out) = (null_mut(), null_mut(), 0);
        ok(sys::cuModuleLoadData(&mut module, text.as_ptr().cast()));
        ok(sys::cuModuleGetFunction(&mut function, module, c"deep".as_ptr()));
        let mut local = 0;
        let id = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES;
        ok(sys::cuFuncGetAttribute(&mut local, id, function));
        ok(sys::cuMemAlloc_v2(&mut out, 4));
        let mut at = 0u32;
        let mut parameters: [*mut c_void; 2] = [(&raw mut out).cast(), (&raw mut at).cast()];
        let parameters = parameters.as_mut_ptr();
        let mut code = sys::cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, null_mut(), parameters, null_mut());
        if code == CUresult::CUDA_SUCCESS {
            code = sys::cuCtxSynchronize();
        }
        ok(sys::cuMemFree_v2(out));
        ok(sys::cuModuleUnload(module));
        (local as u64, code)
    }
}
