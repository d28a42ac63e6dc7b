//! orion-run: runs a program on a GPU it cannot see.
//!
//! Starts what is missing (an oriond for the local GPU, or the software GPU), points the program at it by
//! environment variables alone, waits for it, and cleans up.

// UNSAFETY: signals, pipes and what happens between fork and exec, for which the standard library has nothing.

use std::collections::hash_map::RandomState;
use std::ffi::{OsStr, OsString};
use std::hash::BuildHasher;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use clap::{CommandFactory, Parser};
use orion_wire::address::{self, Carrier, Leads};
use orion_wire::client_conf::ClientConf;

use choice::Choice;
use cleaner::{Cleaner, pipe};
use cli::Cli;

mod choice;
mod cleaner;
mod cli;
mod compilers;
mod pool;
mod program;
mod transport;
mod units;

fn main() -> std::process::ExitCode {
    if let Some(done) = orion_pages::were_asked_for(Cli::command) {
        return done;
    }
    let code = match run(&Cli::parse()) {
        Ok(status) => status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
        Err(Failure { reason, code }) => {
            say(&reason);
            code
        }
    };
    std::process::exit(code);
}

/// Of each GPU, in oriond's words.
fn memory_limit(cli: &Cli) -> Option<String> {
    cli.gmem.map(|mib| format!("{mib} MiB")).or_else(|| cli.memory_limit.clone())
}

/// One line on standard error. Where that is full or closed the program runs all the same.
fn say(text: &str) {
    let _ = std::io::stderr().write_all(format!("orion-run: {text}\n").as_bytes());
}

/// Why the program did not run, and the exit status that says so to scripts, as `env` and `timeout` choose it.
struct Failure {
    reason: String,
    code: i32,
}

impl From<String> for Failure {
    fn from(reason: String) -> Failure {
        Failure { reason, code: 125 }
    }
}

/// What cannot be read does not mean that nothing was asked for.
fn refuse_what_is_no_text() -> Result<(), String> {
    // Whatever bytes a file's name has.
    let is_file = |name: &str| ["ORION_TOKEN_FILE", "ORION_ASKED_FILE"].contains(&name);
    let is_asked = |name: &OsString| name.to_str().is_some_and(|name| name.starts_with("ORION_") && !is_file(name));
    match std::env::vars_os().find(|(name, value)| is_asked(name) && value.to_str().is_none()) {
        Some((name, _)) => Err(format!("{} is not valid UTF-8; set it anew, or unset it", name.display())),
        None => Ok(()),
    }
}

fn run(cli: &Cli) -> Result<ExitStatus, Failure> {
    refuse_what_is_no_text()?;
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let wanted = pool::wanted(cli, variable, ClientConf::of_this_user)?;
    let choice = match wanted {
        Some(wanted) => Choice::Pool(wanted),
        None => choice::choose(cli, variable)?,
    };
    let home = own_folder()?;
    let libraries = Libraries::find(&home)?;
    let place = Place::create(&libraries)?;
    // From here on signals are collected below, so that cleaning up is never skipped.
    let signals = block_signals();
    let server = match choice {
        Choice::Pool(wanted) => Server { variables: wanted.variables, oriond: None, software_gpu: false },
        Choice::Theirs(server) => Server { variables: server_is(server), oriond: None, software_gpu: false },
        Choice::Own(carrier) => start_oriond(cli, carrier, &home, &place, &signals)?,
    };
    let mut program = Command::new(&cli.program[0]);
    program
        .args(&cli.program[1..])
        .envs(server.variables.iter().map(|(name, value)| (name, value)))
        .env("ORION_ASKED_FILE", place.asked())
        .env("LD_LIBRARY_PATH", joined(&place.folder, std::env::var_os("LD_LIBRARY_PATH")))
        // Triton asks ldconfig for libcuda unless told where it is.
        .env("TRITON_LIBCUDA_PATH", &place.folder);
    // JAX does not look for a GPU where none of NVIDIA's device files is, and nothing in its environment changes that.
    if !orion_cuda::find::has_device_files() {
        place.write_module(JAX_PLUGIN, include_str!("../python/jax_plugins/orion/__init__.py"))?;
    }
    // A real GPU runs machine code too, and what GPU another server has, only that server knows.
    if server.software_gpu {
        ask_compilers_for_ptx(&mut program, &place, &home)?;
    }
    let modules = place.folder.join(MODULES);
    if modules.exists() {
        program.env("PYTHONPATH", joined(&modules, std::env::var_os("PYTHONPATH")));
    }
    if !cli.no_preload {
        // A launcher may set a search path of its own, and programs look for CUPTI in folders of their own first, but
        // all take what is there already.
        let paths = place.preload(&libraries).into_iter().rev();
        program.env("LD_PRELOAD", paths.fold(std::env::var_os("LD_PRELOAD"), |all, p| Some(joined(&p, all))).unwrap());
        program.env("ASAN_OPTIONS", address_sanitizer(std::env::var_os("ASAN_OPTIONS")));
    }
    if server.oriond.is_some() {
        for name in ["ORION_TOKEN", "ORION_TOKEN_FILE"] {
            if std::env::var_os(name).is_some_and(|value| !value.is_empty()) {
                say(&format!("{name} is for a server that is not named; this run's has a token of its own"));
            }
        }
        program.env_remove("ORION_TOKEN").env("ORION_TOKEN_FILE", place.token());
    }
    if let Some(transport) = &cli.transport {
        program.env("ORION_TRANSPORT", transport);
    }
    if cli.verbose {
        program.env("ORION_VERBOSE", "1");
    }
    signals.restore_in(&mut program);
    let name = cli.program[0].display();
    let is_static = program::is_static_and_loads_the_driver(&cli.program[0]);
    if is_static && !quiet() {
        say(&format!(
            "{name} is linked with -static: what such a program loads, a CUDA driver too, has neither threads nor \
             thread-local variables in glibc, and ends the program when it needs them; link it without -static (CUDA's \
             runtime can stay in it, as by nvcc's -cudart static); ORION_QUIET=1 leaves this line out"
        ));
    }
    let child = program.spawn().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => {
            let is_like_an_option = name.to_string().starts_with('-');
            let hint = if is_like_an_option { ", and no such option: see orion-run --help" } else { "" };
            Failure { reason: format!("there is no program {name}{hint}"), code: 127 }
        }
        _ => Failure { reason: format!("starting {name} failed: {e}"), code: 126 },
    })?;
    let status = wait(child, &signals)?;
    // Whoever interrupts a program knows that it had not come to that; one that crashed has ended by itself.
    let crashed = matches!(status.signal(), Some(libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGABRT));
    if (status.code().is_some() || crashed) && !quiet() && !is_static && !place.asked().exists() {
        say(&format!(
            "{name} ended, and nothing in it has asked Orion for a GPU. sudo, env -i and containers drop \
             LD_PRELOAD and LD_LIBRARY_PATH, setuid programs load no library, and those linked with -static none or \
             none that works. Or it has, and could not say so: it would have made {}, which a sandbox may hide or make \
             read-only. ORION_QUIET=1 leaves this line out",
            place.asked().display()
        ));
    }
    Ok(status)
}

/// AddressSanitizer as a library of its own (gcc's) ends a program in which another one comes first, for that one might
/// have functions in place of the C library's. Orion's have none, so it is told not to look.
fn address_sanitizer(options: Option<OsString>) -> OsString {
    // The last one counts.
    let mut all = OsString::from("verify_asan_link_order=0");
    if let Some(theirs) = options.filter(|options| !options.is_empty()) {
        all.push(":");
        all.push(theirs);
    }
    all
}

fn quiet() -> bool {
    std::env::var_os("ORION_QUIET").is_some_and(|v| !v.is_empty() && v != "0")
}

fn ask_compilers_for_ptx(program: &mut Command, place: &Place, home: &Path) -> Result<(), String> {
    let Some(ptxas) = find(home, &["orion-ptxas"]) else {
        say(&format!(
            "there is no orion-ptxas beside {}, without which compilers in the program (CuPy, JAX, Triton) hand \
             machine code to the software GPU, which refuses it; build it with `cargo build --release`",
            home.display()
        ));
        return Ok(());
    };
    place.write_module(NUMBA_MODULE, include_str!("../python/orion_numba.py"))?;
    let compilers = compilers::ask_for_ptx(&place.link_ptxas(&ptxas)?, |name| std::env::var_os(name));
    program.envs(compilers.variables.iter().map(|(name, value)| (name, value)));
    if !quiet() {
        say(&compilers.line());
    }
    Ok(())
}

/// What the program loads.
struct Libraries {
    driver: PathBuf,
    profiler: Option<PathBuf>,
    management: Option<PathBuf>,
}

impl Libraries {
    fn find(home: &Path) -> Result<Libraries, String> {
        let driver = find(home, &["../lib/orion/libcuda.so.1", "libcuda.so.1", "libcuda.so"]).ok_or_else(|| {
            let home = home.display();
            format!("there is no libcuda.so.1 of Orion's beside {home}; build it with `cargo build --release`")
        })?;
        let profiler = find(home, &["../lib/orion/libcupti.so.13", "libcupti.so.13", "libcupti.so"]);
        if profiler.is_none() {
            say(&format!(
                "there is no libcupti.so.13 of Orion's beside {}, so the program cannot profile what the \
                 GPU does; build it with `cargo build --release`",
                home.display()
            ));
        }
        let management = find(home, &["../lib/orion/libnvidia-ml.so.1", "libnvidia-ml.so.1", "libnvidia_ml.so"]);
        if management.is_none() {
            say(&format!(
                "there is no libnvidia-ml.so.1 of Orion's beside {}, without which TensorFlow and JAX show \
                 no GPU; build it with `cargo build --release`",
                home.display()
            ));
        }
        Ok(Libraries { driver, profiler, management })
    }

    /// Each with the names that programs ask for.
    fn names(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let profiler = self.profiler.as_deref().map(|path| (CUPTI, path));
        let management = self.management.as_deref().map(|path| (NVML, path));
        let driver = [CUDA, "libcuda.so"].map(|name| (name, self.driver.as_path()));
        driver.into_iter().chain(profiler).chain(management)
    }
}

/// The oriond of this run, or somebody else's, or that which a controller chooses.
struct Server {
    /// By which the program finds it.
    variables: Vec<(&'static str, String)>,
    oriond: Option<Child>,
    /// Known of a server of this run's only.
    software_gpu: bool,
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(oriond) = &mut self.oriond {
            // SAFETY: a signal to our own child, which has not been waited for.
            unsafe { libc::kill(oriond.id() as i32, libc::SIGTERM) };
            // oriond ends its workers within two seconds, whatever they do.
            let _ = oriond.wait();
        }
    }
}

fn start_oriond(
    cli: &Cli,
    carrier: &'static Carrier,
    home: &Path,
    place: &Place,
    signals: &Signals,
) -> Result<Server, String> {
    let oriond = find(home, &["oriond", "../lib/orion/oriond", "../libexec/orion/oriond"]).ok_or_else(|| {
        format!("there is no oriond beside {}; build it with `cargo build --release`", home.display())
    })?;
    let driver = if cli.software_gpu { None } else { orion_cuda::find::driver() };
    let driver = match driver {
        Some(path) => path.into_os_string(),
        None => {
            if !cli.software_gpu {
                say("no NVIDIA driver here, using the software GPU");
            }
            "soft".into()
        }
    };
    let socket = place.folder.join("oriond.sock");
    let at = |option: &str, place: &'static str| if carrier.served_by == option { place } else { "none" };
    let socket = match carrier.leads_to {
        Leads::ToHost => Path::new("none"),
        Leads::ToPath => socket.as_path(),
        Leads::ToDevice | Leads::ToMachine => {
            return Err(format!(
                "{} is a way out of a virtual machine, to the oriond of its host; name that by --server {}",
                carrier.name, carrier.example
            ));
        }
    };
    // Both ends are on this machine, and the program's end uses the device that its user has named.
    let device = carrier.device.and_then(|name| std::env::var(name).ok()).filter(|device| !device.is_empty());
    if let Some(capability) = cli.capability.as_ref().filter(|_| driver != "soft") {
        let gpu = driver.display();
        return Err(format!("--capability {capability} is for the software GPU; {gpu} is used, so add --software-gpu"));
    }
    place.write_token()?;
    let log = place.folder.join("oriond.log");
    let log_file = std::fs::File::create(&log).map_err(|e| format!("creating {} failed: {e}", log.display()))?;
    let (ready, theirs) = pipe().map_err(|e| format!("creating a pipe failed: {e}"))?;
    let fd = theirs.as_raw_fd();
    let mut command = oriond_command(cli, &oriond, &driver, place);
    command
        .arg("--socket")
        .arg(socket)
        .args(["--listen", at("--listen", "127.0.0.1:0"), "--rdma", at("--rdma", "127.0.0.1:0")])
        .args(device.iter().flat_map(|device| ["--rdma-device", device]))
        .args(["--ready-fd", &fd.to_string()])
        .stderr(log_file);
    signals.restore_in(&mut command);
    ends_with_us(&mut command, fd);
    let child = command.spawn().map_err(|e| format!("starting {} failed: {e}", oriond.display()))?;
    drop(theirs);
    let oriond = child.id();
    let mut server = Server { variables: Vec::new(), oriond: Some(child), software_gpu: driver == "soft" };
    place.cleaner.watch(oriond)?;
    let mut line = String::new();
    // Ends with a line once oriond listens, or empty if it does not come to that.
    let _ = BufReader::new(std::fs::File::from(ready)).read_line(&mut line);
    match line.split_whitespace().next() {
        Some(address) => server.variables = server_is(reached_by(carrier, address)?),
        None => {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            return Err(format!("oriond did not start: {}", text.trim()));
        }
    }
    Ok(server)
}

/// All of its command line that no carrier decides.
fn oriond_command(cli: &Cli, oriond: &Path, driver: &OsStr, place: &Place) -> Command {
    let mut command = Command::new(oriond);
    command
        .arg("serve")
        .arg("--token-file")
        .arg(place.token())
        // One worker warms up while the program starts; a second one would only hold GPU memory.
        .args(["--warm", "0", "--prestart", "1"])
        // It serves this one program, whose processes may share memory as they could natively.
        .arg("--one-tenant")
        .args(cli.heap.iter().flat_map(|bytes| ["--heap", bytes]))
        .args(cli.vgpu.iter().flat_map(|count| ["--vgpus".to_owned(), count.to_string()]))
        .args(cli.share.iter().flat_map(|percent| ["--share".to_owned(), percent.to_string()]))
        .args(cli.throttle_level.iter().flat_map(|percent| ["--throttle-level".to_owned(), percent.to_string()]))
        .args(memory_limit(cli).iter().flat_map(|bytes| ["--memory-limit", bytes]))
        .envs(cli.capability.iter().map(|capability| ("ORION_SOFT_CAPABILITY", capability)))
        .arg("--driver")
        .arg(driver)
        // They choose among the session's devices, once, in the program. The worker lists all of them.
        .env_remove("CUDA_VISIBLE_DEVICES")
        .env_remove("CUDA_DEVICE_ORDER")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        // Ctrl-C is for the program; oriond ends after it.
        .process_group(0);
    command
}

/// Has a process end when this one does, and keep one descriptor.
fn ends_with_us(command: &mut Command, keeps: RawFd) {
    let own = std::process::id() as i32;
    // SAFETY: only async-signal-safe calls.
    unsafe {
        command.pre_exec(move || {
            if libc::fcntl(keeps, libc::F_SETFD, 0) != 0 || libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            // Killed before it could be heard of: nobody wants this oriond any more.
            if libc::getppid() != own { Err(std::io::Error::from_raw_os_error(libc::ESRCH)) } else { Ok(()) }
        });
    }
}

/// The address by which a server is reached that listens there.
fn reached_by(carrier: &'static Carrier, listens_at: &str) -> Result<address::Server, String> {
    let server = address::Server::parse(listens_at).map_err(|why| format!("oriond said where it listens: {why}"))?;
    Ok(address::Server { carrier, ..server })
}

fn server_is(server: address::Server) -> Vec<(&'static str, String)> {
    vec![("ORION_SERVER", server.to_string())]
}

const CUDA: &str = "libcuda.so.1";
const CUPTI: &str = "libcupti.so.13";
const NVML: &str = "libnvidia-ml.so.1";
/// The folder for `PYTHONPATH`, and modules in it.
const MODULES: &str = "python";
const JAX_PLUGIN: &str = "jax_plugins/orion/__init__.py";
const NUMBA_MODULE: &str = "orion_numba.py";

/// Never one that exists: somebody else might have put a library there. Where he has made the first, in /tmp, he does
/// not know the name of the next.
fn new_folder(base: &Path) -> Result<PathBuf, String> {
    let mut attempt = 0;
    loop {
        let unknown = || base.with_extension(format!("{:016x}", RandomState::new().hash_one(attempt)));
        let folder = if attempt == 0 { base.to_owned() } else { unknown() };
        match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => return Ok(folder),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && attempt < 100 => attempt += 1,
            Err(e) => return Err(format!("creating {} failed: {e}", folder.display())),
        }
    }
}

/// A private folder for this run: the library under the names programs ask for, socket, token and log.
struct Place {
    folder: PathBuf,
    cleaner: Cleaner,
}

impl Place {
    fn create(libraries: &Libraries) -> Result<Place, String> {
        // SAFETY: getuid cannot fail.
        let uid = unsafe { libc::getuid() };
        let pid = std::process::id();
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|d| !d.is_empty()).map(PathBuf::from);
        // The program may change its folder before it looks for a library.
        let runtime = runtime.filter(|d| d.is_dir()).and_then(|d| std::path::absolute(d).ok());
        let base =
            runtime.map_or_else(|| format!("/tmp/orion-{uid}-{pid}").into(), |d| d.join(format!("orion-run-{pid}")));
        let folder = new_folder(&base)?;
        let cleaner = Cleaner::start(&folder).inspect_err(|_| {
            let _ = std::fs::remove_dir(&folder);
        })?;
        let place = Place { folder, cleaner };
        for (name, library) in libraries.names() {
            let link = place.folder.join(name);
            symlink(library, &link).map_err(|e| format!("creating {} failed: {e}", link.display()))?;
        }
        Ok(place)
    }

    /// By their own paths, so that what outlives this run finds them, if the loader does not take those for several.
    fn preload(&self, libraries: &Libraries) -> Vec<PathBuf> {
        let plain = |path: &Path| !path.as_os_str().as_encoded_bytes().iter().any(|b| matches!(b, b' ' | b':'));
        let path = |name, library: &Path| if plain(library) { library.to_owned() } else { self.folder.join(name) };
        let profiler = libraries.profiler.as_deref().map(|library| path(CUPTI, library));
        let management = libraries.management.as_deref().map(|library| path(NVML, library));
        profiler.into_iter().chain([path(CUDA, &libraries.driver)]).chain(management).collect()
    }

    fn write_module(&self, name: &str, text: &str) -> Result<(), String> {
        let path = self.folder.join(MODULES).join(name);
        let folder = path.parent().expect("a file lies in a folder");
        std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(&path, text))
            .map_err(|e| format!("writing {} failed: {e}", path.display()))
    }

    /// Under the name and in the place that XLA looks for. The folder above is that of a CUDA toolkit.
    fn link_ptxas(&self, ptxas: &Path) -> Result<PathBuf, String> {
        let root = self.folder.join("toolkit");
        let link = root.join("bin/ptxas");
        std::fs::create_dir_all(root.join("bin"))
            .and_then(|()| symlink(ptxas, &link))
            .map_err(|e| format!("creating {} failed: {e}", link.display()))?;
        Ok(root)
    }

    /// The shim makes this file when a process first asks for a GPU.
    fn asked(&self) -> PathBuf {
        self.folder.join("asked")
    }

    fn token(&self) -> PathBuf {
        self.folder.join("token")
    }

    /// Loopback is open to every user of the machine; the token is not.
    fn write_token(&self) -> Result<(), String> {
        let mut random = [0u8; 16];
        // SAFETY: sixteen bytes into a local; requests this small are never cut short.
        let n = unsafe { libc::syscall(libc::SYS_getrandom, random.as_mut_ptr(), random.len(), 0) };
        if n != random.len() as libc::c_long {
            return Err(format!("reading random bytes failed: {}", std::io::Error::last_os_error()));
        }
        let text: String = random.iter().map(|b| format!("{b:02x}")).collect();
        std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(self.token())
            .and_then(|mut f| f.write_all(text.as_bytes()))
            .map_err(|e| format!("writing {} failed: {e}", self.token().display()))
    }
}

/// Waits for the program and passes on what this process is told meanwhile.
fn wait(mut child: Child, signals: &Signals) -> Result<ExitStatus, String> {
    loop {
        // SAFETY: all-zero is a valid siginfo_t to overwrite; both pointers are to live locals.
        let (number, info) = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            (libc::sigwaitinfo(&signals.collected, &mut info), info)
        };
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) => {}
            Err(e) => return Err(format!("waiting for the program failed: {e}")),
        }
        // What the terminal sends, it sends to the whole group, and the program is in ours.
        if number > 0 && number != libc::SIGCHLD && info.si_code != libc::SI_KERNEL {
            // SAFETY: a signal to our own child, which has not been waited for.
            unsafe { libc::kill(child.id() as i32, number) };
        }
    }
}

/// Signals to collect, and the mask that was in force before, which is the program's.
struct Signals {
    collected: libc::sigset_t,
    before: libc::sigset_t,
}

impl Signals {
    /// Std lets children inherit the mask of the thread that starts them.
    fn restore_in(&self, command: &mut Command) {
        let before = self.before;
        // SAFETY: sigprocmask is async-signal-safe.
        unsafe {
            command.pre_exec(move || match libc::sigprocmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
    }
}

fn block_signals() -> Signals {
    // SAFETY: plain calls on a local signal set.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for number in [
            libc::SIGCHLD,
            libc::SIGHUP,
            libc::SIGINT,
            libc::SIGQUIT,
            libc::SIGTERM,
            libc::SIGUSR1,
            libc::SIGUSR2,
            libc::SIGWINCH,
            libc::SIGCONT,
        ] {
            libc::sigaddset(&mut set, number);
        }
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
        Signals { collected: set, before }
    }
}

fn own_folder() -> Result<PathBuf, String> {
    let own = std::env::current_exe().and_then(|p| p.canonicalize());
    let own = own.map_err(|e| format!("finding out where orion-run lies failed: {e}"))?;
    Ok(own.parent().expect("a file lies in a folder").to_owned())
}

fn find(home: &Path, names: &[&str]) -> Option<PathBuf> {
    names.iter().find_map(|name| home.join(name).canonicalize().ok().filter(|p| p.is_file()))
}

fn joined(folder: &Path, before: Option<OsString>) -> OsString {
    let mut all = folder.as_os_str().to_owned();
    if let Some(before) = before.filter(|b| !b.is_empty()) {
        all.push(":");
        all.push(before);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Anybody may make what he likes in /tmp.
    #[test]
    fn a_run_s_folder_is_a_new_one_whatever_somebody_else_has_made() {
        let base = std::env::temp_dir().join(format!("orion-run-squat-{}", std::process::id()));
        std::fs::create_dir(&base).expect("creating");
        for number in 1..=100 {
            std::fs::create_dir(base.with_extension(number.to_string())).expect("creating");
        }
        let folder = new_folder(&base).expect("a name that nobody has guessed");
        assert_eq!(std::fs::read_dir(&folder).expect("reading").count(), 0);
        for number in 1..=100 {
            std::fs::remove_dir(base.with_extension(number.to_string())).expect("removing");
        }
        std::fs::remove_dir(&folder).expect("removing");
        std::fs::remove_dir(&base).expect("removing");
    }
}
