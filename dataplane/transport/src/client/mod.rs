//! The client's end of a handshake, whatever carries it, and what there is to say about it.

pub mod handshake;
pub mod log;
pub mod say;

pub use handshake::{Caller, Greeted, NoSession, Tuning, greet};
pub use orion_wire::address::Server;
