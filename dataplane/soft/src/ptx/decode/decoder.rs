//! What decoding a function needs to know: names, registers, scopes, and the modifiers of an instruction.

use std::collections::{HashMap, HashSet};

use crate::ptx::isa::instruction::{Instr, Op};
use crate::ptx::isa::operand::{Cmp, Fp, Logic, RESERVED_SHARED, Reg, Round, Space, Special, Src, Ty};
use crate::ptx::isa::program::function_address;
use crate::ptx::parse::{Function, Module};
use crate::ptx::syntax::{Operand, Variable};

pub type Result<T> = core::result::Result<T, String>;

/// Addresses of the module's global and constant variables in the context it is loaded in.
pub type Globals = HashMap<String, u64>;

pub fn align_up(v: u32, align: u32) -> u32 {
    let a = align.max(1);
    v.div_ceil(a).saturating_mul(a)
}

/// Static shared memory per kernel: variables only one kernel can reach overlap between kernels, as ptxas does it.
pub struct SharedLayout {
    /// Keyed by function index (or `usize::MAX` for module scope) and name.
    pub offsets: HashMap<(usize, String), u32>,
    pub externs: HashSet<String>,
    pub entry_bytes: HashMap<usize, u32>,
}

#[derive(Clone, Copy)]
pub enum Binding {
    Reg(Reg),
    /// A register of 128 bits: the first of its two rows.
    Pair(u32),
    /// Offset and size inside the frame.
    Local(u32, u32),
    KernelParam(u32),
    Unusable,
}

#[derive(Clone, Copy)]
pub struct Range {
    pub ty: Ty,
    pub vector: u32,
    pub first: u32,
    pub count: u32,
}

#[derive(Default)]
pub struct Scope {
    pub names: HashMap<String, Binding>,
    pub ranges: HashMap<String, Range>,
    /// Bytes of an element of each variable that is declared here.
    pub elements: HashMap<String, u64>,
    pub local_top: u32,
}

pub struct Decoder<'a> {
    pub module: &'a Module,
    pub index: usize,
    pub f: &'a Function,
    pub names: &'a HashMap<&'a str, usize>,
    pub globals: &'a Globals,
    pub layout: &'a SharedLayout,
    pub code: Vec<Instr>,
    pub base: usize,
    pub scopes: Vec<Scope>,
    pub scope_path: Vec<usize>,
    pub scope_count: usize,
    pub labels: HashMap<(usize, String), u32>,
    pub targets: HashMap<String, Vec<String>>,
    pub fixups: Vec<(usize, usize, String, Vec<usize>)>,
    pub rows32: u32,
    pub rows64: u32,
    pub preds: u32,
    pub local_top: u32,
    pub local_max: u32,
    pub returns: Vec<(u32, u32)>,
    pub calls: Vec<u32>,
    pub line: u32,
    pub scratch: Vec<u32>,
    pub scratch_used: usize,
}

/// The dotted parts of an opcode after the mnemonic.
pub struct Mods<'a>(pub Vec<&'a str>);

impl Mods<'_> {
    pub(super) fn has(&self, m: &str) -> bool {
        self.0.contains(&m)
    }
    pub(super) fn without(&self, m: &str) -> Self {
        Self(self.0.iter().copied().filter(|x| *x != m).collect())
    }
    pub(super) fn types(&self) -> Vec<Ty> {
        self.0.iter().filter_map(|m| Ty::from_name(m)).collect()
    }
    pub(super) fn ty(&self) -> Result<Ty> {
        self.types().last().copied().ok_or_else(|| "no operand type".to_string())
    }
    pub(super) fn round(&self) -> Option<Round> {
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
    pub(super) fn fp(&self) -> Fp {
        Fp {
            round: self.round().unwrap_or(Round::Nearest),
            ftz: self.has("ftz"),
            sat: self.has("sat"),
            relu: self.has("relu"),
            finite: self.has("satfinite"),
        }
    }
    /// Arithmetic with a modifier that this file does not know may mean anything.
    pub(super) fn all_known(&self) -> Result<()> {
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
    pub(super) fn space(&self) -> Result<Space> {
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
    pub(super) fn logic(&self) -> Option<Logic> {
        self.0.iter().find_map(|m| match *m {
            "and" => Some(Logic::And),
            "or" => Some(Logic::Or),
            "xor" => Some(Logic::Xor),
            _ => None,
        })
    }
    pub(super) fn cmp(&self, ty: Ty) -> Result<Cmp> {
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

pub fn unsupported<T>(what: &str) -> Result<T> {
    Err(what.to_string())
}

impl<'a> Decoder<'a> {
    pub(super) fn new(
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

    pub(super) fn local(&mut self, v: &Variable) -> u32 {
        let at = align_up(self.local_top, v.align);
        let bytes = v.bytes() as u32;
        self.local_top = at.saturating_add(bytes);
        self.local_max = self.local_max.max(self.local_top);
        self.top().names.insert(v.name.clone(), Binding::Local(at, bytes));
        at
    }

    pub(super) fn top(&mut self) -> &mut Scope {
        self.scopes.last_mut().expect("a function has an outermost scope")
    }

    pub(super) fn new_reg(&mut self, ty: Ty, n: u32) -> u32 {
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
    pub(super) fn register(ty: Ty, first: u32, n: u32) -> Binding {
        Binding::Reg(match ty {
            Ty::B128 => return Binding::Pair(first + 2 * n),
            Ty::Pred => Reg::P(first + n),
            t if t.bytes() == 8 => Reg::R64(first + n),
            _ => Reg::R32(first + n),
        })
    }

    pub(super) fn emit(&mut self, op: Op) -> &mut Instr {
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

    pub(super) fn binding(&self, name: &str) -> Option<Binding> {
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

    pub(super) fn name(&self, name: &str) -> Result<Src> {
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

    pub(super) fn src(&self, o: &Operand, ty: Ty) -> Result<Src> {
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
            Operand::Offset(n, off) => self.offset(n, *off),
            Operand::Element { name, register: None, number } => self.offset(name, self.elements(name, *number)?),
            Operand::Not(o) => match self.src(o, Ty::Pred)? {
                Src::P(p, n) => Ok(Src::P(p, !n)),
                Src::Imm(v) => Ok(Src::Imm(v ^ 1)),
                _ => unsupported("negated operand is not a predicate"),
            },
            _ => unsupported("operand form"),
        }
    }

    fn offset(&self, name: &str, bytes: i64) -> Result<Src> {
        match self.name(name)? {
            Src::Imm(v) => Ok(Src::Imm(v.wrapping_add(bytes as u64))),
            Src::Local(v) => Ok(Src::Local(v.wrapping_add(bytes as u32))),
            Src::DynShared(v) => Ok(Src::DynShared(v.wrapping_add(bytes as u32))),
            _ => unsupported("offset on a register"),
        }
    }

    /// Bytes of so many elements of a variable.
    fn elements(&self, name: &str, count: i64) -> Result<i64> {
        let of_the_module = || self.module.variables.iter().find(|v| v.name == name).map(Variable::element_bytes);
        let bytes = self.scopes.iter().rev().find_map(|s| s.elements.get(name)).copied().or_else(of_the_module);
        let bytes = bytes.ok_or_else(|| format!("an element of {name}, which is no variable"))?;
        Ok(count.wrapping_mul(bytes as i64))
    }

    pub(super) fn dst(&self, o: &Operand) -> Result<Reg> {
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
    pub(super) fn pair(&self, o: &Operand) -> Result<[u32; 2]> {
        match o {
            Operand::Name(n) => match self.binding(n) {
                Some(Binding::Pair(first)) => Ok([first, first + 1]),
                _ => Err(format!("{n} is not a register of 128 bits")),
            },
            _ => unsupported("operand form"),
        }
    }

    /// `d|p` or `d`.
    pub(super) fn dst_pair(&self, o: &Operand) -> Result<(Reg, Reg)> {
        match o {
            Operand::Pair(a, b) => Ok((self.dst(a)?, self.dst(b)?)),
            o => Ok((self.dst(o)?, Reg::None)),
        }
    }

    pub(super) fn addr(&self, o: &Operand) -> Result<(Src, i64)> {
        let (base, offset) = match o {
            Operand::Addr(base, offset) => (self.src(base, Ty::U64)?, *offset),
            Operand::Element { register: None, .. } => (self.src(o, Ty::U64)?, 0),
            _ => return unsupported("address form"),
        };
        if let Src::Imm(v) = base {
            return Ok((Src::Imm(v.wrapping_add(offset as u64)), 0));
        }
        Ok((base, offset))
    }

    /// Where a memory access goes: as `addr`, and elements that a register numbers.
    pub(super) fn access(&mut self, mods: &Mods, o: &Operand) -> Result<(Src, i64, Space)> {
        let Operand::Element { name, register: Some(register), number } = o else {
            let (base, offset) = self.addr(o)?;
            return Ok((base, offset, self.access_space(mods, base)?));
        };
        let (base, index) = (self.name(name)?, self.name(register)?);
        let op = match index {
            Src::R32(_) => Op::MadWide(Ty::U32),
            Src::R64(_) => Op::MadLo(Ty::U64),
            _ => return unsupported("an element's number that is no integer register"),
        };
        let space = self.access_space(mods, base)?;
        let (bytes, offset) = (self.elements(name, 1)?, self.elements(name, *number)?);
        let at = self.new_reg(Ty::U64, 1);
        let sum = self.emit(op);
        (sum.d, sum.a, sum.b, sum.c) = (Reg::R64(at), index, Src::Imm(bytes as u64), base);
        Ok((Src::R64(at), offset, space))
    }

    /// Space of a memory access: parameters of device functions are frame memory.
    pub(super) fn access_space(&self, mods: &Mods, base: Src) -> Result<Space> {
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
