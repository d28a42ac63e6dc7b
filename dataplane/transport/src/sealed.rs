//! The two directions of an encrypted connection once its session runs: what is sent is copied out of ring and heap,
//! for others may write there meanwhile, and sealed; what is received is opened where it lies.

// UNSAFETY: copies out of ring and heap memory by address, and hands the addresses of its own buffers to whoever sends
// and receives.

use std::ops::Range;

use orion_tls::handshake::RECORD_BYTES_MAX;
use orion_tls::record::{Opened, Opener, Outgoing, PLAIN_BYTES_MAX, Sealer};

/// Plain bytes that are sealed in one go. Bounds memory, and how long an engine is away from its other sessions.
const SEALED_BYTES_MAX: usize = 256 << 10;

pub struct Sealing {
    sealer: Sealer,
    plain: Vec<u8>,
    out: Outgoing,
    parts: Vec<libc::iovec>,
}

// SAFETY: the pointers lead into `out`, which is this object's own and not tied to a thread.
unsafe impl Send for Sealing {}

impl Sealing {
    #[must_use]
    pub fn new(sealer: Sealer) -> Sealing {
        Sealing { sealer, plain: Vec::with_capacity(PLAIN_BYTES_MAX), out: Outgoing::default(), parts: Vec::new() }
    }

    /// Whether all that was taken has been sent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// Takes what it can of the parts, from their beginning, and answers how many bytes that was.
    ///
    /// # Safety
    /// The parts are readable.
    pub unsafe fn take(&mut self, parts: &[libc::iovec]) -> Result<usize, String> {
        let mut taken = 0;
        for part in parts {
            let mut at = 0;
            while at < part.iov_len && taken < SEALED_BYTES_MAX {
                let n = (part.iov_len - at).min(PLAIN_BYTES_MAX - self.plain.len()).min(SEALED_BYTES_MAX - taken);
                let have = self.plain.len();
                // SAFETY: inside the part, which the caller vouches for, and inside the capacity, which is the most
                // that a record takes. They do not overlap: the buffer is this object's own.
                unsafe {
                    let from = part.iov_base.cast::<u8>().add(at);
                    std::ptr::copy_nonoverlapping(from, self.plain.as_mut_ptr().add(have), n);
                    self.plain.set_len(have + n);
                }
                (at, taken) = (at + n, taken + n);
                if self.plain.len() == PLAIN_BYTES_MAX {
                    self.seal()?;
                }
            }
        }
        self.seal()?;
        Ok(taken)
    }

    fn seal(&mut self) -> Result<(), String> {
        self.sealer.seal(&self.plain, &mut self.out)?;
        self.plain.clear();
        Ok(())
    }

    /// What is left to send. It stays where it is until [`Self::advance`].
    pub fn parts(&mut self) -> &[libc::iovec] {
        let part = |record: &[u8]| libc::iovec { iov_base: record.as_ptr().cast_mut().cast(), iov_len: record.len() };
        self.parts.clear();
        self.parts.extend(self.out.slices().map(part));
        &self.parts
    }

    /// Takes note that `n` bytes were sent.
    pub fn advance(&mut self, n: usize) {
        self.out.advance(n);
    }
}

pub struct Opening {
    opener: Opener,
    buffer: Box<[u8]>,
    /// Received, and not opened.
    sealed: Range<usize>,
    /// Opened, and not used.
    plain: Range<usize>,
}

impl Opening {
    /// With a buffer of so many bytes, at least a record's.
    #[must_use]
    pub fn new(opener: Opener, bytes: usize) -> Opening {
        let buffer = vec![0; bytes.max(RECORD_BYTES_MAX)].into();
        Opening { opener, buffer, sealed: 0..0, plain: 0..0 }
    }

    /// Where more may be received once nothing plain is left: at least one byte.
    pub fn room(&mut self) -> (*mut u8, usize) {
        debug_assert!(self.plain.is_empty());
        self.buffer.copy_within(self.sealed.clone(), 0);
        self.sealed = 0..self.sealed.len();
        let room = &mut self.buffer[self.sealed.end..];
        (room.as_mut_ptr(), room.len())
    }

    /// So many bytes were received there.
    pub fn received(&mut self, n: usize) {
        self.sealed.end += n;
        assert!(self.sealed.end <= self.buffer.len());
    }

    /// Opens records until there are plain bytes. What the other side has done where there are none.
    pub fn open(&mut self) -> Result<Heard, String> {
        while self.plain.is_empty() {
            match self.opener.open(&mut self.buffer[self.sealed.clone()])? {
                Opened::Part => return Ok(Heard::Nothing),
                Opened::Closed => return Ok(Heard::End),
                Opened::Record { used, plain } => {
                    self.plain = self.sealed.start + plain.start..self.sealed.start + plain.end;
                    self.sealed.start += used;
                }
            }
        }
        Ok(Heard::Bytes)
    }

    #[must_use]
    pub fn plain(&self) -> &[u8] {
        &self.buffer[self.plain.clone()]
    }

    /// The first `n` plain bytes were used.
    pub fn used(&mut self, n: usize) {
        self.plain.start += n;
        assert!(self.plain.start <= self.plain.end);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    Bytes,
    /// More has to be received.
    Nothing,
    /// It sends nothing more.
    End,
}
