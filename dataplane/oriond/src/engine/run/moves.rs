//! Sessions that move to another engine.

use std::time::{Duration, Instant};

use tracing::info;

use super::{Carried, Engine};
use crate::engine::post::Mail;
use crate::engine::spread::Look;

/// A session on its way to another engine.
pub struct Mover {
    pub slot: u32,
    to: usize,
    since: Instant,
    is_leaving: bool,
}

/// A session that cannot leave within this time stays.
const LEAVING_MAX: Duration = Duration::from_millis(100);

impl Engine {
    /// Now and then: whether another engine is to have one of the sessions.
    pub fn relieve(&mut self, look: Option<Look>) {
        #[cfg(debug_assertions)]
        self.shuffle();
        let Some(look) = look else { return };
        let now = self.now;
        let parts =
            self.carried.iter_mut().map(|(slot, session)| (*slot, session.account.close(&look), &session.account));
        let parts: Vec<(u32, u32)> =
            parts.filter(|(.., account)| account.may_move(now)).map(|(slot, part, _)| (slot, part)).collect();
        if !look.is_crowded || self.stopping || self.mover.is_some() {
            return;
        }
        if let Some((slot, to)) = self.loads.relieve(self.index, look.busy, parts.into_iter(), now) {
            self.mover = Some(Mover { slot, to, since: now, is_leaving: false });
        }
    }

    /// In every turn, before the session begins to do anything new.
    pub fn see_off(&mut self) {
        let Some(mover) = &mut self.mover else { return };
        let session = self.carried.get_mut(&mover.slot).expect("forgotten once it ends");
        if !mover.is_leaving {
            mover.is_leaving = session.main.leave(&mut self.core.io, mover.slot);
            if !mover.is_leaving && self.now.saturating_duration_since(mover.since) > LEAVING_MAX {
                self.mover = None;
            }
        } else if session.main.may_go() {
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        let Mover { slot, to, .. } = self.mover.take().expect("the caller looked");
        let Carried { main, mut account } = self.carried.remove(&slot).expect("the caller looked");
        self.active.retain(|(active, _)| *active != slot);
        self.core.release(slot);
        account.moves(self.now);
        info!(session = main.session(), from = self.index, to, "session moves");
        self.loads.session_begins(to);
        self.loads.session_ends(self.index);
        self.posts[to].post(Mail::Carry(main, account));
    }
}

/// For tests of moves: sessions go to other engines at random, whatever they do.
#[cfg(debug_assertions)]
pub struct Shuffle {
    pub interval: Duration,
    next: Instant,
    random: u64,
}

#[cfg(debug_assertions)]
impl Shuffle {
    pub fn configured(index: usize, engines: usize) -> Option<Shuffle> {
        let us = std::env::var("ORION_SOFT_MOVES_US").ok()?.parse().ok()?;
        let random = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(index as u64 + 1);
        (engines > 1).then(|| Shuffle { interval: Duration::from_micros(us), next: Instant::now(), random })
    }

    fn below(&mut self, end: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % end as u64) as usize
    }
}

#[cfg(debug_assertions)]
impl Engine {
    fn shuffle(&mut self) {
        let Some(shuffle) = &mut self.shuffle else { return };
        if self.now < shuffle.next || self.mover.is_some() || self.stopping || self.carried.is_empty() {
            return;
        }
        shuffle.next = self.now + shuffle.interval;
        let slot = *self.carried.keys().nth(shuffle.below(self.carried.len())).expect("fewer than there are");
        let to = (self.index + 1 + shuffle.below(self.posts.len() - 1)) % self.posts.len();
        self.mover = Some(Mover { slot, to, since: self.now, is_leaving: false });
    }
}
