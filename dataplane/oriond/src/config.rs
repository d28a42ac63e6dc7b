//! `server.conf`: the settings of `oriond serve` in a file, under the names that Orion vGPU's documents give them and,
//! in `[server]`, under those of the options (`--memory-limit` is `memory_limit`).
//!
//! A file becomes options that stand before those of the command line, which therefore decide. A key that nobody knows,
//! or that asks for what this version cannot do, is refused with its line. One that has no meaning here is said to have
//! none.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;

use ini::{Ini, ParseOption};
use orion_wire::address::CARRIERS;
use orion_wire::client_conf::{is_text, text_of};

/// Where the original keeps its port, and its log.
const PORT_DEFAULT: u16 = 9960;
const LOG_FILE: &str = "/var/log/orion/server.log";
const SESSION_LOG: &str = "/var/log/orion/session";
/// Where orion-shm puts the memory of virtual machines.
const SHM_PATH_BASE: &str = "/dev/shm";

/// Keys that are understood and change nothing, with the reason.
const WITHOUT_MEANING: &[(&str, &str, &str)] = &[
    (
        "server",
        "vgpu_count",
        "orion-agent splits GPUs by it in a pool; else sessions are not counted out, see sessions_max",
    ),
    (
        "server",
        "reserve",
        "orion-agent keeps so many vGPUs of each GPU back, and lends them while it reaches no controller",
    ),
    ("server-nccl", "comm_id", "NCCL runs in the programs, which need no help from the server"),
    ("server-shm", "shm_group_name", "orion-shm --group gives the memory of a virtual machine its group"),
    ("server-shm", "shm_user_name", "orion-shm --user gives the memory of a virtual machine its user"),
    ("server-shm", "shm_buffer_size", "orion-shm -s says how much memory a virtual machine has; see staging and heap"),
    ("controller", "controller_addr", "oriond speaks to no controller by itself; orion-agent --config does"),
    ("throttle", "computation_throttle_mode2", "there is one way of dividing the GPU's time"),
];

/// The section that orion-agent reads.
const OF_THE_AGENT: &str = "agent";

/// The log's section has another name in each edition.
const LOG_SECTIONS: [&str; 2] = ["server-log", "log"];

/// What a file stands for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Options of `oriond serve`.
    pub arguments: Vec<String>,
    /// What has to be said about keys that change nothing.
    pub notices: Vec<String>,
}

/// The options with those of `--config FILE` put before them, and what the file gives cause to say.
pub fn expand(mut arguments: Vec<OsString>, options: &[Choice]) -> Result<(Vec<OsString>, Settings), String> {
    if arguments.get(1).is_none_or(|command| command != "serve") {
        return Ok((arguments, Settings::default()));
    }
    let after = |(i, argument): (usize, &OsString)| match argument.as_bytes().strip_prefix(b"--config")? {
        b"" => arguments.get(i + 1).cloned(),
        rest => rest.strip_prefix(b"=").map(|path| OsStr::from_bytes(path).to_owned()),
    };
    let Some(path) = arguments.iter().enumerate().filter_map(after).next_back() else {
        return Ok((arguments, Settings::default()));
    };
    let bytes = std::fs::read(&path);
    let path = path.to_string_lossy();
    let bytes = bytes.map_err(|e| {
        format!("reading --config {path} failed: {e}; give the path of a server.conf, or leave the option out")
    })?;
    let settings = File { path: &path, text: &text_of(&bytes) }.settings(options)?;
    arguments.splice(2..2, settings.arguments.iter().map(OsString::from));
    Ok((arguments, settings))
}

/// An option that `[server]` may have as a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Without the dashes in front.
    pub name: String,
    /// Given or not, in place of a value.
    pub is_flag: bool,
}

/// Options by which not everybody is let in, or by which that is wanted.
const PROOFS: [&str; 4] = ["--token-file", "--client-ca", "--insecure", "--pool"];

/// The line that asks for RDMA, and the device.
struct Verbs {
    line: Option<usize>,
    device: Option<(String, usize)>,
}

struct File<'a> {
    path: &'a str,
    text: &'a str,
}

/// Sections and keys with their values and lines.
type Keys = BTreeMap<(String, String), (String, usize)>;

impl File<'_> {
    fn settings(&self, options: &[Choice]) -> Result<Settings, String> {
        let mut keys = self.keys()?;
        let mut settings = Settings::default();
        self.drop_meaningless(&mut keys, &mut settings);
        self.log(&mut keys, &mut settings)?;
        self.throttle(&mut keys, &mut settings)?;
        let address = self.address(&mut keys)?;
        let verbs = self.verbs(&mut keys)?;
        if self.flag(&mut keys, "server", "enable_shm")? == Some(false) {
            if let Some((_, line)) = keys.get(&key("server", "socket")) {
                return Err(self.at(*line, "socket contradicts enable_shm = false; leave one of them out"));
            }
            settings.add("socket", "none");
        }
        self.guests(&mut keys, &mut settings)?;
        self.own(&mut keys, options, &mut settings)?;
        self.listen(address, &mut settings);
        self.offer(verbs, address, &mut settings)?;
        match keys.into_iter().next() {
            None => Ok(settings),
            Some(((section, key), (_, line))) => Err(self.at(
                line,
                &format!(
                    "nobody knows [{section}] {key}; `oriond serve --help` lists the options that [server] may have"
                ),
            )),
        }
    }

    fn at(&self, line: usize, what: &str) -> String {
        format!("{}:{line}: {what}", self.path)
    }

    fn keys(&self) -> Result<Keys, String> {
        let how = ParseOption { enabled_escape: false, ..ParseOption::default() };
        let ini = Ini::load_from_str_opt(self.text, how).map_err(|e| format!("reading {}: {e}", self.path))?;
        let mut keys = Keys::new();
        for (section, properties) in &ini {
            for (name, value) in properties {
                let section = section.unwrap_or_default().trim();
                if section == OF_THE_AGENT {
                    continue;
                }
                let lines = self.lines(section, name);
                if let [first, second, ..] = lines[..] {
                    return Err(self.at(second, &format!("{name} is given a second time, after line {first}")));
                }
                let line = lines.first().copied().unwrap_or(0);
                is_text(name, value).map_err(|why| self.at(line, &why))?;
                keys.insert(key(section, name), (value.trim().to_owned(), line));
            }
        }
        Ok(keys)
    }

    /// Where a key stands; the parser does not say.
    fn lines(&self, section: &str, name: &str) -> Vec<usize> {
        let mut at = "";
        let mut found = Vec::new();
        for (i, line) in self.text.lines().enumerate() {
            let line = line.trim();
            if let Some(head) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
                at = head.trim();
            } else if at == section && line.split('=').next().is_some_and(|left| left.trim() == name) {
                found.push(i + 1);
            }
        }
        found
    }

    fn drop_meaningless(&self, keys: &mut Keys, settings: &mut Settings) {
        for (section, name, reason) in WITHOUT_MEANING {
            if let Some((_, line)) = keys.remove(&key(section, name)) {
                settings.notices.push(self.at(line, &format!("{name} has no meaning here: {reason}")));
            }
        }
    }

    /// Virtual machines whose memory orion-shm has made.
    fn guests(&self, keys: &mut Keys, settings: &mut Settings) -> Result<(), String> {
        let folder = keys.remove(&key("server-shm", "shm_path_base"));
        let is_on = self.flag(keys, "server", "enable_kvm")? == Some(true);
        match folder {
            Some((folder, _)) if is_on => settings.add("guest-folder", &folder),
            None if is_on => settings.add("guest-folder", SHM_PATH_BASE),
            Some((_, line)) => settings.notices.push(self.at(
                line,
                "shm_path_base has no meaning here: memory is passed by descriptor, but to virtual machines \
                 (enable_kvm)",
            )),
            None => {}
        }
        Ok(())
    }

    fn flag(&self, keys: &mut Keys, section: &str, name: &str) -> Result<Option<bool>, String> {
        let Some((value, line)) = keys.remove(&key(section, name)) else { return Ok(None) };
        match value.to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Ok(Some(true)),
            "false" | "0" | "no" | "off" => Ok(Some(false)),
            _ => Err(self.at(line, &format!("{name} = {value:?} is neither true nor false"))),
        }
    }

    /// Shares of the GPU's time.
    fn throttle(&self, keys: &mut Keys, settings: &mut Settings) -> Result<(), String> {
        let is_on = self.flag(keys, "throttle", "enable_computation_throttle")?;
        if let Some(is_on) = is_on {
            settings.add("computation-throttle", if is_on { "on" } else { "off" });
        }
        let Some((value, line)) = keys.remove(&key("throttle", "throttle_level")) else { return Ok(()) };
        if !value.parse().is_ok_and(|level: u32| level <= 100) {
            return Err(self.at(line, &format!("throttle_level = {value:?} is not a number from 0 to 100")));
        }
        match is_on {
            Some(false) => settings.notices.push(self.at(
                line,
                "throttle_level has no meaning here: enable_computation_throttle is false, so nobody divides the GPU's \
                 time",
            )),
            _ => settings.add("throttle-level", &value),
        }
        Ok(())
    }

    fn log(&self, keys: &mut Keys, settings: &mut Settings) -> Result<(), String> {
        for section in LOG_SECTIONS {
            for (name, option) in [("log_with_time", "no-log-time"), ("log_to_screen", "no-log-screen")] {
                if self.flag(keys, section, name)? == Some(false) {
                    settings.arguments.push(format!("--{option}"));
                }
            }
            if self.flag(keys, section, "log_to_file")? == Some(true) {
                settings.add("log-file", LOG_FILE);
                settings.add("session-log", SESSION_LOG);
            }
            for (name, option) in [("log_level", "log-level"), ("file_log_level", "log-file-level")] {
                let Some((value, line)) = keys.remove(&key(section, name)) else { continue };
                let level = match value.to_ascii_lowercase().as_str() {
                    "warning" => "warn".to_owned(),
                    level @ ("error" | "warn" | "info" | "debug" | "trace") => level.to_owned(),
                    _ => {
                        let levels = "ERROR, WARNING, INFO, DEBUG or TRACE";
                        return Err(self.at(line, &format!("{name} = {value:?} is none of {levels}")));
                    }
                };
                settings.add(option, &level);
            }
        }
        Ok(())
    }

    /// The address of `bind_addr` or `bind_net`, with its port and its line, if there is any of the three.
    fn address(&self, keys: &mut Keys) -> Result<Option<(IpAddr, u16, usize)>, String> {
        let port = match keys.remove(&key("server", "listen_port")) {
            None => None,
            Some((value, line)) => match value.parse::<u16>() {
                Ok(port) if port > 0 => Some((port, line)),
                _ => return Err(self.at(line, &format!("listen_port = {value:?} is not a port from 1 to 65535"))),
            },
        };
        let net = keys.remove(&key("server", "bind_net")).filter(|(value, _)| !value.is_empty());
        let given = match (keys.remove(&key("server", "bind_addr")), net) {
            (Some(_), Some((_, line))) => {
                return Err(self.at(line, "bind_net contradicts bind_addr; leave one of them out"));
            }
            (Some((value, line)), None) => match value.parse::<IpAddr>() {
                Ok(address) => Some((address, line)),
                Err(_) => return Err(self.at(line, &format!("bind_addr = {value:?} is not an IP address"))),
            },
            (None, Some((value, line))) => Some((self.address_of(&value, line)?, line)),
            (None, None) => port.map(|(_, line)| (IpAddr::from([127, 0, 0, 1]), line)),
        };
        Ok(given.map(|(address, line)| (address, port.map_or(PORT_DEFAULT, |(port, _)| port), line)))
    }

    /// The address of a network interface, IPv4 if it has one.
    fn address_of(&self, interface: &str, line: usize) -> Result<IpAddr, String> {
        let all = if_addrs::get_if_addrs()
            .map_err(|e| self.at(line, &format!("asking for the addresses of network interfaces failed: {e}")))?;
        let mut its: Vec<IpAddr> = all.iter().filter(|i| i.name == interface).map(if_addrs::Interface::ip).collect();
        its.sort_by_key(IpAddr::is_ipv6);
        its.first().copied().ok_or_else(|| {
            let mut names: Vec<&str> = all.iter().map(|i| i.name.as_str()).collect();
            names.dedup();
            let names = names.join(", ");
            self.at(line, &format!("bind_net = {interface:?}: no such interface has an address; there are {names}"))
        })
    }

    /// Options by their own names.
    fn own(&self, keys: &mut Keys, options: &[Choice], settings: &mut Settings) -> Result<(), String> {
        for option in options {
            let name = option.name.replace('-', "_");
            if option.is_flag {
                if self.flag(keys, "server", &name)? == Some(true) {
                    settings.arguments.push(format!("--{}", option.name));
                }
            } else if let Some((value, _)) = keys.remove(&key("server", &name)) {
                settings.add(&option.name, &value);
            }
        }
        Ok(())
    }

    /// The line that asks for RDMA, if one does, and the device with its line.
    fn verbs(&self, keys: &mut Keys) -> Result<Verbs, String> {
        let line = keys.get(&key("server", "enable_rdma")).map(|(_, line)| *line);
        let asked = self.flag(keys, "server", "enable_rdma")?;
        let device = keys.remove(&key("server", "ibverbs_device")).filter(|(value, _)| !value.is_empty());
        let is_own = |name: &str| keys.contains_key(&key("server", name));
        match (asked, line, &device) {
            (Some(false), Some(line), _) if is_own(verbs_option()) => {
                Err(self.at(line, "enable_rdma = false contradicts rdma; leave one of them out"))
            }
            (_, _, Some((_, line))) if is_own("rdma_device") => {
                Err(self.at(*line, "ibverbs_device contradicts rdma_device; leave one of them out"))
            }
            _ => Ok(Verbs { line: line.filter(|_| asked == Some(true)), device }),
        }
    }

    /// Offers RDMA beside TCP: the handshake has a port of its own, the next one.
    fn offer(
        &self,
        verbs: Verbs,
        address: Option<(IpAddr, u16, usize)>,
        settings: &mut Settings,
    ) -> Result<(), String> {
        let has = |settings: &Settings, option: &str| settings.arguments.iter().any(|argument| argument == option);
        if let Some(line) = verbs.line.filter(|_| !has(settings, "--rdma")) {
            // What is asked for and cannot be had is no setting to pass over.
            if !PROOFS.iter().any(|option| has(settings, option)) {
                let text = "enable_rdma = true needs token_file = FILE, so that not everybody who reaches it is let in";
                return Err(self.at(line, text));
            }
            let (ip, port) = address.map_or((IpAddr::from([127, 0, 0, 1]), PORT_DEFAULT), |(ip, port, _)| (ip, port));
            let Some(port) = port.checked_add(1) else {
                return Err(self.at(line, "enable_rdma = true takes the port behind listen_port, and there is none"));
            };
            let place = std::net::SocketAddr::new(ip, port).to_string();
            settings.notices.push(self.at(line, &format!("RDMA is asked for at {place}, the port behind TCP's")));
            settings.add(verbs_option(), &place);
        }
        if let Some((device, line)) = verbs.device {
            match has(settings, "--rdma") {
                true => settings.add("rdma-device", &device),
                false => {
                    settings.notices.push(self.at(line, "ibverbs_device has no meaning here: enable_rdma is not true"))
                }
            }
        }
        Ok(())
    }

    /// The original lets whoever reaches the port in. Here that takes a token, or `insecure`; programs of this machine
    /// have the socket.
    fn listen(&self, address: Option<(IpAddr, u16, usize)>, settings: &mut Settings) {
        let Some((address, port, line)) = address else { return };
        let place = std::net::SocketAddr::new(address, port).to_string();
        let has = |option: &str| settings.arguments.iter().any(|argument| argument == option);
        let is_proved = PROOFS.iter().any(|option| has(option));
        if address.is_loopback() && !is_proved {
            settings.notices.push(self.at(
                line,
                &format!(
                    "TCP on {place} needs token_file = FILE, so that not every user of this machine is let in; \
                          programs here use the socket"
                ),
            ));
        } else if !has("--listen") {
            settings.add("listen", &place);
        }
    }
}

impl Settings {
    fn add(&mut self, option: &str, value: &str) {
        self.arguments.extend([format!("--{option}"), value.to_owned()]);
    }
}

/// By which RDMA is asked for: the carrier that has devices.
fn verbs_option() -> &'static str {
    let carrier = CARRIERS.iter().find(|carrier| carrier.device.is_some());
    carrier.and_then(|carrier| carrier.served_by.strip_prefix("--")).expect("there is one, and it has an option")
}

fn key(section: &str, name: &str) -> (String, String) {
    (section.to_owned(), name.to_owned())
}

#[cfg(test)]
mod tests;
