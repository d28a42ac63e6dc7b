//! What times and amounts of memory are counted in.

/// Milliseconds of some clock that never goes back.
pub type Time = u64;
pub const MIB: u64 = 1 << 20;
