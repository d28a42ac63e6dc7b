//! What `cuGetProcAddress` answers, from the table.

pub mod proc_address;
