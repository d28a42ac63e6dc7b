//! A worker's driver finds our `ioctl` before the C library's: `src/worker/driver/channels.rs` says what for.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol=ioctl");
}
