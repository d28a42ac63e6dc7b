//! Compiles the same kernel twice with NVRTC, to PTX and to machine code, runs what came out the second time, and
//! prints what came out: how NVRTC uses the driver's compile cache can be seen from outside.

use std::hash::{DefaultHasher, Hasher};

use cudarc::driver::{CudaContext, DriverError, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::{Ptx, result, sys};

const SOURCE: &std::ffi::CStr = c"extern \"C\" __global__ void triple(float *a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] *= 3;
}
";

fn main() -> Result<(), DriverError> {
    let [(ptx, _), (again, _)] = [compile("compute_75"), compile("compute_75")];
    assert_eq!(ptx, again);
    assert_eq!(compile("sm_90").1, compile("sm_90").1);
    run(&String::from_utf8(again).expect("PTX is ASCII"))?;
    for (name, bytes) in [("ptx", ptx), ("cubin", compile("sm_90").1)] {
        let mut hash = DefaultHasher::new();
        hash.write(&bytes);
        println!("{name} {} bytes {:016x}", bytes.len(), hash.finish());
    }
    println!("PASS a kernel compiled twice");
    Ok(())
}

/// PTX without its NUL, and machine code if the architecture is a real one.
fn compile(architecture: &str) -> (Vec<u8>, Vec<u8>) {
    let program = result::create_program(SOURCE, Some(c"triple.cu")).expect("NVRTC makes a program");
    let option = format!("--gpu-architecture={architecture}");
    // SAFETY: a program that is destroyed at the end, and room for as many bytes as it says.
    unsafe {
        result::compile_program(program, &[option]).expect("the kernel compiles");
        let ptx =
            result::get_ptx(program).expect("compiled").iter().map(|c| *c as u8).take_while(|c| *c != 0).collect();
        let mut bytes = 0;
        sys::nvrtcGetCUBINSize(program, &mut bytes).result().expect("compiled");
        let mut cubin = vec![0; bytes];
        if bytes > 0 {
            sys::nvrtcGetCUBIN(program, cubin.as_mut_ptr().cast()).result().expect("compiled");
        }
        result::destroy_program(program).expect("made above");
        (ptx, cubin)
    }
}

fn run(ptx: &str) -> Result<(), DriverError> {
    let context = CudaContext::new(0)?;
    let stream = context.new_stream()?;
    let triple = context.load_module(Ptx::from_src(ptx))?.load_function("triple")?;
    let a: Vec<f32> = (0..1000).map(|i| i as f32).collect();
    let mut on_a = stream.clone_htod(&a)?;
    let mut launch = stream.launch_builder(&triple);
    launch.arg(&mut on_a).arg(&1000i32);
    // SAFETY: the kernel takes an array of floats and how many there are, as passed here.
    unsafe { launch.launch(LaunchConfig::for_num_elems(1000)) }?;
    let tripled = stream.clone_dtoh(&on_a)?;
    assert!((0..1000).all(|i| tripled[i] == 3.0 * a[i]));
    Ok(())
}
