//! What is a guest's alone: its memory as a hostile one writes it, the ends of either side, and QEMU's socket. The
//! guest is played by this process, which writes to the file by system calls where it does what no client does.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use orion_transport::carrier::ivshmem::segment::{
    FRONT_BYTES, GUEST_WORDS_AT, HOST_WORDS_AT, MAIL_BYTES, To, WORDS_BYTES, Words, pieces,
};
use orion_transport::carrier::{self, Death};
use orion_transport::client::{Server, Tuning};
use orion_transport::fds;
use orion_wire::address::{self, Place};

use crate::harness::*;

/// A guest that keeps to nothing.
struct Hostile(File);

impl Hostile {
    fn of(server: &Oriond) -> Hostile {
        Hostile(OpenOptions::new().read(true).write(true).open(&server.segment).expect("the segment"))
    }

    fn say(&self, slot: usize, which: u64, word: u64) {
        let at = GUEST_WORDS_AT + slot as u64 * WORDS_BYTES + which;
        self.0.write_all_at(&word.to_le_bytes(), at).expect("writing");
    }

    fn begin(&self, slot: usize, session: u64) {
        for which in [Words::SENT_AT, Words::TAKEN_AT] {
            self.say(slot, which, 0);
        }
        self.say(slot, Words::SESSION_AT, session);
        wait_until("the host to see it", || self.host(slot, Words::SESSION_AT) == session);
    }

    fn host(&self, slot: usize, which: u64) -> u64 {
        let mut word = [0; 8];
        self.0.read_exact_at(&mut word, HOST_WORDS_AT + slot as u64 * WORDS_BYTES + which).expect("reading");
        u64::from_le_bytes(word)
    }

    /// Mail, of which the first `bytes` have been sent before.
    fn send(&self, slot: usize, bytes: u64, mail: &[u8]) {
        let [(at, len), _] = pieces(slot, To::Host, bytes, mail.len() as u64);
        self.0.write_all_at(&mail[..len], at).expect("writing");
        self.say(slot, Words::SENT_AT, bytes + mail.len() as u64);
    }

    fn is_over(&self, slot: usize, session: u64) -> bool {
        (self.host(slot, Words::SESSION_AT), self.host(slot, Words::STATE_AT)) == (session, 1)
    }
}

#[test]
fn what_a_guest_writes_into_its_mail_ends_its_own_session_only() {
    let server = Oriond::start(&[]);
    let mut bystander = Client::attach(&server, Transport::Shm);
    let mut neighbour = Client::attach(&server, Transport::Ivshmem);
    let hostile = Hostile::of(&server);
    let impossible = [MAIL_BYTES + 1, u64::MAX, 1 << 63];
    let words = [Words::SENT_AT, Words::TAKEN_AT];
    for (session, (which, word)) in (1..).zip(words.iter().flat_map(|which| impossible.map(|word| (*which, word)))) {
        hostile.begin(3, session);
        hostile.say(3, which, word);
        wait_until("its session's end", || hostile.is_over(3, session));
    }
    server.wait_for_log(&["the guest broke the protocol", "slot=3"]);
    // Bytes that no client sends, and words that change all the time.
    hostile.begin(3, 100);
    hostile.say(3, Words::SENT_AT, 1000);
    wait_until("its session's end", || hostile.is_over(3, 100));
    let begin = Instant::now();
    for i in 0u64.. {
        if begin.elapsed() > Duration::from_millis(300) {
            break;
        }
        for which in [Words::SESSION_AT, Words::STATE_AT, Words::SENT_AT, Words::TAKEN_AT] {
            hostile.say(3, which, i.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(which as u32) >> (i % 60));
        }
        // What the host says is not read by the host.
        let at = HOST_WORDS_AT + 3 * WORDS_BYTES + 8 * (i % 4);
        hostile.0.write_all_at(&i.to_le_bytes(), at).expect("writing");
    }
    assert_eq!(neighbour.call(0x101, &[1; 8]), [1; 8]);
    assert_eq!(bystander.call(0x101, &[2; 8]), [2; 8]);
    hostile.say(3, Words::SESSION_AT, 0);
    assert_eq!(Client::attach(&server, Transport::Ivshmem).call(0x101, &[3; 8]), [3; 8]);
}

#[test]
fn a_guest_that_cuts_its_file_loses_its_sessions_and_oriond_goes_on() {
    let server = Oriond::start(&[]);
    let mut bystander = Client::attach(&server, Transport::Shm);
    let hostile = Hostile::of(&server);
    hostile.begin(0, 7);
    hostile.0.set_len(4096).expect("cutting");
    server.wait_for_log(&["ERROR", "the guest's memory is lost"]);
    assert_eq!(bystander.call(0x101, &[2; 8]), [2; 8]);
    assert_eq!(Client::attach(&server, Transport::Tcp).call(0x101, &[3; 8]), [3; 8]);
}

/// A session that runs lies behind what oriond reads: its worker ends by it, and nobody else does.
#[test]
fn a_file_that_is_cut_under_a_session_ends_that_and_oriond_goes_on() {
    let server = Oriond::start(&[]);
    let mut bystander = Client::attach(&server, Transport::Shm);
    let client = Client::attach(&server, Transport::Ivshmem);
    let file = OpenOptions::new().write(true).open(&server.segment).expect("the segment");
    file.set_len(FRONT_BYTES as u64).expect("cutting");
    server.wait_for_log(&["ERROR", "the guest's memory is lost", "2097152 bytes are left of 4294967296"]);
    wait_until("the worker's end", || !is_alive(client.welcome.worker_pid));
    // What was not cut is where the guest hears of it.
    wait_until("the client to see it", || client.is_lost());
    assert_eq!(client.carrier.death(), Some(&Death::Gone));
    assert_eq!(bystander.call(0x101, &[2; 8]), [2; 8]);
    assert_eq!(Client::attach(&server, Transport::Tcp).call(0x101, &[3; 8]), [3; 8]);
    let no = Client::try_attach(&server, Transport::Ivshmem, &hello(), Tuning::default()).err().expect("it is cut");
    assert!(no.text.contains("no oriond serves it"), "{}", no.text);
    // Its pages are gone, and who unmaps them must not look at them.
    std::mem::forget(client);
}

#[test]
fn a_file_that_is_replaced_under_a_session_is_told_and_the_new_one_is_not_served() {
    let server = Oriond::start(&[]);
    let mut client = Client::attach(&server, Transport::Ivshmem);
    std::fs::remove_file(&server.segment).expect("removing");
    let file = File::create(&server.segment).and_then(|file| file.set_len(4 << 30));
    file.expect("another file in its place");
    server.wait_for_log(&["WARN", "the file of the guest's memory was removed"]);
    assert_eq!(client.call(0x101, &[2; 8]), [2; 8]);
    let no = Client::try_attach(&server, Transport::Ivshmem, &hello(), Tuning::default()).err().expect("not that one");
    assert!(no.text.contains("no oriond serves it"), "{}", no.text);
}

/// A program that is killed, or a machine that is, with its handshake at each step.
#[test]
fn a_guest_that_falls_silent_in_its_handshake_loses_its_place_only() {
    let server = Oriond::start(&[]);
    let mut neighbour = Client::attach(&server, Transport::Ivshmem);
    let hostile = Hostile::of(&server);
    let hello = orion_wire::hello::frame(orion_wire::hello::kind::HELLO, &first_words().encode());
    let steps: [&[u8]; 3] = [&[], &hello[..hello.len() / 2], &hello];
    for (slot, (session, sent)) in (1..).zip((20..).zip(steps)) {
        hostile.begin(slot, session);
        hostile.send(slot, 0, sent);
    }
    for (slot, session) in (1..).zip(20..23) {
        wait_until("the end of a handshake", || hostile.is_over(slot, session));
        hostile.say(slot, Words::SESSION_AT, 0);
    }
    assert_eq!(neighbour.call(0x101, &[1; 8]), [1; 8]);
    let mut all: Vec<Client> = (0..3).map(|_| Client::attach(&server, Transport::Ivshmem)).collect();
    all.iter_mut().for_each(|client| assert_eq!(client.call(0x101, &[2; 8]), [2; 8]));
}

/// All of its places, over and over: silence, half a word, a word, nonsense, and somebody else's place in the mail.
#[test]
fn a_guest_that_asks_without_end_keeps_no_other_guest_and_no_program_out() {
    let folder = new_folder();
    let other = new_segment(&folder);
    let server = Oriond::start(&["--warm", "4", "--guest", other.to_str().expect("UTF-8")]);
    let others = Server::parse(&format!("ivshmem:{}", other.display())).expect("an address");
    let mut neighbour = Client::attach_to(&others);
    let mut bystander = Client::attach(&server, Transport::Shm);
    let (descriptors, (_, memory_kib)) = (server.descriptors_at_rest(), server.memory());
    let (enough, stop) = std::sync::mpsc::channel::<()>();
    let hostile = Hostile::of(&server);
    let flood = std::thread::spawn(move || {
        let hello = orion_wire::hello::frame(orion_wire::hello::kind::HELLO, &first_words().encode());
        let nonsense = vec![0xa5; MAIL_BYTES as usize];
        let mails: [&[u8]; 4] = [&[], &hello[..hello.len() / 2], &hello, &nonsense];
        let mut session = 0;
        while stop.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            for slot in 0..4 {
                session += 1;
                hostile.say(slot, Words::TAKEN_AT, if session % 7 == 0 { session } else { 0 });
                hostile.send(slot, 0, mails[session as usize % 4]);
                hostile.say(slot, Words::SESSION_AT, session);
            }
            std::thread::sleep(Duration::from_micros(300));
        }
        session
    });
    let began = Instant::now();
    let mut rounds = 0;
    while began.elapsed() < Duration::from_secs(2) {
        rounds += 1;
        assert_eq!(neighbour.call(0x101, &[1; 8]), [1; 8]);
        assert_eq!(bystander.call(0x101, &[2; 8]), [2; 8]);
        assert_eq!(Client::attach_to(&others).call(0x101, &[3; 8]), [3; 8]);
        assert_eq!(Client::attach(&server, Transport::Shm).call(0x101, &[4; 8]), [4; 8]);
        assert_eq!(Client::attach(&server, Transport::Tcp).call(0x101, &[5; 8]), [5; 8]);
    }
    drop(enough);
    let asked = flood.join().expect("the flood");
    assert!(asked > 100, "the guest asked {asked} times in {rounds} rounds");
    server.wait_for_log(&["WARN", "protocol broken during the handshake", "guest:0"]);
    server.wait_for_log(&["WARN", "the guest broke the protocol", "says_taken="]);
    wait_until("as many descriptors as before", || server.descriptors() <= descriptors + 1);
    let grown = server.memory().1.saturating_sub(memory_kib);
    assert!(grown < 20 << 10, "oriond has {grown} KiB more");
    drop(server);
    std::fs::remove_dir_all(&folder).and_then(|()| std::fs::remove_file(&other)).expect("removing");
}

#[test]
fn a_file_that_is_removed_is_told_and_who_has_it_goes_on() {
    let server = Oriond::start(&[]);
    let mut client = Client::attach(&server, Transport::Ivshmem);
    std::fs::remove_file(&server.segment).expect("removing");
    server.wait_for_log(&["WARN", "the file of the guest's memory was removed"]);
    assert_eq!(client.call(0x101, &[2; 8]), [2; 8]);
}

#[test]
fn a_program_of_a_guest_that_is_not_heard_of_any_more_loses_its_session() {
    let server = Oriond::start(&[]);
    let hostile = Hostile::of(&server);
    let begin = Instant::now();
    hostile.begin(1, 9);
    wait_until("the end of a session without a beat", || hostile.is_over(1, 9));
    // The door has no patience with who says nothing either; what is missed by its beat takes 11 s.
    assert!(begin.elapsed() >= Duration::from_secs(2), "{:?}", begin.elapsed());
}

#[test]
fn an_oriond_that_is_killed_is_told_by_how_it_was_seen() {
    let server = Oriond::start(&[]);
    let client = Client::attach(&server, Transport::Ivshmem);
    // Its worker ends too, and nobody is left to say so.
    // SAFETY: a signal to our own child.
    unsafe { libc::kill(server.pid() as i32, libc::SIGKILL) };
    wait_until("the client to see it", || client.is_lost());
    let death = client.carrier.death().expect("just seen").of("the worker");
    assert!(death.contains("nothing was heard of the host's oriond for 11 s"), "{death}");
    let no = Client::try_attach(&server, Transport::Ivshmem, &hello(), Tuning::default()).err().expect("nobody serves");
    assert!(no.text.contains("was not heard of for 11 s"), "{}", no.text);
}

#[test]
fn an_oriond_that_is_killed_in_a_copy_is_told_by_how_it_was_seen() {
    let server = Oriond::start(&[]);
    let mut client = Client::attach(&server, Transport::Ivshmem);
    let copied = copy(&mut client, || {
        // SAFETY: a signal to our own child.
        unsafe { libc::kill(server.pid() as i32, libc::SIGKILL) };
    });
    assert!(copied < COPIES_MAX, "all was copied before");
    let death = client.carrier.death().expect("just seen").of("the worker");
    assert!(death.contains("nothing was heard of the host's oriond for 11 s"), "{death}");
}

const COPIES_MAX: u64 = 2000;

/// Has the worker write to the heap until the session is lost, with `then` done in the midst of it. How often it did.
fn copy(client: &mut Client, then: impl FnOnce()) -> u64 {
    let body = words(&[0, 16 << 20, 3]);
    let mut then = Some(then);
    for i in 0..COPIES_MAX {
        client.start(FILL, &body);
        if i == 3
            && let Some(then) = then.take()
        {
            then();
        }
        if client.reply_or_lost().is_none() {
            return i;
        }
    }
    COPIES_MAX
}

/// Whoever starts ends what it finds of an oriond that was killed, and cannot know what has come meanwhile.
#[test]
fn a_program_that_comes_while_oriond_is_started_anew_has_its_session() {
    let before = Oriond::start(&[]);
    let address = before.server(Transport::Ivshmem);
    let workers = before.workers();
    // SAFETY: a signal to our own child.
    unsafe { libc::kill(before.pid() as i32, libc::SIGKILL) };
    // They have the file too, and by that its lock.
    wait_until("the workers' end", || workers.iter().all(|worker| !is_alive(*worker)));
    let hostile = Hostile::of(&before);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| Client::attach_to(&address).call(0x101, &[7; 8]));
        let mut word = [0; 8];
        wait_until("a program in the first slot", || {
            hostile.0.read_exact_at(&mut word, GUEST_WORDS_AT + Words::SESSION_AT).expect("reading");
            word != [0; 8]
        });
        let _after = Oriond::start(&["--guest", before.segment.to_str().expect("UTF-8")]);
        assert_eq!(client.join().expect("a session"), [7; 8]);
    });
}

/// It maps, clears and registers memory that it was not made with, which a busy machine does in more than the five
/// seconds that a client has to start its session.
#[test]
fn a_worker_that_takes_long_to_take_a_guests_memory_is_waited_for() {
    let server = Oriond::start(&[]);
    server.wait_for_log(&["worker warm"]);
    let stopped = server.workers();
    let all = |signal| {
        for worker in &stopped {
            // SAFETY: a signal to processes of this test's server; one that was ended is told of by its client.
            unsafe { libc::kill(*worker as i32, signal) };
        }
    };
    all(libc::SIGSTOP);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            Client::try_attach(&server, Transport::Ivshmem, &hello(), Tuning::default())
                .map(|mut client| client.call(0x101, &[7; 8]))
                .map_err(|no| no.text)
        });
        server.wait_for_log(&["session begins", "guest:0"]);
        std::thread::sleep(Duration::from_secs(6));
        all(libc::SIGCONT);
        assert_eq!(client.join().expect("it attaches"), Ok(vec![7; 8]));
    });
}

#[test]
fn an_oriond_that_stops_says_so_to_its_guests() {
    let server = Oriond::start(&[]);
    let client = Client::attach(&server, Transport::Ivshmem);
    let address = server.server(Transport::Ivshmem);
    // SAFETY: a signal to our own child.
    unsafe { libc::kill(server.pid() as i32, libc::SIGTERM) };
    wait_until("the client to see it", || client.is_lost());
    assert_eq!(client.carrier.death(), Some(&Death::Gone));
    wait_until("the end of oriond", || !is_serving(&server.segment));
    let attached = orion_transport::carrier::welcome_of(&address, &hello());
    assert!(attached.expect_err("nobody serves").text.contains("no oriond serves it"));
}

fn is_serving(segment: &Path) -> bool {
    let mut word = [0; 8];
    File::open(segment).and_then(|file| file.read_exact_at(&mut word, 0)).expect("reading");
    word != [0; 8]
}

#[test]
fn more_sessions_than_a_guest_may_have_are_refused_in_words() {
    let server = Oriond::start(&[]);
    let _all: Vec<Client> = (0..4).map(|_| Client::attach(&server, Transport::Ivshmem)).collect();
    let no = Client::try_attach(&server, Transport::Ivshmem, &hello(), Tuning::default()).err().expect("no room");
    assert!(no.text.contains("all 4 sessions") && no.text.contains("--guest-sessions"), "{}", no.text);
    Client::attach(&server, Transport::Shm);
}

#[test]
fn a_slot_has_nothing_of_the_session_before() {
    let server = Oriond::start(&[]);
    let range = orion_wire::record::HeapRange { offset: 4096, bytes: 1 << 20 };
    let mut first = Client::attach(&server, Transport::Ivshmem);
    first.bytes_mut(range).fill(0xa5);
    assert_eq!(first.sum(range), 0xa5 << 20);
    let worker = first.welcome.worker_pid;
    drop(first);
    wait_until("the worker's end", || !is_alive(worker));
    let mut second = Client::attach(&server, Transport::Ivshmem);
    assert_eq!(second.sum(range), 0);
}

#[test]
fn memory_that_is_no_guests_own_is_refused_in_words() {
    let server = Oriond::start(&[]);
    let folder = PathBuf::from(format!("/dev/shm/orion-guest-test-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a new folder");
    let file = |name: &str, mib: u64, mode: u32| {
        let path = folder.join(name);
        File::create(&path).and_then(|file| file.set_len(mib << 20)).expect("a file");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("chmod");
        path
    };
    let link = folder.join("link");
    std::os::unix::fs::symlink(file("good", 64, 0o600), &link).expect("linking");
    for (path, words) in [
        (file("open", 64, 0o666), "every user of this machine can open it (mode 0666)"),
        (file("odd", 100, 0o660), "no power of two"),
        (file("small", 32, 0o660), "each takes 40 MiB at least"),
        (link, "orion-shm makes such a file"),
        (folder.join("missing"), "orion-shm makes such a file"),
        (folder.clone(), "orion-shm makes"),
        (server.segment.clone(), "another oriond serves"),
    ] {
        let mut oriond = Command::new(env!("CARGO_BIN_EXE_oriond"));
        oriond.args(["serve", "--driver", "echo", "--socket", "none", "--guest"]).arg(&path);
        let output = oriond.output().expect("starting oriond");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(words), "{}: {said}", path.display());
    }
    std::fs::remove_dir_all(&folder).expect("removing");
}

/// What QEMU has been handed.
struct Machine {
    connection: UnixStream,
    memory: OwnedFd,
    /// What the guest rings by writing to its device's register.
    bells: Vec<OwnedFd>,
}

impl Machine {
    fn start(socket: &Path) -> Machine {
        let connection = UnixStream::connect(socket).expect("connecting");
        let (mut memory, mut bells) = (None, Vec::new());
        // The version, its number, the memory, three bells of the host's and three of its own.
        for _ in 0..9 {
            let mut word = [0; 8];
            let (n, with) = fds::recv_some(connection.as_fd(), &mut word, 0).expect("a word");
            assert_eq!(n, 8);
            match i64::from_le_bytes(word) {
                -1 => memory = with.into_iter().next(),
                0 => bells.extend(with),
                _ => {}
            }
        }
        Machine { connection, memory: memory.expect("the memory"), bells }
    }

    fn server(&self) -> Server {
        let path = format!("/proc/self/fd/{}", self.memory.as_raw_fd());
        Server { carrier: address::carrier("ivshmem").expect("it is one"), place: Place::Device(path) }
    }
}

/// One that QEMU asks for memory, with its folder and the socket in it.
fn server_of_machines() -> (Oriond, PathBuf, PathBuf) {
    let folder = new_folder();
    let socket = folder.join("guest.sock");
    let path = socket.to_str().expect("a plain path");
    let server = Oriond::start(&["--guest-socket", path, "--guest-sessions", "2", "--guest-memory", "128 MiB"]);
    (server, folder, socket)
}

#[test]
fn a_virtual_machine_asks_for_its_memory_and_its_end_is_that_of_its_sessions() {
    let (server, folder, socket) = server_of_machines();
    let machine = Machine::start(&socket);
    assert_eq!(machine.bells.len(), 3);
    // SAFETY: asks for the seals of a descriptor that is ours.
    let seals = unsafe { libc::fcntl(machine.memory.as_raw_fd(), libc::F_GET_SEALS) };
    let wanted = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    assert_eq!(seals & wanted, wanted, "whoever has it could end its worker");
    let mut client = Client::attach_to(&machine.server());
    assert_eq!(client.call(0x101, &[5; 8]), [5; 8]);
    let before = client.welcome.worker_pid;
    let memory = File::from(machine.memory.try_clone().expect("a descriptor"));
    let is_empty = || {
        let mut bytes = vec![0; 126 << 20];
        memory.read_exact_at(&mut bytes, 2 << 20).expect("reading");
        bytes.iter().all(|byte| *byte == 0)
    };
    assert!(!is_empty(), "a session lies there");
    drop(machine.connection);
    wait_until("the client to see it", || client.is_lost());
    wait_until("the worker's end", || !is_alive(before));
    server.wait_for_log(&["its virtual machine has ended"]);
    // Another one may have it then, and finds nothing.
    let again = Machine::start(&socket);
    assert!(is_empty(), "what the first machine's session left is there for the second");
    assert_eq!(Client::attach_to(&again.server()).call(0x101, &[6; 8]), [6; 8]);
    drop(server);
    std::fs::remove_dir_all(&folder).expect("removing");
}

#[test]
fn a_worker_that_sleeps_is_rung_by_its_own_vector() {
    let (server, folder, socket) = server_of_machines();
    let machine = Machine::start(&socket);
    let mut client = Client::attach_to(&machine.server());
    // This client has no register to write to, so nothing is heard until the worker looks by itself.
    let slow = time_of_a_call(&mut client, || {});
    let fast = time_of_a_call(&mut client, || {
        let one = 1u64;
        // SAFETY: eight bytes from a local.
        assert_eq!(unsafe { libc::write(machine.bells[1].as_raw_fd(), (&raw const one).cast(), 8) }, 8);
    });
    assert!(fast < slow, "rung {fast:?}, not rung {slow:?}");
    drop((client, server));
    std::fs::remove_dir_all(&folder).expect("removing");
}

#[test]
fn a_virtual_machine_that_ends_in_a_copy_or_a_handshake_leaves_nothing() {
    let (server, folder, socket) = server_of_machines();
    let machine = Machine::start(&socket);
    let address = machine.server();
    let mut copying = Client::attach_to(&address);
    let worker = copying.welcome.worker_pid;
    let (mut channel, _) = carrier::way(&address).reach(&address, &hello()).expect("connecting");
    let (begun, _) = crate::death::begin(&mut channel);
    // Seconds of it. Nobody reads the answers: who could has ended, and his memory is made zeros.
    let body = words(&[0, 16 << 20, 3]);
    for _ in 0..1000 {
        copying.start(FILL, &body);
    }
    assert!(copying.reply_or_lost().is_some(), "it has begun to copy");
    drop(machine.connection);
    wait_until("the client to see it", || copying.is_lost());
    wait_until("the end of the worker that copied", || !is_alive(worker));
    wait_until("the end of the worker that was to serve the other", || !is_alive(begun.worker_pid));
    drop((channel, copying));
    let again = Machine::start(&socket);
    assert_eq!(Client::attach_to(&again.server()).call(0x101, &[6; 8]), [6; 8]);
    drop(server);
    std::fs::remove_dir_all(&folder).expect("removing");
}

#[test]
fn a_guest_that_rings_without_end_is_not_looked_at_without_end() {
    let (server, folder, socket) = server_of_machines();
    let machine = Machine::start(&socket);
    let thread = || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", server.pid())).expect("reading /proc");
        let name = |task: &PathBuf| std::fs::read_to_string(task.join("comm")).unwrap_or_default();
        tasks.filter_map(|task| Some(task.ok()?.path())).find(|task| name(task) == "guest 1\n").expect("its porter")
    };
    let reads = || {
        let text = std::fs::read_to_string(thread().join("io")).expect("what it has read");
        let line = text.lines().find_map(|line| line.strip_prefix("syscr: ")).expect("how often");
        line.parse::<u64>().expect("a number")
    };
    let (before, began) = (reads(), Instant::now());
    let mut rung = 0;
    while began.elapsed() < Duration::from_millis(500) {
        let one = 1u64;
        // SAFETY: eight bytes from a local.
        unsafe { libc::write(machine.bells[0].as_raw_fd(), (&raw const one).cast(), 8) };
        rung += 1;
    }
    let (read, took) = (reads() - before, began.elapsed());
    assert!(read as f64 / took.as_secs_f64() < 40_000.0, "rung {rung} times, it read {read} times in {took:?}");
    drop(server);
    std::fs::remove_dir_all(&folder).expect("removing");
}

/// The middle one of several, each of which finds the worker asleep.
fn time_of_a_call(client: &mut Client, ring: impl Fn()) -> Duration {
    let mut times: Vec<Duration> = (0..9)
        .map(|_| {
            std::thread::sleep(Duration::from_millis(10));
            let begin = Instant::now();
            let sequence = client.start(0x101, &[5; 8]);
            ring();
            assert_eq!(client.reply().0.sequence, sequence);
            begin.elapsed()
        })
        .collect();
    times.sort();
    times[times.len() / 2]
}

#[test]
fn a_guest_without_the_token_is_refused_where_there_is_one() {
    let server = Oriond::start(&[]);
    let caller = orion_transport::client::Caller { token: None, ..hello() };
    let no = Client::try_attach(&server, Transport::Ivshmem, &caller, Tuning::default()).err().expect("no token");
    assert!(no.text.contains("the token is wrong or missing"), "{}", no.text);
}
