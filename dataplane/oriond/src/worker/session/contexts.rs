//! Contexts and devices, as the client names them.

// UNSAFETY: calls the driver through C function pointers with values that were checked here.

use std::ptr;

use orion_cuda::sys::*;
use orion_wire::handle::{Handle, Kind, PRIMARY_CONTEXTS_MAX};

use crate::worker::session::Session;

impl Session {
    /// Makes the client's context current on the executor thread.
    pub fn make_current(&mut self, context: u64) -> Result<(), CUresult> {
        if self.current == context {
            return Ok(());
        }
        let pointer = self.context(context)?;
        // SAFETY: null or a context this session owns.
        match unsafe { self.driver.cuCtxSetCurrent(pointer) } {
            CUDA_SUCCESS => {
                self.current = context;
                Ok(())
            }
            code => Err(code),
        }
    }

    /// The primary context of the first device that the application sees here.
    pub fn any_context(&self) -> u64 {
        Handle::primary_context(self.vgpus.first_visible()).0
    }

    /// Has memory of the session's own made in a context: what the driver knows of memory it forgets with the context
    /// that it was made in.
    pub(super) fn within<T>(&mut self, context: u64, make: impl FnOnce(&mut Session) -> T) -> Result<T, CUresult> {
        let caller = self.current;
        self.make_current(context)?;
        let relaxed = self.captures.relax(self.driver);
        let made = make(self);
        self.captures.restore(self.driver, relaxed);
        // Not if it is not known who was.
        if caller != u64::MAX {
            self.make_current(caller)?;
        }
        Ok(made)
    }

    /// Forgets which context is current, after something that changed it behind our back.
    pub fn forget_current(&mut self) {
        self.current = u64::MAX;
    }

    /// The driver's context for a handle; primary contexts are retained at first use.
    pub fn context(&mut self, word: u64) -> Result<CUcontext, CUresult> {
        if word == 0 {
            return Ok(ptr::null_mut());
        }
        let handle = Handle(word);
        if !handle.is(Kind::Context) {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        if handle.index() >= PRIMARY_CONTEXTS_MAX {
            return self.objects.lookup(Kind::Context, word).map(|p| p.cast()).ok_or(CUDA_ERROR_INVALID_CONTEXT);
        }
        let number = self.vgpus.at(handle.index() as i32)?;
        if let Some(p) = self.primary.get(&number) {
            return Ok(*p);
        }
        let vgpu = self.vgpus.get(number);
        let mut context = ptr::null_mut();
        let code = match vgpu.is_first() {
            // SAFETY: a device of this session and a valid out pointer.
            true => unsafe { self.driver.cuDevicePrimaryCtxRetain(&mut context, vgpu.device) },
            false => self.own_context(vgpu.device, &mut context),
        };
        match code {
            CUDA_SUCCESS => {
                self.primary.insert(number, context);
                Ok(context)
            }
            code => Err(code),
        }
    }

    /// A context in the place of a primary one, which is another vGPU's.
    fn own_context(&mut self, device: CUdevice, context: &mut CUcontext) -> CUresult {
        // Creating makes it current here.
        self.forget_current();
        // SAFETY: a device of this session and a valid out pointer.
        let code = unsafe { self.driver.cuCtxCreate_v2(context, 0, device) };
        if code == CUDA_SUCCESS {
            let mut popped = ptr::null_mut();
            // SAFETY: the context just created is on top of this thread's stack.
            unsafe { self.driver.cuCtxPopCurrent_v2(&mut popped) };
        }
        code
    }

    /// Resets the primary context of `ordinal`, or what is in its place.
    pub fn reset_primary(&mut self, ordinal: u32) -> Result<CUresult, CUresult> {
        let number = self.vgpus.at(ordinal as i32)?;
        let vgpu = self.vgpus.get(number);
        Ok(match self.primary.get(&number) {
            // SAFETY: a context that this session has made, and nothing is current on this thread afterwards.
            Some(context) if !vgpu.is_first() => unsafe {
                self.driver.cuCtxSetCurrent(ptr::null_mut());
                self.driver.cuCtxDestroy_v2(*context)
            },
            None if !vgpu.is_first() => CUDA_SUCCESS,
            // SAFETY: a device of this session. The worker's own reference survives a reset.
            _ => unsafe { self.driver.cuDevicePrimaryCtxReset_v2(vgpu.device) },
        })
    }

    /// Drops everything known of a context that is gone or was reset.
    pub fn context_gone(&mut self, word: u64, code: CUresult) {
        self.forget_context(word);
        self.addresses.context_gone(word);
        self.captures.context_gone(word);
        self.forget_lost_variables();
        match code {
            CUDA_SUCCESS => {
                self.unbind_all_in(word);
                self.charged_context_gone(word);
            }
            // What the driver has kept after all stays charged.
            _ => self.give_up_all_in(word),
        }
        // They went with their context.
        self.retired.retain(|r| r.context != word);
        if Handle(word).index() < PRIMARY_CONTEXTS_MAX {
            if let Ok(vgpu) = self.vgpus.at(Handle(word).index() as i32) {
                self.primary.remove(&vgpu);
            }
            // What was registered with or allocated in a primary context goes with it. Staging works on from
            // the heap itself, unregistered.
            self.words.forget();
            self.staging_bytes = 0;
        }
    }

    /// Drops what is kept by context: streams, events and copies under way.
    pub fn forget_context(&mut self, word: u64) {
        self.thread_streams.retain(|(context, _), _| *context != word);
        self.stream_homes.retain(|_, home| home.context != word);
        self.busy_streams.remove(&word);
        self.latched.retain(|l| l.0 != word);
        self.spare_events.remove(&word);
        self.settle_context(word);
        self.scratch.context_gone(word);
        self.lent.retain(|((context, _), _)| *context != word);
        self.orphaned.retain(|event| event.0 != word);
        self.parked.iter_mut().for_each(|parked| parked.earlier.retain(|event| event.0 != word));
        self.forget_marks_of(word);
        self.gate_forgets(word);
        if let Some(fence) = self.host_memory.fence() {
            fence.events.retain(|event| event.0 != word);
        }
        self.forget_current();
    }

    /// Streams and events that were made for the session itself in a context.
    pub fn own_objects(&self, word: u64) -> (Vec<CUstream>, Vec<CUevent>) {
        let streams =
            self.thread_streams.iter().filter(|((context, _), _)| *context == word).map(|(_, s)| *s).collect();
        (streams, self.spare_events.get(&word).cloned().unwrap_or_default())
    }

    /// The primary context of `ordinal` if this worker holds it.
    pub fn primary(&self, ordinal: u32) -> Option<CUcontext> {
        self.primary.get(&self.vgpus.at(ordinal as i32).ok()?).copied()
    }

    pub fn device(&self, ordinal: i32) -> Result<CUdevice, CUresult> {
        Ok(self.vgpus.get(self.vgpus.at(ordinal)?).device)
    }
}
