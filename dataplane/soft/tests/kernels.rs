//! Real nvcc output, run by the interpreter: optimised PTX and a `-G` build of the same source.

mod common;

use std::ffi::CString;
use std::ptr::null_mut;

use common::*;
use orion_cuda::sys::{
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
    CUDA_ERROR_ASSERT, CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_INVALID_PTX,
    CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_MISALIGNED_ADDRESS, CUDA_ERROR_NO_BINARY_FOR_GPU,
    CUDA_ERROR_NOT_SUPPORTED,
};
use orion_soft::calls::execution::{cuFuncSetAttribute, cuLaunchCooperativeKernel};
use orion_soft::calls::module::{cuModuleGetGlobal_v2, cuModuleLoadData, cuModuleLoadDataEx};

/// Runs a test on both builds.
fn both(f: impl Fn(&Gpu)) {
    f(&Gpu::new());
    f(&Gpu::debug());
}

#[test]
fn vector_add_adds() {
    both(|g| {
        let n = 10_000;
        let a: Vec<f32> = (0..n).map(|i| i as f32).collect();
        let b: Vec<f32> = (0..n).map(|i| 0.5 * i as f32).collect();
        let (a, b, c) = (Buffer::new(&a), Buffer::new(&b), Buffer::<f32>::zeroed(n));
        ok(g.launch("vector_add", 40, 256, 0, &mut args![a.at, b.at, c.at, n as i32]));
        assert!(c.read().iter().enumerate().all(|(i, v)| *v == 1.5 * i as f32));
    });
}

#[test]
fn recursion_returns_to_each_caller() {
    both(|g| {
        let o = Buffer::<i32>::zeroed(64);
        ok(g.launch("recursion", 1, 64, 0, &mut args![o.at]));
        let fib = |n: usize| (0..n).fold((0, 1), |(a, b), _| (b, a + b)).0;
        for (i, v) in o.read().iter().enumerate() {
            assert_eq!(*v, fib(i % 20), "thread {i}");
        }
    });
}

#[test]
fn function_pointers_globals_and_constants_resolve() {
    both(|g| {
        let o = Buffer::<i32>::zeroed(32);
        let name = c"constants";
        let (mut at, mut bytes) = (0, 0);
        unsafe { ok(cuModuleGetGlobal_v2(&mut at, &mut bytes, g.module, name.as_ptr())) };
        assert_eq!(bytes, 64);
        let values: Vec<i32> = (0..16).map(|i| i * 100).collect();
        unsafe { ok(orion_soft::calls::copy::cuMemcpyHtoD_v2(at, values.as_ptr().cast(), 64)) };
        ok(g.launch("indirect", 1, 32, 0, &mut args![o.at, 1i32]));
        for (i, v) in o.read().into_iter().enumerate() {
            let i = i as i32;
            let f = if (1 + i) & 1 == 0 { i + 1 } else { i * 2 };
            assert_eq!(v, f + (i & 15) * 100 + 2);
        }
    });
}

#[test]
fn reduction_with_shuffles_and_shared_memory() {
    both(|g| {
        let a: Vec<f32> = (0..5000).map(|i| (i % 17) as f32).collect();
        let want: f32 = a.iter().sum();
        let (a, o) = (Buffer::new(&a), Buffer::<f32>::zeroed(1));
        ok(g.launch("reduce", 7, 256, 0, &mut args![a.at, o.at, 5000i32]));
        assert_eq!(o.read()[0], want);
    });
}

#[test]
fn histogram_with_dynamic_shared_memory() {
    both(|g| {
        let data: Vec<u8> = (0..20_000u32).map(|i| (i * i % 251) as u8).collect();
        let mut want = vec![0u32; 256];
        data.iter().for_each(|&b| want[b as usize] += 1);
        let (a, o) = (Buffer::new(&data), Buffer::<u32>::zeroed(256));
        ok(g.launch("histogram", 5, 128, 1024, &mut args![a.at, 20_000i32, o.at]));
        assert_eq!(o.read(), want);
    });
}

#[test]
fn divergent_loops_end_at_their_own_time() {
    both(|g| {
        let o = Buffer::<i32>::zeroed(1000);
        ok(g.launch("divergent_loops", 8, 128, 0, &mut args![o.at, 1000i32]));
        for (i, v) in o.read().into_iter().enumerate() {
            let (mut x, mut steps) = (i as u64 + 1, 0);
            while x != 1 {
                x = if x & 1 == 1 { 3 * x + 1 } else { x / 2 };
                steps += 1;
            }
            assert_eq!(v, steps);
        }
    });
}

#[test]
fn switch_takes_every_branch() {
    both(|g| {
        let start: Vec<i32> = (0..64).map(|i| i % 8).collect();
        let o = Buffer::new(&start);
        ok(g.launch("branches", 1, 64, 0, &mut args![o.at]));
        for (i, v) in o.read().into_iter().enumerate() {
            let i = i as i32;
            let want = match i % 8 {
                0 => 5,
                1 => 77 * i,
                2 => 2 + 9,
                3 => 3 ^ 4,
                4 => 1000 / (i + 1),
                5 => ((i as f32).sin() * 1000.0) as i32,
                6 => 1.1f64.powi(i) as i32,
                _ => -(i % 7),
            };
            assert!((v - want).abs() <= i32::from(i % 8 == 5), "thread {i}: {v} instead of {want}");
        }
    });
}

#[test]
fn matrix_product_in_tiles() {
    both(|g| {
        let n = 48usize;
        let a: Vec<f32> = (0..n * n).map(|i| (i % 7) as f32).collect();
        let b: Vec<f32> = (0..n * n).map(|i| (i % 5) as f32 - 2.0).collect();
        let mut want = vec![0f32; n * n];
        for r in 0..n {
            for c in 0..n {
                want[r * n + c] = (0..n).map(|k| a[r * n + k] * b[k * n + c]).sum();
            }
        }
        let (a, b, c) = (Buffer::new(&a), Buffer::new(&b), Buffer::<f32>::zeroed(n * n));
        let shape = ([3, 3, 1], [16, 16, 1]);
        ok(g.launch_on(null_mut(), "matmul", shape.0, shape.1, 0, &mut args![a.at, b.at, c.at, n as i32]));
        assert_eq!(c.read(), want);
    });
}

#[test]
fn locks_inside_a_warp_make_progress() {
    both(|g| {
        for kernel in ["spin_lock", "spin_lock_straight"] {
            let (lock, count) = (Buffer::<i32>::zeroed(1), Buffer::<i32>::zeroed(1));
            ok(g.launch(kernel, 4, 64, 0, &mut args![lock.at, count.at]));
            assert_eq!(count.read()[0], 256, "{kernel}");
        }
    });
}

#[test]
fn grid_wide_barrier_synchronises_all_blocks() {
    both(|g| {
        let (blocks, threads, rounds) = (16u32, 64u32, 3i32);
        let size = (blocks * threads) as usize;
        let o = Buffer::<i32>::zeroed(size + 8);
        let f = g.function("grid_sum");
        let start = |blocks, threads| unsafe {
            let (mut at, mut rounds) = (o.at, rounds);
            let mut args = [arg(&mut at), arg(&mut rounds)];
            cuLaunchCooperativeKernel(f, blocks, 1, 1, threads, 1, 1, 0, null_mut(), args.as_mut_ptr())
        };
        ok(start(blocks, threads));
        let v = o.read();
        for r in 0..rounds {
            assert_eq!(v[size + r as usize], (1 + r) * size as i32);
        }
        assert_eq!(start(4096, 1024), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    });
}

#[test]
fn structs_pass_by_value() {
    both(|g| {
        let s: [i32; 20] = std::array::from_fn(|i| 3 * i as i32);
        let o = Buffer::<i32>::zeroed(64);
        ok(g.launch("structs", 1, 64, 0, &mut args![s, o.at]));
        for (i, v) in o.read().into_iter().enumerate() {
            let mut r = s;
            r[i % 20] += i as i32;
            assert_eq!(v, (0..20).map(|k| r[k * i % 20]).sum::<i32>());
        }
        #[repr(C)]
        #[derive(Clone)]
        struct Packet {
            a: i32,
            b: f64,
            c: [u8; 5],
        }
        let p = Packet { a: 3, b: 0.25, c: [0, 0, 0, 0, 9] };
        let x = Buffer::<f32>::zeroed(1);
        ok(g.launch("_Z5mixedIfEvPT_6Packet", 1, 1, 0, &mut args![x.at, p]));
        assert_eq!(x.read()[0], 12.25);
    });
}

#[test]
fn device_heap_allocates_and_frees() {
    both(|g| {
        let o = Buffer::<u64>::zeroed(32);
        ok(g.launch("heap", 1, 32, 0, &mut args![o.at]));
        for (i, p) in o.read().into_iter().enumerate() {
            assert_eq!(p == 0, i % 2 == 1);
        }
    });
}

#[test]
fn half_precision() {
    both(|g| {
        let h: Vec<u16> = (0..32).map(|i| orion_soft::exec::float::f16_from(i as f64, near())).collect();
        let b: Vec<u16> = (0..32).map(|i| orion_soft::exec::float::bf16_from(i as f64, near())).collect();
        let h2: Vec<u16> = (0..64).map(|i| orion_soft::exec::float::f16_from(f64::from(i % 9), near())).collect();
        let (h, b, h2, sum) = (Buffer::new(&h), Buffer::new(&b), Buffer::new(&h2), Buffer::<u16>::zeroed(2));
        ok(g.launch("halves", 1, 32, 0, &mut args![h.at, b.at, h2.at, sum.at]));
        for (i, v) in h.read().into_iter().enumerate() {
            assert_eq!(orion_soft::exec::float::f16_to(v), i as f32 + 1.5);
        }
        for (i, v) in b.read().into_iter().enumerate() {
            assert_eq!(orion_soft::exec::float::bf16_to(v), i as f32 * 2.0);
        }
        for (i, v) in h2.read().into_iter().enumerate() {
            let x = (i % 9) as f32;
            assert_eq!(orion_soft::exec::float::f16_to(v), x * x + x);
        }
        assert_eq!(orion_soft::exec::float::f16_to(sum.read()[0]), 32.0);
    });
}

fn near() -> orion_soft::ptx::isa::operand::Round {
    orion_soft::ptx::isa::operand::Round::Nearest
}

#[test]
fn votes_matches_and_tiles() {
    both(|g| {
        let n = 64usize;
        let o = Buffer::<u32>::zeroed(n);
        ok(g.launch("warp_votes", 1, n as u32, 0, &mut args![o.at]));
        for (i, v) in o.read().into_iter().enumerate() {
            let mut r = 0u32;
            if i < 20 {
                let m = (1u32 << 20) - 1;
                r = 0xAAAA_AAAA & m;
                r ^= (0xf << (i / 4 * 4)) << 1;
                r += 1 + (0..20).sum::<u32>() + 1 + 1;
            }
            let base = i / 8 * 8;
            r = r.wrapping_add((base + ((i % 8) ^ 3)) as u32 * 3 + (base..base + 8).sum::<usize>() as u32);
            r = r.wrapping_add(32 + 1 + 1);
            assert_eq!(v, r, "thread {i}");
        }
    });
}

#[test]
fn integer_intrinsics() {
    both(|g| {
        let a: Vec<i32> = (0..64).map(|i: i32| i.wrapping_mul(0x1234_5677) ^ (i << 7)).collect();
        let b: Vec<i32> = (0..64).map(|i: i32| (i - 30).wrapping_mul(0x0765_4321) >> (i % 20)).collect();
        let (x, y, o) = (Buffer::new(&a), Buffer::new(&b), Buffer::<i64>::zeroed(64));
        ok(g.launch("integers", 1, 64, 0, &mut args![x.at, y.at, o.at]));
        for (i, v) in o.read().into_iter().enumerate() {
            assert_eq!(v, integers(a[i], b[i]), "thread {i}: {} {}", a[i], b[i]);
        }
    });
}

fn integers(x: i32, y: i32) -> i64 {
    let (ux, uy) = (x as u32, y as u32);
    let ffs = if x == 0 { 0 } else { x.trailing_zeros() as i64 + 1 };
    let mut r = (x.count_ones() + y.leading_zeros() * 3) as i64 + ffs * 5 + i64::from(ux.reverse_bits());
    r ^= i64::from(((i64::from(x) * i64::from(y)) >> 32) as i32);
    r += ((u64::from(ux) * u64::from(uy)) >> 32) as i64;
    let both = (u64::from(uy) << 32) | u64::from(ux);
    let byte = |n: u32| both >> (8 * n) & 0xff;
    r ^= ((byte(0) | byte(4) << 8 | byte(1) << 16 | byte(5) << 24) as i64) << 3;
    r += i64::from(((both << 7) >> 32) as u32 ^ (both >> 9) as u32);
    let dp =
        (0..4).fold(11i32, |s, k| s.wrapping_add(i32::from((x >> (8 * k)) as i8) * i32::from((y >> (8 * k)) as i8)));
    let sad = (5u32).wrapping_add((i64::from(x) - i64::from(y)).unsigned_abs() as u32);
    r += i64::from((dp as u32).wrapping_add(sad));
    r ^= ((i128::from(i64::from(x) << 20) * i128::from(i64::from(y) << 30)) >> 64) as i64;
    r += if y != 0 { i64::from(x.wrapping_rem(y)) } else { 0 };
    r += i64::from(ux.checked_div(uy).unwrap_or(0));
    r.wrapping_add(((i64::from(x) << 32) | i64::from(uy)).wrapping_div(if y != 0 { i64::from(y) } else { 1 }))
}

#[test]
fn floating_point_functions() {
    both(|g| {
        let a: Vec<f32> = (0..32).map(|i| 0.37 * i as f32 - 4.1).collect();
        let d: Vec<f64> = (0..32).map(|i| 0.31 * f64::from(i) - 3.3).collect();
        let (x, y) = (Buffer::new(&a), Buffer::new(&d));
        let (f, g2, n) = (Buffer::<f32>::zeroed(256), Buffer::<f64>::zeroed(128), Buffer::<i32>::zeroed(128));
        ok(g.launch("floats", 1, 32, 0, &mut args![x.at, y.at, f.at, g2.at, n.at]));
        let (f, g2, n) = (f.read(), g2.read(), n.read());
        let close = |v: f64, w: f64, tolerance: f64| {
            (v.is_nan() && w.is_nan()) || (v - w).abs() <= tolerance * w.abs().max(1e-3)
        };
        for i in 0..32 {
            let (x, y) = (a[i], d[i]);
            let want = [
                x.sqrt(),
                1.0 / x,
                x.exp(),
                (x + 10.0).ln(),
                x.mul_add(x, 0.5),
                if x < 0.0 { x.next_up() } else { x },
                x % 0.7,
                x.tanh(),
            ];
            for k in 0..8 {
                assert!(
                    close(f[i * 8 + k].into(), want[k].into(), 2e-6),
                    "f{k}({x}) = {}, not {}",
                    f[i * 8 + k],
                    want[k]
                );
            }
            for (k, w) in [y.sin(), y.exp(), y.next_up(), y.cbrt()].into_iter().enumerate() {
                assert!(close(g2[i * 4 + k], w, 1e-14), "g{k}({y}) = {}, not {w}", g2[i * 4 + k]);
            }
            let want = [
                (x * 10.0).round_ties_even() as i32,
                (x * 10.0).floor() as i32,
                (x * 1e20) as i32,
                (y * 10.0).ceil() as i32,
            ];
            assert_eq!(&n[i * 4..i * 4 + 4], &want);
        }
    });
}

#[test]
fn stray_store_is_a_sticky_illegal_address() {
    both(|g| {
        ok(g.launch("poke", 1, 32, 0, &mut args![0x1234_5678_0000u64]));
        assert_eq!(g.sync(), CUDA_ERROR_ILLEGAL_ADDRESS);
        let mut at = 0;
        assert_eq!(unsafe { orion_soft::calls::memory::cuMemAlloc_v2(&mut at, 4) }, CUDA_ERROR_ILLEGAL_ADDRESS);
    });
    let other = Gpu::new();
    ok(other.sync());
}

#[test]
fn overrun_misalignment_trap_and_assert_are_told_apart() {
    let g = Gpu::new();
    let small = Buffer::<i32>::zeroed(8);
    // Beyond the 512-byte granule of the allocation.
    ok(g.launch("poke", 1, 512, 0, &mut args![small.at]));
    assert_eq!(g.sync(), CUDA_ERROR_ILLEGAL_ADDRESS);
    let g = Gpu::new();
    let small = Buffer::<i32>::zeroed(8);
    ok(g.launch("poke", 1, 1, 0, &mut args![small.at + 1]));
    assert_eq!(g.sync(), CUDA_ERROR_MISALIGNED_ADDRESS);
    let g = Gpu::new();
    ok(g.launch("stop", 1, 1, 0, &mut []));
    assert_eq!(g.sync(), CUDA_ERROR_LAUNCH_FAILED);
    let g = Gpu::debug();
    ok(g.launch("check", 1, 1, 0, &mut args![50i32]));
    ok(g.sync());
    ok(g.launch("check", 1, 1, 0, &mut args![100i32]));
    assert_eq!(g.sync(), CUDA_ERROR_ASSERT);
}

#[test]
fn unsupported_instruction_refuses_only_its_kernel() {
    let text = CString::new(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry runs()\n{\nret;\n}\n\
         .visible .entry multicast()\n{\n.reg .b64 %p;\nmultimem.st.u32 [%p], 0;\nret;\n}\n",
    )
    .unwrap();
    let g = Gpu::with(text.as_ptr().cast());
    ok(g.launch("runs", 1, 1, 0, &mut []));
    // What a GPU refuses of it, too, is a mistake that leaves the context well.
    assert_eq!(g.launch("multicast", 1, 2048, 0, &mut []), CUDA_ERROR_INVALID_VALUE);
    ok(g.sync());
    // Whoever does not look at this result is told by all that follow, so that nobody takes old bytes for new ones.
    assert_eq!(g.launch("multicast", 1, 1, 0, &mut []), CUDA_ERROR_NOT_SUPPORTED);
    context_has_failed();
    drop(g);
    let g = Gpu::with(text.as_ptr().cast());
    ok(g.launch("runs", 1, 1, 0, &mut []));
    ok(g.sync());
}

#[test]
fn printf_formats_on_the_host() {
    static OUTPUT: std::sync::Mutex<Vec<u8>> = std::sync::Mutex::new(Vec::new());
    assert!(orion_soft::printf::redirect(Box::new(|text| OUTPUT.lock().unwrap().extend_from_slice(text))));
    both(|g| {
        ok(g.launch("print", 1, 2, 0, &mut args![40i32]));
        ok(g.sync());
    });
    let line = |n| format!("hello {n} 1.500 text 1099511627776    ff|-7   |\n");
    let want = line(40) + &line(41);
    assert_eq!(String::from_utf8_lossy(&OUTPUT.lock().unwrap()), want.clone() + &want);
}

#[test]
fn lz4_fatbin_and_wrapper_load() {
    let image = include_bytes!("kernels/lz4.fatbin");
    let wrapper = Wrapper { magic: 0x4662_43b1, version: 1, data: image.as_ptr(), extra: null_mut() };
    let g = Gpu::with(std::ptr::from_ref(&wrapper).cast());
    let o = Buffer::<i32>::zeroed(64);
    ok(g.launch("recursion", 1, 64, 0, &mut args![o.at]));
    assert_eq!(o.read()[10], 55);
}

#[repr(C)]
struct Wrapper {
    magic: u32,
    version: u32,
    data: *const u8,
    extra: *mut u8,
}

#[test]
fn machine_code_alone_is_refused() {
    let _g = Gpu::bare();
    let image = include_bytes!("kernels/sass_only.fatbin");
    let mut m = null_mut();
    assert_eq!(unsafe { cuModuleLoadData(&mut m, image.as_ptr().cast()) }, CUDA_ERROR_NO_BINARY_FOR_GPU);
}

#[test]
fn broken_ptx_is_explained_in_the_error_log() {
    let _g = Gpu::bare();
    let text =
        CString::new(".version 8.0\n.target sm_80\n.address_size 64\n.entry k() { add.s32 %r1 %r2 ; }\n").unwrap();
    let mut log = vec![0u8; 256];
    let mut options = [CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values = [log.as_mut_ptr().cast(), 256 as *mut std::ffi::c_void];
    let mut m = null_mut();
    let r = unsafe { cuModuleLoadDataEx(&mut m, text.as_ptr().cast(), 2, options.as_mut_ptr(), values.as_mut_ptr()) };
    assert_eq!(r, CUDA_ERROR_INVALID_PTX);
    assert!(String::from_utf8_lossy(&log).starts_with("line 4"), "{:?}", String::from_utf8_lossy(&log));
}

#[test]
fn launch_limits_are_checked_at_once() {
    let g = Gpu::new();
    let o = Buffer::<i32>::zeroed(64);
    assert_eq!(g.launch("recursion", 0, 64, 0, &mut args![o.at]), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(g.launch("recursion", 1, 1025, 0, &mut args![o.at]), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(g.launch("recursion", 1, 32, 60 << 10, &mut args![o.at]), CUDA_ERROR_INVALID_VALUE);
    let f = g.function("recursion");
    unsafe { ok(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100 << 10)) };
    ok(g.launch("recursion", 1, 32, 60 << 10, &mut args![o.at]));
    ok(g.sync());
}
