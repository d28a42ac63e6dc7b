//! A context, a module and a few shorthands for driving the C functions.

#![allow(dead_code, reason = "each test file uses a part")]

pub mod image;
pub mod random;

use std::ffi::{CString, c_void};
use std::ptr::{null, null_mut};

use orion_cuda::sys::{
    CUDA_ERROR_LAUNCH_FAILED, CUDA_SUCCESS, CUcontext, CUdeviceptr, CUfunction, CUmodule, CUresult, CUstream,
};
use orion_soft::calls::context::{cuCtxCreate_v2, cuCtxDestroy_v2, cuCtxSynchronize};
use orion_soft::calls::copy::{cuMemcpyDtoH_v2, cuMemcpyDtoHAsync_v2, cuMemcpyHtoD_v2};
use orion_soft::calls::execution::cuLaunchKernel;
use orion_soft::calls::initialization::cuInit;
use orion_soft::calls::memory::cuMemAlloc_v2;
use orion_soft::calls::module::{cuModuleGetFunction, cuModuleLoadData};

pub const PTX: &str = include_str!("../kernels/kernels.ptx");
pub static DEBUG: &[u8] = include_bytes!("../kernels/debug_zstd.fatbin");

#[track_caller]
pub fn ok(r: CUresult) {
    assert_eq!(r, CUDA_SUCCESS, "{:?}", orion_soft::error::describe(r));
}

/// A context of its own for one test, so that a sticky error ends with it.
pub struct Gpu {
    pub ctx: CUcontext,
    pub module: CUmodule,
}

impl Gpu {
    pub fn bare() -> Self {
        let mut ctx = null_mut();
        unsafe {
            ok(cuInit(0));
            ok(cuCtxCreate_v2(&mut ctx, 0, 0));
        }
        Self { ctx, module: null_mut() }
    }
    pub fn new() -> Self {
        let text = CString::new(PTX).unwrap();
        Self::with(text.as_ptr().cast())
    }
    pub fn debug() -> Self {
        Self::with(DEBUG.as_ptr().cast())
    }
    pub fn with(image: *const c_void) -> Self {
        let mut g = Self::bare();
        unsafe { ok(cuModuleLoadData(&mut g.module, image)) };
        g
    }
    pub fn function(&self, name: &str) -> CUfunction {
        let name = CString::new(name).unwrap();
        let mut f = null_mut();
        unsafe { ok(cuModuleGetFunction(&mut f, self.module, name.as_ptr())) };
        f
    }
    pub fn launch(&self, name: &str, grid: u32, block: u32, shared: u32, args: &mut [*mut c_void]) -> CUresult {
        self.launch_on(null_mut(), name, [grid, 1, 1], [block, 1, 1], shared, args)
    }
    pub fn launch_on(
        &self,
        s: CUstream,
        name: &str,
        g: [u32; 3],
        b: [u32; 3],
        shared: u32,
        args: &mut [*mut c_void],
    ) -> CUresult {
        let f = self.function(name);
        unsafe { cuLaunchKernel(f, g[0], g[1], g[2], b[0], b[1], b[2], shared, s, args.as_mut_ptr(), null_mut()) }
    }
    pub fn sync(&self) -> CUresult {
        unsafe { cuCtxSynchronize() }
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        unsafe { ok(cuCtxDestroy_v2(self.ctx)) };
    }
}

/// Every way of asking for results answers an error.
#[track_caller]
pub fn context_has_failed() {
    let (mut at, mut word) = (0, 0u32);
    unsafe {
        assert_eq!(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
        assert_eq!(orion_soft::calls::stream::cuStreamSynchronize(null_mut()), CUDA_ERROR_LAUNCH_FAILED);
        assert_eq!(orion_soft::calls::stream::cuStreamQuery(null_mut()), CUDA_ERROR_LAUNCH_FAILED);
        assert_eq!(cuMemAlloc_v2(&mut at, 64), CUDA_ERROR_LAUNCH_FAILED);
        assert_eq!(cuMemcpyDtoH_v2((&raw mut word).cast(), 4096, 4), CUDA_ERROR_LAUNCH_FAILED);
        let s = null_mut();
        assert_eq!(cuMemcpyDtoHAsync_v2((&raw mut word).cast(), 4096, 4, s), CUDA_ERROR_LAUNCH_FAILED);
    }
}

pub struct Buffer<T> {
    pub at: CUdeviceptr,
    n: usize,
    kind: std::marker::PhantomData<T>,
}

impl<T: Copy + Default> Buffer<T> {
    pub fn new(v: &[T]) -> Self {
        let mut at = 0;
        unsafe {
            ok(cuMemAlloc_v2(&mut at, size_of_val(v).max(1)));
            ok(cuMemcpyHtoD_v2(at, v.as_ptr().cast(), size_of_val(v)));
        }
        Self { at, n: v.len(), kind: std::marker::PhantomData }
    }
    pub fn zeroed(n: usize) -> Self {
        Self::new(&vec![T::default(); n])
    }
    #[track_caller]
    pub fn read(&self) -> Vec<T> {
        let mut v = vec![T::default(); self.n];
        unsafe { ok(cuMemcpyDtoH_v2(v.as_mut_ptr().cast(), self.at, size_of_val(v.as_slice()))) };
        v
    }
}

pub fn arg<T>(v: &mut T) -> *mut c_void {
    std::ptr::from_mut(v).cast()
}

/// Pointers to the arguments, as `cuLaunchKernel` wants them. They live as long as the statement.
#[macro_export]
macro_rules! args {
    ($($v:expr),* $(,)?) => { [$( $crate::common::arg(&mut $v.clone()) ),*] };
}

pub fn nothing() -> *const c_void {
    null()
}

/// Kernels that compute one word of `BITS` bits from three, each by its lines of PTX between registers `%a`, `%b`, `%c`
/// and `%d`. Registers `%h0` to `%h7` of 16 bits, `%t0` to `%t7` of 32, `%q0` to `%q3` of 64 and `%p0` to `%p3` are
/// there to use.
pub struct Elementwise<const BITS: usize>(Gpu);

impl<const BITS: usize> Elementwise<BITS> {
    pub fn new(bodies: &[String]) -> Self {
        let text = CString::new(Self::text(bodies)).unwrap();
        Self(Gpu::with(text.as_ptr().cast()))
    }
    pub fn text(bodies: &[String]) -> String {
        let mut text = String::from(".version 8.8\n.target sm_100a\n.address_size 64\n");
        for (i, body) in bodies.iter().enumerate() {
            let bytes = BITS / 8;
            text += &format!(
                ".visible .entry k{i}(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3)\n{{\n\
                 .reg .b16 %h<8>; .reg .b32 %i, %t<8>; .reg .b64 %q<4>, %at, %p; .reg .pred %p<4>;\n\
                 .reg .b{BITS} %a, %b, %c, %d;\n\
                 mov.u32 %i, %ctaid.x; mov.u32 %t0, %ntid.x; mov.u32 %t1, %tid.x;\n\
                 mad.lo.u32 %i, %i, %t0, %t1; mul.wide.u32 %at, %i, {bytes};\n"
            );
            for (n, register) in ["%a", "%b", "%c"].iter().enumerate() {
                text += &format!("ld.param.u64 %p, [p{n}]; add.u64 %p, %p, %at; ld.b{BITS} {register}, [%p];\n");
            }
            text += &format!("{body}\nld.param.u64 %p, [p3]; add.u64 %p, %p, %at; st.b{BITS} [%p], %d;\nret;\n}}\n");
        }
        text
    }
    /// What kernel `i` makes of each triple, whose number is a multiple of 32.
    #[track_caller]
    pub fn run<T: Copy + Default>(&self, i: usize, a: &[T], b: &[T], c: &[T]) -> Vec<T> {
        assert!(size_of::<T>() * 8 == BITS && a.len() == b.len() && b.len() == c.len() && a.len().is_multiple_of(32));
        let (a, b, c, d) = (Buffer::new(a), Buffer::new(b), Buffer::new(c), Buffer::<T>::zeroed(a.len()));
        let block = if d.n.is_multiple_of(256) { 256 } else { 32 };
        let grid = (d.n / block) as u32;
        ok(self.0.launch(&format!("k{i}"), grid, block as u32, 0, &mut args![a.at, b.at, c.at, d.at]));
        d.read()
    }
}
