fn main() {
    // Loaders and NVIDIA's own libraries find the driver by this SONAME.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // Exports call each other; a second libcuda in the process must not get between.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    // Threads of its own run in it, and what ends the application's threads is in it: it stays until the process ends.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
