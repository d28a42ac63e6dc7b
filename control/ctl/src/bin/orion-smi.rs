//! `orion-smi`: the vGPUs that a pool has lent, in the original's table, and a node's GPUs and the programs on them.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand};
use orion_ctl::pmon::{self, Columns, Stamps};
use orion_ctl::stats::{ask, default_socket};
use orion_ctl::{Place, dmon, said, smi};
use orion_proto::{Allocations, Devices, ListAllocationsRequest, ListDevicesRequest};
use orion_telemetry::report::Report;
use serde_json::json;

/// Shows the vGPUs that a pool has lent, or this node's GPUs and the programs on them
#[derive(Parser)]
#[command(version, name = "orion-smi")]
struct Options {
    #[command(flatten)]
    place: Place,
    /// The pool's GPUs and what is free on each, in place of what is lent
    #[arg(long)]
    pool: bool,
    /// Only this tenant's
    #[arg(long, default_value = "", hide_default_value = true)]
    tenant: String,
    /// Again after so many seconds
    #[arg(short = 'l', long = "loop", value_name = "SECONDS", num_args = 0..=1, default_missing_value = "5",
        value_parser = clap::value_parser!(u64).range(1..=86400))]
    every: Option<u64>,
    /// One JSON object with all of it
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Subcommand)]
enum Action {
    Pmon(Pmon),
    Dmon(Dmon),
}

/// The programs on this node's GPUs, a line each, in the columns of `nvidia-smi pmon`
///
/// Whoever runs oriond sees all of them, and others their own. `sm` is the part of the last second in which the GPU
/// worked for the program. What is not known is -.
#[derive(Args)]
struct Pmon {
    /// What is shown: u how busy programs keep their GPU, m their memory
    #[arg(short = 's', long = "select", value_name = "um", default_value = "u", value_parser = Columns::parse)]
    select: Columns,
    #[command(flatten)]
    looks: Looks,
}

/// This node's GPUs, a line each, in the columns of `nvidia-smi dmon`
///
/// Whoever runs oriond is told of the whole GPU, whoever uses it, and others of what it does for their own programs.
/// `sm` is the part of the last second in which it worked. What is not known is -.
#[derive(Args)]
struct Dmon {
    /// What is shown: u how busy GPUs are, m their memory
    #[arg(short = 's', long = "select", value_name = "um", default_value = "u", value_parser = dmon::columns)]
    select: Columns,
    #[command(flatten)]
    looks: Looks,
}

#[derive(Args)]
struct Looks {
    /// So many times, and not until it is interrupted
    #[arg(short = 'c', long = "count", value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Seconds from one look to the next
    #[arg(short = 'd', long = "delay", value_name = "SECONDS", default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=86400))]
    delay: u64,
    /// These GPUs alone, by number
    #[arg(short = 'i', long = "id", value_name = "GPU,…", value_delimiter = ',', value_parser = pmon::gpu)]
    gpus: Vec<u64>,
    /// Begin each line with the date (D), the time (T) or both
    #[arg(short = 'o', long = "options", value_name = "DT", value_parser = Stamps::parse)]
    stamps: Option<Stamps>,
    /// The socket at which oriond tells of its sessions [default: the first that exists of
    /// $XDG_RUNTIME_DIR/orion/oriond.stats.sock, /run/orion/oriond.stats.sock and /tmp/orion-UID/oriond.stats.sock]
    #[arg(long, value_name = "PATH")]
    stats: Option<PathBuf>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    if let Some(done) = orion_pages::were_asked_for(Options::command) {
        return done;
    }
    let options = Options::parse();
    let monitored = match &options.action {
        Some(Action::Pmon(Pmon { select, looks })) => {
            let lines = |report: &Report, stamp: &str| Ok(pmon::lines(report, &looks.gpus, *select, stamp));
            Some(("pmon", monitor(&options, looks, |stamps| pmon::head(*select, stamps), lines)))
        }
        Some(Action::Dmon(Dmon { select, looks })) => {
            let lines = |report: &Report, stamp: &str| dmon::lines(report, &looks.gpus, *select, stamp);
            Some(("dmon", monitor(&options, looks, |stamps| dmon::head(*select, stamps), lines)))
        }
        None => None,
    };
    match monitored {
        Some((_, Ok(()))) => return ExitCode::SUCCESS,
        Some((action, Err(why))) => {
            eprintln!("orion-smi {action}: {why}");
            return ExitCode::FAILURE;
        }
        None => {}
    }
    let mut has_shown = false;
    loop {
        match show(&options).await {
            Ok(text) => {
                has_shown = true;
                orion_pages::putln!("{text}");
            }
            // It may come back, where it has been there.
            Err(why) if options.every.is_some() && has_shown => eprintln!("orion-smi: {why}"),
            Err(why) => {
                eprintln!("orion-smi: {why}");
                return ExitCode::FAILURE;
            }
        }
        match options.every {
            Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
            None => return ExitCode::SUCCESS,
        }
    }
}

async fn show(options: &Options) -> Result<String, String> {
    let mut pool = options.place.connect().await?;
    let devices = pool.list_devices(ListDevicesRequest {}).await.map_err(|s| said(&s))?.into_inner();
    let tenant = options.tenant.clone();
    let lent = pool.list_allocations(ListAllocationsRequest { tenant }).await.map_err(|s| said(&s))?.into_inner();
    if options.json {
        return Ok(as_json(&devices, &lent));
    }
    if options.pool {
        return Ok(smi::pool_table(&devices.devices, lent.waiting));
    }
    let now = jiff::Zoned::now().strftime("%Y-%m-%d %H:%M:%S").to_string();
    Ok(smi::table(&devices.devices, &lent.allocations, &now))
}

/// Looks again and again, and puts what there is to be said each time.
fn monitor(
    options: &Options,
    looks: &Looks,
    head: impl Fn(Stamps) -> String,
    lines: impl Fn(&Report, &str) -> Result<String, String>,
) -> Result<(), String> {
    if options.place.controller.is_some() {
        return Err("it shows this node's GPUs, not a pool's: see orion-top --controller, orion-smi --pool".to_owned());
    }
    if options.pool || options.json || options.every.is_some() || !options.tenant.is_empty() {
        return Err("it does not take --pool, --tenant, --loop or --json: see --help behind it".to_owned());
    }
    let socket = looks.stats.clone().unwrap_or_else(default_socket);
    let stamps = looks.stamps.unwrap_or_default();
    let (mut count, mut head) = (0, head(stamps));
    loop {
        let report = ask(&socket)?;
        let (now, mut stamp) = (jiff::Zoned::now(), String::new());
        if stamps.date {
            stamp += &now.strftime("%Y%m%d ").to_string();
        }
        if stamps.time {
            stamp += &now.strftime("%H:%M:%S  ").to_string();
        }
        let lines = lines(&report, &stamp)?;
        orion_pages::output::put(format_args!("{}{lines}", std::mem::take(&mut head)));
        count += 1;
        if looks.count.is_some_and(|most| count >= most) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_secs(looks.delay));
    }
}

fn as_json(devices: &Devices, lent: &Allocations) -> String {
    let gpus = devices.devices.iter().map(|d| {
        json!({
            "node": d.node, "address": d.address, "gpu": d.gpu, "uuid": d.uuid, "name": d.name,
            "memory_bytes": d.memory_bytes, "free_bytes": d.free_bytes, "free_ratio": d.free_ratio,
            "vgpus": d.vgpus, "free_vgpus": d.free_vgpus, "standing": d.standing,
            "reserve_vgpus": d.reserve_vgpus, "reserve_lent": d.reserve_lent,
        })
    });
    let vgpus = smi::used(&lent.allocations);
    let vgpus = vgpus.iter().map(|used| {
        let (p, a) = (used.place, used.allocation);
        let program = smi::Program::of(a);
        json!({
            "node": p.node, "address": p.address, "gpu": p.gpu, "gpu_uuid": p.gpu_uuid, "vgpu": p.vgpu,
            "memory_bytes": p.memory_bytes, "used_bytes": p.used_bytes,
            "ratio": p.ratio, "allocation": a.allocation, "tenant": a.tenant,
            "group": a.group, "client": a.client, "confirmed": a.confirmed,
            "of_reserve": a.of_reserve,
            "host": program.host, "pid": program.pid, "program": program.name,
        })
    });
    let all = json!({
        "gpus": gpus.collect::<Vec<_>>(), "vgpus": vgpus.collect::<Vec<_>>(), "waiting": lent.waiting,
    });
    serde_json::to_string_pretty(&all).expect("strings and numbers")
}
