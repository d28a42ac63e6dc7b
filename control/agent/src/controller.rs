//! The controller, over gRPC.

use std::fmt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use orion_proto::HeartbeatRequest;
use orion_proto::pool_client::PoolClient;
use orion_wire::lease::LeaseId;
use tokio::runtime::Runtime;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tracing::warn;

use crate::report::Report;

const PORT: u16 = 9123;
/// A controller that is there answers at once.
const PATIENCE: Duration = Duration::from_secs(5);
/// Clocks that differ by more make lines of two logs hard to put in order. Leases go by the controller's.
const CLOCKS_DIFFER_MS_MAX: u64 = 2000;

pub struct Controller {
    runtime: Runtime,
    address: String,
    client: PoolClient<Channel>,
    key: Option<MetadataValue<Ascii>>,
    is_warned: bool,
}

/// What a node hears that has registered.
pub struct Registered {
    /// Of the leases for its oriond; zeros if it has none.
    pub key: [u8; 32],
    pub controller_unix_ms: u64,
}

pub enum Failure {
    /// It does not know the node.
    Unknown(String),
    Other(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Unknown(text) | Failure::Other(text) => f.write_str(text),
        }
    }
}

impl Controller {
    /// Reaches nobody yet.
    pub fn new(address: &str, key_file: Option<&Path>) -> Result<Controller, String> {
        let address = if address.contains(':') { address.to_owned() } else { format!("{address}:{PORT}") };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| format!("starting the runtime failed: {e}"))?;
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|e| format!("--controller {address} is no HOST:PORT: {e}"))?
            .connect_timeout(PATIENCE)
            .timeout(PATIENCE);
        let key = key_file.map(read_key).transpose()?;
        // Connecting itself is done by the first call, and again by the next one after a connection has broken.
        let client = runtime.block_on(async { PoolClient::new(endpoint.connect_lazy()) });
        Ok(Controller { runtime, address, client, key, is_warned: false })
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// Says what the node has.
    pub fn register(&mut self, report: &Report) -> Result<Registered, Failure> {
        let request = self.with_key(report.request());
        let reply = self.runtime.block_on(self.client.register(request)).map_err(|s| self.failure(&s))?.into_inner();
        self.compare_clocks(reply.now_unix_ms);
        let controller_unix_ms = reply.now_unix_ms;
        match <[u8; 32]>::try_from(reply.lease_key.as_slice()) {
            Ok(key) => Ok(Registered { key, controller_unix_ms }),
            Err(_) if report.request().oriond.is_empty() => Ok(Registered { key: [0; 32], controller_unix_ms }),
            Err(_) => Err(Failure::Other(format!(
                "the controller at {} gives no key for leases; is it older than this agent?",
                self.address
            ))),
        }
    }

    /// Answers what is over.
    pub fn heartbeat(&mut self, node: &str, live: &[LeaseId], ended: &[LeaseId]) -> Result<Vec<LeaseId>, Failure> {
        let names = |ids: &[LeaseId]| ids.iter().map(LeaseId::to_string).collect();
        let request = HeartbeatRequest { node: node.to_owned(), live: names(live), ended: names(ended) };
        let request = self.with_key(request);
        let reply = self.runtime.block_on(self.client.heartbeat(request)).map_err(|s| self.failure(&s))?.into_inner();
        reply.over.iter().map(|id| id.parse().map_err(Failure::Other)).collect()
    }

    fn with_key<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(key) = &self.key {
            request.metadata_mut().insert("authorization", key.clone());
        }
        request
    }

    fn failure(&self, status: &Status) -> Failure {
        let text = match status.code() {
            Code::NotFound => return Failure::Unknown(status.message().to_owned()),
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => {
                format!("the controller at {} is not reached: {}; trying again", self.address, status.message())
            }
            Code::Unauthenticated => {
                format!(
                    "the controller at {} refuses this node: {}; give --server-key-file",
                    self.address,
                    status.message()
                )
            }
            _ => format!("the controller at {} refuses this node: {}", self.address, status.message()),
        };
        Failure::Other(text)
    }

    fn compare_clocks(&mut self, theirs: u64) {
        let ours = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let differ = ours.abs_diff(theirs);
        if differ > CLOCKS_DIFFER_MS_MAX && !std::mem::replace(&mut self.is_warned, true) {
            warn!(
                "this node's clock and the controller's differ by {differ} ms: leases go by the controller's, and the \
                 times in the two logs do not fit together"
            );
        }
    }
}

fn read_key(path: &Path) -> Result<MetadataValue<Ascii>, String> {
    let name = path.display();
    let text = std::fs::read_to_string(path).map_err(|e| format!("reading --server-key-file {name} failed: {e}"))?;
    let value = format!("Bearer {}", text.trim_end_matches(['\r', '\n']));
    value
        .parse()
        .map_err(|_| format!("the key in {name} has characters that no header has; make one of letters and digits"))
}
