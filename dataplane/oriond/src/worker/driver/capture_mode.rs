//! Calls in another capture mode than the thread's.

// UNSAFETY: calls the driver with a local.

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;

/// Does something that waits on a helper thread; another thread's capture must not notice.
pub fn relaxed<T>(driver: &Driver, work: impl FnOnce() -> T) -> T {
    in_mode(driver, CU_STREAM_CAPTURE_MODE_RELAXED, work)
}

/// Does something on a helper thread in the capture mode of the client's thread.
pub fn in_mode<T>(driver: &Driver, mode: CUstreamCaptureMode, work: impl FnOnce() -> T) -> T {
    let mut mode = mode;
    // SAFETY: a valid place, before and after.
    unsafe { driver.cuThreadExchangeStreamCaptureMode(&mut mode) };
    let answer = work();
    // SAFETY: as above.
    unsafe { driver.cuThreadExchangeStreamCaptureMode(&mut mode) };
    answer
}
