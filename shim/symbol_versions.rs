//! For the build scripts of the libraries that stand in for NVIDIA's beside the driver.

use std::path::Path;

/// Names the library `soname` and gives the functions that it exports, which begin with `prefix`, the version that is
/// called like it, for that is how programs that were linked with NVIDIA's ask for them.
pub fn link_as(soname: &str, prefix: &str) {
    let argument = |argument: &str| println!("cargo:rustc-cdylib-link-arg={argument}");
    println!("cargo:rerun-if-env-changed=RUSTC_LINKER");
    argument(&format!("-Wl,-soname,{soname}"));
    // rustc passes a version script of its own, without names. GNU ld takes no other beside it, but has an option. zig
    // (see install.sh --portable) has no option, but takes the last script in place of the others, so that one has to
    // keep inside what rustc's would.
    if std::env::var("RUSTC_LINKER").is_ok_and(|linker| linker.contains("zigcc")) {
        let out = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
        let script = Path::new(&out).join("versions");
        let text = format!("{soname} {{ global: {prefix}*; orion_shim_marker; local: *; }};\n");
        std::fs::write(&script, text).expect("OUT_DIR can be written to");
        argument(&format!("-Wl,--version-script={}", script.display()));
    } else {
        argument("-fuse-ld=bfd");
        argument("-Wl,--default-symver");
    }
}
