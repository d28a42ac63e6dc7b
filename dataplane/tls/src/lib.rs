//! TLS 1.3 for everything of Orion's that crosses a network, by rustls with ring, in user space.
//!
//! ```text
//! trust         a client's side: whom it believes, and what it shows             (ORION_CA, ORION_CERTIFICATE, …)
//! server        a server's side: its certificate, and whose certificates it takes
//! identity      who a certificate says somebody is                               (orion://client/NAME)
//! revoked       certificates that are not taken any more
//! handshake     from the first record to a connection's keys; no I/O
//! record        the two directions of a connection, each for whoever moves its bytes; no I/O
//! blocking      both over a socket that waits
//! ```
//!
//! Every address that is not this machine's own loopback is spoken to by TLS, unless somebody says `insecure`. Nobody
//! falls back to anything: a client that wants TLS and does not get it goes nowhere, and says why.

#![forbid(unsafe_code)]

pub mod blocking;
mod files;
pub mod handshake;
pub mod identity;
pub mod record;
pub mod revoked;
pub mod server;
pub mod trust;
mod words;

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};

pub use files::{certificates, private_key};
pub use words::{ANOTHER_CERTIFICATE, why, why_of, why_of_io};

/// SHA-256 of a certificate (RFC 5929 calls it `tls-server-end-point`): of which certificate it is, and what proofs are
/// bound to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    #[must_use]
    pub fn of(certificate: &CertificateDer<'_>) -> Fingerprint {
        Fingerprint(Sha256::digest(certificate).into())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for Fingerprint {
    type Err = String;

    /// 64 hexadecimal digits, with or without colons, as `openssl x509 -fingerprint -sha256` writes them.
    fn from_str(text: &str) -> Result<Fingerprint, String> {
        let wrong = || format!("{text:?} is no fingerprint of a certificate: 64 hexadecimal digits (SHA-256)");
        let digits: Vec<u8> = text
            .chars()
            .filter(|c| *c != ':')
            .map(|c| c.to_digit(16).map(|d| d as u8))
            .collect::<Option<_>>()
            .ok_or_else(wrong)?;
        let bytes: Vec<u8> = digits.chunks(2).map(|pair| pair[0] << 4 | pair.get(1).unwrap_or(&0)).collect();
        match (digits.len(), bytes.try_into()) {
            (64, Ok(bytes)) => Ok(Fingerprint(bytes)),
            _ => Err(wrong()),
        }
    }
}

/// Whether `host`, `host:port` or `[::1]:port` is this machine's loopback, as it is written: a name other than
/// `localhost` is not, wherever it leads.
#[must_use]
pub fn is_loopback(address: &str) -> bool {
    let host = host_of(address);
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Without its port and its brackets.
#[must_use]
pub fn host_of(address: &str) -> &str {
    let host = match address.rsplit_once(':') {
        // Colons of an address that stands in no brackets are its own, as are those within them.
        Some((host, port)) if !port.ends_with(']') && (!host.contains(':') || host.ends_with(']')) => host,
        _ => address,
    };
    host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host)
}

/// ring, and TLS 1.3's suites: those with AES first where the CPU computes it.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_written_as_loopback_is_loopback() {
        for address in
            ["127.0.0.1", "127.0.0.1:9123", "localhost:1", "LOCALHOST", "[::1]:7411", "[::1]", "::1", "127.9.9.9:1"]
        {
            assert!(is_loopback(address), "{address}");
        }
        for address in ["10.0.0.1:9123", "localhost.example:1", "0.0.0.0:1", "[::]:1", "gpu-node", "", "127.0.0.1.x:1"]
        {
            assert!(!is_loopback(address), "{address}");
        }
        assert_eq!((host_of("[fe80::1]:7"), host_of("node:7"), host_of("::1")), ("fe80::1", "node", "::1"));
    }

    #[test]
    fn a_fingerprint_is_read_as_it_is_written() {
        let of = Fingerprint::of(&CertificateDer::from(vec![1, 2, 3]));
        assert_eq!(of.to_string().parse(), Ok(of));
        let colons: Vec<String> = of.0.iter().map(|byte| format!("{byte:02X}")).collect();
        assert_eq!(colons.join(":").parse(), Ok(of));
        for wrong in ["", "ab", &of.to_string()[1..], &format!("{of}0"), "é"] {
            assert!(wrong.parse::<Fingerprint>().is_err(), "{wrong}");
        }
    }
}
