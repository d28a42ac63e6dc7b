//! What can be said of a program before it is started.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const HEADER_BYTES: usize = 64;
/// The program header that names the loader, of which each program has one that was not linked with `-static`.
const PT_INTERP: u32 = 3;
const CHUNK_BYTES: usize = 1 << 20;
/// What CUDA's runtime and others look for.
const DRIVER: &[u8] = b"libcuda.so";

/// Whether it was linked with `-static` and would load a driver for CUDA. glibc loads a library into such a program all
/// the same, but starts no threads for it and gives it no thread-local variables (both are faults, with glibc 2.36).
pub fn is_static_and_loads_the_driver(name: &OsStr) -> bool {
    // What cannot be read is not said to be anything.
    find(name, std::env::var_os("PATH").as_deref()).and_then(|path| look(&path).ok()).unwrap_or(false)
}

/// As `execvp` finds it.
fn find(name: &OsStr, folders: Option<&OsStr>) -> Option<PathBuf> {
    if name.as_encoded_bytes().contains(&b'/') {
        return Some(name.into());
    }
    std::env::split_paths(folders?).map(|folder| folder.join(name)).find(|path| path.is_file())
}

fn look(path: &Path) -> io::Result<bool> {
    let mut file = File::open(path)?;
    Ok(has_no_loader(&file)? && holds(&mut file, DRIVER)?)
}

/// A 64-bit ELF program that no loader starts.
fn has_no_loader(file: &File) -> io::Result<bool> {
    let mut header = [0; HEADER_BYTES];
    file.read_exact_at(&mut header, 0)?;
    if header[..5] != *b"\x7fELF\x02" {
        return Ok(false);
    }
    let half = |at: usize| u64::from(u16::from_le_bytes([header[at], header[at + 1]]));
    let table = u64::from_le_bytes(header[32..40].try_into().expect("eight bytes"));
    for index in 0..half(56) {
        let mut kind = [0; 4];
        file.read_exact_at(&mut kind, table.saturating_add(index * half(54)))?;
        if u32::from_le_bytes(kind) == PT_INTERP {
            return Ok(false);
        }
    }
    Ok(true)
}

fn holds(file: &mut File, bytes: &[u8]) -> io::Result<bool> {
    let (mut window, mut kept) = (vec![0; CHUNK_BYTES + bytes.len()], 0);
    loop {
        let count = file.read(&mut window[kept..])?;
        if count == 0 {
            return Ok(false);
        }
        let end = kept + count;
        if window[..end].windows(bytes.len()).any(|found| found == bytes) {
            return Ok(true);
        }
        // It may begin in what was read and end in what follows.
        kept = end.min(bytes.len() - 1);
        window.copy_within(end - kept..end, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_as_the_shell_finds_it() {
        let folders = OsStr::new("/no/such/folder:/bin:/usr/bin");
        assert!(find(OsStr::new("sh"), Some(folders)).is_some_and(|path| path.is_file()));
        assert_eq!(find(OsStr::new("./sh"), Some(folders)), Some("./sh".into()));
        assert_eq!(find(OsStr::new("no-such-program"), Some(folders)), None);
        assert!(!look(Path::new("/bin/sh")).expect("it can be read"));
    }

    #[test]
    fn what_lies_across_two_reads_is_found() {
        let folder = std::env::temp_dir().join(format!("orion-run-program-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("creating a folder");
        for begins in [0, 1, CHUNK_BYTES - 3, CHUNK_BYTES, CHUNK_BYTES + 7, 2 * CHUNK_BYTES + 5] {
            let path = folder.join("file");
            std::fs::write(&path, [&vec![b'l'; begins][..], b"ibcuda.so", &[0; 9]].concat()).expect("writing");
            let found = holds(&mut File::open(&path).expect("it is there"), b"ibcuda.so").expect("reading");
            assert!(found, "at {begins}");
            assert!(!holds(&mut File::open(&path).expect("it is there"), b"libcudart").expect("reading"));
        }
        let _ = std::fs::remove_dir_all(folder);
    }
}
