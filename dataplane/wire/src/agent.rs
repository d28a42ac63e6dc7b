//! What an oriond that belongs to a pool and the agent beside it say to each other over a local socket of oriond's.
//!
//! ```text
//! agent                                   oriond
//!   Who       ------------------------->  the instance that this is, and its GPUs, or No as long as no worker is warm
//!             <-------------------------  Server, or No
//!   Belong    (node, key, clock) -------->  admits who has a lease from now on, judged by the controller's clock
//!             <-------------------------  Done
//!   Keep      (node, key, clock) -------->  admits who has a lease of the node's own reserve, by the agent's clock
//!             <-------------------------  Done
//!   Look      (heard, over, wait) ------->  ends the sessions of `over`; waits until something has changed
//!             <-------------------------  State (version, live, ended, reserve)
//! ```
//! The agent asks, and oriond answers each question once. What has ended is told until the agent says that it has heard
//! of it, so an agent that was killed and started again misses nothing. Each message is a frame of kind [`KIND`], as in
//! a handshake.

use crate::codec::{Fault, Reader, Writer};
use crate::lease::{Lease, LeaseId, VGPUS_MAX, name};

/// Of the frames.
pub const KIND: u32 = 64;
/// Raised when a message changes shape.
pub const AGENT_VERSION: u64 = 5;
/// GPUs of a node.
pub const GPUS_MAX: usize = 64;
/// Leases in one message.
pub const LEASES_MAX: usize = 16 << 10;
/// Of them such as have ended, and an agent has not heard of yet: as many as its controller takes at once.
pub const ENDED_MAX: usize = 4096;
/// What an agent may have oriond wait for a change.
pub const WAIT_MS_MAX: u64 = 10_000;

/// A physical GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    pub uuid: [u8; 16],
    pub name: String,
    pub memory_bytes: u64,
}

/// Bytes that the vGPUs of a lease's session use, in the lease's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Used {
    pub lease: LeaseId,
    pub vgpu_bytes: Vec<u64>,
}

/// What the agent says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    Who {
        version: u64,
    },
    /// `controller_unix_ms` is the controller's clock, by which leases run out.
    Belong {
        node: String,
        key: [u8; 32],
        controller_unix_ms: u64,
    },
    /// The agent lends the node's own reserve. Leases of it are signed by this key, which no controller knows; leases
    /// that it signed by an earlier one are for nothing any more.
    Keep {
        node: String,
        key: [u8; 32],
        unix_ms: u64,
    },
    Look {
        heard: u64,
        over: Vec<LeaseId>,
        wait_ms: u64,
    },
}

/// What oriond answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Server {
        instance: [u8; 16],
        is_software: bool,
        /// SHA-256 of the certificate that it shows to whoever comes over a network; nothing where nobody can, or
        /// where it speaks in the clear.
        certificate: Option<[u8; 32]>,
        gpus: Vec<Gpu>,
    },
    Done,
    /// Each change has a higher version; `ended` is what the agent has not said that it has heard of.
    State {
        version: u64,
        live: Vec<LeaseId>,
        ended: Vec<LeaseId>,
        used: Vec<Used>,
        /// Those of the live ones that are of the node's own reserve, whole: an agent that was started again knows of
        /// them by this alone.
        reserve: Vec<Lease>,
    },
    /// Why not, in words.
    No {
        reason: String,
    },
}

impl Ask {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Vec::new();
        match self {
            Ask::Who { version } => {
                w.word(1);
                w.word(*version);
            }
            Ask::Belong { node, key, controller_unix_ms } => {
                w.word(2);
                w.bytes(node.as_bytes());
                w.bytes(key);
                w.word(*controller_unix_ms);
            }
            Ask::Look { heard, over, wait_ms } => {
                w.word(3);
                w.word(*heard);
                put_ids(&mut w, over);
                w.word(*wait_ms);
            }
            Ask::Keep { node, key, unix_ms } => {
                w.word(4);
                w.bytes(node.as_bytes());
                w.bytes(key);
                w.word(*unix_ms);
            }
        }
        w
    }

    pub fn decode(body: &[u8]) -> Result<Ask, Fault> {
        let mut r = Reader::new(body);
        let ask = match r.word()? {
            1 => Ask::Who { version: r.word()? },
            2 => Ask::Belong { node: name(&mut r)?, key: array(&mut r)?, controller_unix_ms: r.word()? },
            3 => Ask::Look { heard: r.word()?, over: get_ids(&mut r)?, wait_ms: r.word()? },
            4 => Ask::Keep { node: name(&mut r)?, key: array(&mut r)?, unix_ms: r.word()? },
            _ => return Err(Fault("an agent's message that this oriond does not know")),
        };
        r.finish()?;
        Ok(ask)
    }
}

impl Answer {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Vec::new();
        match self {
            Answer::Server { instance, is_software, certificate, gpus } => {
                w.word(1);
                w.bytes(instance);
                w.word((*is_software).into());
                w.bytes(certificate.as_ref().map_or(&[], |hash| &hash[..]));
                put_gpus(&mut w, gpus);
            }
            Answer::Done => w.word(2),
            Answer::State { version, live, ended, used, reserve } => {
                w.word(3);
                w.word(*version);
                put_ids(&mut w, live);
                put_ids(&mut w, ended);
                put_used(&mut w, used);
                w.word(reserve.len() as u64);
                reserve.iter().for_each(|lease| w.bytes(&lease.encode()));
            }
            Answer::No { reason } => {
                w.word(4);
                w.bytes(reason.as_bytes());
            }
        }
        w
    }

    pub fn decode(body: &[u8]) -> Result<Answer, Fault> {
        let mut r = Reader::new(body);
        let answer = match r.word()? {
            1 => Answer::Server {
                instance: array(&mut r)?,
                is_software: r.word()? != 0,
                certificate: match r.bytes()? {
                    [] => None,
                    hash => Some(hash.try_into().map_err(|_| Fault("byte string of the wrong length"))?),
                },
                gpus: get_gpus(&mut r)?,
            },
            2 => Answer::Done,
            3 => {
                let (version, live, ended) = (r.word()?, get_ids(&mut r)?, get_ids(&mut r)?);
                let used = get_used(&mut r)?;
                Answer::State {
                    version,
                    live,
                    ended,
                    used,
                    reserve: r.list(LEASES_MAX, |r| Lease::decode(r.bytes()?))?,
                }
            }
            4 => Answer::No { reason: r.text()?.to_owned() },
            _ => return Err(Fault("an answer that this agent does not know")),
        };
        r.finish()?;
        Ok(answer)
    }
}

pub fn put_gpus(w: &mut Vec<u8>, gpus: &[Gpu]) {
    w.word(gpus.len() as u64);
    for gpu in gpus {
        w.bytes(&gpu.uuid);
        w.bytes(gpu.name.as_bytes());
        w.word(gpu.memory_bytes);
    }
}

pub fn get_gpus(r: &mut Reader<'_>) -> Result<Vec<Gpu>, Fault> {
    r.list(GPUS_MAX, |r| Ok(Gpu { uuid: array(r)?, name: name(r)?, memory_bytes: r.word()? }))
}

fn put_used(w: &mut Vec<u8>, all: &[Used]) {
    w.word(all.len() as u64);
    for used in all {
        w.bytes(&used.lease.0);
        w.word(used.vgpu_bytes.len() as u64);
        used.vgpu_bytes.iter().for_each(|bytes| w.word(*bytes));
    }
}

fn get_used(r: &mut Reader<'_>) -> Result<Vec<Used>, Fault> {
    r.list(LEASES_MAX, |r| Ok(Used { lease: LeaseId(array(r)?), vgpu_bytes: r.list(VGPUS_MAX, Reader::word)? }))
}

fn put_ids(w: &mut Vec<u8>, ids: &[LeaseId]) {
    w.word(ids.len() as u64);
    ids.iter().for_each(|id| w.bytes(&id.0));
}

fn get_ids(r: &mut Reader<'_>) -> Result<Vec<LeaseId>, Fault> {
    r.list(LEASES_MAX, |r| array(r).map(LeaseId))
}

fn array<const N: usize>(r: &mut Reader<'_>) -> Result<[u8; N], Fault> {
    r.bytes()?.try_into().map_err(|_| Fault("byte string of the wrong length"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Vgpu;

    #[test]
    fn messages_come_back_and_parts_of_them_do_not() {
        let id = LeaseId([9; 16]);
        for ask in [
            Ask::Who { version: AGENT_VERSION },
            Ask::Belong { node: "a".into(), key: [7; 32], controller_unix_ms: 9 },
            Ask::Keep { node: "a".into(), key: [7; 32], unix_ms: 9 },
            Ask::Look { heard: 3, over: vec![id, id], wait_ms: 5 },
        ] {
            let body = ask.encode();
            assert_eq!(Ask::decode(&body), Ok(ask));
            assert!((0..body.len()).all(|cut| Ask::decode(&body[..cut]).is_err()));
        }
        let gpu = Gpu { uuid: [1; 16], name: "H200".into(), memory_bytes: 1 << 37 };
        for answer in [
            Answer::Server { instance: [2; 16], is_software: true, certificate: None, gpus: vec![gpu.clone()] },
            Answer::Server {
                instance: [2; 16],
                is_software: true,
                certificate: Some([3; 32]),
                gpus: vec![gpu.clone(), gpu],
            },
            Answer::Done,
            Answer::State {
                version: 4,
                live: vec![id],
                ended: Vec::new(),
                used: vec![Used { lease: id, vgpu_bytes: vec![7] }],
                reserve: vec![Lease {
                    id,
                    node: "a".into(),
                    tenant: String::new(),
                    begins_before_unix_ms: 5,
                    vgpus: vec![Vgpu { gpu: "GPU-1".into(), memory_bytes: 1, ratio: 25 }],
                }],
            },
            Answer::No { reason: "not yet".into() },
        ] {
            let body = answer.encode();
            assert_eq!(Answer::decode(&body), Ok(answer));
            assert!((0..body.len()).all(|cut| Answer::decode(&body[..cut]).is_err()));
        }
    }

    #[test]
    fn a_list_has_an_end() {
        let mut w = Vec::new();
        w.word(3);
        w.word(0);
        w.word(LEASES_MAX as u64 + 1);
        assert_eq!(Ask::decode(&w), Err(Fault("list longer than its limit")));
    }
}
