//! Who a certificate says somebody is: a URI among its alternative names, `orion://client/TENANT`,
//! `orion://node/NAME` or `orion://administrator/NAME`. Any CA can write it.

use std::fmt;

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

use crate::Fingerprint;

pub const NAME_BYTES_MAX: usize = 128;
const SCHEME: &str = "orion://";

/// What somebody may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// A tenant's programs: they ask for vGPUs.
    Client,
    /// A node: its agent reports.
    Node,
    /// Who looks after the pool.
    Administrator,
}

impl Role {
    pub const ALL: [Role; 3] = [Role::Client, Role::Node, Role::Administrator];

    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Role::Client => "client",
            Role::Node => "node",
            Role::Administrator => "administrator",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub role: Role,
    /// The tenant's, the node's or the administrator's.
    pub name: String,
    pub fingerprint: Fingerprint,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&uri(self.role, &self.name))
    }
}

/// As it stands in a certificate.
#[must_use]
pub fn uri(role: Role, name: &str) -> String {
    format!("{SCHEME}{}/{name}", role.word())
}

/// Which names can stand in one without being written in another way.
pub fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '@');
    match !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(is_plain) {
        true => Ok(()),
        false => Err(format!(
            "{name:?} cannot be a name in a certificate: it is of up to {NAME_BYTES_MAX} letters, digits and . - _ @"
        )),
    }
}

/// Of a certificate that was checked. The error says what is missing.
pub fn of(certificate: &CertificateDer<'_>) -> Result<Identity, String> {
    let parsed = EndEntityCert::try_from(certificate).map_err(|e| format!("the certificate is damaged: {e}"))?;
    let all: Vec<(Role, &str)> = parsed.valid_uri_names().filter_map(read).collect();
    match all[..] {
        [(role, name)] => {
            check_name(name)?;
            Ok(Identity { role, name: name.to_owned(), fingerprint: Fingerprint::of(certificate) })
        }
        [] => Err("the certificate does not say who it is for: it needs a URI among its alternative names, such as \
                   orion://client/TENANT, orion://node/NAME or orion://administrator/NAME"
            .to_owned()),
        _ => Err("the certificate says twice who it is for; one orion:// URI is enough".to_owned()),
    }
}

fn read(uri: &str) -> Option<(Role, &str)> {
    let (role, name) = uri.strip_prefix(SCHEME)?.split_once('/')?;
    Role::ALL.into_iter().find(|known| known.word() == role).map(|role| (role, name))
}
