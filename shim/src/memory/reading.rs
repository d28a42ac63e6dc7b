//! Pinned memory that copies under way read.

use std::sync::atomic::Ordering;

use orion_wire::record::HeapRange;

use crate::state::process::state;
use crate::state::session::Session;
use crate::state::sources::Source;

/// A copy that is about to be made. Its source is noted from before its bytes are brought over until the worker says
/// that the copy is done.
pub struct Reading {
    s: &'static Session,
    token: u64,
}

impl Reading {
    /// Nothing where no host function can be ahead of the copy.
    pub fn of(s: &'static Session, ranges: impl FnOnce() -> Vec<HeapRange>) -> Reading {
        if !s.pages.must_bring() || !state().callbacks.may_run() {
            return Reading { s, token: 0 };
        }
        let token = s.sources.next_token.fetch_add(1, Ordering::Relaxed);
        s.sources.change(|all| all.push(Source { token, number: 0, ranges: ranges() }));
        Reading { s, token }
    }

    /// Whether the worker has to say when the copy is done.
    pub fn is_noted(&self) -> bool {
        self.token != 0
    }

    /// The copy goes into the ring as this command.
    pub fn posted(&self, number: u64) {
        if self.is_noted() {
            self.s
                .sources
                .change(|all| all.iter_mut().filter(|s| s.token == self.token).for_each(|s| s.number = number));
        }
    }
}

impl Drop for Reading {
    /// A copy that was waited for, or never sent, reads nothing any more.
    fn drop(&mut self) {
        if self.is_noted() {
            self.s.sources.change(|all| all.retain(|s| s.token != self.token || s.number != 0));
        }
    }
}
