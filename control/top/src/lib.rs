//! `orion-top`: what the sessions of a node do, and why each is as slow as it is.
//!
//! ```text
//! source   where reports come from: oriond, a controller, a file
//! model    what two reports say of each session
//! screen   a picture of that                               app      keys, and what is chosen by them
//! svg      the same for a browser
//! ```

#![forbid(unsafe_code)]

pub mod app;
pub mod model;
pub mod screen;
pub mod source;
pub mod svg;
