//! What a program on this machine would find: Orion's libraries, a server, a controller.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::finding::Report;

const TIMEOUT: Duration = Duration::from_secs(3);
const CONTROLLER_PORT: u16 = 9123;

pub fn check(report: &mut Report) {
    library(report);
    server(report);
    controller(report);
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
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

/// Where oriond listens if nobody says anything.
fn default_sockets() -> Vec<PathBuf> {
    let runtime = variable("XDG_RUNTIME_DIR").map(|folder| Path::new(&folder).join("orion/oriond.sock"));
    runtime.into_iter().chain(["/run/orion/oriond.sock".into()]).collect()
}

fn server(report: &mut Report) {
    report.say("\nTesting the Orion Server network ...");
    match variable("ORION_SERVER") {
        Some(server) => match server.strip_prefix("unix:") {
            Some(socket) => local(report, Path::new(socket)),
            None => remote(report, server.strip_prefix("tcp:").unwrap_or(&server)),
        },
        None if controller_address().is_ok_and(|address| address.is_some()) => {
            report.say("ORION_SERVER is not set; the controller says where to go.");
        }
        None => match default_sockets().into_iter().find(|socket| socket.exists()) {
            Some(socket) => local(report, &socket),
            None => report.fail(
                "server",
                "No Orion Server is named, and none is on this machine.",
                "set ORION_SERVER=tcp:HOST:PORT or ORION_CONTROLLER=HOST, or start oriond here",
            ),
        },
    }
}

fn local(report: &mut Report, socket: &Path) {
    match UnixStream::connect(socket) {
        Ok(_) => report.well("server", format!("Orion Server can be reached through {} (SHM).", socket.display())),
        Err(e) => report.fail(
            "server",
            format!("Orion Server cannot be reached through {}: {e}", socket.display()),
            "start oriond, or set ORION_SERVER to where it is",
        ),
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
    let Some(address) = addresses.iter().find(|address| TcpStream::connect_timeout(address, TIMEOUT).is_ok()) else {
        let advice = "look whether oriond listens there (orion-check runtime server) and for a firewall";
        return report.fail("server", format!("Orion Server cannot be reached through {place}"), advice);
    };
    let text = format!("Orion Server can be reached through {address} (TCP).");
    match is_here(*address).then(default_sockets).and_then(|all| all.into_iter().find(|socket| socket.exists())) {
        Some(socket) => report.warn(
            "server",
            text,
            format!("it is on this machine, where shared memory is faster: ORION_SERVER=unix:{}", socket.display()),
        ),
        None => report.well("server", text),
    }
    if variable("ORION_TOKEN").is_none() && variable("ORION_TOKEN_FILE").is_none() {
        report.warn("token", "No token is set.", "a server that has one refuses programs; set ORION_TOKEN_FILE");
    }
}

/// Whether an address is one of this machine's: only then a socket can be bound to it.
fn is_here(address: SocketAddr) -> bool {
    UdpSocket::bind((address.ip(), 0)).is_ok()
}

/// The controller that is configured, and which setting says so: the environment before the user's file, that before
/// the machine's.
fn controller_address() -> Result<Option<(String, String)>, String> {
    if let Some(address) = variable("ORION_CONTROLLER") {
        return Ok(Some((address, "environment variable".to_owned())));
    }
    let home = variable("HOME").map(|home| Path::new(&home).join(".orion/client.conf"));
    for path in home.into_iter().chain(["/etc/orion/client.conf".into()]) {
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let how = ini::ParseOption { enabled_escape: false, ..ini::ParseOption::default() };
        let ini = ini::Ini::load_from_str_opt(&text, how).map_err(|e| format!("reading {}: {e}", path.display()))?;
        if let Some(address) = ini.get_from(Some("controller"), "controller_addr") {
            return Ok(Some((address.to_owned(), "configuration file".to_owned())));
        }
    }
    Ok(None)
}

pub fn controller(report: &mut Report) {
    report.say("\nChecking Orion Controller status ...");
    report.say("[Info] Orion Controller setting may be different in different SHELL.");
    report.say("[Info] Environment variable ORION_CONTROLLER has the first priority.\n");
    let (named, by) = match controller_address() {
        Ok(Some(found)) => found,
        Ok(None) => {
            let advice = "set ORION_CONTROLLER=HOST:9123 where there is a pool";
            return report.warn("controller", "No Orion Controller is set.", advice);
        }
        Err(reason) => return report.fail("controller", reason, "mend the file, or remove it"),
    };
    // Each is looked at: of several one leads, and the others have to be there to take over.
    for address in named.split(',').map(str::trim) {
        let port = if address.contains(':') { String::new() } else { format!(":{CONTROLLER_PORT}") };
        controller_at(report, &format!("{address}{port}"), &by);
    }
}

fn controller_at(report: &mut Report, address: &str, by: &str) {
    report.say(&format!(
        "Orion Controller address is set as {address} in {by}. Using this address to diagnose Orion Controller"
    ));
    match ask(address, "/info") {
        Ok(versions) => {
            report.well("controller", format!("Address {address} is reached."));
            report.say(&format!("Orion Controller Version Information : {versions}"));
        }
        Err(reason) => {
            let advice = "look whether orion-controller runs there, and for a firewall";
            return report.fail("controller", format!("Address {address} is not reached: {reason}"), advice);
        }
    }
    let number = |path: &str| {
        let text = ask(address, path)?;
        let last = text.trim().rsplit('=').next().unwrap_or_default();
        last.parse::<u64>().map_err(|_| format!("{path} answers {text:?}"))
    };
    match (number("/devices?res=nvidia_cuda"), number("/devices?res=nvidia_cuda&used=true")) {
        (Ok(0), _) => report.warn(
            "pool",
            "There are 0 vGPU under management by Orion Controller.",
            "no node reports to it: look at oriond's nodes",
        ),
        (Ok(all), Ok(free)) => report.well(
            "pool",
            format!("There are {all} vGPU under management by Orion Controller. {free} vGPU are free now."),
        ),
        (Err(reason), _) | (_, Err(reason)) => {
            report.fail("pool", reason, "the address is not an Orion Controller's");
        }
    }
}

/// The body of an answer.
fn ask(address: &str, path: &str) -> Result<String, String> {
    let agent: ureq::Agent = ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).build().into();
    let answer = agent.get(format!("http://{address}{path}")).call();
    answer.and_then(|mut answer| answer.body_mut().read_to_string()).map_err(|e| e.to_string())
}
