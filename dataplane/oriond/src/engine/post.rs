//! What engines are told.

use std::io;

use orion_wire::lease::LeaseId;

use super::carrier::contract::{Lane, Main};
use super::mail::{Kick, Mailbox};
use super::spread::Account;
use super::workers::Kind;
use super::workers::nursery::Newborn;

pub enum Mail {
    /// The object in this slot has something to look at.
    Kick(u32),
    /// A session begins here, or comes from another engine.
    Carry(Box<dyn Main>, Account),
    Join(Box<dyn Lane>),
    /// For the door only.
    Born(Kind, io::Result<Newborn>),
    SessionOver(u64),
    /// Their sessions have to end.
    LeasesOver(Vec<LeaseId>),
    /// It was looked how busy GPUs are.
    Measured,
    /// Certificates may be on the list that were not.
    Revoked,
    Stop,
}

pub type Post = Mailbox<Mail>;

impl Kick for Post {
    fn kick(&self, slot: u32) {
        self.post(Mail::Kick(slot));
    }
}
