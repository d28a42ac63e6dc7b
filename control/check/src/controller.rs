//! The controller: on this machine, and as those see it who ask it.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use orion_tls::trust::{ENVIRONMENT, Trust, Way};
use orion_wire::client_conf::{CONTROLLER_PORT, controller_addresses};
use serde::Deserialize;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig, TlsProvider};

use crate::finding::Report;
use crate::machine::{self, Process};
use crate::settings::{controller_address, controller_trust, variable};

const TIMEOUT: Duration = Duration::from_secs(3);
/// Leases say until when they can be used, and agents warn of as much.
const SKEW_MAX_SECONDS: u64 = 2;

/// On the machine where it runs.
pub fn check(report: &mut Report) {
    report.say("Checking Orion Controller process ...");
    let processes = machine::processes("orion-controller");
    if processes.is_empty() {
        report.fail(
            "controller process",
            "Orion Controller is not running.",
            "start it: systemctl start orion-controller, or orion-controller start",
        );
    }
    for one in &processes {
        report.say(&format!("Orion Controller is running with Linux user   : {}", one.user));
        let line = one.arguments.join(" ");
        report.well("controller process", format!("Orion Controller is running with command line : {line}"));
    }
    let addresses: Vec<String> = processes.iter().filter_map(listens).collect();
    let here = match addresses.is_empty() {
        true => (format!("127.0.0.1:{CONTROLLER_PORT}"), "nothing, so that it is this machine's".to_owned()),
        false => (addresses.join(","), "its own controller.yaml".to_owned()),
    };
    asked(report, Some(here));
}

/// Where a controller listens by the file that it was given, if that says so: another one may have that file by now.
fn listens(process: &Process) -> Option<String> {
    let words = &process.arguments;
    let named = words.iter().enumerate().find_map(|(at, word)| match word.strip_prefix("--config-file")? {
        "" => words.get(at + 1).map(String::as_str),
        rest => rest.strip_prefix('='),
    });
    // No words of a stranger's lead to what is read, which this may do as root.
    if process.is_strangers {
        return None;
    }
    let path = Path::new(&format!("/proc/{}/cwd", process.id)).join(named.unwrap_or("/etc/orion/controller.yaml"));
    let text = std::fs::metadata(&path).ok()?.is_file().then(|| std::fs::read_to_string(&path).ok())??;
    address_in(&text)
}

/// Of controller.yaml: the address at which this machine reaches it. Whatever else is in the file is the controller's.
fn address_in(text: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct File {
        controller: Controller,
    }
    #[derive(Deserialize)]
    struct Controller {
        listen_ip: Option<IpAddr>,
        listen_port: Option<u16>,
    }
    let File { controller } = serde_saphyr::from_str(text).ok()?;
    let ip = match controller.listen_ip {
        Some(ip) if !ip.is_unspecified() => ip,
        Some(IpAddr::V6(_)) => IpAddr::from(Ipv6Addr::LOCALHOST),
        _ => IpAddr::from([127, 0, 0, 1]),
    };
    let port = controller.listen_port.unwrap_or(CONTROLLER_PORT);
    (port != 0).then(|| SocketAddr::new(ip, port).to_string())
}

/// Whether a port that a service wants is free, or has that service already.
pub fn port(report: &mut Report, name: &'static str, program: &str, port: u16) {
    let is_running = !machine::processes(program).is_empty();
    match TcpListener::bind(SocketAddr::from(([0, 0, 0, 0], port))) {
        Ok(_) => report.well(name, format!("Port {port} is free.")),
        Err(_) if is_running => report.well(name, format!("Port {port} is in use, and {program} is running.")),
        Err(e) => report.fail(
            name,
            format!("Port {port} cannot be had for {program}: {e}"),
            "end what has it (ss -ltnp), or give another port",
        ),
    }
}

/// As programs and nodes see it; `otherwise` is where it is if no setting says so.
pub fn asked(report: &mut Report, otherwise: Option<(String, String)>) {
    report.say("\nChecking Orion Controller status ...");
    report.say("[Info] Orion Controller setting may be different in different SHELL.");
    report.say("[Info] Environment variable ORION_CONTROLLER has the first priority.\n");
    let (named, by) = match controller_address().map(|found| found.or(otherwise)) {
        Ok(Some(found)) => found,
        Ok(None) => {
            let advice = "set ORION_CONTROLLER=HOST:9123 where there is a pool";
            return report.warn("controller", "No Orion Controller is set.", advice);
        }
        Err(reason) if variable("ORION_SERVER").is_some() => {
            return report.warn("controller", reason, "mend the file: programs read it where ORION_SERVER is not set");
        }
        Err(reason) => return report.fail("controller", reason, "mend the file, or remove it"),
    };
    if let Err(why) = controller_trust() {
        return report.fail("controller encryption", why, "a program with these settings says the same and stops");
    }
    // Each is looked at: of several one leads, and the others have to be there to take over.
    match controller_addresses(&named) {
        Ok(addresses) => addresses.iter().for_each(|address| one(report, address, &by)),
        Err(why) => report.fail("controller", format!("{by}: {why}"), "a program with these settings says the same"),
    }
}

fn one(report: &mut Report, address: &str, by: &str) {
    report.say(&format!(
        "Orion Controller address is set as {address} in {by}. Using this address to diagnose Orion Controller"
    ));
    match ask(address, "/info") {
        Ok(Answer { body: versions, skew_seconds, is_encrypted, insecure }) => {
            report.well("controller", format!("Address {address} is reached."));
            encryption(report, address, is_encrypted, insecure);
            report.say(&format!("Orion Controller Version Information : {versions}"));
            clock(report, skew_seconds);
        }
        Err(reason) => {
            let advice = "look whether orion-controller runs there, and for a firewall";
            return report.fail("controller", format!("Address {address} is not reached: {reason}"), advice);
        }
    }
    devices(report, address);
}

fn encryption(report: &mut Report, address: &str, is_encrypted: bool, insecure: bool) {
    if insecure {
        report.warn(
            "controller encryption",
            format!("INSECURE: Orion Controller {address} lets other machines speak in the clear."),
            "give it a certificate (orionctl certificate server) in place of controller.insecure",
        );
    } else if is_encrypted {
        report.well("controller encryption", format!("What is said to {address} is encrypted by TLS 1.3."));
    } else if !orion_tls::is_loopback(address) {
        report.warn(
            "controller encryption",
            format!("INSECURE: what is said to {address} can be read and changed on its way."),
            "unset ORION_INSECURE",
        );
    }
}

fn devices(report: &mut Report, address: &str) {
    let number = |path: &str| {
        let text = ask(address, path)?.body;
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

/// A node whose clock is behind or ahead refuses leases that are good.
fn clock(report: &mut Report, skew_seconds: Option<u64>) {
    match skew_seconds {
        None => report.warn("clock", "The controller does not say what time it is.", "compare `date` on both machines"),
        Some(skew @ 0..=SKEW_MAX_SECONDS) => {
            report.well("clock", format!("The controller's clock and this machine's agree to {skew} s."));
        }
        Some(skew) => report.fail(
            "clock",
            format!("The controller's clock and this machine's are {skew} s apart."),
            "leases are refused by who thinks that they are over; keep both clocks by NTP (timedatectl set-ntp true)",
        ),
    }
}

struct Answer {
    body: String,
    is_encrypted: bool,
    /// It lets other machines speak in the clear.
    insecure: bool,
    /// Between its clock and ours.
    skew_seconds: Option<u64>,
}

/// What it says to a question, whatever that is.
pub struct Reply {
    pub status: u16,
    pub body: String,
}

/// Asks as a program would; `key` is the controller's `client-key`.
pub fn post(address: &str, path: &str, body: &str, key: Option<&str>) -> Result<Reply, String> {
    let Connection { agent, url, .. } = connection(address, path)?;
    let mut question = agent.post(url).content_type("application/json");
    if let Some(key) = key {
        question = question.header("authorization", format!("Bearer {key}"));
    }
    let mut answer =
        question.config().http_status_as_error(false).max_redirects(0).build().send(body).map_err(|e| e.to_string())?;
    let body = answer.body_mut().read_to_string().map_err(|e| e.to_string())?;
    Ok(Reply { status: answer.status().as_u16(), body })
}

struct Connection {
    agent: ureq::Agent,
    url: String,
    is_encrypted: bool,
}

fn connection(address: &str, path: &str) -> Result<Connection, String> {
    let trust = controller_trust()?;
    let is_encrypted = matches!(trust.way_to(address, ENVIRONMENT)?, Way::Tls(..));
    let scheme = if is_encrypted { "https" } else { "http" };
    let config = ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).tls_config(tls(&trust)?);
    Ok(Connection { agent: config.build().into(), url: format!("{scheme}://{address}{path}"), is_encrypted })
}

fn ask(address: &str, path: &str) -> Result<Answer, String> {
    let Connection { agent, url, is_encrypted } = connection(address, path)?;
    let mut answer = agent.get(url).call().map_err(|e| e.to_string())?;
    let insecure = answer.headers().contains_key("orion-insecure");
    let date = answer.headers().get("date").and_then(|date| date.to_str().ok()).and_then(unix_seconds);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let body = answer.body_mut().read_to_string().map_err(|e| e.to_string())?;
    Ok(Answer { body, is_encrypted, insecure, skew_seconds: date.map(|date| date.abs_diff(now)) })
}

/// Whom to believe, and what to show.
fn tls(trust: &Trust) -> Result<TlsConfig, String> {
    let certificates = |path: &std::path::Path| -> Result<Vec<Certificate<'static>>, String> {
        let all = orion_tls::certificates(path)?;
        Ok(all.iter().map(|one| Certificate::from_der(one).to_owned()).collect())
    };
    let config =
        TlsConfig::builder().provider(TlsProvider::Rustls).unversioned_rustls_crypto_provider(orion_tls::provider());
    let config = match (&trust.ca, trust.fingerprint) {
        (_, Some(_)) => return Err("ORION_FINGERPRINT is an oriond's; a controller is known by ORION_CA".to_owned()),
        (Some(ca), None) => config.root_certs(RootCerts::new_with_certs(&certificates(ca)?)),
        (None, None) => config,
    };
    let shown = match (&trust.certificate, &trust.key) {
        (Some(certificate), Some(key)) => {
            orion_tls::private_key(key)?;
            let text = std::fs::read(key).map_err(|e| format!("reading the key {}: {e}", key.display()))?;
            let key = PrivateKey::from_pem(&text).map_err(|e| format!("the key {}: {e}", key.display()))?;
            Some(ClientCert::new_with_certs(&certificates(certificate)?, key))
        }
        _ => None,
    };
    Ok(config.client_cert(shown).build())
}

/// `Tue, 24 Nov 2026 02:28:59 GMT`, which is the one form that HTTP has left.
fn unix_seconds(date: &str) -> Option<u64> {
    let words: Vec<&str> = date.split([' ', ':']).collect();
    let &[_, day, month, year, hour, minute, second, "GMT"] = words.as_slice() else { return None };
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = months.iter().position(|name| *name == month)? as u64;
    let number = |text: &str| text.parse::<u64>().ok();
    // Years begin with March here, so that the day that some have more is their last.
    let (year, month) = if month < 2 { (number(year)? - 1, month + 10) } else { (number(year)?, month - 2) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + number(day)? - 1;
    let days = days.checked_sub(719_468)?;
    Some(((days * 24 + number(hour)?) * 60 + number(minute)?) * 60 + number(second)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controllers_file_says_where_it_listens() {
        for (text, address) in [
            ("controller:\n  listen_ip: 0.0.0.0\n  listen_port: 15500\n  log_level: info\n", Some("127.0.0.1:15500")),
            ("controller: {listen_ip: '::', listen_port: 1}\n", Some("[::1]:1")),
            ("controller:\n  listen_ip: 10.0.0.7\ndatabase:\n  name: embedded\n", Some("10.0.0.7:9123")),
            ("controller:\n  listen_port: 0\n", None),
            ("database:\n  name: embedded\n", None),
        ] {
            assert_eq!(address_in(text).as_deref(), address, "{text}");
        }
    }

    #[test]
    fn the_date_of_an_answer_is_read() {
        assert_eq!(unix_seconds("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(unix_seconds("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(unix_seconds("Thu, 29 Feb 2024 23:59:59 GMT"), Some(1_709_251_199));
        assert_eq!(unix_seconds("Sunday, 06-Nov-94 08:49:37 GMT"), None);
    }

    #[test]
    fn clocks_far_apart_fail() {
        let of = |skew| {
            let mut report = Report::new(false);
            clock(&mut report, skew);
            report.status_of("clock")
        };
        use crate::finding::Status;
        assert_eq!(
            (of(Some(2)), of(Some(3)), of(None)),
            (Some(Status::Ok), Some(Status::Failed), Some(Status::Warning))
        );
    }
}
