//! Host memory that is kept in step with a worker that has pages of its own.

use std::collections::BTreeMap;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

use orion_ring::futex::{self, Among};
use orion_transport::Mirror;
use orion_transport::mirror::Side;

use crate::state::lock::{Lock, Rank};

pub struct InStep {
    pub following: Lock<()>,
    pub sending: Lock<()>,
    pub mirror: Lock<Mirror>,
    /// Patches that were sent and may hold addresses, and whether there are any of which those are not yet followed.
    pub to_follow: Lock<Vec<Vec<u8>>>,
    pub must_follow: AtomicBool,
    /// Addresses of memory that was kept in step and is gone, each from the first to behind the last. Kernels may know
    /// them still, and other memory may come to lie there.
    pub gone: Lock<BTreeMap<u64, u64>>,
    /// Ranges in [`MIRROR`].
    pub mirrored_count: AtomicUsize,
    /// Receiving threads that want [`MIRROR`].
    pub receiving: AtomicUsize,
    /// How often all of the memory has been compared, the one under way included.
    pub comparisons: AtomicU64,
    // While the device works.
    /// The device has been idle after this many commands.
    pub idle_after: AtomicU64,
    /// The device has changed something while it worked: the application may answer at once.
    pub answer: AtomicBool,
    /// Whether applications have answered lately: most only read what their kernels write.
    pub eager: AtomicBool,
    /// Why the thread sleeps, or 0. A futex word.
    pub asleep: AtomicU32,
    pub started: AtomicBool,
    /// The thread that looks.
    pub looking: Once,
}

impl InStep {
    pub const fn new() -> InStep {
        InStep {
            following: Lock::new(Rank::Following, ()),
            sending: Lock::new(Rank::Sending, ()),
            mirror: Lock::new(Rank::Mirror, Mirror::new(Side::Client)),
            to_follow: Lock::new(Rank::Leaf, Vec::new()),
            must_follow: AtomicBool::new(false),
            gone: Lock::new(Rank::Leaf, BTreeMap::new()),
            mirrored_count: AtomicUsize::new(0),
            receiving: AtomicUsize::new(0),
            comparisons: AtomicU64::new(0),
            idle_after: AtomicU64::new(0),
            answer: AtomicBool::new(false),
            eager: AtomicBool::new(true),
            asleep: AtomicU32::new(0),
            started: AtomicBool::new(false),
            looking: Once::new(),
        }
    }

    /// Whether any memory is kept in step.
    #[inline]
    pub fn any(&self) -> bool {
        self.mirrored_count.load(Ordering::Relaxed) != 0
    }

    /// A command was sent that may give the device something to do.
    #[inline]
    pub fn work_sent(&self) {
        // Relaxed: the thread looks for itself when it starts.
        if self.started.load(Ordering::Relaxed) {
            // The command was counted before; pairs with the fence in `doze`.
            fence(Ordering::SeqCst);
            self.wake_if(|why| why == IDLE);
        }
    }

    pub fn wake_if(&self, reason: impl Fn(u32) -> bool) {
        let why = self.asleep.load(Ordering::SeqCst);
        if reason(why) && self.asleep.compare_exchange(why, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            futex::wake(&self.asleep, Among::Threads);
        }
    }
}

/// The device has nothing to do: a command ends it.
pub const IDLE: u32 = 1;
