//! What the worker's driver writes to standard error: assertions of kernels, mostly.
//!
//! That may be a pipe that nobody reads, or one that is read late. The service thread must not wait for it, so what
//! there is no room for is kept, as kernel printf is; a call that waits for the device waits for who reads, too.

use orion_transport::client::say::{PATIENCE_MS, offer, quiet};

use crate::state::lock::{Lock, Rank};

/// What is beyond is left out.
const KEPT_BYTES_MAX: usize = 1 << 20;
/// How lines of the software GPU's own begin, which are Orion's.
const OWN: &[u8] = b"orion-soft: ";

struct Kept {
    bytes: Vec<u8>,
    /// Some thread writes what was there before.
    is_written: bool,
}

static KEPT: Lock<Kept> = Lock::new(Rank::Leaf, Kept { bytes: Vec::new(), is_written: false });

pub fn keep(bytes: &[u8]) {
    static BEGUN: Lock<Vec<u8>> = Lock::new(Rank::Leaf, Vec::new());
    if !quiet() {
        return add(bytes);
    }
    let mut shown = Vec::new();
    let mut begun = BEGUN.lock();
    for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
        begun.extend_from_slice(piece);
        // The rest of a line of ours may come with the next event.
        let may_be_ours = begun.iter().zip(OWN).all(|(a, b)| a == b);
        if !may_be_ours {
            shown.extend_from_slice(&begun);
        }
        if !may_be_ours || piece.ends_with(b"\n") {
            begun.clear();
        }
    }
    drop(begun);
    add(&shown);
}

fn add(bytes: &[u8]) {
    {
        let mut kept = KEPT.lock();
        let room = KEPT_BYTES_MAX.saturating_sub(kept.bytes.len());
        kept.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
    print_some();
}

/// As much as standard error takes at once.
pub fn print_some() {
    print(0);
}

/// All, as long as somebody reads.
pub fn print_all() {
    print(PATIENCE_MS);
}

fn print(patience_ms: i32) {
    let bytes = {
        let mut kept = KEPT.lock();
        if kept.is_written || kept.bytes.is_empty() {
            return;
        }
        kept.is_written = true;
        std::mem::take(&mut kept.bytes)
    };
    let taken = offer(&bytes, patience_ms);
    let mut kept = KEPT.lock();
    kept.is_written = false;
    kept.bytes.splice(..0, bytes[taken..].iter().copied());
}
