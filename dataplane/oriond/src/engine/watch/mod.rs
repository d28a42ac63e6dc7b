//! What tools and Prometheus are told of sessions.
//!
//! ```text
//! directory   the sessions that there are      system    what the system says of a worker and of a program
//! socket      where tools ask                  metrics   OpenMetrics, over HTTP
//! ```
//! Threads of their own answer. An engine only says when a session begins and ends.

pub mod directory;
pub mod metrics;
pub mod socket;
mod system;
