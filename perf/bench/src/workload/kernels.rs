//! Kernels as libraries write them: what a GPU does with them, and above all what the software GPU does.

use std::ffi::c_void;
use std::path::Path;
use std::ptr::{from_mut, null_mut};
use std::time::Instant;

use orion_cuda::sys::*;

use crate::gpu::{Gpu, ok, open};
use crate::report::{Better, Sample};
use crate::timing::median;

const PTX: &str = concat!(include_str!("../../ptx/kernels.ptx"), "\0");

/// Elements of everything but the matrices.
const ELEMENTS: usize = 1 << 20;
/// Threads of a block, as the kernels expect it.
const BLOCK: usize = 256;
/// A block of `sum` adds up as many parts as there are of these.
const SUM_BLOCKS: usize = 64;

/// Rows of the square matrices.
pub fn measure(library: &Path, rows: usize, launches: usize) -> Result<Vec<Sample>, String> {
    let gpu = Gpu::new(open(library)?)?;
    let mut bench = Bench { stream: gpu.stream()?, gpu, module: null_mut(), launches, samples: Vec::new() };
    ok!(gpu.cu, cuModuleLoadData(&mut bench.module, PTX.as_ptr().cast()));
    matmul(&mut bench, rows)?;
    // Small whole numbers: their sums are exact in whatever order.
    let whole: Vec<f32> = (0..ELEMENTS).map(|i| (i % 13) as f32 - 6.0).collect();
    sum(&mut bench, &whole)?;
    let fractions = numbers(ELEMENTS, 3);
    add(&mut bench, &whole, &fractions)?;
    gelu(&mut bench, &fractions)?;
    products(&mut bench, rows / 8)?;
    Ok(bench.samples)
}

/// Between -1 and 1.
fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) as f32 / (1 << 23) as f32) - 1.0
    };
    (0..count).map(|_| next()).collect()
}

struct Bench {
    gpu: Gpu,
    stream: CUstream,
    module: CUmodule,
    launches: usize,
    samples: Vec<Sample>,
}

impl Bench {
    fn to_device(&self, values: &[f32]) -> Result<CUdeviceptr, String> {
        let at = self.gpu.alloc(size_of_val(values))?;
        ok!(self.gpu.cu, cuMemcpyHtoD_v2(at, values.as_ptr().cast(), size_of_val(values)));
        Ok(at)
    }

    /// Launches the kernel so often, and answers what it left at its last buffer.
    fn time(
        &mut self,
        case: &str,
        name: &str,
        grid: [u32; 2],
        buffers: &[CUdeviceptr],
        n: usize,
        results: usize,
    ) -> Result<Vec<f32>, String> {
        let mut function = null_mut();
        let symbol = std::ffi::CString::new(name).expect("names hold no NUL");
        ok!(self.gpu.cu, cuModuleGetFunction(&mut function, self.module, symbol.as_ptr()));
        let mut values: Vec<u64> = buffers.iter().copied().chain([n as u64]).collect();
        let mut parameters: Vec<*mut c_void> = values.iter_mut().map(|v| from_mut(v).cast()).collect();
        let mut times = Vec::new();
        for _ in 0..self.launches {
            let begin = Instant::now();
            let (block, p) = (BLOCK as u32, parameters.as_mut_ptr());
            ok!(self.gpu.cu, cuLaunchKernel(function, grid[0], grid[1], 1, block, 1, 1, 0, self.stream, p, null_mut()));
            self.gpu.synchronize(self.stream)?;
            times.push(begin.elapsed().as_secs_f64() * 1e3);
        }
        let mut out = vec![0f32; results];
        let from = *buffers.last().expect("a result");
        ok!(self.gpu.cu, cuMemcpyDtoH_v2(out.as_mut_ptr().cast(), from, results * size_of::<f32>()));
        let mut sample = Sample::new(case, "ms", Better::Lower, median(&times));
        // A change for speed leaves the bits as they are.
        sample.details.insert("bits".into(), f64::from(fingerprint(&out)));
        self.samples.push(sample);
        for at in buffers {
            self.gpu.free(*at)?;
        }
        Ok(out)
    }
}

/// FNV-1a of the results' bits.
fn fingerprint(values: &[f32]) -> u32 {
    values
        .iter()
        .flat_map(|v| v.to_bits().to_le_bytes())
        .fold(0x811c_9dc5, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193))
}

fn check(name: &str, got: &[f32], want: impl Fn(usize) -> f32, within: f32) -> Result<(), String> {
    let wrong = got.iter().enumerate().find(|(i, v)| (**v - want(*i)).abs() > within * want(*i).abs().max(1.0));
    match wrong {
        None => Ok(()),
        Some((i, v)) => Err(format!("{name} computed {v} at {i}, not {}", want(i))),
    }
}

fn matmul(bench: &mut Bench, rows: usize) -> Result<(), String> {
    let (a, b) = (numbers(rows * rows, 1), numbers(rows * rows, 2));
    let buffers = [bench.to_device(&a)?, bench.to_device(&b)?, bench.to_device(&vec![0.0; rows * rows])?];
    let grid = (rows / 128) as u32;
    let got = bench.time(&format!("matmul of {rows}"), "matmul", [grid, grid], &buffers, rows, rows * rows)?;
    // Some elements, added up in the kernel's order.
    let one = |at: usize| (0..rows).fold(0f32, |sum, k| a[at / rows * rows + k].mul_add(b[k * rows + at % rows], sum));
    for at in (0..rows * rows).step_by(rows * rows / 251) {
        check("matmul", &got[at..=at], |_| one(at), 0.0)?;
    }
    Ok(())
}

fn sum(bench: &mut Bench, values: &[f32]) -> Result<(), String> {
    let buffers = [bench.to_device(values)?, bench.to_device(&[0.0; SUM_BLOCKS])?];
    let got = bench.time("sum of 1 Mi", "sum", [SUM_BLOCKS as u32, 1], &buffers, values.len(), SUM_BLOCKS)?;
    check("sum", &[got.iter().sum()], |_| values.iter().sum(), 0.0)
}

fn add(bench: &mut Bench, a: &[f32], b: &[f32]) -> Result<(), String> {
    let buffers = [bench.to_device(a)?, bench.to_device(b)?, bench.to_device(&vec![0.0; a.len()])?];
    let grid = [(a.len() / BLOCK) as u32, 1];
    let got = bench.time("a + b of 1 Mi", "add", grid, &buffers, a.len(), a.len())?;
    check("add", &got, |i| a[i] + b[i], 0.0)
}

/// Half precision by tensor cores: each warp adds the same product of 16 x 8 x 16 to its sums, eight times a turn.
fn products(bench: &mut Bench, turns: usize) -> Result<(), String> {
    const BLOCKS: usize = 16;
    const HALF_ONE: u32 = 0x3c00_3c00;
    const HALF_TWO: u32 = 0x4000_4000;
    // A lane has two elements of a column, of which the even ones are twos.
    let column = |lane: usize| if (lane / 4).is_multiple_of(2) { HALF_TWO } else { HALF_ONE };
    let input: Vec<f32> = (0..64).map(|i| f32::from_bits(if i < 32 { HALF_ONE } else { column(i - 32) })).collect();
    let results = BLOCKS * BLOCK * 4;
    let buffers = [bench.to_device(&input)?, bench.to_device(&vec![0.0; results])?];
    let warps = BLOCKS * BLOCK / 32;
    let case = format!("mma m16n8k16 of halves, {} of them", warps * turns * 8);
    let got = bench.time(&case, "products", [BLOCKS as u32, 1], &buffers, turns, results)?;
    // Sums 0 and 2 of a lane are in an even column, 1 and 3 in the next.
    let want = |i: usize| (16 * 8 * turns) as f32 * if i.is_multiple_of(2) { 2.0 } else { 1.0 };
    check("products", &got, want, 0.0)
}

fn gelu(bench: &mut Bench, values: &[f32]) -> Result<(), String> {
    let buffers = [bench.to_device(values)?, bench.to_device(&vec![0.0; values.len()])?];
    let grid = [(values.len() / BLOCK / 4) as u32, 1];
    let got = bench.time("gelu of 1 Mi", "gelu", grid, &buffers, values.len(), values.len())?;
    let want = |i: usize| {
        let x = f64::from(values[i]);
        (0.5 * x * (1.0 + (0.797_884_560_8 * (x + 0.044_715 * x * x * x)).tanh())) as f32
    };
    check("gelu", &got, want, 1e-6)
}
