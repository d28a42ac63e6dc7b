//! Where an oriond listens, as people write it, and the names of the carriers that lead there.

use std::fmt;
use std::path::{Path, PathBuf};

/// A carrier, as people name it.
#[derive(Debug, PartialEq, Eq)]
pub struct Carrier {
    /// As in `ORION_TRANSPORT`.
    pub name: &'static str,
    /// What an address begins with.
    pub scheme: &'static str,
    /// What an address looks like.
    pub example: &'static str,
    pub leads_to: Leads,
    /// The option by which an oriond is told to listen there.
    pub served_by: &'static str,
    /// The variable that names its device, where it has one.
    pub device: Option<&'static str>,
}

/// As Orion vGPU's users know it.
pub const VERBS_DEVICE: &str = "ORION_IB_NAME";

/// What an address names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leads {
    /// The socket of an oriond on this machine.
    ToPath,
    /// `host:port`.
    ToHost,
    /// A device of the virtual machine in which the program runs, whose memory its host shares.
    ToDevice,
    /// A port of the host of that machine, or of another machine on it, by its CID.
    ToMachine,
}

impl Leads {
    /// Whether a node of a pool may be reached so: from a virtual machine there is its own host alone.
    pub fn is_of_a_pool(self) -> bool {
        matches!(self, Leads::ToPath | Leads::ToHost)
    }
}

/// All there are. Who adds one names it here.
pub static CARRIERS: &[Carrier] = &[
    Carrier {
        name: "shm",
        scheme: "unix",
        example: "unix:/run/orion/oriond.sock",
        leads_to: Leads::ToPath,
        served_by: "--socket",
        device: None,
    },
    Carrier {
        name: "tcp",
        scheme: "tcp",
        example: "tcp:host:7411",
        leads_to: Leads::ToHost,
        served_by: "--listen",
        device: None,
    },
    Carrier {
        name: "rdma",
        scheme: "rdma",
        example: "rdma:host:7412",
        leads_to: Leads::ToHost,
        served_by: "--rdma",
        device: Some(VERBS_DEVICE),
    },
    Carrier {
        name: "ivshmem",
        scheme: "ivshmem",
        example: "ivshmem:0000:00:04.0",
        leads_to: Leads::ToDevice,
        served_by: "--guest",
        device: None,
    },
    Carrier {
        name: "vsock",
        scheme: "vsock",
        example: "vsock:2:7411",
        leads_to: Leads::ToMachine,
        served_by: "--vsock",
        device: None,
    },
    // For tests: shared memory as a guest would have it.
    #[cfg(debug_assertions)]
    Carrier {
        name: "doorbell",
        scheme: "doorbell",
        example: "doorbell:/run/oriond.sock",
        leads_to: Leads::ToPath,
        served_by: "--socket",
        device: None,
    },
];

/// The carrier of that name.
pub fn carrier(name: &str) -> Option<&'static Carrier> {
    CARRIERS.iter().find(|carrier| carrier.name == name)
}

/// Their names, for an error that lists them.
pub fn carrier_names() -> String {
    CARRIERS.iter().map(|carrier| carrier.name).collect::<Vec<_>>().join(", ")
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    pub carrier: &'static Carrier,
    pub place: Place,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A socket of this machine: oriond's own, or by vsock the one to which a hypervisor leads one of its machines, in
    /// place of which a program connects.
    Path(PathBuf),
    /// `host:port`.
    Host(String),
    /// A PCI device by its number, such as 0000:00:04.0, or a file that is what its memory would be. Empty for the one
    /// that there is.
    Device(String),
    /// A port of vsock. The CID 2 is the host's, 1 this machine's own.
    Machine { cid: u32, port: u32 },
}

impl Server {
    /// By the carrier that takes no word: a path alone means its socket.
    pub fn local(path: impl Into<PathBuf>) -> Server {
        Server { carrier: first(Leads::ToPath), place: Place::Path(path.into()) }
    }

    /// `unix:/path`, `tcp:host:port`, `rdma:host:port`, `ivshmem:`, `vsock:cid:port`, `/path` or `host:port`; and on a
    /// hypervisor's side `vsock:/path`.
    pub fn parse(text: &str) -> Result<Server, String> {
        let wrong = |what: &str| {
            Err(format!(
                "server address {text:?} {what}; it is one of unix:/path, tcp:host:port, rdma:host:port, /path, \
                 host:port, and in a virtual machine ivshmem:, ivshmem:0000:00:04.0 or vsock:2:7411"
            ))
        };
        if text.starts_with('/') {
            return Ok(Server::local(text));
        }
        let named = CARRIERS.iter().find_map(|carrier| {
            let rest = text.strip_prefix(carrier.scheme)?.strip_prefix(':')?;
            Some((carrier, rest))
        });
        let (carrier, address) = named.unwrap_or((first(Leads::ToHost), text));
        if carrier.leads_to == Leads::ToPath {
            return match address.is_empty() {
                true => wrong("has no path"),
                false => Ok(Server { carrier, place: Place::Path(address.into()) }),
            };
        }
        if carrier.leads_to == Leads::ToDevice {
            return match is_device(address) {
                true => Ok(Server { carrier, place: Place::Device(address.to_owned()) }),
                false => wrong(&format!("has {address:?} for a device")),
            };
        }
        if carrier.leads_to == Leads::ToMachine && address.starts_with('/') {
            return Ok(Server { carrier, place: Place::Path(address.into()) });
        }
        if carrier.leads_to == Leads::ToMachine {
            return match machine(address) {
                Some((cid, port)) => Ok(Server { carrier, place: Place::Machine { cid, port } }),
                None => wrong(&format!("has {address:?} for CID and port, which are numbers (the host's CID is 2)")),
            };
        }
        if let Some((scheme, _)) = address.split_once("//") {
            return wrong(&format!("begins with {scheme}//, and oriond is not asked by URL"));
        }
        let Some((host, port)) = address.rsplit_once(':') else { return wrong("has no port") };
        if !port.parse::<u16>().is_ok_and(|p| p != 0) {
            return wrong(&format!("has {port:?} for a port"));
        }
        // Any character but these may be in a name that somebody's resolver knows.
        if host.is_empty() || host.chars().any(|c| c == '/' || c.is_whitespace() || c.is_control()) {
            return wrong(&format!("has {host:?} for a host"));
        }
        if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
            return wrong("has more than one colon: an IPv6 address stands in brackets, as in tcp:[::1]:7411");
        }
        Ok(Server { carrier, place: Place::Host(address.to_owned()) })
    }

    pub fn transport(&self) -> &'static str {
        self.carrier.name
    }

    /// Where it is a socket of this machine.
    pub fn path(&self) -> Option<&Path> {
        match &self.place {
            Place::Path(path) => Some(path),
            Place::Host(_) | Place::Device(_) | Place::Machine { .. } => None,
        }
    }

    /// Where it is `host:port`.
    pub fn host(&self) -> Option<&str> {
        match &self.place {
            Place::Host(host) => Some(host),
            Place::Path(_) | Place::Device(_) | Place::Machine { .. } => None,
        }
    }

    /// Where it is a device of this virtual machine.
    pub fn device(&self) -> Option<&str> {
        match &self.place {
            Place::Device(device) => Some(device),
            Place::Host(_) | Place::Path(_) | Place::Machine { .. } => None,
        }
    }

    /// Where it is a CID and a port.
    pub fn machine(&self) -> Option<(u32, u32)> {
        match self.place {
            Place::Machine { cid, port } => Some((cid, port)),
            Place::Host(_) | Place::Path(_) | Place::Device(_) => None,
        }
    }
}

/// A CID and a port. The hypervisor's CID 0 is nobody's, and the last of either means any.
fn machine(text: &str) -> Option<(u32, u32)> {
    let (cid, port) = text.split_once(':')?;
    let number = |text: &str| text.parse::<u32>().ok().filter(|number| (1..u32::MAX).contains(number));
    Some((number(cid)?, number(port)?))
}

/// Nothing, an absolute path, or a PCI device as the system names it: it becomes a part of a path.
fn is_device(text: &str) -> bool {
    let is_number = |c: char| c.is_ascii_hexdigit() || c == ':' || c == '.';
    text.is_empty() || text.starts_with('/') || text.len() == "0000:00:00.0".len() && text.chars().all(is_number)
}

fn first(leads_to: Leads) -> &'static Carrier {
    CARRIERS.iter().find(|carrier| carrier.leads_to == leads_to).expect("there is one of each kind")
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.carrier.scheme;
        match &self.place {
            Place::Path(path) => write!(f, "{scheme}:{}", path.display()),
            Place::Host(host) => write!(f, "{scheme}:{host}"),
            Place::Device(device) => write!(f, "{scheme}:{device}"),
            Place::Machine { cid, port } => write!(f, "{scheme}:{cid}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read() {
        let unix = |path: &str| Ok(Server::local(path));
        let tcp = |address: &str| {
            let place = Place::Host(address.into());
            Ok(Server { carrier: carrier("tcp").expect("it is one"), place })
        };
        assert_eq!(Server::parse("unix:/run/a.sock"), unix("/run/a.sock"));
        assert_eq!(Server::parse("/run/a.sock"), unix("/run/a.sock"));
        assert_eq!(Server::parse("tcp:node:7411"), tcp("node:7411"));
        let rdma = Server { carrier: carrier("rdma").expect("it is one"), place: Place::Host("node:7412".into()) };
        assert_eq!(Server::parse("rdma:node:7412"), Ok(rdma));
        assert_eq!(Server::parse("node.example:1"), tcp("node.example:1"));
        assert_eq!(Server::parse("[::1]:7411"), tcp("[::1]:7411"));
        for device in ["", "0000:00:04.0", "/sys/some/resource2"] {
            let server = Server::parse(&format!("ivshmem:{device}")).expect("an address");
            assert_eq!(server.device(), Some(device));
        }
        assert_eq!(Server::parse("vsock:2:7411").expect("an address").machine(), Some((2, 7411)));
        let hypervisors = Server::parse("vsock:/run/vm0.vsock_7411").expect("an address");
        assert_eq!(hypervisors.path(), Some(Path::new("/run/vm0.vsock_7411")));
        assert_eq!((hypervisors.transport(), hypervisors.to_string()), ("vsock", "vsock:/run/vm0.vsock_7411".into()));
    }

    #[test]
    fn an_example_is_an_address_of_its_carrier() {
        for carrier in CARRIERS {
            let server = Server::parse(carrier.example).expect(carrier.example);
            assert_eq!((server.carrier, server.to_string().as_str()), (carrier, carrier.example));
        }
    }

    #[test]
    fn nodes_of_a_pool_are_reached_by_these() {
        let of_a_pool = |name: &str| carrier(name).expect(name).leads_to.is_of_a_pool();
        let all = ["shm", "tcp", "rdma", "ivshmem", "vsock"];
        assert_eq!(all.map(of_a_pool), [true, true, true, false, false]);
    }

    #[test]
    fn what_is_no_address_is_told_the_forms() {
        for text in [
            "http://node:7411",
            "https://node",
            "tcp://node:7411",
            "tcp:http://node:7411",
            "unix:",
            "node",
            "node:",
            "node:0",
            "node:http",
            "node:65536",
            ":7411",
            "a b:7411",
            "node/x:7411",
            "::1:7411",
            "ivshmem:4",
            "ivshmem:../../../etc",
            "vsock:7411",
            "vsock:host:7411",
            "vsock:0:7411",
            "vsock:2:0",
            "vsock:4294967295:7411",
            "vsock:2:-1",
            "",
        ] {
            let said = Server::parse(text).expect_err(text);
            assert!(said.contains(&format!("{text:?}")) && said.contains("unix:/path, tcp:host:port"), "{said}");
        }
    }
}
