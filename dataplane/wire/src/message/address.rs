//! Addresses and ranges that a client names, and that nobody has decided on yet.
//!
//! To the driver every address of the worker's process is one that it may be given, so none of these gives its number
//! to whoever has a message in hands. `unjudged` does, which the worker calls where it decides and nowhere else
//! (`worker/session/reach.rs`; a test looks for the name in all other files).

use crate::codec::{Fault, Reader, Writer};
use crate::message::field::Field;
use crate::message::layout::Shape;
use crate::record::HeapRange;

macro_rules! addresses {
    ($($(#[$doc:meta])* $name:ident: $shape:ident;)*) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $name(u64);

        impl $name {
            #[inline]
            pub const fn new(address: u64) -> $name {
                $name(address)
            }

            #[inline]
            pub const fn is_null(self) -> bool {
                self.0 == 0
            }

            /// The number, for the one place that decides what it may be.
            #[inline]
            pub const fn unjudged(self) -> u64 {
                self.0
            }
        }

        impl<'a> Field<'a> for $name {
            const SHAPE: Shape = Shape::$shape;

            #[inline]
            fn put(&self, w: &mut impl Writer) {
                w.word(self.0);
            }

            #[inline]
            fn get(r: &mut Reader<'a>) -> Result<Self, Fault> {
                Ok($name(r.word()?))
            }
        }
    )* };
}

addresses! {
    /// Called the device's. Memory that both sides share may be called so, too.
    ClaimedDevice: DeviceAddress;
    /// Called that of memory which both sides share, at the same address.
    ClaimedHost: HostAddress;
    /// Where the client wants something mapped that is not there yet.
    ClaimedPlace: Place;
}

/// A range of the heap that the client has named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClaimedRange(HeapRange);

impl ClaimedRange {
    /// If it lies inside a heap of `heap_bytes`.
    pub fn check(self, heap_bytes: u64) -> Result<HeapRange, Fault> {
        self.0.check(heap_bytes)
    }
}

impl From<HeapRange> for ClaimedRange {
    fn from(range: HeapRange) -> ClaimedRange {
        ClaimedRange(range)
    }
}

impl<'a> Field<'a> for ClaimedRange {
    const SHAPE: Shape = Shape::Range;

    #[inline]
    fn put(&self, w: &mut impl Writer) {
        self.0.put(w);
    }

    #[inline]
    fn get(r: &mut Reader<'a>) -> Result<Self, Fault> {
        Ok(ClaimedRange(HeapRange::get(r)?))
    }
}
