//! The figure of the GPU suite: how fast each row is through Orion, beside the bare GPU and the goal.

use std::collections::BTreeMap;
use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use serde::Deserialize;

/// What `perf/suite/speed.py --out` writes, as far as it is drawn.
#[derive(Deserialize)]
pub struct Suite {
    machine: Machine,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Machine {
    gpu: String,
    kernel: String,
    commit: String,
    started: String,
}

#[derive(Deserialize)]
struct Row {
    title: String,
    median: BTreeMap<String, f64>,
    range: BTreeMap<String, (f64, f64)>,
    ratio: BTreeMap<String, Option<f64>>,
    goal: BTreeMap<String, String>,
    met: BTreeMap<String, Option<bool>>,
}

type Failed = Box<dyn std::error::Error>;

const WIDTH: i32 = 1180;
const LEFT: i32 = 330;
const RIGHT: i32 = 1020;
const TOP: i32 = 78;
const ROW: i32 = 30;
/// Ratios at the ends of the axis; what lies beyond ends there and has its number beside it.
const AXIS: (f64, f64) = (0.125, 8.0);
const MODES: [(&str, RGBColor); 2] = [("shm", RGBColor(31, 119, 180)), ("tcp", RGBColor(255, 127, 14))];
const GRAY: RGBColor = RGBColor(120, 120, 120);

/// The suite's results, or `None` if the file is something else, such as a report of this program's.
pub fn read(path: &Path) -> Result<Option<Suite>, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("reading {} failed: {e}", path.display()))?;
    let json: serde_json::Value =
        serde_json::from_str(&text).map_err(|e| format!("{} is not JSON: {e}", path.display()))?;
    if json.get("rows").is_none() {
        return Ok(None);
    }
    let suite = serde_json::from_value(json);
    suite.map(Some).map_err(|e| format!("{} has rows, but not those of speed.py: {e}", path.display()))
}

pub fn draw(suite: &Suite, out: &Path) -> Result<(), String> {
    if suite.rows.is_empty() {
        return Err("the results have no rows to draw".into());
    }
    drawn(suite, out).map_err(|e| format!("drawing {} failed: {e}", out.display()))
}

fn drawn(suite: &Suite, out: &Path) -> Result<(), Failed> {
    let bottom = TOP + ROW * suite.rows.len() as i32;
    let root = SVGBackend::new(out, (WIDTH as u32, bottom as u32 + 62)).into_drawing_area();
    root.fill(&WHITE)?;
    let at = |size: i32, color: &'static RGBColor, x: HPos, y: VPos| {
        TextStyle::from(("sans-serif", size).into_font()).color(color).pos(Pos::new(x, y))
    };
    let title = "Speed through Orion over the bare GPU's (native = 1; right is faster)";
    root.draw(&Text::new(title, (12, 12), ("sans-serif", 19)))?;
    for (index, (mode, color)) in MODES.iter().enumerate() {
        let x = LEFT + 90 * index as i32;
        root.draw(&Rectangle::new([(x, 48), (x + 22, 56)], color.filled()))?;
        root.draw(&Text::new(*mode, (x + 28, 44), ("sans-serif", 14)))?;
    }
    let legend = "thick mark: goal; thin line: from the least to the most of the repeats; *: goal missed";
    root.draw(&Text::new(legend, (LEFT + 190, 44), ("sans-serif", 14)))?;
    for ratio in [0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0] {
        let (x, color) = (place(ratio), if ratio == 1.0 { BLACK } else { RGBColor(215, 215, 215) });
        root.draw(&PathElement::new([(x, TOP - 6), (x, bottom)], color.stroke_width(1)))?;
        let style = at(13, &GRAY, HPos::Center, VPos::Top);
        root.draw(&Text::new(format!("{ratio}"), (x, bottom + 6), style))?;
    }
    for (index, row) in suite.rows.iter().enumerate() {
        let top = TOP + ROW * index as i32;
        let style = at(14, &BLACK, HPos::Right, VPos::Center);
        root.draw(&Text::new(row.title.clone(), (LEFT - 10, top + 12), style))?;
        for (lane, (mode, color)) in MODES.iter().enumerate() {
            let Some(ratio) = row.ratio.get(*mode).copied().flatten() else { continue };
            let (low, high) = (top + 3 + 10 * lane as i32, top + 11 + 10 * lane as i32);
            let (from, to) = (place(ratio.min(1.0)), place(ratio.max(1.0)));
            root.draw(&Rectangle::new([(from, low), (to.max(from + 1), high)], color.filled()))?;
            if let Some((least, most)) = row.spread(mode, ratio) {
                let middle = (low + high) / 2;
                root.draw(&PathElement::new([(place(least), middle), (place(most), middle)], BLACK.stroke_width(1)))?;
            }
            if let Some(goal) = row.least_ratio(mode) {
                let x = place(goal);
                root.draw(&PathElement::new([(x, low - 1), (x, high + 1)], BLACK.stroke_width(2)))?;
            }
            let missed = if row.met.get(*mode) == Some(&Some(false)) { " *" } else { "" };
            let style = at(11, if missed.is_empty() { &GRAY } else { &RED }, HPos::Left, VPos::Center);
            root.draw(&Text::new(format!("{mode} {ratio:.3}{missed}"), (RIGHT + 20, (low + high) / 2), style))?;
        }
    }
    let Machine { gpu, kernel, commit, started } = &suite.machine;
    let origin = format!("{gpu}; Linux {kernel}; commit {commit}; {started}");
    root.draw(&Text::new(origin, (12, bottom + 38), ("sans-serif", 12)))?;
    root.present()?;
    Ok(())
}

/// Where a ratio lies on the axis, in pixels.
fn place(ratio: f64) -> i32 {
    let (low, high) = (AXIS.0.log2(), AXIS.1.log2());
    let part = (ratio.max(AXIS.0).min(AXIS.1).log2() - low) / (high - low);
    LEFT + (part * f64::from(RIGHT - LEFT)).round() as i32
}

impl Row {
    /// The ratio at the least and at the most that Orion's repeats measured, beside the native median.
    fn spread(&self, mode: &str, ratio: f64) -> Option<(f64, f64)> {
        let (median, (least, most)) = (self.median.get(mode)?, self.range.get(mode)?);
        let native = self.median.get("native")?;
        // Times have the ratio native / Orion, rates the other one.
        let is_rate = (ratio - median / native).abs() <= (ratio - native / median).abs();
        Some(if is_rate { (least / native, most / native) } else { (native / most, native / least) })
    }

    fn least_ratio(&self, mode: &str) -> Option<f64> {
        self.goal.get(mode)?.strip_prefix("ratio >= ")?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(native: f64, shm: f64, range: (f64, f64), ratio: f64) -> Row {
        Row {
            title: "a row".into(),
            median: BTreeMap::from([("native".into(), native), ("shm".into(), shm)]),
            range: BTreeMap::from([("shm".into(), range)]),
            ratio: BTreeMap::from([("shm".into(), Some(ratio)), ("tcp".into(), None)]),
            goal: BTreeMap::from([("shm".into(), "ratio >= 1.15".into()), ("tcp".into(), "<= 25".into())]),
            met: BTreeMap::from([("shm".into(), Some(true))]),
        }
    }

    #[test]
    fn times_and_rates_have_their_spread_the_right_way_round() {
        assert_eq!(row(8.0, 4.0, (2.0, 16.0), 2.0).spread("shm", 2.0), Some((0.5, 4.0)));
        assert_eq!(row(10.0, 30.0, (20.0, 40.0), 3.0).spread("shm", 3.0), Some((2.0, 4.0)));
        assert_eq!(row(8.0, 4.0, (2.0, 16.0), 2.0).spread("tcp", 2.0), None);
    }

    #[test]
    fn only_goals_that_are_ratios_are_marked() {
        let row = row(8.0, 4.0, (2.0, 16.0), 2.0);
        assert_eq!((row.least_ratio("shm"), row.least_ratio("tcp")), (Some(1.15), None));
    }

    #[test]
    fn the_committed_results_can_be_drawn() {
        let text = include_str!("../../reports/archive/2026-11-h200-launch-and-tcp.json");
        let suite: Suite = serde_json::from_str(text).unwrap();
        let out = std::env::temp_dir().join(format!("orion-bench-suite-{}.svg", std::process::id()));
        draw(&suite, &out).unwrap();
        let svg = std::fs::read_to_string(&out).unwrap();
        std::fs::remove_file(&out).unwrap();
        for row in &suite.rows {
            assert!(svg.contains(&row.title), "{} is not drawn", row.title);
        }
    }
}
