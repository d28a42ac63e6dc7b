//! In place of libbpf, where this crate was built without it: nothing can be attached.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::histogram::Counts;
use crate::processes::Changes;
use crate::question::{Question, Refusal};
use crate::report::{Connection, Report};
use crate::usdt::Usdt;

const WHY: &str = "this program was built without libbpf; with Debian's make, pkg-config, libelf-dev and zlib1g-dev: \
                   cargo build --release -p orion-bpf --features libbpf";

/// There is none.
pub struct Attached {
    pub question: Question,
    never: std::convert::Infallible,
}

impl Attached {
    pub fn load(_: Question) -> Result<Attached, Refusal> {
        Err(Refusal(WHY.to_owned()))
    }

    pub fn open_ports(&mut self, _: u32, _: &BTreeSet<u16>) -> Result<(), Refusal> {
        match self.never {}
    }

    pub fn attach(&mut self, _: PathBuf, _: &[Usdt]) -> Result<(), Refusal> {
        match self.never {}
    }

    pub fn tell(&mut self, _: &Changes) -> Result<(), Refusal> {
        match self.never {}
    }

    pub fn histogram(&self, _: u32) -> Result<Option<Counts>, Refusal> {
        match self.never {}
    }

    pub fn connections(&self) -> Result<Vec<(Connection, Counts)>, Refusal> {
        match self.never {}
    }

    pub fn read(&self, _: &mut Report) -> Result<(), Refusal> {
        match self.never {}
    }
}

/// There are none.
pub struct Stats(std::convert::Infallible);

impl Stats {
    pub fn on() -> Result<Stats, Refusal> {
        Err(Refusal(WHY.to_owned()))
    }
}
