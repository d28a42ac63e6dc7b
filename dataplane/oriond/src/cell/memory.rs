//! A memory cgroup for each worker: what host memory it may come to have, kept by the kernel. What a thread of the
//! worker counts (`worker/budget.rs`) ends whoever means no harm earlier, and in better words.
//!
//! ```text
//! v1                    v2, alone in its group         v2, else
//! OWN   oriond          OWN                            ROOT
//!  └ orion-PID           ├ oriond   moved there         ├ … OWN   oriond
//!     ├ worker-1         └ orion-PID                    └ orion-PID
//!     └ worker-2            ├ worker-1                     ├ worker-1
//! ```
//! In version 2 a group that has controllers for its children has no processes itself. oriond keeps `orion-PID` locked
//! while it lives: what no process has locked was left by an oriond that was killed, and the next one removes it. A
//! number would not tell that, as another namespace or a later process may have the same.

// UNSAFETY: locks a folder, ends processes by number, and writes to a descriptor between fork and exec.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use orion_ring::memory::HEAP_OFFSET;
use tracing::{info, warn};

use super::separate::unescaped;

/// Beyond what a session is known to need: libraries that load late, sockets, the kernel's own for its threads and
/// descriptors.
const LEEWAY: u64 = 256 << 20;
/// Entries of page tables, 8 bytes a page of 4 KiB: the worker maps its heap twice.
const BYTES_PER_BYTE_OF_TABLES: u64 = 256;
/// A kernel gives up when the next few pages do not fit.
const NEAR: u64 = 1 << 20;
/// What any kernel takes for a number of bytes.
const LIMIT_MAX: u64 = 1 << 62;
/// Others of our number that another namespace may have.
const FOLDERS_MAX: u32 = 16;
/// The last of a process's group goes a moment after the process.
const REMOVAL_MAX: Duration = Duration::from_millis(20);
/// The same, of several: of an oriond that has just been killed, and of this one when it ends.
const PURGE_MAX: Duration = Duration::from_secs(2);
const RETRY_INTERVAL: Duration = Duration::from_millis(1);
/// oriond's own, beside its workers'.
const LEAF: &str = "oriond";

/// What an operator lets a session have, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Allowance {
    /// `--heap`, which the worker may be the first to touch.
    pub heap: u64,
    /// `--host-memory`.
    pub host_memory: u64,
}

impl Allowance {
    /// What a worker may take beyond what it has when its session begins. Half of --host-memory more than that, so that
    /// the worker itself, which counts that ten times a second, is first to object. `lent` is a guest's memory that the
    /// session lies in, `device` what the software GPU calls device memory.
    pub fn bytes(self, lent: u64, device: u64) -> u64 {
        let shared = self.heap.max(lent).saturating_add(device).saturating_add(HEAP_OFFSET);
        let own = self.host_memory.saturating_add(self.host_memory / 2).saturating_add(LEEWAY);
        shared.saturating_add(shared / BYTES_PER_BYTE_OF_TABLES).saturating_add(own)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// How a group's files are called. A count is a line's, or the file's where no word names it.
#[derive(Debug)]
struct Names {
    limit: &'static str,
    /// Kernels that do not account for swap have no such files.
    limit_of_swap: &'static str,
    used: &'static str,
    used_of_swap: &'static str,
    /// Of processes that were ended for want of memory, the machine's too.
    ended: (&'static str, &'static str),
    reached: Reached,
}

/// How to tell that a group's own limit was met, and not the machine's.
#[derive(Debug, Clone, Copy)]
enum Reached {
    /// How often it was.
    Counted((&'static str, &'static str)),
    /// The most that the group ever had. How often, Linux 6.18 does not count for memory and swap together.
    Most(&'static [&'static str]),
}

impl Version {
    fn names(self) -> &'static Names {
        match self {
            Version::V1 => &Names {
                limit: "memory.limit_in_bytes",
                limit_of_swap: "memory.memsw.limit_in_bytes",
                used: "memory.usage_in_bytes",
                used_of_swap: "memory.memsw.usage_in_bytes",
                ended: ("memory.oom_control", "oom_kill"),
                reached: Reached::Most(&["memory.memsw.max_usage_in_bytes", "memory.max_usage_in_bytes"]),
            },
            Version::V2 => &Names {
                limit: "memory.max",
                limit_of_swap: "memory.swap.max",
                used: "memory.current",
                used_of_swap: "memory.swap.current",
                ended: ("memory.events", "oom_kill"),
                reached: Reached::Counted(("memory.events", "oom")),
            },
        }
    }
}

/// Where this process is among the machine's groups, as far as it sees them.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    version: Version,
    root: PathBuf,
    own: PathBuf,
}

/// By the texts of `/proc/self/cgroup` and `/proc/self/mountinfo`.
fn place_in(cgroup: &str, mountinfo: &str) -> Result<Place, String> {
    let of = |line: &str| {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let has_memory = controllers.split(',').any(|name| name == "memory");
        let is_v2 = number == "0" && controllers.is_empty();
        (has_memory || is_v2).then(|| (if has_memory { Version::V1 } else { Version::V2 }, path.to_owned()))
    };
    // Where version 1 has the controller, version 2 has not.
    let mut all: Vec<(Version, String)> = cgroup.lines().filter_map(of).collect();
    all.sort_by_key(|(version, _)| *version == Version::V2);
    let (version, path) = all.into_iter().next().ok_or("the kernel has no memory cgroups (CONFIG_MEMCG)")?;
    let mount = |line: &str| {
        let (fields, kind) = line.split_once(" - ")?;
        let (mut fields, mut kind) = (fields.split(' ').skip(3), kind.split(' '));
        let (root, at) = (text(fields.next()?), text(fields.next()?));
        let (name, options) = (kind.next()?, kind.nth(1)?);
        let fits = match version {
            Version::V1 => name == "cgroup" && options.split(',').any(|option| option == "memory"),
            Version::V2 => name == "cgroup2",
        };
        // What is mounted may be a part, in a container its own.
        let below = if root == "/" { Some(path.as_str()) } else { path.strip_prefix(root.as_str()) };
        let below = below.filter(|below| below.is_empty() || below.starts_with('/'))?.trim_start_matches('/');
        (fits && !below.split('/').any(|part| part == "..")).then(|| Place {
            version,
            own: if below.is_empty() { PathBuf::from(&at) } else { Path::new(&at).join(below) },
            root: at.into(),
        })
    };
    mountinfo.lines().find_map(mount).ok_or_else(|| {
        let kind = if version == Version::V1 { "cgroup with memory" } else { "cgroup2" };
        format!("oriond's memory cgroup {path:?} is below no mount of {kind}; mount that at /sys/fs/cgroup")
    })
}

fn text(field: &str) -> String {
    String::from_utf8_lossy(&unescaped(field)).into_owned()
}

/// oriond was moved out of its group, to make room for others beside it.
#[derive(Debug)]
struct Home {
    own: PathBuf,
}

impl Home {
    /// Of version 2, if nobody else is in the group.
    fn leave(own: &Path) -> io::Result<Home> {
        let leaf = own.join(LEAF);
        match fs::create_dir(&leaf) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
        let home = Home { own: own.to_owned() };
        let left = put(&leaf.join("cgroup.procs"), "0");
        left.and_then(|()| put(&own.join("cgroup.subtree_control"), "+memory")).inspect_err(|_| home.come_back())?;
        Ok(home)
    }

    /// What cannot be undone is said; whoever manages the group removes it then.
    fn come_back(&self) {
        let undone = put(&self.own.join("cgroup.subtree_control"), "-memory")
            .and_then(|()| put(&self.own.join("cgroup.procs"), "0"))
            // Threads that are about to end are not moved.
            .and_then(|()| within(PURGE_MAX, || fs::remove_dir(self.own.join(LEAF))));
        if let Err(e) = undone {
            warn!(cgroup = %self.own.display(), error = %e, "going back to oriond's own cgroup failed");
        }
    }
}

/// Where oriond makes groups for its workers.
#[derive(Debug)]
pub struct Groups {
    version: Version,
    folder: PathBuf,
    _lock: File,
    home: Option<Home>,
    made: AtomicU64,
    /// Of workers that have ended, which were still busy then: on a loaded machine for longer than anybody waits.
    left: Mutex<Vec<PathBuf>>,
    has_ended: AtomicBool,
}

impl Groups {
    /// The error says what is lacking, and what to do.
    pub fn open() -> Result<Arc<Groups>, String> {
        let read = |path: &str| {
            let bytes = fs::read(path).map_err(|e| format!("reading {path} failed: {e}"))?;
            Ok::<_, String>(String::from_utf8_lossy(&bytes).into_owned())
        };
        let place = place_in(&read("/proc/self/cgroup")?, &read("/proc/self/mountinfo")?)?;
        let failed = |e: io::Error| {
            format!(
                "making a memory cgroup below {} failed: {e}; it takes root, and in a container cgroups that can be \
                 written to",
                place.own.display()
            )
        };
        let (base, home) = match place.version {
            Version::V1 => (place.own.clone(), None),
            Version::V2 => base_of_v2(&place, failed)?,
        };
        purge(&base);
        // From here on what was made is removed, whatever fails.
        let (folder, lock) = match own_folder(&base) {
            Ok(made) => made,
            Err(e) => {
                home.inspect(Home::come_back);
                return Err(failed(e));
            }
        };
        let groups = Groups {
            version: place.version,
            folder,
            _lock: lock,
            home,
            made: AtomicU64::new(0),
            left: Mutex::default(),
            has_ended: AtomicBool::new(false),
        };
        if place.version == Version::V2 {
            put(&groups.folder.join("cgroup.subtree_control"), "+memory").map_err(failed)?;
        }
        Ok(Arc::new(groups))
    }

    /// One more.
    pub fn make(self: &Arc<Groups>) -> io::Result<Group> {
        let path = self.folder.join(format!("worker-{}", self.made.fetch_add(1, Ordering::Relaxed) + 1));
        let told = |e: io::Error| io::Error::new(e.kind(), format!("making {} failed: {e}", path.display()));
        fs::create_dir(&path).map_err(told)?;
        let group = Group { path, limit: 0, groups: Arc::clone(self) };
        // Where the controller was taken away since, there is a group without it.
        group.used()?;
        Ok(group)
    }

    /// What stays busy for longer is left for [`Groups::remove_left`].
    fn remove(&self, group: &Path) {
        if within(REMOVAL_MAX, || remove(group)).is_err() {
            self.left.lock().expect("no panic happens under this lock").push(group.to_owned());
        }
    }

    /// Tries again what was busy when its worker was reaped. Whether there are still some.
    pub fn remove_left(&self) -> bool {
        let mut left = self.left.lock().expect("no panic happens under this lock");
        left.retain(|path| remove(path).is_err());
        !left.is_empty()
    }

    /// Removes all of them, when there are no workers any more. What cannot be removed is said.
    pub fn end(&self) {
        if self.has_ended.swap(true, Ordering::SeqCst) {
            return;
        }
        if let Err(e) = within(PURGE_MAX, || remove_all(&self.folder)) {
            warn!(folder = %self.folder.display(), error = %e, "removing the workers' memory cgroups failed");
        }
        self.home.as_ref().inspect(|home| home.come_back());
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        self.end();
    }
}

/// Removes all groups when it goes, though threads that do not end know of them.
#[derive(Debug)]
pub struct Ending(Arc<Groups>);

impl Ending {
    pub fn of(groups: &Arc<Groups>) -> Ending {
        Ending(Arc::clone(groups))
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Where a group with others in it may be made, and whether oriond was moved for it.
fn base_of_v2(place: &Place, failed: impl Fn(io::Error) -> String) -> Result<(PathBuf, Option<Home>), String> {
    let has_memory = |folder: &Path, file: &str| {
        let text = fs::read_to_string(folder.join(file)).unwrap_or_default();
        text.split_whitespace().any(|name| name == "memory")
    };
    if !has_memory(&place.root, "cgroup.controllers") {
        let root = place.root.display();
        return Err(format!("the cgroups at {root} have no memory (cgroup_disable=memory, or kept from a container)"));
    }
    // The machine's root has processes beside groups; that of a container is a group like others.
    let processes = fs::read_to_string(place.own.join("cgroup.procs")).unwrap_or_default();
    let is_alone = processes.lines().eq([std::process::id().to_string()]);
    let is_a_group = place.own.join("cgroup.type").exists();
    if is_a_group && is_alone && has_memory(&place.own, "cgroup.controllers") {
        let home = Home::leave(&place.own).map_err(failed)?;
        return Ok((place.own.clone(), Some(home)));
    }
    if has_memory(&place.root, "cgroup.subtree_control") {
        return Ok((place.root.clone(), None));
    }
    Err(format!(
        "oriond is not alone in its cgroup {}, and groups below {} have no memory controller; start it as a service \
         with Delegate=memory, in a container as its only process, or write +memory to {0}/cgroup.subtree_control",
        place.own.display(),
        place.root.display()
    ))
}

/// That of this oriond, and what tells others that it lives.
fn own_folder(base: &Path) -> io::Result<(PathBuf, File)> {
    let pid = std::process::id();
    for n in 0..FOLDERS_MAX {
        let path = base.join(if n == 0 { format!("orion-{pid}") } else { format!("orion-{pid}-{n}") });
        // Whoever else may open it could lock it.
        match fs::DirBuilder::new().mode(0o700).create(&path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
            made => made?,
        }
        // An oriond that starts now may take it for one that was left, until it is locked.
        match File::open(&path) {
            Ok(lock) if locks(&lock) && is_at(&lock, &path) => return Ok((path, lock)),
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            // Or a child that an oriond is starting has the lock, until it is another program.
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    Err(io::Error::other(format!("there are {FOLDERS_MAX} of this process's number")))
}

/// Whether nobody else has it locked. It stays so until the descriptor is closed, at the latest when its process ends.
fn locks(folder: &File) -> bool {
    // SAFETY: a descriptor of our own.
    unsafe { libc::flock(folder.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
}

/// Whether this is still what has the name: another may have been made in its place.
fn is_at(folder: &File, path: &Path) -> bool {
    let same = |a: fs::Metadata, b: fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    folder.metadata().is_ok_and(|locked| fs::metadata(path).is_ok_and(|named| same(locked, named)))
}

/// Removes what orionds that were killed have left.
fn purge(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("orion-")).unwrap_or_default();
        let is_ours = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit() || b == b'-');
        let opened = is_ours.then(|| File::open(entry.path()).ok()).flatten();
        let Some(folder) = opened.filter(|folder| locks(folder) && is_at(folder, &entry.path())) else { continue };
        match within(PURGE_MAX, || remove_all(&entry.path())) {
            Ok(()) => info!(folder = %entry.path().display(), "removed memory cgroups of an oriond that was killed"),
            Err(e) => warn!(
                folder = %entry.path().display(), error = %e,
                "removing memory cgroups of an oriond that was killed failed"
            ),
        }
        drop(folder);
    }
}

/// Tries until it is done, but not for longer.
fn within(most: Duration, mut once: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    let began = Instant::now();
    loop {
        match once() {
            Err(_) if began.elapsed() < most => std::thread::sleep(RETRY_INTERVAL),
            outcome => return outcome,
        }
    }
}

/// With the groups in it.
fn remove_all(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path())?;
        }
    }
    remove(folder)
}

fn remove(group: &Path) -> io::Result<()> {
    match fs::remove_dir(group) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => {
            end_who_is_in(group);
            Err(e)
        }
        Ok(()) => Ok(()),
    }
}

/// What a worker, or its driver, has started and has not ended; what holds a tenant's namespace, when oriond ends.
fn end_who_is_in(group: &Path) {
    let all = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    // Those of other pid namespaces are 0 here, which would mean us.
    for pid in all.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|pid| *pid > 0) {
        // SAFETY: a signal to a process that nobody needs any more.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
}

/// One worker's. It is removed when this goes, which is when the worker was reaped.
#[derive(Debug)]
pub struct Group {
    path: PathBuf,
    /// In bytes; zero as long as there is none.
    limit: u64,
    groups: Arc<Groups>,
}

impl Group {
    /// For [`join`].
    pub fn door(&self) -> io::Result<File> {
        File::options().write(true).open(self.path.join("cgroup.procs"))
    }

    fn number(&self, (file, word): (&str, &str)) -> io::Result<u64> {
        let text = fs::read_to_string(self.path.join(file))?;
        number_in(&text, word).ok_or_else(|| io::Error::other(format!("{file} of a memory cgroup is {text:?}")))
    }

    /// Bytes that it has now, in memory or swapped out.
    fn used(&self) -> io::Result<u64> {
        let names = self.groups.version.names();
        let used = self.number((names.used, ""))?;
        let of_swap = self.number((names.used_of_swap, "")).unwrap_or(0);
        Ok(match self.groups.version {
            // Of both together.
            Version::V1 => used.max(of_swap),
            Version::V2 => used.saturating_add(of_swap),
        })
    }

    /// It may have so many bytes more than it has now, from now on.
    pub fn limit(&mut self, more: u64) -> io::Result<()> {
        let names = self.groups.version.names();
        let limit = self.used()?.saturating_add(more).min(LIMIT_MAX);
        let told = |e: io::Error| io::Error::new(e.kind(), format!("limiting {} failed: {e}", self.path.display()));
        put(&self.path.join(names.limit), &limit.to_string()).map_err(told)?;
        // Version 1 counts both together. In version 2 nothing may go where the limit does not count it.
        let of_swap = if self.groups.version == Version::V1 { limit } else { 0 };
        match put(&self.path.join(names.limit_of_swap), &of_swap.to_string()) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(told(e)),
            _ => {}
        }
        self.limit = limit;
        Ok(())
    }

    /// The limit in bytes, if the kernel has ended somebody because of it.
    pub fn overrun(&self) -> Option<u64> {
        let names = self.groups.version.names();
        let is_above = |count, least| self.number(count).is_ok_and(|n| n > least);
        let near = self.limit.checked_sub(NEAR)?;
        let is_met = match names.reached {
            Reached::Counted(count) => is_above(count, 0),
            Reached::Most(files) => files.iter().any(|file| is_above((file, ""), near)),
        };
        (is_met && is_above(names.ended, 0)).then_some(self.limit)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.groups.remove(&self.path);
    }
}

/// Into a file of a group, which is there or not: asked to make one the kernel refuses that, and does not say so.
fn put(file: &Path, text: &str) -> io::Result<()> {
    File::options().write(true).open(file)?.write_all(text.as_bytes())
}

/// The number behind a word that begins a line, or all there is where there is no word.
fn number_in(text: &str, word: &str) -> Option<u64> {
    if word.is_empty() {
        return text.trim().parse().ok();
    }
    text.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Moves the calling process into the group of this [`Group::door`].
///
/// # Safety
/// In a process of one thread. It makes one system call.
pub unsafe fn join(door: RawFd) -> io::Result<()> {
    // SAFETY: a literal; zero is who writes it.
    match unsafe { libc::write(door, c"0".as_ptr().cast(), 1) } {
        1 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(version: Version, root: &str, own: &str) -> Result<Place, String> {
        Ok(Place { version, root: root.into(), own: own.into() })
    }

    const OF_V1: &str = "\
        31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
        35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
    const OF_V2: &str = "\
        30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n\
        31 23 0:27 / /tmp rw - tmpfs cgroup rw,memory\n";

    #[test]
    fn the_hierarchy_with_memory_is_found() {
        let of_hybrid = "9:name=systemd:/a\n4:memory:/user/1:2\n1:cpu:/\n0::/a\n";
        let place = found(Version::V1, "/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory/user/1:2");
        assert_eq!(place_in(of_hybrid, OF_V1), place);
        assert_eq!(
            place_in("7:cpu,memory:/\n", "35 31 0:32 / /m\\040n rw - cgroup cgroup rw,cpu,memory\n"),
            found(Version::V1, "/m n", "/m n")
        );
        let place = found(Version::V2, "/sys/fs/cgroup", "/sys/fs/cgroup/system.slice/oriond.service");
        assert_eq!(place_in("0::/system.slice/oriond.service\n", OF_V2), place);
        // Of version 1 other controllers, of version 2 the rest.
        assert_eq!(place_in("3:cpuset:/\n0::/a\n", OF_V2), found(Version::V2, "/sys/fs/cgroup", "/sys/fs/cgroup/a"));
    }

    #[test]
    fn in_a_container_its_part_is_the_root() {
        // With a namespace of its own, and with the host's.
        assert_eq!(place_in("0::/\n", OF_V2), found(Version::V2, "/sys/fs/cgroup", "/sys/fs/cgroup"));
        let mounts = "35 31 0:32 /docker/ab /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        let root = "/sys/fs/cgroup/memory";
        assert_eq!(place_in("4:memory:/docker/ab\n", mounts), found(Version::V1, root, root));
        let own = "/sys/fs/cgroup/memory/init";
        assert_eq!(place_in("4:memory:/docker/ab/init\n", mounts), found(Version::V1, root, own));
    }

    #[test]
    fn what_is_not_to_be_found_is_said() {
        for (cgroup, mounts, word) in [
            ("3:cpuset:/\n", OF_V1, "no memory cgroups"),
            ("", OF_V2, "no memory cgroups"),
            ("4:memory:/a\n", OF_V2, "is below no mount of cgroup with memory"),
            ("0::/a\n", "", "is below no mount of cgroup2"),
            ("0::/../b\n", OF_V2, "\"/../b\""),
            ("4:memory:/docker/abc\n", "35 31 0:32 /docker/ab /m ro - cgroup cgroup rw,memory\n", "/docker/abc"),
        ] {
            let why = place_in(cgroup, mounts).expect_err(cgroup);
            assert!(why.contains(word), "{why}");
        }
    }

    #[test]
    fn counts_are_numbers_or_lines_of_a_word_and_a_number() {
        assert_eq!(number_in("4096\n", ""), Some(4096));
        assert_eq!(number_in("max\n", ""), None);
        let events = "low 0\nhigh 1\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n";
        assert_eq!((number_in(events, "oom"), number_in(events, "oom_kill")), (Some(3), Some(2)));
        assert_eq!(number_in("oom_kill_disable 0\nunder_oom 0\n", "oom_kill"), None);
    }

    #[test]
    fn a_group_that_was_busy_for_long_goes_without_another_worker_s_end() {
        let folder = std::env::temp_dir().join(format!("orion-groups-{}", std::process::id()));
        let busy = folder.join("worker-1");
        // Where it is no cgroup, what keeps a folder from going is what lies in it.
        fs::create_dir_all(busy.join("process")).expect("a folder");
        let groups = Groups {
            version: Version::V2,
            _lock: File::open(&folder).expect("it is there"),
            folder: folder.clone(),
            home: None,
            made: AtomicU64::new(1),
            left: Mutex::default(),
            has_ended: AtomicBool::new(false),
        };
        let groups = Arc::new(groups);
        drop(Group { path: busy.clone(), limit: 0, groups: Arc::clone(&groups) });
        assert!(busy.exists() && groups.remove_left() && busy.exists());
        fs::remove_dir(busy.join("process")).expect("it is empty");
        assert!(!groups.remove_left() && !busy.exists());
        drop(groups);
        assert!(!folder.exists());
    }

    #[test]
    fn who_starts_beside_another_has_a_folder_all_the_same() {
        let base = std::env::temp_dir().join(format!("orion-starts-{}", std::process::id()));
        fs::create_dir_all(&base).expect("a folder");
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    purge(&base);
                }
            });
            let all: io::Result<Vec<()>> = (0..5000)
                .map(|_| {
                    let (folder, _lock) = own_folder(&base)?;
                    fs::remove_dir(folder)
                })
                .collect();
            over.store(true, Ordering::Relaxed);
            all.expect("each time");
        });
        fs::remove_dir_all(&base).expect("ours");
    }

    #[test]
    fn a_session_may_have_its_heap_half_as_much_again_as_its_host_memory_and_some() {
        const MIB: u64 = 1 << 20;
        let allowance = Allowance { heap: 1024 * MIB, host_memory: 512 * MIB };
        assert_eq!(allowance.bytes(0, 0) / MIB, 1024 + 32 + 4 + 768 + 256);
        assert_eq!(allowance.bytes(512 * MIB, 0), allowance.bytes(0, 0));
        assert_eq!(allowance.bytes(2048 * MIB, 0), allowance.bytes(0, 1024 * MIB));
        assert_eq!(Allowance { heap: u64::MAX, host_memory: u64::MAX }.bytes(0, 1), u64::MAX);
    }
}
