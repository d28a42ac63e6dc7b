//! `orion-shm`: makes the memory that a virtual machine shares with its host, as the original's tool did. Containers
//! need none: oriond passes the memory of their sessions through its socket.

// UNSAFETY: asks the system how much room a folder has.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::{CommandFactory, Parser};

/// What a session takes beside its host heap, with a heap that is of some use.
const MIB_MIN: u32 = 64;

/// Makes the file /dev/shm/orionsock<INDEX> for a virtual machine
///
/// QEMU maps it as the memory of an ivshmem-plain device, and oriond shares it with the programs in that machine
/// (--guest FILE, or enable_kvm in server.conf). Each machine has one of its own. Whoever can open the file can read
/// and change what its sessions do, so it is its owner's alone, or a group's if one is named. `rm` takes it away again.
#[derive(Parser)]
#[command(version, name = "orion-shm")]
struct Options {
    /// Which memory: /dev/shm/orionsock<INDEX>
    #[arg(short = 'i', long = "index", value_name = "INDEX", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=9999))]
    index: u32,
    /// MiB of it, a power of two from 64 on. It costs memory once it is used
    #[arg(short = 's', long = "size", value_name = "MIB", default_value_t = 128)]
    #[arg(value_parser = clap::value_parser!(u32).range(16..=1_048_576))]
    size: u32,
    /// The folder of it
    #[arg(short = 'd', long = "directory", value_name = "FOLDER", default_value = "/dev/shm")]
    directory: PathBuf,
    /// Its owner, by name or number: who runs QEMU [default: who runs this]
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// The group that may open it too, by name or number [default: none]
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
}

fn main() -> ExitCode {
    if let Some(done) = orion_pages::were_asked_for(Options::command) {
        return done;
    }
    match make(&Options::parse()) {
        Ok(said) => {
            orion_pages::putln!("{said}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("orion-shm: {why}");
            ExitCode::FAILURE
        }
    }
}

fn make(options: &Options) -> Result<String, String> {
    let Options { index, size, directory, .. } = options;
    if !size.is_power_of_two() || *size < MIB_MIN {
        return Err(format!(
            "{size} MiB: the memory of a PCI device is a power of two, and a session takes {MIB_MIN} MiB at least; try \
             -s {}",
            size.next_power_of_two().max(MIB_MIN)
        ));
    }
    let user = options.user.as_deref().map(|name| number_of("passwd", name)).transpose()?;
    let group = options.group.as_deref().map(|name| number_of("group", name)).transpose()?;
    has_room(directory, *size)?;
    let path = directory.join(format!("orionsock{index}"));
    let name = path.display();
    // Whatever is there is somebody's: it is neither followed nor changed.
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(|e| match e.kind() {
        std::io::ErrorKind::AlreadyExists => format!("{name} is there already; `rm` it, or take another index (-i)"),
        _ => format!("making {name} failed: {e}"),
    })?;
    let made = furnish(&file, u64::from(*size) << 20, user, group);
    made.inspect_err(|_| drop(std::fs::remove_file(&path))).map_err(|why| format!("{name}: {why}"))?;
    told(&path, *size, &file)
}

/// The file takes its room page by page, and a machine that touches a page for which there is none is ended by SIGBUS:
/// so there has to be room for all of them, though nothing keeps it from others.
fn has_room(directory: &Path, size: u32) -> Result<(), String> {
    let name = directory.display();
    let path = CString::new(directory.as_os_str().as_bytes()).map_err(|_| format!("{name} has a NUL in it"))?;
    // SAFETY: an all-zero statvfs is a valid value to overwrite, and the path ends with a NUL.
    let (failed, found) = unsafe {
        let mut found: libc::statvfs = std::mem::zeroed();
        (libc::statvfs(path.as_ptr(), &mut found) != 0, found)
    };
    if failed {
        return Err(format!("asking how much room {name} has failed: {}", std::io::Error::last_os_error()));
    }
    let room = found.f_bavail.saturating_mul(found.f_frsize) >> 20;
    if room >= u64::from(size) {
        return Ok(());
    }
    Err(format!(
        "{size} MiB: {name} has room for {room} MiB, and a virtual machine that finds none is ended by a bus error; \
         try a smaller -s, another folder (-d), or give it more (mount -o remount,size=...)"
    ))
}

fn furnish(file: &File, bytes: u64, user: Option<u32>, group: Option<u32>) -> Result<(), String> {
    file.set_len(bytes).map_err(|e| format!("making it {} MiB large failed: {e}", bytes >> 20))?;
    fchown(file, user, group).map_err(|e| format!("giving it to its owner failed: {e}; only root may"))?;
    let mode = if group.is_some() { 0o660 } else { 0o600 };
    file.set_permissions(PermissionsExt::from_mode(mode)).map_err(|e| format!("setting its mode failed: {e}"))
}

/// By name where it is no number. Names may come from elsewhere than /etc, which getent knows.
fn number_of(database: &str, name: &str) -> Result<u32, String> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let found = Command::new("getent").arg(database).arg("--").arg(name).output();
    let found = found.map_err(|e| format!("looking for {name:?} failed: getent: {e}; give its number"))?;
    let line = String::from_utf8_lossy(&found.stdout);
    let number = line.split(':').nth(2).and_then(|number| number.trim().parse().ok());
    number.ok_or_else(|| format!("getent {database} knows no {name:?}; give another name, or a number"))
}

fn told(path: &Path, size: u32, file: &File) -> Result<String, String> {
    let name = path.display();
    let found = file.metadata().map_err(|e| format!("looking at {name} failed: {e}"))?;
    Ok(format!(
        "{name}: {size} MiB of user {}, group {}, mode {:04o}\n\
         oriond:  oriond serve --guest {name}\n\
         QEMU:    -object memory-backend-file,id=orion,size={size}M,share=on,mem-path={name} \
         -device ivshmem-plain,memdev=orion\n\
         in it:   ORION_SERVER=ivshmem:",
        found.uid(),
        found.gid(),
        found.mode() & 0o7777
    ))
}
