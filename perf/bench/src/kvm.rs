//! A virtual machine without a kernel: one processor in user mode (ring 3), whose addresses are those of its memory,
//! and some code. It needs /dev/kvm and nothing else.
//!
//! User mode, as a guest's program is in: a host that is itself a guest may interpret what a guest's kernel does.

// UNSAFETY: ioctl and mmap of /dev/kvm's descriptors; writes page tables and code into memory of its own.

use std::ffi::c_void;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

/// As `linux/kvm.h` has them.
const KVM_GET_API_VERSION: u64 = 0xae00;
const KVM_CREATE_VM: u64 = 0xae01;
const KVM_GET_VCPU_MMAP_SIZE: u64 = 0xae04;
const KVM_CREATE_VCPU: u64 = 0xae41;
const KVM_SET_USER_MEMORY_REGION: u64 = 0x4020_ae46;
const KVM_IOEVENTFD: u64 = 0x4040_ae79;
const KVM_RUN: u64 = 0xae80;
const KVM_SET_REGS: u64 = 0x4090_ae82;
const KVM_GET_SREGS: u64 = 0x8138_ae83;
const KVM_SET_SREGS: u64 = 0x4138_ae84;
const KVM_EXIT_MMIO: u32 = 6;
const EXIT_REASON_AT: usize = 8;

const OWN_BYTES: usize = 2 << 20;
const PML4: usize = 0x1000;
const PDPT: usize = 0x2000;
const DIRECTORY: usize = 0x3000;
const CODE: usize = 0x10000;
/// Where memory that is shared with the machine begins in it.
pub const SHARED: u64 = OWN_BYTES as u64;
/// A write to it ends the machine's run.
pub const STOP: u64 = 0x3000_1000;
/// A write to it rings, if somebody listens; else it ends the run as well.
pub const BELL: u64 = 0x3000_0000;

#[repr(C)]
struct Region {
    slot: u32,
    flags: u32,
    guest: u64,
    bytes: u64,
    host: u64,
}

#[repr(C)]
struct IoEventFd {
    datamatch: u64,
    address: u64,
    len: u32,
    fd: i32,
    flags: u32,
    pad: [u8; 36],
}

/// The general registers that a run begins with; the last two it sets by itself.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
pub struct Registers {
    pub rax: u64,
    pub rbx: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub rsp: u64,
    pub rbp: u64,
    pub r8: u64,
    pub r9: u64,
    pub r10: u64,
    pub r11: u64,
    pub r12: u64,
    pub r13: u64,
    pub r14: u64,
    pub r15: u64,
    pub rip: u64,
    pub rflags: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Segment {
    base: u64,
    limit: u32,
    selector: u16,
    kind: u8,
    present: u8,
    dpl: u8,
    db: u8,
    s: u8,
    l: u8,
    g: u8,
    avl: u8,
    unusable: u8,
    pad: u8,
}

#[repr(C)]
struct Table {
    base: u64,
    limit: u16,
    pad: [u16; 3],
}

#[repr(C)]
struct SystemRegisters {
    cs: Segment,
    ds: Segment,
    es: Segment,
    fs: Segment,
    gs: Segment,
    ss: Segment,
    tr: Segment,
    ldt: Segment,
    gdt: Table,
    idt: Table,
    cr0: u64,
    cr2: u64,
    cr3: u64,
    cr4: u64,
    cr8: u64,
    efer: u64,
    apic_base: u64,
    interrupts: [u64; 4],
}

const _: () = assert!(size_of::<Region>() == 32 && size_of::<IoEventFd>() == 64);
const _: () = assert!(size_of::<Registers>() == 144 && size_of::<SystemRegisters>() == 312);

pub struct Machine {
    machine: OwnedFd,
    processor: OwnedFd,
    /// What the kernel says of the processor's exits.
    run: Mapped,
    own: Mapped,
    /// Of the words of it, too, which may outlive the machine.
    shared: Arc<Mapped>,
}

impl Machine {
    /// With a file's memory at [`SHARED`].
    pub fn new(file: BorrowedFd<'_>, bytes: usize) -> Result<Machine, String> {
        let kvm = OpenOptions::new().read(true).write(true).open("/dev/kvm").map_err(|e| {
            format!(
                "opening /dev/kvm failed: {e}; it takes a processor and a kernel with KVM, and the group kvm or root"
            )
        })?;
        let failed = |what: &'static str| move |e: io::Error| format!("{what} failed: {e}");
        let version = ioctl(kvm.as_raw_fd(), KVM_GET_API_VERSION, 0).map_err(failed("asking KVM for its version"))?;
        if version != 12 {
            return Err(format!("/dev/kvm speaks version {version} of its interface, and this program 12"));
        }
        let machine = made(kvm.as_raw_fd(), KVM_CREATE_VM).map_err(failed("creating a virtual machine"))?;
        let own = Mapped::new(None, OWN_BYTES).map_err(failed("mapping a machine's memory"))?;
        let shared = Mapped::new(Some(file), bytes).map_err(failed("mapping a session's memory"))?;
        for (slot, guest, mapped) in [(0, 0, &own), (1, SHARED, &shared)] {
            let host = mapped.at as u64;
            let region = Region { slot, flags: 0, guest, bytes: mapped.bytes as u64, host };
            let told = ioctl(machine.as_raw_fd(), KVM_SET_USER_MEMORY_REGION, (&raw const region) as u64);
            told.map_err(failed("giving a machine its memory"))?;
        }
        let processor = made(machine.as_raw_fd(), KVM_CREATE_VCPU).map_err(failed("creating its processor"))?;
        let bytes = ioctl(kvm.as_raw_fd(), KVM_GET_VCPU_MMAP_SIZE, 0).map_err(failed("asking for its size"))?;
        let run = {
            use std::os::fd::AsFd;
            Mapped::new(Some(processor.as_fd()), bytes as usize).map_err(failed("mapping its processor"))?
        };
        let machine = Machine { machine, processor, run, own, shared: Arc::new(shared) };
        machine.write_page_tables();
        machine.enter_user_mode().map_err(failed("setting its processor up"))?;
        Ok(machine)
    }

    /// A write to [`BELL`] counts `eventfd` up, and does not end the run.
    pub fn listen(&self, eventfd: BorrowedFd<'_>) -> Result<(), String> {
        let fd = eventfd.as_raw_fd();
        let listens = IoEventFd { datamatch: 0, address: BELL, len: 4, fd, flags: 0, pad: [0; 36] };
        let told = ioctl(self.machine.as_raw_fd(), KVM_IOEVENTFD, (&raw const listens) as u64);
        told.map(drop).map_err(|e| format!("having a machine's bell heard failed: {e}"))
    }

    /// Runs `code` with these registers in a thread of its own, until it writes to [`STOP`].
    pub fn run(self, code: &[u8], registers: Registers) -> Result<JoinHandle<Result<Machine, String>>, String> {
        assert!(code.len() <= OWN_BYTES - CODE);
        // SAFETY: inside the mapping, which nobody else has.
        unsafe { self.own.at.add(CODE).copy_from_nonoverlapping(code.as_ptr(), code.len()) };
        let registers = Registers { rip: CODE as u64, rflags: 2, ..registers };
        ioctl(self.processor.as_raw_fd(), KVM_SET_REGS, (&raw const registers) as u64)
            .map_err(|e| format!("setting the machine's registers failed: {e}"))?;
        let run = move || {
            while let Err(e) = ioctl(self.processor.as_raw_fd(), KVM_RUN, 0) {
                if e.kind() != io::ErrorKind::Interrupted {
                    return Err(format!("running the machine failed: {e}"));
                }
            }
            // SAFETY: inside the mapping, and aligned; the kernel does not write while nothing runs.
            match unsafe { self.run.at.add(EXIT_REASON_AT).cast::<u32>().read_volatile() } {
                KVM_EXIT_MMIO => Ok(self),
                reason => Err(format!("the machine has ended for reason {reason} of linux/kvm.h's KVM_EXIT")),
            }
        };
        std::thread::Builder::new().name("machine".into()).spawn(run).map_err(|e| format!("starting a thread: {e}"))
    }

    /// A word of what is shared.
    pub fn word(&self, at: usize) -> Word {
        assert!(at.is_multiple_of(8) && at + 8 <= self.shared.bytes);
        Word { memory: self.shared.clone(), at }
    }

    /// The first GiB, each address for itself, in pages of 2 MiB, which user mode may write.
    fn write_page_tables(&self) {
        let write = |at: usize, entry: u64| {
            // SAFETY: inside the mapping, which nobody else has, and aligned.
            unsafe { self.own.at.add(at).cast::<u64>().write_volatile(entry) }
        };
        write(PML4, PDPT as u64 | 7);
        write(PDPT, DIRECTORY as u64 | 7);
        (0..512).for_each(|i| write(DIRECTORY + 8 * i, (i as u64) << 21 | 0x87));
    }

    fn enter_user_mode(&self) -> io::Result<()> {
        // SAFETY: plain numbers, of which all zeros are some.
        let mut system: SystemRegisters = unsafe { std::mem::zeroed() };
        ioctl(self.processor.as_raw_fd(), KVM_GET_SREGS, (&raw mut system) as u64)?;
        let data = Segment {
            base: 0,
            limit: u32::MAX,
            selector: 0x33,
            kind: 3,
            present: 1,
            dpl: 3,
            db: 1,
            s: 1,
            l: 0,
            g: 1,
            avl: 0,
            unusable: 0,
            pad: 0,
        };
        system.cs = Segment { selector: 0x2b, kind: 11, db: 0, l: 1, ..data };
        (system.ds, system.es, system.fs, system.gs, system.ss) = (data, data, data, data, data);
        // Protection and paging, PAE, long mode.
        (system.cr0, system.cr3, system.cr4, system.efer) = (0x8005_0033, PML4 as u64, 0x20, 0x500);
        ioctl(self.processor.as_raw_fd(), KVM_SET_SREGS, (&raw const system) as u64).map(drop)
    }
}

/// A word of what is shared with a machine, which keeps it mapped: a machine that ends with an error is gone at once.
pub struct Word {
    memory: Arc<Mapped>,
    /// A multiple of eight, inside the mapping.
    at: usize,
}

impl Word {
    fn atomic(&self) -> &AtomicU64 {
        // SAFETY: [`Machine::word`] has checked that it is aligned and inside the mapping, which lives as long as this;
        // the machine, and whoever else maps the file, reaches it from outside this program.
        unsafe { &*self.memory.at.add(self.at).cast::<AtomicU64>() }
    }

    pub fn store(&self, value: u64) {
        self.atomic().store(value, Ordering::SeqCst);
    }

    pub fn load(&self) -> u64 {
        self.atomic().load(Ordering::SeqCst)
    }
}

struct Mapped {
    at: *mut u8,
    bytes: usize,
}

// SAFETY: a plain mapping, which goes with this object.
unsafe impl Send for Mapped {}
// SAFETY: of one that is shared, threads have words alone, which are atomics.
unsafe impl Sync for Mapped {}

impl Mapped {
    fn new(file: Option<BorrowedFd<'_>>, bytes: usize) -> io::Result<Mapped> {
        let (access, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.map_or(-1, |file| file.as_raw_fd()));
        let flags = libc::MAP_SHARED | if file.is_none() { libc::MAP_ANONYMOUS } else { 0 };
        // SAFETY: a fresh mapping.
        let at = unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags, fd, 0) };
        if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Mapped { at: at.cast(), bytes }) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping is this object's own.
        unsafe { libc::munmap(self.at.cast::<c_void>(), self.bytes) };
    }
}

fn ioctl(fd: i32, request: u64, argument: u64) -> io::Result<i32> {
    // SAFETY: each request comes with the struct that it takes, or without one.
    match unsafe { libc::ioctl(fd, request, argument) } {
        -1 => Err(io::Error::last_os_error()),
        n => Ok(n),
    }
}

fn made(fd: i32, request: u64) -> io::Result<OwnedFd> {
    let new = ioctl(fd, request, 0)?;
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(new) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It ends with a fault that nobody in it handles, as one does whose code is wrong.
    #[test]
    fn words_outlive_a_machine_that_ends_with_an_error() {
        use std::io::Write;
        use std::os::fd::AsFd;
        if let Err(e) = OpenOptions::new().read(true).write(true).open("/dev/kvm") {
            let said = writeln!(io::stderr(), "no machine was ended, for there is none here: /dev/kvm: {e}");
            return said.expect("somebody reads what tests say");
        }
        let memory = orion_ring::sealed(c"orion-test", 4096).expect("a file in memory");
        let machine = Machine::new(memory.as_fd(), 4096).expect("a machine");
        let word = machine.word(64);
        const UNDEFINED: &[u8] = &[0x0f, 0x0b];
        let ended = machine.run(UNDEFINED, Registers::default()).expect("a thread").join().expect("no panic");
        let why = ended.err().expect("no such instruction");
        assert!(why.contains("has ended for reason"), "{why}");
        word.store(7);
        assert_eq!(word.load(), 7);
    }
}
