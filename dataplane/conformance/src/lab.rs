//! What facts share: setting things up in one line, and gates that hold a stream until the fact says so.
//!
//! UNSAFETY: a gate is reached from a CUDA callback through a raw pointer; driver structs start zeroed.

use std::ffi::{CStr, CString, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use orion_cuda::sys::*;

use crate::driver::Cuda;
use crate::fact::{Verdict, ok};

pub type Get<T> = Result<T, String>;

/// The kernels of `ptx/facts.ptx`, NUL-terminated as the driver wants it.
pub const PTX: &str = concat!(include_str!("../ptx/facts.ptx"), "\0");
/// One kernel, `nothing`, that does nothing.
pub const EMPTY_PTX: &CStr =
    c".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing() {\n    ret;\n}\n";
const PRINTING_PTX: &str = concat!(include_str!("../ptx/printing.ptx"), "\0");

/// Makes the primary context of device 0 current. It is never released, so all facts of a process share it.
pub fn use_primary(cu: &Cuda) -> Verdict {
    let mut context = null_mut();
    ok!(cu.cuDevicePrimaryCtxRetain(&mut context, 0));
    ok!(cu.cuCtxSetCurrent(context));
    Ok(())
}

pub fn zeroed<T: Copy>() -> T {
    // SAFETY: used for the driver's C structs only, for which all zeroes is a value.
    unsafe { std::mem::zeroed() }
}

/// An array of numbers, `width` in a row.
pub fn floats(width: usize, height: usize) -> CUDA_ARRAY3D_DESCRIPTOR {
    let mut description: CUDA_ARRAY3D_DESCRIPTOR = zeroed();
    (description.Width, description.Height) = (width, height);
    (description.Format, description.NumChannels) = (CU_AD_FORMAT_FLOAT, 1);
    description
}

pub fn text(string: &str) -> CString {
    CString::new(string).expect("facts use names without NUL")
}

pub fn as_void<T>(value: &mut T) -> *mut c_void {
    std::ptr::from_mut(value).cast()
}

/// Reads a value out of memory that a device or a callback writes.
pub fn read<T: Copy>(address: *const c_void) -> T {
    // SAFETY: callers pass memory of their own that holds a T and whose writer has completed.
    unsafe { address.cast::<T>().read_volatile() }
}

pub fn write<T: Copy>(address: *mut c_void, value: T) {
    // SAFETY: callers pass memory of their own with room for a T that no running work touches.
    unsafe { address.cast::<T>().write_volatile(value) }
}

/// Looks until memory holds this, ten seconds at most.
pub fn comes_to_hold<T: Copy + PartialEq>(address: *const c_void, value: T) -> bool {
    let start = std::time::Instant::now();
    while read::<T>(address) != value {
        if start.elapsed().as_secs() >= 10 {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

pub fn string_at(address: *const std::ffi::c_char) -> String {
    // SAFETY: the driver's error strings and names are NUL-terminated and live forever.
    unsafe { CStr::from_ptr(address) }.to_string_lossy().into_owned()
}

impl Cuda {
    pub fn alloc(&self, bytes: usize) -> Get<CUdeviceptr> {
        let mut address = 0;
        ok!(self.cuMemAlloc_v2(&mut address, bytes));
        Ok(address)
    }

    pub fn free(&self, address: CUdeviceptr) -> Verdict {
        ok!(self.cuMemFree_v2(address));
        Ok(())
    }

    /// A device buffer holding these words.
    pub fn words(&self, words: &[u32]) -> Get<CUdeviceptr> {
        let address = self.alloc(size_of_val(words))?;
        self.upload(address, words)?;
        Ok(address)
    }

    /// Also other streams find it there: a copy of pageable memory may return before the bytes have arrived.
    pub fn upload<T: Copy>(&self, address: CUdeviceptr, from: &[T]) -> Verdict {
        ok!(self.cuMemcpyHtoD_v2(address, from.as_ptr().cast(), size_of_val(from)));
        ok!(self.cuStreamSynchronize(null_mut()));
        Ok(())
    }

    pub fn download<T: Copy>(&self, address: CUdeviceptr, count: usize) -> Get<Vec<T>> {
        let mut into = vec![zeroed::<T>(); count];
        ok!(self.cuMemcpyDtoH_v2(into.as_mut_ptr().cast(), address, count * size_of::<T>()));
        Ok(into)
    }

    pub fn word(&self, address: CUdeviceptr) -> Get<u32> {
        Ok(self.download::<u32>(address, 1)?[0])
    }

    pub fn pinned(&self, bytes: usize) -> Get<*mut c_void> {
        let mut address = null_mut();
        ok!(self.cuMemHostAlloc(&mut address, bytes, CU_MEMHOSTALLOC_DEVICEMAP));
        Ok(address)
    }

    pub fn stream(&self) -> Get<CUstream> {
        let mut stream = null_mut();
        ok!(self.cuStreamCreate(&mut stream, CU_STREAM_NON_BLOCKING));
        Ok(stream)
    }

    /// A stream that the legacy default stream waits for, and the other way round.
    pub fn blocking_stream(&self) -> Get<CUstream> {
        let mut stream = null_mut();
        ok!(self.cuStreamCreate(&mut stream, CU_STREAM_DEFAULT));
        Ok(stream)
    }

    pub fn event(&self) -> Get<CUevent> {
        let mut event = null_mut();
        ok!(self.cuEventCreate(&mut event, CU_EVENT_DEFAULT));
        Ok(event)
    }

    pub fn module(&self) -> Get<CUmodule> {
        let mut module = null_mut();
        ok!(self.cuModuleLoadData(&mut module, PTX.as_ptr().cast()));
        Ok(module)
    }

    pub fn function(&self, module: CUmodule, name: &str) -> Get<CUfunction> {
        let (mut function, name) = (null_mut(), text(name));
        ok!(self.cuModuleGetFunction(&mut function, module, name.as_ptr()));
        Ok(function)
    }

    /// One of the kernels of `ptx/printing.ptx`.
    pub fn printing_kernel(&self, name: &str) -> Get<CUfunction> {
        let mut module = null_mut();
        ok!(self.cuModuleLoadData(&mut module, PRINTING_PTX.as_ptr().cast()));
        self.function(module, name)
    }

    /// A module and one of its kernels.
    pub fn kernel(&self, name: &str) -> Get<(CUmodule, CUfunction)> {
        let module = self.module()?;
        Ok((module, self.function(module, name)?))
    }

    /// Launches `blocks` of `threads`, one-dimensional, with the arguments behind these pointers.
    pub fn launch(
        &self,
        function: CUfunction,
        blocks: u32,
        threads: u32,
        stream: CUstream,
        arguments: &mut [*mut c_void],
    ) -> CUresult {
        self.cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, arguments.as_mut_ptr(), null_mut())
    }

    /// Launches one thread of a kernel whose one parameter is an address.
    pub fn launch_on(&self, function: CUfunction, mut address: CUdeviceptr, stream: CUstream) -> CUresult {
        self.launch(function, 1, 1, stream, &mut [as_void(&mut address)])
    }

    pub fn context(&self) -> Get<CUcontext> {
        let mut context = null_mut();
        ok!(self.cuCtxGetCurrent(&mut context));
        Ok(context)
    }

    pub fn attribute(&self, attribute: CUdevice_attribute) -> Get<i32> {
        let mut value = 0;
        ok!(self.cuDeviceGetAttribute(&mut value, attribute, 0));
        Ok(value)
    }

    /// Holds everything queued on `stream` from now on until the gate is opened or dropped.
    pub fn gate(&self, stream: CUstream) -> Get<Gate> {
        let gate = Gate::closed();
        let for_callback = Arc::into_raw(gate.shared.clone());
        ok!(self.cuLaunchHostFunc(stream, Some(wait_at_gate), for_callback.cast_mut().cast()));
        Ok(gate)
    }
}

type Shared = (Mutex<bool>, Condvar);

#[derive(Clone)]
pub struct Gate {
    shared: Arc<Shared>,
}

impl Gate {
    pub fn closed() -> Gate {
        Gate { shared: Arc::new((Mutex::new(false), Condvar::new())) }
    }

    /// Waits until it is open.
    pub fn pass(&self) {
        pass(&self.shared);
    }

    pub fn open(&self) {
        *self.shared.0.lock().expect("no holder of the gate panics") = true;
        self.shared.1.notify_all();
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}

fn pass(shared: &Shared) {
    let mut open = shared.0.lock().expect("no holder of the gate panics");
    while !*open {
        open = shared.1.wait(open).expect("no holder of the gate panics");
    }
}

extern "C" fn wait_at_gate(shared: *mut c_void) {
    // SAFETY: `gate` gave this callback, which runs once, a count of its own.
    let shared = unsafe { Arc::from_raw(shared.cast_const().cast::<Shared>()) };
    pass(&shared);
}

/// A host function that adds one to the `AtomicU32` it is given.
pub extern "C" fn tally(count: *mut c_void) {
    // SAFETY: facts pass a counter that outlives the stream's work.
    unsafe { &*count.cast::<AtomicU32>() }.fetch_add(1, Ordering::SeqCst);
}

pub fn counter() -> &'static AtomicU32 {
    Box::leak(Box::new(AtomicU32::new(0)))
}

pub fn counter_argument(counter: &'static AtomicU32) -> *mut c_void {
    std::ptr::from_ref(counter).cast_mut().cast()
}
