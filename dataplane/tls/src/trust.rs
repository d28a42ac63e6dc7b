//! A client's side: whom it believes, and what it shows of itself.

use std::env::VarError;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

use crate::server::roots;
use crate::{Fingerprint, files, host_of, is_loopback, provider};

/// As settings say it: environment, files or a tool's options.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trust {
    /// Certificates that a server's has to be signed by.
    pub ca: Option<PathBuf>,
    /// What is shown to a server that wants a certificate.
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    /// Of the only certificate that is believed. Then names and dates do not count.
    pub fingerprint: Option<Fingerprint>,
    /// Nothing is encrypted, wherever it goes.
    pub insecure: bool,
    /// Over loopback too.
    pub always: bool,
}

/// How to speak to somebody.
#[derive(Clone)]
pub enum Way {
    Plain,
    Tls(Arc<ClientConfig>, ServerName<'static>),
}

/// What settings are called where these came from, for errors.
#[derive(Debug, Clone, Copy)]
pub struct Names {
    pub ca: &'static str,
    pub certificate: &'static str,
    pub key: &'static str,
    pub insecure: &'static str,
}

pub const ENVIRONMENT: Names =
    Names { ca: "ORION_CA", certificate: "ORION_CERTIFICATE", key: "ORION_KEY", insecure: "ORION_INSECURE=1" };

pub const OPTIONS: Names = Names { ca: "--ca", certificate: "--certificate", key: "--key", insecure: "--insecure" };

/// The variables that say it.
pub const VARIABLES: [&str; 6] =
    ["ORION_CA", "ORION_FINGERPRINT", "ORION_CERTIFICATE", "ORION_KEY", "ORION_INSECURE", "ORION_TLS"];

impl Trust {
    /// As the environment says, which is read by `variable`.
    ///
    /// # Errors
    ///
    /// In words.
    pub fn of_this_process(variable: impl Fn(&str) -> Result<String, VarError>) -> Result<Trust, String> {
        // What cannot be read does not mean that nothing was asked for, such as that all be encrypted.
        let is_read = |name: &&str| !matches!(variable(name), Err(VarError::NotUnicode(_)));
        match VARIABLES.iter().find(|name| !is_read(name)) {
            Some(name) => Err(format!("{name} is not valid UTF-8")),
            None => Trust::from_environment(|name| variable(name).ok()),
        }
    }

    /// As [`Self::of_this_process`], of an environment that is read otherwise.
    ///
    /// # Errors
    ///
    /// In words.
    pub fn from_environment(value_of: impl Fn(&str) -> Option<String>) -> Result<Trust, String> {
        let path = |name: &str| value_of(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let insecure = match value_of("ORION_INSECURE").as_deref() {
            None | Some("" | "0") => false,
            Some("1") => true,
            Some(other) => return Err(format!("ORION_INSECURE is {other:?}; it is 0 or 1")),
        };
        let always = match value_of("ORION_TLS").as_deref() {
            None | Some("" | "0") => false,
            Some("1") if !insecure => true,
            Some("1") => return Err("ORION_TLS=1 and ORION_INSECURE=1 contradict each other; unset one".to_owned()),
            Some(other) => return Err(format!("ORION_TLS is {other:?}; it is 0 or 1")),
        };
        let fingerprint = value_of("ORION_FINGERPRINT").filter(|value| !value.is_empty());
        let fingerprint = fingerprint.map(|text| text.parse()).transpose();
        Ok(Trust {
            ca: path("ORION_CA"),
            certificate: path("ORION_CERTIFICATE"),
            key: path("ORION_KEY"),
            fingerprint: fingerprint.map_err(|why: String| format!("ORION_FINGERPRINT: {why}"))?,
            insecure,
            always,
        })
    }

    /// What is not said here is as it is there: whom to believe, and what to show, each as a whole.
    #[must_use]
    pub fn or(self, other: Trust) -> Trust {
        let (whom, shown) = (self.says_whom() || self.insecure, self.certificate.is_some() || self.key.is_some());
        Trust {
            always: self.always || other.always,
            ca: if whom { self.ca } else { other.ca },
            fingerprint: if whom { self.fingerprint } else { other.fingerprint },
            insecure: if whom { self.insecure } else { other.insecure },
            certificate: if shown || self.insecure { self.certificate } else { other.certificate },
            key: if shown || self.insecure { self.key } else { other.key },
        }
    }

    /// Whether anything says whom to believe.
    #[must_use]
    pub fn says_whom(&self) -> bool {
        self.ca.is_some() || self.fingerprint.is_some()
    }

    /// How to speak to `address` (`host:port`): plainly over loopback if nothing is said, and by TLS anywhere else.
    pub fn way_to(&self, address: &str, names: Names) -> Result<Way, String> {
        self.check(names)?;
        if self.insecure || is_loopback(address) && !self.says_whom() && !self.always {
            return Ok(Way::Plain);
        }
        if !self.says_whom() {
            return Err(format!(
                "{address} is spoken to by TLS, and nothing says whose certificate to believe: give {} FILE, the CA's \
                 certificate, or {} to send everything in the clear",
                names.ca, names.insecure
            ));
        }
        self.tls_to(address, names)
    }

    /// By TLS, wherever it is.
    pub fn tls_to(&self, address: &str, names: Names) -> Result<Way, String> {
        let verifier: Arc<dyn ServerCertVerifier> = match (self.fingerprint, &self.ca) {
            (Some(fingerprint), _) => Only::of(Some(fingerprint)),
            (None, Some(ca)) => {
                let store = roots(&files::certificates(ca)?).map_err(|e| format!("{}: {e}", ca.display()))?;
                WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider())
                    .build()
                    .map_err(|e| format!("{}: {e}", ca.display()))?
            }
            (None, None) => return Err(format!("nothing says whose certificate to believe; give {} FILE", names.ca)),
        };
        self.way_by(verifier, address, names)
    }

    /// By TLS with whoever is there. Only for somebody who makes the other side prove over this very channel that it is
    /// the right one, before he says anything that matters (see [`crate::Fingerprint`]).
    pub fn unproved_to(&self, address: &str, names: Names) -> Result<Way, String> {
        self.way_by(Only::of(None), address, names)
    }

    fn check(&self, names: Names) -> Result<(), String> {
        if self.insecure && (self.says_whom() || self.certificate.is_some()) {
            return Err(format!(
                "{} sends everything in the clear, and a CA, a certificate or a fingerprint is given too; leave one of \
                 them out",
                names.insecure
            ));
        }
        match (&self.certificate, &self.key) {
            (Some(_), None) => Err(format!("{} needs its key: give {} FILE", names.certificate, names.key)),
            (None, Some(_)) => Err(format!("{} needs its certificate: give {} FILE", names.key, names.certificate)),
            _ => Ok(()),
        }
    }

    fn way_by(&self, verifier: Arc<dyn ServerCertVerifier>, address: &str, names: Names) -> Result<Way, String> {
        self.check(names)?;
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|e| e.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => {
                let (chain, secret) = (files::certificates(certificate)?, files::private_key(key)?);
                builder.with_client_auth_cert(chain, secret).map_err(|e| pair(certificate, key, &e))?
            }
            _ => builder.with_no_client_auth(),
        };
        config.enable_secret_extraction = true;
        config.resumption = rustls::client::Resumption::disabled();
        let host = host_of(address);
        let name = ServerName::try_from(host.to_owned()).map_err(|_| format!("{host:?} can be in no certificate"))?;
        Ok(Way::Tls(Arc::new(config), name))
    }
}

fn pair(certificate: &Path, key: &Path, e: &Error) -> String {
    format!("{} and {} do not go together: {e}", certificate.display(), key.display())
}

/// Believes one certificate, or any; whoever shows it has to have its key.
#[derive(Debug)]
struct Only {
    fingerprint: Option<Fingerprint>,
    provider: Arc<CryptoProvider>,
}

impl Only {
    fn of(fingerprint: Option<Fingerprint>) -> Arc<dyn ServerCertVerifier> {
        Arc::new(Only { fingerprint, provider: provider() })
    }
}

impl ServerCertVerifier for Only {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.fingerprint {
            Some(wanted) if wanted != Fingerprint::of(end_entity) => {
                Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
            }
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not spoken here".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
