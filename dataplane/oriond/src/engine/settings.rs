//! What an operator decides about serving.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use orion_transport::carrier::VerbsPort;
use orion_transport::proof::Token;

use super::security::Security;
use crate::cell::Plan;

/// Everything an operator decides about serving.
pub struct Settings {
    pub socket: Option<PathBuf>,
    pub listen: Option<SocketAddr>,
    /// Virtual machines that share memory with us.
    pub guests: Vec<Guest>,
    /// Where clients come whose devices write into ours, and by which port of ours.
    pub verbs: Option<(SocketAddr, VerbsPort)>,
    pub token: Option<Token>,
    /// Where the agent of a pool comes. Then only who has a lease is let in.
    pub pool: Option<PathBuf>,
    /// Where tools ask about sessions, and Prometheus does.
    pub stats: Option<PathBuf>,
    pub metrics: Option<SocketAddr>,
    pub is_software: bool,
    /// About whoever comes over a network, where somebody can.
    pub security: Option<Arc<Security>>,
    pub engines: usize,
    pub warm: usize,
    pub prestart: usize,
    pub sessions_max: usize,
    pub spin_us: Option<u64>,
    /// Shares of GPUs' time.
    pub time: crate::engine::time::policy::Policy,
    /// Passed on to each worker.
    pub worker_arguments: Vec<String>,
    pub cells: Plan,
}

/// A virtual machine that an operator lets in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guest {
    pub memory: Memory,
    pub sessions: usize,
}

/// Where its memory is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Memory {
    /// A file that QEMU maps as well.
    File(PathBuf),
    /// QEMU asks for it at this socket.
    Socket(PathBuf, u64),
}

impl Guest {
    pub fn path(&self) -> &Path {
        match &self.memory {
            Memory::File(path) | Memory::Socket(path, _) => path,
        }
    }
}
