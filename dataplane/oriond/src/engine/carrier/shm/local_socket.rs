//! The path of the local socket: who may have made the folder around it, what is in the way, whose it is at the end.

// UNSAFETY: flock, geteuid and kill.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, lchown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use orion_transport::socket::{connect_local, objection_to_folder, peer_credentials};

/// Who starts at the same time in the same folder is done with it by then.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// Who listens on the path and takes nobody in for so long is there all the same.
const QUEUE_SECONDS_MAX: u64 = 1;

/// Who may open a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum For {
    Us,
    All,
    /// We, and who is in this group. The socket stays ours, so that we know it again after we were killed.
    Group(u32),
}

/// A socket that programs here find by its path.
pub struct LocalSocket {
    pub path: PathBuf,
    pub listener: UnixListener,
    /// Device and inode, by which it is told from a successor's.
    identity: (u64, u64),
}

impl LocalSocket {
    /// Listens at `path`. What a killed oriond left behind goes; anything else that is there stays, and is said.
    pub fn listen(path: &Path, whom: For) -> Result<LocalSocket, String> {
        let name = path.display();
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        make_folder(folder, whom)?;
        // Held while this is going on, so that of two that start here neither removes what the other has just made.
        let _lock = Lock::take(path)?;
        match std::fs::symlink_metadata(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(format!("looking for {name} failed: {e}")),
            Ok(found) => remove_dead(path, &found)?,
        }
        let listener = UnixListener::bind(path).map_err(|e| format!("listening on {name} failed: {e}"))?;
        let identity = std::fs::symlink_metadata(path)
            .map(|m| (m.dev(), m.ino()))
            .map_err(|e| format!("looking at {name} failed: {e}"))?;
        let socket = LocalSocket { path: path.to_owned(), listener, identity };
        socket.open_to(whom).inspect_err(|_| socket.remove())?;
        Ok(socket)
    }

    fn open_to(&self, whom: For) -> Result<(), String> {
        let name = self.path.display();
        let mode = match whom {
            For::Us => 0o600,
            // Who may come in is decided by user and token.
            For::All => 0o666,
            For::Group(group) => {
                lchown(&self.path, None, Some(group))
                    .map_err(|e| format!("giving {name} to group {group} failed: {e}; only root gives to any group"))?;
                0o660
            }
        };
        std::fs::set_permissions(&self.path, std::fs::Permissions::from_mode(mode))
            .map_err(|e| format!("setting the permissions of {name} failed: {e}"))
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

/// Makes the folder, if it is missing, and refuses one in which somebody else could put a socket in place of ours, or
/// through which those do not get whom the socket is for.
fn make_folder(folder: &Path, whom: For) -> Result<(), String> {
    let name = folder.display();
    // Who knows the name of what is in it gets there.
    let mode = if let For::Group(_) = whom { 0o711 } else { 0o700 };
    let made = std::fs::DirBuilder::new().recursive(true).mode(mode).create(folder);
    if let Err(e) = made
        && !folder.is_dir()
    {
        return Err(format!("creating {name} failed: {e}"));
    }
    let objection = objection_to_folder(folder)
        .map_err(|e| format!("opening {name} failed: {e}; it has to be a folder and no symbolic link"))?;
    if let Some(why) = objection {
        return Err(format!(
            "refusing to listen in {name}: {why}, so somebody else could put another server in the place of this one; \
             give --socket a path in a folder of your own"
        ));
    }
    let For::Group(group) = whom else { return Ok(()) };
    let found = std::fs::metadata(folder).map_err(|e| format!("looking at {name} failed: {e}"))?;
    let passes = if found.gid() == group { 0o010 } else { 0o001 };
    match found.mode() & passes {
        0 => Err(format!(
            "{name} lets nobody of group {group} through (mode {:04o}); `chmod o+x {name}`, or give another folder",
            found.mode() & 0o7777
        )),
        _ => Ok(()),
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

    /// A socket that was closed is one that a killed server has left. A program that another test starts meanwhile has
    /// a copy of it between fork and exec.
    fn wait_till_dead(path: &Path) {
        let start = Instant::now();
        while UnixStream::connect(path).is_ok() {
            assert!(start.elapsed() < Duration::from_secs(10), "somebody listens on {}", path.display());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_folder_that_others_rule_is_refused() {
        let shared = folder("shared", 0o777);
        let refused = LocalSocket::listen(&shared.join("s"), For::All).map(drop).unwrap_err();
        assert!(refused.contains("mode 0777"), "{refused}");
        std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o1777)).expect("chmod");
        LocalSocket::listen(&shared.join("s"), For::All).map(drop).expect("a sticky folder");
        let link = shared.join("link");
        std::os::unix::fs::symlink(&shared, &link).expect("linking");
        let refused = LocalSocket::listen(&link.join("s"), For::All).map(drop).unwrap_err();
        assert!(refused.contains("no symbolic link"), "{refused}");
        std::fs::remove_dir_all(&shared).expect("removing");
    }

    #[test]
    fn a_group_gets_to_its_socket_or_it_is_said_that_it_does_not() {
        // SAFETY: getegid cannot fail.
        let group = unsafe { libc::getegid() };
        let mode = |path: &Path| std::fs::metadata(path).map(|m| (m.mode() & 0o7777, m.gid())).expect("it is there");
        let outer = folder("group", 0o711);
        let made = outer.join("made");
        let path = made.join("s");
        drop(LocalSocket::listen(&path, For::Group(group)).expect("a new folder"));
        wait_till_dead(&path);
        let socket = LocalSocket::listen(&path, For::Group(group)).expect("in place of a dead one");
        assert_eq!(mode(&path), (0o660, group));
        assert_eq!(mode(&made).0, 0o711);
        socket.remove();
        std::fs::set_permissions(&made, std::fs::Permissions::from_mode(0o700)).expect("chmod");
        let refused = LocalSocket::listen(&path, For::Group(group)).map(drop).unwrap_err();
        assert!(refused.contains("through (mode 0700); `chmod o+x "), "{refused}");
        std::fs::set_permissions(&made, std::fs::Permissions::from_mode(0o710)).expect("chmod");
        LocalSocket::listen(&path, For::Group(group)).expect("the folder is the group's").remove();
        std::fs::remove_dir_all(&outer).expect("removing");
    }

    /// /run/orion is a folder that everybody may read.
    #[test]
    fn whoever_may_read_the_folder_keeps_nobody_from_listening_there() {
        let folder = folder("locked", 0o755);
        let theirs = File::open(&folder).expect("a folder that everybody may open");
        // SAFETY: a plain call on a descriptor we own.
        assert_eq!(unsafe { libc::flock(theirs.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) }, 0);
        LocalSocket::listen(&folder.join("s"), For::All).expect("nobody else starts here").remove();
        assert_eq!(std::fs::read_dir(&folder).expect("it is there").count(), 0, "the lock's file has stayed");
        std::fs::remove_dir_all(&folder).expect("removing");
    }

    #[test]
    fn of_many_that_listen_at_once_in_place_of_a_dead_one_one_does() {
        let folder = folder("many", 0o700);
        let path = folder.join("s");
        for _ in 0..20 {
            drop(UnixListener::bind(&path).expect("listening"));
            wait_till_dead(&path);
            let listen = || LocalSocket::listen(&path, For::Us).ok();
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
        let refused = LocalSocket::listen(&path, For::All).map(drop).unwrap_err();
        assert!(refused.contains("s.lock failed") && refused.contains("--socket"), "{refused}");
        assert!(!folder.join("elsewhere").exists());
        std::fs::remove_file(&lock).expect("removing");
        std::fs::write(&lock, "").expect("writing");
        std::fs::set_permissions(&lock, std::fs::Permissions::from_mode(0o644)).expect("chmod");
        let refused = LocalSocket::listen(&path, For::All).map(drop).unwrap_err();
        assert!(refused.contains("in the way (mode 0644"), "{refused}");
        // As one that was killed leaves it.
        std::fs::set_permissions(&lock, std::fs::Permissions::from_mode(0o600)).expect("chmod");
        LocalSocket::listen(&path, For::All).expect("nobody holds it").remove();
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
        LocalSocket::listen(&path, For::Us).expect("who listened there is dead").remove();
        std::fs::remove_dir_all(&folder).expect("removing");
    }

    #[test]
    fn only_a_dead_socket_is_replaced_and_only_ones_own_removed() {
        let folder = folder("own", 0o700);
        let path = folder.join("s");
        std::fs::write(&path, "somebody's file").expect("writing");
        let refused = LocalSocket::listen(&path, For::Us).map(drop).unwrap_err();
        assert!(refused.contains("no socket"), "{refused}");
        assert_eq!(std::fs::read(&path).expect("it is still there"), b"somebody's file");
        std::fs::remove_file(&path).expect("removing");
        let first = LocalSocket::listen(&path, For::Us).expect("listening");
        let refused = LocalSocket::listen(&path, For::Us).map(drop).unwrap_err();
        assert!(refused.contains("another oriond listens"), "{refused}");
        let LocalSocket { listener, identity, .. } = first;
        drop(listener);
        // Dead now, and replaced; the first one's end does not concern the second one's socket.
        let second = LocalSocket::listen(&path, For::Us).expect("listening");
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
