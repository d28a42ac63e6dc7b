//! Who may use a GPU now, so that each session has its share of the GPU's time: a state machine without I/O, without a
//! clock and without the GPU.
//!
//! One session at a time holds a *lease* of the GPU, or all do where each gains by that. Whoever drives this tells it
//! what sessions say ([`Arbiter::hear`]) and the time, has it decide ([`Arbiter::decide`]), and shows each session its
//! [`Grant`]. What a session is charged follows from the driver's own clock: the time for which it held the GPU,
//! whatever it says that it did meanwhile.
//!
//! ```text
//! member     one session: its share, its virtual time, its allowance
//! arbiter    who holds the lease, until when, and who is next
//! together   whether there are turns at all, or all use the GPU at once because each gains by that
//! ```

#![forbid(unsafe_code)]

mod arbiter;
mod member;
mod together;

pub use arbiter::{Arbiter, Grant, Settings};
pub use member::{Ledger, Said};
pub use together::{Progress, Verdict};
