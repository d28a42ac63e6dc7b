//! How many programs of each user a local socket answers at a time, so that no other user keeps its own out, or a third
//! one's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// For programs that are not one's own, and for those of one user among them, there is less room than for all.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub all: usize,
    pub of_others: usize,
    pub of_another: usize,
}

pub struct Room {
    limits: Limits,
    /// By user, and whether he is another one.
    counts: Mutex<HashMap<(u32, bool), usize>>,
}

/// One program's, until it is dropped.
pub struct Place {
    room: Arc<Room>,
    user: (u32, bool),
}

impl Room {
    #[must_use]
    pub fn of(limits: Limits) -> Arc<Room> {
        Arc::new(Room { limits, counts: Mutex::default() })
    }

    /// `None` where there is none for a program of this user. Root of a container may be another one, with our number.
    pub fn enter(room: &Arc<Room>, uid: u32, is_another: bool) -> Option<Place> {
        let mut counts = room.counts.lock().expect("nothing panics under this lock");
        let user = (uid, is_another);
        let all: usize = counts.values().sum();
        let others: usize = counts.iter().filter(|((_, is_another), _)| *is_another).map(|(_, count)| count).sum();
        let of_him = counts.get(&user).copied().unwrap_or(0);
        let limits = room.limits;
        if all >= limits.all || is_another && (others >= limits.of_others || of_him >= limits.of_another) {
            return None;
        }
        *counts.entry(user).or_default() += 1;
        Some(Place { room: Arc::clone(room), user })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.room.counts.lock().expect("nothing panics under this lock");
        if let Some(count) = counts.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_other_users_keep_out_neither_ones_own_nor_each_others() {
        let limits = Limits { all: 64, of_others: 48, of_another: 16 };
        let (room, mut places) = (Room::of(limits), Vec::new());
        for uid in [1, 2, 0, 4] {
            places.extend((0..100).filter_map(|_| Room::enter(&room, uid, true)));
        }
        assert_eq!(places.len(), limits.of_others);
        assert!(places.iter().filter(|place| place.user == (1, true)).count() == limits.of_another);
        places.extend((0..100).filter_map(|_| Room::enter(&room, 0, false)));
        assert_eq!(places.len(), limits.all);
        places.retain(|place| place.user != (1, true));
        assert!(Room::enter(&room, 4, true).is_some());
        drop(places);
        assert!(room.counts.lock().expect("no panic").is_empty());
    }
}
