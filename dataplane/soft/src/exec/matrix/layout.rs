//! How matrices lie in the registers of a warp.

/// All lanes, without which there is no matrix.
pub const ALL: u32 = u32::MAX;

/// A register of all lanes.
pub type Lanes = [u32; 32];

/// Binary places that sums keep below the leading bit of their largest part.
pub const PLACES: i32 = 25;

/// The block of eight rows and the tile of eight columns of the sums `p`, of a product with `m` rows.
pub fn place(m: usize, p: usize) -> (usize, usize) {
    match m {
        8 => (0, p),
        16 => (p % 2, p / 2),
        _ => (p, 0),
    }
}
