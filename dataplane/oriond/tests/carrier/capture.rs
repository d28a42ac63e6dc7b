//! Threads that wait while another one of the program's begins to capture what they wait for.

use orion_cuda::sys::{CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_SUCCESS};
use orion_wire::Reader;
use orion_wire::generated::ops;
use orion_wire::handle::{Handle, Kind};
use orion_wire::message::address::ClaimedDevice;
use orion_wire::message::callback::{CallbackDone, LaunchHostFunc};
use orion_wire::message::calls;
use orion_wire::message::capture::{StreamBeginCapture, StreamEndCapture};
use orion_wire::message::copy::{CopyInInline, CopyOutInline, CopyOutInlineReply};
use orion_wire::message::field::{Bytes, CallbackId, Existing, List, New, Size};
use orion_wire::message::memory::{MemAlloc, MemFree};
use orion_wire::message::stream::StreamSynchronize;

use crate::harness::{Client, Oriond, Transport, body, memory, non_blocking};

const STREAM: u64 = Handle::new(Kind::Stream, 0, 0).0;
const ORIGIN: u64 = Handle::new(Kind::Stream, 0, 1).0;
const FORK: u64 = Handle::new(Kind::Event, 0, 0).0;
const JOIN: u64 = Handle::new(Kind::Event, 0, 1).0;
const WAITER: u16 = 1;
const CAPTURER: u16 = 2;

/// A client with two streams, two events and some memory.
struct Program {
    client: Client,
    graphs: u32,
}

impl Program {
    fn attach(server: &Oriond, transport: Transport) -> Program {
        let mut client = Client::attach(server, transport);
        client.context = Handle::primary_context(0).0;
        let mut program = Program { client, graphs: 0 };
        for stream in [STREAM, ORIGIN] {
            program.done(calls::cuStreamCreateWithPriority::OP, &body(&non_blocking(stream)));
        }
        for event in [FORK, JOIN] {
            program.done(calls::cuEventCreate::OP, &body(&calls::cuEventCreate { phEvent: event, Flags: 0 }));
        }
        program
    }

    fn done(&mut self, op: u16, body: &[u8]) {
        let (code, _) = self.client.ask(op, body);
        assert_eq!(code, CUDA_SUCCESS, "operation {op:#x}");
    }

    fn allocate(&mut self) -> u64 {
        let (code, reply) = self.client.ask(MemAlloc::OP, &body(&memory(1 << 20)));
        assert_eq!(code, CUDA_SUCCESS);
        Reader::new(&reply).word().expect("an address")
    }

    fn begin(&mut self, stream: u64, mode: u32) {
        self.client.thread = CAPTURER;
        self.done(StreamBeginCapture::OP, &body(&StreamBeginCapture { stream: Existing(stream), mode }));
    }

    fn end(&mut self, stream: u64) {
        self.client.thread = CAPTURER;
        let name = New(Handle::new(Kind::Graph, 0, self.graphs).0);
        self.graphs += 1;
        let end = StreamEndCapture { stream: Existing(stream), name, set_aside: List::default() };
        self.done(StreamEndCapture::OP, &body(&end));
    }

    fn follows(&mut self, event: u64, recorded: u64, waits: u64) {
        let record = calls::cuEventRecord { hEvent: event, hStream: recorded };
        self.done(calls::cuEventRecord::OP, &body(&record));
        let wait = calls::cuStreamWaitEvent { hStream: waits, hEvent: event, Flags: 0 };
        self.done(calls::cuStreamWaitEvent::OP, &body(&wait));
    }

    /// A call of one thread that waits for a host function in the stream, during which another one does `meanwhile`.
    fn waits_while(&mut self, op: u16, call: &[u8], meanwhile: impl FnOnce(&mut Program)) -> u32 {
        self.client.thread = WAITER;
        let function = LaunchHostFunc { stream: Existing(STREAM), function: CallbackId(1), kept: false };
        self.done(LaunchHostFunc::OP, &body(&function));
        let (asked, _) = self.client.event();
        let waiting = self.client.start(op, call);
        self.client.thread = CAPTURER;
        meanwhile(self);
        self.client.post(CallbackDone::OP, &body(&CallbackDone { round: asked.context }));
        let (header, _) = self.client.reply();
        assert_eq!(header.sequence, waiting);
        header.context as u32
    }

    /// Each call that waits for the stream.
    fn waits(&mut self) -> [(u16, Vec<u8>); 3] {
        let free = MemFree { address: ClaimedDevice::new(self.allocate()) };
        let synchronize = StreamSynchronize { stream: Existing(STREAM) };
        [(StreamSynchronize::OP, body(&synchronize)), (MemFree::OP, body(&free)), (ops::CU_CTX_SYNCHRONIZE, Vec::new())]
    }
}

crate::on_each_carrier! {
    soft fn who_waits_for_a_stream_may_go_on_when_it_is_captured(server: &Oriond, transport: Transport) {
        let mut program = Program::attach(server, transport);
        for mode in [CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED] {
            for (op, call) in program.waits() {
                let code = program.waits_while(op, &call, |program| program.begin(STREAM, mode));
                assert_eq!(code, CUDA_SUCCESS, "operation {op:#x} beside a capture in mode {mode}");
                program.end(STREAM);
            }
        }
    }
}

crate::on_each_carrier! {
    soft fn who_waits_for_a_stream_may_go_on_when_it_joins_a_capture(server: &Oriond, transport: Transport) {
        let mut program = Program::attach(server, transport);
        program.begin(ORIGIN, CU_STREAM_CAPTURE_MODE_RELAXED);
        let call = body(&StreamSynchronize { stream: Existing(STREAM) });
        let code = program.waits_while(StreamSynchronize::OP, &call, |program| program.follows(FORK, ORIGIN, STREAM));
        assert_eq!(code, CUDA_SUCCESS);
        program.client.thread = CAPTURER;
        program.follows(JOIN, STREAM, ORIGIN);
        program.end(ORIGIN);
    }
}

crate::on_each_carrier! {
    soft fn numbers_are_copied_beside_a_capture_for_which_the_worker_has_no_memory_yet(
        server: &Oriond,
        transport: Transport
    ) {
        let mut program = Program::attach(server, transport);
        let memory = ClaimedDevice::new(program.allocate());
        program.begin(ORIGIN, CU_STREAM_CAPTURE_MODE_GLOBAL);
        for thread in [CAPTURER, WAITER] {
            program.client.thread = thread;
            let stream = Existing(STREAM);
            let put = CopyInInline { to: memory, stream, bytes: Bytes::from(&[7; 4096][..]) };
            program.done(CopyInInline::OP, &body(&put));
            for bytes in [4, 64, 4096] {
                let get = CopyOutInline { from: memory, bytes: Size(bytes), stream };
                let (code, reply) = program.client.ask(CopyOutInline::OP, &body(&get));
                assert_eq!(code, CUDA_SUCCESS, "{bytes} bytes");
                let got = CopyOutInlineReply::decode(&mut Reader::new(&reply)).expect("bytes");
                assert_eq!(got.bytes.get(), vec![7; bytes as usize]);
            }
        }
        program.end(ORIGIN);
    }
}
