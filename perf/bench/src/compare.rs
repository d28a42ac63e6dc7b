//! Two reports side by side, and which differences are more than noise.

use crate::report::{Better, Measured, Report};

/// Smaller differences are called noise whatever the repeats say: the machine's clock and its neighbours drift.
const DIFFERENCE_MIN: f64 = 0.02;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Better,
    Worse,
    Noise,
    /// A single repeat on either side says nothing about noise.
    TooFew,
}

impl Verdict {
    fn words(self) -> &'static str {
        match self {
            Verdict::Better => "better",
            Verdict::Worse => "WORSE",
            Verdict::Noise => "within noise",
            Verdict::TooFew => "too few repeats",
        }
    }
}

/// Beyond noise means: the two sets of repeats do not overlap at all, and the medians are two percent apart. With five
/// repeats on each side, equal programs are told apart in one of 126 comparisons.
pub fn verdict(before: &Measured, after: &Measured) -> Verdict {
    if before.repeats.len() < 3 || after.repeats.len() < 3 {
        return Verdict::TooFew;
    }
    let low = |m: &Measured| m.repeats.iter().copied().fold(f64::INFINITY, f64::min);
    let high = |m: &Measured| m.repeats.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let apart = low(before) > high(after) || low(after) > high(before);
    if !apart || (after.value / before.value - 1.0).abs() < DIFFERENCE_MIN {
        return Verdict::Noise;
    }
    let lower = after.value < before.value;
    if lower == (before.better == Better::Lower) { Verdict::Better } else { Verdict::Worse }
}

/// How much better `after` is; above 1 is better for times and for rates alike.
pub fn ratio(before: &Measured, after: &Measured) -> f64 {
    match before.better {
        Better::Lower => before.value / after.value,
        Better::Higher => after.value / before.value,
    }
}

/// The table, and how many figures became worse.
pub fn table(before: &Report, after: &Report) -> (String, usize) {
    let mut out = format!("before: {}\nafter:  {}\n", before.origin(), after.origin());
    if (&before.machine.cpu, before.machine.cores) != (&after.machine.cpu, after.machine.cores) {
        out += "different machines: the ratios compare the machines, too\n";
    }
    out += &format!(
        "\n{:<12} {:<44} {:>10} {:>10} {:<8} {:>6}  verdict\n",
        "workload", "case", "before", "after", "unit", "ratio"
    );
    let mut worse = 0;
    for a in &after.results {
        let same = |b: &&Measured| (&b.workload, &b.case, &b.unit) == (&a.workload, &a.case, &a.unit);
        let Some(b) = before.results.iter().find(same) else {
            out += &format!("{:<12} {:<44} only in the second report\n", a.workload, a.case);
            continue;
        };
        let verdict = verdict(b, a);
        worse += usize::from(verdict == Verdict::Worse);
        out += &format!(
            "{:<12} {:<44} {:>10} {:>10} {:<8} {:>6.3}  {}\n",
            a.workload,
            a.case,
            digits(b.value),
            digits(a.value),
            a.unit,
            ratio(b, a),
            verdict.words()
        );
    }
    for b in &before.results {
        if !after.results.iter().any(|a| (&b.workload, &b.case) == (&a.workload, &a.case)) {
            out += &format!("{:<12} {:<44} only in the first report\n", b.workload, b.case);
        }
    }
    (out, worse)
}

/// Four significant digits are more than any of these figures deserve.
pub fn digits(value: f64) -> String {
    match value.abs() {
        v if v >= 1e6 => format!("{:.3} M", value / 1e6),
        v if v >= 1000.0 => format!("{value:.0}"),
        v if v >= 100.0 => format!("{value:.1}"),
        v if v >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::median;

    fn measured(better: Better, repeats: &[f64]) -> Measured {
        Measured {
            workload: "w".into(),
            case: "c".into(),
            unit: "ns".into(),
            better,
            value: median(repeats),
            repeats: repeats.to_vec(),
            percentiles: None,
            details: Default::default(),
        }
    }

    #[test]
    fn overlapping_repeats_are_noise() {
        let (a, b) = (measured(Better::Lower, &[10.0, 11.0, 12.0]), measured(Better::Lower, &[8.0, 9.0, 10.5]));
        assert_eq!(verdict(&a, &b), Verdict::Noise);
    }

    #[test]
    fn separate_repeats_are_a_difference() {
        let (slow, fast) = (measured(Better::Lower, &[10.0, 11.0, 12.0]), measured(Better::Lower, &[7.0, 8.0, 9.0]));
        assert_eq!(verdict(&slow, &fast), Verdict::Better);
        assert_eq!(verdict(&fast, &slow), Verdict::Worse);
        assert!((ratio(&slow, &fast) - 11.0 / 8.0).abs() < 1e-9);
        let (few, many) = (measured(Better::Higher, &[1.0, 1.1, 1.2]), measured(Better::Higher, &[2.0, 2.1, 2.2]));
        assert_eq!(verdict(&few, &many), Verdict::Better);
        assert!(ratio(&few, &many) > 1.9);
    }

    #[test]
    fn a_percent_is_noise_even_if_steady() {
        let (a, b) = (measured(Better::Lower, &[100.0; 5]), measured(Better::Lower, &[101.0; 5]));
        assert_eq!(verdict(&a, &b), Verdict::Noise);
    }

    #[test]
    fn one_repeat_is_no_verdict() {
        let (a, b) = (measured(Better::Lower, &[10.0]), measured(Better::Lower, &[1.0]));
        assert_eq!(verdict(&a, &b), Verdict::TooFew);
    }
}
