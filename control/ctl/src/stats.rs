//! What an oriond on this machine tells of its sessions, at its socket for that: to whoever runs it of all, and to
//! others of their own.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use orion_telemetry::report::{Report, VERSION};

/// A report of a thousand sessions is smaller.
pub const BYTES_MAX: u64 = 64 << 20;
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
    let connection = UnixStream::connect(socket).map_err(failed)?;
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
        other => Err(format!("a report of version {other}, and this tool reads version {VERSION}")),
    }
}
