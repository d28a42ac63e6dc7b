//! A port of the system's vsock, and who comes to it.

// UNSAFETY: makes, binds and asks a socket whose addresses the standard library does not know.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const BACKLOG: i32 = 128;
/// As `linux/vm_sockets.h` has it.
const IOCTL_VM_SOCKETS_GET_LOCAL_CID: libc::c_ulong = 0x7b9;

pub fn listen(port: u32) -> io::Result<OwnedFd> {
    // SAFETY: a new descriptor that nobody else owns.
    let socket = unsafe {
        match libc::socket(libc::AF_VSOCK, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) {
            -1 => return Err(io::Error::last_os_error()),
            fd => OwnedFd::from_raw_fd(fd),
        }
    };
    let (address, bytes) = any(port);
    // SAFETY: the address is as long as is said.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), bytes) };
    // SAFETY: a plain call on a descriptor we own.
    match bound == 0 && unsafe { libc::listen(socket.as_raw_fd(), BACKLOG) } == 0 {
        true => Ok(socket),
        false => Err(io::Error::last_os_error()),
    }
}

/// Why that is not to be had, and what to do.
pub fn failed(port: u32, e: &io::Error) -> String {
    let what_to_do = match e.raw_os_error() {
        Some(libc::EAFNOSUPPORT) => {
            "; this kernel has no vsock: load its module vhost_vsock. Or the unit that oriond runs in leaves AF_VSOCK \
             out of RestrictAddressFamilies"
        }
        Some(libc::EADDRINUSE) => "; another program has it: give --vsock another port",
        Some(libc::EACCES) => "; ports below 1024 are root's: give --vsock another one",
        _ => "",
    };
    format!("listening on port {port} of vsock failed: {e}{what_to_do}")
}

/// The CID by which others reach this machine: of a host 2, and 1 where only it itself does.
pub fn own_cid() -> u32 {
    let mut cid = libc::VMADDR_CID_ANY;
    if let Ok(device) = File::open("/dev/vsock") {
        // SAFETY: a number is written to a local.
        unsafe { libc::ioctl(device.as_raw_fd(), IOCTL_VM_SOCKETS_GET_LOCAL_CID, &raw mut cid) };
    }
    if cid == libc::VMADDR_CID_ANY { libc::VMADDR_CID_LOCAL } else { cid }
}

pub fn cid_of(socket: &OwnedFd) -> io::Result<u32> {
    let (mut address, mut bytes) = any(0);
    // SAFETY: the buffer has the size that is passed.
    match unsafe { libc::getpeername(socket.as_raw_fd(), (&raw mut address).cast(), &raw mut bytes) } {
        0 => Ok(address.svm_cid),
        _ => Err(io::Error::last_os_error()),
    }
}

fn any(port: u32) -> (libc::sockaddr_vm, libc::socklen_t) {
    // SAFETY: all-zero is valid.
    let mut address: libc::sockaddr_vm = unsafe { std::mem::zeroed() };
    address.svm_family = libc::AF_VSOCK as libc::sa_family_t;
    (address.svm_cid, address.svm_port) = (libc::VMADDR_CID_ANY, port);
    (address, size_of::<libc::sockaddr_vm>() as libc::socklen_t)
}
