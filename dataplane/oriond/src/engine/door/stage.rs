//! The handshake as a state machine: what may be said when, by whom, and what follows. It does nothing itself.
//!
//! ```text
//! accepted -> Hello -> Challenging -> Request -> Waiting -> local client: socket handed to a worker; done here
//!                                                        -> TCP client: Welcome <- worker, Start <- client,
//!                                                                       Started <- worker; then carried
//!                                     (or Ask)        -> Curious -> Refusing, which sends a View
//!             Join  -> Challenging -> Proof              -> a lane of a carried session
//! ```

use std::time::Duration;

use orion_wire::hello::{FRAME_BYTES_MAX, kind};

/// Between accepting a connection and its complete Hello, and between Welcome and Start.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// For a worker that has to be started first.
pub const WORKER_TIMEOUT: Duration = Duration::from_secs(110);
/// A Hello or a Join is a nonce and a few words, a Start two of them.
const HELLO_BYTES_MAX: usize = 256;
/// A Request is a name, a proof and some environment variables.
const REQUEST_BYTES_MAX: usize = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Receiving Hello or Join.
    Hello,
    /// Sending Challenge.
    Challenging,
    /// Receiving Request, or a lane's Proof.
    Request,
    /// Accepted, no worker yet.
    Waiting,
    /// Asked, when no worker has said yet what there is.
    Curious,
    /// Receiving Welcome from the worker.
    Welcome,
    /// Sending Welcome to the client.
    Welcoming,
    /// Receiving Start from the client.
    Start,
    /// Sending Start to the worker.
    Starting,
    /// Receiving Started from the worker.
    Started,
    /// Sending Started to the client; then the session is carried.
    Confirming,
    /// Sending Refused, or a View; then the connection is closed.
    Refusing,
}

/// What a connection is for. Its first frame says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum For {
    Session,
    Lane,
}

/// What a frame is, given where the handshake is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    Hello,
    Join,
    Request,
    /// In place of a Request: about sessions, of who wants none.
    Ask,
    LaneProof,
    /// The worker's, to be passed on to the client.
    Welcome,
    /// The client's, to be passed on to the worker.
    Start,
    /// The worker's, to be passed on to the client.
    Started,
    Refused,
}

/// What follows when everything was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// A frame is expected, within this time from now if the deadline moves.
    Expect(Stage, Option<Duration>),
    Carry,
    Close,
}

impl Stage {
    pub fn heard(self, purpose: For, frame_kind: u32) -> Result<Heard, String> {
        match (self, purpose, frame_kind) {
            (Stage::Hello, _, kind::HELLO) => Ok(Heard::Hello),
            (Stage::Hello, _, kind::JOIN) => Ok(Heard::Join),
            (Stage::Request, For::Session, kind::REQUEST) => Ok(Heard::Request),
            (Stage::Request, For::Session, kind::ASK) => Ok(Heard::Ask),
            (Stage::Request, For::Lane, kind::PROOF) => Ok(Heard::LaneProof),
            (Stage::Welcome, _, kind::WELCOME) => Ok(Heard::Welcome),
            (Stage::Start, _, kind::START) => Ok(Heard::Start),
            (Stage::Started, _, kind::STARTED) => Ok(Heard::Started),
            (Stage::Welcome | Stage::Started, _, kind::REFUSED) => Ok(Heard::Refused),
            _ => Err(format!("frame of kind {frame_kind} at the wrong time")),
        }
    }

    pub fn sent(self) -> Next {
        match self {
            Stage::Challenging => Next::Expect(Stage::Request, None),
            Stage::Welcoming => Next::Expect(Stage::Start, Some(HANDSHAKE_TIMEOUT)),
            Stage::Starting => Next::Expect(Stage::Started, Some(WORKER_TIMEOUT)),
            Stage::Confirming => Next::Carry,
            _ => Next::Close,
        }
    }

    /// Whether somebody at this stage has not shown yet that he may be here.
    pub fn is_strangers(self) -> bool {
        matches!(self, Stage::Hello | Stage::Challenging | Stage::Request)
    }

    /// Whether he takes some of the room that there is for whoever has no place in a session: who asks needs none, so
    /// the number of sessions is no limit for him.
    pub fn takes_room(self) -> bool {
        self.is_strangers() || self == Stage::Curious
    }

    /// Whether the frame that is awaited is the worker's.
    pub fn hears_the_worker(self) -> bool {
        matches!(self, Stage::Welcome | Stage::Started)
    }

    /// Whether what is being sent goes to the worker.
    pub fn tells_the_worker(self) -> bool {
        self == Stage::Starting
    }

    pub fn frame_bytes_max(self) -> usize {
        match self {
            Stage::Welcome | Stage::Started => FRAME_BYTES_MAX,
            Stage::Request => REQUEST_BYTES_MAX,
            _ => HELLO_BYTES_MAX,
        }
    }
}

impl Heard {
    /// Where a frame that is passed on leads to.
    pub fn passing(self) -> Option<Stage> {
        match self {
            Heard::Welcome => Some(Stage::Welcoming),
            Heard::Start => Some(Stage::Starting),
            Heard::Started => Some(Stage::Confirming),
            Heard::Refused => Some(Stage::Refusing),
            Heard::Hello | Heard::Join | Heard::Request | Heard::Ask | Heard::LaneProof => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAGES: [Stage; 12] = [
        Stage::Hello,
        Stage::Challenging,
        Stage::Request,
        Stage::Waiting,
        Stage::Curious,
        Stage::Welcome,
        Stage::Welcoming,
        Stage::Start,
        Stage::Starting,
        Stage::Started,
        Stage::Confirming,
        Stage::Refusing,
    ];

    /// Every stage, purpose and kind of frame, known or not.
    fn all() -> impl Iterator<Item = (Stage, For, u32)> {
        let purposes = [For::Session, For::Lane];
        STAGES.into_iter().flat_map(move |s| purposes.into_iter().flat_map(move |p| (0..40).map(move |k| (s, p, k))))
    }

    #[test]
    fn a_stranger_reaches_no_worker() {
        for (stage, purpose, kind) in all().filter(|(stage, ..)| stage.is_strangers()) {
            assert!(!stage.hears_the_worker() && !stage.tells_the_worker(), "{stage:?}");
            let heard = stage.heard(purpose, kind);
            assert!(heard.as_ref().map_or(true, |h| h.passing().is_none()), "{stage:?} {kind} {heard:?}");
            assert!(stage.frame_bytes_max() <= REQUEST_BYTES_MAX);
        }
    }

    #[test]
    fn nothing_is_heard_while_it_is_our_turn() {
        let ours = |s: Stage| s.sent() != Next::Close || matches!(s, Stage::Waiting | Stage::Curious | Stage::Refusing);
        for (stage, purpose, kind) in all().filter(|(stage, ..)| ours(*stage)) {
            assert!(stage.heard(purpose, kind).is_err(), "{stage:?} {purpose:?} {kind}");
        }
    }

    #[test]
    fn a_lane_never_becomes_a_session_nor_a_session_a_lane() {
        assert!(Stage::Request.heard(For::Lane, kind::REQUEST).is_err());
        assert!(Stage::Request.heard(For::Lane, kind::ASK).is_err());
        assert!(Stage::Request.heard(For::Session, kind::PROOF).is_err());
    }

    #[test]
    fn whoever_goes_on_goes_forward() {
        let place = |stage: Stage| STAGES.iter().position(|s| *s == stage).expect("listed");
        for (stage, purpose, kind) in all() {
            if let Ok(Some(next)) = stage.heard(purpose, kind).map(Heard::passing) {
                assert!(place(next) > place(stage), "{stage:?} -> {next:?}");
            }
            if let Next::Expect(next, _) = stage.sent() {
                assert!(place(next) > place(stage), "{stage:?} -> {next:?}");
            }
        }
    }
}
