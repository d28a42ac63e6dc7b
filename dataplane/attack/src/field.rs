//! What a message consists of, and which values each kind of part is given: those that are meant, and for each kind
//! a list of those that are not.

// UNSAFETY: fills a C struct of integers and pointers, and reads it as bytes.

use orion_cuda::sys::*;
use orion_wire::handle::{GENERATION_MAX, Handle, INDEX_MAX, Kind};
use orion_wire::message::layout::Shape;
use orion_wire::{Writer, bundle};

use crate::generated::plain_bytes;
use crate::random::Random;

/// One part of a message.
#[derive(Debug, Clone, Copy)]
pub enum Field {
    /// Of the device, or called so.
    Address,
    /// Where something could be mapped: whole pages.
    Place,
    /// Of memory shared with the worker.
    HostAddress,
    /// How much lies there.
    Size,
    /// How many elements the arrays of the message have.
    Count,
    /// A number of so many bits.
    Word(u32),
    /// One of the first few numbers.
    Choice(u64),
    /// Mostly this one.
    Exactly(u64),
    /// A few times 2 MiB.
    Pages,
    Device,
    Handle(Kind),
    /// A name for something that the message creates.
    New(Kind),
    /// Bytes of one value of this size, or of as many as the count says.
    Plain(usize),
    Plains(usize),
    Handles(Kind),
    Text,
    Range,
    /// A count, and so often what follows.
    List(&'static [Field]),
    Image,
    Options,
    /// A `CUDA_MEMCPY3D`.
    Copy,
    MemOp,
    Location,
    /// As the message's declaration says.
    Declared(Shape),
}

/// What a session has and knows, from which values are taken.
pub struct Arsenal {
    pub random: Random,
    pub heap: u64,
    pub heap_bytes: u64,
    pub memory: Vec<u64>,
    pub memory_bytes: u64,
    /// Where a file is mapped, and how much of it; nothing where none can be.
    pub file: (u64, u64),
    /// Where something of the worker's, of another session's or of nobody's lies.
    pub foreign: Vec<u64>,
    /// Those of them that are watched.
    pub prizes: Vec<u64>,
    pub handles: Vec<(Kind, u64)>,
    pub next: u32,
    /// One in so many parts is not what is meant.
    pub malice: u64,
    count: u64,
}

pub const PTX: &[u8] = include_bytes!("../../conformance/ptx/facts.ptx");
const KINDS: [Kind; 21] = [
    Kind::Context,
    Kind::Module,
    Kind::Library,
    Kind::Function,
    Kind::Stream,
    Kind::Event,
    Kind::Array,
    Kind::MipmappedArray,
    Kind::Graph,
    Kind::GraphNode,
    Kind::GraphExec,
    Kind::MemPool,
    Kind::MemAllocation,
    Kind::LinkState,
    Kind::GreenContext,
    Kind::UserObject,
    Kind::TexRef,
    Kind::SurfRef,
    Kind::ExternalMemory,
    Kind::ExternalSemaphore,
    Kind::DevResourceDesc,
];

impl Arsenal {
    pub fn new(seed: u64, heap: u64, heap_bytes: u64) -> Arsenal {
        Arsenal {
            random: Random::new(seed),
            heap,
            heap_bytes,
            memory: Vec::new(),
            memory_bytes: 0,
            file: (0, 0),
            foreign: Vec::new(),
            prizes: Vec::new(),
            handles: Vec::new(),
            next: 100,
            malice: 8,
            count: 0,
        }
    }

    fn is_malicious(&mut self) -> bool {
        self.random.one_in(self.malice)
    }
    /// For what a session usually ends for, and so can do once.
    fn is_fatal(&mut self) -> bool {
        self.random.one_in(self.malice * 60)
    }

    fn foreign(&mut self) -> u64 {
        if !self.prizes.is_empty() && self.random.one_in(2) {
            return self.prizes[self.random.below(self.prizes.len() as u64) as usize];
        }
        let list = &self.foreign;
        let at = if list.is_empty() { 0 } else { list[self.random.below(list.len() as u64) as usize] };
        at.wrapping_add(self.random.below(3) * 8)
    }

    fn own_memory(&mut self) -> u64 {
        if self.memory.is_empty() {
            return 0;
        }
        let base = self.memory[self.random.below(self.memory.len() as u64) as usize];
        base + self.random.below(64) * 8
    }

    pub fn address(&mut self) -> u64 {
        if !self.is_malicious() {
            return if self.random.one_in(8) { self.host_address() } else { self.own_memory() };
        }
        match self.random.below(12) {
            0 => 0,
            1 => self.random.below(4096),
            2 => u64::MAX - self.random.below(4096),
            3 => self.own_memory().wrapping_add(self.memory_bytes),
            4 => self.own_memory().wrapping_sub(4096),
            5 => self.own_memory() | 1 << 63,
            6 => self.heap.wrapping_sub(8),
            7 => (self.heap + self.heap_bytes).wrapping_sub(self.random.below(16)),
            8 => self.random.word(),
            9 => self.any_handle(),
            _ => self.foreign(),
        }
    }

    pub fn host_address(&mut self) -> u64 {
        if !self.is_fatal() {
            if self.file.1 > 0 && self.random.one_in(8) {
                return self.file.0 + self.random.below(self.file.1 / 8) * 8;
            }
            // Behind the staging part, and small: pages that are touched cost memory.
            return self.heap + (80 << 20) + self.random.below(1 << 14) * 8;
        }
        match self.random.below(6) {
            0 => self.heap.wrapping_sub(8),
            1 => self.heap + self.heap_bytes - 8,
            2 => self.heap + self.heap_bytes,
            3 => self.heap + self.random.below(64 << 20),
            4 => self.own_memory(),
            _ => self.foreign(),
        }
    }

    fn size(&mut self) -> u64 {
        if !self.is_malicious() {
            return [1, 2, 4, 8, 16, 64, 256, 4096][self.random.below(8) as usize];
        }
        match self.random.below(10) {
            0 => 0,
            1 => self.memory_bytes,
            2 => self.memory_bytes + 1,
            3 => self.heap_bytes,
            4 => u64::MAX,
            5 => 1 << 63,
            6 => u64::MAX - self.own_memory(),
            7 => 1 << self.random.below(48),
            8 => (1 << 32) + self.random.below(16),
            _ => self.random.word(),
        }
    }

    fn any_handle(&mut self) -> u64 {
        match self.handles.len() as u64 {
            0 => 0,
            n => self.handles[self.random.below(n) as usize].1,
        }
    }

    pub fn handle(&mut self, kind: Kind) -> u64 {
        if !self.is_malicious() {
            if kind == Kind::Stream && self.random.one_in(3) {
                return self.random.below(3);
            }
            let own: Vec<u64> = self.handles.iter().filter(|(k, _)| *k == kind).map(|(_, h)| *h).collect();
            if !own.is_empty() {
                return own[self.random.below(own.len() as u64) as usize];
            }
        }
        match self.random.below(10) {
            0 => self.random.below(4),
            1 => self.any_handle(),
            // One that was, or will be.
            2 => Handle::new(kind, 1 + self.random.below(3) as u32, self.random.below(8) as u32).0,
            3 => Handle::new(kind, 0, self.random.below(200) as u32).0,
            4 => Handle::new(kind, 0, INDEX_MAX).0,
            5 => Handle::new(kind, GENERATION_MAX, INDEX_MAX).0,
            6 => self.foreign(),
            7 => u64::MAX,
            // With a mark in bits that are zero in each handle, or beyond all of them.
            8 => self.any_handle() | (1 << self.random.below(4)) | (self.random.below(2) << 48),
            _ => self.random.word(),
        }
    }

    fn new_handle(&mut self, kind: Kind) -> u64 {
        // A session ends for most of the others, so they are rarer still.
        if !self.is_fatal() {
            self.next += 1;
            let name = Handle::new(kind, 0, self.next).0;
            // Whether it was made the session learns as anybody does.
            self.handles.push((kind, name));
            if self.handles.len() > 400 {
                self.handles.remove(self.random.below(400) as usize);
            }
            return name;
        }
        match self.random.below(5) {
            0 => self.any_handle(),
            1 => Handle::new(kind, 0, INDEX_MAX).0,
            3 => Handle::new(kind, 0, self.next).0 | (1 + self.random.below(15)),
            2 => Handle::new(KINDS[self.random.below(KINDS.len() as u64) as usize], 0, self.next).0,
            _ => self.random.word(),
        }
    }

    fn number(&mut self, bits: u32) -> u64 {
        let mask = if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
        let value = match self.random.below(10) {
            0..=5 => self.random.below(4),
            6 => self.random.below(64),
            7 => 1 << self.random.below(64),
            8 => u64::MAX - self.random.below(3),
            _ => self.random.word(),
        };
        value & mask
    }

    /// A word of something whose parts are not told apart.
    fn any_word(&mut self) -> u64 {
        match self.random.below(10) {
            0..=3 => self.random.below(9),
            4 => self.size(),
            5 => self.address(),
            6 => self.host_address(),
            7 => self.any_handle(),
            8 => self.random.below(16) << 32 | self.random.below(16),
            _ => self.number(64),
        }
    }

    fn plain(&mut self, bytes: usize) -> Vec<u8> {
        let mut out: Vec<u8> = (0..bytes.div_ceil(8)).flat_map(|_| self.any_word().to_le_bytes()).collect();
        out.truncate(bytes);
        out
    }

    pub fn message(&mut self, fields: &[Field]) -> Vec<u8> {
        let mut out = Vec::new();
        self.count = self.random.below(4);
        for field in fields {
            self.put(*field, &mut out);
        }
        // Longer or shorter than it should be, now and then: that ends the session.
        if self.is_fatal() {
            match self.random.below(2) {
                0 => out.word(self.random.word()),
                _ => out.truncate(out.len() / 16 * 8),
            }
        }
        out
    }

    fn put(&mut self, field: Field, out: &mut Vec<u8>) {
        match field {
            Field::Address => out.word(self.address()),
            Field::Place => {
                let fresh = 0x3000_0000_0000 + self.random.below(64) * 0x10000;
                let at = if self.is_malicious() { self.foreign() & !0xfff } else { fresh };
                out.word(at);
            }
            Field::HostAddress => out.word(self.host_address()),
            Field::Size => out.word(self.size()),
            Field::Count => {
                let count = if self.is_fatal() { self.number(32) } else { self.count };
                out.word(count);
            }
            Field::Word(bits) => out.word(self.number(bits)),
            Field::Choice(count) => {
                let value = if self.is_fatal() { self.number(64) } else { self.random.below(count) };
                out.word(value);
            }
            Field::Exactly(value) => {
                let value = if self.is_fatal() { self.number(64) } else { value };
                out.word(value);
            }
            Field::Pages => {
                let bytes = if self.is_malicious() { self.size() } else { (1 + self.random.below(3)) << 21 };
                out.word(bytes);
            }
            Field::Device => {
                let device = if self.is_malicious() { self.number(32) } else { 0 };
                out.word(device);
            }
            Field::Handle(kind) => out.word(self.handle(kind)),
            Field::New(kind) => out.word(self.new_handle(kind)),
            Field::Plain(bytes) => out.bytes(&self.plain(bytes)),
            Field::Plains(bytes) => {
                let bytes = bytes * self.count as usize;
                out.bytes(&self.plain(bytes));
            }
            Field::Handles(kind) => {
                out.word(self.count);
                (0..self.count).for_each(|_| out.word(self.handle(kind)));
            }
            Field::Text => {
                let names: [&[u8]; 8] =
                    [b"noop", b"fill", b"counter", b"table", b"", b"../../etc/passwd", &[0xff; 300], b"a\0b"];
                // A NUL ends the session.
                let all = 7 + u64::from(self.is_fatal());
                let one = if self.is_malicious() { self.random.below(all) } else { self.random.below(4) };
                out.bytes(names[one as usize]);
            }
            Field::Range => {
                let page = 4096;
                if self.is_fatal() {
                    out.word(self.number(64));
                    out.word(self.size());
                } else {
                    out.word((96 << 20) + self.random.below(64) * page);
                    out.word((1 + self.random.below(3)) * page);
                }
            }
            Field::List(fields) => {
                let count = if self.is_fatal() { self.number(64) } else { self.random.below(3) };
                out.word(count);
                for _ in 0..count.min(8) {
                    fields.iter().for_each(|field| self.put(*field, out));
                }
            }
            Field::Image => self.image(out),
            Field::Options => self.options(out),
            Field::Copy => self.copy(out),
            Field::MemOp => {
                let operation = if self.is_malicious() { self.number(32) } else { 1 + self.random.below(6) };
                out.word(operation);
                out.word(self.address());
                out.word(self.number(64));
                // A stream that waits for ever is of no more use.
                out.word(if operation & 3 == 2 || operation == 5 { self.random.below(2) } else { 0 });
            }
            Field::Location => {
                out.word(self.random.below(4));
                let id = if self.is_malicious() { self.number(32) } else { 0 };
                out.word(id);
            }
            Field::Declared(shape) => self.declared(&shape, out),
        }
    }

    fn declared(&mut self, shape: &Shape, out: &mut Vec<u8>) {
        let field = match shape {
            Shape::Number(bits) => Field::Word(*bits),
            Shape::Halves => {
                let (low, high) = (self.number(32), self.number(32));
                return out.word(low | high << 32);
            }
            Shape::Flag => Field::Choice(2),
            Shape::Size => Field::Size,
            Shape::Count => Field::Count,
            Shape::Ordinal => Field::Device,
            Shape::Existing(kind) => Field::Handle(*kind),
            Shape::New(kind) => Field::New(*kind),
            Shape::Callback => Field::Word(64),
            Shape::DeviceAddress => Field::Address,
            Shape::HostAddress => Field::HostAddress,
            Shape::Place => Field::Place,
            Shape::Range => Field::Range,
            Shape::Text(_) => Field::Text,
            Shape::Exactly(bytes) => Field::Plain(*bytes),
            Shape::Plain(name) => Field::Plain(plain_bytes(name)),
            Shape::Plains(name, _) => Field::Plains(plain_bytes(name)),
            Shape::Handles(kind, _) => Field::Handles(*kind),
            Shape::Choice(values) => {
                let one = values[self.random.below(values.len() as u64) as usize].1;
                Field::Exactly(one)
            }
            Shape::Bytes(max) => {
                let end = if self.is_malicious() { 4096 } else { 64 };
                let len = self.random.below(end) as usize;
                return out.bytes(&self.plain(len.min(*max)));
            }
            Shape::Rest => {
                let words = self.random.below(12) as usize;
                return out.put(&self.plain(8 * words));
            }
            Shape::Maybe(of) => {
                let is_there = self.random.below(2);
                out.word(is_there);
                return if is_there == 1 {
                    self.declared(of, out)
                };
            }
            Shape::Several(of, count) => return (0..*count).for_each(|_| self.declared(of, out)),
            Shape::List(Shape::Part("JitOption", _), _) => Field::Options,
            Shape::List(of, max) => {
                let count = if self.is_fatal() { self.number(64) } else { self.random.below(3).min(*max as u64) };
                out.word(count);
                return (0..count.min(8)).for_each(|_| self.declared(of, out));
            }
            Shape::Part("Copy3D", _) => Field::Copy,
            Shape::Part("MemOp", _) => Field::MemOp,
            Shape::Part("Location", _) => Field::Location,
            Shape::Part("KernelNode", _) => return self.put_all(KERNEL_NODE, out),
            Shape::Part("PoolProperties", _) => return self.put_all(POOL_PROPERTIES, out),
            Shape::OneOf("Payload", _) => Field::Image,
            Shape::Part(_, parts) => return parts.iter().for_each(|part| self.declared(&part.shape, out)),
            Shape::OneOf(_, variants) => {
                let (_, number, of) = &variants[self.random.below(variants.len() as u64) as usize];
                self.put(Field::Exactly(*number), out);
                return self.declared(of, out);
            }
        };
        self.put(field, out);
    }

    fn image(&mut self, out: &mut Vec<u8>) {
        if self.random.one_in(4) {
            // In the heap.
            out.word(1);
            return self.put(Field::Range, out);
        }
        out.word(0);
        let mut image = match self.random.below(9) {
            0..=2 => PTX.to_vec(),
            3 => bundle::encode(&[PTX, PTX]),
            4 => elf(&mut self.random),
            5 => fat_binary(&mut self.random),
            6 => bundle::encode(&[&fat_binary(&mut self.random), &fat_binary(&mut self.random)]),
            _ => self.plain(200),
        };
        for _ in 0..if self.is_malicious() { 1 + self.random.below(20) } else { 0 } {
            let at = self.random.below(image.len() as u64) as usize;
            image[at] = self.random.word() as u8;
        }
        if self.is_malicious() {
            image.truncate(self.random.below(image.len() as u64) as usize);
        }
        out.bytes(&image);
    }

    fn options(&mut self, out: &mut Vec<u8>) {
        let count = if self.random.one_in(2) { 0 } else { self.random.below(6) };
        out.word(count);
        for _ in 0..count {
            let end = u64::from(CU_JIT_NUM_OPTIONS) + u64::from(self.is_fatal());
            let option = self.random.below(end);
            out.word(option);
            let (way, value) = match option as u32 {
                CU_JIT_WALL_TIME => (0, None),
                CU_JIT_GLOBAL_SYMBOL_NAMES | CU_JIT_REFERENCED_KERNEL_NAMES | CU_JIT_REFERENCED_VARIABLE_NAMES => {
                    (2, Some(Field::List(&[Field::Text])))
                }
                CU_JIT_GLOBAL_SYMBOL_ADDRESSES => (3, Some(Field::List(&[Field::Address]))),
                _ => (1, Some(Field::Word(64))),
            };
            self.put(Field::Exactly(way), out);
            value.into_iter().for_each(|value| self.put(value, out));
        }
    }

    fn copy(&mut self, out: &mut Vec<u8>) {
        // SAFETY: a struct of integers and pointers, for which zero is a value.
        let mut d: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
        let place = |a: &mut Arsenal| {
            if a.random.one_in(a.malice * 6) { a.size() as usize } else { a.random.below(2) as usize * 8 }
        };
        (d.srcXInBytes, d.srcY, d.srcZ) = (place(self), place(self) / 8, place(self) / 8);
        (d.dstXInBytes, d.dstY, d.dstZ) = (place(self), place(self) / 8, place(self) / 8);
        (d.srcPitch, d.srcHeight) = (place(self).wrapping_mul(4), place(self));
        (d.dstPitch, d.dstHeight) = (place(self).wrapping_mul(4), place(self));
        let kind = |a: &mut Arsenal| if a.is_malicious() { a.number(32) as u32 } else { 1 + a.random.below(4) as u32 };
        (d.srcMemoryType, d.dstMemoryType) = (kind(self), kind(self));
        (d.srcHost, d.srcDevice) = (self.host_address() as *const _, self.address());
        (d.dstHost, d.dstDevice) = (self.host_address() as *mut _, self.address());
        (d.srcArray, d.dstArray) = (self.handle(Kind::Array) as CUarray, self.handle(Kind::Array) as CUarray);
        let size = |a: &mut Arsenal| {
            if a.random.one_in(a.malice * 6) { a.size() as usize } else { 1 + a.random.below(3) as usize }
        };
        (d.WidthInBytes, d.Height, d.Depth) = (size(self).wrapping_mul(8) % (1 << 40), size(self), size(self));
        if self.random.one_in(2) {
            (d.Height, d.Depth) = (1, 1);
        }
        if self.random.one_in(4) {
            d = self.theft();
        }
        // SAFETY: plain data; the padding is zero because the struct was.
        out.put(unsafe { std::slice::from_raw_parts(std::ptr::from_ref(&d).cast::<u8>(), size_of_val(&d)) });
    }

    /// A copy with nothing wrong but where one side of it lies.
    fn theft(&mut self) -> CUDA_MEMCPY3D {
        // SAFETY: a struct of integers and pointers, for which zero is a value.
        let mut d: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
        (d.WidthInBytes, d.Height, d.Depth) = (24, 1, 1);
        let (own, foreign) = (self.own_memory(), self.foreign());
        let kind = if self.random.one_in(2) { CU_MEMORYTYPE_UNIFIED } else { CU_MEMORYTYPE_DEVICE };
        (d.srcMemoryType, d.dstMemoryType) = (kind, kind);
        (d.srcDevice, d.dstDevice) = if self.random.one_in(2) { (foreign, own) } else { (own, foreign) };
        d
    }

    fn put_all(&mut self, fields: &[Field], out: &mut Vec<u8>) {
        fields.iter().for_each(|field| self.put(*field, out));
    }
}

/// Of a kernel that runs, mostly: function, kernel and context, grid and block, shared bytes, parameters.
const KERNEL_NODE: &[Field] = &[
    Field::Handle(Kind::Function),
    Field::Handle(Kind::Function),
    Field::Handle(Kind::Context),
    LITTLE,
    LITTLE,
    LITTLE,
    LITTLE,
    LITTLE,
    LITTLE,
    LITTLE,
    Field::Plain(24),
];
const LITTLE: Field = Field::Choice(40);
/// Types, place, size and usage.
const POOL_PROPERTIES: &[Field] = &[Field::Choice(2), Field::Choice(2), Field::Location, Field::Size, Field::Choice(2)];

/// Text and a binary, of which it may say that they are longer than they are.
fn fat_binary(random: &mut Random) -> Vec<u8> {
    let mut lie = |truth: usize| {
        let far = [0, 1, 63, 64, truth as u64 + 8, 1 << 20, 1 << 31, 1 << 40, u64::MAX - 8, u64::MAX];
        if random.one_in(8) { far[random.below(far.len() as u64) as usize] } else { truth as u64 }
    };
    let binary = [0x7f; 96];
    let mut entries = Vec::new();
    for (kind, content) in [(1u16, PTX), (2, &binary[..])] {
        let mut entry = vec![0u8; 64];
        let padded = content.len().next_multiple_of(8);
        entry[..4].copy_from_slice(&[kind as u8, 0, 1, 1]);
        entry[4..8].copy_from_slice(&(lie(64) as u32).to_le_bytes());
        entry[8..16].copy_from_slice(&lie(padded).to_le_bytes());
        entry[16..20].copy_from_slice(&(lie(0) as u32).to_le_bytes());
        entry[28..32].copy_from_slice(&75u32.to_le_bytes());
        // How it is packed: not, mostly.
        entry[40..48].copy_from_slice(&(lie(0x11) & 0xffff).to_le_bytes());
        entry[56..64].copy_from_slice(&lie(0).to_le_bytes());
        entry.extend(content);
        entry.resize(64 + padded, 0);
        entries.extend(entry);
    }
    let mut image = 0xba55_ed50u32.to_le_bytes().to_vec();
    image.extend([1, 0]);
    image.extend((lie(16) as u16).to_le_bytes());
    image.extend(lie(entries.len()).to_le_bytes());
    image.extend(entries);
    image
}

/// The head of a binary whose tables may lie anywhere.
fn elf(random: &mut Random) -> Vec<u8> {
    let mut image = vec![0u8; 512];
    image[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\x33");
    (image[16], image[18]) = (2, 190);
    let far = [64, 256, 500, 1 << 20, 1 << 40, u64::MAX - 8];
    for at in [32, 40] {
        let value: u64 = far[random.below(far.len() as u64) as usize];
        image[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    for at in [54, 56, 58, 60, 62] {
        let value = [0u16, 1, 56, 64, 400, u16::MAX][random.below(6) as usize];
        image[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }
    image
}
