//! The USDT probes that a program has, as its notes say (`readelf -n`): names, arguments, and which belong together.
//!
//! Nothing here knows Orion's probes by name. `X_begin` and `X_end` are a pair, which what both have of their first
//! three arguments tells from other pairs that are under way; the first is the session.

use std::collections::BTreeMap;
use std::path::Path;

use object::{Object, ObjectSection, ObjectSegment, SegmentFlags};

use crate::numbers::{
    COOKIE_KIND_SHIFT, COOKIE_NAMES_SHIFT, COOKIE_PAIR_SHIFT, KIND_ALONE, KIND_BEGIN, KIND_END, NAMES_MAX,
};

/// The provider's name in the notes.
pub const PROVIDER: &str = "orion";
/// A note's kind, as sys/sdt.h writes it.
const STAPSDT: u32 = 3;
/// In a note before its names: place, base, semaphore.
const ADDRESSES_BYTES: usize = 24;
/// Of a segment that is code.
const PF_X: u32 = 1;

/// One probe; it may stand at several places of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usdt {
    pub name: String,
    pub arguments: usize,
    /// What the program in the kernel is told of it.
    pub cookie: u64,
    /// Of one that ends something: what that is called.
    pub ends: Option<String>,
    /// One of its places is no code: what the linker throws away leaves its note behind, and libbpf then takes none of
    /// that name.
    pub is_dead: bool,
}

/// What the notes say of one name.
#[derive(Default)]
struct Noted {
    arguments: usize,
    places: Vec<u64>,
}

/// The probes of a program, by name.
///
/// # Errors
///
/// Why the file cannot be read.
pub fn probes(program: &Path) -> Result<Vec<Usdt>, String> {
    let said =
        |e: &dyn std::fmt::Display| format!("reading {}, to find its USDT probes, failed: {e}", program.display());
    let bytes = std::fs::read(program).map_err(|e| said(&e))?;
    let file = object::File::parse(&*bytes).map_err(|e| said(&e))?;
    let Some(section) = file.section_by_name(".note.stapsdt") else { return Ok(Vec::new()) };
    let notes = section.data().map_err(|e| said(&e))?;
    let names = names(notes);
    let is_code = |place: &u64| {
        file.segments().any(|segment| {
            let is_executable = matches!(segment.flags(), SegmentFlags::Elf { p_flags, .. } if p_flags.0 & PF_X != 0);
            is_executable && (segment.address()..segment.address() + segment.size()).contains(place)
        })
    };
    let mut probes = paired(&names);
    probes.iter_mut().for_each(|probe| probe.is_dead = !names[&probe.name].places.iter().all(is_code));
    Ok(probes)
}

/// Of each probe of ours, how many arguments it has, and where it is.
fn names(mut notes: &[u8]) -> BTreeMap<String, Noted> {
    let mut found: BTreeMap<String, Noted> = BTreeMap::new();
    while let Some((kind, body, rest)) = note(notes) {
        notes = rest;
        let Some(words) = body.get(ADDRESSES_BYTES..).filter(|_| kind == STAPSDT) else { continue };
        let mut words = words.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        let (provider, name, arguments) = (words.next(), words.next(), words.next());
        if let (Some(PROVIDER), Some(name)) = (provider.as_deref(), name) {
            let noted = found.entry(name.into_owned()).or_default();
            noted.arguments = arguments.map_or(0, |all| all.split_whitespace().count());
            noted.places.push(u64::from_ne_bytes(body[..8].try_into().expect("eight bytes")));
        }
    }
    found
}

/// The first note: kind, body, and what follows it.
fn note(bytes: &[u8]) -> Option<(u32, &[u8], &[u8])> {
    let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let (owner, body, kind) = (word(0)? as usize, word(4)? as usize, word(8)?);
    let from = 12 + owner.checked_next_multiple_of(4)?;
    let end = from.checked_add(body)?;
    Some((kind, bytes.get(from..end)?, bytes.get(end.next_multiple_of(4)..).unwrap_or_default()))
}

fn paired(names: &BTreeMap<String, Noted>) -> Vec<Usdt> {
    let place = |name: &str| names.keys().position(|n| n == name);
    let other = |name: &str, own: &str, other: &str| {
        let other = format!("{}{other}", name.strip_suffix(own)?);
        Some((place(&other)?, names[&other].arguments))
    };
    let one = |(own, (name, Noted { arguments, .. })): (usize, (&String, &Noted))| {
        let (kind, pair, names) = match (other(name, "_begin", "_end"), other(name, "_end", "_begin")) {
            (Some((_, theirs)), _) => (KIND_BEGIN, own, theirs.min(*arguments).min(NAMES_MAX)),
            (_, Some((begin, theirs))) => (KIND_END, begin, theirs.min(*arguments).min(NAMES_MAX)),
            _ => (KIND_ALONE, 0, 0),
        };
        Usdt {
            name: name.clone(),
            arguments: *arguments,
            cookie: own as u64
                | kind << COOKIE_KIND_SHIFT
                | (names as u64) << COOKIE_NAMES_SHIFT
                | (pair as u64) << COOKIE_PAIR_SHIFT,
            ends: (kind == KIND_END).then(|| name.trim_end_matches("_end").to_owned()),
            is_dead: false,
        }
    };
    names.iter().enumerate().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(provider: &str, name: &str, arguments: &str) -> Vec<u8> {
        let words = format!("{provider}\0{name}\0{arguments}\0");
        let mut bytes = Vec::new();
        for word in [8, (ADDRESSES_BYTES + words.len()) as u32, STAPSDT] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(b"stapsdt\0");
        bytes.extend([0; ADDRESSES_BYTES]);
        bytes.extend(words.as_bytes());
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn probes_that_begin_and_end_something_are_pairs() {
        let notes = [
            written("orion", "copy_begin", "8@%rax 8@%rdi 4@%ecx"),
            written("orion", "copy_end", "8@%rax 8@-8(%rbp)"),
            written("orion", "copy_begin", "8@%rbx 8@%rdi 4@%ecx"),
            written("orion", "full", ""),
            written("other", "full_end", ""),
        ];
        let found = paired(&names(&notes.concat()));
        let names: Vec<_> = found.iter().map(|p| (p.name.as_str(), p.arguments, p.ends.as_deref())).collect();
        assert_eq!(names, [("copy_begin", 3, None), ("copy_end", 2, Some("copy")), ("full", 0, None)]);
        let cookies: Vec<_> = found.iter().map(|p| p.cookie).collect();
        assert_eq!(cookies, [1 << 16 | 2 << 24, 1 | 2 << 16 | 2 << 24, 2]);
    }

    #[test]
    fn notes_that_are_cut_off_are_no_notes() {
        let whole = written("orion", "copy_begin", "8@%rax");
        for len in 0..whole.len() - 1 {
            assert!(names(&whole[..len]).len() <= 1);
        }
        assert!(names(&[0xff; 64]).is_empty());
    }
}
