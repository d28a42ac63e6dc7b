//! The one session of this process.

// UNSAFETY: publishes one leaked object through an atomic pointer, so that the hottest calls pay one load.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use orion_cuda::sys::*;
use orion_ring::memory::Which;
use orion_ring::{Consumer, Heap, Producer};
use orion_transport::client::NoSession;
use orion_wire::hello::{Device, Welcome};
use orion_wire::refusal::Reason;

use crate::call::Replies;
use crate::carrier::{self, Attached};
use crate::hand::heap::HeapAllocator;

/// Everything that exists once `cuInit` has succeeded.
pub struct Session {
    pub welcome: Welcome,
    pub heap: Heap,
    /// The memory behind heap and rings; open for the life of the process.
    pub memory_fd: RawFd,
    pub heap_allocator: Mutex<HeapAllocator>,
    /// The heap is a copy kept up to date by a carrier (TCP), not the worker's own pages.
    pub mirrored: bool,
    pub sender: Mutex<Producer>,
    /// Records sent so far. Equal before and after means that nothing happened in between.
    pub sent: AtomicU64,
    /// Commands among them that the worker executes: what a carrier consumes on the way is not. And the last of those
    /// that may have given the device something to do.
    pub commands: AtomicU64,
    pub last_work: AtomicU64,
    pub replies: Replies,
    /// Event records handled by the service thread.
    pub events_handled: AtomicU64,
}

static SESSION: AtomicPtr<Session> = AtomicPtr::new(std::ptr::null_mut());
/// Attaching may come before `cuInit` (`cuDriverGetVersion` needs the worker's answer); nothing else works then.
static INITIALIZED: AtomicBool = AtomicBool::new(false);
static ATTACHING: Mutex<()> = Mutex::new(());
static REFUSAL: OnceLock<CUresult> = OnceLock::new();

/// The session, or `CUDA_ERROR_NOT_INITIALIZED` before `cuInit` and in a child forked after it.
#[inline]
pub fn session() -> Result<&'static Session, CUresult> {
    // Acquire pairs with the store in `initialized`.
    if !INITIALIZED.load(Ordering::Acquire) {
        return Err(CUDA_ERROR_NOT_INITIALIZED);
    }
    if crate::hand::callback::in_callback() {
        return Err(CUDA_ERROR_NOT_PERMITTED);
    }
    attached()
}

/// `cuInit` has succeeded.
pub fn initialized() {
    INITIALIZED.store(true, Ordering::Release);
}

fn attached() -> Result<&'static Session, CUresult> {
    // Acquire pairs with the store in `attach`.
    let p = SESSION.load(Ordering::Acquire);
    if p.is_null() || crate::local::fork::in_forked_child() {
        return Err(CUDA_ERROR_NOT_INITIALIZED);
    }
    // SAFETY: a published session is never freed.
    Ok(unsafe { &*p })
}

/// Attaches to a worker if that has not happened yet. Tried once: a program that polls a missing GPU gets the
/// same answer each time, as from a missing driver.
pub fn attach() -> Result<&'static Session, CUresult> {
    if let Ok(s) = attached() {
        return Ok(s);
    }
    if crate::local::fork::in_forked_child() {
        return Err(CUDA_ERROR_NOT_INITIALIZED);
    }
    if !thread_locals_work() {
        return Err(refuse_static_program());
    }
    let _only_one = ATTACHING.lock().expect("no panic happens under this lock");
    if let Ok(s) = attached() {
        return Ok(s);
    }
    if let Some(code) = REFUSAL.get() {
        return Err(*code);
    }
    crate::carrier::note_that_a_gpu_was_asked_for();
    match attach_now() {
        Ok(s) => {
            crate::local::fork::register_fork_handler();
            SESSION.store(std::ptr::from_ref(s).cast_mut(), Ordering::Release);
            crate::hand::events::start_service(s);
            Ok(s)
        }
        Err(no) => {
            crate::say!("{}", no.text);
            crate::local::logs::error("cuInit", &no.text);
            Err(*REFUSAL.get_or_init(|| code_of(no.refused)))
        }
    }
}

/// What a server says of its devices and its driver.
pub struct Greeted {
    pub devices: Vec<Device>,
    pub driver_version: u32,
}

static GREETED: OnceLock<Result<Greeted, CUresult>> = OnceLock::new();

/// What is known of the devices, if anything is. Also in a forked child, for nothing is sent.
pub fn greeted() -> Option<&'static Greeted> {
    // Acquire pairs with the store in `attach`.
    let p = SESSION.load(Ordering::Acquire);
    if !p.is_null() {
        // SAFETY: a published session is never freed.
        let welcome = unsafe { &(*p).welcome };
        let _ = GREETED.set(Ok(Greeted::from(welcome)));
    }
    GREETED.get()?.as_ref().ok()
}

/// Asks the server about its devices. Where this process has no session it is asked by a short one, and the process has
/// none afterwards: it may fork, and use CUDA in its children.
pub fn greet() -> Result<&'static Greeted, CUresult> {
    if let Some(greeted) = greeted() {
        return Ok(greeted);
    }
    let asked = GREETED.get_or_init(|| {
        crate::carrier::note_that_a_gpu_was_asked_for();
        let asked = carrier::Settings::from_environment().map_err(NoSession::from).and_then(|s| carrier::greet(&s));
        asked.map(|welcome| Greeted::from(&welcome)).map_err(|no| {
            crate::say!("{}", no.text);
            code_of(no.refused)
        })
    });
    asked.as_ref().map_err(|code| *code)
}

impl From<&Welcome> for Greeted {
    fn from(welcome: &Welcome) -> Greeted {
        Greeted { devices: welcome.devices.clone(), driver_version: welcome.driver_version }
    }
}

/// A fully static program brings a C library of its own, whose loader gives libraries that come later no memory for
/// their thread-locals: the first use of one would be the end of the program.
fn thread_locals_work() -> bool {
    thread_local! {
        static PROBE: std::cell::Cell<u8> = const { std::cell::Cell::new(0) };
    }
    // Without a block of its own the variable is found at its offset from nowhere.
    PROBE.with(|probe| std::hint::black_box(std::ptr::from_ref(probe) as usize)) > 1 << 20
}

/// Nothing here uses a thread-local.
fn refuse_static_program() -> CUresult {
    static SAID: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        orion_transport::client::say::put(
            b"orion: this program is linked statically, C library included, and such a program cannot load Orion's \
              libcuda.so.1; link it without -static (nvcc's -cudart static is no problem)\n",
        );
    }
    CUDA_ERROR_NOT_SUPPORTED
}

/// What `cuInit` answers where there is no session.
fn code_of(refused: Option<Reason>) -> CUresult {
    match refused {
        // Without a server there is no GPU.
        None => CUDA_ERROR_NO_DEVICE,
        Some(Reason::NotPermitted | Reason::Other) => CUDA_ERROR_NOT_PERMITTED,
        // As from a libcuda that does not fit the kernel's driver.
        Some(Reason::Version) => CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
        // As from a GPU whose compute mode lets no further process in.
        Some(Reason::Full) => CUDA_ERROR_DEVICE_UNAVAILABLE,
        // As from a machine whose GPUs are still being set up.
        Some(Reason::NoWorker) => CUDA_ERROR_SYSTEM_NOT_READY,
    }
}

fn attach_now() -> Result<&'static Session, NoSession> {
    carrier::set_heap_listener(crate::hand::in_step::LISTENER);
    let Attached { welcome, memory, heap, mirrored } = carrier::attach(&carrier::Settings::from_environment()?)?;
    let end = |what: &str, e: std::io::Error| format!("mapping the session's {what} ring failed: {e}");
    let sender = memory.producer(Which::Command).map_err(|e| end("command", e))?;
    let replies: Consumer = memory.consumer(Which::Reply).map_err(|e| end("reply", e))?;
    let events: Consumer = memory.consumer(Which::Event).map_err(|e| end("event", e))?;
    crate::hand::events::keep_consumer(events);
    let heap_allocator = HeapAllocator::new(welcome.staging_bytes, welcome.heap_bytes);
    let memory_fd = memory.fd().as_raw_fd();
    // The memory's descriptor stays open and mapped for the life of the process.
    std::mem::forget(memory);
    Ok(Box::leak(Box::new(Session {
        welcome,
        heap,
        memory_fd,
        heap_allocator: Mutex::new(heap_allocator),
        mirrored,
        sender: Mutex::new(sender),
        sent: AtomicU64::new(0),
        commands: AtomicU64::new(0),
        last_work: AtomicU64::new(0),
        replies: Replies::new(replies),
        events_handled: AtomicU64::new(0),
    })))
}

/// Version of the worker's driver; attaches if that is needed, because CUDA answers this before `cuInit`.
pub fn driver_version() -> i32 {
    attach().map_or(0, |s| s.welcome.driver_version as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_do_not_decide_the_code() {
        let unreachable = NoSession::from("no oriond listens on unix:/tmp/refused.sock".to_owned());
        assert_eq!(code_of(unreachable.refused), CUDA_ERROR_NO_DEVICE);
        assert_eq!(code_of(Some(Reason::NotPermitted)), CUDA_ERROR_NOT_PERMITTED);
        assert_eq!(code_of(Some(Reason::Full)), CUDA_ERROR_DEVICE_UNAVAILABLE);
    }
}
