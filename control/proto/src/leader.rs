//! Which of a pool's controllers leads.

use std::time::Duration;

use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use crate::LeaderRequest;
use crate::pool_client::PoolClient;

/// By which a controller that does not lead says who does.
pub const HEADER: &str = "orion-leader";

/// A controller that is there takes a connection at once. Who tries while the way is cut sends each packet later than
/// the one before, so he begins anew, and is heard soon after the way is back.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The port of a controller that none is named of.
pub const PORT: u16 = 9123;

/// `HOST[:PORT]`, several with commas between, each with its port.
pub fn addresses(text: &str) -> Vec<String> {
    text.split(',').map(|address| with_port(address.trim())).collect()
}

fn with_port(address: &str) -> String {
    // An IPv6 address has colons of its own, and needs brackets.
    let has_port = address
        .rsplit_once(':')
        .is_some_and(|(host, port)| port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']')));
    match has_port {
        true => address.to_owned(),
        false if address.contains(':') && !address.starts_with('[') => format!("[{address}]:{PORT}"),
        false => format!("{address}:{PORT}"),
    }
}

/// A connection to a controller at this address. The error says what is wrong with it.
pub fn endpoint(address: &str) -> Result<Endpoint, String> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"));
    let endpoint = endpoint.map_err(|e| format!("{address:?} is no HOST:PORT: {e}"))?;
    Ok(endpoint.connect_timeout(CONNECT_TIMEOUT))
}

/// The connection to the one that leads, and its address. Each of `addresses` is asked in turn, and who they say that
/// leads, within `patience` each. The error names what each has said.
pub async fn find(addresses: &[String], patience: Duration) -> Result<(Channel, String), String> {
    let mut candidates = addresses.to_vec();
    let mut said = Vec::new();
    let mut at = 0;
    while let Some(address) = candidates.get(at).cloned() {
        at += 1;
        let asked = tokio::time::timeout(patience, ask(&address)).await;
        match asked.unwrap_or_else(|_| Err(format!("it does not answer within {} s", patience.as_secs()))) {
            Ok((channel, None)) => return Ok((channel, address)),
            // It may be none of those that were named.
            Ok((_, Some(leader))) => {
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

/// Who leads, if it is not the one that is asked.
async fn ask(address: &str) -> Result<(Channel, Option<String>), String> {
    let channel = endpoint(address)?.connect().await.map_err(|e| cause(&e))?;
    let answer = match PoolClient::new(channel.clone()).leader(LeaderRequest {}).await {
        Ok(answer) => answer.into_inner(),
        // One that is older leads alone.
        Err(status) if status.code() == Code::Unimplemented => return Ok((channel, None)),
        Err(status) => return Err(status.message().to_owned()),
    };
    match (answer.leads, answer.address.is_empty()) {
        (true, _) => Ok((channel, None)),
        (false, false) => Ok((channel, Some(answer.address))),
        (false, true) => Err(format!("no controller leads the pool at the moment: {}", answer.why)),
    }
}

/// What is behind "transport error".
fn cause(e: &dyn std::error::Error) -> String {
    let mut innermost = e;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
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
            ("::1", "[::1]:9123"),
            ("[::1]", "[::1]:9123"),
            ("[::1]:7", "[::1]:7"),
        ] {
            assert_eq!(with_port(given), address);
        }
        assert_eq!(addresses("a, b:1"), ["a:9123", "b:1"]);
    }
}
