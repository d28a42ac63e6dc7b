//! Resolves names and turns parsed functions into `isa` code.
//!
//! An instruction this file does not know marks its function `unsupported` and nothing else: a module often carries
//! kernels that the program never launches.

mod cluster;
pub mod matrix;
pub mod narrow;
mod packed;
mod prologue;
mod rows;
pub mod texture;
pub mod video;

use std::collections::{HashMap, HashSet};

use super::isa::*;
use super::parse::{Function, Instruction, Linkage, Module, Operand, Stmt, Variable};

type Result<T> = core::result::Result<T, String>;

/// Addresses of the module's global and constant variables in the context it is loaded in.
pub type Globals = HashMap<String, u64>;

pub fn function_address(index: usize) -> u64 {
    FUNCTION_WINDOW + 16 * (index as u64 + 1)
}

pub fn function_index(address: u64, count: usize) -> Option<u32> {
    let index = address.checked_sub(FUNCTION_WINDOW)? / 16;
    (index >= 1 && index <= count as u64 && address.is_multiple_of(16)).then(|| index as u32 - 1)
}

fn align_up(v: u32, align: u32) -> u32 {
    let a = align.max(1);
    v.div_ceil(a).saturating_mul(a)
}

/// Offsets and sizes of a kernel's parameters, as `cuFuncGetParamInfo` reports them.
pub fn kernel_params(f: &Function) -> (Vec<Param>, u32) {
    let mut at = 0u32;
    let mut out = Vec::new();
    for v in &f.params {
        at = align_up(at, v.align);
        let bytes = v.bytes() as u32;
        out.push(Param { offset: at, bytes });
        at += bytes;
    }
    (out, at)
}

pub fn decode(module: &Module, globals: &Globals) -> Program {
    let mut program = Program { target: module.target, version: module.version, ..Program::default() };
    let names: HashMap<&str, usize> = module.functions.iter().enumerate().map(|(i, f)| (f.name.as_str(), i)).collect();
    let mut names = names;
    for (alias, target) in &module.aliases {
        if let Some(&i) = names.get(target.as_str()) {
            names.insert(alias, i);
        }
    }
    let layout = SharedLayout::new(module, &names);
    let mut calls: Vec<Vec<u32>> = Vec::new();
    for (index, f) in module.functions.iter().enumerate() {
        let mut func = Func { name: f.name.clone(), is_entry: f.is_entry, ..Func::default() };
        let start = program.code.len();
        func.entry = start as u32;
        let mut d = Decoder::new(module, index, f, &names, globals, &layout, start);
        let outcome = if !f.has_body {
            Err(undefined(&f.name))
        } else if f.blocks_are_clusters {
            unsupported(".blocksareclusters: a grid that counts clusters")
        } else {
            d.function(&mut func)
        };
        match outcome {
            Ok(()) => {
                if f.is_entry {
                    prologue::gather(&mut d.code, start, &mut func, kernel_params(f).1);
                }
                rows::share(&mut d.code, start, &mut func);
                program.code.append(&mut d.code);
            }
            Err(why) => func.unsupported = Some(why),
        }
        if f.is_entry {
            (func.params, func.param_bytes) = kernel_params(f);
            func.static_shared = layout.entry_bytes.get(&index).copied().unwrap_or(0);
        }
        func.max_threads = f.max_ntid.or(f.req_ntid).map_or(1024, |d| d[0].saturating_mul(d[1]).saturating_mul(d[2]));
        func.req_ntid = f.req_ntid;
        func.req_cluster = f.req_cluster;
        func.explicit_cluster = f.explicit_cluster;
        func.max_cluster = f.max_cluster;
        calls.push(d.calls);
        program.funcs.push(func);
    }
    spread_unsupported(&mut program.funcs, &calls);
    program.fast = crate::exec::fast::Table::new(&program.code);
    program
}

fn undefined(name: &str) -> String {
    // The device runtime's names are C's, which no function of a C++ program has.
    if name.starts_with("cuda") || name.starts_with("__cuda") {
        format!("dynamic parallelism ({name})")
    } else {
        format!("{name} is not defined")
    }
}

/// A function that calls one that cannot run cannot run either.
fn spread_unsupported(funcs: &mut [Func], calls: &[Vec<u32>]) {
    loop {
        let mut changed = false;
        for i in 0..funcs.len() {
            if funcs[i].unsupported.is_some() {
                continue;
            }
            let why = calls[i].iter().find_map(|&c| funcs[c as usize].unsupported.clone());
            if why.is_some() {
                funcs[i].unsupported = why;
                changed = true;
            }
        }
        if !changed {
            return;
        }
    }
}

/// Static shared memory per kernel: variables only one kernel can reach overlap between kernels, as ptxas does it.
struct SharedLayout {
    /// Keyed by function index (or `usize::MAX` for module scope) and name.
    offsets: HashMap<(usize, String), u32>,
    externs: HashSet<String>,
    entry_bytes: HashMap<usize, u32>,
}

impl SharedLayout {
    fn new(module: &Module, names: &HashMap<&str, usize>) -> Self {
        let mut vars: Vec<(usize, &Variable)> =
            module.variables.iter().filter(|v| v.space == Space::Shared).map(|v| (usize::MAX, v)).collect();
        for (i, f) in module.functions.iter().enumerate() {
            for s in &f.body {
                if let Stmt::Var(v) = s
                    && v.space == Space::Shared
                {
                    vars.push((i, v));
                }
            }
        }
        let mut layout = Self { offsets: HashMap::new(), externs: HashSet::new(), entry_bytes: HashMap::new() };
        vars.retain(|(_, v)| {
            let dynamic = v.linkage == Linkage::Extern || v.count.is_none();
            if dynamic {
                layout.externs.insert(v.name.clone());
            }
            !dynamic
        });
        if vars.is_empty() {
            return layout;
        }
        let interesting: HashSet<&str> = vars.iter().map(|(_, v)| v.name.as_str()).collect();
        let mentions: Vec<(HashSet<usize>, HashSet<&str>)> = module
            .functions
            .iter()
            .map(|f| {
                let (mut called, mut used) = (HashSet::new(), HashSet::new());
                for s in &f.body {
                    if let Stmt::Instruction(i) = s {
                        for o in &i.operands {
                            visit_names(o, &mut |n| {
                                if let Some(&t) = names.get(n) {
                                    called.insert(t);
                                }
                                if let Some(&n) = interesting.get(n) {
                                    used.insert(n);
                                }
                            });
                        }
                    }
                }
                (called, used)
            })
            .collect();
        let mut users: Vec<Vec<usize>> = vec![Vec::new(); vars.len()];
        for (entry, f) in module.functions.iter().enumerate() {
            if !f.is_entry {
                continue;
            }
            let mut reached = HashSet::from([entry]);
            let mut queue = vec![entry];
            while let Some(i) = queue.pop() {
                for &c in &mentions[i].0 {
                    if reached.insert(c) {
                        queue.push(c);
                    }
                }
            }
            for (k, (owner, v)) in vars.iter().enumerate() {
                let uses = if *owner == usize::MAX {
                    reached.iter().any(|&i| mentions[i].1.contains(v.name.as_str()))
                } else {
                    reached.contains(owner)
                };
                if uses {
                    users[k].push(entry);
                }
            }
        }
        let mut common = 0;
        for (k, (owner, v)) in vars.iter().enumerate() {
            if users[k].len() > 1 {
                common = align_up(common, v.align);
                layout.offsets.insert((*owner, v.name.clone()), common);
                common += v.bytes() as u32;
                for &e in &users[k] {
                    layout.entry_bytes.insert(e, 0);
                }
            }
        }
        for bytes in layout.entry_bytes.values_mut() {
            *bytes = common;
        }
        for (k, (owner, v)) in vars.iter().enumerate() {
            match users[k].as_slice() {
                [entry] => {
                    let top = layout.entry_bytes.entry(*entry).or_insert(0);
                    let at = align_up(*top, v.align);
                    *top = at + v.bytes() as u32;
                    layout.offsets.insert((*owner, v.name.clone()), at);
                }
                [] => {
                    layout.offsets.insert((*owner, v.name.clone()), 0);
                }
                _ => {}
            }
        }
        layout
    }
}

fn visit_names<'a>(o: &'a Operand, f: &mut impl FnMut(&'a str)) {
    match o {
        Operand::Name(n) | Operand::Offset(n, _) => f(n),
        Operand::Addr(b, _) => visit_names(b, f),
        Operand::Not(b) | Operand::Negated(b) => visit_names(b, f),
        Operand::Vec(v) | Operand::Paren(v) => v.iter().for_each(|o| visit_names(o, f)),
        Operand::Pair(a, b) => {
            visit_names(a, f);
            visit_names(b, f);
        }
        _ => {}
    }
}

#[derive(Clone, Copy)]
enum Binding {
    Reg(Reg),
    /// A register of 128 bits: the first of its two rows.
    Pair(u32),
    /// Offset and size inside the frame.
    Local(u32, u32),
    KernelParam(u32),
    Unusable,
}

#[derive(Clone, Copy)]
struct Range {
    ty: Ty,
    vector: u32,
    first: u32,
    count: u32,
}

#[derive(Default)]
struct Scope {
    names: HashMap<String, Binding>,
    ranges: HashMap<String, Range>,
    local_top: u32,
}

struct Decoder<'a> {
    module: &'a Module,
    index: usize,
    f: &'a Function,
    names: &'a HashMap<&'a str, usize>,
    globals: &'a Globals,
    layout: &'a SharedLayout,
    code: Vec<Instr>,
    base: usize,
    scopes: Vec<Scope>,
    scope_path: Vec<usize>,
    scope_count: usize,
    labels: HashMap<(usize, String), u32>,
    targets: HashMap<String, Vec<String>>,
    fixups: Vec<(usize, usize, String, Vec<usize>)>,
    rows32: u32,
    rows64: u32,
    preds: u32,
    local_top: u32,
    local_max: u32,
    returns: Vec<(u32, u32)>,
    calls: Vec<u32>,
    line: u32,
    scratch: Vec<u32>,
    scratch_used: usize,
}

/// The dotted parts of an opcode after the mnemonic.
struct Mods<'a>(Vec<&'a str>);

impl Mods<'_> {
    fn has(&self, m: &str) -> bool {
        self.0.contains(&m)
    }
    fn without(&self, m: &str) -> Self {
        Self(self.0.iter().copied().filter(|x| *x != m).collect())
    }
    fn types(&self) -> Vec<Ty> {
        self.0.iter().filter_map(|m| Ty::from_name(m)).collect()
    }
    fn ty(&self) -> Result<Ty> {
        self.types().last().copied().ok_or_else(|| "no operand type".to_string())
    }
    fn round(&self) -> Option<Round> {
        self.0.iter().find_map(|m| {
            Some(match *m {
                "rn" | "rni" => Round::Nearest,
                "rz" | "rzi" => Round::Zero,
                "rm" | "rmi" => Round::Down,
                "rp" | "rpi" => Round::Up,
                "rna" => Round::Away,
                _ => return None,
            })
        })
    }
    fn fp(&self) -> Fp {
        Fp {
            round: self.round().unwrap_or(Round::Nearest),
            ftz: self.has("ftz"),
            sat: self.has("sat"),
            relu: self.has("relu"),
            finite: self.has("satfinite"),
        }
    }
    /// Arithmetic with a modifier that this file does not know may mean anything.
    fn all_known(&self) -> Result<()> {
        let is_known = |m: &str| {
            Ty::from_name(m).is_some()
                || matches!(
                    m,
                    "rn" | "rz" | "rm" | "rp" | "rna" | "rni" | "rzi" | "rmi" | "rpi" | "ftz" | "sat" | "relu"
                )
                || matches!(
                    m,
                    "satfinite" | "approx" | "full" | "NaN" | "abs" | "xorsign" | "lo" | "hi" | "wide" | "cc"
                )
                || matches!(m, "eq" | "ne" | "lt" | "le" | "gt" | "ge" | "ls" | "hs" | "equ" | "neu" | "ltu" | "leu")
                || matches!(m, "gtu" | "geu" | "num" | "nan" | "and" | "or" | "xor" | "shiftamt" | "pack")
        };
        match self.0.iter().find(|m| !is_known(m)) {
            None => Ok(()),
            Some(m) => Err(format!("modifier .{m}")),
        }
    }
    fn space(&self) -> Result<Space> {
        for m in &self.0 {
            return Ok(match *m {
                "global" => Space::Global,
                "const" => Space::Const,
                "shared" | "shared::cta" | "shared::cluster" => Space::Shared,
                "local" => Space::Local,
                "param" | "param::entry" | "param::func" => Space::Param,
                _ => continue,
            });
        }
        Ok(Space::Generic)
    }
    fn logic(&self) -> Option<Logic> {
        self.0.iter().find_map(|m| match *m {
            "and" => Some(Logic::And),
            "or" => Some(Logic::Or),
            "xor" => Some(Logic::Xor),
            _ => None,
        })
    }
    fn cmp(&self, ty: Ty) -> Result<Cmp> {
        for m in &self.0 {
            return Ok(match *m {
                "eq" => Cmp::Eq,
                "ne" => Cmp::Ne,
                "lt" | "lo" => Cmp::Lt,
                "le" | "ls" => Cmp::Le,
                "gt" | "hi" => Cmp::Gt,
                "ge" | "hs" => Cmp::Ge,
                "equ" => Cmp::Equ,
                "neu" => Cmp::Neu,
                "ltu" => Cmp::Ltu,
                "leu" => Cmp::Leu,
                "gtu" => Cmp::Gtu,
                "geu" => Cmp::Geu,
                "num" => Cmp::Num,
                "nan" => Cmp::Nan,
                _ => continue,
            });
        }
        Err(format!("no comparison for {ty:?}"))
    }
}

fn unsupported<T>(what: &str) -> Result<T> {
    Err(what.to_string())
}

impl<'a> Decoder<'a> {
    fn new(
        module: &'a Module,
        index: usize,
        f: &'a Function,
        names: &'a HashMap<&'a str, usize>,
        globals: &'a Globals,
        layout: &'a SharedLayout,
        base: usize,
    ) -> Self {
        Self {
            module,
            index,
            f,
            names,
            globals,
            layout,
            code: Vec::new(),
            base,
            scopes: vec![Scope::default()],
            scope_path: vec![0],
            scope_count: 1,
            labels: HashMap::new(),
            targets: HashMap::new(),
            fixups: Vec::new(),
            rows32: 0,
            rows64: 0,
            preds: 0,
            local_top: 0,
            local_max: 0,
            returns: Vec::new(),
            calls: Vec::new(),
            line: 0,
            scratch: Vec::new(),
            scratch_used: 0,
        }
    }

    fn function(&mut self, func: &mut Func) -> Result<()> {
        if self.f.is_entry {
            let (params, _) = kernel_params(self.f);
            for (v, p) in self.f.params.iter().zip(params) {
                self.scopes[0].names.insert(v.name.clone(), Binding::KernelParam(p.offset));
            }
        } else {
            for v in &self.f.returns {
                let at = self.local(v);
                func.returns.push(Param { offset: at, bytes: v.bytes() as u32 });
                self.returns.push((at, v.bytes() as u32));
            }
            for v in &self.f.params {
                let at = self.local(v);
                func.params.push(Param { offset: at, bytes: v.bytes() as u32 });
            }
        }
        let body = &self.f.body;
        for s in body {
            self.statement(s).map_err(|e| if self.line > 0 { format!("{e} (PTX line {})", self.line) } else { e })?;
        }
        // Falling off the end of a body returns.
        self.emit(Op::Ret);
        for (at, slot, name, path) in std::mem::take(&mut self.fixups) {
            let target = path
                .iter()
                .rev()
                .find_map(|s| self.labels.get(&(*s, name.clone())))
                .copied()
                .ok_or_else(|| format!("label {name} is not defined"))?;
            match &mut self.code[at].op {
                Op::Bra(t) => *t = target,
                Op::BrxIdx(ts) => ts[slot] = target,
                _ => {}
            }
        }
        func.rows32 = self.rows32;
        func.rows64 = self.rows64;
        func.preds = self.preds;
        func.frame_bytes = align_up(self.local_max, 16);
        Ok(())
    }

    fn local(&mut self, v: &Variable) -> u32 {
        let at = align_up(self.local_top, v.align);
        let bytes = v.bytes() as u32;
        self.local_top = at.saturating_add(bytes);
        self.local_max = self.local_max.max(self.local_top);
        self.top().names.insert(v.name.clone(), Binding::Local(at, bytes));
        at
    }

    fn top(&mut self) -> &mut Scope {
        self.scopes.last_mut().expect("a function has an outermost scope")
    }

    fn new_reg(&mut self, ty: Ty, n: u32) -> u32 {
        let counter = match ty {
            Ty::Pred => &mut self.preds,
            t if t.bytes() >= 8 => &mut self.rows64,
            _ => &mut self.rows32,
        };
        let first = *counter;
        *counter += if ty == Ty::B128 { 2 * n } else { n };
        first
    }

    /// Register `n` of those that begin at row `first`.
    fn register(ty: Ty, first: u32, n: u32) -> Binding {
        Binding::Reg(match ty {
            Ty::B128 => return Binding::Pair(first + 2 * n),
            Ty::Pred => Reg::P(first + n),
            t if t.bytes() == 8 => Reg::R64(first + n),
            _ => Reg::R32(first + n),
        })
    }

    fn statement(&mut self, s: &'a Stmt) -> Result<()> {
        match s {
            Stmt::Open => {
                self.scope_path.push(self.scope_count);
                self.scope_count += 1;
                let local_top = self.local_top;
                self.scopes.push(Scope { local_top, ..Scope::default() });
            }
            Stmt::Close => {
                self.scope_path.pop();
                if let Some(s) = self.scopes.pop() {
                    // Call arguments live in call scopes; the next call reuses their bytes.
                    self.local_top = s.local_top;
                }
            }
            Stmt::Reg { ty, vector, name, count } => {
                let usable = *vector == 1;
                match count {
                    Some(n) => {
                        let first = if usable { self.new_reg(*ty, *n) } else { 0 };
                        let r = Range { ty: *ty, vector: *vector, first, count: *n };
                        self.top().ranges.insert(name.clone(), r);
                    }
                    None => {
                        let b = if usable { Self::register(*ty, self.new_reg(*ty, 1), 0) } else { Binding::Unusable };
                        self.top().names.insert(name.clone(), b);
                    }
                }
            }
            Stmt::Var(v) => match v.space {
                Space::Local | Space::Param => {
                    self.local(v);
                }
                Space::Shared => {}
                _ => {}
            },
            Stmt::Label(name) => {
                let scope = *self.scope_path.last().expect("outermost scope");
                self.labels.insert((scope, name.clone()), (self.base + self.code.len()) as u32);
            }
            Stmt::Targets(name, list) => {
                self.targets.insert(name.clone(), list.clone());
            }
            Stmt::Instruction(i) => {
                self.line = i.line;
                let before = self.code.len();
                self.instruction(i).map_err(|e| format!("{}: {e}", i.opcode))?;
                if let Some((p, negated)) = &i.guard {
                    let Src::P(p, _) = self.name(p)? else { return unsupported("guard is not a predicate") };
                    for ins in &mut self.code[before..] {
                        ins.guard = p;
                        ins.guard_negated = *negated;
                    }
                }
            }
        }
        Ok(())
    }

    fn emit(&mut self, op: Op) -> &mut Instr {
        self.code.push(Instr {
            op,
            guard: u32::MAX,
            guard_negated: false,
            d: Reg::None,
            d2: Reg::None,
            a: Src::None,
            b: Src::None,
            c: Src::None,
            e: Src::None,
            line: self.line,
        });
        self.code.last_mut().expect("just pushed")
    }

    fn binding(&self, name: &str) -> Option<Binding> {
        for s in self.scopes.iter().rev() {
            if let Some(b) = s.names.get(name) {
                return Some(*b);
            }
        }
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        if stem.len() == name.len() {
            return None;
        }
        let n: u32 = name[stem.len()..].parse().ok()?;
        for s in self.scopes.iter().rev() {
            if let Some(r) = s.ranges.get(stem) {
                if n >= r.count {
                    return None;
                }
                let usable = r.vector == 1;
                return Some(if usable { Self::register(r.ty, r.first, n) } else { Binding::Unusable });
            }
        }
        None
    }

    fn name(&self, name: &str) -> Result<Src> {
        if let Some(b) = self.binding(name) {
            return match b {
                Binding::Reg(Reg::R32(r)) => Ok(Src::R32(r)),
                Binding::Reg(Reg::R64(r)) => Ok(Src::R64(r)),
                Binding::Reg(Reg::P(r)) => Ok(Src::P(r, false)),
                Binding::Reg(Reg::None) => Ok(Src::None),
                Binding::Local(at, _) => Ok(Src::Local(at)),
                Binding::KernelParam(at) => Ok(Src::Imm(u64::from(at))),
                Binding::Pair(_) | Binding::Unusable => {
                    Err(format!("register {name} has a type that is not supported here"))
                }
            };
        }
        if let Some(s) = special(name) {
            return Ok(s);
        }
        if let Some(&at) = self.layout.offsets.get(&(self.index, name.to_string())) {
            return Ok(Src::Imm(u64::from(at)));
        }
        if let Some(&at) = self.layout.offsets.get(&(usize::MAX, name.to_string())) {
            return Ok(Src::Imm(u64::from(at)));
        }
        if self.layout.externs.contains(name) {
            return Ok(Src::DynShared(0));
        }
        if let Some(&at) = self.globals.get(name) {
            return Ok(Src::Imm(at));
        }
        if let Some(&i) = self.names.get(name) {
            return Ok(Src::Imm(function_address(i)));
        }
        Err(format!("{name} is not defined"))
    }

    fn src(&self, o: &Operand, ty: Ty) -> Result<Src> {
        match o {
            Operand::Int(v) if ty == Ty::F32 => Ok(Src::Imm(u64::from((*v as i64 as f32).to_bits()))),
            Operand::Int(v) if ty == Ty::F64 => Ok(Src::Imm((*v as i64 as f64).to_bits())),
            Operand::Int(v) => Ok(Src::Imm(*v)),
            Operand::F32(v) if ty == Ty::F64 => Ok(Src::Imm(f64::from(f32::from_bits(*v)).to_bits())),
            Operand::F32(v) => Ok(Src::Imm(u64::from(*v))),
            Operand::F64(v) if ty == Ty::F32 => Ok(Src::Imm(u64::from((f64::from_bits(*v) as f32).to_bits()))),
            Operand::F64(v) => Ok(Src::Imm(*v)),
            Operand::Name(n) if n == "_" => Ok(Src::None),
            Operand::Name(n) => self.name(n),
            Operand::Offset(n, off) => match self.name(n)? {
                Src::Imm(v) => Ok(Src::Imm(v.wrapping_add(*off as u64))),
                Src::Local(v) => Ok(Src::Local(v.wrapping_add(*off as u32))),
                Src::DynShared(v) => Ok(Src::DynShared(v.wrapping_add(*off as u32))),
                _ => unsupported("offset on a register"),
            },
            Operand::Not(o) => match self.src(o, Ty::Pred)? {
                Src::P(p, n) => Ok(Src::P(p, !n)),
                Src::Imm(v) => Ok(Src::Imm(v ^ 1)),
                _ => unsupported("negated operand is not a predicate"),
            },
            _ => unsupported("operand form"),
        }
    }

    fn dst(&self, o: &Operand) -> Result<Reg> {
        match o {
            Operand::Name(n) if n == "_" => Ok(Reg::None),
            Operand::Name(n) => match self.binding(n) {
                Some(Binding::Reg(r)) => Ok(r),
                Some(Binding::Pair(_) | Binding::Unusable) => {
                    Err(format!("register {n} has a type that is not supported here"))
                }
                _ => Err(format!("{n} is not a register")),
            },
            _ => unsupported("destination form"),
        }
    }

    /// The rows of a register of 128 bits, the lower half's first.
    fn pair(&self, o: &Operand) -> Result<[u32; 2]> {
        match o {
            Operand::Name(n) => match self.binding(n) {
                Some(Binding::Pair(first)) => Ok([first, first + 1]),
                _ => Err(format!("{n} is not a register of 128 bits")),
            },
            _ => unsupported("operand form"),
        }
    }

    /// `d|p` or `d`.
    fn dst_pair(&self, o: &Operand) -> Result<(Reg, Reg)> {
        match o {
            Operand::Pair(a, b) => Ok((self.dst(a)?, self.dst(b)?)),
            o => Ok((self.dst(o)?, Reg::None)),
        }
    }

    fn addr(&self, o: &Operand) -> Result<(Src, i64)> {
        let Operand::Addr(base, offset) = o else { return unsupported("address form") };
        let base = self.src(base, Ty::U64)?;
        if let Src::Imm(v) = base {
            return Ok((Src::Imm(v.wrapping_add(*offset as u64)), 0));
        }
        Ok((base, *offset))
    }

    /// Space of a memory access: parameters of device functions are frame memory.
    fn access_space(&self, mods: &Mods, base: Src) -> Result<Space> {
        let space = mods.space()?;
        if space != Space::Param {
            // A symbol in a generic access names an offset for shared and local variables.
            if space == Space::Generic {
                return Ok(match base {
                    Src::Local(_) => Space::Local,
                    Src::DynShared(_) => Space::Shared,
                    _ => space,
                });
            }
            return Ok(space);
        }
        let frame = matches!(base, Src::Local(_)) || !self.f.is_entry;
        Ok(if frame { Space::Local } else { Space::Param })
    }

    fn instruction(&mut self, i: &'a Instruction) -> Result<()> {
        let mut parts = i.opcode.split('.');
        let base = parts.next().unwrap_or_default();
        let mods = Mods(parts.collect());
        let ops = i.operands.as_slice();
        let need = |n: usize| if ops.len() < n { unsupported("too few operands") } else { Ok(()) };
        match base {
            "mov" => {
                need(2)?;
                self.mov(&mods, ops)
            }
            "ld" | "ldu" => {
                need(2)?;
                self.load(&mods, ops)
            }
            "st" => {
                need(2)?;
                self.store(&mods, ops)
            }
            "atom" | "red" => {
                need(2)?;
                self.atomic(base == "red", &mods, ops)
            }
            "add" | "sub" | "addc" | "subc" | "mul" | "div" | "rem" | "min" | "max" | "and" | "or" | "xor" | "shl"
            | "shr" | "mul24" | "copysign" => {
                need(3)?;
                self.binary(base, &mods, ops)
            }
            "not" | "neg" | "abs" | "popc" | "clz" | "brev" | "bfind" | "cnot" | "sqrt" | "rsqrt" | "rcp" | "sin"
            | "cos" | "ex2" | "lg2" | "tanh" => {
                need(2)?;
                self.unary(base, &mods, ops)
            }
            "mad" | "madc" | "mad24" | "fma" | "sad" => {
                need(4)?;
                self.ternary(base, &mods, ops)
            }
            "setp" | "set" => {
                need(3)?;
                self.compare(base == "set", &mods, ops)
            }
            "cvt" => {
                need(2)?;
                self.convert(&mods, ops)
            }
            "call" => self.call(ops),
            "bra" | "brx" => {
                need(1)?;
                self.branch(base, ops)
            }
            "shfl" | "vote" | "match" | "redux" | "elect" | "activemask" => self.warp(base, &mods, ops),
            "bar" | "barrier" => self.barrier(&mods, ops),
            "multimem" => unsupported("memory of several devices at one address (multicast objects)"),
            _ if base.starts_with('v') && video::Operation::of(base).is_some() => self.video(base, &mods, ops),
            "tex" | "tld4" | "txq" | "suld" | "sust" | "sured" | "suq" => self.texture(base, &mods, ops),
            _ => self.matrix(base, &mods, ops).unwrap_or_else(|| self.other(base, &mods, ops)),
        }
    }

    fn mov(&mut self, mods: &Mods, ops: &[Operand]) -> Result<()> {
        let ty = mods.ty()?;
        if ty == Ty::B128 {
            return self.mov_pair(ops);
        }
        match (&ops[0], &ops[1]) {
            (Operand::Vec(ds), s) => {
                let a = self.src(s, ty)?;
                let regs = ds.iter().map(|d| self.dst(d)).collect::<Result<Vec<_>>>()?;
                let elem = part(ty, regs.len())?;
                self.emit(Op::Unpack(elem, regs.into())).a = a;
            }
            (d, Operand::Vec(ss)) => {
                let d = self.dst(d)?;
                let elem = part(ty, ss.len())?;
                let srcs = ss.iter().map(|s| self.src(s, elem)).collect::<Result<Vec<_>>>()?;
                self.emit(Op::Pack(elem, srcs.into())).d = d;
            }
            (d, s) => {
                let (d, a) = (self.dst(d)?, self.src(s, ty)?);
                let op = if ty == Ty::Pred { Op::PredMov } else { Op::Mov };
                let i = self.emit(op);
                i.d = d;
                i.a = a;
            }
        }
        Ok(())
    }

    fn mov_pair(&mut self, ops: &[Operand]) -> Result<()> {
        let to = match &ops[0] {
            Operand::Vec(v) => v.iter().map(|d| self.dst(d)).collect::<Result<Vec<_>>>()?,
            d => self.pair(d)?.map(Reg::R64).to_vec(),
        };
        let from = match &ops[1] {
            Operand::Vec(v) => v.iter().map(|s| self.src(s, Ty::B64)).collect::<Result<Vec<_>>>()?,
            s => self.pair(s)?.map(Src::R64).to_vec(),
        };
        if to.len() != 2 || from.len() != 2 {
            return unsupported("vector width");
        }
        for (d, a) in to.into_iter().zip(from) {
            let i = self.emit(Op::Mov);
            (i.d, i.a) = (d, a);
        }
        Ok(())
    }

    fn load(&mut self, mods: &Mods, ops: &[Operand]) -> Result<()> {
        let ty = mods.ty()?;
        let (a, offset) = self.addr(&ops[1])?;
        let space = self.access_space(mods, a)?;
        match &ops[0] {
            Operand::Vec(ds) => {
                let regs = ds.iter().map(|d| self.dst(d)).collect::<Result<Vec<_>>>()?;
                if !regs.len().is_power_of_two() || regs.len() as u32 * ty.bytes() > 32 {
                    return unsupported("vector width");
                }
                self.emit(Op::LdVec { space, ty, offset, regs: regs.into() }).a = a;
            }
            d if ty == Ty::B128 => {
                let regs = self.pair(d)?.map(Reg::R64).into();
                self.emit(Op::LdVec { space, ty: Ty::B64, offset, regs }).a = a;
            }
            d => {
                let d = self.dst(d)?;
                let i = self.emit(Op::Ld { space, ty, offset });
                i.d = d;
                i.a = a;
            }
        }
        Ok(())
    }

    fn store(&mut self, mods: &Mods, ops: &[Operand]) -> Result<()> {
        if mods.has("async") || mods.has("bulk") {
            return self.store_async(mods, ops);
        }
        let ty = mods.ty()?;
        let (a, offset) = self.addr(&ops[0])?;
        let space = self.access_space(mods, a)?;
        match &ops[1] {
            Operand::Vec(ss) => {
                let regs = ss.iter().map(|s| self.src(s, ty)).collect::<Result<Vec<_>>>()?;
                if !regs.len().is_power_of_two() || regs.len() as u32 * ty.bytes() > 32 {
                    return unsupported("vector width");
                }
                self.emit(Op::StVec { space, ty, offset, regs: regs.into() }).a = a;
            }
            s if ty == Ty::B128 => {
                let regs = self.pair(s)?.map(Src::R64).into();
                self.emit(Op::StVec { space, ty: Ty::B64, offset, regs }).a = a;
            }
            s => {
                let b = self.src(s, ty)?;
                let i = self.emit(Op::St { space, ty, offset });
                i.a = a;
                i.b = b;
            }
        }
        Ok(())
    }

    fn atomic(&mut self, red: bool, mods: &Mods, ops: &[Operand]) -> Result<()> {
        if mods.has("async") {
            return self.reduce_async(mods, ops);
        }
        let ty = mods.ty()?;
        if mods.has("v2") || mods.has("v4") || mods.has("v8") {
            return unsupported("wide atomic");
        }
        if ty == Ty::B128 {
            return self.exchange_pair(mods, ops);
        }
        let op = mods
            .0
            .iter()
            .find_map(|m| {
                Some(match *m {
                    "add" => AtomOp::Add,
                    "and" => AtomOp::And,
                    "or" => AtomOp::Or,
                    "xor" => AtomOp::Xor,
                    "exch" => AtomOp::Exch,
                    "cas" => AtomOp::Cas,
                    "inc" => AtomOp::Inc,
                    "dec" => AtomOp::Dec,
                    "min" => AtomOp::Min,
                    "max" => AtomOp::Max,
                    _ => return None,
                })
            })
            .ok_or("unknown atomic operation")?;
        let (d, rest) = if red { (Reg::None, ops) } else { (self.dst(&ops[0])?, &ops[1..]) };
        if rest.len() < 2 {
            return unsupported("too few operands");
        }
        let (a, offset) = self.addr(&rest[0])?;
        let space = self.access_space(mods, a)?;
        let b = self.src(&rest[1], ty)?;
        let c = if op == AtomOp::Cas { self.src(rest.get(2).ok_or("too few operands")?, ty)? } else { Src::None };
        let i = self.emit(Op::Atom { space, op, ty, offset });
        i.d = d;
        i.a = a;
        i.b = b;
        i.c = c;
        Ok(())
    }

    fn exchange_pair(&mut self, mods: &Mods, ops: &[Operand]) -> Result<()> {
        let compares = mods.has("cas");
        if ops.len() < 3 + usize::from(compares) || !compares && !mods.has("exch") {
            return unsupported("wide atomic");
        }
        let old = self.pair(&ops[0])?.map(Reg::R64);
        let (a, offset) = self.addr(&ops[1])?;
        let space = self.access_space(mods, a)?;
        let last = |me: &Self, n: usize| me.pair(&ops[n]).map(|p| p.map(Src::R64));
        let (expected, new) = if compares { (Some(last(self, 2)?), last(self, 3)?) } else { (None, last(self, 2)?) };
        self.emit(Op::ExchangePair { space, offset, old, new, expected }).a = a;
        Ok(())
    }

    fn binary(&mut self, base: &str, mods: &Mods, ops: &[Operand]) -> Result<()> {
        if self.packed(base, mods, ops)? {
            return Ok(());
        }
        mods.all_known()?;
        let ty = mods.ty()?;
        let d = self.dst(&ops[0])?;
        let a = self.src(&ops[1], ty)?;
        let b = self.src(&ops[2], ty)?;
        let fp = mods.fp();
        let op = if ty == Ty::Pred {
            match base {
                "and" => Op::PredBin(Logic::And),
                "or" => Op::PredBin(Logic::Or),
                "xor" => Op::PredBin(Logic::Xor),
                _ => return unsupported("predicate arithmetic"),
            }
        } else if ty.is_float() {
            if ops.len() > 3 || mods.has("xorsign") {
                return unsupported("three-operand or xorsign form");
            }
            let nan = mods.has("NaN");
            let kind = match base {
                "add" => FloatBin::Add,
                "sub" => FloatBin::Sub,
                "mul" => FloatBin::Mul,
                "div" => FloatBin::Div,
                "min" if nan => FloatBin::MinNan,
                "max" if nan => FloatBin::MaxNan,
                "min" => FloatBin::Min,
                "max" => FloatBin::Max,
                "copysign" => FloatBin::CopySign,
                _ => return unsupported("float operation"),
            };
            if mods.types().len() > 1 {
                return unsupported("mixed precision");
            }
            Op::FloatBin(kind, ty, fp)
        } else {
            let carry = mods.has("cc");
            match base {
                "addc" => Op::Carry { ty, sub: false, cin: true, cout: carry },
                "subc" => Op::Carry { ty, sub: true, cin: true, cout: carry },
                "add" if carry => Op::Carry { ty, sub: false, cin: false, cout: true },
                "sub" if carry => Op::Carry { ty, sub: true, cin: false, cout: true },
                "add" if fp.sat => Op::IntBin(IntBin::AddSat, ty),
                "sub" if fp.sat => Op::IntBin(IntBin::SubSat, ty),
                "mul" if mods.has("wide") => Op::MulWide(ty),
                "mul" if mods.has("hi") => Op::IntBin(IntBin::MulHi, ty),
                "mul24" if mods.has("hi") => Op::IntBin(IntBin::Mul24Hi, ty),
                "mul24" => Op::IntBin(IntBin::Mul24Lo, ty),
                "min" | "max" if fp.relu || matches!(mods.0.last(), Some(&"u16x2" | &"s16x2")) => {
                    return unsupported("packed or relu form");
                }
                _ if fp.sat => return unsupported("saturation of this operation"),
                _ => Op::IntBin(
                    match base {
                        "add" => IntBin::Add,
                        "sub" => IntBin::Sub,
                        "mul" => IntBin::MulLo,
                        "div" => IntBin::Div,
                        "rem" => IntBin::Rem,
                        "min" => IntBin::Min,
                        "max" => IntBin::Max,
                        "and" => IntBin::And,
                        "or" => IntBin::Or,
                        "xor" => IntBin::Xor,
                        "shl" => IntBin::Shl,
                        "shr" => IntBin::Shr,
                        _ => return unsupported("integer operation"),
                    },
                    ty,
                ),
            }
        };
        let i = self.emit(op);
        i.d = d;
        i.a = a;
        i.b = b;
        Ok(())
    }

    fn unary(&mut self, base: &str, mods: &Mods, ops: &[Operand]) -> Result<()> {
        mods.all_known()?;
        let ty = mods.ty()?;
        let d = self.dst(&ops[0])?;
        let a = self.src(&ops[1], ty)?;
        let fp = mods.fp();
        let op = match base {
            "not" if ty == Ty::Pred => Op::PredNot,
            "not" => Op::IntUn(IntUn::Not, ty),
            "popc" => Op::IntUn(IntUn::Popc, ty),
            "clz" => Op::IntUn(IntUn::Clz, ty),
            "brev" => Op::IntUn(IntUn::Brev, ty),
            "cnot" => Op::IntUn(IntUn::Cnot, ty),
            "bfind" if mods.has("shiftamt") => Op::IntUn(IntUn::BfindShift, ty),
            "bfind" => Op::IntUn(IntUn::Bfind, ty),
            "neg" if !ty.is_float() => Op::IntUn(IntUn::Neg, ty),
            "abs" if !ty.is_float() => Op::IntUn(IntUn::Abs, ty),
            "neg" => Op::FloatUn(FloatUn::Neg, ty, fp),
            "abs" => Op::FloatUn(FloatUn::Abs, ty, fp),
            "sqrt" => Op::FloatUn(FloatUn::Sqrt, ty, fp),
            "rsqrt" => Op::FloatUn(FloatUn::Rsqrt, ty, fp),
            "rcp" => Op::FloatUn(FloatUn::Rcp, ty, fp),
            "sin" => Op::FloatUn(FloatUn::Sin, ty, fp),
            "cos" => Op::FloatUn(FloatUn::Cos, ty, fp),
            "ex2" => Op::FloatUn(FloatUn::Ex2, ty, fp),
            "lg2" => Op::FloatUn(FloatUn::Lg2, ty, fp),
            _ => Op::FloatUn(FloatUn::Tanh, ty, fp),
        };
        let i = self.emit(op);
        i.d = d;
        i.a = a;
        Ok(())
    }

    fn ternary(&mut self, base: &str, mods: &Mods, ops: &[Operand]) -> Result<()> {
        if self.packed(base, mods, ops)? {
            return Ok(());
        }
        mods.all_known()?;
        let ty = mods.ty()?;
        let d = self.dst(&ops[0])?;
        let a = self.src(&ops[1], ty)?;
        let b = self.src(&ops[2], ty)?;
        let c = self.src(&ops[3], ty)?;
        let (cc, hi) = (mods.has("cc"), mods.has("hi"));
        let op = match base {
            "fma" if mods.types().len() > 1 => return unsupported("mixed precision"),
            "mad" | "fma" if ty.is_float() => Op::Fma(ty, mods.fp()),
            "sad" => Op::Sad(ty),
            "mad24" if !hi => Op::Mad24(ty),
            "mad24" => return unsupported("high half"),
            "madc" => Op::MadCarry { ty, hi, cin: true, cout: cc },
            _ if cc => Op::MadCarry { ty, hi, cin: false, cout: true },
            _ if mods.has("wide") => Op::MadWide(ty),
            _ if mods.has("sat") => return unsupported("saturating mad"),
            _ if hi => Op::MadHi(ty),
            _ => Op::MadLo(ty),
        };
        let i = self.emit(op);
        i.d = d;
        i.a = a;
        i.b = b;
        i.c = c;
        Ok(())
    }

    fn compare(&mut self, set: bool, mods: &Mods, ops: &[Operand]) -> Result<()> {
        mods.all_known()?;
        let ty = mods.ty()?;
        let cmp = mods.cmp(ty)?;
        let (d, d2) = self.dst_pair(&ops[0])?;
        let a = self.src(&ops[1], ty)?;
        let b = self.src(&ops[2], ty)?;
        let logic = if ops.len() > 3 { mods.logic() } else { None };
        let c = if let Some(o) = ops.get(3) { self.src(o, Ty::Pred)? } else { Src::None };
        let ftz = mods.has("ftz");
        if set && logic.is_some() && matches!(ty, Ty::F16x2 | Ty::Bf16x2) {
            return unsupported("packed values combined with a predicate");
        }
        let op = if set {
            let to = mods.types().first().copied().unwrap_or(Ty::U32);
            Op::Set { cmp, to, ty, logic, ftz }
        } else {
            Op::Setp { cmp, ty, logic, ftz }
        };
        let i = self.emit(op);
        i.d = d;
        i.d2 = d2;
        i.a = a;
        i.b = b;
        i.c = c;
        Ok(())
    }

    fn convert(&mut self, mods: &Mods, ops: &[Operand]) -> Result<()> {
        if self.narrow(mods, ops)? {
            return Ok(());
        }
        mods.all_known()?;
        let types = mods.types();
        let [to, from] = match types.as_slice() {
            [to, from] => [*to, *from],
            [to, from, _] => [*to, *from],
            _ => return unsupported("conversion types"),
        };
        let d = self.dst(&ops[0])?;
        let fp = mods.fp();
        if fp.finite && (from != Ty::F32 || !matches!(to, Ty::F16 | Ty::F16x2 | Ty::Bf16 | Ty::Bf16x2 | Ty::Tf32)) {
            return unsupported("satfinite of these types");
        }
        if mods.has("pack") {
            let a = self.src(ops.get(1).ok_or("too few operands")?, from)?;
            let b = self.src(ops.get(2).ok_or("too few operands")?, from)?;
            let c = ops.get(3).map(|o| self.src(o, Ty::B32)).transpose()?;
            let i = self.emit(Op::CvtPack { to, from, merge: c.is_some() });
            i.d = d;
            i.a = a;
            i.b = b;
            i.c = c.unwrap_or(Src::None);
            return Ok(());
        }
        let a = self.src(&ops[1], from)?;
        if matches!(to, Ty::F16x2 | Ty::Bf16x2) {
            if from != Ty::F32 || ops.len() != 3 {
                return unsupported("packed conversion");
            }
            let b = self.src(&ops[2], from)?;
            let i = self.emit(Op::CvtPair { to, fp });
            i.d = d;
            i.a = a;
            i.b = b;
            return Ok(());
        }
        let integer = mods.0.iter().any(|m| matches!(*m, "rni" | "rzi" | "rmi" | "rpi"));
        let i = self.emit(Op::Cvt { to, from, round: fp.round, integer, fp });
        i.d = d;
        i.a = a;
        Ok(())
    }

    fn call(&mut self, ops: &[Operand]) -> Result<()> {
        let slots = |d: &Self, list: &[Operand]| -> Result<Vec<Slot>> {
            list.iter()
                .map(|o| match o {
                    Operand::Name(n) => match d.binding(n) {
                        Some(Binding::Local(offset, bytes)) => Ok(Slot { offset, bytes }),
                        _ => unsupported("call argument is not a .param variable"),
                    },
                    _ => unsupported("call argument is not a .param variable"),
                })
                .collect()
        };
        let (returns, rest) = match ops.first() {
            Some(Operand::Paren(list)) => (slots(self, list)?, &ops[1..]),
            _ => (Vec::new(), ops),
        };
        let Some(Operand::Name(callee)) = rest.first() else { return unsupported("call target") };
        let args = match rest.get(1) {
            Some(Operand::Paren(list)) => slots(self, list)?,
            _ => Vec::new(),
        };
        let target = if let Some(Binding::Reg(_)) = self.binding(callee) {
            Target::Register(self.name(callee)?)
        } else if let Some(&i) = self.names.get(callee.as_str()) {
            match builtin(callee) {
                Some(b) if !self.module.functions[i].has_body => Target::Builtin(b),
                _ => {
                    self.calls.push(i as u32);
                    Target::Function(i as u32)
                }
            }
        } else {
            return Err(format!("{callee} is not defined"));
        };
        self.emit(Op::Call(Box::new(Call { target, args, returns })));
        Ok(())
    }

    fn branch(&mut self, base: &str, ops: &[Operand]) -> Result<()> {
        let label = |o: &Operand| match o {
            Operand::Name(n) => Ok(n.clone()),
            _ => unsupported("branch target"),
        };
        let path = self.scope_path.clone();
        let at = self.code.len();
        if base == "bra" {
            let target = label(&ops[0])?;
            self.emit(Op::Bra(0));
            self.fixups.push((at, 0, target, path));
            return Ok(());
        }
        let a = self.src(&ops[0], Ty::U32)?;
        let list = label(ops.get(1).ok_or("too few operands")?)?;
        let targets = self.targets.get(&list).cloned().ok_or("branch table is not defined")?;
        self.emit(Op::BrxIdx(vec![0; targets.len()].into())).a = a;
        for (slot, t) in targets.into_iter().enumerate() {
            self.fixups.push((at, slot, t, path.clone()));
        }
        Ok(())
    }

    fn warp(&mut self, base: &str, mods: &Mods, ops: &[Operand]) -> Result<()> {
        let sync = mods.has("sync");
        let get = |n: usize| ops.get(n).ok_or_else(|| "too few operands".to_string());
        let (d, d2) = self.dst_pair(get(0)?)?;
        let (op, a, b, c, members) = match base {
            "activemask" => {
                self.emit(Op::Activemask).d = d;
                return Ok(());
            }
            "shfl" => {
                let mode = match mods.0.iter().find(|m| matches!(**m, "up" | "down" | "bfly" | "idx")) {
                    Some(&"up") => ShflMode::Up,
                    Some(&"down") => ShflMode::Down,
                    Some(&"bfly") => ShflMode::Bfly,
                    Some(_) => ShflMode::Idx,
                    None => return unsupported("shuffle mode"),
                };
                let m = if sync { self.src(get(4)?, Ty::B32)? } else { Src::None };
                let (a, b, c) = (self.src(get(1)?, Ty::B32)?, self.src(get(2)?, Ty::B32)?, self.src(get(3)?, Ty::B32)?);
                (WarpOp::Shfl(mode), a, b, c, m)
            }
            "vote" => {
                let mode = match mods.0.iter().find(|m| matches!(**m, "all" | "any" | "uni" | "ballot")) {
                    Some(&"all") => VoteMode::All,
                    Some(&"any") => VoteMode::Any,
                    Some(&"uni") => VoteMode::Uni,
                    Some(_) => VoteMode::Ballot,
                    None => return unsupported("vote mode"),
                };
                let m = if sync { self.src(get(2)?, Ty::B32)? } else { Src::None };
                (WarpOp::Vote(mode), self.src(get(1)?, Ty::Pred)?, Src::None, Src::None, m)
            }
            "match" => {
                let op = if mods.has("any") { WarpOp::MatchAny } else { WarpOp::MatchAll };
                (op, self.src(get(1)?, mods.ty()?)?, Src::None, Src::None, self.src(get(2)?, Ty::B32)?)
            }
            "redux" => {
                let ty = mods.ty()?;
                let op = match mods.0.iter().find(|m| matches!(**m, "add" | "min" | "max" | "and" | "or" | "xor")) {
                    Some(&"add") => AtomOp::Add,
                    Some(&"min") => AtomOp::Min,
                    Some(&"max") => AtomOp::Max,
                    Some(&"and") => AtomOp::And,
                    Some(&"or") => AtomOp::Or,
                    Some(_) => AtomOp::Xor,
                    None => return unsupported("reduction"),
                };
                let op = match (ty, op) {
                    (Ty::F32, AtomOp::Min | AtomOp::Max) => {
                        WarpOp::ReduxFloat { max: op == AtomOp::Max, abs: mods.has("abs"), nan: mods.has("NaN") }
                    }
                    _ if ty.is_float() => return unsupported("reduction of this type"),
                    _ => WarpOp::Redux(op, ty.is_signed()),
                };
                (op, self.src(get(1)?, ty)?, Src::None, Src::None, self.src(get(2)?, Ty::B32)?)
            }
            _ => (WarpOp::Elect, Src::None, Src::None, Src::None, self.src(get(1)?, Ty::B32)?),
        };
        let i = self.emit(Op::Warp(op));
        i.d = d;
        i.d2 = d2;
        i.a = a;
        i.b = b;
        i.c = c;
        i.e = members;
        Ok(())
    }

    fn barrier(&mut self, mods: &Mods, ops: &[Operand]) -> Result<()> {
        if mods.has("warp") {
            let m = self.src(ops.first().ok_or("too few operands")?, Ty::B32)?;
            self.emit(Op::Warp(WarpOp::Sync)).e = m;
            return Ok(());
        }
        if mods.has("cluster") {
            self.emit(Op::Bar(if mods.has("wait") { BarOp::ClusterWait } else { BarOp::ClusterArrive }));
            return Ok(());
        }
        let red = mods.has("red");
        let kind = if mods.has("arrive") {
            BarOp::Arrive
        } else if !red {
            BarOp::Sync
        } else if mods.has("popc") {
            BarOp::RedPopc
        } else if mods.has("and") {
            BarOp::RedAnd
        } else {
            BarOp::RedOr
        };
        let (d, rest) =
            if red { (self.dst(ops.first().ok_or("too few operands")?)?, &ops[1..]) } else { (Reg::None, ops) };
        let (last, counts) = match (red, rest.split_last()) {
            (true, Some((last, counts))) => (Some(last), counts),
            _ => (None, rest),
        };
        let a = if let Some(o) = counts.first() { self.src(o, Ty::U32)? } else { Src::Imm(0) };
        let b = if let Some(o) = counts.get(1) { self.src(o, Ty::U32)? } else { Src::None };
        let c = if let Some(o) = last { self.src(o, Ty::Pred)? } else { Src::None };
        let i = self.emit(Op::Bar(kind));
        i.d = d;
        i.a = a;
        i.b = b;
        i.c = c;
        Ok(())
    }

    fn other(&mut self, base: &str, mods: &Mods, ops: &[Operand]) -> Result<()> {
        let get = |n: usize| ops.get(n).ok_or_else(|| "too few operands".to_string());
        let window = |s: Space| match s {
            Space::Shared => SHARED_WINDOW,
            Space::Local => LOCAL_WINDOW,
            _ => 0,
        };
        let (op, wants) = match base {
            "ret" => (Op::Ret, 0),
            "exit" => (Op::Exit, 0),
            "trap" | "brkpt" => (Op::Trap, 0),
            "membar" | "fence" => (Op::Fence, 0),
            "nanosleep" => {
                let a = self.src(get(0)?, Ty::U32)?;
                self.emit(Op::Nanosleep).a = a;
                return Ok(());
            }
            "prefetch" | "prefetchu" | "pmevent" | "setmaxnreg" | "griddepcontrol" | "discard" | "applypriority" => {
                (Op::Nop, 0)
            }
            "createpolicy" => {
                let d = self.dst(get(0)?)?;
                let i = self.emit(Op::Mov);
                i.d = d;
                i.a = Src::Imm(0);
                return Ok(());
            }
            "mapa" => (Op::Cluster(ClusterOp::Mapa { generic: mods.space()? == Space::Generic }), 3),
            "getctarank" => (Op::Cluster(ClusterOp::CtaRank { generic: mods.space()? == Space::Generic }), 2),
            "mbarrier" => return self.mbarrier(mods, ops),
            "cvta" => {
                let mut space = mods.space()?;
                if space == Space::Param && !self.f.is_entry {
                    space = Space::Local;
                }
                let w = if space == Space::Param { PARAM_WINDOW } else { window(space) };
                (if mods.has("to") { Op::CvtaTo { window: w } } else { Op::Cvta { window: w } }, 2)
            }
            "isspacep" if mods.has("shared::cluster") => (Op::Cluster(ClusterOp::IsShared), 2),
            "isspacep" => (Op::IsSpace(mods.space()?), 2),
            "selp" => (Op::Selp(mods.ty()?), 4),
            "slct" => {
                let types = mods.types();
                let (Some(&ty), Some(&by)) = (types.first(), types.get(1)) else { return unsupported("types") };
                let d = self.dst(get(0)?)?;
                let (a, b, c) = (self.src(get(1)?, ty)?, self.src(get(2)?, ty)?, self.src(get(3)?, by)?);
                let c = if mods.has("ftz") { self.flushed(c) } else { c };
                let i = self.emit(Op::Slct(ty, by == Ty::F32));
                (i.d, i.a, i.b, i.c) = (d, a, b, c);
                return Ok(());
            }
            "bfe" => (Op::Bfe(mods.ty()?), 4),
            "bfi" => (Op::Bfi(mods.ty()?), 5),
            "bmsk" | "szext" if mods.has("wrap") => return self.wrapped(base, mods, ops),
            "bmsk" if mods.has("clamp") => (Op::Bmsk, 3),
            "szext" => (Op::Szext(mods.ty()?.is_signed()), 3),
            "fns" => (Op::Fns, 4),
            "shf" => (Op::Shf { left: mods.has("l"), wrap: mods.has("wrap") }, 4),
            "prmt" => {
                let mode = match mods.0.last() {
                    Some(&"f4e") => 1,
                    Some(&"b4e") => 2,
                    Some(&"rc8") => 3,
                    Some(&"ecl") => 4,
                    Some(&"ecr") => 5,
                    Some(&"rc16") => 6,
                    _ => 0,
                };
                (Op::Prmt(mode), 4)
            }
            "lop3" => {
                if mods.has("or") || mods.has("and") {
                    return unsupported("predicate form");
                }
                let Operand::Int(table) = get(4)? else { return unsupported("table operand") };
                (Op::Lop3(*table as u8), 4)
            }
            "dp4a" | "dp2a" => {
                let t = mods.types();
                let (Some(at), Some(bt)) = (t.first(), t.get(1)) else { return unsupported("types") };
                let (x, y) = (at.is_signed(), bt.is_signed());
                (if base == "dp4a" { Op::Dp4a(x, y) } else { Op::Dp2a(x, y, mods.has("hi")) }, 4)
            }
            "testp" => {
                let kind = match mods.0.first() {
                    Some(&"finite") => 0,
                    Some(&"infinite") => 1,
                    Some(&"number") => 2,
                    Some(&"notanumber") => 3,
                    Some(&"normal") => 4,
                    _ => 5,
                };
                (Op::Testp(kind, mods.ty()?), 2)
            }
            "cp" if mods.has("async") && !mods.has("tensor") => {
                return if mods.has("bulk") {
                    self.bulk_copy(mods, ops)
                } else if mods.has("mbarrier") {
                    self.arrive_after_copies(mods, ops)
                } else {
                    self.copy_async(mods, ops)
                };
            }
            _ => return unsupported("an instruction that it does not know"),
        };
        let ty = mods.ty().unwrap_or(Ty::B32);
        let d = if wants > 1 { self.dst(get(0)?)? } else { Reg::None };
        let operand =
            |me: &Self, n: usize| -> Result<Src> { if wants > n { me.src(get(n)?, ty) } else { Ok(Src::None) } };
        let (a, b, c, e) = (operand(self, 1)?, operand(self, 2)?, operand(self, 3)?, operand(self, 4)?);
        let i = self.emit(op);
        (i.d, i.a, i.b, i.c, i.e) = (d, a, b, c, e);
        Ok(())
    }

    fn copy_async(&mut self, mods: &Mods, ops: &[Operand]) -> Result<()> {
        if mods.has("commit_group") || mods.has("wait_group") || mods.has("wait_all") {
            self.emit(Op::Nop);
            return Ok(());
        }
        let get = |n: usize| ops.get(n).ok_or_else(|| "too few operands".to_string());
        let (a, to) = self.addr(get(0)?)?;
        let (b, from) = self.addr(get(1)?)?;
        let Operand::Int(bytes) = get(2)? else { return unsupported("copy size") };
        let hinted = mods.has("L2::cache_hint");
        let c = match ops.get(3) {
            Some(o) if !(hinted && ops.len() == 4) => self.src(o, Ty::U32)?,
            _ => Src::None,
        };
        if matches!(c, Src::P(..)) {
            return unsupported("ignore-src form");
        }
        let i = self.emit(Op::CpAsync { bytes: *bytes as u32, to, from });
        (i.a, i.b, i.c) = (a, b, c);
        Ok(())
    }
}

fn part(ty: Ty, n: usize) -> Result<Ty> {
    Ok(match ty.bytes() as usize / n.max(1) {
        1 => Ty::B8,
        2 => Ty::B16,
        4 => Ty::B32,
        8 => Ty::B64,
        _ => return unsupported("vector move"),
    })
}

fn builtin(name: &str) -> Option<Builtin> {
    Some(match name {
        "vprintf" => Builtin::Vprintf,
        "__assertfail" => Builtin::AssertFail,
        "malloc" => Builtin::Malloc,
        "free" => Builtin::Free,
        "cudaGraphSetConditional" => Builtin::SetConditional,
        _ => return None,
    })
}

fn special(name: &str) -> Option<Src> {
    let axis = |s: &str| match s {
        "x" => Some(0),
        "y" => Some(1),
        "z" => Some(2),
        _ => None,
    };
    if name == "WARP_SZ" {
        return Some(Src::Imm(32));
    }
    let name = name.strip_prefix('%')?;
    if let Some((stem, a)) = name.split_once('.') {
        let a = axis(a)?;
        return Some(Src::Special(match stem {
            "tid" => Special::Tid(a),
            "ntid" => Special::Ntid(a),
            "ctaid" => Special::Ctaid(a),
            "nctaid" => Special::Nctaid(a),
            "clusterid" => Special::ClusterId(a),
            "nclusterid" => Special::NclusterId(a),
            "cluster_ctaid" => Special::ClusterCtaid(a),
            "cluster_nctaid" => Special::ClusterNctaid(a),
            _ => return None,
        }));
    }
    if let Some(n) = name.strip_prefix("envreg") {
        return Some(Src::Special(Special::EnvReg(n.parse().ok()?)));
    }
    Some(Src::Special(match name {
        "laneid" => Special::LaneId,
        "warpid" => Special::WarpId,
        "nwarpid" => Special::NwarpId,
        "smid" => Special::SmId,
        "nsmid" => Special::NsmId,
        "gridid" => Special::GridId,
        "clock" => Special::Clock,
        "clock64" => Special::Clock64,
        "clock_hi" => Special::ClockHi,
        "globaltimer" => Special::GlobalTimer,
        "globaltimer_lo" => Special::GlobalTimerLo,
        "globaltimer_hi" => Special::GlobalTimerHi,
        "lanemask_eq" => Special::LaneMaskEq,
        "lanemask_lt" => Special::LaneMaskLt,
        "lanemask_le" => Special::LaneMaskLe,
        "lanemask_gt" => Special::LaneMaskGt,
        "lanemask_ge" => Special::LaneMaskGe,
        "dynamic_smem_size" => Special::DynamicSmem,
        "total_smem_size" | "aggr_smem_size" => Special::TotalSmem,
        "reserved_smem_offset_begin" | "reserved_smem_offset_0" => Special::ReservedSmem(0),
        "reserved_smem_offset_1" => Special::ReservedSmem(512),
        "reserved_smem_offset_end" => Special::ReservedSmem(RESERVED_SHARED),
        "reserved_smem_offset_cap" => return Some(Src::Imm(u64::from(RESERVED_SHARED))),
        "is_explicit_cluster" => Special::IsExplicitCluster,
        "cluster_ctarank" => Special::ClusterCtarank,
        "cluster_nctarank" => Special::ClusterNctarank,
        "current_graph_exec" => Special::Zero,
        _ => return None,
    }))
}
