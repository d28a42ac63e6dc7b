//! Arrays.

use crate::generated::ops;
use crate::message::declare::messages;
use crate::message::field::{ARRAY, Existing, MIPMAPPED_ARRAY};

messages! {
    command ArrayDestroy(ops::CU_ARRAY_DESTROY) {
        array: Existing<ARRAY>,
    }

    command MipmappedArrayDestroy(ops::CU_MIPMAPPED_ARRAY_DESTROY) {
        array: Existing<MIPMAPPED_ARRAY>,
    }
}
