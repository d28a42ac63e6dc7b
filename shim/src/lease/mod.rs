//! vGPUs of a pool: what this program wants, and what its controller gives it.
//!
//! ```text
//! wanted    from the environment and client.conf
//! original  variables of Orion vGPU's that do nothing here
//! ask       one question over HTTP, and the answer        json   what an answer is written in
//! granted   what was given
//! reserve   one question to this node's agent, where no controller is reached
//! beside    what is left for tools beside the program, and found by them
//! ```

pub mod ask;
pub mod beside;
pub mod granted;
mod json;
pub mod original;
mod reserve;
pub mod wanted;
