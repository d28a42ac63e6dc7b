//! A hostile client, and a witness beside it: every operation of the table and every message besides, with values that
//! are not its own, sent to a real oriond over each carrier that it offers.
//!
//! A session that breaks a rule is to end with an error or with one line in oriond's log. oriond and the witness have
//! to live, what the witness copies has to come back as it was, no worker may end by a signal or a panic, and nothing
//! of a worker's own memory may come out of it or change.

mod carried;
mod client;
mod device;
mod field;
mod files;
mod generated;
mod grow;
mod kernel_log;
mod leases;
mod messages;
mod random;
mod server;
mod server_log;
mod session;
mod witness;
mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand, ValueEnum};
use orion_transport::client::Server;
use server::Oriond;
use server_log::{complaints, crashes, worker_of};

#[derive(Parser)]
#[command(version, about = "Attacks an oriond of its own, with the software GPU")]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Hostile sessions beside witnesses
    Run {
        /// The oriond to start
        #[arg(long)]
        oriond: PathBuf,
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Where the random numbers begin [default: the time]
        #[arg(long)]
        seed: Option<u64>,
        /// Messages of one session
        #[arg(long, default_value_t = 600)]
        messages: u64,
        /// Over one carrier only: shm, tcp, ivshmem, vsock, or one that is named behind -- [default: all of them]
        #[arg(long)]
        transport: Option<String>,
        /// More options for its oriond, such as an address of another carrier, which is attacked too
        #[arg(last = true, value_name = "OPTION")]
        serve: Vec<String>,
    },
    /// Sessions that make oriond or their workers keep ever more; says how much
    Grow {
        #[arg(long)]
        oriond: PathBuf,
        /// Of these ways only, and in this order
        #[arg(value_enum)]
        ways: Vec<grow::Way>,
        /// Over one carrier only: shm, tcp, ivshmem, vsock, or one that is named behind -- [default: shm, tcp, and
        /// those named]
        #[arg(long)]
        transport: Option<String>,
        /// For each way
        #[arg(long, default_value_t = 5)]
        seconds: u64,
        /// What oriond lets a worker have
        #[arg(long, default_value_t = 256, value_name = "MIB")]
        budget: u64,
        /// The address of another carrier for its oriond, such as --rdma 127.0.0.1:0, over which it is tried too
        #[arg(last = true, value_name = "OPTION")]
        serve: Vec<String>,
    },
    /// Tenants that try to get more of a GPU's time than their share, or keep others from theirs
    Leases {
        #[arg(long)]
        oriond: PathBuf,
        /// In these ways only, and in this order
        #[arg(value_enum)]
        ways: Vec<leases::Way>,
        /// For each way
        #[arg(long, default_value_t = 5)]
        seconds: u64,
    },
    /// A worker that is made to crash, one with a hole, and sessions that lack their share, to see that they would be
    /// found
    Canary {
        #[arg(long)]
        oriond: PathBuf,
    },
    /// A session that does nothing wrong, by itself
    Witness { server: String, seconds: u64, seed: u64 },
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().what {
        What::Run { oriond, seconds, seed, messages, transport, serve } => {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            let seed = seed.unwrap_or(now.map_or(1, |t| t.as_secs()));
            attack(&oriond, transport.as_deref(), &serve, seconds, seed, messages)
        }
        What::Canary { oriond } => {
            crash_is_found(&oriond).and_then(|()| hole_is_found(&oriond)).and_then(|()| leases::canary(&oriond))
        }
        What::Leases { oriond, ways, seconds } => leases::run(&oriond, &ways, Duration::from_secs(seconds)),
        What::Grow { oriond, ways, transport, seconds, budget, serve } => {
            all_growth(&oriond, &ways, transport.as_deref(), &serve, seconds, budget)
        }
        What::Witness { server, seconds, seed } => Server::parse(&server)
            .and_then(|s| witness::run(&s, &server::token_from_environment(), seconds, seed))
            .map(|rounds| println!("{rounds}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("orion-attack: {text}");
            ExitCode::FAILURE
        }
    }
}

fn attack(
    oriond: &std::path::Path,
    transport: Option<&str>,
    serve: &[String],
    seconds: u64,
    seed: u64,
    messages: u64,
) -> Result<(), String> {
    println!("seed {seed}");
    let canary = format!("canary-{:016x}", random::Random::new(seed ^ 0x5eed).word());
    let kernel = kernel_log::Watch::start();
    let server = Oriond::start(oriond, serve, &[(server::CANARY, &canary)])?;
    let began = Instant::now();
    let is_asked = |address: &&Server| transport.is_none_or(|asked| address.transport() == asked);
    let addresses: Vec<&Server> = server.addresses().iter().filter(is_asked).collect();
    if let (Some(asked), true) = (transport, addresses.is_empty()) {
        let all: Vec<_> = server.addresses().iter().map(Server::transport).collect();
        return Err(format!("--transport {asked} is none of {}", all.join(", ")));
    }
    let mut witnesses = Vec::new();
    for (i, address) in addresses.iter().enumerate() {
        let child = start_witness(address, &server, seconds, seed + i as u64)?;
        witnesses.push((address.transport(), child));
    }
    let verbose = std::env::var_os("ORION_ATTACK_LOG").is_some();
    let mut findings = Vec::new();
    let (mut sessions, mut sent, mut succeeded, mut lost, mut unwatched) = (0u64, 0, 0, 0, 0);
    let (mut by_device, mut written, mut read) = (0u64, 0, 0);
    let mut last_messages = BTreeMap::new();
    let mut threads = BTreeSet::new();
    while began.elapsed() < Duration::from_secs(seconds) {
        let own = seed.wrapping_mul(1_000_003).wrapping_add(sessions);
        let address = addresses[sessions as usize % addresses.len()];
        sessions += 1;
        let is_by_device = device::reaches(address) && sessions / addresses.len() as u64 % 2 == 1;
        let ran = match is_by_device {
            true => device::run(address, server.token(), own, messages),
            false => session::run(address, server.token(), canary.as_bytes(), own, messages),
        };
        match ran {
            Ok(outcome) => {
                match is_by_device {
                    true => {
                        (by_device, written, read) = (by_device + 1, written + outcome.messages, read + outcome.read);
                    }
                    false => (sent, succeeded) = (sent + outcome.messages, succeeded + outcome.succeeded),
                }
                lost += u64::from(outcome.lost);
                if outcome.lost && verbose {
                    println!("lost {}", outcome.last.last().map_or("", String::as_str));
                }
                unwatched += u64::from(!outcome.watched);
                if let Some(what) = outcome.broke {
                    let last = outcome.last.join("\n    ");
                    findings.push(format!("session {own} over {}: {what}; last\n    {last}", address.transport()));
                }
                threads.extend(outcome.threads);
                last_messages.insert(outcome.worker, (own, address.transport(), outcome.last));
            }
            Err(text) => findings.push(format!("session {own} over {}: {text}", address.transport())),
        }
        if !server.is_alive() {
            findings.push("oriond is gone".to_owned());
            break;
        }
        if findings.len() >= 20 {
            break;
        }
    }
    for (transport, child) in witnesses {
        match end_witness(child) {
            Ok(rounds) => println!("witness over {transport}: {rounds}"),
            Err(text) => findings.push(format!("over {transport}: {text}")),
        }
    }
    let log = server.end();
    for (worker, status) in crashes(&log) {
        let text = match last_messages.get(&worker) {
            Some((own, transport, last)) => {
                format!("of session {own} over {transport}; its last messages\n    {}", last.join("\n    "))
            }
            None => "of no session".to_owned(),
        };
        findings.push(format!("worker {worker} ended by {status}, {text}"));
    }
    findings.extend(complaints(&log));
    threads.extend(log.lines().filter_map(worker_of));
    match kernel.crashes(&threads) {
        Ok((ours, others)) => {
            findings.extend(ours.iter().map(|l| format!("the kernel says: {l}")));
            others.iter().for_each(|l| println!("the kernel says of another oriond: {l}"));
        }
        Err(why) => println!("{why}"),
    }
    println!("{sessions} sessions, {sent} messages, {succeeded} done, {lost} sessions ended for a broken rule");
    if by_device > 0 {
        println!("{by_device} of the sessions by a device, {written} writes, {read} ranges of theirs read");
    }
    if unwatched > 0 {
        println!("{unwatched} sessions whose worker could not be looked into from here");
    }
    if verbose {
        println!("{log}");
    }
    match findings.len() {
        0 => {
            println!("1 passed, 0 failed");
            Ok(())
        }
        n => {
            findings.iter().for_each(|f| println!("FOUND {f}"));
            println!("0 passed, 1 failed");
            Err(format!("{n} findings; once more with --seed {seed}"))
        }
    }
}

/// One session whose worker crashes: it has to be missed wherever that is told.
fn crash_is_found(oriond: &std::path::Path) -> Result<(), String> {
    let kernel = kernel_log::Watch::start();
    let server = Oriond::start(oriond, &[], &[("ORION_SOFT_TAKEOVER", "1")])?;
    let worker = session::crash(&server.addresses()[0], server.token())?;
    let log = server.end();
    let told = crashes(&log);
    if told != [(worker, format!("signal {}", libc::SIGSEGV))] {
        return Err(format!("worker {worker} crashed, and oriond's log tells of {told:?}:\n{log}"));
    }
    match kernel.crashes(&BTreeSet::from([worker])) {
        Ok((ours, _)) if ours.is_empty() => return Err(format!("worker {worker} crashed, and the kernel is silent")),
        Ok(_) => {}
        Err(why) => println!("{why}"),
    }
    println!("1 passed, 0 failed");
    Ok(())
}

/// Sessions of which a hostile one finds that a copy reads or writes any memory of its worker, where nobody decides on
/// unified addresses: to be found by the values that it would send anyway.
fn hole_is_found(oriond: &std::path::Path) -> Result<(), String> {
    const SESSIONS_MAX: u64 = 200;
    let canary = "canary-of-another-session";
    let server = Oriond::start(oriond, &[], &[(server::CANARY, canary), ("ORION_SOFT_TAKEOVER", "hole")])?;
    let mut sent = 0;
    for seed in 0..SESSIONS_MAX {
        let address = &server.addresses()[seed as usize % server.addresses().len()];
        let outcome = session::run(address, server.token(), canary.as_bytes(), seed, 600)?;
        sent += outcome.messages;
        if let Some(broke) = outcome.broke {
            println!("of a worker with a hole {broke}, after {sent} messages");
            println!("1 passed, 0 failed");
            return Ok(());
        }
    }
    Err(format!("a worker whose copies reach all of its memory was not found out in {sent} messages"))
}

/// Each way over each carrier that has it.
fn all_growth(
    oriond: &std::path::Path,
    ways: &[grow::Way],
    transport: Option<&str>,
    serve: &[String],
    seconds: u64,
    budget: u64,
) -> Result<(), String> {
    let more = serve.iter().filter_map(|option| option.strip_prefix("--"));
    let mut carriers: Vec<&str> = ["shm", "tcp"].into_iter().chain(more).collect();
    if let Some(transport) = transport {
        // These two are there anyway; each takes as long as the others do.
        carriers.extend(["ivshmem", "vsock"]);
        if !carriers.contains(&transport) {
            return Err(format!("--transport {transport} is none of {}", carriers.join(", ")));
        }
        carriers = vec![transport];
    }
    let ways = if ways.is_empty() { grow::Way::value_variants() } else { ways };
    let (mut held, mut broken) = (0, 0);
    for way in ways {
        for name in &carriers {
            if way.needs_lanes() && ["shm", "ivshmem"].contains(name) {
                continue;
            }
            match growth(oriond, *way, name, serve, seconds, budget) {
                Ok(()) => held += 1,
                Err(text) => {
                    println!("FOUND {way:?} over {name}: {text}");
                    broken += 1;
                }
            }
        }
    }
    println!("{held} passed, {broken} failed");
    match (held, broken) {
        (0, 0) => Err("none of these ways is one over that transport".to_owned()),
        (_, 0) => Ok(()),
        _ => Err(format!("{broken} ways have no end")),
    }
}

/// What oriond may grow by for one session: its buffers, and what lies in the allocator's hands.
const ORIOND_MIB_MAX: u64 = 100;
/// What a worker makes between two looks at its budget.
const BETWEEN_LOOKS_MIB: u64 = 256;
/// How long somebody else may wait for nearly all of his answers, on a machine that is busy with this.
const ANSWER_MAX: Duration = Duration::from_millis(250);

fn growth(
    oriond: &std::path::Path,
    way: grow::Way,
    transport: &str,
    serve: &[String],
    seconds: u64,
    budget: u64,
) -> Result<(), String> {
    let budget_bytes = format!("{budget} MiB");
    // What the software GPU calls device memory counts for nobody, so there is little.
    let device_memory = [("ORION_SOFT_MEMORY_MIB", "64")];
    let mut options = vec!["--host-memory", &budget_bytes];
    options.extend(serve.iter().map(String::as_str));
    let server = Oriond::start_with(oriond, way.driver(), &options, &device_memory)?;
    let address = server.addresses().iter().find(|a| a.transport() == transport);
    let address = address.ok_or_else(|| format!("this oriond listens nowhere over {transport}"))?;
    let witness = match way.driver() {
        "soft" => Some(start_witness(address, &server, seconds + 1, 1)?),
        _ => None,
    };
    let g = grow::run(address, server.token(), server.pid(), way, seconds)?;
    let mib = |(before, after): (u64, u64)| (after.saturating_sub(before)) >> 10;
    let end = if g.lost { "the session was ended" } else { "the session lives" };
    println!(
        "{way:?} over {transport}: {} messages, {end}; oriond {} MiB more, worker {} MiB more",
        g.messages,
        mib(g.oriond),
        mib(g.worker)
    );
    if let Some(witness) = witness {
        let rounds = end_witness(witness)?;
        println!("    witness: {rounds}");
        if rounds.nearly_all > ANSWER_MAX {
            return Err(format!("somebody else waited {:?} for answers", rounds.nearly_all));
        }
    }
    if !server.is_alive() {
        return Err(format!("oriond is gone:\n{}", server.end()));
    }
    let log = server.end();
    let died = crashes(&log);
    if !died.is_empty() {
        return Err(format!("workers died: {died:?}"));
    }
    if let Some(complaint) = complaints(&log).into_iter().next() {
        return Err(complaint);
    }
    if mib(g.oriond) > ORIOND_MIB_MAX || mib(g.worker) > budget + BETWEEN_LOOKS_MIB {
        return Err("that is too much".to_owned());
    }
    g.broke.map_or(Ok(()), Err)
}

fn start_witness(address: &Server, server: &Oriond, seconds: u64, seed: u64) -> Result<Child, String> {
    let me = std::env::current_exe().map_err(|e| format!("finding this program: {e}"))?;
    Command::new(me)
        .args(["witness", &address.to_string(), &seconds.to_string(), &seed.to_string()])
        .env(server::TOKEN, server.token())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("starting a witness: {e}"))
}

/// Waits for it; what it saw.
fn end_witness(child: Child) -> Result<witness::Rounds, String> {
    let output = child.wait_with_output().map_err(|e| format!("waiting for a witness: {e}"))?;
    if !output.status.success() {
        return Err(format!("the witness ended with {}", output.status));
    }
    String::from_utf8_lossy(&output.stdout).trim().parse()
}
