//! Before Orion is installed.

use clap::ValueEnum;

use crate::finding::{Report, Status, row};
use crate::machine;

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

pub fn check(report: &mut Report, what: What) {
    let (checks, rows): (&[Check], &[Row]) = match what {
        What::Controller => (&[machine::system], &[("OS :", "os", YES_NO)]),
        What::Client => (
            &[machine::system, machine::rdma, machine::virtual_machines, machine::containers],
            &[("OS :", "os", YES_NO), ("RDMA :", "rdma", YES_NO)],
        ),
        What::Server | What::All => (
            &[
                machine::system,
                machine::kernel,
                machine::rdma,
                machine::gpus,
                machine::mps,
                machine::virtual_machines,
                machine::containers,
                machine::server_binary,
            ],
            &[
                ("OS :", "os", YES_NO),
                ("Kernel :", "kernel", YES_NO),
                ("io_uring :", "io_uring", YES_NO),
                ("RDMA :", "rdma", YES_NO),
                ("NVIDIA GPU :", "gpu", YES_NO),
                ("NVIDIA CUDA MPS :", "mps", ["OFF", "ON"]),
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
