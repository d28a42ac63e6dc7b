//! Threads that are out of luck. `cancelled` cancels one that waits in a call and one that registers memory, and has
//! others use CUDA afterwards;
//! `shallow` says of several calls how much of a stack each takes; `unread` goes on where nobody reads what the driver
//! has to say; `forked` has handlers of its own for forks, which take a lock and write to registered memory.

// UNSAFETY: opens Orion's libcuda.so.1 and calls it by cuda.h's signatures; makes threads of the C library.

use std::ffi::{CString, c_void};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;

static DRIVER: OnceLock<Driver> = OnceLock::new();

fn main() {
    let way = std::env::args().nth(1);
    if way.as_deref() == Some("forked") {
        // As a library that is loaded before any GPU is asked for.
        // SAFETY: the handlers touch atomics and bytes of this program.
        assert_eq!(unsafe { libc::pthread_atfork(Some(before_fork), Some(behind_fork), Some(in_child)) }, 0);
    }
    // SAFETY: the library's initialisers only set up its own state, and the driver's table has cuda.h's signatures.
    let driver = unsafe {
        let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW);
        assert!(!library.is_null(), "there is no libcuda.so.1");
        Driver::load(&mut |name| libc::dlsym(library, CString::new(name).expect("a name").as_ptr()).cast_const())
    };
    assert!(DRIVER.set(driver).is_ok());
    match way.as_deref() {
        Some("cancelled") => cancelled(),
        Some("shallow") => shallow(),
        Some("unread") => unread(),
        Some("forked") => forked(),
        other => panic!("{other:?} is none of cancelled, shallow, unread, forked"),
    }
}

fn driver() -> &'static Driver {
    DRIVER.get().expect("main has loaded it")
}

fn use_primary() {
    // SAFETY: plain calls with valid out pointers.
    unsafe {
        let mut context = null_mut();
        assert_eq!(driver().cuInit(0), 0);
        assert_eq!(driver().cuDevicePrimaryCtxRetain(&mut context, 0), 0);
        assert_eq!(driver().cuCtxSetCurrent(context), 0);
    }
}

/// As C code has it: with an end that the C library brings about, and nothing to tidy up on the way.
type Start = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// A thread whose stack is `stack`, or the C library's.
fn start(start: Start, argument: *mut c_void, stack: Option<&mut [u8]>) -> libc::pthread_t {
    // SAFETY: valid places; the stack lives until the thread has been joined, and the two kinds of function differ in
    // what may pass through them alone.
    unsafe {
        let mut attributes = std::mem::zeroed();
        assert_eq!(libc::pthread_attr_init(&mut attributes), 0);
        if let Some(stack) = stack {
            assert_eq!(pthread_attr_setstack(&mut attributes, stack.as_mut_ptr().cast(), stack.len()), 0);
        }
        let start = std::mem::transmute::<Start, extern "C" fn(*mut c_void) -> *mut c_void>(start);
        let mut thread = 0;
        assert_eq!(libc::pthread_create(&mut thread, &attributes, start, argument), 0);
        thread
    }
}

unsafe extern "C-unwind" {
    fn pthread_attr_setstack(attributes: *mut libc::pthread_attr_t, at: *mut c_void, bytes: usize) -> i32;
    fn pthread_testcancel();
}

/// The stream's host function is to end.
static GO: AtomicBool = AtomicBool::new(false);
/// Threads that are in the midst of a call or have come back from it.
static BEGUN: AtomicUsize = AtomicUsize::new(0);
static RETURNED: AtomicUsize = AtomicUsize::new(0);
/// Longer than a thread looks for its answer before it looks whether the worker is there.
const A_WHILE: Duration = Duration::from_millis(300);

fn cancelled() {
    use_primary();
    const ROUNDS: usize = 2;
    for _ in 0..ROUNDS {
        GO.store(false, SeqCst);
        let begun = BEGUN.load(SeqCst);
        let mut stream = null_mut();
        // SAFETY: a valid out pointer, and a function that stays.
        unsafe {
            assert_eq!(driver().cuStreamCreate(&mut stream, 0), 0);
            assert_eq!(driver().cuLaunchHostFunc(stream, Some(until_told), null_mut()), 0);
        }
        let thread = start(waits, stream.cast(), None);
        while BEGUN.load(SeqCst) == begun {
            std::thread::yield_now();
        }
        std::thread::sleep(A_WHILE);
        // SAFETY: it has not been joined.
        assert_eq!(unsafe { libc::pthread_cancel(thread) }, 0);
        std::thread::sleep(A_WHILE);
        GO.store(true, SeqCst);
        // SAFETY: as above.
        assert_eq!(unsafe { libc::pthread_join(thread, null_mut()) }, 0);
        // Has the number of the one that has ended.
        std::thread::spawn(read_back).join().expect("the bytes are right");
    }
    let thread = start(registers, null_mut(), None);
    // SAFETY: it has not been joined.
    assert_eq!(unsafe { libc::pthread_join(thread, null_mut()) }, 0);
    let (done, other) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        use_primary();
        done.send(register()).expect("it is waited for");
    });
    assert_eq!(other.recv_timeout(Duration::from_secs(10)), Ok(0), "what the cancelled thread held is waited for");
    let returned =
        if RETURNED.load(SeqCst) == ROUNDS + 1 { "the calls had returned" } else { "a call has not returned" };
    println!("{returned}, and {} is read", read_back());
}

unsafe extern "C" fn until_told(_: *mut c_void) {
    while !GO.load(SeqCst) {
        std::thread::yield_now();
    }
}

unsafe extern "C-unwind" fn waits(stream: *mut c_void) -> *mut c_void {
    BEGUN.fetch_add(1, SeqCst);
    // SAFETY: a stream of this program's; what cancels passes by no value that has to be dropped.
    unsafe {
        driver().cuStreamSynchronize(stream.cast());
        RETURNED.fetch_add(1, SeqCst);
        loop {
            pthread_testcancel();
        }
    }
}

/// Is to end at the next place where threads are cancelled, and goes on to register memory.
unsafe extern "C-unwind" fn registers(_: *mut c_void) -> *mut c_void {
    use_primary();
    // SAFETY: a thread that is joined later; what cancels passes by no value that has to be dropped.
    unsafe {
        assert_eq!(libc::pthread_cancel(libc::pthread_self()), 0);
        register();
        RETURNED.fetch_add(1, SeqCst);
        loop {
            pthread_testcancel();
        }
    }
}

/// Pages, which are not given back.
fn register() -> CUresult {
    const BYTES: usize = 1 << 16;
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: memory of its own.
    unsafe { driver().cuMemHostRegister_v2(libc::mmap(null_mut(), BYTES, access, flags, -1, 0), BYTES, 0) }
}

fn read_back() -> u8 {
    const BYTES: usize = 1 << 20;
    use_primary();
    let (mut place, mut read) = (0, vec![0u8; BYTES]);
    // SAFETY: a valid out pointer, device memory of this size, and host memory as large.
    unsafe {
        assert_eq!(driver().cuMemAlloc_v2(&mut place, BYTES), 0);
        assert_eq!(driver().cuMemsetD8_v2(place, 7, BYTES), 0);
        assert_eq!(driver().cuMemcpyDtoH_v2(read.as_mut_ptr().cast(), place, BYTES), 0);
        assert_eq!(driver().cuMemFree_v2(place), 0);
    }
    assert!(read.iter().all(|byte| *byte == read[0]));
    read[0]
}

/// Held while memory is registered, and by who forks.
static LOCK: AtomicBool = AtomicBool::new(false);
/// Registered memory, to which the child writes as soon as it is there.
static BUFFER: AtomicUsize = AtomicUsize::new(0);
const BUFFER_BYTES: usize = 5 << 12;

fn lock() {
    while LOCK.swap(true, SeqCst) {
        std::thread::yield_now();
    }
}

unsafe extern "C" fn before_fork() {
    lock();
}

unsafe extern "C" fn behind_fork() {
    LOCK.store(false, SeqCst);
}

unsafe extern "C" fn in_child() {
    let at = std::ptr::with_exposed_provenance_mut::<u8>(BUFFER.load(SeqCst));
    if !at.is_null() {
        // SAFETY: so many bytes.
        unsafe { at.write_bytes(9, BUFFER_BYTES) };
    }
    LOCK.store(false, SeqCst);
}

fn forked() {
    use_primary();
    // SAFETY: memory of its own, whose first and last page hold other things too.
    let at = unsafe { libc::malloc(BUFFER_BYTES) }.cast::<u8>();
    // SAFETY: so many bytes.
    unsafe {
        at.write_bytes(7, BUFFER_BYTES);
        assert_eq!(driver().cuMemHostRegister_v2(at.cast(), BUFFER_BYTES, 0), 0);
    }
    BUFFER.store(at.expose_provenance(), SeqCst);
    std::thread::spawn(|| {
        use_primary();
        loop {
            lock();
            assert_eq!(register(), 0);
            LOCK.store(false, SeqCst);
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    for _ in 0..20 {
        // SAFETY: the child calls nothing but _exit.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: a child of this process.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
    }
    // SAFETY: so many bytes.
    let others = unsafe { std::slice::from_raw_parts(at, BUFFER_BYTES) }.iter().filter(|byte| **byte != 7).count();
    println!("20 forks, {others} bytes of a child's, and {} is read", read_back());
}

/// Standard error is a pipe that is full.
fn unread() {
    use_primary();
    let wrong = c".version 8.0\n.target sm_75\n.address_size 64\nrefusal ;\n";
    let mut module = null_mut();
    // SAFETY: valid out pointers, a text with its NUL, and a function that stays.
    unsafe {
        assert_ne!(driver().cuModuleLoadData(&mut module, wrong.as_ptr().cast()), 0);
        GO.store(true, SeqCst);
        assert_eq!(driver().cuLaunchHostFunc(null_mut(), Some(until_told), null_mut()), 0);
        assert_eq!(driver().cuCtxSynchronize(), 0);
    }
    println!("{} is read", read_back());
}

const STACK_BYTES: usize = 512 << 10;
const PAINT: u8 = 0xa5;
static MODULE: &[u8] = b".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing() { ret; }\n\0";
static PLACE: AtomicUsize = AtomicUsize::new(0);
static KERNEL: AtomicUsize = AtomicUsize::new(0);
const BYTES: usize = 1 << 20;

fn shallow() {
    let calls: [(&str, fn()); 9] = [
        ("cuInit", || assert_eq!(unsafe_init(), 0)),
        ("contexts", use_primary),
        ("cuMemAlloc", || {
            use_primary();
            let mut place = 0;
            // SAFETY: a valid out pointer.
            assert_eq!(unsafe { driver().cuMemAlloc_v2(&mut place, BYTES) }, 0);
            PLACE.store(place as usize, SeqCst);
        }),
        ("cuModuleLoadData", || {
            use_primary();
            let (mut module, mut kernel) = (null_mut(), null_mut());
            // SAFETY: valid out pointers and texts with their NUL.
            unsafe {
                assert_eq!(driver().cuModuleLoadData(&mut module, MODULE.as_ptr().cast()), 0);
                assert_eq!(driver().cuModuleGetFunction(&mut kernel, module, c"nothing".as_ptr()), 0);
            }
            KERNEL.store(kernel as usize, SeqCst);
        }),
        ("copies", || {
            use_primary();
            let mut bytes = vec![1u8; BYTES];
            let place = PLACE.load(SeqCst) as CUdeviceptr;
            // SAFETY: device memory of that size, and host memory as large.
            unsafe {
                assert_eq!(driver().cuMemcpyHtoD_v2(place, bytes.as_ptr().cast(), BYTES), 0);
                assert_eq!(driver().cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), place, BYTES), 0);
            }
        }),
        ("cuLaunchKernel", || {
            use_primary();
            // SAFETY: a kernel without parameters.
            let code = unsafe { launch(64) };
            assert_eq!(code, 0);
        }),
        ("cuLaunchHostFunc", || {
            use_primary();
            GO.store(true, SeqCst);
            // SAFETY: a function that stays.
            unsafe {
                assert_eq!(driver().cuLaunchHostFunc(null_mut(), Some(until_told), null_mut()), 0);
                assert_eq!(driver().cuCtxSynchronize(), 0);
            }
        }),
        ("a launch that is wrong", || {
            use_primary();
            // SAFETY: as above.
            assert_ne!(unsafe { launch(1 << 20) }, 0);
        }),
        ("a refusal", || {
            use_primary();
            let mut place = 0i32;
            // SAFETY: a valid out pointer, and no memory that is read.
            let code = unsafe { driver().cuMemGetHandleForAddressRange((&raw mut place).cast(), 0, BYTES, 1, 0) };
            assert_eq!(code, CUDA_ERROR_NOT_SUPPORTED);
        }),
    ];
    let nothing = taken_by(|| ());
    for (name, call) in calls {
        println!("{} {name}", taken_by(call) - nothing);
    }
}

fn unsafe_init() -> CUresult {
    // SAFETY: a plain call.
    unsafe { driver().cuInit(0) }
}

/// # Safety
/// None: the kernel takes nothing and does nothing.
unsafe fn launch(threads: u32) -> CUresult {
    let kernel = KERNEL.load(SeqCst) as CUfunction;
    // SAFETY: a kernel without parameters.
    unsafe { driver().cuLaunchKernel(kernel, 1, 1, 1, threads, 1, 1, 0, null_mut(), null_mut(), null::<c_void>() as _) }
}

/// How much of its stack a thread has written to that makes this call.
fn taken_by(call: fn()) -> usize {
    let mut stack = vec![PAINT; STACK_BYTES];
    let thread = start(calls, call as *mut c_void, Some(&mut stack));
    // SAFETY: it has not been joined.
    assert_eq!(unsafe { libc::pthread_join(thread, null_mut()) }, 0);
    STACK_BYTES - stack.iter().take_while(|byte| **byte == PAINT).count()
}

unsafe extern "C-unwind" fn calls(call: *mut c_void) -> *mut c_void {
    // SAFETY: what `taken_by` was given.
    unsafe { std::mem::transmute::<*mut c_void, fn()>(call)() };
    null_mut()
}
