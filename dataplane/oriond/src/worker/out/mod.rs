//! What goes back to the client.

pub mod arrivals;
pub mod callbacks;
pub mod managed;
pub mod output;
pub mod records;
pub mod replies;
