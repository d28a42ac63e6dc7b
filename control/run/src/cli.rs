//! The command line.

use std::ffi::OsString;

use clap::builder::PossibleValuesParser;
use clap::{Parser, ValueHint};
use orion_wire::address::CARRIERS;

use crate::units;

/// Run a CUDA program on a GPU of Orion's pool
#[derive(Parser)]
#[command(version)]
pub struct Cli {
    /// oriond to use, unix:/path, tcp:host:port or rdma:host:port; without it, and without ORION_SERVER, one is started
    /// for this run
    #[arg(long, value_name = "ADDRESS")]
    pub server: Option<String>,
    /// Controller of a pool to ask for vGPUs, HOST or HOST:PORT, as ORION_CONTROLLER; without it, and without that,
    /// controller_addr of client.conf counts, unless an option is about a server
    #[arg(long, value_name = "HOST", conflicts_with = "server")]
    pub controller: Option<String>,
    /// vGPUs that the program sees: of the pool, as ORION_VGPU, where a controller is named; else of the oriond that is
    /// started, where those beyond the GPUs that there are share them and need --gmem
    #[arg(long, visible_alias = "vgpus", value_name = "N", conflicts_with = "server")]
    #[arg(value_parser = units::parse_vgpus)]
    pub vgpu: Option<u32>,
    /// Device memory of each, such as "8 GiB", or a number of MiB, as ORION_GMEM: what the program sees as its size
    #[arg(long, value_name = "MEMORY", conflicts_with_all = ["server", "memory_limit"])]
    #[arg(value_parser = units::parse_mib)]
    pub gmem: Option<u64>,
    /// Percent of a GPU's time, of each, as ORION_RATIO: what the program has at least where others want the GPU too
    #[arg(long, value_name = "PERCENT", conflicts_with = "server")]
    #[arg(value_parser = units::parse_percent)]
    pub ratio: Option<u32>,
    /// Seconds to wait for room in the pool, as ORION_WAIT, instead of ending when there is none (2 s if nothing is
    /// said, for what a program has had that has just ended); and for a controller that is not reached, for which it is
    /// 30 if nothing is said
    #[arg(long, value_name = "SECONDS", conflicts_with = "server")]
    pub wait: Option<u64>,
    /// How to reach the oriond that is started, or the node that a pool's controller gives, as ORION_TRANSPORT
    #[arg(long, value_parser = PossibleValuesParser::new(CARRIERS.iter().map(|carrier| carrier.name)))]
    pub transport: Option<String>,
    /// Print one line about the session
    #[arg(long)]
    pub verbose: bool,
    /// Use the software GPU even where there is a real one
    #[arg(long, conflicts_with = "server")]
    pub software_gpu: bool,
    /// The compute capability that the software GPU reports, 9.0 if nothing is said; 13.0 for programs that use cuBLAS
    #[arg(long, value_name = "MAJOR.MINOR", conflicts_with = "server")]
    pub capability: Option<String>,
    /// Do not preload Orion's libraries: the program then finds Orion by LD_LIBRARY_PATH alone, and cannot profile
    #[arg(long)]
    pub no_preload: bool,
    /// Host memory that the program and its worker share, such as "4 GiB", of the oriond that is started; less than its
    /// own choice where address space is limited (ulimit -v)
    #[arg(long, value_name = "BYTES", conflicts_with = "server")]
    pub heap: Option<String>,
    /// As --gmem, by the name and in the unit (bytes, or such as "4 GiB") of oriond's own option; not of a pool
    #[arg(long, value_name = "BYTES", conflicts_with = "server")]
    pub memory_limit: Option<String>,
    /// Percent of its GPU's time that each session of the program is promised, as oriond's own option: for programs of
    /// several processes, which take turns; of a pool it is --ratio
    #[arg(long, value_name = "PERCENT", conflicts_with_all = ["server", "controller"])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    pub share: Option<u32>,
    /// Of the time that others leave idle, how much a session may have beyond its --share, in percent: with 0 it never
    /// has more than its share, as by oriond's own option
    #[arg(long, value_name = "PERCENT", requires = "share", conflicts_with_all = ["server", "controller"])]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=100))]
    pub throttle_level: Option<u32>,
    /// Program and arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    pub program: Vec<OsString>,
}
