//! A connection by CID and port.

// UNSAFETY: makes and connects a socket whose addresses the standard library does not know.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// As `linux/vm_sockets.h` has it.
const SO_VM_SOCKETS_CONNECT_TIMEOUT: i32 = 6;

pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

pub fn connect((cid, port): (u32, u32)) -> io::Result<OwnedFd> {
    // SAFETY: a new descriptor that nobody else owns.
    let socket = unsafe {
        match libc::socket(libc::AF_VSOCK, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) {
            -1 => return Err(io::Error::last_os_error()),
            fd => OwnedFd::from_raw_fd(fd),
        }
    };
    let limit = libc::timeval { tv_sec: CONNECT_TIMEOUT.as_secs() as i64, tv_usec: 0 };
    let (name, bytes) = (SO_VM_SOCKETS_CONNECT_TIMEOUT, size_of_val(&limit) as libc::socklen_t);
    // SAFETY: `limit` is valid for its own size.
    if unsafe { libc::setsockopt(socket.as_raw_fd(), libc::AF_VSOCK, name, (&raw const limit).cast(), bytes) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all-zero is valid.
    let mut address: libc::sockaddr_vm = unsafe { std::mem::zeroed() };
    address.svm_family = libc::AF_VSOCK as libc::sa_family_t;
    (address.svm_cid, address.svm_port) = (cid, port);
    let bytes = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address is as long as is said.
    match unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), bytes) } {
        0 => Ok(socket),
        _ => Err(io::Error::last_os_error()),
    }
}
