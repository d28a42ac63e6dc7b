fn main() {
    // Programs that need NVIDIA's library by this SONAME find this one, if it was loaded before.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcupti.so.13");
    // Programs ask for each symbol in the version that is called like the library. GNU ld can give them that; rustc has
    // a version script of its own, beside which no other may stand.
    println!("cargo:rustc-cdylib-link-arg=-fuse-ld=bfd");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--default-symver");
}
