//! The log of one program, as the original keeps it: a file in `~/.orion/log` for each process that uses CUDA, and on
//! standard error what client.conf wants there.
//!
//! The process is the application's, so no descriptor is kept open and nothing waits: a line opens the file, is
//! written, and closes it. There are few: how the session began and ended, and what is said to the user anyway.

// UNSAFETY: asks for the local time.

use std::fmt::Arguments;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use orion_wire::client_conf::{Level, LogConf};
use orion_wire::text::acts;

use super::say;

const FILE_BYTES_MAX: u64 = 256 << 10;
/// Files of one user; the oldest go.
const FILES_MAX: usize = 100;

static LOG: OnceLock<Log> = OnceLock::new();

struct Log {
    file: Option<PathBuf>,
    file_level: Level,
    /// Nothing where client.conf does not speak of the screen; then it has what is said to users, and no more.
    screen: Option<Level>,
    with_time: bool,
    /// A child that was forked writes nothing to its parent's file.
    pid: u32,
    bytes: AtomicU64,
    /// What the process had.
    session: OnceLock<String>,
}

/// Logs from now on, as client.conf says. `home` is the user's; `program` is part of the file's name.
///
/// # Errors
///
/// What kept the file from being made, where client.conf asks for one. Without its word a home that cannot be written
/// is as good as none.
pub fn begin(conf: &LogConf, home: Option<&Path>, program: &str) -> Result<(), String> {
    let (file, failure) = match home.filter(|_| conf.to_file.unwrap_or(true)).map(|home| new_file(home, program)) {
        None => (None, None),
        Some(Ok(path)) => (Some(path), None),
        Some(Err(e)) => (None, conf.to_file.map(|_| format!("log_to_file of client.conf: {e}"))),
    };
    let to_screen = conf.to_screen.unwrap_or(false);
    let _ = LOG.set(Log {
        file,
        file_level: conf.file_level.unwrap_or(Level::Info),
        screen: to_screen.then(|| conf.level.unwrap_or(Level::Info)),
        with_time: conf.with_time.unwrap_or(true),
        pid: std::process::id(),
        bytes: AtomicU64::new(0),
        session: OnceLock::new(),
    });
    say::keep_by(|text| to_file(Level::Warning, text), conf.to_screen == Some(false));
    failure.map_or(Ok(()), Err)
}

/// What the process has from now on, as "allocation ID …".
pub fn has(session: String) {
    LOG.get().into_iter().for_each(|log| drop(log.session.set(session.clone())));
}

/// The last line, in the original's words, by which its documents show that a program has had a GPU.
pub fn end() {
    match LOG.get().filter(|log| log.pid == std::process::id()).map(|log| log.session.get()) {
        Some(Some(session)) => tell(false, format_args!("Client exits with {session}")),
        Some(None) => tell(false, format_args!("Client exits without allocation ID.")),
        None => {}
    }
}

/// What is worth a line in the file, and on the screen for who has asked for it: by `ORION_VERBOSE`, which is said as
/// all else is, or by client.conf.
pub fn tell(is_verbose: bool, text: Arguments) {
    let text = text.to_string();
    to_file(Level::Info, &text);
    let Some(log) = LOG.get() else {
        if is_verbose {
            say::show(&text);
        }
        return;
    };
    if log.screen.is_some_and(|level| level >= Level::Info) && !say::quiet() {
        say::put(log.line(Level::Info, &text).as_bytes());
    } else if is_verbose {
        say::show(&text);
    }
}

/// One line of the file. One that cannot be written has nowhere to say so.
pub fn to_file(level: Level, text: &str) {
    let Some(log) = LOG.get() else { return };
    let Some(path) = log.file.as_ref().filter(|_| level <= log.file_level && log.pid == std::process::id()) else {
        return;
    };
    let line = log.line(level, text);
    // Relaxed: a bound, which a few lines more do not hurt.
    let before = log.bytes.fetch_add(line.len() as u64, Ordering::Relaxed);
    if before <= FILE_BYTES_MAX && orion_ring::may_have(before + line.len() as u64) {
        let opened = OpenOptions::new().append(true).custom_flags(libc::O_NOFOLLOW).open(path);
        let _ = opened.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}

impl Log {
    fn line(&self, level: Level, text: &str) -> String {
        let text: String = text.chars().map(|c| if acts(c) { ' ' } else { c }).collect();
        match self.with_time {
            true => format!("{} [{level}] {text}\n", local_time(c"%Y-%m-%d %H:%M:%S")),
            false => format!("[{level}] {text}\n"),
        }
    }
}

/// Makes `~/.orion/log/TIME-PID-PROGRAM.log`, for its owner alone, and removes what is too old.
fn new_file(home: &Path, program: &str) -> Result<PathBuf, String> {
    let (settings, folder) = (home.join(".orion"), home.join(".orion/log"));
    // One after the other: a home that is not there is nobody's to make.
    for folder in [&settings, &folder] {
        match DirBuilder::new().mode(0o700).create(folder) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                return Err(format!("making {} failed: {e}", folder.display()));
            }
            _ => {}
        }
    }
    remove_oldest(&folder, FILES_MAX - 1);
    let plain: String = program.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.')).collect();
    let path = folder.join(format!("{}-{}-{plain}.log", local_time(c"%Y%m%d_%H%M%S"), std::process::id()));
    let opened = OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW).open(&path);
    opened.map_err(|e| format!("making {} failed: {e}", path.display()))?;
    Ok(path)
}

/// Leaves so many: names begin with the time, and only files that are named as ours count.
fn remove_oldest(folder: &Path, left: usize) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    names.retain(|name| is_ours(&name.to_string_lossy()));
    names.sort();
    for name in &names[..names.len().saturating_sub(left)] {
        let _: io::Result<()> = std::fs::remove_file(folder.join(name));
    }
}

/// `20260101_120000-4711-python3.log`.
fn is_ours(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let mut parts = name.strip_suffix(".log").unwrap_or_default().splitn(3, '-');
    let (time, pid) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let is_time = time.len() == 15 && time.split_once('_').is_some_and(|(d, t)| is_number(d) && is_number(t));
    is_time && is_number(pid) && parts.next().is_some()
}

fn local_time(form: &std::ffi::CStr) -> String {
    let mut text = [0u8; 32];
    // SAFETY: plain calls with valid places; strftime writes no more than it is told there is.
    let bytes = unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut local: libc::tm = std::mem::zeroed();
        libc::localtime_r(&now, &mut local);
        libc::strftime(text.as_mut_ptr().cast(), text.len(), form.as_ptr(), &local)
    };
    String::from_utf8_lossy(&text[..bytes]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_files_of_our_own_go() {
        let home = std::env::temp_dir().join(format!("orion-client-log-{}", std::process::id()));
        let folder = home.join(".orion/log");
        std::fs::create_dir_all(&folder).expect("a new folder");
        for name in ["mine.log", "20250101_000000-1-a.log", "20250102_000000-2-b-c.log", "20250103_000000-x-b.log"] {
            std::fs::write(folder.join(name), "").expect("writing");
        }
        remove_oldest(&folder, 1);
        let path = new_file(&home, "py thon/3").expect("a file");
        let mut names: Vec<_> = std::fs::read_dir(&folder).expect("there").flatten().map(|e| e.file_name()).collect();
        names.sort();
        let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&path).expect("made"));
        std::fs::remove_dir_all(&home).expect("removing");
        assert_eq!(names.len(), 4, "{names:?}");
        assert_eq!(names[0], "20250102_000000-2-b-c.log");
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        assert!(is_ours(&name) && name.ends_with("-python3.log"), "{name}");
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_home_that_is_not_there_is_not_made() {
        let home = std::env::temp_dir().join(format!("orion-client-no-home-{}", std::process::id()));
        let why = new_file(&home, "program").expect_err("no home");
        assert!(why.contains(".orion failed: No such file") && !home.exists(), "{why}");
    }
}
