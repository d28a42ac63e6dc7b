//! Asks libcuda what no fact asks: every function it exports, with nothing; and what the driver behind it logs.
//!
//! UNSAFETY: calls functions found by name, most of them with zeros for all their arguments, which the driver API has
//! to survive.

use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::transmute;
use std::ptr::null_mut;

use orion_cuda::sys::*;

/// What driver 580 exports.
const EXPORTS: &str = include_str!("../../api/data/exports-580.txt");

struct Library(*mut c_void);

impl Library {
    fn open() -> Library {
        // SAFETY: runs libcuda's initialisers.
        let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "libcuda.so.1 does not load");
        Library(library)
    }

    fn find(&self, name: &str) -> *mut c_void {
        let name = CString::new(name).expect("names have no NUL");
        // SAFETY: an open library and a C string.
        unsafe { libc::dlsym(self.0, name.as_ptr()) }
    }

    /// Makes the primary context current, whatever the call before has done.
    fn use_primary(&self) {
        type Retain = unsafe extern "C" fn(*mut CUcontext, CUdevice) -> CUresult;
        type Set = unsafe extern "C" fn(CUcontext) -> CUresult;
        let mut context = null_mut();
        // SAFETY: both have these signatures; a valid place.
        unsafe {
            let retain: Retain = transmute(self.find("cuDevicePrimaryCtxRetain"));
            let set: Set = transmute(self.find("cuCtxSetCurrent"));
            assert_eq!((retain(&mut context, 0), set(context)), (CUDA_SUCCESS, CUDA_SUCCESS));
        }
    }
}

type Anything = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64) -> CUresult;

fn main() {
    let library = Library::open();
    match std::env::args().nth(1).as_deref() {
        Some("exports") => exports(&library),
        Some("driver-log") => driver_log(&library),
        Some("calls-from-a-callback") => calls_from_a_callback(&library),
        Some("shared-events") => shared_events(&library),
        Some("attributes") => attributes(&library),
        _ => panic!("say exports, driver-log, calls-from-a-callback, shared-events or attributes"),
    }
}

/// Calls every function twice, before `cuInit` and with a context. What has no code says so on stderr.
fn exports(library: &Library) {
    let names: Vec<&str> =
        EXPORTS.lines().map(str::trim).filter(|n| n.starts_with("cu") && !n.starts_with("cudbg")).collect();
    let call = |name: &str| {
        let function = library.find(name);
        assert!(!function.is_null(), "{name} is not exported");
        // SAFETY: a driver function; more arguments than it has do no harm in this ABI, and zeros are null pointers,
        // no handles and no bytes.
        unsafe { transmute::<*mut c_void, Anything>(function)(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) }
    };
    for name in names.iter().filter(|n| **n != "cuInit") {
        call(name);
    }
    assert_eq!(call("cuInit"), CUDA_SUCCESS);
    for name in &names {
        library.use_primary();
        call(name);
    }
    println!("{} functions were called", names.len());
}

/// A call that only the driver refuses leaves the driver's words in the log, before it returns.
fn driver_log(library: &Library) {
    type Current = unsafe extern "C" fn(*mut CUlogIterator, u32) -> CUresult;
    type Dump = unsafe extern "C" fn(*mut CUlogIterator, *mut c_char, *mut usize, u32) -> CUresult;
    type Create = unsafe extern "C" fn(*mut CUstream, u32) -> CUresult;
    type Set = unsafe extern "C" fn(CUstream, CUstreamAttrID, *const CUstreamAttrValue) -> CUresult;
    let (mut at, mut stream, mut buffer, mut size) = (0, null_mut(), vec![0u8; 4096], 4096);
    // SAFETY: functions of these signatures, valid places, and a buffer of the size that it is said to have.
    unsafe {
        assert_eq!(transmute::<*mut c_void, Anything>(library.find("cuInit"))(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), 0);
        library.use_primary();
        assert_eq!(transmute::<*mut c_void, Create>(library.find("cuStreamCreate"))(&mut stream, 1), CUDA_SUCCESS);
        let register: unsafe extern "C" fn(CUlogsCallback, *mut c_void, *mut CUlogsCallbackHandle) -> CUresult =
            transmute(library.find("cuLogsRegisterCallback"));
        assert_eq!(register(Some(say), null_mut(), null_mut()), CUDA_SUCCESS);
        assert_eq!(transmute::<*mut c_void, Current>(library.find("cuLogsCurrent"))(&mut at, 0), CUDA_SUCCESS);
        let value: CUstreamAttrValue = std::mem::zeroed();
        let set: Set = transmute(library.find("cuStreamSetAttribute"));
        let code = set(stream, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value);
        println!("the driver answered {code} in thread {:?}", std::thread::current().id());
        let dump: Dump = transmute(library.find("cuLogsDumpToMemory"));
        assert_eq!(dump(&mut at, buffer.as_mut_ptr().cast(), &mut size, 0), CUDA_SUCCESS);
        print!("{}", CStr::from_ptr(buffer.as_ptr().cast()).to_string_lossy());
    }
}

unsafe extern "C" fn say(_: *mut c_void, _: CUlogLevel, message: *mut c_char, _: usize) {
    // SAFETY: a log message is NUL-terminated.
    let message = unsafe { CStr::from_ptr(message) }.to_string_lossy();
    println!("thread {:?} heard {message}", std::thread::current().id());
}

/// What logs inside a call is told to the application's callback, which may call CUDA. A name longer than a command
/// may be is refused where the command is being written.
fn calls_from_a_callback(library: &Library) {
    type Load = unsafe extern "C" fn(*mut CUmodule, *const c_void) -> CUresult;
    type Function = unsafe extern "C" fn(*mut CUfunction, CUmodule, *const c_char) -> CUresult;
    const PTX: &CStr = c".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k() {\nret;\n}\n";
    let (mut module, mut function, name) = (null_mut(), null_mut(), CString::new("k".repeat(4 << 20)));
    // SAFETY: functions of these signatures and valid places.
    unsafe {
        assert_eq!(transmute::<*mut c_void, Anything>(library.find("cuInit"))(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), 0);
        library.use_primary();
        let register: unsafe extern "C" fn(CUlogsCallback, *mut c_void, *mut CUlogsCallbackHandle) -> CUresult =
            transmute(library.find("cuLogsRegisterCallback"));
        let library_of_callback = std::ptr::from_ref(library).cast_mut().cast();
        assert_eq!(register(Some(call_cuda), library_of_callback, null_mut()), CUDA_SUCCESS);
        let load: Load = transmute(library.find("cuModuleLoadData"));
        assert_eq!(load(&mut module, PTX.as_ptr().cast()), CUDA_SUCCESS);
        let find: Function = transmute(library.find("cuModuleGetFunction"));
        let code = find(&mut function, module, name.expect("no NUL").as_ptr());
        println!("the long name was answered with {code}");
    }
}

unsafe extern "C" fn call_cuda(library: *mut c_void, _: CUlogLevel, _: *mut c_char, _: usize) {
    type Create = unsafe extern "C" fn(*mut CUstream, u32) -> CUresult;
    // SAFETY: what was registered with this callback; functions of these signatures and valid places.
    unsafe {
        let library = &*library.cast::<Library>();
        let mut stream = null_mut();
        let created = transmute::<*mut c_void, Create>(library.find("cuStreamCreate"))(&mut stream, 1);
        let waited = transmute::<*mut c_void, unsafe extern "C" fn(CUstream) -> CUresult>(
            library.find("cuStreamSynchronize"),
        )(stream);
        println!("the callback created {created} and waited {waited}");
    }
}

/// What the device answers to every attribute that CUDA 13 names.
fn attributes(library: &Library) {
    type Attribute = unsafe extern "C" fn(*mut i32, CUdevice_attribute, CUdevice) -> CUresult;
    // SAFETY: functions of these signatures and valid places.
    unsafe {
        assert_eq!(transmute::<*mut c_void, Anything>(library.find("cuInit"))(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), 0);
        let attribute: Attribute = transmute(library.find("cuDeviceGetAttribute"));
        for id in 1..CU_DEVICE_ATTRIBUTE_MAX {
            let mut value = -2;
            let answer = attribute(&mut value, id, 0);
            println!("attribute {id}: {answer}, {value}");
        }
    }
}

/// A record of an event that another process may look at has reached the driver when it returns: its answer is awaited.
fn shared_events(library: &Library) {
    type Create = unsafe extern "C" fn(*mut CUevent, u32) -> CUresult;
    type Record = unsafe extern "C" fn(CUevent, CUstream) -> CUresult;
    let trips = || {
        // SAFETY: a function of the shim's without arguments.
        unsafe { transmute::<*mut c_void, extern "C" fn() -> u64>(library.find("orion_round_trips"))() }
    };
    // SAFETY: functions of these signatures and valid places.
    unsafe {
        assert_eq!(transmute::<*mut c_void, Anything>(library.find("cuInit"))(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), 0);
        library.use_primary();
        let create: Create = transmute(library.find("cuEventCreate"));
        let record: Record = transmute(library.find("cuEventRecord"));
        for (kind, flags) in [("own", 2), ("shared", CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING)] {
            let mut event = null_mut();
            assert_eq!(create(&mut event, flags), CUDA_SUCCESS);
            let before = trips();
            // Refused where the driver has no such events, but not before it was asked.
            let answer = record(event, null_mut());
            println!("a record of an event of its {kind} took {} round trips: {answer}", trips() - before);
        }
    }
}
