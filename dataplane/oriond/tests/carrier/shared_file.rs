//! A client that has its worker map files, with the software GPU: which are taken, where, and for how long.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use orion_cuda::sys::*;
use orion_wire::Reader;
use orion_wire::handle::Handle;
use orion_wire::message::address::{ClaimedDevice, ClaimedHost, ClaimedPlace};
use orion_wire::message::copy::{CopyIn, CopyOutInline, CopyOutInlineReply, Source};
use orion_wire::message::field::{Existing, Size};
use orion_wire::message::host_memory::{MemHostRegister, MemHostUnregister, PagesOf};
use orion_wire::message::memory::{MemAlloc, MemAllocReply};
use orion_wire::record::{HeapRange, op};

use crate::harness::{self, Client, Oriond, Transport, body, is_alive, pipe, wait_until};

const PAGE: u64 = 4096;
/// Where neither a worker nor this program has anything.
const PLACE: u64 = 0x1234_5678_0000;
const CARRIERS: &[Transport] = &[
    Transport::Shm,
    #[cfg(debug_assertions)]
    Transport::Doorbell,
];

struct Sharer {
    client: Client,
    memory: u64,
}

impl Sharer {
    fn start(server: &Oriond, transport: Transport) -> Sharer {
        let mut client = Client::attach(server, transport);
        client.context = Handle::primary_context(0).0;
        let (code, reply) = client.ask(MemAlloc::OP, &body(&harness::memory(PAGE)));
        assert_eq!(code, CUDA_SUCCESS);
        let memory = MemAllocReply::decode(&mut Reader::new(&reply)).expect("an address").address;
        Sharer { client, memory }
    }

    fn hand_over(&self, file: BorrowedFd<'_>) {
        self.client.carrier.hand_over(file).expect("the socket takes it");
    }

    fn register(&mut self, offset: u64, bytes: u64, place: u64) -> u32 {
        self.client.logged.clear();
        self.client.ask(MemHostRegister::OP, &registration(offset, bytes, place)).0
    }

    /// It is not taken, with a word of why, and the session goes on.
    fn refused(&mut self, what: &str, file: BorrowedFd<'_>, word: &str) {
        self.hand_over(file);
        let code = self.register(0, PAGE, PLACE);
        assert_ne!(code, CUDA_SUCCESS, "{what}");
        let said = &self.client.logged;
        assert!(said.contains(word), "{what}: {said}");
        assert!(!self.maps().contains("12345678"), "{what} is mapped");
        self.client.call(op::PING, &[]);
    }

    fn unregister(&mut self) -> u32 {
        self.client.ask(MemHostUnregister::OP, &body(&MemHostUnregister { address: ClaimedHost::new(PLACE) })).0
    }

    fn maps(&self) -> String {
        std::fs::read_to_string(format!("/proc/{}/maps", self.client.welcome.worker_pid)).expect("its mappings")
    }

    fn copy_in(&mut self, from: u64, source: Source) -> Option<u32> {
        let (to, from) = (ClaimedDevice::new(self.memory), ClaimedHost::new(from));
        let q = CopyIn { to, from, bytes: Size(8), stream: Existing(0), source };
        self.client.start(CopyIn::OP, &body(&q));
        self.client.reply_or_lost().map(|(header, _)| header.context as u32)
    }

    fn got(&mut self) -> Vec<u8> {
        let from = ClaimedDevice::new(self.memory);
        let q = CopyOutInline { from, bytes: Size(8), stream: Existing(0) };
        let (code, reply) = self.client.ask(CopyOutInline::OP, &body(&q));
        assert_eq!(code, CUDA_SUCCESS);
        CopyOutInlineReply::decode(&mut Reader::new(&reply)).expect("bytes").bytes.get().to_vec()
    }
}

fn registration(offset: u64, bytes: u64, place: u64) -> Vec<u8> {
    let range = HeapRange { offset, bytes }.into();
    body(&MemHostRegister { pages: PagesOf::File, range, address: ClaimedPlace::new(place) })
}

fn in_memory(bytes: u64) -> File {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: a new descriptor, which the file owns.
    let file = unsafe { File::from_raw_fd(libc::memfd_create(c"orion-carrier-test".as_ptr(), flags)) };
    file.set_len(bytes).expect("room in memory");
    file
}

/// The same file, opened in another way.
fn again(file: &File, flags: i32) -> OwnedFd {
    let path = std::ffi::CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("no zero");
    // SAFETY: a path that ends; the descriptor is new.
    unsafe {
        let fd = libc::open(path.as_ptr(), flags | libc::O_CLOEXEC);
        assert!(fd >= 0, "opening with {flags:#o}: {}", std::io::Error::last_os_error());
        OwnedFd::from_raw_fd(fd)
    }
}

#[test]
fn a_file_in_memory_is_mapped_and_goes_again() {
    use std::os::unix::fs::FileExt;
    for transport in CARRIERS {
        let server = Oriond::start(&["--driver", "soft"]);
        let mut s = Sharer::start(&server, *transport);
        let file = in_memory(4 * PAGE);
        file.write_all_at(b"its page", PAGE).expect("writing");
        for _ in 0..3 {
            s.hand_over(file.as_fd());
            assert_eq!(s.register(PAGE, 2 * PAGE, PLACE), CUDA_SUCCESS, "{}", s.client.logged);
            assert!(s.maps().contains("orion-carrier-test"));
            assert_eq!(s.copy_in(PLACE, Source::Kept), Some(CUDA_SUCCESS));
            assert_eq!(s.got(), b"its page");
            // A second mapping there is none.
            s.hand_over(file.as_fd());
            assert_eq!(s.register(0, PAGE, PLACE + PAGE), CUDA_ERROR_NOT_SUPPORTED);
            assert_eq!(s.unregister(), CUDA_SUCCESS);
            assert_eq!(s.unregister(), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
            assert!(!s.maps().contains("orion-carrier-test"));
        }
        let held = std::fs::read_dir(format!("/proc/{}/fd", s.client.welcome.worker_pid)).expect("its descriptors");
        let name = |fd: std::io::Result<std::fs::DirEntry>| std::fs::read_link(fd.ok()?.path()).ok();
        assert!(!held.filter_map(name).any(|path| path.display().to_string().contains("orion-carrier-test")));
    }
}

#[test]
fn what_is_no_file_in_memory_is_refused_in_words() {
    for transport in CARRIERS {
        let server = Oriond::start(&["--driver", "soft"]);
        let mut s = Sharer::start(&server, *transport);
        assert_eq!(s.register(0, PAGE, PLACE), CUDA_ERROR_INVALID_VALUE);
        assert!(s.client.logged.contains("has not come"), "{}", s.client.logged);

        let (reading, writing) = pipe();
        s.refused("a pipe", writing.as_fd(), "is no file's");
        s.refused("a pipe's other end", reading.as_fd(), "is no file's");
        let (socket, _other) = UnixStream::pair().expect("a pair");
        s.refused("a socket", socket.as_fd(), "is no file's");
        let folder = File::open("/dev/shm").expect("it is there");
        s.refused("a folder", folder.as_fd(), "is no file's");
        let device = File::options().read(true).write(true).open("/dev/zero").expect("it is there");
        s.refused("a device", device.as_fd(), "is no file's");
        let on_disk = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("on-disk-{}", std::process::id()));
        let disk = File::options().read(true).write(true).create_new(true).open(&on_disk).expect("a new file");
        std::fs::remove_file(&on_disk).expect("removing");
        disk.set_len(PAGE).expect("room on the disk");
        s.refused("a file on a disk", disk.as_fd(), "lies in no memory");

        let file = in_memory(PAGE);
        for (what, flags) in [("for reading", libc::O_RDONLY), ("for writing", libc::O_WRONLY)] {
            s.refused(what, again(&file, flags).as_fd(), "not open for reading and writing");
        }
        s.refused("as a path", again(&file, libc::O_PATH).as_fd(), "");
        s.refused("too small", in_memory(0).as_fd(), "ends before the range");
        let small = in_memory(PAGE + 1);
        s.hand_over(small.as_fd());
        assert_eq!(s.register(PAGE, 2 * PAGE, PLACE), CUDA_ERROR_INVALID_VALUE);
        let sealed = in_memory(PAGE);
        // SAFETY: a descriptor of ours.
        assert_eq!(unsafe { libc::fcntl(sealed.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_WRITE) }, 0);
        s.hand_over(sealed.as_fd());
        assert_eq!(s.register(0, PAGE, PLACE), CUDA_ERROR_NOT_SUPPORTED);

        // More than a session may pin.
        let bytes = s.client.welcome.heap_bytes + PAGE;
        s.hand_over(in_memory(bytes).as_fd());
        assert_eq!(s.register(0, bytes, PLACE), CUDA_ERROR_OUT_OF_MEMORY);
        assert!(s.client.logged.contains("MiB"), "{}", s.client.logged);

        // One that was used is used up, and of several the last counts.
        s.hand_over(file.as_fd());
        s.hand_over(disk.as_fd());
        assert_eq!(s.register(0, PAGE, PLACE), CUDA_ERROR_NOT_SUPPORTED);
        assert_eq!(s.register(0, PAGE, PLACE), CUDA_ERROR_INVALID_VALUE);
        s.hand_over(file.as_fd());
        assert_eq!(s.register(0, PAGE, PLACE), CUDA_SUCCESS, "{}", s.client.logged);
    }
}

#[test]
fn what_the_worker_has_mapped_stays() {
    use std::os::unix::fs::FileExt;
    let server = Oriond::start(&["--driver", "soft"]);
    let mut s = Sharer::start(&server, Transport::Shm);
    let (file, maps) = (in_memory(PAGE), s.maps());
    let worker = File::open(format!("/proc/{}/mem", s.client.welcome.worker_pid)).expect("the worker's memory");
    let first = |line: &str| u64::from_str_radix(line.split('-').next().expect("an address"), 16).expect("a number");
    // AddressSanitizer has a heap of its own, whose mappings have no name.
    let named = ["/oriond", "[stack]"].into_iter().chain((!cfg!(sanitized)).then_some("[heap]"));
    for what in named {
        let line = maps.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("no {what} in\n{maps}"));
        let at = first(line);
        let peek = || {
            let mut bytes = [0; 8];
            worker.read_exact_at(&mut bytes, at).expect("the worker's memory");
            bytes
        };
        let before = peek();
        s.hand_over(file.as_fd());
        assert_eq!(s.register(0, PAGE, at), CUDA_ERROR_NOT_SUPPORTED, "{what}");
        assert_eq!(peek(), before, "{what}");
    }
    let heap = s.client.heap.base() as u64;
    s.hand_over(file.as_fd());
    assert_eq!(s.register(0, PAGE, heap), CUDA_ERROR_NOT_SUPPORTED);
}

#[test]
fn who_names_no_pages_of_a_file_breaks_the_protocol() {
    let server = Oriond::start(&["--driver", "soft"]);
    for (offset, bytes, place) in
        [(0, 0, PLACE), (8, PAGE, PLACE), (0, PAGE + 8, PLACE), (0, PAGE, PLACE + 8), (0, PAGE, 0), (0, PAGE, 1 << 63)]
    {
        let mut s = Sharer::start(&server, Transport::Shm);
        s.hand_over(in_memory(4 * PAGE).as_fd());
        s.client.start(MemHostRegister::OP, &registration(offset, bytes, place));
        assert!(s.client.reply_or_lost().is_none(), "{bytes} bytes at {offset}, mapped at {place:#x}");
    }
    // Nor is such memory lent, and given back as a part of the heap.
    let mut s = Sharer::start(&server, Transport::Shm);
    s.hand_over(in_memory(PAGE).as_fd());
    assert_eq!(s.register(0, PAGE, PLACE), CUDA_SUCCESS);
    assert_eq!(s.copy_in(PLACE, Source::Lent), None);
    server.wait_for_log(&["memory is lent that is no part of the heap"]);
}

#[test]
fn who_cuts_his_file_short_ends_his_own_session_alone() {
    let server = Oriond::start(&["--driver", "soft"]);
    let (mut s, mut other) = (Sharer::start(&server, Transport::Shm), Sharer::start(&server, Transport::Shm));
    let (file, whole) = (in_memory(2 * PAGE), in_memory(PAGE));
    s.hand_over(file.as_fd());
    assert_eq!(s.register(0, 2 * PAGE, PLACE), CUDA_SUCCESS);
    other.hand_over(whole.as_fd());
    assert_eq!(other.register(0, PAGE, PLACE), CUDA_SUCCESS);
    file.set_len(PAGE).expect("cutting");
    assert_eq!(s.copy_in(PLACE, Source::Kept), Some(CUDA_SUCCESS), "of what there is");
    assert_eq!(s.copy_in(PLACE + PAGE, Source::Kept), None, "a copy of nothing was made");
    server.wait_for_log(&["was cut short"]);
    let pid = s.client.welcome.worker_pid;
    wait_until("the worker to end", || !is_alive(pid));
    assert_eq!(other.copy_in(PLACE, Source::Kept), Some(CUDA_SUCCESS));
    Sharer::start(&server, Transport::Shm);
    assert!(!server.log().contains("status=signal"), "{}", server.log());
}

/// Whoever is on another machine has no descriptor to give.
#[test]
fn over_a_network_no_file_is_mapped() {
    let server = Oriond::start(&["--driver", "soft"]);
    for transport in [Transport::Tcp, Transport::Tls, Transport::Ivshmem] {
        let mut s = Sharer::start(&server, transport);
        let error = s.client.carrier.hand_over(in_memory(PAGE).as_fd()).expect_err("it cannot cross");
        assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
        assert_eq!(s.register(0, PAGE, PLACE), CUDA_ERROR_INVALID_VALUE, "over {transport:?}");
        s.client.call(op::PING, &[]);
    }
}
