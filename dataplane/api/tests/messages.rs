//! Messages are declared in `dataplane/wire/src/message`, and neither side writes or reads one word by word.

use std::path::{Path, PathBuf};

/// Where the two sides are.
const SIDES: [&str; 2] = ["shim/src", "dataplane/oriond/src/worker"];

/// What writes or reads part of a message.
const BY_HAND: [&str; 8] =
    ["Writer", ".word(", ".bytes(&", ".bytes()?", ".text()?", ".list(", "HeapRange::get(", "put_words("];

/// Files that have one of them all the same.
const OTHERS: [(&str, &str); 3] = [
    // What declared messages are written with, straight into the ring.
    ("shim/src/session/call.rs", "Writer"),
    // Words of shared memory.
    ("dataplane/oriond/src/worker/session/bringing.rs", ".word("),
    // A worker for tests of carriers, which has operations of its own.
    ("dataplane/oriond/src/worker/stub.rs", ""),
];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder of sources").flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => found.extend(sources(&path)),
            false => found.extend(path.extension().is_some_and(|e| e == "rs").then_some(path)),
        }
    }
    found
}

/// What of [`BY_HAND`] a file's code has, tests and comments left out.
fn by_hand(text: &str) -> Vec<&'static str> {
    let code = orion_api::format::bare(text);
    BY_HAND.into_iter().filter(|what| code.contains(what)).collect()
}

#[test]
fn neither_side_writes_or_reads_a_message_word_by_word() {
    let root = orion_api::root();
    let (mut looked_at, mut found) = (0, Vec::new());
    for file in SIDES.iter().flat_map(|side| sources(&root.join(side))) {
        let name = file.strip_prefix(&root).expect("inside").to_string_lossy().into_owned();
        if name.contains("generated") {
            continue;
        }
        looked_at += 1;
        let text = std::fs::read_to_string(&file).expect("a source");
        let is_known = |what: &str| OTHERS.iter().any(|(path, has)| *path == name && what.contains(has));
        found.extend(by_hand(&text).into_iter().filter(|what| !is_known(what)).map(|what| format!("{name}: {what}")));
    }
    assert!(looked_at > 200, "files looked at: {looked_at}");
    assert!(found.is_empty(), "declare these as dataplane/wire/src/message/mod.rs says:\n{}", found.join("\n"));
}

#[test]
fn a_word_by_hand_is_found_and_one_in_a_comment_or_a_test_is_not() {
    assert_eq!(by_hand("fn f(w: &mut Vec<u8>) {\n    w\n        .word(7);\n}\n"), [".word("]);
    assert_eq!(by_hand("use orion_wire::{Reader, Writer};\n"), ["Writer"]);
    assert_eq!(by_hand("let all = r.list(8, |r| r.word())?;\n"), [".word(", ".list("]);
    let none = "// As `w.word(7)`.\nfn f() {}\n\n#[cfg(test)]\nmod tests { fn g() { w.word(7); } }\n";
    assert_eq!(by_hand(none), Vec::<&str>::new());
}
