//! What engines are told.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use orion_wire::environment::Environment;

use super::carried::{Carried, Shared};
use super::mail::{Kick, Mailbox};
use super::workers::nursery::Newborn;

pub enum Mail {
    /// The object in this slot has something to look at.
    Kick(u32),
    Carry(Box<Carried>),
    Join {
        socket: OwnedFd,
        shared: Arc<Shared>,
        index: usize,
    },
    /// For the door only.
    Born(Environment, io::Result<Newborn>),
    SessionOver(u64),
    Stop,
}

pub type Post = Mailbox<Mail>;

impl Kick for Post {
    fn kick(&self, slot: u32) {
        self.post(Mail::Kick(slot));
    }
}
