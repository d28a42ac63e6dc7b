//! What a tenant may try to have more of a GPU's time than its share, or to keep others from theirs.

// UNSAFETY: signals workers of an oriond of its own.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use orion_cuda::sys::*;
use orion_transport::client::Server;
use orion_wire::Kind;
use orion_wire::handle::Handle;
use orion_wire::message::address::ClaimedDevice;
use orion_wire::message::callback::LaunchHostFunc;
use orion_wire::message::calls;
use orion_wire::message::capture::{StreamBeginCapture, StreamEndCapture};
use orion_wire::message::copy::CopyOutInline;
use orion_wire::message::field::{CallbackId, Existing, List, Size};
use orion_wire::message::graph_exec::{GraphInstantiateWithFlags, GraphLaunch};

use crate::client::body;
use crate::leases::program::{FOREVER, NOTHING, OTHER, Program, STREAM};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// A worker that is stopped in its turn, and goes on later
    Stopped,
    /// Workers that are killed in their turn
    Killed,
    /// Answers of 100 KiB that nobody reads, between kernels
    Unread,
    /// Kernels that do not end
    Endless,
    /// Kernels of 200 ms
    Long,
    /// Host functions that do not return, with work behind them
    Functions,
    /// Graphs with such functions
    GraphFunctions,
    /// Work that waits for words in memory that nobody sets
    MemoryWaits,
    /// As many launches of nothing as there can be
    Tiny,
    /// Streams that wait for each other's events all the time
    Events,
    /// Sessions that have too much and end, one after the other
    Sessions,
}

/// The level at which all of idle time is lent.
pub const WORK_CONSERVING: u32 = 100;

const SHORT: Duration = Duration::from_millis(1);
/// How long a session that is stuck is kept.
const STUCK: Duration = Duration::from_millis(400);

impl Way {
    /// The longest kernel that ends.
    pub fn kernel(self) -> Duration {
        match self {
            Way::Long => Duration::from_millis(200),
            Way::Sessions => Duration::from_millis(20),
            _ => SHORT,
        }
    }

    /// Levels at which it is tried: those whose work goes on after its turn are kept from more where there is a cap.
    pub fn levels(self) -> &'static [u32] {
        if self.goes_on() { &[WORK_CONSERVING, 50] } else { &[WORK_CONSERVING] }
    }

    /// Whether its kernels go on after its turn.
    pub fn goes_on(self) -> bool {
        matches!(self, Way::Long | Way::Endless)
    }

    /// Until the time is over, over each carrier in turn; the workers that were killed.
    pub fn go(self, servers: &[&Server], token: &str, time: Duration) -> Result<Vec<u32>, String> {
        let attempt = Attempt { way: self, ends: Instant::now() + time, turn: Mutex::new(()) };
        let one_after_the_other = &|first: usize| {
            let mut killed = Vec::new();
            for server in servers.iter().cycle().skip(first) {
                if attempt.is_over() {
                    break;
                }
                killed.extend(attempt.session(server, token)?);
            }
            Ok::<_, String>(killed)
        };
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..ATTACKERS).map(|i| scope.spawn(move || one_after_the_other(i))).collect();
            let all: Result<Vec<_>, _> = all.into_iter().map(|one| one.join().expect("it does not panic")).collect();
            all.map(|killed| killed.concat())
        })
    }
}

/// Sessions of one way: one of them does what it does, and the next ones are being made meanwhile.
const ATTACKERS: usize = 3;

struct Attempt {
    way: Way,
    ends: Instant,
    /// Whose session it is that works.
    turn: Mutex<()>,
}

impl Attempt {
    fn is_over(&self) -> bool {
        Instant::now() >= self.ends
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time.min(self.ends.saturating_duration_since(Instant::now())));
    }

    /// One session; its worker if that was killed.
    fn session(&self, server: &Server, token: &str) -> Result<Option<u32>, String> {
        let mut program = Program::attach(server, token)?;
        program.client.answers_functions = false;
        program.client.push_patience = Duration::from_millis(100);
        // Until the session is over. A panic of another one ends the attack anyway.
        let _turn = self.turn.lock().map_err(|_| "another session's thread has panicked".to_owned())?;
        let outcome = match self.is_over() {
            true => Ok(None),
            false => self.attack(&mut program),
        };
        drop(program);
        outcome
    }

    fn attack(&self, program: &mut Program) -> Result<Option<u32>, String> {
        match self.way {
            Way::Long => self.always(program, |program| program.spin(STREAM, self.way.kernel())),
            Way::Tiny => self.always(program, |program| program.launch(NOTHING, STREAM, &[])),
            Way::Events => self.events(program)?,
            Way::Unread => self.unread(program),
            Way::Stopped => self.stopped(program),
            Way::Killed => return Ok(Some(self.killed(program))),
            Way::Endless => {
                program.launch(FOREVER, STREAM, &[]);
                self.sleep(STUCK);
            }
            Way::Functions => self.stuck_behind(program, |program| {
                launch_function(program);
                Ok(())
            })?,
            Way::GraphFunctions => self.stuck_behind(program, launch_graph)?,
            Way::MemoryWaits => self.stuck_behind(program, |program| {
                let addr = ClaimedDevice::new(program.memory + 1024);
                let wait = calls::cuStreamWaitValue32_v2 { stream: STREAM, addr, value: 1, flags: 0 };
                program.client.post(calls::cuStreamWaitValue32_v2::OP, 0, &body(&wait));
                Ok(())
            })?,
            Way::Sessions => {
                (0..20).for_each(|_| _ = program.spin(STREAM, self.way.kernel()));
                self.sleep(Duration::from_millis(60));
            }
        }
        Ok(None)
    }

    /// The ring is full all the time.
    fn always(&self, program: &mut Program, mut one: impl FnMut(&mut Program) -> bool) {
        while !self.is_over() && !program.client.is_lost() {
            one(program);
        }
    }

    fn events(&self, program: &mut Program) -> Result<(), String> {
        let [there, back] = [0, 1].map(|i| Handle::new(Kind::Event, 0, i).0);
        for name in [there, back] {
            program.call(calls::cuEventCreate::OP, &body(&calls::cuEventCreate { phEvent: name, Flags: 0 }))?;
        }
        self.always(program, |program| {
            for (event, from, to) in [(there, STREAM, OTHER), (back, OTHER, STREAM)] {
                let record = calls::cuEventRecord { hEvent: event, hStream: from };
                program.client.post(calls::cuEventRecord::OP, 0, &body(&record));
                let wait = calls::cuStreamWaitEvent { hStream: to, hEvent: event, Flags: 0 };
                program.client.post(calls::cuStreamWaitEvent::OP, 0, &body(&wait));
                program.launch(NOTHING, to, &[]);
            }
            true
        });
        Ok(())
    }

    fn unread(&self, program: &mut Program) {
        let from = ClaimedDevice::new(program.memory);
        let copy = body(&CopyOutInline { from, bytes: Size(4096), stream: Existing(OTHER) });
        self.always(program, |program| {
            program.spin(STREAM, SHORT);
            program.client.send(CopyOutInline::OP, 0, &copy)
        });
    }

    fn stopped(&self, program: &mut Program) {
        while !self.is_over() && !program.client.is_lost() {
            (0..200).for_each(|_| _ = program.spin(STREAM, SHORT));
            self.sleep(Duration::from_millis(17));
            signal(program.worker(), libc::SIGSTOP);
            self.sleep(STUCK);
            signal(program.worker(), libc::SIGCONT);
        }
    }

    fn killed(&self, program: &mut Program) -> u32 {
        (0..200).for_each(|_| _ = program.spin(STREAM, SHORT));
        self.sleep(Duration::from_millis(23));
        signal(program.worker(), libc::SIGKILL);
        program.worker()
    }

    /// Work behind something that does not come, and beside it.
    fn stuck_behind(
        &self,
        program: &mut Program,
        mut something: impl FnMut(&mut Program) -> Result<(), String>,
    ) -> Result<(), String> {
        program.spin(STREAM, SHORT);
        something(program)?;
        for _ in 0..50 {
            program.spin(STREAM, SHORT);
            program.spin(OTHER, SHORT);
        }
        self.sleep(STUCK);
        Ok(())
    }
}

fn launch_function(program: &mut Program) {
    let function = LaunchHostFunc { stream: Existing(STREAM), function: CallbackId(1), kept: true };
    program.client.post(LaunchHostFunc::OP, 0, &body(&function));
}

/// A kernel, a function, and a kernel.
fn launch_graph(program: &mut Program) -> Result<(), String> {
    let graph = Handle::new(Kind::Graph, 0, 0);
    let exec = Handle::new(Kind::GraphExec, 0, 0);
    let begin = StreamBeginCapture { stream: Existing(STREAM), mode: CU_STREAM_CAPTURE_MODE_RELAXED };
    program.call(StreamBeginCapture::OP, &body(&begin))?;
    program.spin(STREAM, SHORT);
    launch_function(program);
    program.spin(STREAM, SHORT);
    let end = StreamEndCapture { stream: Existing(STREAM), name: graph.into(), set_aside: List::default() };
    program.call(StreamEndCapture::OP, &body(&end))?;
    let made = GraphInstantiateWithFlags { exec: exec.into(), graph: graph.into(), flags: 0, some_set_aside: false };
    program.call(GraphInstantiateWithFlags::OP, &body(&made))?;
    let launch = GraphLaunch { exec: exec.into(), stream: Existing(STREAM), is_awaited: false };
    program.client.post(GraphLaunch::OP, 0, &body(&launch));
    Ok(())
}

pub fn signal(worker: u32, signal: i32) {
    // SAFETY: a worker of an oriond that this program has started, or nobody.
    unsafe { libc::kill(worker as i32, signal) };
}
