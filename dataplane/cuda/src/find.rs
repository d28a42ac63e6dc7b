//! Finds NVIDIA's libraries, and never mistakes Orion's own for them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const FOLDERS: [&str; 8] = [
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
    "/usr/lib",
    "/lib/x86_64-linux-gnu",
];
const MARKER: &[u8] = b"orion_shim_marker";

/// Whether NVIDIA's driver has made its device files, in the places where programs look for them.
pub fn has_device_files() -> bool {
    ["/dev/nvidia0", "/dev/nvidiactl", "/dev/dxg"].iter().any(|device| Path::new(device).exists())
}

/// The real driver, if there is one and a GPU to go with it. It is looked for in the folders of `LD_LIBRARY_PATH`,
/// where distributions and container runtimes put it, and in the loader's cache.
pub fn driver() -> Option<PathBuf> {
    // The library is installed in many an image without a GPU in sight.
    if !["/dev/nvidiactl", "/dev/dxg"].iter().any(|device| Path::new(device).exists()) {
        return None;
    }
    library("libcuda.so.1")
}

/// The library for management that belongs to a driver: beside it, else as [`driver`] is looked for.
pub fn management(driver: &Path) -> Option<PathBuf> {
    const NAME: &str = "libnvidia-ml.so.1";
    // A link to the driver may stand elsewhere than what it leads to.
    let own = driver.canonicalize().ok();
    let beside = [Some(driver), own.as_deref()].into_iter().flatten().map(|driver| driver.with_file_name(NAME));
    beside.filter_map(|p| p.canonicalize().ok()).find(|p| is_real(p)).or_else(|| library(NAME))
}

fn library(name: &str) -> Option<PathBuf> {
    let listed = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
    let listed = listed.split(':').filter(|d| !d.is_empty()).map(PathBuf::from);
    let known = FOLDERS.iter().map(PathBuf::from);
    let folders = listed.chain(known).map(|d| d.join(name));
    folders.chain(from_ldconfig(name)).filter_map(|p| p.canonicalize().ok()).find(|p| is_real(p))
}

fn from_ldconfig(name: &str) -> Vec<PathBuf> {
    let Ok(output) = Command::new("/sbin/ldconfig").arg("-p").output() else { return Vec::new() };
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter(|line| line.split_whitespace().next() == Some(name) && line.contains("x86-64"))
        .filter_map(|line| Some(PathBuf::from(line.split("=> ").nth(1)?.trim())))
        .collect()
}

fn is_real(path: &Path) -> bool {
    matches!(exports(path, MARKER), Ok(false))
}

/// Whether a 64-bit ELF library has `name` in its dynamic string table.
fn exports(path: &Path, name: &[u8]) -> io::Result<bool> {
    let broken = || io::Error::other("not a 64-bit ELF library");
    let file = File::open(path)?;
    let mut header = [0u8; 64];
    file.read_exact_at(&mut header, 0)?;
    if header[..5] != *b"\x7fELF\x02" {
        return Err(broken());
    }
    let half = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]) as u64;
    let sections = u64::from_le_bytes(header[40..48].try_into().expect("eight bytes"));
    let (size, count) = (half(58), half(60));
    if size < 64 {
        return Err(broken());
    }
    let section = |index: u64| -> io::Result<[u8; 64]> {
        let mut s = [0u8; 64];
        let at = index.checked_mul(size).and_then(|o| o.checked_add(sections)).ok_or_else(broken)?;
        file.read_exact_at(&mut s, at)?;
        Ok(s)
    };
    const SHT_DYNSYM: u32 = 11;
    for index in 0..count {
        let s = section(index)?;
        if u32::from_le_bytes(s[4..8].try_into().expect("four bytes")) != SHT_DYNSYM {
            continue;
        }
        let strings = section(u32::from_le_bytes(s[40..44].try_into().expect("four bytes")) as u64)?;
        let word = |at: usize| u64::from_le_bytes(strings[at..at + 8].try_into().expect("eight bytes"));
        let len = usize::try_from(word(32)).ok().filter(|l| *l < 64 << 20).ok_or_else(broken)?;
        let mut text = vec![0u8; len];
        file.read_exact_at(&mut text, word(24))?;
        // Linkers let a name share the tail of a longer one, so it need not begin after a zero.
        let ended = [name, b"\0"].concat();
        return Ok(text.windows(ended.len()).any(|w| w == ended));
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_of_a_library_are_found() {
        let libc = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/usr/lib/libc.so.6"];
        let Some(libc) = libc.iter().map(Path::new).find(|p| p.exists()) else { return };
        assert!(exports(libc, b"fwrite").unwrap());
        assert!(!exports(libc, MARKER).unwrap());
        assert!(exports(Path::new("/proc/self/cmdline"), MARKER).is_err());
    }
}
