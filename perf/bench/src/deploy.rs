//! `deploy-check`: measures a server as an application would use it, and says what to expect of it.

use std::collections::BTreeMap;
use std::net::{TcpListener, ToSocketAddrs};
use std::path::Path;
use std::time::{Duration, Instant};

use orion_tls::is_loopback;
use orion_tls::trust::{Trust, Way};
use orion_transport::carrier::tcp;
use orion_transport::client::{Caller, Server};
use orion_transport::proof::Token;

use crate::compare::digits;
use crate::gpu::{Gpu, ok, open};
use crate::model::{Coefficient, Deployment, Model};
use crate::rdma::{self, Verbs};
use crate::report::{Better, Machine, Sample};
use crate::task::{self, Task};
use crate::timing::Times;
use crate::workload::stub::Parameters;

/// Runs in a child, against the server its environment names.
pub fn probe(library: &Path, bytes: usize) -> Result<Vec<Sample>, String> {
    let gpu = Gpu::new(open(library)?)?;
    let mut memory = 0;
    ok!(gpu.cu, cuDeviceTotalMem_v2(&mut memory, gpu.device));
    let device = Sample::new(gpu.name()?, "GiB", Better::Higher, memory as f64 / (1u64 << 30) as f64);
    (0..200).try_for_each(|_| gpu.ask())?;
    let (mut calls, begin) = (Times::new(), Instant::now());
    while begin.elapsed() < Duration::from_secs(1) {
        let start = Instant::now();
        gpu.ask()?;
        calls.record(start.elapsed());
    }
    let (function, mut parameters, mut launches) = (gpu.function("eight")?, Parameters::new(), Times::new());
    for _ in 0..50 {
        let start = Instant::now();
        for _ in 0..500 {
            gpu.launch(function, std::ptr::null_mut(), parameters.pointers())?;
        }
        launches.record_batch(start.elapsed(), 500);
        gpu.synchronize(std::ptr::null_mut())?;
    }
    let copies = crate::workload::copies::measure(library, &[bytes], 0.5)?;
    let p99 = calls.quantile_ns(0.99) / 1e3;
    let mut samples = vec![
        device,
        Sample::of_times("round trip", "us", &calls).detail("p99", p99),
        Sample::of_times("enqueue", "ns", &launches),
    ];
    samples.extend(copies);
    Ok(samples)
}

struct Candidate {
    server: Server,
    on: Deployment,
}

pub fn check(shim: &Path, servers: &[String], model: Option<&Path>, verbs: Option<Verbs>) -> Result<(), String> {
    let model = Model::read(model)?;
    let wanted = match (verbs, servers.first()) {
        (Some(verbs), Some(first)) => {
            rdma::carrying(&model)?;
            Some((verbs, rdma::Base::of(&Server::parse(first)?)?))
        }
        _ => None,
    };
    println!("client: {} cores", Machine::here("").cores);
    let mut candidates = Vec::new();
    for text in servers {
        let server = Server::parse(text)?;
        let candidate = measure(shim, server, text)?;
        expectations(&model, &candidate);
        candidates.push(candidate);
    }
    println!("\n{}", advice(&candidates));
    match (wanted, candidates.first()) {
        (Some((verbs, base)), Some(first)) => prediction(&model, verbs, base, first),
        _ if candidates.iter().any(|c| c.server.carrier.device.is_some()) => Ok(()),
        _ => {
            println!("\nRDMA: nothing is predicted, for nothing was measured of a device. {}", rdma::how_to_measure());
            Ok(())
        }
    }
}

/// What the first server would be over RDMA. Every line says that nobody has measured it.
fn prediction(model: &Model, verbs: Verbs, base: rdma::Base, of: &Candidate) -> Result<(), String> {
    let on = rdma::predicted(model, verbs, base, &of.on)?;
    println!("\npredicted, RDMA to {}: {} us one way, {} GB/s", of.server, digits(verbs.us), digits(verbs.gbps));
    rdma::ASSUMPTIONS.iter().for_each(|line| println!("  assumed                {line}"));
    println!("  predicted              call with answer {} us", digits(on.round_trip_us));
    println!("  predicted              pinned copies {} GB/s", digits(on.pinned_gbps));
    for (name, workload) in &model.workloads {
        match model.expect(workload, &on).map(|expected| expected.slowdown) {
            Ok(Ok(slowdown)) => {
                println!("  predicted, {name}: slowdown {slowdown:.2} (below 1 is faster than the bare GPU)")
            }
            Ok(Err(missing)) | Err(missing) => println!("  predicted, {name}: nothing; {missing}"),
        }
    }
    Ok(())
}

fn measure(shim: &Path, server: Server, text: &str) -> Result<Candidate, String> {
    const BYTES: usize = 64 << 20;
    let samples = task::measure(&Task::Probe { library: shim.to_owned(), bytes: BYTES }, Some(text))?;
    let [device, call, enqueue, pinned_in, pinned_out, pageable_in, pageable_out] = samples.as_slice() else {
        return Err("the probe brought the wrong samples".into());
    };
    let p99 = call.details.get("p99").copied().unwrap_or(f64::NAN);
    println!("\n{server}, transport {}", server.transport());
    if server.transport() == "tcp" && Token::from_environment()?.is_none() {
        println!("  INSECURE               this server asks for no token: whoever reaches it can use its GPUs");
    }
    if server.transport() == "tcp" {
        println!("{}", encryption(&server)?);
    }
    println!("  device                 {}, {:.0} GiB", device.case, device.value);
    println!("  call with answer       {} us p50, {} us p99", digits(call.value), digits(p99));
    println!("  launch enqueued in     {} ns", digits(enqueue.value));
    println!("  pinned, 64 MiB         {} GB/s in, {} GB/s out", digits(pinned_in.value), digits(pinned_out.value));
    println!("  pageable, 64 MiB       {} GB/s in, {} GB/s out", digits(pageable_in.value), digits(pageable_out.value));
    if device.case.contains("oftware") {
        println!("  The software GPU answers here: copies and expectations are of the way to a GPU, not of one.");
    }
    let on = Deployment {
        round_trip_us: call.value,
        enqueue_us: enqueue.value / 1e3,
        pinned_gbps: pinned_in.value.min(pinned_out.value),
        pageable_to_device_gbps: pageable_in.value,
        pageable_to_host_gbps: pageable_out.value,
    };
    Ok(Candidate { server, on })
}

/// How programs with this environment speak to it: as the measurement above did.
fn encryption(server: &Server) -> Result<&'static str, String> {
    let trust = Trust::of_this_process(|name| std::env::var(name))?;
    let caller = Caller { trust, ..Caller::new("orion-bench", Token::from_environment()?) };
    Ok(match tcp::way(server, &caller)? {
        Way::Tls(..) => "  encrypted              by TLS 1.3",
        Way::Plain if server.host().is_some_and(is_loopback) => {
            "  encrypted              no: it is this machine's own (ORION_TLS=1 would)"
        }
        Way::Plain => "  INSECURE               what crosses the network can be read and changed (ORION_INSECURE=1)",
    })
}

fn expectations(model: &Model, candidate: &Candidate) {
    for (name, workload) in &model.workloads {
        println!("  expected, {name}: {}", workload.step);
        let expected = match model.expect(workload, &candidate.on) {
            Ok(expected) => expected,
            Err(missing) => {
                println!("    {missing}");
                continue;
            }
        };
        println!("    waiting and copying    {} us a step", digits(expected.added_us));
        match &expected.slowdown {
            Ok(slowdown) => println!("    slowdown               {slowdown:.2} (below 1 is faster than the bare GPU)"),
            Err(missing) => println!("    slowdown               {missing}"),
        }
        let like = like(&candidate.server, &workload.measured_slowdown);
        let measured = workload.measured_slowdown.get(like).and_then(|c| c.value);
        match (&expected.slowdown, measured) {
            (Ok(s), Some(m)) => {
                let error = (s / m - 1.0) * 100.0;
                println!("    measured elsewhere     {m:.2} over {like}: the model errs by {error:+.0} %");
            }
            (_, Some(m)) => println!("    measured elsewhere     {m:.2} over {like}"),
            (_, None) => println!("    measured elsewhere     not measured"),
        }
    }
}

/// Which measurement is most like this server: `tcp` was measured on one machine, `network` behind an emulated one.
fn like(server: &Server, measured: &BTreeMap<String, Coefficient>) -> &'static str {
    match server.host() {
        Some(address) if measured.contains_key("network") && !is_local(address) => "network",
        _ => server.transport(),
    }
}

fn advice(candidates: &[Candidate]) -> String {
    let Some(best) = candidates.iter().min_by(|a, b| a.on.round_trip_us.total_cmp(&b.on.round_trip_us)) else {
        return "no server was given".into();
    };
    let shm = candidates.iter().any(|c| c.server.transport() == "shm");
    match best.server.host() {
        Some(address) if !shm && is_local(address) => format!(
            "{address} is this machine: shared memory will be faster. Use oriond's UNIX socket (unix:/path) here, and \
             tcp only where the socket cannot be reached, such as from a VM."
        ),
        _ => format!("Use {}: ORION_SERVER={}", best.server.transport(), best.server),
    }
}

/// An address of this machine is one that can be listened on.
fn is_local(address: &str) -> bool {
    let Ok(mut addresses) = address.to_socket_addrs() else { return false };
    addresses.any(|mut a| {
        a.set_port(0);
        TcpListener::bind(a).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_judged_by_what_is_most_like_it() {
        let unknown = Coefficient { value: None, source: "nobody".into() };
        let with =
            |names: &[&str]| names.iter().map(|n| ((*n).to_owned(), unknown.clone())).collect::<BTreeMap<_, _>>();
        let server = |text| Server::parse(text).expect("an address");
        let all = with(&["shm", "tcp", "network"]);
        assert_eq!(like(&server("unix:/run/orion/oriond.sock"), &all), "shm");
        assert_eq!(like(&server("tcp:127.0.0.1:7411"), &all), "tcp");
        // An address that is nobody's, so not of this machine either.
        assert_eq!(like(&server("tcp:192.0.2.1:7411"), &all), "network");
        assert_eq!(like(&server("tcp:192.0.2.1:7411"), &with(&["shm", "tcp"])), "tcp");
    }
}
