//! What the driver logs about failing calls (CUDA 12.9 and later), on its way to the client.
//!
//! The driver calls back on the thread that made the call, often with locks of its own held. Nothing is sent there:
//! messages wait for the next reply.

// UNSAFETY: the driver calls the callback with a message of the length it says.

use std::collections::VecDeque;
use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;
use orion_wire::record::op;

/// As many as the driver's own buffer has; the oldest go first.
const MESSAGES_MAX: usize = 100;
/// The driver's own messages are shorter.
const MESSAGE_BYTES_MAX: usize = 1024;

/// With [`op::LOG_OF_ORION`] or without.
type Message = (u64, Vec<u8>);

static MESSAGES: Mutex<VecDeque<Message>> = Mutex::new(VecDeque::new());
static ANY: AtomicBool = AtomicBool::new(false);

/// Asks the driver for its messages from now on. One that is too old has none.
pub fn listen(driver: &'static Driver) {
    // SAFETY: a function that lives as long as the process; the handle is not wanted.
    unsafe { driver.cuLogsRegisterCallback(Some(logged), ptr::null_mut(), ptr::null_mut()) };
}

/// Whether there is nothing to take. Costs a load.
#[inline]
pub fn is_empty() -> bool {
    !ANY.load(Ordering::Relaxed)
}

pub fn take() -> VecDeque<Message> {
    let mut messages = MESSAGES.lock().expect("no panic happens under this lock");
    ANY.store(false, Ordering::Relaxed);
    std::mem::take(&mut messages)
}

/// `CUlogsCallback` for the driver.
unsafe extern "C" fn logged(_data: *mut c_void, level: CUlogLevel, message: *mut c_char, length: usize) {
    if message.is_null() {
        return;
    }
    // SAFETY: the driver's message has `length` bytes.
    let text = unsafe { std::slice::from_raw_parts(message.cast::<u8>(), length.min(MESSAGE_BYTES_MAX)) };
    keep(level.into(), text);
}

/// As if the driver had said it: why the worker refused a call that it did not get to see.
pub fn say(text: &str) {
    keep(CU_LOG_LEVEL_ERROR.into(), format!("[CUDA][E] {text}").as_bytes());
}

/// As [`say`], of what the driver might have taken: the program's user is told.
pub fn refuse(text: &str) {
    keep(u64::from(CU_LOG_LEVEL_ERROR) | op::LOG_OF_ORION, text.as_bytes());
}

fn keep(level: u64, text: &[u8]) {
    let mut messages = MESSAGES.lock().expect("no panic happens under this lock");
    if messages.len() == MESSAGES_MAX {
        messages.pop_front();
    }
    messages.push_back((level, text.to_vec()));
    ANY.store(true, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_messages_are_kept() {
        assert!(is_empty());
        let text = vec![b'x'; 5000];
        for level in 0..MESSAGES_MAX as u32 + 5 {
            // SAFETY: a message of that length.
            unsafe { logged(ptr::null_mut(), level, text.as_ptr().cast_mut().cast(), text.len()) };
        }
        assert!(!is_empty());
        let taken = take();
        assert_eq!(taken.len(), MESSAGES_MAX);
        assert_eq!((taken[0].0, taken[0].1.len()), (5, MESSAGE_BYTES_MAX));
        assert!(is_empty() && take().is_empty());
    }
}
