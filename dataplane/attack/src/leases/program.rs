//! A session with kernels that take as long as they are told.

use std::time::Duration;

use orion_cuda::sys::*;
use orion_transport::client::Server;
use orion_wire::Kind;
use orion_wire::generated::ops;
use orion_wire::handle::Handle;
use orion_wire::message::calls;
use orion_wire::message::field::{Bytes, List, Size};
use orion_wire::message::image::Payload;
use orion_wire::message::memory::MemAlloc;
use orion_wire::message::module::{ModuleGetFunction, ModuleLoadData};

use crate::client::{Answer, Client, body, first_word, words};

/// For so many nanoseconds by the GPU's clock; stamps its beginning and its end.
pub const SPIN: u64 = Handle::new(Kind::Function, 0, 0).0;
pub const FOREVER: u64 = Handle::new(Kind::Function, 0, 1).0;
pub const NOTHING: u64 = Handle::new(Kind::Function, 0, 2).0;
pub const STREAM: u64 = Handle::new(Kind::Stream, 0, 0).0;
pub const OTHER: u64 = Handle::new(Kind::Stream, 0, 1).0;
/// As long as an answer may take on a machine that is busy with everything else.
const PATIENCE: Duration = Duration::from_secs(20);

const PTX: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 stamps, .param .u64 ns)
{
    .reg .pred %more;
    .reg .u64 %stamps, %begin, %end, %now;
    ld.param.u64 %stamps, [stamps];
    ld.param.u64 %end, [ns];
    mov.u64 %begin, %globaltimer;
    add.u64 %end, %begin, %end;
TURN:
    mov.u64 %now, %globaltimer;
    setp.lt.u64 %more, %now, %end;
    @%more bra TURN;
    st.global.u64 [%stamps], %begin;
    st.global.u64 [%stamps+8], %now;
    ret;
}
.visible .entry forever()
{
    .reg .pred %more;
    .reg .u32 %left;
    mov.u32 %left, 1;
TURN:
    add.u32 %left, %left, 2;
    setp.ne.u32 %more, %left, 0;
    @%more bra TURN;
    ret;
}
.visible .entry nothing()
{
    ret;
}
\0";

pub struct Program {
    pub client: Client,
    /// Where stamps go that nobody looks at, and a word that nobody sets.
    pub memory: u64,
}

impl Program {
    pub fn attach(server: &Server, token: &str) -> Result<Program, String> {
        let mut program = Program { client: Client::attach(server, token)?, memory: 0 };
        let module = Handle::new(Kind::Module, 0, 0);
        let image = Payload::Inline(Bytes::from(PTX.as_bytes()));
        let load = ModuleLoadData { module: module.into(), image, options: List::default(), owner: c"".into() };
        program.call(ModuleLoadData::OP, &body(&load))?;
        for (i, name) in [c"spin", c"forever", c"nothing"].into_iter().enumerate() {
            let function = Handle::new(Kind::Function, 0, i as u32).into();
            let find = ModuleGetFunction { module: module.into(), function, name: name.into() };
            program.call(ModuleGetFunction::OP, &body(&find))?;
        }
        for name in [STREAM, OTHER] {
            let flags = CU_STREAM_NON_BLOCKING;
            let stream = calls::cuStreamCreateWithPriority { phStream: name, flags, priority: 0 };
            program.call(calls::cuStreamCreateWithPriority::OP, &body(&stream))?;
        }
        program.memory = first_word(&program.call(MemAlloc::OP, &body(&MemAlloc { bytes: Size(4096) }))?);
        Ok(program)
    }

    pub fn worker(&self) -> u32 {
        self.client.welcome.worker_pid
    }

    pub fn call(&mut self, op: u16, body: &[u8]) -> Result<Vec<u8>, String> {
        match self.client.ask(op, 0, body, PATIENCE, &mut |_, _| {}) {
            Answer::Reply(CUDA_SUCCESS, reply) => Ok(reply),
            Answer::Reply(code, _) => Err(format!("operation {op:#x} answered {code}")),
            Answer::Late => Err(format!("no answer to operation {op:#x} within {PATIENCE:?}")),
            Answer::Lost => Err(format!("session lost in operation {op:#x}")),
        }
    }

    /// One thread; whether it went out.
    pub fn launch(&mut self, function: u64, stream: u64, parameters: &[u64]) -> bool {
        const ONES: u64 = 1 << 32 | 1;
        let head = [function, ONES, ONES, ONES, 0, stream, 8 * parameters.len() as u64];
        self.client.post(ops::CU_LAUNCH_KERNEL, 0, &words(&[&head, parameters].concat()))
    }

    /// A kernel whose stamps nobody looks at.
    pub fn spin(&mut self, stream: u64, time: Duration) -> bool {
        self.launch(SPIN, stream, &[self.memory, time.as_nanos() as u64])
    }
}
