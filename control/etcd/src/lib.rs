//! An etcd as a controller uses it: transactions, ranges and leases, at whichever of its members answers.
//!
//! ```text
//! lib     the calls, and which member is asked
//! member  where a member is, and how it is spoken to
//! txn     what transactions are made of
//! proto   etcd's API, from etcd.proto
//! ```

#![forbid(unsafe_code)]

mod member;
pub mod proto;
pub mod txn;

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use orion_tls::trust::Trust;
use orion_tls::why_of;
use proto::kv_client::KvClient;
use proto::lease_client::LeaseClient;
use proto::{
    CompactionRequest, LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest, RangeRequest, RangeResponse,
    TxnRequest, TxnResponse,
};
use tonic::transport::Channel;
use tonic::{Code, Status};

pub use member::NAMES;
/// A member that is well answers in milliseconds. One that has no leader says so after seven seconds, or never.
const CALL_TIMEOUT: Duration = Duration::from_millis(1500);
/// Of one answer. Ranges are asked for in pages, and a page may be of large values.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Clones share connections.
#[derive(Clone)]
pub struct Etcd {
    members: std::sync::Arc<Members>,
}

struct Members {
    /// Each with its URL.
    all: Vec<(String, Channel)>,
    /// Which one is asked. After a failure it is the next one.
    at: AtomicUsize,
}

/// Why a call has no answer. Whether it was carried out is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    pub text: String,
    /// The member refused it: it was not carried out, and it will be refused again.
    pub is_final: bool,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Etcd {
    /// Reaches nobody yet. `urls` is `https://HOST[:PORT]` or `http://HOST[:PORT]`, several with commas between; the
    /// error says which of them is none, or may not be spoken to like that. Has to be called in a runtime of tokio's,
    /// which keeps the connections.
    pub fn new(urls: &str, trust: &Trust) -> Result<Etcd, String> {
        let all = member::all(urls, trust)?;
        Ok(Etcd { members: std::sync::Arc::new(Members { all, at: AtomicUsize::new(0) }) })
    }

    /// How many there are.
    #[must_use]
    pub fn members(&self) -> usize {
        self.members.all.len()
    }

    pub async fn txn(&self, txn: TxnRequest) -> Result<TxnResponse, Failed> {
        let (at, channel) = self.member();
        let mut kv = KvClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX);
        self.heard(at, within(kv.txn(txn)).await)
    }

    pub async fn range(&self, range: RangeRequest) -> Result<RangeResponse, Failed> {
        let (at, channel) = self.member();
        let mut kv = KvClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX);
        self.heard(at, within(kv.range(range)).await)
    }

    /// Forgets what keys were before this revision.
    pub async fn compact(&self, revision: i64) -> Result<(), Failed> {
        let (at, channel) = self.member();
        self.heard(at, within(KvClient::new(channel).compact(CompactionRequest { revision })).await).map(drop)
    }

    /// A lease that is over if it is not kept alive for so long. Answers its number.
    pub async fn grant(&self, ttl: Duration) -> Result<i64, Failed> {
        let (at, channel) = self.member();
        let request = LeaseGrantRequest { ttl: ttl.as_secs() as i64, id: 0 };
        let granted = self.heard(at, within(LeaseClient::new(channel).lease_grant(request)).await)?;
        match granted.error.as_str() {
            "" => Ok(granted.id),
            why => Err(Failed { text: format!("etcd gives no lease: {why}"), is_final: true }),
        }
    }

    /// Whether the lease was there still; then it has its whole time again.
    pub async fn keep_alive(&self, lease: i64) -> Result<bool, Failed> {
        let (at, channel) = self.member();
        let mut leases = LeaseClient::new(channel);
        let asked = async {
            let requests = tokio_stream::once(LeaseKeepAliveRequest { id: lease });
            let mut answers = leases.lease_keep_alive(requests).await?;
            answers.get_mut().message().await?.map(tonic::Response::new).ok_or_else(|| Status::unavailable("no answer"))
        };
        self.heard(at, within(asked).await).map(|answer| answer.ttl > 0)
    }

    /// Ends a lease, and with it the keys that have it.
    pub async fn revoke(&self, lease: i64) -> Result<(), Failed> {
        let (at, channel) = self.member();
        self.heard(at, within(LeaseClient::new(channel).lease_revoke(LeaseRevokeRequest { id: lease })).await).map(drop)
    }

    fn member(&self) -> (usize, Channel) {
        let at = self.members.at.load(Ordering::Relaxed);
        (at, self.members.all[at].1.clone())
    }

    fn heard<T>(&self, at: usize, answer: Result<tonic::Response<T>, Status>) -> Result<T, Failed> {
        let status = match answer {
            Ok(answer) => return Ok(answer.into_inner()),
            Err(status) => status,
        };
        let is_final = !matches!(
            status.code(),
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown | Code::Internal
        );
        if !is_final {
            let next = (at + 1) % self.members.all.len();
            let _ = self.members.at.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
        }
        let (url, text) = (&self.members.all[at].0, cause(&status));
        Err(Failed { text: format!("etcd at {url}: {text}"), is_final })
    }
}

async fn within<T>(
    call: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> Result<tonic::Response<T>, Status> {
    let late = || Status::deadline_exceeded(format!("no answer within {} ms", CALL_TIMEOUT.as_millis()));
    tokio::time::timeout(CALL_TIMEOUT, call).await.unwrap_or_else(|_| Err(late()))
}

/// What is known of why, the innermost error: what stands around it says that the connection failed.
fn cause(status: &Status) -> String {
    let mut innermost: &(dyn std::error::Error + 'static) = status;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    match (why_of(innermost), innermost.downcast_ref::<Status>()) {
        (Some(why), _) => why,
        (None, None) => innermost.to_string(),
        (None, Some(status)) if status.message().is_empty() => format!("{:?}", status.code()),
        (None, Some(status)) => status.message().to_owned(),
    }
}
