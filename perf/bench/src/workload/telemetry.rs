//! What it costs a worker to tell of its commands while nobody looks: counters, and a clock now and then.

use std::hint::black_box;
use std::time::Instant;

use orion_telemetry::recorder::Position;
use orion_telemetry::{OwnPage, Recorder};
use orion_wire::generated::ops;
use orion_wire::record::{Header, op};

use crate::report::Sample;
use crate::timing::Times;

/// Long enough that samples come as often in each.
const BATCH: u64 = 4000;

pub fn measure(quick: bool) -> Result<Vec<Sample>, String> {
    let batches = if quick { 100 } else { 1000 };
    let page = || OwnPage::alone().map_err(|e| format!("making a page failed: {e}"));
    let mut recorder = Recorder::new(page()?, 1);
    let mut end = 0u64;
    let mut told = |header: &Header, behind: u64| {
        end += u64::from(header.size);
        let at = Position { end, capacity: 1 << 24 };
        recorder.takes(black_box(header), &at, || black_box(end + behind));
        recorder.handled(header, false);
        recorder.done();
    };
    let launch = Header { size: 144, op: ops::CU_LAUNCH_KERNEL, thread: 3, context: 9, sequence: 0 };
    let ops = [ops::CU_LAUNCH_KERNEL, op::COPY_IN_INLINE, ops::CU_EVENT_RECORD, ops::CU_STREAM_WAIT_EVENT];
    let mixed = ops.map(|op| Header { op, ..launch });
    let mut samples = vec![
        timed("a launch, the ring empty behind it", batches, |_| told(&launch, 0)),
        timed("a launch, a hundred behind it", batches, |_| told(&launch, 14_400)),
        timed("launches, copies, events and streams in turn", batches, |n| told(&mixed[n as usize % 4], 0)),
    ];
    samples.push(timed("the same without telling", batches, |n| {
        black_box(&mixed[n as usize % 4]);
    }));
    Ok(samples)
}

fn timed(case: &str, batches: u32, mut work: impl FnMut(u64)) -> Sample {
    let mut times = Times::new();
    for batch in 0..batches + 3 {
        let start = Instant::now();
        (0..BATCH).for_each(&mut work);
        // The first touch the page.
        if batch >= 3 {
            times.record_batch(start.elapsed(), BATCH as u32);
        }
    }
    Sample::of_times(case, "ns", &times)
}
