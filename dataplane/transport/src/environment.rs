//! What the environment says, to a program that may listen to it. One that runs with more rights than who has started
//! it (setuid, file capabilities) may not: he would have it read files as a token, create others, and compute where he
//! likes.

// UNSAFETY: getauxval.

use std::env::VarError;
use std::ffi::OsString;
use std::path::PathBuf;

use orion_wire::client_conf;

/// Whether the environment is this user's own word, as glibc's `secure_getenv` decides it.
#[must_use]
pub fn is_believed() -> bool {
    // SAFETY: a plain call, which cannot fail; what is not there is zero.
    unsafe { libc::getauxval(libc::AT_SECURE) == 0 }
}

/// As [`std::env::var_os`].
#[must_use]
pub fn var_os(name: &str) -> Option<OsString> {
    if is_believed() { std::env::var_os(name) } else { None }
}

/// As [`std::env::var`].
///
/// # Errors
///
/// It is not set, or no text.
pub fn var(name: &str) -> Result<String, VarError> {
    if is_believed() { std::env::var(name) } else { Err(VarError::NotPresent) }
}

/// This user's folder.
#[must_use]
pub fn home() -> Option<PathBuf> {
    if is_believed() { client_conf::home() } else { None }
}
