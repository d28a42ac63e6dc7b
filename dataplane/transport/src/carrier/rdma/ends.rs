//! What the two ends of a session tell each other over their TCP connection, so that each can write to the other.

use orion_ring::control::PLACED_BYTES;
use orion_wire::{Fault, Reader, Writer};

use super::limits::{PEER_RING_BYTES_MAX, RING_BYTES};

/// The largest number of a queue pair or of a packet.
const NUMBER_MAX: u64 = (1 << 24) - 1;

/// One end of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    pub qp_number: u32,
    /// Of the first packet that it sends.
    pub first_psn: u32,
    /// The port's address, where it has one.
    pub gid: [u8; 16],
    /// The port's address within its InfiniBand.
    pub lid: u16,
    /// The largest packet, as verbs number it.
    pub mtu: u8,
    /// Where its inbox is, and the key to it.
    pub inbox: u64,
    pub key: u32,
    /// Ranges of this end that the other's device may read at a time, and the other way around. None where this end's
    /// device cannot.
    pub reads: u8,
    pub ring: RingEnd,
}

/// The ring that is written into at this end: the worker's commands, or the application's replies. Besides the inbox,
/// nothing else of that process has a key for as long as the session runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingEnd {
    pub data: u64,
    pub bytes: u64,
    pub key: u32,
    /// Where it is said how far records were written, and the key to that.
    pub placed: u64,
    pub placed_key: u32,
}

impl RingEnd {
    fn encode(&self, w: &mut Vec<u8>) {
        w.word(self.data);
        w.word(self.bytes);
        w.word(self.key.into());
        w.word(self.placed);
        w.word(self.placed_key.into());
    }

    fn decode(r: &mut Reader<'_>) -> Result<RingEnd, Fault> {
        let (data, bytes, key, placed, placed_key) = (r.word()?, r.word()?, r.word()?, r.word()?, r.word()?);
        if !bytes.is_power_of_two() || bytes > PEER_RING_BYTES_MAX as u64 {
            return Err(Fault("a queue pair's ring has an impossible size"));
        }
        let ends = data.checked_add(bytes).and(placed.checked_add(PLACED_BYTES as u64));
        if ends.is_none() || !placed.is_multiple_of(8) {
            return Err(Fault("a queue pair's ring is where nothing can be"));
        }
        Ok(RingEnd { data, bytes, key: narrow(key)?, placed, placed_key: narrow(placed_key)? })
    }
}

fn narrow<T: TryFrom<u64>>(word: u64) -> Result<T, Fault> {
    word.try_into().map_err(|_| Fault("a queue pair has an impossible address"))
}

impl End {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Vec::new();
        w.word(self.qp_number.into());
        w.word(self.first_psn.into());
        w.bytes(&self.gid);
        w.word(self.lid.into());
        w.word(self.mtu.into());
        w.word(self.inbox);
        w.word(RING_BYTES as u64);
        w.word(self.key.into());
        w.word(self.reads.into());
        self.ring.encode(&mut w);
        w
    }

    pub fn decode(body: &[u8]) -> Result<End, Fault> {
        let mut r = Reader::new(body);
        let (qp_number, first_psn) = (r.word()?, r.word()?);
        let gid = r.bytes()?.try_into().map_err(|_| Fault("a port's address has another length"))?;
        let (lid, mtu, inbox, inbox_bytes, key) = (r.word()?, r.word()?, r.word()?, r.word()?, r.word()?);
        let reads = r.word()?;
        let ring = RingEnd::decode(&mut r)?;
        r.finish()?;
        if !(1..=NUMBER_MAX).contains(&qp_number) || first_psn > NUMBER_MAX {
            return Err(Fault("a queue pair has an impossible number"));
        }
        if !(1..=5).contains(&mtu) {
            return Err(Fault("a queue pair has impossible packets"));
        }
        if inbox_bytes != RING_BYTES as u64 || inbox.checked_add(inbox_bytes).is_none() {
            return Err(Fault("a queue pair's inbox has another size than ours"));
        }
        Ok(End {
            qp_number: qp_number as u32,
            first_psn: first_psn as u32,
            gid,
            lid: narrow(lid)?,
            mtu: mtu as u8,
            inbox,
            key: narrow(key)?,
            reads: narrow(reads)?,
            ring,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RING: RingEnd = RingEnd { data: 0x7100_0000, bytes: 2 << 20, key: 5, placed: 0x7200_0008, placed_key: 6 };
    const END: End = End {
        qp_number: 17,
        first_psn: 0xff_ffff,
        gid: [9; 16],
        lid: 3,
        mtu: 5,
        inbox: 0x7000_0000,
        key: u32::MAX,
        reads: 4,
        ring: RING,
    };

    #[test]
    fn an_end_comes_back() {
        assert_eq!(End::decode(&END.encode()), Ok(END));
    }

    #[test]
    fn nonsense_is_a_fault() {
        for bad in [
            End { qp_number: 0, ..END },
            End { qp_number: 1 << 24, ..END },
            End { first_psn: 1 << 24, ..END },
            End { mtu: 0, ..END },
            End { mtu: 6, ..END },
            End { inbox: u64::MAX - 7, ..END },
            End { ring: RingEnd { bytes: 0, ..RING }, ..END },
            End { ring: RingEnd { bytes: 3 << 20, ..RING }, ..END },
            End { ring: RingEnd { bytes: 8 << 20, ..RING }, ..END },
            End { ring: RingEnd { data: u64::MAX - 7, ..RING }, ..END },
            End { ring: RingEnd { placed: u64::MAX - 7, ..RING }, ..END },
            End { ring: RingEnd { placed: 4, ..RING }, ..END },
        ] {
            assert!(End::decode(&bad.encode()).is_err(), "{bad:?}");
        }
        let all = END.encode();
        for cut in 0..all.len() {
            assert!(End::decode(&all[..cut]).is_err());
        }
        assert!(End::decode(&[all, vec![0; 8]].concat()).is_err());
    }
}
