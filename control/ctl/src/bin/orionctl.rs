//! `orionctl`: what an operator does with a pool.

use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::{CommandFactory, Parser, Subcommand};
use orion_ctl::{Place, Pool, certificates, mib, said, smi, token};
use orion_proto::{
    AllocationName, DrainRequest, ListAllocationsRequest, ListDevicesRequest, ListQuotasRequest, NodeName, Quota,
    SetQuotaRequest, WatchRequest,
};
use tokio_stream::StreamExt;
use tonic::Code;

/// Between two tries to reach a controller that was there.
const AGAIN: Duration = Duration::from_secs(2);

/// Looks after a pool of vGPUs
#[derive(Parser)]
#[command(version, name = "orionctl")]
struct Options {
    #[command(flatten)]
    place: Place,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Certificates of a pool: a CA of its own, what it signs, and what is not taken any more
    #[command(subcommand)]
    Certificate(certificates::Command),
    /// GPUs, and what is free on each
    Devices,
    /// What is lent, and to whom
    Allocations {
        /// Only this tenant's
        #[arg(long, default_value = "", hide_default_value = true)]
        tenant: String,
    },
    /// What happens from now on, a line each, until it is interrupted
    Watch,
    /// Nothing new on a node; what runs there goes on
    Drain {
        node: String,
        /// Take it back
        #[arg(long)]
        undo: bool,
    },
    /// A node that will not come back, and is empty
    Forget { node: String },
    /// End an allocation, and the session that has it
    Kill { allocation: String },
    /// How much each tenant may have
    Quotas,
    /// Say how much a tenant may have; a limit that is not named stays, and without any it is shown
    Quota {
        tenant: String,
        /// vGPUs
        #[arg(long, value_parser = |text: &str| number::<u32>(text, "vGPUs, such as 2"))]
        vgpus: Option<u32>,
        /// MiB of all of them together
        #[arg(long, value_name = "MIB", value_parser = |text: &str| number::<u64>(text, "MiB, such as 4096 for 4 GiB"))]
        memory: Option<u64>,
        /// Percent of a GPU, of all of them together
        #[arg(long, value_name = "PERCENT", value_parser = |text: &str| number::<u32>(text, "percent, such as 150"))]
        ratio: Option<u32>,
        /// Take every limit away: he may have all there is
        #[arg(long, conflicts_with_all = ["vgpus", "memory", "ratio"])]
        none: bool,
    },
    /// Make a key that nobody guesses, for a token_file or the keys of controller.yaml
    Token {
        /// A new file, which its owner alone may read
        file: PathBuf,
    },
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    if let Some(done) = orion_pages::were_asked_for(Options::command) {
        return done;
    }
    let options = Options::parse();
    let done = match options.command {
        // No controller has anything to say to that.
        Command::Certificate(command) => certificates::run(command).map(|said| orion_pages::putln!("{said}")),
        Command::Token { file } => token::make(&file).map(|said| orion_pages::putln!("{said}")),
        Command::Watch => watch(&options.place).await,
        command => match options.place.connect().await {
            Ok(mut pool) => run(&mut pool, command).await.map_err(|status| said(&status)),
            Err(why) => Err(why),
        },
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("orionctl: {why}");
            ExitCode::FAILURE
        }
    }
}

async fn run(pool: &mut Pool, command: Command) -> Result<(), tonic::Status> {
    match command {
        Command::Certificate(_) | Command::Token { .. } | Command::Watch => {
            unreachable!("it is done before there is a connection")
        }
        Command::Devices => {
            let devices = pool.list_devices(ListDevicesRequest {}).await?.into_inner().devices;
            let lent = pool.list_allocations(ListAllocationsRequest::default()).await?.into_inner();
            orion_pages::output::put(format_args!("{}", smi::pool_table(&devices, lent.waiting)));
        }
        Command::Allocations { tenant } => allocations(pool, tenant).await?,
        Command::Drain { node, undo } => {
            let left = pool.drain(DrainRequest { node: node.clone(), undo }).await?.into_inner().left;
            match undo {
                true => orion_pages::putln!("{node} takes part again; {left} allocations are there"),
                false => orion_pages::putln!("{node} gets nothing new; {left} allocations are still there"),
            }
        }
        Command::Forget { node } => {
            pool.forget(NodeName { node: node.clone() }).await?;
            orion_pages::putln!("{node} is forgotten");
        }
        Command::Kill { allocation } => match pool.kill(AllocationName { allocation: allocation.clone() }).await? {
            was if was.get_ref().was_there => orion_pages::putln!("{allocation} is over"),
            _ => return Err(tonic::Status::not_found(format!("there is no allocation {allocation}"))),
        },
        Command::Quotas => {
            for quota in pool.list_quotas(ListQuotasRequest {}).await?.into_inner().quotas {
                orion_pages::putln!("{}", words(&quota));
            }
        }
        Command::Quota { tenant, vgpus, memory, ratio, none } => {
            let quotas = pool.list_quotas(ListQuotasRequest {}).await?.into_inner().quotas;
            let had = quotas.into_iter().find(|quota| quota.tenant == tenant && !none);
            let mut quota = had.unwrap_or(Quota { tenant, ..Quota::default() });
            quota.vgpus = vgpus.or(quota.vgpus);
            quota.memory_mib = memory.or(quota.memory_mib);
            quota.ratio = ratio.or(quota.ratio);
            if none || vgpus.is_some() || memory.is_some() || ratio.is_some() {
                pool.set_quota(SetQuotaRequest { quota: Some(quota.clone()) }).await?;
            }
            orion_pages::putln!("{}", words(&quota));
        }
    }
    Ok(())
}

/// Until it is interrupted: a controller that is gone may come back, or another one lead. Where none was ever there, it
/// is an error.
async fn watch(place: &Place) -> Result<(), String> {
    let mut pool = place.connect().await?;
    loop {
        let why = match events(&mut pool).await {
            Ok(()) => "the controller has ended the list of events".to_owned(),
            // Another try would be refused as well.
            Err(status) if is_refusal(status.code()) => return Err(said(&status)),
            Err(status) => said(&status),
        };
        eprintln!("orionctl: {why}; what happens meanwhile is not told");
        pool = loop {
            tokio::time::sleep(AGAIN).await;
            match place.connect().await {
                Ok(pool) => break pool,
                Err(why) => eprintln!("orionctl: {why}"),
            }
        };
        eprintln!("orionctl: the controller is reached again");
    }
}

fn is_refusal(code: Code) -> bool {
    matches!(code, Code::Unauthenticated | Code::PermissionDenied | Code::Unimplemented | Code::InvalidArgument)
}

async fn events(pool: &mut Pool) -> Result<(), tonic::Status> {
    let mut events = pool.watch(WatchRequest {}).await?.into_inner();
    while let Some(event) = events.next().await {
        let event = event?;
        let parts = [event.what, event.node, event.gpu_uuid, event.allocation, event.detail];
        orion_pages::putln!("{}", parts.iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join(" "));
    }
    Ok(())
}

async fn allocations(pool: &mut Pool, tenant: String) -> Result<(), tonic::Status> {
    let lent = pool.list_allocations(ListAllocationsRequest { tenant }).await?.into_inner();
    for one in &lent.allocations {
        let state = if one.confirmed { "runs" } else { "granted" };
        let of_reserve = if one.of_reserve { " of its node's own reserve" } else { "" };
        orion_pages::putln!("{} {state}{of_reserve} tenant={} client={}", one.allocation, one.tenant, one.client);
        for place in &one.vgpus {
            let (memory, ratio) = (mib(place.memory_bytes), place.ratio);
            orion_pages::putln!("    {} GPU {} vGPU {} {memory} {ratio}%", place.node, place.gpu, place.vgpu);
        }
    }
    orion_pages::putln!("{} allocations; {} asks wait for room", lent.allocations.len(), lent.waiting);
    Ok(())
}

fn number<T: FromStr>(text: &str, what: &str) -> Result<T, String> {
    text.trim().parse().map_err(|_| format!("it is a whole number of {what}"))
}

fn words(quota: &Quota) -> String {
    let limit = |value: Option<u64>, unit: &str| value.map(|value| format!("{value} {unit}"));
    let limits = [
        limit(quota.vgpus.map(u64::from), "vGPUs"),
        limit(quota.memory_mib, "MiB"),
        limit(quota.ratio.map(u64::from), "% of a GPU"),
    ];
    let limits: Vec<_> = limits.into_iter().flatten().collect();
    // As in what the controller says of it.
    let tenant = if quota.tenant.is_empty() { "(no tenant)" } else { &quota.tenant };
    match limits.is_empty() {
        true => format!("{tenant}: no limit"),
        false => format!("{tenant}: {}", limits.join(", ")),
    }
}
