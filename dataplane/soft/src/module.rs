//! Modules, libraries, kernels and functions, as they are loaded.

// UNSAFETY: writes the first values of variables into memory that was just allocated.

use std::collections::HashMap;
use std::ffi::{CString, c_int};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use orion_cuda::sys::*;

use crate::api::{R, Registry};
use crate::code::{Code, Source};
use crate::context::{self, Context};
use crate::ptx::decode::decoder::Globals;
use crate::ptx::decode::program::max_threads;
use crate::ptx::isa::operand::{Space, Ty};
use crate::ptx::isa::program::{Func, Param, function_address};
use crate::ptx::parse;
use crate::ptx::syntax::{Init, Linkage, Variable};
use crate::vram::{self, Kind};
use crate::{device, image, memory};

pub struct Module {
    pub context: u64,
    source: Arc<Source>,
    pub globals: HashMap<String, (u64, u64)>,
    own: Placed,
    pub functions: Vec<Arc<Function>>,
    /// Owned by a library, which unloads it.
    pub of_library: bool,
}

pub struct Function {
    pub module: Weak<Module>,
    source: Arc<Source>,
    code: OnceLock<Code>,
    pub index: u32,
    pub context: u64,
    pub name: CString,
    pub settings: Settings,
}

impl Function {
    /// Reads what the kernel needs of its text when asked for the first time.
    pub fn code(&self) -> &Code {
        self.code.get_or_init(|| self.source.code(self.index as usize))
    }

    /// The kernel in its code.
    pub fn func(&self) -> &Func {
        &self.code().program.funcs[self.index as usize]
    }

    /// `kernel K from libx.so`.
    pub fn told(&self) -> String {
        format!("kernel {}{}", self.declared().name, image::from(&self.source.ast.owner))
    }

    /// What the text says ahead of the kernel's body.
    pub fn declared(&self) -> &parse::Function {
        &self.source.ast.functions[self.index as usize]
    }
}

/// What `cuFuncSetAttribute` can change.
pub struct Settings {
    /// Negative until set.
    pub dynamic_shared_max: AtomicI32,
    pub carveout: AtomicI32,
    pub cluster_policy: AtomicI32,
    pub non_portable: AtomicI32,
    /// Zeroes where the kernel does not say which cluster it requires.
    pub required_cluster: [AtomicI32; 3],
    pub loaded: AtomicBool,
    /// What `cuLaunch` launches it with.
    pub prepared: Mutex<Prepared>,
    /// Something of that was set, so that other launches change it.
    pub is_prepared: AtomicBool,
}

/// Set by calls that CUDA 4.0 deprecated.
#[derive(Clone)]
pub struct Prepared {
    pub block: [u32; 3],
    pub shared: u32,
    /// Compared with what the kernel takes, and nothing else.
    pub param_bytes: usize,
    /// Zeros behind its end.
    pub values: Vec<u8>,
}

impl Function {
    /// The cluster that the kernel's code or `cuFuncSetAttribute` requires.
    pub fn required_cluster(&self) -> Option<[u32; 3]> {
        let set = || self.settings.required_cluster.each_ref().map(|n| n.load(Ordering::Relaxed) as u32);
        self.declared().req_cluster.or_else(|| Some(set()).filter(|c| *c != [0; 3]))
    }
}

/// `CUDA_MODULE_LOADING`, as it is when the first module is loaded.
pub(crate) fn eager() -> bool {
    static EAGER: OnceLock<bool> = OnceLock::new();
    *EAGER.get_or_init(|| std::env::var("CUDA_MODULE_LOADING").is_ok_and(|v| v == "EAGER"))
}

impl Settings {
    /// There is nothing to bring to a device of its own; but programs see when a GPU would have been brought it.
    pub fn load(&self) {
        self.loaded.store(true, Ordering::Relaxed);
    }

    pub(crate) fn new() -> Self {
        Self {
            dynamic_shared_max: AtomicI32::new(-1),
            carveout: AtomicI32::new(-1),
            cluster_policy: AtomicI32::new(0),
            non_portable: AtomicI32::new(0),
            required_cluster: Default::default(),
            loaded: AtomicBool::new(eager()),
            prepared: Mutex::new(Prepared { block: [1; 3], shared: 0, param_bytes: 0, values: Vec::new() }),
            is_prepared: AtomicBool::new(false),
        }
    }
}

impl Function {
    /// Bytes of dynamic shared memory a launch may ask for. Until set, static and dynamic fit the default together.
    pub fn dynamic_shared_max(&self) -> u32 {
        let fixed = self.func().static_shared;
        let set = self.settings.dynamic_shared_max.load(Ordering::Relaxed);
        u32::try_from(set).unwrap_or(crate::device::SHARED_DEFAULT.saturating_sub(fixed))
    }
}

pub struct Library {
    pub ast: Arc<parse::Module>,
    pub kernels: Mutex<Vec<Arc<Kernel>>>,
    pub instances: Mutex<HashMap<u64, Arc<Module>>>,
    /// Its managed variables, once it has an instance.
    pub managed: Mutex<Option<Placed>>,
}

pub struct Kernel {
    pub library: Weak<Library>,
    pub name: CString,
    /// Position among the library's kernels, which is the position among a module's functions.
    pub ordinal: usize,
    pub params: Vec<Param>,
    /// Applied to each context's function when it is made.
    pub dynamic_shared_max: AtomicI32,
}

pub static MODULES: Registry<Module> = Registry::new();

pub static FUNCTIONS: Registry<Function> = Registry::new();

pub static LIBRARIES: Registry<Library> = Registry::new();

pub static KERNELS: Registry<Kernel> = Registry::new();

/// Variables that have a place: which, and where. The memory is theirs.
#[derive(Default)]
pub struct Placed {
    layout: Vec<(usize, u64)>,
    memory: Vec<u64>,
}

impl Placed {
    fn new(
        ast: &parse::Module,
        which: impl Fn(&Variable) -> bool,
        allocate: impl FnOnce(u64) -> R<vram::Range>,
    ) -> R<Placed> {
        let (mut layout, mut top) = (Vec::new(), 0u64);
        for (i, v) in ast.variables.iter().enumerate() {
            if matches!(v.space, Space::Global | Space::Const) && v.linkage != Linkage::Extern && which(v) {
                // Variables that share a block are kept apart, so that a small overrun stays inside the gap.
                top = top.next_multiple_of(u64::from(v.align.max(16)));
                layout.push((i, top));
                top += v.bytes().max(1);
            }
        }
        let memory = if top > 0 { vec![allocate(top)?.base] } else { Vec::new() };
        layout.iter_mut().for_each(|(_, at)| *at += memory[0]);
        Ok(Placed { layout, memory })
    }

    fn add(&mut self, other: Placed) {
        self.layout.extend(other.layout);
        self.memory.extend(other.memory);
    }

    /// Managed variables of a library, which are the same in all contexts and outlive each.
    fn of_library(ast: &parse::Module, device: CUdevice) -> R<Placed> {
        let placed =
            Placed::new(ast, |v| v.is_managed, |bytes| memory::allocate_for_all(device, bytes, Kind::Managed))?;
        let addresses = placed.layout.iter().map(|(i, at)| (ast.variables[*i].name.clone(), *at)).collect();
        for &(i, at) in &placed.layout {
            initialise(&ast.variables[i], at, &addresses)?;
        }
        Ok(placed)
    }

    pub(crate) fn give_back(&self) {
        for range in self.memory.iter().filter_map(|base| vram::find(*base)) {
            memory::drop_range(&range);
        }
    }
}

impl Module {
    /// `shared` are the managed variables of its library, if it is one's.
    pub fn load(c: &Arc<Context>, ast: &Arc<parse::Module>, shared: Option<&Placed>) -> R<Arc<Self>> {
        let mut own = Placed::new(ast, |v| !v.is_managed, |bytes| memory::allocate(c, bytes, Kind::Internal))?;
        if shared.is_none() {
            own.add(Placed::new(ast, |v| v.is_managed, |bytes| memory::allocate(c, bytes, Kind::Managed))?);
        }
        let all = own.layout.iter().chain(shared.iter().flat_map(|shared| &shared.layout));
        let globals: HashMap<String, (u64, u64)> =
            all.map(|&(i, at)| (ast.variables[i].name.clone(), (at, ast.variables[i].bytes()))).collect();
        let mut addresses: Globals = globals.iter().map(|(n, (at, _))| (n.clone(), *at)).collect();
        for (i, f) in ast.functions.iter().enumerate() {
            addresses.insert(f.name.clone(), function_address(i));
        }
        for &(i, at) in &own.layout {
            initialise(&ast.variables[i], at, &addresses)?;
        }
        let source = Arc::new(Source::new(ast.clone(), addresses));
        let m = Arc::new_cyclic(|me: &Weak<Self>| Self {
            context: c.id,
            source: source.clone(),
            globals,
            own,
            functions: (0u32..)
                .zip(&ast.functions)
                .filter(|(_, f)| f.is_entry)
                .map(|(index, f)| {
                    Arc::new(Function {
                        module: me.clone(),
                        source: source.clone(),
                        code: OnceLock::new(),
                        index,
                        context: c.id,
                        name: CString::new(f.name.as_str()).unwrap_or_default(),
                        settings: Settings::new(),
                    })
                })
                .collect(),
            of_library: shared.is_some(),
        });
        MODULES.add::<CUmod_st>(&m);
        for f in &m.functions {
            FUNCTIONS.add::<CUfunc_st>(f);
        }
        Ok(m)
    }

    pub(crate) fn unload(self: &Arc<Self>) {
        MODULES.remove(Arc::as_ptr(self).cast_mut());
        for f in &self.functions {
            FUNCTIONS.remove(Arc::as_ptr(f).cast_mut());
        }
        self.own.give_back();
    }

    pub(crate) fn function(&self, name: &str) -> R<Arc<Function>> {
        self.functions.iter().find(|f| f.name.to_bytes() == name.as_bytes()).cloned().ok_or(CUDA_ERROR_NOT_FOUND)
    }
}

fn initialise(v: &Variable, at: u64, addresses: &Globals) -> R {
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
    /// The library's module in a context, loaded on first use.
    pub(crate) fn instance(&self, c: &Arc<Context>) -> R<Arc<Module>> {
        let mut map = self.instances.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?;
        if let Some(m) = map.get(&c.id) {
            return Ok(m.clone());
        }
        let mut managed = self.managed.lock().map_err(|_| CUDA_ERROR_UNKNOWN)?;
        if managed.is_none() {
            *managed = Some(Placed::of_library(&self.ast, c.device)?);
        }
        let m = Module::load(c, &self.ast, managed.as_ref())?;
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

pub(crate) fn kernel_function(k: &Kernel, c: &Arc<Context>) -> R<Arc<Function>> {
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
    resolve(f, None).is_ok_and(|f| f.func().unsupported.is_some())
}

impl Module {
    /// The kernels' syntax, for tests that look at what was parsed.
    pub fn syntax(&self) -> &parse::Module {
        &self.source.ast
    }
}

pub fn function_attribute(f: &Function, attrib: CUfunction_attribute) -> R<c_int> {
    let declared = f.declared();
    Ok(match attrib {
        CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK => max_threads(declared).min(1024) as c_int,
        CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES => f.func().static_shared as c_int,
        CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES | CU_FUNC_ATTRIBUTE_CACHE_MODE_CA => 0,
        CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES => f.func().frame_bytes as c_int,
        // Virtual registers say nothing about what ptxas would need; a plausible number keeps occupancy sane.
        CU_FUNC_ATTRIBUTE_NUM_REGS => (f.func().rows32 + 2 * f.func().rows64).clamp(8, 64) as c_int,
        CU_FUNC_ATTRIBUTE_PTX_VERSION => f.source.ast.target as c_int,
        CU_FUNC_ATTRIBUTE_BINARY_VERSION => device::capability() as c_int,
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => f.dynamic_shared_max() as c_int,
        CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => f.settings.carveout.load(Ordering::Relaxed),
        CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET => c_int::from(declared.explicit_cluster),
        CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH..=CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH => {
            let axis = (attrib - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH) as usize;
            f.required_cluster().map_or(0, |c| c[axis] as c_int)
        }
        CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED => f.settings.non_portable.load(Ordering::Relaxed),
        CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE => f.settings.cluster_policy.load(Ordering::Relaxed),
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    })
}
