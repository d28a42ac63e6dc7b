//! The axes, and which of their combinations CUDA has.

/// How bytes come to host memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// `cuMemcpyDtoHAsync` of so many bytes.
    Copy(usize),
    /// `cuMemcpyAsync`, which finds the direction out by the addresses.
    AnyCopy(usize),
    /// So many rows, with a gap behind each.
    Copy2D {
        width: usize,
        rows: usize,
    },
    Copy3D,
    FromArray,
    Batch,
    Batch3D,
    /// A graph's copy node.
    GraphCopy(usize),
    /// A kernel writes to mapped memory.
    Kernel,
    /// A stream writes a value.
    StreamWrite,
    Memset,
}

/// How a completion is seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    StreamSynchronize,
    ContextSynchronize,
    EventSynchronize,
    StreamQuery,
    EventQuery,
    HostFunction,
    /// A function on another stream, which waits for an event.
    HostFunctionElsewhere,
    /// A function in a graph; of a graph's copy, in the same graph.
    HostFunctionInGraph,
    StreamCallback,
    /// Another thread waits for the stream.
    OtherThread,
    /// Another thread asks an event again and again.
    OtherThreadAsks,
    /// The stream writes a flag behind it, and the host looks at that.
    Flag,
    /// The end of a call that waits: the copy itself, or a copy of something else behind it.
    BlockingCall,
    /// The end of `cuMemFree`, `cuMemFreeHost` or `cuArrayDestroy`, of what has nothing to do with it: they wait for
    /// the device.
    Freed,
    /// By the bytes themselves: the host makes no call until all of them are there.
    Bytes,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Memory {
    Pinned,
    Portable,
    Mapped,
    Registered,
    Pageable,
    /// Allocated anew, at an address that was used before.
    Anew,
    Managed,
}

/// What the host does with the memory once it has seen the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    Nothing,
    /// Writes to it and copies it to the device: the memory was destination, is source, and becomes destination again.
    Reuse,
    /// As above, and the copy to the device is queued before the bytes are there: no host write in between.
    Chain,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell {
    pub way: Way,
    pub seen: Seen,
    pub memory: Memory,
    pub then: Then,
}

const WAYS: [Way; 24] = [
    Way::Copy(1),
    Way::Copy(2),
    Way::Copy(3),
    Way::Copy(4),
    Way::Copy(5),
    Way::Copy(6),
    Way::Copy(7),
    Way::Copy(8),
    Way::Copy(100),
    Way::Copy(4 << 10),
    Way::Copy(64 << 10),
    Way::Copy((64 << 10) + 4),
    Way::Copy((3 << 20) + 12),
    Way::AnyCopy(4),
    Way::Copy2D { width: 24, rows: 5 },
    Way::Copy2D { width: 1000, rows: 300 },
    Way::Copy3D,
    Way::FromArray,
    Way::Batch,
    Way::Batch3D,
    Way::GraphCopy(8),
    Way::Kernel,
    Way::StreamWrite,
    Way::Memset,
];

const SEEN: [Seen; 15] = [
    Seen::StreamSynchronize,
    Seen::ContextSynchronize,
    Seen::EventSynchronize,
    Seen::StreamQuery,
    Seen::EventQuery,
    Seen::HostFunction,
    Seen::HostFunctionElsewhere,
    Seen::HostFunctionInGraph,
    Seen::StreamCallback,
    Seen::OtherThread,
    Seen::OtherThreadAsks,
    Seen::Flag,
    Seen::BlockingCall,
    Seen::Freed,
    Seen::Bytes,
];

pub const MEMORY: [Memory; 7] = [
    Memory::Pinned,
    Memory::Portable,
    Memory::Mapped,
    Memory::Registered,
    Memory::Pageable,
    Memory::Anew,
    Memory::Managed,
];

const THEN: [Then; 3] = [Then::Nothing, Then::Reuse, Then::Chain];

impl Cell {
    pub fn name(&self) -> String {
        let Cell { way, seen, memory, then } = self;
        format!("{way:?}/{seen:?}/{memory:?}/{then:?}").replace(' ', "")
    }

    /// Whether the name contains one of these, or there are none. `a+b` wants both.
    pub fn matches(&self, texts: &[String]) -> bool {
        let name = self.name();
        texts.is_empty() || texts.iter().any(|text| text.split('+').all(|part| name.contains(part)))
    }

    /// Whether a round takes a hundred times as long as most: by its bytes, or by what it allocates.
    pub fn is_long(&self) -> bool {
        let is_large = match self.way {
            Way::Copy(bytes) | Way::AnyCopy(bytes) => bytes > 8 << 10,
            Way::Copy2D { rows, .. } => rows > 100,
            _ => false,
        };
        is_large || self.memory == Memory::Anew
    }

    /// Why CUDA has no such thing.
    fn impossible(&self) -> Option<&'static str> {
        let in_place = matches!(self.way, Way::Kernel | Way::StreamWrite | Way::Memset);
        if self.memory == Memory::Pageable && in_place {
            return Some("the device reaches registered memory only");
        }
        if self.memory == Memory::Managed && self.seen == Seen::Bytes {
            return Some("the host stays away from managed memory until it has learnt of a completion");
        }
        // A copy from pageable memory reads it when it is queued.
        if self.memory == Memory::Pageable && self.then == Then::Chain {
            return Some("a copy from pageable memory may read it before earlier work has run");
        }
        if self.seen == Seen::BlockingCall && self.then == Then::Chain {
            return Some("what ends when the call does leaves nothing to queue behind");
        }
        if matches!(self.way, Way::Batch | Way::Batch3D) && self.seen == Seen::BlockingCall {
            return Some("batches refuse the default streams, which calls that wait use");
        }
        None
    }
}

/// Every cell, and those that CUDA does not have.
pub fn cells() -> (Vec<Cell>, Vec<(String, &'static str)>) {
    let (mut cells, mut left_out) = (Vec::new(), Vec::new());
    for way in WAYS {
        for seen in SEEN {
            for memory in MEMORY {
                for then in THEN {
                    let cell = Cell { way, seen, memory, then };
                    match cell.impossible() {
                        None => cells.push(cell),
                        Some(why) => left_out.push((cell.name(), why)),
                    }
                }
            }
        }
    }
    (cells, left_out)
}
