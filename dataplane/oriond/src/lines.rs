//! One line in oriond's log, through oriond: a worker has no descriptor of the log itself.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use crate::attach::{Control, send_control};

/// More of a line is cut off: a control message has to fit into a packet.
const TEXT_BYTES_MAX: usize = 2000;

static CONTROL: OnceLock<OwnedFd> = OnceLock::new();

/// Lines go to oriond from now on; before they go to stderr.
pub fn through(control: BorrowedFd<'_>) -> std::io::Result<()> {
    let own = control.try_clone_to_owned()?;
    let _ = CONTROL.set(own);
    Ok(())
}

/// Where lines go, if it is to oriond.
pub fn control() -> Option<BorrowedFd<'static>> {
    CONTROL.get().map(OwnedFd::as_fd)
}

pub fn debug(text: &str) {
    static ON: OnceLock<bool> = OnceLock::new();
    if *ON.get_or_init(|| std::env::var_os("ORION_DEBUG").is_some()) {
        warn(text);
    }
}

pub fn warn(text: &str) {
    let end = (0..=text.len().min(TEXT_BYTES_MAX)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    match CONTROL.get() {
        // A log that cannot be written has nowhere to say so.
        Some(control) => {
            let _ = send_control(control.as_fd(), &Control::Log { text: text[..end].to_owned() }, &[]);
        }
        None => crate::log::say(&format!("oriond: {text}")),
    }
}
