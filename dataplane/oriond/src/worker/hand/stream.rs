//! Streams: the parts that are about capture live in [`super::capture`].

pub use super::capture::Captures;
