//! Modules, libraries, kernels and functions.

// UNSAFETY: C entry points, and images given as pointers.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use orion_cuda::sys::*;

use crate::api::{R, Registry, api, get, handle, list, put, put_some, refuse, text};
use crate::context::{self, Context};
use crate::exec::state::Table;
use crate::ptx::decode::decoder::Globals;
use crate::ptx::decode::program::{decode, kernel_params};
use crate::ptx::isa::operand::{Space, Ty};
use crate::ptx::isa::program::{Param, Program, function_address};
use crate::ptx::parse::{self, Init, Linkage};
use crate::ptx::{check, link};
use crate::vram::{self, Kind};
use crate::{image, memory};

pub struct Module {
    pub context: u64,
    pub program: Arc<Program>,
    ast: Arc<parse::Module>,
    globals: HashMap<String, (u64, u64)>,
    memory: Option<u64>,
    functions: Vec<Arc<Function>>,
    /// Owned by a library, which unloads it.
    of_library: bool,
}

pub struct Function {
    pub module: Weak<Module>,
    pub program: Arc<Program>,
    pub table: Arc<Table>,
    pub index: u32,
    pub context: u64,
    pub name: CString,
    pub settings: Settings,
}

/// What `cuFuncSetAttribute` can change.
pub struct Settings {
    /// Negative until set.
    dynamic_shared_max: AtomicI32,
    carveout: AtomicI32,
    cluster_policy: AtomicI32,
    pub non_portable: AtomicI32,
    /// Zeroes where the kernel does not say which cluster it requires.
    required_cluster: [AtomicI32; 3],
    loaded: AtomicBool,
}

impl Function {
    /// The cluster that the kernel's code or `cuFuncSetAttribute` requires.
    pub fn required_cluster(&self) -> Option<[u32; 3]> {
        let set = || self.settings.required_cluster.each_ref().map(|n| n.load(Ordering::Relaxed) as u32);
        let declared = self.program.funcs[self.index as usize].req_cluster;
        declared.or_else(|| Some(set()).filter(|c| *c != [0; 3]))
    }
}

/// `CUDA_MODULE_LOADING`, as it is when the first module is loaded.
fn eager() -> bool {
    static EAGER: OnceLock<bool> = OnceLock::new();
    *EAGER.get_or_init(|| std::env::var("CUDA_MODULE_LOADING").is_ok_and(|v| v == "EAGER"))
}

impl Settings {
    /// There is nothing to bring to a device of its own; but programs see when a GPU would have been brought it.
    pub fn load(&self) {
        self.loaded.store(true, Ordering::Relaxed);
    }

    fn new() -> Self {
        Self {
            dynamic_shared_max: AtomicI32::new(-1),
            carveout: AtomicI32::new(-1),
            cluster_policy: AtomicI32::new(0),
            non_portable: AtomicI32::new(0),
            required_cluster: Default::default(),
            loaded: AtomicBool::new(eager()),
        }
    }
}

impl Function {
    /// Bytes of dynamic shared memory a launch may ask for. Until set, static and dynamic fit the default together.
    pub fn dynamic_shared_max(&self) -> u32 {
        let fixed = self.program.funcs[self.index as usize].static_shared;
        let set = self.settings.dynamic_shared_max.load(Ordering::Relaxed);
        u32::try_from(set).unwrap_or(crate::device::SHARED_DEFAULT.saturating_sub(fixed))
    }
}

pub struct Library {
    ast: Arc<parse::Module>,
    kernels: Mutex<Vec<Arc<Kernel>>>,
    instances: Mutex<HashMap<u64, Arc<Module>>>,
}

pub struct Kernel {
    pub library: Weak<Library>,
    pub name: CString,
    /// Position among the library's kernels, which is the position among a module's functions.
    ordinal: usize,
    params: Vec<Param>,
    /// Applied to each context's function when it is made.
    dynamic_shared_max: AtomicI32,
}

pub static MODULES: Registry<Module> = Registry::new();

pub static FUNCTIONS: Registry<Function> = Registry::new();

pub static LIBRARIES: Registry<Library> = Registry::new();

pub static KERNELS: Registry<Kernel> = Registry::new();

/// JIT options that carry answers back.
struct Jit {
    options: Vec<(CUjit_option, usize)>,
    values: *mut *mut c_void,
}

impl Jit {
    /// # Safety
    /// Both arrays have `n` entries, and stay valid for the call.
    unsafe fn new(n: c_uint, options: *mut CUjit_option, values: *mut *mut c_void) -> R<Self> {
        if n == 0 || options.is_null() || values.is_null() {
            return Ok(Self { options: Vec::new(), values });
        }
        // SAFETY: forwarded from this function's contract.
        let options = unsafe { list(options, n as usize)? };
        // SAFETY: as above.
        let given = unsafe { list(values, n as usize)? };
        Ok(Self { options: options.into_iter().zip(given.into_iter().map(|v| v as usize)).collect(), values })
    }

    fn value(&self, which: CUjit_option) -> Option<usize> {
        self.options.iter().find(|(o, _)| *o == which).map(|(_, v)| *v)
    }

    fn answer(&self, which: CUjit_option, v: usize) {
        if let Some(at) = self.options.iter().position(|(o, _)| *o == which) {
            // SAFETY: the index is inside the caller's array.
            unsafe { self.values.add(at).write_unaligned(v as *mut c_void) };
        }
    }

    fn report(&self, error: &str) {
        self.log(CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, error);
    }

    fn log(&self, buffer: CUjit_option, size: CUjit_option, message: &str) {
        let (Some(to), Some(room)) = (self.value(buffer), self.value(size)) else { return };
        if to == 0 || room == 0 {
            return;
        }
        let n = message.len().min(room - 1);
        // SAFETY: the caller's buffer has `room` bytes, and n is less.
        unsafe {
            std::ptr::copy_nonoverlapping(message.as_ptr(), to as *mut u8, n);
            (to as *mut u8).add(n).write(0);
        }
        self.answer(size, n + usize::from(n > 0));
    }

    fn succeeded(&self) {
        self.log(CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, "");
        self.log(CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, "");
        self.answer(CU_JIT_WALL_TIME, 0);
    }
}

/// CUDA 13 writes version 9.
const PTX_MAJOR_MAX: u32 = 9;

fn parse_ptx(text: &image::Text, jit: &Jit) -> R<Arc<parse::Module>> {
    let fail = |message: String, code| {
        crate::say::say(&format!("PTX rejected: {message}"));
        jit.report(&message);
        if text.compiled {
            context::lacks();
        }
        Err(code)
    };
    let parse_one = |text| parse::parse(text).and_then(|m| check::check(&m).map(|()| m));
    match text.ptx.split(link::NEXT).map(parse_one).collect::<Result<_, _>>().and_then(link::link) {
        // A minor version more has instructions more, which only the kernels that use them lack.
        Ok(m) if m.version.0 > PTX_MAJOR_MAX => {
            fail(format!("PTX is of version {}.{}", m.version.0, m.version.1), CUDA_ERROR_UNSUPPORTED_PTX_VERSION)
        }
        Ok(m) => {
            jit.succeeded();
            Ok(Arc::new(m))
        }
        Err(message) => fail(message, CUDA_ERROR_INVALID_PTX),
    }
}

impl Module {
    fn load(c: &Arc<Context>, ast: &Arc<parse::Module>, of_library: bool) -> R<Arc<Self>> {
        let mut layout: Vec<(usize, u64)> = Vec::new();
        let mut top = 0u64;
        for (i, v) in ast.variables.iter().enumerate() {
            if matches!(v.space, Space::Global | Space::Const) && v.linkage != Linkage::Extern {
                // Variables that share a block are kept apart, so that a small overrun stays inside the gap.
                top = top.next_multiple_of(u64::from(v.align.max(16)));
                layout.push((i, top));
                top += v.bytes().max(1);
            }
        }
        let memory = if top > 0 { Some(memory::allocate(c, top, Kind::Internal)?.base) } else { None };
        let base = memory.unwrap_or(0);
        let globals: HashMap<String, (u64, u64)> = layout
            .iter()
            .map(|&(i, at)| (ast.variables[i].name.clone(), (base + at, ast.variables[i].bytes())))
            .collect();
        let mut addresses: Globals = globals.iter().map(|(n, (at, _))| (n.clone(), *at)).collect();
        for (i, f) in ast.functions.iter().enumerate() {
            addresses.insert(f.name.clone(), function_address(i));
        }
        for &(i, at) in &layout {
            initialise(&ast.variables[i], base + at, &addresses)?;
        }
        let program = Arc::new(decode(ast, &addresses));
        let table = Arc::new(Table::new(&program.code));
        let m = Arc::new_cyclic(|me: &Weak<Self>| Self {
            context: c.id,
            program: program.clone(),
            ast: ast.clone(),
            globals,
            memory,
            functions: (0..program.funcs.len())
                .filter(|&i| program.funcs[i].is_entry)
                .map(|i| {
                    Arc::new(Function {
                        module: me.clone(),
                        program: program.clone(),
                        table: table.clone(),
                        index: i as u32,
                        context: c.id,
                        name: CString::new(program.funcs[i].name.as_str()).unwrap_or_default(),
                        settings: Settings::new(),
                    })
                })
                .collect(),
            of_library,
        });
        MODULES.add::<CUmod_st>(&m);
        for f in &m.functions {
            FUNCTIONS.add::<CUfunc_st>(f);
        }
        Ok(m)
    }

    fn unload(self: &Arc<Self>) {
        MODULES.remove(Arc::as_ptr(self).cast_mut());
        for f in &self.functions {
            FUNCTIONS.remove(Arc::as_ptr(f).cast_mut());
        }
        if let Some(r) = self.memory.and_then(vram::find) {
            memory::drop_range(&r);
        }
    }

    fn function(&self, name: &str) -> R<Arc<Function>> {
        self.functions.iter().find(|f| f.name.to_bytes() == name.as_bytes()).cloned().ok_or(CUDA_ERROR_NOT_FOUND)
    }
}

fn initialise(v: &parse::Variable, at: u64, addresses: &Globals) -> R {
    let element = v.ty.bytes() as usize;
    let room = v.bytes() as usize;
    let mut bytes = vec![0u8; room];
    for (i, init) in v.init.iter().enumerate() {
        let value = match init {
            Init::Int(x) if v.ty == Ty::F32 => u64::from((*x as i64 as f32).to_bits()),
            Init::Int(x) if v.ty == Ty::F64 => (*x as i64 as f64).to_bits(),
            Init::Int(x) => *x,
            Init::F32(x) if element == 8 => f64::from(f32::from_bits(*x)).to_bits(),
            Init::F32(x) => u64::from(*x),
            Init::F64(x) if element == 4 => u64::from((f64::from_bits(*x) as f32).to_bits()),
            Init::F64(x) => *x,
            Init::Symbol { name, addend, mask } => {
                let base = addresses.get(name).copied().unwrap_or(0).wrapping_add(*addend as u64);
                // `0xFF00(symbol)` is one byte of the address.
                if *mask == u64::MAX { base } else { (base & mask) >> mask.trailing_zeros().min(63) }
            }
        };
        let from = i * element;
        let n = element.min(8);
        let Some(slot) = bytes.get_mut(from..from + n) else { return Err(CUDA_ERROR_INVALID_PTX) };
        slot.copy_from_slice(&value.to_le_bytes()[..n]);
    }
    // SAFETY: the caller just allocated `room` bytes at `at`.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, room) };
    Ok(())
}

impl Library {
    /// # Safety
    /// As `image::ptx_at` and `Jit::new`.
    fn load(text: &image::Text, jit: &Jit) -> R<Arc<Self>> {
        let ast = parse_ptx(text, jit)?;
        let l = Arc::new(Self { ast: ast.clone(), kernels: Mutex::default(), instances: Mutex::default() });
        let entries = ast.functions.iter().filter(|f| f.is_entry);
        let kernels: Vec<_> = entries
            .enumerate()
            .map(|(ordinal, f)| {
                let k = Arc::new(Kernel {
                    library: Arc::downgrade(&l),
                    name: CString::new(f.name.as_str()).unwrap_or_default(),
                    ordinal,
                    params: kernel_params(f).0,
                    dynamic_shared_max: AtomicI32::new(-1),
                });
                KERNELS.add::<CUkern_st>(&k);
                k
            })
            .collect();
        *l.kernels.lock().map_err(|_| CUDA_ERROR_UNKNOWN)? = kernels;
        LIBRARIES.add::<CUlib_st>(&l);
        Ok(l)
    }

    /// The library's module in a context, loaded on first use.
    fn instance(&self, c: &Arc<Context>) -> R<Arc<Module>> {
        let mut map = self.instances.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?;
        if let Some(m) = map.get(&c.id) {
            return Ok(m.clone());
        }
        let m = Module::load(c, &self.ast, true)?;
        for (k, f) in self.kernels.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?.iter().zip(&m.functions) {
            let max = k.dynamic_shared_max.load(Ordering::Relaxed);
            if max >= 0 {
                f.settings.dynamic_shared_max.store(max, Ordering::Relaxed);
            }
        }
        map.insert(c.id, m.clone());
        Ok(m)
    }
}

/// A context ends: its modules go with it.
pub fn unload_context(id: u64) {
    for m in MODULES.all().iter().filter(|m| m.context == id) {
        m.unload();
    }
    for l in LIBRARIES.all() {
        if let Ok(mut map) = l.instances.lock() {
            map.remove(&id);
        }
    }
}

fn kernel_function(k: &Kernel, c: &Arc<Context>) -> R<Arc<Function>> {
    let l = k.library.upgrade().ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    l.instance(c)?.functions.get(k.ordinal).cloned().ok_or(CUDA_ERROR_NOT_FOUND)
}

/// A function handle, which may also be a kernel handle: the runtime passes either.
pub fn resolve(f: CUfunction, c: Option<&Arc<Context>>) -> R<Arc<Function>> {
    if f.is_null() {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    if let Some(f) = FUNCTIONS.get(f) {
        return Ok(f);
    }
    let k = KERNELS.get(f.cast::<CUkern_st>()).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    match c {
        Some(c) => kernel_function(&k, c),
        None => kernel_function(&k, &context::current()?),
    }
}

/// Whether a launch of a function or kernel is refused, whatever else is asked of it. No other driver's handle is.
pub fn refuses(f: CUfunction) -> bool {
    resolve(f, None).is_ok_and(|f| f.program.funcs[f.index as usize].unsupported.is_some())
}

fn load_module(out: *mut CUmodule, text: &image::Text, jit: &Jit) -> R {
    let c = context::current()?;
    if out.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let ast = parse_ptx(text, jit)?;
    let m = Module::load(&c, &ast, false)?;
    // SAFETY: not null, and the caller's out parameter.
    unsafe { put(out, handle(&m)) }
}

fn read_file(name: *const c_char) -> R<image::Text> {
    // SAFETY: the caller's string.
    let name = unsafe { text(name)? };
    let bytes = std::fs::read(name).map_err(|_| CUDA_ERROR_FILE_NOT_FOUND)?;
    image::ptx_in(&bytes)
}

fn no_jit() -> Jit {
    Jit { options: Vec::new(), values: std::ptr::null_mut() }
}

pub fn function_attribute(f: &Function, attrib: CUfunction_attribute) -> R<c_int> {
    let func = &f.program.funcs[f.index as usize];
    let capability = (f.program.target / 10 * 10 + f.program.target % 10) as c_int;
    Ok(match attrib {
        CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK => func.max_threads.min(1024) as c_int,
        CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES => func.static_shared as c_int,
        CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES | CU_FUNC_ATTRIBUTE_CACHE_MODE_CA => 0,
        CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES => func.frame_bytes as c_int,
        // Virtual registers say nothing about what ptxas would need; a plausible number keeps occupancy sane.
        CU_FUNC_ATTRIBUTE_NUM_REGS => (func.rows32 + 2 * func.rows64).clamp(8, 64) as c_int,
        CU_FUNC_ATTRIBUTE_PTX_VERSION | CU_FUNC_ATTRIBUTE_BINARY_VERSION => {
            if attrib == CU_FUNC_ATTRIBUTE_BINARY_VERSION { crate::device::capability() as c_int } else { capability }
        }
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => f.dynamic_shared_max() as c_int,
        CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => f.settings.carveout.load(Ordering::Relaxed),
        CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET => c_int::from(func.explicit_cluster),
        CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH..=CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH => {
            let axis = (attrib - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH) as usize;
            f.required_cluster().map_or(0, |c| c[axis] as c_int)
        }
        CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED => f.settings.non_portable.load(Ordering::Relaxed),
        CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE => f.settings.cluster_policy.load(Ordering::Relaxed),
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    })
}

fn set_function_attribute(f: &Function, attrib: CUfunction_attribute, v: c_int) -> R {
    let func = &f.program.funcs[f.index as usize];
    match attrib {
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => {
            if v < 0 || v as u32 + func.static_shared > crate::device::SHARED_OPTIN {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            f.settings.dynamic_shared_max.store(v, Ordering::Relaxed);
        }
        CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => {
            if !(-1..=100).contains(&v) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            f.settings.carveout.store(v, Ordering::Relaxed);
        }
        CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED => f.settings.non_portable.store(v, Ordering::Relaxed),
        CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH..=CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH => {
            if func.req_cluster.is_some() {
                return Err(CUDA_ERROR_NOT_PERMITTED);
            }
            let axis = (attrib - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH) as usize;
            f.settings.required_cluster[axis].store(v, Ordering::Relaxed);
        }
        CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE => {
            f.settings.cluster_policy.store(v, Ordering::Relaxed);
        }
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    }
    Ok(())
}

fn param_info(params: &[Param], index: usize, offset: *mut usize, size: *mut usize) -> R {
    let p = params.get(index).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: the caller's out parameters; the size may be null.
    unsafe {
        put(offset, p.offset as usize)?;
        put_some(size, p.bytes as usize);
    }
    Ok(())
}

fn kernel_context(dev: CUdevice) -> R<Arc<Context>> {
    let dev = crate::device::check(dev)?;
    match context::current() {
        Ok(c) if c.device == dev => Ok(c),
        // Attributes are asked per device, also by threads that have no context on it.
        _ => context::retain_primary(dev),
    }
}

fn library(l: CUlibrary) -> R<Arc<Library>> {
    crate::device::initialised()?;
    LIBRARIES.get(l).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

fn kernel(k: CUkernel) -> R<Arc<Kernel>> {
    crate::device::initialised()?;
    KERNELS.get(k).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

/// Texts collected for `cuLinkComplete`, which puts one behind the other; loading links them.
struct Linker {
    inputs: Mutex<Vec<String>>,
    made_by: std::thread::ThreadId,
    output: Mutex<CString>,
}

static LINKERS: Registry<Linker> = Registry::new();

impl Linker {
    /// NVIDIA's linker allocates by thread, and crashes now and then if that is not heeded.
    fn check_thread(&self, name: &str) -> R {
        match std::thread::current().id() == self.made_by {
            true => Ok(()),
            false => refuse(name, "a link that another thread made, at which NVIDIA's driver may crash"),
        }
    }
}

fn link_add(state: CUlinkState, kind: CUjitInputType, text: R<image::Text>) -> R {
    let l = LINKERS.get(state).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    l.check_thread("cuLinkAddData")?;
    if !matches!(kind, CU_JIT_INPUT_PTX | CU_JIT_INPUT_FATBINARY) {
        return refuse("cuLinkAddData", "input other than PTX");
    }
    l.inputs.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?.push(text?.ptx);
    Ok(())
}

api! {
    fn cuModuleLoad(out: *mut CUmodule, name: *const c_char) {
        load_module(out, &read_file(name)?, &no_jit())
    }
    fn cuModuleLoadData(out: *mut CUmodule, data: *const c_void) {
        context::current()?;
        load_module(out, &image::ptx_at(data)?, &no_jit())
    }
    fn cuModuleLoadDataEx(
        out: *mut CUmodule,
        data: *const c_void,
        n: c_uint,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
    ) {
        context::current()?;
        load_module(out, &image::ptx_at(data)?, &Jit::new(n, options, values)?)
    }
    fn cuModuleLoadFatBinary(out: *mut CUmodule, data: *const c_void) {
        context::current()?;
        load_module(out, &image::ptx_at(data)?, &no_jit())
    }
    fn cuModuleUnload(h: CUmodule) {
        let c = context::current()?;
        let m = MODULES.get(h).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        if m.of_library {
            return Err(CUDA_ERROR_NOT_PERMITTED);
        }
        for s in c.every_stream() {
            s.wait_all();
        }
        m.unload();
        Ok(())
    }
    fn cuModuleGetLoadingMode(mode: *mut CUmoduleLoadingMode) {
        put(mode, if eager() { CU_MODULE_EAGER_LOADING } else { CU_MODULE_LAZY_LOADING })
    }
    fn cuModuleGetFunction(out: *mut CUfunction, h: CUmodule, name: *const c_char) {
        context::current()?;
        let m = MODULES.get(h).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        put(out, handle(&m.function(&text(name)?)?))
    }
    fn cuModuleGetFunctionCount(n: *mut c_uint, h: CUmodule) {
        put(n, MODULES.get(h).ok_or(CUDA_ERROR_INVALID_HANDLE)?.functions.len() as c_uint)
    }
    fn cuModuleEnumerateFunctions(out: *mut CUfunction, n: c_uint, h: CUmodule) {
        let m = MODULES.get(h).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        if out.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        for (i, f) in m.functions.iter().take(n as usize).enumerate() {
            put(out.add(i), handle(f))?;
        }
        Ok(())
    }
    fn cuModuleGetGlobal_v2(at: *mut CUdeviceptr, bytes: *mut usize, h: CUmodule, name: *const c_char) {
        context::current()?;
        let m = MODULES.get(h).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let (address, size) = *m.globals.get(&text(name)?).ok_or(CUDA_ERROR_NOT_FOUND)?;
        put_some(at, address);
        put_some(bytes, size as usize);
        Ok(())
    }
    fn cuLinkCreate_v2(_n: c_uint, _options: *mut CUjit_option, _values: *mut *mut c_void, out: *mut CUlinkState) {
        context::current()?;
        let (inputs, output) = (Mutex::default(), Mutex::default());
        let l = Arc::new(Linker { inputs, made_by: std::thread::current().id(), output });
        put(out, LINKERS.add(&l))
    }
    fn cuLinkAddData_v2(
        state: CUlinkState,
        kind: CUjitInputType,
        data: *mut c_void,
        size: usize,
        _name: *const c_char,
        _n: c_uint,
        _options: *mut CUjit_option,
        _values: *mut *mut c_void,
    ) {
        link_add(state, kind, image::ptx_in(&list(data.cast::<u8>(), size)?))
    }
    fn cuLinkAddFile_v2(
        state: CUlinkState,
        kind: CUjitInputType,
        path: *const c_char,
        _n: c_uint,
        _options: *mut CUjit_option,
        _values: *mut *mut c_void,
    ) {
        link_add(state, kind, read_file(path))
    }
    fn cuLinkComplete(state: CUlinkState, out: *mut *mut c_void, size: *mut usize) {
        let l = LINKERS.get(state).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        l.check_thread("cuLinkComplete")?;
        let all = l.inputs.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?.join(link::NEXT);
        let all = image::Text { ptx: all, compiled: false };
        parse_ptx(&all, &no_jit())?;
        let mut kept = l.output.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?;
        *kept = CString::new(all.ptx).map_err(|_| CUDA_ERROR_INVALID_PTX)?;
        put(out, kept.as_ptr().cast_mut().cast())?;
        put_some(size, kept.as_bytes_with_nul().len());
        Ok(())
    }
    fn cuLinkDestroy(state: CUlinkState) {
        LINKERS.get(state).ok_or(CUDA_ERROR_INVALID_HANDLE)?.check_thread("cuLinkDestroy")?;
        LINKERS.remove(state).ok_or(CUDA_ERROR_INVALID_HANDLE).map(drop)
    }
    fn cuLibraryLoadData(
        out: *mut CUlibrary,
        code: *const c_void,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
        n: c_uint,
        _library_options: *mut CUlibraryOption,
        _library_values: *mut *mut c_void,
        _library_n: c_uint,
    ) {
        crate::device::initialised()?;
        get(out)?;
        put(out, handle(&Library::load(&image::ptx_at(code)?, &Jit::new(n, options, values)?)?))
    }
    fn cuLibraryLoadFromFile(
        out: *mut CUlibrary,
        name: *const c_char,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
        n: c_uint,
        _library_options: *mut CUlibraryOption,
        _library_values: *mut *mut c_void,
        _library_n: c_uint,
    ) {
        crate::device::initialised()?;
        get(out)?;
        put(out, handle(&Library::load(&read_file(name)?, &Jit::new(n, options, values)?)?))
    }
    fn cuLibraryUnload(h: CUlibrary) {
        let l = library(h)?;
        LIBRARIES.remove(h);
        for k in l.kernels.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?.iter() {
            KERNELS.remove(Arc::as_ptr(k).cast_mut());
        }
        for (id, m) in l.instances.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?.drain() {
            if let Some(c) = context::by_id(id) {
                c.streams_of_all().iter().for_each(|s| s.wait_all());
            }
            m.unload();
        }
        Ok(())
    }
    fn cuLibraryGetKernel(out: *mut CUkernel, h: CUlibrary, name: *const c_char) {
        let (l, name) = (library(h)?, text(name)?);
        let kernels = l.kernels.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?;
        let k = kernels.iter().find(|k| k.name.to_bytes() == name.as_bytes()).ok_or(CUDA_ERROR_NOT_FOUND)?;
        put(out, handle(k))
    }
    fn cuLibraryGetKernelCount(n: *mut c_uint, h: CUlibrary) {
        put(n, library(h)?.kernels.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?.len() as c_uint)
    }
    fn cuLibraryEnumerateKernels(out: *mut CUkernel, n: c_uint, h: CUlibrary) {
        let l = library(h)?;
        for (i, k) in l.kernels.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?.iter().take(n as usize).enumerate() {
            put(out.add(i), handle(k))?;
        }
        Ok(())
    }
    fn cuLibraryGetModule(out: *mut CUmodule, h: CUlibrary) {
        let c = context::current()?;
        put(out, handle(&library(h)?.instance(&c)?))
    }
    fn cuLibraryGetGlobal(at: *mut CUdeviceptr, bytes: *mut usize, h: CUlibrary, name: *const c_char) {
        let c = context::current()?;
        let m = library(h)?.instance(&c)?;
        let (address, size) = *m.globals.get(&text(name)?).ok_or(CUDA_ERROR_NOT_FOUND)?;
        put_some(at, address);
        put_some(bytes, size as usize);
        Ok(())
    }
    fn cuLibraryGetManaged(at: *mut CUdeviceptr, bytes: *mut usize, h: CUlibrary, name: *const c_char) {
        let c = context::current()?;
        let (l, name) = (library(h)?, text(name)?);
        if !l.ast.variables.iter().any(|v| v.is_managed && v.name == name) {
            return Err(CUDA_ERROR_NOT_FOUND);
        }
        let m = l.instance(&c)?;
        let (address, size) = *m.globals.get(&name).ok_or(CUDA_ERROR_NOT_FOUND)?;
        put_some(at, address);
        put_some(bytes, size as usize);
        Ok(())
    }
    fn cuKernelGetFunction(out: *mut CUfunction, k: CUkernel) {
        let c = context::current()?;
        put(out, handle(&kernel_function(&*kernel(k)?, &c)?))
    }
    fn cuKernelGetLibrary(out: *mut CUlibrary, k: CUkernel) {
        put(out, handle(&kernel(k)?.library.upgrade().ok_or(CUDA_ERROR_INVALID_HANDLE)?))
    }
    fn cuKernelGetName(out: *mut *const c_char, k: CUkernel) {
        put(out, kernel(k)?.name.as_ptr())
    }
    fn cuKernelGetParamInfo(k: CUkernel, index: usize, offset: *mut usize, size: *mut usize) {
        param_info(&kernel(k)?.params, index, offset, size)
    }
    fn cuKernelGetAttribute(out: *mut c_int, attrib: CUfunction_attribute, k: CUkernel, dev: CUdevice) {
        let f = kernel_function(&*kernel(k)?, &kernel_context(dev)?)?;
        put(out, function_attribute(&f, attrib)?)
    }
    fn cuKernelSetAttribute(attrib: CUfunction_attribute, v: c_int, k: CUkernel, dev: CUdevice) {
        let k = kernel(k)?;
        let f = kernel_function(&k, &kernel_context(dev)?)?;
        set_function_attribute(&f, attrib, v)?;
        if attrib == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES {
            k.dynamic_shared_max.store(v, Ordering::Relaxed);
        }
        Ok(())
    }
    fn cuKernelSetCacheConfig(k: CUkernel, _config: CUfunc_cache, dev: CUdevice) {
        crate::device::check(dev)?;
        kernel(k).map(drop)
    }
    fn cuFuncGetAttribute(out: *mut c_int, attrib: CUfunction_attribute, f: CUfunction) {
        put(out, function_attribute(&*resolve(f, None)?, attrib)?)
    }
    fn cuFuncSetAttribute(f: CUfunction, attrib: CUfunction_attribute, v: c_int) {
        set_function_attribute(&*resolve(f, None)?, attrib, v)
    }
    fn cuFuncSetCacheConfig(f: CUfunction, _config: CUfunc_cache) {
        resolve(f, None).map(drop)
    }
    fn cuFuncSetSharedMemConfig(f: CUfunction, _config: CUsharedconfig) {
        resolve(f, None).map(drop)
    }
    fn cuFuncGetModule(out: *mut CUmodule, f: CUfunction) {
        let m = resolve(f, None)?.module.upgrade().ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        put(out, handle(&m))
    }
    fn cuFuncGetName(out: *mut *const c_char, f: CUfunction) {
        put(out, resolve(f, None)?.name.as_ptr())
    }
    fn cuFuncGetParamInfo(f: CUfunction, index: usize, offset: *mut usize, size: *mut usize) {
        let f = resolve(f, None)?;
        param_info(&f.program.funcs[f.index as usize].params, index, offset, size)
    }
    fn cuFuncIsLoaded(state: *mut CUfunctionLoadingState, f: CUfunction) {
        let loaded = resolve(f, None)?.settings.loaded.load(Ordering::Relaxed);
        put(state, if loaded { CU_FUNCTION_LOADING_STATE_LOADED } else { CU_FUNCTION_LOADING_STATE_UNLOADED })
    }
    fn cuFuncLoad(f: CUfunction) {
        resolve(f, None)?.settings.load();
        Ok(())
    }
}

impl Module {
    /// The kernels' syntax, for tests that look at what was parsed.
    pub fn syntax(&self) -> &parse::Module {
        &self.ast
    }
}
