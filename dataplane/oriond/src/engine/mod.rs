//! Engine threads: they answer the door, keep workers ready, and carry sessions over TCP.
//!
//! ```text
//! run        an engine's loop: what completes, what it is told, what it looks at
//! door       listening, handshakes, who is let in, who gets which worker
//! workers    how many there should be, how they are made, what they say
//! carried    a session over TCP
//! io_ring, mail, post, core, settings
//! ```

mod carried;
mod core;
mod door;
mod io_ring;
mod mail;
mod post;
pub mod run;
pub mod settings;
mod workers;
