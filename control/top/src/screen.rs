//! The picture: a table of sessions with a line for each that says why it is slow, or one session in depth.

use orion_telemetry::events::{of_class, of_session};
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::symbols::bar::NINE_LEVELS;
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Paragraph, Row as TableRow, StatefulWidget, Table, TableState, Widget};

use crate::app::App;
use crate::model::{Latency, OfClass, Row};

/// Bars of the latest intervals.
const SPARKS: usize = 16;

pub fn draw(app: &App, area: Rect, buffer: &mut Buffer) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)]).areas(area);
    Paragraph::new(heading(app)).bold().render(head, buffer);
    match app.row_in_depth() {
        Some(row) => in_depth(row, body, buffer),
        None => table(app, body, buffer),
    }
    Paragraph::new(footing(app)).dim().render(foot, buffer);
}

/// Lines of a screen that has all there is to say, but for the last one with the keys.
#[must_use]
pub fn height(app: &App) -> u16 {
    let lines = match app.row_in_depth() {
        Some(row) => 10 + row.why.causes.len().max(1) + row.classes.len(),
        None => 2 + (2 * app.rows().len()).max(1),
    };
    u16::try_from(lines).unwrap_or(u16::MAX)
}

/// All that a screen so wide has to say, as text.
#[must_use]
pub fn text(app: &App, width: u16) -> String {
    let area = Rect::new(0, 0, width, height(app).max(6));
    let mut buffer = Buffer::empty(area);
    let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Min(1)]).areas(area);
    Paragraph::new(heading(app)).render(head, &mut buffer);
    match app.row_in_depth() {
        Some(row) => in_depth(row, body, &mut buffer),
        None => table(app, body, &mut buffer),
    }
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned() + "\n";
    let text: String = (0..area.height).map(line).collect();
    text.trim_end().to_owned() + "\n"
}

fn heading(app: &App) -> String {
    let (view, rows) = (&app.view, app.rows().len());
    let beyond = if view.left_out > 0 { format!(" and {} more", view.left_out) } else { String::new() };
    let filter = if app.filter.is_empty() { String::new() } else { format!(", those with \"{}\"", app.filter) };
    let insecure = if view.insecure { "INSECURE: controller.insecure   " } else { "" };
    let paused = if app.is_paused { ", paused" } else { "" };
    let cost = view.sessions.iter().map(|row| row.probe_ns_per_call).fold(0.0, f64::max);
    format!(
        "{insecure}orion-top  {}  {rows} sessions{beyond}{filter}, by {}{paused}; telling costs {cost:.1} ns a call",
        view.node,
        app.sort.words()
    )
}

fn footing(app: &App) -> String {
    if let Some(trouble) = &app.trouble {
        return trouble.clone();
    }
    match (app.is_typing, &app.in_depth) {
        (true, _) => format!("filter: {}_   enter keep   esc drop", app.filter),
        (false, Some(_)) => "q quit   esc back   p pause".to_owned(),
        (false, None) => "q quit   s sort   r reverse   / filter   enter in depth   p pause".to_owned(),
    }
}

fn table(app: &App, area: Rect, buffer: &mut Buffer) {
    let heads = [
        "SESS",
        "PROGRAM",
        "PID",
        if app.view.is_pool { "NODE" } else { "FROM" },
        "TENANT",
        "VIA",
        of_class::CALLS.column,
        "P50",
        "P99",
        "P99.9",
        "P99 TREND",
        "GPU/MAY",
        "MEMORY",
        "CORES",
        "HELD",
    ];
    let widths = [5, 16, 7, 13, 8, 4, 8, 7, 7, 7, SPARKS as u16, 8, 14, 5, 5].map(Constraint::Length);
    let rows = app.rows();
    let lines = rows.iter().map(|row| TableRow::new(cells(row, app.view.is_pool)).height(2));
    let table = Table::new(lines, widths)
        .header(TableRow::new(heads).style(Style::new().fg(Color::Cyan)))
        .row_highlight_style(Style::new().bold());
    let mut state = TableState::new().with_selected(rows.len().checked_sub(1).map(|last| app.chosen.min(last)));
    StatefulWidget::render(table, area, buffer, &mut state);
    // The second line of each row goes across all columns.
    for (row, y) in rows.iter().skip(state.offset()).zip((area.y + 2..area.bottom()).step_by(2)) {
        let across = Rect { x: area.x, y, width: area.width, height: 1 };
        Paragraph::new(format!("      why: {}", row.why_line)).style(colour(row)).render(across, buffer);
    }
    if rows.is_empty() {
        let below = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
        Paragraph::new("no sessions").render(below, buffer);
    }
}

fn colour(row: &Row) -> Style {
    match row.why.waited_ns() as f64 / row.why.interval_ns.max(1) as f64 {
        waited if waited >= 0.5 => Style::new().fg(Color::Red),
        waited if waited >= 0.1 => Style::new().fg(Color::Yellow),
        _ => Style::new().fg(Color::Green),
    }
}

fn cells(row: &Row, is_pool: bool) -> Vec<Cell<'static>> {
    let latency = |of: fn(&Latency) -> u64| row.latency.as_ref().map_or("-".to_owned(), |l| duration(of(l)));
    let percent = |part: Option<f64>| part.map_or("-".to_owned(), |part| format!("{:.0}%", part * 100.0));
    let from = if is_pool { &row.node } else { &row.client.from };
    let place = row.client.pod.clone().or(row.client.container.clone()).unwrap_or(from.clone());
    let text = [
        row.session.to_string(),
        row.client.program.clone(),
        row.client.pid.to_string(),
        place,
        row.tenant.clone().unwrap_or_default(),
        row.transport.clone(),
        number(row.calls_per_s),
        latency(|l| l.p50_ns),
        latency(|l| l.p99_ns),
        latency(|l| l.p99_9_ns),
        sparks(row.history.iter().map(|l| l.p99_ns)),
        format!("{}/{}", percent(row.gpu_used), percent(row.gpu_entitled)),
        format!("{}/{}", bytes(row.memory.used), bytes(row.memory.limit)),
        row.cores.map_or("-".to_owned(), |cores| format!("{cores:.2}")),
        percent(Some(row.throttled)),
    ];
    text.map(Cell::from).to_vec()
}

fn in_depth(row: &Row, area: Rect, buffer: &mut Buffer) {
    let causes = row.why.causes.len().max(1) as u16 + 1;
    let classes = row.classes.len() as u16 + 1;
    let areas =
        [Constraint::Length(6), Constraint::Length(causes + 1), Constraint::Length(classes), Constraint::Fill(1)];
    let [about, why, of_classes, _] = Layout::vertical(areas).areas(area);
    Paragraph::new(identity(row)).render(about, buffer);
    Paragraph::new(causes_of(row)).render(why, buffer);
    let heads = [
        "CLASS",
        of_class::CALLS.column,
        of_class::BYTES.column,
        "P50",
        "P99",
        "P99.9",
        "P50 TREND",
        "P99 TREND",
        "P99.9 TREND",
        of_class::RING.column,
        of_class::WORKER.column,
        of_class::DRIVER.column,
        of_class::WAIT.column,
    ];
    let trend = SPARKS as u16;
    let widths = [12, 8, 8, 7, 7, 7, trend, trend, trend, 6, 6, 6, 6].map(Constraint::Length);
    let lines = row.classes.iter().map(|of| TableRow::new(of_class_cells(row, of)));
    let head = TableRow::new(heads).style(Style::new().fg(Color::Cyan));
    Widget::render(Table::new(lines, widths).header(head), of_classes, buffer);
}

fn identity(row: &Row) -> Text<'static> {
    let client = &row.client;
    let or_none = |text: &Option<String>| text.clone().unwrap_or("-".to_owned());
    let percent = |part: Option<f64>| part.map_or("nobody counts".to_owned(), |part| format!("{:.0}%", part * 100.0));
    let wire = match (row.rtt_ns, row.retransmits) {
        (Some(rtt), Some(again)) => format!(", round trip {}, {again} segments sent again", duration(rtt)),
        _ => String::new(),
    };
    let lines = [
        format!(
            "session {} on {}: {} {}, for {} s",
            row.session,
            row.node,
            client.program,
            client.pid,
            row.age_ms / 1000
        ),
        format!(
            "from {}, container {}, pod {}, tenant {}, lease {}",
            client.from,
            or_none(&client.container),
            or_none(&client.pod),
            or_none(&row.tenant),
            or_none(&row.lease)
        ),
        format!(
            "by {}{wire}; cores {}, wanted beyond that {}",
            row.transport,
            row.cores.map_or("-".to_owned(), |cores| format!("{cores:.2}")),
            row.run_queue.map_or("-".to_owned(), |queued| format!("{queued:.2}"))
        ),
        format!(
            "GPU time {} of {}, held back {:.0}%; memory {} of {}",
            percent(row.gpu_used),
            row.gpu_entitled.map_or("what is free".to_owned(), |part| format!("{:.0}%", part * 100.0)),
            row.throttled * 100.0,
            bytes(row.memory.used),
            bytes(row.memory.limit)
        ),
        format!("telling all of this costs {:.1} ns a call ({})", row.probe_ns_per_call, of_session::COST.column),
    ];
    Text::from_iter(lines.map(Line::from))
}

fn causes_of(row: &Row) -> Text<'static> {
    let percent = |ns: u64| ns as f64 * 100.0 / row.why.interval_ns.max(1) as f64;
    let head = format!("why am I slow: {}", row.why_line);
    let bars = row.why.causes.iter().map(|(cause, ns)| {
        let share = percent(*ns);
        format!("  {:<20} {share:>5.1}%  {}", cause.words(), "█".repeat((share / 2.5).round() as usize))
    });
    Text::from_iter(std::iter::once(Line::from(head).style(colour(row))).chain(bars.map(Line::from)))
}

fn of_class_cells(row: &Row, of: &OfClass) -> Vec<Cell<'static>> {
    let latency = |part: fn(&Latency) -> u64| of.latency.as_ref().map_or("-".to_owned(), |l| duration(part(l)));
    let trend = |part: fn(&Latency) -> u64| {
        row.histories.get(of.class).map_or(String::new(), |history| sparks(history.iter().map(part)))
    };
    let percent = |part: f64| format!("{:.0}%", part * 100.0);
    let text = [
        of.class.to_owned(),
        number(of.calls_per_s),
        bytes(of.bytes_per_s as u64),
        latency(|l| l.p50_ns),
        latency(|l| l.p99_ns),
        latency(|l| l.p99_9_ns),
        trend(|l| l.p50_ns),
        trend(|l| l.p99_ns),
        trend(|l| l.p99_9_ns),
        percent(of.ring),
        percent(of.worker),
        percent(of.driver),
        percent(of.wait),
    ];
    text.map(Cell::from).to_vec()
}

/// Bars of the latest values, the largest of which has the whole height.
fn sparks(values: impl DoubleEndedIterator<Item = u64> + Clone) -> String {
    let latest: Vec<u64> = values.rev().take(SPARKS).collect();
    let most = latest.iter().copied().max().unwrap_or(0).max(1) as f64;
    let bar = |value: &u64| match (*value as f64 / most * 8.0).ceil() as usize {
        0 => NINE_LEVELS.empty,
        1 => NINE_LEVELS.one_eighth,
        2 => NINE_LEVELS.one_quarter,
        3 => NINE_LEVELS.three_eighths,
        4 => NINE_LEVELS.half,
        5 => NINE_LEVELS.five_eighths,
        6 => NINE_LEVELS.three_quarters,
        7 => NINE_LEVELS.seven_eighths,
        _ => NINE_LEVELS.full,
    };
    latest.iter().rev().map(bar).collect()
}

fn duration(ns: u64) -> String {
    match ns as f64 {
        ns if ns < 1e3 => format!("{ns:.0}ns"),
        ns if ns < 1e6 => format!("{:.1}us", ns / 1e3),
        ns if ns < 1e9 => format!("{:.1}ms", ns / 1e6),
        ns => format!("{:.1}s", ns / 1e9),
    }
}

fn bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1024.0 && unit + 1 < units.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    if unit == 0 { format!("{bytes}B") } else { format!("{value:.1}{}", units[unit]) }
}

fn number(n: f64) -> String {
    match n {
        n if n < 1e4 => format!("{n:.0}"),
        n if n < 1e7 => format!("{:.1}k", n / 1e3),
        n => format!("{:.1}M", n / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::KeyCode;

    use super::*;
    use crate::app::Sort;
    use crate::model::Model;
    use crate::model::tests::reports;

    fn app() -> App {
        let mut app = App::new(Sort::Waited, String::new(), None);
        let mut model = Model::default();
        reports().into_iter().filter_map(|report| model.take(report)).for_each(|view| app.view = view);
        let mut other = app.view.sessions[0].clone();
        other.session = 9;
        other.client.program = "serve".into();
        other.calls_per_s = 5.0;
        other.why.causes.clear();
        other.why_line = other.why.line();
        app.view.sessions.push(other);
        app
    }

    fn seen(app: &App) -> String {
        let mut terminal = Terminal::new(TestBackend::new(170, 30)).expect("a terminal of memory");
        terminal.draw(|frame| draw(app, frame.area(), frame.buffer_mut())).expect("it takes everything");
        let buffer = terminal.backend().buffer();
        let line = |y| (0..170).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..30).map(line).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn sessions_stand_in_a_table_with_why_each_is_slow() {
        let mut app = app();
        let text = seen(&app);
        let line = |text: &str, start: &str| text.lines().position(|line| line.starts_with(start));
        assert!(text.starts_with("orion-top  alpha  2 sessions, by waited"), "{text}");
        let row = text.lines().find(|line| line.contains("train.py")).expect("its row");
        for part in ["4711", "uid 0", "vision", "shm", "1010", "3.0us", "45%/50%", "1.0GiB/4.0GiB", "1.50", "10%"] {
            assert!(row.contains(part), "{part} is not in {row}");
        }
        let why = "why: 80% of the time is waited: the driver and GPU 70%, my own cap 10%";
        assert!(text.contains(why) && text.contains("why: not slow"), "{text}");
        assert!(line(&text, "7 ") < line(&text, "9 "), "{text}");
        app.pressed(KeyCode::Char('r'));
        let text = seen(&app);
        assert!(line(&text, "7 ") > line(&text, "9 "), "{text}");
    }

    #[test]
    fn keys_sort_filter_and_choose() {
        let mut app = app();
        for key in "/SERVE".chars() {
            app.pressed(KeyCode::Char(key));
        }
        assert!(seen(&app).contains("filter: SERVE_"), "{}", seen(&app));
        app.pressed(KeyCode::Enter);
        assert_eq!(app.rows().iter().map(|row| row.session).collect::<Vec<_>>(), [9]);
        app.pressed(KeyCode::Char('/'));
        app.pressed(KeyCode::Esc);
        app.pressed(KeyCode::Char('s'));
        assert_eq!((app.sort, app.rows().len()), (Sort::Calls, 2));
        app.pressed(KeyCode::Down);
        app.pressed(KeyCode::Down);
        assert_eq!(app.chosen, 1);
        app.pressed(KeyCode::Enter);
        assert_eq!(app.in_depth, Some(("alpha".to_owned(), 9)));
        app.pressed(KeyCode::Esc);
        assert_eq!(app.in_depth, None);
        app.pressed(KeyCode::Char('q'));
        assert!(app.is_over);
    }

    #[test]
    fn one_session_in_depth_has_its_causes_and_classes() {
        let mut app = app();
        app.pressed(KeyCode::Enter);
        let text = seen(&app);
        for part in [
            "session 7 on alpha: train.py 4711, for 60 s",
            "tenant vision",
            "GPU time 45% of 50%, held back 10%; memory 1.0GiB of 4.0GiB",
            "why am I slow: 80% of the time is waited",
            "the driver and GPU    70.0%",
            "my own cap            10.0%",
            "P99.9 TREND",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        let wait = text.lines().find(|line| line.starts_with("wait ")).expect("its class");
        assert!(wait.contains("50.") && wait.contains("ms") && wait.ends_with("50%"), "{wait}");
    }

    #[test]
    fn a_small_screen_breaks_nothing_nor_do_no_sessions() {
        assert!(seen(&App::new(Sort::Waited, String::new(), None)).contains("no sessions"));
        let app = app();
        for (width, height) in [(1, 1), (20, 3), (40, 10)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal of memory");
            terminal.draw(|frame| draw(&app, frame.area(), frame.buffer_mut())).expect("it takes everything");
        }
        assert!(text(&app, 160).contains("train.py"));
    }

    #[test]
    fn sizes_are_written_as_people_do() {
        assert_eq!([bytes(512), bytes(1 << 20), bytes(3 << 29)], ["512B", "1.0MiB", "1.5GiB"]);
        assert_eq!([duration(999), duration(1500), duration(2_500_000)], ["999ns", "1.5us", "2.5ms"]);
        assert_eq!([number(12.0), number(20_000.0)], ["12", "20.0k"]);
        assert_eq!(sparks([0, 1, 8].into_iter()), " ▁█");
    }
}
