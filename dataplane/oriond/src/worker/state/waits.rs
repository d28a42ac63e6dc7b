//! What a parked call waits for.

// UNSAFETY: looks at memory that the device writes.

use std::sync::Arc;
use std::time::Instant;

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;
use orion_wire::record::HeapRange;

use crate::worker::driver::helper::Job;
use crate::worker::state::addresses::DeviceAddress;
use crate::worker::state::scratch::Slot;

/// What a parked call waits for.
pub enum Wait {
    Streams(Vec<CUstream>),
    /// Streams of several contexts, each with its own: a default stream can be asked only in its context.
    Everywhere(Vec<(u64, CUstream)>),
    /// The same, and then a call that makes the driver wait for what was queued meanwhile.
    Then(Vec<(u64, CUstream)>, Waiting),
    Event(CUevent),
    /// Copies into this range of the heap.
    Copies(HeapRange),
    Job(Arc<Job>),
    Landing(Landing),
}

/// What a number that lands is copied for: a copy into the heap, which the client posted before it waited.
#[derive(Clone, Copy)]
pub struct Target {
    pub to: HeapRange,
    pub from: DeviceAddress,
    pub context: u64,
    pub thread: u16,
    /// Which of the client's commands it is.
    pub number: u64,
}

impl Wait {
    /// Whether this stream of `context` is asked, in a call that was made in context `of_call`.
    pub fn names(&self, of_call: u64, context: u64, stream: CUstream) -> bool {
        let is = |of: u64, one: CUstream| is_same((of, one), (context, stream));
        match self {
            Wait::Streams(streams) => streams.iter().any(|one| is(of_call, *one)),
            Wait::Everywhere(streams) | Wait::Then(streams, _) => streams.iter().any(|(of, one)| is(*of, *one)),
            Wait::Landing(landing) => is(of_call, landing.stream),
            Wait::Event(_) | Wait::Copies(_) | Wait::Job(_) => false,
        }
    }

    /// Nothing may ask about the stream any more.
    pub fn leave_out(&mut self, of_call: u64, context: u64, stream: CUstream) {
        let is = |of: u64, one: CUstream| is_same((of, one), (context, stream));
        match self {
            Wait::Streams(streams) => streams.retain(|one| !is(of_call, *one)),
            Wait::Everywhere(streams) | Wait::Then(streams, _) => streams.retain(|(of, one)| !is(*of, *one)),
            Wait::Landing(landing) if is(of_call, landing.stream) => *self = Wait::Streams(Vec::new()),
            Wait::Landing(_) | Wait::Event(_) | Wait::Copies(_) | Wait::Job(_) => {}
        }
    }
}

/// A legacy default stream, of which each context has one: by two names.
pub fn is_legacy(stream: CUstream) -> bool {
    stream as usize <= 1
}

fn is_same(one: (u64, CUstream), other: (u64, CUstream)) -> bool {
    match is_legacy(one.1) && is_legacy(other.1) {
        true => one.0 == other.0,
        false => one.1 == other.1,
    }
}

#[derive(Clone, Copy)]
pub enum Waiting {
    /// `cuCtxSynchronize`, which tells what the streams cannot.
    Synchronize,
    Free(DeviceAddress),
    /// By its address in the driver.
    Array(usize),
    Mipmapped(usize),
}

impl Waiting {
    pub fn call(self, driver: &'static Driver) -> CUresult {
        match self {
            // SAFETY: no arguments.
            Waiting::Synchronize => unsafe { driver.cuCtxSynchronize() },
            // SAFETY: device memory of the session; the driver checks that an allocation begins there.
            Waiting::Free(address) => unsafe { driver.cuMemFree_v2(address.raw()) },
            // SAFETY: an array of this session's that the client gives up.
            Waiting::Array(array) => unsafe { driver.cuArrayDestroy(array as CUarray) },
            // SAFETY: as above.
            Waiting::Mipmapped(array) => unsafe { driver.cuMipmappedArrayDestroy(array as CUmipmappedArray) },
        }
    }
}

/// One number on its way from the device into memory of the worker's own, which held something else before. The bytes
/// are seen 2 us before the driver calls the stream idle, because it does so by a write of its own behind them.
pub struct Landing {
    pub slot: Slot,
    pub bytes: usize,
    pub stream: CUstream,
    pub looks: u32,
    pub target: Option<Target>,
}

impl Landing {
    /// What no number read back is likely to be. One that is all the same is noticed by asking the stream.
    const NOTHING: [u8; 8] = [0xa7, 0x5c, 0x91, 0x3e, 0xd8, 0x26, 0x6b, 0xf4];

    /// Prepares `slot` for a copy of `bytes`, a power of two up to 8: those arrive whole.
    ///
    /// # Safety
    /// Nothing is being copied to `slot`.
    pub unsafe fn prepare(slot: Slot, bytes: usize, stream: CUstream) -> Landing {
        // SAFETY: the caller's promise.
        unsafe { slot.at.cast::<u64>().write_volatile(u64::from_ne_bytes(Self::NOTHING)) };
        Landing { slot, bytes, stream, looks: 0, target: None }
    }

    /// Whether a copy is one that can be watched so.
    pub fn suits(from: DeviceAddress, bytes: u64) -> bool {
        matches!(bytes, 1 | 2 | 4 | 8) && from.raw().is_multiple_of(bytes)
    }

    pub fn has_landed(&self) -> bool {
        // SAFETY: eight bytes that stay mapped. The device may write to them, so they are read once, whole.
        let now = unsafe { self.slot.at.cast::<u64>().read_volatile() }.to_ne_bytes();
        now[..self.bytes] != Self::NOTHING[..self.bytes]
    }
}

/// A small copy into pinned memory that waits a moment for the command behind it: if that is a wait for its stream, as
/// with `tensor.item()`, both are done at once, by way of [`Landing`].
pub struct Held {
    pub to: HeapRange,
    pub from: DeviceAddress,
    pub stream: CUstream,
    pub context: u64,
    pub thread: u16,
    pub since: Instant,
    /// The client's call that made it.
    pub call: u32,
    /// Which of the client's commands it is.
    pub number: u64,
}

/// A small copy just made, by what a wait for it would say.
pub type SmallCopy = (u64, u16, u64);
