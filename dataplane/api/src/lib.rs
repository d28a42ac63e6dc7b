//! The table of the driver API, and everything that is generated from it. README.md has the vocabulary.

pub mod cbids;
pub mod check;
pub mod emit;
pub mod format;
pub mod header;
pub mod nvml;
pub mod place;
pub mod rows;
pub mod table;

use std::path::PathBuf;

use cbids::Cbids;
use header::Header;
pub use place::root;
use rows::Pending;
pub use table::{Api, Generated};

pub fn load() -> Result<Api, String> {
    let root = root();
    let read = |path: &str| {
        std::fs::read_to_string(root.join(path)).map_err(|e| format!("reading {path}: {e}; run from a full checkout"))
    };
    let header = Header::parse(&read("dataplane/cuda/src/sys.rs")?)?;
    let mut files: Vec<PathBuf> = std::fs::read_dir(root.join("dataplane/api/rows"))
        .map_err(|e| format!("listing dataplane/api/rows: {e}"))?
        .filter_map(|entry| entry.ok().map(|e| e.path()))
        .filter(|p| p.extension().is_some_and(|e| e == "rs"))
        .collect();
    files.sort();
    let mut rows = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).map_err(|e| format!("reading {}: {e}", file.display()))?;
        let group = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        rows.extend(rows::parse(&group, &text, &header)?);
    }
    let pending = Pending::parse(&read("dataplane/api/pending.txt")?)?;
    let exports = read("dataplane/api/data/exports-580.txt")?.lines().map(str::to_owned).collect();
    let api = Api { header, rows, pending, exports, cbids: Cbids::load()?, nvml: nvml::load()? };
    check::check(&api)?;
    Ok(api)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn generated_files_are_up_to_date() {
        let api = load().expect("the table is consistent");
        for file in emit::all(&api).expect("rustfmt runs") {
            let on_disk = std::fs::read_to_string(root().join(file.path)).unwrap_or_default();
            assert!(on_disk == file.text, "{} is stale: run `cargo api`", file.path);
        }
    }

    #[test]
    fn nothing_is_pending() {
        let api = load().expect("the table is consistent");
        let missing: Vec<_> = api.pending.client.iter().chain(&api.pending.worker).collect();
        assert!(missing.is_empty(), "rows without code behind them: {missing:?}");
    }

    /// The rows' `since`, `_vN` and `per_thread` give the same answers as the real driver's cuGetProcAddress,
    /// whose table for CUDA 13.0 was compared with driver 580 name by name.
    #[test]
    fn proc_address_table_is_the_drivers() {
        let api = load().expect("the table is consistent");
        let expected = std::fs::read_to_string(root().join("dataplane/api/data/proc-address-13000.csv")).expect("data");
        let mut ours: Vec<String> = emit::proc_address::entries(&api)
            .iter()
            .map(|e| format!("{},{},{},{}", e.public, if e.per_thread { 2 } else { 0 }, e.since, e.symbol))
            .collect();
        ours.sort();
        let mut theirs: Vec<String> = expected.lines().map(str::to_owned).collect();
        theirs.sort();
        for line in &theirs {
            assert!(ours.contains(line), "the driver has {line}");
        }
        for line in &ours {
            assert!(theirs.contains(line), "the driver does not have {line}");
        }
    }

    /// The worker's hand-written code calls the driver with an address, or with a copy that holds addresses, only as
    /// `session/reach.rs` has decided on it: the argument ends in `.raw()`.
    #[test]
    fn handlers_give_the_driver_only_decided_addresses() {
        // A wish, an address that the driver has just given out, a word of the worker's own behind a copy, and nodes,
        // whose parameters are decoded into decided ones.
        let others = [
            ("cuMemAddressReserve", "hint"),
            ("cuMemFreeAsync", "address"),
            ("cuMemGetAddressRange_v2", "base"),
            ("cuStreamWriteValue32_v2", "w.on_device"),
            ("cuGraphAddMemcpyNode", "$($argument"),
            ("cuGraphMemcpyNodeSetParams", "$argument"),
            ("cuGraphExecMemcpyNodeSetParams", "$($argument"),
        ];
        let api = load().expect("the table is consistent");
        let (mut seen, mut raw) = (0, Vec::new());
        for (path, text) in sources(&root().join("dataplane/oriond/src/worker")) {
            // Where it is decided, and a word that a worker takes for itself before it has a client.
            if path.ends_with("session/reach.rs") || path.ends_with("driver/preemption.rs") {
                continue;
            }
            for function in &api.header.functions {
                let call = format!(".{}(", function.name);
                for (at, _) in text.match_indices(&call) {
                    let arguments = arguments(&text[at + call.len()..]);
                    for ((_, ty), argument) in function.params.iter().zip(&arguments) {
                        let holds = match ty {
                            header::Type::Name(name) => name == "CUdeviceptr",
                            header::Type::Pointer { mutable, to } => !mutable && to.name() == Some("CUDA_MEMCPY3D"),
                        };
                        if !holds {
                            continue;
                        }
                        seen += 1;
                        let known = others.iter().any(|(f, a)| *f == function.name && argument.starts_with(a));
                        if !argument.ends_with(".raw()") && !known {
                            raw.push(format!("{}: {}: {argument}", path.display(), function.name));
                        }
                    }
                }
            }
        }
        assert!(seen > 10, "calls of the driver with addresses: {seen}");
        assert!(raw.is_empty(), "addresses that nobody has decided on:\n{}", raw.join("\n"));
    }

    /// What takes device memory is called where that is charged, and rows that take some say so.
    #[test]
    fn drivers_memory_is_charged() {
        // `add` of graph nodes and `take` of pools do it for several functions.
        let charging = ["allocating", "creating(", "taking(", "launching(", "limiting(", "making_context(", ".charge("]
            .into_iter()
            .chain(["take(s, ", "add(s, "])
            // A vGPU's first context is its placement's, as any device's is, and what a worker tries before it has a
            // client is free again by then.
            .chain(["fn own_context(", "fn begin(driver: &Driver) -> Result<Trial"])
            .collect::<Vec<_>>();
        let api = load().expect("the table is consistent");
        let taking: Vec<&str> = api.rows.iter().filter(|r| r.charges.is_some()).map(|r| r.name.as_str()).collect();
        for name in ["cuMemAlloc_v2", "cuMemCreate", "cuMemAllocAsync", "cuArrayCreate_v2", "cuModuleLoadDataEx"] {
            assert!(taking.contains(&name), "{name} says nothing of what it charges");
        }
        let (mut seen, mut free) = (0, Vec::new());
        for (path, text) in sources(&root().join("dataplane/oriond/src/worker")) {
            for name in &taking {
                for (at, _) in text.match_indices(&format!(".{name}(")) {
                    seen += 1;
                    let before: Vec<&str> = text[..at].lines().rev().take(24).collect();
                    let function = before.iter().position(|line| {
                        line.trim_start().starts_with("pub fn") || line.trim_start().starts_with("fn")
                    });
                    let own = &before[..function.map_or(before.len(), |at| at + 1)];
                    if !own.iter().any(|line| charging.iter().any(|word| line.contains(word))) {
                        free.push(format!("{}: {name}", path.display()));
                    }
                }
            }
        }
        assert!(seen > 10, "calls that take device memory: {seen}");
        assert!(free.is_empty(), "device memory that nobody charges:\n{}", free.join("\n"));
    }

    fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
        let entries = std::fs::read_dir(folder).expect("a folder of sources").map(|e| e.expect("an entry").path());
        let read = |path: PathBuf| match path.is_dir() {
            true => sources(&path),
            false => vec![(path.clone(), std::fs::read_to_string(&path).expect("a source"))],
        };
        entries.flat_map(read).collect()
    }

    /// The arguments of a call, from behind its opening parenthesis.
    fn arguments(text: &str) -> Vec<String> {
        let (mut depth, mut all, mut one) = (0, Vec::new(), String::new());
        for c in text.chars() {
            match c {
                ')' if depth == 0 => break,
                ',' if depth == 0 => all.push(std::mem::take(&mut one)),
                '(' | '[' | '{' => depth += 1,
                ')' | ']' | '}' => depth -= 1,
                _ => {}
            }
            if c != ',' || depth > 0 {
                one.push(c);
            }
        }
        all.push(one);
        all.iter().map(|a| a.trim().to_owned()).filter(|a| !a.is_empty()).collect()
    }
}
