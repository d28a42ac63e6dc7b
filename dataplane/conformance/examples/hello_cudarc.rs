//! Adds two vectors with cudarc, a CUDA crate that knows nothing of Orion: it opens whatever `libcuda.so` the loader
//! finds, loads PTX text and launches it.

use cudarc::driver::{CudaContext, DriverError, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;

const PTX: &str = include_str!("../ptx/facts.ptx");

fn main() -> Result<(), DriverError> {
    let context = CudaContext::new(0)?;
    println!("device: {}", context.name()?);
    let stream = context.new_stream()?;
    let add = context.load_module(Ptx::from_src(PTX))?.load_function("add")?;

    let a: Vec<f32> = (0..1000).map(|i| i as f32).collect();
    let b: Vec<f32> = (0..1000).map(|i| 0.5 * i as f32).collect();
    let (on_a, on_b) = (stream.clone_htod(&a)?, stream.clone_htod(&b)?);
    let mut on_c = stream.alloc_zeros::<f32>(1000)?;
    let count = 1000u32;
    let mut launch = stream.launch_builder(&add);
    launch.arg(&on_a).arg(&on_b).arg(&mut on_c).arg(&count);
    // SAFETY: the kernel takes three float arrays of `count` elements and the count, as passed here.
    unsafe { launch.launch(LaunchConfig::for_num_elems(count)) }?;
    let c = stream.clone_dtoh(&on_c)?;
    for i in 0..1000 {
        assert_eq!(c[i], a[i] + b[i], "element {i}");
    }
    println!("PASS a thousand sums through cudarc");
    Ok(())
}
