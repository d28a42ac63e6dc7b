//! The hottest functions, one after the other, in the calling thread.

// UNSAFETY: calls the library's C functions, and marks the counted part for valgrind.

use std::ffi::c_void;
use std::path::Path;
use std::ptr::{from_mut, null_mut};
use std::time::Instant;

use orion_cuda::sys::*;

use crate::gpu::{Gpu, ok, open};
use crate::report::Sample;
use crate::timing::Times;

/// The functions that are counted and timed, by the names the library exports.
pub const SYMBOLS: [&str; 7] = [
    "cuCtxGetDevice",
    "cuCtxGetCurrent",
    "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxGetState",
    "cuStreamIsCapturing",
    "cuLaunchKernel",
    "cuMemcpyHtoDAsync_v2",
];

const SMALL_COPY_BYTES: usize = 1024;
/// Between two drains: more would wait for the GPU.
const LAUNCHES: u32 = 800;

/// Eight pointers and the array of their addresses, as the kernel `eight` takes them.
pub struct Parameters {
    values: Box<[u64; 8]>,
    pointers: [*mut c_void; 8],
}

impl Parameters {
    pub fn new() -> Parameters {
        let mut values = Box::new([0x3_0000_0000u64; 8]);
        let pointers = values.each_mut().map(|value| from_mut(value).cast());
        Parameters { values, pointers }
    }

    pub fn pointers(&mut self) -> &mut [*mut c_void] {
        // What the pointers lead to is ours and alive as long as they are.
        debug_assert!(self.values.len() == self.pointers.len());
        &mut self.pointers
    }
}

/// What is done with each function: timing or counting.
trait Visitor {
    /// `calls` of `call` fit between two of `drain`, which waits until the worker has caught up.
    fn visit(
        &mut self,
        name: &str,
        calls: u32,
        call: impl FnMut() -> Result<(), String>,
        drain: impl FnMut() -> Result<(), String>,
    ) -> Result<(), String>;
}

pub fn measure(library: &Path, batches: u32) -> Result<Vec<Sample>, String> {
    let mut timer = Timer { batches, samples: Vec::new() };
    let gpu = Gpu::new(open(library)?)?;
    each(&gpu, &mut timer)?;
    // What PyTorch's kernels take: one structure with pointers, sizes and strides.
    let (stream, function, mut block) = (gpu.stream()?, gpu.function("bytes256")?, [7u64; 32]);
    let mut parameters = [from_mut(&mut block).cast()];
    let launch = || gpu.launch(function, stream, &mut parameters);
    timer.visit("cuLaunchKernel, 256 bytes in one parameter", LAUNCHES, launch, || gpu.synchronize(stream))?;
    launch_with_cluster(&gpu, stream, function, &mut parameters, &mut timer)?;
    besides(&gpu, stream, &mut timer)?;
    Ok(timer.samples)
}

/// What the shim asks itself before a launch with attributes: whether the driver has accepted them.
fn launch_with_cluster(
    gpu: &Gpu,
    stream: CUstream,
    function: CUfunction,
    parameters: &mut [*mut c_void],
    timer: &mut Timer,
) -> Result<(), String> {
    let (mut major, attribute) = (0, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    ok!(gpu.cu, cuDeviceGetAttribute(&mut major, attribute, gpu.device));
    if major < 9 {
        eprintln!("a launch with a cluster is not measured: it takes compute capability 9.0, and this is {major}.x");
        return Ok(());
    }
    // SAFETY: all-zero is a valid attribute.
    let mut cluster: CUlaunchAttribute = unsafe { std::mem::zeroed() };
    cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    cluster.value.clusterDim = CUlaunchAttributeValue_union__bindgen_ty_1 { x: 1, y: 1, z: 1 };
    let config = CUlaunchConfig {
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 32,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        hStream: stream,
        attrs: &raw mut cluster,
        numAttrs: 1,
    };
    let launch = || {
        ok!(gpu.cu, cuLaunchKernelEx(&raw const config, function, parameters.as_mut_ptr(), null_mut()));
        Ok(())
    };
    timer.visit("cuLaunchKernelEx with a cluster", LAUNCHES, launch, || gpu.synchronize(stream))
}

/// What frameworks call most after those, in the steps of training and generation.
fn besides(gpu: &Gpu, stream: CUstream, timer: &mut Timer) -> Result<(), String> {
    let cu = gpu.cu;
    let (kernel, function) = (gpu.kernel("bytes256")?, gpu.function("bytes256")?);
    let (data, mut event) = (gpu.alloc(64 << 10)?, null_mut());
    ok!(cu, cuEventCreate(&mut event, CU_EVENT_DISABLE_TIMING));
    let (mut number, mut size, mut text, mut found) = (0, 0, std::ptr::null(), null_mut());
    let mut pointer = 0u64;
    macro_rules! timed {
        ($name:ident($($argument:expr),*)) => {
            let call = || {
                ok!(cu, $name($($argument),*));
                Ok(())
            };
            timer.visit(stringify!($name), 500, call, || gpu.synchronize(stream))?
        };
    }
    timed!(cuKernelGetAttribute(&mut number, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel, gpu.device));
    timed!(cuKernelGetFunction(&mut found, kernel));
    timed!(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024, kernel, gpu.device));
    timed!(cuFuncGetAttribute(&mut number, CU_FUNC_ATTRIBUTE_NUM_REGS, function));
    timed!(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&mut number, function, 128, 0, 0));
    timed!(cuGetErrorString(CUDA_SUCCESS, &mut text));
    timed!(cuCtxGetLimit(&mut size, CU_LIMIT_STACK_SIZE));
    timed!(cuDriverGetVersion(&mut number));
    timed!(cuPointerGetAttribute((&raw mut pointer).cast(), CU_POINTER_ATTRIBUTE_DEVICE_POINTER, data));
    timed!(cuMemsetD8Async(data, 0, 4096, stream));
    timed!(cuMemcpyDtoDAsync_v2(data, data + 32768, 4096, stream));
    timed!(cuEventRecord(event, stream));
    timed!(cuStreamWaitEvent(stream, event, 0));
    gpu.free(data)
}

/// For valgrind, which counts what happens between the marks; the samples come from its files.
pub fn count(library: &Path, calls: u32) -> Result<Vec<Sample>, String> {
    each(&Gpu::new(open(library)?)?, &mut Counter { calls })?;
    Ok(Vec::new())
}

fn each(gpu: &Gpu, visitor: &mut impl Visitor) -> Result<(), String> {
    let (gpu, cu) = (*gpu, gpu.cu);
    let stream = gpu.stream()?;
    let idle = || Ok(());
    let drain = || gpu.synchronize(stream);
    let (mut device, mut context, mut value) = (0, null_mut(), 0);
    let (mut flags, mut active, mut capturing) = (0, 0, CU_STREAM_CAPTURE_STATUS_NONE);
    let mut get_device = || {
        ok!(cu, cuCtxGetDevice(&mut device));
        Ok(())
    };
    visitor.visit("cuCtxGetDevice", 1000, &mut get_device, idle)?;
    let mut get_current = || {
        ok!(cu, cuCtxGetCurrent(&mut context));
        Ok(())
    };
    visitor.visit("cuCtxGetCurrent", 1000, &mut get_current, idle)?;
    let attribute = CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
    let mut get_attribute = || {
        ok!(cu, cuDeviceGetAttribute(&mut value, attribute, gpu.device));
        Ok(())
    };
    visitor.visit("cuDeviceGetAttribute", 1000, &mut get_attribute, idle)?;
    let mut get_state = || {
        ok!(cu, cuDevicePrimaryCtxGetState(gpu.device, &mut flags, &mut active));
        Ok(())
    };
    visitor.visit("cuDevicePrimaryCtxGetState", 1000, &mut get_state, idle)?;
    let mut is_capturing = || {
        ok!(cu, cuStreamIsCapturing(stream, &mut capturing));
        Ok(())
    };
    visitor.visit("cuStreamIsCapturing", 1000, &mut is_capturing, idle)?;
    let (function, mut parameters) = (gpu.function("eight")?, Parameters::new());
    visitor.visit("cuLaunchKernel", LAUNCHES, || gpu.launch(function, stream, parameters.pointers()), drain)?;
    let (to, from) = (gpu.alloc(SMALL_COPY_BYTES)?, vec![7u8; SMALL_COPY_BYTES]);
    let mut copy = || {
        ok!(cu, cuMemcpyHtoDAsync_v2(to, from.as_ptr().cast(), from.len(), stream));
        Ok(())
    };
    visitor.visit("cuMemcpyHtoDAsync_v2", 200, &mut copy, drain)?;
    gpu.free(to)
}

struct Timer {
    batches: u32,
    samples: Vec<Sample>,
}

impl Visitor for Timer {
    fn visit(
        &mut self,
        name: &str,
        calls: u32,
        mut call: impl FnMut() -> Result<(), String>,
        mut drain: impl FnMut() -> Result<(), String>,
    ) -> Result<(), String> {
        let mut times = Times::new();
        for batch in 0..self.batches + 3 {
            let start = Instant::now();
            for _ in 0..calls {
                call()?;
            }
            let time = start.elapsed();
            drain()?;
            // The first ones fill caches and tables.
            if batch >= 3 {
                times.record_batch(time, calls);
            }
        }
        self.samples.push(Sample::of_times(name, "ns", &times));
        Ok(())
    }
}

struct Counter {
    calls: u32,
}

impl Visitor for Counter {
    fn visit(
        &mut self,
        name: &str,
        calls: u32,
        mut call: impl FnMut() -> Result<(), String>,
        mut drain: impl FnMut() -> Result<(), String>,
    ) -> Result<(), String> {
        for _ in 0..10 {
            call()?;
        }
        let mut left = self.calls;
        drain()?;
        valgrind(ZERO_STATS, 0);
        while left > 0 {
            for _ in 0..calls.min(left) {
                call()?;
            }
            left -= calls.min(left);
            drain()?;
        }
        let name = std::ffi::CString::new(name).expect("names hold no NUL");
        valgrind(DUMP_STATS_AT, name.as_ptr() as usize);
        Ok(())
    }
}

/// Requests of valgrind's callgrind, numbered in its `callgrind.h`.
const ZERO_STATS: usize = 0x4354_0001;
const DUMP_STATS_AT: usize = 0x4354_0003;

/// A client request: an instruction sequence that does nothing, and that valgrind recognises.
fn valgrind(request: usize, argument: usize) {
    let arguments = [request, argument, 0, 0, 0, 0];
    // SAFETY: outside valgrind the rotations add up to 128 bits and the exchange is of a register with itself; inside,
    // valgrind reads the six words and a NUL-terminated name that the caller keeps alive.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") arguments.as_ptr(),
            inout("rdx") 0usize => _,
            options(nostack),
        );
    }
}
