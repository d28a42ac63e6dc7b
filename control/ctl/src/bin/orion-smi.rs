//! `orion-smi`: the vGPUs that a pool has lent, in the original's table.

use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, Parser};
use orion_ctl::{Place, said, smi};
use orion_proto::{Allocations, Devices, ListAllocationsRequest, ListDevicesRequest};
use serde_json::json;

/// Shows the vGPUs that a pool has lent
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
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    if let Some(done) = orion_pages::were_asked_for(Options::command) {
        return done;
    }
    let options = Options::parse();
    loop {
        match show(&options).await {
            Ok(text) => println!("{text}"),
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
        json!({
            "node": p.node, "address": p.address, "gpu": p.gpu, "gpu_uuid": p.gpu_uuid, "vgpu": p.vgpu,
            "memory_bytes": p.memory_bytes, "used_bytes": p.used_bytes,
            "ratio": p.ratio, "allocation": a.allocation, "tenant": a.tenant,
            "group": a.group, "client": a.client, "confirmed": a.confirmed,
            "of_reserve": a.of_reserve,
        })
    });
    let all = json!({
        "gpus": gpus.collect::<Vec<_>>(), "vgpus": vgpus.collect::<Vec<_>>(), "waiting": lent.waiting,
    });
    serde_json::to_string_pretty(&all).expect("strings and numbers")
}
