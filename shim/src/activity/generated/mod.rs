//! The numbers that CUPTI has for functions, from the table.

pub mod cbids;
