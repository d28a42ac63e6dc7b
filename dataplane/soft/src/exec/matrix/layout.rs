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

/// Sums of eight rows and eight columns, of which the even ones come first: bits of a float or integer, or of half
/// precision in the lower half.
pub type Tile = [u32; 64];

/// The column of a place in a row of eight sums. Lanes have an even and the next odd column in two registers, and so
/// four places are those of four lanes.
#[inline(always)]
pub fn column_of(place: usize) -> usize {
    place % 4 * 2 + place / 4
}

/// The register, element and place in a group of four of row `k` of a second factor with `E` elements in a register.
#[inline(always)]
pub fn row_of<const E: usize, const W: usize>(k: usize) -> (usize, usize, usize) {
    (k / E / 4 % W, k % E, k / E % 4)
}

/// For each row of a sparse factor and each of its elements, the row of the other factor that it multiplies.
pub type Picks = [[[u8; 64]; 8]; 2];

/// Registers of eight rows of the first factor, and of eight columns of the second. Element `e` of register `w` of
/// lane `4 * g + t` is that of row or column `g` and product `(4 * w + t) * elements + e`.
pub struct Factors<'a> {
    pub a: [[&'a Lanes; 2]; 4],
    pub b: [[&'a Lanes; 4]; 4],
    pub picks: Option<Picks>,
}
