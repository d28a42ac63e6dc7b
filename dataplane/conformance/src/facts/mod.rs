//! The facts, one file a subject. A fact is named by what is true, takes the library, and says why it is not.

mod before_init;
mod callback;
mod capture;
mod context;
mod copy;
mod copy_batch;
mod device;
mod entry_point;
mod error;
mod event;
mod execution;
mod fault;
mod graph;
mod green_context;
mod host_memory;
mod library;
mod log;
mod managed;
mod memory;
mod memset;
mod module;
mod pointer;
mod pool;
mod shared_file;
mod stream;
mod thread;
mod virtual_memory;

use crate::fact::Fact;

pub fn all() -> impl Iterator<Item = &'static Fact> {
    [
        before_init::FACTS,
        error::FACTS,
        entry_point::FACTS,
        device::FACTS,
        context::FACTS,
        memory::FACTS,
        copy::FACTS,
        memset::FACTS,
        host_memory::FACTS,
        managed::FACTS,
        shared_file::FACTS,
        pointer::FACTS,
        stream::FACTS,
        event::FACTS,
        callback::FACTS,
        module::FACTS,
        library::FACTS,
        execution::FACTS,
        graph::FACTS,
        capture::FACTS,
        pool::FACTS,
        virtual_memory::FACTS,
        thread::FACTS,
        green_context::FACTS,
        copy_batch::FACTS,
        log::FACTS,
        fault::FACTS,
    ]
    .into_iter()
    .flatten()
}
