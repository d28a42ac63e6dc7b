//! Resolves names and turns parsed functions into `isa` code.
//!
//! An instruction this file does not know marks its function `unsupported` and nothing else: a module often carries
//! kernels that the program never launches.

use std::collections::{HashMap, HashSet};

use crate::ptx::decode::decoder::{
    Binding, Decoder, Globals, Range, Result, Scope, SharedLayout, align_up, unsupported,
};
use crate::ptx::decode::{prologue, rows};
use crate::ptx::isa::instruction::Op;
use crate::ptx::isa::operand::{Space, Src};
use crate::ptx::isa::program::{Func, Param, Program};
use crate::ptx::parse::{Function, Module};
use crate::ptx::syntax::{Linkage, Operand, Stmt, Variable};

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

/// Threads that a block of this kernel may have.
pub fn max_threads(f: &Function) -> u32 {
    f.max_ntid.or(f.req_ntid).map_or(1024, |d| d[0].saturating_mul(d[1]).saturating_mul(d[2]))
}

pub fn decode(module: &Module, globals: &Globals) -> Program {
    let mut program = Program { target: module.target, version: module.version, ..Program::default() };
    let names = module.places();
    let layout = SharedLayout::new(module, &names);
    let mut calls: Vec<Vec<u32>> = Vec::new();
    for (index, f) in module.functions.iter().enumerate() {
        let mut func = Func { name: f.name.clone(), is_entry: f.is_entry, ..Func::default() };
        let start = program.code.len();
        func.entry = start as u32;
        let mut d = Decoder::new(module, index, f, &names, globals, &layout, start);
        let outcome = if let Some(why) = &f.invalid {
            Err(why.clone())
        } else if !f.has_body {
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
        func.max_threads = max_threads(f);
        func.req_ntid = f.req_ntid;
        func.req_cluster = f.req_cluster;
        func.explicit_cluster = f.explicit_cluster;
        func.max_cluster = f.max_cluster;
        calls.push(d.calls);
        program.funcs.push(func);
    }
    spread_unsupported(&mut program.funcs, &calls);
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

/// Shared variables with the function that has them, or `usize::MAX`.
type Owned<'a> = Vec<(usize, &'a Variable)>;

/// The functions and the shared variables that a function names.
type Mentions<'a> = (HashSet<usize>, HashSet<&'a str>);

impl SharedLayout {
    pub fn new(module: &Module, names: &HashMap<&str, usize>) -> Self {
        let mut vars = shared_variables(module);
        let mut layout = Self { offsets: HashMap::new(), externs: HashSet::new(), entry_bytes: HashMap::new() };
        vars.retain(|(_, v)| {
            let dynamic = v.linkage == Linkage::Extern || v.count.is_none();
            if dynamic {
                layout.externs.insert(v.name.clone());
            }
            !dynamic
        });
        if !vars.is_empty() {
            let users = users(module, &vars, &mentions(module, &vars, names));
            layout.place(&vars, &users);
        }
        layout
    }

    /// What several kernels use lies at the same place in all of them, before what only one uses.
    fn place(&mut self, vars: &Owned, users: &[Vec<usize>]) {
        let mut common = 0;
        for ((owner, v), users) in vars.iter().zip(users).filter(|(_, users)| users.len() > 1) {
            common = align_up(common, v.align);
            self.offsets.insert((*owner, v.name.clone()), common);
            common += v.bytes() as u32;
            for &e in users {
                self.entry_bytes.insert(e, 0);
            }
        }
        for bytes in self.entry_bytes.values_mut() {
            *bytes = common;
        }
        for ((owner, v), users) in vars.iter().zip(users) {
            match users.as_slice() {
                [entry] => {
                    let top = self.entry_bytes.entry(*entry).or_insert(0);
                    let at = align_up(*top, v.align);
                    *top = at + v.bytes() as u32;
                    self.offsets.insert((*owner, v.name.clone()), at);
                }
                [] => {
                    self.offsets.insert((*owner, v.name.clone()), 0);
                }
                _ => {}
            }
        }
    }
}

fn shared_variables(module: &Module) -> Owned<'_> {
    let mut vars: Owned =
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
    vars
}

fn mentions<'a>(module: &Module, vars: &Owned<'a>, names: &HashMap<&str, usize>) -> Vec<Mentions<'a>> {
    let interesting: HashSet<&str> = vars.iter().map(|(_, v)| v.name.as_str()).collect();
    let of = |f: &Function| {
        let (mut called, mut used) = (HashSet::new(), HashSet::new());
        for s in &f.body {
            let Stmt::Instruction(i) = s else { continue };
            for o in &i.operands {
                visit_names(o, &mut |n| {
                    called.extend(names.get(n).copied());
                    used.extend(interesting.get(n).copied());
                });
            }
        }
        (called, used)
    };
    module.functions.iter().map(of).collect()
}

/// The kernels that can reach each variable.
fn users(module: &Module, vars: &Owned, mentions: &[Mentions]) -> Vec<Vec<usize>> {
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); vars.len()];
    for (entry, _) in module.functions.iter().enumerate().filter(|(_, f)| f.is_entry) {
        let mut reached = HashSet::from([entry]);
        let mut queue = vec![entry];
        while let Some(i) = queue.pop() {
            for &c in &mentions[i].0 {
                if reached.insert(c) {
                    queue.push(c);
                }
            }
        }
        for ((owner, v), users) in vars.iter().zip(&mut users) {
            let uses = if *owner == usize::MAX {
                reached.iter().any(|&i| mentions[i].1.contains(v.name.as_str()))
            } else {
                reached.contains(owner)
            };
            if uses {
                users.push(entry);
            }
        }
    }
    users
}

pub fn visit_names<'a>(o: &'a Operand, f: &mut impl FnMut(&'a str)) {
    match o {
        Operand::Name(n) | Operand::Offset(n, _) | Operand::Element { name: n, .. } => f(n),
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

impl<'a> Decoder<'a> {
    fn function(&mut self, func: &mut Func) -> Result<()> {
        if self.f.is_entry {
            let (params, _) = kernel_params(self.f);
            for (v, p) in self.f.params.iter().zip(params) {
                self.scopes[0].elements.insert(v.name.clone(), v.element_bytes());
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
            Stmt::Var(v) => {
                self.top().elements.insert(v.name.clone(), v.element_bytes());
                if matches!(v.space, Space::Local | Space::Param) {
                    self.local(v);
                }
            }
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
}
