//! Handles are the session's own ids, never driver pointers.
//!
//! ```text
//! 63      48 47 46  42 41      28 27   26 25      4 3   0
//! |   0     | 1 | kind | generation | owner | index |  0  |
//! ```
//! A program may have sessions with several workers: the owner says to the client which of them an object belongs to.
//! To a worker it is a part of the generation.
//!
//! The lowest bits are those of a pointer that `malloc` answers, as the driver's are: programs put marks there. PyTorch
//! takes an odd `CUstream` for the number of one of its own streams (`c10/cuda/CUDAStream.cpp`).
//!
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
const KIND_BITS: u32 = 5;
const GENERATION_BITS: u32 = 14;
const OWNER_BITS: u32 = 2;
const INDEX_BITS: u32 = 22;
const ALIGN_BITS: u32 = 4;
const OWNER_AT: u32 = ALIGN_BITS + INDEX_BITS;
const KIND_AT: u32 = OWNER_AT + OWNER_BITS + GENERATION_BITS;
const _: () = assert!(KIND_AT + KIND_BITS == 47 && KIND_MAX < 1 << KIND_BITS);
pub const INDEX_MAX: u32 = (1 << INDEX_BITS) - 1;
/// As many workers as one client tells apart.
pub const OWNERS_MAX: usize = 1 << OWNER_BITS;
/// Index and owner together.
pub const PLACE_MAX: u32 = (1 << (INDEX_BITS + OWNER_BITS)) - 1;
/// The owner is a part of it.
pub const GENERATION_MAX: u32 = (1 << (GENERATION_BITS + OWNER_BITS)) - 1;

/// A handle as the application holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle(pub u64);

impl Handle {
    /// `generation` has the owner in its lowest bits.
    pub const fn new(kind: Kind, generation: u32, index: u32) -> Handle {
        let generation = (generation & GENERATION_MAX) as u64;
        let index = (index & INDEX_MAX) as u64;
        Handle(1 << 47 | (kind as u64) << KIND_AT | generation << OWNER_AT | index << ALIGN_BITS)
    }

    pub const fn of_owner(kind: Kind, owner: usize, generation: u16, index: u32) -> Handle {
        Handle::new(kind, (generation as u32) << OWNER_BITS | owner as u32, index)
    }

    /// The primary context of device `ordinal`: the same handle for the whole session.
    pub const fn primary_context(ordinal: u32) -> Handle {
        Handle::new(Kind::Context, 0, ordinal)
    }

    pub const fn index(self) -> u32 {
        (self.0 >> ALIGN_BITS) as u32 & INDEX_MAX
    }

    /// With the owner.
    pub const fn generation(self) -> u32 {
        (self.0 >> OWNER_AT) as u32 & GENERATION_MAX
    }

    pub const fn owner(self) -> usize {
        (self.0 >> OWNER_AT) as usize & (OWNERS_MAX - 1)
    }

    /// What tells the objects of one kind apart that are alive: their index and their owner.
    pub const fn place(self) -> u32 {
        (self.0 >> ALIGN_BITS) as u32 & PLACE_MAX
    }

    /// Whether this is a well-formed handle of `kind`; says nothing about whether it is alive.
    pub const fn is(self, kind: Kind) -> bool {
        self.0 >> KIND_AT == 1 << KIND_BITS | kind as u64 && self.0 & ((1 << ALIGN_BITS) - 1) == 0
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
        assert_eq!((h.index(), h.generation(), h.owner()), (0x123456, 0xbeef, 3));
        assert_eq!(h, Handle::of_owner(Kind::Event, 3, 0x2fbb, 0x123456));
        // A generation that is counted on comes round.
        assert_eq!(h, Handle::of_owner(Kind::Event, 3, 0x6fbb, 0x123456));
        assert_eq!(h.place(), 3 << 22 | 0x123456);
        assert_eq!(h.0 >> 47, 1);
    }

    #[test]
    fn handles_have_the_lowest_bits_of_pointers() {
        for (generation, index) in [(0, 1), (GENERATION_MAX, INDEX_MAX), (0x1234, 0x5679)] {
            let handle = Handle::new(Kind::Stream, generation, index);
            assert_eq!(handle.0 % 16, 0, "{:#x}", handle.0);
            assert!((1..16).all(|mark| !Handle(handle.0 | mark).is(Kind::Stream)));
        }
    }

    #[test]
    fn small_integers_and_pointers_are_no_handles() {
        for v in [0, 1, 2, 0x7f00_0000_1000, u64::MAX] {
            assert!(!Handle(v).is(Kind::Stream));
        }
    }
}
