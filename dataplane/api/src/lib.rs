//! The table of the driver API, and everything that is generated from it. README.md has the vocabulary.

pub mod cbids;
pub mod check;
pub mod emit;
pub mod header;
pub mod rows;

use std::path::{Path, PathBuf};

use cbids::Cbids;
use header::Header;
use rows::{Pending, Row};

/// The table with what it is checked against.
pub struct Api {
    pub header: Header,
    pub rows: Vec<Row>,
    pub pending: Pending,
    /// Symbols that the real `libcuda.so.1` exports.
    pub exports: Vec<String>,
    pub cbids: Cbids,
}

/// A generated file, relative to the repository's root.
pub struct Generated {
    pub path: &'static str,
    pub text: String,
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

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
    let api = Api { header, rows, pending, exports, cbids: Cbids::load()? };
    check::check(&api)?;
    Ok(api)
}

impl Api {
    pub fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|r| r.name == name)
    }

    /// The id under which a row's work reaches the worker, following aliases.
    pub fn op(&self, row: &Row) -> Option<u16> {
        match &row.answered {
            rows::Answered::Alias(target) => self.row(target).and_then(|r| self.op(r)),
            _ => row.id,
        }
    }
}

#[cfg(test)]
mod tests {
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
}
