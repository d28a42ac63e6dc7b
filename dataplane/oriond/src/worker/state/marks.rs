//! Marks in streams.

use orion_wire::record::Header;

use crate::worker::out::arrivals::SpareEvent;

/// Who is to be told when a stream has come so far.
pub struct Mark {
    pub header: Header,
    pub stream: usize,
    /// Nothing once its context is gone.
    pub event: Option<SpareEvent>,
}
