//! How much slower a core works while another one does what a thread does that waits: cores of a virtual machine may be
//! two halves of one, and it does not say which.

// UNSAFETY: asks for and sets the cores that a thread may run on, and polls a socket.

use std::hint::{black_box, spin_loop};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{io, thread};

use crate::report::{Better, Sample};

#[derive(Debug, Clone, Copy)]
enum Neighbour {
    Pauses,
    AsksTheKernel,
    Computes,
}

const NEIGHBOURS: [(Neighbour, &str); 3] = [
    (Neighbour::Pauses, "that looks at memory and pauses"),
    (Neighbour::AsksTheKernel, "that asks the kernel for news"),
    (Neighbour::Computes, "that computes"),
];

pub fn measure(quick: bool) -> Result<Vec<Sample>, String> {
    let cores = own_cores().map_err(|e| format!("asking for this process's cores failed: {e}"))?;
    let [first, others @ ..] = cores.as_slice() else { return Err("this process may run on no core".into()) };
    if others.is_empty() {
        return Err(format!("this process may run on core {first} only, and neighbours are two"));
    }
    let slices = if quick { 3 } else { 7 };
    let mut samples = Vec::new();
    for (neighbour, name) in NEIGHBOURS {
        let mut left: Vec<(f64, usize)> = Vec::new();
        for other in others {
            let percent = speed_left(*first, *other, neighbour, slices)
                .map_err(|e| format!("measuring core {first} beside core {other} failed: {e}"))?;
            left.push((percent, *other));
        }
        left.sort_by(|a, b| a.0.total_cmp(&b.0));
        let ((least, core), (median, _)) = (left[0], left[left.len() / 2]);
        let case = format!("speed left beside a neighbour {name}");
        let sample = Sample::new(case, "%", Better::Higher, least).detail("on core", core as f64);
        samples.push(sample.detail("median of all cores, %", median));
    }
    Ok(samples)
}

/// How many percent of what it does alone `core` gets done beside a neighbour. The best slices count: what the
/// host takes comes and goes.
fn speed_left(core: usize, other: usize, neighbour: Neighbour, slices: usize) -> io::Result<f64> {
    let (busy, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let (mut alone, mut beside) = (0f64, 0f64);
    thread::scope(|scope| {
        let besides = scope.spawn(|| be_neighbour(other, neighbour, &busy, &over));
        let worked = scope.spawn(|| -> io::Result<()> {
            run_on(core)?;
            for _ in 0..slices {
                for (is_busy, best) in [(false, &mut alone), (true, &mut beside)] {
                    busy.store(is_busy, Ordering::Relaxed);
                    // The neighbour sleeps no longer than that.
                    thread::sleep(Duration::from_millis(2));
                    *best = best.max(work());
                }
            }
            Ok(())
        });
        let worked = worked.join().expect("a panic ends the process");
        over.store(true, Ordering::Relaxed);
        besides.join().expect("a panic ends the process")?;
        worked
    })?;
    Ok(beside / alone * 100.0)
}

/// Rounds of arithmetic a microsecond, as many at a time as a core can.
fn work() -> f64 {
    const ROUNDS: u32 = 200;
    let (begin, mut done) = (Instant::now(), 0u64);
    let mut chains = [1u64, 2, 3, 4, 5, 6];
    while begin.elapsed() < Duration::from_millis(3) {
        for _ in 0..ROUNDS {
            for chain in &mut chains {
                *chain = chain.rotate_left(5) ^ chain.wrapping_add(0x9e37_79b9_7f4a_7c15);
            }
        }
        black_box(&mut chains);
        done += u64::from(ROUNDS);
    }
    done as f64 / begin.elapsed().as_secs_f64() / 1e6
}

fn be_neighbour(core: usize, neighbour: Neighbour, busy: &AtomicBool, over: &AtomicBool) -> io::Result<()> {
    run_on(core)?;
    let (socket, _silent) = UnixStream::pair()?;
    let mut entry = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    while !over.load(Ordering::Relaxed) {
        if !busy.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
            continue;
        }
        match neighbour {
            Neighbour::Pauses => spin_loop(),
            // SAFETY: one valid entry.
            Neighbour::AsksTheKernel => _ = unsafe { libc::poll(&raw mut entry, 1, 0) },
            Neighbour::Computes => _ = black_box(work()),
        }
    }
    Ok(())
}

fn own_cores() -> io::Result<Vec<usize>> {
    // SAFETY: an all-zero set is an empty one.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: a set of the size given, to be filled in.
    if unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: below the set's size.
    Ok((0..libc::CPU_SETSIZE as usize).filter(|core| unsafe { libc::CPU_ISSET(*core, &set) }).collect())
}

fn run_on(core: usize) -> io::Result<()> {
    // SAFETY: an all-zero set is an empty one, and the core is one of `own_cores`.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        set
    };
    // SAFETY: a set of the size given.
    if unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
