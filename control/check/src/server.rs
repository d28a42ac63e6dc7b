//! oriond on this machine, as it runs.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::time::Duration;

use orion_transport::client::Server;
use orion_transport::socket::connect_local;

use crate::finding::{Report, row};
use crate::machine::{self, Process};
use crate::{controller, version};

const TIMEOUT: Duration = Duration::from_secs(3);

pub fn check(report: &mut Report) {
    machine::gpus(report);
    machine::mps(report);
    report.say("\nChecking Orion Server status ...");
    let serving = |process: &Process| process.arguments.get(1).is_some_and(|word| word == "serve");
    let servers: Vec<Process> = machine::processes("oriond").into_iter().filter(serving).collect();
    if servers.is_empty() {
        report.fail("server", "Orion Server is not running.", "start it: systemctl start oriond, or oriond serve");
    }
    for server in &servers {
        one(report, server);
    }
    controller::asked(report, None);
}

fn one(report: &mut Report, server: &Process) {
    report.say(&format!("Orion Server is running with Linux user   : {}", server.user));
    report.well("server", format!("Orion Server is running with command line : {}", server.arguments.join(" ")));
    let settings = match settings(server) {
        Ok(settings) => settings,
        Err(reason) => {
            let text = format!("What Orion Server was told is not known: {reason}");
            let advice = match server.is_strangers {
                true => "run orion-check as the user of Orion Server",
                false => "run the orion-check that is installed with this Orion Server, as its user or as root",
            };
            return report.warn("settings", text, advice);
        }
    };
    let of = |name: &str| settings.get(name).map(String::as_str).unwrap_or_default();
    let (socket, listen) = (of("socket"), of("listen"));
    let yes_no = |is: bool| if is { "Yes" } else { "No" };
    report.say(&row("Enable SHM", yes_no(socket != "none")));
    report.say(&row("Enable RDMA", yes_no(!matches!(of("rdma"), "" | "none"))));
    let has_guests = ["guest", "guest_folder", "guest_socket"].iter().any(|name| !of(name).is_empty());
    report.say(&row("Enable Local QEMU-KVM with SHM", yes_no(has_guests)));
    if let Ok(address) = listen.parse::<SocketAddr>() {
        report.say(&format!("{:<40}{}", "Binding IP Address :", address.ip()));
        report.say(&format!("{:<40}{}", "Listening Port :", address.port()));
    }
    if of("insecure") == "true" {
        report.warn(
            "insecure",
            match of("token_file").is_empty() && of("pool").is_empty() {
                true => "INSECURE : nothing is encrypted, and whoever reaches the TCP address can use the GPUs.",
                false => "INSECURE : other machines may speak to the TCP address in the clear.",
            },
            "give oriond a token_file in place of insecure",
        );
    } else if listen.parse::<SocketAddr>().is_ok() {
        report.well("encryption", "What other machines say is encrypted by TLS 1.3.");
    }
    if socket == "none" {
        report.warn(
            "transport",
            "Programs of this machine use TCP, for there is no socket for shared memory.",
            "set enable_shm = true in server.conf, or give --socket",
        );
    }
    report.say("\nTesting the Orion Server network ...");
    if !socket.is_empty() && socket != "none" {
        match connect_local(socket.as_ref(), TIMEOUT.as_secs()) {
            Ok(connection) => {
                report.well("socket", format!("Orion Server can be reached through {socket}"));
                version::check(report, &Server::local(socket), OwnedFd::from(connection).into());
            }
            Err(e) => report.fail(
                "socket",
                format!("Orion Server cannot be reached through {socket}: {e}"),
                "look into its log: journalctl -u oriond",
            ),
        }
    }
    if let Ok(mut address) = listen.parse::<SocketAddr>() {
        if address.ip().is_unspecified() {
            address.set_ip(if address.is_ipv4() { [127, 0, 0, 1].into() } else { "::1".parse().expect("an address") });
        }
        match TcpStream::connect_timeout(&address, TIMEOUT) {
            Ok(_) => report.well("tcp", format!("Orion Server can be reached through {address}")),
            Err(e) => report.fail(
                "tcp",
                format!("Orion Server cannot be reached through {address}: {e}"),
                "look for a firewall, and into its log: journalctl -u oriond",
            ),
        }
    }
}

/// What the oriond beside this program makes of the same words and files, which may have changed since it was started.
/// No file that a process names is run, and no words of a stranger's are taken: this may be asked by root.
fn settings(server: &Process) -> Result<BTreeMap<String, String>, String> {
    if server.is_strangers {
        return Err(
            "neither root nor the user of orion-check has started it, and the words of others are not asked".to_owned()
        );
    }
    let own = std::env::current_exe().map_err(|e| format!("asking where orion-check lies failed: {e}"))?;
    let program = own.with_file_name("oriond");
    let here = format!("/proc/{}", server.id);
    let failed = |e: std::io::Error| format!("reading {here}/environ failed: {e}");
    let environment = std::fs::read(format!("{here}/environ")).map_err(failed)?;
    let mut command = Command::new(&program);
    // Relative paths, and sockets at their defaults, are where that process has them.
    command.current_dir(format!("{here}/cwd"));
    for name in ["XDG_RUNTIME_DIR", "HOME"] {
        match value(&environment, name) {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    // It stands before the words, so that none of them can take it for a value.
    command.args(["serve", "--show-config"]).args(&server.arguments[2..]);
    let output = command
        .output()
        .map_err(|e| format!("starting {} in the folder of process {} failed: {e}", program.display(), server.id))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    let mut settings = parse(&String::from_utf8_lossy(&output.stdout));
    let socket = settings.entry("socket".to_owned()).or_default();
    if socket.is_empty() {
        *socket = default_socket(value(&environment, "XDG_RUNTIME_DIR"), &server.uid);
    }
    Ok(settings)
}

/// Where an oriond listens that was told nothing.
fn default_socket(runtime: Option<&OsStr>, uid: &str) -> String {
    match (runtime.filter(|folder| !folder.is_empty()), uid) {
        (Some(folder), _) => format!("{}/orion/oriond.sock", folder.to_string_lossy()),
        (None, "0") => "/run/orion/oriond.sock".to_owned(),
        (None, uid) => format!("/tmp/orion-{uid}/oriond.sock"),
    }
}

/// Of a variable, in the environment of a process as the kernel shows it.
fn value<'a>(environment: &'a [u8], name: &str) -> Option<&'a OsStr> {
    let all = environment.split(|byte| *byte == 0);
    let found = all.filter_map(|one| one.strip_prefix(name.as_bytes())?.strip_prefix(b"=")).next()?;
    Some(OsStr::from_bytes(found))
}

/// Settings at their defaults too, which stand behind a semicolon.
fn parse(text: &str) -> BTreeMap<String, String> {
    let pair = |line: &str| {
        let (name, value) = line.trim_start_matches(';').split_once(" =")?;
        (!name.contains(' ')).then(|| (name.to_owned(), value.trim().to_owned()))
    };
    text.lines().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_the_one_of_that_name() {
        let environment = b"XHOME=/x\0HOME=/h=1\0HOME=/later\0";
        assert_eq!(value(environment, "HOME"), Some(OsStr::new("/h=1")));
        assert_eq!(value(environment, "XDG_RUNTIME_DIR"), None);
    }

    #[test]
    fn settings_are_read_with_their_defaults() {
        let text = "; /etc/orion/server.conf:6: vgpu_count has no meaning here: see\n[server]\nlisten = 0.0.0.0:9960\n\
                    ;insecure = false\n;vgpus = \n";
        let settings = parse(text);
        assert_eq!(settings["listen"], "0.0.0.0:9960");
        assert_eq!(settings["insecure"], "false");
        assert_eq!(settings["vgpus"], "");
        assert_eq!(settings.len(), 3);
    }
}
