//! Warps of a block that run together: what each lane finds is what it finds alone.

mod common;

use std::ffi::CString;

use common::*;
use orion_cuda::sys::{CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_FAILED};

/// Each thread adds its number to `in[number]`, by a sum of 32 bits that wraps within the block where `first` says so.
/// The threads of odd numbers then wait at a barrier by another way than the even ones.
const INDICES: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .entry indices(.param .u64 in, .param .u64 out, .param .u32 first) {
    .reg .pred %p<3>;
    .reg .b32 %r<9>;
    .reg .b64 %rd<9>;
    ld.param.u64 %rd1, [in];
    ld.param.u64 %rd2, [out];
    ld.param.u32 %r1, [first];
    mov.u32 %r2, %tid.x;
    add.u32 %r3, %r1, %r2;
    mul.wide.u32 %rd3, %r3, 1;
    mul.wide.u32 %rd4, %r2, 4;
    add.s64 %rd5, %rd1, %rd4;
    ld.global.u32 %r4, [%rd5];
    and.b32 %r5, %r2, 1;
    setp.eq.u32 %p1, %r5, 1;
    mov.u32 %r6, 7;
    @%p1 bra ODD;
    mov.u32 %r6, 9;
    bra MEET;
ODD:
    add.u32 %r6, %r6, %r2;
MEET:
    bar.sync 0;
    add.u32 %r4, %r4, %r6;
    cvt.u64.u32 %rd6, %r4;
    add.s64 %rd6, %rd6, %rd3;
    mul.wide.u32 %rd7, %r2, 8;
    add.s64 %rd8, %rd2, %rd7;
    st.global.u64 [%rd8], %rd6;
    ret;
}";

#[test]
fn lanes_find_their_own_after_they_ran_together() {
    let text = CString::new(INDICES).unwrap();
    let g = Gpu::with(text.as_ptr().cast());
    for (first, threads) in [(0, 256u32), (u32::MAX - 100, 256), (u32::MAX - 255, 256), (5, 232), (1, 1024)] {
        let start: Vec<u32> = (0..threads).map(|i| i * 3).collect();
        let (a, o) = (Buffer::new(&start), Buffer::<u64>::zeroed(threads as usize));
        ok(g.launch("indices", 1, threads, 0, &mut args![a.at, o.at, first]));
        ok(g.sync());
        for (i, v) in (0..).zip(o.read()) {
            let way = if i % 2 == 1 { 7 + i } else { 9 };
            assert_eq!(v, u64::from(i * 3 + way) + u64::from(first.wrapping_add(i)), "thread {i} from {first}");
        }
    }
}

/// Four warps of eight leave the buffer with their store; the first traps behind it, if it is to.
const FAULTS: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .entry faults(.param .u64 out, .param .u32 trapping) {
    .reg .pred %p<2>;
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [trapping];
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %rd2, %r2, 4;
    add.s64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r2;
    setp.lt.u32 %p1, %r2, %r1;
    @%p1 trap;
    ret;
}";

#[test]
fn the_first_warp_that_fails_is_the_one_that_is_told_of() {
    for (trapping, want) in [(0, CUDA_ERROR_ILLEGAL_ADDRESS), (32, CUDA_ERROR_LAUNCH_FAILED)] {
        let text = CString::new(FAULTS).unwrap();
        let g = Gpu::with(text.as_ptr().cast());
        let o = Buffer::<u32>::zeroed(128);
        ok(g.launch("faults", 1, 256, 0, &mut args![o.at, trapping]));
        assert_eq!(g.sync(), want, "with {trapping} trapping");
    }
}
