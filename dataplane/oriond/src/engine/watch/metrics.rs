//! OpenMetrics over HTTP, of every session with who it is for. Off unless `--metrics` names an address.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use orion_telemetry::Class;
use orion_telemetry::events::{Event, Unit, of_class, of_session, times};
use orion_telemetry::histogram::{Counts, middle};
use orion_telemetry::report::{Report, Session};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit as Of};
use tokio::task::AbortHandle;

use super::directory::{Directory, Sees};

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Upper ends of the buckets in which histograms are told, in nanoseconds.
const ENDS: [u64; 9] =
    [1_000, 5_000, 20_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000];

/// Who asks at one time. One who comes takes the place of the one who came first: an answer takes milliseconds.
const ASKING_MAX: usize = 32;
/// From coming to having read the answer.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);
/// Most likely there are no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Listens, and starts the thread. Answers where.
pub fn open(address: SocketAddr, directory: Arc<Directory>) -> Result<SocketAddr, String> {
    let failed = |e: std::io::Error| format!("listening for --metrics on {address} failed: {e}");
    let listener = std::net::TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let serve = async move {
        let routes = Router::new()
            .route("/metrics", get(answer))
            .fallback(|| async { (StatusCode::NOT_FOUND, "there is /metrics\n") })
            .with_state(directory);
        serve(tokio::net::TcpListener::from_std(listener)?, routes).await
    };
    std::thread::Builder::new()
        .name("metrics".into())
        .spawn(move || {
            if let Err(error) = runtime.block_on(serve) {
                tracing::error!(%error, "no metrics are served any more");
            }
        })
        .map(|_| bound)
        .map_err(failed)
}

/// Nobody who asks here has oriond's descriptors for long, nor many: sessions need them.
async fn serve(listener: tokio::net::TcpListener, routes: Router) -> std::io::Result<()> {
    let mut asking: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let (socket, _) = match listener.accept().await {
            Ok(arrived) => arrived,
            Err(error) => {
                tracing::warn!(%error, "accepting somebody at --metrics failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        asking.retain(|one| !one.is_finished());
        if asking.len() >= ASKING_MAX {
            asking.pop_front().inspect(AbortHandle::abort);
        }
        let service = TowerToHyperService::new(routes.clone());
        let served = async move {
            let mut builder = http1::Builder::new();
            let served = builder.keep_alive(false).serve_connection(TokioIo::new(socket), service);
            // How it ends is seen at the other end.
            let _ = tokio::time::timeout(ANSWERED_WITHIN, served).await;
        };
        asking.push_back(tokio::spawn(served).abort_handle());
    }
}

async fn answer(State(directory): State<Arc<Directory>>) -> Response {
    match text(directory.report(Sees::All)) {
        Ok(text) => ([(header::CONTENT_TYPE, OPENMETRICS)], text).into_response(),
        Err(e) => (StatusCode::INTERNAL_SERVER_ERROR, e.to_string()).into_response(),
    }
}

fn text(report: Report) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("orion");
    registry.register_collector(Box::new(Sessions(report)));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

/// As labels. There are as many values as sessions.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Who {
    node: String,
    session: u64,
    program: String,
    pid: u32,
    from: String,
    container: String,
    pod: String,
    tenant: String,
    transport: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Vgpu {
    #[prometheus(flatten)]
    who: Who,
    vgpu: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfClass {
    #[prometheus(flatten)]
    who: Who,
    class: &'static str,
}

#[derive(Debug)]
struct Sessions(Report);

impl Sessions {
    fn all(&self) -> impl Iterator<Item = (Who, &Session)> {
        self.0.sessions.iter().map(|session| {
            let client = &session.client;
            let who = Who {
                node: self.0.node.clone(),
                session: session.session,
                program: client.program.clone(),
                pid: client.pid,
                from: client.from.clone(),
                container: client.container.clone().unwrap_or_default(),
                pod: client.pod.clone().unwrap_or_default(),
                tenant: session.tenant.clone().unwrap_or_default(),
                transport: session.transport.clone(),
            };
            (who, session)
        })
    }
}

impl Collector for Sessions {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.of_classes(&mut encoder)?;
        self.of_sessions(&mut encoder)?;
        self.of_vgpus(&mut encoder)?;
        self.of_system(&mut encoder)
    }
}

impl Sessions {
    fn of_classes(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        for event in of_class::ALL {
            let (name, unit) = (name(*event), unit(*event));
            let mut family = encoder.encode_descriptor(&name, event.what, unit.as_ref(), MetricType::Counter)?;
            for (who, session) in self.all() {
                for (class, of) in used(session) {
                    let labels = OfClass { who: who.clone(), class: class.name() };
                    let value = ConstCounter::new(scaled(*event, of.counter(*event)));
                    value.encode(family.encode_family(&labels)?)?;
                }
            }
        }
        for event in times::ALL {
            let (name, unit) = (name(*event), unit(*event));
            let mut family = encoder.encode_descriptor(&name, event.what, unit.as_ref(), MetricType::Histogram)?;
            for (who, session) in self.all() {
                for (class, of) in used(session) {
                    let labels = OfClass { who: who.clone(), class: class.name() };
                    let (sum, count, buckets) = buckets(of.histogram(*event));
                    family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
                }
            }
        }
        Ok(())
    }

    fn of_sessions(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        for event in of_session::ALL.iter().filter(|event| event.unit != Unit::Moment) {
            let (name, unit) = (name(*event), unit(*event));
            let is_sum = !matches!(event.unit, Unit::Picoseconds | Unit::BytesNow);
            let kind = if is_sum { MetricType::Counter } else { MetricType::Gauge };
            let mut family = encoder.encode_descriptor(&name, event.what, unit.as_ref(), kind)?;
            // What nobody counts is not 0.
            let told = self.all().filter_map(|(who, session)| Some((who, scaled(*event, session.told(*event)?))));
            for (who, value) in told {
                match is_sum {
                    true => ConstCounter::new(value).encode(family.encode_family(&who)?)?,
                    false => ConstGauge::new(value).encode(family.encode_family(&who)?)?,
                }
            }
        }
        gauges(encoder, "session_share_target_ratio", "part of a GPU's time that it may have", None, || {
            self.all().filter_map(|(who, s)| Some((who, f64::from(s.entitled_percent?) / 100.0)))
        })?;
        gauges(encoder, "session_age", "since it began", Some(Of::Seconds), || {
            self.all().map(|(who, s)| (who, s.age_ms as f64 / 1000.0))
        })
    }

    fn of_vgpus(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let all = || {
            self.all().flat_map(|(who, session)| {
                (0..).zip(&session.memory).map(move |(vgpu, memory)| (Vgpu { who: who.clone(), vgpu }, *memory))
            })
        };
        let name = ["vgpu_memory_used", "vgpu_memory_limit"];
        gauges(encoder, name[0], "device memory that is used", Some(Of::Bytes), || {
            all().map(|(vgpu, memory)| (vgpu, memory.used as f64))
        })?;
        gauges(encoder, name[1], "device memory that may be used", Some(Of::Bytes), || {
            all().map(|(vgpu, memory)| (vgpu, memory.limit as f64))
        })?;
        let busy = "part of the last second in which its GPU worked for the session, where that is measured";
        gauges(encoder, "vgpu_busy_ratio", busy, None, || {
            self.all().flat_map(|(who, session)| {
                let known = (0..).zip(&session.vgpus).filter_map(|(vgpu, one)| Some((vgpu, one.busy_percent?)));
                known.map(move |(vgpu, percent)| (Vgpu { who: who.clone(), vgpu }, f64::from(percent) / 100.0))
            })
        })
    }

    fn of_system(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let cores = |of: fn(&orion_telemetry::report::Cores) -> f64| {
            self.all().filter_map(move |(who, s)| Some((who, of(&s.cores?))))
        };
        let wire = |of: fn(&orion_telemetry::report::Wire) -> f64| {
            self.all().filter_map(move |(who, s)| Some((who, of(&s.wire?))))
        };
        let seconds = Some(Of::Seconds);
        counters(encoder, "session_cpu", "on cores, of its worker", seconds.clone(), || {
            cores(|c| c.run_ns as f64 / 1e9)
        })?;
        counters(encoder, "session_run_queue", "its executor wanted a core", seconds.clone(), || {
            cores(|c| c.executor_queued_ns as f64 / 1e9)
        })?;
        gauges(encoder, "session_wire_rtt", "round trip of its connection", seconds, || {
            wire(|w| w.rtt_ns as f64 / 1e9)
        })?;
        counters(encoder, "session_wire_retransmits", "segments sent again", None, || wire(|w| w.retransmits as f64))?;
        counters(encoder, "session_wire_sent", "to the client", Some(Of::Bytes), || wire(|w| w.sent_bytes as f64))?;
        counters(encoder, "session_wire_received", "from the client", Some(Of::Bytes), || {
            wire(|w| w.received_bytes as f64)
        })
    }
}

fn gauges<L: EncodeLabelSet, I: Iterator<Item = (L, f64)>>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    what: &str,
    unit: Option<Of>,
    values: impl Fn() -> I,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, what, unit.as_ref(), MetricType::Gauge)?;
    for (labels, value) in values() {
        ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

fn counters<L: EncodeLabelSet, I: Iterator<Item = (L, f64)>>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    what: &str,
    unit: Option<Of>,
    values: impl Fn() -> I,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, what, unit.as_ref(), MetricType::Counter)?;
    for (labels, value) in values() {
        ConstCounter::new(value).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

fn used(session: &Session) -> impl Iterator<Item = (Class, &orion_telemetry::report::OfClass)> {
    Class::ALL.iter().filter_map(|class| Some((*class, session.class(*class)?)))
}

/// Bytes say so themselves, by their unit.
fn name(event: Event) -> String {
    let is_of_bytes = matches!(event.unit, Unit::Bytes | Unit::BytesNow);
    let name = if is_of_bytes { event.name.trim_end_matches("_bytes") } else { event.name };
    match name {
        "bytes" => "session_moved".to_owned(),
        name => format!("session_{name}"),
    }
}

fn unit(event: Event) -> Option<Of> {
    match event.unit {
        Unit::Nanoseconds => Some(Of::Seconds),
        Unit::Bytes | Unit::BytesNow => Some(Of::Bytes),
        Unit::Count | Unit::Picoseconds | Unit::Moment => None,
    }
}

fn scaled(event: Event, value: u64) -> f64 {
    if event.unit == Unit::Nanoseconds { value as f64 / 1e9 } else { value as f64 }
}

/// Sum, count, and what is up to each end.
fn buckets(counts: &Counts) -> (f64, u64, Vec<(f64, u64)>) {
    let mut buckets: Vec<(f64, u64)> = ENDS.iter().map(|end| (*end as f64 / 1e9, 0)).collect();
    buckets.push((f64::MAX, 0));
    let (mut sum, mut total) = (0.0, 0u64);
    for (bucket, count) in counts {
        let value = middle(*bucket as usize);
        let place = ENDS.iter().position(|end| value <= *end).unwrap_or(ENDS.len());
        buckets[place].1 = buckets[place].1.saturating_add(*count);
        total = total.saturating_add(*count);
        sum += value as f64 / 1e9 * *count as f64;
    }
    (sum, total, buckets)
}

#[cfg(test)]
mod tests {
    use orion_telemetry::OwnPage;

    use super::super::directory::Watched;
    use super::super::directory::tests::{on, watched};
    use super::super::utilization::Utilization;
    use super::*;
    use crate::engine::peer::Source;
    use crate::engine::time::arbiters::Seats;
    use crate::engine::time::policy::Shares;

    #[test]
    fn whoever_asks_for_nothing_gives_way_to_who_asks() {
        use std::io::{Read, Write};
        use std::net::TcpStream;
        let address =
            open("127.0.0.1:0".parse().expect("an address"), Arc::new(Directory::new(Utilization::default(), true)))
                .expect("a port");
        let connect = || {
            let socket = TcpStream::connect(address).expect("it listens");
            socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
            socket
        };
        let mut silent: Vec<TcpStream> = (0..100).map(|_| connect()).collect();
        silent.iter_mut().for_each(|socket| drop(socket.write_all(b"G")));
        let mut asks = connect();
        asks.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").expect("it takes it");
        let mut answer = String::new();
        asks.read_to_string(&mut answer).expect("an answer, and its end");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("# EOF\n"), "{answer}");
        // The first of them were closed at once, and the others are soon.
        let began = std::time::Instant::now();
        for socket in &mut silent[..100 - ASKING_MAX] {
            let end = socket.read(&mut [0]);
            assert!(
                end.as_ref().is_ok_and(|n| *n == 0) || end.is_err_and(|e| e.raw_os_error() == Some(libc::ECONNRESET))
            );
        }
        assert!(began.elapsed() < ANSWERED_WITHIN);
        for socket in &mut silent[100 - ASKING_MAX..] {
            assert!(!socket.read(&mut [0]).is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock));
        }
    }

    #[test]
    fn a_metric_of_the_gpus_time_is_not_0_where_nobody_counts_it() {
        let of = [
            "orion_session_gpu_time_seconds_total{",
            "orion_session_leases_total{",
            "orion_session_lease_overrun_seconds_total{",
            "orion_vgpu_busy_ratio{",
        ];
        let told = |seats: Option<Seats>| {
            let (directory, at) = (Directory::new(Utilization::default(), true), seats.as_ref().map(|_| 0));
            directory.begins(5, Watched { seats, ..watched(Source::User(7)) });
            directory.has_vgpus(5, vec![on(3, at)]);
            let text = text(directory.report(Sees::All)).expect("text");
            of.map(|start| text.lines().any(|line| line.starts_with(start) && line.ends_with("} 0.0")))
        };
        assert_eq!(told(None), [false; 4]);
        assert_eq!(told(Some(Seats::create(Shares::Each(50)).expect("a page"))), [true; 4]);
    }

    #[test]
    fn sessions_are_told_with_who_they_are_for() {
        let directory = Directory::new(Utilization::default(), true);
        let session = watched(Source::User(7));
        let page = OwnPage::map(session.page.fd()).expect("the same page");
        page.line(Class::Launch)[of_class::CALLS.index].store(3, std::sync::atomic::Ordering::Relaxed);
        page.add(of_session::CAP_WAIT, 1_500_000_000);
        page.record(Class::Launch, times::TIME, 3_000, 2);
        directory.begins(5, session);
        let text = text(directory.report(Sees::All)).expect("text");
        let line = |start: &str, end: &str| {
            let found = text.lines().find(|line| line.starts_with(start) && line.ends_with(end));
            found.unwrap_or_else(|| panic!("no {start} … {end} in\n{text}"))
        };
        let calls = line("orion_session_calls_total{", "} 3.0");
        assert!(calls.contains("program=\"train.py\"") && calls.contains("class=\"launch\""), "{calls}");
        assert!(calls.contains("pid=\"4711\"") && calls.contains("tenant=\"team\""), "{calls}");
        line("orion_session_cap_wait_seconds_total{", "} 1.5");
        line("orion_session_share_target_ratio{", "} 0.5");
        assert!(line("orion_session_time_seconds_bucket{", "} 2").contains("le=\"0.000005\""));
        line("orion_session_time_seconds_count{", "} 2");
        assert!(text.ends_with("# EOF\n"));
    }
}
