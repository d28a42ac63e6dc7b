//! What this program wants of a pool, as its environment and client.conf say it, and how its controller is asked for
//! that.

use std::path::PathBuf;
use std::time::Duration;

use orion_tls::trust::{Trust, VARIABLES};
use orion_wire::address::{self, Carrier, Server};
use orion_wire::client_conf::{ClientConf, controller_addresses};

use super::json::quoted;
use crate::environment;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Each `host:port`; of a pool with several controllers all of them.
    pub controllers: Vec<String>,
    pub client_key: Option<String>,
    /// Whom to believe, and what to show.
    pub trust: Trust,
    pub vgpus: u32,
    /// Of each; what the node's operator has decided if nothing is said.
    pub memory_mib: Option<u64>,
    /// Percent of a GPU's time, of each.
    pub ratio: Option<u32>,
    pub tenant: String,
    pub group: String,
    /// On the GPUs that the group has.
    pub with_group: bool,
    pub cross_node: bool,
    /// By which a node has to be reached; whichever it has if nothing is said.
    pub carrier: Option<&'static Carrier>,
    /// Seconds to wait for room, and for a controller that is not reached.
    pub wait: Option<u64>,
    /// Keys of client.conf that have no meaning here.
    pub idle: Vec<String>,
}

/// What only a controller can give.
const OF_A_POOL: [&str; 7] =
    ["ORION_VGPU", "ORION_GMEM", "ORION_RATIO", "ORION_WAIT", "ORION_RES_GROUP", "ORION_CROSS_NODE", "ORION_RESERVED"];

/// One that is started again is there by then.
const WAIT_FOR_CONTROLLER: Duration = Duration::from_secs(30);
/// A controller lets nobody wait for longer.
const WAIT_SECONDS_MAX: u64 = 3600;

/// So many that lead are asked that were not named: of a pool's controllers each may name another one, and one that is
/// wrong a new one each time.
const LEADERS_MAX: usize = 16;

/// Controllers, to be asked one after the other.
pub struct Candidates {
    all: Vec<String>,
    at: usize,
    leaders: usize,
}

impl Candidates {
    /// One has said that this one leads, which is asked next if it was not named.
    pub fn leads(&mut self, leader: &str) {
        if self.leaders < LEADERS_MAX && !self.all.iter().any(|known| known == leader) {
            self.all.insert(self.at, leader.to_owned());
            self.leaders += 1;
        }
    }
}

impl Iterator for Candidates {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let next = self.all.get(self.at).cloned();
        self.at += usize::from(next.is_some());
        next
    }
}

impl Wanted {
    /// Those that were named, to begin with.
    pub fn candidates(&self) -> Candidates {
        Candidates { all: self.controllers.clone(), at: 0, leaders: 0 }
    }

    /// Nothing if no controller is named. `server` is what `ORION_SERVER` says: it names an oriond, and then a file
    /// does not name a controller.
    pub fn from_environment(server: Option<&str>) -> Result<Option<Wanted>, String> {
        let variable = |name: &str| match environment::var(name) {
            Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(std::env::VarError::NotUnicode(_)) => Err(format!("{name} is not valid UTF-8")),
        };
        Wanted::of(variable, server, || ClientConf::below(environment::home()))
    }

    fn of(
        variable: impl Fn(&str) -> Result<Option<String>, String>,
        server: Option<&str>,
        conf: impl FnOnce() -> Result<ClientConf, String>,
    ) -> Result<Option<Wanted>, String> {
        let named = variable("ORION_CONTROLLER")?;
        let conf = match (server, &named) {
            (Some(server), Some(controller)) => {
                return Err(format!(
                    "ORION_CONTROLLER={controller} and ORION_SERVER={server} contradict each other: the controller \
                     chooses the server; unset one of them"
                ));
            }
            (Some(_), None) => ClientConf::default(),
            (None, _) => conf()?,
        };
        let Some(controller) = named.or(conf.controller) else {
            return match OF_A_POOL.iter().find_map(|name| variable(name).transpose().map(|value| (name, value))) {
                Some((name, value)) => Err(format!(
                    "{name}={} is asked of a pool's controller, and none is named; set ORION_CONTROLLER=HOST, or \
                     controller_addr in client.conf, or unset {name}",
                    value?
                )),
                None => Ok(None),
            };
        };
        refuse_what_is_not_there(&variable)?;
        let number = |name: &'static str, file: Option<String>| -> Result<Option<u64>, String> {
            let Some(text) = variable(name)?.or(file) else { return Ok(None) };
            text.trim().parse().map(Some).map_err(|_| no_number(name, &text))
        };
        let trust = trust(&variable, conf.ca, conf.certificate, conf.key)?;
        let wait = number("ORION_WAIT", None)?;
        if let Some(wait) = wait.filter(|wait| *wait > WAIT_SECONDS_MAX) {
            return Err(format!("ORION_WAIT is {wait}; it is a number of seconds, {WAIT_SECONDS_MAX} at most"));
        }
        let small = |name, value: u64| u32::try_from(value).map_err(|_| no_number(name, &value.to_string()));
        Ok(Some(Wanted {
            controllers: controller_addresses(&controller).map_err(|why| format!("ORION_CONTROLLER: {why}"))?,
            client_key: variable("ORION_CLIENT_KEY")?.or(conf.client_key),
            trust,
            vgpus: small("ORION_VGPU", number("ORION_VGPU", conf.vgpu)?.unwrap_or(1))?,
            memory_mib: number("ORION_GMEM", conf.gmem)?,
            ratio: number("ORION_RATIO", conf.ratio)?.map(|ratio| small("ORION_RATIO", ratio)).transpose()?,
            tenant: variable("ORION_TENANT")?.unwrap_or_default(),
            group: variable("ORION_GROUP_ID")?.unwrap_or_default(),
            with_group: choice(&variable, "ORION_RES_GROUP", ["NULL", "BOX"])?,
            cross_node: choice(&variable, "ORION_CROSS_NODE", ["0", "1"])?,
            carrier: carrier(&variable)?,
            wait,
            idle: conf.idle,
        }))
    }

    /// Nobody is sent by another carrier than the one that was asked for.
    pub fn is_reached_at(&self, server: &Server) -> Result<(), String> {
        match self.carrier {
            Some(carrier) if carrier != server.carrier => Err(format!(
                "ORION_TRANSPORT={} asks for another way than to {server}; unset it, or ask a node that is reached so",
                carrier.name
            )),
            _ => Ok(()),
        }
    }

    /// For `POST /allocations`, under a name of its own, and for `POST /look`, where it has none.
    pub fn question(&self, client: &str, name: &str) -> String {
        let mut fields = vec![
            format!("\"allocation\":{}", quoted(name)),
            format!("\"vgpus\":{}", self.vgpus),
            format!("\"tenant\":{}", quoted(&self.tenant)),
            format!("\"group\":{}", quoted(&self.group)),
            format!("\"client\":{}", quoted(client)),
        ];
        fields.extend(self.memory_mib.map(|mib| format!("\"memory_mib\":{mib}")));
        fields.extend(self.ratio.map(|ratio| format!("\"ratio\":{ratio}")));
        fields.extend(self.cross_node.then(|| "\"cross_node\":true".to_owned()));
        fields.extend(self.with_group.then(|| "\"with_group\":true".to_owned()));
        fields.extend(self.carrier.map(|carrier| format!("\"carrier\":{}", quoted(carrier.name))));
        fields.extend(self.wait.map(|seconds| format!("\"wait_ms\":{}", seconds * 1000)));
        format!("{{{}}}", fields.join(","))
    }

    pub fn wait_for_controller(&self) -> Duration {
        self.wait.map_or(WAIT_FOR_CONTROLLER, Duration::from_secs)
    }
}

fn no_number(name: &str, text: &str) -> String {
    let what = match name {
        "ORION_VGPU" => "vGPUs, such as 2",
        "ORION_GMEM" => "MiB, such as 4096 for 4 GiB",
        "ORION_RATIO" => "percent, such as 50",
        _ => "seconds, such as 60",
    };
    format!("{name} is {text:?}; it is a whole number of {what}")
}

fn carrier(variable: &impl Fn(&str) -> Result<Option<String>, String>) -> Result<Option<&'static Carrier>, String> {
    let Some(name) = variable("ORION_TRANSPORT")? else { return Ok(None) };
    match address::carrier(&name) {
        None => Err(format!("ORION_TRANSPORT={name} is none of {}", address::carrier_names())),
        Some(carrier) if !carrier.leads_to.is_of_a_pool() => Err(format!(
            "ORION_TRANSPORT={name} leads from a virtual machine to its host's oriond, and no node of a pool is \
             reached by it; set ORION_SERVER, as in {}, instead of a controller",
            carrier.example
        )),
        carrier => Ok(carrier),
    }
}

/// As the environment says, and where it says nothing the files of client.conf.
fn trust(
    variable: &impl Fn(&str) -> Result<Option<String>, String>,
    ca: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
) -> Result<Trust, String> {
    // What is not valid UTF-8 is nothing that was not said.
    VARIABLES.iter().try_for_each(|name| variable(name).map(drop))?;
    let said = Trust::from_environment(|name| variable(name).ok().flatten())?;
    if said.fingerprint.is_some() {
        return Err(
            "ORION_FINGERPRINT is an oriond's; a pool's controller says which one its nodes have, and is known \
                    by ORION_CA itself; unset it"
                .to_owned(),
        );
    }
    let path = |text: Option<String>| text.map(PathBuf::from);
    let (ca, certificate, key) = (path(ca), path(certificate), path(key));
    Ok(said.or(Trust { ca, certificate, key, ..Trust::default() }))
}

/// Whether a variable has the second of two values; not being set is the first.
fn choice(
    variable: &impl Fn(&str) -> Result<Option<String>, String>,
    name: &str,
    [no, yes]: [&str; 2],
) -> Result<bool, String> {
    match variable(name)? {
        None => Ok(false),
        Some(value) if value == no => Ok(false),
        Some(value) if value == yes => Ok(true),
        Some(value) => Err(format!("{name} is {value:?}; it is {no} or {yes}")),
    }
}

fn refuse_what_is_not_there(variable: &impl Fn(&str) -> Result<Option<String>, String>) -> Result<(), String> {
    if let Some(value) = variable("ORION_RESERVED")?.filter(|value| value != "0") {
        return Err(format!(
            "ORION_RESERVED={value}: vGPUs are a program's from its start to its end, and nothing is kept for a group \
             in between; unset it, or set it to 0"
        ));
    }
    for name in ["ORION_TOKEN", "ORION_TOKEN_FILE"] {
        if variable(name)?.is_some() {
            return Err(format!(
                "{name} is for a server that is named by ORION_SERVER; one of a pool asks for a lease, which the \
                 controller gives; unset it"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(pairs: &[(&str, &str)], server: Option<&str>, conf: &str) -> Result<Option<Wanted>, String> {
        let variable = |name: &str| Ok(pairs.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned()));
        Wanted::of(variable, server, || ClientConf::parse(conf))
    }

    #[test]
    fn what_is_no_text_is_not_taken_for_nothing() {
        for unreadable in ["ORION_CONTROLLER", "ORION_VGPU", "ORION_CA", "ORION_KEY", "ORION_TLS", "ORION_FINGERPRINT"]
        {
            let variable = |name: &str| match name {
                name if name == unreadable => Err(format!("{name} is not valid UTF-8")),
                "ORION_CONTROLLER" => Ok(Some("pool".to_owned())),
                _ => Ok(None),
            };
            let refused = Wanted::of(variable, None, || Ok(ClientConf::default())).err();
            assert_eq!(refused, Some(format!("{unreadable} is not valid UTF-8")));
        }
    }

    #[test]
    fn who_leads_is_asked_next_and_controllers_that_name_new_ones_without_end_are_not_followed() {
        let found = wanted(&[("ORION_CONTROLLER", "a:1,b:1")], None, "").expect("sound").expect("two are named");
        let mut candidates = found.candidates();
        assert_eq!(candidates.next().as_deref(), Some("a:1"));
        candidates.leads("c:1");
        candidates.leads("b:1");
        assert_eq!(candidates.collect::<Vec<_>>(), ["c:1", "b:1"]);
        let mut candidates = found.candidates();
        let mut asked = 0;
        while candidates.next().is_some() {
            asked += 1;
            candidates.leads(&format!("another-{asked}:1"));
        }
        assert_eq!(asked, 2 + LEADERS_MAX);
    }

    #[test]
    fn the_environment_counts_more_than_a_file() {
        let conf = "[controller]\ncontroller_addr = file:1\n[client]\nvgpu = 4\ngmem = 1024\n";
        let found = wanted(&[], None, conf).expect("sound").expect("a controller is named");
        assert_eq!(
            (found.controllers.join(" ").as_str(), found.vgpus, found.memory_mib, found.ratio),
            ("file:1", 4, Some(1024), None)
        );
        let pairs = [
            ("ORION_CONTROLLER", "pool,other:1"),
            ("ORION_VGPU", " 2 "),
            ("ORION_RATIO", "100"),
            ("ORION_GROUP_ID", "g"),
        ];
        let found = wanted(&pairs, None, conf).expect("sound").expect("a controller is named");
        assert_eq!(found.controllers, ["pool:9123", "other:1"]);
        assert_eq!((found.vgpus, found.memory_mib), (2, Some(1024)));
        assert_eq!((found.ratio, found.group.as_str()), (Some(100), "g"));
        let pairs_of_a_group =
            [pairs[0], ("ORION_RES_GROUP", "BOX"), ("ORION_CROSS_NODE", "1"), ("ORION_RESERVED", "0")];
        let found = wanted(&pairs_of_a_group, None, "").expect("sound").expect("a controller is named");
        assert!(found.with_group && found.cross_node && found.carrier.is_none());
        for carrier in address::CARRIERS.iter().filter(|carrier| carrier.leads_to == address::Leads::ToHost) {
            let asked = [pairs[0], ("ORION_TRANSPORT", carrier.name)];
            let found = wanted(&asked, None, "").expect("sound").expect("named");
            assert_eq!(found.carrier, Some(carrier));
            let at = |example: &str| found.is_reached_at(&Server::parse(example).expect("an address"));
            assert_eq!(at(carrier.example), Ok(()));
            let why = at(address::CARRIERS[0].example).expect_err("another carrier");
            assert!(why.contains(&format!("ORION_TRANSPORT={} asks for another way", carrier.name)), "{why}");
        }
        let found = wanted(&pairs[..1], None, "").expect("sound").expect("a controller is named");
        assert_eq!((found.vgpus, found.memory_mib), (1, None));
    }

    #[test]
    fn without_a_controller_there_is_none_and_a_server_that_is_named_is_no_pool() {
        assert_eq!(wanted(&[], None, ""), Ok(None));
        let conf = "[controller]\ncontroller_addr = pool\n";
        assert_eq!(wanted(&[], Some("tcp:node:7411"), conf), Ok(None));
    }

    #[test]
    fn what_contradicts_itself_or_does_nothing_is_refused() {
        let controller = ("ORION_CONTROLLER", "pool");
        for (pairs, server, words) in [
            (&[controller][..], Some("tcp:node:7411"), "ORION_SERVER=tcp:node:7411"),
            (&[("ORION_VGPU", "2")][..], None, "ORION_VGPU=2 is asked of a pool's controller"),
            (&[("ORION_GMEM", "9")][..], Some("tcp:node:7411"), "ORION_GMEM=9"),
            (&[controller, ("ORION_GMEM", "4 GiB")][..], None, "ORION_GMEM is \"4 GiB\"; it is a whole number of MiB"),
            (&[controller, ("ORION_VGPU", "-1")][..], None, "ORION_VGPU is \"-1\"; it is a whole number of vGPUs"),
            (&[controller, ("ORION_VGPU", "4294967296")][..], None, "ORION_VGPU is \"4294967296\"; it is"),
            (
                &[controller, ("ORION_RATIO", "50%")][..],
                None,
                "ORION_RATIO is \"50%\"; it is a whole number of percent",
            ),
            (&[controller, ("ORION_WAIT", "1m")][..], None, "it is a whole number of seconds"),
            (&[controller, ("ORION_WAIT", "3601")][..], None, "ORION_WAIT is 3601"),
            (&[("ORION_WAIT", "5")][..], None, "ORION_WAIT=5 is asked of a pool's controller"),
            (&[controller, ("ORION_CROSS_NODE", "2")][..], None, "ORION_CROSS_NODE is \"2\"; it is 0 or 1"),
            (&[controller, ("ORION_RES_GROUP", "a")][..], None, "ORION_RES_GROUP is \"a\"; it is NULL or BOX"),
            (&[controller, ("ORION_RESERVED", "1")][..], None, "ORION_RESERVED=1"),
            (&[controller, ("ORION_TRANSPORT", "pcie")][..], None, "ORION_TRANSPORT=pcie is none of shm, tcp"),
            (&[controller, ("ORION_TOKEN", "x")][..], None, "ORION_TOKEN is for a server"),
            (&[("ORION_CONTROLLER", "http://pool")][..], None, "HOST:PORT"),
        ] {
            let why = wanted(pairs, server, "").expect_err(words);
            assert!(why.contains(words), "{why}");
        }
        let of_guests = address::CARRIERS.iter().filter(|carrier| !carrier.leads_to.is_of_a_pool());
        let mut seen = 0;
        for name in of_guests.map(|carrier| carrier.name) {
            let why = wanted(&[controller, ("ORION_TRANSPORT", name)], None, "").expect_err(name);
            assert!(why.contains(&format!("ORION_TRANSPORT={name} leads from a virtual machine")), "{why}");
            seen += 1;
        }
        assert!(seen > 0, "carriers of virtual machines");
    }
}
