//! USDT probes: five-byte nops that a BPF program can be attached to, and notes in the program that say where they are.
//!
//! A nop costs a third of a nanosecond, and arguments are what is in registers anyway. The kernel makes a call of a nop
//! of five bytes (Linux 6.18: 0.4 us a hit, where one byte is a trap). The assembly may use the stack as far as the
//! compiler knows, so that no function with a probe keeps anything below its stack pointer, where that call writes.

// UNSAFETY: a nop by inline assembly, which changes nothing.

/// A probe, for tools and documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    pub name: &'static str,
    pub arguments: &'static [&'static str],
    pub what: &'static str,
}

/// The provider's name, of all of them.
pub const PROVIDER: &str = "orion";

macro_rules! place {
    ($name:ident, $spec:literal, $($argument:ident),*) => {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a nop; the rest is a note for debuggers, of the form that sys/sdt.h writes.
        unsafe {
            std::arch::asm!(
                "990: .byte 0x0f, 0x1f, 0x44, 0x00, 0x00",
                ".pushsection .note.stapsdt, \"?\", \"note\"",
                ".balign 4",
                ".4byte 992f-991f, 994f-993f, 3",
                "991: .asciz \"stapsdt\"",
                "992: .balign 4",
                "993: .8byte 990b",
                ".8byte _.stapsdt.base",
                ".8byte 0",
                ".asciz \"orion\"",
                concat!(".asciz \"", stringify!($name), "\""),
                concat!(".asciz \"", $spec, "\""),
                "994: .balign 4",
                ".popsection",
                ".ifndef _.stapsdt.base",
                ".pushsection .stapsdt.base, \"aG\", \"progbits\", .stapsdt.base, comdat",
                ".weak _.stapsdt.base",
                ".hidden _.stapsdt.base",
                "_.stapsdt.base: .space 1",
                ".size _.stapsdt.base, 1",
                ".popsection",
                ".endif",
                $(in(reg) $argument,)*
                options(att_syntax, readonly, preserves_flags)
            )
        };
        #[cfg(not(target_arch = "x86_64"))]
        let _ = ($($argument,)*);
    };
}

macro_rules! spec {
    ($name:ident, $a:ident) => {
        place!($name, "8@{0}", $a)
    };
    ($name:ident, $a:ident, $b:ident) => {
        place!($name, "8@{0} 8@{1}", $a, $b)
    };
    ($name:ident, $a:ident, $b:ident, $c:ident) => {
        place!($name, "8@{0} 8@{1} 8@{2}", $a, $b, $c)
    };
    ($name:ident, $a:ident, $b:ident, $c:ident, $d:ident) => {
        place!($name, "8@{0} 8@{1} 8@{2} 8@{3}", $a, $b, $c, $d)
    };
}

macro_rules! probes {
    ($($(#[doc = $what:literal])* $name:ident($($argument:ident),*);)*) => {
        $(
            $(#[doc = $what])*
            #[inline(always)]
            pub fn $name($($argument: u64),*) {
                spec!($name, $($argument),*);
            }
        )*

        /// All of them.
        pub const ALL: &[Probe] = &[$(Probe {
            name: stringify!($name),
            arguments: &[$(stringify!($argument),)*],
            what: concat!($($what,)*).trim_ascii(),
        },)*];
    };
}

probes! {
    /// in oriond: a session has a worker
    session_begin(session, worker_pid);
    /// in oriond: its worker has ended
    session_end(session);
    /// in the worker: a command was taken out of the ring
    command_begin(session, op, sequence, bytes);
    /// in the worker: it was handled, and answered if it was to be at once; 1 if it waits for something instead
    command_end(session, op, sequence, waits);
    /// in the worker: a command looked for what it waits for in vain, the first time
    wait_begin(session, op, sequence);
    /// in the worker: what it waited for has come
    wait_end(session, op, sequence, ns);
    /// in the worker: a timed command found the ring so full that no client can post more
    ring_full(session, bytes_free);
    /// in the worker: the session was held back by its own limit (0) or by other tenants (1)
    held_back(session, by_others, ns);
}
