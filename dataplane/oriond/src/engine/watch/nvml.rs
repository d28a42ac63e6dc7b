//! NVIDIA's library for management, as far as it is asked: which processes keep a GPU how busy, and what they have of
//! its memory.

// UNSAFETY: loads a shared library and calls it.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use libloading::Library;

const SUCCESS: c_int = 0;
const NOT_FOUND: c_int = 6;
const INSUFFICIENT_SIZE: c_int = 7;
/// `GPU-` and a UUID, with room.
const UUID_BYTES: usize = 96;
/// More than there are in a machine.
const GPUS_MAX: u32 = 64;
/// Processes on one GPU, and what NVML may say of them at once.
const ROWS_MAX: usize = 1 << 14;
/// `NVML_VALUE_NOT_AVAILABLE`.
const NOT_AVAILABLE: c_ulonglong = c_ulonglong::MAX;
/// What is told is of so long.
const LAST: Duration = Duration::from_secs(1);

type Handle = *mut c_void;

/// `nvmlProcessInfo_t` of version 2 and later.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Process {
    pid: c_uint,
    used: c_ulonglong,
    instances: [c_uint; 2],
}

/// `nvmlProcessUtilizationSample_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Sample {
    pid: c_uint,
    unix_us: c_ulonglong,
    /// Multiprocessors, memory, encoder, decoder.
    percent: [c_uint; 4],
}

type Rows<T> = unsafe extern "C" fn(Handle, *mut c_uint, *mut T) -> c_int;
type Samples = unsafe extern "C" fn(Handle, *mut Sample, *mut c_uint, c_ulonglong) -> c_int;

pub struct Nvml {
    shutdown: unsafe extern "C" fn() -> c_int,
    count: unsafe extern "C" fn(*mut c_uint) -> c_int,
    handle: unsafe extern "C" fn(c_uint, *mut Handle) -> c_int,
    uuid: unsafe extern "C" fn(Handle, *mut c_char, c_uint) -> c_int,
    rates: unsafe extern "C" fn(Handle, *mut [c_uint; 2]) -> c_int,
    memory: unsafe extern "C" fn(Handle, *mut [c_ulonglong; 3]) -> c_int,
    processes: Rows<Process>,
    samples: Samples,
    _library: Library,
}

/// What is known of one GPU. What NVML does not tell of it is nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gpu {
    /// Of the last second in which it ran kernels, whoever's, and in which its memory was read or written.
    pub busy_percent: Option<u32>,
    pub memory_busy_percent: Option<u32>,
    pub used_bytes: Option<u64>,
    /// Of its processes, by pid as this process sees them.
    pub processes: BTreeMap<u32, u32>,
    /// Bytes of those that are listed, where NVML says them.
    pub memory: BTreeMap<u32, u64>,
}

impl Nvml {
    /// Loads the library and has it look for GPUs.
    pub fn open(path: &Path) -> Result<Nvml, String> {
        let shown = path.display();
        // SAFETY: runs the initialisers of a library of NVIDIA's driver, or of one that the operator named.
        let library = unsafe { Library::new(path) }.map_err(|e| format!("loading {shown} failed: {e}"))?;
        // SAFETY: only the presence of the symbol matters.
        if unsafe { library.get::<*const c_void>(b"orion_shim_marker\0") }.is_ok() {
            return Err(format!("{shown} is Orion's own libnvidia-ml, not NVIDIA's"));
        }
        macro_rules! find {
            ($($name:literal),+) => {{
                let names = [$($name),+];
                // SAFETY: NVML's functions of these names have the types of the fields that they are for.
                let found = names.iter().find_map(|name| unsafe { library.get(name.to_bytes_with_nul()) }.ok());
                *found.ok_or_else(|| format!("{shown} has no {}", names[0].to_string_lossy()))?
            }};
        }
        let init: unsafe extern "C" fn() -> c_int = find!(c"nvmlInit_v2");
        let nvml = Nvml {
            shutdown: find!(c"nvmlShutdown"),
            count: find!(c"nvmlDeviceGetCount_v2"),
            handle: find!(c"nvmlDeviceGetHandleByIndex_v2"),
            uuid: find!(c"nvmlDeviceGetUUID"),
            rates: find!(c"nvmlDeviceGetUtilizationRates"),
            memory: find!(c"nvmlDeviceGetMemoryInfo"),
            processes: find!(c"nvmlDeviceGetComputeRunningProcesses_v3", c"nvmlDeviceGetComputeRunningProcesses_v2"),
            samples: find!(c"nvmlDeviceGetProcessUtilization"),
            _library: library,
        };
        // SAFETY: a plain call.
        match unsafe { init() } {
            SUCCESS => Ok(nvml),
            code => {
                // Nothing is to be shut down.
                let Nvml { _library: library, .. } = &nvml;
                let why = error(library, code);
                std::mem::forget(nvml);
                Err(format!("nvmlInit of {shown} answers {code} ({why})"))
            }
        }
    }

    /// All GPUs, by UUID as NVML writes it.
    pub fn look(&self) -> BTreeMap<String, Gpu> {
        let mut count = 0;
        // SAFETY: a valid place. Without an answer there is none.
        unsafe { (self.count)(&mut count) };
        (0..count.min(GPUS_MAX)).filter_map(|index| self.look_at(index)).collect()
    }

    fn look_at(&self, index: c_uint) -> Option<(String, Gpu)> {
        let (mut device, mut text) = (std::ptr::null_mut(), [0 as c_char; UUID_BYTES]);
        let (mut rates, mut memory) = ([0; 2], [0; 3]);
        // SAFETY: valid places, and as many bytes as are said, of which the last stays 0.
        let (has_rates, has_memory) = unsafe {
            if (self.handle)(index, &mut device) != SUCCESS
                || (self.uuid)(device, text.as_mut_ptr(), UUID_BYTES as c_uint - 1) != SUCCESS
            {
                return None;
            }
            ((self.rates)(device, &mut rates) == SUCCESS, (self.memory)(device, &mut memory) == SUCCESS)
        };
        // SAFETY: it ends with a 0.
        let uuid = unsafe { CStr::from_ptr(text.as_ptr()) }.to_str().ok()?.to_owned();
        let percent = |rate: c_uint| (has_rates && rate <= 100).then_some(rate);
        let busy_percent = percent(rates[0]);
        // SAFETY: a device, and room for as many rows as are said.
        let listed = rows(|count, rows| unsafe { (self.processes)(device, count, rows) }).unwrap_or_default();
        let gpu = Gpu {
            busy_percent,
            memory_busy_percent: percent(rates[1]),
            // Total, free, used.
            used_bytes: has_memory.then_some(memory[2]),
            processes: self.processes_of(device, &listed, busy_percent),
            memory: memory_of(&listed),
        };
        Some((uuid, gpu))
    }

    /// Who is listed and was not seen to work was idle. Where parts are not told, one who is alone has all of it.
    fn processes_of(&self, device: Handle, listed: &[Process], busy_percent: Option<u32>) -> BTreeMap<u32, u32> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(LAST);
        let since_us = since.as_micros() as c_ulonglong;
        // SAFETY: a device, and room for as many rows as are said.
        let samples = rows(|count, rows| unsafe { (self.samples)(device, rows, count, since_us) });
        match (samples, listed) {
            (Ok(mut samples), _) => {
                let mut found: BTreeMap<u32, u32> = listed.iter().map(|process| (process.pid, 0)).collect();
                // The newest of a process is last; a driver has been seen to say numbers above 100.
                samples.sort_by_key(|sample: &Sample| sample.unix_us);
                found.extend(samples.iter().filter(|s| s.percent[0] <= 100).map(|s| (s.pid, s.percent[0])));
                found
            }
            (Err(_), [alone]) => busy_percent.map(|busy| (alone.pid, busy)).into_iter().collect(),
            (Err(_), _) => BTreeMap::new(),
        }
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        // SAFETY: it was initialised, and is asked nothing any more.
        unsafe { (self.shutdown)() };
    }
}

/// One that is listed twice, for parts of a GPU say, has what is said of both.
fn memory_of(listed: &[Process]) -> BTreeMap<u32, u64> {
    let mut memory = BTreeMap::new();
    for process in listed.iter().filter(|process| process.used != NOT_AVAILABLE) {
        let bytes: &mut u64 = memory.entry(process.pid).or_default();
        *bytes = bytes.saturating_add(process.used);
    }
    memory
}

/// As many as there are; none is an answer.
fn rows<T: Copy + Default>(ask: impl Fn(*mut c_uint, *mut T) -> c_int) -> Result<Vec<T>, c_int> {
    let mut room = 64;
    loop {
        let (mut count, mut rows) = (room as c_uint, vec![T::default(); room]);
        match ask(&mut count, rows.as_mut_ptr()) {
            SUCCESS => {
                rows.truncate(count as usize);
                return Ok(rows);
            }
            NOT_FOUND => return Ok(Vec::new()),
            // There may be more by the next time.
            INSUFFICIENT_SIZE if room < ROWS_MAX => room = (count as usize).max(2 * room).min(ROWS_MAX),
            code => return Err(code),
        }
    }
}

fn error(library: &Library, code: c_int) -> String {
    // SAFETY: a function of this name has this type.
    let function = unsafe { library.get::<unsafe extern "C" fn(c_int) -> *const c_char>(b"nvmlErrorString\0") };
    function.map_or_else(
        |_| "no words for it".to_owned(),
        // SAFETY: it answers a text that stays.
        |function| unsafe { CStr::from_ptr(function(code)) }.to_string_lossy().into_owned(),
    )
}
