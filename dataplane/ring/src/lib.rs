//! Session memory: three rings and a host heap in one memfd, shared by a client and its worker.
//!
//! ```text
//! 0        header page: magic, layout
//! 4 KiB    control page of the command ring  (client -> worker)
//! 8 KiB    control page of the reply ring    (worker -> client)
//! 12 KiB   control page of the event ring    (worker -> client, unsolicited)
//! 1 MiB    command data, then reply data, then event data
//! 32 MiB   host heap: staging first, then pinned memory and payloads
//! ```
//! The server creates and seals the memory, so a client can neither shrink it under the worker nor grow it.
//! Where a carrier shares pages the client maps the same ones; else each side has its own and the carrier copies ring
//! bytes and heap ranges across. Neither end of a ring can tell, nor how the other one is rung ([`bell`]).

#[cfg(not(loom))]
pub mod bell;
pub mod control;
#[cfg(not(loom))]
pub mod futex;
#[cfg(not(loom))]
pub mod load;
// Loom's atomics cannot lie in mapped memory, so its model is of the positions and flags alone.
#[cfg(not(loom))]
pub mod memory;
#[cfg(not(loom))]
pub mod once;
#[cfg(not(loom))]
pub mod ring;
#[cfg(not(loom))]
pub mod sealed;
#[cfg(not(loom))]
pub mod spin;

#[cfg(not(loom))]
pub use bell::Bell;
pub use control::Corrupt;
#[cfg(not(loom))]
pub use memory::{Heap, Layout, Memory};
#[cfg(not(loom))]
pub use ring::{Ahead, Consumer, Lookahead, Producer, Reach, Releaser};
#[cfg(not(loom))]
pub use sealed::{may_have, sealed};
#[cfg(not(loom))]
pub use spin::{Spin, pause_after};
