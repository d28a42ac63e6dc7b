//! The command line.

use std::path::PathBuf;

use clap::Parser;
use orion_tls::trust::Trust;

/// Says to the controller of an Orion pool which GPUs the oriond of this machine serves, and who uses them.
#[derive(Parser)]
#[command(version, args_override_self = true)]
pub struct Cli {
    /// Take settings from oriond's server.conf: controller_addr, pool, vgpu_count, where it listens, and what [agent]
    /// says by the names of these options (server_key_file for --server-key-file). Options given here as well decide
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where the controller listens: HOST or HOST:PORT, of a pool with several all of them with commas between
    #[arg(long, default_value = "127.0.0.1:9123", value_name = "ADDRESS[,ADDRESS…]")]
    pub controller: String,
    /// The socket that oriond was given by --pool
    #[arg(long, value_name = "PATH")]
    pub pool: PathBuf,
    /// The socket at which oriond tells of its sessions, for orion-top through the controller [default: beside --pool,
    /// oriond.stats.sock or the same name with .stats.sock for .sock]
    #[arg(long, value_name = "PATH")]
    pub stats: Option<PathBuf>,
    /// Where programs reach the oriond: tcp:HOST:PORT, or unix:PATH if all of them run on this machine. Those that ask
    /// for another carrier (ORION_TRANSPORT) are sent to the address of it behind a comma: tcp:HOST:PORT,rdma:HOST:PORT
    #[arg(long, value_name = "ADDRESS[,ADDRESS…]")]
    pub address: String,
    /// What the node is called in the pool [default: the name of this machine]
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// vGPUs that each GPU is split into: as many programs may share one. A program that asks for no memory has this
    /// part
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub vgpu_count: u32,
    /// MiB of device memory that a vGPU takes besides its own, for its context [default: 640, on the software GPU 0]
    #[arg(long, value_name = "MIB")]
    pub reserve: Option<u64>,
    /// vGPUs of each GPU, of the --vgpu-count, that no controller lends: while none is reached, programs on this
    /// machine are lent them by this agent [default: none]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub reserve_vgpus: Option<u32>,
    /// The socket at which they ask for them [default: reserve.sock where oriond has its socket by default:
    /// $XDG_RUNTIME_DIR/orion, /run/orion for root, else /tmp/orion-UID]
    #[arg(long, value_name = "PATH", requires = "reserve_vgpus")]
    pub reserve_socket: Option<PathBuf>,
    /// File with the controller's client-key: who shows it is lent of the reserve, whichever user runs it [default:
    /// only programs of this user and of root]
    #[arg(long, value_name = "FILE", requires = "reserve_vgpus")]
    pub client_key_file: Option<PathBuf>,
    /// File with the controller's server-key
    #[arg(long, value_name = "FILE")]
    pub server_key_file: Option<PathBuf>,
    /// PEM file with the CA of the controllers' certificates, as ORION_CA. One that is on another machine is spoken to
    /// by TLS
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// PEM file with this node's certificate, for a controller that wants one, as ORION_CERTIFICATE
    #[arg(long, value_name = "FILE", requires = "key")]
    pub certificate: Option<PathBuf>,
    /// PEM file with its key, readable by its owner only, as ORION_KEY
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,
    /// Speak to controllers in the clear, as ORION_INSECURE=1: everybody on the way can read and change it
    #[arg(long, conflicts_with_all = ["ca", "certificate"])]
    pub insecure: bool,
}

impl Cli {
    /// As the options say, and where they say nothing the environment.
    pub fn trust(&self) -> Result<Trust, String> {
        let (ca, certificate, key) = (self.ca.clone(), self.certificate.clone(), self.key.clone());
        let said = Trust { ca, certificate, key, insecure: self.insecure, ..Trust::default() };
        Ok(said.or(Trust::of_this_process(|name| std::env::var(name))?))
    }
}
