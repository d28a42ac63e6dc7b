//! Tensor maps that were asked for before.

use std::sync::RwLock;

use orion_cuda::sys::*;
use orion_wire::Writer;
use rustc_hash::FxHashMap;

pub type Map = [u64; 16];
/// Programs use some hundred; one that never repeats itself starts over.
const REMEMBERED_MAX: usize = 8192;

#[derive(Default)]
struct Memory {
    /// By all arguments but the address.
    encoded: FxHashMap<Vec<u64>, Map>,
    /// Alignment that the address of a known map needs, by the map without its address.
    pub alignment: FxHashMap<[u64; 15], u64>,
}

pub static MEMORY: RwLock<Option<Memory>> = RwLock::new(None);

pub fn remembered(words: &[u64]) -> Option<Map> {
    MEMORY.read().expect("no panic happens under this lock").as_ref()?.encoded.get(words).copied()
}

pub fn tail(map: &Map) -> [u64; 15] {
    let mut tail = [0; 15];
    tail.copy_from_slice(&map[1..]);
    tail
}

pub fn remember(alignment: u64, words: Vec<u64>, map: &Map) {
    let mut memory = MEMORY.write().expect("no panic happens under this lock");
    let memory = memory.get_or_insert_default();
    if memory.encoded.len() >= REMEMBERED_MAX {
        *memory = Memory::default();
    }
    memory.alignment.insert(tail(map), alignment);
    memory.encoded.insert(words, *map);
}
