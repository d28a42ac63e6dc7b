//! Host memory that is kept in step with a worker that has a copy of it (TCP).

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

use orion_transport::Mirror;
use orion_transport::mirror::Side;

pub static SENDING: Mutex<()> = Mutex::new(());
pub static MIRROR: Mutex<Mirror> = Mutex::new(Mirror::new(Side::Client));
/// Ranges in [`MIRROR`]; of those that the thread looks at, whether there are any.
pub static MIRRORED_COUNT: AtomicUsize = AtomicUsize::new(0);
pub static ANY_LIVE: AtomicBool = AtomicBool::new(false);

/// Receiving threads that want [`MIRROR`].
pub static RECEIVING: AtomicUsize = AtomicUsize::new(0);

/// Whether any memory is kept in step.
#[inline]
pub fn any() -> bool {
    MIRRORED_COUNT.load(Ordering::Relaxed) != 0
}

/// How often all of the memory has been compared, the one under way included.
pub static COMPARISONS: AtomicU64 = AtomicU64::new(0);

// While the device works.

/// The device has been idle after this many commands.
pub static IDLE_AFTER: AtomicU64 = AtomicU64::new(0);
/// The device has changed something while it worked: the application may answer at once.
pub static ANSWER: AtomicBool = AtomicBool::new(false);
/// Whether applications have answered lately: most only read what their kernels write.
pub static EAGER: AtomicBool = AtomicBool::new(true);
/// Why the thread sleeps, or 0. A futex word.
pub static ASLEEP: AtomicU32 = AtomicU32::new(0);
/// The device has nothing to do: a command ends it.
pub const IDLE: u32 = 1;
pub static STARTED: AtomicBool = AtomicBool::new(false);

/// A command was sent that may give the device something to do.
#[inline]
pub fn work_sent() {
    // Relaxed: the thread looks for itself when it starts.
    if STARTED.load(Ordering::Relaxed) {
        // The command was counted before; pairs with the fence in `doze`.
        fence(Ordering::SeqCst);
        wake_if(|why| why == IDLE);
    }
}

pub fn wake_if(reason: impl Fn(u32) -> bool) {
    let why = ASLEEP.load(Ordering::SeqCst);
    if reason(why) && ASLEEP.compare_exchange(why, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
        crate::system::futex::futex_wake(&ASLEEP);
    }
}
