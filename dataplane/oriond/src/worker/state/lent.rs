//! Ranges of the heap that the client has lent.

use std::sync::Arc;

use orion_wire::Writer;
use orion_wire::record::{HeapRange, op};

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
    let mut body = Vec::new();
    body.word(ranges.len() as u64);
    for range in ranges {
        range.put(&mut body);
    }
    events.send(op::HEAP_RELEASED, (0, 0), &body);
}
