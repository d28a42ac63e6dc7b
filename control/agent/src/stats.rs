//! What the oriond beside the agent says of its sessions, for the controller to pass on.

use std::collections::HashMap;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use orion_telemetry::report::{BYTES_MAX, Report, Session};
use orion_transport::socket::connect_local;
use tracing::info;

use crate::cli::Cli;

/// oriond answers at once.
const PATIENCE: Duration = Duration::from_secs(2);
/// Of one session. Most are a tenth of it.
const REPORT_BYTES_MAX: usize = 64 << 10;
/// Of all of them: a message has to be smaller than what gRPC takes.
const REPORTS_BYTES_MAX: usize = 2 << 20;

pub struct Stats {
    /// Where it may listen.
    places: Vec<PathBuf>,
    is_told: bool,
}

impl Stats {
    pub fn new(cli: &Cli) -> Stats {
        let places = match &cli.stats {
            Some(path) => vec![path.clone()],
            // As oriond chooses: beside its socket for programs if it has one, else beside that of its pool.
            None => vec![cli.pool.with_file_name("oriond.stats.sock"), cli.pool.with_extension("stats.sock")],
        };
        Stats { places, is_told: false }
    }

    /// By lease, as JSON. What cannot be had is said once; nothing else depends on it.
    pub fn reports(&mut self, node: &str) -> HashMap<String, String> {
        match self.places.iter().find_map(|place| connect_local(place, PATIENCE.as_secs()).ok()).map(read) {
            Some(Ok(report)) => {
                self.is_told = false;
                by_lease(&report, node)
            }
            Some(Err(why)) => self.tell(&why),
            None => {
                let places: Vec<String> = self.places.iter().map(|place| place.display().to_string()).collect();
                self.tell(&format!("nobody answers at {}", places.join(" or ")))
            }
        }
    }

    fn tell(&mut self, why: &str) -> HashMap<String, String> {
        if !std::mem::replace(&mut self.is_told, true) {
            info!(why, "orion-top will show no sessions of this node through the controller; see --stats");
        }
        HashMap::new()
    }
}

fn read(socket: UnixStream) -> Result<Report, String> {
    let failed = |e: std::io::Error| format!("reading oriond's statistics failed: {e}");
    socket.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let mut text = String::new();
    socket.take(BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    if text.is_empty() {
        return Err("oriond is asked by as many tools as it answers at a time".into());
    }
    serde_json::from_str(&text).map_err(|e| format!("oriond's statistics are not of this version: {e}"))
}

/// By the name that the node has in the pool. Where there is not room for all, the longest are left out: how long one
/// is, is up to the session.
fn by_lease(report: &Report, node: &str) -> HashMap<String, String> {
    let leased = report.sessions.iter().filter_map(|session| Some((session.lease.clone()?, session)));
    let told = leased.map(|(lease, session)| {
        // Addresses mean something on the node alone, and whoever asks the controller need not know them.
        let session = Session { connections: Vec::new(), ..session.clone() };
        let one = Report { node: node.to_owned(), sessions: vec![session], ..report.clone_head() };
        (lease, serde_json::to_string(&one).expect("plain data"))
    });
    let mut told: Vec<(String, String)> = told.filter(|(_, text)| text.len() <= REPORT_BYTES_MAX).collect();
    told.sort_by_key(|(_, text)| text.len());
    let mut all = 0;
    let fits = |(_, text): &(String, String)| {
        all += text.len();
        all <= REPORTS_BYTES_MAX
    };
    told.into_iter().take_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use orion_telemetry::report::{Client, Connection};

    use super::*;

    #[test]
    fn each_leased_session_is_a_report_and_what_is_too_long_is_none() {
        let session = |number, lease: Option<&str>, program: &str| Session {
            session: number,
            lease: lease.map(str::to_owned),
            client: Client { program: program.to_owned(), ..Client::default() },
            connections: vec![Connection { lane: None, peer: ([10, 0, 0, 7], 4711).into(), port: 7 }],
            ..Session::default()
        };
        let long = "x".repeat(REPORT_BYTES_MAX);
        let sessions = vec![session(1, Some("a"), "p"), session(2, None, "p"), session(3, Some("b"), &long)];
        let told = by_lease(&Report { node: "here".into(), sessions, ..Report::default() }, "n");
        assert_eq!(told.keys().collect::<Vec<_>>(), ["a"]);
        let report: Report = serde_json::from_str(&told["a"]).expect("JSON");
        assert_eq!((report.node.as_str(), report.sessions[0].session), ("n", 1));
        assert_eq!(report.sessions[0].connections, []);
    }

    #[test]
    fn sessions_of_which_much_is_told_keep_nobody_else_s_out() {
        let session = |number: u64, program: &str| Session {
            session: number,
            lease: Some(number.to_string()),
            client: Client { program: program.to_owned(), ..Client::default() },
            ..Session::default()
        };
        let long = "x".repeat(REPORT_BYTES_MAX - 4096);
        let mut sessions: Vec<Session> = (0..40).map(|number| session(number, &long)).collect();
        sessions.extend((40..50).map(|number| session(number, "p")));
        let told = by_lease(&Report { node: "here".into(), sessions, ..Report::default() }, "n");
        assert!((40..50).all(|number: u64| told.contains_key(&number.to_string())), "{:?}", told.keys());
        assert!(told.len() > 40 && told.values().map(String::len).sum::<usize>() <= REPORTS_BYTES_MAX);
    }
}
