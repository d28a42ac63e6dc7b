//! Sessions come and go; nothing of them stays.

use crate::harness::{Client, Oriond, Transport, holds, measured, wait_until};

fn open_and_close(transport: Transport, sessions: usize) {
    let server = Oriond::start(&["--warm", "3"]);
    let settled = |ended: usize| {
        wait_until("the last worker's end, and a full pool", || {
            let log = server.log();
            log.matches("session over, worker ended").count() == ended
                && log.matches("worker warm").count() == ended + 3
                && server.workers().len() == 3
        });
    };
    // The log runs a moment ahead: of a worker just logged, a socket or the thread that started it may still be there.
    let least = || {
        let readings = (0..10).map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            let (maps, rss) = server.memory();
            (server.descriptors(), maps, rss)
        });
        readings.reduce(|a, b| (a.0.min(b.0), a.1.min(b.1), a.2.min(b.2))).expect("ten of them")
    };
    // The first few grow what grows once: thread stacks, the allocator's arenas, slot tables.
    let mut begun = 0;
    let mut run = |count: usize| {
        for i in 0..count {
            let mut client = Client::attach(&server, transport);
            assert_eq!(client.call(0x101, &[i as u8; 8]), [i as u8; 8]);
        }
        begun += count;
        settled(begun);
    };
    run(50);
    let (descriptors, maps, rss) = least();
    run(sessions);
    let (descriptors_after, maps_after, rss_after) = least();
    assert!(descriptors_after <= descriptors, "descriptors: {descriptors} before, {descriptors_after} after");
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

#[test]
fn a_thousand_sessions_of_a_guest_leave_nothing() {
    open_and_close(Transport::Ivshmem, 1000);
}

/// User and system time of a process in milliseconds.
fn cpu_ms(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("reading /proc");
    let fields: Vec<&str> = stat.rsplit(") ").next().expect("a comm").split(' ').collect();
    // Ticks of 10 ms; fields 14 and 15 of the file.
    10 * (fields[11].parse::<u64>().expect("utime") + fields[12].parse::<u64>().expect("stime"))
}

crate::on_each_carrier! {
    fn an_idle_session_costs_no_cpu(server: &Oriond, transport: Transport) {
        let mut client = Client::attach(server, transport);
        client.call(0x101, &[1; 8]);
        let worker = client.welcome.worker_pid;
        std::thread::sleep(std::time::Duration::from_millis(300));
        measured(|| {
            let before = (cpu_ms(server.pid()), cpu_ms(worker));
            std::thread::sleep(std::time::Duration::from_secs(2));
            let after = (cpu_ms(server.pid()), cpu_ms(worker));
            let spent = (after.0 - before.0, after.1 - before.1);
            // Three of the kernel's ticks, of two hundred: who looks without end has all of them.
            let is_little = spent.0 <= 30 && spent.1 <= 30;
            holds(is_little, || format!("server and worker spent {spent:?} ms of CPU in two seconds"))
        });
        // And it wakes up again.
        assert_eq!(client.call(0x101, &[2; 8]), [2; 8]);
    }
}
