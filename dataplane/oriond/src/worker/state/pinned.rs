//! Host memory that the driver knows, and what of it the client has freed.

use std::collections::BTreeMap;

use orion_wire::pages::SharedMemory;
use orion_wire::record::HeapRange;

use crate::worker::state::fence::Fence;
use crate::worker::state::graphs::Unused;

/// What is mapped at an address of the application's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alias {
    pub bytes: u64,
    pub of: SharedMemory,
}

impl Alias {
    pub fn of_heap(range: HeapRange) -> Alias {
        Alias { bytes: range.bytes, of: SharedMemory::Heap(range) }
    }

    pub fn of_file(bytes: u64) -> Alias {
        Alias { bytes, of: SharedMemory::File }
    }
}

/// Registered ranges of one session, and so mappings that a client can make here.
const ALIASES_MAX: usize = 16 << 10;

#[derive(Default)]
pub struct Pinned {
    /// What is mapped at the application's own addresses, by address.
    aliases: BTreeMap<u64, Alias>,
    /// The bytes of all of them.
    alias_bytes: u64,
    /// Pinned memory that the client has freed, and where it is registered if it is so on its own.
    pub freed: Vec<(HeapRange, usize)>,
    /// Parts of registered blocks among them that come free with the work that was queued at some time, although the
    /// device may never be idle.
    pub fenced: Option<(Fence, Vec<HeapRange>, Vec<Unused>)>,
}

impl Pinned {
    /// Whether so much may be mapped besides, in a session with such a heap: all of it takes up memory, files too.
    pub fn takes(&self, bytes: u64, heap_bytes: u64) -> bool {
        self.aliases.len() < ALIASES_MAX && self.alias_bytes.saturating_add(bytes) <= heap_bytes
    }

    /// Notes what was mapped where nothing was.
    pub fn mapped(&mut self, address: u64, alias: Alias) {
        self.alias_bytes += alias.bytes;
        self.alias_bytes -= self.aliases.insert(address, alias).map_or(0, |before| before.bytes);
    }

    /// Forgets what is mapped at an address.
    pub fn take(&mut self, address: u64) -> Option<Alias> {
        let alias = self.aliases.remove(&address)?;
        self.alias_bytes -= alias.bytes;
        Some(alias)
    }

    /// What is mapped at all of a range, if one alias has it.
    pub fn at(&self, address: u64, bytes: u64) -> Option<SharedMemory> {
        let (base, alias) = self.aliases.range(..=address).next_back()?;
        let inside = address - base;
        let is_whole = inside.checked_add(bytes)? <= alias.bytes;
        is_whole.then(|| match alias.of {
            SharedMemory::Heap(range) => SharedMemory::Heap(HeapRange { offset: range.offset + inside, bytes }),
            SharedMemory::File => SharedMemory::File,
        })
    }

    pub fn fence(&mut self) -> Option<&mut Fence> {
        self.fenced.as_mut().map(|(fence, ..)| fence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alias_covers_what_lies_in_it_alone() {
        let mut pinned = Pinned::default();
        pinned.mapped(0x10000, Alias::of_heap(HeapRange { offset: 0x4000, bytes: 0x2000 }));
        pinned.mapped(0x12000, Alias::of_file(0x1000));
        assert_eq!(pinned.at(0x11000, 0x1000), Some(SharedMemory::Heap(HeapRange { offset: 0x5000, bytes: 0x1000 })));
        assert_eq!(pinned.at(0x12800, 0x800), Some(SharedMemory::File));
        let outside = [(0xfff, 1), (0x11000, 0x1001), (0x12800, 0x801), (0x13000, 1), (0x12000, u64::MAX)];
        outside.iter().for_each(|(at, bytes)| assert_eq!(pinned.at(*at, *bytes), None, "{bytes} at {at:#x}"));
        assert!(pinned.takes(0x1000, 0x4000) && !pinned.takes(0x1001, 0x4000) && !pinned.takes(u64::MAX, 0x4000));
        assert_eq!((pinned.take(0x11000), pinned.take(0x12000)), (None, Some(Alias::of_file(0x1000))));
        assert!(pinned.takes(0x2000, 0x4000) && !pinned.takes(0x2001, 0x4000));
    }
}
