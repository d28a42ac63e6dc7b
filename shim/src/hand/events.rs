//! The service threads: what the worker sends without being asked.
//!
//! One of them receives. When it has to run a function of the application's, another receives from then on: the
//! function need not wait until a thread has been woken for it, and may take its time.

// UNSAFETY: blocks signals for new threads and writes to the C library's stdout.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use orion_cuda::sys::CUresult;
use orion_ring::Consumer;
use orion_wire::Reader;
use orion_wire::record::{Header, HeapRange, op};

use super::callback::{self, Job};
use crate::session::Session;

/// The threads and what one of them at a time has.
struct Desk {
    /// The event ring's reading end, while nobody receives.
    consumer: Option<Consumer>,
    /// Threads that wait for it.
    idle: usize,
}

static DESK: Mutex<Desk> = Mutex::new(Desk { consumer: None, idle: 0 });
static FREE: Condvar = Condvar::new();

fn desk() -> MutexGuard<'static, Desk> {
    DESK.lock().expect("no panic happens under this lock")
}

/// Keeps the event ring's reading end until a service thread starts.
pub fn keep_consumer(consumer: Consumer) {
    desk().consumer = Some(consumer);
}

pub fn start_service(s: &'static Session) {
    if let Err(e) = start_thread(s) {
        // Without it nothing that waits for the device could ever return.
        eprintln!("orion: starting the event thread failed: {e}; the session is over");
        STOPPED.store(true, Ordering::Release);
    }
}

/// All signals are blocked in it: the application's handlers expect the application's threads.
fn start_thread(s: &'static Session) -> std::io::Result<()> {
    let thread = std::thread::Builder::new().name("orion-events".into()).stack_size(8 << 20);
    with_signals_blocked(|| thread.spawn(move || serve(s))).map(|_| ())
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

/// Nobody receives any more; no event will be handled.
static STOPPED: AtomicBool = AtomicBool::new(false);

fn serve(s: &'static Session) {
    loop {
        let mut consumer = wait_for_turn();
        let Some(job) = receive(s, &mut consumer) else {
            STOPPED.store(true, Ordering::Release);
            return;
        };
        pass_on(s, consumer);
        job.run();
    }
}

fn wait_for_turn() -> Consumer {
    let mut desk = desk();
    loop {
        match desk.consumer.take() {
            Some(consumer) => return consumer,
            None => {
                desk.idle += 1;
                desk = FREE.wait(desk).expect("no panic happens under this lock");
                desk.idle -= 1;
            }
        }
    }
}

/// Another thread receives from now on, or this one again if it comes first.
fn pass_on(s: &'static Session, consumer: Consumer) {
    let mut desk = desk();
    desk.consumer = Some(consumer);
    let waits = desk.idle > 0;
    drop(desk);
    if waits {
        FREE.notify_one();
    } else if let Err(e) = start_thread(s) {
        // Whoever is busy will come to it.
        eprintln!("orion: starting another event thread failed: {e}; host functions and output may come late");
    }
}

/// Handles events until a function of the application's has to run; nothing once the session is over.
fn receive(s: &'static Session, consumer: &mut Consumer) -> Option<Job> {
    let mut body = Vec::new();
    while !crate::carrier::lost() {
        let is_all_printed = output::print_some();
        match consumer.next() {
            Ok(Some(header)) => {
                consumer.body(&header, &mut body);
                consumer.consume(header.size as usize);
                let job = handle(s, &header, &body);
                // Release pairs with the Acquire in `wait_for`: what the event did is visible. Announcements are not
                // counted: a carrier may have consumed them.
                if header.op != op::HEAP_WRITTEN {
                    s.events_handled.fetch_add(1, Ordering::Release);
                }
                if job.is_some() {
                    return job;
                }
            }
            Ok(None) => consumer.sleep(Duration::from_millis(if is_all_printed { 500 } else { 1 })),
            Err(fault) => {
                crate::call::broken(fault.0);
                return None;
            }
        }
    }
    output::print_all();
    None
}

fn handle(s: &'static Session, header: &Header, body: &[u8]) -> Option<Job> {
    let mut r = Reader::new(body);
    match header.op {
        op::OUTPUT => {
            let Ok(bytes) = r.bytes() else { return None };
            if header.context == 2 {
                // Nothing to do where the application closed its stderr.
                let _ = std::io::stderr().write_all(bytes);
            } else {
                output::keep(bytes);
            }
        }
        op::HEAP_RELEASED => {
            if let Ok(ranges) = r.list(1024, HeapRange::get) {
                super::memory::release_staging(s, &ranges);
            }
        }
        op::RUN_CALLBACK => return callback::asked(s, header, r),
        _ => {}
    }
    None
}

/// Prints in the calling thread, as [`output`] does for a thread that waits.
pub fn print(bytes: &[u8]) {
    output::keep(bytes);
    output::print_all();
}

mod output {
    //! Kernel printf goes through the C library's stdout, so that it stays in order with the program's own printf.
    //!
    //! A call that waits for the device prints what is left itself, as natively. The service thread must not wait for
    //! stdout's lock: the program may hold it while it waits for the device.

    use std::sync::Mutex;

    static KEPT: Mutex<Vec<u8>> = Mutex::new(Vec::new());

    pub fn keep(bytes: &[u8]) {
        KEPT.lock().expect("no panic happens under this lock").extend_from_slice(bytes);
    }

    /// Unless another thread holds stdout's lock. True if nothing is left.
    pub fn print_some() -> bool {
        if KEPT.lock().expect("no panic happens under this lock").is_empty() {
            return true;
        }
        // SAFETY: `stdout` is the C library's stream; what is locked here is unlocked here.
        unsafe {
            if ftrylockfile(stdout) != 0 {
                return false;
            }
            print_locked();
            funlockfile(stdout);
        }
        true
    }

    pub fn print_all() {
        // Whoever is printing holds this lock until all is out.
        if KEPT.lock().expect("no panic happens under this lock").is_empty() {
            return;
        }
        // SAFETY: as in `print_some`. The lock is recursive, so the program may hold it in this thread.
        unsafe {
            flockfile(stdout);
            print_locked();
            funlockfile(stdout);
        }
    }

    /// # Safety
    /// This thread holds stdout's lock, which comes before ours.
    unsafe fn print_locked() {
        let mut bytes = KEPT.lock().expect("no panic happens under this lock");
        // SAFETY: `stdout` is the C library's stream; fwrite reads exactly the bytes given.
        unsafe {
            libc::fwrite(bytes.as_ptr().cast(), 1, bytes.len(), stdout);
            libc::fflush(stdout);
        }
        bytes.clear();
    }

    unsafe extern "C" {
        static stdout: *mut libc::FILE;
        fn flockfile(stream: *mut libc::FILE);
        fn ftrylockfile(stream: *mut libc::FILE) -> libc::c_int;
        fn funlockfile(stream: *mut libc::FILE);
    }
}

/// Waits until a service thread has handled `count` events: a synchronising call returns only after the output of
/// the kernels it covers is out. The worker has sent them all before its reply, and the service thread waits for
/// nobody, so they come unless the session is lost.
pub fn wait_for(s: &Session, count: u64) -> Result<(), CUresult> {
    let start = std::time::Instant::now();
    while s.events_handled.load(Ordering::Acquire) < count {
        // Handling the last ones and ending is seen in this order.
        if STOPPED.load(Ordering::Acquire) && s.events_handled.load(Ordering::Acquire) < count {
            return Err(crate::call::lost_now());
        }
        match start.elapsed() < Duration::from_millis(2) {
            true => std::thread::yield_now(),
            false => std::thread::sleep(Duration::from_micros(50)),
        }
    }
    output::print_all();
    Ok(())
}
