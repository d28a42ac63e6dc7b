//! The start of a program: from loading the library to the first result.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::gpu::{Gpu, ok, open};
use crate::report::{Better, Sample};

pub fn measure(library: &Path) -> Result<Vec<Sample>, String> {
    let begin = Instant::now();
    let cu = open(library)?;
    let loaded = begin.elapsed();
    ok!(cu, cuInit(0));
    let initialised = begin.elapsed();
    let gpu = Gpu::new(cu)?;
    let (device, mut word) = (gpu.alloc(4)?, 0u32);
    ok!(cu, cuMemcpyHtoD_v2(device, std::ptr::from_ref(&word).cast(), 4));
    ok!(cu, cuMemcpyDtoH_v2(std::ptr::from_mut(&mut word).cast(), device, 4));
    let first_result = begin.elapsed();
    let sample = |case: &str, time: Duration| Sample::new(case, "ms", Better::Lower, time.as_secs_f64() * 1e3);
    Ok(vec![
        sample("library loaded", loaded),
        sample("cuInit", initialised - loaded),
        sample("to the first result", first_result),
    ])
}
