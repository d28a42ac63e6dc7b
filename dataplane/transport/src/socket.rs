//! Socket options that both ends of a session set, and who is at the other end of a local one.

// UNSAFETY: setsockopt, getsockopt and geteuid.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// A peer that vanished without a word (power, cable, a frozen VM) is noticed after this.
pub const SILENCE_SECONDS_MAX: i32 = IDLE_SECONDS + PROBES * PROBE_SECONDS;
const IDLE_SECONDS: i32 = 5;
const PROBES: i32 = 3;
const PROBE_SECONDS: i32 = 2;

/// Small frames leave at once, and a peer that vanished is noticed whether or not anything is being sent to it.
pub fn tune_tcp(socket: BorrowedFd<'_>) -> io::Result<()> {
    set(socket, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
    set(socket, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    set(socket, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, IDLE_SECONDS)?;
    set(socket, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, PROBE_SECONDS)?;
    set(socket, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, PROBES)?;
    set(socket, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 1000 * SILENCE_SECONDS_MAX)
}

/// A time limit on blocking receives, for the handshake; 0 lifts it.
pub fn receive_timeout(socket: BorrowedFd<'_>, seconds: i64) -> io::Result<()> {
    let limit = libc::timeval { tv_sec: seconds, tv_usec: 0 };
    set(socket, libc::SOL_SOCKET, libc::SO_RCVTIMEO, limit)
}

/// The flag by which a receive waits for all that it asks for, where a connection takes it for bulk data: vsock answers
/// ENOMEM where that is more than its buffer.
pub fn wait_for_all(socket: BorrowedFd<'_>) -> i32 {
    let mut domain = 0i32;
    let mut len = size_of::<i32>() as libc::socklen_t;
    let to = (&raw mut domain).cast();
    // SAFETY: the buffer has the size that is passed.
    let rc = unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_DOMAIN, to, &mut len) };
    if rc == 0 && domain != libc::AF_VSOCK { libc::MSG_WAITALL } else { 0 }
}

/// Who connected a local socket, or listens on it, as the namespaces of this process name him.
pub fn peer_credentials(socket: BorrowedFd<'_>) -> io::Result<libc::ucred> {
    let mut credentials = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the buffer has the size that is passed.
    let rc = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &mut len,
        )
    };
    if rc == 0 { Ok(credentials) } else { Err(io::Error::last_os_error()) }
}

/// Why a socket in this folder may be another user's than whoever put it there: a folder belongs to us or to root, and
/// nobody else writes to it, unless it is one like /tmp in which nobody removes what is another's.
pub fn objection_to_folder(folder: &Path) -> io::Result<Option<String>> {
    // Of what is open, and of no link that leads elsewhere later.
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let found = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(folder)?.metadata()?;
    // SAFETY: geteuid cannot fail.
    let ours = unsafe { libc::geteuid() };
    if found.uid() != ours && found.uid() != 0 {
        return Ok(Some(format!("it belongs to user {}", found.uid())));
    }
    let is_shared = found.mode() & 0o022 != 0 && found.mode() & 0o1000 == 0;
    Ok(is_shared.then(|| format!("others can write to it (mode {:04o})", found.mode() & 0o7777)))
}

fn set<T>(socket: BorrowedFd<'_>, level: i32, name: i32, value: T) -> io::Result<()> {
    // SAFETY: `value` is valid for its own size.
    let rc = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(&value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
