//! The handshake: who is calling, what it is granted, and what the shim may answer by itself from then on.
//!
//! ```text
//! client                                       oriond / worker
//!   Hello    (version, API hash, nonce) -------->  refuses in words, or
//!            <------------------------ Challenge   (nonce, proof that it knows the token)
//!   Request  (program, settings, proof) -------->  refuses in words, or
//!            <-------------------------- Welcome   (session, devices, memory layout)  [+ memfd on a local socket]
//!   Start    (heap base, pages, bell) ---------->  maps the heap at the client's address
//!            <-------------------------- Started
//!   Ends     <---------------------------------->  where a carrier wants it
//!
//! a further connection, for bulk data:
//!   Join     (session, lane, nonce) ------------>
//!            <------------------------ Challenge   (nonce, proof)
//!   Proof    ----------------------------------->
//!            <-------------------------- Started
//! ```
//! Each message is a frame: magic u32, kind u32, body bytes u32, reserved u32, body. What is proved, and how, is in
//! `orion_transport::proof`; the token itself is never sent.

use crate::codec::{Fault, Reader, Writer};
use crate::environment::Environment;
use crate::message::carrier::DEVICES_MAX;
use crate::pages::Pages;
use crate::version::{Release, Version};

pub const FRAME_MAGIC: u32 = u32::from_le_bytes(*b"ORIO");
pub const FRAME_HEADER_BYTES: usize = 16;
/// Welcome is the largest: 16 KiB a device at most.
pub const FRAME_BYTES_MAX: usize = 1 << 20;

pub mod kind {
    pub const HELLO: u32 = 1;
    pub const WELCOME: u32 = 2;
    pub const REFUSED: u32 = 3;
    pub const START: u32 = 4;
    pub const STARTED: u32 = 5;
    /// A further TCP connection of an existing session, for bulk data.
    pub const JOIN: u32 = 6;
    /// The server's answer to HELLO and JOIN.
    pub const CHALLENGE: u32 = 7;
    /// What the client wants, once the server has proved itself.
    pub const REQUEST: u32 = 8;
    /// The client's answer to the challenge of a JOIN.
    pub const PROOF: u32 = 9;
    /// In place of REQUEST: what a session would have, and what runs (`orion_wire::view`).
    pub const ASK: u32 = 10;
    pub const VIEW: u32 = 11;
    /// Behind STARTED, both ways: what the ends of a carrier have to know of each other, which they alone understand.
    pub const ENDS: u32 = 12;
}

/// Fresh random bytes of one side, so that nothing of an earlier handshake is of use in a later one.
pub type Nonce = [u8; 32];
/// HMAC-SHA256 under a secret that both sides know.
pub type Proof = [u8; 32];

/// One frame: `kind` and `body`, ready to send.
pub fn frame(kind: u32, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(FRAME_HEADER_BYTES + body.len());
    out.extend_from_slice(&FRAME_MAGIC.to_le_bytes());
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(body);
    out
}

/// Kind and body length of a frame header.
pub fn frame_header(b: &[u8; FRAME_HEADER_BYTES]) -> Result<(u32, usize), Fault> {
    let word = |i: usize| u32::from_le_bytes([b[i], b[i + 1], b[i + 2], b[i + 3]]);
    if word(0) != FRAME_MAGIC {
        return Err(Fault("not an Orion frame: is something else speaking on this port?"));
    }
    let len = word(8) as usize;
    if len > FRAME_BYTES_MAX {
        return Err(Fault("handshake frame too long"));
    }
    Ok((word(4), len))
}

/// The first thing that a client says. It tells a stranger nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    pub version: Version,
    pub nonce: Nonce,
}

impl Hello {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Vec::new();
        put_version(&mut w, &self.version);
        w.bytes(&self.nonce);
        w
    }

    pub fn decode(body: &[u8]) -> Result<Hello, Fault> {
        let mut r = Reader::new(body);
        // The version comes first and alone: the rest may have another shape in another version.
        let protocol = r.word()? as u32;
        if protocol != crate::PROTOCOL_VERSION {
            return Ok(Hello { version: Version { protocol, api_hash: 0, release: None }, nonce: [0; 32] });
        }
        let version = Version { protocol, api_hash: r.word()?, release: Some(Release::of(r.word()?)) };
        let hello = Hello { version, nonce: r.array()? };
        r.finish()?;
        Ok(hello)
    }
}

/// The protocol's version comes first, alone.
pub(crate) fn put_version(w: &mut Vec<u8>, version: &Version) {
    w.word(version.protocol as u64);
    w.word(version.api_hash);
    w.word(version.release.map_or(0, Release::word));
}

/// A further connection wants to carry bulk data of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Join {
    pub session: u64,
    pub lane: u64,
    pub nonce: Nonce,
}

impl Join {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Vec::new();
        w.word(self.session);
        w.word(self.lane);
        w.bytes(&self.nonce);
        w
    }

    pub fn decode(body: &[u8]) -> Result<Join, Fault> {
        let mut r = Reader::new(body);
        let join = Join { session: r.word()?, lane: r.word()?, nonce: r.array()? };
        r.finish()?;
        Ok(join)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Challenge {
    pub nonce: Nonce,
    /// Of a server that has a token.
    pub proof: Option<Proof>,
}

impl Challenge {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Vec::new();
        w.bytes(&self.nonce);
        put_proof(&mut w, self.proof);
        w
    }

    pub fn decode(body: &[u8]) -> Result<Challenge, Fault> {
        let mut r = Reader::new(body);
        let challenge = Challenge { nonce: r.array()?, proof: get_proof(&mut r)? };
        r.finish()?;
        Ok(challenge)
    }
}

/// Who calls, and the session it asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub pid: u32,
    /// Where that number means this program: a hash of the machine's start and of the pid namespace.
    pub home: [u8; 16],
    /// The program's name, for `orion-smi` and logs; at most 255 bytes, no control characters.
    pub program: String,
    /// The application's settings for the driver, which the worker's driver obeys.
    pub environment: Environment,
    /// As the controller of a pool gave it to the program; empty where there is none.
    pub lease: Vec<u8>,
}

impl Request {
    /// With the proof behind it, which covers the bytes in front of it.
    pub fn encode(&self, prove: impl FnOnce(&[u8]) -> Option<Proof>) -> Vec<u8> {
        let mut w = Vec::new();
        w.word(self.pid as u64);
        w.bytes(&self.home);
        w.bytes(self.program.as_bytes());
        w.word(self.environment.pairs().len() as u64);
        for (k, v) in self.environment.pairs() {
            w.bytes(k.as_bytes());
            w.bytes(v.as_bytes());
        }
        w.bytes(&self.lease);
        let proof = prove(&w);
        put_proof(&mut w, proof);
        w
    }

    /// The request, the bytes that its proof covers, and the proof.
    pub fn decode(body: &[u8]) -> Result<(Request, &[u8], Option<Proof>), Fault> {
        let mut r = Reader::new(body);
        let (pid, home) = (r.word()? as u32, r.array()?);
        let program = r.text()?.to_owned();
        let pairs = r.list(Environment::pairs_max(), |r| Ok((r.text()?.to_owned(), r.text()?.to_owned())))?;
        let environment = Environment::checked(pairs)?;
        let lease = r.bytes()?.to_vec();
        let covered = &body[..body.len() - r.rest().len()];
        let proof = get_proof(&mut r)?;
        r.finish()?;
        Ok((Request { pid, home, program, environment, lease }, covered, proof))
    }
}

fn put_proof(w: &mut Vec<u8>, proof: Option<Proof>) {
    w.bytes(proof.as_ref().map_or(&[], |p| &p[..]));
}

fn get_proof(r: &mut Reader<'_>) -> Result<Option<Proof>, Fault> {
    match r.bytes()? {
        [] => Ok(None),
        bytes => bytes.try_into().map(Some).map_err(|_| Fault("a proof is not 32 bytes")),
    }
}

/// One vGPU, with everything the shim may answer about it without asking.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Device {
    pub name: String,
    pub uuid: [u8; 16],
    /// In bytes.
    pub total_memory: u64,
    /// Whether that is a part of the GPU's, of which the session's use is known; else all programs on it share it.
    pub is_limited: bool,
    pub pci_bus_id: String,
    /// `(attribute id, value)` for every `CUdevice_attribute` the driver answers.
    pub attributes: Vec<(u32, i32)>,
    /// `cuCtxGetStreamPriorityRange`: least, greatest.
    pub stream_priorities: (i32, i32),
    /// `(CUlimit, value)` of a fresh primary context.
    pub limits: Vec<(u32, u64)>,
    /// `cuMemGetAllocationGranularity` minimum and recommended for plain device memory.
    pub granularity: (u64, u64),
    pub pcie: PcieLink,
    /// Of its node's driver, as in `580.159.04`; empty where that is not known.
    pub driver_release: String,
}

/// What is longer is none.
pub const RELEASE_BYTES_MAX: usize = 31;

/// How a device is joined to its own machine; zeros where that is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PcieLink {
    /// 5 is of 32 GT/s.
    pub generation: u16,
    pub generation_max: u16,
    /// Lanes.
    pub width: u16,
    pub width_max: u16,
}

impl PcieLink {
    fn word(self) -> u64 {
        let PcieLink { generation, generation_max, width, width_max } = self;
        [generation, generation_max, width, width_max].into_iter().fold(0, |word, part| word << 16 | u64::from(part))
    }

    fn of(word: u64) -> PcieLink {
        let part = |i: u32| (word >> (16 * i)) as u16;
        PcieLink { generation: part(3), generation_max: part(2), width: part(1), width_max: part(0) }
    }
}

/// A device can access another one's memory.
pub const PEER_ACCESS: u8 = 1;
/// And kernels do all of their atomic operations there, as over NVLink and not over PCIe.
pub const PEER_ATOMICS: u8 = 2;
/// Both are on one GPU, or the same device.
pub const PEER_SAME_GPU: u8 = 4;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome {
    pub session: u64,
    pub worker_pid: u32,
    pub driver_version: u32,
    /// Functions the worker's driver has not: row ids for which the shim answers "not found".
    pub missing: Vec<u16>,
    pub devices: Vec<Device>,
    /// `[i * n + j]`: how device i can access device j, of `PEER_*`.
    pub peer_access: Vec<u8>,
    /// Bytes of the whole session memory and of the host heap at its end.
    pub memory_bytes: u64,
    pub heap_bytes: u64,
    /// The first part of the heap, registered with the driver ahead of time for staging copies.
    pub staging_bytes: u64,
}

impl Welcome {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Vec::new();
        for v in [self.session, self.worker_pid as u64, self.driver_version as u64] {
            w.word(v);
        }
        w.word(self.missing.len() as u64);
        for id in &self.missing {
            w.word(*id as u64);
        }
        w.word(self.devices.len() as u64);
        self.devices.iter().for_each(|device| put_device(&mut w, device));
        w.bytes(&self.peer_access);
        for v in [self.memory_bytes, self.heap_bytes, self.staging_bytes] {
            w.word(v);
        }
        w
    }

    pub fn decode(body: &[u8]) -> Result<Welcome, Fault> {
        let mut r = Reader::new(body);
        let session = r.word()?;
        let worker_pid = r.word()? as u32;
        let driver_version = r.word()? as u32;
        let missing = r.list(0x8000, |r| Ok(r.word()? as u16))?;
        let devices = r.list(DEVICES_MAX, get_device)?;
        let peer_access = r.bytes()?.to_vec();
        if peer_access.len() != devices.len() * devices.len() {
            return Err(Fault("peer access matrix has the wrong size"));
        }
        let w = Welcome {
            session,
            worker_pid,
            driver_version,
            missing,
            devices,
            peer_access,
            memory_bytes: r.word()?,
            heap_bytes: r.word()?,
            staging_bytes: r.word()?,
        };
        r.finish()?;
        Ok(w)
    }
}

pub(crate) fn put_device(w: &mut Vec<u8>, d: &Device) {
    w.bytes(d.name.as_bytes());
    w.bytes(&d.uuid);
    w.word(d.total_memory);
    w.word(d.is_limited.into());
    w.bytes(d.pci_bus_id.as_bytes());
    w.word(d.attributes.len() as u64);
    for (id, value) in &d.attributes {
        w.word((*id as u64) << 32 | *value as u32 as u64);
    }
    w.word((d.stream_priorities.0 as u32 as u64) << 32 | d.stream_priorities.1 as u32 as u64);
    w.word(d.limits.len() as u64);
    for (id, value) in &d.limits {
        w.word(*id as u64);
        w.word(*value);
    }
    w.word(d.granularity.0);
    w.word(d.granularity.1);
    w.word(d.pcie.word());
    w.bytes(d.driver_release.as_bytes());
}

pub(crate) fn get_device(r: &mut Reader<'_>) -> Result<Device, Fault> {
    let name = r.text()?.to_owned();
    let uuid = r.bytes()?.try_into().map_err(|_| Fault("device UUID is not 16 bytes"))?;
    let (total_memory, is_limited) = (r.word()?, r.word()? != 0);
    let pci_bus_id = r.text()?.to_owned();
    let attributes = r.list(1024, |r| r.word().map(|v| ((v >> 32) as u32, v as u32 as i32)))?;
    let p = r.word()?;
    let limits = r.list(64, |r| Ok((r.word()? as u32, r.word()?)))?;
    Ok(Device {
        name,
        uuid,
        total_memory,
        is_limited,
        pci_bus_id,
        attributes,
        stream_priorities: ((p >> 32) as u32 as i32, p as u32 as i32),
        limits,
        granularity: (r.word()?, r.word()?),
        pcie: PcieLink::of(r.word()?),
        driver_release: r.text()?.to_owned(),
    })
}

impl<'a> Reader<'a> {
    /// A byte string of this length.
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        self.bytes()?.try_into().map_err(|_| Fault("byte string of the wrong length"))
    }

    /// A counted list of at most `max` elements.
    pub fn list<T>(
        &mut self,
        max: usize,
        mut element: impl FnMut(&mut Reader<'a>) -> Result<T, Fault>,
    ) -> Result<Vec<T>, Fault> {
        let count = self.word()?;
        if count > max as u64 {
            return Err(Fault("list longer than its limit"));
        }
        (0..count).map(|_| element(self)).collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// Address at which the client mapped the host heap and the worker has to map it too.
    pub heap_base: u64,
    /// Where each side has its own, ranges of the heap are announced (`op::HEAP_WRITTEN`) in both directions.
    pub pages: Pages,
    /// How the two ring each other: [`BELL_IN_PAGES`], or a carrier's own bell, for which descriptors may come along.
    pub bell: u64,
}

/// By words in the session's memory, which lies in pages of one kernel's.
pub const BELL_IN_PAGES: u64 = 0;

impl Start {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Vec::new();
        for word in [self.heap_base, self.pages.word(), self.bell] {
            w.word(word);
        }
        w
    }

    pub fn decode(body: &[u8]) -> Result<Start, Fault> {
        let mut r = Reader::new(body);
        let s = Start { heap_base: r.word()?, pages: Pages::from_word(r.word()?)?, bell: r.word()? };
        r.finish()?;
        Ok(s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn welcome_comes_back() {
        let w = Welcome {
            session: 3,
            worker_pid: 5,
            driver_version: 13000,
            missing: vec![0x101, 0x7fff],
            devices: vec![Device {
                name: "GPU".into(),
                uuid: [7; 16],
                total_memory: 1 << 37,
                is_limited: true,
                pci_bus_id: "0000:01:00.0".into(),
                attributes: vec![(1, 1024), (75, -1)],
                stream_priorities: (0, -5),
                limits: vec![(0, 1024)],
                granularity: (2 << 20, 2 << 20),
                pcie: PcieLink { generation: 1, generation_max: 5, width: 8, width_max: 16 },
                driver_release: "580.159.04".into(),
            }],
            peer_access: vec![0],
            memory_bytes: 1,
            heap_bytes: 2,
            staging_bytes: 3,
        };
        let body = w.encode();
        assert_eq!(Welcome::decode(&body), Ok(w));
        for cut in 0..body.len() {
            assert!(Welcome::decode(&body[..cut]).is_err());
        }
    }

    #[test]
    fn greetings_come_back() {
        let hello = Hello { version: Version::OWN, nonce: [3; 32] };
        let join = Join { session: 4, lane: 1, nonce: [5; 32] };
        assert_eq!(Hello::decode(&hello.encode()), Ok(hello.clone()));
        assert_eq!(Join::decode(&join.encode()), Ok(join.clone()));
        for proof in [None, Some([7; 32])] {
            let challenge = Challenge { nonce: [6; 32], proof };
            let body = challenge.encode();
            assert_eq!(Challenge::decode(&body), Ok(challenge));
            assert!((0..body.len()).all(|cut| Challenge::decode(&body[..cut]).is_err()));
        }
        assert!((0..hello.encode().len()).all(|cut| Hello::decode(&hello.encode()[..cut]).is_err()));
        assert!((0..join.encode().len()).all(|cut| Join::decode(&join.encode()[..cut]).is_err()));
    }

    #[test]
    fn a_start_comes_back_and_knows_two_kinds_of_pages() {
        for pages in [Pages::Shared, Pages::Mirrored] {
            let start = Start { heap_base: 1 << 40, pages, bell: BELL_IN_PAGES };
            let mut body = start.encode();
            assert_eq!(Start::decode(&body), Ok(start));
            assert!((0..body.len()).all(|cut| Start::decode(&body[..cut]).is_err()));
            body[8] = 2;
            assert!(Start::decode(&body).is_err());
        }
    }

    #[test]
    fn a_request_comes_back_and_names_no_other_variables() {
        let environment = Environment::of(|name| (name == "CUDA_FORCE_PTX_JIT").then(|| "1".to_owned()));
        let (program, lease) = ("program".into(), vec![1, 2, 3]);
        let request = Request { pid: 2, home: [4; 16], program, environment, lease };
        let mut covered = Vec::new();
        let mut body = request.encode(|bytes| {
            covered = bytes.to_vec();
            Some([9; 32])
        });
        assert_eq!(Request::decode(&body), Ok((request, &covered[..], Some([9; 32]))));
        for cut in 0..body.len() {
            assert!(Request::decode(&body[..cut]).is_err());
        }
        let at = body.windows(18).position(|w| w == b"CUDA_FORCE_PTX_JIT").expect("it is in there");
        body[at] = b'L';
        assert!(Request::decode(&body).is_err());
    }

    #[test]
    fn hello_of_another_version_is_recognised() {
        let mut body = Vec::new();
        body.word(77);
        assert_eq!(Hello::decode(&body).map(|h| h.version.protocol), Ok(77));
    }
}
