//! What a profiler recorded about the GPU, on its way to the application.
//!
//! A record is one of CUPTI's structures as CUDA 13.0 lays it out (`orion_cuda::cupti`), whatever profiler wrote it:
//! `| kind | bytes of the structure | name |`. Pointers in it are 0, and what `name` would point to stands beside it.
//! Its `correlationId` is the one that the client named before the command
//! ([`crate::record::op::ACTIVITY_CORRELATION`]), 0 if it named none. Devices have the application's ordinals. Times
//! are of the worker's clock.

use crate::codec::{Fault, Reader, Writer};

/// Kinds of activity that a client can ask for, as bits.
pub const KERNELS: u64 = 1;
pub const COPIES: u64 = 2;
pub const SETS: u64 = 4;

/// What an `ACTIVITY_GRAPH_ID` asks about.
pub const GRAPH: u64 = 0;
pub const GRAPH_EXEC: u64 = 1;
pub const GRAPH_NODE: u64 = 2;

/// The kind of a record that is no activity (`CUPTI_ACTIVITY_KIND_INVALID`): how many records were lost since the last
/// such one, for want of room. Its structure: see [`lost`].
pub const LOST: u32 = 0;

/// `| kind u32 | 0 u32 | count u64 |`
pub fn lost(count: u64) -> [u8; 16] {
    let mut structure = [0; 16];
    structure[8..].copy_from_slice(&count.to_le_bytes());
    structure
}

/// The count of a record of kind [`LOST`].
pub fn lost_count(structure: &[u8]) -> Result<u64, Fault> {
    match structure.split_first_chunk::<8>() {
        Some(([0, 0, 0, 0, 0, 0, 0, 0], count)) => {
            count.try_into().map(u64::from_le_bytes).map_err(|_| Fault("count of lost activities of the wrong length"))
        }
        _ => Err(Fault("count of lost activities with an odd beginning")),
    }
}

/// One record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Activity<'a> {
    /// `CUpti_ActivityKind`.
    pub kind: u32,
    /// The structure. Its first word is `kind`.
    pub structure: &'a [u8],
    /// Kernels: the mangled name. Others: nothing.
    pub name: &'a [u8],
}

impl<'a> Activity<'a> {
    pub fn put(&self, w: &mut impl Writer) {
        w.word(self.kind.into());
        w.bytes(self.structure);
        w.bytes(self.name);
    }

    pub fn get(r: &mut Reader<'a>) -> Result<Activity<'a>, Fault> {
        let kind = u32::try_from(r.word()?).map_err(|_| Fault("activity kind out of range"))?;
        let activity = Activity { kind, structure: r.bytes()?, name: r.bytes()? };
        if activity.structure.first_chunk().copied().map(u32::from_le_bytes) != Some(kind) {
            return Err(Fault("activity of another kind than it says"));
        }
        if activity.name.contains(&0) {
            return Err(Fault("activity name with a zero byte"));
        }
        Ok(activity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back() {
        let kernel = Activity { kind: 10, structure: &[10, 0, 0, 0, 1, 2, 3, 4], name: b"_Z3addPf" };
        let set = Activity { kind: 2, structure: &[2, 0, 0, 0], name: b"" };
        let mut w = Vec::new();
        kernel.put(&mut w);
        set.put(&mut w);
        let mut r = Reader::new(&w);
        assert_eq!(Activity::get(&mut r), Ok(kernel));
        assert_eq!(Activity::get(&mut r), Ok(set));
        assert_eq!(r.finish(), Ok(()));
    }

    #[test]
    fn counts_of_lost_records_come_back() {
        let mut w = Vec::new();
        Activity { kind: LOST, structure: &lost(u64::MAX - 1), name: b"" }.put(&mut w);
        let activity = Activity::get(&mut Reader::new(&w)).expect("an activity");
        assert_eq!((activity.kind, lost_count(activity.structure)), (LOST, Ok(u64::MAX - 1)));
        assert!(lost_count(&[0; 12]).is_err() && lost_count(&[0; 24]).is_err() && lost_count(&[1; 16]).is_err());
    }

    #[test]
    fn what_contradicts_itself_is_a_fault() {
        for (kind, structure, name) in
            [(10, &[2u8, 0, 0, 0][..], &b"n"[..]), (2, &[2, 0, 0], b""), (10, &[10, 0, 0, 0], b"a\0b")]
        {
            let mut w = Vec::new();
            Activity { kind, structure, name }.put(&mut w);
            assert!(Activity::get(&mut Reader::new(&w)).is_err());
        }
    }
}
