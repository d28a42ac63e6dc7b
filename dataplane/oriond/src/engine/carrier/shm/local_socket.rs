//! The path of the local socket: who may have made the folder around it, what is in the way, whose it is at the end.

// UNSAFETY: flock, geteuid and kill.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use orion_transport::socket::{objection_to_folder, peer_credentials};

/// Who starts at the same time in the same folder is done with it by then.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// A socket that programs here find by its path.
pub struct LocalSocket {
    pub path: PathBuf,
    pub listener: UnixListener,
    /// Device and inode, by which it is told from a successor's.
    identity: (u64, u64),
}

impl LocalSocket {
    /// Listens at `path`. What a killed oriond left behind goes; anything else that is there stays, and is said.
    pub fn listen(path: &Path, is_for_all: bool) -> Result<LocalSocket, String> {
        let name = path.display();
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        make_folder(folder)?;
        // Held while this is going on, so that of two that start here neither removes what the other has just made.
        let _lock = lock(folder)?;
        match std::fs::symlink_metadata(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(format!("looking for {name} failed: {e}")),
            Ok(found) => remove_dead(path, &found)?,
        }
        let listener = UnixListener::bind(path).map_err(|e| format!("listening on {name} failed: {e}"))?;
        // Who may come in is decided by user and token.
        let mode = if is_for_all { 0o666 } else { 0o600 };
        let identity = std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
            .and_then(|()| std::fs::symlink_metadata(path))
            .map(|m| (m.dev(), m.ino()))
            .map_err(|e| format!("setting the permissions of {name} failed: {e}"))?;
        Ok(LocalSocket { path: path.to_owned(), listener, identity })
    }

    /// Takes the path away, if it still leads here. While this listens nobody else takes it for dead, so it has to be
    /// done before it stops listening.
    pub fn remove(&self) {
        let found = std::fs::symlink_metadata(&self.path).map(|m| (m.dev(), m.ino()));
        if found.is_ok_and(|found| found == self.identity) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn ours() -> u32 {
    // SAFETY: geteuid cannot fail.
    unsafe { libc::geteuid() }
}

/// Makes the folder, if it is missing, and refuses one in which somebody else could put a socket in place of ours.
fn make_folder(folder: &Path) -> Result<(), String> {
    let name = folder.display();
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    if let Err(e) = made
        && !folder.is_dir()
    {
        return Err(format!("creating {name} failed: {e}"));
    }
    let objection = objection_to_folder(folder)
        .map_err(|e| format!("opening {name} failed: {e}; it has to be a folder and no symbolic link"))?;
    match objection {
        None => Ok(()),
        Some(why) => Err(format!(
            "refusing to listen in {name}: {why}, so somebody else could put another server in the place of this one; \
             give --socket a path in a folder of your own"
        )),
    }
}

fn open_folder(folder: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(folder)
}

fn lock(folder: &Path) -> Result<File, String> {
    let file = open_folder(folder).map_err(|e| format!("opening {} failed: {e}", folder.display()))?;
    let start = Instant::now();
    loop {
        // SAFETY: a plain call on a descriptor we own.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
            return Ok(file);
        }
        if start.elapsed() >= LOCK_TIMEOUT {
            return Err(format!("another program holds a lock on {}; which one, `lslocks` says", folder.display()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether the process that listens there is dead. Its ring keeps the socket for some milliseconds beyond its end, and
/// whoever starts it again may be faster.
fn is_a_dead_ones(socket: &UnixStream) -> bool {
    let Ok(peer) = peer_credentials(socket.as_fd()) else { return false };
    // Of another namespace of processes there is no number.
    // SAFETY: asks only whether there is such a process.
    peer.pid > 0
        && unsafe { libc::kill(peer.pid, 0) } != 0
        && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

/// Removes a socket of ours on which nobody listens.
fn remove_dead(path: &Path, found: &Metadata) -> Result<(), String> {
    let name = path.display();
    if !found.file_type().is_socket() {
        return Err(format!("{name} is in the way and is no socket; give --socket another path, or move it"));
    }
    match UnixStream::connect(path) {
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Ok(socket) if !is_a_dead_ones(&socket) => {
            return Err(format!("another oriond listens on {name}; give this one its own --socket"));
        }
        Ok(_) => {}
        Err(e) => return Err(format!("finding out whether somebody listens on {name} failed: {e}")),
    }
    if found.uid() != ours() {
        return Err(format!(
            "{name} is a dead socket of user {}; remove it, or give --socket another path",
            found.uid()
        ));
    }
    std::fs::remove_file(path).map_err(|e| format!("removing the dead socket {name} failed: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str, mode: u32) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("orion-local-socket-{}-{name}", std::process::id()));
        std::fs::create_dir(&folder).expect("a new folder");
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(mode)).expect("chmod");
        folder
    }

    #[test]
    fn a_folder_that_others_rule_is_refused() {
        let shared = folder("shared", 0o777);
        let refused = LocalSocket::listen(&shared.join("s"), true).map(drop).unwrap_err();
        assert!(refused.contains("mode 0777"), "{refused}");
        std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o1777)).expect("chmod");
        LocalSocket::listen(&shared.join("s"), true).map(drop).expect("a sticky folder");
        let link = shared.join("link");
        std::os::unix::fs::symlink(&shared, &link).expect("linking");
        let refused = LocalSocket::listen(&link.join("s"), true).map(drop).unwrap_err();
        assert!(refused.contains("no symbolic link"), "{refused}");
        std::fs::remove_dir_all(&shared).expect("removing");
    }

    #[test]
    fn a_killed_one_s_socket_that_the_kernel_still_keeps_is_dead() {
        let folder = folder("kept", 0o700);
        let path = folder.join("s");
        let kept = UnixListener::bind(&path).expect("listening");
        // SAFETY: the child makes two system calls and no other.
        let status = unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::listen(kept.as_raw_fd(), 1);
                libc::_exit(0);
            }
            let mut status = 0;
            libc::waitpid(child, &mut status, 0);
            status
        };
        assert_eq!(status, 0);
        UnixStream::connect(&path).expect("the kernel still answers");
        LocalSocket::listen(&path, false).expect("who listened there is dead").remove();
        std::fs::remove_dir_all(&folder).expect("removing");
    }

    #[test]
    fn only_a_dead_socket_is_replaced_and_only_ones_own_removed() {
        let folder = folder("own", 0o700);
        let path = folder.join("s");
        std::fs::write(&path, "somebody's file").expect("writing");
        let refused = LocalSocket::listen(&path, false).map(drop).unwrap_err();
        assert!(refused.contains("no socket"), "{refused}");
        assert_eq!(std::fs::read(&path).expect("it is still there"), b"somebody's file");
        std::fs::remove_file(&path).expect("removing");
        let first = LocalSocket::listen(&path, false).expect("listening");
        let refused = LocalSocket::listen(&path, false).map(drop).unwrap_err();
        assert!(refused.contains("another oriond listens"), "{refused}");
        let LocalSocket { listener, identity, .. } = first;
        drop(listener);
        // Dead now, and replaced; the first one's end does not concern the second one's socket.
        let second = LocalSocket::listen(&path, false).expect("listening");
        let late = LocalSocket { path: path.clone(), listener: second.listener.try_clone().unwrap(), identity };
        if late.identity != second.identity {
            late.remove();
            assert!(path.exists());
        }
        second.remove();
        assert!(!path.exists());
        std::fs::remove_dir_all(&folder).expect("removing");
    }
}
