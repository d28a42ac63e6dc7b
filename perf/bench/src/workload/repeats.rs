//! What workloads make of several measurements.

use crate::report::{Measured, Sample, merge};

/// Measures so many times, and puts them together.
pub fn repeated(
    name: &str,
    repeats: usize,
    mut once: impl FnMut() -> Result<Vec<Sample>, String>,
) -> Result<Vec<Measured>, String> {
    let repeats: Result<Vec<_>, String> = (0..repeats).map(|_| once()).collect();
    Ok(merge(name, &repeats?))
}

/// The same samples under names that say how they were reached.
pub fn prefixed(prefix: &str, samples: Vec<Sample>) -> Vec<Sample> {
    samples.into_iter().map(|s| Sample { case: format!("{prefix} {}", s.case), ..s }).collect()
}
