//! Where an oriond listens, as people write it.

use std::fmt;
use std::path::PathBuf;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Server {
    Unix(PathBuf),
    /// `host:port`.
    Tcp(String),
}

impl Server {
    /// `unix:/path`, `tcp:host:port`, `/path` or `host:port`.
    pub fn parse(text: &str) -> Result<Server, String> {
        let wrong = |what: &str| {
            Err(format!("server address {text:?} {what}; it is one of unix:/path, tcp:host:port, /path, host:port"))
        };
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { wrong("has no path") } else { Ok(Server::Unix(path.into())) };
        }
        if text.starts_with('/') {
            return Ok(Server::Unix(text.into()));
        }
        let address = text.strip_prefix("tcp:").unwrap_or(text);
        if let Some((scheme, _)) = address.split_once("//") {
            return wrong(&format!("begins with {scheme}//, and oriond is not asked by URL"));
        }
        let Some((host, port)) = address.rsplit_once(':') else { return wrong("has no port") };
        if !port.parse::<u16>().is_ok_and(|p| p != 0) {
            return wrong(&format!("has {port:?} for a port"));
        }
        // Any character but these may be in a name that somebody's resolver knows.
        if host.is_empty() || host.chars().any(|c| c == '/' || c.is_whitespace() || c.is_control()) {
            return wrong(&format!("has {host:?} for a host"));
        }
        if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
            return wrong("has more than one colon: an IPv6 address stands in brackets, as in tcp:[::1]:7411");
        }
        Ok(Server::Tcp(address.to_owned()))
    }

    pub fn transport(&self) -> &'static str {
        match self {
            Server::Unix(_) => "shm",
            Server::Tcp(_) => "tcp",
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Server::Unix(path) => write!(f, "unix:{}", path.display()),
            Server::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read() {
        let unix = |path: &str| Ok(Server::Unix(path.into()));
        let tcp = |address: &str| Ok(Server::Tcp(address.into()));
        assert_eq!(Server::parse("unix:/run/a.sock"), unix("/run/a.sock"));
        assert_eq!(Server::parse("/run/a.sock"), unix("/run/a.sock"));
        assert_eq!(Server::parse("tcp:node:7411"), tcp("node:7411"));
        assert_eq!(Server::parse("node.example:1"), tcp("node.example:1"));
        assert_eq!(Server::parse("[::1]:7411"), tcp("[::1]:7411"));
    }

    #[test]
    fn what_is_no_address_is_told_the_forms() {
        for text in [
            "http://node:7411",
            "https://node",
            "tcp://node:7411",
            "tcp:http://node:7411",
            "unix:",
            "node",
            "node:",
            "node:0",
            "node:http",
            "node:65536",
            ":7411",
            "a b:7411",
            "node/x:7411",
            "::1:7411",
            "",
        ] {
            let said = Server::parse(text).expect_err(text);
            assert!(said.contains(&format!("{text:?}")) && said.contains("unix:/path, tcp:host:port"), "{said}");
        }
    }
}
