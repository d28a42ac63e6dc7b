//! Tests for which other tests must not have this machine's processors: a program of their own, which runs when the
//! others have ended, and one at a time.

#![allow(non_snake_case, reason = "fields of messages are called as the driver's parameters are")]

#[allow(dead_code, reason = "what other tests need of it")]
#[path = "../carrier/harness.rs"]
mod harness;
#[allow(dead_code, reason = "what other tests need of it")]
#[path = "../carrier/program.rs"]
mod program;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use orion_wire::handle::{Handle, Kind};
use orion_wire::message::calls;

use harness::{Client, Oriond, Transport, body, holds, measured, non_blocking};
use program::{BRIEF, Program, SOFT, count_for, part_of_gpu};

fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Of two GPUs the kernels of one are taken off it, and those of the other go on meanwhile.
#[test]
fn kernels_are_taken_off_one_gpu_and_go_on_on_another() {
    let _alone = alone();
    let arguments = [&SOFT[..], &["--vgpus", "2", "--memory-limit", "256 MiB", "--share", "50"]].concat();
    let server = Oriond::start_in(&[("ORION_SOFT_DEVICES", "2")], &arguments);
    let mut both = Program::on(1, Client::attach(&server, Transport::Shm));
    both.0.context = Handle::primary_context(0).0;
    let [module, forever] = [Kind::Module, Kind::Function].map(|kind| Handle::new(kind, 0, 9).0);
    let stream = Handle::new(Kind::Stream, 0, 9).0;
    both.load(module, &[(forever, c"forever")]);
    both.done(calls::cuStreamCreateWithPriority::OP, &body(&non_blocking(stream)));
    let mut neighbour = Program::on(0, Client::attach(&server, Transport::Shm));
    let (is_over, done) = (AtomicBool::new(false), [AtomicU64::new(0), AtomicU64::new(0)]);
    both.launch_on(stream, forever);
    both.0.context = Handle::primary_context(1).0;
    let counts = std::thread::scope(|scope| {
        let is_over = &is_over;
        for (program, done) in [&mut both, &mut neighbour].into_iter().zip(&done) {
            scope.spawn(move || program.work_until(is_over, done));
        }
        count_for(&[&done[0], &done[1]], Duration::from_millis(1500), is_over)
    });
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    drop((both, neighbour));
    for (gpu, is_taken_off) in [(0, true), (1, false)] {
        let taken_off = part_of_gpu(&server, 1, Some(gpu), &["taken_off"])[0];
        assert!(if is_taken_off { taken_off > 5 } else { taken_off == 0 }, "{taken_off} times off GPU {gpu}");
    }
}

/// A GPU that each can fill by half, as one whose kernels are over before the next one is sent: the software GPU's
/// sessions are processes of their own. A switch that only builds with debug assertions have.
#[cfg(debug_assertions)]
#[test]
fn sessions_have_a_gpu_together_where_each_gains() {
    let _alone = alone();
    // Of four trials; where other programs have the processors nobody gains.
    const TIME: Duration = Duration::from_secs(8);
    let arguments = [&SOFT[..], &["--share", "50", "--warm", "2"]].concat();
    measured(|| {
        let server = Oriond::start_in(&[("ORION_SOFT_TOGETHER", "1")], &arguments);
        let mut programs = [Program::attach(&server), Program::attach(&server)];
        let (is_over, done, begun) = (AtomicBool::new(false), AtomicU64::new(0), Instant::now());
        let are_together = || server.log().contains("sessions have the GPU together");
        std::thread::scope(|scope| {
            for program in &mut programs {
                scope.spawn(|| program.launch_until(BRIEF, &is_over, &done));
            }
            while begun.elapsed() < TIME && !are_together() {
                std::thread::sleep(Duration::from_millis(5));
            }
            is_over.store(true, Ordering::Relaxed);
        });
        holds(are_together(), || server.log())
    });
}
