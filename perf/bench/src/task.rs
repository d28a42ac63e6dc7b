//! Measurements in a process of their own: a process has one session, and its address space and caches are fresh.
//!
//! The parent passes the task as JSON. The child says `ready`, waits for a line, measures, prints its samples as one
//! line of JSON, and stays until the parent closes its input, so that its worker can still be looked at.

use crate::report::Sample;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Task {
    /// Both canonical numbers, each for half of the time.
    Canonical {
        library: PathBuf,
        seconds: f64,
    },
    Stubs {
        library: PathBuf,
        batches: u32,
    },
    Instructions {
        library: PathBuf,
        calls: u32,
    },
    RoundTrip {
        library: PathBuf,
        seconds: f64,
    },
    /// Round trips without the shim, with an oriond that echoes.
    RawRoundTrip {
        server: String,
        seconds: f64,
    },
    Copies {
        library: PathBuf,
        bytes: Vec<usize>,
        seconds: f64,
    },
    Attach {
        library: PathBuf,
    },
    Kernels {
        library: PathBuf,
        rows: usize,
        launches: usize,
    },
    Replay(Replay),
    /// The other end of a ring whose memory is this inherited descriptor.
    RingPeer {
        fd: i32,
    },
    /// What `deploy-check` wants to know of a server.
    Probe {
        library: PathBuf,
        bytes: usize,
    },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Replay {
    pub through: Through,
    pub stream: String,
    pub threads: usize,
    pub seconds: f64,
    /// Think times are multiplied by this; 0 leaves them out.
    pub think: f64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Through {
    /// A driver library, which finds its server by the environment.
    Library(PathBuf),
    /// Records to an oriond that echoes.
    Records { server: String },
}

/// Says that everything is set up, and waits until the others are too.
pub fn wait_for_start() -> Result<(), String> {
    println!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map_err(|e| format!("waiting for the start failed: {e}"))?;
    if line.is_empty() { Err("the parent is gone".into()) } else { Ok(()) }
}

/// A child as its parent sees it.
pub struct Running {
    child: Child,
    /// Taken when the child is told to end.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Running {
    /// Starts a child and waits until it is ready.
    pub fn start(task: &Task, server: Option<&str>) -> Result<Running, String> {
        Running::start_in(&[], task, server)
    }

    /// With these variables besides.
    pub fn start_in(environment: &[(&str, &str)], task: &Task, server: Option<&str>) -> Result<Running, String> {
        Running::start_with(&[], environment, task, server)
    }

    /// As [`Running::start`], under another program such as valgrind.
    pub fn start_under(under: &[String], task: &Task, server: Option<&str>) -> Result<Running, String> {
        Running::start_with(under, &[], task, server)
    }

    fn start_with(
        under: &[String],
        environment: &[(&str, &str)],
        task: &Task,
        server: Option<&str>,
    ) -> Result<Running, String> {
        let own = std::env::current_exe().map_err(|e| format!("finding this program failed: {e}"))?;
        let mut command = match under {
            [] => Command::new(&own),
            [program, arguments @ ..] => {
                let mut command = Command::new(program);
                command.args(arguments).arg(&own);
                command
            }
        };
        let named = match task {
            Task::RawRoundTrip { server, .. } => Some(server.as_str()),
            _ => None,
        };
        let task = serde_json::to_string(task).expect("a task is plain data");
        command.args(["child", &task]).envs(environment.iter().copied()).stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(server) = server {
            command.env("ORION_SERVER", server).env_remove("ORION_TRANSPORT");
        }
        if let Some(path) = server.or(named).and_then(crate::place::token_file) {
            command.env("ORION_TOKEN_FILE", path).env_remove("ORION_TOKEN");
        }
        let mut child = command.spawn().map_err(|e| format!("starting a child process failed: {e}"))?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("its output is a pipe"));
        let mut running = Running { child, input, output };
        match running.line()?.trim() {
            "ready" => Ok(running),
            _ => Err(running.failure()),
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn go(&mut self) -> Result<(), String> {
        let input = self.input.as_mut().expect("taken only at the end");
        writeln!(input, "go").map_err(|e| format!("starting the measurement failed: {e}"))
    }

    /// Waits for the samples; the child and its session live on until it is dropped.
    pub fn samples(&mut self) -> Result<Vec<Sample>, String> {
        let line = self.line()?;
        if line.trim().is_empty() {
            return Err(self.failure());
        }
        serde_json::from_str(&line).map_err(|e| format!("a child's samples are damaged: {e}"))
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(|e| format!("reading from a child failed: {e}"))?;
        Ok(line)
    }

    fn failure(&mut self) -> String {
        match self.child.wait() {
            Ok(status) => format!("a measuring process ended early ({status}); its message is above"),
            Err(e) => format!("a measuring process ended early: {e}"),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Closing its input ends it; one that hangs must not hang its parent.
        drop(self.input.take());
        let begin = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if begin.elapsed() > Duration::from_secs(10) {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// One task in one child.
pub fn measure(task: &Task, server: Option<&str>) -> Result<Vec<Sample>, String> {
    let mut child = Running::start(task, server)?;
    child.go()?;
    child.samples()
}
