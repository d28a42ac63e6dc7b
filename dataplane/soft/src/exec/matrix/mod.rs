//! Instructions by which a warp multiplies matrices.

mod fragment;
mod instructions;
mod layout;
mod products;
#[cfg(target_arch = "x86_64")]
mod vector;
