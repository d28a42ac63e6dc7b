//! What two reports say of each session in between.

use std::collections::{BTreeMap, VecDeque};

use hdrhistogram::Histogram;
use orion_telemetry::Class;
use orion_telemetry::events::{of_class, of_session, times};
use orion_telemetry::histogram::readable;
use orion_telemetry::report::{Client, Memory, Report, Session};
use orion_telemetry::why::{Why, why};
use serde::Serialize;

use crate::source::OfPool;

/// Intervals that are kept of each session.
pub const HISTORY: usize = 60;

/// How long commands were in the worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Latency {
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub p99_9_ns: u64,
}

impl Latency {
    fn of(histogram: &Histogram<u64>) -> Option<Latency> {
        (!histogram.is_empty()).then(|| Latency {
            p50_ns: histogram.value_at_quantile(0.5),
            p99_ns: histogram.value_at_quantile(0.99),
            p99_9_ns: histogram.value_at_quantile(0.999),
        })
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OfClass {
    pub class: &'static str,
    pub calls_per_s: f64,
    pub bytes_per_s: f64,
    /// Nothing if no command was timed.
    pub latency: Option<Latency>,
    /// Parts of the time between the reports.
    pub ring: f64,
    pub worker: f64,
    pub driver: f64,
    pub wait: f64,
}

/// A session.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    pub node: String,
    pub session: u64,
    pub client: Client,
    pub transport: String,
    pub tenant: Option<String>,
    pub lease: Option<String>,
    pub age_ms: u64,
    pub calls_per_s: f64,
    pub latency: Option<Latency>,
    pub classes: Vec<OfClass>,
    pub memory: Memory,
    /// Cores that its worker had, and that its executor would have liked to have.
    pub cores: Option<f64>,
    pub run_queue: Option<f64>,
    /// Part of a GPU's time: what it had, if somebody counts it, and what it may have.
    pub gpu_used: Option<f64>,
    pub gpu_entitled: Option<f64>,
    /// Part of the time in which it was held back.
    pub throttled: f64,
    pub rtt_ns: Option<u64>,
    pub retransmits: Option<u64>,
    /// What telling all of this costs each command.
    pub probe_ns_per_call: f64,
    pub why: Why,
    pub why_line: String,
    /// Latencies of all commands, the oldest first.
    #[serde(skip)]
    pub history: Vec<Latency>,
    /// And of each class.
    #[serde(skip)]
    pub histories: BTreeMap<&'static str, Vec<Latency>>,
}

/// All of it at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct View {
    pub node: String,
    pub unix_ms: u64,
    pub interval_ns: u64,
    pub sessions: Vec<Row>,
    pub left_out: u64,
    /// They are of several nodes.
    pub is_pool: bool,
    /// Other machines may speak to the controller in the clear.
    pub insecure: bool,
}

/// What is remembered from one report to the next.
#[derive(Default)]
pub struct Model {
    last: Option<Report>,
    histories: BTreeMap<u64, BTreeMap<&'static str, VecDeque<Latency>>>,
}

/// Of all classes.
const ALL: &str = "";

impl Model {
    /// Nothing after the first report.
    pub fn take(&mut self, report: Report) -> Option<View> {
        let last = self.last.replace(report);
        let now = self.last.as_ref().expect("just put there");
        let last = last.filter(|last| last.node == now.node && last.monotonic_ns < now.monotonic_ns)?;
        let interval_ns = now.monotonic_ns - last.monotonic_ns;
        let sessions = now.sessions.iter().map(|session| {
            let nothing = Session::default();
            let before = last.sessions.iter().find(|before| before.session == session.session).unwrap_or(&nothing);
            // A session that began in between has been there for a part of the time.
            let lived = interval_ns.min(session.age_ms.saturating_mul(1_000_000).max(1));
            row(&now.node, before, session, lived)
        });
        let mut view = View {
            node: now.node.clone(),
            unix_ms: now.unix_ms,
            interval_ns,
            sessions: sessions.collect(),
            left_out: now.left_out,
            is_pool: false,
            insecure: false,
        };
        self.histories.retain(|session, _| view.sessions.iter().any(|row| row.session == *session));
        view.sessions.iter_mut().for_each(|row| self.remember(row));
        Some(view)
    }

    fn remember(&mut self, row: &mut Row) {
        let histories = self.histories.entry(row.session).or_default();
        let of_classes = row.classes.iter().map(|of| (of.class, of.latency));
        for (class, latency) in of_classes.chain([(ALL, row.latency)]) {
            let history = histories.entry(class).or_default();
            history.push_back(latency.unwrap_or_default());
            history.drain(..history.len().saturating_sub(HISTORY));
        }
        let kept = histories.iter().map(|(class, history)| (*class, history.iter().copied().collect()));
        row.histories = kept.collect();
        row.history = row.histories.remove(ALL).unwrap_or_default();
    }
}

/// Sessions of a pool, each of which is told of when its node comes to it.
#[derive(Default)]
pub struct PoolModel(BTreeMap<(String, u64), (Model, Option<Row>)>);

impl PoolModel {
    /// What a controller has said, now or when it was recorded.
    pub fn take_look(&mut self, look: OfPool) -> Option<View> {
        self.take(look.pool, look.left_out).map(|view| View { insecure: look.insecure, ..view })
    }

    /// Nothing as long as nothing was told twice.
    pub fn take(&mut self, reports: Vec<Report>, left_out: u64) -> Option<View> {
        let key = |report: &Report| Some((report.node.clone(), report.sessions.first()?.session));
        self.0.retain(|known, _| reports.iter().any(|report| key(report).as_ref() == Some(known)));
        let mut view = View { node: "pool".to_owned(), is_pool: true, left_out, ..View::default() };
        for report in reports {
            let Some(key) = key(&report) else { continue };
            view.unix_ms = view.unix_ms.max(report.unix_ms);
            let (model, row) = self.0.entry(key).or_default();
            // The same once more says nothing new.
            let is_new = model.last.as_ref().is_none_or(|last| last.monotonic_ns != report.monotonic_ns);
            if let Some(told) = is_new.then(|| model.take(report)).flatten() {
                view.interval_ns = view.interval_ns.max(told.interval_ns);
                *row = told.sessions.into_iter().next();
            }
        }
        view.sessions = self.0.values().filter_map(|(_, row)| row.clone()).collect();
        let is_waiting = !self.0.is_empty() && view.sessions.is_empty();
        (!is_waiting).then_some(view)
    }
}

fn row(node: &str, before: &Session, now: &Session, interval_ns: u64) -> Row {
    let interval = interval_ns as f64;
    let part = |ns: u64| (ns as f64 / interval).min(1.0);
    let counter = |event| now.counter(event).saturating_sub(before.counter(event));
    let mut all = readable(&Vec::new());
    let mut classes = Vec::new();
    for class in Class::ALL {
        let Some(of) = now.class(*class) else { continue };
        let counts = |event| of.counter(event).saturating_sub(before.class(*class).map_or(0, |b| b.counter(event)));
        let histogram = readable(&now.since(before, *class, times::TIME));
        all.add(&histogram).expect("both have the same bounds");
        classes.push(OfClass {
            class: class.name(),
            calls_per_s: counts(of_class::CALLS) as f64 * 1e9 / interval,
            bytes_per_s: counts(of_class::BYTES) as f64 * 1e9 / interval,
            latency: Latency::of(&histogram),
            ring: counts(of_class::RING) as f64 / interval,
            worker: part(counts(of_class::WORKER)),
            driver: part(counts(of_class::DRIVER)),
            wait: counts(of_class::WAIT) as f64 / interval,
        });
    }
    let cores = now.cores.map(|cores| (cores, before.cores.unwrap_or_default()));
    let memory = |of: fn(&Memory) -> u64| now.memory.iter().fold(0u64, |sum, memory| sum.saturating_add(of(memory)));
    let why = why(before, now, interval_ns);
    let again = |now: orion_telemetry::report::Wire| {
        now.retransmits.saturating_sub(before.wire.map_or(0, |before| before.retransmits))
    };
    Row {
        node: node.to_owned(),
        session: now.session,
        client: now.client.clone(),
        transport: now.transport.clone(),
        tenant: now.tenant.clone(),
        lease: now.lease.clone(),
        age_ms: now.age_ms,
        calls_per_s: classes.iter().map(|of| of.calls_per_s).sum(),
        latency: Latency::of(&all),
        classes,
        memory: Memory { used: memory(|m| m.used), limit: memory(|m| m.limit) },
        cores: cores.map(|(now, before)| now.run_ns.saturating_sub(before.run_ns) as f64 / interval),
        run_queue: cores
            .map(|(now, before)| now.executor_queued_ns.saturating_sub(before.executor_queued_ns) as f64 / interval),
        gpu_used: match now.gpu_time_is_known() {
            true => Some(part(counter(of_session::GPU_TIME))),
            false => of_last_second(now),
        },
        gpu_entitled: now.entitled_percent.map(|percent| f64::from(percent) / 100.0),
        throttled: part(counter(of_session::CAP_WAIT).saturating_add(counter(of_session::LEASE_WAIT))),
        rtt_ns: now.wire.map(|wire| wire.rtt_ns),
        retransmits: now.wire.map(again),
        probe_ns_per_call: now.counter(of_session::COST) as f64 / 1000.0,
        why_line: why.line(),
        why,
        history: Vec::new(),
        histories: BTreeMap::new(),
    }
}

/// What its GPUs worked for a session whose time nobody counts, if that is known of all of them.
fn of_last_second(session: &Session) -> Option<f64> {
    // Several vGPUs on one GPU are busy together.
    let percents: Option<BTreeMap<u64, u32>> =
        session.vgpus.iter().map(|vgpu| Some((vgpu.gpu, vgpu.busy_percent?))).collect();
    let percents = percents.filter(|percents| !percents.is_empty())?;
    Some((f64::from(percents.values().sum::<u32>()) / 100.0).min(1.0))
}

#[cfg(test)]
pub mod tests {
    use orion_telemetry::OwnPage;
    use orion_telemetry::report::{Cores, VERSION};

    use super::*;

    /// A session of which a second passes between one report and the next.
    pub fn reports() -> [Report; 2] {
        let page = OwnPage::alone().expect("a page");
        let mut session = Session {
            session: 7,
            client: Client { program: "train.py".into(), pid: 4711, from: "uid 0".into(), ..Client::default() },
            transport: "shm".into(),
            tenant: Some("vision".into()),
            age_ms: 60_000,
            entitled_percent: Some(50),
            memory: vec![Memory { used: 1 << 30, limit: 4 << 30 }],
            cores: Some(Cores::default()),
            ..Session::default()
        };
        let report = |session: &Session, at: u64| Report {
            version: VERSION,
            node: "alpha".into(),
            monotonic_ns: at * 1_000_000_000,
            sessions: vec![session.clone()],
            ..Report::default()
        };
        session.has(&page.read());
        let first = report(&session, 1);
        let add = |class: Class, event: orion_telemetry::events::Event, n: u64| {
            page.line(class)[event.index].store(n, std::sync::atomic::Ordering::Relaxed);
        };
        add(Class::Launch, of_class::CALLS, 1000);
        add(Class::Launch, of_class::DRIVER, 200_000_000);
        page.record(Class::Launch, times::TIME, 3_000, 1000);
        add(Class::Wait, of_class::CALLS, 10);
        add(Class::Wait, of_class::WAIT, 500_000_000);
        page.record(Class::Wait, times::TIME, 50_000_000, 10);
        page.add(of_session::PARKED, 500_000_000);
        page.add(of_session::CAP_WAIT, 100_000_000);
        page.add(of_session::LEASES, 20);
        page.add(of_session::GPU_TIME, 450_000_000);
        page.add(of_session::IDLE, 200_000_000);
        session.has(&page.read());
        session.cores = Some(Cores { run_ns: 1_500_000_000, ..Cores::default() });
        [first, report(&session, 2)]
    }

    #[test]
    fn what_happened_between_two_reports_is_told() {
        let mut model = Model::default();
        let [first, second] = reports();
        assert_eq!(model.take(first), None);
        let view = model.take(second).expect("two reports");
        let row = &view.sessions[0];
        assert_eq!((view.interval_ns, row.session, row.calls_per_s), (1_000_000_000, 7, 1010.0));
        let of = |name| row.classes.iter().find(|of| of.class == name).expect("it was used");
        let launches = of("launch").latency.expect("they were timed");
        assert!((2_900..3_100).contains(&launches.p50_ns), "{launches:?}");
        let all = row.latency.expect("there were some");
        assert!(all.p50_ns < 3_100 && all.p99_9_ns > 45_000_000, "{all:?}");
        assert_eq!((row.cores, row.gpu_used, row.gpu_entitled), (Some(1.5), Some(0.45), Some(0.5)));
        assert!((row.throttled - 0.1).abs() < 1e-9);
        assert_eq!(row.why_line, "80% of the time is waited: the driver and GPU 70%, my own cap 10%");
        assert_eq!((row.history.len(), row.histories["wait"].len()), (1, 1));
    }

    #[test]
    fn sessions_of_a_pool_are_told_of_when_their_nodes_come_to_it() {
        let [first, second] = reports();
        let other = Report { node: "beta".into(), ..first.clone() };
        let mut model = PoolModel::default();
        assert_eq!(model.take(vec![first.clone(), other.clone()], 0), None);
        assert_eq!(model.take(vec![first, other.clone()], 0), None);
        let view = model.take(vec![second.clone(), other.clone()], 1).expect("one is told of");
        assert_eq!((view.sessions.len(), view.sessions[0].node.as_str(), view.left_out), (1, "alpha", 1));
        // It stays until there is something new of it, and goes with its session.
        assert_eq!(model.take(vec![second, other], 0).expect("as before").sessions, view.sessions);
        assert_eq!(model.take(Vec::new(), 0).expect("nobody is there").sessions.len(), 0);
    }

    #[test]
    fn a_report_of_an_oriond_that_was_started_anew_is_a_first_one() {
        let mut model = Model::default();
        let [first, second] = reports();
        assert_eq!(model.take(second), None);
        assert_eq!(model.take(first), None);
    }
}
