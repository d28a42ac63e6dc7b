//! Whatever the driver API makes and destroys can be made and destroyed any number of times, with flat memory here and
//! in the worker. `orion-rounds --count 1000000` is the long run.

mod orion;

use std::path::Path;

const ROUNDS: &str = env!("CARGO_BIN_EXE_orion-rounds");

/// More rounds than a table of handles has free places before it uses one again.
const OPTIONS: &[&str] = &["--count", "8000", "--least", "2400", "--seconds", "0.5"];

#[test]
fn everything_is_made_and_destroyed_in_flat_memory_over_shared_memory() {
    hold_over("shm");
}

#[test]
fn everything_is_made_and_destroyed_in_flat_memory_over_tcp() {
    hold_over("tcp");
}

fn hold_over(transport: &str) {
    let output = orion::through_orion(transport, Path::new(ROUNDS), OPTIONS);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "over {transport}: {said}\n{}", orion::complaint(&output));
    assert!(said.lines().filter(|l| l.starts_with("ok ")).count() > 70, "over {transport}: {said}");
    assert!(said.contains("a process beside it"), "no worker was watched over {transport}: {said}");
}
