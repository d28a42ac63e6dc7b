//! `orion-controller`: owns a pool of vGPUs. Nodes report what they have, clients ask for some of it.

// UNSAFETY: asks for the limit of descriptors, and raises it.

mod claimed;
mod claims;
mod config;
mod desk;
mod doors;
mod key;
mod last;
mod leases;
mod lines;
mod load;
mod room;
mod service;
mod sessions;
mod store;
mod web;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, Parser, Subcommand};
use orion_pool::pool::Settings;
use orion_proto::pool_server::PoolServer;
use orion_tls::trust::Trust;
use tracing::{info, warn};

use crate::config::Config;
use crate::key::KeyFile;
use crate::service::Service;
use crate::store::Store;
use crate::store::embedded::Embedded;
use crate::store::etcd::Shared;

/// How long a controller that is told to end tries to say so to the others.
const RESIGN: Duration = Duration::from_secs(2);
/// More than wait for room at one time, and ask beside them.
const CONNECTIONS_MAX: usize = 16_384;
/// Descriptors for all that is no connection of others: the store, its etcd, logs.
const DESCRIPTORS_KEPT: usize = 64;

/// The controller of an Orion pool.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serves the pool, until it is told to end by SIGTERM or SIGINT.
    Start(Start),
}

#[derive(clap::Args)]
struct Start {
    /// Settings. Without it /etc/orion/controller.yaml, if that is there.
    #[arg(long, value_name = "FILE")]
    config_file: Option<PathBuf>,
    /// Log lines go to the end of this file instead of standard output.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Keeps the pool in an etcd, which several controllers share: https://HOST:PORT of its members, with commas
    /// between, or http:// on this machine. Without it database.kv, and without that a store of this controller's own
    #[arg(long, value_name = "URL[,URL…]")]
    kv: Option<String>,
    /// The CA that the etcd's certificates have to be of, a PEM file. Without it database.kv-ca, as of the following
    #[arg(long, value_name = "FILE")]
    kv_ca: Option<PathBuf>,
    /// What is shown to an etcd that wants a certificate, a PEM file
    #[arg(long, value_name = "FILE")]
    kv_certificate: Option<PathBuf>,
    /// The certificate's key
    #[arg(long, value_name = "FILE")]
    kv_key: Option<PathBuf>,
    /// Speaks to an etcd on another machine in the clear
    #[arg(long)]
    kv_insecure: bool,
}

impl Start {
    /// Whom to believe that he is the etcd, and what to show him.
    fn kv_trust(&self, config: &Config) -> Trust {
        let (ca, certificate, key) = (self.kv_ca.clone(), self.kv_certificate.clone(), self.kv_key.clone());
        let said = Trust { ca, certificate, key, insecure: self.kv_insecure, ..Trust::default() };
        said.or(config.kv_trust.clone())
    }
}

fn main() -> ExitCode {
    if let Some(done) = orion_pages::were_asked_for(Cli::command) {
        return done;
    }
    let Command::Start(start) = Cli::parse().command;
    match run(&start) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("orion-controller: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(start: &Start) -> Result<(), String> {
    let config = Config::read(start.config_file.as_deref())?;
    log_to(start.log.as_ref().or(config.log_file.as_ref()), config.log_level)?;
    for name in &config.idle {
        warn!("controller.yaml: database.{name} has no meaning here");
    }
    let security = std::sync::Arc::new(config.papers.read()?);
    if security.insecure {
        warn!("INSECURE: other machines may speak to this controller in the clear (controller.insecure)");
    }
    if let Some(list) = &security.revoked {
        let told = |outcome: Result<usize, String>| match outcome {
            Ok(certificates) => info!(certificates, "the list of revoked certificates was read anew"),
            Err(why) => tracing::error!(why, "the list of revoked certificates stays as it was"),
        };
        let watched = std::sync::Arc::clone(list).watch(told);
        watched.map_err(|e| format!("starting a thread for controller.revoked failed: {e}"))?;
    }
    let address = SocketAddr::from(config.listen);
    let listening = |e: std::io::Error| {
        let hint = match e.kind() {
            std::io::ErrorKind::AddrInUse => "; another controller runs there, or set controller.listen_port",
            std::io::ErrorKind::AddrNotAvailable => "; set controller.listen_ip to an address of this machine",
            _ => "",
        };
        format!("listening on {address} failed: {e}{hint}")
    };
    let listener = std::net::TcpListener::bind(address).map_err(listening)?;
    listener.set_nonblocking(true).map_err(listening)?;
    let local = listener.local_addr().map_err(listening)?;
    let settings = Settings { policy: config.policy, ..config.times.clone() };
    let (kv, kv_trust) = (start.kv.as_ref().or(config.kv.as_ref()), start.kv_trust(&config));
    if kv.is_none() && kv_trust != Trust::default() {
        return Err(
            "how to speak to an etcd is said, and no etcd: give --kv URL, or leave out what begins with kv-".to_owned()
        );
    }
    if kv_trust.insecure {
        warn!("INSECURE: this controller speaks to its etcd in the clear (kv-insecure)");
    }
    let shares_as = kv.map(|_| config.advertised(local)).transpose()?;
    if let Some(address) = shares_as.as_ref().filter(|address| orion_tls::is_loopback(address)) {
        warn!(
            "the pool's other controllers, and who asks them, are told that this one is at {address}, which leads each \
             machine to itself; set controller.listen_ip or controller.advertise to where others reach it"
        );
    }
    let (node_ms, lease_ms) = (settings.node_ms, settings.lease_ms);
    let counter = desk::open(settings, store(&config, kv, &kv_trust, shares_as.as_deref())?)?;
    let service = Service {
        counter,
        keys: config.keys.clone(),
        security,
        shares_as,
        places_by_ratio: config.places_by_ratio,
        last_metrics: last::LastMetrics::default(),
        node_ms,
        lease_ms,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| format!("starting the runtime failed: {e}"))?;
    let descriptors = raise_descriptor_limit()?;
    let connections_max = descriptors.checked_sub(DESCRIPTORS_KEPT).filter(|max| *max > 0).ok_or_else(|| {
        format!("the limit of open files is {descriptors}; raise it (LimitNOFILE= of the unit, ulimit -n)")
    })?;
    runtime.block_on(serve(listener, service, connections_max))
}

/// Each connection needs one, and the customary soft limit is 1024. How many there are.
fn raise_descriptor_limit() -> Result<usize, String> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain calls on a local.
    let is_known = unsafe {
        let is_known = libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0;
        let raised = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
        if is_known && libc::setrlimit(libc::RLIMIT_NOFILE, &raised) == 0 {
            limit = raised;
        }
        is_known
    };
    match is_known {
        true => Ok(usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX).min(CONNECTIONS_MAX + DESCRIPTORS_KEPT)),
        false => Err(format!("asking for the limit of open files failed: {}", std::io::Error::last_os_error())),
    }
}

/// Where the pool is kept.
fn store(
    config: &Config,
    kv: Option<&String>,
    kv_trust: &Trust,
    shares_as: Option<&str>,
) -> Result<Box<dyn Store>, String> {
    let folder = &config.folder;
    std::fs::create_dir_all(folder).map_err(|e| format!("creating {} failed: {e}", folder.display()))?;
    match (kv, shares_as) {
        (Some(urls), Some(address)) => {
            info!("Creating database connection to {urls}, known to other controllers as {address}");
            Ok(Box::new(Shared::open(urls, kv_trust, address.to_owned(), KeyFile::in_folder(folder))?))
        }
        _ => {
            info!("Creating database connection to {}", folder.display());
            let store = Embedded::open(folder)?;
            info!("Database connection is created.");
            Ok(Box::new(store))
        }
    }
}

async fn serve(listener: std::net::TcpListener, service: Service, connections_max: usize) -> Result<(), String> {
    let listener = tokio::net::TcpListener::from_std(listener).map_err(|e| format!("listening failed: {e}"))?;
    let (counter, security) = (service.counter.clone(), service.security.clone());
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(orion_proto::DESCRIPTORS)
        .build_v1()
        .map_err(|e| format!("the description of the service is damaged: {e}"))?;
    let (health, health_service) = tonic_health::server::health_reporter();
    tokio::spawn(tell_health(health, counter.leads.clone()));
    let router = tonic::service::Routes::new(PoolServer::new(service.clone()))
        .add_service(reflection)
        .add_service(health_service)
        .prepare()
        .into_axum_router()
        .merge(web::routes(service))
        .fallback(web::nothing);
    let local = listener.local_addr().map_err(|e| e.to_string())?;
    info!("Controller is launching, listening on {local}");
    // Streams of those who watch have no end, so nobody is waited for.
    tokio::select! {
        () = doors::serve(listener, security, router, connections_max) => Ok(()),
        () = told_to_end() => {
            info!("ending; what is running goes on without the controller");
            // An etcd that does not answer is not waited for: its lease ends by itself.
            let _ = tokio::time::timeout(RESIGN, counter.end()).await;
            Ok(())
        }
    }
}

/// The pool's service serves where it is led, as only there its calls are answered. The server as a whole (the name "")
/// serves as long as it runs.
async fn tell_health(health: tonic_health::server::HealthReporter, mut leads: tokio::sync::watch::Receiver<bool>) {
    loop {
        let serves = *leads.borrow_and_update();
        match serves {
            true => health.set_serving::<PoolServer<Service>>().await,
            false => health.set_not_serving::<PoolServer<Service>>().await,
        }
        if leads.changed().await.is_err() {
            return;
        }
    }
}

async fn told_to_end() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

fn log_to(file: Option<&PathBuf>, level: tracing::Level) -> Result<(), String> {
    let lines = tracing_subscriber::fmt().with_max_level(level).with_target(false);
    match file {
        None => lines.with_ansi(false).init(),
        Some(path) => {
            let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
            let file = file.map_err(|e| format!("opening the log {} failed: {e}", path.display()))?;
            lines.with_ansi(false).with_writer(std::sync::Mutex::new(file)).init();
        }
    }
    Ok(())
}
