//! The software GPU: CUDA's driver API without a GPU or NVIDIA's driver, so that programs built by nvcc run anywhere.
//!
//! Every function has the C signature of `cuda.h`; `symbol` finds them by name. Kernels are interpreted from the PTX
//! in the program's images (`ptx`, `exec`); everything else is the driver's bookkeeping.

pub mod api;
pub mod array;
pub mod clock;
pub mod cluster;
pub mod conditional;
pub mod context;
pub mod cupti;
pub mod device;
pub mod errors;
pub mod event;
pub mod exec;
pub mod graph;
pub mod green_context;
pub mod image;
pub mod launch;
pub mod logs;
pub mod memory;
pub mod module;
pub mod pool;
pub mod printf;
pub mod ptx;
pub mod say;
pub mod stream;
pub mod texture;
pub mod vmm;
pub mod vram;
pub mod work;

/// Address of a driver function by its exported name, or `None` when the software GPU has no such function.
pub fn symbol(name: &str) -> Option<api::Symbol> {
    let files = [
        device::lookup,
        context::lookup,
        memory::lookup,
        array::lookup,
        texture::lookup,
        pool::lookup,
        vmm::lookup,
        stream::lookup,
        event::lookup,
        module::lookup,
        launch::lookup,
        graph::lookup,
        conditional::lookup,
        green_context::lookup,
        logs::lookup,
    ];
    files.iter().find_map(|f| f(name))
}

/// What `cuGetProcAddress` answers: names come without their version suffix, and the newest that the caller's CUDA
/// version knew is meant.
pub fn versioned_symbol(name: &str, version: i32) -> Option<api::Symbol> {
    let newest = match name {
        // The signatures of these changed with CUDA 13, the plain name meaning the new one from then on.
        "cuCtxCreate" if version < 13000 => 2,
        "cuStreamGetCaptureInfo" | "cuGraphAddDependencies" | "cuGraphGetEdges" if version < 12030 => 2,
        _ => 5,
    };
    let suffixed = (2..=newest).rev().find_map(|v| symbol(&format!("{name}_v{v}")));
    suffixed.or_else(|| symbol(name))
}
