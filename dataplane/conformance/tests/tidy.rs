//! What reviewers would otherwise say twice, about every source file of the repository.

use std::path::{Path, PathBuf};
use std::process::Command;

const LINE_CHARS_MAX: usize = 120;

#[test]
fn lines_are_short() {
    let mut long = Vec::new();
    for (path, text) in sources(&["rs", "c", "h", "cu", "py", "sh", "toml"]) {
        for (index, line) in text.lines().enumerate() {
            if line.chars().count() > LINE_CHARS_MAX {
                long.push(format!("{}:{}: {} characters", path.display(), index + 1, line.chars().count()));
            }
        }
    }
    assert!(long.is_empty(), "lines longer than {LINE_CHARS_MAX} characters:\n{}", long.join("\n"));
}

#[test]
fn nothing_is_left_over() {
    // Written in two parts, so that this file does not find itself.
    let words = [concat!("dbg", "!("), concat!("todo", "!("), concat!("unimplemented", "!("), concat!("FIX", "ME")];
    let mut left = Vec::new();
    for (path, text) in sources(&["rs", "c", "h", "cu", "py", "sh"]) {
        for (index, line) in text.lines().enumerate() {
            if let Some(word) = words.iter().find(|word| line.contains(**word)) {
                left.push(format!("{}:{}: {word}", path.display(), index + 1));
            }
        }
    }
    assert!(left.is_empty(), "left over:\n{}", left.join("\n"));
}

/// Standard error is the application's there: full, closed, or a pipe that nobody reads. `say::put` minds that.
#[test]
fn no_library_in_an_application_writes_to_standard_error_as_if_it_were_its_own() {
    let words = ["eprintln!(", "eprint!(", "stderr()"];
    let mut careless = Vec::new();
    for (path, text) in sources(&["rs"]).filter(|(path, _)| path.starts_with("shim")) {
        let code = text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
        let found = code.filter(|(_, line)| words.iter().any(|word| line.contains(word)));
        careless.extend(found.map(|(index, line)| format!("{}:{}: {line}", path.display(), index + 1)));
    }
    assert!(careless.is_empty(), "these may end an application, or wait for its reader:\n{}", careless.join("\n"));
}

#[test]
fn modules_with_unsafe_say_why() {
    let mut silent = Vec::new();
    for (path, text) in sources(&["rs"]) {
        let code = || text.lines().map(str::trim_start).filter(|line| !line.starts_with("//"));
        let uses = code().any(|line| {
            ["unsafe {", "unsafe impl", "unsafe fn"].iter().any(|word| line.contains(word)) && !line.contains("extern")
        });
        // Unit tests may live with the module's reason, integration tests and examples with their SAFETY comments.
        let exempt = path.components().any(|c| ["tests", "examples", "benches"].iter().any(|d| c.as_os_str() == *d));
        if uses && !exempt && !text.contains("UNSAFETY:") {
            silent.push(path.display().to_string());
        }
    }
    assert!(silent.is_empty(), "modules with unsafe code and no UNSAFETY comment:\n{}", silent.join("\n"));
}

#[test]
fn generated_files_say_so() {
    let mut silent = Vec::new();
    for (path, text) in all_sources(&["rs", "h"]) {
        if is_generated(&path, &text) && !says_generated(&text) {
            silent.push(path.display().to_string());
        }
    }
    assert!(silent.is_empty(), "generated files without their header line:\n{}", silent.join("\n"));
}

/// A file that no `mod` names is compiled by nobody and rots.
#[test]
fn every_module_is_imported() {
    let files: Vec<(PathBuf, String)> = all_sources(&["rs"]).collect();
    let mut lost = Vec::new();
    for (path, _) in files.iter().filter(|(path, _)| path.components().any(|c| c.as_os_str() == "src")) {
        let stem = path.file_stem().expect("a source file has a name").to_string_lossy();
        let folder = path.parent().expect("a source file lies in a folder");
        if folder.ends_with("bin") || (folder.ends_with("src") && ["lib", "main"].contains(&stem.as_ref())) {
            continue;
        }
        let name = if stem == "mod" {
            folder.file_name().expect("a module's folder has a name").to_string_lossy()
        } else {
            stem
        };
        let declared = files.iter().any(|(_, text)| {
            text.contains(&format!("mod {name};")) || text.contains(&format!("mod {name} {{")) || {
                let file = path.file_name().expect("a source file has a name").to_string_lossy();
                text.contains(&format!("{file}\""))
            }
        });
        if !declared {
            lost.push(path.display().to_string());
        }
    }
    assert!(lost.is_empty(), "files that no mod names:\n{}", lost.join("\n"));
}

/// Only the worker may open the real driver, and the two sides share no crate but the wire and the ring.
#[test]
fn the_toolchain_is_pinned() {
    let value = |file: &str, key: &str| {
        let text = std::fs::read_to_string(root().join(file)).expect("a file of the repository");
        let line = text.lines().find_map(|line| line.strip_prefix(key)).expect("it says so");
        line.trim_matches(['"', ' ', '=']).to_owned()
    };
    let (pinned, least) = (value("rust-toolchain.toml", "channel"), value("Cargo.toml", "rust-version"));
    assert_eq!(pinned.split('.').count(), 3, "{pinned} is not one version");
    assert!(pinned.starts_with(&format!("{least}.")), "{pinned} is pinned, {least} is asked for");
}

#[test]
fn the_shim_and_oriond_do_not_depend_on_each_other() {
    let manifest = |path: &str| std::fs::read_to_string(root().join(path)).expect("the crate has a manifest");
    let shim = manifest("shim/Cargo.toml");
    for crate_name in ["oriond", "orion-soft", "libloading", "io-uring", "tokio", "tracing"] {
        assert!(!shim.contains(&format!("\n{crate_name}")), "the shim depends on {crate_name}");
    }
    assert!(!manifest("dataplane/oriond/Cargo.toml").contains("\norion-shim"), "oriond depends on the shim");
}

/// Whoever wants to know something of a carrier asks for it. But for addresses and what people read (messages,
/// comments), a carrier's name stands in its own folder.
#[test]
fn carriers_are_named_in_their_folders_only() {
    let names = ["shm", "tcp", "rdma", "ivshmem", "vsock", "doorbell"];
    let mut named = Vec::new();
    let mut seen = 0;
    for (path, text) in all_sources(&["rs"]) {
        let rooms = ["shim/src", "dataplane/oriond/src", "dataplane/ring/src", "dataplane/transport/src"];
        let in_its_folder = path.components().any(|c| c.as_os_str() == "carrier");
        if !rooms.iter().any(|room| path.starts_with(room)) || in_its_folder {
            seen += usize::from(in_its_folder);
            continue;
        }
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
            if names.iter().any(|n| line.contains(&format!("\"{n}\"")) || line.contains(&format!("{n}::"))) {
                named.push(format!("{}:{}: {}", path.display(), index + 1, line.trim()));
            }
        }
    }
    assert!(seen > 10, "files of carriers: {seen}");
    assert!(named.is_empty(), "carriers named outside their folders:\n{}", named.join("\n"));
}

/// Beside a capture the driver must be asked in another mode: `Captures::ask_event` and `ask_stream` see to that. The
/// trial of preemption is over before there is a client.
#[test]
fn the_worker_asks_the_driver_about_events_and_streams_in_one_place() {
    let worker = Path::new("dataplane/oriond/src/worker");
    let allowed = ["state/captures.rs", "calls/event.rs", "calls/stream.rs", "driver/preemption.rs"]
        .map(|file| worker.join(file));
    let asks = |text: &str| ["river.cuEventQuery(", "river.cuStreamQuery("].iter().any(|call| text.contains(call));
    let asking: Vec<PathBuf> =
        sources(&["rs"]).filter(|(path, text)| path.starts_with(worker) && asks(text)).map(|(path, _)| path).collect();
    assert!(asking.iter().all(|path| allowed.contains(path)), "{asking:?}");
    assert_eq!(asking.len(), allowed.len(), "{asking:?}");
}

/// A promise is worth the test that keeps it: each row of SPECIFICATION.md names one that exists.
#[test]
fn every_promise_names_a_test_that_exists() {
    let promises = std::fs::read_to_string(root().join("SPECIFICATION.md")).expect("SPECIFICATION.md exists");
    let code: Vec<String> = all_sources(&["rs"]).map(|(_, text)| text).collect();
    let mut missing = Vec::new();
    let mut rows = 0;
    for line in promises
        .lines()
        .filter(|line| line.starts_with("| ") && !["| Promise", "| ---"].iter().any(|head| line.starts_with(head)))
    {
        let tests = line.trim_end_matches('|').rsplit('|').next().unwrap_or("");
        let names: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        rows += 1;
        if names.is_empty() {
            missing.push(format!("no test: {line}"));
        }
        for name in names {
            let function = name.rsplit("::").next().unwrap_or(name);
            let exists = match name.ends_with(".cu") {
                true => root().join("dataplane/conformance/cuda").join(name).is_file(),
                false => code.iter().any(|text| text.contains(&format!("fn {function}("))),
            };
            if !exists {
                missing.push(format!("{name} does not exist: {line}"));
            }
        }
    }
    assert!(rows > 0, "SPECIFICATION.md promises nothing");
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// Links between documents lead somewhere, and sources that a document names are there.
#[test]
fn what_documents_name_exists() {
    let files: Vec<PathBuf> = all_sources(&["rs", "md"]).map(|(path, _)| path).collect();
    let (mut seen, mut lost) = (0, Vec::new());
    for (path, text) in all_sources(&["md"]) {
        // Reports tell of the tree as it was.
        if path.starts_with("perf/reports") || path.ends_with("CHANGELOG.md") {
            continue;
        }
        let folder = path.parent().unwrap_or(Path::new(""));
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().unwrap_or_default();
            if !target.is_empty() && !target.contains("://") && !root().join(folder).join(target).exists() {
                lost.push(format!("{}: a link to {target}", path.display()));
            }
        }
        let named =
            text.split('`').skip(1).step_by(2).filter(|word| word.ends_with(".rs") && !word.contains(['*', ' ']));
        for name in named.filter(|name| !name.starts_with("cu") && name.contains('/')) {
            seen += 1;
            if !files.iter().any(|file| file.ends_with(name)) {
                lost.push(format!("{}: {name}", path.display()));
            }
        }
    }
    assert!(seen > 20, "sources that documents name: {seen}");
    assert!(lost.is_empty(), "documents name what is not there:\n{}", lost.join("\n"));
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate lies two folders down")
}

fn is_generated(path: &Path, text: &str) -> bool {
    path.components().any(|c| c.as_os_str() == "generated") || says_generated(text)
}

fn says_generated(text: &str) -> bool {
    text.lines().take(3).any(|line| line.contains("do not edit") || line.contains("automatically generated"))
}

/// The sources people write, with their text.
fn sources(endings: &'static [&'static str]) -> impl Iterator<Item = (PathBuf, String)> {
    all_sources(endings).filter(|(path, text)| !is_generated(path, text))
}

/// Every file git knows or would add, by its path from the root.
fn all_sources(endings: &'static [&'static str]) -> impl Iterator<Item = (PathBuf, String)> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git lists the files");
    assert!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).expect("the repository's paths are UTF-8");
    let paths: Vec<PathBuf> = names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).collect();
    paths
        .into_iter()
        .filter(|path| path.extension().is_some_and(|e| endings.iter().any(|ending| e == *ending)))
        // A file removed from the folder but not yet from git's index has no text to judge.
        .filter_map(|path| std::fs::read_to_string(root().join(&path)).ok().map(|text| (path, text)))
}
