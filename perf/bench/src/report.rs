//! Results as a file: what was measured, on which machine, at which commit.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::timing::{Buckets, Percentiles, Times, median};

const FORMAT: u32 = 1;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// Raised when the file changes shape.
    pub format: u32,
    pub date: String,
    pub command: String,
    pub commit: String,
    pub machine: Machine,
    pub results: Vec<Measured>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub cpu: String,
    pub cores: usize,
    pub kernel: String,
    /// Runnable processes of others before the run, as a one-minute mean: they share the cores.
    pub load: f64,
    pub driver: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    Lower,
    Higher,
}

/// One figure of a report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    pub workload: String,
    pub case: String,
    pub unit: String,
    pub better: Better,
    /// The median of the repeats.
    pub value: f64,
    pub repeats: Vec<f64>,
    /// Of all repeats together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percentiles: Option<Percentiles>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub details: BTreeMap<String, f64>,
}

/// One figure of one repeat, as a child process reports it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sample {
    pub case: String,
    pub unit: String,
    pub better: Better,
    pub value: f64,
    #[serde(default)]
    pub histogram: Buckets,
    #[serde(default)]
    pub details: BTreeMap<String, f64>,
}

impl Sample {
    pub fn new(case: impl Into<String>, unit: &str, better: Better, value: f64) -> Sample {
        Sample { case: case.into(), unit: unit.into(), better, value, histogram: Vec::new(), details: BTreeMap::new() }
    }

    /// The median of `times` in `unit`, and their histogram.
    pub fn of_times(case: impl Into<String>, unit: &str, times: &Times) -> Sample {
        let divisor = if unit == "us" { 1e3 } else { 1.0 };
        let value = times.quantile_ns(0.5) / divisor;
        Sample { histogram: times.buckets(), ..Sample::new(case, unit, Better::Lower, value) }
    }

    pub fn detail(mut self, name: &str, value: f64) -> Sample {
        self.details.insert(name.into(), value);
        self
    }
}

/// Turns the samples of several repeats into figures, in the order of the first repeat.
pub fn merge(workload: &str, repeats: &[Vec<Sample>]) -> Vec<Measured> {
    let Some(first) = repeats.first() else { return Vec::new() };
    let measured = first.iter().map(|sample| {
        let same: Vec<&Sample> = repeats.iter().flatten().filter(|s| s.case == sample.case).collect();
        let values: Vec<f64> = same.iter().map(|s| s.value).collect();
        let mut times = Times::new();
        same.iter().for_each(|s| times.add(&Times::from_buckets(&s.histogram)));
        let details = sample.details.keys().map(|name| {
            let all: Vec<f64> = same.iter().filter_map(|s| s.details.get(name).copied()).collect();
            (name.clone(), median(&all))
        });
        Measured {
            workload: workload.into(),
            case: sample.case.clone(),
            unit: sample.unit.clone(),
            better: sample.better,
            value: median(&values),
            repeats: values,
            percentiles: times.percentiles(),
            details: details.collect(),
        }
    });
    measured.collect()
}

impl Report {
    pub fn new(driver: &str) -> Report {
        Report {
            format: FORMAT,
            date: date(),
            command: std::env::args().collect::<Vec<_>>().join(" "),
            commit: commit(),
            machine: Machine::here(driver),
            results: Vec::new(),
        }
    }

    pub fn read(path: &Path) -> Result<Report, String> {
        let text = std::fs::read_to_string(path).map_err(|e| format!("reading {} failed: {e}", path.display()))?;
        let report: Report =
            serde_json::from_str(&text).map_err(|e| format!("{} is no report: {e}", path.display()))?;
        if report.format != FORMAT {
            return Err(format!("{} has format {}, this program reads {FORMAT}", path.display(), report.format));
        }
        Ok(report)
    }

    pub fn write(&self, path: &Path) -> Result<(), String> {
        let text = serde_json::to_string_pretty(self).expect("a report is plain data");
        std::fs::write(path, text + "\n").map_err(|e| format!("writing {} failed: {e}", path.display()))
    }

    /// One line that says where and when.
    pub fn origin(&self) -> String {
        let m = &self.machine;
        format!(
            "{}, {} cores, Linux {}, driver {}, load {:.2}, commit {}, {}",
            m.cpu, m.cores, m.kernel, m.driver, m.load, self.commit, self.date
        )
    }
}

impl Machine {
    pub fn here(driver: &str) -> Machine {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let cpu = cpuinfo.lines().find_map(|l| l.strip_prefix("model name")).unwrap_or("unknown");
        Machine {
            cpu: cpu.trim_start_matches(['\t', ' ', ':']).into(),
            cores: std::thread::available_parallelism().map_or(1, |n| n.get()),
            kernel: read("/proc/sys/kernel/osrelease").trim().into(),
            load: read("/proc/loadavg").split_whitespace().next().and_then(|w| w.parse().ok()).unwrap_or(0.0),
            driver: driver.into(),
        }
    }
}

/// The commit of the checkout this program was built from, with `-dirty` if files differ from it.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(["-C", env!("CARGO_MANIFEST_DIR")]).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(head) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown".into() };
    match git(&["status", "--porcelain", "--untracked-files=no"]) {
        Some(changes) if !changes.is_empty() => head + "-dirty",
        _ => head,
    }
}

/// Now, as `2026-11-21T08:00:00Z`.
fn date() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let (days, second) = (now / 86_400, now % 86_400);
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// Year, month and day of a day counted from 1970-01-01.
fn civil(days: u64) -> (u64, u64, u64) {
    let leap = |y: u64| y.is_multiple_of(4) && (!y.is_multiple_of(100) || y.is_multiple_of(400));
    let (mut year, mut left) = (1970, days);
    while left >= 365 + u64::from(leap(year)) {
        left -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while left >= lengths[month] {
        left -= lengths[month];
        month += 1;
    }
    (year, month as u64 + 1, left + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(20_778), (2026, 11, 21));
    }

    #[test]
    fn repeats_become_one_figure_each() {
        let repeat = |value| vec![Sample::new("a", "ns", Better::Lower, value).detail("cpu", value * 2.0)];
        let merged = merge("w", &[repeat(3.0), repeat(1.0), repeat(2.0)]);
        assert_eq!((merged.len(), merged[0].value, merged[0].details["cpu"]), (1, 2.0, 4.0));
        assert_eq!(merged[0].repeats, [3.0, 1.0, 2.0]);
    }
}
