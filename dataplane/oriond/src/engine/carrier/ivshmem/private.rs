//! A way to the door for this process alone: a socket without a path, at which only our own connections are let in.

// UNSAFETY: binds and connects a socket by its address as the system has it.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::{Arc, Mutex};

use orion_transport::proof::fresh_nonce;

/// Names of connections that are on their way, and the slots for which they are.
type Expected = Arc<Mutex<HashMap<Vec<u8>, usize>>>;

/// Where they come in.
pub struct Entrance {
    pub listener: UnixListener,
    expected: Expected,
}

/// Where they begin.
pub struct Doorstep {
    name: Vec<u8>,
    expected: Expected,
}

pub fn open() -> io::Result<(Entrance, Doorstep)> {
    let nonce = fresh_nonce()?;
    let name = [b"orion-guest-".as_slice(), &nonce[..16]].concat();
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    let expected = Expected::default();
    Ok((Entrance { listener, expected: Arc::clone(&expected) }, Doorstep { name, expected }))
}

impl Entrance {
    /// For which slot a connection has come.
    pub fn slot_of(&self, socket: &OwnedFd) -> io::Result<usize> {
        let peer = UnixStream::from(socket.try_clone()?).peer_addr()?;
        let name = peer.as_abstract_name().unwrap_or_default();
        let slot = self.expected.lock().expect("nothing panics under this lock").remove(name);
        slot.ok_or_else(|| io::Error::other("somebody else came to the door that is for guests"))
    }
}

impl Doorstep {
    /// A connection for the session of a slot, that does not block.
    pub fn knock(&self, slot: usize) -> io::Result<UnixStream> {
        // SAFETY: a new descriptor that nobody else owns.
        let socket = unsafe {
            let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
            match libc::socket(libc::AF_UNIX, kind, 0) {
                -1 => return Err(io::Error::last_os_error()),
                fd => OwnedFd::from_raw_fd(fd),
            }
        };
        // An address that is no longer than its family has the system choose a name.
        named(&socket, &[], |fd, address, _| {
            // SAFETY: the address is as long as is said.
            unsafe { libc::bind(fd, address, size_of::<libc::sa_family_t>() as libc::socklen_t) }
        })?;
        let stream = UnixStream::from(socket.try_clone()?);
        let own = stream.local_addr()?.as_abstract_name().unwrap_or_default().to_vec();
        self.expected.lock().expect("nothing panics under this lock").insert(own.clone(), slot);
        let connected = named(&socket, &self.name, |fd, address, len| {
            // SAFETY: the address is as long as is said.
            unsafe { libc::connect(fd, address, len) }
        });
        if let Err(e) = connected.and_then(|()| stream.set_nonblocking(true)) {
            self.expected.lock().expect("nothing panics under this lock").remove(&own);
            return Err(e);
        }
        Ok(stream)
    }
}

/// Calls `f` with a name without a path.
fn named(
    socket: &OwnedFd,
    name: &[u8],
    f: impl FnOnce(i32, *const libc::sockaddr, libc::socklen_t) -> i32,
) -> io::Result<()> {
    // SAFETY: all-zero is valid.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in address.sun_path[1..].iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    let len = size_of::<libc::sa_family_t>() + 1 + name.len();
    match f(socket.as_raw_fd(), (&raw const address).cast(), len as libc::socklen_t) {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_connections_are_told_apart_and_others_are_not_let_in() {
        let (entrance, doorstep) = open().expect("a socket");
        let next = || {
            let socket = OwnedFd::from(entrance.listener.accept().expect("somebody comes").0);
            (entrance.slot_of(&socket), socket)
        };
        let own = [doorstep.knock(3), doorstep.knock(1)].map(|socket| socket.expect("connecting"));
        assert_eq!([next(), next()].map(|(slot, _)| slot.expect("our own")), [3, 1]);
        let address = entrance.listener.local_addr().expect("it has one");
        let stranger = UnixStream::connect_addr(&address).expect("connecting");
        assert!(next().0.expect_err("a stranger").to_string().contains("somebody else"));
        drop((own, stranger));
    }
}
