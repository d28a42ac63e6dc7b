//! Functions of the application that the device calls. A function never crosses, nor does what it is given: both stay
//! in the application's process, which gives out a number for them.

use crate::generated::ops;
use crate::message::declare::{messages, variants};
use crate::message::field::{CallbackId, Existing, STREAM};
use crate::record::op;

messages! {
    command LaunchHostFunc(ops::CU_LAUNCH_HOST_FUNC) {
        stream: Existing<STREAM>,
        function: CallbackId,
        /// The client keeps it until it is told that nothing refers to it.
        kept: bool,
    }

    command StreamAddCallback(ops::CU_STREAM_ADD_CALLBACK) {
        stream: Existing<STREAM>,
        function: CallbackId,
        flags: u32,
    }

    /// Argument 1 is the round's number, which comes back when it is over.
    event RunCallback(op::RUN_CALLBACK) {
        task: Task,
    }

    /// The client has done what it was asked for.
    command CallbackDone(op::CALLBACK_DONE) {
        round: u64,
    }

    part StreamCall {
        function: CallbackId,
        /// The `CUresult` that it is called with.
        status: u32,
    }
}

variants! {
    /// What the client is asked to do.
    Task {
        /// Run the host function; the stream waits.
        HostFunction(CallbackId) = 0,
        /// Run the stream's callback; the stream waits.
        StreamCallback(StreamCall) = 1,
        /// Run the destructor of a user object; nothing waits.
        UserObject(CallbackId) = 2,
        /// No graph refers any more to the range of the heap at this offset; nothing waits.
        HeapRange(u64) = 3,
        /// The function will not be asked for any more.
        Forget(CallbackId) = 4,
    }
}
