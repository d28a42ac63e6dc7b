//! What should be in use, and whether a refusal was right.

use std::collections::BTreeMap;

/// Pieces begin at multiples of this on any driver.
const GRANULE: u64 = 512;

pub struct Model {
    pub total: u64,
    rounding: u64,
    /// What a context takes by itself.
    pub context_bytes: u64,
    /// In use now: as asked for, rounded up to the granule, and in how many pieces.
    live: u64,
    pieces: u64,
    pub most: u64,
    pub refused: u64,
    ways: BTreeMap<&'static str, u64>,
}

pub fn rounded(bytes: u64) -> u64 {
    bytes.max(1).next_multiple_of(GRANULE)
}

impl Model {
    pub fn new(total: u64, rounding: u64) -> Model {
        Model { total, rounding, context_bytes: 0, live: 0, pieces: 0, most: 0, refused: 0, ways: BTreeMap::new() }
    }

    pub fn live(&self) -> u64 {
        self.live
    }

    /// Whether the driver rounds nothing but what the model does too.
    pub fn is_exact(&self) -> bool {
        self.rounding <= GRANULE
    }

    /// So many bytes were taken.
    pub fn took(&mut self, way: &'static str, bytes: u64) -> Result<(), String> {
        self.live += bytes;
        self.pieces += 1;
        self.most = self.most.max(self.live);
        *self.ways.entry(way).or_default() += 1;
        match self.live <= self.total {
            true => Ok(()),
            false => {
                Err(format!("{way}: {bytes} bytes were given, and now {} of {} are in use", self.live, self.total))
            }
        }
    }

    pub fn gave_back(&mut self, bytes: u64) {
        self.live -= bytes;
        self.pieces -= 1;
    }

    /// Whether there has to be room for so many bytes.
    pub fn fits(&self, bytes: u64) -> bool {
        let lost = if self.is_exact() { 0 } else { (self.pieces + 1) * self.rounding };
        self.live + bytes + lost <= self.total
    }

    /// So many bytes were refused while nothing else went on.
    pub fn was_refused(&mut self, way: &'static str, bytes: u64) -> Result<(), String> {
        self.refused += 1;
        match self.fits(bytes) {
            false => Ok(()),
            true => Err(format!(
                "{way}: {bytes} bytes were refused with {} of {} in use in {} pieces",
                self.live, self.total, self.pieces
            )),
        }
    }

    pub fn by_way(&self) -> String {
        self.ways.iter().map(|(way, count)| format!("{way} {count}")).collect::<Vec<_>>().join(", ")
    }
}

/// SplitMix64.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    /// Mostly small, now and then a large part of `total`.
    pub fn bytes(&mut self, total: u64) -> u64 {
        let most = match self.below(10) {
            0..=4 => 4096,
            5..=7 => 1 << 20,
            _ => total / 3,
        };
        1 + self.below(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_much_and_too_little_are_told_apart() {
        let mut model = Model::new(4096, 512);
        assert!(model.took("a", 4096).is_ok() && model.was_refused("a", 512).is_ok());
        model.gave_back(4096);
        assert!(model.was_refused("a", 4096).is_err(), "it would have fitted");
        assert!(model.took("a", 4608).is_err(), "it does not fit");
        // Where the driver rounds, a refusal may be early by that.
        let mut model = Model::new(10 << 20, 2 << 20);
        assert!(model.took("a", 5 << 20).is_ok());
        assert!(model.was_refused("a", 2 << 20).is_ok() && model.was_refused("a", 512).is_err());
    }
}
