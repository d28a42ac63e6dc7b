//! What who asks is told of the sessions that there are: of his own programs', and of nobody else's.

use orion_wire::lease::{Lease, gpu_name};
use orion_wire::view::{Offer, PROGRAM_BYTES_MAX, PROGRAMS_MAX, Program, Use, View};

use crate::engine::peer::Source;
use crate::vgpu::set_apart;

/// Who is at a connection, as far as it matters to whoever asks about sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    pub source: Source,
    /// By his own word: what his pid means, and where. A wrong one spoils what he is shown himself.
    pub home: [u8; 16],
    pub pid: u32,
    pub program: String,
}

impl Client {
    /// Whether this is the same user's, or from the same machine where the network cannot tell users apart.
    fn is_of(&self, other: &Client) -> bool {
        self.source == other.source && self.source != Source::Unknown
    }

    fn has_home_of(&self, other: &Client) -> bool {
        self.home == other.home && self.home != [0; 16]
    }
}

/// `sessions` are the clients of all of them, and what their vGPUs use. Where this server has one tenant all are his.
pub fn view<'a>(
    offer: &Offer,
    sessions: impl Iterator<Item = (&'a Client, Vec<Use>)>,
    asks: &Client,
    one_tenant: bool,
) -> View {
    let own = sessions.filter(|(client, _)| one_tenant || client.is_of(asks));
    let programs = own.take(PROGRAMS_MAX).map(|(client, uses)| program(client, &uses, asks));
    View { offer: offer.clone(), programs: programs.collect() }
}

/// What the vGPUs of a lease are, and what its session uses of them if there is one. `offer` has the whole GPUs.
pub fn view_of_lease(
    offer: &Offer,
    lease: &Lease,
    session: Option<(&Client, Vec<Use>)>,
    asks: &Client,
) -> Result<View, String> {
    let programs = session.iter().map(|(client, uses)| program(client, uses, asks)).collect();
    Ok(View { offer: of_lease(offer, lease)?, programs })
}

/// As a worker describes them to the session.
fn of_lease(offer: &Offer, lease: &Lease) -> Result<Offer, String> {
    let mut numbers: Vec<usize> = Vec::new();
    let mut devices = Vec::new();
    for vgpu in &lease.vgpus {
        let number = offer.devices.iter().position(|device| gpu_name(&device.uuid) == vgpu.gpu);
        let Some(number) = number else {
            return Err(format!(
                "the lease is for a vGPU on {}, which this node does not have; its agent has to report anew",
                vgpu.gpu
            ));
        };
        let mut device = offer.devices[number].clone();
        let before = numbers.iter().filter(|n| **n == number).count() as u32;
        if before > 0 {
            set_apart(&mut device, before);
        }
        device.total_memory = vgpu.memory_bytes.min(device.total_memory);
        device.is_limited = true;
        numbers.push(number);
        devices.push(device);
    }
    let count = offer.devices.len();
    let access = |from: usize, to: usize| offer.peer_access[from * count + to];
    let peer_access = numbers.iter().flat_map(|from| numbers.iter().map(move |to| access(*from, *to))).collect();
    Ok(Offer { driver_version: offer.driver_version, devices, peer_access })
}

fn program(client: &Client, uses: &[Use], asks: &Client) -> Program {
    Program {
        pid: if client.has_home_of(asks) { client.pid } else { 0 },
        name: cut(&client.program),
        vgpus: uses.to_vec(),
    }
}

fn cut(text: &str) -> String {
    let end = (0..=text.len().min(PROGRAM_BYTES_MAX)).rev().find(|end| text.is_char_boundary(*end));
    text[..end.unwrap_or(0)].to_owned()
}

#[cfg(test)]
mod tests {
    use orion_wire::hello::Device;
    use orion_wire::lease::{LeaseId, Vgpu};

    use super::*;

    fn client(source: Source, home: u8, pid: u32) -> Client {
        Client { source, home: [home; 16], pid, program: format!("program {pid}") }
    }

    fn of(device: u32, total: u64, used: u64) -> Use {
        Use { device, total, used, busy_percent: 7 }
    }

    fn seen(asks: &Client, one_tenant: bool) -> Vec<(u32, u64)> {
        let sessions = [
            client(Source::User(7), 1, 10),
            client(Source::User(7), 2, 11),
            client(Source::User(8), 1, 12),
            client(Source::V4([10, 0, 0, 1]), 1, 13),
            client(Source::Unknown, 1, 14),
        ];
        let uses = |c: &Client| vec![of(0, 100, c.pid.into())];
        let view = view(&Offer::default(), sessions.iter().map(|c| (c, uses(c))), asks, one_tenant);
        view.programs.iter().map(|p| (p.pid, p.vgpus[0].used)).collect()
    }

    #[test]
    fn nobody_is_told_of_others_and_pids_are_those_that_he_could_use() {
        // The second is in another pid namespace, a container say.
        assert_eq!(seen(&client(Source::User(7), 1, 1), false), [(10, 10), (0, 11)]);
        assert_eq!(seen(&client(Source::User(8), 2, 1), false), [(0, 12)]);
        assert_eq!(seen(&client(Source::V4([10, 0, 0, 1]), 1, 1), false), [(13, 13)]);
        assert_eq!(seen(&client(Source::User(9), 1, 1), false), []);
        assert_eq!(seen(&client(Source::Unknown, 1, 1), false), []);
        assert_eq!(seen(&client(Source::User(7), 0, 1), false), [(0, 10), (0, 11)]);
        // One tenant's server: all are his.
        assert_eq!(seen(&client(Source::User(9), 1, 1), true).len(), 5);
    }

    #[test]
    fn the_vgpus_of_a_lease_are_shown_as_its_session_sees_them() {
        let gpu = |n: u8| Device {
            uuid: [n; 16],
            total_memory: 100,
            pci_bus_id: format!("0000:0{n}:00.0"),
            ..Device::default()
        };
        let offer = Offer { driver_version: 13_000, devices: vec![gpu(1), gpu(2)], peer_access: vec![7, 1, 0, 9] };
        let vgpu = |n: u8, memory_bytes| Vgpu { gpu: gpu_name(&[n; 16]), memory_bytes, ratio: 50 };
        let mut lease = Lease {
            id: LeaseId([1; 16]),
            node: "a".into(),
            tenant: String::new(),
            begins_before_unix_ms: 0,
            vgpus: vec![vgpu(2, 40), vgpu(1, 30), vgpu(2, 20)],
        };
        let asks = client(Source::User(8), 1, 1);
        let holder = client(Source::User(7), 1, 10);
        let session = Some((&holder, vec![of(0, 40, 4), of(1, 30, 3)]));
        let seen = view_of_lease(&offer, &lease, session, &asks).expect("they are there");
        let sizes: Vec<(u64, bool)> = seen.offer.devices.iter().map(|d| (d.total_memory, d.is_limited)).collect();
        assert_eq!(sizes, [(40, true), (30, true), (20, true)]);
        assert_ne!(seen.offer.devices[0].uuid, seen.offer.devices[2].uuid);
        assert_ne!(seen.offer.devices[0].pci_bus_id, seen.offer.devices[2].pci_bus_id);
        assert_eq!(seen.offer.peer_access, [9, 0, 9, 1, 7, 1, 9, 0, 9]);
        // Whoever has the lease may see what is done with it.
        assert_eq!(seen.programs.iter().map(|p| (p.pid, p.vgpus[1].used)).collect::<Vec<_>>(), [(10, 3)]);
        assert_eq!(view_of_lease(&offer, &lease, None, &asks).expect("as above").programs, []);
        lease.vgpus.push(vgpu(3, 1));
        let why = view_of_lease(&offer, &lease, None, &asks).expect_err("there is no such GPU");
        assert!(why.contains(&gpu_name(&[3; 16])), "{why}");
    }
}
