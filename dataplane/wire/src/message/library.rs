//! Libraries, and what is in them.

use crate::generated::ops;
use crate::message::address::{ClaimedDevice, ClaimedRange};
use crate::message::declare::messages;
use crate::message::field::{Existing, FUNCTION, LIBRARY, List, MODULE, New, Text};
use crate::message::image::{JitOptions, JitResults, Layout, Payload};

messages! {
    command LibraryLoadData<'a>(ops::CU_LIBRARY_LOAD_DATA) {
        library: New<LIBRARY>,
        image: Payload<'a>,
        options: JitOptions<'a>,
        /// The name of the file that the client has the image in, or nothing. The software GPU tells it.
        owner: Text<'a>,
    }

    /// Whatever the result is.
    reply LibraryLoadDataReply<'a>(ops::CU_LIBRARY_LOAD_DATA) {
        results: JitResults<'a>,
    }

    command LibraryUnload(ops::CU_LIBRARY_UNLOAD) {
        library: Existing<LIBRARY>,
    }

    command LibraryGetKernel<'a>(ops::CU_LIBRARY_GET_KERNEL) {
        library: Existing<LIBRARY>,
        kernel: New<FUNCTION>,
        name: Text<'a>,
    }

    reply LibraryGetKernelReply(ops::CU_LIBRARY_GET_KERNEL) {
        layout: Layout,
    }

    command LibraryEnumerateKernels(ops::CU_LIBRARY_ENUMERATE_KERNELS) {
        library: Existing<LIBRARY>,
    }

    reply LibraryEnumerateKernelsReply<'a>(ops::CU_LIBRARY_ENUMERATE_KERNELS) {
        names: List<Text<'a>>,
    }

    command LibraryGetModule(ops::CU_LIBRARY_GET_MODULE) {
        library: Existing<LIBRARY>,
        module: New<MODULE>,
    }

    command LibraryGetGlobal<'a>(ops::CU_LIBRARY_GET_GLOBAL) {
        library: Existing<LIBRARY>,
        name: Text<'a>,
        /// A `__managed__` variable, which the driver finds by another function.
        managed: bool,
    }

    reply LibraryGetGlobalReply(ops::CU_LIBRARY_GET_GLOBAL) {
        address: u64,
        bytes: u64,
        is_managed: bool,
    }

    /// The client has a range of the heap at the address of a `__managed__` variable that it was told of, or of a part
    /// of one. From now on it has the variable's bytes, and they are there with the reply.
    command ManagedVariable(ops::CU_LIBRARY_GET_MANAGED) {
        address: ClaimedDevice,
        range: ClaimedRange,
    }
}
