//! What there is to create and destroy, and how: one round of each.

// UNSAFETY: calls the driver with objects that were just made and places of the size it writes.

use std::ffi::{CStr, CString, c_void};
use std::mem::zeroed;
use std::ptr::{null, null_mut};

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;

pub struct Pair {
    /// The row of the table that creates, and a word more where it is asked in another way.
    pub creates: &'static str,
    /// The rows that destroy, or what the object ends with.
    pub destroys: &'static str,
    pub round: fn(&mut Scene) -> Result<(), String>,
}

const PTX: &CStr = c".version 7.0\n.target sm_70\n.address_size 64\n.visible .global .align 4 .u32 counter;\n\
    .visible .entry nothing() {\n    ret;\n}\n";
const BYTES: usize = 4096;
const UNIT: usize = 2 << 20;

fn expect(call: &str, code: CUresult) -> Result<(), String> {
    match code {
        CUDA_SUCCESS => Ok(()),
        code => Err(format!("{} answered {code}", call.split('(').next().unwrap_or(call))),
    }
}

macro_rules! ok {
    ($s:ident.$name:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: see the head of this module.
        expect(stringify!($name), unsafe { $s.driver.$name($($argument),*) })?
    };
}

/// Creates, or is refused as often as it is asked; true if it was made. Not every GPU has everything.
macro_rules! made {
    ($s:ident.$name:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: see the head of this module.
        match unsafe { $s.driver.$name($($argument),*) } {
            CUDA_SUCCESS => true,
            CUDA_ERROR_NOT_SUPPORTED | CUDA_ERROR_INVALID_VALUE | CUDA_ERROR_NOT_PERMITTED
            | CUDA_ERROR_INVALID_DEVICE | CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY | CUDA_ERROR_INVALID_HANDLE
            | CUDA_ERROR_INVALID_CONTEXT | CUDA_ERROR_MAP_FAILED => false,
            code => return Err(format!("{} answered {code}", stringify!($name))),
        }
    };
}

/// What rounds need besides what they make.
pub struct Scene {
    driver: &'static Driver,
    context: CUcontext,
    stream: CUstream,
    event: CUevent,
    module: CUmodule,
    function: CUfunction,
    graph: CUgraph,
    array: CUarray,
    pool: CUmemoryPool,
    object: CUuserObject,
    memory: CUdeviceptr,
    resource: CUdevResource,
    descriptor: CUdevResourceDesc,
    /// A range of addresses with room for one allocation, and the allocation.
    range: CUdeviceptr,
    allocation: CUmemGenericAllocationHandle,
    file: CString,
    /// Pages of our own, to be pinned.
    pages: Vec<u8>,
}

impl Scene {
    pub fn new(driver: &'static Driver) -> Result<Scene, String> {
        let file = std::env::temp_dir().join(format!("orion-rounds-{}.ptx", std::process::id()));
        std::fs::write(&file, PTX.to_bytes()).map_err(|e| format!("writing {}: {e}", file.display()))?;
        let file = CString::new(file.to_string_lossy().into_owned()).map_err(|e| e.to_string())?;
        let pages = vec![0; 3 * BYTES];
        let mut s = Scene {
            driver,
            context: null_mut(),
            stream: null_mut(),
            event: null_mut(),
            module: null_mut(),
            function: null_mut(),
            graph: null_mut(),
            array: null_mut(),
            pool: null_mut(),
            object: null_mut(),
            memory: 0,
            // SAFETY: a C structure for which all zeroes is a value.
            resource: unsafe { zeroed() },
            descriptor: null_mut(),
            range: 0,
            allocation: 0,
            file,
            pages,
        };
        s.prepare()?;
        Ok(s)
    }

    fn prepare(&mut self) -> Result<(), String> {
        let s = self;
        ok!(s.cuDevicePrimaryCtxRetain(&mut s.context, 0));
        ok!(s.cuCtxSetCurrent(s.context));
        ok!(s.cuStreamCreate(&mut s.stream, CU_STREAM_NON_BLOCKING));
        ok!(s.cuEventCreate(&mut s.event, CU_EVENT_DISABLE_TIMING));
        ok!(s.cuModuleLoadData(&mut s.module, PTX.as_ptr().cast()));
        ok!(s.cuModuleGetFunction(&mut s.function, s.module, c"nothing".as_ptr()));
        ok!(s.cuGraphCreate(&mut s.graph, 0));
        ok!(s.cuArray3DCreate_v2(&mut s.array, &array()));
        ok!(s.cuMemPoolCreate(&mut s.pool, &pool()));
        ok!(s.cuUserObjectCreate(&mut s.object, null_mut(), Some(ignore), 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
        ok!(s.cuMemAlloc_v2(&mut s.memory, UNIT));
        ok!(s.cuMemAddressReserve(&mut s.range, UNIT, 0, 0, 0));
        ok!(s.cuMemCreate(&mut s.allocation, UNIT, &allocation(), 0));
        if s.resource.type_ == CU_DEV_RESOURCE_TYPE_INVALID {
            s.resource = processors(s)?;
        }
        ok!(s.cuDevResourceGenerateDesc(&mut s.descriptor, &mut s.resource, 1));
        Ok(())
    }

    /// Sends more than rings hold, and starts what starts with the first use, so that no round pays for it.
    pub fn warm_up(&mut self) -> Result<(), String> {
        let s = &mut *self;
        for _ in 0..40_000 {
            ok!(s.cuEventRecord(s.event, s.stream));
        }
        for _ in 0..3_000 {
            ok!(s.cuLaunchKernel(s.function, 1, 1, 1, 1, 1, 1, 0, s.stream, null_mut(), null_mut()));
        }
        self.settle()
    }

    /// Waits for everything that was only queued.
    pub fn settle(&mut self) -> Result<(), String> {
        let s = self;
        ok!(s.cuCtxSynchronize());
        // What is unloaded or unpinned once the device is idle is gone with the next few commands.
        for _ in 0..64 {
            ok!(s.cuStreamQuery(s.stream));
        }
        ok!(s.cuCtxSynchronize());
        Ok(())
    }

    /// The scene's own objects go; what is wrong with that, rounds of theirs say.
    pub fn end(self) {
        let (s, d) = (&self, self.driver);
        // SAFETY: made in `prepare`, and used by nobody.
        unsafe {
            d.cuMemRelease(s.allocation);
            d.cuMemAddressFree(s.range, UNIT);
            d.cuMemFree_v2(s.memory);
            d.cuUserObjectRelease(s.object, 1);
            d.cuMemPoolDestroy(s.pool);
            d.cuArrayDestroy(s.array);
            d.cuGraphDestroy(s.graph);
            d.cuModuleUnload(s.module);
            d.cuEventDestroy_v2(s.event);
            d.cuStreamDestroy_v2(s.stream);
        }
        let _ = std::fs::remove_file(s.file.to_string_lossy().as_ref());
    }
}

unsafe extern "C" fn ignore(_: *mut c_void) {}

unsafe extern "C" fn ignore_log(_: *mut c_void, _: CUlogLevel, _: *mut std::ffi::c_char, _: usize) {}

fn array() -> CUDA_ARRAY3D_DESCRIPTOR {
    CUDA_ARRAY3D_DESCRIPTOR { Width: 8, Height: 8, Depth: 0, Format: CU_AD_FORMAT_FLOAT, NumChannels: 1, Flags: 0 }
}

fn pool() -> CUmemPoolProps {
    // SAFETY: a C structure for which all zeroes is a value.
    let mut p: CUmemPoolProps = unsafe { zeroed() };
    p.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.location = CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };
    p
}

fn allocation() -> CUmemAllocationProp {
    // SAFETY: as above.
    let mut p: CUmemAllocationProp = unsafe { zeroed() };
    p.type_ = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.location = CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };
    p
}

fn resource(array: CUarray) -> CUDA_RESOURCE_DESC {
    // SAFETY: as above.
    let mut d: CUDA_RESOURCE_DESC = unsafe { zeroed() };
    d.resType = CU_RESOURCE_TYPE_ARRAY;
    d.res.array.hArray = array;
    d
}

/// Part of the device's multiprocessors.
fn processors(s: &Scene) -> Result<CUdevResource, String> {
    // SAFETY: as above.
    let (mut all, mut group): (CUdevResource, CUdevResource) = unsafe { (zeroed(), zeroed()) };
    ok!(s.cuDeviceGetDevResource(0, &mut all, CU_DEV_RESOURCE_TYPE_SM));
    let mut count = 1;
    // SAFETY: the type that was asked for.
    let least = unsafe { all.__bindgen_anon_1.sm.minSmPartitionSize };
    ok!(s.cuDevSmResourceSplitByCount(&mut group, &mut count, &all, null_mut(), 0, least));
    Ok(group)
}

fn kernel_node(s: &Scene) -> CUDA_KERNEL_NODE_PARAMS {
    // SAFETY: as above.
    let mut p: CUDA_KERNEL_NODE_PARAMS = unsafe { zeroed() };
    p.func = s.function;
    (p.gridDimX, p.gridDimY, p.gridDimZ) = (1, 1, 1);
    (p.blockDimX, p.blockDimY, p.blockDimZ) = (1, 1, 1);
    p
}

/// Adds a node to the scene's graph, asks the graph for it, and destroys it.
fn node(s: &mut Scene, add: impl FnOnce(&Scene, &mut CUgraphNode) -> CUresult) -> Result<(), String> {
    let (mut node, mut listed, mut count) = (null_mut(), null_mut(), 1);
    expect("adding a node", add(s, &mut node))?;
    ok!(s.cuGraphGetNodes(s.graph, &mut listed, &mut count));
    if listed != node {
        return Err(format!("the graph's only node is {listed:p}, made was {node:p}"));
    }
    ok!(s.cuGraphDestroyNode(node));
    Ok(())
}

/// A graph of one empty node for the length of a round.
fn with_graph(s: &mut Scene, round: impl FnOnce(&mut Scene, CUgraph) -> Result<(), String>) -> Result<(), String> {
    let (mut graph, mut node) = (null_mut(), null_mut());
    ok!(s.cuGraphCreate(&mut graph, 0));
    ok!(s.cuGraphAddEmptyNode(&mut node, graph, null(), 0));
    round(s, graph)?;
    ok!(s.cuGraphDestroy(graph));
    Ok(())
}

/// Launches an executable graph and destroys it.
fn use_up(s: &mut Scene, exec: CUgraphExec) -> Result<(), String> {
    ok!(s.cuGraphLaunch(exec, s.stream));
    ok!(s.cuStreamSynchronize(s.stream));
    ok!(s.cuGraphExecDestroy(exec));
    Ok(())
}

fn use_up_module(s: &mut Scene, module: CUmodule) -> Result<(), String> {
    let (mut function, mut address, mut bytes, none) = (null_mut(), 0, 0, null_mut());
    ok!(s.cuModuleGetFunction(&mut function, module, c"nothing".as_ptr()));
    ok!(s.cuModuleGetGlobal_v2(&mut address, &mut bytes, module, c"counter".as_ptr()));
    ok!(s.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, s.stream, null_mut(), none));
    ok!(s.cuStreamSynchronize(s.stream));
    ok!(s.cuModuleUnload(module));
    Ok(())
}

fn use_up_library(s: &mut Scene, library: CUlibrary) -> Result<(), String> {
    let mut kernel: CUkernel = null_mut();
    ok!(s.cuLibraryGetKernel(&mut kernel, library, c"nothing".as_ptr()));
    ok!(s.cuLaunchKernel(kernel.cast(), 1, 1, 1, 1, 1, 1, 0, s.stream, null_mut(), null_mut()));
    ok!(s.cuStreamSynchronize(s.stream));
    ok!(s.cuLibraryUnload(library));
    Ok(())
}

fn load_library(s: &mut Scene) -> Result<CUlibrary, String> {
    let (mut library, none) = (null_mut(), null_mut());
    let (image, values) = (PTX.as_ptr().cast(), null_mut());
    ok!(s.cuLibraryLoadData(&mut library, image, none, values, 0, null_mut(), null_mut(), 0));
    Ok(library)
}

/// Destroys a context that was just made, and makes the scene's current again.
fn use_up_context(s: &mut Scene, context: CUcontext) -> Result<(), String> {
    ok!(s.cuCtxSynchronize());
    ok!(s.cuCtxDestroy_v2(context));
    ok!(s.cuCtxSetCurrent(s.context));
    Ok(())
}

macro_rules! pairs {
    ($($creates:literal, $destroys:literal: |$s:ident| $round:block)*) => {
        pub const PAIRS: &[Pair] = &[$(Pair {
            creates: $creates,
            destroys: $destroys,
            round: |$s: &mut Scene| { $round; Ok(()) },
        }),*];
    };
}

pairs! {
    "cuStreamCreate", "cuStreamDestroy_v2": |s| {
        let mut stream = null_mut();
        ok!(s.cuStreamCreate(&mut stream, CU_STREAM_NON_BLOCKING));
        ok!(s.cuStreamDestroy_v2(stream));
    }
    "cuStreamCreate and a launch", "cuStreamDestroy_v2": |s| {
        let mut stream = null_mut();
        ok!(s.cuStreamCreate(&mut stream, CU_STREAM_NON_BLOCKING));
        ok!(s.cuLaunchKernel(s.function, 1, 1, 1, 1, 1, 1, 0, stream, null_mut(), null_mut()));
        ok!(s.cuEventRecord(s.event, stream));
        ok!(s.cuStreamDestroy_v2(stream));
        ok!(s.cuEventSynchronize(s.event));
    }
    "cuStreamCreateWithPriority", "cuStreamDestroy_v2": |s| {
        let mut stream = null_mut();
        ok!(s.cuStreamCreateWithPriority(&mut stream, CU_STREAM_NON_BLOCKING, -1));
        ok!(s.cuStreamDestroy_v2(stream));
    }
    "cuEventCreate", "cuEventDestroy_v2": |s| {
        let mut event = null_mut();
        ok!(s.cuEventCreate(&mut event, CU_EVENT_DEFAULT));
        ok!(s.cuEventRecord(event, s.stream));
        ok!(s.cuEventDestroy_v2(event));
    }
    "cuArrayCreate_v2", "cuArrayDestroy": |s| {
        let mut array = null_mut();
        let d = CUDA_ARRAY_DESCRIPTOR { Width: 8, Height: 8, Format: CU_AD_FORMAT_FLOAT, NumChannels: 1 };
        ok!(s.cuArrayCreate_v2(&mut array, &d));
        ok!(s.cuArrayDestroy(array));
    }
    "cuArray3DCreate_v2", "cuArrayDestroy": |s| {
        let mut a = null_mut();
        ok!(s.cuArray3DCreate_v2(&mut a, &array()));
        ok!(s.cuArrayDestroy(a));
    }
    "cuMipmappedArrayCreate", "cuMipmappedArrayDestroy": |s| {
        let mut mipmapped = null_mut();
        ok!(s.cuMipmappedArrayCreate(&mut mipmapped, &array(), 3));
        ok!(s.cuMipmappedArrayDestroy(mipmapped));
    }
    "cuMipmappedArrayGetLevel", "cuMipmappedArrayDestroy": |s| {
        let (mut mipmapped, mut level) = (null_mut(), null_mut());
        ok!(s.cuMipmappedArrayCreate(&mut mipmapped, &array(), 3));
        ok!(s.cuMipmappedArrayGetLevel(&mut level, mipmapped, 1));
        ok!(s.cuMipmappedArrayDestroy(mipmapped));
    }
    "cuArrayGetPlane", "cuArrayDestroy": |s| {
        let (mut a, mut plane) = (null_mut(), null_mut());
        ok!(s.cuArray3DCreate_v2(&mut a, &array()));
        // An array of one plane has none to give.
        made!(s.cuArrayGetPlane(&mut plane, a, 0));
        ok!(s.cuArrayDestroy(a));
    }
    "cuTexObjectCreate", "cuTexObjectDestroy": |s| {
        let mut texture = 0;
        // SAFETY: a C structure for which all zeroes is a value.
        let sampler = unsafe { zeroed() };
        ok!(s.cuTexObjectCreate(&mut texture, &resource(s.array), &sampler, null()));
        ok!(s.cuTexObjectDestroy(texture));
    }
    "cuSurfObjectCreate", "cuSurfObjectDestroy": |s| {
        let (mut a, mut surface) = (null_mut(), 0);
        ok!(s.cuArray3DCreate_v2(&mut a, &CUDA_ARRAY3D_DESCRIPTOR { Flags: CUDA_ARRAY3D_SURFACE_LDST, ..array() }));
        ok!(s.cuSurfObjectCreate(&mut surface, &resource(a)));
        ok!(s.cuSurfObjectDestroy(surface));
        ok!(s.cuArrayDestroy(a));
    }
    "cuModuleLoadData", "cuModuleUnload": |s| {
        let mut module = null_mut();
        ok!(s.cuModuleLoadData(&mut module, PTX.as_ptr().cast()));
        use_up_module(s, module)?;
    }
    "cuModuleLoadDataEx", "cuModuleUnload": |s| {
        let mut module = null_mut();
        ok!(s.cuModuleLoadDataEx(&mut module, PTX.as_ptr().cast(), 0, null_mut(), null_mut()));
        ok!(s.cuModuleUnload(module));
    }
    "cuModuleLoadFatBinary", "cuModuleUnload": |s| {
        let mut module = null_mut();
        ok!(s.cuModuleLoadFatBinary(&mut module, PTX.as_ptr().cast()));
        ok!(s.cuModuleUnload(module));
    }
    "cuModuleLoad", "cuModuleUnload": |s| {
        let mut module = null_mut();
        ok!(s.cuModuleLoad(&mut module, s.file.as_ptr()));
        ok!(s.cuModuleUnload(module));
    }
    "cuModuleGetFunction", "cuModuleUnload": |s| {
        let (mut module, mut function) = (null_mut(), null_mut());
        ok!(s.cuModuleLoadData(&mut module, PTX.as_ptr().cast()));
        ok!(s.cuModuleGetFunction(&mut function, module, c"nothing".as_ptr()));
        made!(s.cuModuleGetFunction(&mut function, s.module, c"nothing".as_ptr()));
        ok!(s.cuModuleUnload(module));
    }
    "cuLibraryLoadData", "cuLibraryUnload": |s| {
        let library = load_library(s)?;
        use_up_library(s, library)?;
    }
    "cuLibraryLoadFromFile", "cuLibraryUnload": |s| {
        let (mut library, none) = (null_mut(), null_mut());
        let name = s.file.as_ptr();
        ok!(s.cuLibraryLoadFromFile(&mut library, name, none, null_mut(), 0, null_mut(), null_mut(), 0));
        ok!(s.cuLibraryUnload(library));
    }
    "cuLibraryGetKernel", "cuLibraryUnload": |s| {
        let (library, mut kernel) = (load_library(s)?, null_mut());
        ok!(s.cuLibraryGetKernel(&mut kernel, library, c"nothing".as_ptr()));
        ok!(s.cuLibraryUnload(library));
    }
    "cuLibraryGetModule", "cuLibraryUnload": |s| {
        let (library, mut module, mut function) = (load_library(s)?, null_mut(), null_mut());
        ok!(s.cuLibraryGetModule(&mut module, library));
        ok!(s.cuModuleGetFunction(&mut function, module, c"nothing".as_ptr()));
        ok!(s.cuLibraryUnload(library));
    }
    "cuLinkCreate_v2", "cuLinkDestroy": |s| {
        let (mut link, mut cubin, mut bytes) = (null_mut(), null_mut(), 0);
        ok!(s.cuLinkCreate_v2(0, null_mut(), null_mut(), &mut link));
        let data = PTX.as_ptr().cast_mut().cast();
        let length = PTX.to_bytes_with_nul().len();
        ok!(s.cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, data, length, null(), 0, null_mut(), null_mut()));
        ok!(s.cuLinkComplete(link, &mut cubin, &mut bytes));
        ok!(s.cuLinkDestroy(link));
    }
    "cuMemAlloc_v2", "cuMemFree_v2": |s| {
        let mut address = 0;
        ok!(s.cuMemAlloc_v2(&mut address, BYTES));
        ok!(s.cuMemFree_v2(address));
    }
    "cuMemAllocPitch_v2", "cuMemFree_v2": |s| {
        let (mut address, mut pitch) = (0, 0);
        ok!(s.cuMemAllocPitch_v2(&mut address, &mut pitch, 100, 10, 4));
        ok!(s.cuMemFree_v2(address));
    }
    "cuMemAllocManaged", "cuMemFree_v2": |s| {
        let mut address = 0;
        ok!(s.cuMemAllocManaged(&mut address, BYTES, CU_MEM_ATTACH_GLOBAL));
        ok!(s.cuMemFree_v2(address));
    }
    "cuMemHostAlloc", "cuMemFreeHost": |s| {
        let mut address = null_mut();
        ok!(s.cuMemHostAlloc(&mut address, BYTES, CU_MEMHOSTALLOC_PORTABLE));
        ok!(s.cuMemFreeHost(address));
    }
    "cuMemHostAlloc and a copy", "cuMemFreeHost": |s| {
        let mut address = null_mut();
        ok!(s.cuMemHostAlloc(&mut address, UNIT, CU_MEMHOSTALLOC_DEVICEMAP));
        ok!(s.cuMemcpyDtoHAsync_v2(address, s.memory, UNIT, s.stream));
        ok!(s.cuMemFreeHost(address));
    }
    "cuMemAllocHost_v2", "cuMemFreeHost": |s| {
        let mut address = null_mut();
        ok!(s.cuMemAllocHost_v2(&mut address, BYTES));
        ok!(s.cuMemFreeHost(address));
    }
    "cuMemHostRegister_v2", "cuMemHostUnregister": |s| {
        let page = s.pages.as_mut_ptr().wrapping_add(s.pages.as_ptr().align_offset(BYTES)).cast();
        ok!(s.cuMemHostRegister_v2(page, BYTES, 0));
        ok!(s.cuMemHostUnregister(page));
    }
    "cuMemAllocAsync", "cuMemFreeAsync": |s| {
        let mut address = 0;
        ok!(s.cuMemAllocAsync(&mut address, BYTES, s.stream));
        ok!(s.cuMemFreeAsync(address, s.stream));
    }
    "cuMemAllocFromPoolAsync", "cuMemFreeAsync": |s| {
        let mut address = 0;
        ok!(s.cuMemAllocFromPoolAsync(&mut address, BYTES, s.pool, s.stream));
        ok!(s.cuMemFreeAsync(address, s.stream));
    }
    "cuMemPoolCreate", "cuMemPoolDestroy": |s| {
        let (mut p, mut address) = (null_mut(), 0);
        ok!(s.cuMemPoolCreate(&mut p, &pool()));
        ok!(s.cuMemAllocFromPoolAsync(&mut address, BYTES, p, s.stream));
        ok!(s.cuMemFreeAsync(address, s.stream));
        ok!(s.cuStreamSynchronize(s.stream));
        ok!(s.cuMemPoolDestroy(p));
    }
    "cuMemAddressReserve", "cuMemAddressFree": |s| {
        let mut address = 0;
        ok!(s.cuMemAddressReserve(&mut address, UNIT, 0, 0, 0));
        ok!(s.cuMemAddressFree(address, UNIT));
    }
    "cuMemCreate", "cuMemRelease": |s| {
        let mut handle = 0;
        ok!(s.cuMemCreate(&mut handle, UNIT, &allocation(), 0));
        ok!(s.cuMemRelease(handle));
    }
    "cuMemMap", "cuMemUnmap": |s| {
        ok!(s.cuMemMap(s.range, UNIT, 0, s.allocation, 0));
        ok!(s.cuMemUnmap(s.range, UNIT));
    }
    "cuMemRetainAllocationHandle", "cuMemRelease, cuMemUnmap": |s| {
        let (mut handle, mut again) = (0, 0);
        ok!(s.cuMemCreate(&mut handle, UNIT, &allocation(), 0));
        ok!(s.cuMemMap(s.range, UNIT, 0, handle, 0));
        ok!(s.cuMemRelease(handle));
        ok!(s.cuMemRetainAllocationHandle(&mut again, s.range as *mut c_void));
        ok!(s.cuMemRelease(again));
        ok!(s.cuMemUnmap(s.range, UNIT));
    }
    "cuMemImportFromShareableHandle", "cuMemRelease": |s| {
        let mut handle = 0;
        let kind = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        if made!(s.cuMemImportFromShareableHandle(&mut handle, usize::MAX as *mut c_void, kind)) {
            ok!(s.cuMemRelease(handle));
        }
    }
    "cuMulticastCreate", "cuMemRelease": |s| {
        // SAFETY: a C structure for which all zeroes is a value.
        let mut prop: CUmulticastObjectProp = unsafe { zeroed() };
        (prop.numDevices, prop.size) = (1, UNIT);
        let mut handle = 0;
        if made!(s.cuMulticastCreate(&mut handle, &prop)) {
            ok!(s.cuMemRelease(handle));
        }
    }
    "cuIpcOpenMemHandle_v2", "cuIpcCloseMemHandle": |s| {
        // SAFETY: as above. No process has given this one out.
        let (mut address, handle) = (0, unsafe { zeroed() });
        if made!(s.cuIpcOpenMemHandle_v2(&mut address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)) {
            ok!(s.cuIpcCloseMemHandle(address));
        }
    }
    "cuIpcOpenEventHandle", "cuEventDestroy_v2": |s| {
        // SAFETY: as above.
        let (mut event, handle) = (null_mut(), unsafe { zeroed() });
        if made!(s.cuIpcOpenEventHandle(&mut event, handle)) {
            ok!(s.cuEventDestroy_v2(event));
        }
    }
    "cuGraphCreate", "cuGraphDestroy": |s| {
        let mut graph = null_mut();
        ok!(s.cuGraphCreate(&mut graph, 0));
        ok!(s.cuGraphDestroy(graph));
    }
    "cuGraphClone", "cuGraphDestroy": |s| {
        with_graph(s, |s, graph| {
            let (mut clone, mut node, mut count) = (null_mut(), null_mut(), 1);
            ok!(s.cuGraphClone(&mut clone, graph));
            ok!(s.cuGraphGetNodes(clone, &mut node, &mut count));
            ok!(s.cuGraphDestroy(clone));
            Ok(())
        })?;
    }
    "cuGraphAddEmptyNode", "cuGraphDestroyNode": |s| {
        // SAFETY: here and below: a place for the node, and parameters that outlive the call.
        node(s, |s, out| unsafe { s.driver.cuGraphAddEmptyNode(out, s.graph, null(), 0) })?;
    }
    "cuGraphAddKernelNode", "cuGraphDestroyNode": |s| {
        let v2 = kernel_node(s);
        // SAFETY: the second version's fields, but for the last two.
        let v1 = unsafe { std::ptr::from_ref(&v2).cast::<CUDA_KERNEL_NODE_PARAMS_v1>().read() };
        // SAFETY: as above.
        node(s, |s, out| unsafe { s.driver.cuGraphAddKernelNode(out, s.graph, null(), 0, &v1) })?;
    }
    "cuGraphAddKernelNode_v2", "cuGraphDestroyNode": |s| {
        let p = kernel_node(s);
        // SAFETY: as above.
        node(s, |s, out| unsafe { s.driver.cuGraphAddKernelNode_v2(out, s.graph, null(), 0, &p) })?;
    }
    "cuGraphAddKernelNode_v2 and its parameters", "cuGraphDestroy": |s| {
        with_graph(s, |s, graph| {
            // SAFETY: a C structure for which all zeroes is a value.
            let (mut node, mut found): (_, CUDA_KERNEL_NODE_PARAMS) = (null_mut(), unsafe { zeroed() });
            ok!(s.cuGraphAddKernelNode_v2(&mut node, graph, null(), 0, &kernel_node(s)));
            ok!(s.cuGraphKernelNodeGetParams_v2(node, &mut found));
            Ok(())
        })?;
    }
    "cuGraphAddMemcpyNode", "cuGraphDestroyNode": |s| {
        // SAFETY: a C structure for which all zeroes is a value.
        let mut c: CUDA_MEMCPY3D = unsafe { zeroed() };
        (c.srcMemoryType, c.srcDevice) = (CU_MEMORYTYPE_DEVICE, s.memory);
        (c.dstMemoryType, c.dstDevice) = (CU_MEMORYTYPE_DEVICE, s.memory + 64);
        (c.WidthInBytes, c.Height, c.Depth) = (16, 1, 1);
        // SAFETY: as above.
        node(s, |s, out| unsafe { s.driver.cuGraphAddMemcpyNode(out, s.graph, null(), 0, &c, s.context) })?;
    }
    "cuGraphAddMemcpyNode from pageable memory", "cuGraphDestroyNode": |s| {
        // SAFETY: a C structure for which all zeroes is a value.
        let mut c: CUDA_MEMCPY3D = unsafe { zeroed() };
        (c.srcMemoryType, c.srcHost) = (CU_MEMORYTYPE_HOST, s.pages.as_ptr().cast());
        (c.dstMemoryType, c.dstDevice) = (CU_MEMORYTYPE_DEVICE, s.memory);
        (c.WidthInBytes, c.Height, c.Depth) = (64, 1, 1);
        // SAFETY: as above.
        node(s, |s, out| unsafe { s.driver.cuGraphAddMemcpyNode(out, s.graph, null(), 0, &c, s.context) })?;
    }
    "cuGraphAddMemsetNode", "cuGraphDestroyNode": |s| {
        let m = CUDA_MEMSET_NODE_PARAMS { dst: s.memory, pitch: 0, value: 7, elementSize: 4, width: 16, height: 1 };
        // SAFETY: as above.
        node(s, |s, out| unsafe { s.driver.cuGraphAddMemsetNode(out, s.graph, null(), 0, &m, s.context) })?;
    }
    "cuGraphAddHostNode", "cuGraphDestroyNode": |s| {
        let h = CUDA_HOST_NODE_PARAMS { fn_: Some(ignore), userData: null_mut() };
        // SAFETY: as above.
        node(s, |s, out| unsafe { s.driver.cuGraphAddHostNode(out, s.graph, null(), 0, &h) })?;
    }
    "cuGraphAddHostNode in a graph", "cuGraphDestroy": |s| {
        with_graph(s, |s, graph| {
            let (mut node, mut exec) = (null_mut(), null_mut());
            let h = CUDA_HOST_NODE_PARAMS { fn_: Some(ignore), userData: null_mut() };
            ok!(s.cuGraphAddHostNode(&mut node, graph, null(), 0, &h));
            ok!(s.cuGraphInstantiateWithFlags(&mut exec, graph, 0));
            use_up(s, exec)
        })?;
    }
    "cuGraphAddChildGraphNode", "cuGraphDestroyNode": |s| {
        with_graph(s, |s, child| {
            let (mut node, mut inner, mut inside, mut count) = (null_mut(), null_mut(), null_mut(), 1);
            ok!(s.cuGraphAddChildGraphNode(&mut node, s.graph, null(), 0, child));
            ok!(s.cuGraphChildGraphNodeGetGraph(node, &mut inner));
            ok!(s.cuGraphGetNodes(inner, &mut inside, &mut count));
            ok!(s.cuGraphDestroyNode(node));
            Ok(())
        })?;
    }
    "cuGraphAddEventRecordNode", "cuGraphDestroyNode": |s| {
        // SAFETY: as above.
        node(s, |s, out| unsafe { s.driver.cuGraphAddEventRecordNode(out, s.graph, null(), 0, s.event) })?;
    }
    "cuGraphAddEventWaitNode", "cuGraphDestroyNode": |s| {
        // SAFETY: as above.
        node(s, |s, out| unsafe { s.driver.cuGraphAddEventWaitNode(out, s.graph, null(), 0, s.event) })?;
    }
    "cuGraphAddBatchMemOpNode", "cuGraphDestroyNode": |s| {
        // SAFETY: C structures for which all zeroes is a value.
        let mut b: CUDA_BATCH_MEM_OP_NODE_PARAMS = unsafe { zeroed() };
        // SAFETY: as above.
        let mut op: CUstreamBatchMemOpParams = unsafe { zeroed() };
        op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
        op.writeValue.address = s.memory;
        (b.ctx, b.count, b.paramArray) = (s.context, 1, &mut op);
        // SAFETY: as above.
        node(s, |s, out| unsafe { s.driver.cuGraphAddBatchMemOpNode(out, s.graph, null(), 0, &b) })?;
    }
    "cuGraphAddMemAllocNode", "cuGraphDestroy": |s| { with_graph(s, |s, graph| allocate_in(s, graph).map(drop))?; }
    "cuGraphAddMemFreeNode", "cuGraphDestroy": |s| {
        with_graph(s, |s, graph| {
            let (allocated, mut freed) = (allocate_in(s, graph)?, null_mut());
            ok!(s.cuGraphAddMemFreeNode(&mut freed, graph, &allocated.0, 1, allocated.1));
            Ok(())
        })?;
    }
    "cuGraphAddNode", "cuGraphDestroyNode": |s| {
        // SAFETY: a C structure for which all zeroes is a value.
        let mut p: CUgraphNodeParams = unsafe { zeroed() };
        p.type_ = CU_GRAPH_NODE_TYPE_EMPTY;
        // SAFETY: as above.
        node(s, |s, out| unsafe { s.driver.cuGraphAddNode(out, s.graph, null(), 0, &mut p) })?;
    }
    "cuGraphAddNode_v2", "cuGraphDestroyNode": |s| {
        // SAFETY: as above.
        let mut p: CUgraphNodeParams = unsafe { zeroed() };
        p.type_ = CU_GRAPH_NODE_TYPE_EMPTY;
        // SAFETY: as above.
        node(s, |s, out| unsafe { s.driver.cuGraphAddNode_v2(out, s.graph, null(), null(), 0, &mut p) })?;
    }
    "cuGraphAddNode_v2 that is refused", "nothing": |s| {
        // SAFETY: as above.
        let (mut p, mut out): (CUgraphNodeParams, _) = (unsafe { zeroed() }, null_mut());
        p.type_ = CU_GRAPH_NODE_TYPE_KERNEL;
        if made!(s.cuGraphAddNode_v2(&mut out, s.graph, null(), null(), 0, &mut p)) {
            return Err("a kernel node without a kernel was made".to_owned());
        }
    }
    "cuGraphConditionalHandleCreate in a graph", "cuGraphDestroy": |s| {
        with_graph(s, |s, graph| {
            let mut handle = 0;
            ok!(s.cuGraphConditionalHandleCreate(&mut handle, graph, s.context, 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
            Ok(())
        })?;
    }
    "cuGraphInstantiateWithFlags", "cuGraphExecDestroy": |s| {
        with_graph(s, |s, graph| {
            let mut exec = null_mut();
            ok!(s.cuGraphInstantiateWithFlags(&mut exec, graph, 0));
            use_up(s, exec)
        })?;
    }
    "cuGraphInstantiateWithParams", "cuGraphExecDestroy": |s| {
        with_graph(s, |s, graph| {
            // SAFETY: a C structure for which all zeroes is a value.
            let (mut exec, mut params) = (null_mut(), unsafe { zeroed() });
            ok!(s.cuGraphInstantiateWithParams(&mut exec, graph, &mut params));
            use_up(s, exec)
        })?;
    }
    "cuGraphInstantiate", "cuGraphExecDestroy": |s| {
        with_graph(s, |s, graph| {
            let mut exec = null_mut();
            ok!(s.cuGraphInstantiate(&mut exec, graph, null_mut(), null_mut(), 0));
            use_up(s, exec)
        })?;
    }
    "cuGraphInstantiate_v2", "cuGraphExecDestroy": |s| {
        with_graph(s, |s, graph| {
            let mut exec = null_mut();
            ok!(s.cuGraphInstantiate_v2(&mut exec, graph, null_mut(), null_mut(), 0));
            use_up(s, exec)
        })?;
    }
    "cuStreamEndCapture", "cuGraphDestroy": |s| {
        let (mut graph, mut exec) = (null_mut(), null_mut());
        ok!(s.cuStreamBeginCapture_v2(s.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        ok!(s.cuLaunchKernel(s.function, 1, 1, 1, 1, 1, 1, 0, s.stream, null_mut(), null_mut()));
        ok!(s.cuStreamEndCapture(s.stream, &mut graph));
        ok!(s.cuGraphInstantiateWithFlags(&mut exec, graph, 0));
        use_up(s, exec)?;
        ok!(s.cuGraphDestroy(graph));
    }
    "cuUserObjectCreate", "cuUserObjectRelease": |s| {
        let mut object = null_mut();
        ok!(s.cuUserObjectCreate(&mut object, null_mut(), Some(ignore), 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
        ok!(s.cuUserObjectRelease(object, 1));
    }
    "cuUserObjectRetain", "cuUserObjectRelease": |s| {
        ok!(s.cuUserObjectRetain(s.object, 1));
        ok!(s.cuUserObjectRelease(s.object, 1));
    }
    "cuGraphRetainUserObject", "cuGraphReleaseUserObject": |s| {
        ok!(s.cuGraphRetainUserObject(s.graph, s.object, 1, 0));
        ok!(s.cuGraphReleaseUserObject(s.graph, s.object, 1));
    }
    "cuLogsRegisterCallback", "cuLogsUnregisterCallback": |s| {
        let mut callback = null_mut();
        // Drivers before CUDA 13 have none.
        if made!(s.cuLogsRegisterCallback(Some(ignore_log), null_mut(), &mut callback)) {
            ok!(s.cuLogsUnregisterCallback(callback));
        }
    }
    "cuLaunchHostFunc and its end", "running": |s| {
        ok!(s.cuLaunchHostFunc(s.stream, Some(ignore), null_mut()));
        ok!(s.cuStreamSynchronize(s.stream));
    }
    "cuDevResourceGenerateDesc", "nothing": |s| {
        let mut descriptor = null_mut();
        ok!(s.cuDevResourceGenerateDesc(&mut descriptor, &mut s.resource, 1));
    }
    "cuGreenCtxCreate", "cuGreenCtxDestroy": |s| {
        let (mut green, mut context) = (null_mut(), null_mut());
        ok!(s.cuGreenCtxCreate(&mut green, s.descriptor, 0, CU_GREEN_CTX_DEFAULT_STREAM));
        ok!(s.cuCtxFromGreenCtx(&mut context, green));
        ok!(s.cuGreenCtxDestroy(green));
    }
    "cuGreenCtxStreamCreate", "cuStreamDestroy_v2, cuGreenCtxDestroy": |s| {
        let (mut green, mut stream) = (null_mut(), null_mut());
        ok!(s.cuGreenCtxCreate(&mut green, s.descriptor, 0, CU_GREEN_CTX_DEFAULT_STREAM));
        ok!(s.cuGreenCtxStreamCreate(&mut stream, green, CU_STREAM_NON_BLOCKING, 0));
        ok!(s.cuLaunchKernel(s.function, 1, 1, 1, 1, 1, 1, 0, stream, null_mut(), null_mut()));
        ok!(s.cuStreamSynchronize(stream));
        ok!(s.cuStreamDestroy_v2(stream));
        ok!(s.cuGreenCtxDestroy(green));
    }
    "cuCtxCreate_v2", "cuCtxDestroy_v2": |s| {
        let mut context = null_mut();
        ok!(s.cuCtxCreate_v2(&mut context, 0, 0));
        use_up_context(s, context)?;
    }
    "cuCtxCreate_v2 with all that it may have", "cuCtxDestroy_v2": |s| {
        let (mut context, mut stream, mut event, mut module) = (null_mut(), null_mut(), null_mut(), null_mut());
        let (mut function, mut a, mut memory, mut texture) = (null_mut(), null_mut(), 0, 0);
        ok!(s.cuCtxCreate_v2(&mut context, 0, 0));
        ok!(s.cuStreamCreate(&mut stream, CU_STREAM_DEFAULT));
        ok!(s.cuEventCreate(&mut event, 0));
        ok!(s.cuModuleLoadData(&mut module, PTX.as_ptr().cast()));
        ok!(s.cuModuleGetFunction(&mut function, module, c"nothing".as_ptr()));
        ok!(s.cuArray3DCreate_v2(&mut a, &array()));
        // SAFETY: a C structure for which all zeroes is a value.
        let sampler = unsafe { zeroed() };
        ok!(s.cuTexObjectCreate(&mut texture, &resource(a), &sampler, null()));
        ok!(s.cuMemAlloc_v2(&mut memory, BYTES));
        ok!(s.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, null_mut(), null_mut()));
        ok!(s.cuEventRecord(event, stream));
        use_up_context(s, context)?;
    }
    "cuCtxCreate", "cuCtxDestroy": |s| {
        let mut context = null_mut();
        ok!(s.cuCtxCreate(&mut context, 0, 0));
        ok!(s.cuCtxDestroy(context));
        ok!(s.cuCtxSetCurrent(s.context));
    }
    "cuCtxCreate_v3", "cuCtxDestroy_v2": |s| {
        let mut context = null_mut();
        ok!(s.cuCtxCreate_v3(&mut context, null_mut(), 0, 0, 0));
        use_up_context(s, context)?;
    }
    "cuCtxCreate_v4", "cuCtxDestroy_v2": |s| {
        let mut context = null_mut();
        ok!(s.cuCtxCreate_v4(&mut context, null_mut(), 0, 0));
        use_up_context(s, context)?;
    }
    "cuCtxAttach", "cuCtxDetach": |s| {
        let (mut context, mut again) = (null_mut(), null_mut());
        ok!(s.cuCtxCreate_v2(&mut context, 0, 0));
        ok!(s.cuCtxAttach(&mut again, 0));
        ok!(s.cuCtxDetach(context));
        ok!(s.cuCtxDetach(context));
        ok!(s.cuCtxSetCurrent(s.context));
    }
    "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease": |s| {
        let mut context = null_mut();
        ok!(s.cuDevicePrimaryCtxRetain(&mut context, 0));
        ok!(s.cuDevicePrimaryCtxRelease_v2(0));
        ok!(s.cuDevicePrimaryCtxRetain(&mut context, 0));
        ok!(s.cuDevicePrimaryCtxRelease(0));
    }
    "cuDevicePrimaryCtxRetain and a reset", "cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset": |s| {
        let (mut stream, mut event, mut module, mut memory) = (null_mut(), null_mut(), null_mut(), 0);
        ok!(s.cuStreamCreate(&mut stream, CU_STREAM_DEFAULT));
        ok!(s.cuEventCreate(&mut event, 0));
        ok!(s.cuModuleLoadData(&mut module, PTX.as_ptr().cast()));
        ok!(s.cuMemAlloc_v2(&mut memory, BYTES));
        ok!(s.cuLaunchKernel(s.function, 1, 1, 1, 1, 1, 1, 0, stream, null_mut(), null_mut()));
        ok!(s.cuStreamSynchronize(stream));
        ok!(s.cuDevicePrimaryCtxReset_v2(0));
        ok!(s.cuDevicePrimaryCtxReset(0));
        // All that the scene had in the context is gone.
        made!(s.cuDevicePrimaryCtxRelease_v2(0));
        let (graph, object) = (s.graph, s.object);
        ok!(s.cuGraphDestroy(graph));
        ok!(s.cuUserObjectRelease(object, 1));
        ok!(s.cuMemRelease(s.allocation));
        ok!(s.cuMemAddressFree(s.range, UNIT));
        ok!(s.cuMemPoolDestroy(s.pool));
        s.prepare()?;
    }
}

/// An allocation of a graph: its node and its address.
fn allocate_in(s: &Scene, graph: CUgraph) -> Result<(CUgraphNode, CUdeviceptr), String> {
    // SAFETY: a C structure for which all zeroes is a value.
    let (mut node, mut p): (_, CUDA_MEM_ALLOC_NODE_PARAMS) = (null_mut(), unsafe { zeroed() });
    (p.poolProps, p.bytesize) = (pool(), BYTES);
    ok!(s.cuGraphAddMemAllocNode(&mut node, graph, null(), 0, &mut p));
    Ok((node, p.dptr))
}
