//! Which of a pool's controllers leads.

use std::io;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use orion_tls::trust::{Names, Trust, Way};
use orion_tls::{why_of, why_of_io};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::codegen::http::Uri;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tower::service_fn;

use crate::LeaderRequest;
use crate::heard::{Heard, Reason};
use crate::pool_client::PoolClient;

/// By which a controller that does not lead says who does.
pub const HEADER: &str = "orion-leader";

/// A controller that is there takes a connection at once. Who tries while the way is cut sends each packet later than
/// the one before, so he begins anew, and is heard soon after the way is back.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The port of a controller that none is named of.
pub const PORT: u16 = 9123;

/// `HOST[:PORT]`, several with commas between, each with its port. What is no address stays as it is, for [`check`].
pub fn addresses(text: &str) -> Vec<String> {
    text.split(',').map(|address| with_port(address.trim())).collect()
}

fn with_port(address: &str) -> String {
    // Within brackets a colon is the address's own, and without them nobody could tell.
    match address.contains(':') && !address.ends_with(']') {
        true => address.to_owned(),
        false => format!("{address}:{PORT}"),
    }
}

/// Whether this can be an address. The error says what is wrong with it.
pub fn check(address: &str) -> Result<(), String> {
    endpoint(address).map(drop)
}

fn endpoint(address: &str) -> Result<Endpoint, String> {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
        return Err(format!("{address:?} is no HOST:PORT: an IPv6 address stands in brackets, such as [::1]:{PORT}"));
    }
    if port.parse::<u16>().is_err() {
        return Err(format!("{address:?} is no HOST:PORT, such as gpu-pool:{PORT}"));
    }
    let endpoint = Endpoint::from_shared(format!("http://{address}"));
    let endpoint = endpoint.map_err(|e| format!("{address:?} is no HOST:PORT: {e}"))?;
    Ok(endpoint.connect_timeout(CONNECT_TIMEOUT))
}

/// A connection to a controller at this address, encrypted unless it is this machine's own or `trust` says otherwise.
pub async fn connect(address: &str, trust: &Trust, names: Names) -> Result<Channel, String> {
    heard(address, trust, names, Reason::default()).await
}

/// As [`connect`], with a place for why it fails later.
async fn heard(address: &str, trust: &Trust, names: Names, reason: Reason) -> Result<Channel, String> {
    let endpoint = endpoint(address)?;
    match trust.way_to(address, names)? {
        Way::Plain => endpoint.connect().await.map_err(|e| cause(&e)),
        Way::Tls(config, name) => {
            let connector = TlsConnector::from(config);
            let address = address.to_owned();
            let dial = move |_: Uri| {
                let (connector, name, address) = (connector.clone(), name.clone(), address.clone());
                let reason = reason.clone();
                async move {
                    let socket = TcpStream::connect(address).await?;
                    socket.set_nodelay(true)?;
                    let said = |e: io::Error| io::Error::new(e.kind(), why_of_io(&e));
                    let stream = connector.connect(name, socket).await.map_err(said)?;
                    Ok::<_, io::Error>(TokioIo::new(Heard::new(stream, reason)))
                }
            };
            endpoint.connect_with_connector(service_fn(dial)).await.map_err(|e| cause(&e))
        }
    }
}

/// The controller that leads.
pub struct Found {
    pub channel: Channel,
    pub address: String,
    /// Other machines may speak to it in the clear. Whoever shows something of it says so.
    pub insecure: bool,
}

/// Whom to ask for the one that leads, and how.
pub struct Search<'a> {
    pub addresses: &'a [String],
    pub trust: &'a Trust,
    pub names: Names,
    /// Of each.
    pub patience: Duration,
}

impl Search<'_> {
    /// The connection to the one that leads. Each of the addresses is asked in turn, and who they say that leads. The
    /// error names what each has said.
    pub async fn find(&self) -> Result<Found, String> {
        let mut candidates = self.addresses.to_vec();
        let mut said = Vec::new();
        let mut at = 0;
        while let Some(address) = candidates.get(at).cloned() {
            at += 1;
            let asked = tokio::time::timeout(self.patience, self.ask(&address)).await;
            let late = |_| Err(format!("it does not answer within {} s", self.patience.as_secs()));
            match asked.unwrap_or_else(late) {
                Ok((channel, insecure, None)) => return Ok(Found { channel, address, insecure }),
                // It may be none of those that were named.
                Ok((_, _, Some(leader))) => {
                    if !candidates.contains(&leader) {
                        candidates.insert(at, leader.clone());
                    }
                    said.push(format!("{address} says that {leader} leads"));
                }
                Err(why) => said.push(format!("{address}: {why}")),
            }
        }
        Err(said.join("; "))
    }

    /// Who leads, if it is not the one that is asked, and whether that one is insecure.
    async fn ask(&self, address: &str) -> Result<(Channel, bool, Option<String>), String> {
        let reason = Reason::default();
        let channel = heard(address, self.trust, self.names, reason.clone()).await?;
        let answer = match PoolClient::new(channel.clone()).leader(LeaderRequest {}).await {
            Ok(answer) => answer.into_inner(),
            // One that is older leads alone, and encrypts nothing.
            Err(status) if status.code() == Code::Unimplemented => return Ok((channel, true, None)),
            Err(status) => return Err(reason.take().unwrap_or_else(|| cause(&status))),
        };
        match (answer.leads, answer.address.is_empty()) {
            (true, _) => Ok((channel, answer.insecure, None)),
            (false, false) => Ok((channel, answer.insecure, Some(answer.address))),
            (false, true) => Err(format!("no controller leads the pool at the moment: {}", answer.why)),
        }
    }
}

/// What is behind "transport error", and what a status says that has nothing behind it.
fn cause(e: &(dyn std::error::Error + 'static)) -> String {
    let mut innermost = e;
    while let Some(source) = innermost.source() {
        if let Some(why) = why_of(innermost) {
            return why;
        }
        innermost = source;
    }
    why_of(innermost).unwrap_or_else(|| match innermost.downcast_ref::<Status>() {
        Some(status) => status.message().to_owned(),
        None => innermost.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_gets_the_port_that_it_lacks() {
        for (given, address) in [
            ("pool", "pool:9123"),
            ("pool:1", "pool:1"),
            ("10.0.0.1", "10.0.0.1:9123"),
            ("[::1]", "[::1]:9123"),
            ("[::1]:7", "[::1]:7"),
        ] {
            assert_eq!(with_port(given), address);
            assert_eq!(check(address), Ok(()));
        }
        for (given, words) in [("::1", "stands in brackets"), ("::1:9123", "stands in brackets"), ("a:b", "such as")] {
            let why = check(&with_port(given)).expect_err(given);
            assert!(why.contains(given) && why.contains(words), "{why}");
        }
        assert_eq!(addresses("a, b:1"), ["a:9123", "b:1"]);
    }
}
