//! Where tools ask: who connects is sent what he may see, as JSON, and that is all. One thread answers one at a time.

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use orion_transport::socket::peer_credentials;
use tracing::{debug, warn};

use super::directory::{Directory, Sees};
use crate::engine::carrier::LocalSocket;
use crate::engine::peer::{Source, strangeness};

/// Who does not read goes without.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);

pub fn open(path: &Path, directory: Arc<Directory>) -> Result<Arc<LocalSocket>, String> {
    // Everybody may ask about his own.
    let socket = Arc::new(LocalSocket::listen(path, true).map_err(|why| format!("--stats: {why}"))?);
    let listening = Arc::clone(&socket);
    let serve = move || {
        loop {
            match listening.listener.accept() {
                Ok((tool, _)) => {
                    if let Err(error) = answer(tool, &directory) {
                        debug!(%error, "a tool did not take what it asked for");
                    }
                }
                Err(e) => {
                    warn!(error = %e, "accepting a tool failed");
                    // Most likely there are no descriptors left.
                    std::thread::sleep(Duration::from_millis(200));
                }
            }
        }
    };
    std::thread::Builder::new()
        .name("stats".into())
        .spawn(serve)
        .map(|_| socket)
        .map_err(|e| format!("starting the thread for --stats failed: {e}"))
}

fn answer(tool: UnixStream, directory: &Directory) -> io::Result<()> {
    tool.set_write_timeout(Some(WRITE_TIMEOUT))?;
    let tool = OwnedFd::from(tool);
    let sees = sees(&tool)?;
    let text = serde_json::to_vec(&directory.report(sees)).map_err(io::Error::other)?;
    UnixStream::from(tool).write_all(&text)
}

/// Our own user beside us sees all. In a container the same number is somebody else, who sees what he has.
fn sees(tool: &OwnedFd) -> io::Result<Sees> {
    if strangeness(tool).is_none() {
        return Ok(Sees::All);
    }
    Ok(Sees::Of(Source::User(peer_credentials(tool.as_fd())?.uid)))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use orion_telemetry::report::Report;

    use super::super::directory::tests::watched;
    use super::*;

    #[test]
    fn who_connects_is_told_and_who_does_not_read_holds_nobody_up() {
        let folder = std::env::temp_dir().join(format!("orion-stats-{}", std::process::id()));
        let path = folder.join("oriond.stats.sock");
        let directory = Arc::new(Directory::new());
        directory.begins(5, watched(Source::User(7)));
        let socket = open(&path, directory).expect("it listens");
        let _silent = UnixStream::connect(&path).expect("it accepts");
        let mut text = String::new();
        UnixStream::connect(&path).expect("it accepts").read_to_string(&mut text).expect("an answer");
        let report: Report = serde_json::from_str(&text).expect("JSON");
        assert_eq!(report.sessions.iter().map(|s| s.session).collect::<Vec<_>>(), [5]);
        socket.remove();
        std::fs::remove_dir_all(&folder).expect("removing");
    }
}
