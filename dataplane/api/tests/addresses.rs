//! An address that a client named is looked at in one place.

use std::path::{Path, PathBuf};

/// The one file that takes the number out of an address of a message.
const DECIDES: &str = "dataplane/oriond/src/worker/session/reach.rs";

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

#[test]
fn only_one_file_of_the_worker_looks_into_an_address_that_a_client_named() {
    let root = orion_api::root();
    let mut looking = Vec::new();
    for file in sources(&root.join("dataplane/oriond/src")) {
        let text = std::fs::read_to_string(&file).expect("a source");
        if text.contains("unjudged") {
            looking.push(file.strip_prefix(&root).expect("inside").to_string_lossy().into_owned());
        }
    }
    assert_eq!(looking, [DECIDES]);
}
