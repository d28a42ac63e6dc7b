//! What the system knows of a connection, and counts for it.

// UNSAFETY: getsockopt.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, BorrowedFd};

use orion_telemetry::report::{Connection, Wire};

/// Nothing of a socket that has no address of the network.
pub fn ends(socket: BorrowedFd<'_>, lane: Option<u32>) -> Option<Connection> {
    let stream = TcpStream::from(socket.try_clone_to_owned().ok()?);
    let (peer, own) = (stream.peer_addr().ok()?, stream.local_addr().ok()?);
    Some(Connection { lane, peer: SocketAddr::new(peer.ip().to_canonical(), peer.port()), port: own.port() })
}

pub fn of(socket: BorrowedFd<'_>) -> Option<Wire> {
    // SAFETY: all-zero is valid for plain numbers.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut bytes = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the buffer has the size that is passed; an older kernel fills less of it.
    let rc = unsafe {
        let to = (&raw mut info).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, to, &mut bytes)
    };
    (rc == 0).then(|| Wire {
        rtt_ns: u64::from(info.tcpi_rtt) * 1000,
        rtt_variance_ns: u64::from(info.tcpi_rttvar) * 1000,
        retransmits: info.tcpi_total_retrans.into(),
        unacked: info.tcpi_unacked.into(),
        sent_bytes: info.tcpi_bytes_acked,
        received_bytes: info.tcpi_bytes_received,
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_other_end_is_told_as_it_calls_itself() {
        // One for IPv6 takes IPv4 too, as addresses of its own.
        for (listens, reached_at) in [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1"), ("[::]:0", "127.0.0.1")] {
            let Ok(listener) = TcpListener::bind(listens) else {
                eprintln!("not tried: nothing can listen on {listens}");
                continue;
            };
            let port = listener.local_addr().expect("its address").port();
            let client = TcpStream::connect((reached_at, port)).expect("connecting");
            let (server, _) = listener.accept().expect("accepting");
            let peer = client.local_addr().expect("its address");
            assert_eq!(ends(server.as_fd(), Some(3)), Some(Connection { lane: Some(3), peer, port }), "{listens}");
        }
        let (one, _other) = UnixStream::pair().expect("sockets");
        assert_eq!(ends(one.as_fd(), None), None);
    }
}
