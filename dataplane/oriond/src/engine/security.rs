//! What an operator has decided about whoever comes over a network: with which certificate he is answered, whose he has
//! to show, and whether what he says may be in the clear.

use std::path::PathBuf;
use std::sync::Arc;

use orion_tls::handshake::Secured;
use orion_tls::identity::{self, Identity, Role};
use orion_tls::revoked::Revoked;
use orion_tls::server::Server;
use orion_wire::refusal::{Reason, Refusal};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair};

use super::peer::Peer;

/// As options have it.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// With its key. A certificate of its own is made at the start if there is none.
    pub certificate: Option<(PathBuf, PathBuf)>,
    pub client_ca: Option<PathBuf>,
    pub revoked: Option<PathBuf>,
    pub insecure: bool,
}

pub struct Security {
    pub server: Server,
    pub wants_certificate: bool,
    pub revoked: Option<Arc<Revoked>>,
    /// Other machines may come in the clear.
    pub insecure: bool,
}

impl Security {
    pub fn open(options: &Options) -> Result<Security, String> {
        let ca = options.client_ca.as_deref();
        let server = match &options.certificate {
            Some((certificate, key)) => Server::read(certificate, key, ca)?,
            None => own_certificate(ca)?,
        };
        let revoked = options.revoked.as_deref().map(Revoked::read).transpose()?.map(Arc::new);
        Ok(Security { server, wants_certificate: ca.is_some(), revoked, insecure: options.insecure })
    }

    /// Who the client is by its certificate, if he has to show one; or why he is not talked to.
    pub fn admit(&self, peer: Peer, secured: Option<&Secured>) -> Result<Option<Identity>, Refusal> {
        let refuse = |text: String| Err(Refusal::new(Reason::NotPermitted, text));
        if secured.is_none() && !self.insecure && !peer.is_of_this_machine() {
            return refuse(
                "this server is spoken to by TLS from other machines, and this came in the clear; unset \
                 ORION_INSECURE where the program runs, or start oriond with --insecure"
                    .to_owned(),
            );
        }
        if !self.wants_certificate {
            return Ok(None);
        }
        let Some(certificate) = secured.and_then(|secured| secured.peer.as_ref()) else {
            let by_tls = if secured.is_none() { ", and ORION_TLS=1 on its own machine" } else { "" };
            return refuse(format!(
                "this server wants a certificate (--client-ca), and none was shown; set ORION_CERTIFICATE and \
                 ORION_KEY{by_tls}"
            ));
        };
        let who = match identity::of(certificate) {
            Ok(who) => who,
            Err(why) => return refuse(why),
        };
        if who.role == Role::Node {
            return refuse(format!("the certificate {who} is a node's; programs need one of orion://client/TENANT"));
        }
        if self.is_revoked(&who) {
            let fingerprint = who.fingerprint;
            return refuse(format!("the certificate {who} is revoked (its fingerprint is {fingerprint})"));
        }
        Ok(Some(who))
    }

    pub fn is_revoked(&self, who: &Identity) -> bool {
        self.revoked.as_ref().is_some_and(|list| list.has(&who.fingerprint))
    }
}

/// Made at each start, for a server whose clients know it by the token, or by what the controller says.
fn own_certificate(ca: Option<&std::path::Path>) -> Result<Server, String> {
    let failed = |e: rcgen::Error| format!("making a certificate failed: {e}");
    let mut params = CertificateParams::new(["oriond".to_owned()]).map_err(failed)?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.self_signed(&key).map_err(failed)?;
    let ca = ca.map(orion_tls::certificates).transpose()?;
    let key = key.serialize_der().try_into().map_err(|e| format!("making a key failed: {e}"))?;
    Server::new(vec![certificate.der().clone()], key, ca.as_deref())
}
