//! Several threads of one program, and forks of it.
//!
//! UNSAFETY: forks the process, and asks the child with async-signal-safe calls only.

use std::ffi::c_void;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use orion_cuda::sys::*;

use crate::driver::Cuda;
use crate::fact::{Verdict, answers, facts, holds, ok, same};
use crate::lab::{as_void, counter, counter_argument, read, tally, use_primary, write};

facts! { thread:
    Context [
        what_one_did_is_before_what_the_next_does,
        a_stream_synchronize_holds_up_nobody_else,
        an_event_synchronize_holds_up_nobody_else,
        a_context_synchronize_holds_up_nobody_else,
        a_context_synchronize_with_more_to_come_holds_up_nobody_else,
        a_context_synchronize_beside_another_contexts_capture_holds_up_nobody_else,
        a_context_synchronize_covers_a_destroyed_stream,
        a_blocking_copy_holds_up_nobody_else,
        a_larger_stack_waits_and_others_may_ask.not_in_a_crowd("it sets what holds for all"),
        a_full_queue_holds_up_nobody_else.alone(),
        eight_hundred_launches_wait_for_nobody,
        a_kernel_hears_the_host_although_the_queue_is_full,
        eight_work_at_once,
        five_thousand_use_it_at_once.alone().not_in_a_crowd("it has threads enough"),
        twenty_thousand_use_it_one_after_the_other.alone().not_in_a_crowd("it has threads enough"),
        memory_of_one_is_freed_by_another,
        per_thread_streams_do_not_wait_for_each_other.not_in_a_crowd("others' unfinished work is waited for too"),
        a_thread_that_ends_leaves_its_work_running,
        a_fork_that_exits_does_no_harm.alone().not_in_a_crowd("the child may inherit a lock that another held"),
        a_forked_child_is_not_initialized.alone().not_in_a_crowd("the child may inherit a lock that another held"),
        what_a_forked_child_writes_to_registered_memory_its_parent_does_not_see
            .alone()
            .not_in_a_crowd("the child may inherit a lock that another held"),
        registered_memory_is_the_childs_own_where_a_host_function_forks
            .alone()
            .not_in_a_crowd("the child may inherit a lock that another held"),
        registered_memory_is_the_childs_own_where_another_thread_registers_some
            .alone()
            .not_in_a_crowd("the child may inherit a lock that another held"),
        a_child_process_starts_afresh.alone(),
        ending_with_work_in_flight_is_clean.alone(),
    ]
}

fn what_one_did_is_before_what_the_next_does(cu: &'static Cuda) -> Verdict {
    let module = cu.module()?;
    let (increment, twice) = (cu.function(module, "increment")?.addr(), cu.function(module, "twice")?.addr());
    let (stream, address) = (cu.stream()?, cu.words(&[0])?);
    let handle = stream.addr();
    let (to_other, from_main) = channel::<()>();
    let (to_main, from_other) = channel::<()>();
    let other = thread::spawn(move || {
        use_primary(cu)?;
        while from_main.recv().is_ok() {
            ok!(cu.launch_on(without_provenance_mut(twice), address, without_provenance_mut(handle)));
            to_main.send(()).expect("the fact waits for each answer");
        }
        Ok::<(), String>(())
    });
    for _ in 0..20 {
        ok!(cu.launch_on(without_provenance_mut(increment), address, stream));
        to_other.send(()).expect("the other thread lives until the channel closes");
        if from_other.recv().is_err() {
            break;
        }
    }
    drop(to_other);
    other.join().expect("a panic ends the process")?;
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu.word(address)?, (1 << 21) - 2);
    ok!(cu.cuModuleUnload(module));
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(address)
}

/// Makes a thread block in `wait` behind a gate, and does everyday work beside it.
fn work_beside(cu: &'static Cuda, wait: fn(&Cuda, CUstream, CUevent) -> CUresult) -> Verdict {
    let (stream, event) = (cu.stream()?, cu.event()?);
    let (mine, address) = (cu.stream()?, cu.words(&[0])?);
    let (module, increment) = cu.kernel("increment")?;
    // The kernel runs once before the gate closes: its first launch may load code, which waits for the device.
    ok!(cu.launch_on(increment, address, mine));
    ok!(cu.cuStreamSynchronize(mine));
    let gate = cu.gate(stream)?;
    ok!(cu.cuEventRecord(event, stream));
    let (blocked_stream, blocked_event) = (stream.addr(), event.addr());
    let (started, has_started) = channel();
    let done = counter();
    let blocked = thread::spawn(move || {
        use_primary(cu)?;
        started.send(()).expect("the fact waits for the start");
        ok!(wait(cu, without_provenance_mut(blocked_stream), without_provenance_mut(blocked_event)));
        done.store(1, Ordering::SeqCst);
        Ok::<(), String>(())
    });
    has_started.recv().expect("the thread says that it has started");
    for _ in 0..20 {
        ok!(cu.launch_on(increment, address, mine));
        ok!(cu.cuStreamSynchronize(mine));
        let (mut kind, mut word) = (0u32, 0u32);
        ok!(cu.cuPointerGetAttribute(as_void(&mut kind), CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
        ok!(cu.cuMemcpyDtoHAsync_v2(as_void(&mut word), address, 4, mine));
        ok!(cu.cuStreamSynchronize(mine));
        holds!(done.load(Ordering::SeqCst) == 0, "the blocked call returned before the gate opened");
    }
    gate.open();
    blocked.join().expect("a panic ends the process")?;
    same!(cu.word(address)?, 21);
    ok!(cu.cuModuleUnload(module));
    ok!(cu.cuEventDestroy_v2(event));
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuStreamDestroy_v2(mine));
    cu.free(address)
}

fn a_stream_synchronize_holds_up_nobody_else(cu: &'static Cuda) -> Verdict {
    work_beside(cu, |cu, stream, _| cu.cuStreamSynchronize(stream))
}

fn an_event_synchronize_holds_up_nobody_else(cu: &'static Cuda) -> Verdict {
    work_beside(cu, |cu, _, event| cu.cuEventSynchronize(event))
}

fn a_context_synchronize_holds_up_nobody_else(cu: &'static Cuda) -> Verdict {
    work_beside(cu, |cu, _, _| cu.cuCtxSynchronize())
}

fn a_context_synchronize_beside_another_contexts_capture_holds_up_nobody_else(cu: &'static Cuda) -> Verdict {
    let (mut context, mut graph) = (null_mut(), null_mut());
    ok!(cu.cuCtxCreate_v2(&mut context, 0, 0));
    let stream = cu.stream()?;
    ok!(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    use_primary(cu)?;
    a_context_synchronize_with_more_to_come_holds_up_nobody_else(cu)?;
    ok!(cu.cuCtxSetCurrent(context));
    ok!(cu.cuStreamEndCapture(stream, &mut graph));
    ok!(cu.cuGraphDestroy(graph));
    ok!(cu.cuCtxDestroy_v2(context));
    use_primary(cu)
}

/// What was queued before it is done, but what came after is not.
fn a_context_synchronize_with_more_to_come_holds_up_nobody_else(cu: &'static Cuda) -> Verdict {
    let (first, second, mine) = (cu.stream()?, cu.stream()?, cu.stream()?);
    let address = cu.words(&[0])?;
    let (module, increment) = cu.kernel("increment")?;
    // The first launch may load code, which waits for the device.
    ok!(cu.launch_on(increment, address, mine));
    ok!(cu.cuStreamSynchronize(mine));
    let gate = cu.gate(first)?;
    let (started, has_started) = channel();
    let blocked = thread::spawn(move || {
        use_primary(cu)?;
        started.send(()).expect("the fact waits for the start");
        ok!(cu.cuCtxSynchronize());
        Ok::<(), String>(())
    });
    has_started.recv().expect("the thread says that it has started");
    // Nothing tells that it waits.
    thread::sleep(Duration::from_millis(20));
    let later = cu.gate(second)?;
    gate.open();
    for _ in 0..20 {
        ok!(cu.launch_on(increment, address, mine));
        ok!(cu.cuStreamSynchronize(mine));
    }
    later.open();
    blocked.join().expect("a panic ends the process")?;
    same!(cu.word(address)?, 21);
    ok!(cu.cuModuleUnload(module));
    for stream in [first, second, mine] {
        ok!(cu.cuStreamDestroy_v2(stream));
    }
    cu.free(address)
}

fn a_context_synchronize_covers_a_destroyed_stream(cu: &'static Cuda) -> Verdict {
    let (stream, done) = (cu.stream()?, counter());
    let gate = cu.gate(stream)?;
    ok!(cu.cuLaunchHostFunc(stream, Some(tally), counter_argument(done)));
    ok!(cu.cuStreamDestroy_v2(stream));
    let opener = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        gate.open();
    });
    ok!(cu.cuCtxSynchronize());
    same!(done.load(Ordering::SeqCst), 1);
    opener.join().expect("a panic ends the process");
    Ok(())
}

fn a_blocking_copy_holds_up_nobody_else(cu: &'static Cuda) -> Verdict {
    work_beside(cu, |cu, stream, _| {
        let (mut word, mut address) = (0u32, 0);
        let code = cu.cuMemAlloc_v2(&mut address, 4);
        if code != CUDA_SUCCESS {
            return code;
        }
        // A copy to pageable memory returns when it is complete, so it waits for the gate.
        let code = cu.cuMemcpyDtoHAsync_v2(as_void(&mut word), address, 4, stream);
        if code != CUDA_SUCCESS { code } else { cu.cuStreamSynchronize(stream) }
    })
}

fn eight_work_at_once(cu: &'static Cuda) -> Verdict {
    let module = cu.module()?;
    let fill = cu.function(module, "fill")?.addr();
    let workers: Vec<_> = (0..8u32)
        .map(|number| {
            thread::spawn(move || {
                use_primary(cu)?;
                let (stream, mut out) = (cu.stream()?, cu.alloc(4000)?);
                for round in 0..50 {
                    let (mut value, mut n) = (number * 1000 + round, 1000u32);
                    let mut arguments = [as_void(&mut out), as_void(&mut value), as_void(&mut n)];
                    ok!(cu.launch(without_provenance_mut(fill), 8, 128, stream, &mut arguments));
                    let mut back = vec![0u32; 1000];
                    ok!(cu.cuMemcpyDtoHAsync_v2(back.as_mut_ptr().cast(), out, 4000, stream));
                    ok!(cu.cuStreamSynchronize(stream));
                    same!(back, vec![number * 1000 + round; 1000]);
                }
                ok!(cu.cuStreamDestroy_v2(stream));
                cu.free(out)
            })
        })
        .collect();
    for worker in workers {
        worker.join().expect("a panic ends the process")?;
    }
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

fn memory_of_one_is_freed_by_another(cu: &'static Cuda) -> Verdict {
    let address = cu.words(&[6])?;
    thread::spawn(move || {
        use_primary(cu)?;
        same!(cu.word(address)?, 6);
        cu.free(address)
    })
    .join()
    .expect("a panic ends the process")
}

fn per_thread_streams_do_not_wait_for_each_other(cu: &'static Cuda) -> Verdict {
    let (own, address): (CUstream, _) = (without_provenance_mut(2), cu.words(&[0])?);
    let gate = cu.gate(own)?;
    thread::spawn(move || {
        use_primary(cu)?;
        let own: CUstream = without_provenance_mut(2);
        ok!(cu.cuMemsetD32Async(address, 1, 1, own));
        ok!(cu.cuStreamSynchronize(own));
        Ok::<(), String>(())
    })
    .join()
    .expect("a panic ends the process")?;
    gate.open();
    ok!(cu.cuStreamSynchronize(own));
    same!(cu.word(address)?, 1);
    cu.free(address)
}

fn a_thread_that_ends_leaves_its_work_running(cu: &'static Cuda) -> Verdict {
    let (stream, address) = (cu.stream()?, cu.words(&[0])?);
    let handle = stream.addr();
    thread::spawn(move || {
        use_primary(cu)?;
        ok!(cu.cuMemsetD32Async(address, 3, 1, without_provenance_mut(handle)));
        Ok::<(), String>(())
    })
    .join()
    .expect("a panic ends the process")?;
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu.word(address)?, 3);
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(address)
}

/// Forks; the child answers `child` as its exit status.
pub fn in_a_fork(child: impl FnOnce() -> i32) -> Result<i32, String> {
    // SAFETY: the child calls only what the fact is about and then _exit, never back into this program.
    let process = unsafe { libc::fork() };
    if process == 0 {
        let status = child();
        // SAFETY: ends the child at once, without the exit handlers it inherited.
        unsafe { libc::_exit(status) };
    }
    holds!(process > 0, "fork: {}", std::io::Error::last_os_error());
    let mut status = 0;
    // SAFETY: waits for the child just made, with a status word of our own.
    let waited = unsafe { libc::waitpid(process, &mut status, 0) };
    holds!(waited == process && libc::WIFEXITED(status), "the child ended with status {status:#x}");
    Ok(libc::WEXITSTATUS(status))
}

fn a_fork_that_exits_does_no_harm(cu: &'static Cuda) -> Verdict {
    let address = cu.words(&[9])?;
    same!(in_a_fork(|| 7)?, 7);
    // As subprocess.run and a DataLoader do it: a child that runs its exit handlers too.
    // SAFETY: see in_a_fork; exit runs the inherited handlers on purpose.
    same!(in_a_fork(|| unsafe { libc::exit(8) })?, 8);
    same!(cu.word(address)?, 9);
    let again = cu.words(&[10])?;
    same!(cu.word(again)?, 10);
    Ok(())
}

fn a_forked_child_is_not_initialized(cu: &'static Cuda) -> Verdict {
    let code = in_a_fork(|| {
        let mut address = 0;
        cu.cuMemAlloc_v2(&mut address, 64) as i32
    })?;
    same!(code as CUresult, CUDA_ERROR_NOT_INITIALIZED);
    let address = cu.words(&[11])?;
    same!(cu.word(address)?, 11);
    Ok(())
}

/// Bytes that are registered: of the C library's heap, as programs register them, whose first and last page hold other
/// things too, or whole pages.
struct Registered {
    at: *mut u8,
    free: unsafe fn(*mut c_void),
}

impl Registered {
    const BYTES: usize = 5 << 12;

    fn new(cu: &Cuda) -> Result<Registered, String> {
        // SAFETY: memory of its own.
        Registered::of(cu, unsafe { libc::malloc(Registered::BYTES) }, |at| unsafe { libc::free(at) })
    }

    fn pages(cu: &Cuda) -> Result<Registered, String> {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: memory of its own, which `free` gives back whole.
        let at = unsafe { libc::mmap(null_mut(), Registered::BYTES, access, flags, -1, 0) };
        Registered::of(cu, at, |at| _ = unsafe { libc::munmap(at, Registered::BYTES) })
    }

    fn of(cu: &Cuda, at: *mut c_void, free: unsafe fn(*mut c_void)) -> Result<Registered, String> {
        // SAFETY: so many bytes.
        unsafe { at.write_bytes(7, Registered::BYTES) };
        ok!(cu.cuMemHostRegister_v2(at, Registered::BYTES, 0));
        Ok(Registered { at: at.cast(), free })
    }

    /// Forks whose children write all of them, and end.
    fn are_written_in_forks(&self) -> Verdict {
        for _ in 0..3 {
            let child = || {
                (0..Registered::BYTES).for_each(|i| write(self.at.wrapping_add(i).cast(), 9u8));
                3
            };
            same!(in_a_fork(child)?, 3);
        }
        Ok(())
    }

    fn are_as_before(self, cu: &Cuda) -> Verdict {
        let other = (0..Registered::BYTES).find(|i| read::<u8>(self.at.wrapping_add(*i).cast()) != 7);
        ok!(cu.cuMemHostUnregister(self.at.cast()));
        // SAFETY: what `new` or `pages` has made, and nobody uses any more.
        unsafe { (self.free)(self.at.cast()) };
        same!(other, None);
        Ok(())
    }
}

fn what_a_forked_child_writes_to_registered_memory_its_parent_does_not_see(cu: &'static Cuda) -> Verdict {
    let registered = Registered::new(cu)?;
    registered.are_written_in_forks()?;
    registered.are_as_before(cu)
}

fn registered_memory_is_the_childs_own_where_a_host_function_forks(cu: &'static Cuda) -> Verdict {
    extern "C" fn forks(told: *mut c_void) {
        let at = without_provenance_mut(read::<[usize; 2]>(told)[0]);
        let verdict = Registered { at, free: |_| () }.are_written_in_forks();
        write(told.wrapping_byte_add(size_of::<usize>()), usize::from(verdict.is_ok()));
    }
    let registered = Registered::new(cu)?;
    let mut told = [registered.at.addr(), 0];
    ok!(cu.cuLaunchHostFunc(null_mut(), Some(forks), as_void(&mut told)));
    ok!(cu.cuCtxSynchronize());
    same!(read::<[usize; 2]>(as_void(&mut told))[1], 1);
    registered.are_as_before(cu)
}

fn registered_memory_is_the_childs_own_where_another_thread_registers_some(cu: &'static Cuda) -> Verdict {
    let registered = Registered::new(cu)?;
    let ends = Arc::new(AtomicBool::new(false));
    let other = {
        let ends = ends.clone();
        thread::spawn(move || {
            use_primary(cu)?;
            while !ends.load(Ordering::SeqCst) {
                Registered::pages(cu)?.are_as_before(cu)?;
            }
            Ok::<(), String>(())
        })
    };
    let forked = (0..20).try_for_each(|_| registered.are_written_in_forks());
    ends.store(true, Ordering::SeqCst);
    other.join().expect("a panic ends the process")?;
    forked?;
    registered.are_as_before(cu)
}

fn a_child_process_starts_afresh(_cu: &'static Cuda) -> Verdict {
    let mut command = std::process::Command::new(std::env::current_exe().expect("this program has a path"));
    command.args(["--only", "memory::double_free", "--quiet"]);
    if let Some(lib) = std::env::args().skip_while(|a| a != "--lib").nth(1) {
        command.args(["--lib", &lib]);
    }
    let output = command.output().map_err(|e| format!("cannot start a child: {e}"))?;
    same!(String::from_utf8_lossy(&output.stdout).trim(), "1 passed, 0 failed");
    Ok(())
}

/// The runner looks at how the process ends.
fn ending_with_work_in_flight_is_clean(cu: &'static Cuda) -> Verdict {
    let (module, increment) = cu.kernel("increment")?;
    let address = cu.words(&[0])?;
    for _ in 0..500 {
        ok!(cu.launch_on(increment, address, null_mut()));
    }
    holds!(!module.is_null(), "no module");
    Ok(())
}

/// A thread of which there can be thousands.
fn small(work: impl FnOnce() -> Verdict + Send + 'static) -> Result<thread::JoinHandle<Verdict>, String> {
    thread::Builder::new().stack_size(128 << 10).spawn(work).map_err(|e| format!("starting a thread: {e}"))
}

/// `cuCtxSetLimit` waits for the device, which waits for what another thread does first. What others give the device
/// meanwhile waits in their own threads, as it does in an H200's driver; they may ask.
fn a_larger_stack_waits_and_others_may_ask(cu: &'static Cuda) -> Verdict {
    let (stream, mine) = (cu.stream()?, cu.stream()?);
    let mut before = 0;
    ok!(cu.cuCtxGetLimit(&mut before, CU_LIMIT_STACK_SIZE));
    let (gate, is_open) = (cu.gate(stream)?, Arc::new(AtomicBool::new(false)));
    let sees = is_open.clone();
    let sets = thread::spawn(move || {
        use_primary(cu)?;
        ok!(cu.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, before + 4096));
        Ok::<bool, String>(sees.load(Ordering::SeqCst))
    });
    thread::sleep(Duration::from_millis(50));
    ok!(cu.cuStreamQuery(mine));
    answers!(CUDA_ERROR_NOT_READY, cu.cuStreamQuery(stream));
    is_open.store(true, Ordering::SeqCst);
    gate.open();
    holds!(sets.join().expect("a panic ends the process")?, "it did not wait for the device");
    ok!(cu.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, before));
    ok!(cu.cuStreamDestroy_v2(mine));
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}

/// More than a GPU's queue holds.
const MORE_THAN_FIT: u32 = 3000;

/// Launches so many, in a thread of its own that waits in one of them; answers when it does.
fn fill_queue(cu: &'static Cuda, increment: CUfunction, word: u64, stream: CUstream) -> thread::JoinHandle<Verdict> {
    let (function, stream) = (increment.addr(), stream.addr());
    let launched = Arc::new(AtomicU32::new(0));
    let count = launched.clone();
    let launches = thread::spawn(move || {
        use_primary(cu)?;
        for _ in 0..MORE_THAN_FIT {
            ok!(cu.launch_on(without_provenance_mut(function), word, without_provenance_mut(stream)));
            count.fetch_add(1, Ordering::SeqCst);
        }
        ok!(cu.cuStreamSynchronize(without_provenance_mut(stream)));
        Ok(())
    });
    let mut seen = 0;
    while !launches.is_finished() {
        thread::sleep(Duration::from_millis(100));
        let now = launched.load(Ordering::SeqCst);
        if now == seen && now > 0 {
            break;
        }
        seen = now;
    }
    launches
}

/// What the GPU waits for before it goes on with the queue is another thread's to say, in calls of its own.
fn a_full_queue_holds_up_nobody_else(cu: &'static Cuda) -> Verdict {
    let (module, increment) = cu.kernel("increment")?;
    let (stream, other) = (cu.stream()?, cu.stream()?);
    for by_function in [false, true] {
        let (word, flag, fresh) = (cu.words(&[0])?, cu.words(&[0])?, cu.words(&[0])?);
        let gate = match by_function {
            true => Some(cu.gate(stream)?),
            false => {
                ok!(cu.cuStreamWaitValue32_v2(stream, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
                None
            }
        };
        let launches = fill_queue(cu, increment, word, stream);
        holds!(!launches.is_finished(), "nothing holds the stream up");
        let mut seen = 9u32;
        ok!(cu.launch_on(increment, fresh, other));
        ok!(cu.cuMemcpyDtoHAsync_v2(as_void(&mut seen), fresh, 4, other));
        ok!(cu.cuStreamSynchronize(other));
        same!(seen, 1);
        match gate {
            Some(gate) => gate.open(),
            None => ok!(cu.cuStreamWriteValue32_v2(other, flag, 1, 0)),
        }
        launches.join().map_err(|_| "a thread panicked".to_owned())??;
        same!(cu.word(word)?, MORE_THAN_FIT);
        [word, flag, fresh].into_iter().try_for_each(|address| cu.free(address))?;
    }
    ok!(cu.cuStreamDestroy_v2(other));
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

/// Those fit.
fn eight_hundred_launches_wait_for_nobody(cu: &'static Cuda) -> Verdict {
    const FIT: u32 = 800;
    let (module, increment) = cu.kernel("increment")?;
    let (stream, word) = (cu.stream()?, cu.words(&[0])?);
    let gate = cu.gate(stream)?;
    for _ in 0..FIT {
        ok!(cu.launch_on(increment, word, stream));
    }
    gate.open();
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu.word(word)?, FIT);
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuModuleUnload(module));
    cu.free(word)
}

/// What a kernel waits for is in pinned memory, and the thread that writes it makes no call.
fn a_kernel_hears_the_host_although_the_queue_is_full(cu: &'static Cuda) -> Verdict {
    let module = cu.module()?;
    let (converse, increment) = (cu.function(module, "converse")?, cu.function(module, "increment")?);
    let (stream, word, pinned, mut rounds) = (cu.stream()?, cu.words(&[0])?, cu.pinned(256)?, 1u32);
    write(pinned, [0u8; 256]);
    let mut device = pinned.addr() as u64;
    ok!(cu.launch(converse, 1, 1, stream, &mut [as_void(&mut device), as_void(&mut rounds)]));
    let launches = fill_queue(cu, increment, word, stream);
    holds!(!launches.is_finished(), "nothing holds the stream up");
    write(pinned.wrapping_byte_add(68), 101u32);
    launches.join().map_err(|_| "a thread panicked".to_owned())??;
    same!((cu.word(word)?, read::<u32>(pinned.wrapping_byte_add(128))), (MORE_THAN_FIT, 1));
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuModuleUnload(module));
    ok!(cu.cuMemFreeHost(pinned));
    cu.free(word)
}

fn five_thousand_use_it_at_once(cu: &'static Cuda) -> Verdict {
    const THREADS: usize = 5000;
    let all_are_here = Arc::new(Barrier::new(THREADS));
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let all_are_here = all_are_here.clone();
            small(move || {
                let used = (|| {
                    use_primary(cu)?;
                    let event = cu.event()?;
                    ok!(cu.cuEventRecord(event, null_mut()));
                    ok!(cu.cuEventSynchronize(event));
                    ok!(cu.cuEventDestroy_v2(event));
                    Ok(())
                })();
                // None ends before all have used it.
                all_are_here.wait();
                used
            })
        })
        .collect::<Result<_, _>>()?;
    threads.into_iter().try_for_each(|t| t.join().map_err(|_| "a thread panicked".to_owned())?)
}

fn twenty_thousand_use_it_one_after_the_other(cu: &'static Cuda) -> Verdict {
    for _ in 0..20_000 {
        let used = small(move || {
            use_primary(cu)?;
            let event = cu.event()?;
            ok!(cu.cuEventDestroy_v2(event));
            ok!(cu.cuStreamQuery(null_mut()));
            Ok(())
        })?;
        used.join().map_err(|_| "a thread panicked".to_owned())??;
    }
    Ok(())
}
