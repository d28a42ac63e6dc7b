//! The socket at which the agent beside this oriond asks (`orion_wire::agent`). A thread answers one agent at a time; a
//! further one waits until the first has gone, or has been silent for too long.

// UNSAFETY: geteuid.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use orion_transport::fds;
use orion_transport::lease::LeaseKey;
use orion_transport::socket::{peer_credentials, receive_timeout, send_timeout};
use orion_wire::agent::{AGENT_VERSION, Answer, Ask, KIND, WAIT_MS_MAX};
use tracing::{info, warn};

use super::book::Book;
use crate::engine::carrier::{For, LocalSocket};
use crate::engine::post::{Mail, Post};

/// An agent asks at least once in so many seconds, whatever becomes of its controller, and takes the answer. One that
/// was stopped, or has said half of something, keeps the next one out no longer.
const SILENCE_SECONDS_MAX: u16 = 30;

/// Listens, and starts the thread. What it hears of leases that are over goes to the door.
pub fn open(path: &Path, book: Arc<Book>, door: Arc<Post>) -> Result<Arc<LocalSocket>, String> {
    let socket = Arc::new(LocalSocket::listen(path, For::Us).map_err(|why| format!("--pool: {why}"))?);
    let listening = Arc::clone(&socket);
    let serve = move || {
        loop {
            match listening.listener.accept() {
                Ok((agent, _)) => serve(&agent, &book, &door, SILENCE_SECONDS_MAX),
                Err(e) => {
                    warn!(error = %e, "accepting an agent failed");
                    // Most likely there are no descriptors left; trying again at once would only fail again.
                    std::thread::sleep(Duration::from_millis(200));
                }
            }
        }
    };
    std::thread::Builder::new()
        .name("agent".into())
        .spawn(serve)
        .map(|_| socket)
        .map_err(|e| format!("starting the agent's thread failed: {e}"))
}

fn serve(agent: &UnixStream, book: &Book, door: &Post, silence_seconds_max: u16) {
    match stranger(agent) {
        None => {}
        Some(why) => return warn!(why, "somebody who is no agent of this server's came to its --pool socket"),
    }
    info!("an agent has come");
    let patience = receive_timeout(agent.as_fd(), silence_seconds_max.into())
        .and_then(|()| send_timeout(agent.as_fd(), silence_seconds_max.into()));
    match patience.and_then(|()| talk(agent, book, door)) {
        Ok(()) => info!("the agent has gone; sessions go on"),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
            warn!(
                silence_seconds_max,
                "the agent has stopped in the midst of its connection, which is closed; sessions go on"
            );
        }
        Err(e) => warn!(error = %e, "the agent's connection broke; sessions go on"),
    }
}

/// The key of leases is for our own user's agent, or root's.
fn stranger(agent: &UnixStream) -> Option<String> {
    // SAFETY: geteuid cannot fail.
    let ours = unsafe { libc::geteuid() };
    match peer_credentials(agent.as_fd()) {
        Ok(peer) if peer.uid == ours || peer.uid == 0 => None,
        Ok(peer) => Some(format!("user {} is neither root nor the user {ours} that runs this server", peer.uid)),
        Err(e) => Some(format!("finding out which user it is failed: {e}")),
    }
}

fn talk(agent: &UnixStream, book: &Book, door: &Post) -> io::Result<()> {
    loop {
        let (kind, body, _) = match fds::recv_frame(agent.as_fd()) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            other => other?,
        };
        let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        if kind != KIND {
            return Err(wrong(format!("a frame of kind {kind}")));
        }
        let ask = Ask::decode(&body).map_err(|fault| wrong(fault.to_string()))?;
        fds::send_frame(agent.as_fd(), KIND, &answer(ask, book, door).encode(), &[])?;
    }
}

fn answer(ask: Ask, book: &Book, door: &Post) -> Answer {
    match ask {
        Ask::Who { version: AGENT_VERSION } => book.who(),
        Ask::Who { version } => Answer::No {
            reason: format!("this oriond talks to agents of version {AGENT_VERSION}, and the agent is of {version}"),
        },
        Ask::Belong { node, key, controller_unix_ms } => {
            if book.belong(node.clone(), LeaseKey::from_bytes(key), controller_unix_ms) {
                info!(node, "this server belongs to a pool");
            }
            Answer::Done
        }
        Ask::Keep { node, key, unix_ms } => {
            info!(node, "this server's agent lends a reserve of its own");
            book.keep(node, LeaseKey::from_bytes(key), unix_ms);
            Answer::Done
        }
        Ask::Look { heard, over, wait_ms } => {
            if !over.is_empty() {
                book.taken_back(&over);
                door.post(Mail::LeasesOver(over));
            }
            book.look(heard, Duration::from_millis(wait_ms.min(WAIT_MS_MAX)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It was stopped, or killed in a way that leaves its connection open. Another one waits behind it.
    #[test]
    fn an_agent_that_stops_in_a_frame_or_takes_no_answer_gives_its_place_up() {
        let book = Book::new(true, None).expect("random bytes");
        let door = Post::new().expect("an eventfd");
        let ask = |ask: &Ask| orion_wire::hello::frame(KIND, &ask.encode());
        let look = ask(&Ask::Look { heard: 0, over: Vec::new(), wait_ms: 0 });
        for half in [&[][..], &look[..5], &look[..look.len() - 1]] {
            let (ours, agent) = UnixStream::pair().expect("a pair");
            fds::send(agent.as_fd(), half, &[]).expect("there is room");
            serve(&ours, &book, &door, 1);
        }
        let (ours, agent) = UnixStream::pair().expect("a pair");
        send_timeout(agent.as_fd(), 1).expect("a socket");
        std::thread::scope(|scope| {
            scope.spawn(|| serve(&ours, &book, &door, 1));
            // It asks until it is heard no more, and never listens.
            while fds::send(agent.as_fd(), &look, &[]).is_ok() {}
        });
    }
}
