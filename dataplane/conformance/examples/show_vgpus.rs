//! Prints what a program is given: the number of its devices, and of each its size, what is free of it, and what
//! becomes of an allocation of all of it and of one more. With the word `stay` it then says so, waits for a line on
//! standard input, and asks once more.

// UNSAFETY: opens Orion's libcuda.so.1 and calls it by cuda.h's signatures.

use std::ffi::CString;

use orion_cuda::driver::Driver;

const MORE_BYTES: usize = 1 << 20;

fn main() {
    // SAFETY: the library's initialisers only set up its own state, and the driver's table has cuda.h's signatures.
    let driver = unsafe {
        let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW);
        assert!(!library.is_null(), "there is no libcuda.so.1");
        Driver::load(&mut |name| libc::dlsym(library, CString::new(name).expect("a name").as_ptr()).cast_const())
    };
    // SAFETY: a plain call.
    let code = unsafe { driver.cuInit(0) };
    if code != 0 {
        println!("cuInit {code}");
        std::process::exit(1);
    }
    let mut count = 0;
    // SAFETY: a valid out pointer.
    assert_eq!(unsafe { driver.cuDeviceGetCount(&mut count) }, 0);
    println!("devices {count}");
    (0..count).for_each(|device| show(&driver, device));
    if std::env::args().nth(1).is_some_and(|word| word == "stay") {
        println!("attached");
        std::io::stdin().read_line(&mut String::new()).expect("a line");
        let (mut free, mut total) = (0, 0);
        // SAFETY: valid out pointers.
        println!("then {}", unsafe { driver.cuMemGetInfo_v2(&mut free, &mut total) });
    }
}

fn show(driver: &Driver, device: i32) {
    let (mut size, mut free, mut total) = (0, 0, 0);
    let (mut context, mut all, mut more) = (std::ptr::null_mut(), 0, 0);
    // SAFETY: plain calls with valid out pointers; what was allocated is freed.
    unsafe {
        assert_eq!(driver.cuDeviceTotalMem_v2(&mut size, device), 0);
        assert_eq!(driver.cuDevicePrimaryCtxRetain(&mut context, device), 0);
        assert_eq!(driver.cuCtxSetCurrent(context), 0);
        assert_eq!(driver.cuMemGetInfo_v2(&mut free, &mut total), 0);
        let first = driver.cuMemAlloc_v2(&mut all, size);
        let second = driver.cuMemAlloc_v2(&mut more, MORE_BYTES);
        println!("device {device} size {size} free {free} total {total} all {first} more {second}");
        assert_eq!(driver.cuMemFree_v2(all), 0);
    }
}
