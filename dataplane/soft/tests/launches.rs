//! What a launch is refused for, and what calls answer for sizes that no launch has.

mod common;

use std::ffi::CString;
use std::ptr::null_mut;

use common::*;
use orion_cuda::sys::{CUDA_ERROR_INVALID_VALUE, CUlaunchConfig};
use orion_soft::calls::occupancy::{cuOccupancyMaxActiveBlocksPerMultiprocessor, cuOccupancyMaxPotentialClusterSize};

#[test]
fn blocks_whose_size_wraps_are_refused() {
    let g = Gpu::new();
    let o = Buffer::<u32>::new(&[0; 32]);
    for block in [[u32::MAX; 3], [1 << 31, 1 << 31, 4], [1 << 22, 1 << 21, 1 << 21], [1024, 1024, 64], [0, u32::MAX, 1]]
    {
        let code = g.launch_on(null_mut(), "vector_add", [1; 3], block, 0, &mut args![o.at, o.at, o.at, 0u32]);
        assert_eq!(code, CUDA_ERROR_INVALID_VALUE, "{block:?}");
    }
}

#[test]
fn no_block_fits_whose_size_wraps() {
    let g = Gpu::new();
    let f = g.function("vector_add");
    let (mut blocks, mut cluster) = (-1, -1);
    ok(unsafe { cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, f, i32::MAX, 0) });
    assert_eq!(blocks, 0);
    for [x, y, z] in [[u32::MAX; 3], [u32::MAX, 1, 1], [1 << 16, 1 << 16, 1]] {
        let config = CUlaunchConfig {
            gridDimX: 1,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: x,
            blockDimY: y,
            blockDimZ: z,
            sharedMemBytes: u32::MAX,
            hStream: null_mut(),
            attrs: null_mut(),
            numAttrs: 0,
        };
        ok(unsafe { cuOccupancyMaxPotentialClusterSize(&mut cluster, f, &config) });
        assert_eq!(cluster, 0, "{x} {y} {z}");
    }
}

/// Of a kernel's own `malloc` and `printf`: neither a size nor a place may wrap.
#[test]
fn a_kernel_gets_no_more_memory_than_there_is() {
    let text = CString::new(
        ".version 8.0\n.target sm_80\n.address_size 64\n\
         .extern .func (.param .b64 r) malloc (.param .b64 n);\n\
         .visible .entry take(.param .u64 bytes, .param .u64 out)\n{\n\
         .reg .b64 %q<4>;\n\
         ld.param.u64 %q0, [bytes]; ld.param.u64 %q1, [out];\n\
         { .param .b64 n; .param .b64 r; st.param.b64 [n], %q0; call.uni (r), malloc, (n); ld.param.b64 %q2, [r]; }\n\
         st.u64 [%q1], %q2;\nret;\n}\n",
    )
    .unwrap();
    let g = Gpu::with(text.as_ptr().cast());
    let out = Buffer::<u64>::new(&[1]);
    for bytes in [u64::MAX, u64::MAX - 511, u64::MAX - 1023, 1 << 63, 1 << 50] {
        ok(g.launch("take", 1, 1, 0, &mut args![bytes, out.at]));
        assert_eq!(out.read(), [0], "{bytes:#x} bytes");
    }
    ok(g.launch("take", 1, 1, 0, &mut args![40u64, out.at]));
    assert_ne!(out.read(), [0]);
}
