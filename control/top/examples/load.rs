//! Makes a session slow in one way, for tests of `orion-top`: `load gpu|copies|posts|floods|calls|idle`. Says `ready`,
//! and goes on until standard input ends.

// UNSAFETY: opens Orion's libcuda.so.1 and calls it by cuda.h's signatures.

use std::ffi::CString;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;

/// Counts up to its second argument in each thread: a kernel that takes as long as it is told to.
const KERNEL: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 to, .param .u32 rounds)
{
    .reg .pred %p<2>;
    .reg .b32 %r<4>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [to];
    ld.param.u32 %r1, [rounds];
    mov.u32 %r2, 0;
again:
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p1, %r2, %r1;
    @%p1 bra again;
    st.global.u32 [%rd1], %r2;
    ret;
}
";
const COPY_BYTES: usize = 8 << 20;

static IS_OVER: AtomicBool = AtomicBool::new(false);

fn main() {
    let what = std::env::args().nth(1).expect("what to do");
    // SAFETY: the library's initialisers only set up its own state, and the driver's table has cuda.h's signatures.
    let driver = unsafe {
        let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW);
        assert!(!library.is_null(), "there is no libcuda.so.1");
        Driver::load(&mut |name| libc::dlsym(library, CString::new(name).expect("a name").as_ptr()).cast_const())
    };
    let (function, address) = prepare(&driver);
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_line(&mut String::new());
        IS_OVER.store(true, Ordering::Relaxed);
    });
    println!("ready");
    let mut host = vec![1u8; COPY_BYTES];
    while !IS_OVER.load(Ordering::Relaxed) {
        // SAFETY: objects of this context, and host memory that is as long as is said.
        unsafe {
            match what.as_str() {
                "gpu" => {
                    launch(&driver, function, address, 2_000_000);
                    done("cuCtxSynchronize", driver.cuCtxSynchronize());
                }
                "copies" => {
                    done("copying in", driver.cuMemcpyHtoD_v2(address, host.as_ptr().cast(), COPY_BYTES));
                    done("copying out", driver.cuMemcpyDtoH_v2(host.as_mut_ptr().cast(), address, COPY_BYTES));
                }
                // Each takes the GPU longer than any client needs to post the next, however few cores there are.
                "posts" => (0..1000).for_each(|_| launch(&driver, function, address, 300)),
                // What no stream has to do with.
                "floods" => {
                    for _ in 0..1000 {
                        let mut event = ptr::null_mut();
                        done("cuEventCreate", driver.cuEventCreate(&mut event, CU_EVENT_DISABLE_TIMING));
                        done("cuEventDestroy", driver.cuEventDestroy_v2(event));
                    }
                }
                "calls" => {
                    done("cuMemsetD32", driver.cuMemsetD32_v2(address, 7, 4));
                    let mut word = 0u32;
                    done("a small copy", driver.cuMemcpyDtoH_v2((&raw mut word).cast(), address, 4));
                }
                "idle" => std::thread::sleep(Duration::from_millis(20)),
                other => panic!("{other:?} is none of gpu, copies, posts, floods, calls, idle"),
            }
        }
    }
}

fn prepare(driver: &Driver) -> (CUfunction, CUdeviceptr) {
    let (mut context, mut module) = (ptr::null_mut(), ptr::null_mut());
    let (mut function, mut address) = (ptr::null_mut(), 0);
    let text = CString::new(KERNEL).expect("no NUL in it");
    // SAFETY: valid out pointers, and text that ends with NUL.
    unsafe {
        done("cuInit", driver.cuInit(0));
        done("cuDevicePrimaryCtxRetain", driver.cuDevicePrimaryCtxRetain(&mut context, 0));
        done("cuCtxSetCurrent", driver.cuCtxSetCurrent(context));
        done("cuModuleLoadData", driver.cuModuleLoadData(&mut module, text.as_ptr().cast()));
        done("cuModuleGetFunction", driver.cuModuleGetFunction(&mut function, module, c"spin".as_ptr()));
        done("cuMemAlloc", driver.cuMemAlloc_v2(&mut address, COPY_BYTES));
    }
    (function, address)
}

fn launch(driver: &Driver, function: CUfunction, address: CUdeviceptr, rounds: u32) {
    let (mut address, mut rounds) = (address, rounds);
    let mut parameters = [(&raw mut address).cast(), (&raw mut rounds).cast()];
    let (stream, extra) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the kernel's two parameters, of their sizes.
    let code = unsafe { driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters.as_mut_ptr(), extra) };
    done("cuLaunchKernel", code);
}

fn done(what: &str, code: CUresult) {
    assert_eq!(code, CUDA_SUCCESS, "{what}");
}
