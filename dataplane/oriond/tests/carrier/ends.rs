//! Where the ends of a session's connections are, as tools are told.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::Command;

use orion_telemetry::report::{Connection, Report};
use orion_transport::carrier::{self, Listener};
use orion_transport::client::{Caller, Tuning};

use crate::death::{carried_with_key, join};
use crate::harness::{Client, Oriond, Transport, hello, over_tcp, wait_until};

/// Of a session; `None` of one that there is not.
fn told(server: &Oriond, session: u64) -> Option<Vec<Connection>> {
    told_at(&server.socket.with_extension("stats.sock"), session)
}

fn told_at(socket: &std::path::Path, session: u64) -> Option<Vec<Connection>> {
    let mut text = String::new();
    UnixStream::connect(socket).expect("oriond tells").read_to_string(&mut text).expect("an answer");
    let report: Report = serde_json::from_str(&text).expect("a report");
    report.sessions.into_iter().find(|told| told.session == session).map(|told| told.connections)
}

fn expected(server: SocketAddr, streams: &[(Option<u32>, &TcpStream)]) -> Vec<Connection> {
    let of = |(lane, stream): &(Option<u32>, &TcpStream)| {
        let peer = stream.local_addr().expect("its address");
        Connection { lane: *lane, peer, port: server.port() }
    };
    streams.iter().map(of).collect()
}

#[test]
fn each_connection_is_told_until_its_session_is_over() {
    let server = Oriond::start(&[]);
    let address: SocketAddr = server.tcp.parse().expect("oriond wrote it");
    let local = Client::attach(&server, Transport::Shm);
    let (_other, of_another, _) = carried_with_key(&server);
    let (stream, welcome, key) = carried_with_key(&server);
    let told_are = |streams: &[(Option<u32>, &TcpStream)]| {
        let expected = expected(address, streams);
        wait_until("these connections", || told(&server, welcome.session).as_ref() == Some(&expected));
    };
    told_are(&[(None, &stream)]);
    let first = join(&server, welcome.session, &key, 0).expect("joining");
    told_are(&[(None, &stream), (Some(0), &first)]);
    let second = join(&server, welcome.session, &key, 1).expect("joining");
    told_are(&[(None, &stream), (Some(0), &first), (Some(1), &second)]);
    assert_eq!(told(&server, local.welcome.session), Some(Vec::new()));
    // The end of one is the end of all.
    drop(first);
    wait_until("nothing to be told of them", || told(&server, welcome.session).is_none_or(|left| left.is_empty()));
    assert_eq!(told(&server, of_another.session).map(|told| told.len()), Some(1));
}

#[test]
#[cfg(debug_assertions)]
fn they_are_the_same_wherever_the_session_moves() {
    let server = Oriond::start_in(&[("ORION_SOFT_MOVES_US", "2000")], &["--engines", "3"]);
    for transport in [Transport::Tcp, Transport::Tls] {
        let tuning = Tuning { lanes: 2, ..Tuning::default() };
        let client = Client::try_attach(&server, transport, &hello(), tuning).expect("attaching");
        let session = client.welcome.session;
        let lanes = || told(&server, session).map(|told| told.iter().map(|c| c.lane).collect::<Vec<_>>());
        wait_until("both lanes", || lanes() == Some(vec![None, Some(0), Some(1)]));
        let before = told(&server, session);
        let moves = || server.log().lines().filter(|line| line.contains("session moves")).count();
        let moved = moves();
        wait_until("more moves", || moves() > moved + 5);
        assert_eq!(told(&server, session), before);
    }
}

#[test]
fn ipv4_and_ipv6_are_told_apart_where_both_come_to_one_socket() {
    if TcpListener::bind("[::1]:0").is_err() {
        return eprintln!("not tried: there is no IPv6 here");
    }
    let folder = crate::harness::new_folder();
    let socket = folder.join("oriond.stats.sock");
    let mut command = Command::new(env!("CARGO_BIN_EXE_oriond"));
    command.args(["serve", "--driver", "echo", "--listen", "[::]:0", "--socket", "none", "--insecure", "--stats"]);
    let server = Oriond::start_as(command.arg(&socket));
    let port = server.tcp.rsplit_once(':').expect("oriond wrote it").1.to_owned();
    for host in ["127.0.0.1", "[::1]"] {
        let caller = Caller { token: None, ..hello() };
        let address = over_tcp(&format!("{host}:{port}"));
        let attached = carrier::attach(&address, &caller, Tuning::default(), Listener::NOBODY);
        let attached = attached.map_err(|no| no.text).expect("attaching");
        let of_session = || told_at(&socket, attached.welcome.session).unwrap_or_default();
        wait_until("its connection", || !of_session().is_empty());
        let expected = host.trim_matches(['[', ']']);
        for connection in of_session() {
            assert_eq!(
                (connection.peer.ip().to_string().as_str(), connection.port.to_string()),
                (expected, port.clone())
            );
        }
    }
    drop(server);
    std::fs::remove_dir_all(folder).expect("removing");
}
