//! What the two ends of a session tell each other over their TCP connection, so that each can write to the other.

use orion_wire::{Fault, Reader, Writer};

use super::limits::RING_BYTES;

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
    /// Where its inbox is, and the key to it. Nothing else of that process has a key.
    pub inbox: u64,
    pub key: u32,
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
        w
    }

    pub fn decode(body: &[u8]) -> Result<End, Fault> {
        let mut r = Reader::new(body);
        let (qp_number, first_psn) = (r.word()?, r.word()?);
        let gid = r.bytes()?.try_into().map_err(|_| Fault("a port's address has another length"))?;
        let (lid, mtu, inbox, inbox_bytes, key) = (r.word()?, r.word()?, r.word()?, r.word()?, r.word()?);
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
        let narrow = |_| Fault("a queue pair has an impossible address");
        Ok(End {
            qp_number: qp_number as u32,
            first_psn: first_psn as u32,
            gid,
            lid: lid.try_into().map_err(narrow)?,
            mtu: mtu as u8,
            inbox,
            key: key.try_into().map_err(narrow)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: End =
        End { qp_number: 17, first_psn: 0xff_ffff, gid: [9; 16], lid: 3, mtu: 5, inbox: 0x7000_0000, key: u32::MAX };

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
