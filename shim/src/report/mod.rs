//! What is told to the user: the error log, refusals, and what kernels print.

pub mod complaint;
pub mod log;
pub mod output;
pub mod refuse;
