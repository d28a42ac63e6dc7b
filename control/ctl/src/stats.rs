//! What an oriond on this machine tells of its sessions, at its socket for that: to whoever runs it of all, and to
//! others of their own.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use orion_telemetry::report::{BYTES_MAX, Report, VERSION};
use orion_transport::socket::connect_local;

const TIMEOUT: Duration = Duration::from_secs(5);

/// Where oriond answers if nothing else is said.
#[must_use]
pub fn default_socket() -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
    let found = [
        runtime.map(|folder| PathBuf::from(folder).join("orion/oriond.stats.sock")),
        Some(PathBuf::from("/run/orion/oriond.stats.sock")),
        own_user().map(|uid| format!("/tmp/orion-{uid}/oriond.stats.sock").into()),
    ];
    let mut places = found.into_iter().flatten();
    let first = places.clone().next().expect("one has no condition");
    places.find(|place| place.exists()).unwrap_or(first)
}

fn own_user() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().next()?.parse().ok()
}

/// Asks oriond.
///
/// # Errors
///
/// In words.
pub fn ask(socket: &Path) -> Result<Report, String> {
    let name = socket.display();
    let failed = |e: std::io::Error| {
        format!("asking oriond at {name} failed: {e}; does it run, and with --stats there? See --stats")
    };
    let connection = connect_local(socket, TIMEOUT.as_secs()).map_err(failed)?;
    connection.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
    let mut text = String::new();
    connection.take(BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    if text.is_empty() {
        return Err(format!("oriond at {name} is asked by as many tools as it answers at a time; ask again"));
    }
    parse(&text).map_err(|why| format!("what oriond at {name} says is {why}"))
}

/// One report.
///
/// # Errors
///
/// In words, to follow "is".
pub fn parse(text: &str) -> Result<Report, String> {
    let report: Report = serde_json::from_str(text).map_err(|e| format!("no report: {e}"))?;
    match report.version {
        VERSION => Ok(report),
        other => Err(of_version(other)),
    }
}

/// What is said of a report of another version.
pub fn of_version(other: u32) -> String {
    format!("a report of version {other}, and this tool reads version {VERSION}")
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    const LISTENS: &str = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(0); \
                           print(flush=True); sys.stdin.read()";

    /// One that was stopped, say: its queue is full and stays so.
    #[test]
    fn an_oriond_that_takes_nobody_in_is_not_waited_for_without_end() {
        let socket = std::env::temp_dir().join(format!("orion-stats-queue-{}", std::process::id()));
        let mut python = Command::new("python3");
        python.args(["-c", LISTENS]).arg(&socket).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut listens = python.spawn().expect("python3 starts");
        listens.stdout.take().expect("a pipe").read_exact(&mut [0]).expect("it listens");
        let first = connect_local(&socket, 1).expect("a queue of one");
        let why = ask(&socket).expect_err("the queue is full");
        assert!(why.starts_with("asking oriond at ") && why.contains("has taken nobody in"), "{why}");
        drop((first, listens.stdin.take()));
        listens.wait().expect("it ends");
        std::fs::remove_file(&socket).expect("removing");
    }
}
