//! `orion-matrix`: a completion that is seen covers all host memory before it.
//!
//! Every way in which bytes come to host memory, times every way in which a completion is seen, times every kind of
//! host memory, in random order and by several threads at once. Each round brings a new value and looks for it at the
//! moment of the completion; what lies beside the bytes is the host's, changes every round too, and has to stay. Runs
//! on any `libcuda.so.1`.

#[path = "../matrix/captures.rs"]
mod captures;
#[path = "../matrix/cell.rs"]
mod cell;
#[path = "../matrix/churn.rs"]
mod churn;
#[path = "../matrix/relay.rs"]
mod relay;
#[path = "../matrix/round.rs"]
mod round;

#[allow(dead_code, reason = "facts ask for functions that this program does not")]
#[path = "../driver.rs"]
mod driver;
#[allow(dead_code, unused_macros, unused_imports, reason = "what facts are written in, of which this needs a part")]
#[path = "../fact.rs"]
mod fact;
#[allow(dead_code, reason = "as above")]
#[path = "../lab.rs"]
mod lab;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;

use cell::{Cell, cells};
use round::Bench;

/// Checks that every completion covers all host memory before it, on any CUDA driver library.
#[derive(Parser)]
#[command(version)]
struct Options {
    /// The library to ask; without it the loader finds libcuda.so.1, so LD_LIBRARY_PATH decides
    #[arg(long, value_name = "PATH")]
    lib: Option<String>,
    /// Print the cells, and those that CUDA does not have with the reason, and stop
    #[arg(long)]
    list: bool,
    /// Completions to check; every cell is visited once all the same, unless the time is over
    #[arg(long, default_value_t = 0)]
    count: u64,
    /// Stop after so many seconds
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// What the order of everything follows from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only cells whose name contains one of these; parts of one joined by + have to be there all
    #[arg(long, value_name = "TEXT", value_delimiter = ',')]
    only: Vec<String>,
    /// Threads that check at once, each with streams and memory of its own
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: u32,
    /// Goes to the TCP server of ORION_SERVER through a relay that holds up every connection, each way, by random
    /// times of up to so many microseconds
    #[arg(long, value_name = "MICROSECONDS")]
    late_us: Option<u64>,
    /// Graphs with a host function copy to little memory only. Else it is much for one of the threads, and over TCP all
    /// of it is compared with each completion, so that everything takes ten times as long
    #[arg(long)]
    little: bool,
    /// One more thread captures streams of a context of its own meanwhile, and each capture has to stay whole
    #[arg(long)]
    captures: bool,
    /// One more thread makes and ends contexts, streams, modules, pools and the like meanwhile, with work under way
    #[arg(long)]
    churn: bool,
    /// Print how long rounds took in the mean, by each part of a cell's name
    #[arg(long)]
    times: bool,
}

/// What all threads share.
struct Run {
    cells: Vec<Cell>,
    count: u64,
    deadline: Instant,
    completions: AtomicU64,
    wrong: AtomicU64,
    stopped: AtomicBool,
    /// The first complaints.
    complaints: Mutex<Vec<String>>,
    /// Rounds and the time they took, by part of a name, if somebody wants to know.
    times: Option<Mutex<BTreeMap<String, (u64, Duration)>>>,
}

const COMPLAINTS_MAX: usize = 20;
/// Of rounds that take much longer than others only so many are played once every cell was visited.
const LONG_ONE_IN: usize = 32;

impl Run {
    fn complain(&self, text: String) {
        let mut all = self.complaints.lock().expect("no holder panics");
        if all.len() < COMPLAINTS_MAX {
            all.push(text);
        }
    }

    /// Whether a thread that has visited its share of the cells is done.
    fn is_enough(&self) -> bool {
        self.completions.load(Ordering::Relaxed) >= self.count
    }

    fn is_over(&self) -> bool {
        self.stopped.load(Ordering::Relaxed) || Instant::now() >= self.deadline
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let (all, left_out) = cells();
    let chosen: Vec<Cell> = all.into_iter().filter(|cell| cell.matches(&options.only)).collect();
    if options.list {
        chosen.iter().for_each(|cell| println!("{}", cell.name()));
        left_out.iter().for_each(|(name, why)| println!("not in CUDA: {name}: {why}"));
        return ExitCode::SUCCESS;
    }
    match check(&options, chosen) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(reason) => {
            eprintln!("orion-matrix: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn check(options: &Options, cells: Vec<Cell>) -> Result<bool, String> {
    if cells.is_empty() {
        return Err(format!("no cell has {:?} in its name; --list prints them", options.only));
    }
    if let Some(late_us) = options.late_us {
        relay::put_in_between(Duration::from_micros(late_us), options.seed)?;
    }
    let cu = driver::Cuda::open(options.lib.as_deref())?;
    match cu.cuInit(0) {
        0 => {}
        code => return Err(format!("cuInit answered {}", driver::name_of(code))),
    }
    let started = Instant::now();
    let run = Run {
        cells,
        count: options.count,
        deadline: started + Duration::from_secs(options.seconds),
        completions: AtomicU64::new(0),
        wrong: AtomicU64::new(0),
        stopped: AtomicBool::new(false),
        complaints: Mutex::default(),
        times: options.times.then(Mutex::default),
    };
    let all_ended = AtomicBool::new(false);
    let visited: usize = std::thread::scope(|scope| {
        let is_over = || all_ended.load(Ordering::Relaxed);
        let beside = [
            options
                .captures
                .then(|| ("captures", scope.spawn(move || captures::capture_until(cu, options.seed, is_over)))),
            options
                .churn
                .then(|| ("rounds of churn", scope.spawn(move || churn::churn_until(cu, options.seed, is_over)))),
        ];
        let threads: Vec<_> = (0..options.threads)
            .map(|index| {
                let run = &run;
                scope.spawn(move || {
                    let mut bench = Bench::new(cu, options.seed, index, index == 0 && !options.little)?;
                    work(run, &mut bench, index as usize, options.threads as usize)
                })
            })
            .collect();
        let ends = threads.into_iter().map(|thread| thread.join().expect("a thread's panic ends the program"));
        let visited = ends.fold(0, |visited, end: Result<usize, String>| match end {
            Ok(more) => visited + more,
            Err(reason) => {
                run.complain(reason);
                run.stopped.store(true, Ordering::Relaxed);
                run.wrong.fetch_add(1, Ordering::Relaxed);
                visited
            }
        });
        all_ended.store(true, Ordering::Relaxed);
        for (name, thread) in beside.into_iter().flatten() {
            match thread.join().expect("a thread's panic ends the program") {
                Ok(count) => println!("{count} {name} beside them"),
                Err(reason) => {
                    run.complain(format!("{name}: {reason}"));
                    run.wrong.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        visited
    });
    for complaint in run.complaints.lock().expect("no holder panics").iter() {
        println!("WRONG {complaint}");
    }
    for (part, (rounds, took)) in run.times.iter().flat_map(|times| times.lock().expect("no holder panics").clone()) {
        println!("{part}: {rounds} rounds, {:.0} us each", took.as_secs_f64() * 1e6 / rounds as f64);
    }
    let (completions, wrong) = (run.completions.load(Ordering::Relaxed), run.wrong.load(Ordering::Relaxed));
    let rate = completions as f64 / started.elapsed().as_secs_f64();
    println!("{visited} of {} cells, {rate:.0} a second, seed {}", run.cells.len(), options.seed);
    println!("{completions} completions, {wrong} wrong");
    Ok(wrong == 0 && completions > 0 && (visited == run.cells.len() || options.count > 0))
}

/// A thread's part: its share of the cells once, in random order, then any of them. Answers how many it visited.
fn work(run: &Run, bench: &mut Bench, index: usize, threads: usize) -> Result<usize, String> {
    let mut share: Vec<&Cell> = run.cells.iter().skip(index).step_by(threads).collect();
    bench.random.shuffle(&mut share);
    let mut times = BTreeMap::<String, (u64, Duration)>::new();
    let mut visit = |bench: &mut Bench, cell: &Cell| -> Result<(), String> {
        let began = Instant::now();
        let round = bench.round(cell).inspect_err(|_| run.stopped.store(true, Ordering::Relaxed));
        let (completions, complaints) = round.map_err(|reason| format!("{}: {reason}", cell.name()))?;
        for complaint in complaints {
            run.wrong.fetch_add(1, Ordering::Relaxed);
            run.complain(format!("{}: {complaint}", cell.name()));
        }
        run.completions.fetch_add(completions, Ordering::Relaxed);
        if run.times.is_some() {
            for part in cell.name().split('/') {
                let (rounds, took) = times.entry(part.to_owned()).or_default();
                (*rounds, *took) = (*rounds + 1, *took + began.elapsed());
            }
        }
        Ok(())
    };
    let mut visited = 0;
    for cell in share {
        if run.is_over() {
            break;
        }
        visit(bench, cell)?;
        visited += 1;
    }
    while !run.is_enough() && !run.is_over() {
        let cell = &run.cells[bench.random.below(run.cells.len())];
        if !cell.is_long() || bench.random.below(LONG_ONE_IN) == 0 {
            visit(bench, cell)?;
        }
    }
    if let Some(all) = &run.times {
        let mut all = all.lock().expect("no holder panics");
        for (part, (rounds, took)) in times {
            let sum = all.entry(part).or_default();
            *sum = (sum.0 + rounds, sum.1 + took);
        }
    }
    Ok(visited)
}
