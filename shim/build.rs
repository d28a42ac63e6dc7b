fn main() {
    // Loaders and NVIDIA's own libraries find the driver by this SONAME.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
}
