//! Captures that are open.
//!
//! CUDA ties captures to threads: which calls are forbidden while a capture is open depends on the thread that
//! opened it, on its mode, and on the calling thread's own mode. Here one driver thread executes the commands of
//! all client threads and so owns every capture. What CUDA would decide by thread is decided in [`Captures`], and
//! the driver is told through the executor's mode: `GLOBAL` where the command has to be refused (the executor
//! owns the captures, so that refuses), `RELAXED` where it must not be.
//!
//! Asking about any event or stream is such a call: in `GLOBAL` mode it ends a capture that has nothing to do with it.
//! What the executor asks for itself goes through [`Captures::ask_event`] and [`Captures::ask_stream`], wherever it is.

// UNSAFETY: calls the driver with handles that were looked up.

use std::cell::Cell;
use std::collections::HashMap;
use std::ptr;

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;

/// A capture that some client thread began and nobody has ended.
pub struct Open {
    pub stream: usize,
    pub owner: u16,
    pub mode: CUstreamCaptureMode,
    /// It adds to a graph of the application's.
    pub to_graph: bool,
}

/// A stream that is captured, and its context.
#[derive(Debug, Clone, Copy)]
pub struct Captured {
    pub context: u64,
    /// The context's legacy default stream encompasses it, and can be asked nothing until the capture has ended.
    pub is_blocking: bool,
}

/// Open captures and the modes of the client's threads.
#[derive(Default)]
pub struct Captures {
    pub open: Vec<Open>,
    /// Threads whose mode is not `GLOBAL`.
    pub modes: HashMap<u16, CUstreamCaptureMode>,
    /// The executor's mode in the driver; 0 is `GLOBAL`, with which a thread starts.
    current: Cell<CUstreamCaptureMode>,
    /// Contexts with blocking streams in captures of which some are open.
    encompassed: Vec<u64>,
}

/// What [`Captures::relax`] changed.
#[must_use]
pub struct Relaxed(Option<CUstreamCaptureMode>);

impl Captures {
    /// Makes the executor's mode what decides the next command of `thread` as that thread's own mode would.
    #[inline]
    pub fn prepare(&self, driver: &'static Driver, thread: u16) {
        if !self.open.is_empty() {
            let mode = self.mode_for(thread);
            self.set(driver, mode);
        }
    }

    /// Between commands: what the executor does then is not a call of the client's, which a capture could forbid.
    #[inline]
    pub fn rest(&self, driver: &'static Driver) {
        if !self.open.is_empty() {
            self.set(driver, CU_STREAM_CAPTURE_MODE_RELAXED);
        }
    }

    /// Lets the executor do something for itself without invalidating a capture.
    #[inline]
    pub fn relax(&self, driver: &'static Driver) -> Relaxed {
        if self.open.is_empty() {
            return Relaxed(None);
        }
        let before = self.current.get();
        self.set(driver, CU_STREAM_CAPTURE_MODE_RELAXED);
        Relaxed(Some(before))
    }

    #[inline]
    fn relaxed(&self, driver: &'static Driver, ask: impl FnOnce() -> CUresult) -> CUresult {
        let relaxed = self.relax(driver);
        let code = ask();
        self.restore(driver, relaxed);
        code
    }

    /// As the driver's `cuEventQuery`, and no capture notices. Of a captured event it is refused, and ends the capture.
    ///
    /// # Safety
    /// An event of this session.
    #[inline]
    pub unsafe fn ask_event(&self, driver: &'static Driver, event: CUevent) -> CUresult {
        // SAFETY: the caller's promise.
        self.relaxed(driver, || unsafe { driver.cuEventQuery(event) })
    }

    /// As the driver's `cuStreamQuery`, and no capture of another stream notices.
    ///
    /// # Safety
    /// A stream of this session, or a default stream of the current context.
    #[inline]
    pub unsafe fn ask_stream(&self, driver: &'static Driver, stream: CUstream) -> CUresult {
        // SAFETY: the caller's promise.
        self.relaxed(driver, || unsafe { driver.cuStreamQuery(stream) })
    }

    #[inline]
    pub fn restore(&self, driver: &'static Driver, relaxed: Relaxed) {
        if let Relaxed(Some(mode)) = relaxed {
            self.set(driver, mode);
        }
    }

    /// A stream is captured from now on.
    pub fn note(&mut self, captured: Captured) {
        if captured.is_blocking && !self.encompassed.contains(&captured.context) {
            self.encompassed.push(captured.context);
        }
    }

    pub fn context_gone(&mut self, context: u64) {
        self.encompassed.retain(|of| *of != context);
    }

    pub fn begun(&mut self, open: Open, captured: Captured) {
        if self.open.is_empty() {
            self.encompassed.clear();
        }
        self.open.push(open);
        self.note(captured);
    }

    /// Whether some of what the legacy default stream of a context encompasses may be captured: then the driver refuses
    /// to tell of that one, and whoever asks ends the capture.
    pub fn are_encompassed(&self, context: u64) -> bool {
        self.open() && self.encompassed.contains(&context)
    }

    pub fn open(&self) -> bool {
        !self.open.is_empty()
    }

    /// The mode that a thread of the client's has chosen for its calls.
    pub fn mode_of(&self, thread: u16) -> CUstreamCaptureMode {
        self.modes.get(&thread).copied().unwrap_or(CU_STREAM_CAPTURE_MODE_GLOBAL)
    }

    /// Whether CUDA forbids `thread` the calls that could interfere with a capture. A command that would run on
    /// a helper thread (which has no captures of its own) has to run on the executor then, to be refused there.
    pub fn forbids(&self, thread: u16) -> bool {
        let mode = self.mode_of(thread);
        mode != CU_STREAM_CAPTURE_MODE_RELAXED
            && self.open.iter().any(|o| match o.mode {
                CU_STREAM_CAPTURE_MODE_RELAXED => false,
                CU_STREAM_CAPTURE_MODE_GLOBAL if mode == CU_STREAM_CAPTURE_MODE_GLOBAL => true,
                _ => o.owner == thread,
            })
    }

    /// The graph that work on `stream` goes into, if it is being captured.
    pub fn graph_of(&self, driver: &'static Driver, stream: CUstream) -> Option<CUgraph> {
        if self.open.is_empty() {
            return None;
        }
        let (mut status, mut id, mut graph) = (CU_STREAM_CAPTURE_STATUS_NONE, 0, ptr::null_mut());
        // SAFETY: a stream of this session and valid out pointers; the others may be null.
        let code = unsafe {
            driver.cuStreamGetCaptureInfo_v3(
                stream,
                &mut status,
                &mut id,
                &mut graph,
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        (code == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_ACTIVE).then_some(graph)
    }

    /// A stream was destroyed; a capture on it is over.
    pub fn stream_gone(&mut self, stream: CUstream) {
        self.open.retain(|o| o.stream != stream as usize);
    }

    fn mode_for(&self, thread: u16) -> CUstreamCaptureMode {
        if self.forbids(thread) { CU_STREAM_CAPTURE_MODE_GLOBAL } else { CU_STREAM_CAPTURE_MODE_RELAXED }
    }

    fn set(&self, driver: &'static Driver, mode: CUstreamCaptureMode) {
        if self.current.get() != mode {
            let mut exchanged = mode;
            // SAFETY: a valid in-out pointer.
            let code = unsafe { driver.cuThreadExchangeStreamCaptureMode(&mut exchanged) };
            if code == CUDA_SUCCESS {
                self.current.set(mode);
            }
        }
    }

    /// Forgets the capture on `stream` if the driver says that there is none.
    pub fn close_if_over(&mut self, driver: &'static Driver, stream: CUstream) -> bool {
        let mut status = CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: a stream of this session and a valid out pointer.
        let code = unsafe { driver.cuStreamIsCapturing(stream, &mut status) };
        let over = code == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE;
        if over {
            self.stream_gone(stream);
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captures(open: &[(u16, CUstreamCaptureMode)], modes: &[(u16, CUstreamCaptureMode)]) -> Captures {
        Captures {
            open: open.iter().map(|&(owner, mode)| Open { stream: 7, owner, mode, to_graph: false }).collect(),
            modes: modes.iter().copied().collect(),
            current: Cell::new(0),
            encompassed: Vec::new(),
        }
    }

    const GLOBAL: u32 = CU_STREAM_CAPTURE_MODE_GLOBAL;
    const THREAD_LOCAL: u32 = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    const RELAXED: u32 = CU_STREAM_CAPTURE_MODE_RELAXED;

    #[test]
    fn a_global_capture_forbids_every_thread_that_did_not_opt_out() {
        let c = captures(&[(1, GLOBAL)], &[(3, THREAD_LOCAL), (4, RELAXED)]);
        assert_eq!([1, 2, 3, 4].map(|t| c.forbids(t)), [true, true, false, false]);
    }

    #[test]
    fn a_thread_local_capture_forbids_its_owner_only() {
        let c = captures(&[(1, THREAD_LOCAL)], &[]);
        assert_eq!([1, 2].map(|t| c.forbids(t)), [true, false]);
        let c = captures(&[(1, THREAD_LOCAL)], &[(1, RELAXED)]);
        assert!(!c.forbids(1));
    }

    #[test]
    fn a_relaxed_capture_forbids_nobody() {
        let c = captures(&[(1, RELAXED)], &[(2, THREAD_LOCAL)]);
        assert_eq!([1, 2, 3].map(|t| c.forbids(t)), [false; 3]);
    }
}
