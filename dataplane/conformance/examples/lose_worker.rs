//! Attaches, says so, and asks for something once a line has come on standard input: by then its worker is gone.

// UNSAFETY: opens Orion's libcuda.so.1 and calls it by cuda.h's signatures.

use std::ffi::CString;

use orion_cuda::driver::Driver;

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
    std::io::stdin().read_line(&mut String::new()).expect("a line");
    println!("{}", ask());
}
