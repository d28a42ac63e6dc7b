//! The CUPTI library and the shim.
//!
//! `libcupti.so.13` holds no logic: it asks the loaded `libcuda.so.1` for one table of functions of Orion's own and
//! passes every call on. Both sides are built from this list.

use std::ffi::{c_char, c_void};

use crate::cupti::{CUpti_ActivityKind, CUptiResult};
use crate::sys::{CUcontext, CUgraph, CUgraphExec, CUgraphNode};

/// What `cuGetExportTable` knows the table by: a random number that is nobody else's.
pub const TABLE_ID: [u8; 16] = 0x7d0e4f5c_9a314c26_b8e2f06a_53d1c79b_u128.to_be_bytes();

pub type Request = unsafe extern "C" fn(buffer: *mut *mut u8, size: *mut usize, records: *mut usize);
pub type Complete =
    unsafe extern "C" fn(context: CUcontext, stream: u32, buffer: *mut u8, size: usize, valid_size: usize);
pub type Timestamp = unsafe extern "C" fn() -> u64;
pub type Callback = unsafe extern "C" fn(user: *mut c_void, domain: u32, id: u32, data: *const c_void);
pub type Subscriber = *mut c_void;

/// Calls a macro with every function that is answered: `name(parameter: type, …);`, as in CUPTI's headers.
#[macro_export]
macro_rules! cupti_functions {
    ($with:ident) => {
        $with! {
            cuptiActivityDisable(kind: CUpti_ActivityKind);
            cuptiActivityEnable(kind: CUpti_ActivityKind);
            cuptiActivityEnableCudaEventDeviceTimestamps(enable: u8);
            cuptiActivityEnableDriverApi(id: u32, enable: u8);
            cuptiActivityEnableRuntimeApi(id: u32, enable: u8);
            cuptiActivityFlushAll(flag: u32);
            cuptiActivityFlushPeriod(milliseconds: u32);
            cuptiActivityGetNextRecord(buffer: *mut u8, valid_size: usize, record: *mut *mut c_void);
            cuptiActivityGetNumDroppedRecords(context: CUcontext, stream: u32, dropped: *mut usize);
            cuptiActivityPopExternalCorrelationId(kind: u32, last: *mut u64);
            cuptiActivityPushExternalCorrelationId(kind: u32, id: u64);
            cuptiActivityRegisterCallbacks(request: Option<Request>, complete: Option<Complete>);
            cuptiActivityRegisterTimestampCallback(callback: Option<Timestamp>);
            cuptiActivityGetAttribute(attribute: u32, size: *mut usize, value: *mut c_void);
            cuptiActivitySetAttribute(attribute: u32, size: *mut usize, value: *mut c_void);
            cuptiEnableAllDomains(enable: u32, subscriber: Subscriber);
            cuptiEnableCallback(enable: u32, subscriber: Subscriber, domain: u32, id: u32);
            cuptiEnableDomain(enable: u32, subscriber: Subscriber, domain: u32);
            cuptiFinalize();
            cuptiGetCallbackName(domain: u32, id: u32, name: *mut *const c_char);
            cuptiGetDeviceId(context: CUcontext, device: *mut u32);
            cuptiGetGraphExecId(exec: CUgraphExec, id: *mut u32);
            cuptiGetGraphId(graph: CUgraph, id: *mut u32);
            cuptiGetGraphNodeId(node: CUgraphNode, id: *mut u64);
            cuptiGetErrorMessage(result: CUptiResult, text: *mut *const c_char);
            cuptiGetLastError();
            cuptiGetResultString(result: CUptiResult, text: *mut *const c_char);
            cuptiGetThreadIdType(kind: *mut u32);
            cuptiGetTimestamp(time: *mut u64);
            cuptiGetVersion(version: *mut u32);
            cuptiSetThreadIdType(kind: u32);
            cuptiSubscribe(subscriber: *mut Subscriber, callback: Option<Callback>, user: *mut c_void);
            cuptiSupportedDomains(count: *mut usize, domains: *mut *mut u32);
            cuptiUnsubscribe(subscriber: Subscriber);
        }
    };
}

macro_rules! table {
    ($($name:ident($($parameter:ident: $type:ty),*);)*) => {
        /// The table. Its size comes first, as in the driver's own.
        #[repr(C)]
        pub struct Functions {
            pub size: usize,
            /// Counts what is not answered, and says so once.
            pub refused: unsafe extern "C" fn(name: *const c_char) -> CUptiResult,
            $(pub $name: unsafe extern "C" fn($($parameter: $type),*) -> CUptiResult,)*
        }
    };
}
cupti_functions!(table);
