//! Streams that write a value to memory or wait for one. In host memory the other party is the application, so what is
//! said of a kernel's parameters holds for these addresses too.

// UNSAFETY: reads the application's arrays.

use orion_cuda::sys::*;

use crate::hand::in_step::note_parameter;
use crate::session::Session;

/// One operation of a batch may use host memory: its address is the second word of all that have one.
pub fn note(s: &'static Session, operation: &[u64; 6]) {
    let kind = operation[0] as u32;
    let has_address = matches!(
        kind,
        CU_STREAM_MEM_OP_WAIT_VALUE_32
            | CU_STREAM_MEM_OP_WAIT_VALUE_64
            | CU_STREAM_MEM_OP_WRITE_VALUE_32
            | CU_STREAM_MEM_OP_WRITE_VALUE_64
    );
    if s.mirrored && has_address {
        note_parameter(s, operation[1]);
    }
}
