//! What a carrier does: one call, many of them, launches, pinned copies both ways, and the cores that all of it takes.

use orion_wire::address::Server;

use crate::place::Oriond;
use crate::report::{Measured, Sample};
use crate::task::{self, Task};
use crate::workload::encryption::with_cores;
use crate::workload::repeats::{prefixed, repeated};
use crate::workload::settings::Settings;

pub fn run(settings: &Settings) -> Result<Vec<Measured>, String> {
    if settings.native {
        return Err("a carrier is Orion's own; there is nothing native to measure".to_owned());
    }
    let tasks = tasks(settings);
    let mut measured = Vec::new();
    for server in &settings.servers {
        measured.extend(repeated("carriers", settings.repeats, || {
            let samples = tasks.iter().map(|(task, _)| task::measure(task, Some(server)));
            // Its address, so that two nodes of one carrier are told apart.
            Ok(prefixed(server, flat(samples)?))
        })?);
    }
    if !settings.servers.is_empty() {
        return Ok(measured);
    }
    let pieces = &settings.pieces;
    let oriond = Oriond::offering(&settings.transports, pieces, &pieces.driver, &["--warm", "1"])?;
    for transport in &settings.transports {
        let server = oriond.address(transport)?;
        measured.extend(repeated("carriers", settings.repeats, || {
            let samples = tasks.iter().map(|(task, case)| with_cores(&oriond, &server, task, &[], case));
            Ok(prefixed(transport, flat(samples)?))
        })?);
    }
    Ok(measured)
}

/// The addresses of somebody else's, each once.
pub fn servers(named: &[String]) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    for text in named {
        let server = Server::parse(text)?.to_string();
        if all.contains(&server) {
            return Err(format!("--server {server} is named twice; name each server once"));
        }
        all.push(server);
    }
    Ok(all)
}

/// And what its cores are called.
fn tasks(settings: &Settings) -> [(Task, &'static str); 2] {
    let (seconds, bytes) = if settings.quick { (0.4, 16 << 20) } else { (4.0, 64 << 20) };
    let library = settings.pieces.shim.clone();
    let calls = Task::Canonical { library: library.clone(), seconds };
    let copies = Task::Copies { library, bytes: vec![bytes], seconds: seconds / 4.0 };
    [(calls, "cores while calling and launching"), (copies, "cores while copying")]
}

fn flat(all: impl Iterator<Item = Result<Vec<Sample>, String>>) -> Result<Vec<Sample>, String> {
    Ok(all.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}
