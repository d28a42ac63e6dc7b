//! The door: listening sockets, handshakes, and who gets which worker. Lives on the first engine.
//!
//! ```text
//! door        takes the steps that stage and policy decide on
//! stage       the handshake as a state machine       policy   who is let in       room   which strangers may stay
//! listeners   greeting   sessions   words   of how a session began, for its own log
//! ```

#[expect(clippy::module_inception, reason = "the room is called like its main piece")]
pub mod door;
mod greeting;
mod listeners;
mod policy;
mod room;
mod sessions;
mod stage;
mod view;
mod words;
