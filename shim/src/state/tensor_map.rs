//! Tensor maps that were asked for before.

use orion_wire::Writer;
use rustc_hash::FxHashMap;

use crate::state::lock::{Rank, Shared};

pub type Map = [u64; 16];
/// Programs use some hundred; one that never repeats itself starts over.
const REMEMBERED_MAX: usize = 8192;

/// What a part of a message consists of, as a key.
pub struct Words(pub Vec<u64>);

impl Writer for Words {
    fn put(&mut self, bytes: &[u8]) {
        for word in bytes.chunks(8) {
            let mut whole = [0; 8];
            whole[..word.len()].copy_from_slice(word);
            self.0.push(u64::from_le_bytes(whole));
        }
    }

    #[inline]
    fn word(&mut self, value: u64) {
        self.0.push(value);
    }
}

#[derive(Default)]
pub struct Memory {
    /// By all arguments but the address.
    encoded: FxHashMap<Vec<u64>, Map>,
    /// Alignment that the address of a known map needs, by the map without its address.
    pub alignment: FxHashMap<[u64; 15], u64>,
}

pub struct TensorMaps {
    pub remembered: Shared<Option<Memory>>,
}

impl TensorMaps {
    pub const fn new() -> TensorMaps {
        TensorMaps { remembered: Shared::new(Rank::Leaf, None) }
    }

    pub fn remembered(&self, words: &[u64]) -> Option<Map> {
        self.remembered.read().as_ref()?.encoded.get(words).copied()
    }

    pub fn remember(&self, alignment: u64, words: Vec<u64>, map: &Map) {
        let mut memory = self.remembered.write();
        let memory = memory.get_or_insert_default();
        if memory.encoded.len() >= REMEMBERED_MAX {
            *memory = Memory::default();
        }
        memory.alignment.insert(tail(map), alignment);
        memory.encoded.insert(words, *map);
    }
}

pub fn tail(map: &Map) -> [u64; 15] {
    let mut tail = [0; 15];
    tail.copy_from_slice(&map[1..]);
    tail
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_found_by_its_arguments() {
        let mut map = [7; 16];
        map[0] = 0x1000;
        let maps = TensorMaps::new();
        maps.remember(16, vec![1, 2, 3], &map);
        assert_eq!(maps.remembered(&[1, 2, 3]), Some(map));
        assert_eq!(maps.remembered(&[1, 2, 4]), None);
        let memory = maps.remembered.read();
        assert_eq!(memory.as_ref().and_then(|m| m.alignment.get(&tail(&map))), Some(&16));
    }
}
