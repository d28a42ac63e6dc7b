//! How a client and a worker come to share one session, wherever they are.
//!
//! [`carrier`] has the ways there are, [`client`] the handshake that all of them begin with. Where each side has its
//! own rings and its own heap the carrier copies what one side wrote to the other. The format of the stream is in
//! [`stream`]; [`gather`] turns ring bytes into a `sendmsg`, [`scatter`] turns received bytes into ring bytes again,
//! and [`lanes`] counts bulk bytes that travel on connections of their own. [`mirror`] finds what changed in memory
//! that a device uses in place, [`holes`] knows which pages nobody has written to. Where a connection is encrypted
//! [`channel`] is it until the session runs, and [`sealed`] makes records of what goes and opens those that come. The
//! engine of oriond and the client's pump threads use the same pieces; only their way of waiting differs.
//!
//! ```text
//! application -> command ring -> [gather] -> TCP -> [scatter] -> command ring -> worker
//!                                 |   lanes 0..K: heap chunks    ^ barrier: "up to these byte counts"
//!                                 +------------------------------+
//! ```

pub mod carrier;
pub mod channel;
pub mod client;
pub mod environment;
pub mod fds;
pub mod gather;
pub mod holes;
pub mod kept;
pub mod lanes;
pub mod lease;
pub mod mirror;
pub mod proof;
pub mod room;
pub mod scatter;
pub mod sealed;
pub mod socket;
pub mod standstill;
pub mod stream;
pub mod thread;

pub use gather::Gather;
pub use lanes::{LANES_MAX, LaneCounts, Striper};
pub use mirror::Mirror;
pub use scatter::{Blocked, Scatter};
