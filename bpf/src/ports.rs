//! The ports at which oriond listens, in its network namespace, and which programs of that have connections to them.

use std::collections::BTreeSet;

use crate::numbers::PORTS_MAX;

const LISTENS: &str = "0A";

/// One line of `/proc/PID/net/tcp`.
struct Socket {
    own: String,
    peer: String,
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
    let ports = sockets(pid).into_iter().filter(listens).filter_map(|socket| port(&socket.own));
    ports.take(PORTS_MAX).collect()
}

/// Processes in oriond's network namespace with a connection to it, if `seen` does not have all connections yet.
pub fn local_clients(oriond: u32, ports: &BTreeSet<u16>, seen: &mut BTreeSet<String>) -> Vec<u32> {
    let all = sockets(oriond);
    let is_ours = |address: &str| port(address).is_some_and(|port| ports.contains(&port));
    let theirs = all.iter().filter(|socket| is_ours(&socket.peer) && socket.state != LISTENS);
    let fresh: BTreeSet<&String> = theirs.filter(|s| seen.insert(s.inode.clone())).map(|s| &s.inode).collect();
    if fresh.is_empty() {
        return Vec::new();
    }
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| *pid != oriond && sockets_of(*pid).iter().any(|inode| fresh.contains(inode))).collect()
}

fn sockets(pid: u32) -> Vec<Socket> {
    let tables = ["tcp", "tcp6"].map(|table| std::fs::read_to_string(format!("/proc/{pid}/net/{table}")));
    let lines = tables.iter().flatten().flat_map(|table| table.lines().skip(1));
    let socket = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let word = |at: usize| words.get(at).map(|word| (*word).to_owned());
        Some(Socket { own: word(1)?, peer: word(2)?, state: word(3)?, inode: word(9)? })
    };
    lines.filter_map(socket).filter(|socket| socket.inode != "0").collect()
}

/// Of `0100007F:1CF3`.
fn port(address: &str) -> Option<u16> {
    u16::from_str_radix(address.rsplit_once(':')?.1, 16).ok()
}

/// Inodes of a process's sockets.
fn sockets_of(pid: u32) -> BTreeSet<String> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let links = entries.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listening_port_of_this_process_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("its address").port();
        assert!(listening(std::process::id()).contains(&port));
        assert!(namespace(std::process::id()).is_some());
    }
}
