//! Sessions come and go; nothing of them stays.

use crate::harness::{Client, Oriond, Transport, wait_until};

fn open_and_close(transport: Transport, sessions: usize) {
    let server = Oriond::start(&["--warm", "3"]);
    let settled = |what: &str| {
        wait_until(what, || server.workers().len() == 3 && server.log().matches("worker warm").count() >= 3);
    };
    // The first few grow what grows once: thread stacks, the allocator's arenas, slot tables.
    let mut begun = 0;
    let mut run = |count: usize| {
        for i in 0..count {
            let mut client = Client::attach(&server, transport);
            assert_eq!(client.call(0x101, &[i as u8; 8]), [i as u8; 8]);
        }
        begun += count;
        wait_until("the last worker's end", || server.log().matches("worker ended").count() == begun);
        settled("a full pool");
    };
    run(50);
    let (maps, rss) = server.memory();
    let descriptors = server.descriptors();
    run(sessions);
    let (maps_after, rss_after) = server.memory();
    assert!(server.descriptors() <= descriptors, "descriptors: {descriptors} before, {} after", server.descriptors());
    assert!(maps_after <= maps + 4, "mappings: {maps} before, {maps_after} after");
    assert!(rss_after <= rss + 4096, "resident KiB: {rss} before, {rss_after} after");
    let (status, log) = server.terminate();
    assert!(status.success());
    let odd: Vec<&str> = log.lines().filter(|l| l.contains(" WARN ") || l.contains("ERROR ")).collect();
    assert!(odd.is_empty(), "{odd:#?}");
}

#[test]
fn a_thousand_sessions_over_shm_leave_nothing() {
    open_and_close(Transport::Shm, 1000);
}

#[test]
fn a_thousand_sessions_over_tcp_leave_nothing() {
    open_and_close(Transport::Tcp, 1000);
}
