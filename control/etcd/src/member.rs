//! Where a member of an etcd is, and how it is spoken to: by TLS where its URL says so, in the clear on this machine,
//! and in the clear over a network only where an operator says that he wants that.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use orion_tls::is_loopback;
use orion_tls::trust::{Names, Trust, Way};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::codegen::http::Uri;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const PORT: u16 = 2379;

/// What the settings are called.
pub const NAMES: Names =
    Names { ca: "--kv-ca", certificate: "--kv-certificate", key: "--kv-key", insecure: "--kv-insecure" };

/// Each with its URL.
pub fn all(urls: &str, trust: &Trust) -> Result<Vec<(String, Channel)>, String> {
    let members = urls.split(',').map(|url| member(url.trim())).collect::<Result<Vec<_>, _>>()?;
    let is_encrypted = members.iter().any(|member| member.is_encrypted);
    let given = [(&trust.ca, NAMES.ca), (&trust.certificate, NAMES.certificate), (&trust.key, NAMES.key)];
    if let Some((_, name)) = given.iter().find(|(path, _)| path.is_some()).filter(|_| !is_encrypted) {
        return Err(format!("{name} is about an etcd behind TLS, and {urls} is none; write https://"));
    }
    members.into_iter().map(|member| Ok((member.url(), channel(&member, trust)?))).collect()
}

#[derive(Debug, PartialEq, Eq)]
struct Member {
    is_encrypted: bool,
    /// With its port.
    address: String,
}

impl Member {
    fn url(&self) -> String {
        format!("{}://{}", if self.is_encrypted { "https" } else { "http" }, self.address)
    }
}

fn member(url: &str) -> Result<Member, String> {
    let wrong = || format!("{url:?} is no URL of an etcd; it is https://HOST:PORT, several with commas between");
    let (is_encrypted, rest) = match url.split_once("://") {
        Some(("http", rest)) => (false, rest.trim_end_matches('/')),
        Some(("https", rest)) => (true, rest.trim_end_matches('/')),
        Some(_) => return Err(wrong()),
        None => (false, url),
    };
    if rest.is_empty() || rest.contains(|c: char| c == '/' || c == '@' || c.is_whitespace() || c.is_control()) {
        return Err(wrong());
    }
    let has_port = rest.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
    Ok(Member { is_encrypted, address: if has_port { rest.to_owned() } else { format!("{rest}:{PORT}") } })
}

/// Connects when it is used.
fn channel(member: &Member, trust: &Trust) -> Result<Channel, String> {
    let (url, address) = (member.url(), &member.address);
    // What tonic calls https it encrypts itself.
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|e| format!("{url:?} is no URL: {e}"))?;
    let endpoint = endpoint.connect_timeout(CONNECT_TIMEOUT);
    if !member.is_encrypted {
        return match trust.insecure || is_loopback(address) {
            true => Ok(endpoint.connect_lazy()),
            false => Err(format!(
                "{url} would be spoken to in the clear, and who reads that knows the pool, who writes it has the GPUs: \
                 write https:// and give {} FILE, the CA's certificate, or {} to send everything in the clear",
                NAMES.ca, NAMES.insecure
            )),
        };
    }
    if trust.insecure {
        return Err(format!(
            "{url} is behind TLS, and {} sends everything in the clear; leave one out",
            NAMES.insecure
        ));
    }
    let Way::Tls(mut config, name) = trust.tls_to(address, NAMES).map_err(|why| format!("{url}: {why}"))? else {
        unreachable!("it was asked for by TLS")
    };
    // On the same port an etcd serves HTTP/1.1.
    Arc::make_mut(&mut config).alpn_protocols = vec![b"h2".to_vec()];
    let (connector, address) = (TlsConnector::from(config), address.clone());
    let dial = move |_: Uri| {
        let (connector, name, address) = (connector.clone(), name.clone(), address.clone());
        async move {
            let socket = TcpStream::connect(address).await?;
            socket.set_nodelay(true)?;
            Ok::<_, io::Error>(TokioIo::new(connector.connect(name, socket).await?))
        }
    };
    Ok(endpoint.connect_with_connector_lazy(service_fn(dial)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_checked_before_anybody_is_asked() {
        for (url, meant) in [
            ("http://a:1", "http://a:1"),
            ("http://a", "http://a:2379"),
            ("a:1", "http://a:1"),
            ("http://[::1]/", "http://[::1]:2379"),
            ("https://a", "https://a:2379"),
        ] {
            assert_eq!(member(url).map(|member| member.url()).as_deref(), Ok(meant));
        }
        for url in ["", "unix://a", "http://me:secret@a", "http://a/pool", "https://"] {
            let why = member(url).expect_err(url);
            assert!(why.contains("is no URL of an etcd"), "{why}");
        }
    }

    #[tokio::test]
    async fn nothing_crosses_a_network_in_the_clear_unless_that_is_said() {
        let (none, insecure) = (Trust::default(), Trust { insecure: true, ..Trust::default() });
        let ca = Trust { ca: Some("/nonexistent/ca.pem".into()), ..Trust::default() };
        for (urls, trust) in [("http://127.0.0.1:1,http://[::1]", &none), ("http://10.0.0.1", &insecure)] {
            all(urls, trust).map(drop).expect(urls);
        }
        for (urls, trust, words) in [
            ("http://127.0.0.1,http://10.0.0.1", &none, "http://10.0.0.1:2379 would be spoken to in the clear"),
            ("https://10.0.0.1", &none, "give --kv-ca FILE"),
            ("https://10.0.0.1", &insecure, "leave one out"),
            ("http://127.0.0.1", &ca, "--kv-ca is about an etcd behind TLS"),
            ("https://10.0.0.1", &ca, "/nonexistent/ca.pem"),
        ] {
            let why = all(urls, trust).map(drop).expect_err(urls);
            assert!(why.contains(words), "{why}");
        }
    }
}
