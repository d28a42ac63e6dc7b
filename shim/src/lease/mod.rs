//! vGPUs of a pool: what its controller gives to this program. What it wants is in `orion_transport::client::wanted`.
//!
//! ```text
//! ask       one question over HTTP, and the answer
//! granted   what was given
//! reserve   one question to this node's agent, where no controller is reached
//! beside    what is left for tools beside the program, and found by them
//! ```

pub mod ask;
pub mod beside;
pub mod granted;
mod reserve;
