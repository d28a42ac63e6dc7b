#[path = "../symbol_versions.rs"]
mod symbol_versions;

fn main() {
    // Programs open the library by this name, and find it by that if it was loaded before.
    symbol_versions::link_as("libnvidia-ml.so.1", "nvml");
}
