//! The scaling figure: calls per second, latency and CPU per call over the number of sessions.

use std::collections::BTreeMap;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::report::{Measured, Report};

const COLORS: [RGBColor; 12] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 39, 40),
    RGBColor(44, 160, 44),
    RGBColor(148, 103, 189),
    RGBColor(255, 127, 14),
    RGBColor(23, 190, 207),
    RGBColor(140, 86, 75),
    RGBColor(227, 119, 194),
    RGBColor(127, 127, 127),
    RGBColor(188, 189, 34),
    RGBColor(0, 0, 0),
    RGBColor(174, 199, 232),
];

/// One line of a panel: label, and values over sessions.
type Lines = BTreeMap<String, Vec<(f64, f64)>>;
type Failed = Box<dyn std::error::Error>;

pub fn draw(report: &Report, out: &Path) -> Result<(), String> {
    let scaling: Vec<&Measured> = report.results.iter().filter(|m| m.workload == "scaling").collect();
    if scaling.is_empty() {
        return Err("the report has no results of the workload scaling to draw".into());
    }
    drawn(&scaling, &report.origin(), out).map_err(|e| format!("drawing {} failed: {e}", out.display()))
}

fn drawn(scaling: &[&Measured], origin: &str, out: &Path) -> Result<(), Failed> {
    let panels = [
        ("calls per second, all sessions together", lines(scaling, "calls", |m| Some(m.value))),
        ("call with answer, p50 in us", lines(scaling, "answer", |m| Some(m.percentiles.as_ref()?.p50_ns / 1e3))),
        ("call with answer, p99 in us", lines(scaling, "answer", |m| Some(m.percentiles.as_ref()?.p99_ns / 1e3))),
        ("CPU per call in us: client, engine and worker", lines(scaling, "CPU per call", |m| Some(m.value))),
    ];
    // Every line in every panel has its color by its place among all labels.
    let labels: Vec<&String> = panels[0].1.keys().collect();
    let root = SVGBackend::new(out, (1500, 980)).into_drawing_area();
    root.fill(&WHITE)?;
    root.draw(&Text::new(origin.to_owned(), (12, 962), ("sans-serif", 13)))?;
    let (figure, legend) = root.split_horizontally(1180);
    for (index, (label, color)) in labels.iter().zip(COLORS.iter().cycle()).enumerate() {
        let y = 60 + 22 * index as i32;
        legend.draw(&PathElement::new([(8, y + 6), (32, y + 6)], color.stroke_width(3)))?;
        legend.draw(&Text::new((*label).clone(), (40, y), ("sans-serif", 14)))?;
    }
    let areas = figure.margin(4, 24, 4, 4).split_evenly((2, 2));
    for (area, (title, lines)) in areas.iter().zip(&panels) {
        panel(area, title, lines, &labels)?;
    }
    root.present()?;
    Ok(())
}

/// Values of the figures that end in `: what`, over sessions, a line for each stream and number of threads.
fn lines(scaling: &[&Measured], what: &str, value: impl Fn(&Measured) -> Option<f64>) -> Lines {
    let mut lines = Lines::new();
    for m in scaling {
        let Some((place, kind)) = m.case.rsplit_once(": ") else { continue };
        let (Some(sessions), Some(threads)) = (m.details.get("sessions"), m.details.get("threads")) else { continue };
        if kind != what {
            continue;
        }
        if let Some(value) = value(m) {
            let label = format!("{}, {threads} threads", place.split(',').next().unwrap_or(place));
            lines.entry(label).or_default().push((*sessions, value));
        }
    }
    lines.values_mut().for_each(|points| points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    lines
}

fn panel(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    title: &str,
    lines: &Lines,
    labels: &[&String],
) -> Result<(), Failed> {
    let points = || lines.values().flatten();
    let most = |of: fn(&(f64, f64)) -> f64| points().map(of).fold(1e-3, f64::max);
    let least = points().map(|p| p.1).filter(|v| *v > 0.0).fold(f64::INFINITY, f64::min);
    let (sessions, top) = (most(|p| p.0), most(|p| p.1));
    let (low, high) = (least.min(top) / 1.5, top * 1.5);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 18))
        .margin(8)
        .x_label_area_size(36)
        .y_label_area_size(72)
        .build_cartesian_2d((0.9..sessions * 1.1).log_scale(), (low..high).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("sessions")
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| crate::compare::digits(*y))
        .draw()?;
    for (label, color) in labels.iter().zip(COLORS.iter().cycle()) {
        let points = lines.get(*label).into_iter().flatten().copied();
        chart.draw_series(LineSeries::new(points, color.stroke_width(2)).point_size(3))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Better;

    #[test]
    fn lines_are_by_stream_and_threads() {
        let measured = |sessions: f64, threads: f64, value| Measured {
            workload: "scaling".into(),
            case: format!("small-ops echo shm, {sessions} sessions x {threads} threads: calls"),
            unit: "per s".into(),
            better: Better::Higher,
            value,
            repeats: vec![value],
            percentiles: None,
            details: BTreeMap::from([("sessions".into(), sessions), ("threads".into(), threads)]),
        };
        let all = [measured(4.0, 1.0, 40.0), measured(1.0, 1.0, 10.0), measured(1.0, 4.0, 20.0)];
        let lines = lines(&all.iter().collect::<Vec<_>>(), "calls", |m| Some(m.value));
        assert_eq!(lines["small-ops echo shm, 1 threads"], [(1.0, 10.0), (4.0, 40.0)]);
        assert_eq!(lines.len(), 2);
    }
}
