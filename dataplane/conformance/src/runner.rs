//! Runs facts in worker processes, so that a fact that crashes, hangs or breaks its context costs one line and
//! not the run.
//!
//! One worker runs all facts that share a context, each in a thread of its own (context stacks and per-thread
//! streams belong to threads). When it dies, the fact it was running has failed and a new worker takes the rest.
//! Facts marked `alone` get a worker each, whose output is compared as well.
//!
//! UNSAFETY: the pipe on which a worker reports is opened, polled and inherited with libc.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use orion_cuda::sys::CUDA_SUCCESS;

use crate::driver::{Cuda, name_of};
use crate::fact::{Fact, Needs, Verdict};
use crate::{facts, lab};

#[derive(Clone, Copy, PartialEq)]
pub enum Style {
    Text,
    Quiet,
    Json,
}

pub fn run(chosen: &[&'static Fact], lib: Option<&str>, crowd: u32, timeout_s: u64, style: Style) -> ExitCode {
    let limit = Duration::from_secs(timeout_s);
    let mut verdicts: Vec<(&Fact, Verdict)> = Vec::new();
    let mut tell = |fact: &'static Fact, verdict: Verdict| {
        print_verdict(fact, &verdict, style);
        verdicts.push((fact, verdict));
    };
    let (chosen, skipped): (Vec<&'static Fact>, Vec<_>) =
        chosen.iter().partition(|f| crowd == 1 || f.not_in_a_crowd.is_empty());
    for fact in skipped {
        print_skipped(fact, style);
    }
    let mut shared: VecDeque<&'static Fact> = chosen.iter().filter(|f| !f.alone).copied().collect();
    while !shared.is_empty() {
        run_worker(&mut shared, lib, crowd, limit, &mut tell);
    }
    for fact in chosen.iter().filter(|f| f.alone) {
        let mut one = VecDeque::from([*fact]);
        run_worker(&mut one, lib, crowd, limit, &mut tell);
    }
    let failed = verdicts.iter().filter(|(_, verdict)| verdict.is_err()).count();
    match style {
        Style::Json => println!("{{\"passed\":{},\"failed\":{failed}}}", verdicts.len() - failed),
        Style::Text | Style::Quiet => println!("{} passed, {failed} failed", verdicts.len() - failed),
    }
    // An empty list means a mistyped --only, which must not look like success.
    if failed == 0 && !verdicts.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print_verdict(fact: &Fact, verdict: &Verdict, style: Style) {
    let name = format!("{}::{}", fact.group, fact.name);
    match (style, verdict) {
        (Style::Json, Ok(())) => println!("{{\"fact\":\"{name}\",\"ok\":true}}"),
        (Style::Json, Err(why)) => println!("{{\"fact\":\"{name}\",\"ok\":false,\"why\":\"{}\"}}", escaped(why)),
        (Style::Text, Ok(())) => println!("ok      {name}"),
        (Style::Text | Style::Quiet, Err(why)) => println!("FAILED  {name}: {why}"),
        (Style::Quiet, Ok(())) => {}
    }
}

fn print_skipped(fact: &Fact, style: Style) {
    let (name, why) = (format!("{}::{}", fact.group, fact.name), fact.not_in_a_crowd);
    match style {
        Style::Json => println!("{{\"fact\":\"{name}\",\"skipped\":\"{}\"}}", escaped(why)),
        Style::Text => println!("skipped {name}: {why}"),
        Style::Quiet => {}
    }
}

fn escaped(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '"' => "\\\"".to_string(),
            '\\' => "\\\\".to_string(),
            c if (c as u32) < 0x20 => format!("\\u{:04x}", c as u32),
            c => c.to_string(),
        })
        .collect()
}

/// Starts one worker on `facts` and takes every fact off the list that it answered or died on.
fn run_worker(
    facts: &mut VecDeque<&'static Fact>,
    lib: Option<&str>,
    crowd: u32,
    limit: Duration,
    tell: &mut dyn FnMut(&'static Fact, Verdict),
) {
    let (mut reports, mut child) = match start_worker(facts, lib, crowd) {
        Ok(started) => started,
        Err(error) => {
            for fact in facts.drain(..) {
                tell(fact, Err(format!("cannot start a worker: {error}")));
            }
            return;
        }
    };
    let stdout = collect(child.stdout.take().expect("standard output was piped"));
    let stderr = collect(child.stderr.take().expect("standard error was piped"));
    let mut answered: Option<(&'static Fact, Verdict)> = None;
    let mut hung = false;
    loop {
        match reports.next_line(limit) {
            Report::Line(line) => {
                let fact = facts.pop_front().expect("a worker reports each fact it was given once");
                let verdict = match line.strip_prefix("failed ") {
                    Some(why) => Err(why.to_string()),
                    None => Ok(()),
                };
                if fact.alone {
                    answered = Some((fact, verdict));
                } else {
                    tell(fact, verdict);
                }
            }
            Report::Closed => break,
            Report::TimedOut => {
                hung = true;
                // A failure here means that the worker has ended by itself just now.
                let _ = child.kill();
                break;
            }
        }
    }
    let status = child.wait();
    let stdout = stdout.join().expect("the reading thread does not panic");
    let stderr = stderr.join().expect("the reading thread does not panic");
    if let Some((fact, verdict)) = answered {
        let ended = match status {
            _ if hung => Err("the process did not end".to_string()),
            Ok(status) if !status.success() => Err(format!("the process ended with {status}")),
            _ => Ok(()),
        };
        let printed = verdict
            .and(ended)
            .and_then(|()| contains("standard output", &stdout, fact.stdout))
            .and_then(|()| contains("standard error", &stderr, fact.stderr));
        tell(fact, printed);
    } else if let Some(fact) = facts.pop_front_if(|_| hung || !matches!(&status, Ok(s) if s.success())) {
        let last = stderr.lines().last().unwrap_or("");
        tell(
            fact,
            Err(if hung {
                format!("no answer in time; {last}")
            } else {
                format!("the worker died: {status:?} {last}")
            }),
        );
    }
}

fn contains(stream: &str, text: &str, expected: Option<&str>) -> Verdict {
    match expected {
        Some(expected) if !text.contains(expected) => Err(format!("{stream} lacks {expected:?}; it is {text:?}")),
        _ => Ok(()),
    }
}

fn collect(mut stream: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // A broken pipe ends the text, which is then compared as it is.
        let _ = stream.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn start_worker(facts: &VecDeque<&'static Fact>, lib: Option<&str>, crowd: u32) -> std::io::Result<(Reports, Child)> {
    let mut ends = [0; 2];
    // SAFETY: `ends` is a writable array of two descriptors, as pipe2 asks.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), 0) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: both descriptors were just opened by pipe2 and belong to nobody else.
    let (read_end, write_end) = unsafe { (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) };
    // SAFETY: fcntl on a descriptor we own; the worker must not inherit the reading end.
    unsafe { libc::fcntl(read_end.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--worker", &write_end.as_raw_fd().to_string(), "--crowd", &crowd.to_string()]);
    if let Some(lib) = lib {
        command.args(["--lib", lib]);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Orion's client says then which call has been waiting for seconds.
    command.env("ORION_DEBUG", "1");
    let mut child = command.spawn()?;
    drop(write_end);
    let mut names = child.stdin.take().expect("standard input was piped");
    for fact in facts {
        // A worker that died already is noticed when its report ends.
        let _ = writeln!(names, "{}::{}", fact.group, fact.name);
    }
    drop(names);
    Ok((Reports { pipe: read_end, bytes: Vec::new() }, child))
}

/// The lines a worker reports, with a limit on the wait for each.
struct Reports {
    pipe: File,
    bytes: Vec<u8>,
}

enum Report {
    Line(String),
    Closed,
    TimedOut,
}

/// How often it is looked whether this program has the processor at all.
const LOOK: Duration = Duration::from_secs(1);

impl Reports {
    /// A machine that stands still, as a virtual one does while it is copied, takes the time of no fact: of each look
    /// no more than twice its length is counted.
    fn next_line(&mut self, limit: Duration) -> Report {
        let mut left = limit;
        loop {
            if let Some(end) = self.bytes.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.bytes.drain(..=end).collect();
                return Report::Line(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            let mut poll = libc::pollfd { fd: self.pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            let began = Instant::now();
            // SAFETY: one pollfd, which lives on this stack for the length of the call.
            let ready = unsafe { libc::poll(&mut poll, 1, left.min(LOOK).as_millis() as i32) };
            let looked = began.elapsed();
            if looked > 5 * LOOK {
                eprintln!("orion-facts: this machine, or this program, stood still for {} s", looked.as_secs());
            }
            left = left.saturating_sub(looked.min(2 * LOOK));
            if ready == 0 && left.is_zero() {
                return Report::TimedOut;
            }
            if ready <= 0 {
                continue;
            }
            let mut chunk = [0; 4096];
            match self.pipe.read(&mut chunk) {
                Ok(0) | Err(_) => return Report::Closed,
                Ok(count) => self.bytes.extend_from_slice(&chunk[..count]),
            }
        }
    }
}

/// The worker's side: runs the facts named on standard input, one report line each.
pub fn work(lib: Option<&str>, crowd: u32, report_fd: i32) -> ExitCode {
    // SAFETY: the runner passes the writing end of its pipe, which nothing else in this process uses.
    let mut report = unsafe { File::from_raw_fd(report_fd) };
    let mut names = String::new();
    std::io::stdin().read_to_string(&mut names).expect("the runner writes names of facts");
    let facts: Vec<&'static Fact> = names
        .lines()
        .map(|line| facts::all().find(|f| format!("{}::{}", f.group, f.name) == line).expect("a fact of this program"))
        .collect();
    let cuda = match Cuda::open(lib) {
        Ok(cuda) => cuda,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    for fact in facts {
        let verdict = ask(cuda, fact, crowd);
        let line = match &verdict {
            Ok(()) => "ok\n".to_string(),
            Err(why) => format!("failed {}\n", why.replace('\n', " ")),
        };
        report.write_all(line.as_bytes()).expect("the runner reads reports until the worker ends");
        // A fact that fails may leave a gate closed or a capture open, which would fail the facts after it.
        if verdict.is_err() && !fact.alone {
            return ExitCode::SUCCESS;
        }
    }
    ExitCode::SUCCESS
}

/// Asks in so many threads at once.
fn ask(cuda: &'static Cuda, fact: &'static Fact, crowd: u32) -> Verdict {
    let all_there = &Barrier::new(crowd as usize);
    thread::scope(|scope| {
        let one = || {
            all_there.wait();
            prepare(cuda, fact).and_then(|()| (fact.run)(cuda))
        };
        let threads: Vec<_> = (0..crowd).map(|_| scope.spawn(one)).collect();
        threads.into_iter().map(|thread| thread.join().expect("a panic ends the process")).fold(Ok(()), Verdict::and)
    })
}

fn prepare(cuda: &'static Cuda, fact: &Fact) -> Verdict {
    if fact.needs >= Needs::Init {
        let code = cuda.cuInit(0);
        if code != CUDA_SUCCESS {
            return Err(format!("cuInit(0) answered {}", name_of(code)));
        }
    }
    if fact.needs >= Needs::Context {
        lab::use_primary(cuda)?;
    }
    Ok(())
}
