//! oriond's own log: lines on standard error and in a file, which may be a full disk, a closed pipe or a pipe that
//! nobody reads.
//!
//! ```text
//! any thread -> tracing -> at most so many of a kind -> queue -> thread "log" -> standard error
//!                                                    -> queue -> thread "log file" -> the file
//!                      -> what names a session       -> queue -> thread "log sessions" -> the session's file
//! ```
//! Only those threads ever wait for their descriptor. What finds no room in the queue, or cannot be written, is
//! counted, and the count is the next line that gets through.

// UNSAFETY: writes to descriptors by system calls, because the standard library's macros panic when that fails.

mod session_files;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Registry;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use self::session_files::{Message as SessionMessage, SessionFiles};
pub use self::session_files::{OF_A_SESSION, Settings as SessionSettings};

/// Lines that wait for the descriptor. With [`LINE_BYTES_MAX`] at most 4 MiB.
const LINES_MAX: usize = 1024;
/// Longer lines are cut.
const LINE_BYTES_MAX: usize = 4096;
/// Warnings and errors of one kind within [`ALIKE_WINDOW`]; the rest is counted. Strangers at the door are worth a
/// line each, and there is no end of strangers.
const ALIKE_MAX: u64 = 20;
const ALIKE_WINDOW: Duration = Duration::from_secs(10);
/// How long the end of the process waits for the last lines to be written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// What workers wrote is limited worker by worker, where it is read.
pub const OF_A_WORKER: &str = "worker";

/// The log of this process; lines that are still on their way are written when it is dropped.
pub struct Log {
    queues: Vec<Queue>,
    sessions: Option<SessionFiles>,
}

/// What is written where.
pub struct Settings {
    /// On standard error: what is at least of this level.
    pub screen: Option<LevelFilter>,
    /// Added at the end of a file, which is made if there is none.
    pub file: Option<(PathBuf, LevelFilter)>,
    /// Past so many bytes the file gets `.1` behind its name, and a new one begins.
    pub file_bytes_max: u64,
    pub sessions: Option<SessionSettings>,
    pub with_time: bool,
}

/// Logs from now on.
pub fn start(settings: &Settings) -> Result<Log, String> {
    let (kinds, mut queues, mut layers) = (Kinds::default(), Vec::new(), Vec::new());
    if let Some(level) = settings.screen {
        let queue = Queue::start("log", Place::StandardError, kinds.clone())?;
        layers.push(queue.layer(level, settings.with_time));
        queues.push(queue);
    }
    if let Some((path, level)) = &settings.file {
        let file = LogFile::open(path, settings.file_bytes_max).map_err(|e| {
            let folder = path.parent().unwrap_or(path).display();
            format!(
                "opening the log file {} failed: {e}; make the folder {folder}, or name another file",
                path.display()
            )
        })?;
        let queue = Queue::start("log file", Place::File(file), kinds.clone())?;
        layers.push(queue.layer(*level, settings.with_time));
        queues.push(queue);
    }
    let sessions = settings.sessions.clone().map(SessionFiles::start).transpose()?;
    layers.extend(sessions.clone().map(Layer::boxed));
    tracing_subscriber::registry().with(layers).with(kinds).init();
    Ok(Log { queues, sessions })
}

/// One line on standard error, whatever becomes of it. For what has to be said where there is no log.
pub fn say(text: &str) {
    let _ = put(libc::STDERR_FILENO, format!("{text}\n").as_bytes());
}

impl Drop for Log {
    fn drop(&mut self) {
        let begin = Instant::now();
        self.queues.iter().for_each(|queue| flush_by(&queue.sender, Message::Flush, begin + FLUSH_TIMEOUT));
        self.sessions.iter().for_each(|files| flush_by(files.sender(), SessionMessage::Flush, begin + FLUSH_TIMEOUT));
    }
}

enum Message {
    Line(Vec<u8>),
    /// Answered once everything before it was written.
    Flush(SyncSender<()>),
}

/// Takes lines and never waits.
#[derive(Clone)]
struct Queue {
    sender: SyncSender<Message>,
    lost: Arc<AtomicU64>,
}

impl Queue {
    /// With the thread that writes what comes through it.
    fn start(name: &str, mut place: Place, kinds: Kinds) -> Result<Queue, String> {
        let (sender, receiver) = sync_channel(LINES_MAX);
        let queue = Queue { sender, lost: Arc::default() };
        let lost = queue.lost.clone();
        std::thread::Builder::new()
            .name(name.into())
            .spawn(move || write_all(&receiver, &mut place, &lost, &kinds))
            .map_err(|e| format!("starting the log's thread failed: {e}"))?;
        Ok(queue)
    }

    fn layer(&self, level: LevelFilter, with_time: bool) -> Box<dyn Layer<Registry> + Send + Sync> {
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(self.clone())
            .with_ansi(false)
            .with_target(false)
            .log_internal_errors(false);
        let wanted = filter_fn(move |of| *of.level() <= level && of.target() != OF_A_SESSION);
        if with_time { lines.with_filter(wanted).boxed() } else { lines.without_time().with_filter(wanted).boxed() }
    }
}

/// Waits until a queue's thread has written what is in it, but not longer than until then.
fn flush_by<M>(queue: &SyncSender<M>, flush: fn(SyncSender<()>) -> M, end: Instant) {
    let (done, written) = sync_channel(1);
    let mut last = flush(done);
    while Instant::now() < end {
        match queue.try_send(last) {
            Ok(()) => {
                let _ = written.recv_timeout(end.saturating_duration_since(Instant::now()));
                return;
            }
            Err(TrySendError::Full(back)) => last = back,
            Err(TrySendError::Disconnected(_)) => return,
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

enum Place {
    StandardError,
    File(LogFile),
}

impl Place {
    /// The descriptor for so many bytes more.
    fn ready_for(&mut self, bytes: usize) -> io::Result<RawFd> {
        match self {
            Place::StandardError => Ok(libc::STDERR_FILENO),
            Place::File(file) => file.ready_for(bytes as u64),
        }
    }
}

struct LogFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    bytes_max: u64,
}

impl LogFile {
    fn open(path: &Path, bytes_max: u64) -> io::Result<LogFile> {
        let file = OpenOptions::new().append(true).create(true).mode(0o640).open(path)?;
        let bytes = file.metadata()?.len();
        Ok(LogFile { path: path.to_owned(), file, bytes, bytes_max })
    }

    /// A file that has become too large goes aside, in place of the one that did so before it.
    fn ready_for(&mut self, bytes: u64) -> io::Result<RawFd> {
        if self.bytes + bytes > self.bytes_max {
            let metadata = self.file.metadata()?;
            // Somebody else may have cut it off. A terminal or a pipe has no end.
            self.bytes = if metadata.is_file() { metadata.len() } else { 0 };
            if self.bytes + bytes > self.bytes_max {
                let mut aside = self.path.clone().into_os_string();
                aside.push(".1");
                std::fs::rename(&self.path, aside)?;
                *self = LogFile::open(&self.path, self.bytes_max)?;
            }
        }
        self.bytes += bytes;
        Ok(self.file.as_raw_fd())
    }
}

impl<'a> MakeWriter<'a> for Queue {
    type Writer = &'a Queue;

    fn make_writer(&'a self) -> &'a Queue {
        self
    }
}

impl io::Write for &Queue {
    /// A whole line: the formatter writes each at once.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut kept = line[..line.len().min(LINE_BYTES_MAX)].to_vec();
        if kept.len() < line.len() {
            kept.extend_from_slice(b" (cut)\n");
        }
        if self.sender.try_send(Message::Line(kept)).is_err() {
            // Relaxed: a count, and nothing hangs on when it is seen.
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The thread "log", or "log file".
fn write_all(from: &Receiver<Message>, place: &mut Place, lost: &AtomicU64, kinds: &Kinds) {
    let mut torn = false;
    let mut put_line = |line: &[u8]| {
        let Ok(to) = place.ready_for(line.len()) else { return false };
        // What was cut off in the middle of a line is not continued in it.
        if torn && put(to, b"\n").is_err() {
            return false;
        }
        let written = put(to, line);
        torn = written.as_ref().is_err_and(|some| *some > 0);
        written.is_ok()
    };
    loop {
        kinds.look();
        match from.recv_timeout(LOOK_INTERVAL) {
            Ok(Message::Line(line)) => {
                let count = lost.load(Ordering::Relaxed);
                if count > 0 && put_line(&line_of(&format!(" WARN {count} log lines were lost here\n"))) {
                    lost.fetch_sub(count, Ordering::Relaxed);
                }
                if !put_line(&line) {
                    lost.fetch_add(1, Ordering::Relaxed);
                }
            }
            Ok(Message::Flush(done)) => drop(done),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn line_of(text: &str) -> Vec<u8> {
    let mut line = String::new();
    // A clock that cannot be written leaves the line without a time.
    let _ = SystemTime.format_time(&mut Writer::new(&mut line));
    let _ = write!(line, " {text}");
    line.into_bytes()
}

/// Everything, or how many bytes were written before it failed.
fn put(to: RawFd, bytes: &[u8]) -> Result<(), usize> {
    let mut done = 0;
    while done < bytes.len() {
        let rest = &bytes[done..];
        // SAFETY: reads the bytes of a slice.
        let n = unsafe { libc::write(to, rest.as_ptr().cast(), rest.len()) };
        if n > 0 {
            done += n as usize;
            continue;
        }
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::EINTR) => {}
            // Somebody else made the descriptor non-blocking; waiting is what this thread is for.
            Some(libc::EAGAIN) => {
                let mut fd = libc::pollfd { fd: to, events: libc::POLLOUT, revents: 0 };
                // SAFETY: one valid entry.
                unsafe { libc::poll(&raw mut fd, 1, 1000) };
            }
            _ => return Err(done),
        }
    }
    Ok(())
}

/// What has been said in the present window, by the place in the code that says it.
#[derive(Clone, Default)]
struct Kinds(Arc<Mutex<HashMap<tracing::callsite::Identifier, Kind>>>);

struct Kind {
    since: Instant,
    said: u64,
    /// The message, without the fields.
    text: String,
}

impl Kinds {
    /// Closes the windows that are over, and says what they left out.
    fn look(&self) {
        let mut over = Vec::new();
        self.0.lock().expect("nothing panics under this lock").retain(|_, kind| {
            let is_over = kind.since.elapsed() >= ALIKE_WINDOW;
            if is_over && kind.said > ALIKE_MAX {
                over.push((kind.said - ALIKE_MAX, std::mem::take(&mut kind.text)));
            }
            !is_over
        });
        for (more, text) in over {
            tracing::info!("and {more} more like it: {text}");
        }
    }
}

impl<S: Subscriber> Layer<S> for Kinds {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if *metadata.level() > Level::WARN || metadata.target() == OF_A_WORKER {
            return true;
        }
        let mut kinds = self.0.lock().expect("nothing panics under this lock");
        let kind = kinds.entry(metadata.callsite()).or_insert_with(|| {
            let mut message = Text(String::new());
            event.record(&mut message);
            Kind { since: Instant::now(), said: 0, text: message.0 }
        });
        kind.said += 1;
        kind.said <= ALIKE_MAX
    }
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}
