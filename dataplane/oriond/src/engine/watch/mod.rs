//! What tools and Prometheus are told of sessions.
//!
//! ```text
//! directory   the sessions that there are      system    what the system says of a worker and of a program
//! socket      where tools ask                  metrics   OpenMetrics, over HTTP
//! utilization how busy GPUs are, measured while somebody looks; by nvml
//! held        whether ledgers and NVIDIA's driver agree
//! ```
//! Threads of their own answer. An engine only says when a session begins and ends, and reads what was measured.

pub mod directory;
pub mod held;
pub mod metrics;
mod nvml;
pub mod socket;
mod system;
pub mod utilization;
