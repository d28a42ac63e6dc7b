//! Taking a process out of the host's namespaces: mounts, network, shared memory, host name, and /proc.

// UNSAFETY: system calls that make namespaces and mounts, some of them after fork.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::RawFd;
use std::ptr::null;
use std::sync::Arc;

/// Mount points below /proc. Container runtimes cover files there, and NVIDIA's puts others in their place: a new /proc
/// gets the same.
pub type Covered = Arc<[CString]>;

/// Descriptors of them that a child holds at once.
const COVERED_MAX: usize = 64;

/// What a call answered that answers zero, or -1 and errno.
pub fn done(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Mounts of its own, for this thread and what it forks.
///
/// # Safety
/// In a process or thread that does not mount for the host any more.
pub unsafe fn own_mounts() -> io::Result<()> {
    // SAFETY: plain calls with literals.
    unsafe {
        done(libc::unshare(libc::CLONE_NEWNS))?;
        // What the host mounts and unmounts later is seen, or a worker would keep a disk busy.
        done(libc::mount(null(), c"/".as_ptr(), null(), libc::MS_REC | libc::MS_SLAVE, null()))
    }
}

/// Network, /dev/shm, System V memory and host name of its own, for this thread and what it forks. In /dev/shm NVIDIA's
/// driver looks for a file that names a library to load, which anybody on the host could have made; in the network
/// namespace are the abstract sockets, on one of which it listens.
///
/// # Safety
/// In a process or thread that does not need the host's any more and has mounts of its own.
pub unsafe fn separate() -> io::Result<()> {
    // SAFETY: plain calls with literals.
    unsafe {
        done(libc::unshare(libc::CLONE_NEWIPC | libc::CLONE_NEWNET | libc::CLONE_NEWUTS))?;
        let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        let (kind, options) = (c"tmpfs".as_ptr(), c"size=16m,mode=1777".as_ptr());
        // A host without the folder has nothing to hide there.
        match done(libc::mount(kind, c"/dev/shm".as_ptr(), kind, flags, options.cast())) {
            Err(e) if e.raw_os_error() != Some(libc::ENOENT) => return Err(e),
            _ => {}
        }
        let name = "orion-worker";
        done(libc::sethostname(name.as_ptr().cast(), name.len()))
    }
}

/// A /proc of this process's pid namespace in place of the one there was. In that, threads have numbers by which they
/// cannot be called, and the processes of the whole machine are to be seen.
///
/// # Safety
/// In a process with mounts of its own. It makes system calls only.
pub unsafe fn mount_proc(covered: &[CString]) -> io::Result<()> {
    let mut held = [-1; COVERED_MAX];
    // SAFETY: literals, paths and descriptors of our own.
    unsafe {
        for (path, held) in covered.iter().zip(&mut held) {
            *held = copy_of_mount(path)?;
        }
        let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        let kind = c"proc".as_ptr();
        done(libc::mount(kind, c"/proc".as_ptr(), kind, flags, null()))?;
        for (path, held) in covered.iter().zip(held) {
            attach(held, path)?;
        }
    }
    Ok(())
}

unsafe fn copy_of_mount(path: &CStr) -> io::Result<RawFd> {
    let flags = libc::OPEN_TREE_CLONE
        | libc::OPEN_TREE_CLOEXEC
        | libc::AT_RECURSIVE as libc::c_uint
        | libc::AT_NO_AUTOMOUNT as libc::c_uint;
    // SAFETY: a path.
    match unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) } {
        -1 => Err(io::Error::last_os_error()),
        fd => Ok(fd as RawFd),
    }
}

unsafe fn attach(mount: RawFd, path: &CStr) -> io::Result<()> {
    let from_descriptor = libc::MOVE_MOUNT_F_EMPTY_PATH;
    // SAFETY: a descriptor of our own, and paths.
    unsafe {
        let (to, none) = (path.as_ptr(), c"".as_ptr());
        let moved = libc::syscall(libc::SYS_move_mount, mount, none, libc::AT_FDCWD, to, from_descriptor);
        done(moved as libc::c_int)?;
        done(libc::close(mount))
    }
}

/// What is mounted below /proc here.
pub fn covered() -> io::Result<Covered> {
    let found = covered_in(&std::fs::read_to_string("/proc/self/mountinfo")?);
    match found.len() {
        ..=COVERED_MAX => Ok(found.into()),
        count => Err(io::Error::other(format!("{count} files and folders of /proc are mount points"))),
    }
}

/// The outermost mount points below /proc, by the text of `/proc/PID/mountinfo`. What is mounted when somebody asks for
/// it, and what belongs to one process, is left out.
fn covered_in(mountinfo: &str) -> Vec<CString> {
    let mut found: Vec<Vec<u8>> = Vec::new();
    for line in mountinfo.lines() {
        let (fields, kind) = line.split_once(" - ").unwrap_or((line, ""));
        let Some(path) = fields.split(' ').nth(4).map(unescaped) else { continue };
        let Some(below) = path.strip_prefix(b"/proc/") else { continue };
        let is_of_a_process = below[0].is_ascii_digit() || below.starts_with(b"self") || below.starts_with(b"thread-");
        if !is_of_a_process && !kind.starts_with("autofs ") {
            found.push(path);
        }
    }
    found.sort();
    let is_below = |path: &[u8], other: &[u8]| path.strip_prefix(other).is_some_and(|rest| rest[0] == b'/');
    found.dedup();
    let outermost = found.iter().filter(|path| !found.iter().any(|other| other != *path && is_below(path, other)));
    outermost.filter_map(|path| CString::new(path.clone()).ok()).collect()
}

/// Spaces and the like are octal there: `\040`.
pub fn unescaped(field: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), field.as_bytes());
    while let Some((&first, behind)) = rest.split_first() {
        let octal = behind.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(|_| first == b'\\') {
            Some(byte) => (bytes.push(byte), rest = &behind[3..]).1,
            None => (bytes.push(first), rest = behind).1,
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_covers_files_of_proc_is_found_once() {
        let mounts = "\
            22 1 0:20 / / rw - ext4 /dev/vda rw\n\
            23 22 0:21 / /proc rw,nosuid shared:5 - proc proc rw\n\
            24 23 0:22 / /proc/sys/fs/binfmt_misc rw shared:6 - autofs systemd-1 rw,fd=29\n\
            25 23 0:23 / /proc/driver/nvidia rw - tmpfs tmpfs rw\n\
            26 25 0:21 /driver/nvidia/gpus/0 /proc/driver/nvidia/gpus/0 ro - proc proc rw\n\
            27 23 0:21 /sys /proc/sys ro - proc proc rw\n\
            28 23 0:24 / /proc/with\\040space rw - tmpfs tmpfs rw\n\
            29 23 0:25 / /proc/driver/nvidia-caps rw - tmpfs tmpfs rw\n\
            30 23 0:26 / /proc/1/attr rw - tmpfs tmpfs rw\n\
            31 22 0:27 / /process rw - tmpfs tmpfs rw\n";
        let expected = [c"/proc/driver/nvidia", c"/proc/driver/nvidia-caps", c"/proc/sys", c"/proc/with space"];
        assert_eq!(covered_in(mounts), expected.map(CString::from));
    }
}
