//! The controller, over gRPC.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use orion_proto::leader::{self, Found, Search};
use orion_proto::pool_client::PoolClient;
use orion_proto::{Allocation, HeartbeatRequest, RegisterRequest, Usage};
use orion_tls::trust::{OPTIONS, Trust};
use orion_wire::agent::Used;
use orion_wire::lease::LeaseId;
use tokio::runtime::Runtime;
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};
use tracing::warn;

use crate::report::Report;

/// A controller that is there answers at once.
const PATIENCE: Duration = Duration::from_secs(5);
/// Clocks that differ by more make lines of two logs hard to put in order. Leases go by the controller's.
const CLOCKS_DIFFER_MS_MAX: u64 = 2000;

pub struct Controller {
    runtime: Runtime,
    /// Of all controllers of the pool.
    addresses: Vec<String>,
    /// The one that leads, as far as is known, and where it listens.
    leader: Option<(PoolClient<Channel>, String)>,
    trust: Trust,
    key: Option<MetadataValue<Ascii>>,
    is_warned: bool,
    /// It was said that the one that leads is.
    is_insecure: bool,
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
    /// Nobody answers who leads the pool, and can change it.
    Unreached(String),
    /// It answers, and refuses the node.
    Refused(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Unknown(text) | Failure::Unreached(text) | Failure::Refused(text) => f.write_str(text),
        }
    }
}

impl Controller {
    /// Reaches nobody yet. `addresses` is `HOST[:PORT]`, several with commas between.
    pub fn new(addresses: &str, key_file: Option<&Path>, trust: Trust) -> Result<Controller, String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| format!("starting the runtime failed: {e}"))?;
        let addresses = leader::addresses(addresses);
        for address in &addresses {
            leader::check(address).map_err(|why| format!("--controller {why}"))?;
            // What no try can mend is said at once.
            trust.way_to(address, OPTIONS)?;
        }
        let key = key_file.map(read_key).transpose()?;
        Ok(Controller { runtime, addresses, trust, leader: None, key, is_warned: false, is_insecure: false })
    }

    /// As they were named, or where the one that leads listens.
    pub fn address(&self) -> String {
        self.leader.as_ref().map_or_else(|| self.addresses.join(","), |(_, address)| address.clone())
    }

    /// What its oriond has to know before the controller sends anybody there, which it does from `register` on.
    pub fn prepare(&mut self, report: &Report) -> Result<Registered, Failure> {
        self.say(report, true)
    }

    /// Says what the node has.
    pub fn register(&mut self, report: &Report) -> Result<Registered, Failure> {
        self.say(report, false)
    }

    fn say(&mut self, report: &Report, prepares: bool) -> Result<Registered, Failure> {
        let request = self.with_key(RegisterRequest { prepares, ..report.request() });
        let mut client = self.client()?;
        let answer = self.runtime.block_on(async { timeout(PATIENCE, client.register(request)).await });
        let reply = self.heard(answer)?;
        self.compare_clocks(reply.now_unix_ms);
        let controller_unix_ms = reply.now_unix_ms;
        match <[u8; 32]>::try_from(reply.lease_key.as_slice()) {
            Ok(key) => Ok(Registered { key, controller_unix_ms }),
            Err(_) if report.request().oriond.is_empty() => Ok(Registered { key: [0; 32], controller_unix_ms }),
            Err(_) => Err(Failure::Refused(format!(
                "the controller at {} gives no key for leases; is it older than this agent?",
                self.address()
            ))),
        }
    }

    /// `lent` is what the node has lent of its own reserve. Answers what is over, and how soon the controller wants to
    /// hear of the node again, if sooner than always.
    pub fn heartbeat(
        &mut self,
        node: &str,
        live: &[LeaseId],
        ended: &[LeaseId],
        used: &[Used],
        mut reports: HashMap<String, String>,
        lent: Vec<Allocation>,
    ) -> Result<(Vec<LeaseId>, Option<Duration>), Failure> {
        let names = |ids: &[LeaseId]| ids.iter().map(LeaseId::to_string).collect();
        let usage = |used: &Used| {
            let allocation = used.lease.to_string();
            let report = reports.remove(&allocation).unwrap_or_default();
            Usage { allocation, vgpu_bytes: used.vgpu_bytes.clone(), report }
        };
        let (live, ended, used) = (names(live), names(ended), used.iter().map(usage).collect());
        let request = self.with_key(HeartbeatRequest { node: node.to_owned(), live, ended, used, lent });
        let mut client = self.client()?;
        let answer = self.runtime.block_on(async { timeout(PATIENCE, client.heartbeat(request)).await });
        let reply = self.heard(answer)?;
        let over = reply.over.iter().map(|id| id.parse().map_err(Failure::Refused)).collect::<Result<_, _>>()?;
        Ok((over, reply.again_ms.map(Duration::from_millis)))
    }

    /// The one that leads. It is looked for if it is not known.
    fn client(&mut self) -> Result<PoolClient<Channel>, Failure> {
        if let Some((client, _)) = &self.leader {
            return Ok(client.clone());
        }
        let search = Search { addresses: &self.addresses, trust: &self.trust, names: OPTIONS, patience: PATIENCE };
        let found = self.runtime.block_on(search.find());
        let Found { channel, address, insecure } = found
            .map_err(|why| Failure::Unreached(format!("no controller of the pool is reached: {why}; trying again")))?;
        if insecure && !std::mem::replace(&mut self.is_insecure, true) {
            warn!("INSECURE: the controller at {address} lets other machines speak in the clear (controller.insecure)");
        }
        let client = PoolClient::new(channel);
        self.leader = Some((client.clone(), address));
        Ok(client)
    }

    /// One that does not answer, or does not lead any more, is not asked again before it was looked for.
    fn heard<T>(&mut self, answer: Result<Result<Response<T>, Status>, Elapsed>) -> Result<T, Failure> {
        let late = || Status::deadline_exceeded(format!("it does not answer within {} s", PATIENCE.as_secs()));
        match answer.unwrap_or_else(|_| Err(late())) {
            Ok(answer) => Ok(answer.into_inner()),
            Err(status) => {
                let failure = self.failure(&status);
                if matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown)
                {
                    self.leader = None;
                }
                Err(failure)
            }
        }
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
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown => {
                let address = self.address();
                let text = format!("the controller at {address} is not reached: {}; trying again", status.message());
                return Failure::Unreached(text);
            }
            Code::Unauthenticated => {
                format!(
                    "the controller at {} refuses this node: {}; give --server-key-file",
                    self.address(),
                    status.message()
                )
            }
            _ => format!("the controller at {} refuses this node: {}", self.address(), status.message()),
        };
        Failure::Refused(text)
    }

    fn compare_clocks(&mut self, theirs: u64) {
        let differ = now_unix_ms().abs_diff(theirs);
        if differ > CLOCKS_DIFFER_MS_MAX && !std::mem::replace(&mut self.is_warned, true) {
            warn!(
                "this node's clock and the controller's differ by {differ} ms: leases go by the controller's, and the \
                 times in the two logs do not fit together"
            );
        }
    }
}

fn now_unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// What a file with a key says.
pub fn key_of(path: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("reading the key {} failed: {e}", path.display()))?;
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err(format!("{} is empty, and has to hold a key", path.display())),
        key => Ok(key.to_owned()),
    }
}

fn read_key(path: &Path) -> Result<MetadataValue<Ascii>, String> {
    let name = path.display();
    let value = format!("Bearer {}", key_of(path)?);
    value
        .parse()
        .map_err(|_| format!("the key in {name} has characters that no header has; make one of letters and digits"))
}
