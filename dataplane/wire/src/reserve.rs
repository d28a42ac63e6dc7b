//! What a program and the agent of a node say to each other over a local socket of the agent's, where the program
//! reaches no controller of its pool.
//!
//! ```text
//! program                                 agent
//!   Want  (what is wanted)  ----------->  as much of the node's own reserve, if the agent reaches no controller either
//!         <---------------------------    Lent (a lease), or No
//!   Begun  ---------------------------->  the session has begun; from now on oriond says when it is over
//!   Want  (what is wanted, to look)  -->  nothing is lent: a tool asks what would be
//!         <---------------------------    Lent (a lease with which no session begins), or No
//! ```
//! The connection stands for what was lent: if it ends before `Begun`, that is free again. Each message is a frame of
//! kind [`KIND`], as in a handshake.

use crate::codec::{Fault, Reader, Writer};
use crate::lease::{LEASE_BYTES_MAX, LeaseId, name};
use crate::text::acts;

/// Of the frames.
pub const KIND: u32 = 65;
/// Raised when a message changes shape.
pub const RESERVE_VERSION: u64 = 3;
/// The socket's name, in the folder in which oriond has its own.
pub const SOCKET: &str = "reserve.sock";
/// What a program's messages begin with.
const LEND: u64 = 1;
const BEGUN: u64 = 2;
const LOOK: u64 = 3;
const KEY_BYTES_MAX: usize = 4096;
const CARRIER_BYTES_MAX: usize = 32;
const TEXT_BYTES_MAX: usize = 4096;

/// What a program wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub vgpus: u32,
    /// Of each; nothing is its part of the GPU.
    pub memory_mib: Option<u64>,
    pub ratio: Option<u32>,
    pub tenant: String,
    pub group: String,
    /// Host, process and program.
    pub client: String,
    /// The pool's client-key, if the program has one.
    pub client_key: String,
    /// The name of the carrier by which oriond has to be reached; nothing if any will do.
    pub carrier: String,
}

/// What a program says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// Nothing is lent to who looks: a tool asks what would be.
    Want {
        version: u64,
        is_look: bool,
        wanted: Wanted,
    },
    Begun,
}

/// What the agent answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Lent {
        allocation: LeaseId,
        node: String,
        /// Where its oriond listens.
        address: String,
        /// GPU and vGPU of each.
        places: String,
        lease: Vec<u8>,
        signature: [u8; 32],
        /// SHA-256 of the certificate that oriond shows to whoever comes over a network; nothing where nobody can, or
        /// where it speaks in the clear.
        certificate: Option<[u8; 32]>,
    },
    /// Why not, in words.
    No { reason: String },
}

impl Ask {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Vec::new();
        match self {
            Ask::Want { version, is_look, wanted } => {
                w.word(if *is_look { LOOK } else { LEND });
                w.word(*version);
                w.word(wanted.vgpus.into());
                put_option(&mut w, wanted.memory_mib);
                put_option(&mut w, wanted.ratio.map(u64::from));
                let Wanted { tenant, group, client, client_key, carrier, .. } = wanted;
                for text in [tenant, group, client, client_key, carrier] {
                    w.bytes(text.as_bytes());
                }
            }
            Ask::Begun => w.word(BEGUN),
        }
        w
    }

    pub fn decode(body: &[u8]) -> Result<Ask, Fault> {
        let mut r = Reader::new(body);
        let ask = match r.word()? {
            what @ (LEND | LOOK) => {
                let version = r.word()?;
                let vgpus = small(r.word()?)?;
                let (memory_mib, ratio) = (get_option(&mut r)?, get_option(&mut r)?.map(small).transpose()?);
                let (tenant, group, client) = (name(&mut r)?, name(&mut r)?, name(&mut r)?);
                let (client_key, carrier) = (text(&mut r, KEY_BYTES_MAX)?, text(&mut r, CARRIER_BYTES_MAX)?);
                let wanted = Wanted { vgpus, memory_mib, ratio, tenant, group, client, client_key, carrier };
                Ask::Want { version, is_look: what == LOOK, wanted }
            }
            BEGUN => Ask::Begun,
            _ => return Err(Fault("a program's message that this agent does not know")),
        };
        r.finish()?;
        Ok(ask)
    }
}

impl Answer {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Vec::new();
        match self {
            Answer::Lent { allocation, node, address, places, lease, signature, certificate } => {
                w.word(1);
                w.bytes(&allocation.0);
                for text in [node, address, places] {
                    w.bytes(text.as_bytes());
                }
                w.bytes(lease);
                w.bytes(signature);
                w.bytes(certificate.as_ref().map_or(&[], |hash| &hash[..]));
            }
            Answer::No { reason } => {
                w.word(2);
                w.bytes(reason.as_bytes());
            }
        }
        w
    }

    pub fn decode(body: &[u8]) -> Result<Answer, Fault> {
        let mut r = Reader::new(body);
        let answer = match r.word()? {
            1 => {
                let allocation = LeaseId(array(&mut r)?);
                let (node, address, places) = (name(&mut r)?, name(&mut r)?, text(&mut r, TEXT_BYTES_MAX)?);
                let lease = r.bytes()?.to_vec();
                if lease.len() > LEASE_BYTES_MAX {
                    return Err(Fault("a lease longer than its limit"));
                }
                let signature = array(&mut r)?;
                let certificate = match r.bytes()? {
                    [] => None,
                    hash => Some(hash.try_into().map_err(|_| Fault("byte string of the wrong length"))?),
                };
                Answer::Lent { allocation, node, address, places, lease, signature, certificate }
            }
            2 => Answer::No { reason: r.text()?.to_owned() },
            _ => return Err(Fault("an answer that this program does not know")),
        };
        r.finish()?;
        Ok(answer)
    }
}

pub(crate) fn put_option(w: &mut Vec<u8>, value: Option<u64>) {
    w.word(value.is_some().into());
    w.word(value.unwrap_or(0));
}

pub(crate) fn get_option(r: &mut Reader<'_>) -> Result<Option<u64>, Fault> {
    match (r.word()?, r.word()?) {
        (0, 0) => Ok(None),
        (1, value) => Ok(Some(value)),
        _ => Err(Fault("neither something nor nothing")),
    }
}

pub(crate) fn small(value: u64) -> Result<u32, Fault> {
    u32::try_from(value).map_err(|_| Fault("a number that is too large"))
}

pub(crate) fn text(r: &mut Reader<'_>, bytes_max: usize) -> Result<String, Fault> {
    let text = r.text()?;
    match text.len() <= bytes_max && !text.chars().any(acts) {
        true => Ok(text.to_owned()),
        false => Err(Fault("a text that is too long, or holds control characters")),
    }
}

pub(crate) fn array<const N: usize>(r: &mut Reader<'_>) -> Result<[u8; N], Fault> {
    r.bytes()?.try_into().map_err(|_| Fault("byte string of the wrong length"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> Wanted {
        let text = |text: &str| text.to_owned();
        let (tenant, group, client, client_key) = (text("red"), text("pod"), text("host 7 python"), text("key"));
        let carrier = text("rdma");
        Wanted { vgpus: 2, memory_mib: Some(512), ratio: None, tenant, group, client, client_key, carrier }
    }

    #[test]
    fn messages_come_back_and_parts_of_them_do_not() {
        let none = Wanted { memory_mib: None, ratio: Some(100), carrier: String::new(), ..wanted() };
        for wanted in [wanted(), none] {
            let version = RESERVE_VERSION;
            for is_look in [false, true] {
                let ask = Ask::Want { version, is_look, wanted: wanted.clone() };
                let body = ask.encode();
                assert_eq!(Ask::decode(&body), Ok(ask));
                assert!((0..body.len()).all(|cut| Ask::decode(&body[..cut]).is_err()));
            }
        }
        assert_eq!(Ask::decode(&Ask::Begun.encode()), Ok(Ask::Begun));
        let lent = |certificate| Answer::Lent {
            allocation: LeaseId([7; 16]),
            node: "a".into(),
            address: "tcp:a:9960".into(),
            places: "0/3,1/3".into(),
            lease: vec![5; 40],
            signature: [9; 32],
            certificate,
        };
        for answer in [lent(None), lent(Some([3; 32])), Answer::No { reason: "no room".into() }] {
            let body = answer.encode();
            assert_eq!(Answer::decode(&body), Ok(answer));
            assert!((0..body.len()).all(|cut| Answer::decode(&body[..cut]).is_err()));
        }
    }

    #[test]
    fn what_is_too_much_is_no_message() {
        for change in [
            |w: &mut Wanted| w.tenant = "x".repeat(257),
            |w: &mut Wanted| w.client = "a\nb".into(),
            |w: &mut Wanted| w.client_key = "k".repeat(KEY_BYTES_MAX + 1),
            |w: &mut Wanted| w.carrier = "c".repeat(CARRIER_BYTES_MAX + 1),
        ] {
            let mut wanted = wanted();
            change(&mut wanted);
            let ask = Ask::Want { version: RESERVE_VERSION, is_look: false, wanted };
            assert!(Ask::decode(&ask.encode()).is_err());
        }
        let mut words = Ask::Want { version: 1, is_look: false, wanted: wanted() }.encode();
        words[16..24].fill(0xff);
        assert_eq!(Ask::decode(&words), Err(Fault("a number that is too large")));
    }
}
