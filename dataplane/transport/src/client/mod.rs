//! The client's end: connect, shake hands, and from then on keep the session memory in step with the worker.

mod link;
mod local;
pub mod say;
mod tcp;

pub use crate::scatter::Listener;
use std::os::fd::AsFd;

pub use link::{Attached, Caller, Greeted, Link, Lost, NoSession, Server, Tuning, greet, set_heap_listener, start};
use orion_wire::hello::Welcome;
pub use tcp::{connect as connect_tcp, join};

/// Attaches to a worker of `server`. The error says what was being done, with which value, and what to try.
pub fn attach(server: &Server, caller: &Caller, tuning: Tuning) -> Result<Attached, NoSession> {
    match server {
        Server::Unix(path) => local::attach(server, path, caller),
        Server::Tcp(address) => tcp::attach(server, address, caller, tuning),
    }
}

/// Asks `server` for its welcome, and leaves without a session: the worker that was to serve it ends.
pub fn welcome_of(server: &Server, caller: &Caller) -> Result<Welcome, NoSession> {
    let greeted = match server {
        Server::Unix(path) => {
            let socket = local::connect(server, path)?;
            let trusted = local::is_trusted(server, &socket, caller)?;
            greet(server, socket.as_fd(), caller, trusted)?
        }
        Server::Tcp(address) => {
            let socket = tcp::connect(address).map_err(|e| tcp::unreachable(server, e))?;
            greet(server, socket.as_fd(), caller, false)?
        }
    };
    Ok(greeted.welcome)
}
