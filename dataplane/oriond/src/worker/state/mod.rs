//! The parts of a session, each by itself: none of them knows the session.

pub mod accounts;
pub mod addresses;
pub mod captures;
pub mod fence;
pub mod gate;
pub mod graphs;
pub mod green;
pub mod in_step;
pub mod ledger;
pub mod lent;
pub mod links;
pub mod marks;
pub mod objects;
pub mod pinned;
pub mod preemptor;
pub mod retired;
pub mod scratch;
pub mod stacks;
pub mod streams;
pub mod vgpus;
pub mod waits;
