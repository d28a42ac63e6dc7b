//! Where an address of a message may lie: the one place that decides it.
//!
//! The driver takes every address of this process, wherever it takes one at all: with unified addressing a copy, a fill
//! or a stream's write to what a client called device memory is one to the worker's own stack, if it points there. So
//! an address goes to the driver only as a [`DeviceAddress`] or a [`HostSpan`], which are made here and nowhere else:
//! of memory that the driver gave to this session, and of host memory that the session shares with its client.
//! While a stream is captured, CUDA records a fill or a stream's write of any address, and judges it when the graph is
//! instantiated or run (tried address by address on driver 580.159). An address that was decided against is then
//! recorded as one that nothing can have.
//!
//! Addresses that only the device follows are not decided on, because a kernel's parameters can hold any: those of
//! tensor maps, of textures over linear memory, of an access policy's window, and of symbols for the linker.

// UNSAFETY: asks the driver about addresses, and looks into unions of plain numbers.

use std::ffi::c_void;
use std::ptr;

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;
use orion_wire::Fault;
use orion_wire::handle::Kind;
use orion_wire::message::address::{ClaimedDevice, ClaimedHost, ClaimedPlace};
use orion_wire::message::copy::{self as message, CopySide};
use orion_wire::message::field::Halves;
use orion_wire::message::graph_node::MemOp;
use orion_wire::pages::SharedMemory;
use orion_wire::record::HeapRange;

use crate::worker::driver::log as driver_log;
use crate::worker::outcome::Stop;
use crate::worker::session::Session;
use crate::worker::state::addresses::{Addresses, DeviceAddress, GRANULE, line, rows, span};
use crate::worker::state::pinned::Alias;

/// Host memory shared with the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostSpan {
    address: u64,
    memory: SharedMemory,
}

impl HostSpan {
    /// Where it lies in the heap, unless it is a file's.
    pub fn range(self) -> Option<HeapRange> {
        self.memory.heap()
    }

    /// Where the driver knows it.
    pub fn raw(self, s: &Session) -> *mut c_void {
        s.registered(self.address) as *mut c_void
    }
}

/// Set in an address, it makes it one that no memory has: it is not canonical.
const NOWHERE: u64 = 1 << 63;

const PAGE: u64 = 4096;
const USER_ADDRESS_MAX: u64 = 1 << 47;

/// What the driver says of an address: the range of device memory that it lies in.
fn ask(driver: &'static Driver, address: u64) -> Option<(u64, u64)> {
    let mut attributes =
        [CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE];
    let (mut kind, mut start, mut bytes) = (0u32, 0u64, 0u64);
    let mut places: [*mut c_void; 3] = [(&raw mut kind).cast(), (&raw mut start).cast(), (&raw mut bytes).cast()];
    // SAFETY: three attributes, each with a place of its size. The plural form answers zeros about what the driver does
    // not know, and logs nothing.
    let code = unsafe { driver.cuPointerGetAttributes(3, attributes.as_mut_ptr(), places.as_mut_ptr(), address) };
    if code != CUDA_SUCCESS || kind != CU_MEMORYTYPE_DEVICE {
        return None;
    }
    let end = start.checked_add(bytes)?.checked_next_multiple_of(GRANULE)?;
    (start <= address && address < end).then_some((start, end))
}

impl Session {
    /// Decides on an address that a client named for the device's, with `bytes` behind it that the operation touches.
    #[inline]
    pub fn reach(&mut self, address: ClaimedDevice, bytes: u64) -> Result<DeviceAddress, CUresult> {
        let address = address.unjudged();
        let (first, end) = self.addresses.recent[Addresses::slot(address)];
        if first <= address && address < end && bytes <= end - address {
            return Ok(DeviceAddress(address));
        }
        self.reach_afar(address, bytes)
    }

    /// As above, for what is recorded with any address while its stream is captured.
    pub fn reach_in(
        &mut self,
        stream: u64,
        thread: u16,
        address: ClaimedDevice,
        bytes: u64,
    ) -> Result<DeviceAddress, CUresult> {
        match self.reach(address, bytes) {
            Err(code) if !self.is_captured(stream, thread)? => Err(code),
            Err(_) => Ok(DeviceAddress(address.unjudged() | NOWHERE)),
            Ok(decided) => Ok(decided),
        }
    }

    /// A stream writes these bytes or waits for them: they tell of what was written before them.
    pub fn name_flag(&mut self, decided: DeviceAddress, bytes: u64) {
        if self.in_step.any
            && let Some(range) = shared_range(self, decided.raw(), bytes)
        {
            self.in_step.change(|mirror| mirror.name_flag(range));
        }
    }

    fn is_captured(&mut self, stream: u64, thread: u16) -> Result<bool, CUresult> {
        let stream = self.plain_stream(stream, thread)?;
        let mut status = CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: a stream of the session's and a place for the answer.
        let code = unsafe { self.driver.cuStreamIsCapturing(stream, &raw mut status) };
        Ok(code == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_ACTIVE)
    }

    fn reach_afar(&mut self, address: u64, bytes: u64) -> Result<DeviceAddress, CUresult> {
        // Nothing is touched, wherever that is.
        if bytes == 0 {
            return Ok(DeviceAddress(address));
        }
        let end = address.checked_add(bytes).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if shared_memory(self, address, bytes).is_some() {
            return Ok(DeviceAddress(address));
        }
        // Memory mapped into one reservation, or parts that adjoin.
        let mut at = address;
        while at < end {
            let found = self.addresses.at(at).or_else(|| {
                let (first, end) = ask(self.driver, at)?;
                self.addresses.asked.insert(first, end);
                Some((first, end))
            });
            let Some((first, last)) = found else {
                driver_log::say(&format!(
                    "{bytes} bytes at {address:#x} are neither device nor pinned memory of this program"
                ));
                return Err(CUDA_ERROR_INVALID_VALUE);
            };
            if at == address {
                self.addresses.recent[Addresses::slot(address)] = (first, last);
            }
            at = last;
        }
        Ok(DeviceAddress(address))
    }

    /// Decides on an address that a client named for shared host memory's.
    pub fn shared(&self, address: ClaimedHost, bytes: u64) -> Result<HostSpan, Fault> {
        let address = address.unjudged();
        shared_memory(self, address, bytes)
            .map(|memory| HostSpan { address, memory })
            .ok_or(Fault("host address outside the session's memory"))
    }

    /// Decides on a part of a managed variable that is carried over to a range of the heap, which lies as far beyond a
    /// page's beginning: where it is, and whose it is.
    pub fn managed_variable(&self, address: ClaimedDevice, range: HeapRange) -> Result<(u64, u64), Stop> {
        let address = address.unjudged();
        if !(address ^ range.offset).is_multiple_of(PAGE) {
            return Err(Fault("a managed variable lies elsewhere in its page").into());
        }
        let owner = self.known_managed.owner(address, range.bytes).filter(|_| range.bytes > 0);
        owner.map(|owner| (address, owner)).ok_or(Stop::Code(CUDA_ERROR_INVALID_VALUE))
    }

    /// Decides on where memory of the client's may be mapped, at its own address. That nothing is mapped there yet is
    /// for the system to say.
    pub fn mappable(&self, place: ClaimedPlace, bytes: u64) -> Result<u64, Fault> {
        let address = place.unjudged();
        let end = address.checked_add(bytes).ok_or(Fault("address range wraps around"))?;
        if address < 1 << 16 || end > USER_ADDRESS_MAX || !address.is_multiple_of(PAGE) {
            return Err(Fault("impossible address of registered memory"));
        }
        Ok(address)
    }

    /// Where a client would have device addresses reserved: the driver reserves them elsewhere if something is there.
    pub fn wish(&self, hint: ClaimedPlace) -> u64 {
        hint.unjudged()
    }

    /// Takes back what was mapped at an address by [`Self::mappable`].
    pub fn take_alias(&mut self, address: ClaimedHost) -> Option<(u64, Alias)> {
        let address = address.unjudged();
        Some((address, self.host_memory.take(address)?))
    }

    /// Decides on both sides of a copy, whose arrays are the client's names. The driver gets them looked up, explicit
    /// where it would have counted for itself, and without what the types say is not meant.
    pub fn copy_3d(&mut self, c: &message::Copy3D) -> Result<Copy3D, Stop> {
        // SAFETY: integers and pointers, for which zero is a value; so is what nobody set below.
        let mut d: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
        (d.WidthInBytes, d.Height, d.Depth) = (c.width.0 as usize, c.rows.0 as usize, c.layers.0 as usize);
        (d.srcLOD, d.dstLOD) = (c.source.level.0 as usize, c.destination.level.0 as usize);
        let (source, destination, extent) = (Side::of(&c.source), Side::of(&c.destination), d);
        let from = source.decide(self, &extent)?;
        (d.srcMemoryType, d.srcHost, d.srcDevice) = (from.kind, from.host as *const c_void, from.device);
        d.srcArray = from.array.cast();
        ([d.srcXInBytes, d.srcY, d.srcZ], d.srcPitch, d.srcHeight) = (source.place, from.pitch, from.height);
        let to = destination.decide(self, &extent)?;
        (d.dstMemoryType, d.dstHost, d.dstDevice) = (to.kind, to.host as *mut c_void, to.device);
        d.dstArray = to.array.cast();
        ([d.dstXInBytes, d.dstY, d.dstZ], d.dstPitch, d.dstHeight) = (destination.place, to.pitch, to.height);
        Ok(Copy3D { raw: d, reads_shared: from.range.is_some(), to_host: to.range })
    }

    /// Decides on what nodes fill.
    pub fn fills(&mut self, nodes: &mut [CUDA_MEMSET_NODE_PARAMS]) -> Result<(), CUresult> {
        for n in nodes {
            let row = line(&[n.width as u64, n.elementSize.into()])?;
            n.dst = self.reach(ClaimedDevice::new(n.dst), rows(n.pitch as u64, n.height as u64, row)?)?.raw();
        }
        Ok(())
    }

    /// Decides on what a stream waits for and writes.
    pub fn mem_ops_in(
        &mut self,
        stream: u64,
        thread: u16,
        ops: &mut [CUstreamBatchMemOpParams],
    ) -> Result<(), CUresult> {
        self.mem_ops(ops, |s, address, bytes| s.reach_in(stream, thread, address, bytes))
    }

    fn mem_ops(
        &mut self,
        ops: &mut [CUstreamBatchMemOpParams],
        decide: impl Fn(&mut Session, ClaimedDevice, u64) -> Result<DeviceAddress, CUresult>,
    ) -> Result<(), CUresult> {
        for op in ops {
            // SAFETY: every member of the union begins with the operation.
            let bytes = match unsafe { op.operation } {
                CU_STREAM_MEM_OP_WAIT_VALUE_32 | CU_STREAM_MEM_OP_WRITE_VALUE_32 => 4,
                CU_STREAM_MEM_OP_WAIT_VALUE_64 | CU_STREAM_MEM_OP_WRITE_VALUE_64 => 8,
                CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES | CU_STREAM_MEM_OP_BARRIER => continue,
                _ => return Err(CUDA_ERROR_INVALID_VALUE),
            };
            // SAFETY: these four have one layout; all of it is numbers.
            let w = unsafe { &mut op.waitValue };
            let decided = decide(self, ClaimedDevice::new(w.address), bytes)?;
            self.name_flag(decided, bytes);
            w.address = decided.raw();
            // The driver's own use.
            w.alias = 0;
        }
        Ok(())
    }

    /// As above, of a node.
    pub fn node_mem_ops(&mut self, told: &[MemOp]) -> Result<Vec<CUstreamBatchMemOpParams>, CUresult> {
        let raw = |op: &MemOp| {
            let Halves(operation, flags) = op.operation_flags;
            let first = u64::from(operation) | u64::from(flags) << 32;
            CUstreamBatchMemOpParams { pad: [first, op.address.unjudged(), op.value, op.flags.into(), 0, 0] }
        };
        let mut ops: Vec<_> = told.iter().map(raw).collect();
        self.mem_ops(&mut ops, Session::reach)?;
        Ok(ops)
    }
}

/// A copy of any shape whose sides were decided on.
pub struct Copy3D {
    raw: CUDA_MEMCPY3D,
    /// It reads shared memory.
    reads_shared: bool,
    /// The shared memory that it writes.
    to_host: Option<HeapRange>,
}

/// Rows with gaps that one copy may bring to a client that has memory of its own: each goes over by itself.
pub const ROWS_MAX: u64 = 1 << 20;

// SAFETY: plain data; what its pointers lead to is memory that any thread of the worker may have the driver copy.
unsafe impl Send for Copy3D {}

impl Copy3D {
    pub fn raw(&self) -> &CUDA_MEMCPY3D {
        &self.raw
    }

    pub fn reads_shared(&self) -> bool {
        self.reads_shared
    }

    /// Whether a side of it is host memory that the driver does not know. Then the driver waits inside the call until
    /// the stream has come to the copy.
    pub fn is_pageable(&self, driver: &Driver) -> bool {
        let c = &self.raw;
        let first = |base: u64, place: [usize; 3], pitch, height| {
            span(base, place, pitch, height, c).map_or(base, |(first, _)| first)
        };
        let sides = [
            (c.srcMemoryType, first(c.srcHost as u64, [c.srcXInBytes, c.srcY, c.srcZ], c.srcPitch, c.srcHeight)),
            (c.dstMemoryType, first(c.dstHost as u64, [c.dstXInBytes, c.dstY, c.dstZ], c.dstPitch, c.dstHeight)),
        ];
        let is_known = |address| {
            let mut kind = 0u32;
            let (out, what) = ((&raw mut kind).cast(), CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
            // SAFETY: a place for the attribute, which is one word; of an unknown address the driver says so.
            unsafe { driver.cuPointerGetAttribute(out, what, address) == CUDA_SUCCESS }
        };
        sides.iter().any(|(kind, address)| *kind == CU_MEMORYTYPE_HOST && !is_known(*address))
    }

    /// The rows of shared memory that it writes: between them lies memory that is none of the copy's. Rows without a
    /// gap are one. Nothing if there are more than [`ROWS_MAX`].
    pub fn rows_to_host(&self) -> Option<Vec<HeapRange>> {
        let Some(all) = self.to_host else { return Some(Vec::new()) };
        let (c, mut rows) = (&self.raw, Vec::<HeapRange>::new());
        let is_one = c.dstPitch == c.WidthInBytes && (c.Depth <= 1 || c.dstHeight == c.Height);
        if is_one {
            return Some(vec![all]);
        }
        if (c.Depth as u64).saturating_mul(c.Height as u64) > ROWS_MAX {
            return None;
        }
        // With one layer nobody has said that this product is a number.
        let (pitch, slice) = (c.dstPitch as u64, (c.dstPitch as u64).saturating_mul(c.dstHeight as u64));
        for at in (0..c.Depth as u64).flat_map(|z| (0..c.Height as u64).map(move |y| z * slice + y * pitch)) {
            let (offset, bytes) = (all.offset + at, c.WidthInBytes as u64);
            match rows.last_mut() {
                Some(last) if last.offset + last.bytes == offset => last.bytes += bytes,
                _ => rows.push(HeapRange { offset, bytes }),
            }
        }
        Some(rows)
    }
}

/// One side of a copy, as the client has it.
struct Side {
    kind: CUmemorytype,
    host: u64,
    device: u64,
    array: u64,
    place: [usize; 3],
    pitch: usize,
    height: usize,
}

/// One side, as the driver gets it.
struct Decided {
    kind: CUmemorytype,
    host: u64,
    device: u64,
    array: *mut c_void,
    pitch: usize,
    height: usize,
    range: Option<HeapRange>,
}

impl Side {
    fn of(side: &CopySide) -> Side {
        Side {
            kind: side.memory_type,
            host: side.host.unjudged(),
            device: side.device.unjudged(),
            array: side.array.0,
            place: [side.x.0 as usize, side.y.0 as usize, side.z.0 as usize],
            pitch: side.pitch.0 as usize,
            height: side.height.0 as usize,
        }
    }

    fn decide(&self, s: &mut Session, c: &CUDA_MEMCPY3D) -> Result<Decided, Stop> {
        let mut d = Decided {
            kind: self.kind,
            host: 0,
            device: 0,
            array: ptr::null_mut(),
            pitch: self.pitch,
            height: self.height,
            range: None,
        };
        match self.kind {
            CU_MEMORYTYPE_ARRAY => match s.handle(Kind::Array, self.array)? {
                array if array.is_null() => return Err(CUDA_ERROR_INVALID_HANDLE.into()),
                array => d.array = array,
            },
            CU_MEMORYTYPE_HOST => {
                self.fill_in(&mut d, c)?;
                if let (first, bytes @ 1..) = span(self.host, self.place, d.pitch, d.height, c)? {
                    d.range = s.shared(ClaimedHost::new(first), bytes)?.range();
                }
                d.host = self.host;
            }
            // Unified is whatever lies there, and the client has found that out.
            CU_MEMORYTYPE_DEVICE | CU_MEMORYTYPE_UNIFIED => {
                self.fill_in(&mut d, c)?;
                let (first, bytes) = span(self.device, self.place, d.pitch, d.height, c)?;
                #[cfg(debug_assertions)]
                if self.kind == CU_MEMORYTYPE_UNIFIED && crate::cell::takeover::has_hole() {
                    (d.kind, d.device) = (CU_MEMORYTYPE_UNIFIED, self.device);
                    return Ok(d);
                }
                s.reach(ClaimedDevice::new(first), bytes)?;
                // What is said to be a device's may be shared memory.
                d.range = shared_range(s, first, bytes);
                (d.kind, d.device) = (CU_MEMORYTYPE_DEVICE, self.device);
            }
            _ => return Err(CUDA_ERROR_INVALID_VALUE.into()),
        }
        Ok(d)
    }

    /// What the driver takes where a pitch or height is left out, so that it counts from what was decided on.
    fn fill_in(&self, d: &mut Decided, c: &CUDA_MEMCPY3D) -> Result<(), CUresult> {
        let wrapped = || CUDA_ERROR_INVALID_VALUE;
        if d.pitch == 0 && (c.Height > 1 || c.Depth > 1 || self.place[1] > 0 || self.place[2] > 0) {
            d.pitch = self.place[0].checked_add(c.WidthInBytes).ok_or_else(wrapped)?;
        }
        if d.height == 0 && (c.Depth > 1 || self.place[2] > 0) {
            d.height = self.place[1].checked_add(c.Height).ok_or_else(wrapped)?;
        }
        Ok(())
    }
}

/// Whether the driver has managed memory at an address that it has told of.
pub fn is_managed(driver: &Driver, address: u64) -> bool {
    let mut value = 0u32;
    // SAFETY: room for a boolean of any width; the driver knows which addresses are its own.
    let code =
        unsafe { driver.cuPointerGetAttribute((&raw mut value).cast(), CU_POINTER_ATTRIBUTE_IS_MANAGED, address) };
    code == CUDA_SUCCESS && value & 0xff != 0
}

/// What shared host memory lies at an address, if all of `bytes` is such memory.
fn shared_memory(s: &Session, address: u64, bytes: u64) -> Option<SharedMemory> {
    match s.heap.offset_of(address, bytes) {
        Some(offset) => Some(SharedMemory::Heap(HeapRange { offset, bytes })),
        None => {
            let variable = || s.variables.at(address, bytes).map(SharedMemory::Heap);
            s.host_memory.at(address, bytes).or_else(variable)
        }
    }
}

/// The heap behind an address of shared host memory, if all of `bytes` is such memory.
pub fn shared_range(s: &Session, address: u64, bytes: u64) -> Option<HeapRange> {
    shared_memory(s, address, bytes)?.heap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_one_layer_are_counted_however_high_it_is_said_to_be() {
        // SAFETY: integers and pointers, for which zero is a value.
        let mut raw: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
        (raw.WidthInBytes, raw.Height, raw.Depth) = (8, 2, 1);
        (raw.dstPitch, raw.dstHeight) = (16, usize::MAX / 2);
        let copy = Copy3D { raw, reads_shared: false, to_host: Some(HeapRange { offset: 64, bytes: 24 }) };
        let rows = [(64, 8), (80, 8)].map(|(offset, bytes)| HeapRange { offset, bytes });
        assert_eq!(copy.rows_to_host().as_deref(), Some(&rows[..]));
    }
}
