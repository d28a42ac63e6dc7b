//! Contexts that begin and end.

use std::sync::atomic::Ordering;

use orion_cuda::sys::*;
use orion_wire::handle::Handle;

use crate::answer::posted;
use crate::objects::{context_wire, handles};
use crate::session::context::lookup;
use crate::session::device::facts;
use crate::state::context::{ACTIVE, Context, DYING, INACTIVE, pop_if_top};
use crate::state::device::Facts;
use crate::state::process::state;

/// A green context was made: it retains its device's primary context, and its `CUcontext` is known from now on.
pub fn adopt(handle: Handle, green: Handle, dev: CUdevice) -> Result<(), CUresult> {
    let primary = retain(dev)?;
    let context = Context { green: green.0, ..Context::new(handle.0, (dev as u32, primary.session)) };
    let context = state().contexts.created.insert(handle, context);
    state().contexts.bring_to_life(context, primary.flags.load(Ordering::Relaxed));
    state().contexts.green.lock().push(context);
    state().recording.context_created(context.as_cuda());
    Ok(())
}

/// A green context is gone, and its `CUcontext` with it. False if it was gone already.
pub fn disown(handle: Handle) -> bool {
    let Ok(c) = lookup(handle.0) else { return false };
    let gone = end_green(c);
    if gone {
        state().contexts.green.lock().retain(|g| !std::ptr::eq(*g, c));
    }
    gone
}

fn end_green(c: &'static Context) -> bool {
    let mine = c.begin_death();
    if mine {
        c.end_life();
        pop_if_top(c);
        bury(c);
    }
    mine
}

/// Gives up what [`adopt`] retained.
pub fn release_green(dev: CUdevice) -> Result<(), CUresult> {
    release(&facts()?.device(dev)?.primary)
}

pub fn destroy(context: &'static Context) -> Result<(), CUresult> {
    // A green one is the primary one with fewer multiprocessors, and ends with its green context.
    if context.is_primary || context.green != 0 {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    // Of two threads that destroy it, one does.
    if !context.begin_death() {
        return Err(CUDA_ERROR_CONTEXT_IS_DESTROYED);
    }
    let destroyed = context_wire::destroy(context);
    context.end_life();
    pop_if_top(context);
    bury(context);
    handles::release(Handle(context.handle));
    destroyed
}

/// Forgets a dead context that had a handle of its own.
fn bury(context: &Context) {
    let mut dead = state().contexts.dead.lock();
    dead.extend(state().contexts.created.remove(Handle(context.handle)));
    dead.retain(|c| c.on_stacks.load(Ordering::Relaxed) > 0);
}

pub fn retain(dev: CUdevice) -> Result<&'static Context, CUresult> {
    let f: &'static Facts = facts()?;
    let primary = &f.device(dev)?.primary;
    let mut users = primary.users.lock();
    // It may have users and not be active: somebody reset it.
    let began = activate(primary);
    *users += 1;
    drop(users);
    if began {
        state().recording.context_created(primary.as_cuda());
    }
    Ok(primary)
}

pub fn release(primary: &'static Context) -> Result<(), CUresult> {
    {
        let mut users = primary.users.lock();
        if *users == 0 {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        *users -= 1;
        if *users > 0 {
            return Ok(());
        }
    }
    // Without the lock: destructors call back.
    if !primary.begin_death() {
        return Ok(());
    }
    let sent = posted(context_wire::primary_released(primary.device));
    primary.end_life();
    // Whoever retained meanwhile was told that the context is active.
    let users = primary.users.lock();
    let began = *users > 0 && activate(primary);
    drop(users);
    if began {
        state().recording.context_created(primary.as_cuda());
    }
    sent
}

/// Whether it was not active. The caller holds the lock of the users.
fn activate(primary: &Context) -> bool {
    let begins = !primary.is_active();
    if begins {
        state().contexts.bring_to_life(primary, primary.flags_wanted.load(Ordering::Relaxed) | CU_CTX_MAP_HOST);
    }
    begins
}

/// The worker ends a device's green contexts with its primary one; none of them retains it any more.
pub fn green_reset(primary: &Context) {
    let gone = {
        let mut green = state().contexts.green.lock();
        let (here, elsewhere) = green.iter().copied().partition(|c| c.device == primary.device);
        *green = elsewhere;
        let here: Vec<&'static Context> = here;
        here
    };
    let ended = gone.into_iter().filter(|c| end_green(c)).count();
    let mut users = primary.users.lock();
    *users = users.saturating_sub(ended as u32);
}

impl Context {
    /// Runs the destructors, while the context still answers. False if it is not alive, or dying already.
    pub fn begin_death(&self) -> bool {
        let mine = self.state.compare_exchange(ACTIVE, DYING, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if mine {
            state().recording.context_ends(self.as_cuda());
            self.storage.destroy(self.handle);
        }
        mine
    }

    pub fn end_life(&self) {
        self.flags_wanted.store(0, Ordering::Relaxed);
        self.state.store(INACTIVE, Ordering::Release);
        context_died(self.handle);
    }
}

/// The context `handle` is dead: everything this process remembers about its objects is void.
pub fn context_died(handle: u64) {
    state().addresses.forget_context(handle);
    crate::session::poison::forget(handle);
    crate::objects::handles::release_all_in(handle);
    state().textures.context_ended(handle);
}
