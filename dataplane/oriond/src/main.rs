//! oriond: owns the GPUs of a node and lends them to sessions.

// UNSAFETY: takes over descriptors that its starter passed by number, and waits for signals.

use std::ffi::OsString;
use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, CommandFactory, Parser, Subcommand};
use engine::security::Security;
use engine::settings::{Guest, Machines, Memory};
use engine::time::policy::Division;
use orion_tls::Fingerprint;
use orion_transport::carrier::VerbsPort;
use orion_transport::proof::Token;
use sd_notify::NotifyState;
use tracing::level_filters::LevelFilter;

mod attach;
mod cell;
mod config;
mod engine;
mod fallen;
mod last_words;
mod lines;
mod log;
mod meter;
mod seat;
mod vgpu;
mod worker;

#[derive(Parser)]
#[command(version, about = "Lends the GPUs of this machine to programs here and elsewhere")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve sessions until SIGTERM or SIGINT
    #[command(args_override_self = true)]
    Serve(Box<Serve>),
    /// One session's process; started by `serve`
    #[command(hide = true)]
    Worker(Worker),
    /// The first process of the namespace that workers share; started by `serve`
    #[command(hide = true)]
    Hold {
        /// Socket to oriond
        #[arg(long)]
        life_fd: i32,
    },
}

#[derive(Args)]
struct Serve {
    /// Take settings from this file, as Orion vGPU's server.conf has them and, in [server], by the names of these
    /// options (memory_limit for --memory-limit). Options given here as well decide
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the settings that result, and end
    #[arg(long)]
    show_config: bool,
    /// UNIX socket for programs on this machine, or "none"
    /// [default: $XDG_RUNTIME_DIR/orion/oriond.sock, /run/orion/oriond.sock for root, else /tmp/orion-UID/oriond.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<String>,
    /// TCP address for programs elsewhere, such as 0.0.0.0:7411, or "none"; it needs a token. What other machines say
    /// there is encrypted by TLS
    #[arg(long, default_value = "none", value_name = "ADDRESS:PORT")]
    listen: String,
    /// Let the programs of a virtual machine in, whose QEMU maps this file as an ivshmem-plain device. orion-shm makes
    /// such files, one for each machine; may be given several times
    #[arg(long, value_name = "FILE")]
    guest: Vec<PathBuf>,
    /// The same for each file in this folder that is called as orion-shm calls them: orionsock0, orionsock1 and so on
    #[arg(long, value_name = "FOLDER")]
    guest_folder: Option<PathBuf>,
    /// Let the programs of a virtual machine in, whose QEMU asks at this UNIX socket for the memory of an
    /// ivshmem-doorbell device; may be given several times
    #[arg(long, value_name = "PATH")]
    guest_socket: Vec<PathBuf>,
    /// Memory of each such device, a power of two. What is used of it costs memory
    #[arg(long, default_value = "256 MiB", value_parser = parse_bytes, value_name = "BYTES", requires = "guest_socket")]
    guest_memory: u64,
    /// Group that may ask there beside oriond's user, by name or number: one of the user who runs QEMU, such as
    /// libvirt-qemu [default: none]
    #[arg(long, value_name = "GROUP", requires = "guest_socket")]
    guest_group: Option<String>,
    /// Sessions that a virtual machine may have at the same time. They divide its memory, and an ivshmem-doorbell
    /// device takes one more vector than there are
    #[arg(long, default_value_t = 1, value_name = "N")]
    guest_sessions: usize,
    /// Port of vsock for programs of virtual machines on this one, such as 7411; it needs a token, as --listen does. Or
    /// the path of a socket, PATH_PORT, to which vhost-device-vsock, Firecracker or Cloud Hypervisor leads one of them.
    /// May be given several times
    #[arg(long, value_parser = Machines::parse, value_name = "PORT")]
    vsock: Vec<Machines>,
    /// TCP address for programs elsewhere whose sessions go over RDMA, such as 0.0.0.0:7412, or "none". The handshake
    /// is as over --listen; what RDMA devices write then is not encrypted
    #[arg(long, default_value = "none", value_name = "ADDRESS:PORT")]
    rdma: String,
    /// Port of an RDMA device for --rdma: DEVICE[:PORT][,gid=N][,mtu=N][,sl=N][,pkey=N], such as mlx5_0:1,gid=3
    /// [default: the first device with a port that is up]
    #[arg(long, value_parser = VerbsPort::parse, value_name = "DEVICE")]
    rdma_device: Option<VerbsPort>,
    /// File with the token that clients have to know, readable by its owner only; its last newline does not count.
    /// `openssl rand -hex 16` makes one
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// PEM file with the certificate that clients are shown, and behind it those between it and its CA. Without one
    /// oriond makes its own at each start, and clients know it by the token
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// PEM file with its key, readable by its owner only
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// PEM file with CAs of clients' certificates. Whoever comes over TCP has to show one then, beside the token if
    /// there is one
    #[arg(long, value_name = "FILE")]
    client_ca: Option<PathBuf>,
    /// List of certificates that are not taken any more, a fingerprint on each line. It is read anew when it changes
    #[arg(long, value_name = "FILE", requires = "client_ca")]
    revoked: Option<PathBuf>,
    /// Let other machines speak to the TCP address in the clear, and, without a token, let whoever reaches it use the
    /// GPUs
    #[arg(long)]
    insecure: bool,
    /// Belong to a pool: a UNIX socket at which orion-agent of this user or root says to which. Only who has a lease of
    /// the pool's controller gets a session then, and the lease says with which vGPUs and how much memory
    #[arg(long, value_name = "PATH")]
    pool: Option<PathBuf>,
    /// UNIX socket at which orion-top asks: whoever runs oriond about all sessions, others about their own; or "none"
    /// [default: beside --socket or --pool, with .stats.sock for .sock; none without these]
    #[arg(long, value_name = "PATH")]
    stats: Option<String>,
    /// Serve OpenMetrics of all sessions at /metrics, to whoever reaches this address: a port of this machine, such as
    /// 9412, or ADDRESS:PORT [default: none]
    #[arg(long, value_parser = parse_metrics, value_name = "[ADDRESS:]PORT")]
    metrics: Option<SocketAddr>,
    /// Path of NVIDIA's libnvidia-ml.so.1, which is asked how busy GPUs are while somebody looks, and what memory the
    /// workers of sessions with a limit have, or "none"
    /// [default: beside the driver, else where the loader finds it]
    #[arg(long, value_name = "PATH")]
    nvml: Option<String>,
    /// Engine threads [default: half the cores, at most 8]
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    engines: usize,
    /// Workers that wait, warmed up, for the next session; of each GPU so many where a pool gives GPUs out
    #[arg(long, default_value_t = 2)]
    warm: usize,
    /// Workers to warm up at the start, beyond --warm, that are not replaced once used
    #[arg(long, default_value_t = 0)]
    prestart: usize,
    /// Sessions at the same time; more are refused
    #[arg(long, default_value_t = 64)]
    sessions_max: usize,
    /// Percent of its GPU's time that each vGPU is promised, where others want it too [default: all of it]. A pool's
    /// leases say it themselves
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=100))]
    share: Option<u32>,
    /// Of the time that others leave idle, how much a session may have beyond its share, in percent: 0 never lets one
    /// have more than its share, 100 lets none of it go to waste [default: 100]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100))]
    throttle_level: Option<u32>,
    /// When sessions take turns on a GPU: if one has a share other than all of it (auto), always (on; without shares
    /// they are equal), or never, so that the driver's time slices count (off)
    #[arg(long, default_value = "auto", value_name = "WHEN")]
    computation_throttle: engine::time::policy::Division,
    /// How long such a turn is where somebody has a limit of his own (--throttle-level below 100), from 1000 to 10000.
    /// Else all have a turn in each round of five times that, or of one for each if they are more, as long as their
    /// shares
    #[arg(long, default_value_t = 5000, value_name = "MICROSECONDS")]
    #[arg(value_parser = clap::value_parser!(u64).range(1000..=10_000))]
    throttle_turn_us: u64,
    /// Users that workers become, one each, where oriond is root: FIRST-LAST. Nobody else may have them
    #[arg(long, default_value = "1890000000-1890999999", value_name = "RANGE")]
    worker_uids: cell::Range,
    /// All sessions are one tenant's: their workers share a user, and handles for other processes (cuIpc…) open between
    /// them. So it is anyway without --token-file, or without a socket beside it, unless --insecure or --client-ca is
    /// given
    #[arg(long)]
    one_tenant: bool,
    /// Do not serve unless workers get every layer of isolation
    #[arg(long)]
    require_isolation: bool,
    /// A layer of isolation to do without; may be given several times
    #[arg(long, value_name = "LAYER")]
    isolation_off: Vec<cell::Layer>,
    /// How long an engine looks for work before it sleeps, at most: where cores are short it is 20
    /// [default: 20000, or 50 on up to three cores]
    #[arg(long, value_name = "MICROSECONDS")]
    spin_us: Option<u64>,
    /// Descriptor to which a line with the addresses is written once they accept connections
    #[arg(long, value_name = "N")]
    ready_fd: Option<i32>,
    /// error, warn, info, debug or trace
    #[arg(long, default_value = "info")]
    log_level: LevelFilter,
    /// Log to the end of this file too
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
    /// As --log-level, of that file and of those of sessions
    #[arg(long, default_value = "info", value_name = "LEVEL")]
    log_file_level: LevelFilter,
    /// Once the file is so large it gets ".1" behind its name, in place of the one that had it, and a new one begins
    #[arg(long, default_value = "64 MiB", value_parser = parse_bytes, value_name = "BYTES", requires = "log_file")]
    log_file_max: u64,
    /// Log what concerns a session to a file of its own in this folder too, at --log-file-level; a file is at most
    /// 256 KiB
    #[arg(long, value_name = "FOLDER")]
    session_log: Option<PathBuf>,
    /// Files in that folder; the oldest go
    #[arg(long, default_value_t = 1000, value_name = "N", requires = "session_log")]
    session_log_files: usize,
    /// Do not log on standard error
    #[arg(long)]
    no_log_screen: bool,
    /// Log without times, for a journal that has its own
    #[arg(long)]
    no_log_time: bool,
    #[command(flatten)]
    worker: WorkerOptions,
}

#[derive(Args)]
struct Worker {
    /// Socket to oriond
    #[arg(long)]
    control_fd: i32,
    /// What it does to itself once the driver is warm
    #[arg(long)]
    seal: Vec<cell::Layer>,
    #[arg(long)]
    one_tenant: bool,
    /// The GPUs that its driver sees, if they are not all
    #[arg(long, value_delimiter = ',')]
    gpus: Vec<String>,
    #[command(flatten)]
    options: WorkerOptions,
}

/// What a worker needs to know besides its session.
#[derive(Args, Debug, Clone)]
pub struct WorkerOptions {
    /// Path of NVIDIA's libcuda.so.1, "soft" for the software GPU, or "auto": NVIDIA's where there is one and a GPU,
    /// the software GPU elsewhere
    #[arg(long, default_value = "auto", value_name = "PATH|soft|auto")]
    pub driver: String,
    /// Host memory that client and worker share: staging, pinned memory and large arguments. Only what is used costs
    /// memory
    #[arg(long, default_value = "64 GiB", value_parser = parse_bytes, value_name = "BYTES")]
    pub heap: u64,
    /// The part of it that is registered with the driver ahead of time
    #[arg(long, default_value = "64 MiB", value_parser = parse_bytes, value_name = "BYTES")]
    pub staging: u64,
    /// Host memory beyond that which a session's worker may take for what the session makes: graphs, events, host
    /// functions. A session that takes more is ended [default: 16 GiB, or a quarter of this machine's if that is less]
    #[arg(long, value_parser = parse_bytes, value_name = "BYTES")]
    pub host_memory: Option<u64>,
    /// Device memory that each GPU of a session has, such as "4 GiB": what programs see as its size, and cannot exceed
    /// in any way [default: all of the GPU's]
    #[arg(long, value_parser = parse_bytes, value_name = "BYTES")]
    pub memory_limit: Option<u64>,
    /// GPUs that each session sees [default: as many as there are]. Beyond that they share GPUs, as devices of their
    /// own; then each needs its --memory-limit
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub vgpus: Option<u32>,
    /// Path of CUDA 13's libcupti.so.13, which tells profilers in the applications what the GPU did [default: where the
    /// loader finds it, else in /usr/local/cuda]
    #[arg(long, value_name = "PATH")]
    pub cupti: Option<String>,
    /// Whether kernels that go on after their program's turn are taken off the GPU and go on with its next one: where
    /// each worker has seen that this works (auto), or never (off). It rests on what NVIDIA's driver can do and does
    /// not document
    #[arg(long, default_value = "auto", value_name = "auto|off")]
    pub preemption: Preempts,
}

/// When kernels are taken off the GPU before they have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Preempts {
    Auto,
    Off,
}

impl WorkerOptions {
    fn arguments(&self) -> Vec<String> {
        let cupti = self.cupti.as_ref().map(|path| ("--cupti", path.clone()));
        let memory_limit = self.memory_limit.map(|bytes| ("--memory-limit", bytes.to_string()));
        let host_memory = self.host_memory.map(|bytes| ("--host-memory", bytes.to_string()));
        [("--driver", self.driver.clone()), ("--heap", self.heap.to_string()), ("--staging", self.staging.to_string())]
            .into_iter()
            .chain(cupti)
            .chain(host_memory)
            .chain(memory_limit)
            .chain(self.vgpus.map(|count| ("--vgpus", count.to_string())))
            .chain((self.preemption == Preempts::Off).then(|| ("--preemption", "off".to_owned())))
            .flat_map(|(k, v)| [k.to_owned(), v])
            .collect()
    }
}

fn main() -> std::process::ExitCode {
    if let Some(done) = orion_pages::were_asked_for(Cli::command) {
        return done;
    }
    let outcome = config::expand(std::env::args_os().collect(), &choices()).and_then(|(arguments, settings)| {
        match Cli::parse_from(&arguments).command {
            Command::Serve(options) if options.show_config => show_config(&arguments, &settings),
            Command::Serve(options) => {
                // Before anything of ours is opened, which is not what whoever started us means.
                options.ready_fd.map_or(Ok(()), keep_from_workers)?;
                // Before any thread starts, the log's too, so that all of them leave these to this one.
                let signals = block_signals();
                let _log = log::start(&log_settings(&options))?;
                settings.notices.iter().for_each(|notice| tracing::warn!("{notice}"));
                serve(*options, &signals)
            }
            Command::Worker(options) => work(options),
            Command::Hold { life_fd } => cell::hold(life_fd),
        }
    });
    match outcome {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(reason) => {
            // A worker's way to the log leads through oriond.
            lines::warn(&reason);
            std::process::ExitCode::FAILURE
        }
    }
}

/// The options of `serve` that server.conf may have.
fn choices() -> Vec<config::Choice> {
    let serve = Cli::command();
    let serve = serve.find_subcommand("serve").expect("a command of this program");
    let choice = |option: &clap::Arg| {
        let name = option.get_long()?.to_owned();
        let is_flag = matches!(option.get_action(), clap::ArgAction::SetTrue);
        let is_of_the_start = matches!(name.as_str(), "config" | "show-config" | "ready-fd");
        (!is_of_the_start).then_some(config::Choice { name, is_flag })
    };
    serve.get_arguments().filter_map(choice).collect()
}

/// Every setting as server.conf would have it; what is at its default is a comment.
fn show_config(arguments: &[OsString], settings: &config::Settings) -> Result<(), String> {
    let matches = Cli::command().get_matches_from(arguments);
    let (_, serve) = matches.subcommand().expect("parsed before");
    settings.notices.iter().for_each(|notice| orion_pages::putln!("; {notice}"));
    orion_pages::putln!("[server]");
    for choice in choices() {
        let id = choice.name.replace('-', "_");
        let is_default = serve.value_source(&id).is_none_or(|from| from == clap::parser::ValueSource::DefaultValue);
        let values = serve.get_raw(&id).into_iter().flatten().map(|value| value.to_string_lossy());
        let value = values.collect::<Vec<_>>().join(" ");
        orion_pages::putln!("{}{id} = {value}", if is_default { ";" } else { "" });
    }
    Ok(())
}

fn log_settings(options: &Serve) -> log::Settings {
    log::Settings {
        screen: (!options.no_log_screen).then_some(options.log_level),
        file: options.log_file.clone().map(|path| (path, options.log_file_level)),
        file_bytes_max: options.log_file_max,
        sessions: options.session_log.clone().map(|folder| log::SessionSettings {
            folder,
            files_max: options.session_log_files,
            level: options.log_file_level,
            with_time: !options.no_log_time,
        }),
        with_time: !options.no_log_time,
    }
}

fn work(options: Worker) -> Result<(), String> {
    cell::hide()?;
    cell::end_by_signals();
    // SAFETY: a literal; the name replaces "exe" in ps.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"oriond-worker".as_ptr()) };
    // What the device is asked about is asked again in 20 us, not in 70 us. All threads inherit it.
    // SAFETY: a plain call.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000usize) };
    // SAFETY: oriond passes this descriptor for us to own; the command is hidden from people.
    let control = unsafe { OwnedFd::from_raw_fd(options.control_fd) };
    // SAFETY: a plain call on a descriptor we own. A driver's helper processes must not inherit it.
    unsafe { libc::fcntl(options.control_fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    let seal = cell::Seal::of(&options.seal, options.one_tenant);
    if !options.gpus.is_empty() && options.seal.contains(&cell::Layer::Landlock) {
        cell::gpus::keep_only(&options.gpus.into_iter().collect())?;
    }
    let options = worker::start::Options {
        seal,
        driver: options.options.driver,
        heap_bytes: options.options.heap,
        staging_bytes: options.options.staging,
        host_memory_bytes: options.options.host_memory.unwrap_or_else(host_memory_bytes),
        cupti: options.options.cupti,
        memory_limit: options.options.memory_limit,
        vgpus: options.options.vgpus.map(|count| count as usize),
        preempts: options.options.preemption == Preempts::Auto,
    };
    // For the tests of everything around workers.
    if options.driver == "echo" { worker::stub::main(control, seal) } else { worker::start::main(control, &options) }
}

/// What no program is known to need, and what several sessions may have at once.
fn host_memory_bytes() -> u64 {
    // SAFETY: all-zero is valid, and a valid place.
    let installed = unsafe {
        let mut info: libc::sysinfo = std::mem::zeroed();
        libc::sysinfo(&mut info);
        info.totalram as u64 * u64::from(info.mem_unit)
    };
    (16 << 30).min(installed / 4)
}

fn serve(mut options: Serve, signals: &libc::sigset_t) -> Result<(), String> {
    refuse_limits(&options)?;
    let time = time(&options)?;
    refuse_beside_pool(&options)?;
    let cells = plan_cells(&options)?;
    let _ending = cells.groups.as_ref().map(cell::Ending::of);
    raise_descriptor_limit();
    let token = options.token_file.as_deref().map(Token::read).transpose()?;
    let listen = address_of("--listen", &options.listen, 7411)?;
    let verbs = address_of("--rdma", &options.rdma, 7412)?;
    if let (None, Some(device)) = (verbs, &options.rdma_device) {
        return Err(format!("--rdma-device {device} is for --rdma ADDRESS:PORT; give that too, or leave it out"));
    }
    let verbs = verbs.map(|address| (address, options.rdma_device.clone().unwrap_or_default()));
    let listens = listen.is_some() || verbs.is_some() || !options.vsock.is_empty();
    let security = security(&options, listens)?;
    let guests = guests(&options)?;
    let socket = match options.socket.as_deref() {
        Some("none") => None,
        Some(path) => Some(PathBuf::from(path)),
        None => Some(default_socket()),
    };
    choose_driver(&mut options.worker)?;
    let is_of_pool = options.pool.is_some();
    let stats = match options.stats.as_deref() {
        Some("none") => None,
        Some(path) => Some(PathBuf::from(path)),
        None => socket.as_ref().or(options.pool.as_ref()).map(|path| path.with_extension("stats.sock")),
    };
    let fingerprint = security.as_ref().map(|security| security.server.fingerprint);
    let is_open = token.is_none() && options.pool.is_none();
    let nvml = nvml(options.nvml.as_deref(), &options.worker.driver)?;
    let asks_nvml = nvml.is_some();
    let host_memory = options.worker.host_memory.unwrap_or_else(host_memory_bytes);
    let allowance = cell::Allowance { heap: options.worker.heap, host_memory };
    let engines = engine::run::start(engine::settings::Settings {
        socket,
        stats,
        metrics: options.metrics,
        listen,
        guests,
        machines: options.vsock,
        verbs,
        token,
        pool: options.pool,
        nvml,
        is_software: options.worker.driver == "soft",
        has_memory_limit: options.worker.memory_limit.is_some(),
        security,
        engines: options.engines,
        warm: options.warm,
        prestart: options.prestart,
        sessions_max: options.sessions_max,
        spin_us: options.spin_us,
        worker_arguments: options.worker.arguments(),
        time,
        cells,
        allowance,
    })?;
    let addresses = engines.addresses.join(" ");
    Served {
        addresses: &addresses,
        worker: &options.worker,
        is_insecure: options.insecure,
        is_open,
        is_of_pool,
        asks_nvml,
        division: time.division,
        fingerprint,
    }
    .say();
    if let Some(fd) = options.ready_fd {
        tell_who_started_us(fd, &addresses)?;
    }
    let status = format!("serving {addresses}");
    notify(&[NotifyState::Ready, NotifyState::Status(&status)]);
    wait_for_signal(signals);
    tracing::info!("stopping");
    notify(&[NotifyState::Stopping]);
    engines.stop();
    Ok(())
}

/// What an operator is told once it serves.
struct Served<'a> {
    addresses: &'a str,
    worker: &'a WorkerOptions,
    is_insecure: bool,
    is_open: bool,
    is_of_pool: bool,
    asks_nvml: bool,
    division: Division,
    fingerprint: Option<Fingerprint>,
}

impl Served<'_> {
    fn say(&self) {
        tracing::info!(addresses = self.addresses, driver = self.worker.driver, "serving");
        let is_limited = self.worker.memory_limit.is_some() || self.is_of_pool;
        if is_limited && !self.asks_nvml && self.worker.driver != "soft" {
            tracing::info!(
                "device memory is limited by what sessions ask the driver for, and without NVML that is not held \
                 against what the driver says of their workers; see --nvml"
            );
        }
        if self.is_of_pool && self.division == Division::Off {
            tracing::warn!(
                "leases promise shares of the GPUs' time, and --computation-throttle off has nobody kept to them"
            );
        }
        if let Some(fingerprint) = self.fingerprint {
            tracing::info!(%fingerprint, "the certificate that clients are shown");
        }
        if self.is_insecure {
            tracing::warn!(
                "INSECURE: other machines may speak to the TCP address in the clear{}, for --insecure was given",
                if self.is_open { ", and whoever reaches it can use the GPUs" } else { "" }
            );
        }
    }
}

/// The addresses, on the descriptor of --ready-fd.
fn tell_who_started_us(fd: i32, addresses: &str) -> Result<(), String> {
    // SAFETY: whoever started us passed this descriptor for us to own.
    let mut ready = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    writeln!(ready, "{addresses}").map_err(|e| format!("writing to --ready-fd {fd} failed: {e}"))
}

/// The value of an option that is an address, or "none". What is no address is answered with an example of that port.
fn address_of(option: &str, text: &str, port: u16) -> Result<Option<SocketAddr>, String> {
    if text == "none" {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        format!("{option} {text:?} is not an IP address with a port, such as 127.0.0.1:{port} or [::1]:{port}")
    })
}

/// What `--driver auto` comes to, and that it, or the one that was named, can be had.
fn choose_driver(worker: &mut WorkerOptions) -> Result<(), String> {
    let is_named = worker.driver != "auto";
    if !is_named {
        worker.driver = driver_of_this_machine();
    }
    check_driver(&worker.driver)?;
    if let ("soft", Some(path)) = (worker.driver.as_str(), &worker.cupti) {
        return Err(format!(
            "--cupti {path} is for NVIDIA's driver, and the software GPU has a profiler of its own; leave it out, or \
             give --driver"
        ));
    }
    if is_named && !matches!(worker.driver.as_str(), "soft" | "echo") {
        make_device_files();
    }
    Ok(())
}

/// Virtual machines that are let in.
fn guests(options: &Serve) -> Result<Vec<Guest>, String> {
    let mut all: Vec<Memory> = options.guest.iter().cloned().map(Memory::File).collect();
    if let Some(folder) = &options.guest_folder {
        let files = segments_in(folder)?;
        if files.is_empty() {
            return Err(format!(
                "--guest-folder {} has no memory of a virtual machine; `orion-shm -i 0 -d {0}` makes the first",
                folder.display()
            ));
        }
        all.extend(files.into_iter().map(Memory::File));
    }
    let group = options.guest_group.as_deref().map(group_of).transpose()?;
    let bytes = options.guest_memory;
    all.extend(options.guest_socket.iter().cloned().map(|path| Memory::Socket { path, bytes, group }));
    Ok(all.into_iter().map(|memory| Guest { memory, sessions: options.guest_sessions }).collect())
}

/// By name where it is no number. Names may come from elsewhere than /etc, which getent knows.
fn group_of(name: &str) -> Result<u32, String> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let found = std::process::Command::new("getent").args(["group", "--", name]).output();
    let found =
        found.map_err(|e| format!("--guest-group {name}: looking for it failed: getent: {e}; give its number"))?;
    let line = String::from_utf8_lossy(&found.stdout);
    let number = line.split(':').nth(2).and_then(|number| number.trim().parse().ok());
    number.ok_or_else(|| format!("--guest-group {name}: there is no such group; give another name, or a number"))
}

/// The files that orion-shm has made there, by their numbers.
fn segments_in(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |e| format!("reading --guest-folder {} failed: {e}", folder.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let Some(number) = name.strip_prefix("orionsock").and_then(|number| number.parse::<u32>().ok()) {
            found.push((number, path));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// What is wanted of whoever comes to the TCP address, if there is one.
fn security(options: &Serve, listens: bool) -> Result<Option<Arc<Security>>, String> {
    let about_the_address = [
        ("--insecure", options.insecure),
        ("--certificate", options.certificate.is_some()),
        ("--client-ca", options.client_ca.is_some()),
    ];
    let given = about_the_address.iter().find(|(_, is_given)| *is_given);
    if let (false, Some((name, _))) = (listens, given) {
        return Err(format!(
            "{name} is about a TCP address; give --listen ADDRESS:PORT, --rdma or --vsock, or leave it out"
        ));
    }
    if let (true, Some((name, _))) = (options.insecure, about_the_address[1..].iter().find(|(_, given)| *given)) {
        return Err(format!(
            "--insecure lets other machines speak in the clear, and {name} is about what is encrypted; leave one of \
             them out"
        ));
    }
    if !listens {
        return Ok(None);
    }
    let wanted = engine::security::Options {
        certificate: options.certificate.clone().zip(options.key.clone()),
        client_ca: options.client_ca.clone(),
        revoked: options.revoked.clone(),
        insecure: options.insecure,
    };
    Security::open(&wanted).map(Arc::new).map(Some)
}

/// Tells the service manager, if it asked to be told.
fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "telling the service manager failed");
    }
}

/// Whether all who are let in are the same: without a token oriond's own user, without a socket who has the token.
fn has_one_tenant(options: &Serve) -> bool {
    let only_tcp = options.socket.as_deref() == Some("none");
    let is_of_one = if options.token_file.is_some() { only_tcp } else { !options.insecure };
    let has_guests = !options.guest.is_empty() || !options.guest_socket.is_empty() || options.guest_folder.is_some();
    options.one_tenant || !has_guests && options.pool.is_none() && options.client_ca.is_none() && is_of_one
}

/// Says which layers of isolation workers will not have, and what that means.
fn plan_cells(options: &Serve) -> Result<cell::Plan, String> {
    let (plan, missing) =
        cell::Plan::for_this_host(options.worker_uids, &options.isolation_off, has_one_tenant(options));
    for m in &missing {
        tracing::warn!(layer = %m.layer, reason = m.reason, "workers are not fully isolated: {}", m.consequence());
    }
    match missing.first() {
        Some(m) if options.require_isolation => Err(format!(
            "refusing to serve without the layer {}, because of --require-isolation: {}",
            m.layer, m.reason
        )),
        _ => Ok(plan),
    }
}

/// libcuda makes missing files in /dev by a helper that runs as root. Workers get no new privileges, so it is asked to
/// before there are any.
fn make_device_files() {
    if std::path::Path::new("/dev/nvidia-uvm").exists() {
        return;
    }
    let helper = std::process::Command::new("nvidia-modprobe").args(["-c", "0", "-u"]).status();
    match helper {
        Ok(status) if status.success() => tracing::info!("nvidia-modprobe made the device files"),
        Ok(status) => tracing::warn!(%status, "nvidia-modprobe failed; workers will most likely find no GPU"),
        Err(error) => tracing::warn!(%error, "there is no /dev/nvidia-uvm, and starting nvidia-modprobe failed"),
    }
}

/// A limit that is taken and not kept is worse than none.
fn refuse_limits(options: &Serve) -> Result<(), String> {
    if options.worker.memory_limit == Some(0) {
        return Err("--memory-limit 0: no program can start without any device memory; leave the option out, or give \
                    each session some, such as \"4 GiB\""
            .to_owned());
    }
    Ok(())
}

/// Shares of GPUs' time, if what was said of them agrees.
fn time(options: &Serve) -> Result<engine::time::policy::Policy, String> {
    use engine::time::policy::{Division, Policy};
    let division = options.computation_throttle;
    match (division, options.share, options.throttle_level) {
        (Division::Off, Some(share), _) => {
            Err(format!("--share {share} and --computation-throttle off contradict each other; leave one of them out"))
        }
        (Division::Off, None, Some(level)) => Err(format!(
            "--throttle-level {level} means nothing with --computation-throttle off; leave one of them out"
        )),
        (Division::Auto, None, Some(level)) if options.pool.is_none() => Err(format!(
            "--throttle-level {level} means nothing where no session has a share; give --share PERCENT or \
             --computation-throttle on, or leave it out"
        )),
        (_, share, level) => {
            let quantum_ns = options.throttle_turn_us * 1000;
            // Software GPUs of several workers are several.
            let is_software = options.worker.driver == "soft";
            let may_be_together =
                !is_software || cfg!(debug_assertions) && std::env::var_os("ORION_SOFT_TOGETHER").is_some();
            let arbiter = orion_arbiter::Settings { quantum_ns, level: level.unwrap_or(100), may_be_together };
            Ok(Policy { division, share, arbiter })
        }
    }
}

/// What leases say is not said on the command line too.
fn refuse_beside_pool(options: &Serve) -> Result<(), String> {
    let Some(pool) = &options.pool else { return Ok(()) };
    let worker = &options.worker;
    let beside = [
        ("--token-file", options.token_file.is_some()),
        ("--memory-limit", worker.memory_limit.is_some()),
        ("--vgpus", worker.vgpus.is_some()),
        ("--share", options.share.is_some()),
    ];
    match beside.iter().find(|(_, is_given)| *is_given) {
        Some((name, _)) => Err(format!(
            "{name} and --pool {} contradict each other: leases say who is let in, and with what; leave one of them \
             out",
            pool.display()
        )),
        None => Ok(()),
    }
}

/// Whoever waits for the line would otherwise wait for every worker too.
fn keep_from_workers(fd: i32) -> Result<(), String> {
    // SAFETY: plain calls that work on any number.
    let (kept, flags) = unsafe { (libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC), libc::fcntl(fd, libc::F_GETFL)) };
    match kept {
        0 if fd <= 2 => Err(format!("--ready-fd {fd} is one of the standard descriptors; pass another one")),
        0 if flags & libc::O_ACCMODE == libc::O_RDONLY => {
            Err(format!("--ready-fd {fd} is open for reading alone; pass the other end of a pipe"))
        }
        0 => Ok(()),
        _ => Err(format!("--ready-fd {fd} is no open descriptor: {}", std::io::Error::last_os_error())),
    }
}

/// Which library is asked how busy GPUs are, if one is. The software GPU says that itself.
fn nvml(named: Option<&str>, driver: &str) -> Result<Option<PathBuf>, String> {
    let is_nvidias = !matches!(driver, "soft" | "echo");
    match named {
        Some("none") => Ok(None),
        Some(path) if !is_nvidias => Err(format!(
            "--nvml {path} is for NVIDIA's driver, and the software GPU says by itself how busy it is; leave it out, \
             or give --driver"
        )),
        Some(path) if !std::path::Path::new(path).is_file() => {
            Err(format!("--nvml {path} is not a file; give the path of NVIDIA's libnvidia-ml.so.1, or \"none\""))
        }
        Some(path) => Ok(Some(path.into())),
        None if !is_nvidias => Ok(None),
        None => {
            let found = orion_cuda::find::management(std::path::Path::new(driver));
            if found.is_none() {
                tracing::info!(
                    "no libnvidia-ml.so.1 of NVIDIA's was found: how busy GPUs are is not known where their time is \
                     not divided, and ledgers of sessions with a limit on memory are not held against what the \
                     driver says; see --nvml"
                );
            }
            Ok(found)
        }
    }
}

/// What `--driver auto` comes to. Whoever has a GPU is not to be served the software GPU without a word.
fn driver_of_this_machine() -> String {
    // After a start of the machine nobody may have used a GPU yet.
    if std::path::Path::new("/proc/driver/nvidia/version").exists() {
        make_device_files();
    }
    if let Some(path) = orion_cuda::find::driver() {
        return path.display().to_string();
    }
    if orion_cuda::find::has_device_files() {
        tracing::warn!(
            "this machine has NVIDIA's device files, and no libcuda.so.1 of NVIDIA's was found: what is served is the \
             software GPU; give --driver PATH"
        );
    } else {
        tracing::info!("this machine has no GPU of NVIDIA's: what is served is the software GPU");
    }
    "soft".to_owned()
}

/// What no worker could start with is said at once, and not by each that tries.
fn check_driver(driver: &str) -> Result<(), String> {
    match driver {
        "soft" => orion_soft::device::objection().map_or(Ok(()), Err),
        // For the tests of everything around workers.
        "echo" => Ok(()),
        // The loader's business to find.
        name if !name.contains('/') => Ok(()),
        path => match std::fs::File::open(path).and_then(|file| file.metadata()) {
            Ok(file) if file.is_file() => Ok(()),
            Ok(_) => Err(format!(
                "--driver {path} is not a file; give the path of NVIDIA's libcuda.so.1, \"soft\" or \"auto\""
            )),
            Err(e) => Err(format!(
                "opening the driver --driver {path} failed: {e}; give the path of NVIDIA's libcuda.so.1, \"soft\" or \
                 \"auto\""
            )),
        },
    }
}

/// A session costs up to a dozen descriptors, and the customary soft limit is 1024. Where it cannot be raised, oriond
/// says so when it runs out.
fn raise_descriptor_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain calls on a local.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

fn block_signals() -> libc::sigset_t {
    // SAFETY: plain calls on a local signal set.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for number in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            libc::sigaddset(&mut set, number);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        set
    }
}

fn wait_for_signal(set: &libc::sigset_t) {
    let mut number = 0;
    // SAFETY: both pointers are to live locals.
    while unsafe { libc::sigwait(set, &mut number) } != 0 {}
}

/// Where clients look, too.
fn default_socket() -> PathBuf {
    if let Some(dir) = std::env::var_os("XDG_RUNTIME_DIR").filter(|d| !d.is_empty()) {
        return PathBuf::from(dir).join("orion/oriond.sock");
    }
    // SAFETY: getuid cannot fail.
    match unsafe { libc::getuid() } {
        0 => "/run/orion/oriond.sock".into(),
        uid => format!("/tmp/orion-{uid}/oriond.sock").into(),
    }
}

/// A port of this machine alone, or an address with one.
fn parse_metrics(text: &str) -> Result<SocketAddr, String> {
    let port = text.parse().map(|port: u16| SocketAddr::from(([127, 0, 0, 1], port)));
    port.or_else(|_| text.parse()).map_err(|_| "it is a port, or an IP address with one, such as [::1]:9412".to_owned())
}

/// A number of bytes with an optional unit: `4096`, `64 MiB`, `8GiB`.
fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return Err(format!("unit {unit:?} is none of KiB, MiB, GiB, TiB")),
    };
    let number: u64 = number.parse().map_err(|_| format!("{text:?} does not begin with a number"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("{text:?} is more than any machine has"))
}
