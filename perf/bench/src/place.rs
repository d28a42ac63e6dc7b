//! The pieces under measurement: where they are, and an oriond of our own.

// UNSAFETY: prepares a child process between fork and exec, and signals it.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use orion_wire::address::{self, Carrier, Leads, Server};

/// What a built Orion consists of, and the driver to put behind it.
#[derive(Debug, Clone)]
pub struct Pieces {
    pub oriond: PathBuf,
    pub shim: PathBuf,
    /// `soft`, or the path of NVIDIA's library.
    pub driver: String,
}

impl Pieces {
    /// Beside this program; what is missing is built, in the checkout this program came from.
    pub fn find(driver: &str) -> Result<Pieces, String> {
        let own = std::env::current_exe().map_err(|e| format!("finding this program's folder failed: {e}"))?;
        let mut folder = own.parent().expect("a file lies in a folder").to_owned();
        // Tests run from a folder below.
        if folder.ends_with("deps") {
            folder.pop();
        }
        let (oriond, shim) = (folder.join("oriond"), folder.join("libcuda.so"));
        if !oriond.exists() || !shim.exists() {
            build(&folder)?;
        }
        for piece in [&oriond, &shim] {
            if !piece.exists() {
                return Err(format!("there is no {}; build it with `cargo build --release`", piece.display()));
            }
        }
        let driver = match driver {
            "auto" => real_driver().map_or("soft".into(), |path| path.display().to_string()),
            other => other.into(),
        };
        Ok(Pieces { oriond, shim, driver })
    }
}

fn build(folder: &Path) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate lies two folders down");
    if !root.join("Cargo.toml").exists() {
        return Ok(());
    }
    eprintln!("orion-bench: building oriond and the shim");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "-p", "oriond", "-p", "orion-shim"]).current_dir(root);
    if folder.ends_with("release") {
        cargo.arg("--release");
    }
    match cargo.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("building oriond and the shim failed: {status}")),
        Err(e) => Err(format!("starting cargo to build oriond and the shim failed: {e}")),
    }
}

/// NVIDIA's library, where there is a GPU to go with it.
pub fn real_driver() -> Option<PathBuf> {
    if !["/dev/nvidiactl", "/dev/dxg"].iter().any(|device| Path::new(device).exists()) {
        return None;
    }
    let folders = [
        "/usr/local/nvidia/lib64",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib64",
        "/usr/lib/wsl/lib",
        "/run/opengl-driver/lib",
    ];
    folders.iter().map(|folder| Path::new(folder).join("libcuda.so.1")).find(|path| path.exists())
}

/// An oriond that ends with its owner.
pub struct Oriond {
    child: Child,
    folder: Folder,
    /// Where it listens, by each carrier that it offers.
    addresses: Vec<Server>,
    /// What it shares with a guest, if it does.
    _guest: Option<GuestFile>,
}

/// Goes with its owner, and what is in it.
struct Folder(PathBuf);

impl Folder {
    fn create(path: PathBuf) -> Result<Folder, String> {
        std::fs::create_dir_all(&path).map_err(|e| format!("creating {} failed: {e}", path.display()))?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// In place of a virtual machine's memory. Goes with its owner: it is memory of this machine.
struct GuestFile(PathBuf);

impl GuestFile {
    fn create(path: PathBuf) -> Result<GuestFile, String> {
        let failed = |e| format!("making {} for a guest's memory failed: {e}", path.display());
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
        let guest = GuestFile(path.clone());
        file.set_len(GUEST_BYTES).map_err(failed)?;
        Ok(guest)
    }
}

impl Drop for GuestFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Of the file that stands for a virtual machine's memory: enough for pinned copies of 256 MiB.
const GUEST_BYTES: u64 = 1 << 30;

/// The address of every oriond that was started here, and the file that holds its token.
static TOKENS: Mutex<Vec<(String, PathBuf)>> = Mutex::new(Vec::new());

/// The file with the token of a server that this process has started.
pub fn token_file(server: &str) -> Option<PathBuf> {
    let tokens = TOKENS.lock().expect("nothing panics under this lock");
    tokens.iter().rev().find(|(address, _)| address == server).map(|(_, path)| path.clone())
}

fn write_token(path: &Path) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("writing {} failed: {e}", path.display());
    let nonce = orion_transport::proof::fresh_nonce().map_err(failed)?;
    let text: String = nonce.iter().map(|b| format!("{b:02x}")).collect();
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)
}

/// How an oriond is told to offer these carriers besides its socket and TCP, and the file that it shares with a guest.
/// RDMA's device is the one that is named for both ends (`ORION_IB_NAME`).
fn offered(transports: &[String], name: &str) -> Result<(Vec<String>, Option<GuestFile>), String> {
    let (mut options, mut guest) = (Vec::new(), None);
    for carrier in carriers(transports)? {
        match carrier.leads_to {
            Leads::ToHost if carrier.served_by != "--listen" => {
                options.extend([carrier.served_by.to_owned(), "127.0.0.1:0".to_owned()]);
                let device = carrier.device.and_then(|name| std::env::var(name).ok()).filter(|name| !name.is_empty());
                options.extend(device.into_iter().flat_map(|device| [format!("{}-device", carrier.served_by), device]));
            }
            Leads::ToDevice => {
                let file = GuestFile::create(Path::new("/dev/shm").join(name))?;
                // The next session may begin before the last one's end is seen.
                options.extend([carrier.served_by.to_owned(), file.0.display().to_string()]);
                options.extend(["--guest-sessions", "2"].map(str::to_owned));
                guest = Some(file);
            }
            Leads::ToHost | Leads::ToPath | Leads::ToMachine => {}
        }
    }
    Ok((options, guest))
}

/// Those that are named on the command line: each once, and such as both ends of can be on this machine.
pub fn carriers(names: &[String]) -> Result<Vec<&'static Carrier>, String> {
    let mut all = Vec::new();
    for name in names {
        let carrier = carrier(name)?;
        if all.contains(&carrier) {
            return Err(format!("{name} is named twice among the transports {}; name each once", names.join(",")));
        }
        // Nobody here is on the other side of it.
        if carrier.leads_to == Leads::ToMachine {
            return Err(format!(
                "{name} leads out of a virtual machine: run oriond serve {} on its host, and in the machine \
                 orion-bench run carriers --server {}",
                carrier.served_by, carrier.example
            ));
        }
        all.push(carrier);
    }
    Ok(all)
}

/// One that is named on the command line.
fn carrier(name: &str) -> Result<&'static Carrier, String> {
    let none = || format!("{name:?} is no transport; it is one of {}", address::carrier_names());
    address::carrier(name).ok_or_else(none)
}

impl Oriond {
    pub fn start(pieces: &Pieces, driver: &str, arguments: &[&str]) -> Result<Oriond, String> {
        Oriond::offering(&[], pieces, driver, arguments)
    }

    /// One that offers these carriers, or an error that says why they are not to be had.
    pub fn offering(
        transports: &[String],
        pieces: &Pieces,
        driver: &str,
        arguments: &[&str],
    ) -> Result<Oriond, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("orion-bench-{}-{count}", std::process::id());
        let (offered, guest) = offered(transports, &name)?;
        let folder = Folder::create(std::env::temp_dir().join(&name))?;
        let (socket, log) = (folder.0.join("oriond.sock"), folder.0.join("log"));
        let token = folder.0.join("token");
        write_token(&token)?;
        let log_file = std::fs::File::create(&log).map_err(|e| format!("creating {} failed: {e}", log.display()))?;
        let (ready, theirs) = pipe()?;
        let fd = theirs.as_raw_fd();
        let mut command = Command::new(&pieces.oriond);
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--sessions-max", "256", "--driver", driver])
            .args(["--ready-fd", &fd.to_string(), "--log-level", "warn"])
            .arg("--token-file")
            .arg(&token)
            .arg("--socket")
            .arg(&socket)
            .args(&offered)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log_file);
        // SAFETY: only async-signal-safe calls.
        unsafe {
            command.pre_exec(move || {
                if libc::fcntl(fd, libc::F_SETFD, 0) != 0 || libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let child = command.spawn().map_err(|e| format!("starting {} failed: {e}", pieces.oriond.display()))?;
        drop(theirs);
        let mut line = String::new();
        // Ends with a line once oriond listens, or empty if it does not come to that.
        let _ = BufReader::new(std::fs::File::from(ready)).read_line(&mut line);
        let addresses: Vec<Server> = line.split_whitespace().filter_map(|text| Server::parse(text).ok()).collect();
        let elsewhere = addresses.iter().filter(|server| server.path().is_none());
        let tokens = elsewhere.map(|server| (server.to_string(), token.clone()));
        TOKENS.lock().expect("nothing panics under this lock").extend(tokens);
        let oriond = Oriond { child, folder, addresses, _guest: guest };
        match line.is_empty() {
            true => Err(format!("oriond did not start: {}", oriond.log().trim())),
            false => Ok(oriond),
        }
    }

    pub fn address(&self, transport: &str) -> Result<String, String> {
        let carrier = carrier(transport)?;
        let found = self.addresses.iter().find(|server| server.carrier == carrier);
        found.map(Server::to_string).ok_or_else(|| format!("the oriond that was started does not offer {transport}"))
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.0.join("log")).unwrap_or_default()
    }

    /// CPU time used so far by oriond itself and by its workers.
    pub fn cpu_ns(&self) -> (u64, u64) {
        let workers = children(self.child.id());
        (cpu_ns_of(self.child.id()), workers.into_iter().map(cpu_ns_of).sum())
    }
}

impl Drop for Oriond {
    fn drop(&mut self) {
        // SAFETY: a signal to our own child, which has not been waited for.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
        let _ = self.child.wait();
    }
}

fn children(pid: u32) -> Vec<u32> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("children")).ok())
        .flat_map(|list| list.split_whitespace().filter_map(|p| p.parse().ok()).collect::<Vec<u32>>())
        .collect()
}

/// CPU time of a process, also of threads that have ended, in ticks of 10 ms.
pub fn cpu_ns_of(pid: u32) -> u64 {
    // SAFETY: a plain question.
    let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    ticks_in(&stat).unwrap_or(0) * (1_000_000_000 / ticks_per_second)
}

/// User and system time of a line of `/proc/PID/stat`.
fn ticks_in(stat: &str) -> Option<u64> {
    // The program's name may hold blanks and brackets; what follows its last bracket does not.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split_whitespace().collect();
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

fn pipe() -> Result<(OwnedFd, OwnedFd), String> {
    let mut fds = [0; 2];
    // SAFETY: room for both.
    if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(format!("creating a pipe failed: {}", std::io::Error::last_os_error()));
    }
    // SAFETY: two new descriptors that nobody else owns.
    Ok(unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What this process has left in a folder.
    fn left_in(folder: &Path) -> Vec<PathBuf> {
        let own = format!("orion-bench-{}-", std::process::id());
        let all = std::fs::read_dir(folder).expect("a folder of every machine").flatten();
        all.filter(|entry| entry.file_name().to_string_lossy().starts_with(&own)).map(|entry| entry.path()).collect()
    }

    #[test]
    fn nothing_stays_of_an_oriond_that_did_not_start() {
        let nowhere = Path::new("/nonexistent");
        let pieces = Pieces { oriond: nowhere.join("oriond"), shim: nowhere.join("libcuda.so"), driver: "soft".into() };
        for transports in [&["ivshmem"][..], &["ivshmem", "ivshmem"], &["ivshmem", "pcie"], &["ivshmem", "vsock"]] {
            let transports: Vec<String> = transports.iter().map(|&name| name.to_owned()).collect();
            let started = Oriond::offering(&transports, &pieces, "soft", &[]);
            assert!(started.is_err(), "{transports:?}");
            for folder in [Path::new("/dev/shm"), &std::env::temp_dir()] {
                assert_eq!(left_in(folder), Vec::<PathBuf>::new(), "{transports:?}");
            }
        }
    }

    #[test]
    fn what_cannot_be_offered_here_is_refused_in_words() {
        let why = |names: &[&str]| {
            carriers(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>()).expect_err("nobody offers it")
        };
        let vsock = why(&["shm", "vsock"]);
        assert!(vsock.contains("oriond serve --vsock on its host"), "{vsock}");
        assert!(vsock.contains("orion-bench run carriers --server vsock:2:7411"), "{vsock}");
        let twice = why(&["ivshmem", "tcp", "ivshmem"]);
        assert!(twice.contains("ivshmem is named twice among the transports ivshmem,tcp,ivshmem"), "{twice}");
        assert!(why(&["pcie"]).contains("it is one of shm, tcp, rdma"));
    }

    #[test]
    fn times_are_found_behind_any_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 100 0 0 0 30 12 0 0 20 0 1 0 100 1000 100";
        assert_eq!(ticks_in(stat), Some(42));
        assert_eq!(ticks_in(""), None);
    }
}
