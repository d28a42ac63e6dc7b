//! Areas of a heap, which a device knows from the first use of each on, where it finds pages by itself.

use crate::stream::SHOWN_BYTES_MAX;

/// The system keeps 16 bytes for each page of what is registered, so a heap is not registered as a whole: it may have
/// the size of the machine's memory, of which most programs use little.
pub const AREA_BYTES: u64 = 64 << 20;

/// Of one session: 16 MiB of the system's memory, which no limit of the session's counts. What lies in other areas is
/// registered for a moment, as without paging.
pub const AREAS_MAX: usize = 64;

/// A heap in areas. Each one reaches so far into the next that a range lies whole in the one that it begins in.
#[derive(Debug, Clone, Copy)]
pub struct Areas {
    base: u64,
    bytes: u64,
}

impl Areas {
    /// Of a heap at this address.
    pub fn new(base: u64, bytes: u64) -> Areas {
        Areas { base, bytes }
    }

    /// Which one a range is in; none, where not all of it is in the heap, or it is larger than what is ever shown.
    pub fn of(&self, at: u64, bytes: u64) -> Option<usize> {
        let offset = at.checked_sub(self.base)?;
        let is_inside = bytes <= SHOWN_BYTES_MAX && offset.checked_add(bytes)? <= self.bytes;
        is_inside.then_some((offset / AREA_BYTES) as usize)
    }

    /// Where it begins, and how large it is.
    pub fn place(&self, area: usize) -> (u64, u64) {
        let offset = area as u64 * AREA_BYTES;
        (self.base + offset, (AREA_BYTES + SHOWN_BYTES_MAX).min(self.bytes - offset))
    }
}

/// Whether an area is among those that are known, or there is room for one more.
pub fn may_know<T>(known: &[Option<T>], area: usize) -> bool {
    known.get(area).is_some_and(Option::is_some) || known.iter().flatten().count() < AREAS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who uses a little of each area of a large heap has no more of them known than there may be.
    #[test]
    fn no_more_areas_are_known_than_there_may_be() {
        let mut known: Vec<Option<()>> = vec![None; 3 * AREAS_MAX];
        for area in (0..known.len()).rev() {
            if may_know(&known, area) {
                known[area] = Some(());
            }
        }
        assert_eq!(known.iter().flatten().count(), AREAS_MAX);
        assert!(known[2 * AREAS_MAX..].iter().all(Option::is_some));
        assert!(may_know(&known, 2 * AREAS_MAX) && !may_know(&known, 0) && !may_know(&known, usize::MAX));
    }

    /// Whatever is in the heap and small enough is whole in one area, and no area is anywhere else.
    #[test]
    fn a_range_lies_whole_in_an_area_and_areas_in_the_heap() {
        let base = 0x7000_0000_0000;
        for heap in [4096, AREA_BYTES, AREA_BYTES + 4096, 3 * AREA_BYTES - 8] {
            let areas = Areas::new(base, heap);
            let ends = [0, AREA_BYTES, 2 * AREA_BYTES, heap];
            let near =
                ends.into_iter().flat_map(|end| [end.saturating_sub(SHOWN_BYTES_MAX), end.saturating_sub(8), end]);
            for offset in near {
                for bytes in [0, 8, 4096, SHOWN_BYTES_MAX] {
                    let at = base + offset;
                    let area = areas.of(at, bytes);
                    assert_eq!(area.is_some(), offset + bytes <= heap, "{offset} + {bytes} of {heap}");
                    let Some((begin, size)) = area.map(|area| areas.place(area)) else { continue };
                    assert!(begin <= at && at + bytes <= begin + size, "{offset} + {bytes} of {heap}");
                    assert!(base <= begin && begin + size <= base + heap, "{offset} + {bytes} of {heap}");
                }
            }
        }
    }

    #[test]
    fn what_is_elsewhere_is_in_no_area() {
        let areas = Areas::new(1 << 40, AREA_BYTES);
        for (at, bytes) in
            [(0, 8), ((1 << 40) - 1, 8), (u64::MAX, 8), (1 << 40, SHOWN_BYTES_MAX + 1), (1 << 40, u64::MAX)]
        {
            assert_eq!(areas.of(at, bytes), None, "{at} + {bytes}");
        }
    }
}
