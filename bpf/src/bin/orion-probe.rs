//! `orion-probe`: looks into a running oriond for some seconds, and says what its threads, connections and workers did.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{CommandFactory, Parser};
use orion_bpf::{Probe, Question, Refusal, oriond, tracefs};

/// How often new sessions are looked for.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Looks into a running oriond with BPF programs, and detaches them again
///
/// What it shows is of oriond, of its workers and of those clients that run on this machine. It needs root, or the
/// capabilities that it names when it lacks them. Nothing stays behind when it ends, however it ends.
#[derive(Parser)]
#[command(version, name = "orion-probe")]
struct Options {
    /// The process of oriond [default: the one that runs here]
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "program")]
    pid: Option<u32>,
    /// One program alone in place of an oriond, such as a client whose oriond is on another machine
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    program: Option<u32>,
    /// Where oriond tells whose a connection is [default: where it listens at a path that ends in stats.sock]
    #[arg(long, value_name = "PATH", conflicts_with = "program")]
    stats: Option<PathBuf>,
    /// How long to look
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=86400))]
    seconds: u64,
    /// What to ask, with commas between; one that cannot be answered is an error then
    /// [default: all but usdt, as far as they can be answered]
    #[arg(long, value_delimiter = ',', value_name = "QUESTION,…")]
    ask: Vec<Question>,
    /// One JSON object with all of it
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    if let Some(done) = orion_pages::were_asked_for(Options::command) {
        return done;
    }
    match look(&Options::parse()) {
        Ok(text) => {
            orion_pages::putln!("{text}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("orion-probe: {why}");
            ExitCode::FAILURE
        }
    }
}

fn look(options: &Options) -> Result<String, Refusal> {
    // Where this fails the questions that need it say what is missing.
    let _ = tracefs::mount_here();
    let mut probe = match options.program {
        Some(program) => Probe::of_program(program)?,
        None => Probe::of(options.pid.map_or_else(|| oriond().map_err(Refusal), Ok)?)?,
    };
    if let Some(socket) = &options.stats {
        probe.ask_at(socket.clone());
    }
    let notes = ask(&mut probe, &options.ask, options.program.is_some())?;
    let end = Instant::now() + Duration::from_secs(options.seconds);
    while Instant::now() < end && !probe.is_over() {
        std::thread::sleep(LOOK_INTERVAL.min(end.saturating_duration_since(Instant::now())));
        probe.follow()?;
    }
    let mut report = probe.read()?;
    report.notes.extend(notes);
    Ok(match options.json {
        true => serde_json::to_string_pretty(&report).expect("strings and numbers"),
        false => report.text().trim_end().to_owned(),
    })
}

/// What could not be asked, where nobody insisted on it.
fn ask(probe: &mut Probe, wanted: &[Question], is_program: bool) -> Result<Vec<String>, Refusal> {
    if !wanted.is_empty() {
        wanted.iter().try_for_each(|question| probe.ask(*question))?;
        return Ok(Vec::new());
    }
    let by_itself = |question: &Question| match question {
        Question::Usdt => false,
        // A program's own connections are not those of a port that it serves.
        Question::Tcp => !is_program,
        _ => true,
    };
    let asked: Vec<Question> = Question::ALL.into_iter().filter(by_itself).collect();
    let refusals: Vec<Refusal> = asked.iter().filter_map(|question| probe.ask(*question).err()).collect();
    match refusals.len() == asked.len() {
        true => Err(refusals.into_iter().next().expect("there are questions")),
        false => Ok(refusals.into_iter().map(|why| why.to_string()).collect()),
    }
}
