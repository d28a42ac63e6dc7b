//! Ranges of the heap that the client has lent.

use std::sync::Arc;

use orion_wire::message::carrier::{HeapReleased, RELEASED_MAX};
use orion_wire::message::field::List;
use orion_wire::record::HeapRange;

use crate::worker::out::replies::Events;

/// A range of the heap that the client has lent. Dropped, it is the client's again, so no failure can lose one.
pub struct Lent {
    pub range: Option<HeapRange>,
    pub events: Arc<Events>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(range) = self.range.take() {
            send_released(&self.events, &[range]);
        }
    }
}

pub fn send_released(events: &Events, ranges: &[HeapRange]) {
    for some in ranges.chunks(RELEASED_MAX) {
        let ranges = List::of(some.iter().copied().map(Into::into).collect()).expect("a chunk of so many at most");
        let mut body = Vec::new();
        HeapReleased { ranges }.encode(&mut body);
        events.send(HeapReleased::OP, (0, 0), &body);
    }
}
