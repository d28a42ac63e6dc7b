//! Heap ranges of every size, in both directions.

use orion_transport::client::Tuning;
use orion_wire::record::HeapRange;

use crate::harness::{self, Client, FILL, Oriond, Transport, hello, pattern, words};
use crate::on_each_carrier;

const SIZES: [u64; 9] = [1, 24, 4096, 65_537, (256 << 10) - 1, 256 << 10, (1 << 20) + 13, 7 << 20, (64 << 20) + 4097];

fn check_both_ways(client: &mut Client, seed: u64, range: HeapRange) {
    let mut sum = 0;
    for (i, byte) in client.bytes_mut(range).iter_mut().enumerate() {
        *byte = pattern(seed, i as u64);
        sum += *byte as u64;
    }
    client.announce(range);
    assert_eq!(client.sum(range), sum, "client to worker, {range:?}");

    client.call(FILL, &words(&[range.offset, range.bytes, seed + 1]));
    let wrong = client.bytes(range).iter().enumerate().find(|(i, b)| **b != pattern(seed + 1, *i as u64));
    assert_eq!(wrong, None, "worker to client, {range:?}");
}

on_each_carrier! {
    fn heap_ranges_arrive_whole_before_what_follows(server: &Oriond, transport: Transport) {
        let mut client = Client::attach(server, transport);
        for (i, bytes) in SIZES.into_iter().enumerate() {
            check_both_ways(&mut client, 100 * i as u64 + 1, HeapRange { offset: 4096 * i as u64 + 8, bytes });
        }
    }
}

on_each_carrier! {
    fn records_and_ranges_interleave(server: &Oriond, transport: Transport) {
        let mut client = Client::attach(server, transport);
        let sizes = [16u64, 300 << 10, 5000, 1 << 20, 64, 512 << 10];
        let mut expected = Vec::new();
        for round in 0..60u64 {
            let bytes = sizes[round as usize % sizes.len()];
            // Each round has its own place: nothing is overwritten before it is answered.
            let range = HeapRange { offset: round * (1 << 20), bytes };
            let mut sum = 0;
            for (i, byte) in client.bytes_mut(range).iter_mut().enumerate() {
                *byte = pattern(round + 7, i as u64);
                sum += *byte as u64;
            }
            client.post(0x100, &[9; 64]);
            client.announce(range);
            client.start(harness::SUM, &words(&[range.offset, range.bytes]));
            expected.push(words(&[sum]));
        }
        for (round, want) in expected.iter().enumerate() {
            assert_eq!(&client.reply().1, want, "round {round}");
        }
    }
}

#[test]
fn without_lanes_everything_goes_over_the_main_connection() {
    let server = Oriond::start(&[]);
    let tuning = Tuning { lanes: 0, ..Tuning::default() };
    let mut client = Client::try_attach(&server, Transport::Tcp, &hello(), tuning).unwrap();
    check_both_ways(&mut client, 3, HeapRange { offset: 16, bytes: 9 << 20 });
}

#[test]
fn every_number_of_lanes_works() {
    let server = Oriond::start(&["--engines", "3"]);
    for lanes in [1, 2, 3, 8] {
        let tuning = Tuning { lanes, ..Tuning::default() };
        let mut client = Client::try_attach(&server, Transport::Tcp, &hello(), tuning).unwrap();
        for i in 0..4 {
            check_both_ways(&mut client, i, HeapRange { offset: 0, bytes: 3 << 20 });
        }
    }
}
