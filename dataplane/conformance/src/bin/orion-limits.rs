//! `orion-limits`: takes and gives back device memory by every way that the driver API has, at random, and holds the
//! answers against a model: what is in use is never more than the device says it has, and nothing is refused that would
//! have fitted.
//!
//! It runs against any `libcuda.so.1`; the device should be small, as a vGPU with a limit is
//! (`orion-run --memory-limit "256 MiB" -- orion-limits`).
//!
//! `orphan` takes memory out of pools that are destroyed while it lives. NVIDIA's driver 580 by itself ends such a
//! program with a segmentation fault, so leave that way out there.

// UNSAFETY: asks the driver how many devices there are.

#[path = "../library.rs"]
mod library;
#[path = "../limits/model.rs"]
mod model;
#[path = "../limits/ways.rs"]
mod ways;

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use orion_cuda::driver::Driver;
use orion_cuda::sys::CUDA_SUCCESS;

use model::{Model, Random};
use ways::{Bench, WAYS};

/// Takes device memory in every way, at random, and holds what the driver answers against a model
#[derive(Parser)]
#[command(version)]
struct Options {
    /// The library to ask; without it the loader finds libcuda.so.1, so LD_LIBRARY_PATH decides
    #[arg(long, value_name = "PATH")]
    lib: Option<String>,
    /// Operations in all
    #[arg(long, default_value_t = 100_000)]
    operations: u64,
    /// Stop after so long, whatever was done by then
    #[arg(long, value_name = "SECONDS", default_value_t = 3600.0)]
    seconds: f64,
    /// Threads, which take turns in the first half and none in the second
    #[arg(long, default_value_t = 4)]
    threads: u64,
    /// The same numbers again
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// What the driver may round each piece up by: 512 on the software GPU, 2 MiB on NVIDIA's, 32 MiB for its pools
    #[arg(long, value_name = "BYTES", default_value_t = 512)]
    rounding: u64,
    /// Only these ways
    #[arg(long, value_delimiter = ',', value_name = "WAY", default_values = WAYS)]
    only: Vec<String>,
    /// Refuse to start on a device of more than this: on a whole GPU nothing would ever be refused
    #[arg(long, value_name = "MIB", default_value_t = 8192)]
    most_mib: u64,
}

/// What the threads share.
struct Common<'a> {
    options: &'a Options,
    driver: &'static Driver,
    ways: &'a [&'static str],
    /// Of each device, among which threads are spread.
    models: Vec<Mutex<Model>>,
    done: AtomicU64,
    deadline: Instant,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("orion-limits: seed {}: {message}", options.seed);
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<String, String> {
    let start = Instant::now();
    let mut ways = Vec::new();
    for only in &options.only {
        let way = WAYS.into_iter().find(|way| way == only);
        ways.push(way.ok_or_else(|| format!("--only {only}: there are {}", WAYS.join(", ")))?);
    }
    let driver = library::open(options.lib.as_deref().unwrap_or("libcuda.so.1"))?;
    let mut models = Vec::new();
    for device in 0..count(driver)? {
        let bench = Bench::new(driver, device, &ways)?;
        let (free, total) = bench.info()?;
        let said = bench.total()?;
        if said != total || free != total {
            return Err(format!("a fresh device has {free} bytes free of {total}, and {said} in all: not one number"));
        }
        if total > options.most_mib << 20 {
            return Err(format!(
                "the device has {} MiB and --most-mib is {}: give the session a limit (oriond serve --memory-limit)",
                total >> 20,
                options.most_mib
            ));
        }
        let mut model = Model::new(total, options.rounding);
        if ways.contains(&"context") {
            model.context_bytes = bench.context_bytes()?;
        }
        models.push(Mutex::new(model));
    }
    let deadline = start + Duration::from_secs_f64(options.seconds);
    let common = Common { options, driver, ways: &ways, models, done: AtomicU64::new(0), deadline };
    for in_turn in [true, false] {
        std::thread::scope(|scope| {
            let common = &common;
            let start = |number| scope.spawn(move || work(common, number, in_turn));
            let threads: Vec<_> = (0..options.threads).map(start).collect();
            threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?)
        })?;
    }
    let mut said = Vec::new();
    for (device, model) in common.models.iter().enumerate() {
        let bench = Bench::new(driver, device as i32, &ways)?;
        bench.trim()?;
        let ((free, total), model) = (bench.info()?, model.lock().expect("no thread panicked"));
        if free != total {
            return Err(format!("all was given back, and {free} of {total} bytes are free"));
        }
        said.push(format!(
            "{} MiB: {} refused rightly, most in use {} KiB; {}",
            total >> 20,
            model.refused,
            model.most >> 10,
            model.by_way()
        ));
    }
    let done = common.done.load(Ordering::Relaxed);
    Ok(format!("{done} operations in {:.1} s on {}", start.elapsed().as_secs_f64(), said.join("; on ")))
}

fn count(driver: &Driver) -> Result<i32, String> {
    let mut count = 0;
    // SAFETY: a valid out pointer.
    match unsafe { driver.cuDeviceGetCount(&mut count) } {
        CUDA_SUCCESS => Ok(count),
        code => Err(format!("cuDeviceGetCount answered {code}")),
    }
}

/// One thread: takes and gives back until its share of the operations is done, and gives back all in the end.
fn work(common: &Common, number: u64, in_turn: bool) -> Result<(), String> {
    let options = common.options;
    let mut random = Random::new(options.seed ^ number << 32 ^ u64::from(in_turn) << 48);
    let device = number as usize % common.models.len();
    let model = &common.models[device];
    let mut bench = Bench::new(common.driver, device as i32, common.ways)?;
    bench.expect(&*model.lock().map_err(|_| "another thread panicked")?);
    for _ in 0..options.operations / options.threads / 2 {
        if Instant::now() > common.deadline {
            break;
        }
        common.done.fetch_add(1, Ordering::Relaxed);
        if in_turn {
            let mut model = model.lock().map_err(|_| "another thread panicked")?;
            bench.step(&mut random, &mut model)?;
        } else {
            bench.step_at_once(&mut random, model)?;
        }
    }
    let mut model = model.lock().map_err(|_| "another thread panicked")?;
    bench.end(&mut model)
}
