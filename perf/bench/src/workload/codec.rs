//! Records in memory: what encoding and decoding cost without a ring.

use std::hint::black_box;
use std::time::Instant;

use orion_wire::message::address::ClaimedDevice;
use orion_wire::message::calls::cuMemsetD32Async;
use orion_wire::record::{HEADER_BYTES, Header};
use orion_wire::{Reader, Writer};

use crate::report::Sample;
use crate::timing::Times;

const BATCH: u32 = 1000;

pub fn measure(quick: bool) -> Vec<Sample> {
    let batches = if quick { 50 } else { 500 };
    let header = Header { size: 120, op: 0x0300, thread: 3, context: 9, sequence: 7 };
    let encoded = header.encode();
    let words = [7u64; 15];
    let text = [5u8; 1024];
    let (mut to, mut written) = (Vec::with_capacity(4096), Vec::new());
    written.bytes(&text);
    let mut launch = Vec::new();
    words.iter().for_each(|word| launch.word(*word));
    let call = cuMemsetD32Async { dstDevice: ClaimedDevice::new(1), ui: 2, N: 3, hStream: 4 };
    let mut encoded_call = Vec::new();
    call.encode(&mut encoded_call);
    vec![
        timed("header encoded", batches, || {
            black_box(black_box(&header).encode());
        }),
        timed("header decoded", batches, || {
            black_box(Header::decode(black_box(&encoded)).is_ok());
        }),
        timed("launch of 15 words encoded", batches, || {
            to.clear();
            black_box(&words).iter().for_each(|word| to.word(*word));
            black_box(to.as_ptr());
        }),
        timed("launch of 15 words decoded", batches, || {
            let mut reader = Reader::new(black_box(&launch));
            let mut sum = 0u64;
            while let Ok(word) = reader.word() {
                sum = sum.wrapping_add(word);
            }
            black_box(sum);
        }),
        timed("generated call encoded", batches, || {
            let mut body = Vec::with_capacity(HEADER_BYTES + 64);
            black_box(&call).encode(&mut body);
            black_box(body.as_ptr());
        }),
        timed("generated call decoded", batches, || {
            black_box(cuMemsetD32Async::decode(&mut Reader::new(black_box(&encoded_call))).is_ok());
        }),
        timed("1 KiB of bytes decoded", batches, || {
            black_box(Reader::new(black_box(&written)).bytes().is_ok());
        }),
    ]
}

fn timed(case: &str, batches: u32, mut work: impl FnMut()) -> Sample {
    let mut times = Times::new();
    for batch in 0..batches + 3 {
        let start = Instant::now();
        for _ in 0..BATCH {
            work();
        }
        if batch >= 3 {
            times.record_batch(start.elapsed(), BATCH);
        }
    }
    Sample::of_times(case, "ns", &times)
}
