//! Launches a kernel that the software GPU refuses, and asks in every way whether it has run. Nobody may be told that
//! it has: not by the launch, nor by whatever follows. Each way has a context of its own.

use std::ffi::{CString, c_void};
use std::process::ExitCode;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cudarc::driver::sys::{self, CUresult};

const TEXT: &str = ".version 8.1\n.target sm_90\n.address_size 64\n\
    .visible .entry multicast(.param .u64 at)\n{\n.reg .b64 %p;\nld.param.u64 %p, [at];\n\
    multimem.st.weak.global.u32 [%p], 7;\nret;\n}\n";
const WAY_ENDS_AFTER: Duration = Duration::from_secs(20);

static HOST_FUNCTION_RAN: AtomicBool = AtomicBool::new(false);

struct Scene {
    context: sys::CUcontext,
    function: sys::CUfunction,
    stream: sys::CUstream,
    other: sys::CUstream,
    event: sys::CUevent,
    address: u64,
    bytes: [u32; 4],
}

fn ok(code: CUresult) {
    assert_eq!(code, CUresult::CUDA_SUCCESS);
}

impl Scene {
    fn new() -> Scene {
        let text = CString::new(TEXT).expect("no NUL");
        let mut s = Scene {
            context: null_mut(),
            function: null_mut(),
            stream: null_mut(),
            other: null_mut(),
            event: null_mut(),
            address: 0,
            bytes: [0; 4],
        };
        // SAFETY: valid out pointers, and texts that end with a NUL.
        unsafe {
            let mut module = null_mut();
            ok(sys::cuCtxCreate_v4(&mut s.context, null_mut(), 0, 0));
            ok(sys::cuModuleLoadData(&mut module, text.as_ptr().cast()));
            ok(sys::cuModuleGetFunction(&mut s.function, module, c"multicast".as_ptr()));
            ok(sys::cuStreamCreate(&mut s.stream, 1));
            ok(sys::cuStreamCreate(&mut s.other, 1));
            ok(sys::cuEventCreate(&mut s.event, 0));
            ok(sys::cuMemAlloc_v2(&mut s.address, 16));
            ok(sys::cuCtxSynchronize());
        }
        s
    }

    fn launch(&mut self) -> CUresult {
        let mut arguments = [(&raw mut self.address).cast::<c_void>()];
        // SAFETY: the kernel has this one parameter.
        unsafe {
            sys::cuLaunchKernel(self.function, 1, 1, 1, 1, 1, 1, 0, self.stream, arguments.as_mut_ptr(), null_mut())
        }
    }

    fn launch_in_capture(&mut self) -> CUresult {
        // SAFETY: a stream of this scene.
        ok(unsafe {
            sys::cuStreamBeginCapture_v2(self.stream, sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED)
        });
        self.launch()
    }

    fn add_to_graph(&mut self) -> CUresult {
        let mut arguments = [(&raw mut self.address).cast::<c_void>()];
        let (mut graph, mut node) = (null_mut(), null_mut());
        // SAFETY: integers and pointers, for which zero is a value.
        let mut kernel: sys::CUDA_KERNEL_NODE_PARAMS = unsafe { std::mem::zeroed() };
        kernel.func = self.function;
        (kernel.gridDimX, kernel.gridDimY, kernel.gridDimZ) = (1, 1, 1);
        (kernel.blockDimX, kernel.blockDimY, kernel.blockDimZ) = (1, 1, 1);
        kernel.kernelParams = arguments.as_mut_ptr();
        // SAFETY: valid out pointers; the kernel has this one parameter.
        unsafe {
            ok(sys::cuGraphCreate(&mut graph, 0));
            sys::cuGraphAddKernelNode_v2(&mut node, graph, std::ptr::null(), 0, &kernel)
        }
    }

    /// The first answer that is not "not ready".
    fn poll(&self, ask: impl Fn() -> CUresult) -> CUresult {
        let began = Instant::now();
        loop {
            match ask() {
                CUresult::CUDA_ERROR_NOT_READY if began.elapsed() < WAY_ENDS_AFTER => std::thread::yield_now(),
                answer => return answer,
            }
        }
    }
}

extern "C" fn host_function(_: *mut c_void) {
    HOST_FUNCTION_RAN.store(true, Ordering::SeqCst);
}

type Way = fn(&mut Scene) -> CUresult;

/// What asks whether the work before it has been done, right behind the launch.
// SAFETY: of each block, that the scene's handles are alive and its memory is large enough.
const WAYS: [(&str, Way); 13] = [
    ("stream synchronize", |s| unsafe { sys::cuStreamSynchronize(s.stream) }),
    ("context synchronize", |_| unsafe { sys::cuCtxSynchronize() }),
    ("stream query", |s| s.poll(|| unsafe { sys::cuStreamQuery(s.stream) })),
    ("event synchronize", |s| unsafe {
        sys::cuEventRecord(s.event, s.stream);
        sys::cuEventSynchronize(s.event)
    }),
    ("event query", |s| {
        unsafe { sys::cuEventRecord(s.event, s.stream) };
        s.poll(|| unsafe { sys::cuEventQuery(s.event) })
    }),
    ("event of before", |s| s.poll(|| unsafe { sys::cuEventQuery(s.event) })),
    ("another stream behind an event", |s| unsafe {
        sys::cuEventRecord(s.event, s.stream);
        sys::cuStreamWaitEvent(s.other, s.event, 0);
        sys::cuStreamSynchronize(s.other)
    }),
    ("copy to the host", |s| unsafe { sys::cuMemcpyDtoH_v2(s.bytes.as_mut_ptr().cast(), s.address, 16) }),
    ("copy in stream order", |s| unsafe {
        sys::cuMemcpyDtoHAsync_v2(s.bytes.as_mut_ptr().cast(), s.address, 16, s.stream);
        sys::cuStreamSynchronize(s.stream)
    }),
    ("copy to the device", |s| unsafe { sys::cuMemcpyHtoD_v2(s.address, s.bytes.as_ptr().cast(), 16) }),
    ("fill", |s| unsafe {
        sys::cuMemsetD32Async(s.address, 1, 4, s.stream);
        sys::cuStreamSynchronize(s.stream)
    }),
    ("another launch", |s| s.launch()),
    ("host function", |s| unsafe {
        let asked = sys::cuLaunchHostFunc(s.stream, Some(host_function), null_mut());
        // One that is taken and never called would be waited for without end.
        if asked == CUresult::CUDA_SUCCESS { asked } else { sys::cuStreamSynchronize(s.stream) }
    }),
];

/// Whether the launch is refused, and whoever asks behind it is told.
fn is_right(name: &str, launch: Way, way: Way) -> bool {
    let mut scene = Scene::new();
    let launched = launch(&mut scene);
    let told = way(&mut scene);
    let right = launched == CUresult::CUDA_ERROR_NOT_SUPPORTED && told == CUresult::CUDA_ERROR_LAUNCH_FAILED;
    println!("{} {name}: the launch {launched:?}, then {told:?}", if right { "PASS" } else { "FAIL" });
    // SAFETY: made by this scene.
    unsafe { sys::cuCtxDestroy_v2(scene.context) };
    right
}

fn main() -> ExitCode {
    // SAFETY: the first call.
    ok(unsafe { sys::cuInit(0) });
    let mut good = true;
    for (name, way) in WAYS {
        good &= is_right(name, Scene::launch, way);
    }
    // SAFETY: takes nothing.
    let synchronize: Way = |_| unsafe { sys::cuCtxSynchronize() };
    good &= is_right("a node of a graph", Scene::add_to_graph, synchronize);
    // A stream that is captured is not waited for.
    // SAFETY: a stream of the scene.
    let other: Way = |s| unsafe { sys::cuStreamSynchronize(s.other) };
    good &= is_right("a launch that is captured", Scene::launch_in_capture, other);
    let ran = HOST_FUNCTION_RAN.load(Ordering::SeqCst);
    println!("{} a host function behind it does not run", if ran { "FAIL" } else { "PASS" });
    if good && !ran { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
