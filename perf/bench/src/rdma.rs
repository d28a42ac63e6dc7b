//! What a session over RDMA would be, from what verbs do between the two nodes and what Orion does without them. A
//! prediction: nobody has measured it on a network card.
//!
//! ```text
//! round trip = that over shared memory + carrying both ways + 2 x a write's time
//! bandwidth  = the least of verbs' and of what was measured without a network
//! ```
//! *Carrying* is what threads of Orion's at both ends take to pass records on, which shared memory has no need of. It
//! is the coefficient `carrying_us` of the model: a call over TCP on one machine less one over shared memory, so it
//! holds the kernel's TCP too, and what is predicted is rather too slow than too fast.

use orion_tls::is_loopback;
use orion_transport::client::Server;

use crate::model::{Deployment, Model};

/// Of a device between two nodes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Verbs {
    /// A write of few bytes, one way.
    pub us: f64,
    pub gbps: f64,
}

/// In the words of who reads the prediction.
pub const ASSUMPTIONS: [&str; 3] = [
    "a call waits for one write each way, and for threads of Orion's at both ends, as over TCP",
    "copies keep the network busy: their rate is its own, or that of this server without it if that is less",
    "the network is this session's alone, and no card has confirmed any of this",
];

pub fn how_to_measure() -> &'static str {
    "Between two nodes with devices, `ib_write_lat NODE` and `ib_write_bw NODE` of perftest do; give both by --verbs \
     MICROSECONDS,GB/S, with a server on this machine, by its socket or by TCP of 127.0.0.1"
}

impl Verbs {
    pub fn parse(text: &str) -> Result<Verbs, String> {
        let numbers = text.split_once(',').and_then(|(us, gbps)| Some((us.parse().ok()?, gbps.parse().ok()?)));
        match numbers {
            Some((us, gbps)) if us > 0.0 && gbps > 0.0 && f64::is_finite(us) && f64::is_finite(gbps) => {
                Ok(Verbs { us, gbps })
            }
            _ => Err(format!("{text:?} is not a latency and a rate, such as 2.1,24 for 2.1 us and 24 GB/s")),
        }
    }
}

/// How the server was reached of which something is predicted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Base {
    SharedMemory,
    Loopback,
}

impl Base {
    /// Of a server on the machine that measures it. Over a network the network's own time is in what was measured, and
    /// a prediction of another network from there would hold both.
    pub fn of(server: &Server) -> Result<Base, String> {
        match server.transport() {
            "shm" => Ok(Base::SharedMemory),
            "tcp" if server.host().is_some_and(is_loopback) => Ok(Base::Loopback),
            _ => Err(format!(
                "RDMA: nothing is predicted from {server}, for the time of its own way is in what is measured there, \
                 and verbs' would come on top; measure it on its own machine by shm (--server unix:/path --verbs \
                 US,GB/S), and name it first"
            )),
        }
    }
}

/// Without it nothing is predicted.
pub fn carrying(model: &Model) -> Result<f64, &'static str> {
    model.carrying_us.value.ok_or(
        "RDMA: nothing is predicted, carrying_us of the model is not measured; perf/suite/coefficients.py fills it",
    )
}

/// `on` was measured of a server that was reached so.
pub fn predicted(model: &Model, verbs: Verbs, base: Base, on: &Deployment) -> Result<Deployment, String> {
    let carrying = carrying(model)?;
    let own = match base {
        Base::SharedMemory => on.round_trip_us,
        // It has been carried already.
        Base::Loopback => (on.round_trip_us - carrying).max(0.0),
    };
    let rate = |measured: f64| measured.min(verbs.gbps);
    Ok(Deployment {
        round_trip_us: own + carrying + 2.0 * verbs.us,
        enqueue_us: on.enqueue_us,
        pinned_gbps: rate(on.pinned_gbps),
        pageable_to_device_gbps: rate(on.pageable_to_device_gbps),
        pageable_to_host_gbps: rate(on.pageable_to_host_gbps),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row of the report of which the shipped model is made: what was measured by a transport.
    const GOALS: &str = include_str!("../../reports/2026-11-h200-all-goals.md");

    /// The first number of each cell of a row of its speed table: native, shm and TCP.
    fn row(name: &str) -> [f64; 3] {
        let line = GOALS.lines().find(|line| line.starts_with(&format!("| {name} |"))).expect(name);
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        [2, 3, 7].map(|cell| cells[cell].split(' ').next().and_then(|text| text.parse().ok()).expect(cells[cell]))
    }

    /// Of which `carrying_us` is made.
    const SHORT_CALL: &str = "call with answer, beyond native (cuMemPoolGetAttribute p50)";
    /// Of which it is not.
    const OTHER_CALL: &str = "call with answer, beyond native (cuMemGetInfo p50)";

    fn measured(transport: usize, call: &str) -> Deployment {
        let [pinned, into, out] = ["pinned H2D 256 MiB", "pageable H2D 256 MiB", "pageable D2H 256 MiB"].map(row);
        Deployment {
            round_trip_us: row(call)[transport],
            enqueue_us: row("enqueue of a launch")[transport] / 1e3,
            pinned_gbps: pinned[transport],
            pageable_to_device_gbps: into[transport],
            pageable_to_host_gbps: out[transport],
        }
    }

    /// A network that takes no time and carries what TCP did is TCP of one machine. The call is one that the model does
    /// not know: 4.69 us over shared memory and 9.02 of carrying for 13.6 over TCP.
    #[test]
    fn what_was_measured_over_tcp_is_foretold_from_shared_memory() {
        let model = Model::read(None).expect("the shipped one");
        assert!(!model.carrying_us.source.contains("cuMemGetInfo"), "{}", model.carrying_us.source);
        let (shm, tcp) = (measured(1, OTHER_CALL), measured(2, OTHER_CALL));
        let verbs = Verbs { us: 1e-9, gbps: tcp.pinned_gbps };
        let found = predicted(&model, verbs, Base::SharedMemory, &shm).expect("a prediction");
        let error = found.round_trip_us / tcp.round_trip_us - 1.0;
        assert!(error.abs() < 0.05, "{found:?} and {tcp:?}");
        assert!((found.pinned_gbps - tcp.pinned_gbps).abs() < 0.01, "{found:?}");
    }

    /// From TCP of this machine carrying goes out and comes in again: what is left is the network.
    #[test]
    fn over_loopback_a_call_is_what_it_was_and_two_writes() {
        let model = Model::read(None).expect("the shipped one");
        let tcp = measured(2, OTHER_CALL);
        let verbs = Verbs { us: 2.0, gbps: tcp.pinned_gbps };
        let found = predicted(&model, verbs, Base::Loopback, &tcp).expect("a prediction");
        assert!((found.round_trip_us - tcp.round_trip_us - 4.0).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn nothing_is_foretold_of_a_server_behind_a_network() {
        let base = |text: &str| Base::of(&Server::parse(text).expect("an address"));
        assert_eq!(base("unix:/run/orion/oriond.sock"), Ok(Base::SharedMemory));
        for loopback in ["tcp:127.0.0.1:7411", "tcp:localhost:7411", "tcp:[::1]:7411"] {
            assert_eq!(base(loopback), Ok(Base::Loopback), "{loopback}");
        }
        for elsewhere in
            ["tcp:gpu-node:7411", "tcp:192.0.2.1:7411", "rdma:node:7412", "ivshmem:0000:00:04.0", "vsock:2:7411"]
        {
            let why = base(elsewhere).expect_err(elsewhere);
            assert!(why.contains(elsewhere) && why.contains("measure it on its own machine by shm"), "{why}");
        }
    }

    /// The link of the report's network table: it added 49 us to a round trip, and one connection carried 21.1 Gbit/s.
    #[test]
    fn steps_over_the_emulated_network_are_foretold_to_a_third() {
        let model = Model::read(None).expect("the shipped one");
        let on = predicted(&model, Verbs { us: 24.5, gbps: 21.1 / 8.0 }, Base::SharedMemory, &measured(1, SHORT_CALL));
        let on = on.expect("a prediction");
        let mut judged = 0;
        for (name, workload) in &model.workloads {
            let Some(measured) = workload.measured_slowdown.get("network").and_then(|c| c.value) else { continue };
            let found = model.expect(workload, &on).expect("complete").slowdown.expect("complete");
            assert!((found / measured - 1.0).abs() < 0.34, "{name}: {found} foretold, {measured} measured");
            judged += 1;
        }
        assert!(judged >= 2, "{judged} workloads have been measured over a network");
    }

    #[test]
    fn a_slower_network_is_never_better_and_what_is_not_known_is_not_foretold() {
        let mut model = Model::read(None).expect("the shipped one");
        let (base, on) = (Base::SharedMemory, measured(1, SHORT_CALL));
        let at = |us, gbps| predicted(&model, Verbs { us, gbps }, base, &on).expect("a prediction");
        assert!((at(5.0, 3.0).round_trip_us - at(1.0, 3.0).round_trip_us - 8.0).abs() < 1e-9);
        assert!(at(1.0, 3.0).pinned_gbps < at(1.0, 4.0).pinned_gbps);
        assert!(at(1.0, 1e3).pinned_gbps <= on.pinned_gbps);
        let verbs = Verbs { us: 2.0, gbps: 24.0 };
        model.carrying_us.value = None;
        let why = predicted(&model, verbs, base, &on).expect_err("unknown");
        assert!(why.contains("carrying_us of the model is not measured"), "{why}");
    }

    #[test]
    fn verbs_are_a_latency_and_a_rate() {
        assert_eq!(Verbs::parse("2.1,24"), Ok(Verbs { us: 2.1, gbps: 24.0 }));
        for text in ["2.1", "2.1,", "0,24", "-1,24", "2.1,NaN", "inf,1", "a,b"] {
            assert!(Verbs::parse(text).expect_err(text).contains("2.1,24"), "{text}");
        }
    }
}
