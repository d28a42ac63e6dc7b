//! How this process talks to its worker.

pub mod ahead;
pub mod arguments;
pub mod attached;
pub mod call;
pub mod carrier;
pub mod context;
pub mod device;
pub mod lost;
pub mod poison;
pub mod progress;
pub mod reply;
pub mod route;
pub mod service;
pub mod thread;
