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
    /// What has to be said about the addresses.
    pub notices: Vec<String>,
}

impl Report {
    pub fn new(cli: &Cli) -> Result<Report, String> {
        let addresses = addresses(&cli.address)?;
        let controllers = orion_proto::leader::addresses(&cli.controller);
        let notices = reachable(&addresses, controllers.iter().all(|one| orion_tls::is_loopback(one)))?;
        let (address, further) = addresses.split_first().ok_or("--address names no address of the oriond")?;
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
            address: spelled(address),
            further: further.iter().map(Address::to_string).collect(),
            gpus: Vec::new(),
            split: cli.vgpu_count,
            reserve: cli.reserve_vgpus.unwrap_or(0),
            ..Default::default()
        };
        Ok(Report { request, reserve_mib: cli.reserve, notices })
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

/// One by each carrier.
fn addresses(texts: &str) -> Result<Vec<Address>, String> {
    let mut all: Vec<Address> = Vec::new();
    for text in texts.split(',') {
        let address = Address::parse(text).map_err(|why| format!("--address: {why}"))?;
        if !address.carrier.leads_to.is_of_a_pool() {
            return Err(format!(
                "--address {address} leads from a virtual machine to its host's oriond, and no other machine is served \
                 by it; give one that those of the pool reach, such as tcp:HOST:PORT"
            ));
        }
        if let Some(other) = all.iter().find(|other| other.carrier == address.carrier) {
            return Err(format!(
                "--address {address} and --address {other} are reached by one carrier, {}; leave one of them out",
                address.carrier.name
            ));
        }
        all.push(address);
    }
    Ok(all)
}

/// A controller on another machine sends programs of all machines here. The error, and what is said, name what to set.
fn reachable(addresses: &[Address], is_controller_here: bool) -> Result<Vec<String>, String> {
    let mut notices = Vec::new();
    for address in addresses.iter().filter(|_| !is_controller_here) {
        match address.host() {
            Some(host) if orion_tls::is_loopback(host) => {
                return Err(format!(
                    "--address {address} leads each machine to itself, and the controller is on another one, so \
                     nobody else would reach this node; set bind_addr in server.conf, or --address, to an address by \
                     which others reach it, such as tcp:HOST:PORT"
                ));
            }
            Some(_) => {}
            None => notices.push(format!(
                "--address {address} is a socket of this machine, and the controller is on another one: programs \
                 elsewhere that are sent here do not reach it; add an address that they reach, such as tcp:HOST:PORT"
            )),
        }
    }
    Ok(notices)
}

/// As the original wrote it where `host:port` alone means the same.
fn spelled(address: &Address) -> String {
    let bare = address.host().filter(|host| Address::parse(host).as_ref() == Ok(address));
    bare.map_or_else(|| address.to_string(), str::to_owned)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn told(texts: &str) -> Result<Vec<String>, String> {
        addresses(texts).map(|all| all.iter().map(spelled).collect())
    }

    #[test]
    fn an_address_that_others_cannot_reach_is_refused_where_the_controller_is_another_machine_s() {
        let of = |text: &str, is_here| reachable(&addresses(text).expect("addresses"), is_here);
        for text in ["tcp:127.0.0.1:9960", "tcp:[::1]:9960", "tcp:localhost:9960", "tcp:10.0.0.7:1,rdma:127.0.0.1:2"] {
            let why = of(text, false).expect_err(text);
            assert!(why.contains("leads each machine to itself") && why.contains("set bind_addr"), "{why}");
            assert_eq!(of(text, true), Ok(Vec::new()));
        }
        let said = of("tcp:10.0.0.7:9960,unix:/run/o.sock", false).expect("programs beside it may use it");
        assert!(said.len() == 1 && said[0].contains("unix:/run/o.sock is a socket of this machine"), "{said:?}");
        assert_eq!(of("tcp:gpu-7:9960", false), Ok(Vec::new()));
        assert_eq!(of("unix:/run/o.sock", true), Ok(Vec::new()));
    }

    #[test]
    fn an_address_keeps_the_carrier_that_its_host_alone_does_not_say() {
        let all = ["a:7411", "rdma:a:7412", "unix:/run/o.sock"].map(str::to_owned);
        assert_eq!(told("tcp:a:7411,rdma:a:7412,unix:/run/o.sock"), Ok(all.to_vec()));
        assert_eq!(told("rdma:a:7412"), Ok(all[1..2].to_vec()));
        let why = told("tcp:a:1,b:2").expect_err("two by one carrier");
        assert!(why.contains("tcp:b:2") && why.contains("tcp:a:1") && why.contains("one carrier, tcp"), "{why}");
        assert!(told("tcp:a").expect_err("no port").contains("--address"));
        for of_a_guest in ["ivshmem:", "vsock:2:7411"] {
            let why = told(of_a_guest).expect_err("no node of a pool");
            assert!(why.contains(&format!("--address {of_a_guest} leads from a virtual machine")), "{why}");
        }
    }
}
