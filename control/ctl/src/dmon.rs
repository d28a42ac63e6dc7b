//! `orion-smi dmon`: a node's GPUs in the columns of `nvidia-smi dmon`, for whatever reads those.

use std::fmt::Write;

use orion_telemetry::report::{Gpu, Report};

use crate::pmon::{Columns, Stamps, letters};

/// What `nvidia-smi` shows besides, which a pooled GPU's user is not told.
const OF_THE_HOST: [(char, &str); 5] = [
    ('p', "power and temperature"),
    ('c', "clocks"),
    ('v', "power and thermal violations"),
    ('e', "errors of memory and PCIe"),
    ('t', "traffic over PCIe"),
];

/// Which columns are asked for.
///
/// # Errors
///
/// In words.
pub fn columns(text: &str) -> Result<Columns, String> {
    if let Some((letter, what)) = OF_THE_HOST.iter().find(|(letter, _)| text.contains(*letter)) {
        return Err(format!("{letter} is {what}, which nvidia-smi on the node itself knows; it is u, m or um"));
    }
    let [utilization, memory] = letters(text, ['u', 'm'])?;
    Ok(Columns { utilization, memory })
}

/// The two lines over the columns.
#[must_use]
pub fn head(columns: Columns, stamps: Stamps) -> String {
    let mut lines = [stamps.head("Date", "Time") + " gpu", stamps.head("YYYYMMDD", "HH:MM:SS") + " Idx"];
    let mut add = |name: &str, unit: &str| {
        let [names, units] = &mut lines;
        let _ = write!(names, " {name:>6}");
        let _ = write!(units, " {unit:>6}");
    };
    if columns.utilization {
        ["sm", "mem", "enc", "dec", "jpg", "ofa"].iter().for_each(|name| add(name, "%"));
    }
    if columns.memory {
        ["fb", "bar1", "ccpm"].iter().for_each(|name| add(name, "MB"));
    }
    format!("{}\n{}\n", lines[0], lines[1])
}

/// A line for each GPU; without `gpus` for all of them.
///
/// # Errors
///
/// In words, of a number that is no GPU's.
pub fn lines(report: &Report, gpus: &[u64], columns: Columns, stamp: &str) -> Result<String, String> {
    let of = |number: u64| report.gpus.iter().find(|gpu| gpu.gpu == number);
    if let Some(wrong) = gpus.iter().find(|number| !report.gpus.is_empty() && of(**number).is_none()) {
        return Err(format!("there is no GPU {wrong}: this node has {}, from 0 on", report.gpus.len()));
    }
    let mut out = String::new();
    let shown: Vec<&Gpu> = match gpus {
        [] => report.gpus.iter().collect(),
        some => some.iter().filter_map(|number| of(*number)).collect(),
    };
    shown.iter().for_each(|gpu| line(&mut out, &gpu.gpu.to_string(), gpu, columns, stamp));
    if shown.is_empty() {
        // No worker has looked for them so far.
        line(&mut out, "-", &Gpu::default(), columns, stamp);
    }
    Ok(out)
}

fn line(out: &mut String, number: &str, gpu: &Gpu, columns: Columns, stamp: &str) {
    let told = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let _ = write!(out, " {stamp}{number:>4}");
    if columns.utilization {
        let percents = [gpu.busy_percent, gpu.memory_busy_percent, None, None, None, None];
        percents.iter().for_each(|percent| {
            let _ = write!(out, " {:>6}", told(percent.map(u64::from)));
        });
    }
    if columns.memory {
        [gpu.used_bytes.map(|bytes| bytes >> 20), None, None].iter().for_each(|mib| {
            let _ = write!(out, " {:>6}", told(*mib));
        });
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Columns = Columns { utilization: true, memory: true };

    fn report() -> Report {
        let gpu = |gpu, busy_percent, used_bytes| Gpu { gpu, busy_percent, used_bytes, ..Gpu::default() };
        let known = Gpu { memory_busy_percent: Some(7), ..gpu(0, Some(100), Some(3 << 30)) };
        Report { gpus: vec![known, gpu(1, None, None)], ..Report::default() }
    }

    fn words(text: &str) -> Vec<String> {
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn a_gpu_has_a_line_and_what_is_not_known_is_a_dash() {
        let said = |gpus: &[u64], columns, stamp| lines(&report(), gpus, columns, stamp).map(|text| words(&text));
        assert_eq!(said(&[], ALL, ""), Ok(vec!["0 100 7 - - - - 3072 - -".into(), "1 - - - - - - - - -".into()]));
        let memory = Columns { utilization: false, ..ALL };
        assert_eq!(
            said(&[1, 0], memory, "08:00:00  "),
            Ok(vec!["08:00:00 1 - - -".into(), "08:00:00 0 3072 - -".into()])
        );
        let why = said(&[7], ALL, "").expect_err("there is none");
        assert!(why.contains("no GPU 7") && why.contains("has 2"), "{why}");
        assert_eq!(lines(&Report::default(), &[0], memory, ""), Ok("    -      -      -      -\n".into()));
    }

    #[test]
    fn columns_stand_under_their_names_and_those_that_are_not_told_are_refused() {
        let (stamps, stamp) = (Stamps { date: true, time: true }, "20261126 20:22:00  ");
        for columns in ["u", "m", "um"].map(|text| columns(text).expect("letters that there are")) {
            let text = head(columns, stamps) + &lines(&report(), &[], columns, stamp).expect("GPUs");
            let ends: Vec<usize> = text.lines().map(str::len).collect();
            assert!(ends.iter().all(|end| *end == ends[0]), "{text}");
        }
        assert_eq!(words(&head(ALL, Stamps::default()))[0], "# gpu sm mem enc dec jpg ofa fb bar1 ccpm");
        for (text, said) in [("p", "temperature"), ("puc", "temperature"), ("t", "PCIe"), ("x", "'x'"), ("", "u, m")] {
            let why = columns(text).expect_err(text);
            assert!(why.contains(said), "{text:?}: {why}");
        }
    }
}
