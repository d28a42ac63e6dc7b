//! Compiles the calls.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=etcd.proto");
    tonic_prost_build::configure().build_server(false).compile_fds(protox::compile(["etcd.proto"], ["."])?)?;
    Ok(())
}
