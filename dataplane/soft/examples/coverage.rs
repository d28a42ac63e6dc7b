//! How many kernels of PTX files, and of the fat binaries in shared objects, the software GPU runs, and why not the
//! others.
//!
//! `cargo run --release -p orion-soft --example coverage -- [--sample N] [--seed S] [--kernels] FILE…`
//!
//! Of a fat binary the newest PTX counts. `--sample` takes N kernels of all files at random, the same ones for the
//! same files and seed, and reads only the modules that they are in. `--kernels` lists every refused kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use orion_soft::image;
use orion_soft::ptx::decode::program::decode;
use orion_soft::ptx::{check, parse};

/// What became of the kernels of one file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Count {
    pub kernels: usize,
    pub decoded: usize,
    /// Why kernels were refused, without the place, and those kernels.
    pub refused: BTreeMap<String, Vec<String>>,
}

/// Calls `f` with the PTX of a file and its number: its text, or the newest of each fat binary in it. Only those that
/// are `wanted` are unpacked.
fn each_module(file: &Path, wanted: impl Fn(usize) -> bool, mut f: impl FnMut(usize, &str)) {
    let bytes = std::fs::read(file).unwrap_or_else(|e| panic!("reading {}: {e}", file.display()));
    if file.extension().is_some_and(|e| e == "ptx") {
        return f(0, str::from_utf8(&bytes).unwrap_or_else(|e| panic!("{}: {e}", file.display())));
    }
    for (n, fat_binary) in image::fat_binaries_in(&bytes).enumerate().filter(|(n, _)| wanted(*n)) {
        if let Some(text) = image::newest_ptx(fat_binary).unwrap_or_else(|e| panic!("{}: {e}", file.display())) {
            f(n, &text);
        }
    }
}

/// Names of the kernels in a text, which need not be read for it.
fn kernels(text: &str) -> impl Iterator<Item = &str> {
    let name = |rest: &str| rest.find(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | '$' | '%'));
    text.split(".entry").skip(1).filter_map(move |rest| {
        let rest = rest.trim_start();
        rest.get(..name(rest)?).filter(|n| !n.is_empty())
    })
}

/// The kernels of a module, those in `chosen` if that is given, with what is wrong with them.
fn decoded(text: &str, chosen: Option<&BTreeSet<String>>) -> Result<Vec<(String, Option<String>)>, String> {
    let mut module = parse::parse(text)?;
    check::check(&module)?;
    module.functions.retain(|f| !f.is_entry || chosen.is_none_or(|c| c.contains(&f.name)));
    let globals = module.variables.iter().map(|v| (v.name.clone(), 4096)).collect();
    let program = decode(&module, &globals);
    Ok(program.funcs.into_iter().filter(|f| f.is_entry).map(|f| (f.name, f.unsupported)).collect())
}

impl Count {
    /// Takes in the kernels of a module, those in `chosen` if that is given.
    fn add(&mut self, text: &str, chosen: Option<&BTreeSet<String>>) {
        let unread = |e: String| kernels(text).map(|k| (k.to_string(), Some(e.clone()))).collect();
        let all = decoded(text, chosen).unwrap_or_else(unread);
        for (name, why) in all.into_iter().filter(|(name, _)| chosen.is_none_or(|c| c.contains(name))) {
            self.kernels += 1;
            match why {
                None => self.decoded += 1,
                Some(why) => self.refused.entry(without_place(&why)).or_default().push(name),
            }
        }
    }
}

fn without_place(why: &str) -> String {
    why.split_once(" (PTX line").map_or(why, |(what, _)| what).into()
}

/// A generator that gives the same numbers everywhere (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(z ^ (z >> 31)) * n as u128) >> 64) as usize
    }
}

/// All kernels of the files, or `sample` of them at random, by file.
pub fn survey(files: &[PathBuf], sample: Option<(usize, u64)>) -> Vec<Count> {
    let Some((wanted, seed)) = sample else {
        return each(files, |_, file| {
            let mut count = Count::default();
            each_module(file, |_| true, |_, text| count.add(text, None));
            count
        });
    };
    let names = each(files, |_, file| {
        let mut names: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        each_module(file, |_| true, |n, text| drop(names.insert(n, kernels(text).map(str::to_string).collect())));
        names
    });
    let chosen = choose(&names, wanted, seed);
    each(files, |i, file| {
        let mut count = Count::default();
        if let Some(chosen) = chosen.get(&i) {
            each_module(file, |n| chosen.contains_key(&n), |n, text| count.add(text, chosen.get(&n)));
        }
        count
    })
}

/// Of the kernels by file and module, `wanted` at random, by the numbers of their file and module.
fn choose(
    names: &[BTreeMap<usize, Vec<String>>],
    wanted: usize,
    seed: u64,
) -> BTreeMap<usize, BTreeMap<usize, BTreeSet<String>>> {
    let mut all = Vec::new();
    for (f, modules) in names.iter().enumerate() {
        for (m, kernels) in modules {
            all.extend(kernels.iter().map(|k| (f, *m, k)));
        }
    }
    let mut random = Random(seed);
    let mut chosen: BTreeMap<usize, BTreeMap<usize, BTreeSet<String>>> = BTreeMap::new();
    for i in 0..wanted.min(all.len()) {
        let other = i + random.below(all.len() - i);
        all.swap(i, other);
        let (f, m, kernel) = all[i];
        chosen.entry(f).or_default().entry(m).or_default().insert(kernel.clone());
    }
    chosen
}

/// What `f` makes of each file, on all cores. The largest go first: one of them at the end would have a core to itself.
fn each<T: Send>(files: &[PathBuf], f: impl Fn(usize, &Path) -> T + Sync) -> Vec<T> {
    let mut order: Vec<usize> = (0..files.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(std::fs::metadata(&files[i]).map_or(0, |file| file.len())));
    let next = std::sync::atomic::AtomicUsize::new(0);
    let mut done: Vec<(usize, T)> = std::thread::scope(|scope| {
        let work = || {
            let take = || order.get(next.fetch_add(1, std::sync::atomic::Ordering::SeqCst)).copied();
            std::iter::from_fn(take).map(|i| (i, f(i, &files[i]))).collect()
        };
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|t| -> Vec<_> { t.join().expect("a file is read") }).collect()
    });
    done.sort_by_key(|(i, _)| *i);
    done.into_iter().map(|(_, count)| count).collect()
}

#[allow(dead_code, reason = "a test includes this file")]
fn main() {
    let (mut files, mut wanted, mut seed, mut lists) = (Vec::new(), None, 0, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|n| n.parse().ok()).expect("a number after the option");
        match argument.as_str() {
            "--sample" => wanted = Some(number() as usize),
            "--seed" => seed = number(),
            "--kernels" => lists = true,
            file => files.push(PathBuf::from(file)),
        }
    }
    let mut total = Count::default();
    for (file, count) in files.iter().zip(survey(&files, wanted.map(|n| (n, seed)))) {
        println!("{}: {} of {} kernels decode", file.display(), count.decoded, count.kernels);
        for (why, kernels) in &count.refused {
            println!("  {} times: {why}", kernels.len());
            if lists {
                kernels.iter().for_each(|k| println!("    {k}"));
            }
        }
        total.kernels += count.kernels;
        total.decoded += count.decoded;
    }
    println!("{} of {} kernels decode", total.decoded, total.kernels);
}
