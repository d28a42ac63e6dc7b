//! Tells text that is no PTX from PTX that the software GPU lacks: the first is refused when it is loaded, the second
//! when a kernel with it is launched.
//!
//! Only what is wrong in every version of PTX counts: a known instruction with too few operands or without its type,
//! and names that nothing declares.

use std::collections::{HashMap, HashSet};

use super::parse::{Function, Module};
use super::syntax::{Instruction, Operand, Stmt};

pub fn check(module: &Module) -> Result<(), String> {
    let outside = outside(module);
    module.functions.iter().try_for_each(|f| function(f, &outside))
}

/// The names at the outermost level of a module.
pub fn outside(module: &Module) -> HashSet<&str> {
    let variables = module.variables.iter().map(|v| v.name.as_str());
    let functions = module.functions.iter().map(|f| f.name.as_str());
    variables.chain(functions).chain(module.aliases.iter().map(|(name, _)| name.as_str())).collect()
}

/// Checks what has been read of a function.
pub fn function(f: &Function, outside: &HashSet<&str>) -> Result<(), String> {
    let names = Names::new(f, outside);
    for statement in &f.body {
        if let Stmt::Instruction(i) = statement {
            check_shape(i).and_then(|()| names.check(i)).map_err(|e| format!("line {}: {}: {e}", i.line, i.opcode))?;
        }
    }
    Ok(())
}

/// Operands an instruction has at least, and whether its opcode names a type.
fn shape(mnemonic: &str) -> Option<(usize, bool)> {
    Some(match mnemonic {
        "ret" | "exit" | "trap" | "brkpt" => (0, false),
        "bra" | "call" => (1, false),
        "prmt" => (4, true),
        "abs" | "neg" | "not" | "cnot" | "popc" | "clz" | "bfind" | "brev" | "mov" | "cvt" | "cvta" | "ld" | "ldu" => {
            (2, true)
        }
        "rcp" | "sqrt" | "rsqrt" | "sin" | "cos" | "lg2" | "ex2" | "tanh" | "st" | "red" => (2, true),
        "add" | "addc" | "sub" | "subc" | "mul" | "mul24" | "div" | "rem" | "min" | "max" | "and" | "or" | "xor"
        | "shl" | "shr" | "setp" | "set" | "copysign" | "atom" => (3, true),
        "mad" | "madc" | "mad24" | "fma" | "sad" | "selp" | "slct" | "bfe" => (4, true),
        "shf" => (4, true),
        "bfi" | "lop3" => (5, true),
        _ => return None,
    })
}

fn check_shape(i: &Instruction) -> Result<(), String> {
    let mut parts = i.opcode.split('.');
    let mnemonic = parts.next().unwrap_or("");
    let Some((least, typed)) = shape(mnemonic) else { return Ok(()) };
    if i.operands.len() < least {
        return Err(format!("{} operands, not {least}", i.operands.len()));
    }
    // `st.bulk` stores bytes.
    if typed && !parts.any(|m| is_type(m) || m == "bulk") {
        return Err("no type".into());
    }
    Ok(())
}

/// Whether a modifier looks like a type, of any version of PTX: `u32`, `f16x2`, `bf16`, `e4m3x2`, `pred`.
fn is_type(modifier: &str) -> bool {
    modifier == "pred" || {
        let digits = modifier.trim_start_matches(|c: char| c.is_ascii_lowercase());
        modifier.len() > digits.len() && digits.starts_with(|c: char| c.is_ascii_digit())
    }
}

/// What the instructions of a function may name. Scopes count as one, so a name from a closed scope is not noticed.
pub struct Names<'a> {
    outside: &'a HashSet<&'a str>,
    inside: HashSet<&'a str>,
    /// `%r<5>` declares `%r0` to `%r4`.
    ranges: HashMap<&'a str, u32>,
}

impl<'a> Names<'a> {
    pub fn new(f: &'a Function, outside: &'a HashSet<&'a str>) -> Self {
        let mut names = Self { outside, inside: HashSet::new(), ranges: HashMap::new() };
        names.inside.extend(f.params.iter().chain(&f.returns).map(|v| v.name.as_str()));
        for statement in &f.body {
            match statement {
                Stmt::Reg { name, count: Some(n), .. } => {
                    let most = names.ranges.entry(name).or_default();
                    *most = (*most).max(*n);
                }
                Stmt::Reg { name, .. } | Stmt::Label(name) | Stmt::Targets(name, _) => {
                    names.inside.insert(name);
                }
                Stmt::Var(v) => {
                    names.inside.insert(&v.name);
                }
                Stmt::Open | Stmt::Close | Stmt::Instruction(_) => {}
            }
        }
        names
    }

    fn check(&self, i: &Instruction) -> Result<(), String> {
        // A call also names prototypes, which the parser drops.
        if i.opcode.starts_with("call") {
            return Ok(());
        }
        let mut unknown = None;
        for o in &i.operands {
            self.visit(o, &mut unknown);
        }
        if let Some((guard, _)) = &i.guard
            && !self.knows(guard)
        {
            unknown = Some(guard);
        }
        unknown.map_or(Ok(()), |name| Err(format!("{name} is not declared")))
    }

    fn visit<'b>(&self, o: &'b Operand, unknown: &mut Option<&'b str>) {
        match o {
            Operand::Name(n) | Operand::Offset(n, _) => {
                if !self.knows(n) {
                    *unknown = Some(n);
                }
            }
            Operand::Element { name, register, .. } => {
                let names = std::iter::once(name).chain(register);
                *unknown = names.filter(|n| !self.knows(n)).map(String::as_str).next().or(*unknown);
            }
            Operand::Addr(b, _) | Operand::Not(b) | Operand::Negated(b) => self.visit(b, unknown),
            Operand::Vec(v) | Operand::Paren(v) => v.iter().for_each(|o| self.visit(o, unknown)),
            Operand::Pair(a, b) => {
                self.visit(a, unknown);
                self.visit(b, unknown);
            }
            Operand::Int(_) | Operand::F32(_) | Operand::F64(_) => {}
        }
    }

    pub fn knows(&self, name: &str) -> bool {
        // `v.x` is a part of `v`.
        let name = name.split('.').next().unwrap_or(name);
        if self.inside.contains(name) || self.outside.contains(name) || matches!(name, "_" | "WARP_SZ") {
            return true;
        }
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        match self.ranges.get(stem) {
            Some(&count) => name[stem.len()..].parse::<u32>().is_ok_and(|n| n < count),
            // Special registers begin with a percent sign, and new versions of PTX bring new ones.
            None => name.starts_with('%'),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;
    use super::check;

    fn verdict(body: &str) -> Result<(), String> {
        let text = format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n.global .u32 g;\n.visible .entry k(.param .u64 p)\n{{\n\
             .reg .b32 %r<3>;\n.reg .pred %q<2>;\n.reg .b64 x;\n{body}\n}}\n"
        );
        check(&parse(&text)?)
    }

    #[test]
    fn what_ptx_allows_passes() {
        for body in [
            "add.u32 %r0, %r1, %r2;",
            "@%q1 bra L; L: ret;",
            "ld.param.u64 x, [p]; mov.u64 x, g; ld.global.u32 %r0, [x+4];",
            "mov.u32 %r0, %tid.x; mov.u32 %r1, %of_the_future; mov.u32 %r2, WARP_SZ;",
            "future.thing %r0;",
            "cvt.rn.e4m3x2.f32 %r0, %r1, %r2;",
        ] {
            assert_eq!(verdict(body), Ok(()), "{body}");
        }
    }

    #[test]
    fn what_no_version_allows_is_told_with_its_line() {
        for body in [
            "add.nonsense;",
            "add.u32 %r0, %r1;",
            "add.nonsense %r0, %r1, %r2;",
            "add.u32 %r0, %r1, %r3;",
            "mov.u32 %r0, absent;",
            "bra NOWHERE;",
            "@%q2 ret;",
        ] {
            let error = verdict(body).expect_err(body);
            assert!(error.starts_with("line 10: "), "{body}: {error}");
        }
    }
}
