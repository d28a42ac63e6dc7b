//! Tensor maps that were asked for before.

use orion_wire::message::field::Field;
use rustc_hash::FxHashMap;

use crate::state::lock::{Rank, Shared};

pub type Map = [u64; 16];
/// Programs use some hundred; one that never repeats itself starts over.
const REMEMBERED_MAX: usize = 8192;

/// A request without the address.
pub type Key = Vec<u8>;

/// The operation, and all of its message that counts.
pub fn key<'a>(op: u16, part: &impl Field<'a>) -> Key {
    let mut key = Vec::with_capacity(48 * 8);
    u64::from(op).put(&mut key);
    part.put(&mut key);
    key
}

#[derive(Default)]
pub struct Memory {
    /// By all arguments but the address.
    encoded: FxHashMap<Key, Map>,
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

    pub fn remembered(&self, key: &[u8]) -> Option<Map> {
        self.remembered.read().as_ref()?.encoded.get(key).copied()
    }

    pub fn remember(&self, alignment: u64, key: Key, map: &Map) {
        let mut memory = self.remembered.write();
        let memory = memory.get_or_insert_default();
        if memory.encoded.len() >= REMEMBERED_MAX {
            *memory = Memory::default();
        }
        memory.alignment.insert(tail(map), alignment);
        memory.encoded.insert(key, *map);
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
