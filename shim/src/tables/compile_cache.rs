//! The driver's compile cache, which NVRTC asks before it compiles and tells what it compiled: the one that
//! `CUDA_CACHE_PATH`, `CUDA_CACHE_DISABLE` and `CUDA_CACHE_MAXSIZE` are about.
//!
//! NVRTC compiles in two steps, bitcode to PTX and PTX to machine code, and makes an entry for each: it opens one,
//! looks for a result, copies and frees it, or hands in its own, and closes. It believes what it finds, so the key
//! is a strong hash of all that it says about a step. Nothing of this needs a server, a device or `cuInit`.

// UNSAFETY: a C ABI of raw pointers that NVRTC calls.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_void};
use std::fmt::Arguments;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use orion_cuda::sys::*;
use orion_transport::environment;
use orion_transport::thread::Uncancelled;
use sha2::{Digest, Sha256};

use crate::answer::{code, not_null, put};
use crate::tables::compile_cache_disk::{Disk, Key};

/// Changes when the same arguments come to mean something else.
const KEY_FORMAT: &[u8] = b"orion compile cache 1";

const MEMORY_BYTES_MAX: usize = 64 << 20;
/// NVIDIA's default on servers and its largest.
const DISK_BYTES_DEFAULT: u64 = 1 << 30;
const DISK_BYTES_MAX: u64 = 4 << 30;

/// No bitcode is larger: a caller that says so passed 32 bits and something else in the others.
const SOURCE_BYTES_MAX: usize = u32::MAX as usize;

// What stands in the table: never inlined, as there.

/// Which step (1: to machine code, 2: to PTX), of what, with which options, by which build of the compiler. The
/// architecture is the number in `sm_90a`, the variant says whether there is an `a`.
#[allow(clippy::too_many_arguments)]
#[inline(never)]
pub unsafe extern "C" fn open(
    entry: *mut *mut c_void,
    kind: u32,
    source: *const c_void,
    source_bytes: usize,
    options: *const c_char,
    host: *const c_char,
    build: *const c_char,
    architecture: u32,
    variant: u32,
) -> CUresult {
    code(not_null(entry).and_then(|()| {
        if source_bytes > SOURCE_BYTES_MAX || (source.is_null() && source_bytes > 0) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let source = match source_bytes {
            0 => &[],
            // SAFETY: not null; that many bytes by the table's contract.
            n => unsafe { std::slice::from_raw_parts(source.cast::<u8>(), n) },
        };
        // SAFETY: null or C strings by the table's contract.
        let [options, host, build] = [options, host, build].map(|s| unsafe { text(s) });
        let key = key_of([kind, architecture, variant], &[Some(source), options, host, build]);
        // SAFETY: not null; valid for a write by the table's contract.
        unsafe { put(entry, std::ptr::without_provenance_mut(cache().open(key))) }
    }))
}

#[inline(never)]
pub unsafe extern "C" fn close(entry: *const c_void) -> CUresult {
    code(cache().close(entry.addr()))
}

/// The data is the caller's until it frees it. The second argument was never seen other than 0, and nobody knows
/// what else it may be: there is nothing for it.
#[inline(never)]
pub unsafe extern "C" fn find(entry: *const c_void, other: u32, data: *mut *const c_void, bytes: *mut u32) -> CUresult {
    code(not_null(data).and(not_null(bytes)).and_then(|()| {
        let found = if other == 0 { cache().find(entry.addr())? } else { None };
        let (address, count) = found.ok_or(CUDA_ERROR_NOT_FOUND)?;
        // SAFETY: not null; valid for writes by the table's contract.
        unsafe { put(data, address).and(put(bytes, count)) }
    }))
}

#[inline(never)]
pub unsafe extern "C" fn keep(entry: *const c_void, other: u32, data: *const c_void, bytes: u32) -> CUresult {
    code(not_null(data).and_then(|()| {
        if other != 0 {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        // SAFETY: not null; that many bytes by the table's contract.
        let data = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), bytes as usize) };
        cache().keep(entry.addr(), data)
    }))
}

#[inline(never)]
pub unsafe extern "C" fn free(data: *const c_void) -> CUresult {
    code(cache().free(data.addr()))
}

/// # Safety
/// Null or a C string that nobody changes meanwhile.
unsafe fn text<'a>(s: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: not null; a C string as the caller says.
    (!s.is_null()).then(|| unsafe { CStr::from_ptr(s) }.to_bytes())
}

/// Every field with its length before it, so that none runs into the next.
fn key_of(numbers: [u32; 3], fields: &[Option<&[u8]>]) -> Key {
    let mut hash = Sha256::new();
    hash.update(KEY_FORMAT);
    for number in numbers {
        hash.update(number.to_le_bytes());
    }
    for field in fields {
        hash.update(field.map_or(u64::MAX, |f| f.len() as u64).to_le_bytes());
        hash.update(field.unwrap_or_default());
    }
    hash.finalize().into()
}

/// Lives as long as the process; what it holds has no destructor that could run too early.
fn cache() -> &'static Cache {
    static CACHE: OnceLock<Cache> = OnceLock::new();
    CACHE.get_or_init(|| {
        // Unit tests leave their user's files alone.
        let privileged = cfg!(test) || !environment::is_believed();
        Cache::configured(privileged, |name| environment::var_os(name).filter(|v| !v.is_empty()))
    })
}

struct Cache {
    disabled: bool,
    disk: Option<Disk>,
    state: Mutex<State>,
}

struct State {
    /// Handles are numbers that never come again, so that a stale one is told apart.
    next: usize,
    open: BTreeMap<usize, Key>,
    /// By address, until they are freed.
    lent: BTreeMap<usize, Box<[u8]>>,
    memory: Memory,
}

impl Cache {
    /// Somebody else's variables say nothing to a privileged program.
    fn configured(privileged: bool, variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> Cache {
        let number = |name| variable(name).and_then(|v| v.to_str()?.trim().parse::<u64>().ok());
        let disk_bytes = number("CUDA_CACHE_MAXSIZE").unwrap_or(DISK_BYTES_DEFAULT).min(DISK_BYTES_MAX);
        let base = variable("CUDA_CACHE_PATH")
            .map(PathBuf::from)
            .or_else(|| Some(Path::new(&variable("HOME")?).join(".nv/ComputeCache")))
            .and_then(|base| std::path::absolute(base).ok())
            .filter(|_| !privileged);
        Cache {
            disabled: number("CUDA_CACHE_DISABLE").is_some_and(|n| n != 0),
            disk: base.map(|base| Disk::new(base, disk_bytes)),
            state: Mutex::new(State {
                next: 1,
                open: BTreeMap::new(),
                lent: BTreeMap::new(),
                memory: Memory::new(MEMORY_BYTES_MAX),
            }),
        }
    }

    fn open(&self, key: Key) -> usize {
        let mut state = self.state();
        let handle = state.next;
        state.next += 1;
        state.open.insert(handle, key);
        handle
    }

    fn close(&self, handle: usize) -> Result<(), CUresult> {
        self.state().open.remove(&handle).map(drop).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    fn find(&self, handle: usize) -> Result<Option<(*const c_void, u32)>, CUresult> {
        let _whole = Uncancelled::hold();
        let (key, kept) = {
            let mut state = self.state();
            let key = *state.open.get(&handle).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
            (key, state.memory.find(&key))
        };
        if self.disabled {
            return Ok(None);
        }
        if let Some(data) = kept {
            return Ok(self.lend(&data, "in memory"));
        }
        // Not under the lock: a child forked meanwhile would wait for it for ever.
        let read = self.disk.as_ref().map_or(Ok(None), |disk| disk.read(&key));
        let Some(data) = read.unwrap_or_else(|e| complain(&e)) else {
            debug(format_args!("nothing found"));
            return Ok(None);
        };
        let data: Arc<[u8]> = data.into();
        self.state().memory.keep(key, data.clone());
        Ok(self.lend(&data, "on disk"))
    }

    /// A copy, with a NUL behind it for those who take PTX for a C string.
    fn lend(&self, data: &[u8], origin: &str) -> Option<(*const c_void, u32)> {
        let bytes = u32::try_from(data.len()).ok()?;
        let copy = [data, &[0]].concat().into_boxed_slice();
        let address: *const c_void = copy.as_ptr().cast();
        self.state().lent.insert(address.addr(), copy);
        debug(format_args!("{bytes} bytes found {origin}"));
        Some((address, bytes))
    }

    fn free(&self, address: usize) -> Result<(), CUresult> {
        self.state().lent.remove(&address).map(drop).ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    fn keep(&self, handle: usize, data: &[u8]) -> Result<(), CUresult> {
        let _whole = Uncancelled::hold();
        let key = *self.state().open.get(&handle).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        if self.disabled {
            return Ok(());
        }
        self.state().memory.keep(key, data.into());
        let written = self.disk.as_ref().map_or(Ok(()), |disk| disk.write(&key, data));
        written.unwrap_or_else(|e| complain(&e));
        debug(format_args!("{} bytes kept", data.len()));
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic happens under this lock")
    }
}

/// The results used last.
pub struct Memory {
    bytes_max: usize,
    bytes: usize,
    /// Counts uses.
    now: u64,
    kept: BTreeMap<Key, (u64, Arc<[u8]>)>,
    by_use: BTreeMap<u64, Key>,
}

impl Memory {
    const fn new(bytes_max: usize) -> Memory {
        Memory { bytes_max, bytes: 0, now: 0, kept: BTreeMap::new(), by_use: BTreeMap::new() }
    }

    fn find(&mut self, key: &Key) -> Option<Arc<[u8]>> {
        let (used, data) = self.kept.get_mut(key)?;
        self.by_use.remove(used);
        self.now += 1;
        *used = self.now;
        self.by_use.insert(self.now, *key);
        Some(data.clone())
    }

    fn keep(&mut self, key: Key, data: Arc<[u8]>) {
        if data.len() > self.bytes_max {
            return;
        }
        self.remove(&key);
        self.now += 1;
        self.bytes += data.len();
        self.kept.insert(key, (self.now, data));
        self.by_use.insert(self.now, key);
        while self.bytes > self.bytes_max {
            let Some((_, oldest)) = self.by_use.first_key_value() else { break };
            self.remove(&oldest.clone());
        }
    }

    fn remove(&mut self, key: &Key) {
        if let Some((used, data)) = self.kept.remove(key) {
            self.by_use.remove(&used);
            self.bytes -= data.len();
        }
    }
}

/// The disk is a convenience: what it cannot do is no error of the program's, and said once to those who want to know.
fn complain<T: Default>(e: &std::io::Error) -> T {
    static SAID: AtomicBool = AtomicBool::new(false);
    let verbose = environment::var_os("ORION_VERBOSE").is_some_and(|v| v != "0");
    if verbose && !SAID.swap(true, Ordering::Relaxed) {
        say(format_args!("not kept on disk: {e}"));
    }
    T::default()
}

/// With `ORION_DEBUG` set, what became of every look and every result.
fn debug(what: Arguments) {
    if environment::var_os("ORION_DEBUG").is_some() {
        say(what);
    }
}

fn say(what: Arguments) {
    orion_transport::client::say::put(format!("orion: compile cache: {what}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::tables::compile_cache_disk::Key;
    use crate::tables::compile_cache_disk::tests::Folder;

    fn with(variables: &[(&str, &Path)]) -> Cache {
        Cache::configured(false, |name| {
            variables.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value))
        })
    }

    fn found(cache: &Cache, key: Key) -> Option<Vec<u8>> {
        let handle = cache.open(key);
        let found = cache.find(handle).unwrap().map(|(address, bytes)| {
            // SAFETY: lent until it is freed.
            let data = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), bytes as usize) }.to_vec();
            cache.free(address.addr()).unwrap();
            data
        });
        cache.close(handle).unwrap();
        found
    }

    fn keep(cache: &Cache, key: Key, data: &[u8]) {
        let handle = cache.open(key);
        assert_eq!((cache.keep(handle, data), cache.close(handle)), (Ok(()), Ok(())));
    }

    struct Step {
        numbers: [u32; 3],
        source: &'static [u8],
        texts: [Option<&'static CStr>; 3],
    }

    const STEP: Step = Step {
        numbers: [2, 90, 0],
        source: b"BC\xc0\xde\0bitcode",
        texts: [Some(c" -arch=compute_90"), Some(c"HOST64"), Some(c"Aug 20 202514:13:52")],
    };

    impl Step {
        fn open(&self) -> *mut c_void {
            let mut entry = std::ptr::null_mut();
            let [kind, architecture, variant] = self.numbers;
            let [options, host, build] = self.texts.map(|t| t.map_or(std::ptr::null(), CStr::as_ptr));
            let (source, bytes) = (self.source.as_ptr().cast(), self.source.len());
            // SAFETY: a valid place, bytes and C strings.
            let code = unsafe { open(&mut entry, kind, source, bytes, options, host, build, architecture, variant) };
            assert_eq!(code, CUDA_SUCCESS);
            assert!(!entry.is_null());
            entry
        }
    }

    /// The calls that NVRTC makes for a step that nobody did before, and for one that somebody did.
    #[test]
    fn a_result_is_found_where_it_was_kept() {
        // A source of its own: other tests keep results in the same cache at the same time.
        let step = Step { source: b"kept and found", ..STEP };
        let (mut data, mut bytes) = (std::ptr::null(), 77);
        // SAFETY: valid places and bytes.
        unsafe {
            let first = step.open();
            assert_eq!(find(first, 0, &mut data, &mut bytes), CUDA_ERROR_NOT_FOUND);
            assert_eq!((data, bytes), (std::ptr::null(), 77));
            assert_eq!(keep_ptx(first, c"// PTX"), CUDA_SUCCESS);
            assert_eq!(close(first), CUDA_SUCCESS);
            let second = step.open();
            assert_ne!(first, second);
            assert_eq!((find(second, 0, &mut data, &mut bytes), bytes), (CUDA_SUCCESS, 6));
            assert_eq!(CStr::from_ptr(data.cast()), c"// PTX");
            let mut again = std::ptr::null();
            assert_eq!(find(second, 0, &mut again, &mut bytes), CUDA_SUCCESS);
            assert_eq!((free(data), free(again), close(second)), (CUDA_SUCCESS, CUDA_SUCCESS, CUDA_SUCCESS));
        }
    }

    unsafe fn keep_ptx(entry: *const c_void, ptx: &CStr) -> CUresult {
        // SAFETY: a C string's bytes.
        unsafe { super::keep(entry, 0, ptx.as_ptr().cast(), ptx.count_bytes() as u32) }
    }

    #[test]
    fn steps_that_differ_in_anything_share_nothing() {
        let arch = Some(c" -arch=compute_90a");
        let [options, host, build] = STEP.texts;
        let others = [
            Step { source: b"BC\xc0\xde\0bitcodf", ..STEP },
            Step { source: b"BC\xc0\xde", ..STEP },
            Step { source: b"", ..STEP },
            Step { numbers: [1, 90, 0], ..STEP },
            Step { numbers: [2, 80, 0], ..STEP },
            Step { numbers: [2, 90, 1], ..STEP },
            Step { texts: [arch, host, build], ..STEP },
            Step { texts: [options, Some(c"HOST32"), build], ..STEP },
            Step { texts: [options, host, Some(c"Aug 21 202514:13:52")], ..STEP },
            // Fields that run into each other.
            Step { texts: [options, Some(c"HOST64A"), Some(c"ug 20 202514:13:52")], ..STEP },
            Step { texts: [options, host, None], ..STEP },
            Step { texts: [options, host, Some(c"")], ..STEP },
        ];
        let (mut data, mut bytes) = (std::ptr::null(), 0);
        // SAFETY: valid places and bytes.
        unsafe {
            let kept = STEP.open();
            assert_eq!(keep_ptx(kept, c"// PTX"), CUDA_SUCCESS);
            for (index, step) in others.iter().enumerate() {
                let entry = step.open();
                assert_eq!(find(entry, 0, &mut data, &mut bytes), CUDA_ERROR_NOT_FOUND, "step {index}");
                assert_eq!(keep_ptx(entry, c"// another"), CUDA_SUCCESS);
                assert_eq!(close(entry), CUDA_SUCCESS);
            }
            assert_eq!((find(kept, 0, &mut data, &mut bytes), bytes), (CUDA_SUCCESS, 6));
            assert_eq!((free(data), close(kept)), (CUDA_SUCCESS, CUDA_SUCCESS));
        }
    }

    #[test]
    fn what_was_not_handed_out_is_refused() {
        let (mut data, mut bytes) = (std::ptr::null(), 0);
        let step = Step { source: b"refusals", ..STEP };
        let null: *const c_void = std::ptr::null();
        // SAFETY: null, or valid places and bytes.
        unsafe {
            let entry = step.open();
            assert_eq!(find(entry, 1, &mut data, &mut bytes), CUDA_ERROR_NOT_FOUND);
            assert_eq!(super::keep(entry, 1, c"x".as_ptr().cast(), 1), CUDA_ERROR_NOT_SUPPORTED);
            assert_eq!(super::keep(entry, 0, null, 1), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(find(entry, 0, std::ptr::null_mut(), &mut bytes), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(close(entry), CUDA_SUCCESS);
            for stale in [entry.cast_const(), null, (&raw const data).cast()] {
                assert_eq!(find(stale, 0, &mut data, &mut bytes), CUDA_ERROR_INVALID_HANDLE);
                assert_eq!(keep_ptx(stale, c"// PTX"), CUDA_ERROR_INVALID_HANDLE);
                assert_eq!(close(stale), CUDA_ERROR_INVALID_HANDLE);
                assert_eq!(free(stale), CUDA_ERROR_INVALID_VALUE);
            }
            let mut entry = std::ptr::null_mut();
            let text = c"".as_ptr();
            let too_large = SOURCE_BYTES_MAX + 1;
            let source = step.source.as_ptr().cast();
            assert_eq!(open(&mut entry, 1, source, too_large, text, text, text, 90, 0), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(open(&mut entry, 1, null, 1, text, text, text, 90, 0), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(open(std::ptr::null_mut(), 1, source, 1, text, text, text, 90, 0), CUDA_ERROR_INVALID_VALUE);
        }
    }

    #[test]
    fn memory_keeps_what_was_used_last() {
        let mut memory = Memory::new(100);
        let data = |bytes: usize| -> Arc<[u8]> { vec![7; bytes].into() };
        memory.keep([1; 32], data(40));
        memory.keep([2; 32], data(40));
        assert!(memory.find(&[1; 32]).is_some());
        memory.keep([3; 32], data(40));
        assert_eq!(memory.bytes, 80);
        assert!(memory.find(&[1; 32]).is_some() && memory.find(&[3; 32]).is_some() && memory.find(&[2; 32]).is_none());
        memory.keep([1; 32], data(60));
        assert_eq!((memory.bytes, memory.kept.len(), memory.by_use.len()), (100, 2, 2));
        memory.keep([4; 32], data(101));
        assert!(memory.find(&[4; 32]).is_none() && memory.find(&[1; 32]).is_some());
        memory.keep([5; 32], data(100));
        assert_eq!((memory.bytes, memory.kept.len(), memory.by_use.len()), (100, 1, 1));
    }

    #[test]
    fn a_later_process_finds_what_an_earlier_one_kept() {
        let folder = Folder::new();
        let home = [("HOME", folder.0.as_path())];
        let (path, other) = (folder.0.join("elsewhere/cache"), [9; 32]);
        keep(&with(&home), [8; 32], b"result");
        assert_eq!(found(&with(&home), [8; 32]).as_deref(), Some(&b"result"[..]));
        assert!(folder.0.join(".nv/ComputeCache").is_dir());
        assert_eq!(found(&with(&home), other), None);
        let elsewhere = [("HOME", folder.0.as_path()), ("CUDA_CACHE_PATH", path.as_path())];
        assert_eq!(found(&with(&elsewhere), [8; 32]), None);
        keep(&with(&elsewhere), other, b"");
        assert_eq!(found(&with(&elsewhere), other).as_deref(), Some(&b""[..]));
        assert_eq!(found(&with(&home), other), None);
    }

    #[test]
    fn a_disabled_cache_finds_nothing_and_writes_nothing() {
        let folder = Folder::new();
        let disabled = [("HOME", folder.0.as_path()), ("CUDA_CACHE_DISABLE", Path::new("1"))];
        let cache = with(&disabled);
        keep(&cache, [1; 32], b"result");
        assert_eq!(found(&cache, [1; 32]), None);
        assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 0);
        let enabled = [("HOME", folder.0.as_path()), ("CUDA_CACHE_DISABLE", Path::new("0"))];
        keep(&with(&enabled), [1; 32], b"result");
        assert!(found(&with(&enabled), [1; 32]).is_some());
        assert_eq!(found(&with(&disabled), [1; 32]), None);
    }

    #[test]
    fn memory_serves_where_no_disk_does() {
        let folder = Folder::new();
        let file = folder.0.join("file");
        std::fs::write(&file, "in the way").unwrap();
        let none = (Path::new("/proc/no/such/folder"), Path::new("0"));
        for variables in [
            &[][..],
            &[("CUDA_CACHE_PATH", file.as_path())],
            &[("CUDA_CACHE_PATH", none.0)],
            &[("CUDA_CACHE_PATH", folder.0.as_path()), ("CUDA_CACHE_MAXSIZE", none.1)],
        ] {
            let cache = with(variables);
            keep(&cache, [1; 32], b"result");
            assert_eq!(found(&cache, [1; 32]).as_deref(), Some(&b"result"[..]));
            assert_eq!(found(&with(variables), [1; 32]), None);
        }
        let privileged = Cache::configured(true, |_| Some(folder.0.clone().into()));
        assert!(privileged.disk.is_none());
    }

    #[test]
    fn threads_find_each_others_results() {
        let folder = Folder::new();
        let cache = with(&[("CUDA_CACHE_PATH", folder.0.as_path())]);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for i in 0..200 {
                        let key = [i % 16; 32];
                        let result = vec![i % 16; 1000];
                        if let Some(found) = found(&cache, key) {
                            assert_eq!(found, result);
                        }
                        keep(&cache, key, &result);
                    }
                });
            }
        });
        assert!(cache.state().open.is_empty() && cache.state().lent.is_empty());
        assert_eq!(cache.state().memory.bytes, 16 * 1000);
    }
}
