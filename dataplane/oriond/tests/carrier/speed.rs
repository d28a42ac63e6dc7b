//! Not a test but a yardstick: `cargo test --release -p oriond --test carrier -- --ignored --nocapture speed`.

use std::time::Instant;

use orion_wire::record::{HeapRange, op};

use crate::harness::{Client, FILL, Oriond, SUM, Transport, words};

#[test]
#[ignore = "measures"]
fn speed() {
    for &transport in Transport::ALL {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let server = Oriond::start(&["--engines", if cores >= 8 { "6" } else { "1" }]);
        let begin = Instant::now();
        let mut client = Client::attach(&server, transport);
        let attach_us = begin.elapsed().as_micros();

        let mut samples: Vec<u64> = (0..100_000)
            .map(|_| {
                let begin = Instant::now();
                client.call(op::PING, &[0; 40]);
                begin.elapsed().as_nanos() as u64
            })
            .collect();
        samples.sort_unstable();
        let at = |p: f64| samples[(samples.len() as f64 * p) as usize] as f64 / 1000.0;
        println!("{transport:?}: attach {attach_us} us; round trip p50 {:.2} p99 {:.2} us", at(0.5), at(0.99));

        let begin = Instant::now();
        let posts = 2_000_000;
        for _ in 0..posts {
            client.post(0x100, &[0; 200]);
        }
        client.call(op::PING, &[]);
        println!(
            "{transport:?}: posted 224-byte records, {:.0} ns each",
            begin.elapsed().as_nanos() as f64 / posts as f64
        );

        if client.carrier.pages().must_bring() {
            let range = HeapRange { offset: 0, bytes: 256 << 20 };
            client.bytes_mut(range).fill(1);
            let first = HeapRange { offset: 0, bytes: 8 };
            for _ in 0..6 {
                let begin = Instant::now();
                client.announce(range);
                client.call(SUM, &words(&[first.offset, first.bytes]));
                let up = range.bytes as f64 / begin.elapsed().as_secs_f64() / 1e9;
                let begin = Instant::now();
                // Seed 0: announces without writing.
                client.call(FILL, &words(&[range.offset, range.bytes, 0]));
                let down = range.bytes as f64 / begin.elapsed().as_secs_f64() / 1e9;
                println!("{transport:?}: 256 MiB client to worker {up:.2} GB/s, worker to client {down:.2} GB/s");
            }
        }
    }
}
