//! `--driver echo`: a worker without a driver, for the tests of everything around workers.
//!
//! It answers each command that asks for a reply with the command's own body. A few operations do more, to
//! exercise the heap, the event ring and sudden death.

// UNSAFETY: reads and writes the session's heap.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use orion_ring::memory::{Layout, Which};
use orion_ring::{Heap, Memory, Producer, Spin};
use orion_wire::agent::Gpu;
use orion_wire::hello::{Device, Welcome};
use orion_wire::record::{HEADER_BYTES, Header, HeapRange, op};
use orion_wire::view::Offer;
use orion_wire::{Fault, Reader, Writer};

use crate::attach::{Attachment, Control, lent, recv_control, send_control, share};
use crate::fallen;
use crate::lines;

/// Body: a heap range. Reply: the sum of its bytes.
pub const SUM: u16 = 0x7ff0;
/// Body: a heap range and a seed. Fills the range with [`pattern`] and announces it before the reply.
pub const FILL: u16 = 0x7ff1;
/// The worker dies at once: by `abort`, or with a body by reading the address that it is.
pub const DIE: u16 = 0x7ff2;
/// Body: count, bytes. Sends that many events of so many bytes, then the reply.
pub const EVENTS: u16 = 0x7ff3;
/// Body: milliseconds. Does nothing for so long, then replies.
pub const STALL: u16 = 0x7ff4;
/// Body: a count. Writes that many lines to standard error, then replies.
pub const SHOUT: u16 = 0x7ff7;
/// Writes a record that no worker writes.
pub const NONSENSE: u16 = 0x7ff5;
/// Body: a name. Reply: the environment variable's value, or nothing.
pub const VARIABLE: u16 = 0x7ff6;

const HEAP_BYTES: u64 = 1 << 30;

/// Byte `i` of the pattern that `FILL` writes.
pub fn pattern(seed: u64, i: u64) -> u8 {
    (seed.wrapping_add(i).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Serves one session and exits.
pub fn main(control: OwnedFd, seal: crate::cell::Seal) -> Result<(), String> {
    let failed = |what: &str, e: &dyn std::fmt::Display| format!("{what} failed: {e}");
    let memory = Memory::create(Layout { heap_bytes: HEAP_BYTES }).map_err(|e| failed("creating memory", &e))?;
    crate::cell::seal(seal, control.as_fd(), &[])?;
    let gpus = vec![Gpu { uuid: [0xec; 16], name: "echo".into(), memory_bytes: HEAP_BYTES }];
    let echo = |memory| Device { name: "echo".into(), total_memory: memory, ..Device::default() };
    let offer = Offer { driver_version: 13000, devices: vec![echo(0)], peer_access: vec![0] };
    send_control(control.as_fd(), &Control::Ready { gpus, offer }, &[]).map_err(|e| failed("saying ready", &e))?;
    let Some((Control::Assign(assign), mut fds)) = recv_control(control.as_fd()).map_err(|e| failed("waiting", &e))?
    else {
        return Ok(());
    };
    let attachment = Attachment::new(fds.pop().ok_or("the assignment came without a socket")?);
    let (memory, bell) = match assign.lent {
        None => (memory, None),
        Some(place) => {
            let (memory, bell) = lent(place, &mut fds)?;
            send_control(control.as_fd(), &Control::Settled, &[]).map_err(|e| failed("saying settled", &e))?;
            (memory, Some(bell))
        }
    };
    let heap_bytes = memory.layout().heap_bytes;
    fds.clear();
    let devices: Vec<Device> = match assign.vgpus.is_empty() {
        true => vec![echo(0)],
        false => assign.vgpus.iter().map(|vgpu| echo(vgpu.memory_bytes)).collect(),
    };
    let welcome = Welcome {
        session: assign.session,
        worker_pid: assign.worker_pid,
        driver_version: 13000,
        missing: Vec::new(),
        peer_access: vec![0; devices.len() * devices.len()],
        devices,
        memory_bytes: memory.layout().memory_bytes(),
        heap_bytes,
        staging_bytes: (64 << 20).min(heap_bytes / 2),
    };
    let (start, fds) = attachment.welcome(&welcome, memory.fd()).map_err(|e| failed("greeting the client", &e))?;
    send_control(control.as_fd(), &Control::Started { vgpus: Vec::new() }, &[])
        .map_err(|e| failed("saying started", &e))?;
    let (memory, heap) = match share(memory, &start, bell.unwrap_or(fds)) {
        Ok(shared) => shared,
        Err(reason) => return attachment.refuse(&reason).map_err(|e| failed("refusing", &e)),
    };
    attachment.started().map_err(|e| failed("starting", &e))?;
    let watch = move || {
        attachment.wait_until_gone(|| Ok(Duration::from_secs(1)));
        std::process::exit(0)
    };
    let watcher = std::thread::Builder::new().name(format!("watch {}", assign.session));
    watcher.spawn(watch).map_err(|e| failed("starting the watcher", &e))?;
    serve(&memory, heap).map_err(|f| failed("serving", &f))
}

fn serve(memory: &Memory, heap: Heap) -> Result<(), Fault> {
    let mut commands = memory.consumer(Which::Command).expect("mapping a ring");
    let mut replies = memory.producer(Which::Reply).expect("mapping a ring");
    let mut events = memory.producer(Which::Event).expect("mapping a ring");
    let spin = Spin::adaptive(Duration::from_micros(200));
    let mut body = Vec::new();
    loop {
        let Some(header) = commands.next()? else {
            if !spin.until(|| commands.has_news() != Ok(false)) {
                commands.sleep(Duration::from_secs(1));
            }
            continue;
        };
        commands.body(&header, &mut body);
        commands.consume(header.size as usize);
        if header.sequence != 0 {
            let body = answer(&header, std::mem::take(&mut body), heap, &mut replies, &mut events)?;
            push(&mut replies, Header { context: 0, ..header }, &body)?;
        }
    }
}

fn answer(
    header: &Header,
    body: Vec<u8>,
    heap: Heap,
    replies: &mut Producer,
    events: &mut Producer,
) -> Result<Vec<u8>, Fault> {
    let mut r = Reader::new(&body);
    let mut out = Vec::new();
    fallen::executing(header);
    match header.op {
        SUM => {
            let range = HeapRange::get(&mut r)?.check(heap.bytes())?;
            // SAFETY: inside the heap; the test's client leaves the range alone meanwhile.
            let bytes =
                unsafe { std::slice::from_raw_parts(heap.base().add(range.offset as usize), range.bytes as usize) };
            out.word(bytes.iter().map(|b| *b as u64).sum());
        }
        FILL => {
            let range = HeapRange::get(&mut r)?.check(heap.bytes())?;
            let seed = r.word()?;
            for i in 0..if seed == 0 { 0 } else { range.bytes } {
                // SAFETY: inside the heap.
                unsafe { heap.base().add((range.offset + i) as usize).write(pattern(seed, i)) };
            }
            let mut announced = Vec::new();
            range.put(&mut announced);
            push(replies, Header { op: op::HEAP_WRITTEN, sequence: 0, ..*header }, &announced)?;
        }
        DIE if body.is_empty() => std::process::abort(),
        // SAFETY: none is claimed; the test means it.
        DIE => drop(unsafe { std::ptr::read_volatile(r.word()? as *const u64) }),
        EVENTS => {
            let (count, bytes) = (r.word()?, r.word()?);
            let filler = vec![0x55; (bytes as usize).next_multiple_of(8)];
            for i in 0..count {
                push(events, Header { op: op::OUTPUT, thread: 0, context: 1, sequence: i, size: 0 }, &filler)?;
            }
        }
        SHOUT => {
            for i in 0..r.word()? {
                lines::warn(&format!("line {i} of many"));
            }
        }
        STALL => std::thread::sleep(Duration::from_millis(r.word()?)),
        NONSENSE => {
            replies.push(&[&[0xff; HEADER_BYTES]]).map_err(|_| Fault("ring positions are impossible"))?;
        }
        VARIABLE => out.bytes(std::env::var(r.text()?).unwrap_or_default().as_bytes()),
        #[cfg(debug_assertions)]
        crate::cell::takeover::OP if crate::cell::takeover::is_on() => out = crate::cell::takeover::run(&body)?,
        _ => out = body,
    }
    Ok(out)
}

fn push(ring: &mut Producer, header: Header, body: &[u8]) -> Result<(), Fault> {
    let size = HEADER_BYTES + body.len();
    let header = Header { size: size as u32, ..header }.encode();
    let spin = Spin::adaptive(Duration::from_micros(200));
    while !ring.push(&[&header, body]).map_err(|_| Fault("ring positions are impossible"))? {
        ring.wait_room(size, spin, Duration::from_millis(100)).map_err(|_| Fault("ring positions are impossible"))?;
    }
    Ok(())
}
