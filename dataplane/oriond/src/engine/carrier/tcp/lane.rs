//! A connection for bulk data.

// UNSAFETY: hands pointers into the heap and into its own boxed buffers to the kernel. A `Lane` is boxed and freed only
// when no request of its own is under way (`under_way`), and the heap is unmapped only after that.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use orion_ring::once;
use orion_tls::handshake::Secured;
use orion_transport::sealed::{Heard, Opening, Sealing};
use orion_transport::socket::wait_for_all;
use orion_transport::standstill::{LOOK_SECONDS, Standstill};
use orion_transport::stream::{Frame, STREAM_HEADER_BYTES, StreamHeader};
use orion_wire::Fault;
use orion_wire::record::HeapRange;
use tracing::warn;

use super::shared::{Address, Shared};
use crate::engine::carrier::contract::{self, Connection};
use crate::engine::core::shutdown;
use crate::engine::io_ring::{Did, Done, Io, Timespec, is_again};
use crate::engine::mail::Kick;

/// Of sealed bytes, at once.
const RECEIVE_BYTES: usize = 128 << 10;
/// How often it is looked whether the client takes what it was sent.
static TIME: Timespec = Timespec::new().sec(LOOK_SECONDS);

pub struct Lane {
    socket: OwnedFd,
    shared: Arc<Shared>,
    index: usize,
    header: [u8; STREAM_HEADER_BYTES],
    have: usize,
    /// The chunk being received.
    chunk: HeapRange,
    out_header: [u8; STREAM_HEADER_BYTES],
    out_parts: [libc::iovec; 2],
    out_first: usize,
    message: libc::msghdr,
    sending: bool,
    /// Of what is received where it belongs.
    receive_flags: i32,
    /// Where the connection is encrypted.
    sealed: Option<Box<Sealed>>,
    /// Whether the io_uring waits until it is time to look.
    time_awaited: bool,
    standstill: Standstill,
    under_way: u32,
    ending: bool,
}

struct Sealed {
    sealing: Sealing,
    opening: Opening,
}

// SAFETY: the raw pointers inside lead to this object's own box or to session memory; neither is tied to a thread.
unsafe impl Send for Lane {}

impl contract::Lane for Lane {
    fn begin(&mut self, io: &mut Io, slot: u32, post: Arc<dyn Kick>) {
        {
            let mut lanes = self.shared.lanes.lock().expect("nothing panics under this lock");
            lanes[self.index] = Some(Address { post, slot });
            let joined = lanes.iter().take_while(|l| l.is_some()).count();
            self.shared.joined.store(joined, Ordering::Release);
        }
        self.receive(io, slot);
        self.kicked(io, slot);
    }

    fn done(&mut self, io: &mut Io, slot: u32, done: Done) {
        self.under_way -= 1;
        match done.did {
            Did::Receive => match done.result {
                n if n > 0 => {
                    let received = match self.sealed.is_some() {
                        true => self.received_sealed(n as usize),
                        false => self.received(n as usize).map_err(|fault| fault.0.to_owned()),
                    };
                    if let Err(rule) = received {
                        let (session, lane) = (self.shared.session, self.index);
                        warn!(session, lane, rule, "protocol broken, session ends");
                        return self.end(io, slot);
                    }
                    if !self.ending {
                        self.receive(io, slot);
                    }
                }
                e if is_again(e) && !self.ending => self.receive(io, slot),
                _ => self.end(io, slot),
            },
            Did::Send => {
                self.sending = false;
                if done.result < 0 && !is_again(done.result) {
                    return self.end(io, slot);
                }
                let sent = done.result.max(0) as usize;
                match &mut self.sealed {
                    Some(sealed) => sealed.sealing.advance(sent),
                    None => self.advance(sent),
                }
                match (self.ending, self.has_sent()) {
                    (true, _) => {}
                    (false, true) => self.kicked(io, slot),
                    (false, false) => self.send(io, slot),
                }
            }
            Did::Time => {
                self.time_awaited = false;
                if !self.ending && self.standstill.look(self.socket.as_fd()) {
                    self.await_time(io, slot);
                }
            }
            Did::Cancel => {}
            other => unreachable!("a lane never asks for {other:?}"),
        }
    }

    fn kicked(&mut self, io: &mut Io, slot: u32) {
        if self.shared.is_over() {
            return self.end(io, slot);
        }
        if self.sending || self.ending {
            return;
        }
        let Some(chunk) = self.shared.next_chunk(self.index) else { return };
        let from = self.shared.heap.at(chunk.offset, chunk.bytes).expect("the range was checked when it was dealt");
        self.out_header = StreamHeader { frame: Frame::Chunk, len: chunk.bytes as u32, offset: chunk.offset }.encode();
        self.out_parts = [
            libc::iovec { iov_base: self.out_header.as_mut_ptr().cast(), iov_len: STREAM_HEADER_BYTES },
            libc::iovec { iov_base: from.cast(), iov_len: chunk.bytes as usize },
        ];
        self.out_first = 0;
        self.send(io, slot);
    }

    fn is_finished(&self) -> bool {
        self.ending && self.under_way == 0
    }
}

impl Lane {
    pub fn new(client: Connection, shared: Arc<Shared>, index: usize) -> Box<Lane> {
        let Connection { socket, secured } = client;
        let sealed = secured.map(|secured| {
            let Secured { sealer, opener, .. } = *secured;
            Box::new(Sealed { sealing: Sealing::new(sealer), opening: Opening::new(opener, RECEIVE_BYTES) })
        });
        let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Box::new(Lane {
            receive_flags: wait_for_all(socket.as_fd()),
            socket,
            shared,
            index,
            header: [0; STREAM_HEADER_BYTES],
            have: 0,
            chunk: HeapRange::default(),
            out_header: [0; STREAM_HEADER_BYTES],
            out_parts: [nothing; 2],
            out_first: 2,
            // SAFETY: an all-zero msghdr is valid.
            message: unsafe { std::mem::zeroed() },
            sending: false,
            sealed,
            time_awaited: false,
            standstill: Standstill::default(),
            under_way: 0,
            ending: false,
        })
    }

    /// So many bytes of the chunk have gone.
    fn advance(&mut self, mut sent: usize) {
        while self.out_first < 2 && sent >= self.out_parts[self.out_first].iov_len {
            sent -= self.out_parts[self.out_first].iov_len;
            self.out_first += 1;
        }
        if self.out_first < 2 {
            let part = &mut self.out_parts[self.out_first];
            // SAFETY: `sent` is less than the part's length.
            part.iov_base = unsafe { part.iov_base.cast::<u8>().add(sent) }.cast();
            part.iov_len -= sent;
        }
    }

    fn has_sent(&self) -> bool {
        self.out_first == 2 && self.sealed.as_ref().is_none_or(|sealed| sealed.sealing.is_empty())
    }

    /// Makes records of what is next, if the last ones have gone.
    fn seal(&mut self) -> Result<(), String> {
        let Some(sealed) = self.sealed.as_mut().filter(|sealed| sealed.sealing.is_empty()) else { return Ok(()) };
        // SAFETY: the parts are this object's header and a range of the heap, which stays mapped.
        let taken = unsafe { sealed.sealing.take(&self.out_parts[self.out_first..]) }?;
        self.advance(taken);
        Ok(())
    }

    fn send(&mut self, io: &mut Io, slot: u32) {
        if let Err(why) = self.seal() {
            warn!(session = self.shared.session, lane = self.index, why, "sealing failed, session ends");
            return self.end(io, slot);
        }
        self.sending = true;
        self.under_way += 1;
        let parts = match &mut self.sealed {
            Some(sealed) => sealed.sealing.parts(),
            None => &self.out_parts[self.out_first..],
        };
        self.message.msg_iov = parts.as_ptr().cast_mut();
        self.message.msg_iovlen = parts.len();
        // SAFETY: this object is boxed and leaves these fields alone while `sending` is set.
        unsafe { io.send_message(slot, Did::Send, self.socket.as_raw_fd(), &raw const self.message) };
        self.standstill.sent();
        if !self.time_awaited {
            self.await_time(io, slot);
        }
    }

    fn await_time(&mut self, io: &mut Io, slot: u32) {
        self.time_awaited = true;
        self.under_way += 1;
        io.wait_time(slot, &TIME);
    }

    fn receive(&mut self, io: &mut Io, slot: u32) {
        if let Some(sealed) = &mut self.sealed {
            let (to, len) = sealed.opening.room();
            self.under_way += 1;
            // SAFETY: the buffer is boxed with this object, and left alone until the completion.
            return unsafe { io.receive(slot, Did::Receive, self.socket.as_raw_fd(), to, len, 0) };
        }
        let (to, len) = self.place();
        self.under_way += 1;
        // SAFETY: the header is boxed with this object, the heap stays mapped.
        unsafe { io.receive(slot, Did::Receive, self.socket.as_raw_fd(), to, len, self.receive_flags) };
    }

    /// Opens what has come, and puts it where it would have come to.
    fn received_sealed(&mut self, n: usize) -> Result<(), String> {
        let mut sealed = self.sealed.take().expect("the caller looked");
        sealed.opening.received(n);
        let outcome = loop {
            match sealed.opening.open() {
                Ok(Heard::Bytes) => {}
                Ok(Heard::Nothing) => break Ok(()),
                Ok(Heard::End) => break Err("it ended without the session".to_owned()),
                Err(why) => break Err(why),
            }
            match self.put(sealed.opening.plain()) {
                Ok(used) => sealed.opening.used(used),
                Err(fault) => break Err(fault.0.to_owned()),
            }
        };
        self.sealed = Some(sealed);
        outcome
    }

    /// As much of it as belongs to the header or to the chunk. At least one byte.
    fn put(&mut self, plain: &[u8]) -> Result<usize, Fault> {
        let (to, len) = self.place();
        let n = plain.len().min(len);
        // SAFETY: the place is valid for `n` bytes; the plain ones are in a buffer of their own.
        unsafe { once::copy(plain.as_ptr(), to, n) };
        self.received(n)?;
        Ok(n)
    }

    /// Where the next bytes belong.
    fn place(&mut self) -> (*mut u8, usize) {
        if self.have < STREAM_HEADER_BYTES {
            return (self.header[self.have..].as_mut_ptr(), STREAM_HEADER_BYTES - self.have);
        }
        let at = self.shared.heap.at(self.chunk.offset, self.chunk.bytes).expect("the header was checked");
        (at, self.chunk.bytes as usize)
    }

    fn received(&mut self, n: usize) -> Result<(), Fault> {
        if self.have < STREAM_HEADER_BYTES {
            self.have += n;
            if self.have == STREAM_HEADER_BYTES {
                let header = StreamHeader::decode(&self.header, self.shared.heap.bytes())?;
                if header.frame != Frame::Chunk {
                    return Err(Fault("a lane carries chunks only"));
                }
                self.chunk = HeapRange { offset: header.offset, bytes: header.len as u64 };
            }
        } else {
            self.chunk.offset += n as u64;
            self.chunk.bytes -= n as u64;
            self.shared.counts.add(self.index, n as u64);
            if self.shared.barrier_waits.load(Ordering::SeqCst)
                && self.shared.barrier_waits.swap(false, Ordering::SeqCst)
            {
                self.shared.kick_main();
            }
        }
        if self.have == STREAM_HEADER_BYTES && self.chunk.bytes == 0 {
            self.have = 0;
        }
        Ok(())
    }

    fn end(&mut self, io: &mut Io, slot: u32) {
        if !self.ending {
            self.ending = true;
            if self.time_awaited {
                self.under_way += 1;
                io.cancel(slot, Did::Time, Did::Cancel);
            }
            shutdown(&self.socket);
            self.shared.end();
        }
    }
}
