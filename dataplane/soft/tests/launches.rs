//! What a launch is refused for.

mod common;

use std::ptr::null_mut;

use common::*;
use orion_cuda::sys::CUDA_ERROR_INVALID_VALUE;

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
