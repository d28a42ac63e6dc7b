//! OpenMetrics over HTTP, of every session with who it is for. Off unless `--metrics` names an address.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
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

use super::directory::{Directory, Sees};

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Upper ends of the buckets in which histograms are told, in nanoseconds.
const ENDS: [u64; 9] =
    [1_000, 5_000, 20_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000];

/// Listens, and starts the thread. Answers where.
pub fn open(address: SocketAddr, directory: Arc<Directory>) -> Result<SocketAddr, String> {
    let failed = |e: std::io::Error| format!("listening for --metrics on {address} failed: {e}");
    let listener = std::net::TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let serve = async move {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let routes = Router::new()
            .route("/metrics", get(answer))
            .fallback(|| async { (StatusCode::NOT_FOUND, "there is /metrics\n") })
            .with_state(directory);
        axum::serve(listener, routes).await
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
            let is_sum = event.unit != Unit::Picoseconds;
            let kind = if is_sum { MetricType::Counter } else { MetricType::Gauge };
            let mut family = encoder.encode_descriptor(&name, event.what, unit.as_ref(), kind)?;
            for (who, session) in self.all() {
                let value = scaled(*event, session.counter(*event));
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
    let name = if event.unit == Unit::Bytes { event.name.trim_end_matches("_bytes") } else { event.name };
    match name {
        "bytes" => "session_moved".to_owned(),
        name => format!("session_{name}"),
    }
}

fn unit(event: Event) -> Option<Of> {
    match event.unit {
        Unit::Nanoseconds => Some(Of::Seconds),
        Unit::Bytes => Some(Of::Bytes),
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

    use super::super::directory::tests::watched;
    use super::*;
    use crate::engine::peer::Source;

    #[test]
    fn sessions_are_told_with_who_they_are_for() {
        let directory = Directory::new();
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
