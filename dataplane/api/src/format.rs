//! The format itself, as far as the two sides have to agree on it and no declaration says it.
//!
//! Messages are declared, and each declaration has a hash. Below them lies what they are written with and carried by:
//! words, headers, the handshake, patches of memory that both sides have. Of the files that are this, all is hashed but
//! comments, spaces and tests.

use std::path::{Path, PathBuf};

use crate::place::root;

const FORMAT: &[&str] = &["dataplane/wire/src", "dataplane/transport/src/mirror.rs"];

/// Each file of the format, and its hash.
pub fn hashes() -> Result<Vec<(String, u64)>, String> {
    let mut all = Vec::new();
    for path in FORMAT {
        for file in files(&root().join(path))? {
            let name = file.strip_prefix(root()).unwrap_or(&file).to_string_lossy().into_owned();
            if name.contains("generated") || name.starts_with("dataplane/wire/src/message") {
                continue;
            }
            let text = std::fs::read_to_string(&file).map_err(|e| format!("reading {name}: {e}"))?;
            all.push((name, fnv(&bare(&text))));
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
pub fn bare(text: &str) -> String {
    let code = text.split("\n#[cfg(test)]\n").next().unwrap_or(text);
    let lines = code.lines().map(|line| {
        // A string may hold two slashes; nothing that counts stands behind one that does.
        line.split("//").next().unwrap_or(line)
    });
    lines.flat_map(str::chars).filter(|c| !c.is_whitespace()).collect()
}

/// FNV-1a.
fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, byte| (h ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_changes_the_hash_and_a_comment_does_not() {
        let hash = |text: &str| fnv(&bare(text));
        let code = "fn f(w: &mut Vec<u8>) {\n    let a = count();\n    w.word(a);\n    w.bytes(b);\n}\n";
        let same = [
            code.replace("    w.word(a);", "    // The count.\n    w.word(a);"),
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
    fn words_headers_the_handshake_and_patches_are_hashed_and_messages_are_not() {
        let all = hashes().expect("a full checkout");
        let is_hashed = |path: &str| all.iter().any(|(name, _)| name == path);
        for path in ["codec.rs", "record.rs", "hello.rs"] {
            assert!(is_hashed(&format!("dataplane/wire/src/{path}")), "{path}");
        }
        assert!(is_hashed("dataplane/transport/src/mirror.rs"));
        assert!(all.iter().all(|(name, _)| !name.contains("message")));
    }
}
