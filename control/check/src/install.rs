//! Before Orion is installed.

use clap::ValueEnum;
use orion_wire::client_conf::CONTROLLER_PORT;

use crate::finding::{Report, Status, row};
use crate::{controller, machine};

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// Check health for installing Orion Server
    Server,
    /// Check health for installing Orion Client
    Client,
    /// Check health for installing Orion Controller
    Controller,
    /// Check health for installing all Orion components
    All,
}

type Check = fn(&mut Report);

/// Of the summary: its name, the check behind it, and what stands for one that is well and one that is not.
type Row = (&'static str, &'static str, [&'static str; 2]);

const YES_NO: [&str; 2] = ["Yes", "No"];

/// The last one is not about a server.
const ALL: &[Check] = &[
    machine::system,
    machine::kernel,
    machine::shared_memory,
    machine::rdma,
    machine::gpus,
    machine::mps,
    machine::virtual_machines,
    machine::containers,
    machine::server_binary,
    server_port,
    controller_port,
];

/// As server.conf has it.
const SERVER_PORT: u16 = 9960;

fn server_port(report: &mut Report) {
    report.say("\nChecking the port of Orion Server ...");
    controller::port(report, "server port", "oriond", SERVER_PORT);
}

fn controller_port(report: &mut Report) {
    report.say("\nChecking the port of Orion Controller ...");
    controller::port(report, "controller port", "orion-controller", CONTROLLER_PORT);
}

pub fn check(report: &mut Report, what: What) {
    let (checks, rows): (&[Check], &[Row]) = match what {
        What::Controller => {
            (&[machine::system, controller_port], &[("OS :", "os", YES_NO), ("Port 9123 :", "controller port", YES_NO)])
        }
        What::Client => (
            &[machine::system, machine::shared_memory, machine::rdma, machine::virtual_machines, machine::containers],
            &[
                ("OS :", "os", YES_NO),
                ("RDMA :", "rdma", YES_NO),
                ("QEMU-KVM environment :", "kvm", YES_NO),
                ("Docker container environment :", "docker", YES_NO),
            ],
        ),
        What::Server | What::All => (
            if what == What::All { ALL } else { &ALL[..ALL.len() - 1] },
            &[
                ("OS :", "os", YES_NO),
                ("Kernel :", "kernel", YES_NO),
                ("io_uring :", "io_uring", YES_NO),
                ("RDMA :", "rdma", YES_NO),
                ("NVIDIA GPU :", "gpu", YES_NO),
                ("NVIDIA CUDA MPS :", "mps", ["OFF", "ON"]),
                ("BPF :", "bpf", YES_NO),
                ("QEMU-KVM environment :", "kvm", YES_NO),
                ("Docker container environment :", "docker", YES_NO),
                ("Port 9960 :", "server port", YES_NO),
                ("Orion Server binary:", "oriond", YES_NO),
            ],
        ),
    };
    checks.iter().for_each(|check| check(report));
    report.say("\n===============================================\nInstallation summaries :\n");
    for (name, check, [well, not]) in rows {
        let value = match report.status_of(check) {
            Some(Status::Ok) => well,
            Some(_) => not,
            None => "Unknown",
        };
        report.say(&row(name, value));
    }
}
