//! `orion-agent`: stands beside an oriond, and says to the controller of its pool what the node has and what runs
//! there.

mod cli;
mod config;
mod controller;
mod oriond;
mod report;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{CommandFactory, Parser};
use orion_wire::agent::Used;
use orion_wire::lease::LeaseId;
use tracing::{info, warn};

use crate::cli::Cli;
use crate::controller::{Controller, Failure};
use crate::oriond::{Oriond, State};
use crate::report::Report;

/// How long oriond may let an answer wait for something to tell: what the controller ends is ended as late as that.
const LOOK: Duration = Duration::from_millis(500);
/// The controller hears of the node at least so often.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// Between two tries to reach whoever is not there.
const PAUSE: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    if let Some(done) = orion_pages::were_asked_for(Cli::command) {
        return done;
    }
    tracing_subscriber::fmt().with_target(false).with_ansi(false).init();
    match arguments().and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("orion-agent: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Those of the command line, after those of the file that it names.
fn arguments() -> Result<Cli, String> {
    let command = Cli::command();
    let options = command.get_arguments().filter(|option| option.get_long().is_some_and(|name| name != "config"));
    let options: Vec<config::Choice> = options
        .map(|option| config::Choice {
            name: option.get_long().expect("just seen").to_owned(),
            is_flag: matches!(option.get_action(), clap::ArgAction::SetTrue),
        })
        .collect();
    Ok(Cli::parse_from(config::expand(std::env::args_os().collect(), &options)?))
}

fn run(cli: Cli) -> Result<(), String> {
    let mut report = Report::new(&cli)?;
    let mut controller = Controller::new(&cli.controller, cli.server_key_file.as_deref(), cli.trust()?)?;
    info!("Connecting to Orion Controller {}", controller.address());
    let mut told = Told::default();
    loop {
        match Oriond::connect(&cli.pool).and_then(|mut oriond| Ok((oriond.who()?, oriond))) {
            Ok((server, oriond)) => {
                told.again();
                report.has(&server);
                serve(&mut controller, oriond, &report);
                report.has_nothing();
                warn!("oriond is gone; the controller is told that the node has no GPU until it comes again");
            }
            Err(why) => told.tell(&why),
        }
        // Whoever is told that nothing is there places nothing there.
        if let Err(why) = controller.register(&report) {
            told.tell(&why.to_string());
        }
        std::thread::sleep(PAUSE);
    }
}

/// As long as this oriond is there.
fn serve(controller: &mut Controller, mut oriond: Oriond, report: &Report) {
    let mut beat = Beat::default();
    let mut told = Told::default();
    loop {
        match step(controller, &mut oriond, report, &mut beat) {
            Ok(()) => told.again(),
            Err(Trouble::Oriond(why)) => return warn!(why, "talking to oriond failed"),
            Err(Trouble::Controller(why)) => {
                beat.is_registered = false;
                told.tell(&why);
                // oriond has to be there all the same.
                if let Err(why) = oriond.look(beat.heard, Vec::new(), Duration::ZERO) {
                    return warn!(why, "talking to oriond failed");
                }
                std::thread::sleep(PAUSE);
            }
        }
    }
}

/// What is known of one oriond and said to the controller.
#[derive(Default)]
struct Beat {
    is_registered: bool,
    /// The version of what the controller has been told.
    heard: u64,
    at: Option<Instant>,
    /// Leases that are over, for oriond.
    over: Vec<LeaseId>,
    /// What the controller has been told that vGPUs use.
    used: Vec<Used>,
}

enum Trouble {
    Oriond(String),
    Controller(String),
}

fn step(controller: &mut Controller, oriond: &mut Oriond, report: &Report, beat: &mut Beat) -> Result<(), Trouble> {
    if !beat.is_registered {
        let registered = controller.register(report).map_err(|why| Trouble::Controller(why.to_string()))?;
        let belong = oriond.belong(report.node(), registered.key, registered.controller_unix_ms);
        belong.map_err(Trouble::Oriond)?;
        info!("Successfully connect to Orion Controller.");
        report.lines().for_each(|line| info!("{line}"));
        (beat.is_registered, beat.at) = (true, None);
    }
    let State { version, live, ended, used } =
        oriond.look(beat.heard, std::mem::take(&mut beat.over), LOOK).map_err(Trouble::Oriond)?;
    if version == beat.heard && used == beat.used && beat.at.is_some_and(|at| at.elapsed() < HEARTBEAT) {
        return Ok(());
    }
    match controller.heartbeat(report.node(), &live, &ended, &used) {
        Ok(over) => {
            over.iter()
                .filter(|id| live.contains(id))
                .for_each(|id| info!("allocation {id} is over, ending its session"));
            (beat.heard, beat.at, beat.over) = (version, Some(Instant::now()), over);
            beat.used = used;
            Ok(())
        }
        Err(Failure::Unknown(why)) => {
            info!(why, "the controller does not know this node any more");
            beat.is_registered = false;
            Ok(())
        }
        Err(why) => Err(Trouble::Controller(why.to_string())),
    }
}

/// The same trouble is one line, however often it comes.
#[derive(Default)]
struct Told(Option<String>);

impl Told {
    fn tell(&mut self, why: &str) {
        if self.0.as_deref() != Some(why) {
            warn!("{why}");
            self.0 = Some(why.to_owned());
        }
    }

    fn again(&mut self) {
        self.0 = None;
    }
}
