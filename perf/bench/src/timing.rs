//! Times as histograms, and the figures taken from them.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Picoseconds, to three digits: the cheapest calls take a few nanoseconds.
#[derive(Debug, Clone)]
pub struct Times(Histogram<u64>);

/// Value and count of each bucket in use: how a histogram crosses from a child process.
pub type Buckets = Vec<(u64, u64)>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    pub count: u64,
    pub min_ns: f64,
    pub p50_ns: f64,
    pub p90_ns: f64,
    pub p99_ns: f64,
    pub p99_9_ns: f64,
    pub max_ns: f64,
    pub mean_ns: f64,
}

impl Times {
    pub fn new() -> Times {
        Times(Histogram::new(3).expect("three digits are allowed"))
    }

    pub fn record(&mut self, time: Duration) {
        self.record_batch(time, 1);
    }

    /// A batch of `calls` that took `time` together counts as one value, the mean of a call.
    pub fn record_batch(&mut self, time: Duration, calls: u32) {
        self.0.record(time.as_nanos() as u64 * 1000 / u64::from(calls)).expect("a histogram that grows takes it");
    }

    pub fn add(&mut self, other: &Times) {
        self.0.add(&other.0).expect("a histogram that grows takes every value");
    }

    pub fn buckets(&self) -> Buckets {
        self.0.iter_recorded().map(|v| (v.value_iterated_to(), v.count_at_value())).collect()
    }

    pub fn from_buckets(buckets: &Buckets) -> Times {
        let mut times = Times::new();
        for (value, count) in buckets {
            times.0.record_n(*value, *count).expect("a histogram that grows takes every value");
        }
        times
    }

    pub fn quantile_ns(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1e3
    }

    pub fn percentiles(&self) -> Option<Percentiles> {
        (!self.0.is_empty()).then(|| Percentiles {
            count: self.0.len(),
            min_ns: self.0.min() as f64 / 1e3,
            p50_ns: self.quantile_ns(0.5),
            p90_ns: self.quantile_ns(0.9),
            p99_ns: self.quantile_ns(0.99),
            p99_9_ns: self.quantile_ns(0.999),
            max_ns: self.0.max() as f64 / 1e3,
            mean_ns: self.0.mean().round() / 1e3,
        })
    }
}

/// The middle value; of an even number the mean of the two in the middle.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_survives_its_buckets() {
        let mut times = Times::new();
        (1..=1000).for_each(|us| times.record(Duration::from_micros(us)));
        let back = Times::from_buckets(&times.buckets());
        assert_eq!(back.percentiles().unwrap().count, 1000);
        let p50 = back.quantile_ns(0.5);
        assert!((499_000.0..=501_000.0).contains(&p50), "{p50}");
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }
}
