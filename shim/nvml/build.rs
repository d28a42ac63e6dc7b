fn main() {
    // Programs open the library by this name, and find it by that if it was loaded before.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libnvidia-ml.so.1");
    // Programs that are linked with NVIDIA's ask for each symbol in the version that is called like the library. GNU ld
    // can give them that; rustc has a version script of its own, beside which no other may stand.
    println!("cargo:rustc-cdylib-link-arg=-fuse-ld=bfd");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--default-symver");
}
