//! A guest's segment at the host's end. It is read and written by system calls and never mapped here: whoever runs the
//! guest may cut a file of his, and a mapping of it would end oriond. So all that is read is a copy, too.

// UNSAFETY: locks a file and punches holes into it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use orion_ring::sealed;
use orion_transport::carrier::ivshmem::segment::{
    BEAT_AT, FRONT_BYTES, GUEST_WORDS_AT, HOST_WORDS_AT, Head, Shape, To, WORDS_BYTES, Words, pieces,
};

pub struct Segment {
    file: File,
    bytes: u64,
    pub shape: Shape,
}

impl Segment {
    /// Memory of our own, whose size nobody changes.
    pub fn make(bytes: u64, sessions: usize) -> Result<Segment, String> {
        let shape = Shape::of(bytes, sessions)?;
        let file = sealed(c"orion-guest", bytes).map_err(|e| format!("making {} MiB failed: {e}", bytes >> 20))?;
        Ok(Segment { file: file.into(), bytes, shape })
    }

    /// A file that orion-shm has made and QEMU maps.
    pub fn open(path: &Path, sessions: usize) -> Result<Segment, String> {
        let name = path.display();
        // A pipe of that name would be waited for.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let opened = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
        let file = opened.map_err(|e| format!("opening {name} failed: {e}; orion-shm makes such a file"))?;
        let found = file.metadata().map_err(|e| format!("looking at {name} failed: {e}"))?;
        if !found.is_file() || found.file_type().is_socket() {
            return Err(format!("{name} is no regular file; orion-shm makes one"));
        }
        if found.mode() & 0o007 != 0 {
            return Err(format!(
                "refusing {name}: every user of this machine can open it (mode {:04o}), and so have the sessions of \
                 its guest; `chmod o= {name}`",
                found.mode() & 0o7777
            ));
        }
        let shape = Shape::of(found.len(), sessions).map_err(|why| format!("{name}: {why}"))?;
        // SAFETY: a plain call on a descriptor we own.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
            return Err(format!("another oriond serves {name}; give each its own"));
        }
        Ok(Segment { file, bytes: found.len(), shape })
    }

    /// For whoever maps it.
    pub fn descriptor(&self) -> io::Result<Arc<OwnedFd>> {
        Ok(Arc::new(self.file.try_clone()?.into()))
    }

    /// Whether its name leads nowhere any more. Guests that have it go on; another one cannot open it.
    pub fn is_removed(&self) -> bool {
        self.file.metadata().is_ok_and(|found| found.nlink() == 0)
    }

    /// Sessions lie where nothing is read here, so a file that ends in the midst of them is looked for.
    pub fn is_whole(&self) -> io::Result<()> {
        let (found, bytes) = (self.file.metadata()?.len(), self.bytes);
        match found >= bytes {
            true => Ok(()),
            false => Err(io::Error::other(format!("{found} bytes are left of {bytes}"))),
        }
    }

    /// Whether there is room for what is said to the guest. Saying it makes a file longer that has been cut.
    pub fn has_front(&self) -> bool {
        self.file.metadata().is_ok_and(|found| found.len() >= FRONT_BYTES as u64)
    }

    /// What the guest says of each slot. Nothing of one that it is just changing.
    pub fn of_guest(&self) -> io::Result<Vec<Option<Words>>> {
        let mut readings = [(); 2].map(|()| vec![0u8; self.shape.slots * WORDS_BYTES as usize]);
        for reading in &mut readings {
            self.file.read_exact_at(reading, GUEST_WORDS_AT)?;
        }
        let words = readings.each_ref().map(|bytes| bytes.chunks_exact(WORDS_BYTES as usize).map(words));
        let [first, second] = words;
        Ok(first.zip(second).map(|(one, other)| (one == other).then_some(one)).collect())
    }

    /// All that the host says of a slot. What it tells of has to be there already.
    pub fn say(&self, slot: usize, words: Words) -> io::Result<()> {
        let Words { session, state, sent, taken } = words;
        // The session last: the guest believes the others once it sees that.
        for (at, word) in
            [(Words::STATE_AT, state), (Words::SENT_AT, sent), (Words::TAKEN_AT, taken), (Words::SESSION_AT, session)]
        {
            self.write_word(HOST_WORDS_AT + slot as u64 * WORDS_BYTES + at, word)?;
        }
        Ok(())
    }

    pub fn begin(&self, head: &Head) -> io::Result<()> {
        // Backwards: who sees the first word sees the others.
        head.encode().iter().enumerate().rev().try_for_each(|(i, word)| self.write_word(8 * i as u64, *word))
    }

    /// Nobody serves it from now on.
    pub fn end(&self) -> io::Result<()> {
        self.write_word(0, 0)
    }

    pub fn beat(&self, count: u64) -> io::Result<()> {
        self.write_word(BEAT_AT, count)
    }

    fn write_word(&self, at: u64, word: u64) -> io::Result<()> {
        self.file.write_all_at(&word.to_le_bytes(), at)
    }

    /// Copies mail from the guest.
    pub fn take(&self, slot: usize, at: u64, bytes: u64) -> io::Result<Vec<u8>> {
        let mut mail = vec![0; bytes as usize];
        let mut done = 0;
        for (offset, len) in pieces(slot, To::Host, at, bytes) {
            self.file.read_exact_at(&mut mail[done..done + len], offset)?;
            done += len;
        }
        Ok(mail)
    }

    /// Puts mail for the guest where there is room.
    pub fn put(&self, slot: usize, at: u64, mail: &[u8]) -> io::Result<()> {
        let mut rest = mail;
        for (offset, len) in pieces(slot, To::Guest, at, mail.len() as u64) {
            let (piece, more) = rest.split_at(len);
            self.file.write_all_at(piece, offset)?;
            rest = more;
        }
        Ok(())
    }

    /// A slot's memory is zeros again, and costs nothing.
    pub fn clear(&self, slot: usize) -> io::Result<()> {
        self.punch(self.shape.offset(slot), self.shape.slot_bytes)
    }

    /// So is all of it.
    pub fn clear_all(&self) -> io::Result<()> {
        self.punch(0, self.bytes)
    }

    fn punch(&self, at: u64, bytes: u64) -> io::Result<()> {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: a plain call on a descriptor we own.
        match unsafe { libc::fallocate(self.file.as_raw_fd(), mode, at as libc::off_t, bytes as libc::off_t) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn words(bytes: &[u8]) -> Words {
    let word = |i: usize| u64::from_le_bytes(bytes[8 * i..8 * i + 8].try_into().expect("eight bytes"));
    Words::of(std::array::from_fn(word))
}
