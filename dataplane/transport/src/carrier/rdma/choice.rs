//! Which device and port to use, as people write it.

use std::fmt;

use orion_wire::address::VERBS_DEVICE;

const FORM: &str = "DEVICE[:PORT][,gid=N][,mtu=256|512|1024|2048|4096][,sl=N][,pkey=N][,paging=on|off], such as \
                    mlx5_0:1,gid=3";

/// A port of an RDMA device, and how to use it. What is left out is found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerbsPort {
    /// The first one with a port that is up, where it is not named.
    pub device: Option<String>,
    pub port: Option<u8>,
    /// Index of the port's address: over Ethernet that of RoCE v2 and IPv4, where it is not given.
    pub gid_index: Option<u8>,
    /// Bytes of a packet: the port's own, where it is not given.
    pub mtu_bytes: Option<u16>,
    pub service_level: u8,
    /// Index of the partition key.
    pub pkey_index: u16,
    /// Whether the device finds pages of a heap by itself (on-demand paging), where it can.
    pub paging: bool,
}

impl Default for VerbsPort {
    fn default() -> VerbsPort {
        VerbsPort {
            device: None,
            port: None,
            gid_index: None,
            mtu_bytes: None,
            service_level: 0,
            pkey_index: 0,
            paging: true,
        }
    }
}

impl VerbsPort {
    /// `DEVICE[:PORT][,gid=N][,mtu=N][,sl=N][,pkey=N][,paging=on|off]`. Without a device it begins with a comma, or is
    /// empty.
    pub fn parse(text: &str) -> Result<VerbsPort, String> {
        let wrong = |what: &str, value: &str| format!("{text:?}: {value:?} is no {what}; the form is {FORM}");
        let mut parts = text.split(',');
        let (device, port) = match parts.next().unwrap_or_default() {
            "" => (None, None),
            named => match named.split_once(':') {
                None => (Some(named), None),
                Some((device, port)) => {
                    let number = port.parse().ok().filter(|n| *n > 0);
                    (Some(device), Some(number.ok_or_else(|| wrong("port from 1 to 255", port))?))
                }
            },
        };
        // It becomes part of a path.
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if let Some(device) = device.filter(|name| name.is_empty() || !name.chars().all(is_name)) {
            return Err(wrong("name of a device", device));
        }
        let mut chosen = VerbsPort { device: device.map(str::to_owned), port, ..VerbsPort::default() };
        for part in parts {
            let (name, value) = part.split_once('=').ok_or_else(|| wrong("setting", part))?;
            match name {
                "gid" => chosen.gid_index = Some(value.parse().map_err(|_| wrong("index from 0 to 255", value))?),
                "mtu" => {
                    let bytes = value.parse().ok().filter(|bytes| mtu_number(*bytes).is_some());
                    chosen.mtu_bytes = Some(bytes.ok_or_else(|| wrong("MTU", value))?);
                }
                "sl" => {
                    let level = value.parse().ok().filter(|level| *level < 16);
                    chosen.service_level = level.ok_or_else(|| wrong("service level from 0 to 15", value))?;
                }
                "pkey" => chosen.pkey_index = value.parse().map_err(|_| wrong("index of a partition key", value))?,
                "paging" => {
                    let is_on = [("on", true), ("off", false)].into_iter().find(|(word, _)| *word == value);
                    chosen.paging = is_on.ok_or_else(|| wrong("way of paging, on or off", value))?.1;
                }
                _ => return Err(wrong("setting", name)),
            }
        }
        Ok(chosen)
    }

    /// What this process's user has chosen.
    pub fn from_environment() -> Result<VerbsPort, String> {
        match crate::environment::var(VERBS_DEVICE) {
            Ok(text) => VerbsPort::parse(&text).map_err(|why| format!("{VERBS_DEVICE}={why}")),
            Err(std::env::VarError::NotPresent) => Ok(VerbsPort::default()),
            Err(std::env::VarError::NotUnicode(_)) => Err(format!("{VERBS_DEVICE} is no text; the form is {FORM}")),
        }
    }
}

impl fmt::Display for VerbsPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.device, self.port) {
            (Some(device), Some(port)) => write!(f, "{device}:{port}"),
            (Some(device), None) => f.write_str(device),
            (None, _) => f.write_str("any device"),
        }
    }
}

/// As verbs number the sizes of packets.
pub fn mtu_number(bytes: u16) -> Option<u8> {
    [256, 512, 1024, 2048, 4096].iter().position(|b| *b == bytes).map(|i| i as u8 + 1)
}

pub fn mtu_bytes(number: u8) -> u16 {
    128 << number.clamp(1, 5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read() {
        let named = |name: &str| VerbsPort { device: Some(name.into()), ..VerbsPort::default() };
        assert_eq!(VerbsPort::parse(""), Ok(VerbsPort::default()));
        assert_eq!(VerbsPort::parse("mlx5_0"), Ok(named("mlx5_0")));
        assert_eq!(VerbsPort::parse("mlx5_0:2"), Ok(VerbsPort { port: Some(2), ..named("mlx5_0") }));
        assert_eq!(VerbsPort::parse(",gid=3"), Ok(VerbsPort { gid_index: Some(3), ..VerbsPort::default() }));
        let all = VerbsPort {
            device: Some("rxe-1".into()),
            port: Some(1),
            gid_index: Some(0),
            mtu_bytes: Some(1024),
            service_level: 15,
            pkey_index: 7,
            paging: false,
        };
        assert_eq!(VerbsPort::parse("rxe-1:1,gid=0,mtu=1024,sl=15,pkey=7,paging=off"), Ok(all));
        assert_eq!(VerbsPort::parse(",paging=on"), Ok(VerbsPort::default()));
    }

    #[test]
    fn what_is_no_port_is_told_the_form() {
        for (text, value) in [
            ("mlx5_0:0", "0"),
            ("mlx5_0:x", "x"),
            ("../mlx5_0", "../mlx5_0"),
            (":1", ""),
            ("a,gid=256", "256"),
            ("a,mtu=1500", "1500"),
            ("a,sl=16", "16"),
            ("a,pkey=-1", "-1"),
            ("a,paging=no", "no"),
            ("a,speed=9", "speed"),
            ("a,gid", "gid"),
        ] {
            let said = VerbsPort::parse(text).expect_err(text);
            assert!(said.contains(&format!("{value:?} is no")) && said.contains("DEVICE[:PORT]"), "{said}");
        }
    }

    #[test]
    fn sizes_of_packets_have_numbers() {
        for number in 1..=5 {
            assert_eq!(mtu_number(mtu_bytes(number)), Some(number));
        }
        assert_eq!(mtu_number(1500), None);
    }
}
