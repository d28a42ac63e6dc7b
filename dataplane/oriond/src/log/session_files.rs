//! A file for each session, as the original has them in `/var/log/orion/session`: every line of the log that names the
//! session, and more that only a session's own file has.
//!
//! A tenant decides how many sessions there are and what goes wrong in them, so a file has a size and the folder a
//! number of files that they do not exceed; the oldest go. Whoever logs puts a line into a queue, and the thread "log
//! sessions" writes it.

// UNSAFETY: asks for the local time, and reads the processor's clock.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// Lines of this target are in the session's own file and nowhere else.
pub const OF_A_SESSION: &str = "session";

/// Lines that wait to be written. What finds no room is counted, and the count is in the next line's file.
const LINES_MAX: usize = 1024;
const LINE_BYTES_MAX: usize = 4096;
const FILE_BYTES_MAX: u64 = 256 << 10;
/// Sessions that are over and still known, in case that something is said of them.
const OVER_MAX: usize = 256;

/// Where the files are, and how many of them.
#[derive(Debug, Clone)]
pub struct Settings {
    pub folder: PathBuf,
    pub files_max: usize,
    pub level: LevelFilter,
    pub with_time: bool,
}

pub enum Message {
    Line(Line),
    /// Answered once everything before it was written.
    Flush(SyncSender<()>),
}

pub struct Line {
    session: u64,
    is_last: bool,
    text: String,
}

/// Takes lines and never waits.
#[derive(Clone)]
pub struct SessionFiles {
    sender: SyncSender<Message>,
    lost: Arc<AtomicU64>,
    level: LevelFilter,
    with_time: bool,
}

impl SessionFiles {
    /// Makes the folder, for its owner and group alone, and starts the thread that writes.
    pub fn start(settings: Settings) -> Result<SessionFiles, String> {
        let Settings { folder, files_max, level, with_time } = settings;
        let made = match DirBuilder::new().mode(0o750).create(&folder) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
            made => made,
        };
        made.map_err(|e| {
            let above = folder.parent().unwrap_or(&folder).display();
            format!(
                "making the folder {} for logs of sessions failed: {e}; make {above}, or name another one",
                folder.display()
            )
        })?;
        let (sender, receiver) = sync_channel(LINES_MAX);
        let files = SessionFiles { sender, lost: Arc::default(), level, with_time };
        let (lost, mut writer) = (files.lost.clone(), Writer { folder, files_max, sessions: BTreeMap::new() });
        std::thread::Builder::new()
            .name("log sessions".into())
            .spawn(move || write_all(&receiver, &mut writer, &lost))
            .map_err(|e| format!("starting the thread of sessions' logs failed: {e}"))?;
        Ok(files)
    }

    pub fn sender(&self) -> &SyncSender<Message> {
        &self.sender
    }
}

impl<S: Subscriber> Layer<S> for SessionFiles {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let level = *event.metadata().level();
        if level > self.level {
            return;
        }
        let mut said = Said::default();
        event.record(&mut said);
        // 0 is a worker that has no session.
        let Some(session) = said.session.filter(|session| *session > 0) else { return };
        let mut text = head(level, self.with_time);
        text.push_str(&said.message);
        text.push_str(&said.fields);
        text.truncate(text.floor_char_boundary(LINE_BYTES_MAX));
        text.push('\n');
        let is_last = said.message.starts_with("session over");
        if self.sender.try_send(Message::Line(Line { session, is_last, text })).is_err() {
            // Relaxed: a count, and nothing hangs on when it is seen.
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The processor's clock, the local time and the level, in the original's form.
fn head(level: Level, with_time: bool) -> String {
    let level = if level == Level::WARN { "WARNING" } else { level.as_str() };
    match with_time {
        // SAFETY: every processor with AVX2 has it, and oriond runs on no other.
        true => format!("{}:\t{} [{level}] ", unsafe { std::arch::x86_64::_rdtsc() }, local_time("%Y-%m-%d %H:%M:%S")),
        false => format!("[{level}] "),
    }
}

fn local_time(form: &str) -> String {
    let mut text = [0u8; 64];
    let form = std::ffi::CString::new(form).expect("a literal without NUL");
    // SAFETY: plain calls with valid places; strftime writes no more than it is told there is.
    let bytes = unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut local: libc::tm = std::mem::zeroed();
        libc::localtime_r(&now, &mut local);
        libc::strftime(text.as_mut_ptr().cast(), text.len(), form.as_ptr(), &local)
    };
    String::from_utf8_lossy(&text[..bytes]).into_owned()
}

#[derive(Default)]
struct Said {
    session: Option<u64>,
    message: String,
    fields: String,
}

impl Visit for Said {
    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "session" => self.session = Some(value),
            _ => self.record_debug(field, &value),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

fn write_all(from: &Receiver<Message>, writer: &mut Writer, lost: &AtomicU64) {
    while let Ok(message) = from.recv() {
        match message {
            Message::Line(line) => {
                let count = lost.load(Ordering::Relaxed);
                let note = format!("{count} lines of sessions' logs were lost here\n");
                if count > 0 && writer.put(line.session, &note).is_ok() {
                    lost.fetch_sub(count, Ordering::Relaxed);
                }
                if writer.put(line.session, &line.text).is_err() {
                    lost.fetch_add(1, Ordering::Relaxed);
                }
                if line.is_last {
                    writer.is_over(line.session);
                }
            }
            Message::Flush(done) => drop(done),
        }
    }
}

/// Files by the sessions that they are of.
struct Writer {
    folder: PathBuf,
    files_max: usize,
    sessions: BTreeMap<u64, Of>,
}

struct Of {
    path: PathBuf,
    bytes: u64,
    is_over: bool,
}

impl Writer {
    /// A file is open only while it is written to: there are as many as sessions.
    fn put(&mut self, session: u64, text: &str) -> io::Result<()> {
        if !self.sessions.contains_key(&session) {
            self.remove_oldest();
            let path = self.folder.join(format!("{}-{session}.log", local_time("%Y%m%d_%H%M%S")));
            self.sessions.insert(session, Of { path, bytes: 0, is_over: false });
        }
        let of = self.sessions.get_mut(&session).expect("it is there by now");
        if of.bytes >= FILE_BYTES_MAX {
            return Ok(());
        }
        let is_full = of.bytes + text.len() as u64 > FILE_BYTES_MAX;
        let text = if is_full { "more is not written: the file is full\n" } else { text };
        open(&of.path)?.write_all(text.as_bytes())?;
        of.bytes = if is_full { FILE_BYTES_MAX } else { of.bytes + text.len() as u64 };
        Ok(())
    }

    fn is_over(&mut self, session: u64) {
        self.sessions.get_mut(&session).into_iter().for_each(|of| of.is_over = true);
        let over: Vec<u64> = self.sessions.iter().filter(|(_, of)| of.is_over).map(|(session, _)| *session).collect();
        for session in over.iter().take(over.len().saturating_sub(OVER_MAX)) {
            self.sessions.remove(session);
        }
    }

    /// Leaves room for one more. Names begin with the time, and only files that are named as ours count.
    fn remove_oldest(&self) {
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return };
        let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
        names.retain(|name| is_ours(&name.to_string_lossy()));
        names.sort();
        let more = (names.len() + 1).saturating_sub(self.files_max.max(1));
        for name in &names[..more] {
            let _ = std::fs::remove_file(self.folder.join(name));
        }
    }
}

/// `20260101_120000-7.log`.
fn is_ours(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts = name.strip_suffix(".log").and_then(|stem| stem.split_once('-'));
    parts.is_some_and(|(time, session)| {
        time.len() == 15
            && time.split_once('_').is_some_and(|(d, t)| is_number(d) && is_number(t))
            && is_number(session)
    })
}

/// Not what somebody has put there for us to follow.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o640).custom_flags(libc::O_NOFOLLOW).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_their_number_are_bounded() {
        let folder = std::env::temp_dir().join(format!("oriond-session-files-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a new folder");
        std::fs::write(folder.join("mine.log"), "kept").expect("writing");
        let mut writer = Writer { folder: folder.clone(), files_max: 3, sessions: BTreeMap::new() };
        let line = format!("{}\n", "x".repeat(4095));
        for session in 1..=5 {
            (0..100).for_each(|_| writer.put(session, &line).expect("it can be written"));
            writer.is_over(session);
        }
        let mut sizes = BTreeMap::new();
        for entry in std::fs::read_dir(&folder).expect("the folder").flatten() {
            sizes.insert(entry.file_name().to_string_lossy().into_owned(), entry.metadata().expect("a file").len());
        }
        std::fs::remove_dir_all(&folder).expect("removing");
        assert_eq!(sizes.remove("mine.log"), Some(4));
        assert_eq!(sizes.len(), 3, "{sizes:?}");
        assert!(sizes.keys().all(|name| is_ours(name)) && sizes.values().all(|bytes| *bytes <= FILE_BYTES_MAX + 64));
        assert!(sizes.keys().any(|name| name.ends_with("-5.log")), "{sizes:?}");
    }

    #[test]
    fn a_line_begins_as_the_originals() {
        let text = head(Level::WARN, true);
        let (clock, rest) = text.split_once(":\t").expect("a clock");
        assert!(clock.parse::<u64>().is_ok() && rest.len() == "2019-06-25 20:24:52 [WARNING] ".len(), "{text}");
        assert_eq!(head(Level::INFO, false), "[INFO] ");
    }
}
