//! The path of the local socket: who may have made the folder around it, what is in the way, whose it is at the end.

// UNSAFETY: flock, geteuid and kill.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use orion_transport::socket::{connect_local, objection_to_folder, peer_credentials};

/// Who starts at the same time in the same folder is done with it by then.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// Who listens on the path and takes nobody in for so long is there all the same.
const QUEUE_SECONDS_MAX: u64 = 1;

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
        let _lock = Lock::take(path)?;
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

/// A file beside the socket, for whoever starts there at the same time. It is nobody else's to open: a lock on the
/// folder would be everybody's who may read it, and who takes it keeps a server from being started again.
struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    fn take(socket: &Path) -> Result<Lock, String> {
        let mut path = socket.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        let start = Instant::now();
        loop {
            let file = open_lock(&path)?;
            // SAFETY: a plain call on a descriptor we own.
            let is_ours = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0;
            // Whoever had it before has removed it, so it may be a file that nobody else finds.
            if is_ours && is_at(&path, &file) {
                return Ok(Lock { path, _file: file });
            }
            if start.elapsed() >= LOCK_TIMEOUT {
                return Err(format!("another program holds a lock on {}; which one, `lslocks` says", path.display()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Lock {
    /// While it is held: who waits for it looks whether it is still there.
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn open_lock(path: &Path) -> Result<File, String> {
    let name = path.display();
    // A pipe of that name would be waited for.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let mut options = OpenOptions::new();
    let opened = options.read(true).write(true).create(true).mode(0o600).custom_flags(flags).open(path);
    let advice = "it is locked while a server starts; remove it, or give --socket a path in a folder of your own";
    let file = opened.map_err(|e| format!("opening {name} failed: {e}; {advice}"))?;
    let found = file.metadata().map_err(|e| format!("looking at {name} failed: {e}"))?;
    if !found.is_file() || found.uid() != ours() || found.mode() & 0o077 != 0 {
        let mode = found.mode() & 0o7777;
        return Err(format!("{name} is in the way (mode {mode:04o}, of user {}); {advice}", found.uid()));
    }
    Ok(file)
}

fn is_at(path: &Path, file: &File) -> bool {
    let identity = |found: io::Result<Metadata>| found.map(|m| (m.dev(), m.ino())).ok();
    identity(file.metadata()).is_some_and(|of| Some(of) == identity(std::fs::symlink_metadata(path)))
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
    match connect_local(path, QUEUE_SECONDS_MAX) {
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

    /// /run/orion is a folder that everybody may read.
    #[test]
    fn whoever_may_read_the_folder_keeps_nobody_from_listening_there() {
        let folder = folder("locked", 0o755);
        let theirs = File::open(&folder).expect("a folder that everybody may open");
        // SAFETY: a plain call on a descriptor we own.
        assert_eq!(unsafe { libc::flock(theirs.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) }, 0);
        LocalSocket::listen(&folder.join("s"), true).expect("nobody else starts here").remove();
        assert_eq!(std::fs::read_dir(&folder).expect("it is there").count(), 0, "the lock's file has stayed");
        std::fs::remove_dir_all(&folder).expect("removing");
    }

    #[test]
    fn of_many_that_listen_at_once_in_place_of_a_dead_one_one_does() {
        let folder = folder("many", 0o700);
        let path = folder.join("s");
        for _ in 0..20 {
            drop(UnixListener::bind(&path).expect("listening"));
            let listen = || LocalSocket::listen(&path, false).ok();
            let all: Vec<_> = std::thread::scope(|scope| {
                let all: Vec<_> = (0..4).map(|_| scope.spawn(listen)).collect();
                all.into_iter().filter_map(|one| one.join().expect("no panic")).collect()
            });
            assert_eq!(all.len(), 1);
            UnixStream::connect(&path).expect("the one that listens is found");
            all[0].remove();
        }
        assert_eq!(std::fs::read_dir(&folder).expect("it is there").count(), 0, "the lock's file has stayed");
        std::fs::remove_dir_all(&folder).expect("removing");
    }

    #[test]
    fn what_is_no_lock_of_ours_is_refused() {
        let folder = folder("squat", 0o700);
        let (path, lock) = (folder.join("s"), folder.join("s.lock"));
        std::os::unix::fs::symlink(folder.join("elsewhere"), &lock).expect("linking");
        let refused = LocalSocket::listen(&path, true).map(drop).unwrap_err();
        assert!(refused.contains("s.lock failed") && refused.contains("--socket"), "{refused}");
        assert!(!folder.join("elsewhere").exists());
        std::fs::remove_file(&lock).expect("removing");
        std::fs::write(&lock, "").expect("writing");
        std::fs::set_permissions(&lock, std::fs::Permissions::from_mode(0o644)).expect("chmod");
        let refused = LocalSocket::listen(&path, true).map(drop).unwrap_err();
        assert!(refused.contains("in the way (mode 0644"), "{refused}");
        // As one that was killed leaves it.
        std::fs::set_permissions(&lock, std::fs::Permissions::from_mode(0o600)).expect("chmod");
        LocalSocket::listen(&path, true).expect("nobody holds it").remove();
        std::fs::remove_dir_all(&folder).expect("removing");
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
