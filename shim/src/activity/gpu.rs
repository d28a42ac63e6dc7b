//! What the worker's profiler recorded.

// UNSAFETY: changes CUPTI's structures in place.

use std::collections::HashSet;
use std::ffi::{CStr, CString};

use orion_cuda::cupti::*;
use orion_cuda::sys::*;
use orion_wire::activity::{Activity, COPIES, GRAPH, GRAPH_EXEC, KERNELS, LOST, SETS, lost_count};
use orion_wire::message::activity::{ActivityClock, ActivityClockReply, ActivityEnable, ActivityEnableReply};
use orion_wire::message::activity::{ActivityGraphId, ActivityGraphIdReply, ActivityRefused, ActivityTake};
use orion_wire::message::activity::{ActivityTakeReply, GraphObject};
use orion_wire::message::field::{Existing, Rest};
use orion_wire::{Fault, Reader};

use crate::activity::clock::{Clock, Sample};
use crate::activity::time::now;
use crate::session::attached::session;
use crate::session::call::{call, call_any};
use crate::state::process::state;
use crate::state::recording::GPU;

/// Round trips for one anchor: the shortest is not disturbed by anything else.
const SAMPLES: usize = 8;

pub struct Gpu {
    /// CUPTI's kinds that the application has enabled, as bits.
    kinds: u64,
    /// The worker has recorded something since it was last found empty.
    recording: bool,
    clock: Clock,
    /// What records name has to stay where it is.
    names: HashSet<&'static CStr>,
}

/// The worker's word for a kind, if it is one of the GPU's.
pub fn mask(kind: u32) -> Option<u64> {
    Some(match kind {
        CUPTI_ACTIVITY_KIND_KERNEL | CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL => KERNELS,
        CUPTI_ACTIVITY_KIND_MEMCPY | CUPTI_ACTIVITY_KIND_MEMCPY2 => COPIES,
        CUPTI_ACTIVITY_KIND_MEMSET => SETS,
        _ => return None,
    })
}

/// The number that records have for a graph, an executable graph or a node.
pub fn graph_id(what: u64, handle: u64) -> Result<u64, CUresult> {
    let object = match what {
        GRAPH => GraphObject::Graph(Existing(handle)),
        GRAPH_EXEC => GraphObject::Exec(Existing(handle)),
        _ => GraphObject::Node(Existing(handle)),
    };
    let q = ActivityGraphId { object };
    Ok(call(ActivityGraphId::OP, |w| q.encode(w), ActivityGraphIdReply::decode)?.id)
}

/// Records in the application's time, how many the worker had no room for, and whether that was everything.
pub struct Taken {
    pub records: Vec<u64>,
    pub lost: u64,
    pub result: Result<(), CUresult>,
}

impl Gpu {
    pub fn new() -> Gpu {
        Gpu { kinds: 0, recording: false, clock: Clock::new(), names: HashSet::new() }
    }

    fn mask(&self) -> u64 {
        (0..64).filter(|kind| self.kinds >> kind & 1 != 0).filter_map(mask).fold(0, |all, one| all | one)
    }

    /// Without a session it is remembered until there is one.
    pub fn choose(&mut self, kind: u32, value: bool) -> CUptiResult {
        let before = (self.kinds, self.mask());
        if value {
            self.kinds |= 1 << kind;
        } else {
            self.kinds &= !(1 << kind);
        }
        if self.mask() == before.1 {
            return CUPTI_SUCCESS;
        }
        if session().is_err() {
            state().recording.set(GPU, self.mask() != 0);
            return CUPTI_SUCCESS;
        }
        match self.tell_one() {
            Ok(()) => CUPTI_SUCCESS,
            Err(CUDA_ERROR_NOT_SUPPORTED) => {
                self.kinds = before.0;
                CUPTI_ERROR_NOT_SUPPORTED
            }
            Err(_) => CUPTI_ERROR_UNKNOWN,
        }
    }

    /// What was enabled before there was a session.
    pub fn session_started(&mut self) {
        // The reason has been said; what is not recorded can be given up without another word.
        if state().recording.wants(GPU) && self.tell_one().is_err() {
            self.kinds = 0;
        }
    }

    /// What GPUs of several nodes do is not recorded: their times are those of several clocks.
    fn tell_one(&mut self) -> Result<(), CUresult> {
        if state().attachment.several() && self.mask() != 0 {
            crate::say!(
                "kernels and copies are not recorded for a profiler where vGPUs lie on several nodes; calls are"
            );
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        self.tell()
    }

    /// Tells the worker what to record.
    fn tell(&mut self) -> Result<(), CUresult> {
        let mask = self.mask();
        let told = call_any(
            ActivityEnable::OP,
            |w| ActivityEnable { kinds: mask }.encode(w),
            |result, r| match result {
                CUDA_SUCCESS => ActivityEnableReply::decode(r).map(|_| Ok(())),
                CUDA_ERROR_NOT_SUPPORTED => {
                    match ActivityRefused::decode(r) {
                        Ok(q) => say_why(&String::from_utf8_lossy(q.why.get())),
                        Err(_) => say_why("it does not say why"),
                    }
                    Ok(Err(result))
                }
                _ => Ok(Err(result)),
            },
        )
        .and_then(|told| told);
        state().recording.set(GPU, mask != 0 && told.is_ok());
        told?;
        if mask != 0 {
            self.recording = true;
            self.anchor();
        }
        Ok(())
    }

    /// The application's clock is another one.
    pub fn clock_changed(&mut self) {
        self.clock = Clock::new();
        if self.recording {
            self.anchor();
        }
    }

    fn anchor(&mut self) {
        let mut samples = [Sample { before: 0, worker: 0, after: u64::MAX }; SAMPLES];
        for sample in &mut samples {
            let before = now();
            let asked = call(ActivityClock::OP, |w| ActivityClock {}.encode(w), ActivityClockReply::decode);
            match asked.map(|q| q.clock) {
                Ok(worker) => *sample = Sample { before, worker, after: now() },
                Err(_) => return,
            }
        }
        self.clock.anchor(&samples);
    }

    /// What was recorded since the last time. With `all` the worker's profiler is asked
    /// to hand over what it has not yet.
    pub fn take(&mut self, all: bool) -> Taken {
        let mut records = Vec::new();
        if !self.recording {
            return Taken { records, lost: 0, result: Ok(()) };
        }
        let (mut first, mut lost) = (all, 0u64);
        let result = loop {
            let reply = call(
                ActivityTake::OP,
                |w| ActivityTake { flush: first }.encode(w),
                |r| {
                    let ActivityTakeReply { more, records: Rest(taken) } = ActivityTakeReply::decode(r)?;
                    let (mut r, mut any) = (Reader::new(taken), false);
                    while !r.is_empty() {
                        any = true;
                        match Activity::get(&mut r)? {
                            Activity { kind: LOST, structure, .. } => {
                                lost = lost.saturating_add(lost_count(structure)?);
                            }
                            activity => self.keep(&activity, &mut records)?,
                        }
                    }
                    Ok(more && any)
                },
            );
            first = false;
            match reply {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(code) => break Err(code),
            }
        };
        // Behind everything that was taken, so that all of it lies between two anchors.
        if all || !records.is_empty() {
            self.anchor();
        }
        self.translate(&mut records);
        if all && result.is_ok() && self.kinds == 0 {
            self.recording = false;
        }
        Taken { records, lost, result }
    }

    fn keep(&mut self, activity: &Activity<'_>, records: &mut Vec<u64>) -> Result<(), Fault> {
        if mask(activity.kind).is_none() || record_size(activity.kind) != Some(activity.structure.len()) {
            return Err(Fault("activity of a kind or size that is none"));
        }
        let at = records.len();
        records.extend(activity.structure.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().expect("eight"))));
        if let CUPTI_ACTIVITY_KIND_KERNEL | CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL = activity.kind {
            let name = match activity.name {
                [] => std::ptr::null(),
                name => self.name(name).as_ptr(),
            };
            let serial = self.kinds & 1 << CUPTI_ACTIVITY_KIND_KERNEL != 0;
            // SAFETY: as many words as the structure has, and aligned like it.
            let kernel = unsafe { &mut *records[at..].as_mut_ptr().cast::<CUpti_ActivityKernel10>() };
            kernel.name = name;
            kernel.kind = if serial { CUPTI_ACTIVITY_KIND_KERNEL } else { CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL };
        }
        Ok(())
    }

    fn name(&mut self, name: &[u8]) -> &'static CStr {
        let name = CString::new(name).expect("the wire's names have no zero byte");
        if let Some(known) = self.names.get(name.as_c_str()) {
            return known;
        }
        let kept: &'static CStr = Box::leak(name.into_boxed_c_str());
        self.names.insert(kept);
        kept
    }

    fn translate(&self, mut records: &mut [u64]) {
        while let Some(first) = records.first() {
            let kind = *first as u32;
            let size = record_size(kind).expect("checked when it was kept");
            let (record, rest) = records.split_at_mut(size / 8);
            let at = record.as_mut_ptr();
            // As many words as the structure has, and aligned like it.
            // SAFETY: only addresses of fields are taken.
            let times = unsafe {
                let (copy, peer) = (at.cast::<CUpti_ActivityMemcpy6>(), at.cast::<CUpti_ActivityMemcpyPtoP4>());
                let (set, kernel) = (at.cast::<CUpti_ActivityMemset4>(), at.cast::<CUpti_ActivityKernel10>());
                match kind {
                    CUPTI_ACTIVITY_KIND_MEMCPY => vec![&raw mut (*copy).start, &raw mut (*copy).end],
                    CUPTI_ACTIVITY_KIND_MEMCPY2 => vec![&raw mut (*peer).start, &raw mut (*peer).end],
                    CUPTI_ACTIVITY_KIND_MEMSET => vec![&raw mut (*set).start, &raw mut (*set).end],
                    _ => vec![
                        &raw mut (*kernel).start,
                        &raw mut (*kernel).end,
                        &raw mut (*kernel).completed,
                        &raw mut (*kernel).queued,
                        &raw mut (*kernel).submitted,
                    ],
                }
            };
            for time in times {
                // SAFETY: fields of the structure.
                unsafe { time.write(self.clock.application(time.read())) };
            }
            records = rest;
        }
    }
}

fn say_why(why: &str) {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let text = format!("the GPU's activities cannot be recorded: {why}");
        crate::say!("{text}");
        crate::report::log::error("cuptiActivityEnable", &text);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::clock::Sample;

    #[test]
    fn records_are_kept_with_their_names_and_moved_in_time() {
        let mut gpu = Gpu::new();
        let mut words = [0u64; 27];
        words[0] = 10;
        // start, end
        (words[2], words[3]) = (1_000, 2_000);
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let mut records = Vec::new();
        for _ in 0..2 {
            gpu.keep(&Activity { kind: 10, structure: &bytes, name: b"_Z3addPf" }, &mut records).unwrap();
        }
        gpu.keep(&Activity { kind: 2, structure: &[&[2u8][..], &[0; 87]].concat(), name: b"" }, &mut records).unwrap();
        gpu.clock.anchor(&[Sample { before: 10_000, worker: 500, after: 10_000 }]);
        gpu.translate(&mut records);
        let kernels = records.as_ptr().cast::<CUpti_ActivityKernel10>();
        // SAFETY: two of them are there.
        let (one, two) = unsafe { (*kernels, *kernels.add(1)) };
        assert_eq!((one.kind, one.start, one.end, one.queued), (10, 10_500, 11_500, 0));
        assert_eq!(one.name, two.name);
        // SAFETY: a name that was kept.
        assert_eq!(unsafe { CStr::from_ptr(one.name) }, c"_Z3addPf");
        assert_eq!(records[54], 2);
    }

    #[test]
    fn another_size_is_a_fault() {
        let mut gpu = Gpu::new();
        for (kind, size) in [(10u32, 208), (1, 88), (2, 96), (4, 40), (40, 8)] {
            let mut bytes = vec![0; size];
            bytes[..4].copy_from_slice(&kind.to_le_bytes());
            let mut records = Vec::new();
            assert!(gpu.keep(&Activity { kind, structure: &bytes, name: b"" }, &mut records).is_err());
        }
    }
}
