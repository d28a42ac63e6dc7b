//! What went wrong with TLS, for people.

use rustls::{AlertDescription as Alert, CertificateError, Error};

pub(crate) const NO_TLS: &str = "the other side does not speak TLS; is it one with `insecure`, one of before TLS, or \
                                 another program?";

/// As the end of a sentence, with what to try where that is known.
#[must_use]
pub fn why(e: &Error) -> String {
    match e {
        Error::InvalidCertificate(e) => certificate(e),
        Error::AlertReceived(alert) => format!("the other side ended it: {}", heard(*alert)),
        Error::InvalidMessage(_) => NO_TLS.to_owned(),
        Error::PeerIncompatible(e) => format!("both sides have no version or suite of TLS in common ({e:?})"),
        Error::NoCertificatesPresented => "no certificate was shown".to_owned(),
        other => format!("TLS failed: {other}"),
    }
}

/// As [`why`], of what a socket of rustls' says.
#[must_use]
pub fn why_of_io(e: &std::io::Error) -> String {
    match e.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(e) => why(e),
        None => e.to_string(),
    }
}

/// As [`why`], of an error that is one of rustls', or is about one.
#[must_use]
pub fn why_of(e: &(dyn std::error::Error + 'static)) -> Option<String> {
    match e.downcast_ref::<Error>() {
        Some(e) => Some(why(e)),
        None => e.downcast_ref::<std::io::Error>()?.get_ref()?.downcast_ref::<Error>().map(why),
    }
}

/// Who is there may be the next one of whom the fingerprint was: then another fingerprint is told soon.
pub const ANOTHER_CERTIFICATE: &str =
    "its certificate is another one than was announced: it was changed since, or somebody is in between";

fn certificate(e: &CertificateError) -> String {
    match e {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired; make a new one, and compare the clocks".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet; compare the clocks".to_owned()
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "its certificate is not signed by the CA that is believed here; compare the CA's file on both sides"
                .to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("its certificate is for another name: {e}")
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "its certificate is for another purpose: a server's for a client, or a client's for a server".to_owned()
        }
        CertificateError::ApplicationVerificationFailure => ANOTHER_CERTIFICATE.to_owned(),
        other => format!("its certificate is not good: {other}"),
    }
}

fn heard(alert: Alert) -> String {
    match alert {
        Alert::UnknownCA | Alert::DecryptError => {
            "the certificate that is shown here is not signed by a CA that it believes".to_owned()
        }
        Alert::CertificateExpired => "the certificate that is shown here has expired".to_owned(),
        Alert::CertificateRevoked => "the certificate that is shown here is revoked".to_owned(),
        Alert::CertificateRequired => "it wants a certificate, and none is shown here".to_owned(),
        Alert::BadCertificate | Alert::CertificateUnknown | Alert::UnsupportedCertificate => {
            "it does not take the certificate that is shown here".to_owned()
        }
        Alert::ProtocolVersion | Alert::HandshakeFailure => "it speaks no TLS 1.3".to_owned(),
        other => format!("{other:?}"),
    }
}
