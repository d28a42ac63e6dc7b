//! Who is at the other end of a connection, as far as the system says.

// UNSAFETY: getsockopt for a pidfd, pidfd_open and geteuid.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use orion_transport::socket::peer_credentials;
use orion_wire::address::Leads;

/// Since Linux 6.5.
const SO_PEERPIDFD: i32 = 77;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// A program of this machine.
    Local {
        uid: u32,
    },
    Remote(Option<SocketAddr>),
    /// A program in a virtual machine, by the number of its guest among those that are let in.
    Guest {
        number: u32,
    },
    /// A program that has come by vsock.
    Machine(Machine),
}

/// Where that one runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Machine {
    /// In the machine with this CID.
    Cid(u32),
    /// In the one of this number among those that have a socket of their own; nothing says its CID.
    Number(u32),
}

impl Peer {
    pub fn local(socket: &OwnedFd) -> io::Result<Peer> {
        Ok(Peer::Local { uid: peer_credentials(socket.as_fd())?.uid })
    }

    pub fn remote(socket: &OwnedFd) -> Peer {
        let address = socket.try_clone().and_then(|s| std::net::TcpStream::from(s).peer_addr());
        Peer::Remote(address.ok())
    }

    /// A user of this machine, or an address without its port.
    pub fn place(self) -> String {
        match self {
            Peer::Local { uid } => format!("uid {uid}"),
            Peer::Remote(Some(address)) => address.ip().to_canonical().to_string(),
            Peer::Remote(None) => "unknown".to_owned(),
            Peer::Guest { number } => format!("guest {number}"),
            Peer::Machine(Machine::Cid(cid)) => format!("cid {cid}"),
            Peer::Machine(Machine::Number(number)) => format!("machine {number}"),
        }
    }

    pub fn is_local(self) -> bool {
        matches!(self, Peer::Local { .. })
    }

    /// What an address leads to by which one comes like this.
    pub fn leads_to(self) -> Leads {
        match self {
            Peer::Local { .. } => Leads::ToPath,
            Peer::Remote(_) => Leads::ToHost,
            Peer::Guest { .. } => Leads::ToDevice,
            Peer::Machine(_) => Leads::ToMachine,
        }
    }

    /// Whether what it says crosses no network: the kernel takes no packet from another machine for loopback's.
    pub fn is_of_this_machine(self) -> bool {
        match self {
            Peer::Local { .. } | Peer::Guest { .. } | Peer::Machine(_) => true,
            Peer::Remote(address) => address.is_some_and(|a| a.ip().to_canonical().is_loopback()),
        }
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Peer::Local { uid } => write!(f, "unix:uid={uid}"),
            Peer::Remote(Some(address)) => write!(f, "tcp:{address}"),
            Peer::Remote(None) => f.write_str("tcp:?"),
            Peer::Guest { number } => write!(f, "guest:{number}"),
            Peer::Machine(Machine::Cid(cid)) => write!(f, "vsock:cid={cid}"),
            Peer::Machine(Machine::Number(number)) => write!(f, "vsock:machine={number}"),
        }
    }
}

/// Why the program behind a local socket is not one of our own user's beside us, in words; `None` if it is.
///
/// A user id says who somebody is within one user namespace only, and root of a container without one is user 0 to
/// everybody. So whoever needs no token has our user id, our user and pid namespace, and our root directory: a
/// container has another one of these, whatever it shares with the host. What cannot be found out counts as different.
pub fn strangeness(socket: BorrowedFd<'_>) -> Option<String> {
    // SAFETY: geteuid cannot fail.
    let ours = unsafe { libc::geteuid() };
    let peer = match peer_credentials(socket) {
        Ok(peer) => peer,
        Err(e) => return Some(format!("finding out which user it belongs to failed: {e}")),
    };
    if peer.uid != ours {
        return Some(format!("user {} is not the user {ours} that runs this server", peer.uid));
    }
    if peer.pid <= 0 {
        return Some("the program is in another pid namespace, such as a container's".into());
    }
    let difference = process_of(socket, peer.pid).and_then(|process| {
        let difference = difference(peer.pid)?;
        // Only while it has not ended is it known that this was not another process with the same number.
        is_running(&process)?;
        Ok(difference)
    });
    match difference {
        Ok(None) => None,
        Ok(Some(what)) => Some(format!("the program has {what}, as in a container")),
        Err(e) => Some(format!("finding out whether process {} is in a container failed: {e}", peer.pid)),
    }
}

/// The first thing in which its surroundings differ from ours.
fn difference(pid: i32) -> io::Result<Option<&'static str>> {
    for (name, what) in [
        ("ns/user", "another user namespace"),
        ("ns/pid", "another pid namespace"),
        ("root/.", "another root directory"),
    ] {
        let at = |process: &str| std::fs::metadata(format!("/proc/{process}/{name}")).map(|m| (m.dev(), m.ino()));
        if at(&pid.to_string())? != at("self")? {
            return Ok(Some(what));
        }
    }
    Ok(None)
}

/// A hold on the process that connected. Kernels before 6.5 know it by its number only, which another process has if
/// the first one ended before this call.
fn process_of(socket: BorrowedFd<'_>, pid: i32) -> io::Result<OwnedFd> {
    let mut fd = -1i32;
    let mut len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the buffer has the size that is passed.
    let rc =
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_PEERPIDFD, (&raw mut fd).cast(), &mut len) };
    if rc != 0 {
        let e = io::Error::last_os_error();
        if e.raw_os_error() != Some(libc::ENOPROTOOPT) {
            return Err(e);
        }
        // SAFETY: a plain system call.
        fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as i32;
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn is_running(process: &OwnedFd) -> io::Result<()> {
    let mut entry = libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid entry. A pidfd is readable once its process has ended.
    match unsafe { libc::poll(&raw mut entry, 1, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::new(io::ErrorKind::NotFound, "it has ended")),
    }
}

/// What one limit is for: a user, or whoever has a host's address. An IPv6 host has a whole /64 to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    User(u32),
    Guest(u32),
    Machine(Machine),
    V4([u8; 4]),
    V6([u8; 8]),
    Unknown,
}

impl Source {
    pub fn of(peer: Peer) -> Source {
        match peer {
            Peer::Local { uid } => Source::User(uid),
            Peer::Guest { number } => Source::Guest(number),
            Peer::Machine(machine) => Source::Machine(machine),
            Peer::Remote(None) => Source::Unknown,
            Peer::Remote(Some(address)) => match address.ip().to_canonical() {
                IpAddr::V4(ip) => Source::V4(ip.octets()),
                IpAddr::V6(ip) => Source::V6(ip.octets()[..8].try_into().expect("eight of sixteen bytes")),
            },
        }
    }
}
