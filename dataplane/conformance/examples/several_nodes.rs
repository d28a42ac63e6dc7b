//! Uses every device that it is given with kernels, events and copies between them, and holds that each answers as a
//! GPU of its own. Then it prints `devices 4, 2 a node` if the argument is 2. With the word `stay` it then says
//! `attached`, and for each line on standard input how a call on each device goes.

// UNSAFETY: opens Orion's libcuda.so.1 and calls it by cuda.h's signatures.

use std::ffi::{CStr, CString, c_void};
use std::ptr::null_mut;

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;

/// Adds a number to each word.
const PTX: &CStr = c".version 7.0
.target sm_70
.address_size 64
.visible .global .align 4 .u32 variable = 7;
.visible .entry add(.param .u64 words, .param .u32 value, .param .u32 count)
{
    .reg .pred %p<2>;
    .reg .b32 %r<8>;
    .reg .b64 %rd<4>;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    ld.param.u32 %r5, [count];
    setp.ge.u32 %p1, %r4, %r5;
    @%p1 ret;
    ld.param.u64 %rd1, [words];
    mul.wide.u32 %rd2, %r4, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.param.u32 %r6, [value];
    ld.global.u32 %r7, [%rd3];
    add.u32 %r7, %r7, %r6;
    st.global.u32 [%rd3], %r7;
    ret;
}
";

const WORDS: usize = 1 << 20;
const BYTES: usize = WORDS * 4;

/// What a program has on a device.
#[derive(Clone, Copy)]
struct Place {
    context: CUcontext,
    module: CUmodule,
    function: CUfunction,
    stream: CUstream,
    event: CUevent,
    words: CUdeviceptr,
}

struct Program {
    cu: Driver,
    kernel: CUkernel,
    places: Vec<Place>,
    node: usize,
}

#[track_caller]
fn ok(code: CUresult) {
    assert_eq!(code, CUDA_SUCCESS);
}

fn main() {
    // SAFETY: the library's initialisers only set up its own state, and the driver's table has cuda.h's signatures.
    let cu = unsafe {
        let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW);
        assert!(!library.is_null(), "there is no libcuda.so.1");
        Driver::load(&mut |name| libc::dlsym(library, CString::new(name).expect("a name").as_ptr()).cast_const())
    };
    let mut arguments = std::env::args().skip(1);
    let node = arguments.next().and_then(|node| node.parse().ok()).expect("how many devices a node has");
    let program = Program::new(cu, node);
    program.kernels_run_on_each_device();
    program.each_pair_copies();
    program.copies_are_in_order();
    program.host_memory_is_everybodys();
    program.what_is_named_decides();
    program.streams_wait_for_other_devices();
    program.other_nodes_are_no_peers();
    program.memory_of_pools_and_arrays();
    println!("devices {}, {node} a node", program.places.len());
    if arguments.next().as_deref() == Some("stay") {
        println!("attached");
        for _ in std::io::stdin().lines() {
            println!("{}", program.ask_each().join(" "));
        }
    }
}

// SAFETY of all below: handles and addresses are what the library gave, buffers are as long as is said, and where
// something wrong is asked the library's answer is the question.
#[allow(clippy::undocumented_unsafe_blocks, reason = "one reason for all of them stands above")]
impl Program {
    fn new(cu: Driver, node: usize) -> Program {
        let mut count = 0;
        let mut library = null_mut();
        let mut kernel = null_mut();
        unsafe {
            let code = cu.cuInit(0);
            if code != CUDA_SUCCESS {
                println!("cuInit {code}");
                std::process::exit(1);
            }
            ok(cu.cuDeviceGetCount(&mut count));
            // Before there is any context, as the runtime does.
            let image = PTX.as_ptr().cast();
            ok(cu.cuLibraryLoadData(&mut library, image, null_mut(), null_mut(), 0, null_mut(), null_mut(), 0));
            ok(cu.cuLibraryGetKernel(&mut kernel, library, c"add".as_ptr()));
        }
        let places = (0..count).map(|device| place(&cu, device)).collect();
        Program { cu, kernel, places, node }
    }

    fn enter(&self, device: usize) -> &Place {
        ok(unsafe { self.cu.cuCtxSetCurrent(self.places[device].context) });
        &self.places[device]
    }

    fn pairs(&self) -> impl Iterator<Item = (usize, usize)> {
        let count = self.places.len();
        (0..count).flat_map(move |a| (0..count).map(move |b| (a, b))).filter(|(a, b)| a != b)
    }

    /// Where the current context is not asked.
    fn launch(&self, function: CUfunction, stream: CUstream, words: CUdeviceptr, value: u32) -> CUresult {
        let (mut words, mut value, mut count) = (words, value, WORDS as u32);
        let mut parameters: [*mut c_void; 3] =
            [(&raw mut words).cast(), (&raw mut value).cast(), (&raw mut count).cast()];
        let blocks = (WORDS / 256) as u32;
        unsafe {
            self.cu.cuLaunchKernel(function, blocks, 1, 1, 256, 1, 1, 0, stream, parameters.as_mut_ptr(), null_mut())
        }
    }

    fn read(&self, words: CUdeviceptr) -> Vec<u32> {
        let mut read = vec![0; WORDS];
        ok(unsafe { self.cu.cuMemcpyDtoH_v2(read.as_mut_ptr().cast(), words, BYTES) });
        read
    }

    #[track_caller]
    fn holds(&self, words: CUdeviceptr, value: u32) {
        let read = self.read(words);
        let wrong = read.iter().position(|word| *word != value);
        assert_eq!(wrong.map(|at| (at, read[at])), None, "all should be {value}");
    }

    fn fill(&self, device: usize, value: u32) {
        let place = self.enter(device);
        ok(unsafe { self.cu.cuMemsetD32_v2(place.words, value, WORDS) });
        // A fill need not be over when it returns, and other devices' work would not wait for it.
        ok(unsafe { self.cu.cuCtxSynchronize() });
    }

    fn kernels_run_on_each_device(&self) {
        for device in 0..self.places.len() {
            self.fill(device, device as u32);
        }
        for device in 0..self.places.len() {
            let place = self.enter(device);
            ok(self.launch(place.function, place.stream, place.words, 10));
            // A library is one of all devices'.
            ok(self.launch(self.kernel.cast(), place.stream, place.words, 100));
        }
        for (device, place) in self.places.iter().enumerate() {
            self.enter(device);
            ok(unsafe { self.cu.cuStreamSynchronize(place.stream) });
            self.holds(place.words, 110 + device as u32);
            let (mut variable, mut bytes, mut value) = (0, 0, 0u32);
            unsafe {
                ok(self.cu.cuModuleGetGlobal_v2(&mut variable, &mut bytes, place.module, c"variable".as_ptr()));
                ok(self.cu.cuMemcpyDtoH_v2((&raw mut value).cast(), variable, 4));
            }
            assert_eq!((value, bytes), (7, 4));
            let mut found = -1;
            let attribute = CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
            ok(unsafe { self.cu.cuPointerGetAttribute((&raw mut found).cast(), attribute, place.words) });
            assert_eq!(found, device as i32);
        }
    }

    fn each_pair_copies(&self) {
        for (from, to) in self.pairs() {
            let value = (1000 + from * 10 + to) as u32;
            let (source, target) = (self.places[from], self.places[to]);
            for way in 0..5 {
                self.fill(to, 0);
                self.fill(from, value + way);
                self.enter(if way % 2 == 0 { from } else { to });
                unsafe {
                    let (a, b) = (source.words, target.words);
                    ok(match way {
                        0 => self.cu.cuMemcpyPeer(b, target.context, a, source.context, BYTES),
                        1 => self.cu.cuMemcpyPeerAsync(b, target.context, a, source.context, BYTES, target.stream),
                        2 => self.cu.cuMemcpyAsync(b, a, BYTES, source.stream),
                        3 => self.cu.cuMemcpyDtoDAsync_v2(b, a, BYTES, target.stream),
                        _ => self.cu.cuMemcpy(b, a, BYTES),
                    });
                    ok(self.cu.cuStreamSynchronize(source.stream));
                    ok(self.cu.cuStreamSynchronize(target.stream));
                }
                // The last way takes the default stream of whichever context is current, and need not wait for it.
                self.synchronize_all();
                self.enter(to);
                self.holds(target.words, value + way);
            }
        }
    }

    /// After the stream's work before it, and before its work behind it.
    fn copies_are_in_order(&self) {
        for (from, to) in self.pairs() {
            self.fill(from, 1);
            self.fill(to, 0);
            self.synchronize_all();
            let source = self.enter(from);
            for _ in 0..20 {
                ok(self.launch(source.function, source.stream, source.words, 1));
            }
            let target = self.places[to];
            let (a, b) = (source.words, target.words);
            ok(unsafe { self.cu.cuMemcpyPeerAsync(b, target.context, a, source.context, BYTES, source.stream) });
            ok(self.launch(source.function, source.stream, source.words, 5));
            ok(unsafe { self.cu.cuEventRecord(source.event, source.stream) });
            self.enter(to);
            ok(unsafe { self.cu.cuStreamWaitEvent(target.stream, source.event, 0) });
            ok(self.launch(target.function, target.stream, target.words, 100));
            ok(unsafe { self.cu.cuStreamSynchronize(target.stream) });
            self.holds(target.words, 121);
            self.holds(source.words, 26);
        }
    }

    fn synchronize_all(&self) {
        for device in 0..self.places.len() {
            self.enter(device);
            ok(unsafe { self.cu.cuCtxSynchronize() });
        }
    }

    /// Pinned in one device's context, or registered there, it is copied to and from all.
    fn host_memory_is_everybodys(&self) {
        for (owner, user) in self.pairs() {
            self.enter(owner);
            let mut pinned = null_mut();
            let mut own = vec![0u32; WORDS];
            unsafe {
                ok(self.cu.cuMemHostAlloc(&mut pinned, BYTES, CU_MEMHOSTALLOC_PORTABLE));
                ok(self.cu.cuMemHostRegister_v2(own.as_mut_ptr().cast(), BYTES, CU_MEMHOSTREGISTER_PORTABLE));
            }
            let registered: *mut u32 = own.as_mut_ptr();
            for host in [pinned.cast::<u32>(), registered] {
                let place = self.enter(user);
                unsafe {
                    for i in 0..WORDS {
                        host.add(i).write(3);
                    }
                    ok(self.cu.cuMemcpyHtoDAsync_v2(place.words, host.cast(), BYTES, place.stream));
                    ok(self.launch(place.function, place.stream, place.words, 4));
                    ok(self.cu.cuMemcpyDtoHAsync_v2(host.cast(), place.words, BYTES, place.stream));
                    ok(self.cu.cuStreamSynchronize(place.stream));
                    assert!((0..WORDS).all(|i| host.add(i).read() == 7));
                    // And it is still of use to its owner.
                    let place = self.enter(owner);
                    ok(self.cu.cuMemcpyHtoDAsync_v2(place.words, host.cast(), BYTES, place.stream));
                    ok(self.launch(place.function, place.stream, place.words, 1));
                    ok(self.cu.cuMemcpyDtoHAsync_v2(host.cast(), place.words, BYTES, place.stream));
                    ok(self.cu.cuStreamSynchronize(place.stream));
                    assert!((0..WORDS).all(|i| host.add(i).read() == 8));
                }
            }
            self.enter(user);
            unsafe {
                ok(self.cu.cuMemHostUnregister(registered.cast()));
                ok(self.cu.cuMemFreeHost(pinned));
            }
        }
    }

    /// Whatever context is current. In one on its own node memory of another device is not filled.
    fn what_is_named_decides(&self) {
        for (current, named) in self.pairs().filter(|(a, b)| a / self.node != b / self.node) {
            self.fill(named, 5);
            let place = self.enter(named);
            ok(self.launch(place.function, place.stream, place.words, 6));
            ok(unsafe { self.cu.cuEventRecord(place.event, place.stream) });
            self.enter(current);
            unsafe {
                ok(self.cu.cuEventSynchronize(place.event));
                ok(self.cu.cuEventQuery(place.event));
                ok(self.cu.cuStreamQuery(place.stream));
                ok(self.cu.cuStreamSynchronize(place.stream));
                self.holds(place.words, 11);
                ok(self.cu.cuMemsetD8_v2(place.words, 1, BYTES));
                self.holds(place.words, 0x0101_0101);
                let ones = vec![2u32; WORDS];
                ok(self.cu.cuMemcpyHtoD_v2(place.words, ones.as_ptr().cast(), BYTES));
                self.holds(place.words, 2);
                let mut memory = 0;
                self.enter(named);
                ok(self.cu.cuMemAlloc_v2(&mut memory, 1 << 16));
                self.enter(current);
                ok(self.cu.cuMemFree_v2(memory));
                let mut context = null_mut();
                ok(self.cu.cuCtxGetCurrent(&mut context));
                assert_eq!(context, self.places[current].context);
            }
        }
    }

    fn streams_wait_for_other_devices(&self) {
        for (first, second) in self.pairs() {
            self.fill(first, 0);
            let place = self.enter(first);
            for _ in 0..10 {
                ok(self.launch(place.function, place.stream, place.words, 1));
            }
            ok(unsafe { self.cu.cuEventRecord(place.event, place.stream) });
            self.enter(second);
            unsafe {
                // The default stream, and one of its own.
                ok(self.cu.cuStreamWaitEvent(null_mut(), place.event, 0));
                ok(self.cu.cuStreamWaitEvent(self.places[second].stream, place.event, 0));
                ok(self.cu.cuStreamSynchronize(self.places[second].stream));
                ok(self.cu.cuStreamSynchronize(null_mut()));
                ok(self.cu.cuEventQuery(place.event));
            }
            self.holds(place.words, 10);
        }
    }

    fn other_nodes_are_no_peers(&self) {
        for (a, b) in self.pairs().filter(|(a, b)| a / self.node != b / self.node) {
            let (mut can, other) = (-1, self.places[b]);
            unsafe {
                ok(self.cu.cuDeviceCanAccessPeer(&mut can, a as i32, b as i32));
                assert_eq!(can, 0, "{a} {b}");
                let here = self.enter(a);
                assert_eq!(self.cu.cuCtxEnablePeerAccess(other.context, 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
                assert_eq!(self.cu.cuCtxDisablePeerAccess(other.context), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
                // What does not go together in two contexts of one node does not here.
                assert_eq!(self.cu.cuEventRecord(here.event, other.stream), CUDA_ERROR_INVALID_HANDLE);
                assert_eq!(self.launch(other.function, here.stream, here.words, 1), CUDA_ERROR_INVALID_HANDLE);
                // In words.
                let code = self.cu.cuMemsetD8Async(other.words, 0, 1, here.stream);
                assert_eq!(code, CUDA_ERROR_NOT_SUPPORTED);
                let mut rows: CUDA_MEMCPY2D = std::mem::zeroed();
                (rows.srcMemoryType, rows.srcDevice, rows.srcPitch) = (CU_MEMORYTYPE_DEVICE, here.words, 64);
                (rows.dstMemoryType, rows.dstDevice, rows.dstPitch) = (CU_MEMORYTYPE_DEVICE, other.words, 64);
                (rows.WidthInBytes, rows.Height) = (32, 2);
                assert_eq!(self.cu.cuMemcpy2D_v2(&rows), CUDA_ERROR_NOT_SUPPORTED);
            }
        }
    }

    fn memory_of_pools_and_arrays(&self) {
        for device in 0..self.places.len() {
            // From a context of another device's, where there is one.
            self.enter((device + self.node) % self.places.len());
            let (mut pool, mut memory) = (null_mut(), 0);
            let place = self.places[device];
            unsafe {
                ok(self.cu.cuDeviceGetDefaultMemPool(&mut pool, device as i32));
                ok(self.cu.cuMemAllocFromPoolAsync(&mut memory, BYTES, pool, place.stream));
                ok(self.cu.cuMemsetD32Async(memory, 9, WORDS, place.stream));
                ok(self.cu.cuStreamSynchronize(place.stream));
                let (mut found, attribute) = (-1, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
                ok(self.cu.cuPointerGetAttribute((&raw mut found).cast(), attribute, memory));
                assert_eq!(found, device as i32);
                self.holds(memory, 9);
                ok(self.cu.cuMemFreeAsync(memory, place.stream));
                let mut own = null_mut();
                ok(self.cu.cuCtxCreate_v2(&mut own, 0, device as i32));
                let (mut stream, mut free, mut total) = (null_mut(), 0, 0);
                ok(self.cu.cuStreamCreate(&mut stream, 0));
                ok(self.cu.cuMemGetInfo_v2(&mut free, &mut total));
                ok(self.cu.cuMemAlloc_v2(&mut memory, BYTES));
                ok(self.cu.cuMemsetD32Async(memory, 12, WORDS, stream));
                ok(self.cu.cuStreamSynchronize(stream));
                self.holds(memory, 12);
                self.enter((device + self.node) % self.places.len());
                ok(self.cu.cuCtxDestroy_v2(own));
                assert_ne!(self.cu.cuMemFree_v2(memory), CUDA_SUCCESS);
            }
        }
    }

    /// The code of a call that needs the device's worker.
    fn ask_each(&self) -> Vec<String> {
        (0..self.places.len())
            .map(|device| {
                let place = self.enter(device);
                let mut word = 0u32;
                let code = unsafe { self.cu.cuMemcpyDtoH_v2((&raw mut word).cast(), place.words, 4) };
                code.to_string()
            })
            .collect()
    }
}

fn place(cu: &Driver, device: i32) -> Place {
    let (mut context, mut module, mut function) = (null_mut(), null_mut(), null_mut());
    let (mut stream, mut event, mut words) = (null_mut(), null_mut(), 0);
    // SAFETY: valid out pointers, an image and names that end.
    unsafe {
        ok(cu.cuDevicePrimaryCtxRetain(&mut context, device));
        ok(cu.cuCtxSetCurrent(context));
        ok(cu.cuModuleLoadData(&mut module, PTX.as_ptr().cast()));
        ok(cu.cuModuleGetFunction(&mut function, module, c"add".as_ptr()));
        ok(cu.cuStreamCreate(&mut stream, CU_STREAM_NON_BLOCKING));
        ok(cu.cuEventCreate(&mut event, CU_EVENT_DISABLE_TIMING));
        ok(cu.cuMemAlloc_v2(&mut words, BYTES));
    }
    Place { context, module, function, stream, event, words }
}
