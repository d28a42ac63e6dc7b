//! Registers that are vectors (`.reg .v2 .u32 %r5;`), as GCC makes some: each becomes as many registers as it has
//! elements (`%r5.x`, `%r5.y`), and where it stands as a whole they stand in braces. NVIDIA's compilers make none.

use std::collections::HashMap;

use super::isa::operand::Ty;
use super::syntax::{Instruction, Operand, Stmt};

const ELEMENTS: [&str; 4] = ["x", "y", "z", "w"];
/// What an element may be called too.
const COLOURS: [&str; 4] = ["r", "g", "b", "a"];
/// More of one name (`.reg .v4 .f32 %v<100000>`) are left as they are, and refused where they are used.
const NUMBERED_MAX: u32 = 1 << 16;

/// How many elements the registers of a scope have, by name; none where a scalar hides a vector of another scope.
type Scope = HashMap<String, u32>;

pub fn split(body: Vec<Stmt>) -> Vec<Stmt> {
    let is_vector = |stmt: &Stmt| matches!(stmt, Stmt::Reg { vector: 2.., .. });
    if !body.iter().any(is_vector) {
        return body;
    }
    let (mut scopes, mut out) = (vec![Scope::new()], Vec::with_capacity(body.len()));
    for stmt in body {
        match stmt {
            Stmt::Open => scopes.push(Scope::new()),
            Stmt::Close => drop(scopes.pop()),
            Stmt::Reg { vector, ref name, count, .. } if count.unwrap_or(1) <= NUMBERED_MAX => {
                let names = match count {
                    None => vec![name.clone()],
                    Some(count) => (0..count).map(|i| format!("{name}{i}")).collect(),
                };
                if vector > 1 {
                    out.extend(names.iter().flat_map(|name| elements(name, vector)).map(|name| scalar(&stmt, name)));
                }
                let scope = scopes.last_mut().expect("a scope closes that was opened");
                scope.extend(names.into_iter().map(|name| (name, vector)));
                if vector > 1 {
                    continue;
                }
            }
            Stmt::Instruction(i) => {
                replace(i, &scopes, &mut out);
                continue;
            }
            _ => {}
        }
        out.push(stmt);
    }
    out
}

fn elements(name: &str, count: u32) -> impl Iterator<Item = String> {
    ELEMENTS.iter().take(count as usize).map(move |element| format!("{name}.{element}"))
}

/// A register of the type of a vector's elements.
fn scalar(of: &Stmt, name: String) -> Stmt {
    match of {
        Stmt::Reg { ty, .. } => Stmt::Reg { ty: *ty, vector: 1, name, count: None },
        _ => unreachable!("only registers have elements"),
    }
}

fn size(name: &str, scopes: &[Scope]) -> u32 {
    scopes.iter().rev().find_map(|scope| scope.get(name)).copied().unwrap_or(1)
}

fn replace(mut i: Instruction, scopes: &[Scope], out: &mut Vec<Stmt>) {
    i.operands.iter_mut().for_each(|operand| whole(operand, scopes));
    let is_move = i.opcode.strip_prefix("mov.v2.").or(i.opcode.strip_prefix("mov.v4."));
    match (is_move.map(str::to_owned), &i.operands[..]) {
        (Some(ty), [Operand::Vec(to), Operand::Vec(from)]) if to.len() == from.len() => {
            one_by_one(&i, &ty, to, from, out);
        }
        _ => out.push(Stmt::Instruction(i)),
    }
}

/// A move of a vector. Of elements that are read after they were written the values are kept.
fn one_by_one(i: &Instruction, ty: &str, to: &[Operand], from: &[Operand], out: &mut Vec<Stmt>) {
    let each = |to: Operand, from: Operand| {
        let opcode = format!("mov.{ty}");
        Stmt::Instruction(Instruction { guard: i.guard.clone(), opcode, operands: vec![to, from], line: i.line })
    };
    let overlaps = (0..to.len()).any(|k| from[k + 1..].contains(&to[k]));
    let Some(kept) = Ty::from_name(ty).filter(|_| overlaps) else {
        out.extend(to.iter().zip(from).map(|(to, from)| each(to.clone(), from.clone())));
        return;
    };
    let names: Vec<String> = elements("%orion_kept", to.len() as u32).collect();
    out.push(Stmt::Open);
    out.extend(names.iter().map(|name| Stmt::Reg { ty: kept, vector: 1, name: name.clone(), count: None }));
    out.extend(names.iter().zip(from).map(|(name, from)| each(Operand::Name(name.clone()), from.clone())));
    out.extend(to.iter().zip(&names).map(|(to, name)| each(to.clone(), Operand::Name(name.clone()))));
    out.push(Stmt::Close);
}

fn whole(operand: &mut Operand, scopes: &[Scope]) {
    match operand {
        Operand::Name(name) => {
            let count = size(name, scopes);
            if count > 1 {
                *operand = Operand::Vec(elements(name, count).map(Operand::Name).collect());
            } else if let Some((stem, element)) = name.rsplit_once('.')
                && size(stem, scopes) > 1
                && let Some(i) = COLOURS.iter().position(|colour| *colour == element)
            {
                *name = format!("{stem}.{}", ELEMENTS[i]);
            }
        }
        Operand::Addr(inner, _) | Operand::Not(inner) | Operand::Negated(inner) => whole(inner, scopes),
        Operand::Pair(a, b) => [a, b].into_iter().for_each(|inner| whole(inner, scopes)),
        Operand::Vec(all) | Operand::Paren(all) => all.iter_mut().for_each(|inner| whole(inner, scopes)),
        Operand::Int(_) | Operand::F32(_) | Operand::F64(_) | Operand::Offset(..) | Operand::Element { .. } => {}
    }
}
