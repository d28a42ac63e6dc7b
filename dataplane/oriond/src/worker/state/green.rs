//! Green contexts, and the device resources they are made from.
//!
//! A `CUdevResource` is a structure that the application keeps by value. Most of it is the driver's own, which the
//! driver believes whatever is in it, so the client is given a copy that says nothing but its number; what comes back
//! has to be such a copy, and the driver sees the original.

// UNSAFETY: asks the driver about streams; resources are read as bytes.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ptr;

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;
use orion_wire::handle::{Handle, Kind, PRIMARY_CONTEXTS_MAX};

pub const RESOURCE_BYTES: usize = orion_wire::message::green_context::RESOURCE_BYTES;
const _: () = assert!(RESOURCE_BYTES == size_of::<CUdevResource>());

pub type Bytes = [u8; RESOURCE_BYTES];

/// Where a client's copy has its number; the driver's opaque bytes are from 4 to 96.
const NUMBER_AT: usize = 8;

/// Resources remembered; whoever asks for more finds the oldest ones forgotten. A device has a few hundred
/// multiprocessors at most, so this is many splits of all of it.
const RESOURCES_MAX: usize = 4096;

/// A resource that the driver gave out, under the number by which the client knows it.
struct Given {
    number: u64,
    original: Bytes,
}

pub struct Green {
    pub context: u64,
    pub ordinal: i32,
}

/// What a session has of these.
#[derive(Default)]
pub struct Greens {
    given: VecDeque<Given>,
    next: u64,
    /// By the client's name.
    pub greens: HashMap<u64, Green>,
    /// By the driver's handle: the client's name of the `CUcontext`.
    pub contexts: HashMap<usize, u64>,
    /// By the driver's handle: the client's name of a stream, and of the green context's `CUcontext`.
    pub streams: HashMap<usize, (u64, u64)>,
    /// Names of streams whose green context is gone.
    pub orphans: HashSet<u64>,
}

impl Greens {
    /// The context to name a stream by, if it is one that the application made in a green context.
    #[inline]
    pub fn context_of(&self, stream: CUstream) -> Option<u64> {
        self.streams.get(&(stream as usize)).map(|(_, context)| *context)
    }

    /// The application made a stream, and the driver knows where. Later it may be too late to ask: streams outlive
    /// their contexts as names.
    pub fn stream_made(&mut self, driver: &'static Driver, name: u64, stream: CUstream) {
        if self.greens.is_empty() {
            return;
        }
        let mut green = ptr::null_mut();
        // SAFETY: a stream that was just made, and a valid out pointer.
        let code = unsafe { driver.cuStreamGetGreenCtx(stream, &mut green) };
        if let (CUDA_SUCCESS, Some(context)) = (code, self.contexts.get(&(green as usize))) {
            self.streams.insert(stream as usize, (name, *context));
        }
    }

    /// What to answer about a stream that there is not.
    pub fn why_no_stream(&self, name: u64) -> CUresult {
        if self.orphans.contains(&name) { CUDA_ERROR_CONTEXT_IS_DESTROYED } else { CUDA_ERROR_INVALID_HANDLE }
    }

    pub fn stream_gone(&mut self, stream: CUstream) {
        self.streams.remove(&(stream as usize));
    }

    /// The context whose memory and modules a context has: a green one's primary, any other's own.
    pub fn home(&self, context: u64) -> u64 {
        let green = self.greens.values().find(|g| g.context == context);
        green.map_or(context, |g| Handle::primary_context(g.ordinal as u32).0)
    }

    /// The green contexts, as `CUcontext`, that are on the device of a primary context.
    pub fn contexts_on(&self, context: u64) -> Vec<u64> {
        let handle = Handle(context);
        if !handle.is(Kind::Context) || handle.index() >= PRIMARY_CONTEXTS_MAX {
            return Vec::new();
        }
        let here = self.greens.values().filter(|g| g.ordinal as u32 == handle.index());
        here.map(|g| g.context).collect()
    }

    /// The client's copy of a resource. Equal ones get equal copies.
    pub fn give(&mut self, resource: &CUdevResource) -> Bytes {
        // SAFETY: integers and bytes without gaps; callers zeroed it before the driver filled it in.
        let original: Bytes = unsafe { ptr::read(ptr::from_ref(resource).cast()) };
        if resource.type_ != CU_DEV_RESOURCE_TYPE_SM {
            // Nothing is left, for instance.
            return [0; RESOURCE_BYTES];
        }
        let known = self.given.iter().find(|g| g.original == original).map(|g| g.number);
        let number = known.unwrap_or_else(|| {
            if self.given.len() == RESOURCES_MAX {
                self.given.pop_front();
            }
            self.next += 1;
            self.given.push_back(Given { number: self.next, original });
            self.next
        });
        copy_of(number, &original)
    }

    /// The driver's resource behind a client's copy.
    pub fn original(&self, copy: &[u8]) -> Result<CUdevResource, CUresult> {
        let copy: &Bytes = copy.try_into().map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        if copy[..4] != CU_DEV_RESOURCE_TYPE_SM.to_le_bytes() {
            return Err(CUDA_ERROR_INVALID_RESOURCE_TYPE);
        }
        let number = &copy[NUMBER_AT..NUMBER_AT + 8];
        let given = self.given.iter().find(|g| g.number.to_le_bytes() == *number).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if *copy != copy_of(given.number, &given.original) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the bytes that the driver wrote into such a structure.
        Ok(unsafe { ptr::read_unaligned(given.original.as_ptr().cast()) })
    }
}

/// What is public of a resource, and a number where the driver's own part was.
fn copy_of(number: u64, original: &Bytes) -> Bytes {
    let public = std::mem::offset_of!(CUdevResource, __bindgen_anon_1);
    let mut copy = [0; RESOURCE_BYTES];
    copy[..4].copy_from_slice(&original[..4]);
    copy[NUMBER_AT..NUMBER_AT + 8].copy_from_slice(&number.to_le_bytes());
    let sm = public..public + size_of::<CUdevSmResource>();
    copy[sm.clone()].copy_from_slice(&original[sm]);
    copy
}

pub fn empty() -> CUdevResource {
    // SAFETY: integers and bytes.
    unsafe { std::mem::zeroed() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(processors: u32, secret: u8) -> CUdevResource {
        let mut r = empty();
        r.type_ = CU_DEV_RESOURCE_TYPE_SM;
        r._internal_padding = [secret; 92];
        r.__bindgen_anon_1.sm =
            CUdevSmResource { smCount: processors, minSmPartitionSize: 8, smCoscheduledAlignment: 8 };
        r
    }

    #[test]
    fn only_what_was_given_out_comes_back() {
        let mut state = Greens::default();
        let a = state.give(&resource(16, 0xaa));
        let b = state.give(&resource(16, 0xbb));
        assert_eq!(state.give(&resource(16, 0xaa)), a);
        assert_ne!(a, b);
        assert!(!a[16..96].contains(&0xaa), "the driver's own bytes went to the client");
        let back = state.original(&a).map(|r| r._internal_padding[91]);
        assert_eq!(back, Ok(0xaa));
        for at in [4, NUMBER_AT, 50, 96, 100, 143] {
            let mut bad = a;
            bad[at] ^= 0x10;
            assert_eq!(state.original(&bad).err(), Some(CUDA_ERROR_INVALID_VALUE), "byte {at}");
        }
        assert_eq!(state.original(&[0; RESOURCE_BYTES]).err(), Some(CUDA_ERROR_INVALID_RESOURCE_TYPE));
        assert_eq!(state.original(&a[1..]).err(), Some(CUDA_ERROR_INVALID_VALUE));
        assert_eq!(state.give(&empty()), [0; RESOURCE_BYTES]);
    }

    #[test]
    fn the_oldest_resource_is_forgotten_first() {
        let mut state = Greens::default();
        let first = state.give(&resource(1, 1));
        let mut last = first;
        for n in 2..=RESOURCES_MAX as u32 + 1 {
            last = state.give(&resource(n, 1));
        }
        assert_eq!(state.given.len(), RESOURCES_MAX);
        assert_eq!(state.original(&first).err(), Some(CUDA_ERROR_INVALID_VALUE));
        assert!(state.original(&last).is_ok());
    }
}
