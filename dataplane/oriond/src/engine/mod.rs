//! Engine threads: they answer the door, keep workers ready, and carry sessions over TCP.
//!
//! ```text
//! run        an engine's loop: what completes, what it is told, what it looks at
//! front      the door, and who gets which worker
//! nursery    starts workers              carried   a session over TCP
//! room, peer, local_socket, worker_log, io_ring, mail
//! ```

mod carried;
mod core;
mod front;
mod io_ring;
mod local_socket;
mod mail;
mod nursery;
mod peer;
mod post;
mod room;
pub mod run;
pub mod settings;
mod worker_log;
