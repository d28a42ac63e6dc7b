//! A session that always has work, of which it stamps each kernel.

use std::time::{Duration, Instant};

use orion_transport::client::Server;
use orion_wire::message::host_memory::{MemHostAlloc, Pinned};
use orion_wire::record::HeapRange;

use crate::client::body;
use crate::leases::oracle::{self, Held, Span};
use crate::leases::program::{Program, SPIN, STREAM};

const KERNEL: Duration = Duration::from_millis(1);
/// Kernels that the session has ahead: it is not without work while it sleeps.
const AHEAD: usize = 64;
const SLOTS: usize = 2 * AHEAD;
const SLOT_BYTES: u64 = 16;
const STAMPS: HeapRange = HeapRange { offset: 80 << 20, bytes: SLOTS as u64 * SLOT_BYTES };
const PAUSE: Duration = Duration::from_micros(500);
/// So much later than it should, the session itself may have been without work.
const STALL: Duration = Duration::from_millis(20);
/// A kernel that took longer was stopped meanwhile, and waits.
const KERNEL_MAX: Duration = Duration::from_millis(3);

/// How it did, until the time is over; `seen` hears of its worker when it has begun.
pub fn run(server: &Server, token: &str, time: Duration, seen: impl FnOnce(u32)) -> Result<Held, String> {
    let mut program = Program::attach(server, token)?;
    let pages = HeapRange { bytes: STAMPS.bytes.next_multiple_of(4096), ..STAMPS };
    program.client.write_heap(STAMPS.offset, &vec![0; STAMPS.bytes as usize]);
    program.call(MemHostAlloc::OP, &body(&MemHostAlloc { request: Pinned::Register, range: pages.into() }))?;
    seen(program.worker());
    let began = Instant::now();
    let now_ns = || began.elapsed().as_nanos() as u64;
    let (mut launched, mut kernels, mut stalls) = (0, Vec::<Span>::new(), Vec::<Span>::new());
    // From the GPU's clock to this one: a kernel has ended before that is seen.
    let mut ahead_ns = u64::MAX;
    let mut looked = now_ns();
    while began.elapsed() < time {
        while launched - kernels.len() < AHEAD {
            let stamps = program.client.heap.base() as u64 + slot(launched);
            if !program.launch(SPIN, STREAM, &[stamps, KERNEL.as_nanos() as u64]) {
                return Err("a witness's kernels do not go out any more".to_owned());
            }
            launched += 1;
        }
        std::thread::sleep(PAUSE);
        let now = now_ns();
        if now - looked > STALL.as_nanos() as u64 {
            stalls.push(Span { begin: looked, end: now });
        }
        looked = now;
        while let Some(kernel) = take(&program, slot(kernels.len())) {
            ahead_ns = ahead_ns.min(now.wrapping_sub(kernel.end));
            kernels.push(kernel);
        }
        if program.client.is_lost() {
            return Err("a witness has lost its session".to_owned());
        }
    }
    // The last window ends now, also if nothing has come since.
    let end = now_ns();
    let here = |kernel: Span| {
        let begin = kernel.begin.wrapping_add(ahead_ns);
        Span { begin, end: begin + (kernel.end - kernel.begin).min(KERNEL_MAX.as_nanos() as u64) }
    };
    let mut kernels: Vec<Span> = kernels.into_iter().map(here).collect();
    kernels.push(Span { begin: end, end });
    Ok(oracle::judge(&kernels, &stalls))
}

fn slot(number: usize) -> u64 {
    STAMPS.offset + (number % SLOTS) as u64 * SLOT_BYTES
}

/// A kernel that has ended.
fn take(program: &Program, slot: u64) -> Option<Span> {
    let word = |offset| u64::from_le_bytes(program.client.read_heap(offset, 8).try_into().expect("eight bytes"));
    // Written last.
    let end = word(slot + 8);
    if end == 0 {
        return None;
    }
    let begin = word(slot);
    program.client.write_heap(slot, &[0; SLOT_BYTES as usize]);
    Some(Span { begin, end })
}
