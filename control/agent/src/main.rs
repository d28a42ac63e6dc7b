//! `orion-agent`: stands beside an oriond, and says to the controller of its pool what the node has and what runs
//! there.

mod cli;
mod config;
mod controller;
mod counter;
mod oriond;
mod report;
mod reserve;
mod stats;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{CommandFactory, Parser};
use orion_wire::agent::Used;
use orion_wire::lease::LeaseId;
use tracing::{info, warn};

use crate::cli::Cli;
use crate::config::Unfit;
use crate::controller::{Controller, Failure, Registered};
use crate::oriond::Oriond;
use crate::report::Report;
use crate::reserve::Reserve;
use crate::stats::Stats;

/// How long oriond may let an answer wait for something to tell: what the controller ends is ended as late as that.
const LOOK: Duration = Duration::from_millis(500);
/// And how long at least, so that an answer is not asked for without end.
const LOOK_MIN: Duration = Duration::from_millis(20);
/// The controller hears of the node at least so often.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// Between two tries to reach whoever is not there.
const PAUSE: Duration = Duration::from_millis(500);

/// The status of an agent whose file says of no pool: orion-agent.service starts it no more, and knows this number.
const NO_POOL: u8 = 78;

fn main() -> ExitCode {
    if let Some(done) = orion_pages::were_asked_for(Cli::command) {
        return done;
    }
    tracing_subscriber::fmt().with_target(false).with_ansi(false).init();
    match arguments().and_then(|cli| Ok(run(cli)?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("orion-agent: {why}");
            if matches!(why, Unfit::NoPool(_)) { NO_POOL.into() } else { ExitCode::FAILURE }
        }
    }
}

/// Those of the command line, after those of the file that it names.
fn arguments() -> Result<Cli, Unfit> {
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
    report.notices.iter().for_each(|notice| warn!("{notice}"));
    let mut controller = Controller::new(&cli.controller, cli.server_key_file.as_deref(), cli.trust()?)?;
    let reserve = cli.reserve_vgpus.map(|_| open_reserve(&cli)).transpose()?;
    let reserve = reserve.as_deref();
    info!("Connecting to Orion Controller {}", controller.address());
    let (mut told, mut told_of_controller) = (Told::default(), Told::default());
    let (mut has_served, mut is_gone) = (false, false);
    loop {
        let failed = match Oriond::connect(&cli.pool).and_then(|mut oriond| Ok((oriond.who()?, oriond))) {
            Ok((server, oriond)) => {
                told.again();
                (has_served, is_gone) = (true, false);
                report.has(&server);
                let failed = serve(&mut controller, oriond, &report, Stats::new(&cli), reserve);
                warn!(why = failed.why, "talking to oriond failed");
                report.has_nothing();
                reserve.inspect(|reserve| reserve.has_nothing());
                if failed.is_gone {
                    warn!("oriond is gone; the controller is told that the node has no GPU until it comes again");
                }
                failed
            }
            Err(failed) => {
                told.tell(&failed.why);
                failed
            }
        };
        // Whoever is told that nothing is there places nothing there, and what ran there is over. One that was never
        // this agent's may be another's, which knows more of it, and one that is silent may still be there: then
        // nothing is changed, and it is seen whether the controller will have this node.
        is_gone |= has_served && failed.is_gone;
        match if is_gone { controller.register(&report) } else { controller.prepare(&report) } {
            Ok(_) => told_of_controller.again(),
            Err(why) => told_of_controller.tell(&why.to_string()),
        }
        std::thread::sleep(PAUSE);
    }
}

fn open_reserve(cli: &Cli) -> Result<Arc<Reserve>, String> {
    let client_key = cli.client_key_file.as_deref().map(controller::key_of).transpose()?;
    let path = cli.reserve_socket.clone().unwrap_or_else(counter::default_socket);
    let reserve = Arc::new(Reserve::new());
    counter::open(&path, reserve.clone(), client_key).map_err(|why| format!("--reserve-socket: {why}"))?;
    info!("programs on this node ask for its reserve at {}", path.display());
    Ok(reserve)
}

/// As long as this oriond is there. Answers why it is not.
fn serve(
    controller: &mut Controller,
    mut oriond: Oriond,
    report: &Report,
    stats: Stats,
    reserve: Option<&Reserve>,
) -> oriond::Failed {
    let mut beat = Beat { stats: Some(stats), ..Beat::default() };
    let mut told = Told::default();
    if let Some(Err(why)) = reserve.map(|reserve| keep(&mut oriond, report, reserve, &mut beat)) {
        return oriond::Failed { why: format!("this node's own reserve cannot be had: {}", why.why), ..why };
    }
    loop {
        match step(controller, &mut oriond, report, reserve, &mut beat) {
            Ok(()) => told.again(),
            Err(Trouble::Oriond(failed)) => return failed,
            Err(Trouble::Controller(failure)) => {
                beat.is_registered = false;
                told.tell(&failure.to_string());
                // One that refuses this node is there.
                let reached = matches!(failure, Failure::Refused(_)).then(|| controller.address());
                reserve.inspect(|reserve| reserve.reaches(reached.as_deref()));
                // oriond has to be there all the same, and what it says is of use to the reserve.
                match oriond.look(beat.heard, &mut beat.over, Duration::ZERO) {
                    Ok(state) => beat.over.extend(reserve.iter().flat_map(|reserve| reserve.look(&state))),
                    Err(failed) => return failed,
                }
                std::thread::sleep(PAUSE);
            }
        }
    }
}

/// Tells oriond whose leases are of the reserve, and finds out what an earlier agent has lent of it.
fn keep(oriond: &mut Oriond, report: &Report, reserve: &Reserve, beat: &mut Beat) -> Result<(), oriond::Failed> {
    let running = oriond.look(0, &mut Vec::new(), Duration::ZERO)?.reserve;
    let kept = reserve.of(&report.request(), &running)?;
    beat.over = kept.over;
    oriond.keep(report.node(), *kept.here.key(), reserve::now_unix_ms())?;
    // Nobody is sent to an oriond that does not know the key yet.
    reserve.has(kept.here);
    Ok(())
}

/// What is known of one oriond and said to the controller.
#[derive(Default)]
struct Beat {
    is_registered: bool,
    /// The version of what the controller has been told.
    heard: u64,
    at: Option<Instant>,
    /// How long after that it wants to hear of the node again, at the latest.
    again: Option<Duration>,
    /// Leases that are over, for oriond.
    over: Vec<LeaseId>,
    /// What the controller has been told that vGPUs use.
    used: Vec<Used>,
    /// Where oriond says what sessions do.
    stats: Option<Stats>,
}

enum Trouble {
    Oriond(oriond::Failed),
    Controller(Failure),
}

fn step(
    controller: &mut Controller,
    oriond: &mut Oriond,
    report: &Report,
    reserve: Option<&Reserve>,
    beat: &mut Beat,
) -> Result<(), Trouble> {
    if !beat.is_registered {
        let mut belong = |of: Registered| oriond.belong(report.node(), of.key, of.controller_unix_ms);
        // Whoever waits for vGPUs comes the moment that the controller knows of some.
        let prepared = controller.prepare(report).map_err(Trouble::Controller)?;
        belong(prepared).map_err(Trouble::Oriond)?;
        let registered = controller.register(report).map_err(Trouble::Controller)?;
        // Another one may lead by now, whose clock is another.
        belong(registered).map_err(Trouble::Oriond)?;
        info!("Successfully connect to Orion Controller.");
        report.lines().for_each(|line| info!("{line}"));
        (beat.is_registered, beat.at) = (true, None);
        reserve.inspect(|reserve| reserve.reaches(Some(&controller.address())));
    }
    let pace = beat.again.map_or(HEARTBEAT, |again| again.min(HEARTBEAT));
    let rest = match (beat.again, beat.at) {
        (Some(_), Some(at)) => pace.saturating_sub(at.elapsed()).clamp(LOOK_MIN, LOOK),
        _ => LOOK,
    };
    let state = oriond.look(beat.heard, &mut beat.over, rest).map_err(Trouble::Oriond)?;
    beat.over.extend(reserve.iter().flat_map(|reserve| reserve.look(&state)));
    // Without a reserve the controller has what an earlier agent has lent of one ended.
    let live = if reserve.is_some() { state.live_of_pool() } else { state.live.clone() };
    let lent = reserve.map(Reserve::lent).unwrap_or_default();
    let (version, used) = (state.version, &state.used);
    if version == beat.heard && *used == beat.used && beat.at.is_some_and(|at| at.elapsed() < pace) {
        return Ok(());
    }
    // Nobody is there to look at sessions of which there are none.
    let stats = beat.stats.as_mut().filter(|_| !live.is_empty());
    let reports = stats.map(|stats| stats.reports(report.node())).unwrap_or_default();
    match controller.heartbeat(report.node(), &live, &state.ended, used, reports, lent) {
        Ok((over, again)) => {
            over.iter()
                .filter(|id| state.live.contains(id))
                .for_each(|id| info!("allocation {id} is over, ending its session"));
            (beat.heard, beat.at, beat.again) = (version, Some(Instant::now()), again);
            beat.over.extend(over);
            beat.used.clone_from(used);
            Ok(())
        }
        Err(Failure::Unknown(why)) => {
            info!(why, "the controller does not know this node any more");
            beat.is_registered = false;
            Ok(())
        }
        Err(why) => Err(Trouble::Controller(why)),
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
