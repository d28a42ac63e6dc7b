//! Has copies of pinned memory under way, more than a connection takes at once, until its standard input ends: `in` to
//! the device, or `out` of it. Says then whether all was right.

// UNSAFETY: opens Orion's libcuda.so.1 and calls it by cuda.h's signatures.

use std::ffi::CString;
use std::io::Read;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use orion_cuda::driver::Driver;

const BYTES: usize = 64 << 20;
const UNDER_WAY: usize = 8;

fn main() {
    let goes_in = match std::env::args().nth(1).as_deref() {
        Some("in") => true,
        Some("out") => false,
        other => panic!("in or out, not {other:?}"),
    };
    // SAFETY: the library's initialisers only set up its own state, and the driver's table has cuda.h's signatures.
    let driver = unsafe {
        let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW);
        assert!(!library.is_null(), "there is no libcuda.so.1");
        Driver::load(&mut |name| libc::dlsym(library, CString::new(name).expect("a name").as_ptr()).cast_const())
    };
    let (mut context, mut pinned, mut device, mut stream) = (null_mut(), null_mut(), 0, null_mut());
    // SAFETY: plain calls with valid out pointers.
    unsafe {
        assert_eq!(driver.cuInit(0), 0);
        assert_eq!(driver.cuDevicePrimaryCtxRetain(&mut context, 0), 0);
        assert_eq!(driver.cuCtxSetCurrent(context), 0);
        assert_eq!(driver.cuMemHostAlloc(&mut pinned, BYTES, 0), 0);
        assert_eq!(driver.cuMemAlloc_v2(&mut device, BYTES), 0);
        assert_eq!(driver.cuStreamCreate(&mut stream, 1), 0);
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let over = is_over.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        over.store(true, Ordering::SeqCst);
    });
    println!("copying");
    let (mut round, ends) = (0u8, [0, BYTES - 1]);
    while !is_over.load(Ordering::SeqCst) {
        round = round.wrapping_add(1);
        let at = pinned.cast::<u8>();
        let mut back = [0u8; 2];
        // SAFETY: both memories have the size, `ends` lie in them, and nothing is under way between the copies.
        unsafe {
            if goes_in {
                ends.iter().for_each(|end| *at.add(*end) = round);
            } else {
                assert_eq!(driver.cuMemsetD8Async(device, round, BYTES, stream), 0);
            }
            for _ in 0..UNDER_WAY {
                let code = match goes_in {
                    true => driver.cuMemcpyHtoDAsync_v2(device, pinned, BYTES, stream),
                    false => driver.cuMemcpyDtoHAsync_v2(pinned, device, BYTES, stream),
                };
                assert_eq!(code, 0);
            }
            assert_eq!(driver.cuStreamSynchronize(stream), 0);
            for (byte, end) in back.iter_mut().zip(ends) {
                match goes_in {
                    true => assert_eq!(driver.cuMemcpyDtoH_v2((&raw mut *byte).cast(), device + end as u64, 1), 0),
                    false => *byte = *at.add(end),
                }
            }
        }
        assert_eq!(back, [round; 2], "round {round}");
    }
    println!("right");
}
