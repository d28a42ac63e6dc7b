//! Messages that are written by hand on both sides, as far as the two sides have to agree on them.
//!
//! What a message consists of is the sequence of its words and byte strings, so the statements that write or read one
//! are
//! hashed, file by file, and of the files that are nothing but the format all of it. Comments, spaces and tests do not
//! count. The limit: a word that comes to mean something else without any of these statements changing is not seen.

use std::path::{Path, PathBuf};

use crate::place::root;

/// Whole files: the format itself.
const FORMAT: &[&str] = &["dataplane/wire/src", "dataplane/transport/src/mirror.rs"];
/// Files in which messages are written and read among other things.
const SIDES: &[&str] = &["dataplane/oriond/src/worker", "shim/src"];
/// What a statement has that writes or reads a part of a message.
const CODEC: &[&str] =
    &[".word(", ".bytes(", ".put(", ".text(", ".list(", "copy_words(", "words(", "HeapRange::get(", "op::", "ops::"];

/// Each file that has something to do with messages, and its hash.
pub fn hashes() -> Result<Vec<(String, u64)>, String> {
    let mut all = Vec::new();
    for (roots, whole) in [(FORMAT, true), (SIDES, false)] {
        for path in roots {
            for file in files(&root().join(path))? {
                let name = file.strip_prefix(root()).unwrap_or(&file).to_string_lossy().into_owned();
                // Messages that are declared have a hash of their own.
                if name.contains("generated") || name.starts_with("dataplane/wire/src/message") {
                    continue;
                }
                let text = std::fs::read_to_string(&file).map_err(|e| format!("reading {name}: {e}"))?;
                let counted = if whole { bare(&text) } else { statements(&bare(&text)) };
                if !counted.is_empty() {
                    all.push((name, fnv(&counted)));
                }
            }
        }
    }
    all.sort();
    Ok(all)
}

fn files(path: &Path) -> Result<Vec<PathBuf>, String> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = std::fs::read_dir(path).map_err(|e| format!("listing {}: {e}", path.display()))?;
    let mut found = Vec::new();
    for entry in entries {
        found.extend(files(&entry.map_err(|e| e.to_string())?.path())?);
    }
    found.retain(|file| file.extension().is_some_and(|e| e == "rs"));
    Ok(found)
}

/// Without comments, white space and the tests at its end.
fn bare(text: &str) -> String {
    let code = text.split("\n#[cfg(test)]\n").next().unwrap_or(text);
    let lines = code.lines().map(|line| {
        // A string may hold two slashes; nothing that counts stands behind one that does.
        line.split("//").next().unwrap_or(line)
    });
    lines.flat_map(str::chars).filter(|c| !c.is_whitespace()).collect()
}

/// The statements that write or read something.
fn statements(code: &str) -> String {
    let all = code.split([';', '{', '}']);
    let counted: Vec<&str> = all.filter(|s| CODEC.iter().any(|word| s.contains(word))).collect();
    counted.join("\n")
}

/// FNV-1a.
pub fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, byte| (h ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_more_or_another_order_changes_the_hash_and_a_comment_does_not() {
        let hash = |text: &str| fnv(&statements(&bare(text)));
        let code = "fn f(w: &mut Vec<u8>) {\n    let a = count();\n    w.word(a);\n    w.bytes(b);\n}\n";
        let same = [
            code.replace("    w.word(a);", "    // The count.\n    w.word(a);"),
            code.replace("count()", "number_of_elements()"),
            code.replace("w.word(a);\n    ", "w.word(a);\n\n        "),
            format!("{code}\n#[cfg(test)]\nmod tests {{ fn g() {{ w.word(2); }} }}"),
        ];
        assert!(same.iter().all(|text| hash(text) == hash(code)));
        let other = [
            code.replace("w.word(a);", "w.word(a);\n    w.word(0);"),
            code.replace("w.word(a);\n    w.bytes(b);", "w.bytes(b);\n    w.word(a);"),
            code.replace("w.word(a)", "w.word(a as u32 as u64)"),
        ];
        assert!(other.iter().all(|text| hash(text) != hash(code)));
    }

    #[test]
    fn both_sides_of_a_node_are_hashed() {
        let all = hashes().expect("a full checkout");
        for path in [
            "shim/src/api/graph/params.rs",
            "dataplane/oriond/src/worker/calls/graph/params.rs",
            "dataplane/wire/src/record.rs",
        ] {
            assert!(all.iter().any(|(name, _)| name == path), "{path}");
        }
    }
}
