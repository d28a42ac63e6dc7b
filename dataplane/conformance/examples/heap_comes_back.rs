//! Takes and frees parts of the host heap that it shares with its worker, and holds that all of it comes back, whatever
//! goes wrong in between: `heap_comes_back order` frees in every order, `heap_comes_back fault` in a broken context,
//! and `heap_comes_back destroyed` copies in a context that another thread has destroyed.
//! With a debug build of the shim, which counts.

// UNSAFETY: opens Orion's libcuda.so.1 and calls it by cuda.h's signatures.

use std::ffi::{CString, c_void};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;

fn main() {
    let scene = Scene::new();
    // Blocks for small ranges stay.
    scene.free_in([0, 1, 2, 3]);
    let before = scene.settled();
    match std::env::args().nth(1).as_deref() {
        Some("order") => in_every_order(&scene, before),
        Some("fault") => in_a_broken_context(&scene, before),
        Some("destroyed") => in_a_destroyed_context(&scene, before),
        other => panic!("{other:?} is none of order, fault and destroyed"),
    }
    println!("PASS {} and {} bytes are in use as before", before[0], before[1]);
}

/// Beside staging memory, so large that each is a registration of its own, or several to a block of 2 MiB.
const SIZES: [usize; 4] = [5 << 20, 1000, 700 << 10, 3 << 20];
const BYTES: usize = 2 << 20;

fn in_every_order(scene: &Scene, before: [u64; 2]) {
    for order in orders() {
        scene.free_in(order);
        scene.wait_until_in_use(before);
    }
}

fn in_a_broken_context(scene: &Scene, before: [u64; 2]) {
    let all: Vec<([usize; 4], Vec<*mut c_void>)> = orders().map(|order| (order, scene.pin())).collect();
    let mut pageable = vec![1u8; BYTES];
    scene.fault();
    for _ in 0..100 {
        let at = pageable.as_mut_ptr().cast();
        // SAFETY: that many bytes of device memory and of ours.
        let codes = unsafe {
            [
                scene.driver.cuMemcpyHtoD_v2(scene.data, at, BYTES),
                scene.driver.cuMemcpyDtoH_v2(at, scene.data, BYTES),
                scene.driver.cuMemcpyHtoDAsync_v2(scene.data, at, BYTES, null_mut()),
                scene.driver.cuMemcpyDtoHAsync_v2(at, scene.data, BYTES, null_mut()),
            ]
        };
        assert_eq!(codes, [CUDA_ERROR_ILLEGAL_ADDRESS; 4]);
    }
    for (order, pinned) in all {
        for i in order {
            // SAFETY: allocated above, and freed once.
            assert_eq!(unsafe { scene.driver.cuMemFreeHost(pinned[i]) }, CUDA_ERROR_ILLEGAL_ADDRESS);
        }
    }
    scene.wait_until_in_use(before);
}

fn in_a_destroyed_context(scene: &Scene, before: [u64; 2]) {
    for _ in 0..10 {
        let (mut context, mut data) = (null_mut(), 0);
        // SAFETY: valid places.
        unsafe {
            assert_eq!(scene.driver.cuCtxCreate_v2(&mut context, 0, 0), CUDA_SUCCESS);
            assert_eq!(scene.driver.cuMemAlloc_v2(&mut data, BYTES), CUDA_SUCCESS);
        }
        let mut pageable = vec![1u8; BYTES];
        let at: *mut c_void = pageable.as_mut_ptr().cast();
        // Under way when the context ends.
        for _ in 0..4 {
            // SAFETY: that many bytes of device memory and of ours.
            let code = unsafe { scene.driver.cuMemcpyHtoDAsync_v2(data, at, BYTES, null_mut()) };
            assert_eq!(code, CUDA_SUCCESS);
        }
        let (driver, ended) = (&scene.driver, context as usize);
        std::thread::scope(|threads| {
            // SAFETY: it is this context that ends; of other threads it stays the current one.
            let destroy = || unsafe { driver.cuCtxDestroy_v2(ended as CUcontext) };
            assert_eq!(threads.spawn(destroy).join().expect("no panic"), CUDA_SUCCESS);
        });
        for _ in 0..100 {
            // SAFETY: addresses that were valid, which nothing is read from or written to.
            let codes = unsafe {
                [
                    scene.driver.cuMemcpyHtoD_v2(data, at, BYTES),
                    scene.driver.cuMemcpyDtoH_v2(at, data, BYTES),
                    scene.driver.cuMemcpyHtoDAsync_v2(data, at, BYTES, null_mut()),
                    scene.driver.cuMemcpyDtoHAsync_v2(at, data, BYTES, null_mut()),
                ]
            };
            // What is not waited for may have been told nothing yet.
            let is_waited_for = [true, true, false, true];
            let wrong = codes.iter().zip(is_waited_for).any(|(code, waits)| waits && *code == CUDA_SUCCESS);
            assert!(!wrong, "{codes:?}");
        }
        let mut popped = null_mut();
        // SAFETY: a valid place. The primary context is current again.
        unsafe { assert_eq!(scene.driver.cuCtxPopCurrent_v2(&mut popped), CUDA_SUCCESS) };
    }
    scene.wait_until_in_use(before);
}

/// Of four things.
fn orders() -> impl Iterator<Item = [usize; 4]> {
    (0..256).map(|n| [n & 3, n >> 2 & 3, n >> 4 & 3, n >> 6]).filter(|o| (0..4).all(|i| o.contains(&i)))
}

struct Scene {
    driver: Driver,
    in_use: unsafe extern "C" fn(*mut [u64; 2]),
    stray: CUfunction,
    data: CUdeviceptr,
}

impl Scene {
    fn new() -> Scene {
        const PTX: &str = concat!(include_str!("../ptx/facts.ptx"), "\0");
        // SAFETY: Orion's driver, whose functions have cuda.h's signatures, and valid places for what they give.
        unsafe {
            // Who waits for staging memory that does not come back waits for ever.
            libc::alarm(90);
            let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW);
            assert!(!library.is_null(), "there is no libcuda.so.1");
            let symbol = |name: &str| libc::dlsym(library, CString::new(name).expect("a name").as_ptr()).cast_const();
            let in_use = symbol("orion_heap_in_use");
            assert!(!in_use.is_null(), "the shim is no debug build of Orion's");
            let driver = Driver::load(&mut |name| symbol(name));
            let (mut context, mut module, mut stray, mut data) = (null_mut(), null_mut(), null_mut(), 0);
            let done = |code| assert_eq!(code, CUDA_SUCCESS);
            done(driver.cuInit(0));
            done(driver.cuDevicePrimaryCtxRetain(&mut context, 0));
            done(driver.cuCtxSetCurrent(context));
            done(driver.cuModuleLoadData(&mut module, PTX.as_ptr().cast()));
            done(driver.cuModuleGetFunction(&mut stray, module, c"stray".as_ptr()));
            done(driver.cuMemAlloc_v2(&mut data, BYTES));
            let in_use = std::mem::transmute::<*const c_void, unsafe extern "C" fn(*mut [u64; 2])>(in_use);
            Scene { driver, in_use, stray, data }
        }
    }

    fn pin(&self) -> Vec<*mut c_void> {
        SIZES.map(|bytes| self.pin_one(bytes)).to_vec()
    }

    fn pin_one(&self, bytes: usize) -> *mut c_void {
        let mut at = null_mut();
        // SAFETY: a valid place.
        let code = unsafe { self.driver.cuMemAllocHost_v2(&mut at, bytes) };
        assert_eq!(code, CUDA_SUCCESS);
        at
    }

    /// One of each size, used by a copy that may still be under way.
    fn free_in(&self, order: [usize; 4]) {
        let pinned = self.pin();
        for (i, at) in pinned.iter().enumerate() {
            // SAFETY: no more than the device memory has, and than that is pinned there.
            let code = unsafe { self.driver.cuMemcpyHtoDAsync_v2(self.data, *at, SIZES[i].min(BYTES), null_mut()) };
            assert_eq!(code, CUDA_SUCCESS);
        }
        for i in order {
            // SAFETY: allocated above, and freed once.
            assert_eq!(unsafe { self.driver.cuMemFreeHost(pinned[i]) }, CUDA_SUCCESS);
        }
    }

    fn fault(&self) {
        let (none, options) = (null_mut(), null_mut());
        // SAFETY: a kernel without parameters.
        let code = unsafe { self.driver.cuLaunchKernel(self.stray, 1, 1, 1, 1, 1, 1, 0, null_mut(), none, options) };
        assert_eq!(code, CUDA_SUCCESS);
        // SAFETY: no pointers.
        assert_eq!(unsafe { self.driver.cuCtxSynchronize() }, CUDA_ERROR_ILLEGAL_ADDRESS);
    }

    fn in_use(&self) -> [u64; 2] {
        let mut bytes = [0; 2];
        // SAFETY: a valid place.
        unsafe { (self.in_use)(&mut bytes) };
        bytes
    }

    /// Once nothing has come back for a while, in which the worker has answered often: one that has no core tells
    /// nothing either.
    fn settled(&self) -> [u64; 2] {
        let (mut last, mut looks) = (self.in_use(), 0);
        while looks < 60 {
            std::thread::sleep(Duration::from_millis(5));
            // SAFETY: no pointers; the answer does not matter, but with it comes what is told besides.
            unsafe { self.driver.cuCtxSynchronize() };
            looks += 1;
            if self.in_use() != last {
                (last, looks) = (self.in_use(), 0);
            }
        }
        last
    }

    fn wait_until_in_use(&self, wanted: [u64; 2]) {
        let began = Instant::now();
        while self.in_use() != wanted {
            // SAFETY: as above.
            unsafe { self.driver.cuCtxSynchronize() };
            let (now, late) = (self.in_use(), began.elapsed() > Duration::from_secs(10));
            assert!(!late, "{now:?} bytes of staging memory and of the rest are in use, before {wanted:?}");
        }
    }
}
