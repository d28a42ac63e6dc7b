//! Socket options that both ends of a session set, how a local one is come by, and who is at its other end.

// UNSAFETY: socket, connect, setsockopt, getsockopt and geteuid.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

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
    wait_unheard(socket, Duration::from_secs(SILENCE_SECONDS_MAX as u64))
}

/// For how long what was sent may not be taken, before the connection is given up. Milliseconds count.
pub fn wait_unheard(socket: BorrowedFd<'_>, time: Duration) -> io::Result<()> {
    let ms = i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
    set(socket, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, ms)
}

/// A time limit on blocking sends, after which one answers `EAGAIN`.
pub fn send_timeout(socket: BorrowedFd<'_>, seconds: u64) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_SNDTIMEO, libc::timeval { tv_sec: seconds as i64, tv_usec: 0 })
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

/// Connects to a local socket, and waits so long for a place in its queue. The standard library's waits without end
/// where the program that listens takes nobody in: it was stopped, or means to be waited for.
pub fn connect_local(path: &Path, seconds_max: u64) -> io::Result<UnixStream> {
    // SAFETY: all-zero is valid.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let name = path.as_os_str().as_bytes();
    // The last byte stays 0.
    if name.is_empty() || name.contains(&0) || name.len() >= address.sun_path.len() {
        let most = address.sun_path.len() - 1;
        let what = format!("the path of a socket has 1 to {most} bytes and no NUL, and this one {}", name.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    for (to, byte) in address.sun_path.iter_mut().zip(name) {
        *to = *byte as libc::c_char;
    }
    // SAFETY: a new descriptor that nobody else owns.
    let socket = unsafe {
        match libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) {
            -1 => return Err(io::Error::last_os_error()),
            fd => OwnedFd::from_raw_fd(fd),
        }
    };
    send_timeout(socket.as_fd(), seconds_max)?;
    let bytes = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address is as long as is said.
    while unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), bytes) } != 0 {
        let e = io::Error::last_os_error();
        match e.kind() {
            io::ErrorKind::Interrupted => {}
            io::ErrorKind::WouldBlock => {
                let what = format!("whoever listens there has taken nobody in for {seconds_max} s; was it stopped?");
                return Err(io::Error::new(io::ErrorKind::TimedOut, what));
            }
            _ => return Err(e),
        }
    }
    send_timeout(socket.as_fd(), 0)?;
    Ok(socket.into())
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

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Whoever was first in /tmp may listen there and take nobody in.
    #[test]
    fn a_socket_whose_queue_is_full_is_waited_for_no_longer_than_is_said() {
        let path = std::env::temp_dir().join(format!("orion-full-queue-{}", std::process::id()));
        let listener = UnixListener::bind(&path).expect("listening");
        // SAFETY: a plain call on a descriptor we own.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        let first = connect_local(&path, 1).expect("a queue of one");
        let why = connect_local(&path, 1).expect_err("the queue is full");
        assert_eq!(why.kind(), io::ErrorKind::TimedOut, "{why}");
        listener.accept().expect("the first one");
        let second = connect_local(&path, 1).expect("there is room again");
        drop((first, second, listener));
        assert_eq!(connect_local(&path, 1).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        std::fs::remove_file(&path).expect("removing");
        assert_eq!(connect_local(&path, 1).unwrap_err().kind(), io::ErrorKind::NotFound);
        let long = Path::new("/tmp").join("x".repeat(200));
        assert!(connect_local(&long, 1).unwrap_err().to_string().contains("107 bytes"));
    }
}
