//! Handlers without ceremony.

/// Handlers that need neither the header nor to park.
macro_rules! handlers {
    ($($(#[$doc:meta])* fn $name:ident($s:ident, $r:ident, $reply:ident) $body:block)*) => {$(
        $(#[$doc])*
        pub fn $name(s: &mut Session, _: &Header, mut r: Reader<'_>, reply: &mut Vec<u8>) -> Handled {
            #[allow(unused_variables, clippy::ptr_arg, reason = "every handler is given the same three")]
            fn handler(
                $s: &mut Session,
                $r: &mut Reader<'_>,
                $reply: &mut Vec<u8>,
            ) -> $crate::worker::outcome::Answer $body
            finish(|| handler(s, &mut r, reply))
        }
    )*};
}
pub(in crate::worker::calls) use handlers;
