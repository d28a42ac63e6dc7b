//! Each program is attached to this kernel, and counts what is done on purpose. Where BPF is refused a test says why it
//! asserts nothing.
#![cfg(feature = "libbpf")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use orion_bpf::report::{Connection, Threads};
use orion_bpf::{Probe, Question, Report, Role, tracefs};

/// Nothing here takes so long unless something is broken.
const PATIENCE: Duration = Duration::from_secs(20);

/// Ends with the test.
struct Program(Child);

impl Program {
    fn start(command: &mut Command) -> Program {
        Program(command.stdin(Stdio::null()).spawn().expect("it starts"))
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `None` where this machine does not let anybody look, which is said.
fn looking_at(process: u32, question: Question) -> Option<Probe> {
    if matches!(question, Question::IoUring | Question::Ioctl) {
        // For this thread; the check says what is missing if it fails.
        let _ = tracefs::mount_here();
    }
    let asked = question.check().and_then(|()| {
        let mut probe = Probe::of_program(process)?;
        probe.ask(question)?;
        Ok(probe)
    });
    match asked {
        Ok(probe) => Some(probe),
        Err(why) if may_look() => panic!("{why}"),
        Err(why) => {
            eprintln!("not tried: {why}");
            None
        }
    }
}

/// Root of a machine whose kernel describes its types is to be let.
fn may_look() -> bool {
    // SAFETY: geteuid cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    is_root && std::path::Path::new("/sys/kernel/btf/vmlinux").exists() && Question::RunQueue.check().is_ok()
}

fn wait_until(probe: &Probe, what: &str, is_so: impl Fn(&Report) -> bool) -> Report {
    let end = Instant::now() + PATIENCE;
    loop {
        let report = probe.read().expect("reading what was counted");
        if is_so(&report) {
            return report;
        }
        assert!(Instant::now() < end, "not seen: {what}; but {report:#?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn threads(report: &Report) -> &Threads {
    assert_eq!(report.threads.len(), 1, "{report:#?}");
    assert_eq!(report.threads[0].role, Role::Client);
    &report.threads[0]
}

#[test]
fn who_shares_a_core_waits_for_it() {
    let busy = || {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]);
        // SAFETY: a system call with a set of this closure's own.
        unsafe {
            command.pre_exec(|| {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                libc::sched_getaffinity(0, size_of_val(&set), &raw mut set);
                let first = (0..libc::CPU_SETSIZE as usize).find(|cpu| libc::CPU_ISSET(*cpu, &set)).unwrap_or(0);
                libc::CPU_ZERO(&mut set);
                libc::CPU_SET(first, &mut set);
                libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
                Ok(())
            });
        }
        Program::start(&mut command)
    };
    let (one, _other) = (busy(), busy());
    let Some(probe) = looking_at(one.pid(), Question::RunQueue) else { return };
    let report = wait_until(&probe, "a fifth of the time in the run queue", |report| {
        let waited = threads(report).run_queue.expect("it was asked");
        report.seconds > 0.5 && waited.sum_ns as f64 > report.seconds * 0.2e9
    });
    let waited = threads(&report).run_queue.expect("it was asked");
    assert!(waited.sum_ns as f64 <= report.seconds * 1.01e9, "it waited longer than it was looked at: {report:#?}");
    assert!(waited.count > 0 && waited.p50_ns <= waited.p99_ns && waited.p99_ns <= waited.max_ns, "{waited:?}");
    assert!(threads(&report).asleep.is_none(), "nobody asked");
    assert!(
        report.cost_is_known && report.cost.iter().all(|cost| cost.program.starts_with("runqueue/")),
        "{report:#?}"
    );
    assert!(report.cost.iter().map(|cost| cost.runs).sum::<u64>() >= waited.count, "{report:#?}");
}

#[test]
fn sleeps_are_as_long_as_they_were_meant_to_be() {
    let mut bash = Command::new("bash");
    let fifo = std::env::temp_dir().join(format!("orion-bpf-{}", std::process::id()));
    bash.args(["-c", "mkfifo $0; exec 9<>$0; rm $0; while :; do read -t 0.03 -u 9; done"]).arg(&fifo);
    let sleeper = Program::start(&mut bash);
    let Some(probe) = looking_at(sleeper.pid(), Question::OffCpu) else { return };
    let many = |report: &Report| threads(report).asleep.expect("it was asked").0.count >= 30;
    let report = wait_until(&probe, "thirty sleeps", many);
    let slept = threads(&report).asleep.expect("it was asked").0;
    assert!((28_000_000..60_000_000).contains(&slept.p50_ns), "of 30 ms: {slept:?}");
    // Buckets and sum are counted apart.
    let mean = slept.sum_ns / slept.count;
    assert!(slept.p50_ns < mean * 2 && mean < slept.max_ns * 2, "{slept:?}");
}

#[test]
fn a_peer_that_does_not_answer_is_sent_to_again() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let Some(probe) = looking_at(std::process::id(), Question::Tcp) else { return };
    let mut client = TcpStream::connect(("127.0.0.1", port)).expect("connecting");
    let (mut server, peer) = listener.accept().expect("accepting");
    let connection = |report: &Report| report.connections.iter().find(|c| c.peer == peer).cloned();
    let seen = |is_so: &dyn Fn(&Connection) -> bool, report: &Report| connection(report).is_some_and(|c| is_so(&c));

    // What is not read is queued here; each answer tells of a round trip.
    for _ in 0..20 {
        server.write_all(&[1; 100]).expect("sending");
        client.read_exact(&mut [0; 100]).expect("receiving");
        client.write_all(&[1; 50]).expect("sending");
    }
    let report = wait_until(&probe, "round trips, and what nobody read", |report| {
        seen(&|c| c.round_trips.count >= 10 && c.unread_bytes_max >= 500, report)
    });
    let before = connection(&report).expect("seen above");
    assert_eq!((before.port, before.retransmits), (port, 0));
    assert!(before.round_trips.max_ns < PATIENCE.as_nanos() as u64 && before.smoothed_ns > 0, "{before:?}");

    // From now on the client's kernel drops what comes.
    let nothing = [libc::sock_filter { code: 6, jt: 0, jf: 0, k: 0 }];
    let filter = libc::sock_fprog { len: 1, filter: nothing.as_ptr().cast_mut() };
    // SAFETY: the filter is copied.
    let rc = unsafe {
        let len = size_of_val(&filter) as u32;
        libc::setsockopt(client.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, (&raw const filter).cast(), len)
    };
    assert_eq!(rc, 0, "{}", std::io::Error::last_os_error());
    server.write_all(&[2; 1000]).expect("sending");
    wait_until(&probe, "something sent again", |report| seen(&|c| c.retransmits >= 2, report));
    // A segment of the client's shows what is queued for it.
    client.write_all(&[3]).expect("sending");
    wait_until(&probe, "what is on the way", |report| seen(&|c| c.unacked_bytes_max >= 1000, report));
    assert!(!seen(&|c| c.retransmits == 0, &probe.read().expect("reading")));
}

#[test]
fn ioctls_of_device_files_are_counted_and_others_are_not() {
    let Some(probe) = looking_at(std::process::id(), Question::Ioctl) else { return };
    let device = std::fs::File::open("/dev/zero").expect("a device file");
    let file = std::fs::File::open("/proc/self/exe").expect("a file");
    for _ in 0..100 {
        for fd in [device.as_raw_fd(), file.as_raw_fd()] {
            // SAFETY: neither knows the command, so nothing is written.
            assert_eq!(unsafe { libc::ioctl(fd, 0xc020_4699) }, -1);
        }
    }
    let report = probe.read().expect("reading what was counted");
    let ours: Vec<_> = report.ioctls.iter().filter(|i| i.command == 0xc020_4699).collect();
    assert_eq!(ours.len(), 1, "{report:#?}");
    assert_eq!((ours[0].device.as_str(), ours[0].count, ours[0].failures), ("/dev/zero", 100, 100));
    assert_eq!(ours[0].times.count, 100);
    assert!(ours[0].times.sum_ns > 0 && ours[0].times.p50_ns < 1_000_000_000, "{report:#?}");
}

#[test]
fn completions_are_counted_by_operation() {
    let Some(probe) = looking_at(std::process::id(), Question::IoUring) else { return };
    let mut ring = match io_uring::IoUring::new(32) {
        Ok(ring) => ring,
        Err(e) => return eprintln!("not tried: there is no io_uring here: {e}"),
    };
    let file = std::fs::File::open("/proc/self/exe").expect("a file");
    let mut bytes = [0u8; 100];
    let mut read = |fd| io_uring::opcode::Read::new(io_uring::types::Fd(fd), bytes.as_mut_ptr(), 100).build();
    let requests: Vec<_> = (0..10).map(|_| io_uring::opcode::Nop::new().build()).collect();
    let requests = requests.into_iter().chain([file.as_raw_fd(), -1].map(&mut read));
    for request in requests {
        // SAFETY: `bytes` outlives the requests, which are waited for.
        unsafe { ring.submission().push(&request).expect("there is room") };
    }
    ring.submit_and_wait(12).expect("all of them");
    let report = probe.read().expect("reading what was counted");
    let found = |opcode| {
        let found = report.completions.iter().find(|c| c.opcode == opcode);
        found.map(|c| (c.process, c.count, c.failures, c.bytes))
    };
    let own = std::process::id();
    assert_eq!(found(0), Some((own, 10, 0, 0)), "nops: {report:#?}");
    assert_eq!(found(22), Some((own, 2, 1, 100)), "reads: {report:#?}");
}

/// As `sys/sdt.h` and dataplane/telemetry write one.
#[cfg(target_arch = "x86_64")]
macro_rules! place {
    ($name:literal, $($argument:expr),*) => {
        // SAFETY: a nop of five bytes, and a note. What is called in its place uses the stack.
        unsafe {
            std::arch::asm!(
                "990: .byte 0x0f, 0x1f, 0x44, 0x00, 0x00",
                ".pushsection .note.stapsdt, \"?\", \"note\"",
                ".balign 4",
                ".4byte 992f-991f, 994f-993f, 3",
                "991: .asciz \"stapsdt\"",
                "992: .balign 4",
                "993: .8byte 990b, 0, 0",
                ".asciz \"orion\"",
                concat!(".asciz \"", $name, "\""),
                ".asciz \"8@{0} 8@{1}\"",
                "994: .balign 4",
                ".popsection",
                $(in(reg) $argument,)*
                options(att_syntax, readonly, preserves_flags)
            );
        }
    };
}

#[cfg(target_arch = "x86_64")]
#[inline(never)]
fn nap(session: u64, number: u64) {
    place!("nap_begin", session, number);
    std::thread::sleep(Duration::from_millis(5));
    place!("nap_end", session, number);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn pairs_of_usdt_probes_are_timed_by_session() {
    let Some(probe) = looking_at(std::process::id(), Question::Usdt) else { return };
    (0..10).for_each(|number| nap(7, number));
    // Two at once, of which the first to begin is the last to end.
    place!("nap_begin", 8u64, 1u64);
    place!("nap_begin", 8u64, 2u64);
    std::thread::sleep(Duration::from_millis(20));
    place!("nap_end", 8u64, 2u64);
    place!("nap_end", 8u64, 1u64);
    // Of what began before somebody looked.
    place!("nap_end", 9u64, 1u64);
    let report = probe.read().expect("reading what was counted");
    let counts: Vec<_> = report.usdt.iter().map(|usdt| (usdt.probe.as_str(), usdt.count)).collect();
    assert_eq!(counts, [("nap_begin", 12), ("nap_end", 13)]);
    let mut pairs = report.pairs.clone();
    pairs.sort_by_key(|pair| pair.session);
    let sessions: Vec<_> = pairs.iter().map(|pair| (pair.session, pair.times.count)).collect();
    assert_eq!(sessions, [(7, 10), (8, 2)], "{report:#?}");
    assert!(pairs[0].times.p50_ns >= 4_500_000 && pairs[1].times.p50_ns >= 18_000_000, "{pairs:#?}");
}
