//! A short fuzzing run over every decoder of what a peer sends: messages, records, patches of mapped memory, images of
//! kernels. Whatever it is, decoding answers and never panics.
//!
//! Inputs are mutations of valid records, drawn from a seed that is printed; `ORION_FUZZ_SEED` repeats a run and
//! `ORION_FUZZ_SECONDS` prolongs it. An input that once broke something belongs into `tests/corpus/`.

use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use orion_ring::memory::{Heap, Layout, Memory};
use orion_transport::Mirror;
use orion_transport::carrier::ivshmem::segment::{self, HEAD_WORDS};
use orion_transport::carrier::rdma::ends::End;
use orion_transport::mirror::Side;
use orion_wire::activity::{Activity, LOST, lost, lost_count};
use orion_wire::agent::{self, Gpu};
use orion_wire::bundle;
use orion_wire::environment::Environment;
use orion_wire::hello::{
    BELL_IN_PAGES, Challenge, Device, FRAME_HEADER_BYTES, Hello, Join, Request, Start, Welcome, frame, frame_header,
};
use orion_wire::lease::{Lease, LeaseId, Vgpu};
use orion_wire::left::Left;
use orion_wire::record::{HEADER_BYTES, Header, HeapRange};
use orion_wire::reserve;
use orion_wire::version::Version;
use orion_wire::{Pages, Reader, Writer};

/// xorshift64*: small, seeded, and good enough to flip bits with.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

fn decode_as_everything(bytes: &[u8]) {
    let _ = Hello::decode(bytes);
    let _ = Join::decode(bytes);
    let _ = Challenge::decode(bytes);
    let _ = Request::decode(bytes);
    let _ = Welcome::decode(bytes);
    let _ = Start::decode(bytes);
    let _ = Lease::decode(bytes);
    let _ = agent::Ask::decode(bytes);
    let _ = agent::Answer::decode(bytes);
    let _ = reserve::Ask::decode(bytes);
    let _ = reserve::Answer::decode(bytes);
    let _ = Left::decode(bytes);
    let _ = End::decode(bytes);
    if let Some((words, _)) = bytes.as_chunks::<8>().0.split_first_chunk::<HEAD_WORDS>() {
        let bytes_of_segment = 256 << 20;
        if let Ok(head) = segment::Head::decode(words.map(u64::from_le_bytes), bytes_of_segment) {
            assert!(head.shape.offset(head.shape.slots) <= bytes_of_segment, "{head:?} passed");
        }
    }
    if let Some(head) = bytes.first_chunk::<HEADER_BYTES>() {
        let _ = Header::decode(head);
    }
    if let Some(head) = bytes.first_chunk::<FRAME_HEADER_BYTES>() {
        let _ = frame_header(head);
    }
    for message in orion_wire::message::all::all() {
        if let Ok(again) = (message.again)(bytes) {
            assert_eq!(again.len(), bytes.len(), "{} is of another length than it came with", message.name);
        }
    }
    let _ = orion_soft::image::mentions(bytes, &[75, 90], b"vprintf");
    if let Ok(parts) = bundle::decode(bytes) {
        assert!(parts.iter().all(|part| bytes.get(part.clone()).is_some()), "{parts:?} passed");
    }
    // The first program's size leads to the end of the address space.
    let mut astray = fat_binary();
    astray[24..32].copy_from_slice(&(u64::MAX - 70).to_le_bytes());
    astray[32..36].copy_from_slice(&16u32.to_le_bytes());
    assert_eq!(orion_soft::image::mentions(&astray, &[90], b"vprintf"), Some(true));
    let mut mirror = Mirror::new(Side::Worker);
    mirror.add(heap(), HeapRange { offset: 4096, bytes: 4096 }).expect("a range of lines inside the heap");
    let _ = mirror.apply(heap(), bytes);
    let mut reader = Reader::new(bytes);
    // Each step reads at least a word or fails, so the input bounds the loop.
    while reader.bytes().is_ok() && !reader.is_empty() {}
    let mut reader = Reader::new(bytes);
    while let Ok(activity) = Activity::get(&mut reader) {
        let _ = lost_count(activity.structure);
    }
    let mut reader = Reader::new(bytes);
    while let Ok(range) = HeapRange::get(&mut reader) {
        if let Ok(range) = range.check(1 << 20) {
            assert!(range.offset.checked_add(range.bytes).is_some_and(|end| end <= 1 << 20), "{range:?} passed");
        }
    }
}

/// What patches are applied to.
fn heap() -> &'static Heap {
    static HEAP: OnceLock<(Memory, Heap)> = OnceLock::new();
    let (_, heap) = HEAP.get_or_init(|| {
        let memory = Memory::create(Layout { heap_bytes: 1 << 20 }).expect("memory for a small session");
        let heap = memory.map_heap(None).expect("an address for it");
        (memory, heap)
    });
    heap
}

/// Two words of mapped memory, of the second one byte.
fn patch() -> Vec<u8> {
    let mut patch = Vec::new();
    for word in [1, 0, 0, 1, 4096, 2, 0x01ff, 7, 8] {
        patch.word(word);
    }
    patch
}

/// A fat binary with one cubin and one PTX text.
fn fat_binary() -> Vec<u8> {
    let mut entries = Vec::new();
    for (kind, sm) in [(2u16, 90u32), (1, 75)] {
        let mut entry = vec![0u8; 64];
        entry[0..2].copy_from_slice(&kind.to_le_bytes());
        entry[4..8].copy_from_slice(&64u32.to_le_bytes());
        entry[8..16].copy_from_slice(&16u64.to_le_bytes());
        entry[28..32].copy_from_slice(&sm.to_le_bytes());
        entry.extend(b"call vprintf\0\0\0\0");
        entries.extend(entry);
    }
    let mut image = 0xba55_ed50u32.to_le_bytes().to_vec();
    image.extend([1, 0, 16, 0]);
    image.extend((entries.len() as u64).to_le_bytes());
    image.extend(entries);
    image
}

#[test]
fn what_is_mutated_is_valid() {
    assert_eq!(orion_soft::image::mentions(&fat_binary(), &[90], b"vprintf"), Some(true));
    assert_eq!(orion_soft::image::mentions(&fat_binary(), &[90], b"elsewhere"), Some(false));
    assert_eq!(orion_soft::image::mentions(&fat_binary(), &[70], b"vprintf"), None);
    // The first program's size leads to the end of the address space.
    let mut astray = fat_binary();
    astray[24..32].copy_from_slice(&(u64::MAX - 70).to_le_bytes());
    astray[32..36].copy_from_slice(&16u32.to_le_bytes());
    assert_eq!(orion_soft::image::mentions(&astray, &[90], b"vprintf"), Some(true));
    let mut mirror = Mirror::new(Side::Worker);
    mirror.add(heap(), HeapRange { offset: 4096, bytes: 4096 }).expect("a range of lines inside the heap");
    let notice = mirror.apply(heap(), &patch()).expect("a valid patch");
    assert!(notice.live);
}

/// The values that sit at the edges of length checks.
const EDGES: [u64; 8] = [0, 1, 7, 8, u32::MAX as u64, u64::MAX, u64::MAX - 7, 1 << 63];

fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(4) {
        if bytes.is_empty() {
            bytes.push(random.next() as u8);
        }
        let at = random.below(bytes.len());
        match random.below(6) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next() as u8,
            2 => bytes.truncate(at),
            3 => bytes.insert(at, random.next() as u8),
            4 => bytes.extend_from_slice(&random.next().to_le_bytes()),
            _ => {
                let at = at & !7;
                let edge = EDGES[random.below(EDGES.len())].to_le_bytes();
                let end = bytes.len().min(at + 8);
                bytes[at..end].copy_from_slice(&edge[..end - at]);
            }
        }
    }
}

fn lease() -> Vec<u8> {
    let vgpus = vec![Vgpu { gpu: "GPU-1".into(), memory_bytes: 1 << 30, ratio: 50 }];
    let (node, tenant) = ("a".to_owned(), "red".to_owned());
    Lease { id: LeaseId([1; 16]), node, tenant, begins_before_unix_ms: 1 << 40, vgpus }.encode()
}

fn asked_of_reserve(is_look: bool) -> reserve::Ask {
    let (tenant, group, client, client_key) = ("red".into(), "pod".into(), "host 7 program".into(), "key".into());
    let (memory_mib, ratio, carrier) = (Some(512), Some(100), "rdma".into());
    let wanted = reserve::Wanted { vgpus: 2, memory_mib, ratio, tenant, group, client, client_key, carrier };
    reserve::Ask::Want { version: reserve::RESERVE_VERSION, is_look, wanted }
}

/// One valid encoding of each message.
fn valid() -> Vec<Vec<u8>> {
    let hello = Hello { version: Version::OWN, nonce: [2; 32] };
    let request = Request {
        pid: 2,
        home: [6; 16],
        program: "program".into(),
        environment: Environment::of(|name| (name == "CUDA_MODULE_LOADING").then(|| "EAGER".to_owned())),
        lease: vec![4; 40],
    };
    let gpu = Gpu { uuid: [5; 16], name: "a GPU".into(), memory_bytes: 1 << 37 };
    let request = request.encode(|_| Some([3; 32]));
    Request::decode(&request).expect("valid");
    let device = Device {
        name: "a device".into(),
        pci_bus_id: "0000:40:00.0".into(),
        attributes: vec![(1, 1024), (10, 32)],
        limits: vec![(0, 1024)],
        ..Device::default()
    };
    let welcome = Welcome {
        session: 1,
        worker_pid: 3,
        driver_version: 13000,
        missing: vec![7, 8],
        devices: vec![device.clone(), device],
        peer_access: vec![0; 4],
        memory_bytes: 1 << 30,
        heap_bytes: 1 << 29,
        staging_bytes: 1 << 20,
    };
    let mut ranges = Vec::new();
    for offset in [0, 4096, 1 << 19] {
        HeapRange { offset, bytes: 4096 }.put(&mut ranges);
    }
    let mut strings = Vec::new();
    for text in ["", "a", "exactly8", "longer than one word"] {
        strings.bytes(text.as_bytes());
    }
    let mut activities = Vec::new();
    Activity { kind: LOST, structure: &lost(3), name: b"" }.put(&mut activities);
    Activity { kind: 10, structure: &[10, 0, 0, 0, 1, 2, 3, 4], name: b"kernel" }.put(&mut activities);
    let header = Header { size: 24, op: 0x0301, thread: 1, context: 2, sequence: 3 };
    vec![
        Hello::decode(&hello.encode()).expect("valid").encode(),
        lease(),
        agent::Ask::Belong { node: "a".into(), key: [1; 32], controller_unix_ms: 5 }.encode(),
        agent::Ask::Look { heard: 1, over: vec![LeaseId([2; 16])], wait_ms: 3 }.encode(),
        agent::Answer::State {
            version: 1,
            live: vec![LeaseId([2; 16])],
            ended: vec![LeaseId([3; 16])],
            used: vec![agent::Used { lease: LeaseId([2; 16]), vgpu_bytes: vec![1 << 30, 5] }],
            reserve: vec![Lease::decode(&lease()).expect("valid")],
        }
        .encode(),
        agent::Ask::Keep { node: "a".into(), key: [1; 32], unix_ms: 5 }.encode(),
        asked_of_reserve(false).encode(),
        asked_of_reserve(true).encode(),
        reserve::Answer::Lent {
            allocation: LeaseId([1; 16]),
            node: "a".into(),
            address: "tcp:a:1".into(),
            places: "0/3".into(),
            lease: lease(),
            signature: [7; 32],
            certificate: Some([5; 32]),
        }
        .encode(),
        agent::Answer::Server { instance: [4; 16], is_software: true, certificate: Some([5; 32]), gpus: vec![gpu] }
            .encode(),
        Welcome::decode(&welcome.encode()).expect("valid").encode(),
        Start { heap_base: 1 << 40, pages: Pages::Mirrored, bell: BELL_IN_PAGES }.encode(),
        frame(1, &hello.encode()),
        request,
        Join { session: 1, lane: 2, nonce: [4; 32] }.encode(),
        Challenge { nonce: [5; 32], proof: Some([6; 32]) }.encode(),
        header.encode().to_vec(),
        ranges,
        strings,
        activities,
        patch(),
        fat_binary(),
        bundle::encode(&[&fat_binary(), &fat_binary()]),
    ]
}

/// The valid messages, and every input that once broke something.
fn corpus() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut inputs: Vec<Vec<u8>> = std::fs::read_dir(&folder)
        .expect("tests/corpus is part of the crate")
        .map(|entry| std::fs::read(entry.expect("a readable entry").path()).expect("a readable input"))
        .collect();
    inputs.extend(valid());
    inputs
}

#[test]
fn decoders_answer_whatever_is_sent() {
    let from_environment = |name: &str, otherwise: u64| {
        std::env::var(name).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number")))
    };
    let seed = from_environment("ORION_FUZZ_SEED", 0x5eed_0f0a_11d1_f00d) | 1;
    let limit = Duration::from_secs(from_environment("ORION_FUZZ_SECONDS", 5));
    println!("ORION_FUZZ_SEED={seed}");
    let (corpus, mut random, began) = (corpus(), Random(seed), Instant::now());
    corpus.iter().for_each(|input| decode_as_everything(input));
    let mut inputs = 0u64;
    while began.elapsed() < limit {
        for _ in 0..1000 {
            let mut bytes = corpus[random.below(corpus.len())].clone();
            mutate(&mut bytes, &mut random);
            decode_as_everything(&bytes);
        }
        inputs += 1000;
    }
    println!("{inputs} inputs");
}
