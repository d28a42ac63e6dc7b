//! `orion-shm`: the original's tool that made memory in /dev/shm for containers and virtual machines. Here nothing
//! has a use for such memory, and a file without a use is not made: it says what takes its place.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

/// Says what has taken the place of /dev/shm/orionsock<INDEX>, and makes no file
///
/// oriond makes the memory of each session itself and passes it by descriptor through its socket, so a container
/// mounts that socket, and no memory is made ahead. Virtual machines reach oriond over TCP until a carrier for them
/// exists. The options are those of Orion vGPU's tool; they are checked, and the exit status is 1.
#[derive(Parser)]
#[command(version, name = "orion-shm")]
struct Options {
    /// Which memory: /dev/shm/orionsock<INDEX>
    #[arg(short = 'i', long = "index", value_name = "INDEX", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=9999))]
    index: u32,
    /// MiB of it
    #[arg(short = 's', long = "size", value_name = "MIB", default_value_t = 128)]
    #[arg(value_parser = clap::value_parser!(u32).range(16..=1_048_576))]
    size: u32,
    /// The folder of it
    #[arg(short = 'd', long = "directory", value_name = "FOLDER", default_value = "/dev/shm")]
    directory: PathBuf,
}

fn main() -> ExitCode {
    if let Some(done) = orion_pages::were_asked_for(Options::command) {
        return done;
    }
    let Options { index, size, directory } = Options::parse();
    let file = directory.join(format!("orionsock{index}"));
    eprintln!(
        "orion-shm: {} of {size} MiB is not made, for nothing would use it: oriond makes the memory of each session \
         itself and passes it through its socket.\n\
         For a container mount the socket in place of the memory, and bring the token that a container needs:\n    \
         docker run -v /run/orion:/run/orion -v /etc/orion/token:/etc/orion/token \
         -e ORION_TOKEN_FILE=/etc/orion/token ...\n\
         For a virtual machine use TCP until there is a carrier of memory to guests:\n    \
         ORION_SERVER=tcp:HOST:9960 ORION_TOKEN_FILE=FILE",
        file.display()
    );
    ExitCode::FAILURE
}
