//! What the controller of a pool allows one session: which vGPUs it has, on which node, and until when it may begin.
//!
//! The words are here; how they are signed and shown is in `orion_transport::lease`.

use crate::codec::{Fault, Reader, Writer};
use crate::text::acts;

/// The first words of a lease, so that no other signed bytes are taken for one.
const MAGIC: u64 = u64::from_le_bytes(*b"ORLEASE1");
/// As many as a session may have devices.
pub const VGPUS_MAX: usize = 64;
/// Of a name of a node, a tenant or a GPU.
pub const NAME_BYTES_MAX: usize = 256;
/// Of a whole lease.
pub const LEASE_BYTES_MAX: usize = 32 << 10;

/// The allocation's number at the controller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub [u8; 16]);

impl std::fmt::Display for LeaseId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&grouped(&self.0))
    }
}

impl std::fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

impl std::str::FromStr for LeaseId {
    type Err = String;

    fn from_str(text: &str) -> Result<LeaseId, String> {
        let hex: String = text.chars().filter(|c| *c != '-').collect();
        let number =
            (hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_hexdigit())).then(|| u128::from_str_radix(&hex, 16));
        match number {
            Some(Ok(number)) => Ok(LeaseId(number.to_be_bytes())),
            _ => Err(format!("{text:?} is no lease; one looks like {}", LeaseId([0x1f; 16]))),
        }
    }
}

/// A GPU's name as NVIDIA's tools write it: `GPU-` and its UUID.
pub fn gpu_name(uuid: &[u8; 16]) -> String {
    format!("GPU-{}", grouped(uuid))
}

fn grouped(bytes: &[u8; 16]) -> String {
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// One vGPU of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vgpu {
    /// On which of the node's GPUs it lies, as [`gpu_name`] writes it.
    pub gpu: String,
    /// Device memory that it has.
    pub memory_bytes: u64,
    /// Percent of the GPU's time that it is promised.
    pub ratio: u32,
}

/// One session's vGPUs, in the order in which the program counts them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub id: LeaseId,
    /// The node whose oriond it is for.
    pub node: String,
    pub tenant: String,
    /// Milliseconds since 1970: later no session begins with it. One that has begun goes on.
    pub begins_before_unix_ms: u64,
    pub vgpus: Vec<Vgpu>,
}

impl Lease {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Vec::new();
        w.word(MAGIC);
        w.bytes(&self.id.0);
        w.bytes(self.node.as_bytes());
        w.bytes(self.tenant.as_bytes());
        w.word(self.begins_before_unix_ms);
        put_vgpus(&mut w, &self.vgpus);
        w
    }

    /// Nothing of it may be believed before it was seen who signed it.
    pub fn decode(body: &[u8]) -> Result<Lease, Fault> {
        if body.len() > LEASE_BYTES_MAX {
            return Err(Fault("a lease longer than its limit"));
        }
        let mut r = Reader::new(body);
        if r.word()? != MAGIC {
            return Err(Fault("not a lease of this version"));
        }
        let id = LeaseId(r.bytes()?.try_into().map_err(|_| Fault("a lease's number is not 16 bytes"))?);
        let (node, tenant) = (name(&mut r)?, name(&mut r)?);
        let lease = Lease { id, node, tenant, begins_before_unix_ms: r.word()?, vgpus: get_vgpus(&mut r)? };
        r.finish()?;
        match lease.vgpus.is_empty() {
            true => Err(Fault("a lease without a vGPU")),
            false => Ok(lease),
        }
    }
}

pub fn put_vgpus(w: &mut Vec<u8>, vgpus: &[Vgpu]) {
    w.word(vgpus.len() as u64);
    for vgpu in vgpus {
        w.bytes(vgpu.gpu.as_bytes());
        w.word(vgpu.memory_bytes);
        w.word(vgpu.ratio.into());
    }
}

pub fn get_vgpus(r: &mut Reader<'_>) -> Result<Vec<Vgpu>, Fault> {
    r.list(VGPUS_MAX, |r| {
        let vgpu = Vgpu { gpu: name(r)?, memory_bytes: r.word()?, ratio: r.word()?.try_into().unwrap_or(u32::MAX) };
        match (vgpu.memory_bytes, vgpu.ratio) {
            (0, _) => Err(Fault("a vGPU without memory")),
            (_, 1..=100) => Ok(vgpu),
            _ => Err(Fault("a vGPU whose share is no percentage")),
        }
    })
}

/// A text that may stand in a line of a log.
pub fn name(r: &mut Reader<'_>) -> Result<String, Fault> {
    let text = r.text()?;
    match text.len() <= NAME_BYTES_MAX && !text.chars().any(acts) {
        true => Ok(text.to_owned()),
        false => Err(Fault("a name that is too long, or holds control characters")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease() -> Lease {
        let vgpu = |number: u8| Vgpu { gpu: gpu_name(&[number; 16]), memory_bytes: 1 << 30, ratio: 25 };
        Lease {
            id: LeaseId([7; 16]),
            node: "a".into(),
            tenant: "red".into(),
            begins_before_unix_ms: 1 << 40,
            vgpus: vec![vgpu(1), vgpu(2)],
        }
    }

    #[test]
    fn a_lease_comes_back_and_a_part_of_one_is_none() {
        let body = lease().encode();
        assert_eq!(Lease::decode(&body), Ok(lease()));
        assert!((0..body.len()).all(|cut| Lease::decode(&body[..cut]).is_err()));
        assert!(Lease::decode(&[&body[..], &[0; 8]].concat()).is_err());
    }

    #[test]
    fn what_no_vgpu_can_be_is_no_lease() {
        for change in [
            |l: &mut Lease| l.vgpus.clear(),
            |l: &mut Lease| l.vgpus[0].memory_bytes = 0,
            |l: &mut Lease| l.vgpus[0].ratio = 0,
            |l: &mut Lease| l.vgpus[0].ratio = 101,
            |l: &mut Lease| l.vgpus = vec![l.vgpus[0].clone(); VGPUS_MAX + 1],
            |l: &mut Lease| l.node = "a\nb".into(),
            |l: &mut Lease| l.tenant = "x".repeat(NAME_BYTES_MAX + 1),
        ] {
            let mut wrong = lease();
            change(&mut wrong);
            assert!(Lease::decode(&wrong.encode()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_number_is_read_as_it_is_written() {
        let id = LeaseId([0xa5; 16]);
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(id.to_string(), "a5a5a5a5-a5a5-a5a5-a5a5-a5a5a5a5a5a5");
        for wrong in ["", "a5", "a5a5a5a5-a5a5-a5a5-a5a5-a5a5a5a5a5ag", "+5a5a5a5-a5a5-a5a5-a5a5-a5a5a5a5a5a5"] {
            assert!(wrong.parse::<LeaseId>().is_err(), "{wrong}");
        }
    }
}
