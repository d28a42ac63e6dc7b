//! Instructions of each hot function, counted by valgrind: a number that neither neighbours nor the clock change.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::place::{Oriond, Pieces};
use crate::task::{Running, Task};
use crate::workload::stub::SYMBOLS;

const CALLS: u32 = 1000;

/// The committed counts; another compiler may give others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    pub compiler: String,
    pub instructions_per_call: BTreeMap<String, f64>,
}

pub fn baseline_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions.json")
}

/// `None` where there is no valgrind.
pub fn count(pieces: &Pieces) -> Result<Option<Baseline>, String> {
    if !Command::new("valgrind").arg("--version").output().is_ok_and(|o| o.status.success()) {
        return Ok(None);
    }
    let folder = std::env::temp_dir().join(format!("orion-bench-callgrind-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|e| format!("creating {} failed: {e}", folder.display()))?;
    let counted = count_in(pieces, &folder);
    let _ = std::fs::remove_dir_all(&folder);
    let compiler = Command::new("rustc").arg("--version").output();
    let compiler = compiler.map_or_else(|_| "unknown".into(), |o| String::from_utf8_lossy(&o.stdout).trim().into());
    Ok(Some(Baseline { compiler, instructions_per_call: counted? }))
}

fn count_in(pieces: &Pieces, folder: &Path) -> Result<BTreeMap<String, f64>, String> {
    // Not the real driver: valgrind is slow, and the count is of the calling side only. A small heap finds a place in
    // valgrind's address space.
    let oriond = Oriond::start(pieces, "soft", &["--warm", "1", "--heap", "1 GiB"])?;
    let out = folder.join("out");
    let mut valgrind = vec![
        "valgrind".to_owned(),
        "--quiet".into(),
        "--tool=callgrind".into(),
        format!("--callgrind-out-file={}", out.display()),
    ];
    // Counting begins at the function's first instruction and ends when it returns.
    valgrind.extend(SYMBOLS.map(|symbol| format!("--toggle-collect={symbol}")));
    let task = Task::Instructions { library: pieces.shim.clone(), calls: CALLS };
    let mut child = Running::start_under(&valgrind, &task, Some(&oriond.address("shm")?))?;
    child.go()?;
    child.samples()?;
    drop(child);
    let mut counts = BTreeMap::new();
    let files = std::fs::read_dir(folder).map_err(|e| format!("reading {} failed: {e}", folder.display()))?;
    for file in files.filter_map(Result::ok) {
        let text = std::fs::read_to_string(file.path()).unwrap_or_default();
        if let Some((symbol, total)) = parse(&text) {
            counts.insert(symbol, total as f64 / f64::from(CALLS));
        }
    }
    match SYMBOLS.iter().find(|symbol| !counts.contains_key(**symbol)) {
        Some(symbol) => Err(format!("valgrind counted nothing for {symbol}")),
        None => Ok(counts),
    }
}

/// The name a dump was asked for with, and its total.
fn parse(text: &str) -> Option<(String, u64)> {
    let name = text.lines().find_map(|line| line.strip_prefix("desc: Trigger: Client Request: "))?;
    let total = text.lines().find_map(|line| line.strip_prefix("totals: ").or(line.strip_prefix("summary: ")))?;
    Some((name.trim().to_owned(), total.trim().parse().ok()?))
}

/// One line for each function that differs by more than `tolerance` from the baseline.
pub fn differences(baseline: &Baseline, now: &Baseline, tolerance: f64) -> Vec<String> {
    let mut lines = Vec::new();
    for (symbol, before) in &baseline.instructions_per_call {
        let Some(after) = now.instructions_per_call.get(symbol) else {
            lines.push(format!("{symbol}: no longer counted"));
            continue;
        };
        if (after / before - 1.0).abs() > tolerance {
            lines.push(format!(
                "{symbol}: {before:.1} before, {after:.1} now ({:+.1} %)",
                (after / before - 1.0) * 100.0
            ));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(value: f64) -> Baseline {
        Baseline { compiler: "c".into(), instructions_per_call: BTreeMap::from([("cuInit".into(), value)]) }
    }

    #[test]
    fn dumps_are_read() {
        let text = "version: 1\ndesc: Trigger: Client Request: cuCtxGetDevice\n\nevents: Ir\nsummary: 42000\n";
        assert_eq!(parse(text), Some(("cuCtxGetDevice".into(), 42_000)));
        assert_eq!(parse("desc: Trigger: Program termination\ntotals: 3\n"), None);
    }

    #[test]
    fn differences_beyond_the_tolerance_are_named() {
        assert!(differences(&counts(100.0), &counts(101.0), 0.02).is_empty());
        assert_eq!(differences(&counts(100.0), &counts(110.0), 0.02), ["cuInit: 100.0 before, 110.0 now (+10.0 %)"]);
        assert_eq!(differences(&counts(100.0), &counts(90.0), 0.02).len(), 1);
    }
}
