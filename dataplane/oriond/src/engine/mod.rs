//! Engine threads: they answer the door, keep workers ready, and carry sessions.
//!
//! ```text
//! run        an engine's loop: what completes, what it is told, what it looks at
//! spread     which engine carries a session
//! moves      a session on its way to another engine
//! door       listening, handshakes, who is let in, who gets which worker
//! workers    how many there should be, how they are made, what they say
//! leases     who may begin a session where oriond belongs to a pool
//! time       whose turn it is on each GPU, where sessions have shares of its time
//! carrier    where clients come in, and what an engine moves between them and their workers
//! watch      what tools and Prometheus are told
//! security   what an operator has decided about encryption and certificates
//! io_ring, mail, post, core, peer, settings
//! ```

mod carrier;
mod core;
mod door;
mod io_ring;
mod leases;
mod mail;
mod moves;
mod peer;
mod post;
pub mod run;
pub mod security;
pub mod settings;
mod spread;
pub mod time;
mod watch;
mod workers;
