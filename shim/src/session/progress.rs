//! How far the service thread has come.

use std::sync::atomic::Ordering;
use std::time::Duration;

use orion_cuda::sys::CUresult;
use orion_transport::thread::Uncancelled;

use crate::report::{complaint, output};
use crate::state::session::Session;

/// As [`wait_for`], for an error's sake. The error is the answer in any case, so this does not take long, and not at
/// all in the service thread itself: a host function may ask for what fails.
pub fn wait_for_word(s: &Session, count: u32) {
    const PATIENCE: Duration = Duration::from_secs(1);
    let start = std::time::Instant::now();
    // Acquire pairs with the Release in `handle_events`: what the events did is visible.
    while (s.events_handled.load(Ordering::Acquire) as u32).wrapping_sub(count).cast_signed() < 0 {
        if s.service.stopped.load(Ordering::Acquire) || s.service.service.get() == Some(&std::thread::current().id()) {
            return;
        }
        match start.elapsed() {
            short if short < Duration::from_millis(2) => std::thread::yield_now(),
            long if long > PATIENCE => return,
            _ => std::thread::sleep(Duration::from_micros(50)),
        }
    }
}

/// Waits until the service thread has handled `count` events: a synchronising call returns only after the output of
/// the kernels it covers is out. The worker has sent them all before its reply, and the service thread waits for
/// nobody, so they come unless the session is lost.
pub fn wait_for(s: &'static Session, count: u64) -> Result<(), CUresult> {
    let _whole = Uncancelled::hold();
    let start = std::time::Instant::now();
    while s.events_handled.load(Ordering::Acquire) < count {
        // Handling the last ones and ending is seen in this order.
        if s.service.stopped.load(Ordering::Acquire) && s.events_handled.load(Ordering::Acquire) < count {
            return Err(crate::session::lost::lost_now(s));
        }
        match start.elapsed() < Duration::from_millis(2) {
            true => std::thread::yield_now(),
            false => std::thread::sleep(Duration::from_micros(50)),
        }
    }
    output::print_all();
    complaint::print_all();
    Ok(())
}
