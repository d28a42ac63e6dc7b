//! A program whose worker has died goes on, its calls answer with an error, and it is told in a line how that was seen.
//! One that is stopped for a while, or whose server is, has lost nothing.

#[allow(dead_code, reason = "what other tests need of it")]
mod orion;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// `CUDA_ERROR_DEVICE_UNAVAILABLE`.
const LOST: &str = "46\n";

#[test]
fn a_program_is_told_how_its_worker_was_lost_over_shared_memory() {
    hold_over("shm");
}

#[test]
fn a_program_is_told_how_its_worker_was_lost_over_tcp() {
    hold_over("tcp");
}

#[cfg(debug_assertions)]
#[test]
fn a_program_is_told_how_its_worker_was_lost_over_doorbells() {
    hold_over("doorbell");
}

fn hold_over(transport: &str) {
    let program =
        orion_built::build(&["-p", "orion-conformance", "--example", "lose_worker"]).join("examples/lose_worker");
    let mut run = orion::command(transport, &program, &[]);
    run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = run.spawn().expect("orion-run starts");
    let mut said = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("the program's output");
    assert_eq!(line, "attached\n");
    for worker in workers_of(child.id()) {
        // SAFETY: a signal to a process that orion-run has started for us.
        unsafe { libc::kill(worker, libc::SIGKILL) };
        let began = Instant::now();
        while std::fs::read_to_string(format!("/proc/{worker}/stat")).is_ok_and(|stat| !stat.contains(") Z ")) {
            assert!(began.elapsed().as_secs() < 20, "the worker does not end");
            std::thread::yield_now();
        }
    }
    writeln!(child.stdin.take().expect("piped")).expect("it reads");
    let (mut code, mut complaint) = (String::new(), String::new());
    said.read_to_string(&mut code).expect("the program's output");
    child.stderr.take().expect("piped").read_to_string(&mut complaint).expect("its complaint");
    assert!(child.wait().expect("it ends").success(), "over {transport}: {complaint}");
    assert_eq!(code, LOST, "over {transport}: {complaint}");
    let told = "orion: the session is lost: the worker has ended or closed the connection\n";
    assert_eq!(complaint.matches(told).count(), 1, "over {transport}: {complaint:?}");
}

/// Longer than a connection lasts whose other end is not heard of.
const STOPPED: Duration = Duration::from_secs(14);

/// By Ctrl-Z, or by a debugger.
#[test]
fn a_program_that_is_stopped_while_it_is_sent_much_goes_on_over_tcp() {
    stop_while_copying("out", "keep_copying");
}

#[test]
fn a_program_whose_server_is_stopped_while_it_is_sent_much_goes_on_over_tcp() {
    stop_while_copying("in", "oriond");
}

fn stop_while_copying(way: &str, stopped: &str) {
    let program =
        orion_built::build(&["-p", "orion-conformance", "--example", "keep_copying"]).join("examples/keep_copying");
    let mut run = orion::command("tcp", &program, &[way]);
    run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = run.spawn().expect("orion-run starts");
    let mut said = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("the program's output");
    assert_eq!(line, "copying\n");
    let pids: Vec<i32> = children(child.id() as i32).into_iter().filter(|pid| is_called(*pid, stopped)).collect();
    assert_eq!(pids.len(), 1, "who is called {stopped}");
    // SAFETY: signals to a process that orion-run has started for us.
    assert_eq!(unsafe { libc::kill(pids[0], libc::SIGSTOP) }, 0);
    std::thread::sleep(STOPPED);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::kill(pids[0], libc::SIGCONT) }, 0);
    drop(child.stdin.take());
    let (mut outcome, mut complaint) = (String::new(), String::new());
    said.read_to_string(&mut outcome).expect("the program's output");
    child.stderr.take().expect("piped").read_to_string(&mut complaint).expect("its complaint");
    assert!(child.wait().expect("it ends").success(), "{complaint}");
    assert_eq!(outcome, "right\n", "{complaint}");
}

fn is_called(pid: i32, name: &str) -> bool {
    // Linux keeps 15 bytes of a name.
    let name = &name[..name.len().min(15)];
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim_end() == name)
}

/// The workers of the oriond that this orion-run has started.
fn workers_of(run: u32) -> Vec<i32> {
    let orionds = children(run as i32).into_iter().filter(|pid| is_called(*pid, "oriond"));
    let workers: Vec<i32> = orionds.flat_map(children).filter(|pid| is_called(*pid, "oriond-worker")).collect();
    assert!(!workers.is_empty(), "orion-run has started no oriond, or that no worker");
    workers
}

fn children(pid: i32) -> Vec<i32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|p| p.parse().ok()).collect::<Vec<i32>>()).collect()
}
