//! A session over TCP or vsock by hand: without the threads that keep a client's memory in step, so that whoever has it
//! decides what is read, on which connection.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use orion_tls::trust::Way;
use orion_transport::carrier::tcp::{self, Belongs};
use orion_transport::carrier::vsock;
use orion_transport::channel::Channel;
use orion_transport::client::{self, Caller, Greeted, Server};
use orion_transport::proof::Token;
use orion_transport::stream::{Frame, StreamHeader};
use orion_wire::hello::{BELL_IN_PAGES, Start, Welcome, kind};
use orion_wire::record::{HEADER_BYTES, Header};
use orion_wire::{Handle, Pages};

const HEAP_BASE: u64 = 0x7000_0000_0000;
/// As long as a command may take to go out; oriond takes none of a session that is held up.
const PATIENCE: Duration = Duration::from_secs(1);

pub struct Carried {
    pub welcome: Welcome,
    stream: TcpStream,
    belongs: Belongs,
    sequence: u64,
}

impl Carried {
    pub fn attach(server: &Server, token: &str) -> Result<Carried, String> {
        // What is attacked lies behind the records of TLS, if there are any.
        let way = Way::Plain;
        let connect = match server.host() {
            Some(address) => tcp::connector(address),
            None => {
                vsock::connector(server).map_err(|why| format!("{why}, and no lanes; give --transport tcp or vsock"))?
            }
        };
        let caller = Caller::new("orion-attack", Some(Token::new(token, "orion-attack")?));
        let socket = connect().map_err(|e| format!("connecting to {server} failed: {e}"))?;
        let mut channel = tcp::agree(server, socket, &way).map_err(|no| no.text)?;
        let greeted = begin(server, &mut channel, &caller)?;
        let failed = |e: std::io::Error| format!("starting a session with {server} failed: {e}");
        let stream = TcpStream::from(channel.into_parts().0);
        let timeout = Some(Duration::from_millis(1));
        stream.set_read_timeout(timeout).and_then(|()| stream.set_write_timeout(timeout)).map_err(failed)?;
        let session = greeted.welcome.session;
        let belongs = Belongs { connect, way, session, key: greeted.lane_key };
        Ok(Carried { welcome: greeted.welcome, stream, belongs, sequence: 0 })
    }

    /// A further connection of the session.
    pub fn join(&self, lane: usize) -> std::io::Result<OwnedFd> {
        self.belongs.join(lane).map(|channel| channel.into_parts().0)
    }

    /// Whether all of it went out, while what comes on the main connection is read and forgotten.
    pub fn send(&mut self, op: u16, body: &[u8]) -> bool {
        self.sequence += 1;
        let size = HEADER_BYTES + body.len();
        let context = Handle::primary_context(0).0;
        let record = Header { size: size as u32, op, thread: 0, context, sequence: self.sequence }.encode();
        let mut bytes = StreamHeader { frame: Frame::Command, len: size as u32, offset: 0 }.encode().to_vec();
        bytes.extend(record);
        bytes.extend(body);
        let (mut sent, began) = (0, Instant::now());
        while sent < bytes.len() && began.elapsed() < PATIENCE {
            match self.stream.write(&bytes[sent..]) {
                Ok(n) => sent += n,
                Err(e) if is_late(&e) => {}
                Err(_) => return false,
            }
            if !self.read() {
                return false;
            }
        }
        sent == bytes.len()
    }

    /// Takes what has come on the main connection, whatever it is. False once that is closed.
    fn read(&mut self) -> bool {
        match self.stream.read(&mut [0; 64 << 10]) {
            Ok(n) => n > 0,
            Err(e) => is_late(&e),
        }
    }
}

/// Up to where the server has started the session.
pub fn begin(server: &Server, channel: &mut Channel, caller: &Caller) -> Result<Greeted, String> {
    let greeted = client::greet(server, channel, caller, false).map_err(|e| e.text)?;
    let start = Start { heap_base: HEAP_BASE, pages: Pages::Mirrored, bell: BELL_IN_PAGES };
    let failed = |e: std::io::Error| format!("starting a session with {server} failed: {e}");
    channel.send_frame(kind::START, &start.encode(), &[]).map_err(failed)?;
    match channel.recv_frame().map_err(failed)?.0 {
        kind::STARTED => Ok(greeted),
        other => Err(format!("{server} answered the start with frame {other}")),
    }
}

fn is_late(e: &std::io::Error) -> bool {
    matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
