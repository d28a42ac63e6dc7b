//! `orion-rounds`: makes and destroys everything that the driver API lets a program make, any number of times, and
//! holds that memory stays flat: its own, and that of the processes which were started beside it (`orion-run` starts
//! Orion's server so).
//!
//! It runs against any `libcuda.so.1`. `--count 1000000` is the long run.

#[path = "../library.rs"]
mod library;
#[path = "../rounds/memory.rs"]
mod memory;
#[path = "../rounds/pairs.rs"]
mod pairs;
#[cfg(test)]
#[path = "../generated/pairs.rs"]
mod table;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;

use memory::Watch;
use pairs::{PAIRS, Pair, Scene};

/// Makes and destroys everything the CUDA driver API has, over and over, and holds that memory stays flat.
#[derive(Parser)]
#[command(version)]
struct Options {
    /// The library to ask; without it the loader finds libcuda.so.1, so LD_LIBRARY_PATH decides
    #[arg(long, value_name = "PATH")]
    lib: Option<String>,
    /// Rounds of each pair
    #[arg(long, default_value_t = 20_000)]
    count: u64,
    /// A pair that takes longer makes fewer rounds, but no fewer than --least
    #[arg(long, value_name = "SECONDS", default_value_t = 3600.0)]
    seconds: f64,
    /// Rounds that every pair makes
    #[arg(long, default_value_t = 2_500)]
    least: u64,
    /// Memory that a process may grow by in the second half of a pair's rounds
    #[arg(long, value_name = "KIB", default_value_t = 192)]
    bound_kib: u64,
    /// Only pairs whose name contains one of these
    #[arg(long, value_name = "TEXT", value_delimiter = ',')]
    only: Vec<String>,
    /// Print the names of the pairs and stop
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let of_interest = |pair: &&Pair| options.only.is_empty() || options.only.iter().any(|o| pair.creates.contains(o));
    let chosen: Vec<&Pair> = PAIRS.iter().filter(of_interest).collect();
    if chosen.is_empty() {
        eprintln!("orion-rounds: no pair has {:?} in its name; --list has the names", options.only);
        return ExitCode::FAILURE;
    }
    if options.list {
        chosen.iter().for_each(|pair| println!("{} {}", pair.creates, pair.destroys));
        return ExitCode::SUCCESS;
    }
    match run(&options, &chosen) {
        Ok(0) => {
            println!("{} pairs, memory is flat", chosen.len());
            ExitCode::SUCCESS
        }
        Ok(failed) => {
            println!("{} pairs, {failed} failed", chosen.len());
            ExitCode::FAILURE
        }
        Err(message) => {
            eprintln!("orion-rounds: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options, chosen: &[&Pair]) -> Result<usize, String> {
    let driver = library::open(options.lib.as_deref().unwrap_or("libcuda.so.1"))?;
    let mut scene = Scene::new(driver)?;
    scene.warm_up()?;
    scene.end();
    let mut failed = 0;
    for pair in chosen {
        // Each has a fresh scene, so that a pair that breaks something spoils no other.
        let outcome = Scene::new(driver).and_then(|mut scene| {
            let outcome = rounds(options, pair, &mut scene);
            scene.end();
            outcome
        });
        match outcome {
            Ok(text) => println!("ok      {:34} {text}", pair.creates),
            Err(text) => {
                failed += 1;
                println!("FAILED  {:34} {text}", pair.creates);
            }
        }
    }
    Ok(failed)
}

fn rounds(options: &Options, pair: &Pair, scene: &mut Scene) -> Result<String, String> {
    let start = Instant::now();
    let limit = Duration::from_secs_f64(options.seconds);
    let half = |scene: &mut Scene, begun: Instant, rounds: u64| {
        let mut made = 0;
        while made < rounds && (made < options.least / 2 || begun.elapsed() < limit / 2) {
            (pair.round)(scene).map_err(|e| format!("round {made}: {e}"))?;
            made += 1;
        }
        scene.settle()?;
        Ok::<u64, String>(made)
    };
    let warm = half(scene, start, options.count.div_ceil(2))?;
    let is_much = |growth: &memory::Growth| growth.most_kib() > options.bound_kib as i64;
    let before = Watch::new();
    let mut made = half(scene, Instant::now(), options.count.div_ceil(2))?;
    let mut growth = before.growth();
    // What is taken once, such as an arena of a thread, is not taken again. What leaks is.
    if is_much(&growth) {
        let before = Watch::new();
        made += half(scene, Instant::now(), options.count.div_ceil(2))?;
        growth = before.growth();
    }
    let text = format!("{} rounds in {:.1} s; {growth}", warm + made, start.elapsed().as_secs_f64());
    if is_much(&growth) {
        return Err(format!("{text}; more than {} KiB in each of the last two thirds", options.bound_kib));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_can_be_created_has_its_rounds() {
        let missing: Vec<_> = table::CREATES.iter().filter(|name| !PAIRS.iter().any(|p| p.creates == **name)).collect();
        assert!(missing.is_empty(), "rows that create something without a pair in rounds/pairs.rs: {missing:?}");
        let unknown: Vec<_> =
            PAIRS.iter().map(|p| p.creates).filter(|c| !c.contains(' ') && !table::CREATES.contains(c)).collect();
        assert!(unknown.is_empty(), "pairs of rows that create nothing: {unknown:?}");
    }

    #[test]
    fn whatever_destroys_is_called_in_some_round() {
        let called = |name: &str| PAIRS.iter().any(|p| p.destroys.split(", ").any(|d| d == name));
        let missing: Vec<_> = table::DESTROYS.iter().filter(|name| !called(name)).collect();
        assert!(missing.is_empty(), "rows that destroy something and are in no pair: {missing:?}");
    }
}
