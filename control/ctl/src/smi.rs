//! The tables of `orion-smi`, with the columns of the original's.

use std::fmt::Write;

use orion_proto::{Allocation, Device, Place};
use orion_wire::address::Server;

use crate::mib;

const RULE: &str = "+-------------------------------+----------------------+----------------------+\n";
const WIDE: &str = "+-----------------------------------------------------------------------------+\n";

/// Of an address, in the original's table; longer ones make the table wider.
const IP: usize = 14;
/// Of a physical GPU's name, below a table's narrowest address.
const NAME: usize = 20;
/// Of a program's name and where it runs.
const PROCESS: usize = 25;

/// One vGPU that somebody has.
pub struct Used<'a> {
    pub place: &'a Place,
    pub allocation: &'a Allocation,
}

/// All of them, by node, GPU and vGPU.
#[must_use]
pub fn used(allocations: &[Allocation]) -> Vec<Used<'_>> {
    let all = allocations.iter();
    let mut used: Vec<_> =
        all.flat_map(|allocation| allocation.vgpus.iter().map(move |place| Used { place, allocation })).collect();
    used.sort_by(|a, b| {
        let key = |u: &Used<'_>| (u.place.gpu, u.place.vgpu);
        a.place.node.cmp(&b.place.node).then_with(|| key(a).cmp(&key(b)))
    });
    used
}

/// The program that has vGPUs, as it has told the controller: the host's name, or the container's, its number there,
/// and its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program<'a> {
    pub host: &'a str,
    pub pid: Option<u32>,
    pub name: &'a str,
}

impl<'a> Program<'a> {
    /// Whoever speaks to the controller in a way of his own may have told something else: then that is its name.
    #[must_use]
    pub fn of(allocation: &'a Allocation) -> Program<'a> {
        let client = allocation.client.as_str();
        let mut words = client.splitn(3, ' ');
        match (words.next(), words.next().map(str::parse), words.next()) {
            (Some(host), Some(Ok(pid)), Some(name)) => Program { host, pid: Some(pid), name },
            _ => Program { host: "", pid: None, name: client },
        }
    }

    /// In a cell of so many characters. Of what is too long the host loses its end, and says so: by its name and number
    /// one knows the program.
    fn shown(&self, width: usize, of_reserve: bool) -> String {
        let name = if of_reserve { "(reserve) " } else { "" }.to_owned() + self.name;
        let room = width.saturating_sub(name.chars().count() + 3);
        let host = match self.host.chars().count() {
            0 => String::new(),
            count if count <= room => format!(" ({})", self.host),
            _ if room < 2 => String::new(),
            _ => format!(" ({}…)", self.host.chars().take(room - 1).collect::<String>()),
        };
        cell(&(name + &host), width)
    }
}

/// A cell of so many characters; what is longer loses its end.
fn cell(text: &str, width: usize) -> String {
    let kept: String = text.chars().take(width).collect();
    format!("{kept:<width$}")
}

/// The host of its oriond, by whichever carrier that is reached; the node's name where the address has none.
fn ip(place: &Place) -> String {
    let server = Server::parse(&place.address).ok();
    let host = server.as_ref().and_then(Server::host).and_then(|host| host.rsplit_once(':'));
    host.map_or(&*place.node, |(host, _)| host).to_owned()
}

/// What the pool has lent, and to whom.
#[must_use]
pub fn table(devices: &[Device], allocations: &[Allocation], time: &str) -> String {
    let used = used(allocations);
    // An address that loses its end is another machine's.
    let more = used.iter().map(|used| ip(used.place).chars().count().saturating_sub(IP)).max().unwrap_or(0);
    let (ips, whole, wider) = (IP + more, 75 + more, " ".repeat(more));
    let longer = |rule: &str| format!("{}{}{}", &rule[..1], rule[1..2].repeat(more), &rule[1..]);
    let (rule, wide) = (longer(RULE), longer(WIDE));
    let mut out = wide.clone();
    let head = format!("ORION-SMI {:<10} Time: {time:<22} CUDA Version: N/A", env!("CARGO_PKG_VERSION"));
    let _ = writeln!(out, "| {} |\n{}", cell(&head, whole), rule.trim_end());
    let _ = writeln!(out, "| IP{wider}             vGPU Name      | Bus-Id        Disp.A | Volatile Uncorr. ECC |");
    // GPUs are fewer than a thousand, and so are the vGPUs of one: their numbers need no whole cell.
    let _ = writeln!(out, "|pGPU vGPU Physical GPU Name    {wider}|         Memory-Usage |    Share  Compute M. |");
    out += &longer("|===============================+======================+======================|\n");
    for Used { place, .. } in &used {
        let device = devices.iter().find(|device| device.uuid == place.gpu_uuid && device.node == place.node);
        let name = device.map_or("a GPU that is gone", |device| device.name.as_str());
        let ip = cell(&ip(place), ips);
        let _ = writeln!(out, "| {ip} {} | N/A              Off |                  N/A |", cell("Orion vGPU", 14));
        let share = format!("{}%", place.ratio);
        let _ = writeln!(
            out,
            "| {:>3} {:>4} {} | {:>20} | {share:>8} {:>11} |\n{}",
            place.gpu,
            place.vgpu,
            cell(name, NAME + more),
            used_of(place),
            "Default",
            rule.trim_end()
        );
    }
    if used.is_empty() {
        let _ = write!(out, "| {} |\n{wide}", cell("No vGPU is lent.", whole));
    }
    let _ = writeln!(out, "\n{wide}| {:<width$}vGPU Memory |", "Processes:", width = whole - 11);
    let names = format!("IP{wider}             pGPU vGPU      PID Type Process name");
    let _ = writeln!(out, "| {names:<width$}Usage      |", width = whole - 10);
    out += &longer("|=============================================================================|\n");
    for Used { place, allocation } in &used {
        let program = Program::of(allocation);
        let _ = writeln!(
            out,
            "| {} {:>4} {:>4} {:>8} {:>4} {} {:>10} |",
            cell(&ip(place), ips),
            place.gpu,
            place.vgpu,
            program.pid.map_or_else(|| "N/A".to_owned(), |pid| pid.to_string()),
            "C",
            program.shown(PROCESS, allocation.of_reserve),
            place.used_bytes.map_or_else(|| "N/A".into(), mib)
        );
    }
    out + &wide
}

/// What is used of a vGPU's memory, and what may be.
fn used_of(place: &Place) -> String {
    let used = place.used_bytes.map_or_else(|| "N/A".into(), mib);
    format!("{used}/{}", mib(place.memory_bytes))
}

/// The GPUs of the pool.
#[must_use]
pub fn pool_table(devices: &[Device], waiting: u32) -> String {
    let longest = |of: fn(&Device) -> &str, least: usize| {
        devices.iter().map(|device| of(device).chars().count()).max().unwrap_or(0).max(least)
    };
    let (nodes, names) = (longest(|device| &device.node, 20), longest(|device| &device.name, 24));
    let mut out = format!(
        "{:<nodes$} {:>4} {:<names$} {:<9} {:>9} {:>19} {:>10}\n",
        "NODE", "pGPU", "Physical GPU Name", "Standing", "vGPU free", "Memory free", "Share free"
    );
    for device in devices {
        let vgpus = format!("{}/{}", device.free_vgpus, device.vgpus);
        let memory = format!("{}/{}", mib(device.free_bytes), mib(device.memory_bytes));
        let _ = writeln!(
            out,
            "{} {:>4} {} {:<9} {vgpus:>9} {memory:>19} {:>9}%",
            cell(&device.node, nodes),
            device.gpu,
            cell(&device.name, names),
            device.standing,
            device.free_ratio
        );
    }
    let _ = writeln!(out, "{} GPUs; {waiting} asks wait for room", devices.len());
    let of = |count: fn(&Device) -> u32| devices.iter().map(count).sum::<u32>();
    let (kept, lent) = (of(|device| device.reserve_vgpus), of(|device| device.reserve_lent));
    if kept > 0 {
        let _ = writeln!(out, "{kept} more vGPUs are nodes' own reserves, and {lent} of those are lent");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str) -> Device {
        Device {
            node: "n0".into(),
            address: "10.0.0.7:9960".into(),
            gpu: 0,
            uuid: "GPU-1".into(),
            name: name.into(),
            memory_bytes: 16 << 30,
            free_bytes: 8 << 30,
            free_ratio: 50,
            vgpus: 4,
            free_vgpus: 2,
            standing: "up".into(),
            ..Device::default()
        }
    }

    fn allocation(vgpu: u32) -> Allocation {
        let place = Place {
            node: "n0".into(),
            address: "10.0.0.7:9960".into(),
            gpu_uuid: "GPU-1".into(),
            gpu: 0,
            vgpu,
            memory_bytes: 7800 << 20,
            ratio: 50,
            used_bytes: (vgpu == 0).then_some(1234 << 20),
        };
        let client = "trainer 4711 python3 train.py --with-a-long-command-line-of-many-words".into();
        Allocation { vgpus: vec![place], client, ..Allocation::default() }
    }

    #[test]
    fn every_line_is_as_wide_as_the_frame() {
        for name in ["Tesla P100-PCIE-16GB", "x", "ein Gerät mit einem sehr langen Namen"] {
            let text = table(&[device(name)], &[allocation(1), allocation(0)], "2026-11-24 00:00:00");
            for line in text.lines().filter(|line| !line.is_empty()) {
                assert_eq!(line.chars().count(), 79, "{line}");
            }
        }
    }

    /// In the columns and the order of the original's.
    #[test]
    fn the_table_is_laid_out_as_the_originals() {
        let of = |vgpu| Allocation { client: "trainer 4711 python3".into(), ..allocation(vgpu) };
        let text = table(&[device("Tesla P100-PCIE-16GB")], &[of(1), of(0)], "2019-06-28 08:15:43");
        let version = format!("{:<10}", env!("CARGO_PKG_VERSION"));
        let expected = "\
+-----------------------------------------------------------------------------+
| ORION-SMI VERSION    Time: 2019-06-28 08:15:43    CUDA Version: N/A         |
+-------------------------------+----------------------+----------------------+
| IP             vGPU Name      | Bus-Id        Disp.A | Volatile Uncorr. ECC |
|pGPU vGPU Physical GPU Name    |         Memory-Usage |    Share  Compute M. |
|===============================+======================+======================|
| 10.0.0.7       Orion vGPU     | N/A              Off |                  N/A |
|   0    0 Tesla P100-PCIE-16GB |      1234MiB/7800MiB |      50%     Default |
+-------------------------------+----------------------+----------------------+
| 10.0.0.7       Orion vGPU     | N/A              Off |                  N/A |
|   0    1 Tesla P100-PCIE-16GB |          N/A/7800MiB |      50%     Default |
+-------------------------------+----------------------+----------------------+

+-----------------------------------------------------------------------------+
| Processes:                                                      vGPU Memory |
| IP             pGPU vGPU      PID Type Process name              Usage      |
|=============================================================================|
| 10.0.0.7          0    0     4711    C python3 (trainer)            1234MiB |
| 10.0.0.7          0    1     4711    C python3 (trainer)                N/A |
+-----------------------------------------------------------------------------+
";
        assert_eq!(text, expected.replace("VERSION   ", &version));
    }

    #[test]
    fn a_program_is_known_by_number_and_name_and_of_a_long_host_there_is_as_much_as_fits() {
        let of = |client: &str, of_reserve| {
            let one = Allocation { client: client.to_owned(), ..allocation(0) };
            let program = Program::of(&one);
            (program.pid, program.shown(PROCESS, of_reserve).trim_end().to_owned())
        };
        let longest = "4f2a9c01b7de 4194304 a-name-of-15-ch";
        for (client, of_reserve, pid, shown) in [
            ("trainer 4711 python3", false, Some(4711), "python3 (trainer)"),
            ("trainer 4711 python3", true, Some(4711), "(reserve) python3 (trai…)"),
            (longest, false, Some(4_194_304), "a-name-of-15-ch (4f2a9c…)"),
            (longest, true, Some(4_194_304), "(reserve) a-name-of-15-ch"),
            (" 7 x", false, Some(7), "x"),
            ("gpu-node-of-the-second-floor.example 7 x", false, Some(7), "x (gpu-node-of-the-seco…)"),
            ("trainer 7 a b", false, Some(7), "a b (trainer)"),
            // Of who has asked in his own words.
            ("my own client", false, None, "my own client"),
            ("", false, None, ""),
        ] {
            assert_eq!(of(client, of_reserve), (pid, shown.to_owned()), "{client}");
            assert!(shown.chars().count() <= PROCESS);
        }
        let words = Allocation { client: "my own client".into(), ..allocation(0) };
        assert!(table(&[], &[words], "now").contains("      N/A    C my own client "));
    }

    #[test]
    fn vgpus_stand_in_order_with_what_they_have() {
        let text = table(&[device("Tesla P100-PCIE-16GB")], &[allocation(1), allocation(0)], "now");
        let rows: Vec<_> = text.lines().filter(|line| line.contains("Tesla")).collect();
        assert_eq!(rows.len(), 2);
        assert!(rows[0].starts_with("|   0    0 Tesla P100-PCIE-16GB |"), "{}", rows[0]);
        assert!(rows[0].contains("1234MiB/7800MiB |") && rows[0].contains("50%"), "{}", rows[0]);
        assert!(rows[1].contains("N/A/7800MiB |"), "{}", rows[1]);
        assert!(table(&[], &[], "now").contains("No vGPU is lent."));
    }

    #[test]
    fn a_gpus_vgpus_stand_together_with_the_nodes_ip_by_whichever_carrier_they_were_given() {
        let at = |vgpu: u32, address: &str| {
            let mut one = allocation(vgpu);
            one.vgpus[0].address = address.to_owned();
            one
        };
        let mut of_another_node = at(0, "10.10.10.9:9960");
        of_another_node.vgpus[0].node = "n1".into();
        let all = [
            of_another_node,
            at(2, "unix:/run/orion/oriond.sock"),
            at(1, "10.10.10.10:9960"),
            at(0, "rdma:10.10.10.10:7412"),
            at(3, "rdma:[fe80::1]:7412"),
        ];
        let text = table(&[device("H200")], &all, "now");
        let ips: Vec<&str> = text.lines().filter(|line| line.contains("Orion vGPU")).map(|line| &line[2..16]).collect();
        let expected = ["10.10.10.10", "10.10.10.10", "n0", "[fe80::1]", "10.10.10.9"];
        assert_eq!(ips.iter().map(|ip| ip.trim()).collect::<Vec<_>>(), expected);
        let ips: Vec<&str> =
            text.lines().filter(|line| line.contains(" C python3 ")).map(|line| &line[2..16]).collect();
        assert_eq!(ips.iter().map(|ip| ip.trim()).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn no_address_and_no_node_loses_its_end() {
        let mut one = allocation(0);
        one.vgpus[0].address = "192.168.100.123:9960".into();
        let text = table(&[device("H200")], &[one.clone(), allocation(1)], "now");
        assert_eq!(text.matches(" 192.168.100.123 ").count(), 2, "{text}");
        let width = text.lines().next().expect("a rule").chars().count();
        let lines = text.lines().filter(|line| !line.is_empty());
        assert!(lines.clone().all(|line| line.chars().count() == width), "{text}");
        assert!(lines.clone().any(|line| line.starts_with("|   0    1 H200 ")), "{text}");
        let node = "gpu-node-of-the-second-floor.example";
        let long = Device { node: node.into(), ..device("NVIDIA RTX PRO 6000 Blackwell Server Edition") };
        let text = pool_table(&[device("H200"), long], 0);
        assert!(text.contains(node) && text.contains("Blackwell Server Edition up"), "{text}");
        let columns: Vec<_> = text.lines().take(3).map(|line| line.chars().count()).collect();
        assert!(columns.iter().all(|column| *column == columns[0]), "{text}");
    }

    #[test]
    fn the_pool_says_what_is_free() {
        let text = pool_table(&[device("Tesla P100-PCIE-16GB")], 3);
        assert!(text.contains("2/4") && text.contains("8192MiB/16384MiB"), "{text}");
        assert!(text.ends_with("1 GPUs; 3 asks wait for room\n"), "{text}");
        let device = Device { reserve_vgpus: 2, reserve_lent: 1, ..device("H200") };
        let text = pool_table(&[device], 0);
        assert!(text.ends_with("2 more vGPUs are nodes' own reserves, and 1 of those are lent\n"), "{text}");
        let of_reserve = Allocation { of_reserve: true, ..allocation(3) };
        assert!(table(&[], &[of_reserve], "now").contains(" 3     4711    C (reserve) python3 train.p"), "{text}");
    }
}
