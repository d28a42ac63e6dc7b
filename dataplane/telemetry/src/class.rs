//! Kinds of operations: what counters and histograms are kept by, so that their number has an end.

use orion_wire::generated::ops;
use orion_wire::record::op;

macro_rules! classes {
    ($($(#[doc = $what:literal])* $variant:ident = $name:literal;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Class {
            $($(#[doc = $what])* $variant,)*
        }

        impl Class {
            pub const ALL: &[Class] = &[$(Class::$variant,)*];

            /// As metrics and tools call it.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Class::$variant => $name,)*
                }
            }

            /// What belongs to it, for people.
            #[must_use]
            pub fn what(self) -> &'static str {
                match self {
                    $(Class::$variant => concat!($($what,)*).trim_ascii(),)*
                }
            }
        }
    };
}

classes! {
    /// kernels and host functions
    Launch = "launch";
    /// launches of graphs
    Graph = "graph";
    /// copies from the host
    CopyIn = "copy_in";
    /// copies to the host
    CopyOut = "copy_out";
    /// copies on the device, between devices and of several dimensions; fills
    CopyDevice = "copy_device";
    /// allocating and freeing, of every kind
    Memory = "memory";
    /// waiting for streams, events and contexts
    Wait = "wait";
    /// events
    Event = "event";
    /// streams and captures
    Stream = "stream";
    /// code, and graphs while they are made
    Module = "module";
    /// contexts and devices
    Context = "context";
    /// what shim and worker say to each other for themselves
    Other = "other";
}

impl Class {
    pub const COUNT: usize = Class::ALL.len();

    #[inline]
    #[must_use]
    pub fn of(op: u16) -> Class {
        BY_OP.get(op as usize).copied().unwrap_or(Class::Other)
    }

    /// Takes a driver tens of microseconds or more, so that looking at the clock is nothing beside it.
    #[inline]
    #[must_use]
    pub fn is_slow(self) -> bool {
        matches!(self, Class::Module | Class::Context)
    }

    /// Moves bytes between host and device, or between places on devices.
    #[must_use]
    pub fn is_copy(self) -> bool {
        matches!(self, Class::CopyIn | Class::CopyOut | Class::CopyDevice)
    }
}

/// Rows have ids by subject, 128 a subject; the table ends behind the last of them.
const OPS: usize = 0x0900;

static BY_OP: [Class; OPS] = {
    let mut table = [Class::Other; OPS];
    let mut op = 0;
    while op < OPS {
        table[op] = class(op as u16);
        op += 1;
    }
    table
};

const fn class(op: u16) -> Class {
    match op {
        op::COPY_IN | op::COPY_IN_INLINE => Class::CopyIn,
        op::COPY_OUT | op::COPY_OUT_INLINE => Class::CopyOut,
        op::COPY_3D | 0x0400..=0x047f => Class::CopyDevice,
        ops::CU_STREAM_SYNCHRONIZE | ops::CU_EVENT_SYNCHRONIZE | ops::CU_CTX_SYNCHRONIZE => Class::Wait,
        ops::CU_LAUNCH_KERNEL | ops::CU_LAUNCH_HOST_FUNC => Class::Launch,
        ops::CU_GRAPH_LAUNCH => Class::Graph,
        0x0100..=0x01ff | 0x0800..=0x08ff => Class::Context,
        0x0200..=0x037f | 0x0700..=0x07ff => Class::Module,
        0x0380..=0x03ff | 0x0480..=0x05ff => Class::Memory,
        0x0600..=0x067f => Class::Stream,
        0x0680..=0x06ff => Class::Event,
        _ => Class::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_of_the_class_that_their_name_says() {
        let expected = [
            ("cuLaunchKernel", Class::Launch),
            ("cuGraphLaunch", Class::Graph),
            ("cuGraphAddKernelNode_v2", Class::Module),
            ("cuMemcpyDtoDAsync_v2", Class::CopyDevice),
            ("cuMemsetD8Async", Class::CopyDevice),
            ("cuMemAlloc_v2", Class::Memory),
            ("cuMemAllocAsync", Class::Memory),
            ("cuArrayCreate_v2", Class::Memory),
            ("cuMemMap", Class::Memory),
            ("cuStreamSynchronize", Class::Wait),
            ("cuEventRecord", Class::Event),
            ("cuStreamQuery", Class::Stream),
            ("cuLibraryLoadData", Class::Module),
            ("cuFuncGetAttribute", Class::Module),
            ("cuCtxCreate_v2", Class::Context),
            ("cuGreenCtxCreate", Class::Context),
        ];
        for (name, class) in expected {
            let id = (0..=op::ROW_LAST).find(|id| ops::name(*id) == Some(name)).expect(name);
            assert_eq!(Class::of(id), class, "{name}");
        }
        assert_eq!(Class::of(op::COPY_OUT), Class::CopyOut);
        assert_eq!(Class::of(op::PING), Class::Other);
        assert_eq!(Class::of(u16::MAX), Class::Other);
    }

    #[test]
    fn no_row_lies_behind_the_table() {
        let last = (0..=op::ROW_LAST).rev().find(|id| ops::find(*id).is_some()).expect("there are rows");
        assert!((last as usize) < OPS, "{last:#x}");
    }
}
