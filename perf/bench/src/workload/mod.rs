//! The named workloads. Each is a list of samples for one repeat; what they share is how often and against what.

pub mod attach;
pub mod canonical;
pub mod carriers;
pub mod codec;
pub mod comparing;
pub mod copies;
pub mod encryption;
pub mod guest;
pub mod kernels;
pub mod neighbours;
pub mod raw;
mod repeats;
pub mod replay;
pub mod ring;
pub mod round_trip;
pub mod scaling;
pub mod sending;
pub mod settings;
pub mod stub;
pub mod telemetry;

use crate::place::{self, Oriond, real_driver};
use crate::report::Measured;
use crate::task::{self, Task};
use crate::workload::repeats::{prefixed, repeated};
use crate::workload::settings::Settings;

/// What `list` shows and `run` takes.
pub const NAMES: [(&str, &str); 15] = [
    ("ring", "one record between two processes: posting, and there and back"),
    ("guest", "session memory between this process and a virtual machine of KVM, and its bell"),
    ("codec", "encoding and decoding of records in memory"),
    ("comparing", "100 MiB of pinned memory that a launch over TCP compares in vain"),
    ("telemetry", "what counting and timing commands costs a worker while nobody looks"),
    ("stubs", "the calls an application makes most, in the calling thread, through the shim"),
    ("round-trip", "calls with an answer: through the shim, and records alone, over shm and tcp"),
    ("copies", "pinned and pageable copies by size, over shm and tcp"),
    ("carriers", "by carrier: a call, calls and launches per s, pinned copies, and the cores that they take"),
    ("encryption", "calls, copies and the cores they take over TCP, in the clear and by TLS"),
    ("sending", "bulk data over one TCP connection of this host, copied into the kernel and not"),
    ("neighbours", "a core's work while another core waits for something, by how it waits"),
    ("attach", "from loading the library to the first result, with a waiting worker and without"),
    ("kernels", "kernels as libraries write them: a matrix product, a sum, element by element; for the software GPU"),
    ("scaling", "recorded call streams from 1 to 64 sessions and 1 to 16 threads: calls/s, latency, CPU per call"),
];

/// What is wrong with a run, before anything of it is measured.
pub fn check(names: &[String], settings: &Settings) -> Result<(), String> {
    if let Some(name) = names.iter().find(|name| NAMES.iter().all(|(known, _)| known != name)) {
        return Err(format!("there is no workload {name:?}; `orion-bench list` shows them"));
    }
    let carriers = place::carriers(&settings.transports)?;
    match names.iter().any(|name| name == "scaling") {
        true => scaling::check(&carriers),
        false => Ok(()),
    }
}

pub fn run(name: &str, settings: &Settings) -> Result<Vec<Measured>, String> {
    let repeats = settings.repeats;
    match name {
        "ring" => repeated(name, repeats, || ring::measure(settings.quick)),
        "guest" => repeated(name, repeats, || guest::measure(settings.quick)),
        "codec" => repeated(name, repeats, || Ok(codec::measure(settings.quick))),
        "comparing" => repeated(name, repeats, || comparing::measure(settings.quick)),
        "telemetry" => repeated(name, repeats, || telemetry::measure(settings.quick)),
        "stubs" => stubs(settings),
        "round-trip" => round_trips(settings),
        "copies" => all_copies(settings),
        "carriers" => carriers::run(settings),
        "encryption" => encryption::run(settings),
        "sending" => repeated(name, repeats, || sending::measure(settings.quick)),
        "neighbours" => repeated(name, repeats, || neighbours::measure(settings.quick)),
        "attach" => attaches(settings),
        "kernels" => all_kernels(settings),
        "scaling" => scaling::run(settings),
        _ => unreachable!("check knows the names"),
    }
}

/// What a plain `run` takes: not what a machine may have no device for, nor the load generator, which takes long.
pub fn by_default() -> impl Iterator<Item = &'static str> {
    NAMES.iter().map(|(name, _)| *name).filter(|name| !["guest", "scaling"].contains(name))
}

/// Measures through every transport, or natively once; `task` gets the library to load.
fn each_way(
    name: &str,
    settings: &Settings,
    task: impl Fn(std::path::PathBuf) -> Task,
) -> Result<Vec<Measured>, String> {
    if settings.native {
        let driver = real_driver().ok_or("there is no NVIDIA driver here to measure natively")?;
        return repeated(name, settings.repeats, || {
            Ok(prefixed("native", task::measure(&task(driver.clone()), None)?))
        });
    }
    let pieces = &settings.pieces;
    let oriond = Oriond::offering(&settings.transports, pieces, &pieces.driver, &["--warm", "1"])?;
    let mut measured = Vec::new();
    for transport in &settings.transports {
        let server = oriond.address(transport)?;
        let task = task(settings.pieces.shim.clone());
        measured.extend(repeated(name, settings.repeats, || {
            Ok(prefixed(transport, task::measure(&task, Some(&server))?))
        })?);
    }
    Ok(measured)
}

fn stubs(settings: &Settings) -> Result<Vec<Measured>, String> {
    let batches = if settings.quick { 20 } else { 200 };
    each_way("stubs", settings, |library| Task::Stubs { library, batches })
}

fn round_trips(settings: &Settings) -> Result<Vec<Measured>, String> {
    let seconds = if settings.quick { 0.2 } else { 1.0 };
    let mut measured = each_way("round-trip", settings, |library| Task::RoundTrip { library, seconds })?;
    if settings.native {
        return Ok(measured);
    }
    let echo = Oriond::offering(&settings.transports, &settings.pieces, "echo", &["--warm", "1"])?;
    for transport in &settings.transports {
        let server = echo.address(transport)?;
        measured.extend(repeated("round-trip", settings.repeats, || {
            let task = Task::RawRoundTrip { server: server.clone(), seconds };
            Ok(prefixed(transport, task::measure(&task, None)?))
        })?);
    }
    Ok(measured)
}

fn all_copies(settings: &Settings) -> Result<Vec<Measured>, String> {
    let mut bytes = vec![4, 1 << 10, 64 << 10, 1 << 20, 16 << 20];
    if !settings.quick {
        bytes.push(256 << 20);
    }
    let seconds = if settings.quick { 0.05 } else { 0.3 };
    each_way("copies", settings, |library| Task::Copies { library, bytes: bytes.clone(), seconds })
}

fn all_kernels(settings: &Settings) -> Result<Vec<Measured>, String> {
    let (rows, launches) = if settings.quick { (256, 3) } else { (1024, 5) };
    each_way("kernels", settings, |library| Task::Kernels { library, rows, launches })
}

fn attaches(settings: &Settings) -> Result<Vec<Measured>, String> {
    if settings.native {
        return each_way("attach", settings, |library| Task::Attach { library });
    }
    let mut measured = Vec::new();
    for (state, warm) in [("warm", "1"), ("cold", "0")] {
        let pieces = &settings.pieces;
        let oriond = Oriond::offering(&settings.transports, pieces, &pieces.driver, &["--warm", warm])?;
        for transport in &settings.transports {
            measured.extend(repeated("attach", settings.repeats, || {
                // The worker for this session, if there is to be one, needs time to warm up.
                std::thread::sleep(std::time::Duration::from_millis(if settings.pieces.driver == "soft" {
                    300
                } else {
                    3000
                }));
                let task = Task::Attach { library: settings.pieces.shim.clone() };
                let samples = task::measure(&task, Some(&oriond.address(transport)?))?;
                Ok(prefixed(&format!("{transport} {state}"), samples))
            })?);
        }
    }
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_run_leaves_out_the_virtual_machine_and_the_load() {
        let left_out: Vec<&str> =
            NAMES.iter().map(|(name, _)| *name).filter(|name| by_default().all(|taken| taken != *name)).collect();
        assert_eq!(left_out, ["guest", "scaling"]);
    }
}
