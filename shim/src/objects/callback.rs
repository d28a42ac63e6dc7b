//! Running host functions.
//!
//! Natively the driver runs them on threads of its own, and a program may rely on as much concurrency as it has.
//! Here every function that the worker's driver has started, and so is waiting for, gets a thread at once: what
//! the driver does one after the other stays so, and what it does at the same time may wait for each other.
//!
//! Functions and data stay in this process. The worker has numbers, and one that was not given out, or was used up,
//! ends the session: a false server must not choose what a program calls.

// UNSAFETY: calls functions of the application with the data it gave for them.

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use orion_cuda::sys::*;
use orion_transport::thread::LIMIT;
use orion_wire::Reader;
use orion_wire::message::callback::{CallbackDone, RunCallback, StreamCall, Task};
use orion_wire::record::{Header, HeapRange};

use crate::objects::handles;
use crate::session::call::post_to;
use crate::state::callback::{Function, IN_CALLBACK, Job};
use crate::state::process::state;
use crate::state::session::Session;
use crate::system::threads::spawn;

impl Job {
    fn run(self) {
        // Relaxed: what matters is what this thread itself sees.
        state().callbacks.any_run.store(true, Ordering::Relaxed);
        // Also when the function has returned: until the worker has heard of it, it may be waited for.
        IN_CALLBACK.with(|flag| flag.set(true));
        crate::memory::graph_launches::around_host_function(self.s, || self.call());
        if let Function::Destroy(_, name) = self.registered.function {
            handles::release(name);
        } else {
            announce_again(self.s, !self.registered.kept);
            post_to(self.s, CallbackDone::OP, |w| CallbackDone { round: self.id }.encode(w));
        }
        IN_CALLBACK.with(|flag| flag.set(false));
    }

    /// The application's function. Inside it CUDA may not be called.
    fn call(&self) {
        let data = self.registered.data as *mut c_void;
        // SAFETY: the application's own function and data, called as CUDA calls it.
        unsafe {
            match self.registered.function {
                Function::Host(function) | Function::Destroy(function, _) => function(data),
                Function::Stream(function, stream) => function(stream as CUstream, self.status, data),
            }
        }
    }
}

/// A host function has run: what it may have written comes to the worker before the copies behind it start.
fn announce_again(s: &'static Session, counted: bool) {
    let ranges: Vec<HeapRange> = s.sources.change(|all| all.iter().flat_map(|s| &s.ranges).copied().collect());
    for range in ranges {
        crate::memory::in_step::announce_source(s, range);
    }
    crate::memory::in_step::before_launch(s);
    if counted {
        // Nothing is lost if the count is too high: more copies are noted than have to be.
        let less = |n: u32| Some(n.saturating_sub(1));
        let _ = state().callbacks.outstanding.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
    }
}

/// The worker asks for a function to be run. The service thread hands it on: it has output to print meanwhile.
pub fn run(s: &'static Session, header: &Header, mut r: Reader<'_>) {
    let task = match RunCallback::decode(&mut r) {
        Ok(q) => q.task,
        Err(fault) => {
            crate::session::lost::broken(fault.0);
            return;
        }
    };
    let table = || state().callbacks.registered.lock();
    let (asked_for, status) = match task {
        Task::HeapRange(offset) => return crate::memory::graph_copies::release_staged(s, offset),
        Task::Forget(function) => {
            table().take(function.0);
            return;
        }
        Task::HostFunction(function) => (table().asked_for(function.0, Function::is_host), CUDA_SUCCESS),
        Task::UserObject(function) => (table().asked_for(function.0, Function::is_destructor), CUDA_SUCCESS),
        Task::StreamCallback(StreamCall { function, status }) => {
            (table().asked_for(function.0, Function::is_stream), status)
        }
    };
    match asked_for {
        Some(registered) => hand_on(Job { s, id: header.context, registered, status }),
        None => _ = crate::session::lost::broken("a callback that this program did not register"),
    }
}

/// Before a function is given to the worker there is a thread that will run it: what waits for it could never go on
/// otherwise.
pub fn will_be_served() -> Result<(), CUresult> {
    if state().callbacks.pool.lock().is_served {
        return Ok(());
    }
    if let Err(e) = spawn("orion-callback", 8 << 20, serve) {
        let text = format!("starting a thread for host functions failed: {e}; {LIMIT}");
        crate::say!("{text}");
        crate::report::log::error("", &text);
        return Err(CUDA_ERROR_OPERATING_SYSTEM);
    }
    state().callbacks.pool.lock().is_served = true;
    Ok(())
}

fn hand_on(job: Job) {
    let mut pool = state().callbacks.pool.lock();
    pool.jobs.push_back(job);
    if pool.idle >= pool.jobs.len() {
        state().callbacks.work.notify_one();
        return;
    }
    drop(pool);
    if let Err(e) = spawn("orion-callback", 8 << 20, serve) {
        // Whoever is busy will come to it.
        crate::say!("starting a callback thread failed: {e}; host functions may run late");
    }
}

fn serve() {
    loop {
        let mut pool = state().callbacks.pool.lock();
        pool.idle += 1;
        let job = loop {
            match pool.jobs.pop_front() {
                Some(job) => break job,
                None => pool = pool.wait(&state().callbacks.work),
            }
        };
        pool.idle -= 1;
        drop(pool);
        job.run();
    }
}
