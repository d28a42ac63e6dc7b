//! What encryption costs over one TCP connection and its lanes: calls, bulk data, and the cores that both take.

use std::time::Instant;

use crate::place::{Oriond, cpu_ns_of};
use crate::report::{Better, Measured, Sample};
use crate::task::{Running, Task};
use crate::workload::repeats::{prefixed, repeated};
use crate::workload::settings::Settings;

const WAYS: [(&str, &[(&str, &str)]); 2] =
    [("in the clear", &[("ORION_TLS", "0")]), ("encrypted", &[("ORION_TLS", "1")])];

pub fn run(settings: &Settings) -> Result<Vec<Measured>, String> {
    if settings.native {
        return Err("encryption is Orion's own; there is nothing native to measure".to_owned());
    }
    let (seconds, bytes) = if settings.quick { (0.2, 16 << 20) } else { (1.0, 256 << 20) };
    let library = &settings.pieces.shim;
    let oriond = Oriond::start(&settings.pieces, &settings.pieces.driver, &["--warm", "1"])?;
    let mut measured = Vec::new();
    for (way, environment) in WAYS {
        measured.extend(repeated("encryption", settings.repeats, || {
            let calls = Task::RoundTrip { library: library.clone(), seconds };
            let copies = Task::Copies { library: library.clone(), bytes: vec![bytes], seconds };
            let server = oriond.address("tcp")?;
            let mut samples = with_cores(&oriond, &server, &calls, environment, "cores while calling")?;
            samples.extend(with_cores(&oriond, &server, &copies, environment, "cores while copying")?);
            Ok(prefixed(way, samples))
        })?);
    }
    Ok(measured)
}

/// The task's samples, and how many cores it, oriond and its workers had meanwhile.
pub fn with_cores(
    oriond: &Oriond,
    server: &str,
    task: &Task,
    environment: &[(&str, &str)],
    case: &str,
) -> Result<Vec<Sample>, String> {
    let mut child = Running::start_in(environment, task, Some(server))?;
    let used = |child: &Running| {
        let (own, workers) = oriond.cpu_ns();
        own + workers + cpu_ns_of(child.pid())
    };
    let (before, began) = (used(&child), Instant::now());
    child.go()?;
    let mut samples = child.samples()?;
    let cores = used(&child).saturating_sub(before) as f64 / began.elapsed().as_nanos() as f64;
    samples.push(Sample::new(case, "cores", Better::Lower, cores));
    Ok(samples)
}
