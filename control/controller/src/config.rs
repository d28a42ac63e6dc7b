//! What an operator sets: controller.yaml, in the original's form.

// UNSAFETY: geteuid.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use orion_pool::pool::Settings;
use orion_tls::revoked::Revoked;
use orion_tls::server::Server;
use orion_tls::trust::Trust;
use serde::Deserialize;

use crate::doors::Security;

/// Where it is looked for if nothing is said.
pub const DEFAULT_PATH: &str = "/etc/orion/controller.yaml";

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    controller: Controller,
    database: Database,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Controller {
    listen_ip: IpAddr,
    listen_port: u16,
    log_level: String,
    log_file: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    client_ca: Option<PathBuf>,
    revoked: Option<PathBuf>,
    insecure: bool,
    placement: Placement,
    places_by_ratio: bool,
    advertise: Option<String>,
    offer_s: u64,
    lease_s: u64,
    authentication: Keys,
}

impl Default for Controller {
    fn default() -> Controller {
        Controller {
            listen_ip: IpAddr::from([127, 0, 0, 1]),
            listen_port: 9123,
            log_level: "info".into(),
            log_file: None,
            certificate: None,
            key: None,
            client_ca: None,
            revoked: None,
            insecure: false,
            placement: Placement::Pack,
            places_by_ratio: true,
            advertise: None,
            offer_s: Settings::default().offer_ms / 1000,
            lease_s: Settings::default().lease_ms / 1000,
            authentication: Keys::default(),
        }
    }
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Placement {
    Pack,
    Spread,
}

/// Who knows one of them may do what it is for. Where there is none, everybody may who reaches the controller.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Keys {
    pub client_key: Option<String>,
    pub server_key: Option<String>,
    pub administrator_key: Option<String>,
}

/// Shorter ones are guessed.
const KEY_BYTES_MIN: usize = 16;

impl Keys {
    fn checked(self) -> Result<Keys, String> {
        let check = |name: &str, key: Option<String>| match key.filter(|key| !key.is_empty()) {
            Some(key) if key.len() < KEY_BYTES_MIN => {
                Err(format!("{name} has {} characters; give it {KEY_BYTES_MIN} or more", key.len()))
            }
            key => Ok(key),
        };
        Ok(Keys {
            client_key: check("client-key", self.client_key)?,
            server_key: check("server-key", self.server_key)?,
            administrator_key: check("administrator-key", self.administrator_key)?,
        })
    }
}

/// What the controller shows to who comes over a network, and what it wants to see.
#[derive(Debug, Default)]
pub struct Papers {
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    client_ca: Option<PathBuf>,
    revoked: Option<PathBuf>,
    pub insecure: bool,
}

impl Papers {
    fn check(&self, listen_ip: IpAddr) -> Result<(), String> {
        let given = [("certificate", &self.certificate), ("client_ca", &self.client_ca)];
        let given = given.iter().find(|(_, path)| path.is_some()).map(|(name, _)| name);
        match (self.insecure, given, self.certificate.is_some(), self.key.is_some()) {
            (true, Some(name), ..) => Err(format!(
                "controller.insecure lets other machines speak in the clear, and controller.{name} is about what is \
                 encrypted; leave one of them out"
            )),
            (_, _, true, false) => Err("controller.certificate needs its key: set controller.key".to_owned()),
            (_, _, false, true) => Err("controller.key needs its certificate: set controller.certificate".to_owned()),
            _ if self.revoked.is_some() && self.client_ca.is_none() => {
                Err("controller.revoked is about clients' certificates: set controller.client_ca too".to_owned())
            }
            (_, Some(_), false, _) => {
                Err("controller.client_ca needs what the controller shows itself: set controller.certificate and \
                     controller.key"
                    .to_owned())
            }
            (false, _, false, _) if !listen_ip.is_loopback() => Err(format!(
                "listen_ip is {listen_ip}, and what crosses a network is encrypted: set controller.certificate and \
                 controller.key (`orionctl certificate server` makes them); or listen on 127.0.0.1, or set \
                 controller.insecure: true if everybody on the way may read and change it"
            )),
            _ => Ok(()),
        }
    }

    pub fn read(&self) -> Result<Security, String> {
        let (certificate, key, ca) = (self.certificate.as_deref(), self.key.as_deref(), self.client_ca.as_deref());
        let server = certificate.zip(key).map(|(certificate, key)| Server::read(certificate, key, ca)).transpose()?;
        let revoked = self.revoked.as_deref().map(Revoked::read).transpose()?.map(Arc::new);
        Ok(Security { server, wants_certificate: ca.is_some(), revoked, insecure: self.insecure })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
struct Database {
    name: Option<String>,
    data_dir: Option<PathBuf>,
    kv: Option<String>,
    kv_ca: Option<PathBuf>,
    kv_certificate: Option<PathBuf>,
    kv_key: Option<PathBuf>,
    kv_insecure: bool,
    // Of the etcd that the original brought along.
    listen_client_urls: Option<String>,
    advertise_client_urls: Option<String>,
    listen_peer_urls: Option<String>,
    initial_advertise_peer_urls: Option<String>,
    initial_cluster: Option<String>,
    initial_cluster_state: Option<String>,
    initial_cluster_token: Option<String>,
}

#[derive(Debug)]
pub struct Config {
    pub listen: (IpAddr, u16),
    pub log_level: tracing::Level,
    pub log_file: Option<PathBuf>,
    pub policy: orion_pool::Policy,
    /// Takes shares of a GPU's time to which nobody is held.
    pub places_by_ratio: bool,
    pub keys: Keys,
    pub papers: Papers,
    pub folder: PathBuf,
    /// URLs of an etcd that other controllers share.
    pub kv: Option<String>,
    /// Whose certificate that has to show, and what it is shown.
    pub kv_trust: Trust,
    /// Where others reach this controller, if it has been said.
    advertise: Option<String>,
    /// How long what stands.
    pub times: Settings,
    /// Settings of the original that have no meaning here.
    pub idle: Vec<&'static str>,
}

impl Config {
    /// The file that is named, or the default one, which may be missing.
    pub fn read(named: Option<&Path>) -> Result<Config, String> {
        let path = named.unwrap_or(Path::new(DEFAULT_PATH));
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) if named.is_none() && e.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(e) => return Err(format!("reading {} failed: {e}", path.display())),
        };
        Config::parse(&text).map_err(|why| format!("{}: {why}", path.display()))
    }

    fn parse(text: &str) -> Result<Config, String> {
        let file: File = match text.trim().is_empty() {
            true => File::default(),
            false => serde_saphyr::from_str(text).map_err(|e| e.to_string())?,
        };
        let Controller {
            listen_ip,
            listen_port,
            log_level,
            log_file,
            certificate,
            key,
            client_ca,
            revoked,
            insecure,
            placement,
            places_by_ratio,
            advertise,
            offer_s,
            lease_s,
            authentication,
        } = file.controller;
        // A node says every two seconds what it has.
        for (name, seconds, min) in [("offer_s", offer_s, 1), ("lease_s", lease_s, 5)] {
            if !(min..=3600).contains(&seconds) {
                return Err(format!("controller.{name} is {seconds}; it is {min} to 3600 seconds"));
            }
        }
        let papers = Papers { certificate, key, client_ca, revoked, insecure };
        papers.check(listen_ip)?;
        if let Some(name) = file.database.name.as_deref().filter(|n| !["etcd", "embedded"].contains(n)) {
            return Err(format!(
                "database.name is {name:?}; it is \"embedded\", a store in data-dir; an etcd is named by kv"
            ));
        }
        let level = log_level
            .parse()
            .map_err(|_| format!("log_level is {log_level:?}; it is one of error, warn, info, debug, trace"))?;
        Ok(Config {
            listen: (listen_ip, listen_port),
            log_level: level,
            log_file: log_file.filter(|path| !path.as_os_str().is_empty()),
            policy: match placement {
                Placement::Pack => orion_pool::Policy::Pack,
                Placement::Spread => orion_pool::Policy::Spread,
            },
            places_by_ratio,
            kv: file.database.kv.clone().filter(|urls| !urls.is_empty()),
            kv_trust: file.database.trust(),
            advertise: advertise.filter(|address| !address.is_empty()),
            times: Settings { offer_ms: offer_s * 1000, lease_ms: lease_s * 1000, ..Settings::default() },
            keys: authentication.checked()?,
            papers,
            idle: file.database.idle(),
            folder: match file.database.data_dir {
                Some(folder) => folder,
                None => default_folder()?,
            },
        })
    }

    /// Where the pool's other controllers and their clients reach this one, which listens at `local`.
    pub fn advertised(&self, local: SocketAddr) -> Result<String, String> {
        match &self.advertise {
            Some(named) => {
                orion_wire::client_conf::controller_address(named).map_err(|why| format!("controller.advertise: {why}"))
            }
            None if local.ip().is_unspecified() => {
                let name = std::fs::read_to_string("/proc/sys/kernel/hostname")
                    .map_err(|e| format!("reading the machine's name failed: {e}; set controller.advertise"))?;
                Ok(format!("{}:{}", name.trim(), local.port()))
            }
            None => Ok(local.to_string()),
        }
    }
}

impl Database {
    fn trust(&self) -> Trust {
        let given = |path: &Option<PathBuf>| path.clone().filter(|path| !path.as_os_str().is_empty());
        let (ca, certificate) = (given(&self.kv_ca), given(&self.kv_certificate));
        Trust { ca, certificate, key: given(&self.kv_key), insecure: self.kv_insecure, ..Trust::default() }
    }

    fn idle(&self) -> Vec<&'static str> {
        let all = [
            (
                "name: etcd (without kv or --kv the controller keeps the pool itself, in data-dir)",
                self.name.as_deref() == Some("etcd") && self.kv.is_none(),
            ),
            ("listen-client-urls", self.listen_client_urls.is_some()),
            ("advertise-client-urls", self.advertise_client_urls.is_some()),
            ("listen-peer-urls", self.listen_peer_urls.is_some()),
            ("initial-advertise-peer-urls", self.initial_advertise_peer_urls.is_some()),
            ("initial-cluster", self.initial_cluster.is_some()),
            ("initial-cluster-state", self.initial_cluster_state.is_some()),
            ("initial-cluster-token", self.initial_cluster_token.is_some()),
        ];
        all.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name).collect()
    }
}

/// root's is the system's, another user's his own.
fn default_folder() -> Result<PathBuf, String> {
    // SAFETY: geteuid cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        return Ok("/var/lib/orion".into());
    }
    let home = std::env::var_os("HOME").ok_or("HOME is not set; say database.data-dir")?;
    Ok(PathBuf::from(home).join(".orion/controller"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_originals_file_is_understood() {
        let text = "
controller:
    listen_ip: 0.0.0.0
    listen_port: 9123
    log_level: info
    log_file:
    insecure: true
    authentication:
        client-key:
        server-key:
        administrator-key: 0123456789abcdef
database:
    name: etcd
    data-dir: /tmp/orion
    listen-client-urls: http://127.0.0.1:23791
    initial-cluster-token: Orion-database-cluster
";
        let config = Config::parse(text).expect("the original's file");
        assert_eq!(config.listen, ("0.0.0.0".parse().unwrap(), 9123));
        assert_eq!(
            (config.keys.administrator_key.as_deref(), &config.keys.client_key),
            (Some("0123456789abcdef"), &None)
        );
        assert_eq!(config.folder, Path::new("/tmp/orion"));
        assert_eq!(config.log_file, None);
        assert_eq!(config.idle.len(), 3);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (text, said) in [
            ("controller:\n  listen_prot: 9123\n", "listen_prot"),
            ("controller:\n  listen_port: 99999\n", "line 2"),
            ("controller:\n  log_level: loud\n", "log_level is \"loud\""),
            ("controller:\n  listen_ip: 0.0.0.0\n", "insecure: true"),
            ("controller:\n  certificate: a.pem\n", "set controller.key"),
            ("controller:\n  key: a.key\n", "set controller.certificate"),
            ("controller:\n  client_ca: ca.pem\n", "set controller.certificate and"),
            ("controller:\n  revoked: list\n", "set controller.client_ca too"),
            ("controller:\n  insecure: true\n  certificate: a.pem\n  key: a.key\n", "leave one of them out"),
            ("database:\n  name: mysql\n", "database.name is \"mysql\""),
            ("controller: [\n", "line"),
            ("controller:\n  lease_s: 1\n", "lease_s is 1; it is 5 to 3600 seconds"),
            ("controller:\n  authentication:\n    client-key: short\n", "client-key has 5 characters"),
        ] {
            let why = Config::parse(text).expect_err(said);
            assert!(why.contains(said), "{why}");
        }
    }

    #[test]
    fn without_a_file_it_listens_to_this_machine_only() {
        let config = Config::parse("").expect("no settings");
        assert!(config.listen.0.is_loopback());
        assert_eq!(config.listen.1, 9123);
    }
}
