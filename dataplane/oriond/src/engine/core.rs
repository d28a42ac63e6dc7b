//! Slots: whose a completion is.

use super::io_ring::Io;

/// Whose completion it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    Mail,
    Front,
    Carried,
    Lane,
}

/// What objects need to make requests.
pub struct Core {
    pub io: Io,
    owners: Vec<Option<Owner>>,
    free: Vec<u32>,
}

impl Core {
    pub fn new(io: Io) -> Core {
        Core { io, owners: Vec::new(), free: Vec::new() }
    }

    pub fn allocate(&mut self, owner: Owner) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.owners.push(None);
            self.owners.len() as u32 - 1
        });
        self.owners[slot as usize] = Some(owner);
        slot
    }

    pub fn owner(&self, slot: u32) -> Option<Owner> {
        self.owners[slot as usize]
    }

    /// The object has no request under way any more.
    pub fn release(&mut self, slot: u32) {
        self.owners[slot as usize] = None;
        self.free.push(slot);
    }
}
