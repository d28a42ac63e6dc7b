//! What a program that has vGPUs of a pool leaves for tools that run beside it, in a file of its own: where its vGPUs
//! are, and what to show there to be told what they use.

use crate::codec::{Fault, Reader, Writer};
use crate::handle::OWNERS_MAX as NODES_MAX;
use crate::lease::{LEASE_BYTES_MAX, NAME_BYTES_MAX, name};
use crate::reserve::{array, get_option, put_option, small, text};

/// The first word, so that another release's is passed over.
const MAGIC: u64 = u64::from_le_bytes(*b"ORLEFT01");
const CONTROLLERS_MAX: usize = 64;
const TEXT_BYTES_MAX: usize = 4096;
/// Of the whole.
pub const LEFT_BYTES_MAX: usize =
    NODES_MAX * (LEASE_BYTES_MAX + 3 * TEXT_BYTES_MAX) + CONTROLLERS_MAX * (NAME_BYTES_MAX + 8) + TEXT_BYTES_MAX;

/// Of one program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    pub pid: u32,
    /// Where that is its number ([`crate::hello::Request`]).
    pub home: [u8; 16],
    pub asked: Asked,
    /// One of its nodes has lent this by itself.
    pub is_of_reserve: bool,
    pub parts: Vec<Part>,
}

/// Which job a program belongs to, as far as it has said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub controllers: Vec<String>,
    pub vgpus: u32,
    pub memory_mib: Option<u64>,
    pub ratio: Option<u32>,
    pub tenant: String,
    pub group: String,
}

/// What one node has given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub node: String,
    pub address: String,
    pub places: String,
    pub lease: Vec<u8>,
    pub signature: [u8; 32],
    /// SHA-256 of the certificate that its oriond shows over a network.
    pub certificate: Option<[u8; 32]>,
}

impl Left {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Vec::new();
        w.word(MAGIC);
        w.word(self.pid.into());
        w.bytes(&self.home);
        let Asked { controllers, vgpus, memory_mib, ratio, tenant, group } = &self.asked;
        let controllers = &controllers[..controllers.len().min(CONTROLLERS_MAX)];
        w.word(controllers.len() as u64);
        controllers.iter().for_each(|controller| w.bytes(controller.as_bytes()));
        w.word((*vgpus).into());
        put_option(&mut w, *memory_mib);
        put_option(&mut w, ratio.map(u64::from));
        w.bytes(tenant.as_bytes());
        w.bytes(group.as_bytes());
        w.word(self.is_of_reserve.into());
        w.word(self.parts.len() as u64);
        for Part { node, address, places, lease, signature, certificate } in &self.parts {
            for text in [node, address, places] {
                w.bytes(text.as_bytes());
            }
            w.bytes(lease);
            w.bytes(signature);
            w.bytes(certificate.as_ref().map_or(&[], |hash| &hash[..]));
        }
        w
    }

    pub fn decode(body: &[u8]) -> Result<Left, Fault> {
        let mut r = Reader::new(body);
        if r.word()? != MAGIC {
            return Err(Fault("it is another release's"));
        }
        let (pid, home) = (small(r.word()?)?, array(&mut r)?);
        let controllers = r.list(CONTROLLERS_MAX, name)?;
        let vgpus = small(r.word()?)?;
        let (memory_mib, ratio) = (get_option(&mut r)?, get_option(&mut r)?.map(small).transpose()?);
        let (tenant, group) = (name(&mut r)?, name(&mut r)?);
        let asked = Asked { controllers, vgpus, memory_mib, ratio, tenant, group };
        let is_of_reserve = r.word()? != 0;
        let parts = r.list(NODES_MAX, |r| {
            let (node, address, places) = (name(r)?, text(r, TEXT_BYTES_MAX)?, text(r, TEXT_BYTES_MAX)?);
            let lease = r.bytes()?.to_vec();
            if lease.len() > LEASE_BYTES_MAX {
                return Err(Fault("a lease longer than its limit"));
            }
            let signature = array(r)?;
            let certificate = match r.bytes()? {
                [] => None,
                hash => Some(hash.try_into().map_err(|_| Fault("byte string of the wrong length"))?),
            };
            Ok(Part { node, address, places, lease, signature, certificate })
        })?;
        r.finish()?;
        Ok(Left { pid, home, asked, is_of_reserve, parts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_comes_back_and_a_part_of_it_does_not() {
        let part = Part {
            node: "n".into(),
            address: "tcp:127.0.0.1:7411".into(),
            places: "0/0".into(),
            lease: vec![1, 2, 3],
            signature: [4; 32],
            certificate: Some([5; 32]),
        };
        let asked = Asked {
            controllers: vec!["a:1".into(), "b:1".into()],
            vgpus: 1,
            memory_mib: Some(64),
            ratio: None,
            tenant: "red".into(),
            group: String::new(),
        };
        let parts = vec![part.clone(), Part { certificate: None, ..part }];
        let left = Left { pid: 9, home: [7; 16], asked, is_of_reserve: true, parts };
        let body = left.encode();
        assert!(body.len() <= LEFT_BYTES_MAX);
        assert_eq!(Left::decode(&body), Ok(left.clone()));
        assert!((0..body.len()).all(|cut| Left::decode(&body[..cut]).is_err()));
        let longest = Left { parts: vec![left.parts[0].clone(); NODES_MAX + 1], ..left };
        assert!(Left::decode(&longest.encode()).is_err());
    }
}
