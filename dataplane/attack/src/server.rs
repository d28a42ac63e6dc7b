//! An oriond to attack.

// UNSAFETY: passes a descriptor to a child, and signals it.

use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use orion_transport::client::Server;
use orion_wire::address::Place;

/// Something that is nowhere but in oriond and its workers.
pub const CANARY: &str = "ORION_ATTACK_CANARY";
/// Where a witness finds the token.
pub const TOKEN: &str = "ORION_TOKEN";

pub fn token_from_environment() -> String {
    std::env::var(TOKEN).unwrap_or_default()
}

pub struct Oriond {
    child: Child,
    addresses: Vec<Server>,
    log: PathBuf,
    _files: Files,
}

/// Sessions at the same time: a witness, the hostile client, and the hostile client before, which is about to end.
const GUEST_SESSIONS: &str = "3";
/// Of a guest; sparse.
const GUEST_BYTES: u64 = 2 << 30;

const SECRET: &str = "the token of orion-attack";

impl Oriond {
    /// With the software GPU, and these options and variables besides its own.
    pub fn start(program: &Path, serve: &[String], environment: &[(&str, &str)]) -> Result<Oriond, String> {
        // Mirrored heaps stay mapped in this process (threads may look at them), thousands of them in an hour; of the
        // usual size they would fill the addresses at which a worker maps its client's.
        // Limits and two vGPUs on one GPU, so that what keeps them is attacked too.
        let limits = ["--vgpus", "2", "--memory-limit", "1 GiB"];
        let serve: Vec<&str> = serve.iter().map(String::as_str).collect();
        Oriond::start_with(program, "soft", &[&["--heap", "1 GiB"], &limits[..], &serve].concat(), environment)
    }

    pub fn start_with(
        program: &Path,
        driver: &str,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Oriond, String> {
        let folder = std::env::temp_dir().join(format!("orion-attack-{}", std::process::id()));
        let segment = Path::new("/dev/shm").join(folder.file_name().expect("it has a name"));
        let files = Files { folder: folder.clone(), segment: segment.clone() };
        std::fs::create_dir_all(&folder).map_err(|e| format!("creating {}: {e}", folder.display()))?;
        let (socket, log, token) = (folder.join("oriond.sock"), folder.join("log"), folder.join("token"));
        let machines = folder.join("vm0.vsock_7411");
        let has_vsock = arguments.contains(&"--vsock");
        write_private(&token, SECRET)?;
        write_private(&segment, "")?;
        std::fs::OpenOptions::new()
            .write(true)
            .open(&segment)
            .and_then(|file| file.set_len(GUEST_BYTES))
            .map_err(|e| format!("making {} as large as a guest's memory: {e}", segment.display()))?;
        let file = std::fs::File::create(&log).map_err(|e| format!("creating {}: {e}", log.display()))?;
        let mut fds = [0; 2];
        // SAFETY: room for both; both are new and ours.
        let (ready, theirs) = unsafe {
            if libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
                return Err("making a pipe failed".to_owned());
            }
            (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1]))
        };
        let fd = theirs.as_raw_fd();
        let mut command = Command::new(program);
        command
            .args(["serve", "--driver", driver, "--listen", "127.0.0.1:0", "--warm", "2", "--engines", "2"])
            .args(arguments)
            .args(["--ready-fd", &fd.to_string()])
            .arg("--socket")
            .arg(&socket)
            .arg("--token-file")
            .arg(&token)
            .args(["--guest-sessions", GUEST_SESSIONS, "--guest"])
            .arg(&segment)
            // Without a virtual machine: what its hypervisor would connect to.
            .args((!has_vsock).then(|| [std::ffi::OsStr::new("--vsock"), machines.as_os_str()]).into_iter().flatten())
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file);
        // SAFETY: both are async-signal-safe.
        unsafe {
            command.pre_exec(move || {
                // It ends with this process, however that does.
                match libc::fcntl(fd, libc::F_SETFD, 0) | libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            });
        }
        let child = command.spawn().map_err(|e| format!("starting {}: {e}", program.display()))?;
        drop(theirs);
        let mut oriond = Oriond { child, addresses: Vec::new(), log, _files: files };
        let mut line = String::new();
        BufReader::new(std::fs::File::from(ready)).read_line(&mut line).map_err(|e| format!("waiting: {e}"))?;
        oriond.addresses = line.split_whitespace().map(Server::parse).collect::<Result<Vec<_>, _>>()?;
        if let Some(server) = oriond.addresses.iter_mut().find(|server| !has_vsock && server.machine().is_some()) {
            server.place = Place::Path(machines);
        }
        if line.is_empty() {
            return Err(format!("oriond did not start:\n{}", oriond.end()));
        }
        Ok(oriond)
    }

    /// One for each carrier.
    pub fn addresses(&self) -> &[Server] {
        &self.addresses
    }

    pub fn token(&self) -> &'static str {
        SECRET
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn is_alive(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        // Behind the name, which may hold anything: the state.
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    }

    /// Ends it; what it logged.
    pub fn end(mut self) -> String {
        // SAFETY: a signal to our own child, which has not been waited for.
        unsafe { libc::kill(self.pid() as i32, libc::SIGTERM) };
        let _ = self.child.wait();
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }
}

impl Drop for Oriond {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What an oriond leaves behind.
struct Files {
    folder: PathBuf,
    /// Memory of a guest that there is not.
    segment: PathBuf,
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.segment);
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn write_private(path: &Path, text: &str) -> Result<(), String> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let failed = |e: std::io::Error| format!("writing {}: {e}", path.display());
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)
}
