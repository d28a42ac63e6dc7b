//! What oriond and its workers say to each other, and how a worker greets its client.
//!
//! ```text
//! oriond                      worker                        client (or the engine, for a TCP client)
//!   spawn  ------------------>  warms up
//!          <--- Ready, or Failed in words
//!   Assign + attach socket -->
//!                               WELCOME + memfd  ----------->
//!                               <----------------------------  START
//!                               maps the heap; STARTED, or REFUSED in words
//!                               <----------------------------  later: descriptors of files that it registers
//! ```
//! Control messages travel over a SEQPACKET socket, one message a packet.

// UNSAFETY: waits for a socket by a system call.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use orion_ring::memory::{HEAP_OFFSET, Layout};
use orion_ring::{Heap, Memory};
use orion_transport::carrier::bell_of;
use orion_transport::fds;
use orion_wire::agent::{Gpu, get_gpus, put_gpus};
use orion_wire::hello::{Start, Welcome, kind};
use orion_wire::lease::{Vgpu, get_vgpus, put_vgpus};
use orion_wire::refusal::{Reason, Refusal};
use orion_wire::view::Offer;
use orion_wire::{Fault, Reader, Writer};

/// The largest is Ready, with 64 GPUs and 32 vGPUs.
pub const CONTROL_BYTES_MAX: usize = 48 << 10;
/// What `--vgpus` allows, and more GPUs than a machine has.
const VGPUS_MAX: u64 = 64;
/// First word of [`Control::Log`], which a signal handler writes too.
pub const LOG: u64 = 4;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Control {
    /// The worker is warm: driver loaded, contexts made, session memory staged. It has found these GPUs, and would give
    /// these vGPUs.
    Ready { gpus: Vec<Gpu>, offer: Offer },
    /// The worker cannot serve anybody, and why.
    Failed { reason: String },
    /// A tenant. The page for statistics comes along, the meter, the page of seats and its bell if there are any, and
    /// the attach socket.
    Assign(Assign),
    /// A line for oriond's log, of which a worker has no descriptor.
    Log { text: String },
    /// It has taken the memory that came with its assignment, and greets the client: the client's time begins.
    Settled,
    /// The client has said START, and has these vGPUs.
    Started { vgpus: Vec<Registered> },
}

/// A vGPU of a session, as oriond hears of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registered {
    /// Which of the session's vGPUs on that GPU it is.
    pub vgpu: u64,
    pub gpu: u64,
    /// That GPU's own.
    pub uuid: [u8; 16],
    pub memory_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assign {
    pub session: u64,
    /// The worker as oriond sees it. In a namespace of its own it does not know.
    pub worker_pid: u32,
    /// Of its lease; empty where oriond's options say what a session has.
    pub vgpus: Vec<Vgpu>,
    /// Whether the time of its GPUs is divided.
    pub has_seats: bool,
    /// Where in memory that comes along the session lies, if it is not in the worker's own.
    pub lent: Option<Place>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub offset: u64,
    pub bytes: u64,
    /// Whether what rings the worker comes along too.
    pub has_bell: bool,
}

impl Control {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Vec::new();
        match self {
            Control::Ready { gpus, offer } => {
                w.word(1);
                put_gpus(&mut w, gpus);
                offer.put(&mut w);
            }
            Control::Failed { reason } => {
                w.word(2);
                w.bytes(reason.as_bytes());
            }
            Control::Started { vgpus } => {
                w.word(5);
                w.word(vgpus.len() as u64);
                for v in vgpus {
                    [v.vgpu, v.gpu, v.memory_bytes].into_iter().for_each(|word| w.word(word));
                    w.bytes(&v.uuid);
                }
            }
            Control::Assign(a) => {
                w.word(3);
                for word in [a.session, a.worker_pid as u64] {
                    w.word(word);
                }
                put_vgpus(&mut w, &a.vgpus);
                w.word(a.has_seats.into());
                w.word(a.lent.is_some().into());
                if let Some(place) = &a.lent {
                    [place.offset, place.bytes, place.has_bell.into()].into_iter().for_each(|word| w.word(word));
                }
            }
            Control::Settled => w.word(6),
            Control::Log { text } => {
                w.word(LOG);
                w.bytes(text.as_bytes());
            }
        }
        w
    }

    pub fn decode(body: &[u8]) -> Result<Control, Fault> {
        let mut r = Reader::new(body);
        let control = match r.word()? {
            1 => Control::Ready { gpus: get_gpus(&mut r)?, offer: Offer::get(&mut r)? },
            2 => Control::Failed { reason: r.text()?.to_owned() },
            3 => Control::Assign(Assign {
                session: r.word()?,
                worker_pid: r.word()? as u32,
                vgpus: get_vgpus(&mut r)?,
                has_seats: r.word()? != 0,
                lent: match r.word()? {
                    0 => None,
                    _ => Some(Place { offset: r.word()?, bytes: r.word()?, has_bell: r.word()? != 0 }),
                },
            }),
            LOG => Control::Log { text: r.text()?.to_owned() },
            5 => {
                let count = r.word()?;
                if count > VGPUS_MAX {
                    return Err(Fault("more vGPUs than there can be"));
                }
                let mut one = || {
                    let (vgpu, gpu, memory_bytes) = (r.word()?, r.word()?, r.word()?);
                    let uuid = r.bytes()?.try_into().map_err(|_| Fault("a UUID has 16 bytes"))?;
                    Ok(Registered { vgpu, gpu, uuid, memory_bytes })
                };
                Control::Started { vgpus: (0..count).map(|_| one()).collect::<Result<_, Fault>>()? }
            }
            6 => Control::Settled,
            _ => return Err(Fault("unknown control message")),
        };
        r.finish()?;
        Ok(control)
    }
}

/// Sends one control message. With `MSG_DONTWAIT` semantics: the socket's buffer holds several, and an engine thread
/// must not wait for a worker.
pub fn send_control(socket: BorrowedFd<'_>, control: &Control, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    fds::send_some(socket, &control.encode(), fds, libc::MSG_DONTWAIT).map(drop)
}

/// Waits for a control message; `None` when the other side is gone.
pub fn recv_control(socket: BorrowedFd<'_>) -> io::Result<Option<(Control, Vec<OwnedFd>)>> {
    let mut buffer = vec![0; CONTROL_BYTES_MAX];
    let (n, fds) = fds::recv_some(socket, &mut buffer, 0)?;
    if n == 0 {
        return Ok(None);
    }
    let control = Control::decode(&buffer[..n]).map_err(|f| io::Error::new(io::ErrorKind::InvalidData, f.0))?;
    Ok(Some((control, fds)))
}

/// The memory that was lent for a session, and the bell that came with it. Both are the last of `fds`.
pub fn lent(place: Place, fds: &mut Vec<OwnedFd>) -> Result<(Memory, Vec<OwnedFd>), String> {
    let bell = if place.has_bell { fds.pop() } else { None };
    let memory = fds.pop().ok_or("the assignment came without the memory that is lent")?;
    let heap_bytes = place.bytes.checked_sub(HEAP_OFFSET).ok_or("the memory that is lent has no room for a heap")?;
    let memory = Memory::create_in(memory, place.offset, Layout { heap_bytes })
        .map_err(|e| format!("mapping the memory that is lent failed: {e}"))?;
    Ok((memory, bell.into_iter().collect()))
}

/// Below this lie the null page and programs that are not relocatable; a client's heap is far above.
const HEAP_BASE_MIN: u64 = 1 << 32;
/// Where the address space of a process ends.
const HEAP_END_MAX: u64 = (1 << 47) - 4096;

/// Maps the heap where the client says that it has it, if that can be, and takes the bell that it wants to be rung by.
/// `fds` came with its START.
pub fn share(memory: Memory, start: &Start, fds: Vec<OwnedFd>) -> Result<(Memory, Heap), String> {
    let (base, bytes) = (start.heap_base, memory.layout().heap_bytes);
    if let Some(why) = objection_to_heap(base, bytes) {
        return Err(format!("the client's host heap cannot lie at {base:#x}: {why}"));
    }
    let memory = memory.with_bell(bell_of(start, fds)?);
    let heap =
        memory.map_heap(Some(base)).map_err(|e| format!("the worker cannot map the host heap at {base:#x}: {e}"))?;
    Ok((memory, heap))
}

fn objection_to_heap(base: u64, bytes: u64) -> Option<&'static str> {
    if !base.is_multiple_of(4096) {
        return Some("no page begins there");
    }
    if base < HEAP_BASE_MIN {
        return Some("that is below 4 GiB");
    }
    let end = base.checked_add(bytes);
    end.is_none_or(|end| end > HEAP_END_MAX).then_some("it would reach beyond the address space of a process")
}

/// Descriptors that are taken from the socket at once. A client sends one and waits for the answer to its command.
const HANDED_MAX: usize = 16;

/// The worker's end of a session's attach socket. After STARTED it says that the client lives, and brings descriptors.
pub struct Attachment {
    socket: OwnedFd,
    /// The last descriptor that came. Under the lock the socket is read, so none is between the two.
    handed: Mutex<Option<OwnedFd>>,
}

impl Attachment {
    pub fn new(socket: OwnedFd) -> Attachment {
        Attachment { socket, handed: Mutex::new(None) }
    }

    /// Sends Welcome with the session memory and waits for the client's Start, with what came along.
    pub fn welcome(&self, welcome: &Welcome, memory: BorrowedFd<'_>) -> io::Result<(Start, Vec<OwnedFd>)> {
        fds::send_frame(self.socket.as_fd(), kind::WELCOME, &welcome.encode(), &[memory])?;
        let (kind, body, fds) = fds::recv_frame(self.socket.as_fd())?;
        if kind != kind::START {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the client sent something else than START"));
        }
        let start = Start::decode(&body).map_err(|f| io::Error::new(io::ErrorKind::InvalidData, f.0))?;
        Ok((start, fds))
    }

    pub fn started(&self) -> io::Result<()> {
        fds::send_frame(self.socket.as_fd(), kind::STARTED, &[], &[])
    }

    pub fn refuse(&self, text: &str) -> io::Result<()> {
        fds::send_frame(self.socket.as_fd(), kind::REFUSED, &Refusal::new(Reason::Other, text).encode(), &[])
    }

    /// Returns when the client is gone, or with why it has to go. About that is asked at once and then after the time
    /// that each answer says, whatever the client sends meanwhile.
    pub fn wait_until_gone(&self, mut look: impl FnMut() -> Result<Duration, String>) -> Option<String> {
        let mut next = Instant::now();
        loop {
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() {
                match look() {
                    Ok(after) => next = Instant::now() + after,
                    Err(why) => return Some(why),
                }
                continue;
            }
            let mut entry = libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // Rounded up, or it would not wait for what is left of a millisecond.
            let ms = left.as_millis() as i32 + 1;
            // SAFETY: one valid entry.
            if unsafe { libc::poll(&raw mut entry, 1, ms) } == 0 {
                continue;
            }
            match self.receive(&mut self.lock()) {
                Ok(0) => return None,
                Err(e) if e.kind() != io::ErrorKind::WouldBlock => return None,
                _ => {}
            }
        }
    }

    /// The descriptor that the client has handed over last, once. What it sent before a command is in the socket when
    /// that comes.
    pub fn handed(&self) -> Option<OwnedFd> {
        let mut handed = self.lock();
        for _ in 0..HANDED_MAX {
            if !matches!(self.receive(&mut handed), Ok(1..)) {
                break;
            }
        }
        handed.take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.handed.lock().expect("no panic happens under this lock")
    }

    /// Takes what is in the socket without waiting. Bytes are ignored; a descriptor replaces the last one.
    fn receive(&self, handed: &mut Option<OwnedFd>) -> io::Result<usize> {
        let mut bytes = [0u8; 64];
        let (n, fds) = fds::recv_some(self.socket.as_fd(), &mut bytes, libc::MSG_DONTWAIT)?;
        if let Some(last) = fds.into_iter().next_back() {
            *handed = Some(last);
        }
        Ok(n)
    }
}

impl AsFd for Attachment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use orion_wire::hello::Device;

    use super::*;

    #[test]
    fn a_heap_lies_where_a_client_can_have_it() {
        const GIB: u64 = 1 << 30;
        for good in [HEAP_BASE_MIN, 0x2aaa_aaaa_0000, 0x7f00_0000_0000, HEAP_END_MAX - GIB] {
            assert_eq!(objection_to_heap(good, GIB), None, "{good:#x}");
        }
        for bad in
            [0, 4096, HEAP_BASE_MIN - 4096, 0x7f00_0000_0001, HEAP_END_MAX - GIB + 4096, 1 << 63, u64::MAX - 4095]
        {
            assert!(objection_to_heap(bad, GIB).is_some(), "{bad:#x}");
        }
    }

    #[test]
    fn a_client_that_sends_without_end_is_looked_at_all_the_same() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair of sockets");
        let watch = std::thread::spawn(move || {
            let mut answers = [Ok(Duration::from_millis(20)), Err("it has too much".to_owned())].into_iter();
            Attachment::new(ours.into()).wait_until_gone(|| answers.next().expect("it is over after the second"))
        });
        let began = Instant::now();
        while !watch.is_finished() {
            assert!(began.elapsed() < Duration::from_secs(5), "nobody has looked");
            // Into a closed one once it is over.
            _ = theirs.write(&[1]);
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(watch.join().expect("its answer").as_deref(), Some("it has too much"));
    }

    #[test]
    fn control_messages_come_back() {
        let vgpu = Vgpu { gpu: "GPU-1".into(), memory_bytes: 1 << 30, ratio: 50 };
        let assign = Assign { session: 1, worker_pid: 6, vgpus: vec![vgpu], has_seats: true, lent: None };
        let place = Place { offset: 2 << 20, bytes: 64 << 20, has_bell: true };
        let guest = Assign { lent: Some(place), ..assign.clone() };
        let gpus = vec![Gpu { uuid: [3; 16], name: "GPU".into(), memory_bytes: 1 << 34 }];
        let offer = Offer { driver_version: 13000, devices: vec![Device::default()], peer_access: vec![1] };
        let (failed, log) = (Control::Failed { reason: "no GPU".into() }, Control::Log { text: "a line".into() });
        let started =
            Control::Started { vgpus: vec![Registered { vgpu: 1, gpu: 2, uuid: [7; 16], memory_bytes: 1 << 40 }] };
        let assigned = [Control::Assign(assign), Control::Assign(guest), Control::Settled];
        for control in [Control::Ready { gpus, offer }, failed, log, started].into_iter().chain(assigned) {
            let body = control.encode();
            assert_eq!(Control::decode(&body), Ok(control));
            for cut in 0..body.len() {
                assert!(Control::decode(&body[..cut]).is_err());
            }
        }
    }
}
