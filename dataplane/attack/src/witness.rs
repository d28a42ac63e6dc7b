//! A session that does nothing wrong, beside those that do: what it copies comes back as it was, and it is answered.

use std::time::{Duration, Instant};

use orion_cuda::sys::*;
use orion_transport::client::Server;
use orion_wire::Kind;
use orion_wire::handle::Handle;
use orion_wire::message::address::{ClaimedDevice, ClaimedHost};
use orion_wire::message::calls;
use orion_wire::message::copy::{CopyIn, CopyOut, Source};
use orion_wire::message::field::{Existing, Size};
use orion_wire::message::memory::MemAlloc;
use orion_wire::record::HeapRange;

use crate::client::{Answer, Client, body, first_word};
use crate::random::Random;

const BYTES: usize = 64 << 10;
const STREAM: u64 = Handle::new(Kind::Stream, 0, 0).0;
/// Longer than any pause of a machine that is busy with everything else.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(2);

/// How many there were, what 98 of 100 took at most, and the longest one.
pub struct Rounds {
    count: usize,
    pub nearly_all: Duration,
    longest: Duration,
}

impl std::fmt::Display for Rounds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (nearly_all, longest) = (self.nearly_all.as_micros(), self.longest.as_micros());
        write!(f, "{} rounds, 98 of 100 within {nearly_all} us, the longest {longest} us", self.count)
    }
}

impl std::str::FromStr for Rounds {
    type Err = String;

    /// As a witness wrote it.
    fn from_str(text: &str) -> Result<Rounds, String> {
        let numbers: Vec<u64> = text.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [count, 98, 100, nearly_all, longest] = numbers[..] else {
            return Err(format!("a witness said {text:?}"));
        };
        let (nearly_all, longest) = (Duration::from_micros(nearly_all), Duration::from_micros(longest));
        Ok(Rounds { count: count as usize, nearly_all, longest })
    }
}

/// Copies and compares for so long.
pub fn run(server: &Server, token: &str, seconds: u64, seed: u64) -> Result<Rounds, String> {
    let mut client = Client::attach(server, token)?;
    let mut random = Random::new(seed);
    let call = |client: &mut Client, op: u16, body: &[u8]| match client.ask(op, 0, body, PATIENCE, &mut |_, _| {}) {
        Answer::Reply(0, reply) => Ok(reply),
        Answer::Reply(code, _) => Err(format!("operation {op:#x} answered {code}")),
        Answer::Late => Err(format!("no answer to operation {op:#x} within {PATIENCE:?}")),
        Answer::Lost => Err(format!("session lost in operation {op:#x}")),
    };
    let made = calls::cuStreamCreateWithPriority { phStream: STREAM, flags: CU_STREAM_NON_BLOCKING, priority: 0 };
    call(&mut client, calls::cuStreamCreateWithPriority::OP, &body(&made))?;
    let memory = first_word(&call(&mut client, MemAlloc::OP, &body(&MemAlloc { bytes: Size::of(2 * BYTES) }))?);
    let (first, second) = (ClaimedDevice::new(memory), ClaimedDevice::new(memory + BYTES as u64));
    let (heap, bytes, stream) = (client.heap.base() as u64, Size::of(BYTES), Existing(STREAM));
    let (from, to) = (HeapRange { offset: 80 << 20, bytes: BYTES as u64 }, 90 << 20);
    let (began, mut took) = (Instant::now(), Vec::new());
    while began.elapsed() < Duration::from_secs(seconds) {
        let start = Instant::now();
        let content: Vec<u8> = (0..BYTES / 8).flat_map(|_| random.word().to_le_bytes()).collect();
        client.write_heap(from.offset, &content);
        client.announce(from);
        let there = ClaimedHost::new(heap + from.offset);
        let copy_in = CopyIn { to: first, from: there, bytes, stream, source: Source::Kept };
        call(&mut client, CopyIn::OP, &body(&copy_in))?;
        let across =
            calls::cuMemcpyDtoDAsync_v2 { dstDevice: second, srcDevice: first, ByteCount: BYTES, hStream: STREAM };
        call(&mut client, calls::cuMemcpyDtoDAsync_v2::OP, &body(&across))?;
        let copy_out = CopyOut { to: ClaimedHost::new(heap + to), from: second, bytes, stream };
        call(&mut client, CopyOut::OP, &body(&copy_out))?;
        let got = client.read_heap(to, BYTES);
        if let Some(at) = (0..BYTES).find(|i| got[*i] != content[*i]) {
            return Err(format!("byte {at} of round {} is {} instead of {}", took.len(), got[at], content[at]));
        }
        took.push(start.elapsed());
        // The others need the processors.
        std::thread::sleep(PAUSE);
    }
    took.sort();
    let longest = *took.last().ok_or("there was no time for a round")?;
    Ok(Rounds { count: took.len(), nearly_all: took[took.len() * 98 / 100], longest })
}
