//! The functions that are answered, by subject.

mod affinity;
mod device;
mod events;
mod handles;
mod initialization;
mod internal;
mod links;
mod memory;
mod place;
mod processes;
mod system;
mod topology;

pub use self::affinity::*;
pub use self::device::*;
pub use self::events::*;
pub use self::handles::*;
pub use self::initialization::*;
pub use self::internal::*;
pub use self::links::*;
pub use self::memory::*;
pub use self::processes::*;
pub use self::system::*;
pub use self::topology::*;
