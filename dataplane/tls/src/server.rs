//! A server's side.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use crate::{Fingerprint, files, provider};

/// What a server shows, and whose certificates it takes.
#[derive(Clone)]
pub struct Server {
    pub config: Arc<ServerConfig>,
    pub fingerprint: Fingerprint,
}

impl Server {
    /// Of PEM files. With a `ca` clients may show certificates, which it has to have signed; what somebody may do who
    /// shows none is the server's to decide.
    pub fn read(certificate: &Path, key: &Path, ca: Option<&Path>) -> Result<Server, String> {
        let chain = files::certificates(certificate)?;
        let secret = files::private_key(key)?;
        let roots = ca.map(files::certificates).transpose()?;
        Server::new(chain, secret, roots.as_deref())
            .map_err(|e| format!("{} and {}: {e}", certificate.display(), key.display()))
    }

    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        ca: Option<&[CertificateDer<'static>]>,
    ) -> Result<Server, String> {
        let fingerprint = Fingerprint::of(&chain[0]);
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|e| e.to_string())?;
        let builder = match ca {
            None => builder.with_no_client_auth(),
            Some(ca) => {
                let roots = Arc::new(roots(ca)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).allow_unauthenticated();
                builder.with_client_cert_verifier(verifier.build().map_err(|e| e.to_string())?)
            }
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|e| format!("they do not go together: {e}"))?;
        // Connections are few and long; a ticket would be one more secret, and a record that nobody asked for.
        config.send_tls13_tickets = 0;
        config.enable_secret_extraction = true;
        Ok(Server { config: Arc::new(config), fingerprint })
    }
}

pub(crate) fn roots(ca: &[CertificateDer<'static>]) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    for certificate in ca {
        store.add(certificate.clone()).map_err(|e| format!("a certificate of the CA's file is none: {e}"))?;
    }
    Ok(store)
}
