//! Files that several programs map, registered: the programs' processors and devices see one another's writes.
//!
//! UNSAFETY: makes files, maps and unmaps them with libc, and forks.

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

use orion_cuda::sys::*;

use super::copy_batch::run_words;
use crate::driver::Cuda;
use crate::fact::{Verdict, answers, facts, holds, ok, same};
use crate::lab::{Get, as_void, comes_to_hold, read, write, zeroed};

facts! { shared_file:
    Context [
        what_a_kernel_writes_is_seen_in_another_mapping,
        two_mappings_of_one_file_are_registered_each_by_itself,
        copies_reach_it,
        rows_are_copied_from_it_and_to_it,
        a_batch_of_copies_reaches_it,
        it_is_filled,
        a_graph_copies_and_fills_it,
        a_stream_waits_and_writes_there,
        parts_of_it_are_registered_each_by_itself,
        a_copy_beyond_what_is_registered_is_invalid_value,
        it_may_end_inside_a_page,
        its_pages_are_there_once_it_is_registered,
        it_may_have_lost_its_name,
        registering_it_twice_is_already_registered,
        it_can_be_registered_again,
        it_is_host_memory_that_the_device_has_an_address_of,
        a_running_kernel_and_another_process_see_each_other.alone().not_in_a_crowd("it forks"),
        the_devices_of_two_programs_see_each_other.alone().not_in_a_crowd("one other program answers"),
    ]
}

const PAGE: usize = 4096;
/// As NCCL has it.
const FLAGS: u32 = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;

/// Bytes of a file, mapped.
struct Mapped {
    address: *mut c_void,
    bytes: usize,
}

impl Mapped {
    fn new(file: &File, offset: usize, bytes: usize) -> Mapped {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping, unmapped by Drop.
        let address = unsafe { libc::mmap(null_mut(), bytes, access, flags, file.as_raw_fd(), offset as i64) };
        assert_ne!(address, libc::MAP_FAILED, "no mapping of {bytes} bytes");
        Mapped { address, bytes }
    }

    fn at(&self, offset: usize) -> *mut c_void {
        self.address.wrapping_byte_add(offset)
    }

    fn device(&self, offset: usize) -> CUdeviceptr {
        self.at(offset).addr() as u64
    }

    fn register(&self, cu: &Cuda) -> Verdict {
        ok!(cu.cuMemHostRegister_v2(self.address, self.bytes, FLAGS));
        Ok(())
    }

    fn unregister(&self, cu: &Cuda) -> Verdict {
        ok!(cu.cuMemHostUnregister(self.address));
        Ok(())
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, which nothing refers to any more.
        unsafe { libc::munmap(self.address, self.bytes) };
    }
}

/// In memory, without a name.
fn nameless(bytes: usize) -> File {
    // By its number, as older C libraries have no function for it.
    // SAFETY: a new descriptor, which the file owns.
    let file = unsafe {
        let fd = libc::syscall(libc::SYS_memfd_create, c"orion-facts".as_ptr(), libc::MFD_CLOEXEC);
        assert!(fd >= 0, "memfd_create: {}", std::io::Error::last_os_error());
        File::from_raw_fd(fd as i32)
    };
    file.set_len(bytes as u64).expect("room in memory");
    file
}

/// In memory, with a name as long as this lives.
struct Named {
    path: PathBuf,
    file: File,
}

impl Named {
    fn new(bytes: usize) -> Named {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = PathBuf::from(format!("/dev/shm/orion-facts-{}-{count}", std::process::id()));
        let file = std::fs::OpenOptions::new().read(true).write(true).create_new(true).open(&path).expect("a new file");
        file.set_len(bytes as u64).expect("room in memory");
        Named { path, file }
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// One page of a file, registered, and the same page at another address.
fn registered_page(cu: &Cuda) -> Get<(Mapped, Mapped)> {
    let file = nameless(PAGE);
    let (here, there) = (Mapped::new(&file, 0, PAGE), Mapped::new(&file, 0, PAGE));
    here.register(cu)?;
    Ok((here, there))
}

/// Whether the device has registered pages of a file that has no name, and of which this process has no descriptor any
/// more. It has them on a GPU's own driver. Orion has to open the file for that, which only a capability allows, and
/// refuses it without, in words; copies of such memory go on.
fn is_reached(cu: &Cuda, pages: &Mapped) -> Get<bool> {
    let mut device = 0;
    if !cu.is_orions() || may_open_what_is_mapped() {
        ok!(cu.cuMemHostGetDevicePointer_v2(&mut device, pages.at(0), 0));
        return Ok(true);
    }
    // What was said before of the same address is not said again.
    static TOLD: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    let (code, said) = said_by(|| cu.cuMemHostGetDevicePointer_v2(&mut device, pages.at(0), 0));
    answers!(CUDA_ERROR_NOT_SUPPORTED, code);
    if told.insert(pages.address.addr()) {
        holds!(said.contains("nor has a descriptor of it"), "it was not said why, but {said:?}");
    }
    Ok(false)
}

/// What is written to standard error meanwhile.
fn said_by<T>(call: impl FnOnce() -> T) -> (T, String) {
    let file = nameless(0);
    // SAFETY: descriptors that are open; the one that was standard error is so again.
    let (answer, before) = unsafe {
        let before = libc::dup(2);
        assert!(before >= 0 && libc::dup2(file.as_raw_fd(), 2) == 2, "standard error can be led elsewhere");
        let answer = call();
        libc::dup2(before, 2);
        (answer, before)
    };
    // SAFETY: it was made above, and is nobody else's.
    drop(unsafe { File::from_raw_fd(before) });
    let mut bytes = vec![0; file.metadata().map_or(0, |file| file.len()) as usize];
    let read = file.read_exact_at(&mut bytes, 0);
    (answer, read.map_or_else(|e| e.to_string(), |()| String::from_utf8_lossy(&bytes).into_owned()))
}

/// `CAP_CHECKPOINT_RESTORE`, in the words of what it is good for here.
fn may_open_what_is_mapped() -> bool {
    let mapped = std::fs::read_dir("/proc/self/map_files").into_iter().flatten().flatten();
    mapped.into_iter().any(|file| std::fs::metadata(file.path()).is_ok())
}

fn what_a_kernel_writes_is_seen_in_another_mapping(cu: &'static Cuda) -> Verdict {
    let (here, there) = registered_page(cu)?;
    let (module, increment) = cu.kernel("increment")?;
    write(there.at(64), 41u32);
    let mut device = 0;
    ok!(cu.cuMemHostGetDevicePointer_v2(&mut device, here.at(0), 0));
    ok!(cu.launch_on(increment, device + 64, null_mut()));
    ok!(cu.cuCtxSynchronize());
    same!(read::<u32>(there.at(64)), 42);
    here.unregister(cu)?;
    same!(read::<u32>(here.at(64)), 42);
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

fn two_mappings_of_one_file_are_registered_each_by_itself(cu: &'static Cuda) -> Verdict {
    let (here, there) = registered_page(cu)?;
    there.register(cu)?;
    let is_reached = is_reached(cu, &there)?;
    let (module, increment) = cu.kernel("increment")?;
    for at in [here.device(0), if is_reached { there.device(0) } else { here.device(0) }, here.device(0)] {
        ok!(cu.launch_on(increment, at, null_mut()));
    }
    ok!(cu.cuCtxSynchronize());
    same!(read::<u32>(there.at(0)), 3);
    here.unregister(cu)?;
    if is_reached {
        ok!(cu.launch_on(increment, there.device(0), null_mut()));
        ok!(cu.cuCtxSynchronize());
        same!(read::<u32>(here.at(0)), 4);
    }
    there.unregister(cu)?;
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

fn copies_reach_it(cu: &'static Cuda) -> Verdict {
    const WORDS: usize = 100_000;
    let file = nameless((WORDS * 4).next_multiple_of(PAGE));
    let (here, there) = (Mapped::new(&file, 0, WORDS * 4), Mapped::new(&file, 0, WORDS * 4));
    here.register(cu)?;
    let (stream, device) = (cu.stream()?, cu.alloc(WORDS * 4)?);
    for bytes in [4, 8, 40, WORDS * 4] {
        let last = bytes - 4;
        for round in 1..4u32 {
            // The other mapping's writer and reader, in turn with the device.
            write(there.at(last), round);
            match round {
                1 => ok!(cu.cuMemcpyHtoD_v2(device, here.at(0), bytes)),
                2 => ok!(cu.cuMemcpyHtoDAsync_v2(device, here.at(0), bytes, stream)),
                _ => ok!(cu.cuMemcpyAsync(device, here.device(0), bytes, stream)),
            }
            ok!(cu.cuStreamSynchronize(stream));
            same!(cu.word(device + last as u64)?, round);
            ok!(cu.cuMemsetD32_v2(device + last as u64, round + 10, 1));
            ok!(cu.cuCtxSynchronize());
            match round {
                1 => ok!(cu.cuMemcpyDtoH_v2(here.at(0), device, bytes)),
                2 => ok!(cu.cuMemcpyDtoHAsync_v2(here.at(0), device, bytes, stream)),
                _ => ok!(cu.cuMemcpyAsync(here.device(0), device, bytes, stream)),
            }
            ok!(cu.cuStreamSynchronize(stream));
            same!(read::<u32>(there.at(last)), round + 10);
        }
    }
    here.unregister(cu)?;
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(device)
}

fn rows_are_copied_from_it_and_to_it(cu: &'static Cuda) -> Verdict {
    let (here, there) = registered_page(cu)?;
    let (stream, device) = (cu.stream()?, cu.alloc(64)?);
    for row in 0..4u32 {
        write(there.at(256 * row as usize), [row, 7]);
    }
    let mut copy: CUDA_MEMCPY2D = zeroed();
    (copy.srcMemoryType, copy.srcHost, copy.srcPitch) = (CU_MEMORYTYPE_HOST, here.at(0), 256);
    (copy.dstMemoryType, copy.dstDevice, copy.dstPitch) = (CU_MEMORYTYPE_DEVICE, device, 8);
    (copy.WidthInBytes, copy.Height) = (8, 4);
    ok!(cu.cuMemcpy2DAsync_v2(&copy, stream));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu.download::<u32>(device, 8)?, [0, 7, 1, 7, 2, 7, 3, 7]);
    let mut back: CUDA_MEMCPY2D = zeroed();
    (back.srcMemoryType, back.srcDevice, back.srcPitch) = (CU_MEMORYTYPE_DEVICE, device, 8);
    (back.dstMemoryType, back.dstHost, back.dstPitch) = (CU_MEMORYTYPE_HOST, here.at(2048), 128);
    (back.WidthInBytes, back.Height) = (8, 4);
    ok!(cu.cuMemcpy2D_v2(&back));
    for row in 0..4u32 {
        same!(read::<[u32; 4]>(there.at(2048 + 128 * row as usize)), [row, 7, 0, 0]);
    }
    here.unregister(cu)?;
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(device)
}

fn a_batch_of_copies_reaches_it(cu: &'static Cuda) -> Verdict {
    let (here, there) = registered_page(cu)?;
    let (stream, data) = (cu.stream()?, cu.words(&[5, 6, 0, 0])?);
    write(there.at(0), [8u32, 9]);
    let copies = [
        (here.device(64), data, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM),
        (here.device(68), data + 4, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM),
        (data + 8, here.device(0), CU_MEMCPY_SRC_ACCESS_ORDER_STREAM),
        (data + 12, here.device(4), CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL),
    ];
    ok!(run_words(cu, stream, &copies));
    ok!(cu.cuStreamSynchronize(stream));
    same!(read::<[u32; 2]>(there.at(64)), [5, 6]);
    same!(cu.download::<u32>(data, 4)?, [5, 6, 8, 9]);
    here.unregister(cu)?;
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(data)
}

fn it_is_filled(cu: &'static Cuda) -> Verdict {
    let (here, there) = registered_page(cu)?;
    ok!(cu.cuMemsetD32Async(here.device(32), 77, 3, null_mut()));
    ok!(cu.cuMemsetD8_v2(here.device(48), 5, 2));
    ok!(cu.cuCtxSynchronize());
    same!(read::<[u32; 6]>(there.at(28)), [0, 77, 77, 77, 0, 0x0505]);
    here.unregister(cu)
}

fn a_graph_copies_and_fills_it(cu: &'static Cuda) -> Verdict {
    let (here, there) = registered_page(cu)?;
    let (stream, device) = (cu.stream()?, cu.alloc(4)?);
    let (mut graph, mut exec, mut node) = (null_mut(), null_mut(), null_mut());
    ok!(cu.cuGraphCreate(&mut graph, 0));
    let context = cu.context()?;
    let mut copy: CUDA_MEMCPY3D = zeroed();
    (copy.WidthInBytes, copy.Height, copy.Depth) = (4, 1, 1);
    let (mut to_device, mut to_host) = (copy, copy);
    (to_device.srcMemoryType, to_device.srcHost) = (CU_MEMORYTYPE_HOST, here.at(0));
    (to_device.dstMemoryType, to_device.dstDevice) = (CU_MEMORYTYPE_DEVICE, device);
    (to_host.srcMemoryType, to_host.srcDevice) = (CU_MEMORYTYPE_DEVICE, device);
    (to_host.dstMemoryType, to_host.dstHost) = (CU_MEMORYTYPE_HOST, here.at(64));
    ok!(cu.cuGraphAddMemcpyNode(&mut node, graph, null_mut(), 0, &to_device, context));
    let first = node;
    ok!(cu.cuGraphAddMemcpyNode(&mut node, graph, &first, 1, &to_host, context));
    let at = here.device(128);
    let fill = CUDA_MEMSET_NODE_PARAMS { dst: at, pitch: 0, value: 9, elementSize: 4, width: 1, height: 1 };
    ok!(cu.cuGraphAddMemsetNode(&mut node, graph, null_mut(), 0, &fill, context));
    ok!(cu.cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    for round in 1..4u32 {
        write(there.at(0), round);
        write(there.at(128), 0u32);
        ok!(cu.cuGraphLaunch(exec, stream));
        ok!(cu.cuStreamSynchronize(stream));
        same!((read::<u32>(there.at(64)), read::<u32>(there.at(128))), (round, 9));
    }
    ok!(cu.cuGraphExecDestroy(exec));
    ok!(cu.cuGraphDestroy(graph));
    here.unregister(cu)?;
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(device)
}

fn a_stream_waits_and_writes_there(cu: &'static Cuda) -> Verdict {
    let (here, there) = registered_page(cu)?;
    let stream = cu.stream()?;
    ok!(cu.cuStreamWaitValue32_v2(stream, here.device(0), 1, CU_STREAM_WAIT_VALUE_EQ));
    ok!(cu.cuStreamWriteValue32_v2(stream, here.device(64), 2, 0));
    holds!(read::<u32>(there.at(64)) == 0, "the stream did not wait");
    write(there.at(0), 1u32);
    holds!(comes_to_hold(there.at(64), 2u32), "the stream went on waiting");
    ok!(cu.cuStreamSynchronize(stream));
    here.unregister(cu)?;
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}

fn parts_of_it_are_registered_each_by_itself(cu: &'static Cuda) -> Verdict {
    let file = nameless(4 * PAGE);
    let (here, there) = (Mapped::new(&file, PAGE, 3 * PAGE), Mapped::new(&file, 0, 4 * PAGE));
    let (module, increment) = cu.kernel("increment")?;
    for page in [0, 2, 1] {
        ok!(cu.cuMemHostRegister_v2(here.at(page * PAGE), PAGE, FLAGS));
        write(there.at((page + 1) * PAGE), 10 * page as u32);
        ok!(cu.launch_on(increment, here.device(page * PAGE), null_mut()));
    }
    ok!(cu.cuCtxSynchronize());
    for page in 0..3 {
        same!(read::<u32>(there.at((page + 1) * PAGE)), 10 * page as u32 + 1);
        ok!(cu.cuMemHostUnregister(here.at(page * PAGE)));
    }
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

fn a_copy_beyond_what_is_registered_is_invalid_value(cu: &'static Cuda) -> Verdict {
    let (file, device) = (nameless(2 * PAGE), cu.alloc(2 * PAGE)?);
    let here = Mapped::new(&file, 0, 2 * PAGE);
    ok!(cu.cuMemHostRegister_v2(here.address, PAGE, FLAGS));
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyHtoD_v2(device, here.address, 2 * PAGE));
    ok!(cu.cuMemcpyHtoD_v2(device, here.address, PAGE));
    here.unregister(cu)?;
    ok!(cu.cuMemcpyHtoD_v2(device, here.address, 2 * PAGE));
    cu.free(device)
}

/// NCCL removes it when all have it.
fn it_may_end_inside_a_page(cu: &'static Cuda) -> Verdict {
    // NCCL's between two GPUs have 9,637,892 bytes.
    let bytes = PAGE + 132;
    let file = nameless(bytes);
    let (here, there) = (Mapped::new(&file, 0, bytes), Mapped::new(&file, 0, bytes));
    here.register(cu)?;
    let (module, increment) = cu.kernel("increment")?;
    let last = bytes - 4;
    write(there.at(last), 41u32);
    ok!(cu.launch_on(increment, here.device(last), null_mut()));
    ok!(cu.cuCtxSynchronize());
    same!(read::<u32>(there.at(last)), 42);
    here.unregister(cu)?;
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

/// As they have to be for a device, which cannot have the kernel make them. Whoever registers them has made them, and
/// they count as his where programs are held to an amount of memory.
fn its_pages_are_there_once_it_is_registered(cu: &'static Cuda) -> Verdict {
    const PAGES: usize = 3000;
    let file = nameless(PAGES * PAGE);
    let here = Mapped::new(&file, PAGE, (PAGES - 1) * PAGE);
    let pages = || file.metadata().map_or(0, |file| file.blocks() as usize * 512 / PAGE);
    same!(pages(), 0);
    here.register(cu)?;
    holds!(pages() >= PAGES - 1, "of {} pages there are {}", PAGES - 1, pages());
    here.unregister(cu)
}

fn it_may_have_lost_its_name(cu: &'static Cuda) -> Verdict {
    let named = Named::new(PAGE);
    let (here, there) = (Mapped::new(&named.file, 0, PAGE), Mapped::new(&named.file, 0, PAGE));
    let (module, increment) = cu.kernel("increment")?;
    here.register(cu)?;
    std::fs::remove_file(&named.path).expect("removing");
    ok!(cu.launch_on(increment, here.device(0), null_mut()));
    ok!(cu.cuCtxSynchronize());
    here.unregister(cu)?;
    there.register(cu)?;
    ok!(cu.launch_on(increment, there.device(0), null_mut()));
    ok!(cu.cuCtxSynchronize());
    there.unregister(cu)?;
    same!(read::<u32>(here.at(0)), 2);
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

fn registering_it_twice_is_already_registered(cu: &'static Cuda) -> Verdict {
    let (here, _there) = registered_page(cu)?;
    answers!(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cu.cuMemHostRegister_v2(here.address, PAGE, FLAGS));
    here.unregister(cu)?;
    answers!(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cu.cuMemHostUnregister(here.address));
    Ok(())
}

fn it_can_be_registered_again(cu: &'static Cuda) -> Verdict {
    let (here, there) = registered_page(cu)?;
    let (module, increment) = cu.kernel("increment")?;
    for round in 0..3u32 {
        same!(read::<u32>(there.at(0)), round);
        ok!(cu.launch_on(increment, here.device(0), null_mut()));
        ok!(cu.cuCtxSynchronize());
        here.unregister(cu)?;
        here.register(cu)?;
        if !is_reached(cu, &here)? {
            break;
        }
    }
    here.unregister(cu)?;
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

fn it_is_host_memory_that_the_device_has_an_address_of(cu: &'static Cuda) -> Verdict {
    let (here, _there) = registered_page(cu)?;
    let (mut kind, mut device) = (0u32, 0u64);
    let ask = |out: *mut c_void, what| cu.cuPointerGetAttribute(out, what, here.device(8));
    ok!(ask(as_void(&mut kind), CU_POINTER_ATTRIBUTE_MEMORY_TYPE));
    ok!(ask(as_void(&mut device), CU_POINTER_ATTRIBUTE_DEVICE_POINTER));
    same!((kind, device), (CU_MEMORYTYPE_HOST, here.device(8)));
    here.unregister(cu)
}

/// Rounds of the kernel `converse`: it writes four words, then at 64 which round it is, and waits at 68 for an answer.
const ROUNDS: u32 = 20;

/// Runs the kernel, and `other` meanwhile.
fn conversation(cu: &Cuda, here: &Mapped, other: impl FnOnce() -> Verdict) -> Verdict {
    let (module, converse) = cu.kernel("converse")?;
    let (stream, mut device, mut rounds) = (cu.stream()?, here.device(0), ROUNDS);
    ok!(cu.launch(converse, 1, 1, stream, &mut [as_void(&mut device), as_void(&mut rounds)]));
    other()?;
    ok!(cu.cuStreamSynchronize(stream));
    same!(read::<u32>(here.at(128)), ROUNDS);
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuModuleUnload(module));
    Ok(())
}

fn a_running_kernel_and_another_process_see_each_other(cu: &'static Cuda) -> Verdict {
    let (here, there) = registered_page(cu)?;
    // SAFETY: the child reads and writes the mapping, and ends by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let answered = (1..=ROUNDS).all(|round| {
            let is_right =
                comes_to_hold(there.at(64), round) && read::<[u32; 4]>(there.at(0)) == [round * 0x0101_0101; 4];
            write(there.at(68), round + 100);
            is_right
        });
        // SAFETY: ends the child at once, without the exit handlers it inherited.
        unsafe { libc::_exit(i32::from(!answered)) };
    }
    holds!(child > 0, "fork: {}", std::io::Error::last_os_error());
    conversation(cu, &here, || {
        let mut status = 0;
        // SAFETY: waits for the child just made, with a status word of our own.
        let waited = unsafe { libc::waitpid(child, &mut status, 0) };
        holds!(waited == child && status == 0, "the other process ended with status {status:#x}");
        Ok(())
    })?;
    here.unregister(cu)
}

/// Names the file to the other program, which is this fact, too.
const OTHER: &str = "ORION_FACTS_SHARED_FILE";

fn the_devices_of_two_programs_see_each_other(cu: &'static Cuda) -> Verdict {
    if let Some(path) = std::env::var_os(OTHER) {
        return answer_by_a_device(cu, Path::new(&path));
    }
    let named = Named::new(PAGE);
    let here = Mapped::new(&named.file, 0, PAGE);
    here.register(cu)?;
    let mut command = std::process::Command::new(std::env::current_exe().expect("this program has a path"));
    let name = "shared_file::the_devices_of_two_programs_see_each_other";
    command.args(["--only", name, "--quiet"]).env(OTHER, &named.path);
    if let Some(lib) = std::env::args().skip_while(|a| a != "--lib").nth(1) {
        command.args(["--lib", &lib]);
    }
    let other = command.stdout(std::process::Stdio::piped()).spawn();
    let other = other.map_err(|e| format!("cannot start another program: {e}"))?;
    // It says so when it is ready, as the kernel's patience has an end.
    holds!(comes_to_hold(here.at(256), 1u32), "the other program did not begin");
    conversation(cu, &here, || {
        let output = other.wait_with_output().map_err(|e| format!("waiting for the other program: {e}"))?;
        same!(String::from_utf8_lossy(&output.stdout).trim(), "1 passed, 0 failed");
        Ok(())
    })?;
    here.unregister(cu)
}

/// This one's stream waits for the other's kernel, copies what that has written, and answers.
fn answer_by_a_device(cu: &Cuda, path: &Path) -> Verdict {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path);
    let here = Mapped::new(&file.map_err(|e| format!("opening {}: {e}", path.display()))?, 0, PAGE);
    here.register(cu)?;
    let (stream, seen) = (cu.stream()?, cu.alloc(16 * ROUNDS as usize)?);
    ok!(cu.cuStreamWriteValue32_v2(stream, here.device(256), 1, 0));
    for round in 1..=ROUNDS {
        ok!(cu.cuStreamWaitValue32_v2(stream, here.device(64), round, CU_STREAM_WAIT_VALUE_EQ));
        ok!(cu.cuMemcpyHtoDAsync_v2(seen + 16 * u64::from(round - 1), here.at(0), 16, stream));
        ok!(cu.cuStreamWriteValue32_v2(stream, here.device(68), round + 100, 0));
    }
    ok!(cu.cuStreamSynchronize(stream));
    let expected: Vec<u32> = (1..=ROUNDS).flat_map(|round| [round * 0x0101_0101; 4]).collect();
    same!(cu.download::<u32>(seen, 4 * ROUNDS as usize)?, expected);
    here.unregister(cu)?;
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(seen)
}
