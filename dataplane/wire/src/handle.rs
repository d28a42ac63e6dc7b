//! Handles are the session's own ids, never driver pointers.
//!
//! ```text
//! 63      48 47 46   40 39      24 23           0
//! |   0     | 1 | kind  | generation |   index    |
//! ```
//! Bit 47 makes a handle a non-canonical address on x86-64: a program that dereferences one stops there
//! instead of reading something else. The client chooses the index (so creating an object need not be
//! awaited); the worker refuses one that is in use.

/// What a handle names. The numbers are part of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    Context = 1,
    Module = 2,
    Library = 3,
    /// A `CUfunction` or a `CUkernel`: userland passes either where the other is expected.
    Function = 4,
    Stream = 5,
    Event = 6,
    Array = 7,
    MipmappedArray = 8,
    Graph = 9,
    GraphNode = 10,
    GraphExec = 11,
    MemPool = 12,
    /// A `CUmemGenericAllocationHandle`.
    MemAllocation = 13,
    LinkState = 14,
    GreenContext = 15,
    UserObject = 16,
    TexRef = 17,
    SurfRef = 18,
    ExternalMemory = 19,
    ExternalSemaphore = 20,
    DevResourceDesc = 21,
    AsyncCallback = 22,
    LogCallback = 23,
}

pub const KIND_MAX: u8 = 23;
pub const INDEX_BITS: u32 = 24;
pub const INDEX_MAX: u32 = (1 << INDEX_BITS) - 1;

/// A handle as the application holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle(pub u64);

impl Handle {
    pub const fn new(kind: Kind, generation: u16, index: u32) -> Handle {
        Handle(1 << 47 | (kind as u64) << 40 | (generation as u64) << INDEX_BITS | (index & INDEX_MAX) as u64)
    }

    /// The primary context of device `ordinal`: the same handle for the whole session.
    pub const fn primary_context(ordinal: u32) -> Handle {
        Handle::new(Kind::Context, 0, ordinal)
    }

    pub const fn index(self) -> u32 {
        self.0 as u32 & INDEX_MAX
    }

    pub const fn generation(self) -> u16 {
        (self.0 >> INDEX_BITS) as u16
    }

    /// Whether this is a well-formed handle of `kind`; says nothing about whether it is alive.
    pub const fn is(self, kind: Kind) -> bool {
        self.0 >> 40 == 1 << 7 | kind as u64
    }
}

/// Context handles below this index are primary contexts, by device ordinal.
pub const PRIMARY_CONTEXTS_MAX: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back() {
        let h = Handle::new(Kind::Event, 0xbeef, 0x123456);
        assert!(h.is(Kind::Event) && !h.is(Kind::Stream));
        assert_eq!((h.index(), h.generation()), (0x123456, 0xbeef));
        assert_eq!(h.0 >> 47, 1);
    }

    #[test]
    fn small_integers_and_pointers_are_no_handles() {
        for v in [0, 1, 2, 0x7f00_0000_1000, u64::MAX] {
            assert!(!Handle(v).is(Kind::Stream));
        }
    }
}
