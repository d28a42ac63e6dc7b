//! Asks for what Orion refuses (a file of device memory, a graph that kernels are to launch, LTO-IR, an image longer
//! inside than outside) and for what the software GPU refuses (five texts that are no PTX, machine code, and a kernel
//! with an instruction that it lacks), and ends at once. Each is worth a line on standard error, however soon the
//! program ends, however often it asks (its argument) and whatever that descriptor is.

use std::ffi::{CStr, CString, c_void};
use std::process::ExitCode;
use std::ptr::null_mut;

use cudarc::driver::{CudaContext, sys};

/// Without PTX, for a device of compute capability 9.0.
static MACHINE_CODE: FatBinary = FatBinary {
    head: [0x10_0001_ba55_ed50, 96],
    entry: [64 << 32 | 0x0101_0002, 32, 0, 90 << 32, 0, 0, 0, 0],
    code: *b"\x7fELF .text.machine_coded\0       ",
};

static LACKING: &CStr = c".version 8.1
.target sm_90
.address_size 64
.visible .entry multicast(.param .u64 at)
{
.reg .b64 %p;
ld.param.u64 %p, [at];
multimem.st.weak.global.u32 [%p], 7;
ret;
}
";

#[repr(C, align(8))]
struct FatBinary {
    head: [u64; 2],
    entry: [u64; 8],
    code: [u8; 32],
}

fn main() -> ExitCode {
    let times: usize = std::env::args().nth(1).map_or(1, |times| times.parse().expect("a number of times"));
    let Ok(_context) = CudaContext::new(0) else {
        println!("FAIL there is no context");
        return ExitCode::FAILURE;
    };
    let accepted: Vec<&str> = (0..times).flat_map(|_| accepted()).collect();
    if accepted.is_empty() {
        println!("PASS all eleven were refused");
    } else {
        println!("FAIL {} were accepted: {:?}", accepted.len(), &accepted[..accepted.len().min(11)]);
    }
    // Without waiting for anything, and without the destructors that might.
    std::process::exit(i32::from(!accepted.is_empty()))
}

/// What was not refused.
fn accepted() -> Vec<&'static str> {
    let mut file = 0i32;
    // SAFETY: a valid out pointer, and no memory that is read.
    let refused = unsafe {
        let kind = sys::CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
        sys::cuMemGetHandleForAddressRange((&raw mut file).cast(), 1 << 21, 1 << 21, kind, 0)
    };
    let mut answers = vec![("a file of device memory", refused)];
    answers.push(("a graph that kernels launch", launched_by_kernels()));
    let intermediate = [0x7f4e_43ed_u32, 0, 0];
    answers.push(("LTO-IR", load(intermediate.as_ptr().cast()).0));
    for i in 0..5 {
        let text =
            CString::new(format!(".version 8.0\n.target sm_75\n.address_size 64\nrefusal{i} ;\n")).expect("no NUL");
        answers.push(("a text that is no PTX", load(text.as_ptr().cast()).0));
    }
    // A fat binary with one entry of PTX, whose content is a gigabyte.
    let mut image = [0u64; 10];
    (image[0], image[1]) = (0x10_0001_ba55_ed50, 64);
    (image[2], image[3]) = (64 << 32 | 0x0101_0001, 1 << 30);
    answers.push(("an image that lies", load(image.as_ptr().cast()).0));
    // What comes now ends the context that it is asked in.
    answers.push(("machine code", in_a_context(|| load((&raw const MACHINE_CODE).cast()).0)));
    answers.push(("a kernel", in_a_context(launch)));
    answers.into_iter().filter(|(_, code)| *code == sys::CUresult::CUDA_SUCCESS).map(|(what, _)| what).collect()
}

/// The kernel would follow the handle that it is given.
fn launched_by_kernels() -> sys::CUresult {
    const DEVICE_LAUNCH: u64 = 4;
    let (mut graph, mut by_flags, mut by_params) = (null_mut(), null_mut(), null_mut());
    // SAFETY: numbers and null handles.
    let mut params: sys::CUDA_GRAPH_INSTANTIATE_PARAMS = unsafe { std::mem::zeroed() };
    params.flags = DEVICE_LAUNCH;
    // SAFETY: valid out pointers, and the graph that was made.
    unsafe {
        assert_eq!(sys::cuGraphCreate(&mut graph, 0), sys::CUresult::CUDA_SUCCESS);
        let first = sys::cuGraphInstantiateWithFlags(&mut by_flags, graph, DEVICE_LAUNCH);
        let second = sys::cuGraphInstantiateWithParams(&mut by_params, graph, &mut params);
        sys::cuGraphDestroy(graph);
        assert_eq!(params.result_out, sys::CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_ERROR);
        if first == second { first } else { sys::CUresult::CUDA_SUCCESS }
    }
}

fn load(image: *const c_void) -> (sys::CUresult, sys::CUmodule) {
    let mut module = null_mut();
    // SAFETY: a valid out pointer, and an image of as many bytes as its header says, or a text that ends with a NUL.
    let code = unsafe { sys::cuModuleLoadData(&mut module, image) };
    (code, module)
}

fn in_a_context(ask: impl Fn() -> sys::CUresult) -> sys::CUresult {
    let mut context = null_mut();
    // SAFETY: a valid out pointer, and the context that was made.
    unsafe {
        assert_eq!(sys::cuCtxCreate_v4(&mut context, null_mut(), 0, 0), sys::CUresult::CUDA_SUCCESS);
        let answer = ask();
        sys::cuCtxDestroy_v2(context);
        answer
    }
}

fn launch() -> sys::CUresult {
    let (loaded, module) = load(LACKING.as_ptr().cast());
    assert_eq!(loaded, sys::CUresult::CUDA_SUCCESS);
    let (mut function, mut address) = (null_mut(), 0u64);
    let mut arguments = [(&raw mut address).cast::<c_void>()];
    // SAFETY: valid out pointers, and the kernel's one parameter.
    unsafe {
        let found = sys::cuModuleGetFunction(&mut function, module, c"multicast".as_ptr());
        assert_eq!(found, sys::CUresult::CUDA_SUCCESS);
        sys::cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, null_mut(), arguments.as_mut_ptr(), null_mut())
    }
}
