//! Handshake frames over a connected stream socket, with descriptors where the socket is local.

// UNSAFETY: sendmsg and recvmsg with control messages.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use orion_wire::hello::{FRAME_HEADER_BYTES, frame, frame_header};

/// Descriptors that one message may bring.
pub const FDS_MAX: usize = 8;

/// Room for the control message of [`FDS_MAX`] descriptors, aligned as `cmsghdr` wants it.
#[repr(C, align(8))]
pub struct Control([u8; 64]);

impl Default for Control {
    fn default() -> Self {
        Control([0; 64])
    }
}

/// Sends all of `bytes`; `fds` travel with the first of them.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let sent = send_some(socket, bytes, fds, 0)?;
    let mut rest = &bytes[sent..];
    while !rest.is_empty() {
        rest = &rest[send_some(socket, rest, &[], 0)?..];
    }
    Ok(())
}

/// One `sendmsg`.
pub fn send_some(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>], flags: i32) -> io::Result<usize> {
    assert!(fds.len() <= FDS_MAX);
    let mut control = Control::default();
    let mut iov = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: an all-zero msghdr is valid.
    let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
    msg.msg_iov = &mut iov;
    msg.msg_iovlen = 1;
    if !fds.is_empty() {
        let len = size_of_val(fds) as u32;
        // SAFETY: CMSG_SPACE and CMSG_LEN only compute; the control buffer has room for so many descriptors and
        // CMSG_FIRSTHDR and CMSG_DATA stay inside it.
        unsafe {
            msg.msg_control = control.0.as_mut_ptr().cast();
            msg.msg_controllen = libc::CMSG_SPACE(len) as usize;
            let header = libc::CMSG_FIRSTHDR(&msg);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(len) as usize;
            let data = libc::CMSG_DATA(header).cast::<RawFd>();
            for (i, fd) in fds.iter().enumerate() {
                data.add(i).write_unaligned(fd.as_raw_fd());
            }
        }
    }
    loop {
        // SAFETY: all pointers in `msg` are valid for the call.
        let n = unsafe { libc::sendmsg(socket.as_raw_fd(), &msg, libc::MSG_NOSIGNAL | flags) };
        if n >= 0 {
            return Ok(n as usize);
        }
        let e = io::Error::last_os_error();
        if e.kind() != io::ErrorKind::Interrupted {
            return Err(e);
        }
    }
}

/// One `recvmsg`; descriptors that came along are closed on exec. 0 bytes: the peer is gone.
pub fn recv_some(socket: BorrowedFd<'_>, into: &mut [u8], flags: i32) -> io::Result<(usize, Vec<OwnedFd>)> {
    recv_all_or_some(socket, into, flags).map(|(n, fds, _)| (n, fds))
}

/// As [`recv_some`], and whether descriptors that came along are lost.
fn recv_all_or_some(socket: BorrowedFd<'_>, into: &mut [u8], flags: i32) -> io::Result<(usize, Vec<OwnedFd>, bool)> {
    let mut control = Control::default();
    let mut iov = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // SAFETY: an all-zero msghdr is valid.
    let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
    msg.msg_iov = &mut iov;
    msg.msg_iovlen = 1;
    msg.msg_control = control.0.as_mut_ptr().cast();
    msg.msg_controllen = control.0.len();
    loop {
        // SAFETY: all pointers in `msg` are valid for the call.
        let n = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut msg, libc::MSG_CMSG_CLOEXEC | flags) };
        if n >= 0 {
            return Ok((n as usize, received_fds(&msg), msg.msg_flags & libc::MSG_CTRUNC != 0));
        }
        let e = io::Error::last_os_error();
        if e.kind() != io::ErrorKind::Interrupted {
            return Err(e);
        }
    }
}

/// Takes the descriptors out of a received message.
pub fn received_fds(msg: &libc::msghdr) -> Vec<OwnedFd> {
    let mut fds = Vec::new();
    // SAFETY: the kernel filled the control buffer; the CMSG functions walk inside msg_controllen, and each
    // descriptor it lists is new and ours.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(msg);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let count = ((*header).cmsg_len - libc::CMSG_LEN(0) as usize) / size_of::<RawFd>();
                let data = libc::CMSG_DATA(header).cast::<RawFd>();
                for i in 0..count {
                    fds.push(OwnedFd::from_raw_fd(data.add(i).read_unaligned()));
                }
            }
            header = libc::CMSG_NXTHDR(msg, header);
        }
    }
    fds
}

/// Sends one handshake frame.
pub fn send_frame(socket: BorrowedFd<'_>, kind: u32, body: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    send(socket, &frame(kind, body), fds)
}

/// Receives one handshake frame: kind, body and the descriptors that came with it. Never reads beyond it.
pub fn recv_frame(socket: BorrowedFd<'_>) -> io::Result<(u32, Vec<u8>, Vec<OwnedFd>)> {
    let mut header = [0u8; FRAME_HEADER_BYTES];
    let mut fds = Vec::new();
    recv_exact(socket, &mut header, &mut fds)?;
    let (kind, len) = frame_header(&header).map_err(|fault| io::Error::new(io::ErrorKind::InvalidData, fault.0))?;
    let mut body = vec![0; len];
    recv_exact(socket, &mut body, &mut fds)?;
    Ok((kind, body, fds))
}

/// Receives as many bytes as `into` has. A peer that sends each byte with descriptors of its own is at fault, for they
/// would be kept until the last of them has come.
pub fn recv_exact(socket: BorrowedFd<'_>, into: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<()> {
    let mut have = 0;
    while have < into.len() {
        let (n, more, are_lost) = recv_all_or_some(socket, &mut into[have..], 0)?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        have += n;
        fds.extend(more);
        if fds.len() > FDS_MAX {
            let what = format!("{} descriptors came with one message, and {FDS_MAX} at most may", fds.len());
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        if are_lost {
            let what = "this process has no room for the descriptors that came; has it as many files open as it may \
                        (ulimit -n)?";
            return Err(io::Error::other(what));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// So sent to whoever reads whole frames, thirty bytes are enough to leave it without descriptors for others.
    #[test]
    fn a_frame_whose_bytes_each_bring_descriptors_is_given_up() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let bytes = frame(1, &[0; 16]);
        for byte in &bytes[..bytes.len() - 1] {
            send(theirs.as_fd(), &[*byte], &[theirs.as_fd(); FDS_MAX]).expect("there is room");
        }
        drop(theirs);
        let why = recv_frame(ours.as_fd()).map(drop).expect_err("that is too many");
        assert_eq!(why.kind(), io::ErrorKind::InvalidData, "{why}");
        assert!(why.to_string().contains("16 descriptors came with one message"), "{why}");
    }

    #[test]
    fn descriptors_for_which_there_is_no_room_are_missed() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        send_frame(theirs.as_fd(), 7, b"body", &[theirs.as_fd(); 2]).expect("there is room");
        // SAFETY: the child has its own table of descriptors, and leaves.
        let status = unsafe {
            let pid = libc::fork();
            if pid == 0 {
                // The lowest that is free, so that all below are not.
                let free = libc::dup(0);
                libc::close(free);
                let one_more = libc::rlimit { rlim_cur: free as u64 + 1, rlim_max: free as u64 + 1 };
                libc::setrlimit(libc::RLIMIT_NOFILE, &one_more);
                let why = recv_frame(ours.as_fd()).map(|(_, _, fds)| fds.len());
                libc::_exit(match why {
                    Ok(count) => count as i32,
                    Err(e) if e.to_string().contains("ulimit -n") => 77,
                    Err(_) => 78,
                });
            }
            let mut status = 0;
            libc::waitpid(pid, &mut status, 0);
            status
        };
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 77, "{status:#x}");
    }

    #[test]
    fn as_many_descriptors_as_one_message_may_bring_come() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        send_frame(theirs.as_fd(), 7, b"body", &[theirs.as_fd(); FDS_MAX]).expect("there is room");
        let (kind, body, fds) = recv_frame(ours.as_fd()).expect("a frame");
        assert_eq!((kind, &body[..], fds.len()), (7, &b"body"[..], FDS_MAX));
    }
}
