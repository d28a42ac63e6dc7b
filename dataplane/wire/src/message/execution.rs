//! Launches, and attributes of functions.

use crate::generated::ops;
use crate::message::declare::messages;
use crate::message::field::{Existing, FUNCTION, Halves, List, Ordinal, Rest, STREAM, Size};

/// Attributes that functions have, with room for those to come.
pub const ATTRIBUTES_MAX: usize = 64;
/// What a launch's parameters lie behind.
pub const LAUNCH_HEAD_BYTES: usize = 7 * 8;

messages! {
    command LaunchKernel<'a>(ops::CU_LAUNCH_KERNEL) {
        head: LaunchHead,
        /// The parameters, packed as the function takes them and padded to a word, then `CUlaunchAttribute`s. Events in
        /// those are handles.
        rest: Rest<'a>,
    }

    part LaunchHead {
        function: Existing<FUNCTION>,
        /// Grid, x and y.
        gx_gy: Halves,
        /// Grid, z; block, x.
        gz_bx: Halves,
        /// Block, y and z.
        by_bz: Halves,
        /// Bytes of dynamic shared memory; how many attributes there are.
        shared_attributes: Halves,
        stream: Existing<STREAM>,
        /// Of the parameters, without the padding.
        parameter_bytes: Size,
    }

    /// All attributes of a function on a device.
    command FuncGetAttributes(ops::CU_FUNC_GET_ATTRIBUTE) {
        function: Existing<FUNCTION>,
        device: Ordinal,
    }

    reply FuncGetAttributesReply(ops::CU_FUNC_GET_ATTRIBUTE) {
        /// By number.
        attributes: List<FuncAttribute, ATTRIBUTES_MAX>,
        /// The software GPU will not run it.
        is_refused: bool,
    }

    part FuncAttribute {
        /// The `CUresult` of asking.
        result: u32,
        value: i32,
    }

    command FuncSetAttribute(ops::CU_FUNC_SET_ATTRIBUTE) {
        function: Existing<FUNCTION>,
        attribute: u32,
        value: i32,
        device: Ordinal,
    }

    command FuncSetCacheConfig(ops::CU_FUNC_SET_CACHE_CONFIG) {
        function: Existing<FUNCTION>,
        config: u32,
        device: Ordinal,
    }

    command FuncIsLoaded(ops::CU_FUNC_IS_LOADED) {
        function: Existing<FUNCTION>,
    }

    reply FuncIsLoadedReply(ops::CU_FUNC_IS_LOADED) {
        state: u32,
    }

    command FuncLoad(ops::CU_FUNC_LOAD) {
        function: Existing<FUNCTION>,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_a_launch_is_as_long_as_it_says() {
        let zero = Halves(0, 0);
        let mut head = Vec::new();
        LaunchHead {
            function: Existing(0),
            gx_gy: Halves(1, 2),
            gz_bx: zero,
            by_bz: zero,
            shared_attributes: zero,
            stream: Existing(0),
            parameter_bytes: Size(0),
        }
        .encode(&mut head);
        assert_eq!(head.len(), LAUNCH_HEAD_BYTES);
        assert_eq!(head[8..16], [1, 0, 0, 0, 2, 0, 0, 0]);
    }
}
