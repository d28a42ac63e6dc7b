//! Looks into a running oriond with BPF programs, while somebody looks: what its threads, its workers and the clients
//! on this machine wait for, how their connections are, what io_uring and the driver do for them.
//!
//! ```text
//! question    what can be asked, which programs answer it, what they need
//! numbers     what the programs in the kernel share with this crate       histogram   what they count in
//! processes   who is looked at: roles, sessions, slots                    ports       which connections are oriond's
//! usdt        the probes that a program has                               sessions    whose a connection is
//! probe       loads, attaches, follows, reads                             report      what was seen
//! ```
//! [`Probe::attach`] attaches, and dropping the probe detaches: the kernel lets go of programs when the last descriptor
//! of them is closed, so also when this process is killed.

pub mod histogram;
pub mod numbers;
mod ports;
pub mod probe;
mod processes;
pub mod question;
pub mod report;
mod sessions;
pub mod tracefs;
pub mod usdt;

pub use probe::Probe;
pub use processes::{Role, oriond};
pub use question::{Question, Refusal};
pub use report::Report;
