//! The oriond beside the agent, over its socket: `orion_wire::agent` says what is said.

// UNSAFETY: geteuid.

use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use orion_transport::fds;
use orion_transport::socket::{connect_local, peer_credentials, receive_timeout};
use orion_wire::agent::{AGENT_VERSION, Answer, Ask, Gpu, KIND, LEASES_MAX, Used};
use orion_wire::lease::{Lease, LeaseId};

/// An oriond that says nothing for this long beyond what it was asked to wait is stopped, or none.
const SILENCE_SECONDS_MAX: i64 = 10;

pub struct Oriond {
    socket: UnixStream,
}

/// Why nothing is heard of it.
pub struct Failed {
    /// It has ended, and its sessions with it. One that is silent may have been stopped, or talk to another agent: then
    /// its sessions go on.
    pub is_gone: bool,
    pub why: String,
}

impl From<String> for Failed {
    fn from(why: String) -> Failed {
        Failed { is_gone: false, why }
    }
}

/// What it says of itself.
pub struct Server {
    pub instance: [u8; 16],
    pub is_software: bool,
    /// SHA-256 of what it shows over a network.
    pub certificate: Option<[u8; 32]>,
    pub gpus: Vec<Gpu>,
}

/// Which leases have a session, and which have not any more.
pub struct State {
    pub version: u64,
    pub live: Vec<LeaseId>,
    pub ended: Vec<LeaseId>,
    /// Of those with a session.
    pub used: Vec<Used>,
    /// Those of them that are of the node's own reserve.
    pub reserve: Vec<Lease>,
}

impl State {
    /// Those that a controller has given.
    pub fn live_of_pool(&self) -> Vec<LeaseId> {
        self.live.iter().copied().filter(|id| !self.reserve.iter().any(|lease| lease.id == *id)).collect()
    }
}

impl Oriond {
    pub fn connect(path: &Path) -> Result<Oriond, Failed> {
        let name = path.display();
        let socket = connect_local(path, SILENCE_SECONDS_MAX as u64).map_err(|e| {
            let why =
                format!("no oriond at {name} ({e}); start one with `oriond serve --pool {name} --listen ADDRESS:PORT`");
            Failed { is_gone: matches!(e.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused), why }
        })?;
        let failed = |e: std::io::Error| format!("the connection to {name}: {e}");
        // It is told the key of leases.
        let uid = peer_credentials(socket.as_fd()).map_err(failed)?.uid;
        // SAFETY: geteuid cannot fail.
        let ours = unsafe { libc::geteuid() };
        if uid != ours && uid != 0 {
            return Err(format!("{name} is a socket of user {uid}, who is neither root nor this user ({ours})").into());
        }
        receive_timeout(socket.as_fd(), SILENCE_SECONDS_MAX).map_err(failed)?;
        Ok(Oriond { socket })
    }

    pub fn who(&mut self) -> Result<Server, Failed> {
        match self.ask(&Ask::Who { version: AGENT_VERSION })? {
            Answer::Server { instance, is_software, certificate, gpus } => {
                Ok(Server { instance, is_software, certificate, gpus })
            }
            // It has just been started, and the one before is gone.
            other @ Answer::No { .. } => Err(Failed { is_gone: true, why: unexpected("who it is", &other) }),
            other => Err(unexpected("who it is", &other).into()),
        }
    }

    /// To the pool of this controller, which has this clock.
    pub fn belong(&mut self, node: &str, key: [u8; 32], controller_unix_ms: u64) -> Result<(), Failed> {
        match self.ask(&Ask::Belong { node: node.to_owned(), key, controller_unix_ms })? {
            Answer::Done => Ok(()),
            other => Err(unexpected("to belong to the pool", &other).into()),
        }
    }

    /// To admit who has a lease that this agent has signed with the key.
    pub fn keep(&mut self, node: &str, key: [u8; 32], unix_ms: u64) -> Result<(), Failed> {
        match self.ask(&Ask::Keep { node: node.to_owned(), key, unix_ms })? {
            Answer::Done => Ok(()),
            other => Err(unexpected("to keep a reserve", &other).into()),
        }
    }

    /// Waits so long for something that is newer than `heard`. Of what is over it is told as much as one message
    /// takes; the rest stays for the next one.
    pub fn look(&mut self, heard: u64, all_over: &mut Vec<LeaseId>, wait: Duration) -> Result<State, Failed> {
        let over = all_over.drain(..all_over.len().min(LEASES_MAX)).collect();
        match self.ask(&Ask::Look { heard, over, wait_ms: wait.as_millis() as u64 })? {
            Answer::State { version, live, ended, used, reserve } => Ok(State { version, live, ended, used, reserve }),
            other => Err(unexpected("which leases have a session", &other).into()),
        }
    }

    fn ask(&mut self, ask: &Ask) -> Result<Answer, Failed> {
        let failed = |e: std::io::Error| match e.kind() {
            ErrorKind::WouldBlock => Failed::from(format!(
                "oriond says nothing for {SILENCE_SECONDS_MAX} s: it talks to one agent at a time, so is there another \
                 orion-agent beside it, or was it stopped?"
            )),
            kind => Failed { is_gone: kind != ErrorKind::InvalidData, why: format!("asking oriond failed: {e}") },
        };
        fds::send_frame(self.socket.as_fd(), KIND, &ask.encode(), &[]).map_err(failed)?;
        let (kind, body, _) = fds::recv_frame(self.socket.as_fd()).map_err(failed)?;
        if kind != KIND {
            return Err(
                format!("oriond answered with a frame of kind {kind}: is this the socket of its --pool?").into()
            );
        }
        Answer::decode(&body).map_err(|fault| format!("oriond's answer is damaged: {fault}").into())
    }
}

fn unexpected(what: &str, answer: &Answer) -> String {
    match answer {
        Answer::No { reason } => format!("oriond was asked {what} and said no: {reason}"),
        other => format!("oriond was asked {what} and answered {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_leases_than_one_message_takes_are_told_in_several() {
        let (socket, theirs) = UnixStream::pair().expect("a pair");
        let mut oriond = Oriond { socket };
        let answers = std::thread::spawn(move || {
            let told = |_| {
                let (_, body, _) = fds::recv_frame(theirs.as_fd()).expect("a frame");
                let Ok(Ask::Look { over, .. }) = Ask::decode(&body) else { panic!("it cannot be read") };
                let (live, ended, used, reserve) = Default::default();
                let answer = Answer::State { version: 1, live, ended, used, reserve };
                fds::send_frame(theirs.as_fd(), KIND, &answer.encode(), &[]).expect("it listens");
                over
            };
            (0..3).map(told).collect::<Vec<_>>()
        });
        let all: Vec<LeaseId> = (0..2 * LEASES_MAX as u128 + 1).map(|n| LeaseId(n.to_be_bytes())).collect();
        let mut over = all.clone();
        for _ in 0..3 {
            oriond.look(0, &mut over, Duration::ZERO).map_err(|failed| failed.why).expect("an answer");
        }
        let told = answers.join().expect("no panic");
        assert_eq!(told.iter().map(Vec::len).collect::<Vec<_>>(), [LEASES_MAX, LEASES_MAX, 1]);
        assert_eq!(told.concat(), all);
    }
}
