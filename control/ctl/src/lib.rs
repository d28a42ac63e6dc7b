//! What `orionctl` and `orion-smi` have in common: the way to the controller, and how sizes are written.

#![forbid(unsafe_code)]

pub mod smi;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use orion_proto::pool_client::PoolClient;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

const PORT: u16 = 9123;
const TIMEOUT: Duration = Duration::from_secs(10);

/// Which controller, and as whom.
#[derive(Args, Clone)]
pub struct Place {
    /// Controller of the pool, host or host:port; without it ORION_CONTROLLER, else this machine's
    #[arg(long, global = true, value_name = "HOST[:PORT]")]
    pub controller: Option<String>,
    /// File with the key that controller.yaml has for this: administrator-key for what changes the pool, else
    /// client-key
    #[arg(long, global = true, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
}

pub type Pool = PoolClient<InterceptedService<Channel, Key>>;

/// What is sent with every request.
#[derive(Clone)]
pub struct Key(Option<MetadataValue<Ascii>>);

impl tonic::service::Interceptor for Key {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(key) = &self.0 {
            request.metadata_mut().insert("authorization", key.clone());
        }
        Ok(request)
    }
}

impl Place {
    /// `host:port`.
    fn address(&self) -> String {
        let named = || std::env::var("ORION_CONTROLLER").ok().filter(|value| !value.is_empty());
        with_port(&self.controller.clone().or_else(named).unwrap_or_else(|| "127.0.0.1".to_owned()))
    }

    pub async fn connect(&self) -> Result<Pool, String> {
        let address = self.address();
        let key = Key(self.key_file.as_deref().map(read_key).transpose()?);
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|e| format!("--controller {address:?} is not host:port: {e}"))?;
        let channel = endpoint.connect_timeout(TIMEOUT).connect().await.map_err(|e| {
            let cause = std::error::Error::source(&e).map_or_else(|| e.to_string(), ToString::to_string);
            format!("reaching the controller at {address} failed: {cause}; is it running there? See --controller")
        })?;
        Ok(PoolClient::with_interceptor(channel, key))
    }
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

fn read_key(path: &Path) -> Result<MetadataValue<Ascii>, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("reading --key-file {}: {e}", path.display()))?;
    let value = format!("Bearer {}", text.trim_end_matches(['\r', '\n']));
    value
        .parse()
        .map_err(|_| format!("the key in --key-file {} has characters that no header may have", path.display()))
}

/// What a controller says when it refuses.
#[must_use]
pub fn said(status: &Status) -> String {
    match status.message() {
        "" => format!("the controller answered {:?}", status.code()),
        text => text.to_owned(),
    }
}

#[must_use]
pub fn mib(bytes: u64) -> String {
    format!("{}MiB", bytes >> 20)
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
    }
}
