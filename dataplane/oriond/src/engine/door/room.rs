//! Who may stand at the door: connections that have not shown yet that they may be here.
//!
//! There is always room for one more. Somebody else goes instead: of those from a source that has more than its share,
//! or of whichever source has most, first who has not said a word, and of these the one who has stood longest; never
//! the one who has come last, who has had no time for a word. An honest client speaks at once and is done after two
//! messages, so it goes only where a source sends connections faster than that.

use std::collections::HashMap;

use crate::engine::peer::Source;

/// Of each kind of socket.
pub const STRANGERS_MAX: usize = 128;
/// Of one user or host.
pub const STRANGERS_OF_ONE_SOURCE_MAX: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stranger {
    pub slot: u32,
    pub source: Source,
    /// Counts the connections that came before.
    pub number: u64,
    /// Has sent a whole first message.
    pub has_spoken: bool,
}

/// Who has to go so that all others may stay.
pub fn who_goes(strangers: &[Stranger]) -> Option<u32> {
    let mut counts: HashMap<Source, usize> = HashMap::new();
    for stranger in strangers {
        *counts.entry(stranger.source).or_default() += 1;
    }
    let most = counts.values().copied().max()?;
    if most <= STRANGERS_OF_ONE_SOURCE_MAX && strangers.len() <= STRANGERS_MAX {
        return None;
    }
    let crowd = || strangers.iter().filter(|s| counts[&s.source] == most);
    let newest = crowd().map(|s| s.number).max()?;
    crowd().filter(|s| s.number != newest).min_by_key(|s| (s.has_spoken, s.number)).map(|s| s.slot)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strangers(from: &[(Source, usize)]) -> Vec<Stranger> {
        let all = from.iter().flat_map(|(source, count)| std::iter::repeat_n(*source, *count));
        all.enumerate()
            .map(|(i, source)| Stranger { slot: i as u32, source, number: i as u64, has_spoken: false })
            .collect()
    }

    const ONE: Source = Source::V4([10, 0, 0, 1]);
    const OTHER: Source = Source::V6([0x20; 8]);

    #[test]
    fn nobody_goes_while_there_is_room() {
        assert_eq!(who_goes(&[]), None);
        assert_eq!(who_goes(&strangers(&[(ONE, STRANGERS_OF_ONE_SOURCE_MAX), (OTHER, 64)])), None);
    }

    #[test]
    fn the_oldest_of_a_source_beyond_its_share_goes() {
        let all = strangers(&[(OTHER, 3), (ONE, STRANGERS_OF_ONE_SOURCE_MAX + 1)]);
        assert_eq!(who_goes(&all), Some(3));
    }

    #[test]
    fn when_the_room_is_full_who_has_most_gives_way() {
        let many = (0..40).map(|i| (Source::V4([10, 0, 1, i]), 2));
        let all = strangers(&many.chain([(ONE, 49)]).collect::<Vec<_>>());
        assert_eq!(who_goes(&all), Some(80));
    }

    /// Half a request costs as little as silence.
    #[test]
    fn who_has_just_come_stays_where_all_others_of_his_source_have_spoken() {
        let mut all = strangers(&[(ONE, STRANGERS_OF_ONE_SOURCE_MAX + 1)]);
        all[..STRANGERS_OF_ONE_SOURCE_MAX].iter_mut().for_each(|s| s.has_spoken = true);
        assert_eq!(who_goes(&all), Some(0));
        // And the next one costs nobody who has spoken his place.
        all.remove(0);
        all.push(Stranger { slot: 65, source: ONE, number: 65, has_spoken: false });
        assert_eq!(who_goes(&all), Some(64));
    }

    #[test]
    fn who_has_spoken_stays_longer_than_who_is_silent() {
        let mut all = strangers(&[(ONE, STRANGERS_OF_ONE_SOURCE_MAX + 1)]);
        all[0].has_spoken = true;
        assert_eq!(who_goes(&all), Some(1));
        all.iter_mut().for_each(|s| s.has_spoken = true);
        assert_eq!(who_goes(&all), Some(0));
    }
}
