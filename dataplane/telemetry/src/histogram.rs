//! Log-linear histograms of nanoseconds: 32 buckets an octave, so a value is known to 3 %. A bucket is a word in a
//! page, found by a shift; hdrhistogram has the same idea, but lives on its reader's heap.

use hdrhistogram::Histogram;

const BITS: u32 = 5;
/// Values from here on are counted as the largest: 68 seconds.
const LIMIT_BITS: u32 = 36;
const MAX: u64 = (1 << LIMIT_BITS) - 1;
pub const BUCKETS: usize = ((LIMIT_BITS - BITS + 1) as usize) << BITS;

/// No worker counts so far; what a page says beyond it is not believed.
pub const COUNT_MAX: u64 = 1 << 48;

#[inline]
#[must_use]
pub fn bucket(value: u64) -> usize {
    let value = value.min(MAX);
    if value < 1 << BITS {
        return value as usize;
    }
    let shift = 63 - value.leading_zeros() - BITS;
    (((shift + 1) as usize) << BITS) + ((value >> shift) as usize & ((1 << BITS) - 1))
}

/// The middle of what a bucket counts.
#[must_use]
pub fn middle(bucket: usize) -> u64 {
    let (octave, step) = ((bucket >> BITS) as u32, (bucket & ((1 << BITS) - 1)) as u64);
    match octave {
        0 => step,
        octave => {
            let shift = octave - 1;
            (((1 << BITS) + step) << shift) + ((1u64 << shift) >> 1)
        }
    }
}

/// The buckets that are not empty, and what they count.
pub type Counts = Vec<(u16, u64)>;

/// With `1 << by` neighbours as one bucket, in the middle of them. Of what was made coarser by less it is the same.
#[must_use]
pub fn coarser(counts: &Counts, by: u32) -> Counts {
    let mut coarse = Counts::new();
    for (bucket, count) in counts {
        let middle = (bucket >> by << by) + (1 << by >> 1);
        match coarse.last_mut() {
            Some((last, sum)) if *last == middle => *sum = u64::min(COUNT_MAX, sum.saturating_add(*count)),
            _ => coarse.push((middle, *count)),
        }
    }
    coarse
}

/// What came between two readings of one histogram.
#[must_use]
pub fn between(before: &Counts, now: &Counts) -> Counts {
    let mut old = before.iter().copied().peekable();
    let mut new = Counts::new();
    for (bucket, count) in now {
        while old.next_if(|(b, _)| b < bucket).is_some() {}
        let had = old.next_if(|(b, _)| b == bucket).map_or(0, |(_, count)| count);
        if *count > had {
            new.push((*bucket, count - had));
        }
    }
    new
}

/// For quantiles, and to be merged with others. Buckets that there are not are left out: files are read, too.
#[must_use]
pub fn readable(counts: &Counts) -> Histogram<u64> {
    let mut histogram = Histogram::new_with_bounds(1, MAX, 2).expect("bounds that are constant");
    for (bucket, count) in counts.iter().filter(|(bucket, _)| (*bucket as usize) < BUCKETS) {
        histogram.saturating_record_n(middle(*bucket as usize), (*count).min(COUNT_MAX));
    }
    histogram
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_a_bucket_whose_middle_is_within_three_percent() {
        let mut last = 0;
        for value in (0..4096).chain((12..40).flat_map(|n| [(1u64 << n) - 1, 1 << n, (1 << n) + (1 << (n - 1))])) {
            let found = bucket(value);
            assert!(found < BUCKETS, "{value} is in {found}");
            assert!(found >= last, "{value} is before what is smaller");
            last = found;
            let (middle, value) = (middle(found) as f64, value.min(MAX) as f64);
            assert!((middle - value).abs() <= 1.0 + value * 0.031, "{value} is read as {middle}");
        }
        assert_eq!(last, BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_those_of_what_was_counted_in_between() {
        let counts = |values: &[u64]| {
            let mut all = vec![0u64; BUCKETS];
            values.iter().for_each(|value| all[bucket(*value)] += 1);
            (0..).zip(all).filter(|(_, n)| *n > 0).collect::<Counts>()
        };
        let before: Vec<u64> = vec![5_000_000; 50];
        let now: Vec<u64> = before.iter().copied().chain((1..=1000).map(|n| n * 1000)).collect();
        let histogram = readable(&between(&counts(&before), &counts(&now)));
        assert_eq!(histogram.len(), 1000);
        for (quantile, expected) in [(0.5, 500_000.0), (0.99, 990_000.0)] {
            let found = histogram.value_at_quantile(quantile) as f64;
            assert!((found - expected).abs() < expected * 0.04, "{quantile}: {found}");
        }
    }

    #[test]
    fn coarser_twice_is_coarser_once_and_nothing_is_lost() {
        let counts: Counts = (0..BUCKETS as u16).step_by(3).map(|bucket| (bucket, u64::from(bucket) + 1)).collect();
        let sum = |counts: &Counts| counts.iter().map(|(_, count)| count).sum::<u64>();
        assert_eq!(coarser(&counts, 0), counts);
        for by in 1..=BITS {
            let coarse = coarser(&counts, by);
            assert_eq!(sum(&coarse), sum(&counts));
            assert!(coarse.len() <= BUCKETS >> by && coarse.is_sorted_by(|a, b| a.0 < b.0));
            assert_eq!(coarser(&coarser(&counts, by - 1), by), coarse);
            assert_eq!(coarser(&coarse, by), coarse);
        }
        assert_eq!(coarser(&vec![(6, u64::MAX), (7, 1)], 1), [(7, COUNT_MAX)]);
    }

    #[test]
    fn what_no_worker_wrote_breaks_nothing() {
        let counts = vec![(3, u64::MAX), (u16::MAX, 7), (BUCKETS as u16, 1)];
        assert_eq!(readable(&counts).len(), COUNT_MAX);
        assert_eq!(between(&counts, &vec![(2, 1), (3, 5)]), [(2, 1)]);
    }
}
