//! CUDA's objects, as far as several subjects of the API need them.

pub mod callback;
pub mod capture;
pub mod context;
pub mod context_wire;
pub mod event;
pub mod function;
pub mod graph;
pub mod handles;
pub mod image;
pub mod memory;
pub mod module;
pub mod owner;
pub mod stream;
pub mod synchronize;
