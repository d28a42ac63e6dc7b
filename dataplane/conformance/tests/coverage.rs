//! Of the PTX kernels in the wheels that people install, the software GPU runs as many as it did, or more.
//!
//! `frameworks/coverage.txt` says how many of a sample; the kernels stay in the wheels.

use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "../../soft/examples/coverage.rs"]
mod survey;

const SAMPLE: usize = 2000;
const SEED: u64 = 1;
const FLOOR: &str = include_str!("../frameworks/coverage.txt");

fn frameworks() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("cuda-toolchain.sh");
    let output = Command::new(script).arg("frameworks").output().expect("cuda-toolchain.sh starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "TensorFlow and JAX cannot be installed: {said}");
    String::from_utf8_lossy(&output.stdout).trim_end().into()
}

/// A library, how many of its kernels are in the sample, and how many of these decode at least.
fn floor() -> Vec<(&'static str, usize, usize)> {
    let lines = FLOOR.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let number = |n: &str| n.parse().unwrap_or_else(|_| panic!("coverage.txt: {n} is no number"));
            match line.split_whitespace().collect::<Vec<_>>().as_slice() {
                &[library, taken, decoded] => (library, number(taken), number(decoded)),
                _ => panic!("coverage.txt: {line} is not a library and two numbers"),
            }
        })
        .collect()
}

/// The file of a library, of whose name `*` is what Python's version says.
fn file(folder: &Path, library: &str) -> PathBuf {
    let Some((start, end)) = library.split_once('*') else { return folder.join(library) };
    let (parent, start) = start.rsplit_once('/').unwrap_or((".", start));
    let fits = |name: &str| name.strip_prefix(start).is_some_and(|rest| rest.ends_with(end));
    let files = std::fs::read_dir(folder.join(parent)).unwrap_or_else(|e| panic!("{library}: {e}"));
    let mut names = files.filter_map(|f| f.ok()?.file_name().into_string().ok());
    let name = names.find(|name| fits(name)).unwrap_or_else(|| panic!("{library} is not in {}", folder.display()));
    folder.join(parent).join(name)
}

#[test]
fn no_fewer_kernels_of_the_wheels_decode_than_before() {
    let (folder, floor) = (frameworks(), floor());
    let libraries: Vec<PathBuf> = floor.iter().map(|(library, ..)| file(&folder, library)).collect();
    let counts = survey::survey(&libraries, Some((SAMPLE, SEED)));
    let (mut table, mut reasons) = (String::new(), String::new());
    for ((library, ..), count) in floor.iter().zip(&counts) {
        table += &format!("{library} {} {}\n", count.kernels, count.decoded);
        for (why, kernels) in &count.refused {
            reasons += &format!("{library}: {why}: {}\n", kernels.join(", "));
        }
    }
    let say = |what: &str| format!("{what}; this is frameworks/coverage.txt now:\n{table}\nrefused:\n{reasons}");
    let same_wheels = floor.iter().zip(&counts).all(|((_, taken, _), count)| count.kernels == *taken);
    assert!(same_wheels, "{}", say("the sample is another one, so the wheels or the list of libraries have changed"));
    let no_fewer = floor.iter().zip(&counts).all(|((.., decoded), count)| count.decoded >= *decoded);
    assert!(no_fewer, "{}", say("fewer kernels of a library decode"));
    if floor.iter().zip(&counts).any(|((.., decoded), count)| count.decoded > *decoded) {
        println!("{}", say("more kernels decode, so raise the numbers"));
    }
}
