//! Initialisation and version.

/// Attaches to a worker. Flags other than 0 are refused.
#[client]
#[since(2000)]
fn cuInit(Flags: u32);

/// The worker's driver, capped at what this shim implements.
#[local]
#[since(2020)]
fn cuDriverGetVersion(driverVersion: *mut i32);
