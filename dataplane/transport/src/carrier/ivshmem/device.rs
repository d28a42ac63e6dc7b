//! The guest's device: found by vendor and number, and mapped without a driver.

// UNSAFETY: writes a device's register.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::{MmapOptions, MmapRaw};

use super::segment::{DEVICE, VENDOR};

pub const DEVICES: &str = "/sys/bus/pci/devices";
/// Of the register that rings, among 32-bit words.
const DOORBELL: usize = 3;
const REGISTERS_BYTES: usize = 4096;

/// A segment, as the guest has it.
#[derive(Debug)]
pub struct Device {
    /// For messages.
    pub path: PathBuf,
    pub memory: OwnedFd,
    pub registers: Option<Arc<Registers>>,
}

/// The device of that name below `devices`, or the only one there, or the file at that path in place of one.
pub fn open(devices: &Path, named: &str) -> Result<Device, String> {
    if named.starts_with('/') {
        let memory = open_memory(Path::new(named), "; it is the file that oriond serves with --guest")?;
        return Ok(Device { path: named.into(), memory, registers: None });
    }
    let folder = match named {
        "" => only(devices)?,
        name => {
            let folder = devices.join(name);
            is_ours(&folder).then_some(folder).ok_or_else(|| {
                format!("{name} is no shared memory of a virtual machine; `lspci -n -d 1af4:1110` lists what is")
            })?
        }
    };
    enable(&folder)?;
    let memory = open_memory(&folder.join("resource2"), "")?;
    let registers = folder.join("resource0");
    let registers = Registers::open(&registers)
        .map_err(|e| format!("mapping {} failed: {e}; it takes root, or a udev rule", registers.display()))?;
    Ok(Device { path: folder, memory, registers: Some(Arc::new(registers)) })
}

fn open_memory(path: &Path, if_missing: &str) -> Result<OwnedFd, String> {
    let opened = OpenOptions::new().read(true).write(true).open(path);
    opened.map(OwnedFd::from).map_err(|e| {
        let what_to_do = match e.kind() {
            io::ErrorKind::PermissionDenied => "; only root may, unless a udev rule gives the device to others",
            io::ErrorKind::NotFound => if_missing,
            _ => "",
        };
        format!("opening {} failed: {e}{what_to_do}", path.display())
    })
}

fn only(devices: &Path) -> Result<PathBuf, String> {
    let list = std::fs::read_dir(devices).map_err(|e| format!("reading {} failed: {e}", devices.display()))?;
    let mut ours: Vec<PathBuf> = list.flatten().map(|entry| entry.path()).filter(|folder| is_ours(folder)).collect();
    ours.sort();
    match &ours[..] {
        [one] => Ok(one.clone()),
        [] => Err("this machine has no shared memory of its host's (PCI 1af4:1110); give it an ivshmem device, or \
                   reach oriond by tcp:HOST:PORT"
            .to_owned()),
        several => {
            let names: Vec<_> = several.iter().filter_map(|f| f.file_name()).map(|n| n.to_string_lossy()).collect();
            Err(format!("there are {}; name the one that oriond serves, as in ivshmem:{}", names.join(", "), names[0]))
        }
    }
}

fn is_ours(folder: &Path) -> bool {
    let has = |name: &str, value: &str| std::fs::read_to_string(folder.join(name)).is_ok_and(|v| v.trim() == value);
    has("vendor", VENDOR) && has("device", DEVICE)
}

/// A device without a driver does not answer until it is told to.
fn enable(folder: &Path) -> Result<(), String> {
    let file = folder.join("enable");
    let is_enabled = std::fs::read_to_string(&file).is_ok_and(|count| count.trim() != "0");
    match is_enabled {
        true => Ok(()),
        false => std::fs::write(&file, "1").map_err(|e| {
            format!("enabling the device failed: {e}; root does it by `echo 1 > {}`, after each boot", file.display())
        }),
    }
}

/// The device's registers. It has a bell where its host has one for it, which the segment says.
#[derive(Debug)]
pub struct Registers(MmapRaw);

impl Registers {
    fn open(path: &Path) -> io::Result<Registers> {
        let file: File = OpenOptions::new().read(true).write(true).open(path)?;
        MmapOptions::new().len(REGISTERS_BYTES).map_raw(&file).map(Registers)
    }

    pub fn ring(&self, peer: u32, vector: u32) {
        // SAFETY: inside the mapping, which stays until the drop. Several threads may ring at once: it is one store.
        unsafe { self.0.as_mut_ptr().cast::<u32>().add(DOORBELL).write_volatile(peer << 16 | vector) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices(name: &str, all: &[(&str, &str)]) -> PathBuf {
        let root = std::env::temp_dir().join(format!("orion-devices-{}-{name}", std::process::id()));
        for (device, number) in all {
            let folder = root.join(device);
            std::fs::create_dir_all(&folder).expect("a new folder");
            for (file, text) in [("vendor", "0x1af4\n"), ("device", number), ("enable", "0\n")] {
                std::fs::write(folder.join(file), text).expect("writing");
            }
            for file in ["resource0", "resource2"] {
                std::fs::write(folder.join(file), [0; 4096]).expect("writing");
            }
        }
        std::fs::create_dir_all(&root).expect("a folder");
        root
    }

    #[test]
    fn the_device_is_found_by_its_numbers_and_rung_by_its_register() {
        let root = devices("one", &[("0000:00:03.0", "0x1000\n"), ("0000:00:04.0", "0x1110\n")]);
        let device = open(&root, "").expect("there is one");
        assert_eq!(device.path, root.join("0000:00:04.0"));
        assert_eq!(std::fs::read_to_string(root.join("0000:00:04.0/enable")).expect("it is there"), "1");
        device.registers.expect("it has some").ring(0, 2);
        let written = std::fs::read(root.join("0000:00:04.0/resource0")).expect("it is there");
        assert_eq!(written[12..16], [2, 0, 0, 0]);
        open(&root, "0000:00:04.0").expect("by name");
        assert!(open(&root, "0000:00:03.0").expect_err("another kind").contains("lspci"));
        std::fs::remove_dir_all(&root).expect("removing");
    }

    #[test]
    fn memory_that_cannot_be_opened_is_told_what_to_do() {
        let no = |name: &str| open(Path::new("/none"), name).expect_err(name);
        let missing = no("/dev/shm/orion-of-no-guest");
        assert!(missing.contains("/dev/shm/orion-of-no-guest") && missing.contains("--guest"), "{missing}");
        // A folder, which needs no udev rule.
        let folder = no("/dev/shm");
        assert!(folder.contains("/dev/shm") && !folder.contains("udev"), "{folder}");
    }

    #[test]
    fn no_device_and_several_are_told_what_to_do() {
        let none = devices("none", &[("0000:00:03.0", "0x1000\n")]);
        assert!(open(&none, "").expect_err("there is none").contains("tcp:HOST:PORT"));
        let two = devices("two", &[("0000:00:04.0", "0x1110\n"), ("0000:00:05.0", "0x1110\n")]);
        assert!(open(&two, "").expect_err("there are two").contains("ivshmem:0000:00:04.0"));
        for root in [none, two] {
            std::fs::remove_dir_all(&root).expect("removing");
        }
    }
}
