#[path = "../symbol_versions.rs"]
mod symbol_versions;

fn main() {
    // Programs that need NVIDIA's library by this SONAME find this one, if it was loaded before.
    symbol_versions::link_as("libcupti.so.13", "cupti");
}
