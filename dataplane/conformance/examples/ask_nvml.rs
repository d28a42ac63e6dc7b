//! Asks the `libnvidia-ml.so.1` that the loader finds about the devices, before and after CUDA is used, and compares.
//!
//!   ask_nvml [HEADER]    every function that NVML's header declares has to be there

use std::ffi::{CString, c_char, c_int, c_uint, c_void};

type Device = *mut c_void;

#[repr(C)]
#[derive(Default, Debug)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

#[repr(C)]
struct Pci {
    legacy: [u8; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    ids: [c_uint; 2],
    bus_id: [u8; 32],
}

fn open(name: &str) -> *mut c_void {
    let name = CString::new(name).expect("no zero in it");
    // SAFETY: a C string; libraries that programs load and keep.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
    assert!(!library.is_null(), "there is no {name:?}");
    library
}

fn symbol(library: *mut c_void, name: &str) -> *mut c_void {
    let name = CString::new(name).expect("no zero in it");
    // SAFETY: a library that stays open, and a C string.
    unsafe { libc::dlsym(library, name.as_ptr()) }
}

/// Calls a function of a library with arguments that are words or pointers.
macro_rules! call {
    ($library:expr, $name:ident $(, $argument:expr => $type:ty)*) => {{
        let function = symbol($library, stringify!($name));
        assert!(!function.is_null(), "{} is missing", stringify!($name));
        // SAFETY: the types are those of its documentation, and pointers are to live locals.
        unsafe {
            let function: unsafe extern "C" fn($($type),*) -> c_int = std::mem::transmute(function);
            function($($argument),*)
        }
    }};
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).expect("it ends with a zero");
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn main() {
    let (nvml, cuda) = (open("libnvidia-ml.so.1"), open("libcuda.so.1"));
    if let Some(header) = std::env::args().nth(1) {
        all_there(nvml, &std::fs::read_to_string(header).expect("a header"));
    }
    let mut count: c_uint = 0;
    // Nothing is answered before the library was initialized.
    assert_eq!(call!(nvml, nvmlDeviceGetCount_v2, &mut count => *mut c_uint), 1);
    assert_eq!(call!(nvml, nvmlShutdown), 1);
    assert_eq!(call!(nvml, nvmlInit_v2), 0);
    assert_eq!(call!(nvml, nvmlDeviceGetCount_v2, &mut count => *mut c_uint), 0);
    println!("{count} devices");

    // A process that asked NVML alone may still fork and use CUDA in its child, as with NVIDIA's.
    // SAFETY: the child calls nothing that another thread might hold, for there is none.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let result = call!(cuda, cuInit, 0 => c_uint);
        // SAFETY: ends the child alone.
        unsafe { libc::_exit(result) };
    }
    let mut status = 0;
    // SAFETY: our own child, and a local.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!((libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (true, 0), "cuInit of a child");

    assert_eq!(call!(cuda, cuInit, 0 => c_uint), 0);
    let mut seen: c_int = 0;
    assert_eq!(call!(cuda, cuDeviceGetCount, &mut seen => *mut c_int), 0);
    assert_eq!(seen as c_uint, count, "devices that CUDA sees");
    for index in 0..count {
        compare(nvml, cuda, index);
    }

    let mut clock: c_uint = 0;
    let mut device: Device = std::ptr::null_mut();
    assert_eq!(call!(nvml, nvmlDeviceGetHandleByIndex_v2, 0 => c_uint, &mut device => *mut Device), 0);
    assert_eq!(call!(nvml, nvmlDeviceGetHandleByIndex_v2, count => c_uint, &mut device => *mut Device), 2);
    assert_eq!(call!(nvml, nvmlDeviceGetClockInfo, device => Device, 0 => c_uint, &mut clock => *mut c_uint), 3);
    // Legion's Realm (Legate, cuNumeric) ends where it hears nothing of the link. The software GPU has one of PCIe 5.
    let mut said = 0;
    macro_rules! link {
        ($($name:ident = $value:literal)*) => {$(
            assert_eq!(call!(nvml, $name, device => Device, &mut said => *mut c_uint), 0);
            assert_eq!(said, $value, stringify!($name));
        )*};
    }
    link! {
        nvmlDeviceGetMaxPcieLinkGeneration = 5
        nvmlDeviceGetGpuMaxPcieLinkGeneration = 5
        nvmlDeviceGetMaxPcieLinkWidth = 16
        nvmlDeviceGetCurrPcieLinkGeneration = 5
        nvmlDeviceGetCurrPcieLinkWidth = 16
        nvmlDeviceGetPcieLinkMaxSpeed = 5
        nvmlDeviceGetPcieSpeed = 32_000
    }
    near_all(nvml, device, count);
    // NVIDIA's own Python takes a system whose driver has no branch for one without NVML.
    let mut branch = [0u8; 84];
    assert_eq!(call!(nvml, nvmlSystemGetDriverBranch, branch.as_mut_ptr() => *mut u8, 80 => c_uint), 25);
    branch[..4].copy_from_slice(&(84u32 | 1 << 24).to_ne_bytes());
    assert_eq!(call!(nvml, nvmlSystemGetDriverBranch, branch.as_mut_ptr() => *mut u8, 4 => c_uint), 7);
    assert_eq!(call!(nvml, nvmlSystemGetDriverBranch, branch.as_mut_ptr() => *mut u8, 80 => c_uint), 0);
    assert!(text(&branch[4..]).starts_with('r'), "{}", text(&branch[4..]));
    // As for a user who is not root.
    assert_eq!(call!(nvml, nvmlDeviceSetComputeMode, device => Device, 0 => c_uint), 4);
    assert_eq!(call!(nvml, nvmlShutdown), 0);
    assert_eq!(call!(nvml, nvmlDeviceGetCount_v2, &mut count => *mut c_uint), 1);
    println!("PASS");
}

/// Every processor of this machine is as near to a device as any.
fn near_all(nvml: *mut c_void, device: Device, count: c_uint) {
    let mut set = [u64::MAX; 1024];
    assert_eq!(
        call!(nvml, nvmlDeviceGetCpuAffinity, device => Device, 1024 => c_uint, set.as_mut_ptr() => *mut u64),
        0
    );
    // SAFETY: a plain question.
    let processors = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    assert_eq!(i64::from(set.iter().map(|word| word.count_ones()).sum::<u32>()), processors);
    for (scope, code) in [(0, 0), (1, 0), (2, 2)] {
        let mut within = [u64::MAX; 1024];
        let to = within.as_mut_ptr();
        let result = call!(nvml, nvmlDeviceGetCpuAffinityWithinScope,
            device => Device, 1024 => c_uint, to => *mut u64, scope => c_uint);
        assert_eq!((result, scope == 2 || within == set), (code, true), "scope {scope}");
    }
    let mut near: c_uint = 0;
    let nowhere: *mut Device = std::ptr::null_mut();
    let asked = call!(nvml, nvmlSystemGetTopologyGpuSet, 0 => c_uint, &mut near => *mut c_uint, nowhere => *mut Device);
    assert_eq!((asked, near), (0, count), "devices near a processor");
    assert_eq!(call!(nvml, nvmlDeviceSetCpuAffinity, device => Device), 0);
}

fn all_there(nvml: *mut c_void, header: &str) {
    let declared = header.split("DECLDIR").skip(1).filter_map(|rest| {
        let name = rest.trim_start().trim_start_matches("char*").trim_start().split('(').next()?.trim();
        name.starts_with("nvml").then_some(name)
    });
    let mut count = 0;
    for name in declared {
        assert!(!symbol(nvml, name).is_null(), "{name} is missing");
        count += 1;
    }
    println!("{count} functions of the header are there");
}

fn compare(nvml: *mut c_void, cuda: *mut c_void, index: c_uint) {
    let mut device: Device = std::ptr::null_mut();
    assert_eq!(call!(nvml, nvmlDeviceGetHandleByIndex_v2, index => c_uint, &mut device => *mut Device), 0);
    let ordinal = index as c_int;

    let (mut ours, mut theirs) = ([1u8; 96], [1u8; 96]);
    assert_eq!(call!(nvml, nvmlDeviceGetName, device => Device, ours.as_mut_ptr() => *mut u8, 96 => c_uint), 0);
    assert_eq!(call!(cuda, cuDeviceGetName, theirs.as_mut_ptr() => *mut u8, 96 => c_int, ordinal => c_int), 0);
    assert_eq!(text(&ours), text(&theirs));
    println!("{}", text(&ours));

    let (mut uuid, mut bytes) = ([1u8; 80], [0u8; 16]);
    assert_eq!(call!(nvml, nvmlDeviceGetUUID, device => Device, uuid.as_mut_ptr() => *mut u8, 80 => c_uint), 0);
    assert_eq!(call!(nvml, nvmlDeviceGetUUID, device => Device, ours.as_mut_ptr() => *mut u8, 40 => c_uint), 7);
    assert_eq!(call!(cuda, cuDeviceGetUuid, bytes.as_mut_ptr() => *mut u8, ordinal => c_int), 0);
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(text(&uuid).replace("GPU-", "").replace('-', ""), hex);

    let mut pci = Pci { legacy: [0; 16], domain: 9, bus: 9, device: 9, ids: [0; 2], bus_id: [0; 32] };
    let mut id = [1u8; 32];
    assert_eq!(call!(nvml, nvmlDeviceGetPciInfo_v3, device => Device, &mut pci => *mut Pci), 0);
    assert_eq!(call!(cuda, cuDeviceGetPCIBusId, id.as_mut_ptr() => *mut u8, 32 => c_int, ordinal => c_int), 0);
    assert_eq!(text(&pci.bus_id), format!("0000{}", text(&id)).to_uppercase());
    assert_eq!(text(&pci.legacy), text(&id).to_uppercase());
    assert_eq!(format!("{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device), text(&id).to_lowercase());

    // A UUID as CUDA has it, without what kind of device it is of, is how cuda.core asks.
    let by_uuid = "nvmlDeviceGetHandleByUUID";
    let bare = &uuid["GPU-".len()..];
    for (name, key) in [("nvmlDeviceGetHandleByPciBusId_v2", &id[..]), (by_uuid, &uuid[..]), (by_uuid, bare)] {
        let mut same: Device = std::ptr::null_mut();
        // SAFETY: both functions take a C string and a place for a handle.
        let result = unsafe {
            let function: unsafe extern "C" fn(*const c_char, *mut Device) -> c_int =
                std::mem::transmute(symbol(nvml, name));
            function(key.as_ptr().cast(), &mut same)
        };
        assert_eq!((result, same), (0, device), "{name}");
    }

    // Before there is a context all is free; with one it is what CUDA says.
    let mut memory = Memory::default();
    assert_eq!(call!(nvml, nvmlDeviceGetMemoryInfo, device => Device, &mut memory => *mut Memory), 0);
    assert_eq!((memory.free, memory.used), (memory.total, 0));
    let mut context: *mut c_void = std::ptr::null_mut();
    assert_eq!(call!(cuda, cuDevicePrimaryCtxRetain, &mut context => *mut *mut c_void, ordinal => c_int), 0);
    assert_eq!(call!(cuda, cuCtxSetCurrent, context => *mut c_void), 0);
    let mut held = 0u64;
    assert_eq!(call!(cuda, cuMemAlloc_v2, &mut held => *mut u64, 64 << 20 => usize), 0);
    let (mut free, mut total) = (0usize, 0usize);
    assert_eq!(call!(cuda, cuMemGetInfo_v2, &mut free => *mut usize, &mut total => *mut usize), 0);
    assert_eq!(call!(nvml, nvmlDeviceGetMemoryInfo, device => Device, &mut memory => *mut Memory), 0);
    assert_eq!((memory.free, memory.total), (free as u64, total as u64));
    assert!(memory.used >= 64 << 20 && memory.used == memory.total - memory.free, "{memory:?}");
    assert_eq!(call!(cuda, cuMemFree_v2, held => u64), 0);
    assert_eq!(call!(cuda, cuDevicePrimaryCtxRelease_v2, ordinal => c_int), 0);
}
