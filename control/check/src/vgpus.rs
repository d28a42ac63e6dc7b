//! Whether a program with these settings would be given its vGPUs now. The pool is asked what it would give, and gives
//! nothing.

use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use orion_transport::client::Server;
use orion_transport::client::original;
use orion_transport::client::wanted::Wanted;
use orion_transport::socket::connect_local;
use orion_wire::address::{Leads, Place};
use serde::Deserialize;

use crate::controller::{Reply, post};
use crate::finding::Report;
use crate::settings::variable;

const TIMEOUT: Duration = Duration::from_secs(3);

/// What a controller says. Of vGPUs of several nodes the second one's names end in `_2`, and so on.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Said {
    error: Option<String>,
    leader: Option<String>,
    nodes: usize,
    /// Why it could not be had at this moment; empty if it could.
    not_now: Option<String>,
    #[serde(flatten)]
    parts: serde_json::Map<String, serde_json::Value>,
}

pub fn check(report: &mut Report) {
    report.say("\nAsking Orion Controller for vGPUs, without taking any ...");
    let wanted = match original::refuse(variable).and_then(|()| Wanted::from_environment(None)) {
        Ok(Some(wanted)) => wanted,
        Ok(None) => return,
        Err(why) => return report.fail("vgpus", why, "a program with these settings is refused so"),
    };
    match ask(&wanted) {
        Ok((controller, said)) => told(report, &wanted, &controller, &said),
        Err((why, advice)) => report.fail("vgpus", why, advice),
    }
}

/// Asks the controllers one after the other until one answers that leads. The error is what is wrong, and what to do.
fn ask(wanted: &Wanted) -> Result<(String, Said), (String, String)> {
    let mut candidates = wanted.candidates();
    let (question, key) = (wanted.question("orion-check", ""), wanted.client_key.as_deref());
    let mut last = (String::new(), String::new());
    while let Some(controller) = candidates.next() {
        let Reply { status, body } = match post(&controller, "/look", &question, key) {
            Ok(reply) => reply,
            Err(why) => {
                last = (format!("{controller} is not reached: {why}"), "see what is said of it above".to_owned());
                continue;
            }
        };
        let Ok(said) = serde_json::from_str::<Said>(&body) else {
            let why = format!("{controller} answers with status {status} and {body:?}");
            return Err((why, "the address is not an Orion Controller's, or one of another release".to_owned()));
        };
        let error = said.error.clone().unwrap_or_default();
        match (status, &said.leader) {
            (200, _) => return Ok((controller, said)),
            (307, Some(leader)) => {
                candidates.leads(leader);
                last = (format!("{controller}: {error}"), "ask again".to_owned());
            }
            (503, _) => last = (format!("{controller}: {error}"), "programs wait for one that leads".to_owned()),
            _ => return Err((format!("No vGPU: {}", indented(&error)), advice(status).to_owned())),
        }
    }
    Err(last)
}

/// For a refusal.
fn advice(status: u16) -> &'static str {
    match status {
        400 => "a program with these settings is refused so; mend what is named",
        401 => "set ORION_CLIENT_KEY, or client_key in client.conf, to the controller's client-key",
        403 => "show a certificate of this tenant's (ORION_CERTIFICATE, ORION_KEY), and set ORION_TENANT to its name",
        _ => {
            "ask for less (ORION_VGPU, ORION_GMEM, ORION_RATIO), or have a node started, or taken back (orionctl drain \
             NODE --undo)"
        }
    }
}

fn told(report: &mut Report, wanted: &Wanted, controller: &str, said: &Said) {
    let text = |name: &str, number: usize| {
        let name = if number == 1 { name.to_owned() } else { format!("{name}_{number}") };
        said.parts.get(&name).and_then(|value| value.as_str()).unwrap_or_default()
    };
    let places: Vec<String> = (1..=said.nodes)
        .map(|number| {
            format!("{} on node {} ({})", text("places", number), text("node", number), text("address", number))
        })
        .collect();
    let asked = asked(wanted);
    match said.not_now.as_deref() {
        Some("") => report.well("vgpus", format!("{asked} could be had now: {}.", places.join(", "))),
        Some(why) if wanted.wait.is_some_and(|wait| wait > 0) => report.warn(
            "vgpus",
            format!("{asked} could not be had now: {}", indented(why)),
            format!("a program waits for it, {} s at most (ORION_WAIT)", wanted.wait.unwrap_or_default()),
        ),
        Some(why) => report.fail(
            "vgpus",
            format!("{asked} could not be had now: {}", indented(why)),
            "ask for less, let programs wait for room (ORION_WAIT=60), or see who has it: orion-smi, orionctl quotas",
        ),
        None => {
            return report.warn(
                "vgpus",
                format!("{asked} would fit into the pool; {controller} does not say whether it could be had now."),
                "it is of another release: install one on both sides",
            );
        }
    }
    (1..=said.nodes).for_each(|number| reached(report, text("node", number), text("address", number)));
}

/// In words, as the controller says it.
fn asked(wanted: &Wanted) -> String {
    let mut text = match wanted.vgpus {
        1 => "1 vGPU".to_owned(),
        count => format!("{count} vGPUs"),
    };
    if let Some(mib) = wanted.memory_mib {
        text += &format!(" with {mib} MiB");
    }
    if let Some(ratio) = wanted.ratio {
        text += &format!(" and {ratio} %");
    }
    text
}

/// Whether the node to which a program would be sent can be spoken to from here.
fn reached(report: &mut Report, node: &str, address: &str) {
    let advice = "a program would be sent there; look whether oriond runs there (orion-check runtime server), whether \
                  its agent's --address leads there from here, and for a firewall";
    let server = match Server::parse(address) {
        Ok(server) => server,
        Err(why) => return report.fail("node", format!("Node {node}: {why}"), advice),
    };
    let tried = match &server.place {
        Place::Path(socket) if server.carrier.leads_to == Leads::ToPath => {
            connect_local(socket, TIMEOUT.as_secs()).map(drop)
        }
        Place::Host(place) if server.carrier.device.is_none() => connect(place),
        Place::Host(_) | Place::Path(_) | Place::Device(_) | Place::Machine { .. } => return,
    };
    match tried {
        Ok(()) => report.well("node", format!("Node {node} can be reached through {address}.")),
        Err(e) => report.fail("node", format!("Node {node} cannot be reached through {address}: {e}"), advice),
    }
}

fn connect(place: &str) -> std::io::Result<()> {
    let mut last = std::io::Error::new(std::io::ErrorKind::NotFound, "the name has no address");
    for address in place.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, TIMEOUT) {
            Ok(_) => return Ok(()),
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// The controller explains in several lines.
fn indented(text: &str) -> String {
    text.lines().collect::<Vec<_>>().join("\n    ")
}
