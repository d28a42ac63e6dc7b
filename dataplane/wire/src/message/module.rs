//! Modules, and what is in them.

use crate::generated::ops;
use crate::message::declare::messages;
use crate::message::field::{Existing, FUNCTION, List, MODULE, New, Text};
use crate::message::image::{JitOptions, JitResults, Layout, Payload};

messages! {
    command ModuleLoadData<'a>(ops::CU_MODULE_LOAD_DATA_EX) {
        module: New<MODULE>,
        image: Payload<'a>,
        options: JitOptions<'a>,
        /// The name of the file that the client has the image in, or nothing. The software GPU tells it.
        owner: Text<'a>,
    }

    /// Whatever the result is.
    reply ModuleLoadDataReply<'a>(ops::CU_MODULE_LOAD_DATA_EX) {
        results: JitResults<'a>,
    }

    command ModuleUnload(ops::CU_MODULE_UNLOAD) {
        module: Existing<MODULE>,
    }

    command ModuleGetFunction<'a>(ops::CU_MODULE_GET_FUNCTION) {
        module: Existing<MODULE>,
        function: New<FUNCTION>,
        name: Text<'a>,
    }

    reply ModuleGetFunctionReply(ops::CU_MODULE_GET_FUNCTION) {
        layout: Layout,
    }

    command ModuleEnumerateFunctions(ops::CU_MODULE_ENUMERATE_FUNCTIONS) {
        module: Existing<MODULE>,
    }

    reply ModuleEnumerateFunctionsReply<'a>(ops::CU_MODULE_ENUMERATE_FUNCTIONS) {
        names: List<Text<'a>>,
    }

    command ModuleGetGlobal<'a>(ops::CU_MODULE_GET_GLOBAL_V2) {
        module: Existing<MODULE>,
        name: Text<'a>,
    }

    reply ModuleGetGlobalReply(ops::CU_MODULE_GET_GLOBAL_V2) {
        address: u64,
        bytes: u64,
        /// It is a `__managed__` variable.
        is_managed: bool,
    }
}
