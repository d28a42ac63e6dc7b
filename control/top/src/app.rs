//! What is chosen by keys: order, filter, one session.

use ratatui::crossterm::event::KeyCode;

use crate::model::{Row, View};

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Sort {
    Session,
    Waited,
    Calls,
    P99,
    Memory,
    Cores,
    Throttled,
}

impl Sort {
    const ALL: [Sort; 7] =
        [Sort::Session, Sort::Waited, Sort::Calls, Sort::P99, Sort::Memory, Sort::Cores, Sort::Throttled];

    /// Over the column by which it sorts.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Sort::Session => "session",
            Sort::Waited => "waited",
            Sort::Calls => "calls",
            Sort::P99 => "p99",
            Sort::Memory => "memory",
            Sort::Cores => "cores",
            Sort::Throttled => "throttled",
        }
    }

    /// What is large comes first; sessions as they came.
    fn key(self, row: &Row) -> f64 {
        match self {
            Sort::Session => -(row.session as f64),
            Sort::Waited => row.why.waited_ns() as f64,
            Sort::Calls => row.calls_per_s,
            Sort::P99 => row.latency.map_or(0.0, |latency| latency.p99_ns as f64),
            Sort::Memory => row.memory.used as f64,
            Sort::Cores => row.cores.unwrap_or(0.0),
            Sort::Throttled => row.throttled,
        }
    }
}

pub struct App {
    pub view: View,
    pub sort: Sort,
    pub is_reversed: bool,
    pub filter: String,
    /// Its characters are being typed.
    pub is_typing: bool,
    /// Which of the rows that are shown.
    pub chosen: usize,
    /// The session that is shown in depth, and its node if that matters.
    pub in_depth: Option<(String, u64)>,
    pub is_paused: bool,
    /// What went wrong last.
    pub trouble: Option<String>,
    pub is_over: bool,
}

impl App {
    #[must_use]
    pub fn new(sort: Sort, filter: String, in_depth: Option<u64>) -> App {
        App {
            view: View::default(),
            sort,
            is_reversed: false,
            filter,
            is_typing: false,
            chosen: 0,
            in_depth: in_depth.map(|session| (String::new(), session)),
            is_paused: false,
            trouble: None,
            is_over: false,
        }
    }

    /// The rows that are to be shown, in their order.
    #[must_use]
    pub fn rows(&self) -> Vec<&Row> {
        let wanted = self.filter.to_lowercase();
        let mut rows: Vec<&Row> = self.view.sessions.iter().filter(|row| has(row, &wanted)).collect();
        rows.sort_by(|a, b| self.sort.key(b).total_cmp(&self.sort.key(a)));
        if self.is_reversed {
            rows.reverse();
        }
        rows
    }

    #[must_use]
    pub fn row_in_depth(&self) -> Option<&Row> {
        let (node, session) = self.in_depth.as_ref()?;
        self.view.sessions.iter().find(|row| row.session == *session && (node.is_empty() || row.node == *node))
    }

    pub fn pressed(&mut self, key: KeyCode) {
        if self.is_typing {
            return self.typed(key);
        }
        match key {
            KeyCode::Char('q') => self.is_over = true,
            KeyCode::Char('s') => {
                let at = Sort::ALL.iter().position(|sort| *sort == self.sort).unwrap_or(0);
                self.sort = Sort::ALL[(at + 1) % Sort::ALL.len()];
            }
            KeyCode::Char('r') => self.is_reversed = !self.is_reversed,
            KeyCode::Char('p') => self.is_paused = !self.is_paused,
            KeyCode::Char('/' | 'f') => self.is_typing = true,
            KeyCode::Down | KeyCode::Char('j') => self.chosen += 1,
            KeyCode::Up | KeyCode::Char('k') => self.chosen = self.chosen.saturating_sub(1),
            KeyCode::Enter => self.in_depth = self.rows().get(self.chosen).map(|row| (row.node.clone(), row.session)),
            KeyCode::Esc | KeyCode::Backspace => self.in_depth = None,
            _ => {}
        }
        self.chosen = self.chosen.min(self.rows().len().saturating_sub(1));
    }

    fn typed(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => (self.is_typing, self.filter) = (false, String::new()),
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(c) if !c.is_control() => self.filter.push(c),
            _ => {}
        }
        self.chosen = 0;
    }
}

fn has(row: &Row, wanted: &str) -> bool {
    let client = &row.client;
    let texts = [Some(&client.program), Some(&client.from), Some(&row.transport), row.tenant.as_ref()];
    let more = [client.container.as_ref(), client.pod.as_ref(), row.lease.as_ref(), Some(&row.node)];
    let numbers = [row.session.to_string(), client.pid.to_string()];
    texts.into_iter().chain(more).flatten().any(|text| text.to_lowercase().contains(wanted))
        || numbers.iter().any(|number| number == wanted)
}
