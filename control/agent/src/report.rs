//! What the node has, as the controller is told.

// UNSAFETY: gethostname.

use orion_proto::{Gpu, RegisterRequest};
use orion_wire::address::Server as Address;
use orion_wire::lease::gpu_name;

use crate::cli::Cli;
use crate::oriond::Server;

const MIB: u64 = 1 << 20;
/// A context of NVIDIA's driver took 526 MiB on an H200, and modules are kept with it.
const RESERVE_MIB: u64 = 640;

pub struct Report {
    request: RegisterRequest,
    reserve_mib: Option<u64>,
}

impl Report {
    pub fn new(cli: &Cli) -> Result<Report, String> {
        let address = Address::parse(&cli.address).map_err(|why| format!("--address: {why}"))?;
        if let Some(reserve) = cli.reserve_vgpus.filter(|reserve| *reserve >= cli.vgpu_count) {
            return Err(format!(
                "--reserve-vgpus is {reserve} of --vgpu-count {}; leave the controller one of each GPU at least",
                cli.vgpu_count
            ));
        }
        let node = match &cli.node {
            Some(name) => name.clone(),
            None => host_name()?,
        };
        let request = RegisterRequest {
            node,
            // As the original wrote it where programs come over a network.
            address: address.host().map_or_else(|| address.to_string(), str::to_owned),
            gpus: Vec::new(),
            split: cli.vgpu_count,
            reserve: cli.reserve_vgpus.unwrap_or(0),
            ..Default::default()
        };
        Ok(Report { request, reserve_mib: cli.reserve })
    }

    /// An oriond is there.
    pub fn has(&mut self, server: &Server) {
        let reserve = self.reserve_mib.unwrap_or(if server.is_software { 0 } else { RESERVE_MIB });
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        self.request.oriond = hex(&server.instance);
        self.request.certificate = server.certificate.map(|hash| hex(&hash)).unwrap_or_default();
        let gpu = |gpu: &orion_wire::agent::Gpu| Gpu {
            uuid: gpu_name(&gpu.uuid),
            name: gpu.name.clone(),
            memory_bytes: gpu.memory_bytes,
            reserve_bytes: reserve * MIB,
        };
        self.request.gpus = server.gpus.iter().map(gpu).collect();
    }

    /// None is.
    pub fn has_nothing(&mut self) {
        self.request.oriond.clear();
        self.request.certificate.clear();
        self.request.gpus.clear();
    }

    pub fn node(&self) -> &str {
        &self.request.node
    }

    pub fn request(&self) -> RegisterRequest {
        self.request.clone()
    }

    /// In the original's words.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let gpus = self.request.gpus.iter();
        gpus.map(|gpu| format!("{} (ID: {}) is reported to Orion Controller.", gpu.name, gpu.uuid))
    }
}

/// The name of this machine.
fn host_name() -> Result<String, String> {
    let mut name = [0u8; 256];
    // SAFETY: the buffer has the size that is passed.
    if unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) } != 0 {
        return Err(format!("asking for the machine's name failed: {}", std::io::Error::last_os_error()));
    }
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    String::from_utf8(name[..end].to_vec()).map_err(|_| "the machine's name is no text; give --node".to_owned())
}
