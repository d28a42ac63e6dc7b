//! Who may be connected. There is always room for one more: somebody else goes instead, of whichever source has most.
//! Of these first who has no keys yet, then who has asked for nothing whole, and of either the one who came first. So
//! nobody keeps those of another source out, and of his own only by coming faster than they are answered.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::oneshot;

/// Who has not said how he speaks, or has no keys yet: all of them, and those of one source.
const STRANGERS_MAX: usize = 128;
const STRANGERS_OF_ONE_SOURCE_MAX: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    Stranger,
    /// Could ask, and has not yet.
    Silent,
    /// Has sent the whole head of a request.
    Asked,
}

/// What one limit is for. An IPv6 host has a whole /64 to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source(IpAddr);

impl Source {
    pub fn of(address: IpAddr) -> Source {
        match address.to_canonical() {
            IpAddr::V6(ip) => Source(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into()),
            ip => Source(ip),
        }
    }
}

/// In the order in which those of one source go.
type Name = (Source, Stage, u64);

pub struct Room {
    max: usize,
    there: Mutex<There>,
}

#[derive(Default)]
struct There {
    /// How many have come.
    number: u64,
    /// Whoever is taken out of here goes.
    all: BTreeMap<Name, oneshot::Sender<()>>,
    of_source: HashMap<Source, usize>,
    strangers: usize,
    strangers_of_source: HashMap<Source, usize>,
}

/// One connection's.
pub struct Place {
    room: Arc<Room>,
    name: Name,
}

impl Room {
    /// For as many connections as there are descriptors for.
    pub fn of(max: usize) -> Arc<Room> {
        Arc::new(Room { max, there: Mutex::default() })
    }

    /// His place, and what he hears when he has to go.
    pub fn enter(room: &Arc<Room>, source: Source) -> (Place, oneshot::Receiver<()>) {
        let (tell, told) = oneshot::channel();
        let mut there = room.there();
        there.number += 1;
        let name = (source, Stage::Stranger, there.number);
        there.insert(name, tell);
        if let Some(goes) = there.who_goes(room.max) {
            drop(there.remove(goes));
        }
        drop(there);
        (Place { room: Arc::clone(room), name }, told)
    }

    fn there(&self) -> MutexGuard<'_, There> {
        self.there.lock().expect("nothing panics under this lock")
    }
}

impl There {
    fn insert(&mut self, name: Name, tell: oneshot::Sender<()>) {
        let (source, stage, _) = name;
        *self.of_source.entry(source).or_default() += 1;
        if stage == Stage::Stranger {
            self.strangers += 1;
            *self.strangers_of_source.entry(source).or_default() += 1;
        }
        self.all.insert(name, tell);
    }

    /// Nothing if he was told to go already.
    fn remove(&mut self, name: Name) -> Option<oneshot::Sender<()>> {
        let tell = self.all.remove(&name)?;
        let (source, stage, _) = name;
        one_less(&mut self.of_source, source);
        if stage == Stage::Stranger {
            self.strangers -= 1;
            one_less(&mut self.strangers_of_source, source);
        }
        Some(tell)
    }

    fn who_goes(&self, max: usize) -> Option<Name> {
        let most = |counts: &HashMap<Source, usize>| counts.iter().map(|(source, n)| (*n, *source)).max();
        let (strangers, crowd) = most(&self.strangers_of_source)?;
        let crowd = match strangers > STRANGERS_OF_ONE_SOURCE_MAX || self.strangers > STRANGERS_MAX {
            true => crowd,
            false if self.all.len() > max => most(&self.of_source)?.1,
            false => return None,
        };
        // Not the one who has just come: he may be done before he is in anybody's way.
        let mut all = self.all.range((crowd, Stage::Stranger, 0)..).map(|(name, _)| *name);
        all.find(|(source, _, number)| *source == crowd && *number != self.number)
    }
}

fn one_less(counts: &mut HashMap<Source, usize>, source: Source) {
    if let Some(count) = counts.get_mut(&source) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&source);
        }
    }
}

impl Place {
    /// He has come further, and others go before him.
    pub fn reaches(&mut self, stage: Stage) {
        let (source, before, number) = self.name;
        if stage <= before {
            return;
        }
        let mut there = self.room.there();
        if let Some(tell) = there.remove(self.name) {
            self.name = (source, stage, number);
            there.insert(self.name, tell);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.room.there().remove(self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(number: u8) -> Source {
        Source::of(IpAddr::from([10, 0, 0, number]))
    }

    /// Whoever is still there of these.
    fn stay(all: &mut [(Place, oneshot::Receiver<()>)]) -> Vec<usize> {
        let is_told = |told: &mut oneshot::Receiver<()>| told.try_recv() == Err(oneshot::error::TryRecvError::Closed);
        (0..).zip(all).filter_map(|(i, (_, told))| (!is_told(told)).then_some(i)).collect()
    }

    #[test]
    fn of_the_strangers_of_one_source_the_oldest_goes_and_others_stay() {
        let room = Room::of(1000);
        let mut other = vec![Room::enter(&room, of(2))];
        let mut many: Vec<_> = (0..STRANGERS_OF_ONE_SOURCE_MAX + 3).map(|_| Room::enter(&room, of(1))).collect();
        assert_eq!(stay(&mut many), (3..STRANGERS_OF_ONE_SOURCE_MAX + 3).collect::<Vec<_>>());
        assert_eq!(stay(&mut other), [0]);
        drop((many, other));
        let there = room.there();
        assert!(there.all.is_empty() && there.of_source.is_empty() && there.strangers_of_source.is_empty());
    }

    #[test]
    fn when_all_is_full_who_has_most_gives_way_and_first_who_has_asked_for_nothing() {
        let room = Room::of(10);
        // Whoever comes stays, also of a source that has all.
        let mut one = Room::enter(&room, of(1));
        one.0.reaches(Stage::Asked);
        let mut alone: Vec<_> = (0..10).map(|_| Room::enter(&room, of(1))).collect();
        assert_eq!((stay(&mut alone), stay(&mut [one])), ((1..10).collect(), vec![0]));
        drop(alone);
        let enter = |source, stage| {
            let mut one = Room::enter(&room, source);
            one.0.reaches(stage);
            one
        };
        let mut crowd = vec![enter(of(1), Stage::Asked), enter(of(1), Stage::Silent), enter(of(1), Stage::Asked)];
        let mut others: Vec<_> = (2..9).map(|n| enter(of(n), Stage::Silent)).collect();
        let _comes = [enter(of(20), Stage::Asked)];
        assert_eq!((stay(&mut crowd), stay(&mut others).len()), (vec![0, 2], 7));
        let _comes = [enter(of(21), Stage::Asked)];
        assert_eq!((stay(&mut crowd), stay(&mut others).len()), (vec![2], 7));
    }

    #[test]
    fn a_host_is_one_source_by_its_network() {
        let of = |text: &str| Source::of(text.parse().expect("an address"));
        assert_eq!(of("2001:db8:1:2::3"), of("2001:db8:1:2:ffff::"));
        assert_ne!(of("2001:db8:1:2::3"), of("2001:db8:1:3::3"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }
}
