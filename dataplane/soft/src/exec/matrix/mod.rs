//! Instructions by which a warp multiplies matrices.

mod doubles;
mod factor;
mod floats;
mod fragment;
mod instructions;
mod layout;
mod products;
mod rounding;
#[cfg(target_arch = "x86_64")]
mod vector;
mod whole;
mod wide;
