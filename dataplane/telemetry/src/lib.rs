//! What Orion tells of itself, declared once: counters and histograms in a page of each session, USDT probes in its
//! programs, names in documents, metrics and columns of tools.
//!
//! ```text
//! class       what a command is of: a dozen kinds     events     the declaration: every name there is
//! histogram   log-linear, as they lie in pages        probe      places that BPF programs can be attached to
//! page        the page: one writer, many readers      recorder   what the worker does for each command
//! report      a session at one moment, for tools      why        what a second was spent on, from two of them
//! ```
//! README.md beside this says what each number means, what it costs, and who may see it.

pub mod class;
pub mod events;
pub mod histogram;
pub mod page;
pub mod probe;
pub mod recorder;
pub mod report;
pub mod why;

pub use class::Class;
pub use page::{OwnPage, Page, Snapshot};
pub use recorder::Recorder;
