//! `orion-controller`: owns a pool of vGPUs. Nodes report what they have, clients ask for some of it.

mod config;
mod desk;
mod leases;
mod service;
mod store;
mod web;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use orion_pool::pool::Settings;
use orion_proto::pool_server::PoolServer;
use tracing::{info, warn};

use crate::config::Config;
use crate::service::Service;
use crate::store::Store;

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
    /// Keeps the pool in an etcd. Not there yet: refused.
    #[arg(long, value_name = "URL")]
    kv: Option<String>,
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
    if let Some(url) = &start.kv {
        return Err(format!(
            "--kv {url}: this controller cannot keep the pool in an etcd yet; without it the pool is in \
             database.data-dir"
        ));
    }
    let config = Config::read(start.config_file.as_deref())?;
    log_to(start.log.as_ref().or(config.log_file.as_ref()), config.log_level)?;
    for name in &config.idle {
        warn!("controller.yaml: database.{name} has no meaning here");
    }
    let settings = Settings { policy: config.policy, ..Settings::default() };
    info!("Creating database connection to {}", config.folder.display());
    let store = Store::open(&config.folder)?;
    let (node_ms, lease_ms) = (settings.node_ms, settings.lease_ms);
    let counter = desk::open(settings, store)?;
    info!("Database connection is created.");
    let service = Service {
        counter,
        keys: config.keys.clone(),
        master: leases::master_key(&config.folder)?,
        places_by_ratio: config.places_by_ratio,
        node_ms,
        lease_ms,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| format!("starting the runtime failed: {e}"))?;
    runtime.block_on(serve(SocketAddr::from(config.listen), service))
}

async fn serve(address: SocketAddr, service: Service) -> Result<(), String> {
    let listener =
        tokio::net::TcpListener::bind(address).await.map_err(|e| format!("listening on {address} failed: {e}"))?;
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(orion_proto::DESCRIPTORS)
        .build_v1()
        .map_err(|e| format!("the description of the service is damaged: {e}"))?;
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<PoolServer<Service>>().await;
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
        served = axum::serve(listener, router) => served.map_err(|e| format!("serving failed: {e}")),
        () = told_to_end() => {
            info!("ending; what is running goes on without the controller");
            Ok(())
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
