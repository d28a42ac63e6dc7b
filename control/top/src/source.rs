//! Where reports come from: the socket of an oriond on this machine, the controller of a pool, or what was recorded.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

pub use orion_ctl::stats::{ask, default_socket};
use orion_ctl::stats::{of_version, parse};
use orion_ctl::{Place, said};
use orion_proto::{ListSessionsRequest, Sessions};
use orion_telemetry::report::{BYTES_MAX, Report, VERSION};

/// The controller of a pool, which has heard of sessions from their nodes.
pub struct Controller {
    runtime: tokio::runtime::Runtime,
    place: Place,
}

impl Controller {
    /// # Errors
    ///
    /// In words.
    pub fn new(place: Place) -> Result<Controller, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Ok(Controller { runtime: runtime.map_err(|e| format!("starting a runtime failed: {e}"))?, place })
    }

    /// # Errors
    ///
    /// In words.
    pub fn ask(&self) -> Result<OfPool, String> {
        let (sessions, insecure) = self.runtime.block_on(async {
            let (mut pool, insecure) = self.place.reach().await?;
            let sessions = pool.list_sessions(ListSessionsRequest::default()).await.map_err(|status| said(&status))?;
            Ok::<_, String>((sessions, insecure.is_some()))
        })?;
        let Sessions { reports, left_out } = sessions.into_inner();
        let read: Vec<Report> = reports.iter().filter_map(|text| parse(text).ok()).collect();
        let left_out = u64::from(left_out) + (reports.len() - read.len()) as u64;
        Ok(OfPool { pool: read, left_out, insecure })
    }
}

/// What a controller has said.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct OfPool {
    /// What each session does, as its node has last said.
    pub pool: Vec<Report>,
    /// How many say it in the words of another version, or have no room in one answer.
    pub left_out: u64,
    /// Whether others may speak to the controller in the clear.
    pub insecure: bool,
}

/// One look.
#[derive(Debug, PartialEq)]
pub enum Recorded {
    OfNode(Report),
    OfPool(OfPool),
}

/// Of a line of a recording. A pool's look has a report of each session, an oriond's one of all.
const LINE_BYTES_MAX: u64 = 16 * BYTES_MAX;

/// A file of looks, a line each.
pub struct Record(File);

impl Record {
    /// # Errors
    ///
    /// In words.
    pub fn create(path: &Path) -> Result<Record, String> {
        File::create(path).map(Record).map_err(|e| format!("creating --record {}: {e}", path.display()))
    }

    /// # Errors
    ///
    /// In words.
    pub fn keep(&mut self, look: &impl serde::Serialize) -> Result<(), String> {
        let line = serde_json::to_string(look).expect("plain data") + "\n";
        self.0.write_all(line.as_bytes()).map_err(|e| format!("writing to --record: {e}"))
    }
}

/// What was recorded, one look after the other.
pub struct Replay {
    lines: BufReader<File>,
    path: PathBuf,
    number: usize,
}

impl Replay {
    /// # Errors
    ///
    /// In words.
    pub fn open(path: &Path) -> Result<Replay, String> {
        let file = File::open(path).map_err(|e| format!("opening --replay {}: {e}", path.display()))?;
        Ok(Replay { lines: BufReader::new(file), path: path.to_owned(), number: 0 })
    }

    /// `None` at the end.
    ///
    /// # Errors
    ///
    /// In words.
    #[allow(clippy::should_implement_trait, reason = "it fails, which an iterator's end would hide")]
    pub fn next(&mut self) -> Result<Option<Recorded>, String> {
        let mut line = String::new();
        self.number += 1;
        let place = format!("{} line {}", self.path.display(), self.number);
        let read = self.lines.by_ref().take(LINE_BYTES_MAX).read_line(&mut line);
        match read.map_err(|e| format!("reading {place}: {e}"))? {
            0 => Ok(None),
            _ => recorded(line.trim_end()).map(Some).map_err(|why| format!("{place} is {why}")),
        }
    }
}

fn recorded(line: &str) -> Result<Recorded, String> {
    let Ok(look) = serde_json::from_str::<OfPool>(line) else { return parse(line).map(Recorded::OfNode) };
    match look.pool.iter().find(|report| report.version != VERSION) {
        None => Ok(Recorded::OfPool(look)),
        Some(other) => Err(of_version(other.version)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_recorded_is_replayed_and_what_is_no_report_is_said() {
        let path = std::env::temp_dir().join(format!("orion-top-{}", std::process::id()));
        let mut record = Record::create(&path).expect("a file");
        let [first, second] = [1, 2].map(|monotonic_ns| Report { version: VERSION, monotonic_ns, ..Report::default() });
        let pool = OfPool { pool: vec![first.clone(), second.clone()], left_out: 3, insecure: true };
        record.keep(&first).and_then(|()| record.keep(&pool)).expect("they are written");
        let other = OfPool { pool: vec![second, Report { version: VERSION + 1, ..first.clone() }], ..pool.clone() };
        record.keep(&other).expect("it is written");
        let mut replay = Replay::open(&path).expect("it is there");
        assert_eq!(replay.next(), Ok(Some(Recorded::OfNode(first))));
        assert_eq!(replay.next(), Ok(Some(Recorded::OfPool(pool))));
        let why = replay.next().expect_err("a report of another version");
        assert!(why.contains("line 3 is a report of version") && replay.next() == Ok(None), "{why}");
        std::fs::write(&path, "{\"version\":1}\n").expect("it is written");
        let why = Replay::open(&path).and_then(|mut replay| replay.next()).expect_err("no report");
        assert!(why.contains("line 1 is no report"), "{why}");
        std::fs::remove_file(&path).expect("removing");
    }
}
