//! vGPUs of a pool: what this program wants, and what its controller gives it.
//!
//! ```text
//! wanted    from the environment and client.conf
//! original  variables of Orion vGPU's that do nothing here
//! ask       one question over HTTP, and the answer        json   what an answer is written in
//! ```

pub mod ask;
mod json;
pub mod original;
pub mod wanted;
