pub mod device;
pub mod exec;
pub mod printf;
pub mod ptx;
pub mod vram;
