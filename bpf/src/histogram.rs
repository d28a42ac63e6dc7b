//! Log-linear histograms as the programs write them (`include/histogram.h`): a bucket is at most a sixteenth of its
//! value wide, so a quantile is known to 6 %.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::numbers::{BUCKETS, SUB_BITS, TOP_BIT};

/// Bytes of one: the sum, and the buckets.
pub const BYTES: usize = (1 + BUCKETS) * size_of::<u64>();

/// What one histogram had when it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counts {
    pub sum: u64,
    buckets: Vec<u64>,
}

/// What people and programs are shown of one: nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    pub count: u64,
    pub sum_ns: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
}

impl Counts {
    /// From a map's value; `None` if that has another size.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Counts> {
        if bytes.len() != BYTES {
            return None;
        }
        let mut words = words(bytes);
        Some(Counts { sum: words.next()?, buckets: words.collect() })
    }

    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Adds what another has counted.
    pub fn merge(&mut self, other: &Counts) {
        self.sum += other.sum;
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(own, theirs)| *own += theirs);
    }

    /// For quantiles, with each value in the middle of its bucket.
    #[must_use]
    pub fn readable(&self) -> Histogram<u64> {
        let mut histogram = Histogram::new_with_bounds(1, 1 << TOP_BIT, 2).expect("bounds that are constant");
        for (bucket, count) in self.buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
            histogram.saturating_record_n(middle(bucket), *count);
        }
        histogram
    }

    #[must_use]
    pub fn times(&self) -> Times {
        let histogram = self.readable();
        let at = |quantile| if histogram.is_empty() { 0 } else { histogram.value_at_quantile(quantile) };
        Times {
            count: histogram.len(),
            sum_ns: self.sum,
            p50_ns: at(0.5),
            p99_ns: at(0.99),
            max_ns: if histogram.is_empty() { 0 } else { histogram.max() },
        }
    }
}

/// A map's value as the 64-bit words of which it consists.
pub fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")))
}

/// The middle of what a bucket counts.
fn middle(bucket: usize) -> u64 {
    let step = (bucket & ((1 << SUB_BITS) - 1)) as u64;
    match (bucket >> SUB_BITS) as u32 {
        0 => step,
        octave => {
            let shift = octave - 1;
            (((1 << SUB_BITS) + step) << shift) + ((1u64 << shift) >> 1)
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// As `bucket_of` in `include/histogram.h`; that they agree is seen on the kernel, in tests/attached.rs.
    fn bucket(value: u64) -> usize {
        if value >> TOP_BIT > 0 {
            return BUCKETS - 1;
        }
        match (value >> SUB_BITS).checked_ilog2() {
            None => value as usize,
            Some(shift) => (((shift + 1) as usize) << SUB_BITS) + ((value >> shift) & ((1 << SUB_BITS) - 1)) as usize,
        }
    }

    pub fn counted(values: &[u64]) -> Counts {
        let mut all = vec![0u64; 1 + BUCKETS];
        values.iter().for_each(|value| all[1 + bucket(*value)] += 1);
        all[0] = values.iter().sum();
        Counts::from_bytes(&all.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>()).expect("its size")
    }

    #[test]
    fn the_middle_of_a_bucket_is_near_each_value_in_it() {
        assert_eq!(BUCKETS, ((TOP_BIT - SUB_BITS + 1) as usize) << SUB_BITS);
        for value in (0..5000).chain((12..TOP_BIT).flat_map(|n| [(1u64 << n) - 1, 1 << n, (1 << n) * 3 / 2])) {
            let found = middle(bucket(value));
            assert!(found.abs_diff(value) <= value / 31, "{value} is read as {found}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert_eq!(bucket((1 << TOP_BIT) - 1), BUCKETS - 1);
    }

    #[test]
    fn quantiles_of_merged_histograms_are_those_of_all_values() {
        let mut both = counted(&(1..=500).map(|n| n * 1000).collect::<Vec<_>>());
        both.merge(&counted(&(501..=1000).map(|n| n * 1000).collect::<Vec<_>>()));
        let times = both.times();
        assert_eq!((times.count, times.sum_ns), (1000, 500_500_000));
        for (found, expected) in [(times.p50_ns, 500_000), (times.p99_ns, 990_000), (times.max_ns, 1_000_000)] {
            assert!(found.abs_diff(expected) < expected / 20, "{found}, not {expected}");
        }
        assert_eq!(counted(&[]).times(), Times::default());
        assert_eq!(Counts::from_bytes(&[0; 16]), None);
    }
}
