//! The error log: lines that say why a call failed.
//!
//! The driver of CUDA 12.9 and later has one in each process, so this process has one too. It holds what the shim has
//! to say itself, and what the worker's driver logged about a call, which comes ahead of the call's reply. Everything
//! works before `cuInit`.

// UNSAFETY: calls the application's callbacks with their own data.

use std::cell::Cell;
use std::ffi::c_void;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, OnceLock};

use orion_cuda::sys::*;
use orion_transport::environment;
use orion_transport::thread::Uncancelled;

use crate::state::process::state;

pub const LINE_BYTES_MAX: usize = 256;

thread_local! {
    pub static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Logs what the shim itself has to say about a call. `function` may be empty.
pub fn error(function: &str, message: &str) {
    let place = if function.is_empty() { String::new() } else { format!("[{function}]") };
    add(CU_LOG_LEVEL_ERROR, &format!("{}[CUDA][E]{place} {message}", prefix()));
}

/// Logs what the worker's driver said. It may have put time and thread in front, or not.
pub fn from_driver(level: CUlogLevel, message: &[u8]) {
    let message = String::from_utf8_lossy(message);
    let message = message.trim_end_matches(['\n', '\0']);
    if message.starts_with('[') {
        return add(level, message);
    }
    let severity = if level == CU_LOG_LEVEL_ERROR { 'E' } else { 'W' };
    add(level, &format!("{}[CUDA][{severity}] {message}", prefix()));
}

/// Local time and thread, as in the driver's lines.
fn prefix() -> String {
    // SAFETY: plain calls with valid places.
    unsafe {
        let mut now: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_REALTIME, &mut now);
        let mut local: libc::tm = std::mem::zeroed();
        libc::localtime_r(&now.tv_sec, &mut local);
        let (h, m, s, ms) = (local.tm_hour, local.tm_min, local.tm_sec, now.tv_nsec / 1_000_000);
        format!("[{h:02}:{m:02}:{s:02}.{ms:03}][{}]", libc::syscall(libc::SYS_gettid))
    }
}

/// Keeps one line, writes it where `CUDA_LOG_FILE` says, and calls back.
fn add(level: CUlogLevel, message: &str) {
    let _whole = Uncancelled::hold();
    let mut line: String = message.chars().map(|c| if c == '\n' { ' ' } else { c }).collect();
    line.truncate(line.floor_char_boundary(LINE_BYTES_MAX - 1));
    line.push('\n');
    write_to_file(&line);
    state().log.lines.lock().push(line.clone());
    line.pop();
    call_back(level, line);
}

fn call_back(level: CUlogLevel, mut message: String) {
    // What a callback causes to be logged is not told to callbacks.
    if IN_CALLBACK.get() {
        return;
    }
    let _calling = state().log.calling.lock_after_panic();
    let callbacks = state().log.callbacks.lock().clone();
    let length = message.len();
    message.push('\0');
    IN_CALLBACK.set(true);
    for c in callbacks {
        // Each gets a copy of its own: the C type lets it write.
        let mut text = message.clone().into_bytes();
        // SAFETY: the application's function with its own data, and a NUL-terminated text of that length.
        unsafe { (c.function)(c.data as *mut c_void, level, text.as_mut_ptr().cast(), length) };
    }
    IN_CALLBACK.set(false);
}

fn write_to_file(line: &str) {
    enum Place {
        Nowhere,
        Stdout,
        Stderr,
        File(Mutex<std::fs::File>),
    }
    // Looked at when the first line comes, as the driver does: a wrong path is no reason not to start.
    static PLACE: OnceLock<Place> = OnceLock::new();
    let place = PLACE.get_or_init(|| {
        let Some(path) = environment::var_os("CUDA_LOG_FILE").filter(|p| !p.is_empty()) else { return Place::Nowhere };
        match path.as_bytes() {
            b"stdout" => Place::Stdout,
            b"stderr" => Place::Stderr,
            // Appended to: programs that start others share the variable.
            _ => match std::fs::OpenOptions::new().create(true).append(true).open(&path) {
                Ok(file) => Place::File(Mutex::new(file)),
                Err(e) => {
                    crate::say!("opening CUDA_LOG_FILE={} failed: {e}; nothing is logged", path.display());
                    Place::Nowhere
                }
            },
        }
    });
    // A log that cannot be written has nowhere to say so.
    let _ = match place {
        Place::Nowhere => Ok(()),
        Place::Stdout => {
            crate::report::output::print(line.as_bytes());
            Ok(())
        }
        Place::Stderr => {
            orion_transport::client::say::put(line.as_bytes());
            Ok(())
        }
        Place::File(file) => file.lock().map_or(Ok(()), |mut f| f.write_all(line.as_bytes())),
    };
}
