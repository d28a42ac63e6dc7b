//! Sessions that cannot go on.

use std::sync::OnceLock;

use orion_cuda::sys::*;

use crate::state::process::state;
use crate::state::session::Session;

/// What every call answers once the worker is gone.
pub const SESSION_LOST: CUresult = CUDA_ERROR_DEVICE_UNAVAILABLE;

/// The worker or the carrier sent something impossible. The session cannot go on.
pub fn broken(what: &str) -> CUresult {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        let text = format!("the worker broke the protocol ({what}); the session is over");
        crate::say!("{text}");
        crate::report::log::error("", &text);
    });
    SESSION_LOST
}

/// What a call answers that waits for something which will not come.
pub fn lost_now(s: &Session) -> CUresult {
    s.carrier.told.call_once(|| {
        // The others go on.
        let which = if state().attachment.several() { format!(" with {}", s.server) } else { String::new() };
        let text = match crate::session::carrier::death(s) {
            Some(death) => format!("the session{which} is lost: {}", death.of("the worker")),
            None => format!("the session{which} is lost"),
        };
        crate::say!("{text}");
        crate::report::log::error("", &text);
    });
    SESSION_LOST
}
