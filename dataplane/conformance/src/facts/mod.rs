//! The facts, one file a subject. A fact is named by what is true, takes the library, and says why it is not.

mod batch_3d;
mod before_init;
mod callback;
mod capture;
mod context;
mod copy;
mod device;
mod error_name;
mod event;
mod fault;
mod graph;
mod green_context;
mod launch;
mod library;
mod logs;
mod memory;
mod memset;
mod module;
mod pinned;
mod pointer;
mod pool;
mod proc_address;
mod stream;
mod thread;
mod vmm;

use crate::fact::Fact;

pub fn all() -> impl Iterator<Item = &'static Fact> {
    [
        before_init::FACTS,
        error_name::FACTS,
        proc_address::FACTS,
        device::FACTS,
        context::FACTS,
        memory::FACTS,
        copy::FACTS,
        memset::FACTS,
        pinned::FACTS,
        pointer::FACTS,
        stream::FACTS,
        event::FACTS,
        callback::FACTS,
        module::FACTS,
        library::FACTS,
        launch::FACTS,
        graph::FACTS,
        capture::FACTS,
        pool::FACTS,
        vmm::FACTS,
        thread::FACTS,
        green_context::FACTS,
        batch_3d::FACTS,
        logs::FACTS,
        fault::FACTS,
    ]
    .into_iter()
    .flatten()
}
