//! Attaches, says so, and asks for something once a line has come on standard input: by then its worker is gone. With
//! `copy` for an argument it copies until that fails: its worker goes meanwhile.

// UNSAFETY: opens Orion's libcuda.so.1 and calls it by cuda.h's signatures.

use std::ffi::CString;

use orion_cuda::driver::Driver;

/// Some pieces of a heap's staging part.
const BYTES: usize = 64 << 20;

fn main() {
    // SAFETY: the library's initialisers only set up its own state, and the driver's table has cuda.h's signatures.
    let driver = unsafe {
        let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW);
        assert!(!library.is_null(), "there is no libcuda.so.1");
        Driver::load(&mut |name| libc::dlsym(library, CString::new(name).expect("a name").as_ptr()).cast_const())
    };
    let (mut free, mut total) = (0, 0);
    // SAFETY: valid out pointers.
    let mut ask = || unsafe { driver.cuMemGetInfo_v2(&mut free, &mut total) };
    // SAFETY: plain calls with valid out pointers.
    unsafe {
        let mut context = std::ptr::null_mut();
        assert_eq!(driver.cuInit(0), 0);
        assert_eq!(driver.cuDevicePrimaryCtxRetain(&mut context, 0), 0);
        assert_eq!(driver.cuCtxSetCurrent(context), 0);
    }
    assert_eq!(ask(), 0);
    println!("attached");
    if std::env::args().nth(1).is_some_and(|argument| argument == "copy") {
        return println!("{}", copy_until_that_fails(&driver));
    }
    std::io::stdin().read_line(&mut String::new()).expect("a line");
    println!("{}", ask());
}

fn copy_until_that_fails(driver: &Driver) -> u32 {
    let (mut bytes, mut device, mut copies) = (vec![7u8; BYTES], 0, 0);
    // SAFETY: a valid out pointer.
    assert_eq!(unsafe { driver.cuMemAlloc_v2(&mut device, BYTES) }, 0);
    loop {
        // SAFETY: host memory of that size.
        let there = unsafe { driver.cuMemcpyHtoD_v2(device, bytes.as_ptr().cast(), BYTES) };
        // SAFETY: as above.
        let back = unsafe { driver.cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), device, BYTES) };
        if (there, back) != (0, 0) {
            return there.max(back);
        }
        copies += 1;
        if copies == 1 {
            println!("copying");
        }
    }
}
