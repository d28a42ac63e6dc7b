//! vGPUs of a pool: what this program wants, and what its controller gives it.
//!
//! ```text
//! wanted    from the environment and client.conf
//! ask       one question over HTTP, and the answer        json   what an answer is written in
//! ```

pub mod ask;
mod json;
pub mod wanted;
