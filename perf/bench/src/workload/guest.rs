//! Session memory between a process of the host and a virtual machine under KVM, as over ivshmem: the ring's round
//! trip at full speed, and the bell. The machine's side is a few instructions that follow the ring's layout, since a
//! machine without a kernel has nothing to load more into. It echoes what the host posts, so who waits, and is rung, is
//! the host.

// UNSAFETY: has the assembler make code for another machine, and refers to it; eventfd, and waiting for one.

use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use orion_ring::bell::{Bell, Seat};
use orion_ring::control::{Control, HEAD_OFFSET};
use orion_ring::memory::{HEAP_OFFSET, Layout, Which};
use orion_ring::{Consumer, Memory, Producer};
use orion_wire::record::{HEADER_BYTES, Header};

use crate::kvm::{BELL, Machine, Registers, SHARED, STOP};
use crate::report::Sample;
use crate::timing::Times;

const LAYOUT: Layout = Layout { heap_bytes: 2 << 20 };
/// A launch with eight pointers, as in `ring`.
const BODY: [u8; 120] = [7; 120];
const PLAIN: u16 = 1;
/// Is answered after some tens of microseconds, so that who sleeps meanwhile does sleep.
const LATE: u16 = 2;
/// Tells the machine to end.
const END: u16 = 0x7fff;
/// Where the word lies that says when to end, behind the one that counts.
const END_WORD: usize = 8;
const PATIENCE: Duration = Duration::from_secs(5);

// rdi, rsi, rdx: words, bytes and mask of the commands' ring; rbx: how far it was taken.
// r8, r9, r10: the same of the replies'; rbp: how far it was filled. r11: the bell; r14: where a write ends it all.
// A record's first word is its size (u32), its op (u16) and its thread.
std::arch::global_asm!(
    ".pushsection .rodata",
    "orion_guest_echo:",
    "2: mov rax, [rdi + {head}]",
    "cmp rax, rbx",
    "jne 3f",
    "pause",
    "jmp 2b",
    "3: mov rcx, rbx",
    "and rcx, rdx",
    "mov rax, [rsi + rcx]",
    "mov r12d, eax",
    "add r12, rbx",
    "shr rax, 32",
    "mov r13d, eax",
    "and r13d, 0xffff",
    "cmp r13d, {late}",
    "jne 4f",
    "mov ecx, 4000",
    "6: pause",
    "dec ecx",
    "jne 6b",
    "4: mov rcx, rbx",
    "and rcx, rdx",
    "mov rax, [rsi + rcx]",
    "mov rcx, rbp",
    "and rcx, r10",
    "mov [r9 + rcx], rax",
    "add rbx, 8",
    "add rbp, 8",
    "cmp rbx, r12",
    "jne 4b",
    "mov rax, rbx",
    "xchg [rdi + {tail}], rax",
    "mov rax, rbp",
    "xchg [r8 + {head}], rax",
    "cmp r13d, {end}",
    "je 5f",
    "cmp dword ptr [r8 + {consumer_sleeps}], 0",
    "je 2b",
    "xor eax, eax",
    "xchg [r8 + {consumer_sleeps}], eax",
    "test eax, eax",
    "je 2b",
    "mov dword ptr [r11], 1",
    "jmp 2b",
    "5: mov dword ptr [r14], 1",
    "jmp 5b",
    "orion_guest_echo_end:",
    // rdi: a word that counts, and behind it one that says when to end.
    "orion_guest_ring:",
    "2: mov dword ptr [r11], 1",
    "inc qword ptr [rdi]",
    "cmp qword ptr [rdi + {end_word}], 0",
    "je 2b",
    "3: mov dword ptr [r14], 1",
    "jmp 3b",
    "orion_guest_ring_end:",
    ".popsection",
    head = const HEAD_OFFSET,
    tail = const offset_of!(Control, tail),
    consumer_sleeps = const offset_of!(Control, consumer_sleeps),
    late = const LATE,
    end = const END,
    end_word = const END_WORD,
);

unsafe extern "C" {
    static orion_guest_echo: u8;
    static orion_guest_echo_end: u8;
    static orion_guest_ring: u8;
    static orion_guest_ring_end: u8;
}

fn code(begin: &'static u8, end: &'static u8) -> &'static [u8] {
    let (begin, end) = (std::ptr::from_ref(begin), std::ptr::from_ref(end));
    // SAFETY: both labels stand in the same section, the second behind what the first begins.
    unsafe { std::slice::from_raw_parts(begin, end as usize - begin as usize) }
}

pub fn measure(quick: bool) -> Result<Vec<Sample>, String> {
    let mut ends = Ends::start()?;
    let [mut spinning, mut late, mut asleep] = std::array::from_fn(|_| Times::new());
    for _ in 0..if quick { 1000 } else { 50_000 } {
        let start = Instant::now();
        ends.call(PLAIN)?;
        spinning.record(start.elapsed());
    }
    for _ in 0..if quick { 100 } else { 5000 } {
        let start = Instant::now();
        ends.call(LATE)?;
        late.record(start.elapsed());
        let start = Instant::now();
        ends.push(LATE)?;
        ends.sleep_until_answered()?;
        asleep.record(start.elapsed());
    }
    let machine = ends.end()?;
    let rings = time_of_a_ring(machine, if quick { 2000 } else { 100_000 })?;
    Ok(vec![
        Sample::of_times("round trip of 144 bytes, both look", "ns", &spinning),
        Sample::of_times("the same, answered late", "ns", &late),
        Sample::of_times("answered late, the host asleep until rung", "ns", &asleep),
        Sample::of_times("ringing, in the guest", "ns", &rings),
    ])
}

/// What a write to the bell takes the machine, in batches of a hundredth of all.
fn time_of_a_ring(machine: Machine, count: u64) -> Result<Times, String> {
    let counter = HEAP_OFFSET as usize;
    let (counted, ends) = (machine.word(counter), machine.word(counter + END_WORD));
    // SAFETY: labels of the code above.
    let code = unsafe { code(&orion_guest_ring, &orion_guest_ring_end) };
    let registers = Registers { rdi: SHARED + HEAP_OFFSET, r11: BELL, r14: STOP, ..Registers::default() };
    let running = machine.run(code, registers)?;
    let mut times = Times::new();
    let begin = Instant::now();
    let (mut last, mut since) = (counted.load(), Instant::now());
    while last < count && begin.elapsed() < PATIENCE && !running.is_finished() {
        let now = counted.load();
        if now - last >= count / 100 {
            times.record_batch(since.elapsed(), (now - last) as u32);
            (last, since) = (now, Instant::now());
        }
        std::hint::spin_loop();
    }
    ends.store(1);
    joined(running)?;
    match last >= count {
        true => Ok(times),
        false => Err(format!("the machine has rung {last} times of {count} within {PATIENCE:?}")),
    }
}

fn joined(running: JoinHandle<Result<Machine, String>>) -> Result<Machine, String> {
    running.join().map_err(|_| "the machine's thread has panicked".to_owned())?
}

struct Ends {
    commands: Producer,
    replies: Consumer,
    machine: JoinHandle<Result<Machine, String>>,
}

impl Ends {
    fn start() -> Result<Ends, String> {
        let memory = Memory::create(LAYOUT).map_err(|e| format!("creating session memory failed: {e}"))?;
        let rung = Arc::new(eventfd().map_err(|e| format!("making an eventfd failed: {e}"))?);
        let machine = Machine::new(memory.fd(), LAYOUT.memory_bytes() as usize)?;
        machine.listen(rung.as_fd())?;
        let memory = memory.with_bell(Arc::new(Rung(rung)));
        let failed = |e: std::io::Error| format!("mapping a ring failed: {e}");
        let (commands, replies) = (memory.producer(Which::Command), memory.consumer(Which::Reply));
        let (commands, replies) = (commands.map_err(failed)?, replies.map_err(failed)?);
        let (words, data, bytes) = Which::Command.place();
        let (reply_words, reply_data, reply_bytes) = Which::Reply.place();
        let registers = Registers {
            rdi: SHARED + words,
            rsi: SHARED + data,
            rdx: bytes - 1,
            r8: SHARED + reply_words,
            r9: SHARED + reply_data,
            r10: reply_bytes - 1,
            r11: BELL,
            r14: STOP,
            ..Registers::default()
        };
        // SAFETY: labels of the code above.
        let code = unsafe { code(&orion_guest_echo, &orion_guest_echo_end) };
        Ok(Ends { commands, replies, machine: machine.run(code, registers)? })
    }

    fn push(&mut self, op: u16) -> Result<(), String> {
        let size = HEADER_BYTES + BODY.len();
        let header = Header { size: size as u32, op, thread: 1, context: 0, sequence: 1 }.encode();
        match self.commands.push(&[&header, &BODY]).map_err(|e| e.to_string())? {
            true => Ok(()),
            false => Err("the machine does not take what is posted".to_owned()),
        }
    }

    fn call(&mut self, op: u16) -> Result<(), String> {
        self.push(op)?;
        // By looking alone, which is what is measured: a spin gives up where cores are short.
        let (begin, mut looks) = (Instant::now(), 0u32);
        while self.replies.has_news() == Ok(false) {
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(1 << 16) && begin.elapsed() > PATIENCE {
                return self.silent();
            }
            std::hint::spin_loop();
        }
        self.take()
    }

    fn sleep_until_answered(&mut self) -> Result<(), String> {
        let begin = Instant::now();
        while self.replies.has_news() == Ok(false) {
            if begin.elapsed() > PATIENCE {
                return self.silent();
            }
            self.replies.sleep(Duration::from_millis(100));
        }
        self.take()
    }

    fn take(&mut self) -> Result<(), String> {
        let header = self.replies.next().map_err(|e| e.to_string())?.ok_or("the machine answers by half")?;
        self.replies.consume(header.size as usize);
        Ok(())
    }

    fn silent(&self) -> Result<(), String> {
        let state = if self.machine.is_finished() { "has ended" } else { "runs and says nothing" };
        Err(format!("the machine did not answer within {PATIENCE:?}: it {state}"))
    }

    fn end(mut self) -> Result<Machine, String> {
        self.call(END)?;
        joined(self.machine)
    }
}

/// As a worker's on ivshmem-doorbell.
struct Rung(Arc<OwnedFd>);

impl Bell for Rung {
    /// The machine looks.
    fn ring(&self, _: Seat) {}

    fn sleep(&self, _: Seat, timeout: Duration) {
        let mut entry = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut count = 0u64;
        // SAFETY: one valid entry; eight bytes into a local.
        unsafe {
            if libc::poll(&raw mut entry, 1, timeout.as_millis() as i32) > 0 {
                libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8);
            }
        }
    }
}

fn eventfd() -> std::io::Result<OwnedFd> {
    // SAFETY: a new descriptor that nobody else owns.
    unsafe {
        match libc::eventfd(0, libc::EFD_CLOEXEC) {
            -1 => Err(std::io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}
