//! What the vGPUs of a session without a limit use, for whoever asks oriond. A ledger shows that of the others itself.

// UNSAFETY: asks the driver about contexts of this session.

use std::ptr;
use std::time::{Duration, Instant};

use orion_cuda::sys::*;

use crate::worker::session::Session;

/// Asking takes tens of microseconds.
const INTERVAL: Duration = Duration::from_millis(250);

impl Session {
    /// There is nothing to do. A vGPU without a limit is the whole GPU, and so is what is used of it.
    pub fn show_usage(&mut self, now: Instant) {
        // What is asked beside an open capture may end it.
        if self.accounts.is_some() || now < self.meter_after || self.captures.open() {
            return;
        }
        self.meter_after = now + INTERVAL;
        for (vgpu, context) in &self.primary {
            let (mut free, mut total, mut popped) = (0usize, 0usize, ptr::null_mut());
            // SAFETY: a context that the worker holds, and valid out pointers; the thread's own is current again after.
            let code = unsafe {
                match self.driver.cuCtxPushCurrent_v2(*context) {
                    CUDA_SUCCESS => {
                        let code = self.driver.cuMemGetInfo_v2(&mut free, &mut total);
                        self.driver.cuCtxPopCurrent_v2(&mut popped);
                        code
                    }
                    code => code,
                }
            };
            // One that a kernel has broken says nothing any more.
            if code == CUDA_SUCCESS {
                self.meter.uses(*vgpu, total.saturating_sub(free) as u64);
            }
        }
    }
}
