//! Certificates and keys, as files have them.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// All certificates of a PEM file, at least one.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let name = path.display();
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    match found {
        Ok(found) if found.is_empty() => Err(format!("{name} has no certificate in it (-----BEGIN CERTIFICATE-----)")),
        Ok(found) => Ok(found),
        Err(e) => Err(format!("reading the certificate {name} failed: {}", words(&e))),
    }
}

/// The key of a PEM file that nobody else can read.
pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let name = path.display();
    let found = std::fs::metadata(path).map_err(|e| format!("reading the key {name} failed: {e}"))?;
    if found.mode() & 0o077 != 0 {
        let mode = found.mode() & 0o7777;
        return Err(format!("the key {name} has mode {mode:04o}: others can read or change it; `chmod 600 {name}`"));
    }
    PrivateKeyDer::from_pem_file(path).map_err(|e| match e {
        pem::Error::NoItemsFound => format!("{name} has no key in it (-----BEGIN PRIVATE KEY-----)"),
        e => format!("reading the key {name} failed: {}", words(&e)),
    })
}

fn words(e: &pem::Error) -> String {
    match e {
        pem::Error::Io(e) => e.to_string(),
        pem::Error::NoItemsFound => "nothing of the kind is in it".to_owned(),
        e => format!("it is no PEM: {e}"),
    }
}
