//! Device memory of another session. Handles are the driver's own: both workers run on the GPU's host.

use crate::generated::ops;
use crate::message::address::ClaimedDevice;
use crate::message::declare::messages;
use crate::message::field::Exactly;

messages! {
    command IpcOpenMemHandle(ops::CU_IPC_OPEN_MEM_HANDLE_V2) {
        flags: u32,
        handle: Exactly<64>,
    }

    reply IpcOpenMemHandleReply(ops::CU_IPC_OPEN_MEM_HANDLE_V2) {
        address: u64,
        bytes: u64,
    }

    command IpcCloseMemHandle(ops::CU_IPC_CLOSE_MEM_HANDLE) {
        address: ClaimedDevice,
    }
}
