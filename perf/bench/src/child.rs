//! A measuring process: what it does for its task.

use std::io::Write;

use crate::report::Sample;
use crate::task::{Task, wait_for_start};
use crate::workload;

/// Runs in the child.
pub fn main(task: &str) -> Result<(), String> {
    let task: Task = serde_json::from_str(task).map_err(|e| format!("this is no task: {e}"))?;
    let samples = match task {
        Task::Canonical { library, seconds } => gated(|| workload::canonical::measure(&library, seconds)),
        Task::Stubs { library, batches } => gated(|| workload::stub::measure(&library, batches)),
        Task::Instructions { library, calls } => gated(|| workload::stub::count(&library, calls)),
        Task::RoundTrip { library, seconds } => gated(|| workload::round_trip::through_shim(&library, seconds)),
        Task::RawRoundTrip { server, seconds } => gated(|| workload::round_trip::raw(&server, seconds)),
        Task::Copies { library, bytes, seconds } => gated(|| workload::copies::measure(&library, &bytes, seconds)),
        Task::Attach { library } => gated(|| workload::attach::measure(&library)),
        Task::Kernels { library, rows, launches } => gated(|| workload::kernels::measure(&library, rows, launches)),
        Task::Replay(replay) => workload::replay::run(&replay),
        Task::RingPeer { fd } => return workload::ring::peer(fd),
        Task::Probe { library, bytes } => gated(|| crate::deploy::probe(&library, bytes)),
    }?;
    println!("{}", serde_json::to_string(&samples).expect("samples are plain data"));
    std::io::stdout().flush().map_err(|e| format!("passing on the samples failed: {e}"))?;
    let _ = std::io::stdin().lines().count();
    Ok(())
}

fn gated(measure: impl FnOnce() -> Result<Vec<Sample>, String>) -> Result<Vec<Sample>, String> {
    wait_for_start()?;
    measure()
}
