//! Where the pool is kept, and with it the right to change it.
//!
//! ```text
//! embedded   one file of this controller's own
//! etcd       several controllers share one; one of them leads
//! records    what is stored under which name, for etcd
//! ```

pub mod embedded;
pub mod etcd;
mod records;

use orion_pool::pool::{Change, Pool, Quota, Settings};
use orion_pool::{Allocation, NodeReport, Standing, Time};
use orion_transport::lease::MasterKey;
use serde::{Serialize, de::DeserializeOwned};

/// Of the form of what is stored.
const FORM_NUMBER: u64 = 1;

pub trait Store: Send {
    /// What keys of leases are made of: the same for all controllers of a pool.
    fn master_key(&mut self) -> Result<MasterKey, Failed>;

    /// Who leads. Whoever does not tries to; the error says why nobody knows.
    fn campaign(&mut self) -> Result<Campaign, String>;

    /// What was stored last, by whoever it was. From here on nothing comes into the store that was written before and
    /// had no answer.
    fn read(&mut self) -> Result<Kept, Failed>;

    /// Returns when all of it is stored for good and this controller led while it was stored. That is asked also if
    /// there is nothing to store. After a failure it has to be read again.
    fn write(&mut self, changes: &[Change]) -> Result<(), Failed>;

    /// Whether something could be stored, after it could not.
    fn probe(&mut self) -> Result<(), Failed> {
        Ok(())
    }

    /// Notices that another controller leads, if that can be seen without asking anybody.
    fn is_deposed(&self) -> bool {
        false
    }

    /// Lets another controller lead at once.
    fn resign(&mut self) {}
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Campaign {
    Leads,
    /// Where it listens.
    Another(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failed {
    /// This controller does not lead any more, and nothing was stored. Where the one that does listens, if that is
    /// known.
    Deposed(Option<String>),
    /// It may be otherwise the next time. In words.
    Store(String),
    /// An operator has to do something about it. In words.
    ForGood(String),
}

type Failure = Box<dyn std::error::Error>;

#[derive(Debug, Default)]
pub struct Kept {
    nodes: Vec<(NodeReport, Standing)>,
    allocations: Vec<Allocation>,
    quotas: Vec<(String, Quota)>,
}

impl Kept {
    /// The pool that was stored.
    pub fn restore(self, settings: Settings, now: Time) -> Result<Pool, String> {
        Pool::restore(settings, self.nodes, self.allocations, self.quotas, now)
    }
}

fn encoded(value: &impl Serialize) -> Result<Vec<u8>, Failure> {
    Ok(serde_json::to_vec(value)?)
}

fn decoded<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    Ok(serde_json::from_slice(bytes)?)
}
