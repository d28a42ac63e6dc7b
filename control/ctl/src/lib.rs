//! What `orionctl` and `orion-smi` have in common: the way to the controller, and how sizes are written.

#![forbid(unsafe_code)]

pub mod certificates;
pub mod dmon;
pub mod pmon;
pub mod smi;
pub mod stats;
pub mod token;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use orion_proto::ANSWER_BYTES_MAX;
use orion_proto::leader::{self, Found, Search};
use orion_proto::pool_client::PoolClient;
use orion_tls::trust::{OPTIONS, Trust};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Request, Status};

const TIMEOUT: Duration = Duration::from_secs(10);

/// Which controller, and as whom.
#[derive(Args, Clone)]
pub struct Place {
    /// Controller of the pool, host or host:port, of several all with commas between; without it ORION_CONTROLLER, else
    /// this machine's
    #[arg(long, global = true, value_name = "HOST[:PORT],…")]
    pub controller: Option<String>,
    /// File with the key that controller.yaml has for this: administrator-key for what changes the pool, else
    /// client-key
    #[arg(long, global = true, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// PEM file with the CA of the controllers' certificates; without it ORION_CA. One that is on another machine is
    /// spoken to by TLS
    #[arg(long, global = true, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// PEM file with a certificate to show to a controller that wants one; without it ORION_CERTIFICATE
    #[arg(long, global = true, value_name = "FILE")]
    pub certificate: Option<PathBuf>,
    /// PEM file with its key, readable by its owner only; without it ORION_KEY
    #[arg(long, global = true, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Speak to the controller in the clear, as ORION_INSECURE=1: everybody on the way can read and change it
    #[arg(long, global = true)]
    pub insecure: bool,
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
    /// Each `host:port`.
    fn addresses(&self) -> Vec<String> {
        let named = || std::env::var("ORION_CONTROLLER").ok().filter(|value| !value.is_empty());
        leader::addresses(&self.controller.clone().or_else(named).unwrap_or_else(|| "127.0.0.1".to_owned()))
    }

    /// To the one that leads. Whether others may speak to it in the clear is said on standard error.
    pub async fn connect(&self) -> Result<Pool, String> {
        let (pool, insecure) = self.reach().await?;
        insecure.inspect(|words| eprintln!("{words}"));
        Ok(pool)
    }

    /// The same for who has a screen of his own to say that on.
    pub async fn reach(&self) -> Result<(Pool, Option<String>), String> {
        let addresses = self.addresses();
        let key = Key(self.key_file.as_deref().map(read_key).transpose()?);
        for address in &addresses {
            leader::check(address).map_err(|why| format!("--controller {why}"))?;
        }
        let trust = self.trust()?;
        let found = Search { addresses: &addresses, trust: &trust, names: OPTIONS, patience: TIMEOUT }.find().await;
        let Found { channel, address, insecure } = found.map_err(|why| {
            let all = addresses.join(",");
            format!("reaching the controller at {all} failed: {why}; is it running there? See --controller")
        })?;
        let words = insecure.then(|| {
            format!(
                "INSECURE: the controller at {address} lets other machines speak in the clear (controller.insecure)"
            )
        });
        // A list of a large pool is longer than the 4 MiB that tonic takes.
        Ok((PoolClient::with_interceptor(channel, key).max_decoding_message_size(ANSWER_BYTES_MAX), words))
    }

    /// As the options say, and where they say nothing the environment.
    fn trust(&self) -> Result<Trust, String> {
        let (ca, certificate, key) = (self.ca.clone(), self.certificate.clone(), self.key.clone());
        let said = Trust { ca, certificate, key, insecure: self.insecure, ..Trust::default() };
        Ok(said.or(Trust::of_this_process(|name| std::env::var(name))?))
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
