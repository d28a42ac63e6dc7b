//! What an oriond that belongs to a pool knows of leases, and the socket at which an agent tells it and hears of them.
//!
//! ```text
//! door  asks  book  who may begin a session, and says when one is over
//! agent <---> socket  asks  book  what has changed
//! ```

pub mod book;
pub mod socket;
