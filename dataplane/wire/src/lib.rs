//! What crosses between an application and its worker: records, handles and the handshake.
//!
//! Nothing here does I/O. Everything is decoded from a private copy of the peer's bytes; a violation is a
//! [`Fault`], which ends the session, never a panic.

#![forbid(unsafe_code)]

pub mod activity;
pub mod address;
pub mod agent;
pub mod bundle;
pub mod client_conf;
pub mod codec;
pub mod environment;
pub mod generated;
pub mod handle;
pub mod hello;
pub mod image;
pub mod lease;
pub mod left;
pub mod message;
pub mod pages;
pub mod record;
pub mod refusal;
pub mod reserve;
pub mod text;
pub mod version;
pub mod view;

pub use codec::{Fault, Reader, Writer};
pub use handle::{Handle, Kind};
pub use message::all::API_HASH;
pub use pages::Pages;

/// Version of the framing, the handshake and the layout of session memory. Raised when one of them changes shape.
pub const PROTOCOL_VERSION: u32 = 10;
