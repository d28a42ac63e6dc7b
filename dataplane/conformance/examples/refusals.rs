//! Asks for what Orion refuses (managed memory, and an image that is longer inside than outside) and for what the
//! software GPU refuses (five texts that are no PTX), and ends at once. Each is worth a line on standard error, however
//! soon the program ends and whatever that descriptor is.

use std::ffi::{CString, c_void};
use std::process::ExitCode;

use cudarc::driver::{CudaContext, sys};

fn main() -> ExitCode {
    let Ok(_context) = CudaContext::new(0) else {
        println!("FAIL there is no context");
        return ExitCode::FAILURE;
    };
    let mut managed = 0;
    // SAFETY: a valid out pointer.
    let refused = unsafe { sys::cuMemAllocManaged(&mut managed, 4096, 1) };
    let accepted = (0..5).filter(|i| {
        let text =
            CString::new(format!(".version 8.0\n.target sm_75\n.address_size 64\nrefusal{i} ;\n")).expect("no NUL");
        let mut module = std::ptr::null_mut();
        // SAFETY: a valid out pointer, and a text that ends with a NUL.
        unsafe { sys::cuModuleLoadData(&mut module, text.as_ptr().cast::<c_void>()) == sys::CUresult::CUDA_SUCCESS }
    });
    // A fat binary with one entry of PTX, whose content is a gigabyte.
    let mut image = [0u64; 10];
    (image[0], image[1]) = (0x10_0001_ba55_ed50, 64);
    (image[2], image[3]) = (64 << 32 | 0x0101_0001, 1 << 30);
    let mut module = std::ptr::null_mut();
    // SAFETY: a valid out pointer, and an image of as many bytes as its header says.
    let lying = unsafe { sys::cuModuleLoadData(&mut module, image.as_ptr().cast::<c_void>()) };
    let refusals = [refused, lying].iter().filter(|code| **code != sys::CUresult::CUDA_SUCCESS).count();
    let good = refusals == 2 && accepted.count() == 0;
    println!("{} all seven were refused", if good { "PASS" } else { "FAIL" });
    // Without waiting for anything, and without the destructors that might.
    std::process::exit(i32::from(!good))
}
