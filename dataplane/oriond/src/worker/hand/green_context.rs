//! Green contexts, and the device resources they are made from.
//!
//! A `CUdevResource` is a structure that the application keeps by value. Most of it is the driver's own, which the
//! driver believes whatever is in it, so the client is given a copy that says nothing but its number; what comes back
//! has to be such a copy, and the driver sees the original.

// UNSAFETY: calls the driver with handles and resources of this session; resources are read as bytes.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ptr;

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;
use orion_wire::generated::calls;
use orion_wire::handle::{Handle, Kind, PRIMARY_CONTEXTS_MAX};
use orion_wire::record::Header;
use orion_wire::{Fault, Reader, Writer};

use super::graph::{Answer, existing, finish};
use crate::worker::session::{Outcome, Session, Wait};

const RESOURCE_BYTES: usize = size_of::<CUdevResource>();
type Bytes = [u8; RESOURCE_BYTES];

/// Where a client's copy has its number; the driver's opaque bytes are from 4 to 96.
const NUMBER_AT: usize = 8;
/// Resources remembered; whoever asks for more finds the oldest ones forgotten. A device has a few hundred
/// multiprocessors at most, so this is many splits of all of it.
const RESOURCES_MAX: usize = 4096;
/// Groups of one split: more than a device has multiprocessors.
const GROUPS_MAX: usize = 1024;

/// A resource that the driver gave out, under the number by which the client knows it.
struct Given {
    number: u64,
    original: Bytes,
}

struct Green {
    context: u64,
    ordinal: i32,
}

/// What a session has of these.
#[derive(Default)]
pub struct State {
    given: VecDeque<Given>,
    next: u64,
    /// By the client's name.
    greens: HashMap<u64, Green>,
    /// By the driver's handle: the client's name of the `CUcontext`.
    contexts: HashMap<usize, u64>,
    /// By the driver's handle: the client's name of a stream, and of the green context's `CUcontext`.
    streams: HashMap<usize, (u64, u64)>,
    /// Names of streams whose green context is gone.
    orphans: HashSet<u64>,
}

impl State {
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
    fn give(&mut self, resource: &CUdevResource) -> Bytes {
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
    fn original(&self, copy: &[u8]) -> Result<CUdevResource, CUresult> {
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

fn empty() -> CUdevResource {
    // SAFETY: integers and bytes.
    unsafe { std::mem::zeroed() }
}

/// Asks the driver for a resource and answers the client's copy of it.
fn get(
    s: &mut Session,
    type_: CUdevResourceType,
    reply: &mut Vec<u8>,
    ask: impl FnOnce(&'static Driver, &mut CUdevResource) -> CUresult,
) -> Answer {
    // Of later types this driver's ABI has other structures.
    if type_ != CU_DEV_RESOURCE_TYPE_SM {
        return Err(CUDA_ERROR_INVALID_RESOURCE_TYPE.into());
    }
    let mut resource = empty();
    let code = ask(s.driver, &mut resource);
    if code == CUDA_SUCCESS {
        reply.bytes(&s.green.give(&resource));
    }
    Ok(code)
}

pub fn cuDeviceGetDevResource(
    s: &mut Session,
    _: &Header,
    mut r: Reader<'_>,
    reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    finish(|| {
        let q = calls::cuDeviceGetDevResource::decode(&mut r)?;
        let device = s.device(q.device)?;
        // SAFETY: a device of this session and a valid out pointer.
        get(s, q.type_, reply, |d, out| unsafe { d.cuDeviceGetDevResource(device, out, q.type_) })
    })
}

pub fn cuCtxGetDevResource(
    s: &mut Session,
    _: &Header,
    mut r: Reader<'_>,
    reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    finish(|| {
        let q = calls::cuCtxGetDevResource::decode(&mut r)?;
        if q.hCtx == 0 {
            return Err(CUDA_ERROR_INVALID_CONTEXT.into());
        }
        let context = s.context(q.hCtx)?;
        // SAFETY: a context of this session and a valid out pointer.
        get(s, q.type_, reply, |d, out| unsafe { d.cuCtxGetDevResource(context, out, q.type_) })
    })
}

pub fn cuGreenCtxGetDevResource(
    s: &mut Session,
    _: &Header,
    mut r: Reader<'_>,
    reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    finish(|| {
        let q = calls::cuGreenCtxGetDevResource::decode(&mut r)?;
        let green: CUgreenCtx = named(s, q.hCtx)?;
        // SAFETY: a green context of this session and a valid out pointer.
        get(s, q.type_, reply, |d, out| unsafe { d.cuGreenCtxGetDevResource(green, out, q.type_) })
    })
}

fn named(s: &mut Session, word: u64) -> Result<CUgreenCtx, CUresult> {
    match s.handle(Kind::GreenContext, word) {
        Ok(g) if !g.is_null() => Ok(g.cast()),
        _ => Err(CUDA_ERROR_INVALID_CONTEXT),
    }
}

/// whether groups are wanted, how many there is room for, whether the rest is wanted, resource, flags, least count.
/// Answers how many groups there are, the rest, and the groups if they were wanted.
pub fn cuDevSmResourceSplitByCount(
    s: &mut Session,
    _: &Header,
    mut r: Reader<'_>,
    reply: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    finish(|| {
        let (wanted, room, rest_wanted) = (r.word()? != 0, r.word()? as usize, r.word()? != 0);
        let input = s.green.original(r.bytes()?)?;
        let (flags, least) = (r.word()? as u32, r.word()? as u32);
        let room = room.min(GROUPS_MAX);
        let (mut groups, mut rest, mut count) = (vec![empty(); room], empty(), room as u32);
        let groups_at = if wanted { groups.as_mut_ptr() } else { ptr::null_mut() };
        let rest_at = if rest_wanted { &raw mut rest } else { ptr::null_mut() };
        // SAFETY: an array of `count` elements or null, a resource of the driver's own, and valid out pointers.
        let code =
            unsafe { s.driver.cuDevSmResourceSplitByCount(groups_at, &mut count, &input, rest_at, flags, least) };
        if code == CUDA_SUCCESS {
            reply.word(count as u64);
            reply.bytes(&s.green.give(&rest));
            let made = if wanted { (count as usize).min(room) } else { 0 };
            let copies: Vec<u8> = groups[..made].iter().flat_map(|g| s.green.give(g)).collect();
            reply.bytes(&copies);
        }
        Ok(code)
    })
}

/// name, number of resources, their copies
pub fn cuDevResourceGenerateDesc(
    s: &mut Session,
    _: &Header,
    mut r: Reader<'_>,
    _: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    finish(|| {
        let (name, count, resources) = (r.word()?, r.word()? as usize, r.bytes()?);
        if count > 64 || resources.len() != count * RESOURCE_BYTES {
            return Err(Fault("resources of the wrong length").into());
        }
        let copies = resources.chunks_exact(RESOURCE_BYTES);
        let mut resources = copies.map(|c| s.green.original(c)).collect::<Result<Vec<_>, _>>()?;
        let mut descriptor = ptr::null_mut();
        // SAFETY: as many resources as the count says, and a valid out pointer.
        let code = unsafe { s.driver.cuDevResourceGenerateDesc(&mut descriptor, resources.as_mut_ptr(), count as u32) };
        if code == CUDA_SUCCESS {
            s.bind(Kind::DevResourceDesc, name, descriptor.cast())?;
        }
        Ok(code)
    })
}

/// name, name of its `CUcontext`, descriptor, device, flags
pub fn cuGreenCtxCreate(s: &mut Session, _: &Header, mut r: Reader<'_>, _: &mut Vec<u8>) -> Result<Outcome, Fault> {
    finish(|| {
        let (name, context_name) = (r.word()?, r.word()?);
        let descriptor = existing(s, Kind::DevResourceDesc, r.word()?).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        let ordinal = r.word()? as i32;
        let (device, flags) = (s.device(ordinal)?, r.word()? as u32);
        let (mut green, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: a descriptor and a device of this session, and a valid out pointer.
        let code = unsafe { s.driver.cuGreenCtxCreate(&mut green, descriptor.cast(), device, flags) };
        if code != CUDA_SUCCESS {
            return Ok(code);
        }
        // SAFETY: the green context just made and a valid out pointer.
        let code = unsafe { s.driver.cuCtxFromGreenCtx(&mut context, green) };
        if code != CUDA_SUCCESS {
            // SAFETY: nobody knows it.
            unsafe { s.driver.cuGreenCtxDestroy(green) };
            return Ok(code);
        }
        s.bind(Kind::GreenContext, name, green.cast())?;
        s.bind(Kind::Context, context_name, context.cast())?;
        s.green.greens.insert(name, Green { context: context_name, ordinal });
        s.green.contexts.insert(green as usize, context_name);
        Ok(CUDA_SUCCESS)
    })
}

/// name. Waits for its work first, which may wait for the client, where the driver might.
pub fn cuGreenCtxDestroy(
    s: &mut Session,
    header: &Header,
    mut r: Reader<'_>,
    _: &mut Vec<u8>,
) -> Result<Outcome, Fault> {
    let name = r.word()?;
    let Some(context) = s.green.greens.get(&name).map(|g| g.context) else {
        return Ok(Outcome::Done(CUDA_ERROR_INVALID_CONTEXT));
    };
    let mut streams: Vec<_> = s.busy_streams_of(context).into_iter().map(|stream| (context, stream)).collect();
    streams.push((context, ptr::null_mut()));
    // Whatever the streams answer, an error for instance: it is given up.
    Ok(s.park(header, Wait::Everywhere(streams), move |s, _, _| end(s, name)))
}

/// Ends the green contexts of a device.
pub fn end_all(s: &mut Session, ordinal: i32) {
    let here = s.green.greens.iter().filter(|(_, g)| g.ordinal == ordinal).map(|(name, _)| *name);
    for name in here.collect::<Vec<_>>() {
        end(s, name);
    }
}

fn end(s: &mut Session, name: u64) -> CUresult {
    let Some(Green { context, .. }) = s.green.greens.remove(&name) else { return CUDA_ERROR_CONTEXT_IS_DESTROYED };
    let Ok(green) = named(s, name) else { return CUDA_ERROR_INVALID_CONTEXT };
    let (streams, events) = s.own_objects(context);
    for stream in streams {
        s.stream_gone(stream);
        // SAFETY: a stream made for the session itself, which nothing refers to any more.
        unsafe { s.driver.cuStreamDestroy_v2(stream) };
    }
    for event in events {
        // SAFETY: an event from the stock, which nobody uses.
        unsafe { s.driver.cuEventDestroy_v2(event) };
    }
    // The driver does not destroy the application's streams, and no call may name one afterwards.
    let own = s.green.streams.iter().filter(|(_, (_, of))| *of == context).map(|(stream, (word, _))| (*stream, *word));
    for (stream, word) in own.collect::<Vec<_>>() {
        s.stream_gone(stream as CUstream);
        s.unbind(Kind::Stream, word);
        s.green.orphans.insert(word);
    }
    s.forget_context(context);
    // SAFETY: no context is current on this thread afterwards.
    unsafe { s.driver.cuCtxSetCurrent(ptr::null_mut()) };
    // SAFETY: a green context of this session that nothing refers to any more.
    let code = unsafe { s.driver.cuGreenCtxDestroy(green) };
    s.green.contexts.remove(&(green as usize));
    s.unbind(Kind::Context, context);
    s.unbind(Kind::GreenContext, name);
    code
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
        let mut state = State::default();
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
        let mut state = State::default();
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
