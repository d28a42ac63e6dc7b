//! Threads for driver calls that block, so that the executor never does.

// UNSAFETY: sets a context current on a helper thread and calls the driver there.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex};

use orion_cuda::driver::Driver;
use orion_cuda::sys::{CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_SUCCESS, CUcontext, CUresult};

const PENDING: u32 = u32::MAX;
/// One a blocked client thread; more wait their turn.
const HELPERS_MAX: usize = 64;

/// One blocking call under way.
pub struct Job {
    result: AtomicU32,
}

impl Job {
    /// The call's result once it has returned.
    pub fn result(&self) -> Option<CUresult> {
        // Acquire pairs with the Release of the helper: what the call wrote is visible.
        let r = self.result.load(Ordering::Acquire);
        (r != PENDING).then_some(r)
    }
}

type Work = Box<dyn FnOnce(&'static Driver) -> CUresult + Send>;

struct Queue {
    work: VecDeque<(usize, Work, Arc<Job>)>,
    idle: usize,
    threads: usize,
}

pub struct Helpers {
    driver: &'static Driver,
    shared: Arc<(Mutex<Queue>, Condvar)>,
}

impl Helpers {
    pub fn new(driver: &'static Driver) -> Helpers {
        let queue = Queue { work: VecDeque::new(), idle: 0, threads: 0 };
        Helpers { driver, shared: Arc::new((Mutex::new(queue), Condvar::new())) }
    }

    /// Runs `work` with `context` current.
    pub fn run(&self, context: CUcontext, work: impl FnOnce(&'static Driver) -> CUresult + Send + 'static) -> Arc<Job> {
        let job = Arc::new(Job { result: AtomicU32::new(PENDING) });
        let mut queue = self.shared.0.lock().expect("no panic happens under this lock");
        queue.work.push_back((context as usize, Box::new(work), job.clone()));
        if queue.idle < queue.work.len() && queue.threads < HELPERS_MAX {
            queue.threads += 1;
            let (driver, shared) = (self.driver, self.shared.clone());
            start("helper", move || {
                leave_captures_alone(driver);
                serve(driver, &shared);
            });
        }
        self.shared.1.notify_one();
        job
    }
}

/// A thread that does the work of one object, for which the driver keeps something by thread. It ends with this.
pub struct Own {
    work: Sender<Given>,
}

type Given = (usize, Work, Arc<Job>);

impl Own {
    pub fn start(name: &str, driver: &'static Driver) -> Own {
        let (work, works) = channel::<Given>();
        start(name, move || works.into_iter().for_each(|(context, work, job)| one(driver, context, work, &job)));
        Own { work }
    }

    /// Runs `work` with `context` current, behind what was given to it before.
    pub fn run(&self, context: CUcontext, work: impl FnOnce(&'static Driver) -> CUresult + Send + 'static) -> Arc<Job> {
        let job = Arc::new(Job { result: AtomicU32::new(PENDING) });
        self.work.send((context as usize, Box::new(work), job.clone())).expect("the thread lives as long as this");
        job
    }
}

/// NVIDIA's compiler recurses, and is made for the stack of a program's first thread: 8 MiB.
const STACK_BYTES: usize = 16 << 20;

fn start(name: &str, serve: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().name(name.into()).stack_size(STACK_BYTES);
    thread.spawn(serve).expect("starting a helper thread");
}

/// Whether a capture forbids a call the executor has decided, when the client made it.
fn leave_captures_alone(driver: &'static Driver) {
    let mut mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: a valid in-out pointer.
    let code = unsafe { driver.cuThreadExchangeStreamCaptureMode(&mut mode) };
    debug_assert_eq!(code, CUDA_SUCCESS, "a mode that the driver has");
}

fn one(driver: &'static Driver, context: usize, work: Work, job: &Job) {
    // SAFETY: a context of this session, which outlives its parked calls.
    let set = unsafe { driver.cuCtxSetCurrent(context as CUcontext) };
    let result = if set == CUDA_SUCCESS { work(driver) } else { set };
    job.result.store(result, Ordering::Release);
}

fn serve(driver: &'static Driver, shared: &(Mutex<Queue>, Condvar)) {
    loop {
        let (context, work, job) = {
            let mut queue = shared.0.lock().expect("no panic happens under this lock");
            queue.idle += 1;
            let next = loop {
                match queue.work.pop_front() {
                    Some(next) => break next,
                    None => queue = shared.1.wait(queue).expect("no panic happens under this lock"),
                }
            };
            queue.idle -= 1;
            next
        };
        one(driver, context, work, &job);
    }
}
