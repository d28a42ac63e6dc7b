//! The workspace's programs, for tests that start some of another package: cargo builds only those of a test's own. And
//! ports that they listen at.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Set by whoever has built all programs already. cargo chooses the features of dependencies anew for each choice of
/// packages, so that tests which each build a few would build the same dependencies many times.
pub const ALL: &str = "ORION_BUILT";

/// The folder cargo builds into, with what `cargo build` makes of these arguments in it, as the test is built.
///
/// # Panics
/// Where it does not build: then the test cannot be run.
pub fn build(arguments: &[&str]) -> PathBuf {
    if std::env::var_os(ALL).is_none() {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet"]).args(arguments).current_dir(root());
        if !cfg!(debug_assertions) {
            cargo.arg("--release");
        }
        assert!(cargo.status().expect("cargo starts").success(), "{arguments:?} does not build");
    }
    // A test lies in "deps" below it.
    let own = std::env::current_exe().expect("this program");
    own.ancestors().nth(2).expect("two folders up").to_owned()
}

/// The same of whole packages.
pub fn packages(names: &[&str]) -> PathBuf {
    build(&names.iter().flat_map(|name| ["-p", name]).collect::<Vec<_>>())
}

/// The workspace.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).expect("this package lies three folders down")
}

/// A port of this machine's own for whoever has to be found at the same one again when it has ended: none of those that
/// the system gives to who asks for any, so nobody comes to have it meanwhile.
///
/// # Panics
/// Where all of them are taken.
pub fn steady_port() -> u16 {
    /// So many below the first that the system gives.
    const COUNT: u32 = 8000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let first: u32 = range.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(32_768);
    let below = first.saturating_sub(COUNT).max(1024);
    // Tests that run at the same time begin at places of their own.
    let from = std::process::id().wrapping_mul(97);
    let taken = listened_at();
    let free = (0..COUNT).find_map(|_| {
        let offset = from.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        let port = u16::try_from(below + offset).expect("it lies below a port");
        (!taken.contains(&port)).then_some(port)
    });
    free.unwrap_or_else(|| panic!("no port from {below} to {} is free", below + COUNT))
}

/// The ports at which somebody listens, by the kernel's tables. Whoever tries one by listening there takes it from the
/// next: a program that another thread starts meanwhile has the socket too, until it is that other program.
fn listened_at() -> BTreeSet<u16> {
    const LISTENS: &str = "0A";
    let mut ports = BTreeSet::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        // Where there is no IPv6, nobody listens by it.
        let lines = std::fs::read_to_string(table).unwrap_or_default();
        for line in lines.lines().skip(1) {
            let mut words = line.split_whitespace().skip(1);
            let (address, state) = (words.next().unwrap_or_default(), words.nth(1));
            let port = address.rsplit(':').next().and_then(|port| u16::from_str_radix(port, 16).ok());
            ports.extend(port.filter(|_| state == Some(LISTENS)));
        }
    }
    ports
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_steady_port_is_nobody_elses() {
        let ports: BTreeSet<u16> = (0..100).map(|_| steady_port()).collect();
        assert_eq!(ports.len(), 100);
        for _ in 0..1000 {
            let any = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
            assert!(ports.iter().all(|port| *port < any.port()), "{ports:?}, and {any}");
        }
    }
    #[test]
    fn who_listens_is_seen() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let port = listener.local_addr().expect("it listens").port();
            assert!(listened_at().contains(&port), "{address}: {port}");
        }
    }

    #[test]
    fn a_steady_port_is_free_beside_threads_that_start_programs() {
        let is_over = &std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        assert!(Command::new("true").status().expect("true starts").success());
                    }
                });
            }
            let refused = (0..150).filter(|_| TcpListener::bind(("127.0.0.1", steady_port())).is_err()).count();
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(refused, 0, "of 150 ports");
        });
    }
}
