//! Which version talks to which.

use std::fmt;

/// A release of Orion, as `Cargo.toml` numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release(pub u16, pub u16, pub u16);

impl Release {
    /// This one.
    pub const OWN: Release = Release(
        number(env!("CARGO_PKG_VERSION_MAJOR")),
        number(env!("CARGO_PKG_VERSION_MINOR")),
        number(env!("CARGO_PKG_VERSION_PATCH")),
    );

    pub(crate) fn word(self) -> u64 {
        u64::from(self.0) << 32 | u64::from(self.1) << 16 | u64::from(self.2)
    }

    pub(crate) fn of(word: u64) -> Release {
        Release((word >> 32) as u16, (word >> 16) as u16, word as u16)
    }
}

const fn number(text: &str) -> u16 {
    let (bytes, mut value, mut i) = (text.as_bytes(), 0, 0);
    while i < bytes.len() {
        value = value * 10 + (bytes[i] - b'0') as u16;
        i += 1;
    }
    value
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// What one side is built from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    pub protocol: u32,
    /// Hash of the table and of every message. 0 of a side whose protocol is another, which says no more of itself.
    pub api_hash: u64,
    pub release: Option<Release>,
}

impl Version {
    pub const OWN: Version =
        Version { protocol: crate::PROTOCOL_VERSION, api_hash: crate::API_HASH, release: Some(Release::OWN) };
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.release {
            Some(release) => write!(f, "Orion {release}, protocol {}", self.protocol)?,
            None => write!(f, "protocol {}", self.protocol)?,
        }
        if self.api_hash != 0 {
            write!(f, ", messages {:016x}", self.api_hash)?;
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Older {
    Client,
    Server,
    /// Both have the same numbers, and were built from sources that differ.
    Unknown,
}

/// A client and a server that do not understand each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mismatch {
    pub client: Version,
    pub server: Version,
    pub older: Older,
}

/// Whether these two talk to each other: if they have the same protocol version, and the same hash of the table and all
/// messages. So builds of one source talk to each other, and so do releases between which neither framing nor any
/// message has changed; nothing else does. No side adapts to another version, because a client's calls and a worker's
/// answers change together with nearly every release, and two that agree on less than all would find out in the middle
/// of a program's work.
///
/// What is the same in all versions, so that any two can at least say this to each other: the frame, the first word of
/// a Hello (the protocol version), and the text at the beginning of a refusal.
pub fn compatible(client: &Version, server: &Version) -> Result<(), Mismatch> {
    if client.protocol == server.protocol && client.api_hash == server.api_hash {
        return Ok(());
    }
    let by_release = client.release.zip(server.release).map(|(client, server)| client.cmp(&server));
    let older = match client.protocol.cmp(&server.protocol).then(by_release.unwrap_or(std::cmp::Ordering::Equal)) {
        std::cmp::Ordering::Less => Older::Client,
        std::cmp::Ordering::Greater => Older::Server,
        std::cmp::Ordering::Equal => Older::Unknown,
    };
    Err(Mismatch { client: *client, server: *server, older })
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (who, what) = match self.older {
            Older::Client => {
                ("the client is older than the server", "install the server's version where the program runs")
            }
            Older::Server => ("the server is older than the client", "install the client's version where oriond runs"),
            Older::Unknown => {
                ("client and server are built from different sources", "install one build of Orion on both sides")
            }
        };
        write!(f, "{who}: the client is {}, the server {}; {what}", self.client, self.server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(protocol: u32, api_hash: u64, release: Option<Release>) -> Version {
        Version { protocol, api_hash, release }
    }

    #[test]
    fn the_same_protocol_and_messages_talk_whatever_the_release() {
        let (a, b) = (version(7, 5, Some(Release(1, 2, 3))), version(7, 5, Some(Release(1, 2, 4))));
        assert_eq!(compatible(&a, &b), Ok(()));
        assert_eq!(compatible(&Version::OWN, &Version::OWN), Ok(()));
    }

    #[test]
    fn of_two_that_differ_the_older_one_is_named() {
        let older = |client: Version, server: Version| compatible(&client, &server).expect_err("they differ").older;
        let (old, new) = (version(6, 0, None), version(7, 5, Some(Release(1, 2, 3))));
        assert_eq!((older(old, new), older(new, old)), (Older::Client, Older::Server));
        let later = version(7, 6, Some(Release(1, 10, 0)));
        assert_eq!((older(new, later), older(later, new)), (Older::Client, Older::Server));
        // A newer protocol counts more than what a release calls itself.
        assert_eq!(older(version(8, 0, Some(Release(1, 0, 0))), new), Older::Server);
        assert_eq!(older(new, version(7, 6, Some(Release(1, 2, 3)))), Older::Unknown);
    }

    #[test]
    fn the_words_name_both_versions_and_what_to_do() {
        let (old, new) = (version(6, 0, None), version(7, 0xabc, Some(Release(1, 2, 3))));
        assert_eq!(
            compatible(&old, &new).expect_err("they differ").to_string(),
            "the client is older than the server: the client is protocol 6, the server Orion 1.2.3, protocol 7, \
             messages 0000000000000abc; install the server's version where the program runs"
        );
    }

    #[test]
    fn releases_come_back_and_are_in_order() {
        for release in [Release(0, 1, 0), Release(u16::MAX, 2, u16::MAX)] {
            assert_eq!(Release::of(release.word()), release);
        }
        assert!(Release(0, 9, 9) < Release(1, 0, 0) && Release(1, 9, 0) < Release(1, 10, 0));
        assert_eq!(Release::OWN.to_string(), env!("CARGO_PKG_VERSION"));
    }
}
