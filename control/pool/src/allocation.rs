//! What somebody has of the pool.

use serde::{Deserialize, Serialize};

use crate::ask::Ask;
use crate::quote::quoted;
use crate::units::Time;

/// A random number that nobody guesses, written like a UUID.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AllocationId(pub u128);

impl std::fmt::Display for AllocationId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let hex = format!("{:032x}", self.0);
        write!(f, "{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }
}

impl std::fmt::Debug for AllocationId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

impl std::str::FromStr for AllocationId {
    type Err = String;

    fn from_str(text: &str) -> Result<AllocationId, String> {
        let hex: String = text.chars().filter(|c| *c != '-').collect();
        let wrong =
            || format!("{} is no allocation; one looks like {}", quoted(text), AllocationId(0x0123_4567_89ab_cdef));
        if hex.len() != 32 {
            return Err(wrong());
        }
        u128::from_str_radix(&hex, 16).map(AllocationId).map_err(|_| wrong())
    }
}

/// One vGPU of an allocation: where it lies and what it has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub node: String,
    /// The physical GPU's UUID, its number on the node, and the vGPU's number on it.
    pub gpu: String,
    pub number: u32,
    pub slot: u32,
    /// What the tenant may use, in bytes, and what is kept for its context.
    pub memory: u64,
    pub reserve: u64,
    /// Percent of the GPU's time.
    pub ratio: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lease {
    /// Promised; goes back if the client does not come for it.
    Offered,
    /// In use; goes back if nobody renews it.
    Confirmed,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    pub id: AllocationId,
    pub ask: Ask,
    pub places: Vec<Place>,
    pub lease: Lease,
    /// Until when it stands without a word. A clock that never goes back starts anew with its process, so this is not
    /// stored; after a restart everybody has a whole lease from then on.
    #[serde(skip)]
    pub until: Time,
}

impl Allocation {
    pub fn is_on(&self, node: &str) -> bool {
        self.places.iter().any(|p| p.node == node)
    }
}
