//! The service thread: what the worker sends without being asked.

// UNSAFETY: blocks signals for new threads and writes to the C library's stdout.

use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use orion_ring::Consumer;
use orion_wire::Reader;
use orion_wire::record::{Header, HeapRange, op};

use crate::session::Session;

static CONSUMER: Mutex<Option<Consumer>> = Mutex::new(None);

/// Keeps the event ring's reading end until the service thread starts.
pub fn keep_consumer(consumer: Consumer) {
    *CONSUMER.lock().expect("no panic happens under this lock") = Some(consumer);
}

/// Starts the one thread the shim has of its own. All signals are blocked in it: the application's handlers
/// expect the application's threads.
pub fn start_service(s: &'static Session) {
    let Some(consumer) = CONSUMER.lock().expect("no panic happens under this lock").take() else { return };
    let spawned = with_signals_blocked(|| {
        std::thread::Builder::new().name("orion-events".into()).stack_size(1 << 20).spawn(move || serve(s, consumer))
    });
    if let Err(e) = spawned {
        eprintln!("orion: starting the event thread failed: {e}; host callbacks and kernel printf will not work");
    }
}

/// Runs `f` with every signal blocked; a thread spawned inside inherits that.
pub fn with_signals_blocked<T>(f: impl FnOnce() -> T) -> T {
    // SAFETY: plain calls on local signal sets.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let result = f();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        result
    }
}

fn serve(s: &'static Session, mut consumer: Consumer) {
    let mut body = Vec::new();
    while !crate::carrier::lost() {
        match consumer.next() {
            Ok(Some(header)) => {
                consumer.body(&header, &mut body);
                consumer.consume(header.size as usize);
                handle(s, &header, &body);
                // Release pairs with the Acquire in `wait_for`: what the event did is visible. Announcements are not
                // counted: a carrier may have consumed them.
                if header.op != op::HEAP_WRITTEN {
                    s.events_handled.fetch_add(1, Ordering::Release);
                }
            }
            Ok(None) => consumer.sleep(Duration::from_millis(500)),
            Err(fault) => {
                crate::call::broken(fault.0);
                return;
            }
        }
    }
}

fn handle(s: &'static Session, header: &Header, body: &[u8]) {
    let mut r = Reader::new(body);
    match header.op {
        op::OUTPUT => {
            let Ok(bytes) = r.bytes() else { return };
            if header.context == 2 {
                // Nothing to do where the application closed its stderr.
                let _ = std::io::stderr().write_all(bytes);
            } else {
                print(bytes);
            }
        }
        op::HEAP_RELEASED => {
            if let Ok(ranges) = r.list(1024, HeapRange::get) {
                super::memory::release_staging(s, &ranges);
            }
        }
        op::RUN_CALLBACK => crate::hand::callback::run(s, header, r),
        _ => {}
    }
}

/// Kernel printf goes through the C library's stdout, so that it stays in order with the program's own printf.
fn print(bytes: &[u8]) {
    // SAFETY: `stdout` is the C library's stream; fwrite reads exactly the bytes given.
    unsafe {
        libc::fwrite(bytes.as_ptr().cast(), 1, bytes.len(), stdout);
        libc::fflush(stdout);
    }
}

unsafe extern "C" {
    static stdout: *mut libc::FILE;
}

/// Waits until the service thread has handled `count` events: a synchronising call returns only after the
/// output of the kernels it covers is out. Bounded, because a callback may itself be waiting for the caller.
pub fn wait_for(s: &Session, count: u64) {
    let start = std::time::Instant::now();
    while s.events_handled.load(Ordering::Acquire) < count && start.elapsed() < Duration::from_secs(2) {
        std::thread::yield_now();
    }
}
