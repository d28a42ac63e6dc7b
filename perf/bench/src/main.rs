//! orion-bench: how fast Orion is here, and whether a change made it faster.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

mod child;
mod compare;
mod delay_link;
mod deploy;
mod gpu;
mod instructions;
mod kvm;
mod model;
mod place;
mod plot;
mod plot_suite;
mod rdma;
mod report;
mod stream;
mod task;
mod timing;
mod workload;

use compare::digits;
use place::{Oriond, Pieces};
use report::Report;
use task::Task;
use workload::settings::{Settings, Sweep};

/// Measures Orion; without a command two numbers: a call with an answer, and posted launches
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// What to put behind oriond: auto (NVIDIA's driver where there is a GPU), soft, or the path of a libcuda.so.1
    #[arg(long, default_value = "auto", global = true, value_name = "auto|soft|PATH")]
    driver: String,
    /// How long the two numbers take
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// The transport of the two numbers: shm, tcp, rdma or ivshmem
    #[arg(long, default_value = "shm")]
    transport: String,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// The named workloads
    List,
    /// Run workloads: these, or most of them
    Run(Run),
    /// Two reports as a table; exits with 1 if anything became worse
    Compare { before: PathBuf, after: PathBuf },
    /// Draw results as SVG: scaling results of a report, or what the GPU suite's speed.py wrote
    Plot {
        report: PathBuf,
        #[arg(short, long)]
        out: PathBuf,
    },
    /// Instructions per call of the hot functions, counted by valgrind
    Instructions {
        /// Exit with 1 if a count differs from the committed baseline by more than the tolerance
        #[arg(long)]
        check: bool,
        /// In percent, either way: a baseline that is too high hides the next change
        #[arg(long, default_value_t = 2.0)]
        tolerance: f64,
        /// Write the counts to perf/bench/instructions.json
        #[arg(long, conflicts_with = "check")]
        write: bool,
    },
    /// Measure a server, and say which transport to use and which slowdown to expect
    DeployCheck {
        /// unix:/path or tcp:host:port; several are compared. The token comes from ORION_TOKEN or ORION_TOKEN_FILE
        #[arg(long, required = true, value_name = "ADDRESS")]
        server: Vec<String>,
        /// Coefficients instead of the built-in ones
        #[arg(long, value_name = "FILE")]
        model: Option<PathBuf>,
        /// Predict what the first server, one of this machine, would be over RDMA: microseconds that a write of few
        /// bytes takes one way and GB/s that many carry, as ib_write_lat and ib_write_bw of perftest measure them
        /// between the two nodes
        #[arg(long, value_name = "US,GB/S", value_parser = rdma::Verbs::parse)]
        verbs: Option<rdma::Verbs>,
    },
    /// A network between two TCP addresses of this machine: delays and shapes what it carries until it is ended
    DelayLink(delay_link::Options),
    #[command(hide = true)]
    Child { task: String },
}

#[derive(Args)]
struct Run {
    /// Workloads, as `list` shows them [default: all but guest, which takes /dev/kvm, and scaling]
    names: Vec<String>,
    /// Where the results go, as JSON
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Fresh processes for each figure
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// Shorter, and less exact
    #[arg(long)]
    quick: bool,
    /// Measure NVIDIA's own library instead of the shim, where both can be measured
    #[arg(long)]
    native: bool,
    /// shm, tcp, rdma (both ends on this machine, on the device that ORION_IB_NAME names) or ivshmem (a file of this
    /// machine in place of a virtual machine's memory)
    #[arg(long, value_delimiter = ',', default_value = "shm,tcp")]
    transports: Vec<String>,
    /// carriers: a server that somebody else runs, such as rdma:gpu-node:7412, instead of one of this machine; the
    /// token comes from ORION_TOKEN or ORION_TOKEN_FILE
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["transports", "native"])]
    server: Vec<String>,
    /// scaling: processes, each with a session
    #[arg(long, value_delimiter = ',', default_value = "1,4,16,64")]
    sessions: Vec<usize>,
    /// scaling: threads of each process
    #[arg(long, value_delimiter = ',', default_value = "1,4,16")]
    threads: Vec<usize>,
    /// scaling: recorded streams, by name or as files
    #[arg(long, value_delimiter = ',', default_value = "training-step,generate-token,small-ops")]
    streams: Vec<String>,
    /// scaling: `echo` is the dataplane alone, `driver` the whole path
    #[arg(long, value_delimiter = ',', default_value = "echo,driver")]
    behind: Vec<String>,
    /// scaling: how long each point runs
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// scaling: factor for the streams' think times; without them the load is as high as it gets
    #[arg(long, default_value_t = 0.0)]
    think: f64,
}

fn main() -> std::process::ExitCode {
    match run(Cli::parse()) {
        Ok(code) => code,
        Err(reason) => {
            eprintln!("orion-bench: {reason}");
            std::process::ExitCode::from(2)
        }
    }
}

fn run(cli: Cli) -> Result<std::process::ExitCode, String> {
    let pieces = || Pieces::find(&cli.driver);
    let mut good = true;
    match cli.command {
        None => canonical(&pieces()?, cli.seconds, &cli.transport)?,
        Some(Command::List) => workload::NAMES.iter().for_each(|(name, what)| println!("{name:<12} {what}")),
        Some(Command::Run(options)) => run_named(pieces()?, options)?,
        Some(Command::Compare { before, after }) => {
            let (table, worse) = compare::table(&Report::read(&before)?, &Report::read(&after)?);
            print!("{table}");
            good = worse == 0;
        }
        Some(Command::Plot { report, out }) => match plot_suite::read(&report)? {
            Some(suite) => plot_suite::draw(&suite, &out)?,
            None => plot::draw(&Report::read(&report)?, &out)?,
        },
        Some(Command::Instructions { check, tolerance, write }) => {
            good = count_instructions(&pieces()?, check, tolerance / 100.0, write)?;
        }
        Some(Command::DeployCheck { server, model, verbs }) => {
            deploy::check(&pieces()?.shim, &server, model.as_deref(), verbs)?;
        }
        Some(Command::DelayLink(options)) => delay_link::run(&options)?,
        Some(Command::Child { task }) => child::main(&task)?,
    }
    Ok(if good { std::process::ExitCode::SUCCESS } else { std::process::ExitCode::FAILURE })
}

fn canonical(pieces: &Pieces, seconds: f64, transport: &str) -> Result<(), String> {
    let wanted = [transport.to_owned()];
    let oriond = Oriond::offering(&wanted, pieces, &pieces.driver, &["--warm", "0", "--prestart", "1"])?;
    let task = Task::Canonical { library: pieces.shim.clone(), seconds };
    let samples = task::measure(&task, Some(&oriond.address(transport)?))?;
    let [call, launch, executed, _] = samples.as_slice() else { return Err("the wrong samples came back".into()) };
    println!("call with answer    {:>9} us p50, through the shim over {transport}", digits(call.value));
    println!(
        "posted launches     {:>9} per s ({} ns each to enqueue; {} per s executed)",
        digits(1e9 / launch.value),
        digits(launch.value),
        digits(executed.value)
    );
    println!("{}", Report::new(&pieces.driver).origin());
    Ok(())
}

fn run_named(pieces: Pieces, options: Run) -> Result<(), String> {
    let names = match options.names.is_empty() {
        true => workload::by_default().map(str::to_owned).collect(),
        false => options.names,
    };
    if let (false, Some(other)) = (options.server.is_empty(), names.iter().find(|name| *name != "carriers")) {
        return Err(format!("--server is for the workload carriers; {other} starts an oriond of its own"));
    }
    let servers = workload::carriers::servers(&options.server)?;
    let behind = match servers.is_empty() {
        true => pieces.driver.clone(),
        false => format!("behind {}", servers.join(", ")),
    };
    let settings = Settings {
        pieces,
        repeats: options.repeats.max(1),
        quick: options.quick,
        native: options.native,
        transports: options.transports,
        servers,
        scaling: Sweep {
            sessions: options.sessions,
            threads: options.threads,
            streams: options.streams,
            behind: options.behind,
            seconds: options.seconds,
            think: options.think,
        },
    };
    workload::check(&names, &settings)?;
    let mut report = Report::new(&behind);
    println!("{}", report.origin());
    for name in &names {
        eprintln!("{name} …");
        let measured = workload::run(name, &settings)?;
        for m in &measured {
            let tail = m.percentiles.as_ref().map_or(String::new(), |p| {
                format!("p99 {} us, p99.9 {} us", digits(p.p99_ns / 1e3), digits(p.p99_9_ns / 1e3))
            });
            println!("{:<12} {:<58} {:>10} {:<6} {tail}", m.workload, m.case, digits(m.value), m.unit);
        }
        report.results.extend(measured);
        // After each workload: an interrupted run keeps what it has.
        if let Some(out) = &options.out {
            report.write(out)?;
        }
    }
    Ok(())
}

/// False if a check found a difference.
fn count_instructions(pieces: &Pieces, check: bool, tolerance: f64, write: bool) -> Result<bool, String> {
    let Some(now) = instructions::count(pieces)? else {
        println!("there is no valgrind here: nothing was counted");
        return Ok(true);
    };
    for (symbol, count) in &now.instructions_per_call {
        println!("{symbol:<32} {count:>8.1} instructions per call");
    }
    let path = instructions::baseline_path();
    if write {
        let text = serde_json::to_string_pretty(&now).expect("a baseline is plain data") + "\n";
        std::fs::write(&path, text).map_err(|e| format!("writing {} failed: {e}", path.display()))?;
        return Ok(true);
    }
    if !check {
        return Ok(true);
    }
    let text = std::fs::read_to_string(&path).map_err(|e| format!("reading {} failed: {e}", path.display()))?;
    let baseline: instructions::Baseline =
        serde_json::from_str(&text).map_err(|e| format!("{} is no baseline: {e}", path.display()))?;
    if baseline.compiler != now.compiler {
        println!("the baseline was counted with {}, this is {}", baseline.compiler, now.compiler);
    }
    let differences = instructions::differences(&baseline, &now, tolerance);
    differences.iter().for_each(|line| println!("DIFFERS {line}"));
    Ok(differences.is_empty())
}
