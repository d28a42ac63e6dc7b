//! Where tools ask: who connects is sent what he may see, as JSON, and that is all. Each has a
//! thread, for as long as answering may take.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use orion_transport::room::{Limits, Room};
use orion_transport::socket::peer_credentials;
use tracing::{debug, warn};

use super::directory::{Directory, Sees};
use crate::engine::carrier::{For, LocalSocket};
use crate::engine::peer::{Source, strangeness};

/// Who has not read all by then goes without.
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);
/// Tools that are answered at one time.
const TOOLS_MAX: Limits = Limits { all: 32, of_others: 24, of_another: 4 };

pub fn open(path: &Path, directory: Arc<Directory>) -> Result<Arc<LocalSocket>, String> {
    // Everybody may ask about his own.
    let socket = Arc::new(LocalSocket::listen(path, For::All).map_err(|why| format!("--stats: {why}"))?);
    let listening = Arc::clone(&socket);
    let room = Room::of(TOOLS_MAX);
    let serve = move || {
        loop {
            let came = listening.listener.accept().and_then(|(tool, _)| {
                let (uid, sees) = sees(&tool)?;
                // A tool that is sent nothing knows why.
                let Some(place) = Room::enter(&room, uid, sees != Sees::All) else { return Ok(()) };
                let directory = Arc::clone(&directory);
                let answer = move || {
                    if let Err(error) = answer(tool, &directory, sees) {
                        debug!(%error, "a tool did not take what it asked for");
                    }
                    drop(place);
                };
                std::thread::Builder::new().name("tool".into()).spawn(answer).map(drop)
            });
            if let Err(e) = came {
                warn!(error = %e, "answering a tool at --stats failed");
                // Most likely there are no descriptors left.
                std::thread::sleep(Duration::from_millis(200));
            }
        }
    };
    std::thread::Builder::new()
        .name("stats".into())
        .spawn(serve)
        .map(|_| socket)
        .map_err(|e| format!("starting the thread for --stats failed: {e}"))
}

fn answer(mut tool: UnixStream, directory: &Directory, sees: Sees) -> io::Result<()> {
    let text = serde_json::to_vec(&directory.report(sees)).map_err(io::Error::other)?;
    let begun = Instant::now();
    let mut left = &text[..];
    // A write waits for itself alone: whoever reads a little at a time would be waited for without end.
    while !left.is_empty() {
        let time = ANSWERED_WITHIN.checked_sub(begun.elapsed()).filter(|time| !time.is_zero());
        tool.set_write_timeout(Some(time.ok_or(io::ErrorKind::TimedOut)?))?;
        let written = tool.write(left)?;
        left = &left[written..];
    }
    Ok(())
}

/// Our own user beside us sees all. In a container the same number is somebody else, who sees what he has.
fn sees(tool: &UnixStream) -> io::Result<(u32, Sees)> {
    let uid = peer_credentials(tool.as_fd())?.uid;
    match strangeness(tool.as_fd()) {
        None => Ok((uid, Sees::All)),
        Some(_) => Ok((uid, Sees::Of(Source::User(uid)))),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use orion_telemetry::report::Report;

    use super::super::directory::tests::watched;
    use super::super::utilization::Utilization;
    use super::*;

    #[test]
    fn who_connects_is_told_and_who_reads_a_little_at_a_time_holds_nobody_up() {
        let folder = std::env::temp_dir().join(format!("orion-stats-{}", std::process::id()));
        let path = folder.join("oriond.stats.sock");
        let directory = Arc::new(Directory::new(Utilization::default(), true));
        // More than a socket keeps for who does not read.
        for session in 0..1000 {
            directory.begins(session, watched(Source::User(7)));
        }
        let socket = open(&path, directory).expect("it listens");
        // None of them takes all of it within the time.
        let mut slow: Vec<UnixStream> = (0..8).map(|_| UnixStream::connect(&path).expect("it accepts")).collect();
        let begun = Instant::now();
        let mut text = String::new();
        UnixStream::connect(&path).expect("it accepts").read_to_string(&mut text).expect("an answer");
        // One after the other the slow ones take more.
        let held_up = begun.elapsed();
        assert!(held_up < ANSWERED_WITHIN * 8, "it was held up for {held_up:?}");
        let report: Report = serde_json::from_str(&text).expect("JSON");
        assert_eq!(report.sessions.len(), 1000);
        while begun.elapsed() < held_up + 2 * ANSWERED_WITHIN {
            for tool in &mut slow {
                tool.read_exact(&mut [0; 64]).expect("what is there");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let mut rest = Vec::new();
        slow[0].read_to_end(&mut rest).expect("it ends");
        assert!(rest.len() < text.len() * 2 / 3, "{} of {} bytes came late", rest.len(), text.len());
        socket.remove();
        std::fs::remove_dir_all(&folder).expect("removing");
    }
}
