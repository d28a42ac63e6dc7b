//! Copies between host and device, each waited for.

use std::ffi::c_void;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::gpu::{Gpu, ok, open};
use crate::report::{Better, Sample};
use crate::timing::Times;

/// Below, the time is what matters; above, the rate.
const SMALL_BYTES: usize = 128 << 10;

pub fn measure(library: &Path, sizes: &[usize], seconds: f64) -> Result<Vec<Sample>, String> {
    let gpu = Gpu::new(open(library)?)?;
    let most = sizes.iter().copied().max().ok_or("no sizes to copy")?;
    let mut pageable = vec![1u8; most];
    let (pinned, device, stream) = (gpu.pinned(most)?, gpu.alloc(most)?, gpu.stream()?);
    let mut samples = Vec::new();
    for &bytes in sizes {
        for (kind, host) in [("pinned", pinned), ("pageable", pageable.as_mut_ptr().cast::<c_void>())] {
            let to_device = || {
                ok!(gpu.cu, cuMemcpyHtoDAsync_v2(device, host, bytes, stream));
                gpu.synchronize(stream)
            };
            samples.push(timed(&format!("to device, {kind}, {}", size(bytes)), bytes, seconds, to_device)?);
            let to_host = || {
                ok!(gpu.cu, cuMemcpyDtoHAsync_v2(host, device, bytes, stream));
                gpu.synchronize(stream)
            };
            samples.push(timed(&format!("to host, {kind}, {}", size(bytes)), bytes, seconds, to_host)?);
        }
    }
    ok!(gpu.cu, cuMemFreeHost(pinned));
    ok!(gpu.cu, cuStreamDestroy_v2(stream));
    gpu.free(device)?;
    Ok(samples)
}

fn timed(
    case: &str,
    bytes: usize,
    seconds: f64,
    mut copy: impl FnMut() -> Result<(), String>,
) -> Result<Sample, String> {
    // Pages are touched and registered by the first.
    (0..2).try_for_each(|_| copy())?;
    let (mut times, begin, limit) = (Times::new(), Instant::now(), Duration::from_secs_f64(seconds));
    let mut count = 0;
    while count < 3 || begin.elapsed() < limit {
        let start = Instant::now();
        copy()?;
        times.record(start.elapsed());
        count += 1;
    }
    if bytes < SMALL_BYTES {
        return Ok(Sample::of_times(case, "us", &times));
    }
    let rate = bytes as f64 / times.quantile_ns(0.5);
    Ok(Sample { histogram: times.buckets(), ..Sample::new(case, "GB/s", Better::Higher, rate) })
}

fn size(bytes: usize) -> String {
    match bytes {
        b if b >= 1 << 20 => format!("{} MiB", b >> 20),
        b if b >= 1 << 10 => format!("{} KiB", b >> 10),
        b => format!("{b} B"),
    }
}
