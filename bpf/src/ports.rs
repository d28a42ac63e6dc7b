//! The ports at which oriond listens, in its network namespace, and which programs of that have connections to them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::numbers::PORTS_MAX;

const ESTABLISHED: &str = "01";
const LISTENS: &str = "0A";

/// A connection as who listens sees it: where the other end is, and at which of its ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ends {
    pub peer: SocketAddr,
    pub port: u16,
}

impl Ends {
    /// IPv4 comes in at a socket for both as IPv6, and what a link is called here is nobody else's business.
    pub fn new(peer: SocketAddr, port: u16) -> Ends {
        Ends { peer: SocketAddr::new(peer.ip().to_canonical(), peer.port()), port }
    }
}

/// The TCP sockets of one network namespace, as they were when it was looked.
pub struct Sockets(Vec<Socket>);

/// One line of `/proc/PID/net/tcp`.
struct Socket {
    own: SocketAddr,
    peer: SocketAddr,
    state: String,
    inode: String,
}

/// The network namespace that a process is in, by its number.
pub fn namespace(pid: u32) -> Option<u32> {
    let link = std::fs::read_link(format!("/proc/{pid}/ns/net")).ok()?;
    link.to_str()?.strip_prefix("net:[")?.strip_suffix(']')?.parse().ok()
}

/// Ports at which a process listens.
pub fn listening(pid: u32) -> BTreeSet<u16> {
    let own = sockets_of(pid);
    let listens = |socket: &Socket| socket.state == LISTENS && own.contains(&socket.inode);
    let ports = Sockets::around(pid).0.into_iter().filter(listens).map(|socket| socket.own.port());
    ports.take(PORTS_MAX).collect()
}

impl Sockets {
    /// Of the namespace that a process is in.
    pub fn around(pid: u32) -> Sockets {
        let tables = ["tcp", "tcp6"].map(|table| std::fs::read_to_string(format!("/proc/{pid}/net/{table}")));
        let tables: Vec<&str> = tables.iter().flatten().map(String::as_str).collect();
        Sockets::of(&tables)
    }

    /// The system shows a table piece by piece, and what changes in between may show a socket twice.
    fn of(tables: &[&str]) -> Sockets {
        let (lines, mut seen) = (tables.iter().flat_map(|table| table.lines().skip(1)), BTreeSet::new());
        let is_one = |socket: &Socket| socket.inode != "0" && seen.insert(socket.inode.clone());
        Sockets(lines.filter_map(socket).filter(is_one).collect())
    }

    /// Connections that are open at these ports, each with the inode of the socket at this end.
    pub fn served(&self, ports: &BTreeSet<u16>) -> impl Iterator<Item = (&str, Ends)> {
        let is_served = |socket: &&Socket| socket.state == ESTABLISHED && ports.contains(&socket.own.port());
        self.0.iter().filter(is_served).map(|s| (s.inode.as_str(), Ends::new(s.peer, s.own.port())))
    }

    /// Processes of the namespace with a connection to oriond, if `seen` does not have all connections yet.
    pub fn local_clients(&self, oriond: u32, ports: &BTreeSet<u16>, seen: &mut BTreeSet<String>) -> Vec<(Ends, u32)> {
        let theirs = self.0.iter().filter(|socket| ports.contains(&socket.peer.port()) && socket.state != LISTENS);
        let fresh = theirs.filter(|socket| seen.insert(socket.inode.clone()));
        let fresh: BTreeMap<&str, Ends> = fresh.map(|s| (s.inode.as_str(), Ends::new(s.own, s.peer.port()))).collect();
        if fresh.is_empty() {
            return Vec::new();
        }
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let of =
            |pid| sockets_of(pid).into_iter().filter_map(|inode| Some((*fresh.get(inode.as_str())?, pid))).collect();
        pids.filter(|pid| *pid != oriond).flat_map(|pid| -> Vec<(Ends, u32)> { of(pid) }).collect()
    }
}

fn socket(line: &str) -> Option<Socket> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (own, peer) = (address(words.get(1)?)?, address(words.get(2)?)?);
    Some(Socket { own, peer, state: (*words.get(3)?).to_owned(), inode: (*words.get(9)?).to_owned() })
}

/// Of `0100007F:1CF3`, which is 127.0.0.1 where bytes stand the other way round: words as the processor has them.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let word = |at: usize| u32::from_str_radix(ip.get(at * 8..at * 8 + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip: IpAddr = match ip.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let bytes = [word(0)?, word(1)?, word(2)?, word(3)?].concat();
            Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

/// Inodes of a process's sockets.
pub fn sockets_of(pid: u32) -> BTreeSet<String> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let links = entries.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_listening_port_of_this_process_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("its address").port();
        assert!(listening(std::process::id()).contains(&port));
        assert!(namespace(std::process::id()).is_some());
    }

    #[test]
    fn both_ends_of_a_connection_are_found() {
        let here = std::process::id();
        for (listens, reached_at) in [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1"), ("[::]:0", "127.0.0.1")] {
            let Ok(listener) = TcpListener::bind(listens) else {
                eprintln!("not tried: nothing can listen on {listens}");
                continue;
            };
            let port = listener.local_addr().expect("its address").port();
            let client = TcpStream::connect((reached_at, port)).expect("connecting");
            let _server = listener.accept().expect("accepting");
            let ends = Ends::new(client.local_addr().expect("its address"), port);
            let (sockets, ports) = (Sockets::around(here), BTreeSet::from([port]));
            assert_eq!(sockets.served(&ports).map(|(_, ends)| ends).collect::<Vec<_>>(), [ends], "{listens}");
            let mut seen = BTreeSet::new();
            // It is nobody's oriond.
            assert_eq!(sockets.local_clients(0, &ports, &mut seen), [(ends, here)]);
            assert_eq!(sockets.local_clients(0, &ports, &mut seen), []);
        }
    }

    #[test]
    fn a_socket_that_the_system_shows_twice_is_one() {
        let line = |inode: u32| {
            format!(
                "   1: 0100007F:1CF3 0100007F:C9DA 01 00000000:00000000 00:00000000 00000000     0        0 {inode} 1\n"
            )
        };
        let table =
            ["  sl  local_address rem_address   st\n".to_owned(), line(41), line(42), line(42), line(0)].concat();
        let sockets = Sockets::of(&[&table]);
        let inodes: Vec<&str> = sockets.served(&BTreeSet::from([0x1cf3])).map(|(inode, _)| inode).collect();
        assert_eq!(inodes, ["41", "42"]);
    }

    #[test]
    fn what_is_no_address_is_passed_over() {
        for text in ["", ":", "0100007F", "0100007F:1CF3F", "0100007:1CF3", "ü100007:1CF3", "0100007G:1CF3"] {
            assert_eq!(address(text), None, "{text}");
        }
    }
}
