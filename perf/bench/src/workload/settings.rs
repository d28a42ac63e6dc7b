//! What to measure, and with what.

use crate::place::Pieces;

pub struct Settings {
    pub pieces: Pieces,
    pub repeats: usize,
    pub quick: bool,
    /// Measure NVIDIA's own library instead of the shim, where both can be measured.
    pub native: bool,
    pub transports: Vec<String>,
    /// Of somebody else, to measure instead.
    pub servers: Vec<String>,
    pub scaling: Sweep,
}

/// What is varied.
#[derive(Debug, Clone)]
pub struct Sweep {
    pub sessions: Vec<usize>,
    pub threads: Vec<usize>,
    pub streams: Vec<String>,
    /// `driver` for the whole path, `echo` for the dataplane alone.
    pub behind: Vec<String>,
    pub seconds: f64,
    pub think: f64,
}
