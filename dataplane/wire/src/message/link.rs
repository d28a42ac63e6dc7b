//! The JIT linker.

use crate::generated::ops;
use crate::message::address::ClaimedRange;
use crate::message::declare::{messages, variants};
use crate::message::field::{Existing, LINK_STATE, New, Size, Text};
use crate::message::image::{JitOptions, JitResults, Nothing, Payload};

messages! {
    command LinkCreate<'a>(ops::CU_LINK_CREATE_V2) {
        link: New<LINK_STATE>,
        options: JitOptions<'a>,
    }

    command LinkAddData<'a>(ops::CU_LINK_ADD_DATA_V2) {
        link: Existing<LINK_STATE>,
        /// `CUjitInputType`.
        input_type: u32,
        data: Payload<'a>,
        name: Text<'a>,
        options: JitOptions<'a>,
    }

    /// Whatever the result is.
    reply LinkAddDataReply<'a>(ops::CU_LINK_ADD_DATA_V2) {
        results: JitResults<'a>,
        /// Of the options that the link was made with.
        of_link: JitResults<'a>,
    }

    command LinkComplete(ops::CU_LINK_COMPLETE) {
        link: Existing<LINK_STATE>,
        step: LinkStep,
    }

    /// To the first step, whatever the result is.
    reply LinkCompleteReply<'a>(ops::CU_LINK_COMPLETE) {
        of_link: JitResults<'a>,
        /// Of the cubin, if it was made.
        bytes: Size,
    }

    command LinkDestroy(ops::CU_LINK_DESTROY) {
        link: Existing<LINK_STATE>,
    }
}

variants! {
    /// Cubins are larger than a record.
    LinkStep {
        Complete(Nothing) = 0,
        /// Copy what was completed there.
        Fetch(ClaimedRange) = 1,
    }
}
