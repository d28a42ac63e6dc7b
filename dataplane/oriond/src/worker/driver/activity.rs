//! What the profiler recorded, until the client takes it.
//!
//! CUPTI numbers driver calls; the client wants its own numbers. An external correlation record says which of the
//! client's calls one of the driver's belongs to, and may come before or after the records of the work. So the calls
//! are remembered, and records whose call is not known yet wait.

use std::collections::{HashSet, VecDeque};
use std::mem::{offset_of, size_of};
use std::sync::Arc;

use orion_cuda::cupti::*;
use orion_cuda::sys::CUdevice;
use orion_wire::activity::{Activity, lost};
use orion_wire::codec::bytes_size;
use orion_wire::message::activity::ActivityTakeReply;
use orion_wire::message::field::Rest;
use rustc_hash::FxHashMap;

/// Memory of the records that wait to be taken. What comes beyond is counted, and lost.
pub const BYTES_MAX: usize = 256 << 20;
/// Records of one reply.
pub const REPLY_BYTES_MAX: usize = 200 << 10;
/// Driver calls that are remembered, the oldest going first. What may still come of an older one is work that was
/// behind a million later calls; it keeps its record and loses its number.
const CALLS_MAX: usize = 1 << 20;
/// A mangled name has hundreds of bytes, a few thousand at worst. PTX allows any length; a reply does not.
const NAME_BYTES_MAX: usize = 32 << 10;

/// Where a kind's structure has what does not cross as it is.
struct Layout {
    bytes: usize,
    correlation: usize,
    devices: &'static [usize],
    pointers: &'static [usize],
}

/// The kinds that are brought.
fn layout(kind: CUpti_ActivityKind) -> Option<Layout> {
    Some(match kind {
        CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL => Layout {
            bytes: size_of::<CUpti_ActivityKernel10>(),
            correlation: offset_of!(CUpti_ActivityKernel10, correlationId),
            devices: &[offset_of!(CUpti_ActivityKernel10, deviceId)],
            pointers: &[
                offset_of!(CUpti_ActivityKernel10, name),
                offset_of!(CUpti_ActivityKernel10, reserved0),
                offset_of!(CUpti_ActivityKernel10, pAccessPolicyWindow),
            ],
        },
        CUPTI_ACTIVITY_KIND_MEMCPY => Layout {
            bytes: size_of::<CUpti_ActivityMemcpy6>(),
            correlation: offset_of!(CUpti_ActivityMemcpy6, correlationId),
            devices: &[offset_of!(CUpti_ActivityMemcpy6, deviceId)],
            pointers: &[offset_of!(CUpti_ActivityMemcpy6, reserved0)],
        },
        CUPTI_ACTIVITY_KIND_MEMSET => Layout {
            bytes: size_of::<CUpti_ActivityMemset4>(),
            correlation: offset_of!(CUpti_ActivityMemset4, correlationId),
            devices: &[offset_of!(CUpti_ActivityMemset4, deviceId)],
            pointers: &[offset_of!(CUpti_ActivityMemset4, reserved0)],
        },
        CUPTI_ACTIVITY_KIND_MEMCPY2 => Layout {
            bytes: size_of::<CUpti_ActivityMemcpyPtoP4>(),
            correlation: offset_of!(CUpti_ActivityMemcpyPtoP4, correlationId),
            devices: &[
                offset_of!(CUpti_ActivityMemcpyPtoP4, deviceId),
                offset_of!(CUpti_ActivityMemcpyPtoP4, srcDeviceId),
                offset_of!(CUpti_ActivityMemcpyPtoP4, dstDeviceId),
            ],
            pointers: &[offset_of!(CUpti_ActivityMemcpyPtoP4, reserved0)],
        },
        _ => return None,
    })
}

/// Bytes of a kind's structure that are read; `None` if the kind is not brought.
pub fn structure_bytes(kind: CUpti_ActivityKind) -> Option<usize> {
    layout(kind).map(|layout| layout.bytes)
}

struct Record {
    kind: CUpti_ActivityKind,
    structure: Box<[u8]>,
    name: Option<Arc<[u8]>>,
    /// The flush in whose time it came.
    flush: u64,
}

impl Record {
    fn correlation(&mut self) -> Option<&mut [u8; 4]> {
        let at = layout(self.kind)?.correlation;
        self.structure.get_mut(at..at + 4)?.try_into().ok()
    }

    /// Gives devices the ordinals that the application knows them by. One that it does not see keeps the driver's.
    fn translate(&mut self, devices: &[CUdevice]) {
        let Some(layout) = layout(self.kind) else { return };
        for at in layout.devices {
            if let Some(Ok(word)) = self.structure.get_mut(*at..*at + 4).map(<&mut [u8; 4]>::try_from)
                && let Some(ordinal) = devices.iter().position(|d| *d == CUdevice::from_le_bytes(*word))
            {
                *word = (ordinal as u32).to_le_bytes();
            }
        }
    }

    /// As it is kept; names are kept once.
    fn bytes(&self) -> usize {
        size_of::<Record>() + self.structure.len()
    }

    fn name(&self) -> &[u8] {
        self.name.as_deref().unwrap_or_default()
    }

    fn wire_bytes(&self) -> usize {
        8 + bytes_size(self.structure.len()) + bytes_size(self.name().len())
    }
}

#[derive(Default)]
pub struct Store {
    /// The client's number of each driver call, by CUPTI's.
    calls: FxHashMap<u32, u32>,
    /// Calls in the order in which they became known.
    known: VecDeque<u32>,
    /// Whether calls became known since the waiting records were looked through.
    news: bool,
    ready: VecDeque<Record>,
    /// Records whose call is not known.
    waiting: Vec<Record>,
    names: HashSet<Arc<[u8]>>,
    bytes: usize,
    lost: u64,
    flush: u64,
}

impl Store {
    /// CUPTI's call `correlation` belongs to the client's call `id`.
    pub fn call(&mut self, correlation: u32, id: u32) {
        if self.calls.insert(correlation, id).is_none() {
            self.known.push_back(correlation);
            if self.known.len() > CALLS_MAX
                && let Some(oldest) = self.known.pop_front()
            {
                self.calls.remove(&oldest);
            }
        }
        self.news = true;
    }

    /// Something that the GPU did: a structure of the size that [`structure_bytes`] says, and a kernel's name.
    pub fn record(&mut self, structure: &[u8], name: &[u8]) {
        let Some(kind) = structure.first_chunk().map(|k| u32::from_le_bytes(*k)) else { return };
        let Some(layout) = layout(kind).filter(|layout| layout.bytes == structure.len()) else { return };
        let name = &name[..name.len().min(NAME_BYTES_MAX)];
        if self.bytes + size_of::<Record>() + layout.bytes + name.len() > BYTES_MAX {
            self.lost += 1;
            return;
        }
        let mut structure: Box<[u8]> = structure.into();
        for at in layout.pointers {
            structure[*at..*at + 8].fill(0);
        }
        let name = (!name.is_empty()).then(|| self.name(name));
        let mut record = Record { kind, structure, name, flush: self.flush };
        self.bytes += record.bytes();
        match self.resolve(&mut record) {
            true => self.ready.push_back(record),
            false => self.waiting.push(record),
        }
    }

    fn name(&mut self, name: &[u8]) -> Arc<[u8]> {
        if let Some(known) = self.names.get(name) {
            return known.clone();
        }
        let name: Arc<[u8]> = name.into();
        self.bytes += name.len();
        self.names.insert(name.clone());
        name
    }

    /// Gives a record the client's number if its call is known.
    fn resolve(&self, record: &mut Record) -> bool {
        let Some(at) = record.correlation() else { return true };
        let Some(id) = self.calls.get(&u32::from_le_bytes(*at)) else { return false };
        *at = id.to_le_bytes();
        true
    }

    /// Records that CUPTI, or this, had no room for.
    pub fn lose(&mut self, count: u64) {
        self.lost += count;
    }

    /// CUPTI is about to hand over all that it has.
    pub fn flush_begins(&mut self) -> u64 {
        self.flush += 1;
        self.flush
    }

    /// It has. What came before the flush numbered `began` and has no call by now has none: the client named no call
    /// when it was queued. Once nothing is recorded any more that is all that still waits.
    pub fn flush_ended(&mut self, began: u64, recording: bool) {
        self.look_again();
        let (done, waiting) =
            std::mem::take(&mut self.waiting).into_iter().partition(|r: &Record| !recording || r.flush < began);
        self.waiting = waiting;
        self.give_up(done);
        if !recording {
            (self.calls, self.known) = Default::default();
        }
    }

    fn give_up(&mut self, records: Vec<Record>) {
        for mut record in records {
            if let Some(at) = record.correlation() {
                *at = [0; 4];
            }
            self.ready.push_back(record);
        }
    }

    fn look_again(&mut self) {
        if !std::mem::take(&mut self.news) {
            return;
        }
        for mut record in std::mem::take(&mut self.waiting) {
            match self.resolve(&mut record) {
                true => self.ready.push_back(record),
                false => self.waiting.push(record),
            }
        }
    }

    /// Appends a reply: whether there is more, and records. `devices` are those that the application sees.
    pub fn take(&mut self, devices: &[CUdevice], reply: &mut Vec<u8>) {
        let mut records = Vec::new();
        let more = self.take_some(devices, &mut records);
        ActivityTakeReply { more, records: Rest(&records) }.encode(reply);
    }

    /// Whether there is more.
    fn take_some(&mut self, devices: &[CUdevice], out: &mut Vec<u8>) -> bool {
        self.look_again();
        if self.lost > 0 {
            Activity { kind: orion_wire::activity::LOST, structure: &lost(self.lost), name: &[] }.put(out);
            self.lost = 0;
        }
        while let Some(record) = self.ready.front_mut() {
            if 8 + out.len() + record.wire_bytes() > REPLY_BYTES_MAX {
                return true;
            }
            record.translate(devices);
            Activity { kind: record.kind, structure: &record.structure, name: record.name() }.put(out);
            self.bytes -= record.bytes();
            self.ready.pop_front();
        }
        if self.waiting.is_empty() {
            // A long recording's memory goes with it.
            (self.ready, self.names, self.bytes) = Default::default();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orion_wire::Reader;
    use orion_wire::activity::{LOST, lost_count};

    fn kernel(correlation: u32) -> Vec<u8> {
        let mut k = vec![0xff; size_of::<CUpti_ActivityKernel10>()];
        k[..4].copy_from_slice(&CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL.to_le_bytes());
        k[92..96].copy_from_slice(&correlation.to_le_bytes());
        k
    }

    /// Everything that is to be had: kinds, numbers and names.
    fn drain(store: &mut Store) -> Vec<(u32, u32, Vec<u8>)> {
        let mut all = Vec::new();
        loop {
            let mut reply = Vec::new();
            store.take(&[0], &mut reply);
            assert!(reply.len() <= REPLY_BYTES_MAX && reply.len().is_multiple_of(8));
            let ActivityTakeReply { more, records } = ActivityTakeReply::decode(&mut Reader::new(&reply)).unwrap();
            let mut r = Reader::new(records.0);
            while !r.is_empty() {
                let a = Activity::get(&mut r).unwrap();
                let number = match a.kind {
                    LOST => lost_count(a.structure).unwrap() as u32,
                    _ => u32::from_le_bytes(a.structure[92..96].try_into().unwrap()),
                };
                all.push((a.kind, number, a.name.to_vec()));
            }
            if !more {
                return all;
            }
        }
    }

    const KERNEL: u32 = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;

    #[test]
    fn records_get_the_client_s_number_in_whatever_order_they_come() {
        let mut store = Store::default();
        store.call(7, 70);
        store.record(&kernel(7), b"before");
        store.record(&kernel(8), b"after");
        // A graph's nodes share their launch's call.
        store.record(&kernel(7), b"before");
        assert_eq!(
            drain(&mut store),
            [(KERNEL, 70, b"before".to_vec()), (KERNEL, 70, b"before".to_vec())],
            "the other waits for its call"
        );
        store.call(8, 80);
        assert_eq!(drain(&mut store), [(KERNEL, 80, b"after".to_vec())]);
        store.record(&kernel(8), b"late");
        assert_eq!(drain(&mut store), [(KERNEL, 80, b"late".to_vec())]);
    }

    #[test]
    fn what_no_call_explains_comes_with_the_flush_after_it() {
        let mut store = Store::default();
        let first = store.flush_begins();
        store.record(&kernel(5), b"k");
        store.flush_ended(first, true);
        assert_eq!(drain(&mut store), [], "its call may be on the way");
        let second = store.flush_begins();
        store.flush_ended(second, true);
        assert_eq!(drain(&mut store), [(KERNEL, 0, b"k".to_vec())]);
        // With the profiler off nothing more is on the way.
        let third = store.flush_begins();
        store.record(&kernel(6), b"k");
        store.flush_ended(third, false);
        assert_eq!(drain(&mut store), [(KERNEL, 0, b"k".to_vec())]);
    }

    #[test]
    fn pointers_do_not_cross() {
        let mut store = Store::default();
        store.call(1, 1);
        store.record(&kernel(1), b"k");
        let mut reply = Vec::new();
        store.take(&[0], &mut reply);
        let mut r = Reader::new(&reply[8..]);
        let k = Activity::get(&mut r).unwrap().structure;
        for at in [104, 112, 160] {
            assert_eq!(k[at..at + 8], [0; 8]);
        }
        assert_eq!(k[168..172], [0xff; 4]);
    }

    #[test]
    fn devices_get_the_application_s_ordinals() {
        let mut store = Store::default();
        let mut copy = vec![0; size_of::<CUpti_ActivityMemcpyPtoP4>()];
        copy[0] = CUPTI_ACTIVITY_KIND_MEMCPY2 as u8;
        (copy[32], copy[44], copy[52]) = (3, 1, 7);
        store.record(&copy, b"");
        store.call(0, 1);
        let mut reply = Vec::new();
        store.take(&[1, 2, 3], &mut reply);
        let copy = Activity::get(&mut Reader::new(&reply[8..])).unwrap().structure;
        assert_eq!([copy[32], copy[44], copy[52]], [2, 0, 7]);
    }

    #[test]
    fn other_kinds_and_odd_sizes_are_no_records() {
        let mut store = Store::default();
        let mut call = vec![0; size_of::<CUpti_ActivityAPI>()];
        call[0] = CUPTI_ACTIVITY_KIND_DRIVER as u8;
        store.record(&call, b"");
        store.record(&kernel(1)[..200], b"");
        store.record(&[], b"");
        let flush = store.flush_begins();
        store.flush_ended(flush, false);
        assert_eq!(drain(&mut store), []);
    }

    #[test]
    fn what_has_no_room_is_counted() {
        let mut store = Store::default();
        store.lose(3);
        assert_eq!(drain(&mut store), [(LOST, 3, vec![])]);
        assert_eq!(drain(&mut store), [], "said once");
        store.call(1, 10);
        let one = kernel(1);
        let fit = (BYTES_MAX - 2) / (size_of::<Record>() + one.len());
        for _ in 0..fit + 5 {
            store.record(&one, b"k");
        }
        assert!(store.bytes <= BYTES_MAX);
        let all = drain(&mut store);
        assert_eq!(all[0], (LOST, 5, vec![]));
        assert_eq!(all.len(), fit + 1);
        assert_eq!((store.bytes, store.names.len()), (0, 0));
    }

    #[test]
    fn a_long_name_fits_a_reply_and_old_calls_are_forgotten() {
        let mut store = Store::default();
        for call in 0..CALLS_MAX as u32 + 2 {
            store.call(call, 1);
        }
        assert_eq!((store.calls.len(), store.known.len()), (CALLS_MAX, CALLS_MAX));
        assert!(!store.calls.contains_key(&1));
        store.record(&kernel(2), &vec![b'n'; 1 << 20]);
        assert_eq!(drain(&mut store)[0].2.len(), NAME_BYTES_MAX);
        let flush = store.flush_begins();
        store.flush_ended(flush, false);
        assert_eq!(store.calls.len(), 0);
    }
}
