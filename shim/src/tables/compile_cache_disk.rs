//! Results of compilers as files: one a result, found by the hash of what it was made from.
//!
//! What is read here runs on the GPU, so nothing is believed but a regular file of this user, in a folder of this
//! user that nobody else may write to, which says which key it answers and whose bytes have the hash it states.
//! Nothing stays open between calls: programs close descriptors they do not know.

// UNSAFETY: calls of libc with folders' descriptors, so that names cannot come to mean something else in between.

use std::ffi::{CStr, CString};
use std::fs::{DirBuilder, File};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};

/// `[magic: 8][key: 32][SHA-256 of the data: 32][bytes of data, little endian: 8][data]`
const HEADER_BYTES: usize = 80;
/// The last byte is the format's version.
const MAGIC: [u8; 8] = *b"orioncc\x01";

/// What only the owner may write to has none of these bits.
const WRITABLE_BY_OTHERS: u32 = 0o022;
const UNFINISHED: &str = ".new-";
/// Whoever left such a file this long ago is not writing to it any more.
const UNFINISHED_S_MAX: u64 = 3600;
/// Writes of this process after which it looks again at what others wrote meanwhile.
const WRITES_BETWEEN_SCANS: u32 = 1024;

pub struct Disk {
    base: PathBuf,
    folder: CString,
    bytes_max: u64,
    owner: u32,
    /// Bytes of all files as far as this process knows, and its writes since it last looked.
    known: Mutex<Option<(u64, u32)>>,
}

impl Disk {
    /// Nothing is touched yet. The folder below `base` is ours, and one user's.
    pub fn new(base: PathBuf, bytes_max: u64) -> Disk {
        // SAFETY: cannot fail.
        Disk::of_user(base, bytes_max, unsafe { libc::geteuid() })
    }

    fn of_user(base: PathBuf, bytes_max: u64, owner: u32) -> Disk {
        let folder = CString::new(format!("orion-{owner}")).expect("digits have no NUL");
        Disk { base, folder, bytes_max, owner, known: Mutex::new(None) }
    }

    /// What is not ours, or not what was written, is removed and not there.
    pub fn read(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        let folder = match self.open_folder(false) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            folder => folder?,
        };
        let name = name_of(key);
        // Without waiting for the writer of a pipe that somebody put there.
        match open_at(&folder, &name, libc::O_RDONLY | libc::O_NONBLOCK) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) if e.raw_os_error() == Some(libc::ELOOP) => {
                remove(&folder, &name);
                Ok(None)
            }
            Err(e) => Err(e),
            Ok(file) => {
                let data = self.read_checked(file, key)?;
                if data.is_none() {
                    remove(&folder, &name);
                }
                Ok(data)
            }
        }
    }

    fn read_checked(&self, mut file: File, key: &Key) -> Result<Option<Vec<u8>>> {
        let found = file.metadata()?;
        let ours = found.is_file() && found.uid() == self.owner && found.mode() & WRITABLE_BY_OTHERS == 0;
        if !ours || found.size() < HEADER_BYTES as u64 || found.size() > self.bytes_max {
            return Ok(None);
        }
        let mut header = [0; HEADER_BYTES];
        file.read_exact(&mut header)?;
        let mut data = Vec::with_capacity(found.size() as usize - HEADER_BYTES);
        file.take(self.bytes_max).read_to_end(&mut data)?;
        Ok((header == header_of(key, &data)).then_some(data))
    }

    /// The whole file appears at once; what is too much for the disk's share is left out.
    pub fn write(&self, key: &Key, data: &[u8]) -> Result<()> {
        let bytes = (HEADER_BYTES + data.len()) as u64;
        if bytes > self.bytes_max {
            return Ok(());
        }
        let folder = self.open_folder(true)?;
        let unfinished = unfinished_name();
        let mut file = open_at(&folder, &unfinished, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL)?;
        let written = file
            .write_all(&header_of(key, data))
            .and_then(|()| file.write_all(data))
            .and_then(|()| rename(&folder, &unfinished, &name_of(key)));
        if let Err(e) = written {
            remove(&folder, &unfinished);
            return Err(e);
        }
        self.keep_to_limit(&folder, bytes)
    }

    fn keep_to_limit(&self, folder: &File, written_bytes: u64) -> Result<()> {
        // Another thread that looks will do; a child forked while it did must not wait for it.
        let Ok(mut known) = self.known.try_lock() else { return Ok(()) };
        let (bytes, writes) = match *known {
            Some((bytes, writes)) if writes < WRITES_BETWEEN_SCANS => (bytes + written_bytes, writes + 1),
            _ => (self.remove_oldest(folder, self.bytes_max)?, 0),
        };
        *known = Some((bytes, writes));
        if bytes > self.bytes_max {
            // Some room, so that the next write does not look again.
            *known = Some((self.remove_oldest(folder, self.bytes_max - self.bytes_max / 8)?, 0));
        }
        Ok(())
    }

    /// Answers how many bytes are left, at most `bytes_max`.
    fn remove_oldest(&self, folder: &File, bytes_max: u64) -> Result<u64> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let mut files = Vec::new();
        for name in names_in(folder)? {
            let Some(found) = status(folder, &name) else { continue };
            if name.as_bytes().starts_with(UNFINISHED.as_bytes())
                && (found.st_mtime as u64).saturating_add(UNFINISHED_S_MAX) < now
            {
                remove(folder, &name);
            } else if found.st_mode & libc::S_IFMT == libc::S_IFREG {
                files.push(((found.st_mtime, found.st_mtime_nsec), found.st_size as u64, name));
            }
        }
        files.sort();
        let mut bytes = files.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, file_bytes, name) in files {
            if bytes <= bytes_max {
                break;
            }
            remove(folder, &name);
            bytes -= file_bytes;
        }
        Ok(bytes)
    }

    fn open_folder(&self, create: bool) -> Result<File> {
        self.follow_no_foreign_links()?;
        if create {
            DirBuilder::new().recursive(true).mode(0o700).create(&self.base)?;
        }
        let flags = libc::O_PATH | libc::O_DIRECTORY;
        let base = File::options().read(true).custom_flags(flags).open(&self.base)?;
        if create {
            // SAFETY: an open folder and a C string.
            let failed = unsafe { libc::mkdirat(base.as_raw_fd(), self.folder.as_ptr(), 0o700) } != 0;
            let e = Error::last_os_error();
            if failed && e.kind() != ErrorKind::AlreadyExists {
                return Err(e);
            }
        }
        let folder = open_at(&base, &self.folder, libc::O_RDONLY | libc::O_DIRECTORY)?;
        let found = folder.metadata()?;
        if found.uid() != self.owner || found.mode() & WRITABLE_BY_OTHERS != 0 {
            return Err(Error::new(ErrorKind::PermissionDenied, "its folder is not this user's alone"));
        }
        Ok(folder)
    }

    fn follow_no_foreign_links(&self) -> Result<()> {
        for part in self.base.ancestors() {
            let Ok(found) = part.symlink_metadata() else { continue };
            if found.is_symlink() && found.uid() != self.owner && found.uid() != 0 {
                return Err(Error::new(ErrorKind::PermissionDenied, "a link on the way is another user's"));
            }
        }
        Ok(())
    }
}

fn name_of(key: &Key) -> CString {
    let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    CString::new(hex).expect("digits have no NUL")
}

/// No other process, thread or pid namespace takes the same, or its file is not opened.
fn unfinished_name() -> CString {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
    CString::new(format!("{UNFINISHED}{}-{now_ns}-{count}", std::process::id())).expect("digits have no NUL")
}

fn header_of(key: &Key, data: &[u8]) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&MAGIC);
    header[8..40].copy_from_slice(key);
    header[40..72].copy_from_slice(&sha256(data));
    header[72..].copy_from_slice(&(data.len() as u64).to_le_bytes());
    header
}

/// Never through a link.
fn open_at(folder: &File, name: &CStr, flags: i32) -> Result<File> {
    let flags = flags | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: an open folder and a C string; the mode is read where a file is created.
    let fd: RawFd = unsafe { libc::openat(folder.as_raw_fd(), name.as_ptr(), flags, 0o600) };
    if fd < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: just opened, nobody else's.
    Ok(unsafe { File::from_raw_fd(fd) })
}

fn rename(folder: &File, from: &CStr, to: &CStr) -> Result<()> {
    let fd = folder.as_raw_fd();
    // SAFETY: an open folder and C strings.
    if unsafe { libc::renameat(fd, from.as_ptr(), fd, to.as_ptr()) } != 0 {
        return Err(Error::last_os_error());
    }
    Ok(())
}

/// Somebody else may have been quicker.
fn remove(folder: &File, name: &CStr) {
    // SAFETY: an open folder and a C string.
    unsafe { libc::unlinkat(folder.as_raw_fd(), name.as_ptr(), 0) };
}

fn status(folder: &File, name: &CStr) -> Option<libc::stat> {
    let mut found = std::mem::MaybeUninit::uninit();
    let place = found.as_mut_ptr();
    // SAFETY: an open folder, a C string, and a place for what is found.
    let failed = unsafe { libc::fstatat(folder.as_raw_fd(), name.as_ptr(), place, libc::AT_SYMLINK_NOFOLLOW) } != 0;
    // SAFETY: written, as the call did not fail.
    (!failed).then(|| unsafe { found.assume_init() })
}

fn names_in(folder: &File) -> Result<Vec<CString>> {
    // Another description, as reading moves its position; `closedir` closes it.
    let fd = open_at(folder, c".", libc::O_RDONLY | libc::O_DIRECTORY)?.into_raw_fd();
    // SAFETY: an open folder that is nobody else's.
    let stream = unsafe { libc::fdopendir(fd) };
    if stream.is_null() {
        let e = Error::last_os_error();
        // SAFETY: not taken over.
        drop(unsafe { File::from_raw_fd(fd) });
        return Err(e);
    }
    let mut names = Vec::new();
    // SAFETY: an open stream that only this thread reads; its answer is valid until the next call.
    while let Some(entry) = unsafe { libc::readdir(stream).as_ref() } {
        // SAFETY: ends with a NUL inside the entry.
        let name = unsafe { CStr::from_ptr(entry.d_name.as_ptr()) };
        if name != c"." && name != c".." {
            names.push(name.to_owned());
        }
    }
    // SAFETY: open, and not used afterwards.
    unsafe { libc::closedir(stream) };
    Ok(names)
}

pub type Key = [u8; 32];

pub fn sha256(data: &[u8]) -> [u8; 32] {
    Sha256::digest(data).into()
}

#[cfg(test)]
pub mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    use std::path::Path;

    use super::*;

    /// Removed with all that is in it.
    pub struct Folder(pub PathBuf);

    impl Folder {
        pub fn new() -> Folder {
            static COUNT: AtomicU64 = AtomicU64::new(0);
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("orion-compile-cache-{}-{count}", std::process::id()));
            std::fs::create_dir(&path).unwrap();
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn user() -> u32 {
        // SAFETY: cannot fail.
        unsafe { libc::geteuid() }
    }

    const KEY: Key = [0xab; 32];
    const LARGE: u64 = 1 << 20;

    fn files(base: &Path) -> Vec<PathBuf> {
        let folder = base.join(format!("orion-{}", user()));
        let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
        files.sort();
        files
    }

    /// A disk with one entry, and the entry's file.
    fn with_one_entry() -> (Folder, Disk, PathBuf) {
        let folder = Folder::new();
        let disk = Disk::new(folder.0.clone(), LARGE);
        disk.write(&KEY, b"kernel").unwrap();
        let [file] = files(&folder.0).try_into().unwrap();
        (folder, disk, file)
    }

    #[test]
    fn files_are_for_their_user_only() {
        let (folder, disk, file) = with_one_entry();
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
        assert_eq!((mode(file.parent().unwrap()), mode(&file)), (0o700, 0o600));
        assert_eq!(file.file_name().unwrap().to_str().unwrap(), "ab".repeat(32));
        assert_eq!(disk.read(&KEY).unwrap().unwrap(), b"kernel");
        // Of another group at most to be read.
        std::fs::set_permissions(file.parent().unwrap(), PermissionsExt::from_mode(0o770)).unwrap();
        assert_eq!(disk.read(&KEY).unwrap_err().kind(), ErrorKind::PermissionDenied);
        assert_eq!(disk.write(&KEY, b"kernel").unwrap_err().kind(), ErrorKind::PermissionDenied);
        assert_eq!(files(&folder.0).len(), 1);
    }

    #[test]
    fn damaged_files_are_not_believed_and_removed() {
        let damages: [fn(&mut Vec<u8>); 8] = [
            |bytes| bytes[7] += 1,
            |bytes| bytes[8] ^= 1,
            |bytes| bytes[40] ^= 1,
            |bytes| bytes[72] += 1,
            |bytes| *bytes.last_mut().unwrap() ^= 1,
            |bytes| bytes.push(0),
            |bytes| bytes.truncate(HEADER_BYTES + 3),
            |bytes| bytes.clear(),
        ];
        let (_folder, disk, file) = with_one_entry();
        let good = std::fs::read(&file).unwrap();
        for (index, damage) in damages.iter().enumerate() {
            let mut bytes = good.clone();
            damage(&mut bytes);
            std::fs::write(&file, bytes).unwrap();
            assert_eq!(disk.read(&KEY).unwrap(), None, "damage {index}");
            assert!(!file.exists(), "damage {index}");
            disk.write(&KEY, b"kernel").unwrap();
            assert_eq!(disk.read(&KEY).unwrap().unwrap(), b"kernel");
        }
        // A sound file under another's name.
        let other = [0xcd; 32];
        std::fs::rename(&file, file.with_file_name("cd".repeat(32))).unwrap();
        assert_eq!(disk.read(&other).unwrap(), None);
        assert_eq!(disk.read(&KEY).unwrap(), None);
    }

    #[test]
    fn what_is_not_a_file_of_this_user_is_not_believed() {
        let (folder, disk, file) = with_one_entry();
        let kept = folder.0.join("kept");
        std::fs::rename(&file, &kept).unwrap();
        symlink(&kept, &file).unwrap();
        assert_eq!(disk.read(&KEY).unwrap(), None);
        assert!(file.symlink_metadata().is_err());
        std::fs::copy(&kept, &file).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o620)).unwrap();
        assert_eq!(disk.read(&KEY).unwrap(), None);
        std::fs::create_dir(&file).unwrap();
        assert_eq!(disk.read(&KEY).unwrap(), None);
        std::fs::remove_dir(&file).unwrap();
        let path = CString::new(file.to_str().unwrap()).unwrap();
        // SAFETY: a C string.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
        assert_eq!(disk.read(&KEY).unwrap(), None);
        if user() == 0 {
            std::fs::copy(&kept, &file).unwrap();
            std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
            assert!(disk.read(&KEY).unwrap().is_some());
            chown(&file, Some(65534), None).unwrap();
            assert_eq!(disk.read(&KEY).unwrap(), None);
            assert!(!file.exists());
        }
    }

    #[test]
    fn folders_and_links_of_another_user_are_not_used() {
        let (folder, _, file) = with_one_entry();
        // Whoever this process is, it is not the user after it.
        let mut stranger = Disk::of_user(folder.0.clone(), LARGE, user() + 1);
        stranger.folder = CString::new(format!("orion-{}", user())).unwrap();
        assert_eq!(stranger.read(&KEY).unwrap_err().kind(), ErrorKind::PermissionDenied);
        assert_eq!(stranger.write(&KEY, b"theirs").unwrap_err().kind(), ErrorKind::PermissionDenied);
        assert!(file.exists());
        let link = Folder::new();
        let (ours, theirs) = (link.0.join("ours"), link.0.join("theirs"));
        symlink(&folder.0, &ours).unwrap();
        assert!(Disk::new(ours.clone(), LARGE).read(&KEY).unwrap().is_some());
        symlink(&folder.0, &theirs).unwrap();
        if user() == 0 {
            std::os::unix::fs::lchown(&theirs, Some(65534), None).unwrap();
            let below = theirs.join("below");
            for base in [theirs, below] {
                let disk = Disk::new(base, LARGE);
                assert_eq!(disk.write(&KEY, b"theirs").unwrap_err().kind(), ErrorKind::PermissionDenied);
            }
        }
        // In place of the folder itself not even a link of one's own.
        let disk = Disk::new(link.0.clone(), LARGE);
        symlink(file.parent().unwrap(), link.0.join(format!("orion-{}", user()))).unwrap();
        assert!(disk.read(&KEY).is_err() && disk.write(&KEY, b"mine").is_err());
    }

    #[test]
    fn the_oldest_go_when_there_is_no_room() {
        let folder = Folder::new();
        let entry_bytes = (HEADER_BYTES + 1000) as u64;
        let disk = Disk::new(folder.0.clone(), 10 * entry_bytes);
        let key = |i: u8| [i; 32];
        for i in 0..25 {
            disk.write(&key(i), &[i; 1000]).unwrap();
            assert!(files(&folder.0).len() <= 10);
            // Times of files are only as fine as the kernel's tick.
            let file = File::options()
                .write(true)
                .open(files(&folder.0).iter().find(|f| f.ends_with(format!("{i:02x}").repeat(32))).unwrap())
                .unwrap();
            file.set_modified(UNIX_EPOCH + std::time::Duration::from_secs(1_000_000 + i as u64)).unwrap();
        }
        let left: Vec<u8> = (0..25).filter(|i| disk.read(&key(*i)).unwrap().is_some()).collect();
        assert!(left.len() >= 8, "{left:?}");
        assert_eq!(left, (25 - left.len() as u8..25).collect::<Vec<_>>());
        // Larger than all the room.
        disk.write(&key(77), &[0; 11_000]).unwrap();
        assert_eq!(disk.read(&key(77)).unwrap(), None);
        assert_eq!(files(&folder.0).len(), left.len());
    }

    #[test]
    fn another_process_that_has_less_room_makes_it() {
        let folder = Folder::new();
        let large = Disk::new(folder.0.clone(), LARGE);
        for i in 0..20 {
            large.write(&[i; 32], &[i; 1000]).unwrap();
        }
        let stale = files(&folder.0)[0].with_file_name(format!("{UNFINISHED}1-1-1"));
        let fresh = stale.with_file_name(format!("{UNFINISHED}2-2-2"));
        std::fs::write(&stale, "abandoned").unwrap();
        std::fs::write(&fresh, "being written").unwrap();
        File::options().write(true).open(&stale).unwrap().set_modified(UNIX_EPOCH).unwrap();
        Disk::new(folder.0.clone(), 5 * 1080 + 13).write(&[99; 32], &[9; 1000]).unwrap();
        assert!(!stale.exists() && fresh.exists());
        assert_eq!(files(&folder.0).len(), 5 + 1);
        assert!(large.read(&[99; 32]).unwrap().is_some());
    }

    /// Runs itself twice more, as the two processes.
    #[test]
    fn two_processes_write_one_key() {
        const VARIABLE: &str = "ORION_TEST_COMPILE_CACHE";
        let results = [vec![1; 200_000], vec![2; 300_000]];
        if let Some(base) = std::env::var_os(VARIABLE) {
            let disk = Disk::new(base.into(), LARGE);
            for i in 0..300 {
                disk.write(&KEY, &results[i % 2]).unwrap();
                assert!(results.contains(&disk.read(&KEY).unwrap().expect("always there")));
            }
            return;
        }
        let folder = Folder::new();
        let (_, module) = module_path!().split_once("::").unwrap();
        let name = format!("{module}::two_processes_write_one_key");
        let processes: Vec<_> = (0..2)
            .map(|_| {
                let mut command = std::process::Command::new(std::env::current_exe().unwrap());
                command.args(["--exact", &name]).env(VARIABLE, &folder.0).stdout(std::process::Stdio::null());
                command.spawn().unwrap()
            })
            .collect();
        for mut process in processes {
            assert!(process.wait().unwrap().success());
        }
        assert_eq!(files(&folder.0).len(), 1);
        assert!(results.contains(&Disk::new(folder.0.clone(), LARGE).read(&KEY).unwrap().unwrap()));
    }
}
