//! Calls with an answer.

use std::path::Path;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use crate::gpu::{Gpu, ok, open};
use crate::report::Sample;
use crate::timing::Times;
use crate::workload::raw::Client;
use crate::workload::stub::Parameters;

pub fn through_shim(library: &Path, seconds: f64) -> Result<Vec<Sample>, String> {
    let gpu = Gpu::new(open(library)?)?;
    let (function, mut parameters) = (gpu.function("eight")?, Parameters::new());
    let (from, mut word) = (gpu.alloc(4)?, 0u32);
    let item = || {
        ok!(gpu.cu, cuMemcpyDtoH_v2(std::ptr::from_mut(&mut word).cast(), from, 4));
        Ok(())
    };
    Ok(vec![
        timed("cuMemGetInfo", seconds, || gpu.ask())?,
        timed("launch and cuStreamSynchronize", seconds, || {
            gpu.launch(function, null_mut(), parameters.pointers())?;
            gpu.synchronize(null_mut())
        })?,
        timed("cuMemcpyDtoH of 4 bytes", seconds, item)?,
    ])
}

/// Records that come back as they are: rings and carrier without shim and driver.
pub fn raw(server: &str, seconds: f64) -> Result<Vec<Sample>, String> {
    let client = Client::attach(server)?;
    let mut caller = client.caller(0);
    Ok(vec![
        timed("records alone, 24 bytes", seconds, || caller.call(&[]))?,
        timed("records alone, 1 KiB", seconds, || caller.call(&[1; 1000]))?,
    ])
}

fn timed(case: &str, seconds: f64, mut call: impl FnMut() -> Result<(), String>) -> Result<Sample, String> {
    (0..200).try_for_each(|_| call())?;
    let (mut times, begin, limit) = (Times::new(), Instant::now(), Duration::from_secs_f64(seconds));
    while begin.elapsed() < limit {
        let start = Instant::now();
        call()?;
        times.record(start.elapsed());
    }
    Ok(Sample::of_times(case, "us", &times))
}
