//! Events behind what was queued.

use std::rc::Rc;

use crate::worker::out::arrivals::SpareEvent;

/// Events behind everything that was queued at some time. See [`Session::fence`].
pub struct Fence {
    pub events: Vec<Rc<SpareEvent>>,
}
