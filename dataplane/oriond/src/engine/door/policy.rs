//! Who is let in. It decides, and does nothing.

use orion_transport::proof::{Said, Token, is_same};
use orion_wire::hello::{Hello, Proof};
use orion_wire::refusal::{Reason, Refusal};
use orion_wire::version::{Version, compatible};

use crate::engine::peer::Peer;

/// What an operator has decided about who may come.
pub struct Policy {
    pub token: Option<Token>,
    pub sessions_max: usize,
}

/// What a client that wants a session has shown.
pub struct Shown<'a> {
    pub peer: Peer,
    pub said: &'a Said,
    /// Of its request, what the proof covers.
    pub request: &'a [u8],
    pub proof: Option<Proof>,
    /// Of no use here.
    pub lease: &'a [u8],
}

impl Policy {
    /// Why a client that greets like this is not talked to, if so.
    pub fn greeting(&self, hello: &Hello) -> Option<Refusal> {
        let mismatch = compatible(&hello.version, &Version::OWN).err()?;
        Some(Refusal::new(Reason::Version, mismatch.to_string()))
    }

    /// Why this client gets no session, if so. `strangeness` says why the program at a local socket is not one of our
    /// own user's beside us; it is asked only where that counts.
    pub fn request(&self, shown: &Shown<'_>, strangeness: impl FnOnce() -> Option<String>) -> Option<Refusal> {
        let refuse = |text: String| Some(Refusal::new(Reason::NotPermitted, text));
        if !shown.lease.is_empty() {
            return refuse(
                "this server belongs to no pool (--pool), and the program has a lease of one; is it the oriond that \
                 the controller means?"
                    .into(),
            );
        }
        let right = |token: &Token| {
            shown.proof.is_some_and(|proof| is_same(&proof, &token.client_proof(shown.said, shown.request)))
        };
        if self.token.as_ref().is_some_and(right) {
            return None;
        }
        match shown.peer {
            // A guest has its memory of the operator, and by that the way here.
            Peer::Remote(_) | Peer::Guest { .. } | Peer::Machine(_) if self.token.is_none() => None,
            Peer::Remote(_) | Peer::Guest { .. } | Peer::Machine(_) => {
                refuse("the token is wrong or missing; set ORION_TOKEN or ORION_TOKEN_FILE".into())
            }
            Peer::Local { .. } => {
                let why = strangeness()?;
                refuse(match (&self.token, shown.proof) {
                    (None, _) => format!("{why}, and this server has no token (--token-file); run your own"),
                    (Some(_), None) => format!("{why}; give its token (ORION_TOKEN_FILE), or run your own"),
                    (Some(_), Some(_)) => format!("{why}, and the token in ORION_TOKEN or ORION_TOKEN_FILE is wrong"),
                })
            }
        }
    }

    /// Why there is no room for one more, if so.
    pub fn room(&self, sessions: usize) -> Option<Refusal> {
        let max = self.sessions_max;
        (sessions >= max).then(|| {
            let text = format!("all {max} sessions of this server are taken; try again later, or raise --sessions-max");
            Refusal::new(Reason::Full, text)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: Peer = Peer::Local { uid: 1000 };
    const REMOTE: Peer = Peer::Remote(None);
    const GUEST: Peer = Peer::Guest { number: 0 };

    fn policy(token: Option<&str>) -> Policy {
        Policy { token: token.map(|t| Token::new(t, "a test").expect("a token")), sessions_max: 2 }
    }

    /// Whether a client with this token gets a session.
    fn is_let_in(policy: &Policy, peer: Peer, token: Option<&str>, strange: bool) -> bool {
        let said = Said { first: b"hello".to_vec(), nonce: [7; 32], certificate: None };
        let request = b"request";
        let proof = token.map(|t| Token::new(t, "a test").expect("a token").client_proof(&said, request));
        let shown = Shown { peer, said: &said, request, proof, lease: &[] };
        policy.request(&shown, || strange.then(|| "user 7 is not the user 1000".to_owned())).is_none()
    }

    #[test]
    fn who_has_the_token_comes_in_and_of_the_others_only_who_belongs_here() {
        let (right, wrong) = ("0123456789abcdef", "fedcba9876543210");
        for peer in [LOCAL, REMOTE, GUEST] {
            for strange in [false, true] {
                for shown in [None, Some(wrong), Some(right)] {
                    let with = is_let_in(&policy(Some(right)), peer, shown, strange);
                    let belongs = peer.is_local() && !strange;
                    assert_eq!(with, shown == Some(right) || belongs, "{peer} {shown:?} {strange}");
                    // Without a token of ours, TCP is for everybody and a guest for all of its programs: they are only
                    // served if the operator said so.
                    let without = is_let_in(&policy(None), peer, shown, strange);
                    assert_eq!(without, !peer.is_local() || !strange, "{peer} {shown:?} {strange}");
                }
            }
        }
    }

    #[test]
    fn a_proof_of_another_request_is_none() {
        let policy = policy(Some("0123456789abcdef"));
        let said = Said { first: b"hello".to_vec(), nonce: [7; 32], certificate: None };
        let proof = policy.token.as_ref().map(|t| t.client_proof(&said, b"another request"));
        let shown = Shown { peer: REMOTE, said: &said, request: b"request", proof, lease: &[] };
        assert!(policy.request(&shown, || None).is_some());
    }

    #[test]
    fn the_last_session_fits_and_one_more_is_told_what_to_do() {
        assert!(policy(None).room(1).is_none());
        let refusal = policy(None).room(2).expect("full");
        assert_eq!(refusal.reason, Reason::Full);
        assert!(refusal.text.contains("--sessions-max"), "{}", refusal.text);
    }
}
