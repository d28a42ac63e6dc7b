//! What the client's handles stand for.

use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr;

use orion_wire::Fault;
use orion_wire::handle::{Handle, INDEX_MAX, KIND_MAX, Kind};
use rustc_hash::FxHashMap;

#[derive(Clone, Copy)]
struct Entry {
    /// Generation plus one; 0 while empty.
    generation: u32,
    pointer: *mut c_void,
    /// The context that the object ends with; 0 for none.
    context: u64,
}

impl Entry {
    const EMPTY: Entry = Entry { generation: 0, pointer: ptr::null_mut(), context: 0 };
}

/// What CUDA ends together with a context. Contexts of green ones count as their device's primary one.
const IN_CONTEXTS: [Kind; 6] =
    [Kind::Module, Kind::Stream, Kind::Event, Kind::Array, Kind::MipmappedArray, Kind::LinkState];

/// The driver's objects, by the client's handles and the other way.
pub struct Objects {
    tables: Vec<Vec<Entry>>,
    /// What ends with a module, a library or an array: functions, modules, levels.
    inside: FxHashMap<u64, Vec<(Kind, u64)>>,
    /// Queries return the driver's handles.
    names: HashMap<(u8, usize), u64>,
}

/// An object whose handle was forgotten, and what lived in it.
pub struct Gone {
    pub pointer: *mut c_void,
    pub inside: Vec<(Kind, u64)>,
}

impl Default for Objects {
    fn default() -> Objects {
        Objects { tables: vec![Vec::new(); KIND_MAX as usize + 1], inside: FxHashMap::default(), names: HashMap::new() }
    }
}

impl Objects {
    pub fn lookup(&self, kind: Kind, word: u64) -> Option<*mut c_void> {
        let handle = Handle(word);
        if !handle.is(kind) {
            return None;
        }
        let entry = self.tables[kind as usize].get(handle.index() as usize)?;
        (entry.generation == handle.generation() + 1).then_some(entry.pointer)
    }

    /// Makes room for a handle that the client chose. The answer is a handle that it gave up without a word, to be
    /// forgotten first: a call that was to find the object's name failed after it had.
    pub fn make_room(&mut self, kind: Kind, word: u64) -> Result<Option<u64>, Fault> {
        let handle = Handle(word);
        if !handle.is(kind) {
            return Err(Fault("new handle of the wrong kind"));
        }
        let (index, table) = (handle.index() as usize, &mut self.tables[kind as usize]);
        // The client takes indices in order, so a table can grow only as fast as objects are made.
        if index >= table.len() {
            if index > table.len() + (1 << 16) || index as u32 > INDEX_MAX {
                return Err(Fault("new handle far beyond those in use"));
            }
            table.resize(index + 1, Entry::EMPTY);
        }
        match table[index].generation {
            0 => Ok(None),
            known if known == handle.generation() + 1 => Err(Fault("new handle is in use")),
            known => Ok(Some(Handle::new(kind, known - 1, index as u32).0)),
        }
    }

    /// Gives a handle its meaning, for which there is room.
    pub fn put(&mut self, kind: Kind, word: u64, pointer: *mut c_void, context: u64) {
        let handle = Handle(word);
        let context = if IN_CONTEXTS.contains(&kind) { context } else { 0 };
        let entry = Entry { generation: handle.generation() + 1, pointer, context };
        self.tables[kind as usize][handle.index() as usize] = entry;
        self.names.insert((kind as u8, pointer as usize), word);
    }

    /// An object lives in `owner` and ends with it.
    pub fn put_inside(&mut self, owner: u64, kind: Kind, word: u64) {
        self.inside.entry(owner).or_default().push((kind, word));
    }

    /// Forgets a handle.
    pub fn take(&mut self, kind: Kind, word: u64) -> Option<Gone> {
        let pointer = self.lookup(kind, word)?;
        self.tables[kind as usize][Handle(word).index() as usize] = Entry::EMPTY;
        // Two handles of one object: the other one is still its name.
        if self.names.get(&(kind as u8, pointer as usize)) == Some(&word) {
            self.names.remove(&(kind as u8, pointer as usize));
        }
        Some(Gone { pointer, inside: self.inside.remove(&word).unwrap_or_default() })
    }

    /// The handles of what ends with a context.
    pub fn in_context(&self, context: u64) -> Vec<(Kind, u64)> {
        let of_kind = |kind: Kind| {
            let entries = self.tables[kind as usize].iter().enumerate();
            let here = entries.filter(move |(_, entry)| entry.generation != 0 && entry.context == context);
            here.map(move |(index, entry)| (kind, Handle::new(kind, entry.generation - 1, index as u32).0))
        };
        IN_CONTEXTS.into_iter().flat_map(of_kind).collect()
    }

    /// The context that an object ends with, if it was made in one.
    pub fn context_of(&self, kind: Kind, word: u64) -> u64 {
        let entry = self.tables[kind as usize].get(Handle(word).index() as usize);
        entry.map_or(0, |entry| entry.context)
    }

    /// The client's name for one of the driver's handles, if it has one.
    pub fn name_of(&self, kind: Kind, pointer: *mut c_void) -> Option<u64> {
        self.names.get(&(kind as u8, pointer as usize)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: usize) -> *mut c_void {
        address as *mut c_void
    }

    fn put(objects: &mut Objects, kind: Kind, index: u32, pointer: usize, context: u64) -> u64 {
        let word = Handle::new(kind, 0, index).0;
        assert!(matches!(objects.make_room(kind, word), Ok(None)));
        objects.put(kind, word, at(pointer), context);
        word
    }

    #[test]
    fn a_handle_means_its_object_until_it_is_taken() {
        let mut objects = Objects::default();
        let event = put(&mut objects, Kind::Event, 3, 0x10, 7);
        assert_eq!(objects.lookup(Kind::Event, event), Some(at(0x10)));
        assert_eq!(objects.name_of(Kind::Event, at(0x10)), Some(event));
        assert_eq!((objects.lookup(Kind::Stream, event), objects.context_of(Kind::Event, event)), (None, 7));
        assert!(objects.make_room(Kind::Event, event).is_err(), "a handle that is in use");
        assert!(objects.make_room(Kind::Stream, event).is_err(), "a handle of another kind");
        assert!(objects.make_room(Kind::Event, Handle::new(Kind::Event, 0, 1 << 20).0).is_err(), "one far away");
        assert_eq!(objects.take(Kind::Event, event).map(|gone| gone.pointer), Some(at(0x10)));
        assert!(objects.lookup(Kind::Event, event).is_none() && objects.take(Kind::Event, event).is_none());
    }

    #[test]
    fn a_new_generation_displaces_what_was_given_up_without_a_word() {
        let mut objects = Objects::default();
        let old = put(&mut objects, Kind::Graph, 0, 0x10, 0);
        let new = Handle::new(Kind::Graph, 1, 0).0;
        assert!(matches!(objects.make_room(Kind::Graph, new), Ok(Some(word)) if word == old));
    }

    #[test]
    fn what_lives_in_another_or_in_a_context_is_found_with_it() {
        let mut objects = Objects::default();
        let module = put(&mut objects, Kind::Module, 0, 0x10, 7);
        let function = put(&mut objects, Kind::Function, 0, 0x20, 7);
        objects.put_inside(module, Kind::Function, function);
        put(&mut objects, Kind::Stream, 0, 0x30, 8);
        assert_eq!(objects.in_context(7), [(Kind::Module, module)]);
        let gone = objects.take(Kind::Module, module).expect("it was put there");
        assert_eq!(gone.inside, [(Kind::Function, function)]);
        assert!(objects.in_context(7).is_empty());
    }
}
