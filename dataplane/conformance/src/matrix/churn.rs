//! A thread that makes and ends contexts, streams, modules, libraries, pools, graphs and memory over and over again,
//! most of it with work under way, while others wait and copy. What was queued on what ends is done all the same.

// UNSAFETY: a host function is called by the driver.

use std::ffi::c_void;
use std::ptr::null_mut;

use orion_cuda::sys::*;

use crate::driver::Cuda;
use crate::fact::{Verdict, ok, same};
use crate::lab::{Get, PTX, as_void, read, text, use_primary, write, zeroed};
use crate::round::Random;

type Act = fn(&Churn, u32) -> Verdict;

const ACTS: [(&str, Act); 9] = [
    ("a context with all that is in it", Churn::context),
    ("a stream with work", Churn::stream),
    ("an event with work", Churn::event),
    ("a module with work", Churn::module),
    ("a library with work", Churn::library),
    ("a pool", Churn::pool),
    ("registered memory with work", Churn::registered),
    ("managed memory with work", Churn::managed),
    ("a graph with work", Churn::graph),
];

struct Churn {
    cu: &'static Cuda,
    stream: CUstream,
    increment: CUfunction,
    word: CUdeviceptr,
    /// Where the word is brought.
    pinned: *mut c_void,
}

/// Answers how many rounds there were.
///
/// # Errors
/// Which round went wrong, and how.
pub fn churn_until(cu: &'static Cuda, seed: u64, is_over: impl Fn() -> bool) -> Get<u64> {
    use_primary(cu)?;
    let mut random = Random::new(seed ^ 0xc4a2);
    let (_, increment) = cu.kernel("increment")?;
    let churn = Churn { cu, stream: cu.stream()?, increment, word: cu.words(&[0])?, pinned: cu.pinned(64)? };
    let mut rounds = 0;
    while !is_over() {
        rounds += 1;
        let (name, act) = ACTS[random.below(ACTS.len())];
        act(&churn, rounds as u32).map_err(|why| format!("round {rounds}, {name}: {why}"))?;
    }
    Ok(rounds)
}

impl Churn {
    /// Has the word be one more than `value`, and then brought.
    fn queue(&self, value: u32, increment: CUfunction, word: CUdeviceptr, stream: CUstream) -> Verdict {
        let cu = self.cu;
        write(self.pinned, u32::MAX);
        ok!(cu.cuMemsetD32Async(word, value, 1, stream));
        ok!(cu.launch_on(increment, word, stream));
        ok!(cu.cuMemcpyDtoHAsync_v2(self.pinned, word, 4, stream));
        Ok(())
    }

    fn has_come(&self, value: u32) -> Verdict {
        same!(read::<u32>(self.pinned), value + 1);
        Ok(())
    }

    fn context(&self, value: u32) -> Verdict {
        let (cu, mut context) = (self.cu, null_mut());
        ok!(cu.cuCtxCreate_v2(&mut context, 0, 0));
        let ((_, increment), stream, _) = (cu.kernel("increment")?, cu.blocking_stream()?, cu.event()?);
        let word = cu.words(&[0])?;
        self.queue(value, increment, word, stream)?;
        ok!(cu.cuCtxDestroy_v2(context));
        self.has_come(value)?;
        use_primary(cu)
    }

    fn stream(&self, value: u32) -> Verdict {
        let (cu, event, stream) = (self.cu, self.cu.event()?, self.cu.stream()?);
        self.queue(value, self.increment, self.word, stream)?;
        ok!(cu.cuEventRecord(event, stream));
        ok!(cu.cuStreamDestroy_v2(stream));
        ok!(cu.cuEventSynchronize(event));
        self.has_come(value)?;
        ok!(cu.cuEventDestroy_v2(event));
        Ok(())
    }

    fn event(&self, value: u32) -> Verdict {
        let (cu, event, other) = (self.cu, self.cu.event()?, self.cu.stream()?);
        self.queue(value, self.increment, self.word, self.stream)?;
        ok!(cu.cuEventRecord(event, self.stream));
        ok!(cu.cuStreamWaitEvent(other, event, 0));
        ok!(cu.cuEventDestroy_v2(event));
        ok!(cu.cuStreamSynchronize(other));
        self.has_come(value)?;
        ok!(cu.cuStreamDestroy_v2(other));
        Ok(())
    }

    fn module(&self, value: u32) -> Verdict {
        let cu = self.cu;
        let (module, increment) = cu.kernel("increment")?;
        self.queue(value, increment, self.word, self.stream)?;
        ok!(cu.cuModuleUnload(module));
        self.has_come(value)
    }

    fn library(&self, value: u32) -> Verdict {
        let (cu, mut library, mut kernel) = (self.cu, null_mut(), null_mut());
        let (image, name) = (PTX.as_ptr().cast(), text("increment"));
        let none = (null_mut(), null_mut(), null_mut(), null_mut());
        ok!(cu.cuLibraryLoadData(&mut library, image, none.0, none.1, 0, none.2, none.3, 0));
        ok!(cu.cuLibraryGetKernel(&mut kernel, library, name.as_ptr()));
        self.queue(value, kernel.cast(), self.word, self.stream)?;
        ok!(cu.cuStreamSynchronize(self.stream));
        self.has_come(value)?;
        ok!(cu.cuLibraryUnload(library));
        Ok(())
    }

    fn pool(&self, value: u32) -> Verdict {
        let (cu, mut pool, mut word, mut props) = (self.cu, null_mut(), 0, zeroed::<CUmemPoolProps>());
        (props.allocType, props.location.type_) = (CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE);
        ok!(cu.cuMemPoolCreate(&mut pool, &props));
        ok!(cu.cuMemAllocFromPoolAsync(&mut word, 64, pool, self.stream));
        self.queue(value, self.increment, word, self.stream)?;
        ok!(cu.cuMemFreeAsync(word, self.stream));
        // Driver 580 ends a program that destroys a pool before its memory is free, natively too: sooner or later it
        // divides by zero, or reads what is not there, in `cuMemAllocFromPoolAsync`.
        ok!(cu.cuStreamSynchronize(self.stream));
        ok!(cu.cuMemPoolDestroy(pool));
        self.has_come(value)
    }

    fn registered(&self, value: u32) -> Verdict {
        let (cu, mut pages) = (self.cu, vec![0u8; 12 << 10]);
        let at = pages.as_mut_ptr().cast::<c_void>();
        let first = at.wrapping_byte_add(at.align_offset(4096));
        ok!(cu.cuMemHostRegister_v2(first, 4096, 0));
        write(first, value);
        let mut device = 0;
        ok!(cu.cuMemHostGetDevicePointer_v2(&mut device, first, 0));
        ok!(cu.launch_on(self.increment, device, self.stream));
        ok!(cu.cuMemHostUnregister(first));
        same!(read::<u32>(first), value + 1);
        Ok(())
    }

    fn managed(&self, value: u32) -> Verdict {
        let (cu, mut managed) = (self.cu, 0);
        ok!(cu.cuMemAllocManaged(&mut managed, 64, CU_MEM_ATTACH_GLOBAL));
        // Where the host stays away while any kernel runs, a copy is what reaches it beside others' work.
        self.queue(value, self.increment, managed, self.stream)?;
        ok!(cu.cuMemFree_v2(managed));
        self.has_come(value)
    }

    fn graph(&self, value: u32) -> Verdict {
        let (cu, mut graph, mut exec, mut word) = (self.cu, null_mut(), null_mut(), self.word);
        let (mut kernel, mut host, mut arguments) = (null_mut(), null_mut(), [as_void(&mut word)]);
        let mut params = zeroed::<CUDA_KERNEL_NODE_PARAMS>();
        params.func = self.increment;
        (params.gridDimX, params.gridDimY, params.gridDimZ) = (1, 1, 1);
        (params.blockDimX, params.blockDimY, params.blockDimZ) = (1, 1, 1);
        params.kernelParams = arguments.as_mut_ptr();
        let function = CUDA_HOST_NODE_PARAMS { fn_: Some(count), userData: self.pinned.wrapping_byte_add(8) };
        ok!(cu.cuGraphCreate(&mut graph, 0));
        ok!(cu.cuGraphAddKernelNode_v2(&mut kernel, graph, null_mut(), 0, &params));
        ok!(cu.cuGraphAddHostNode(&mut host, graph, &kernel, 1, &function));
        ok!(cu.cuGraphInstantiateWithFlags(&mut exec, graph, 0));
        ok!(cu.cuGraphDestroy(graph));
        write(self.pinned, [u32::MAX, 0, value]);
        ok!(cu.cuMemsetD32Async(word, value, 1, self.stream));
        ok!(cu.cuGraphLaunch(exec, self.stream));
        ok!(cu.cuMemcpyDtoHAsync_v2(self.pinned, word, 4, self.stream));
        ok!(cu.cuStreamSynchronize(self.stream));
        ok!(cu.cuGraphExecDestroy(exec));
        same!(read::<[u32; 3]>(self.pinned), [value + 1, 0, value + 1]);
        Ok(())
    }
}

unsafe extern "C" fn count(word: *mut c_void) {
    write(word, read::<u32>(word) + 1);
}
