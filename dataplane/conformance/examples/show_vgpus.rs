//! Prints what a program is given: the number of its devices, and of each its size, what is free of it, and what
//! becomes of an allocation of all of it and of one more. With the word `stay` it then says so, waits for a line on
//! standard input, and asks once more. With `work` it says so and fills memory and reads it back without end; each
//! line on standard input is answered by how often that was done, and by the code of the call that failed.

// UNSAFETY: opens Orion's libcuda.so.1 and calls it by cuda.h's signatures.

use std::ffi::CString;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

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
    let word = std::env::args().nth(1);
    if word.as_deref() == Some("work") {
        work(&driver);
    } else if word.as_deref() == Some("stay") {
        println!("attached");
        std::io::stdin().read_line(&mut String::new()).expect("a line");
        let (mut free, mut total) = (0, 0);
        // SAFETY: valid out pointers.
        println!("then {}", unsafe { driver.cuMemGetInfo_v2(&mut free, &mut total) });
    }
}

/// Until standard input ends.
fn work(driver: &Driver) {
    let (rounds, code) = (&AtomicU64::new(0), &AtomicU32::new(0));
    let fill = || {
        for byte in (0..=255).cycle() {
            code.store(fill_and_read(driver, byte), Ordering::Relaxed);
            if code.load(Ordering::Relaxed) != 0 {
                return;
            }
            rounds.fetch_add(1, Ordering::Relaxed);
            // Many of these run beside each other, and are to be killed at any moment rather than to be fast.
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    println!("attached");
    std::thread::scope(|scope| {
        scope.spawn(fill);
        for _ in std::io::stdin().lines() {
            println!("rounds {} code {}", rounds.load(Ordering::Relaxed), code.load(Ordering::Relaxed));
        }
        std::process::exit(0);
    });
}

/// Answers the code of the first call that fails. What is read has to be what was written.
fn fill_and_read(driver: &Driver, byte: u8) -> u32 {
    let (mut context, mut place) = (std::ptr::null_mut(), 0);
    let mut read = vec![!byte; MORE_BYTES];
    let done = |code: u32| if code == 0 { Ok(()) } else { Err(code) };
    // SAFETY: valid out pointers, and a buffer of the size that is copied.
    let all = unsafe {
        done(driver.cuDevicePrimaryCtxRetain(&mut context, 0))
            .and_then(|()| done(driver.cuCtxSetCurrent(context)))
            .and_then(|()| done(driver.cuMemAlloc_v2(&mut place, MORE_BYTES)))
            .and_then(|()| done(driver.cuMemsetD8_v2(place, byte, MORE_BYTES)))
            .and_then(|()| done(driver.cuMemcpyDtoH_v2(read.as_mut_ptr().cast(), place, MORE_BYTES)))
            .and_then(|()| done(driver.cuMemFree_v2(place)))
    };
    if let Err(code) = all {
        return code;
    }
    assert!(read.iter().all(|read| *read == byte), "memory that was filled with {byte} reads otherwise");
    0
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
