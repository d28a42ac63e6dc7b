//! The client's end of a handshake, whatever carries it, and what there is to say about it.

pub mod handshake;
pub mod json;
pub mod log;
pub mod original;
pub mod say;
pub mod wanted;

pub use handshake::{Caller, Greeted, NoSession, Tuning, greet};
pub use orion_wire::address::Server;
