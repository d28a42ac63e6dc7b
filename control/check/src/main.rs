//! `orion-check`: whether a machine can run Orion, and whether what runs on it is well.
//!
//! Commands, order and words are those of the original's tool. What fails says what to do, and makes the exit status 1.

mod client;
mod controller;
mod finding;
mod install;
mod machine;
mod server;
mod settings;
mod version;
mod vgpus;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};

use finding::Report;

/// Whether this machine can run Orion, and whether what runs on it is well
#[derive(Parser)]
#[command(version, after_help = "EXAMPLES:\n    orion-check install server\n    orion-check runtime client")]
struct Options {
    #[command(subcommand)]
    command: Command,
    /// One JSON object with everything that was found, in place of text
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Check this machine before Orion is installed
    Install {
        #[arg(value_enum)]
        what: install::What,
    },
    /// Diagnose what runs
    Runtime {
        #[arg(value_enum)]
        what: Side,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Side {
    /// oriond on this machine, and the controller
    Server,
    /// What a program on this machine would find
    Client,
    /// orion-controller on this machine, and what it answers
    Controller,
}

fn main() -> ExitCode {
    if let Some(done) = orion_pages::were_asked_for(Options::command) {
        return done;
    }
    let options = Options::parse();
    let mut report = Report::new(!options.json);
    match options.command {
        Command::Install { what } => install::check(&mut report, what),
        Command::Runtime { what: Side::Server } => server::check(&mut report),
        Command::Runtime { what: Side::Client } => client::check(&mut report),
        Command::Runtime { what: Side::Controller } => controller::check(&mut report),
    }
    if options.json {
        orion_pages::putln!("{}", report.json());
    }
    if report.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
