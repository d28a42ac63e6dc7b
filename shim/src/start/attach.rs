//! Attaching to a worker.

use std::sync::Condvar;
use std::sync::atomic::{AtomicU64, Ordering};

use orion_cuda::sys::*;
use orion_ring::Consumer;
use orion_ring::memory::Which;
use orion_transport::carrier::Listener;
use orion_transport::client::NoSession;
use orion_transport::holes::Holes;
use orion_transport::thread::{LIMIT, Uncancelled};
use orion_wire::refusal::Reason;
use orion_wire::view::Program;

use super::standard::Places;
use crate::memory::in_step::{arrived, arriving, keeps, patch, write};
use crate::session::attached::{attached, greeted};
use crate::session::carrier::{self, Attached};
use crate::session::service::{Handlers, start_service};
use crate::state::carrier::Carrier;
use crate::state::graph_copies::GraphCopies;
use crate::state::graph_launches::GraphLaunches;
use crate::state::heap::HeapAllocator;
use crate::state::host_memory::HostMemory;
use crate::state::in_step::InStep;
use crate::state::lock::{Lock, Rank};
use crate::state::memory_file::MemoryFile;
use crate::state::on_the_way::OnTheWay;
use crate::state::process::state;
use crate::state::recording::ROUTED;
use crate::state::replies::Replies;
use crate::state::service::Service;
use crate::state::session::{Greeted, SESSIONS_MAX, Session};
use crate::state::sources::Sources;

/// Attaches to a worker if that has not happened yet. Tried once: a program that polls a missing GPU gets the
/// same answer each time, as from a missing driver.
pub fn attach() -> Result<(), CUresult> {
    if attached().is_ok() {
        return Ok(());
    }
    if state().fork.in_forked_child() {
        return Err(CUDA_ERROR_NOT_INITIALIZED);
    }
    if !thread_locals_work() {
        return Err(refuse_static_program());
    }
    let _whole = Uncancelled::hold();
    let _only_one = state().attachment.attaching.lock();
    if attached().is_ok() {
        return Ok(());
    }
    if let Some(code) = state().attachment.refusal.get() {
        return Err(*code);
    }
    crate::session::carrier::note_that_a_gpu_was_asked_for();
    match attach_now() {
        Ok(sessions) => {
            state().attachment.publish(&sessions);
            state().recording.set(ROUTED, state().attachment.several());
            Ok(())
        }
        Err(no) => {
            crate::say!("{}", no.text);
            crate::report::log::error("cuInit", &no.text);
            Err(*state().attachment.refusal.get_or_init(|| code_of(no.refused)))
        }
    }
}

/// Asks the server about its devices. This process has no session afterwards if it had none before: it may fork, and
/// use CUDA in its children.
pub fn greet() -> Result<&'static Greeted, CUresult> {
    if let Some(greeted) = greeted() {
        return Ok(greeted);
    }
    let _whole = Uncancelled::hold();
    let asked = state().attachment.greeted.get_or_init(|| {
        let _places = Places::hold();
        crate::session::carrier::note_that_a_gpu_was_asked_for();
        let settings = carrier::Settings::from_environment().map_err(NoSession::from);
        let offers = settings.and_then(|settings| carrier::offers(&settings)).map_err(|no| said(&no))?;
        Ok(Greeted::of(offers.into_iter().map(Greeted::from).collect()))
    });
    asked.as_ref().map_err(|code| *code)
}

/// Which programs of this user, or of this job, have sessions, for who has none himself.
pub fn programs() -> Result<Vec<Program>, CUresult> {
    let _whole = Uncancelled::hold();
    let _places = Places::hold();
    let settings = carrier::Settings::from_environment().map_err(NoSession::from);
    settings.and_then(|settings| carrier::programs(&settings)).map_err(|no| said(&no))
}

fn said(no: &NoSession) -> CUresult {
    crate::say!("{}", no.text);
    code_of(no.refused)
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
        Some(Reason::NotPermitted | Reason::Lease | Reason::Other) => CUDA_ERROR_NOT_PERMITTED,
        // As from a libcuda that does not fit the kernel's driver.
        Some(Reason::Version) => CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
        // As from a GPU whose compute mode lets no further process in.
        Some(Reason::Full) => CUDA_ERROR_DEVICE_UNAVAILABLE,
        // As from a machine whose GPUs are still being set up.
        Some(Reason::NoWorker) => CUDA_ERROR_SYSTEM_NOT_READY,
    }
}

fn attach_now() -> Result<Vec<&'static Session>, NoSession> {
    let _places = Places::hold();
    super::log::begin();
    let settings = carrier::Settings::from_environment()?;
    let attached = carrier::attach(&settings, LISTENERS)?;
    let sessions = attached.into_iter().zip(0..).map(|(attached, number)| session_of(attached, number));
    let sessions = sessions.collect::<Result<Vec<_>, String>>()?;
    match sessions.iter().try_for_each(|s| start_service(s, HANDLERS)) {
        Ok(()) => Ok(sessions),
        Err(e) => {
            sessions.iter().for_each(|s| s.carrier.connection.close());
            Err(NoSession::from(format!("starting a thread for what the worker tells failed: {e}; {LIMIT}")))
        }
    }
}

fn session_of(attached: Attached, number: usize) -> Result<&'static Session, String> {
    let Attached { server, welcome, memory, heap, pages, connection } = attached;
    let end = |what: &str, e: std::io::Error| format!("mapping the session's {what} ring failed: {e}");
    let sender = memory.producer(Which::Command).map_err(|e| end("command", e))?;
    let replies: Consumer = memory.consumer(Which::Reply).map_err(|e| end("reply", e))?;
    let events: Consumer = memory.consumer(Which::Event).map_err(|e| end("event", e))?;
    let heap_allocator = HeapAllocator::new(heap, welcome.staging_bytes)
        .map_err(|e| format!("closing what is not used of the session's host heap failed: {e}"))?;
    let memory_file = MemoryFile::of(&memory).map_err(|e| end("memory behind its command", e))?;
    Ok(Box::leak(Box::new(Session {
        number,
        server,
        carrier: Carrier::new(connection),
        service: Service::new(events),
        welcome,
        heap,
        holes: if pages.are_separate() { Holes::of(&memory) } else { None },
        _memory: memory,
        memory_file,
        heap_allocator: Lock::new(Rank::Heap, heap_allocator),
        staging_released: Condvar::new(),
        pages,
        sender: Lock::new(Rank::Ring, sender),
        sent: AtomicU64::new(0),
        commands: AtomicU64::new(0),
        last_work: AtomicU64::new(0),
        replies: Replies::new(replies),
        events_handled: AtomicU64::new(0),
        graph_copies: GraphCopies::new(),
        graph_launches: GraphLaunches::new(),
        host_memory: HostMemory::new(),
        in_step: InStep::new(),
        on_the_way: OnTheWay::new(),
        sources: Sources::new(),
    })))
}

/// Version of the worker's driver; attaches if that is needed, because CUDA answers this before `cuInit`.
#[cfg(not(test))]
fn worker_driver_version() -> i32 {
    // The oldest of several decides what can be used.
    let versions = || state().attachment.all().map(|s| s.welcome.driver_version).min();
    attach().ok().and_then(|()| versions()).map_or(0, |version| version as i32)
}

/// Who acts on what the worker sends.
const HANDLERS: Handlers = Handlers {
    heap_released: |s, ranges| crate::memory::staging::release_staging(s, ranges),
    run_callback: crate::objects::callback::run,
};

/// What the carrier of each session tells of.
const LISTENERS: [Listener; SESSIONS_MAX] = [listener::<0>(), listener::<1>(), listener::<2>(), listener::<3>()];

/// A carrier has nothing to tell before its session has sent anything.
const fn listener<const NUMBER: usize>() -> Listener {
    fn of<const NUMBER: usize>() -> Option<&'static Session> {
        state().attachment.get(NUMBER)
    }
    Listener {
        arriving: |offset, bytes| _ = of::<NUMBER>().map(|s| arriving(s, offset, bytes)),
        arrived: |offset, bytes| _ = of::<NUMBER>().map(|s| arrived(s, offset, bytes)),
        keeps: |offset, bytes| of::<NUMBER>().is_some_and(|s| keeps(s, offset, bytes)),
        write: |offset, bytes| of::<NUMBER>().map_or(Ok(()), |s| write(s, offset, bytes)),
        unsettled: || _ = of::<NUMBER>().map(|s| s.on_the_way.lands_no_more()),
        settled: |number| _ = of::<NUMBER>().map(|s| settled(s, number)),
        patch: |body| of::<NUMBER>().map_or(Ok(()), |s| patch(s, body)),
    }
}

/// A command brings nothing more to the heap.
fn settled(s: &Session, number: u64) {
    s.on_the_way.settled(number);
    s.graph_launches.settled(number);
    s.sources.settled(number);
}

/// The one number that `cuDriverGetVersion`, `cuGetProcAddress` and the integrity check go by: the worker's
/// driver, capped at what this library knows. Without a worker it is our own, so that cudart goes on to ask
/// `cuInit` and reports that there is no device, not that the driver is too old.
pub fn driver_version() -> i32 {
    match worker_driver_version() {
        0 => CUDA_VERSION as i32,
        version => version.min(CUDA_VERSION as i32),
    }
}

#[cfg(test)]
fn worker_driver_version() -> i32 {
    crate::state::device::fixture::DRIVER_VERSION as i32
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
