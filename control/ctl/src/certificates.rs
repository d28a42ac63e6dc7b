//! Certificates of a pool: a CA of its own, what it signs, and a list of those that are not taken any more. Whoever
//! has a CA already needs none of this: what a certificate has to say is in `orion_tls::identity`.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use orion_tls::identity::{self, Role, check_name, uri};
use orion_tls::{Fingerprint, certificates, private_key, revoked};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};

/// Clocks that are behind take a certificate all the same.
const BEGAN_BEFORE: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

#[derive(Args)]
pub struct Folder {
    /// Folder with the CA (ca.pem, ca.key), where what is made is put
    #[arg(long, default_value = ".", value_name = "FOLDER")]
    pub folder: PathBuf,
    /// How long it is good
    #[arg(long, default_value_t = 365, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=36500))]
    pub days: u32,
}

#[derive(Subcommand)]
pub enum Command {
    /// Make the CA of a pool: ca.pem, which everybody may have, and ca.key, by which certificates are made
    Ca {
        /// What it is called
        #[arg(long, default_value = "Orion", value_name = "NAME")]
        name: String,
        #[arg(long, default_value = ".", value_name = "FOLDER")]
        folder: PathBuf,
        #[arg(long, default_value_t = 3650, value_name = "DAYS")]
        #[arg(value_parser = clap::value_parser!(u32).range(1..=36500))]
        days: u32,
    },
    /// Make a certificate for a controller or an oriond: NAME.pem and NAME.key
    Server {
        /// What its files are called
        name: String,
        /// Names and IP addresses by which others reach it
        #[arg(required = true)]
        hosts: Vec<String>,
        #[command(flatten)]
        folder: Folder,
    },
    /// Make one for a node: its agent shows it to the controller, and its oriond to programs
    Node {
        /// The node's name in the pool
        name: String,
        /// Names and IP addresses by which programs reach its oriond
        hosts: Vec<String>,
        #[command(flatten)]
        folder: Folder,
    },
    /// Make one for the programs of a tenant
    Client {
        tenant: String,
        #[command(flatten)]
        folder: Folder,
    },
    /// Make one for somebody who looks after the pool
    Administrator {
        name: String,
        #[command(flatten)]
        folder: Folder,
    },
    /// Put a certificate on the list of those that are not taken any more
    Revoke {
        /// The certificate, or its fingerprint where there is no file of it
        #[arg(value_name = "CERTIFICATE")]
        which: String,
        /// The list, as oriond's --revoked and the controller's `revoked` name it
        #[arg(long, default_value = "revoked", value_name = "FILE")]
        list: PathBuf,
    },
    /// Say who a certificate is for, and its fingerprint
    Show {
        #[arg(value_name = "CERTIFICATE")]
        which: PathBuf,
    },
}

/// What was done, for people.
pub fn run(command: Command) -> Result<String, String> {
    match command {
        Command::Ca { name, folder, days } => make_ca(&name, &folder, days),
        Command::Server { name, hosts, folder } => {
            check_name(&name)?;
            make(&folder, &name, &hosts, None, &[ExtendedKeyUsagePurpose::ServerAuth])
        }
        Command::Node { name, hosts, folder } => {
            let both = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
            make(&folder, &name, &hosts, Some(Role::Node), &both)
        }
        Command::Client { tenant, folder } => {
            make(&folder, &tenant, &[], Some(Role::Client), &[ExtendedKeyUsagePurpose::ClientAuth])
        }
        Command::Administrator { name, folder } => {
            make(&folder, &name, &[], Some(Role::Administrator), &[ExtendedKeyUsagePurpose::ClientAuth])
        }
        Command::Revoke { which, list } => revoke(&which, &list),
        Command::Show { which } => {
            let (fingerprint, who) = look(&which)?;
            Ok(format!("{who}\nfingerprint {fingerprint}"))
        }
    }
}

fn failed(e: rcgen::Error) -> String {
    format!("making a certificate failed: {e}")
}

/// A certificate names machines, and an address without its brackets; a port is none of its business.
fn host(text: &str) -> Result<String, String> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    if bare.parse::<IpAddr>().is_ok() || !bare.contains(':') {
        return Ok(bare.to_owned());
    }
    Err(format!("{text:?} is no name or IP address of a machine; leave the port out: a certificate is good for all"))
}

fn params(name: &str, hosts: &[String], days: u32) -> Result<CertificateParams, String> {
    let hosts = hosts.iter().map(|text| host(text)).collect::<Result<Vec<String>, String>>()?;
    let mut params = CertificateParams::new(hosts.clone()).map_err(|e| format!("{}: {e}", hosts.join(" ")))?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|e| format!("this machine's clock: {e}"))?;
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    (params.not_before, params.not_after) = (epoch + (now - BEGAN_BEFORE), epoch + (now + days * DAY));
    Ok(params)
}

fn make_ca(name: &str, folder: &Path, days: u32) -> Result<String, String> {
    let mut params = params(name, &[], days)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.self_signed(&key).map_err(failed)?;
    put(folder, "ca", &certificate.pem(), &key)?;
    let folder = folder.display();
    Ok(format!(
        "{folder}/ca.pem is for everybody who is to believe this CA; {folder}/ca.key makes certificates: keep it where \
         nobody else comes"
    ))
}

/// Signed by the folder's CA.
fn make(
    at: &Folder,
    name: &str,
    hosts: &[String],
    role: Option<Role>,
    purposes: &[ExtendedKeyUsagePurpose],
) -> Result<String, String> {
    check_name(name)?;
    let (ca, ca_key) = (at.folder.join("ca.pem"), at.folder.join("ca.key"));
    let beginning = "make a CA with `orionctl certificate ca`, or name its folder by --folder";
    let signing = certificates(&ca).map_err(|why| format!("{why}; {beginning}"))?;
    let key = private_key(&ca_key).map_err(|why| format!("{why}; {beginning}"))?;
    let key = KeyPair::try_from(&key).map_err(|e| format!("the key {}: {e}", ca_key.display()))?;
    let issuer = Issuer::from_ca_cert_der(&signing[0], key).map_err(|e| format!("{}: {e}", ca.display()))?;
    let mut params = params(name, hosts, at.days)?;
    if let Some(role) = role {
        let who = uri(role, name).as_str().try_into().map_err(failed)?;
        params.subject_alt_names.push(SanType::URI(who));
    }
    params.extended_key_usages = purposes.to_vec();
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.signed_by(&key, &issuer).map_err(failed)?;
    put(&at.folder, name, &certificate.pem(), &key)?;
    let (fingerprint, who) = look(&at.folder.join(format!("{name}.pem")))?;
    let folder = at.folder.display();
    let days = at.days;
    Ok(format!("{folder}/{name}.pem and {folder}/{name}.key: {who}, good for {days} days\nfingerprint {fingerprint}"))
}

/// A certificate and its key. Nothing is written over, and nothing is left of one without the other.
fn put(folder: &Path, name: &str, certificate: &str, key: &KeyPair) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|e| format!("making the folder {} failed: {e}", folder.display()))?;
    let mut made: Vec<PathBuf> = Vec::new();
    for (ending, mode, text) in [("key", 0o600, key.serialize_pem()), ("pem", 0o644, certificate.to_owned())] {
        let path = folder.join(format!("{name}.{ending}"));
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path);
        let written = file.and_then(|mut file| {
            made.push(path.clone());
            file.write_all(text.as_bytes())
        });
        if let Err(e) = written {
            for path in &made {
                let _ = std::fs::remove_file(path);
            }
            return Err(match e.kind() {
                io::ErrorKind::AlreadyExists => {
                    format!("{} is there already; move it away, or give another name or --folder", path.display())
                }
                _ => format!("writing {} failed: {e}", path.display()),
            });
        }
    }
    Ok(())
}

fn look(path: &Path) -> Result<(Fingerprint, String), String> {
    let found = certificates(path)?;
    let who = identity::of(&found[0]).map_or_else(|_| "a server's".to_owned(), |who| who.to_string());
    Ok((Fingerprint::of(&found[0]), who))
}

fn revoke(certificate: &str, list: &Path) -> Result<String, String> {
    let (fingerprint, who) = match certificate.parse::<Fingerprint>() {
        Ok(fingerprint) => (fingerprint, String::new()),
        Err(_) => look(Path::new(certificate)).map(|(fingerprint, who)| (fingerprint, format!(" # {who}")))?,
    };
    let name = list.display();
    let had = match std::fs::read_to_string(list) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
        Err(e) => return Err(format!("reading {name} failed: {e}")),
    };
    if revoked::parse(&had).map_err(|why| format!("{name}:{why}"))?.contains(&fingerprint) {
        return Ok(format!("{fingerprint} is in {name} already"));
    }
    let file = OpenOptions::new().append(true).create(true).open(list);
    let line = format!("{}{fingerprint}{who}\n", if had.is_empty() || had.ends_with('\n') { "" } else { "\n" });
    file.and_then(|mut file| file.write_all(line.as_bytes())).map_err(|e| format!("writing {name} failed: {e}"))?;
    Ok(format!("{fingerprint} is in {name}; who reads that list does not take it any more, within a second"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_for_machines_and_not_for_ports() {
        for (text, bare) in [("pool", "pool"), ("10.0.0.1", "10.0.0.1"), ("::1", "::1"), ("[fe80::1]", "fe80::1")] {
            assert_eq!(host(text).as_deref(), Ok(bare));
        }
        for text in ["pool:9123", "10.0.0.1:9123", "[::1]:9123"] {
            let why = host(text).expect_err(text);
            assert!(why.contains(text) && why.contains("leave the port out"), "{why}");
        }
    }

    #[test]
    fn what_a_comment_says_is_not_revoked_and_a_key_without_its_certificate_is_not_left() {
        let folder = std::env::temp_dir().join(format!("orion-certificates-{}", std::process::id()));
        make_ca("Orion", &folder, 1).expect("a CA");
        let at = || Folder { folder: folder.clone(), days: 1 };
        run(Command::Client { tenant: "red".to_owned(), folder: at() }).expect("a certificate");
        let (fingerprint, _) = look(&folder.join("red.pem")).expect("just made");
        let list = folder.join("revoked");
        std::fs::write(&list, format!("# {fingerprint} was lost and found\n")).expect("writing");
        let revoke = || revoke(&fingerprint.to_string(), &list).expect("a fingerprint");
        assert!(revoke().contains("does not take it any more"));
        assert_eq!(revoked::parse(&std::fs::read_to_string(&list).expect("a list")).expect("sound").len(), 1);
        assert!(revoke().contains("already"));

        std::fs::remove_file(folder.join("red.key")).expect("it is there");
        let why = run(Command::Client { tenant: "red".to_owned(), folder: at() }).expect_err("red.pem is there");
        assert!(why.contains("red.pem is there already") && !folder.join("red.key").exists(), "{why}");
        std::fs::remove_dir_all(&folder).expect("removing");
    }
}
