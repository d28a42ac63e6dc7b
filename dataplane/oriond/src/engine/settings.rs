//! What an operator decides about serving.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use orion_transport::carrier::VerbsPort;
use orion_transport::proof::Token;

use super::security::Security;
use crate::cell::{Allowance, Plan};

/// Everything an operator decides about serving.
pub struct Settings {
    pub socket: Option<PathBuf>,
    pub listen: Option<SocketAddr>,
    /// Virtual machines that share memory with us.
    pub guests: Vec<Guest>,
    /// Where programs of virtual machines come by vsock.
    pub machines: Vec<Machines>,
    /// Where clients come whose devices write into ours, and by which port of ours.
    pub verbs: Option<(SocketAddr, VerbsPort)>,
    pub token: Option<Token>,
    /// Where the agent of a pool comes. Then only who has a lease is let in.
    pub pool: Option<PathBuf>,
    /// Where tools ask about sessions, and Prometheus does.
    pub stats: Option<PathBuf>,
    pub metrics: Option<SocketAddr>,
    pub is_software: bool,
    /// Whether every session has a limit on memory; one by a lease has one anyway.
    pub has_memory_limit: bool,
    /// NVIDIA's library for management, which is asked how busy GPUs are.
    pub nvml: Option<PathBuf>,
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
    /// What host memory a session's worker may have.
    pub allowance: Allowance,
}

impl Settings {
    /// Whether whoever comes over a network has to show something: a token, a lease or a certificate. Where he has not,
    /// everybody is let in, and an operator has to have said so.
    pub fn asks_who_comes(&self) -> bool {
        self.token.is_some() || self.pool.is_some() || self.security.as_ref().is_some_and(|s| s.wants_certificate)
    }

    /// The security of what is listened on at `place`, if who comes there is asked something or need not be.
    pub fn security_of(&self, place: &str) -> Result<Arc<Security>, String> {
        let security = self.security.clone().expect("an address was given");
        match self.asks_who_comes() || security.insecure {
            true => Ok(security),
            false => Err(format!(
                "refusing to listen on {place} without a token: every user of a machine that reaches it could use the \
                 GPUs; give --token-file or --client-ca, or --insecure if that is what you want"
            )),
        }
    }
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
    Socket { path: PathBuf, bytes: u64, group: Option<u32> },
}

/// A port of vsock, as those who come there know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Machines {
    /// The system's.
    Port(u32),
    /// A socket that a hypervisor's own vsock connects to for one machine: PATH_PORT.
    Socket(PathBuf, u32),
}

impl Machines {
    pub fn parse(text: &str) -> Result<Machines, String> {
        let port = |text: &str| text.parse::<u32>().ok().filter(|port| (1..u32::MAX).contains(port));
        let parsed = match text.starts_with('/') {
            true => text.rsplit_once('_').and_then(|(_, number)| Some(Machines::Socket(text.into(), port(number)?))),
            false => port(text).map(Machines::Port),
        };
        parsed.ok_or_else(|| {
            format!(
                "{text:?} is no port of vsock, such as 7411, nor the path of a socket that ends in _PORT, such as \
                 /run/orion/vm0.vsock_7411"
            )
        })
    }
}

impl Guest {
    pub fn path(&self) -> &Path {
        match &self.memory {
            Memory::File(path) | Memory::Socket { path, .. } => path,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_of_vsock_is_a_number_or_stands_behind_a_path() {
        assert_eq!(Machines::parse("7411"), Ok(Machines::Port(7411)));
        let socket = Machines::Socket("/run/vm_0.sock_7411".into(), 7411);
        assert_eq!(Machines::parse("/run/vm_0.sock_7411"), Ok(socket));
        for text in ["", "0", "-1", "4294967295", "2:7411", "/run/vm0.sock", "/run/vm0_sock", "/run/vm0_", "vm0_7411"] {
            let said = Machines::parse(text).expect_err(text);
            assert!(said.contains(&format!("{text:?}")) && said.contains("vsock_7411"), "{said}");
        }
    }
}
