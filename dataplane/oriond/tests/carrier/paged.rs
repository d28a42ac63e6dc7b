//! Ranges of the heap whose pages a device finds by itself (on-demand paging). It takes a device that does:
//! `dataplane/conformance/vm/rdma.sh paging` has one, on a kernel whose Soft-RoCE does it right for whole pages.

use orion_transport::carrier::rdma::areas::AREA_BYTES;
use orion_wire::record::HeapRange;

use crate::harness::{Client, Oriond, Transport};
use crate::rdma::{device, serving};
use crate::rdma_ranges::{both_ways, known_to_devices, moved, nothing_is_left};

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;

/// Memory of this process that somebody holds where it is, in KiB.
fn pinned_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmPin:")).expect("a kernel that counts it");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn regions(known: &str) -> u64 {
    let (_, rest) = known.split_once(" mr ").expect("a number of regions");
    rest.split(' ').next().expect("a number").parse().expect("a number")
}

/// An area is registered when it is used for the first time, at both ends, and no page is pinned for it, so that no
/// limit on locked memory counts. It goes with its session.
#[test]
#[ignore = "it takes an RDMA device that finds pages: dataplane/conformance/vm/rdma.sh paging has one"]
fn paged_areas_are_registered_once_and_nothing_is_pinned() {
    assert!(device().finds_pages(), "{}", device().words());
    let server = serving();
    let mut client = Client::attach(&server, Transport::Rdma);
    let session = client.welcome.session;
    assert_eq!(client.call(0x101, &[1; 8]), [1; 8]);
    let heap = client.welcome.heap_bytes;
    assert!(heap > 2 * AREA_BYTES, "a heap of {heap} bytes");
    let (before, pinned) = (regions(&known_to_devices()), pinned_kib());
    let mut bytes = 0;
    // The first area, then from there into the next one, and that one.
    for (offset, size, areas) in
        [(PAGE, 5 * MIB, 1), (AREA_BYTES - 2 * MIB, 2 * MIB, 1), (AREA_BYTES - MIB, 4 * MIB, 2), (0, 24 * MIB, 2)]
    {
        for round in 0..2 {
            both_ways(&mut client, HeapRange { offset, bytes: size }, offset + round);
            bytes += size;
            // At the server, and here.
            assert_eq!(regions(&known_to_devices()) - before, 2 * areas, "{offset} {size} {round}");
        }
    }
    assert_eq!(pinned_kib(), pinned);
    drop(client);
    let of = |what| moved(&server, session, what);
    assert_eq!((of("read_bytes"), of("shown_bytes"), of("landed_bytes")), (bytes, bytes, 0), "{}", server.log());
    assert!(!server.log().contains("bytes were copied"), "{}", server.log());
}

/// What one process's device knows ends with the process.
#[test]
#[ignore = "it takes an RDMA device that finds pages: dataplane/conformance/vm/rdma.sh paging has one"]
fn paged_areas_are_given_back_with_their_session() {
    let server = serving();
    let mut bystander = Client::attach(&server, Transport::Rdma);
    both_ways(&mut bystander, HeapRange { offset: 0, bytes: 2 * MIB }, 1);
    let before = known_to_devices();
    for round in 0..10 {
        let mut client = Client::attach(&server, Transport::Rdma);
        both_ways(&mut client, HeapRange { offset: PAGE * round, bytes: 3 * MIB }, round);
        drop(client);
    }
    nothing_is_left(&before);
    both_ways(&mut bystander, HeapRange { offset: 0, bytes: 2 * MIB }, 3);
}

/// Where it is asked not to.
#[test]
#[ignore = "it takes an RDMA device that finds pages: dataplane/conformance/vm/rdma.sh paging has one"]
fn paged_areas_are_not_used_where_somebody_says_so() {
    let options = Transport::Rdma.options();
    let mut options: Vec<&str> = options.iter().map(String::as_str).collect();
    options.extend(["--rdma-device", ",paging=off"]);
    let server = Oriond::start_in(&[], &options);
    server.wait_for_log(&["RDMA is offered", "on-demand paging offered, off"]);
    let mut client = Client::attach(&server, Transport::Rdma);
    let before = regions(&known_to_devices());
    both_ways(&mut client, HeapRange { offset: 0, bytes: 4 * MIB }, 5);
    // This end's alone.
    assert_eq!(regions(&known_to_devices()) - before, 1);
}
