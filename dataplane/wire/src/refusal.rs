//! Why a client gets no session: a reason for the program, and words for its user.

use crate::codec::{Fault, Reader, Writer};
use crate::hello::put_version;
use crate::version::{Release, Version};

/// What the client's `cuInit` answers follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// None of those below, or one that this version does not know.
    Other,
    /// The token or the user.
    NotPermitted,
    /// The two sides are of different versions.
    Version,
    /// Every session is taken; it may be otherwise later.
    Full,
    /// No worker could be started, or not in time.
    NoWorker,
    /// The lease is none of this server's: it was started again since, no agent has come to it yet, or the lease was
    /// taken back from who was believed to have gone. Its pool's controller, asked again, may give one that is.
    Lease,
}

const WORDS: [(Reason, u64); 6] = [
    (Reason::Other, 0),
    (Reason::NotPermitted, 1),
    (Reason::Version, 2),
    (Reason::Full, 3),
    (Reason::NoWorker, 4),
    (Reason::Lease, 5),
];

/// Body of a REFUSED frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub reason: Reason,
    pub text: String,
    /// Of the server, if it says it: those before protocol 7 did not.
    pub server: Option<Version>,
}

impl Refusal {
    pub fn new(reason: Reason, text: impl Into<String>) -> Refusal {
        Refusal { reason, text: text.into(), server: Some(Version::OWN) }
    }

    /// The text comes first, as in every version: a client of another one can read at least that. The reason follows,
    /// and what the server is.
    pub fn encode(&self) -> Vec<u8> {
        let word = WORDS.iter().find(|(reason, _)| *reason == self.reason).map_or(0, |(_, word)| *word);
        let mut w = Vec::new();
        w.bytes(self.text.as_bytes());
        w.word(word);
        if let Some(server) = &self.server {
            put_version(&mut w, server);
        }
        w
    }

    /// Never fails: whatever it says, the session was refused.
    pub fn decode(body: &[u8]) -> Refusal {
        let mut r = Reader::new(body);
        let text = r.text().unwrap_or("(in words that are not text)").to_owned();
        let word = r.word().unwrap_or(0);
        let reason = WORDS.iter().find(|(_, w)| *w == word).map_or(Reason::Other, |(reason, _)| *reason);
        let version = |r: &mut Reader<'_>| {
            let (protocol, api_hash, release) = (r.word()? as u32, r.word()?, Release::of(r.word()?));
            Ok::<_, Fault>(Version { protocol, api_hash, release: Some(release) })
        };
        Refusal { reason, text, server: version(&mut r).ok() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_come_back() {
        for (reason, _) in WORDS {
            let refusal = Refusal::new(reason, "no, and why");
            assert_eq!(Refusal::decode(&refusal.encode()), refusal);
        }
    }

    fn old(text: &str) -> Refusal {
        Refusal { server: None, ..Refusal::new(Reason::Other, text) }
    }

    #[test]
    fn any_body_is_a_refusal() {
        let mut text_only = Vec::new();
        text_only.bytes(b"the server of version 1 refused this");
        assert_eq!(Refusal::decode(&text_only), old("the server of version 1 refused this"));
        let mut later = text_only.clone();
        later.word(77);
        assert_eq!(Refusal::decode(&later).reason, Reason::Other);
        assert_eq!(Refusal::decode(&[0xff; 24]).reason, Reason::Other);
        assert_eq!(Refusal::decode(&[]).reason, Reason::Other);
    }
}
