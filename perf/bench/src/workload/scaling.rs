//! The load generator: sessions times threads, each replaying a recorded stream at the same time.

use orion_wire::address::{Carrier, Leads};

use crate::place::Oriond;
use crate::report::{Better, Measured, Sample, merge};
use crate::task::{Replay, Through};
use crate::task::{Running, Task};
use crate::timing::Times;
use crate::workload::settings::Settings;

/// Not over a file in place of a virtual machine's memory, which is divided among two sessions.
pub fn check(carriers: &[&Carrier]) -> Result<(), String> {
    match carriers.iter().find(|carrier| carrier.leads_to == Leads::ToDevice) {
        Some(carrier) => Err(format!(
            "scaling: {} is not measured, for a guest's file has room for two sessions and a point wants many; name \
             others by --transports, and measure {} by carriers, round-trip or copies",
            carrier.name, carrier.name
        )),
        None => Ok(()),
    }
}

pub fn run(settings: &Settings) -> Result<Vec<Measured>, String> {
    let sweep = &settings.scaling;
    let mut measured = Vec::new();
    for behind in &sweep.behind {
        for transport in &settings.transports {
            for stream in &sweep.streams {
                for &threads in &sweep.threads {
                    for &sessions in &sweep.sessions {
                        let point = Point { behind, transport, stream, threads, sessions };
                        measured.extend(point.measure(settings)?);
                    }
                }
            }
        }
    }
    Ok(measured)
}

struct Point<'a> {
    behind: &'a str,
    transport: &'a str,
    stream: &'a str,
    threads: usize,
    sessions: usize,
}

impl Point<'_> {
    fn measure(&self, settings: &Settings) -> Result<Vec<Measured>, String> {
        let name = format!(
            "{} {} {}, {} sessions x {} threads",
            self.stream, self.behind, self.transport, self.sessions, self.threads
        );
        // The software GPU of every session has its own memory, and pinned memory is not what is measured here.
        let driver = if self.behind == "echo" { "echo" } else { settings.pieces.driver.as_str() };
        let mut repeats = Vec::new();
        for _ in 0..settings.repeats {
            let offered = [self.transport.to_owned()];
            let arguments = ["--warm", "0", "--heap", "1 GiB"];
            let oriond = Oriond::offering(&offered, &settings.pieces, driver, &arguments)?;
            repeats.push(self.once(settings, &oriond).map_err(|e| format!("{name}: {e}\n{}", oriond.log()))?);
        }
        let figures = merge("scaling", &repeats);
        if let Some(rate) = figures.first() {
            eprintln!("  {name}: {} calls/s", crate::compare::digits(rate.value));
        }
        let place = |m: Measured| Measured { case: format!("{name}: {}", m.case), ..m };
        Ok(figures.into_iter().map(place).collect())
    }

    fn once(&self, settings: &Settings, oriond: &Oriond) -> Result<Vec<Sample>, String> {
        let server = oriond.address(self.transport)?;
        let through = match self.behind {
            "echo" => Through::Records { server: server.clone() },
            _ => Through::Library(settings.pieces.shim.clone()),
        };
        let task = Task::Replay(Replay {
            through,
            stream: self.stream.to_owned(),
            threads: self.threads,
            seconds: settings.scaling.seconds,
            think: settings.scaling.think,
        });
        // One after the other: each sets its threads up, and all wait for the common start.
        let sessions: Result<Vec<Running>, String> =
            (0..self.sessions).map(|_| Running::start(&task, Some(&server))).collect();
        let mut sessions = sessions?;
        let before = oriond.cpu_ns();
        sessions.iter_mut().try_for_each(Running::go)?;
        let samples: Result<Vec<_>, String> = sessions.iter_mut().map(Running::samples).collect();
        let samples = samples?;
        let after = oriond.cpu_ns();
        Ok(self.add_up(&samples, after.0.saturating_sub(before.0), after.1.saturating_sub(before.1)))
    }

    fn add_up(&self, sessions: &[Vec<Sample>], engine_ns: u64, worker_ns: u64) -> Vec<Sample> {
        let sum = |case: &str, name: &str| -> f64 {
            let same = sessions.iter().flatten().filter(|s| s.case == case);
            same.map(|s| if name.is_empty() { s.value } else { s.details.get(name).copied().unwrap_or(0.0) }).sum()
        };
        let calls = sum("calls", "calls").max(1.0);
        let rate = Sample::new("calls", "per s", Better::Higher, sum("calls", ""))
            .detail("sessions", self.sessions as f64)
            .detail("threads", self.threads as f64)
            .detail("steps", sum("calls", "steps"));
        let (client_ns, engine_ns, worker_ns) = (sum("calls", "cpu_ns"), engine_ns as f64, worker_ns as f64);
        let total_us = (client_ns + engine_ns + worker_ns) / calls / 1e3;
        let cpu = Sample::new("CPU per call", "us", Better::Lower, total_us)
            .detail("sessions", self.sessions as f64)
            .detail("threads", self.threads as f64)
            .detail("client_us", client_ns / calls / 1e3)
            .detail("engine_us", engine_ns / calls / 1e3)
            .detail("worker_us", worker_ns / calls / 1e3);
        let times = |case: &str, unit: &str| {
            let mut all = Times::new();
            let same = sessions.iter().flatten().filter(|s| s.case == case);
            same.for_each(|s| all.add(&Times::from_buckets(&s.histogram)));
            Sample::of_times(case, unit, &all)
                .detail("sessions", self.sessions as f64)
                .detail("threads", self.threads as f64)
        };
        vec![rate, times("answer", "us"), times("post", "ns"), cpu]
    }
}
