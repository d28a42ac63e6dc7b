//! The two numbers that `orion-bench` prints without arguments.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::gpu::{Gpu, open};
use crate::report::{Better, Sample};
use crate::timing::Times;
use crate::workload::stub::Parameters;

/// Launches between two synchronisations, which are not counted: few enough for the command ring to hold them all,
/// and for nobody to wait for the GPU.
const BATCH: u32 = 800;

/// Round trips for half of the time, launches for the other half.
pub fn measure(library: &Path, seconds: f64) -> Result<Vec<Sample>, String> {
    let gpu = Gpu::new(open(library)?)?;
    let half = Duration::from_secs_f64(seconds / 2.0);
    let (function, mut parameters) = (gpu.function("eight")?, Parameters::new());
    (0..1000).try_for_each(|_| gpu.ask())?;
    let mut calls = Times::new();
    let (mut asked, begin) = (0u64, Instant::now());
    while begin.elapsed() < half {
        let start = Instant::now();
        gpu.ask()?;
        calls.record(start.elapsed());
        asked += 1;
    }
    let asked = asked as f64 / begin.elapsed().as_secs_f64();
    let mut launches = Times::new();
    let (mut count, begin) = (0u64, Instant::now());
    while begin.elapsed() < half {
        let start = Instant::now();
        for _ in 0..BATCH {
            gpu.launch(function, std::ptr::null_mut(), parameters.pointers())?;
        }
        launches.record_batch(start.elapsed(), BATCH);
        gpu.synchronize(std::ptr::null_mut())?;
        count += u64::from(BATCH);
    }
    let executed = count as f64 / begin.elapsed().as_secs_f64();
    Ok(vec![
        Sample::of_times("call with answer", "us", &calls),
        Sample::of_times("posted launch", "ns", &launches),
        Sample::new("launches executed", "per s", Better::Higher, executed),
        Sample::new("calls with answer, one thread", "per s", Better::Higher, asked),
    ])
}
