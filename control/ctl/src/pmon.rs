//! `orion-smi pmon`: the programs on a node's GPUs in the columns of `nvidia-smi pmon`, for whatever reads those.

use std::fmt::Write;

use orion_telemetry::report::{Report, Session};

/// What is shown, as `nvidia-smi` names it: `u` how busy a program keeps its GPU, `m` its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Columns {
    pub utilization: bool,
    pub memory: bool,
}

impl Columns {
    /// # Errors
    ///
    /// In words.
    pub fn parse(text: &str) -> Result<Columns, String> {
        let [utilization, memory] = letters(text, ['u', 'm'])?;
        Ok(Columns { utilization, memory })
    }
}

/// What each line begins with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stamps {
    pub date: bool,
    pub time: bool,
}

impl Stamps {
    /// # Errors
    ///
    /// In words.
    pub fn parse(text: &str) -> Result<Stamps, String> {
        let [date, time] = letters(text, ['D', 'T'])?;
        Ok(Stamps { date, time })
    }

    /// What a line over the columns begins with.
    pub(crate) fn head(self, date: &str, time: &str) -> String {
        let mut out = "#".to_owned();
        let words = [(self.date, date, 9), (self.time, time, 10)];
        words.iter().filter(|word| word.0).for_each(|(_, word, width)| {
            let _ = write!(out, "{word:<width$}");
        });
        out
    }
}

/// Which of both a text has; it has one, and nothing else.
pub(crate) fn letters(text: &str, [one, other]: [char; 2]) -> Result<[bool; 2], String> {
    match text.chars().find(|c| ![one, other].contains(c)) {
        _ if text.is_empty() => Err(format!("it is {one}, {other} or {one}{other}")),
        Some(wrong) => Err(format!("there is no {wrong:?}: it is {one}, {other} or {one}{other}")),
        None => Ok([text.contains(one), text.contains(other)]),
    }
}

/// GPUs, by number; all without any.
///
/// # Errors
///
/// In words.
pub fn gpu(text: &str) -> Result<u64, String> {
    text.trim().parse().map_err(|_| "it is a GPU's number on its node, or several with commas between".to_owned())
}

/// A program on one GPU.
struct Row<'a> {
    gpu: u64,
    session: &'a Session,
    busy_percent: Option<u32>,
    used_bytes: u64,
}

/// By GPU, then by session.
fn rows<'a>(report: &'a Report, gpus: &[u64]) -> Vec<Row<'a>> {
    let mut rows: Vec<Row<'a>> = Vec::new();
    for session in &report.sessions {
        for (vgpu, memory) in session.vgpus.iter().zip(&session.memory) {
            // Two vGPUs on one GPU are busy together.
            match rows.iter_mut().find(|row| row.gpu == vgpu.gpu && row.session.session == session.session) {
                Some(row) => row.used_bytes = row.used_bytes.saturating_add(memory.used),
                None => {
                    rows.push(Row { gpu: vgpu.gpu, session, busy_percent: vgpu.busy_percent, used_bytes: memory.used })
                }
            }
        }
    }
    rows.retain(|row| gpus.is_empty() || gpus.contains(&row.gpu));
    rows.sort_by_key(|row| (row.gpu, row.session.session));
    rows
}

/// The two lines over the columns.
#[must_use]
pub fn head(columns: Columns, stamps: Stamps) -> String {
    let line = |date: &str, time: &str, gpu: &str, pid: &str, kind: &str, of: &[&str], last: &str| {
        let mut out = stamps.head(date, time);
        let _ = write!(out, "{gpu:>4} {pid:>11} {kind:>6}");
        of.iter().for_each(|word| {
            let _ = write!(out, " {word:>6}");
        });
        format!("{out}    {last}\n")
    };
    let (mut names, mut units) = (Vec::new(), Vec::new());
    if columns.utilization {
        names.extend(["sm", "mem", "enc", "dec", "jpg", "ofa"]);
        units.extend(["%"; 6]);
    }
    if columns.memory {
        names.extend(["fb", "ccpm"]);
        units.extend(["MB"; 2]);
    }
    line("Date", "Time", "gpu", "pid", "type", &names, "command")
        + &line("YYYYMMDD", "HH:MM:SS", "Idx", "#", "C/G", &units, "name")
}

/// A line for each program on each GPU. What Orion does not measure is `-`, as where there is no program at all.
#[must_use]
pub fn lines(report: &Report, gpus: &[u64], columns: Columns, stamp: &str) -> String {
    let mut out = String::new();
    let mut line = |gpu: &str, pid: &str, kind: &str, sm: Option<u32>, fb: Option<u64>, command: &str| {
        let _ = write!(out, " {stamp}{gpu:>4} {pid:>11} {kind:>6}");
        let told = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        if columns.utilization {
            let _ = write!(out, " {:>6}", told(sm.map(u64::from)));
            (0..5).for_each(|_| out += "      -");
        }
        if columns.memory {
            let _ = write!(out, " {:>6}      -", told(fb));
        }
        let _ = writeln!(out, "    {command}");
    };
    let rows = rows(report, gpus);
    for row in &rows {
        let client = &row.session.client;
        // In the name of a program there may be anything.
        let command: String = client.program.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        let (gpu, pid) = (row.gpu.to_string(), client.pid.to_string());
        line(&gpu, &pid, "C", row.busy_percent, Some(row.used_bytes >> 20), &command);
    }
    let idle = gpus.iter().filter(|gpu| rows.iter().all(|row| row.gpu != **gpu));
    idle.for_each(|gpu| line(&gpu.to_string(), "-", "-", None, None, "-"));
    if rows.is_empty() && gpus.is_empty() {
        line("-", "-", "-", None, None, "-");
    }
    out
}

#[cfg(test)]
mod tests {
    use orion_telemetry::report::{Client, Memory, Vgpu};

    use super::*;

    const ALL: Columns = Columns { utilization: true, memory: true };

    fn session(number: u64, vgpus: &[(u64, Option<u32>)]) -> Session {
        let client = Client { program: format!("train\n{number}"), pid: 4700 + number as u32, ..Client::default() };
        let memory = vgpus.iter().map(|_| Memory { used: 100 << 20, limit: 1 << 30 }).collect();
        let vgpus = vgpus.iter().map(|(gpu, busy_percent)| Vgpu { gpu: *gpu, busy_percent: *busy_percent }).collect();
        Session { session: number, client, memory, vgpus, ..Session::default() }
    }

    fn words(text: &str) -> Vec<String> {
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn a_program_has_a_line_for_each_gpu_and_what_nobody_measures_is_a_dash() {
        let sessions = vec![session(2, &[(1, Some(41)), (0, Some(0))]), session(1, &[(1, None), (1, None)])];
        let report = Report { sessions, ..Report::default() };
        let said = words(&lines(&report, &[], ALL, ""));
        let expected = [
            "0 4702 C 0 - - - - - 100 - train?2",
            "1 4701 C - - - - - - 200 - train?1",
            "1 4702 C 41 - - - - - 100 - train?2",
        ];
        assert_eq!(said, expected);
        let said = words(&lines(&report, &[0, 7], Columns { memory: false, ..ALL }, "20261126 20:22:00 "));
        assert_eq!(said, ["20261126 20:22:00 0 4702 C 0 - - - - - train?2", "20261126 20:22:00 7 - - - - - - - - -"]);
        assert_eq!(words(&lines(&Report::default(), &[], ALL, "")), ["- - - - - - - - - - - -"]);
    }

    #[test]
    fn columns_stand_under_their_names() {
        let report = Report { sessions: vec![session(1, &[(0, Some(100))])], ..Report::default() };
        let (stamps, stamp) = (Stamps { date: true, time: true }, "20261126 20:22:00  ");
        for columns in ["u", "m", "um"].map(|text| Columns::parse(text).expect("letters that there are")) {
            let text = head(columns, stamps) + &lines(&report, &[], columns, stamp);
            let ends: Vec<usize> = text.lines().map(|line| line.rfind("   ").expect("a last column")).collect();
            assert!(ends.iter().all(|end| *end == ends[0]), "{text}");
        }
        let text = head(ALL, Stamps::default());
        assert_eq!(words(&text)[0], "# gpu pid type sm mem enc dec jpg ofa fb ccpm command");
        assert!(Columns::parse("x").is_err() && Columns::parse("").is_err() && Stamps::parse("d").is_err());
    }
}
