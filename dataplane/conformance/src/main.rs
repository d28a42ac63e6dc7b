//! `orion-facts`: facts about the CUDA driver API, written once and asked of any `libcuda.so.1`.
//!
//! The same list runs natively on a GPU, through Orion over every carrier, and on the software GPU; where the
//! answers differ from the list, the library differs from CUDA. Facts need the driver API and PTX text only.

#[allow(dead_code, reason = "orion-matrix asks for functions that no fact asks for")]
mod driver;
mod fact;
mod facts;
mod lab;
mod runner;

use clap::Parser;

/// Asks a CUDA driver library a list of facts and reports each answer.
#[derive(Parser)]
#[command(version)]
struct Options {
    /// The library to ask; without it the loader finds libcuda.so.1, so LD_LIBRARY_PATH decides
    #[arg(long, value_name = "PATH")]
    lib: Option<String>,
    /// Print the names of the facts and stop
    #[arg(long)]
    list: bool,
    /// Only facts whose group or name contains one of these
    #[arg(long, value_name = "TEXT", value_delimiter = ',')]
    only: Vec<String>,
    /// Leave out facts whose group or name contains one of these
    #[arg(long, value_name = "TEXT", value_delimiter = ',')]
    skip: Vec<String>,
    /// Print one JSON object a fact instead of lines of text
    #[arg(long)]
    json: bool,
    /// Print failed facts and the summary only
    #[arg(long)]
    quiet: bool,
    /// Seconds after which a fact that has not answered has failed
    #[arg(long, default_value_t = 60)]
    timeout_s: u64,
    /// Run each fact by so many threads at once; all of them have to find it true
    #[arg(long, value_name = "THREADS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    crowd: u32,
    /// Runs the facts named on standard input in this process; the runner starts itself so
    #[arg(long, hide = true, value_name = "FD")]
    worker: Option<i32>,
}

fn main() -> std::process::ExitCode {
    let options = Options::parse();
    if let Some(report_fd) = options.worker {
        return runner::work(options.lib.as_deref(), options.crowd, report_fd);
    }
    let chosen: Vec<&'static fact::Fact> = facts::all()
        .filter(|f| options.only.is_empty() || options.only.iter().any(|text| f.matches(text)))
        .filter(|f| !options.skip.iter().any(|text| f.matches(text)))
        .collect();
    if options.list {
        for fact in &chosen {
            println!("{}::{}", fact.group, fact.name);
        }
        return std::process::ExitCode::SUCCESS;
    }
    let style = match (options.json, options.quiet) {
        (true, _) => runner::Style::Json,
        (false, true) => runner::Style::Quiet,
        (false, false) => runner::Style::Text,
    };
    runner::run(&chosen, options.lib.as_deref(), options.crowd, options.timeout_s, style)
}
