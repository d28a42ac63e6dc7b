//! What processes use: this one, and those that were started beside it.

use std::collections::HashMap;
use std::fmt;
use std::fs;

/// Memory of each process at one moment.
pub struct Watch {
    kib: HashMap<u32, i64>,
}

impl Watch {
    pub fn new() -> Watch {
        Watch { kib: processes().into_iter().filter_map(|pid| Some((pid, resident_kib(pid)?))).collect() }
    }

    pub fn growth(&self) -> Growth {
        let now = Watch::new();
        let own = std::process::id();
        let grown = |pid: &u32| Some(now.kib.get(pid)? - self.kib.get(pid)?);
        Growth { own: grown(&own).unwrap_or(0), beside: self.kib.keys().filter(|p| **p != own).filter_map(grown).max() }
    }
}

pub struct Growth {
    own: i64,
    /// Of the process beside this one that grew most.
    beside: Option<i64>,
}

impl Growth {
    pub fn most_kib(&self) -> i64 {
        self.own.max(self.beside.unwrap_or(0))
    }
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "grew {} KiB", self.own)?;
        match self.beside {
            Some(beside) => write!(f, ", a process beside it {beside} KiB"),
            None => Ok(()),
        }
    }
}

/// This process, its parent's other children, and theirs.
fn processes() -> Vec<u32> {
    let own = std::process::id();
    let parent = std::os::unix::process::parent_id();
    let Ok(entries) = fs::read_dir("/proc") else { return vec![own] };
    let all = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let parents: HashMap<u32, u32> = all.filter_map(|pid| Some((pid, parent_of(pid)?))).collect();
    let is_below = |mut pid: u32| {
        for _ in 0..16 {
            match parents.get(&pid) {
                Some(p) if *p == parent && parent > 1 => return true,
                Some(p) => pid = *p,
                None => return false,
            }
        }
        false
    };
    let mut found: Vec<u32> = parents.keys().copied().filter(|pid| is_below(*pid)).collect();
    if !found.contains(&own) {
        found.push(own);
    }
    found
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name, in brackets, may hold any bytes.
    String::from_utf8_lossy(&stat).rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Its own memory. Files are the system's business, and shared memory fills up to its size as rings come around.
fn resident_kib(pid: u32) -> Option<i64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<i64>().ok()
    };
    field("RssAnon:")
}
