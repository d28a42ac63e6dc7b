//! Host memory that the driver knows, and what of it the client has freed.

use std::collections::BTreeMap;

use orion_wire::record::HeapRange;

use crate::worker::state::fence::Fence;
use crate::worker::state::graphs::Unused;

#[derive(Default)]
pub struct Pinned {
    /// Heap ranges mapped at the application's own addresses, by address.
    pub aliases: BTreeMap<u64, HeapRange>,
    /// Pinned memory that the client has freed, and where it is registered if it is so on its own.
    pub freed: Vec<(HeapRange, usize)>,
    /// Parts of registered blocks among them that come free with the work that was queued at some time, although the
    /// device may never be idle.
    pub fenced: Option<(Fence, Vec<HeapRange>, Vec<Unused>)>,
}

impl Pinned {
    pub fn fence(&mut self) -> Option<&mut Fence> {
        self.fenced.as_mut().map(|(fence, ..)| fence)
    }
}
