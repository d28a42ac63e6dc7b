//! Functions that this shim does not answer: each is counted, and said once on stderr.

use orion_cuda::sys::{CUDA_ERROR_NOT_SUPPORTED, CUresult};

use crate::state::process::state;

/// Counts the refusal of `function`. The application gets its code from the caller.
pub fn refused(function: &'static str, reason: &str) {
    let first = {
        let mut counts = state().refusals.counts.lock();
        let count = counts.entry(function).or_insert(0);
        *count += 1;
        *count == 1
    };
    if first {
        crate::say!("{function} refused: {reason}");
    }
    crate::report::log::error(function, &format!("not supported by Orion: {reason}"));
}

/// The answer of a function that has a row but no code yet.
#[allow(dead_code, reason = "the generated exports call it as long as pending.txt has a line for the shim")]
pub fn pending(function: &'static str) -> CUresult {
    refused(function, "not yet implemented in this build");
    CUDA_ERROR_NOT_SUPPORTED
}

/// Every function refused so far, and how often.
#[cfg(test)]
pub fn counts() -> Vec<(&'static str, u64)> {
    state().refusals.counts.lock().iter().map(|(name, n)| (*name, *n)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_counted_by_function() {
        assert_eq!(pending("cuTestOnly"), CUDA_ERROR_NOT_SUPPORTED);
        refused("cuTestOnly", "again");
        assert!(counts().contains(&("cuTestOnly", 2)));
    }
}
