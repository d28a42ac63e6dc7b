//! What a program on this machine would find: Orion's libraries, a server, a controller.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use orion_tls::trust::Trust;
use orion_transport::carrier::{tcp, view_of};
use orion_transport::channel::Channel;
use orion_transport::client::{Caller, Server};
use orion_transport::proof::Token;
use orion_transport::socket::{self, connect_local, objection_to_folder};
use orion_wire::address::{self, Carrier, Leads, Place};
use orion_wire::version::Version;

use crate::finding::{Report, Status};
use crate::settings::{controller_address, variable};
use crate::{controller, machine, version, vgpus};

const TIMEOUT: Duration = Duration::from_secs(3);

pub fn check(report: &mut Report) {
    library(report);
    machine::shared_memory(report);
    server(report);
    controller::asked(report, None);
    // Who names a server asks no controller, and one that was not found is not asked.
    let is_there = report.status_of("controller") == Some(Status::Ok);
    if is_there && variable("ORION_SERVER").is_none() {
        vgpus::check(report);
    }
}

/// Which `libcuda.so.1` the loader would take.
fn library(report: &mut Report) {
    report.say("Searching the Orion Client library ...");
    let folders = variable("LD_LIBRARY_PATH").unwrap_or_default();
    let first = folders.split(':').map(|folder| Path::new(folder).join("libcuda.so.1")).find(|path| path.exists());
    let advice = "put Orion's folder first in LD_LIBRARY_PATH, or start the program with orion-run";
    match first {
        None => report.warn("library", "No libcuda.so.1 is in LD_LIBRARY_PATH.", advice),
        Some(path) if is_orions(&path) => report.well("library", format!("{} is Orion's.", path.display())),
        Some(path) => report.warn("library", format!("{} is not Orion's.", path.display()), advice),
    }
}

/// It names a setting that no other has.
fn is_orions(library: &Path) -> bool {
    let name = b"ORION_SERVER";
    std::fs::read(library).is_ok_and(|bytes| bytes.windows(name.len()).any(|window| window == name))
}

/// Where oriond listens if nobody says anything, in the order in which a program looks.
fn default_sockets() -> Vec<PathBuf> {
    let runtime = variable("XDG_RUNTIME_DIR").map(|folder| Path::new(&folder).join("orion/oriond.sock"));
    let own = std::fs::metadata("/proc/self").map(|own| format!("/tmp/orion-{}/oriond.sock", own.uid()).into());
    runtime.into_iter().chain(["/run/orion/oriond.sock".into()]).chain(own).collect()
}

/// A socket that nobody has named. A program does not take it for the server where somebody else may have put it there.
fn found(report: &mut Report, socket: &Path) {
    let folder = socket.parent().expect("each of them lies in a folder");
    let objection = match objection_to_folder(folder) {
        Ok(None) => return local(report, socket),
        Ok(Some(why)) => format!("its folder is not to be trusted: {why}"),
        Err(e) => format!("opening its folder failed: {e}"),
    };
    report.fail(
        "server",
        format!("There is {}, but {objection}", socket.display()),
        "set ORION_SERVER to the server you mean",
    );
}

fn server(report: &mut Report) {
    report.say("\nTesting the Orion Server network ...");
    if let (Some(server), Some(controller)) = (variable("ORION_SERVER"), variable("ORION_CONTROLLER")) {
        let text = format!("ORION_CONTROLLER={controller} and ORION_SERVER={server} contradict each other.");
        report.fail("server", text, "the controller chooses the server; unset one of them");
    }
    let asks_for_device = transport(report);
    match variable("ORION_SERVER").map(|server| (Server::parse(&server), server)) {
        Some((Ok(server), _)) => match &server.place {
            Place::Path(socket) if server.carrier.leads_to == Leads::ToPath => local(report, socket),
            Place::Host(place) => {
                if server.carrier.device.is_some() && !asks_for_device {
                    machine::rdma_asked(report);
                }
                remote(report, place);
            }
            Place::Path(_) | Place::Device(_) | Place::Machine { .. } => from_a_virtual_machine(report, &server),
        },
        Some((Err(why), server)) => {
            report.fail("server", format!("ORION_SERVER={server}: {why}"), "programs are refused so")
        }
        None if has_controller() => {
            report.say("ORION_SERVER is not set; the controller says where to go.");
        }
        None => match default_sockets().into_iter().find(|socket| socket.exists()) {
            Some(socket) => found(report, &socket),
            None => report.fail(
                "server",
                "No Orion Server is named, and none is on this machine.",
                "set ORION_SERVER=tcp:HOST:PORT or ORION_CONTROLLER=HOST, or start oriond here",
            ),
        },
    }
}

/// Whether the carrier that is asked for has a device, which then was looked for: without it a program is refused.
fn transport(report: &mut Report) -> bool {
    let Some(name) = variable("ORION_TRANSPORT") else { return false };
    let fits = match address::carrier(&name) {
        Some(carrier) => leads_to_server(carrier).map(|()| carrier),
        None => Err(format!("ORION_TRANSPORT={name} is none of {}.", address::carrier_names())),
    };
    match fits {
        Ok(carrier) if carrier.device.is_some() => machine::rdma_asked(report),
        Ok(_) => return false,
        Err(why) => {
            report.fail("transport", why, "a program is refused so; set it to another, or unset it");
            return false;
        }
    }
    true
}

/// Or why a program that asks for this carrier is refused, whatever the machine has.
fn leads_to_server(carrier: &Carrier) -> Result<(), String> {
    let name = carrier.name;
    let server = match variable("ORION_SERVER") {
        // One that is none is told so where it is looked for.
        Some(server) => Server::parse(&server).ok(),
        None if has_controller() && carrier.leads_to.is_of_a_pool() => return Ok(()),
        None if has_controller() => {
            return Err(format!(
                "ORION_TRANSPORT={name} leads from a virtual machine to its host's oriond, and no node of a pool is \
                 reached by it."
            ));
        }
        None => default_sockets().into_iter().find(|socket| socket.exists()).map(Server::local),
    };
    match server {
        Some(server) if server.carrier != carrier => Err(format!(
            "ORION_TRANSPORT={name} needs a server address such as {}, but the server is {server}.",
            carrier.example
        )),
        _ => Ok(()),
    }
}

fn has_controller() -> bool {
    controller_address().is_ok_and(|address| address.is_some())
}

fn local(report: &mut Report, socket: &Path) {
    match connect_local(socket, TIMEOUT.as_secs()) {
        Ok(connection) => {
            report.well("server", format!("Orion Server can be reached through {} (SHM).", socket.display()));
            version::check(report, &Server::local(socket), OwnedFd::from(connection).into());
        }
        Err(e) => report.fail(
            "server",
            format!("Orion Server cannot be reached through {}: {e}", socket.display()),
            "start oriond, or set ORION_SERVER to where it is",
        ),
    }
}

/// As NVML asks, for which oriond lends nothing.
fn from_a_virtual_machine(report: &mut Report, server: &Server) {
    let name = server.carrier.name.to_uppercase();
    let seen = caller().and_then(|caller| view_of(server, &caller).map_err(|no| no.text));
    match seen {
        Ok(_) => {
            report.well("server", format!("Orion Server can be reached through {server} ({name})."));
            report.well("version", format!("{server} talks to programs of this release ({}).", Version::OWN));
        }
        Err(why) => {
            let served = server.carrier.served_by;
            let advice = format!("look whether the host's oriond serves this machine: oriond serve {served}");
            report.fail("server", format!("Orion Server cannot be reached through {server} ({name}): {why}"), advice);
        }
    }
}

fn remote(report: &mut Report, place: &str) {
    let addresses = place.to_socket_addrs().map(Iterator::collect::<Vec<_>>);
    let addresses = match addresses {
        Ok(addresses) => addresses,
        Err(e) => {
            let text = format!("ORION_SERVER={place} is no address that can be found: {e}");
            return report.fail("server", text, "it has to be unix:/PATH or tcp:HOST:PORT");
        }
    };
    let connect = |address: &SocketAddr| Some((*address, TcpStream::connect_timeout(address, TIMEOUT).ok()?));
    let Some((address, connection)) = addresses.iter().find_map(connect) else {
        let advice = "look whether oriond listens there (orion-check runtime server) and for a firewall";
        return report.fail("server", format!("Orion Server cannot be reached through {place}"), advice);
    };
    let text = format!("Orion Server can be reached through {address} (TCP).");
    let socket = default_sockets().into_iter().find(|socket| socket.exists());
    match (is_here(address), socket) {
        (true, Some(socket)) => report.warn(
            "server",
            text,
            format!("it is on this machine, where shared memory is faster: ORION_SERVER=unix:{}", socket.display()),
        ),
        (true, None) => report.warn(
            "server",
            text,
            "it is on this machine, where shared memory is faster, and has no socket here: set enable_shm = true in \
             its server.conf",
        ),
        (false, _) => report.well("server", text),
    }
    match Server::parse(&format!("tcp:{place}")) {
        Ok(server) => encrypted(report, &server, connection.into()),
        Err(why) => report.fail("server", why, "it has to be unix:/PATH or tcp:HOST:PORT"),
    }
    if variable("ORION_TOKEN").is_none() && variable("ORION_TOKEN_FILE").is_none() {
        report.warn("token", "No token is set.", "a server that has one refuses programs; set ORION_TOKEN_FILE");
    }
}

/// As a program with this environment would be.
fn caller() -> Result<Caller, String> {
    let trust = Trust::of_this_process(|name| std::env::var(name))?;
    Ok(Caller { trust, ..Caller::new("orion-check", Token::from_environment()?) })
}

/// How a program with this environment would speak to the server, and whether it gets on with it.
fn encrypted(report: &mut Report, server: &Server, connection: OwnedFd) {
    let way = match caller().and_then(|caller| tcp::way(server, &caller)) {
        Ok(way) => way,
        Err(why) => {
            return report.fail("encryption", why, "a program with these variables would say the same and stop");
        }
    };
    let timeout = socket::receive_timeout(connection.as_fd(), TIMEOUT.as_secs() as i64);
    match timeout.and_then(|()| Channel::open(connection, &way, &|_| {})) {
        Ok(channel) => {
            match (
                channel.is_encrypted(),
                Trust::of_this_process(|name| std::env::var(name)).is_ok_and(|trust| trust.insecure),
            ) {
                (true, _) => report.well("encryption", format!("What is said to {server} is encrypted by TLS 1.3.")),
                (false, true) => report.warn(
                    "encryption",
                    format!("INSECURE: what is said to {server} can be read and changed on its way."),
                    "unset ORION_INSECURE",
                ),
                (false, false) => report.say("Nothing is encrypted on this machine itself; ORION_TLS=1 would."),
            }
            version::check(report, server, channel);
        }
        Err(e) => report.fail(
            "encryption",
            format!("{server}: {e}"),
            "compare ORION_CA with the server's --certificate, and look into its log: journalctl -u oriond",
        ),
    }
}

/// Whether an address is one of this machine's: only then a socket can be bound to it.
fn is_here(address: SocketAddr) -> bool {
    UdpSocket::bind((address.ip(), 0)).is_ok()
}
