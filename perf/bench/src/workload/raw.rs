//! A client that speaks records to an oriond that echoes them: rings and carrier, without shim and driver.

// UNSAFETY: writes to the session's heap, which only the echoing worker shares.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use orion_ring::memory::Which;
use orion_ring::{Consumer, Heap, Producer, Spin};
use orion_transport::carrier::{self, Carrier, Listener};
use orion_transport::client::{self, Server, Tuning};
use orion_transport::proof::Token;
use orion_wire::Writer;
use orion_wire::environment::Environment;
use orion_wire::record::{HEADER_BYTES, Header, HeapRange, op};

/// Operations of `oriond serve --driver echo` (its `worker/stub.rs`). With a seed of 0 this one only announces the
/// range, so that the carrier brings it over.
const FILL: u16 = 0x7ff1;
/// Posted, any row of the API is taken and forgotten.
const POSTED: u16 = op::ROW_FIRST;
pub const THREADS_MAX: usize = 64;
/// Payloads up to this size travel in the record, as the shim's do.
const INLINE_BYTES_MAX: usize = 64 << 10;

pub struct Client {
    heap: Heap,
    carrier: Arc<dyn Carrier>,
    commands: Mutex<Producer>,
    replies: Mutex<Consumer>,
    /// The last sequence answered to each thread.
    answered: [AtomicU64; THREADS_MAX],
}

/// One thread's way to the worker.
pub struct Caller<'a> {
    client: &'a Client,
    slot: usize,
    sequence: u64,
    source: Vec<u8>,
}

impl Client {
    pub fn attach(server: &str) -> Result<Client, String> {
        let environment = Environment::default();
        let caller = client::Caller { environment, ..client::Caller::new("orion-bench", Token::from_environment()?) };
        let server = Server::parse(server)?;
        let attached = carrier::attach(&server, &caller, Tuning::default(), Listener::NOBODY).map_err(|no| no.text)?;
        let failed = |e: std::io::Error| format!("mapping a ring failed: {e}");
        let client = Client {
            commands: Mutex::new(attached.memory.producer(Which::Command).map_err(failed)?),
            replies: Mutex::new(attached.memory.consumer(Which::Reply).map_err(failed)?),
            heap: attached.heap,
            carrier: attached.carrier,
            answered: [const { AtomicU64::new(0) }; THREADS_MAX],
        };
        // Descriptor and mappings stay for the life of the process.
        std::mem::forget(attached.memory);
        Ok(client)
    }

    pub fn caller(&self, slot: usize) -> Caller<'_> {
        assert!(slot < THREADS_MAX);
        Caller { client: self, slot, sequence: 0, source: Vec::new() }
    }

    fn push(&self, op: u16, slot: usize, sequence: u64, body: &[&[u8]]) -> Result<(), String> {
        let size = HEADER_BYTES + body.iter().map(|part| part.len()).sum::<usize>();
        let header = Header { size: size as u32, op, thread: slot as u16, context: 0, sequence }.encode();
        let mut commands = self.commands.lock().expect("nothing panics under this lock");
        loop {
            let Some(mut at) = commands.reserve(size).map_err(|e| e.to_string())? else {
                if self.carrier.death().is_some() {
                    return Err("the session is lost".into());
                }
                let spin = Spin::adaptive(Duration::from_micros(200));
                commands.wait_room(size, spin, Duration::from_millis(100)).map_err(|e| e.to_string())?;
                continue;
            };
            for part in std::iter::once(&header[..]).chain(body.iter().copied()) {
                // SAFETY: `reserve` gave `size` writable bytes, and the parts together have that many.
                unsafe {
                    std::ptr::copy_nonoverlapping(part.as_ptr(), at, part.len());
                    at = at.add(part.len());
                }
            }
            commands.commit(size);
            return Ok(());
        }
    }

    /// Reads replies until that of `slot` has come; others' are noted on the way.
    fn wait(&self, slot: usize, sequence: u64) -> Result<(), String> {
        let spin = Spin::adaptive(Duration::from_millis(20));
        let done = || self.answered[slot].load(Ordering::Acquire) == sequence;
        while !done() {
            let Ok(mut replies) = self.replies.try_lock() else {
                spin.until(|| done() || self.replies.try_lock().is_ok());
                continue;
            };
            while !done() {
                match replies.next().map_err(|e| e.to_string())? {
                    Some(header) => {
                        replies.consume(header.size as usize);
                        let known = self.answered.get(header.thread as usize).filter(|_| header.sequence != 0);
                        known.inspect(|answered| answered.store(header.sequence, Ordering::Release));
                    }
                    None if spin.until(|| replies.has_news() != Ok(false)) => {}
                    None if self.carrier.death().is_some() => return Err("the session is lost".into()),
                    None => replies.sleep(Duration::from_millis(100)),
                }
            }
        }
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.carrier.close();
    }
}

impl Caller<'_> {
    /// Sends a record of so many bytes besides its header, in whole words.
    pub fn post(&mut self, bytes: usize) -> Result<(), String> {
        let (client, slot) = (self.client, self.slot);
        client.push(POSTED, slot, 0, &[self.source(bytes.next_multiple_of(8))])
    }

    pub fn call(&mut self, body: &[u8]) -> Result<(), String> {
        self.ask(op::PING, body)
    }

    fn ask(&mut self, op: u16, body: &[u8]) -> Result<(), String> {
        self.sequence += 1;
        self.client.push(op, self.slot, self.sequence, &[body])?;
        self.client.wait(self.slot, self.sequence)
    }

    /// Bytes for the worker: captured unless they lie in shared memory already.
    #[allow(clippy::wrong_self_convention, reason = "named like the copy it makes; it converts nothing")]
    pub fn to_device(&mut self, pinned: bool, bytes: usize) -> Result<(), String> {
        if bytes <= INLINE_BYTES_MAX && !pinned {
            return self.post(bytes + 24);
        }
        let range = self.range(bytes)?;
        if !pinned {
            let to = self.client.heap.at(range.offset, range.bytes).ok_or("the heap is too small")?;
            let from = self.source(bytes);
            // SAFETY: the range lies in the heap and belongs to this thread alone.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
        }
        if self.client.carrier.pages().must_bring() {
            self.client.push(op::HEAP_WRITTEN, self.slot, 0, &[&words(&[range.offset, range.bytes])])?;
        }
        self.post(40)
    }

    /// Bytes from the worker, there when this returns.
    #[allow(clippy::wrong_self_convention, reason = "named like the copy it makes; it converts nothing")]
    pub fn to_host(&mut self, pinned: bool, bytes: usize) -> Result<(), String> {
        let range = self.range(bytes)?;
        self.ask(FILL, &words(&[range.offset, range.bytes, 0]))?;
        if !pinned {
            let from = self.client.heap.at(range.offset, range.bytes).ok_or("the heap is too small")?;
            self.source(bytes);
            // SAFETY: as above; the worker is done with the range.
            unsafe { std::ptr::copy_nonoverlapping(from, self.source.as_mut_ptr(), bytes) };
        }
        Ok(())
    }

    /// This thread's part of the heap.
    fn range(&self, bytes: usize) -> Result<HeapRange, String> {
        let part = self.client.heap.bytes() / THREADS_MAX as u64;
        match bytes as u64 <= part {
            true => Ok(HeapRange { offset: part * self.slot as u64, bytes: bytes as u64 }),
            false => Err(format!("with the echo driver a copy can have {part} bytes at most, not {bytes}")),
        }
    }

    fn source(&mut self, bytes: usize) -> &[u8] {
        if self.source.len() < bytes {
            self.source.resize(bytes, 7);
        }
        &self.source[..bytes]
    }
}

fn words(words: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    words.iter().for_each(|word| out.word(*word));
    out
}
