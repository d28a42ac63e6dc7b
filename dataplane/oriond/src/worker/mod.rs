//! A worker: one process, one session, one client. It pops commands and calls the driver.
//!
//! Everything a tenant can do wrong happens in here: an illegal address, a device assertion or a crash ends this
//! process and nobody else's.
//!
//! ```text
//! start      warms up, seals, greets      stub       answers without a driver, for tests of the carriers
//! executor   pops and asks                dispatch   from a command to its handler
//! calls/     what a command asks of the driver, by subject
//! session/   what takes several parts of a session
//! state/     the parts, each by itself
//! out/       what goes back to the client
//! driver/    the driver, and what is handed to it
//! ```
//! Each line uses what stands below it, and nothing above.

mod budget;
mod calls;
mod dispatch;
mod drift;
mod driver;
mod executor;
mod out;
mod outcome;
mod session;
pub mod start;
mod state;
pub mod stub;
