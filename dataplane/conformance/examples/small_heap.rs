//! Copies more than fits into the heap that it shares with its worker, and asks for pinned memory that does and does
//! not fit there.

// UNSAFETY: opens Orion's libcuda.so.1 and calls it by cuda.h's signatures.

use std::ffi::CString;
use std::ptr;

use orion_cuda::driver::Driver;

const MIB: usize = 1 << 20;
const BYTES: usize = 256 * MIB;

fn main() {
    // SAFETY: the library's initialisers only set up its own state, and the driver's table has cuda.h's signatures.
    let driver = unsafe {
        let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW);
        assert!(!library.is_null(), "there is no libcuda.so.1");
        Driver::load(&mut |name| libc::dlsym(library, CString::new(name).expect("a name").as_ptr()).cast_const())
    };
    let sent: Vec<u8> = (0..BYTES).map(|i| (i.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect();
    let mut back = vec![0u8; BYTES];
    // SAFETY: valid out pointers, and host memory of the sizes that are said.
    unsafe {
        let (mut context, mut device) = (ptr::null_mut(), 0);
        assert_eq!(driver.cuInit(0), 0);
        assert_eq!(driver.cuDevicePrimaryCtxRetain(&mut context, 0), 0);
        assert_eq!(driver.cuCtxSetCurrent(context), 0);
        assert_eq!(driver.cuMemAlloc_v2(&mut device, BYTES), 0);
        assert_eq!(driver.cuMemcpyHtoD_v2(device, sent.as_ptr().cast(), BYTES), 0);
        assert_eq!(driver.cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), device, BYTES), 0);
    }
    assert!(sent == back, "other bytes came back");
    println!("{} MiB came back", BYTES / MIB);
    for mib in [256, 16] {
        let mut pinned = ptr::null_mut();
        // SAFETY: a valid out pointer.
        println!("{mib} MiB pinned: {}", unsafe { driver.cuMemHostAlloc(&mut pinned, mib * MIB, 0) });
    }
}
