//! What one kernel needs of a module whose functions have not been read.

use std::collections::{HashMap, HashSet};

use super::check;
use super::decode::program::visit_names;
use super::parse::{Function, Module};
use super::syntax::{Instruction, Operand, Stmt, Variable};

/// The module with the bodies that a kernel can come to; other functions are declarations, so that all keep their
/// places. Nothing if the kernel may call an address, which any function's can be.
///
/// What is wrong with a body is kept in its function (`invalid`).
pub fn of(module: &Module, kernel: usize) -> Option<Module> {
    let (places, outside) = (module.places(), check::outside(module));
    let mut read: Vec<Option<Function>> = vec![None; module.functions.len()];
    let mut wanted = vec![kernel];
    while let Some(i) = wanted.pop() {
        if read[i].is_none() {
            let f = read_body(module, i, &outside);
            wanted.extend(reached(&f, &places)?);
            read[i] = Some(f);
        }
    }
    let functions = read.into_iter().zip(&module.functions).map(|(read, f)| read.unwrap_or_else(|| declaration(f)));
    Some(with_functions(module, functions.collect()))
}

/// The module with all bodies.
pub fn whole(module: &Module) -> Module {
    let outside = check::outside(module);
    with_functions(module, (0..module.functions.len()).map(|i| read_body(module, i, &outside)).collect())
}

fn with_functions(module: &Module, functions: Vec<Function>) -> Module {
    // Code needs no first values of variables, which may be many.
    let variables =
        module.variables.iter().map(|v| Variable { name: v.name.clone(), init: Vec::new(), ..*v }).collect();
    let aliases = module.aliases.clone();
    Module { functions, variables, aliases, version: module.version, target: module.target, ..Module::default() }
}

fn read_body(module: &Module, i: usize, outside: &HashSet<&str>) -> Function {
    let mut f = module.functions[i].clone();
    if let Some(unread) = f.unread.take() {
        let body = unread.read(module).map(|body| f.body = body);
        f.invalid = body.and_then(|()| check::function(&f, outside)).err();
    }
    f
}

fn declaration(f: &Function) -> Function {
    Function { name: f.name.clone(), linkage: f.linkage, ..Function::default() }
}

/// The functions that a function names; nothing if it may call any.
fn reached(f: &Function, places: &HashMap<&str, usize>) -> Option<HashSet<usize>> {
    let mut found = HashSet::new();
    for statement in &f.body {
        match statement {
            Stmt::Instruction(i) if calls_an_address(i, places) => return None,
            Stmt::Instruction(i) => {
                for o in &i.operands {
                    visit_names(o, &mut |name| found.extend(places.get(name)));
                }
            }
            Stmt::Targets(_, names) => found.extend(names.iter().filter_map(|name| places.get(name.as_str()))),
            Stmt::Open | Stmt::Close | Stmt::Reg { .. } | Stmt::Var(_) | Stmt::Label(_) => {}
        }
    }
    Some(found)
}

fn calls_an_address(i: &Instruction, places: &HashMap<&str, usize>) -> bool {
    let mut operands = i.operands.iter().skip_while(|o| matches!(o, Operand::Paren(_)));
    let is_call = i.opcode == "call" || i.opcode.starts_with("call.");
    is_call && !matches!(operands.next(), Some(Operand::Name(callee)) if places.contains_key(callee.as_str()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::parse::outline;
    use super::*;

    const HEAD: &str = ".version 8.0\n.target sm_75\n.address_size 64\n";

    fn module(text: &str) -> Module {
        outline(&Arc::new(format!("{HEAD}{text}"))).expect("it is PTX")
    }

    fn read(part: &Module) -> Vec<&str> {
        part.functions.iter().filter(|f| !f.body.is_empty()).map(|f| f.name.as_str()).collect()
    }

    #[test]
    fn of_many_functions_those_that_a_kernel_comes_to_are_read() {
        let text: String = (0..1000).map(|i| format!(".visible .entry k{i}() {{ call f{i}; ret; }}\n")).collect();
        let called: String = (0..1000).map(|i| format!(".func f{i}() {{ call g; ret; }}\n")).collect();
        let m = module(&format!(".func g();{called}{text}.func g() {{ ret; }}\n"));
        assert_eq!((m.functions.len(), read(&m).len()), (2001, 0));
        let part = of(&m, m.places()["k700"]).expect("it calls functions by name");
        assert_eq!(read(&part), ["g", "f700", "k700"]);
        assert_eq!(part.functions.len(), 2001);
    }

    #[test]
    fn a_call_of_an_address_wants_all() {
        let m = module(
            ".func f() { ret; }\n.entry k(.param .u64 p) { .reg .u64 a; ld.param.u64 a, [p]; p: .callprototype _ ();\n\
             call a, p; ret; }\n.entry l() { .reg .u64 a; mov.u64 a, f; ret; }\n",
        );
        assert!(of(&m, 1).is_none());
        assert_eq!(read(&whole(&m)), ["f", "k", "l"]);
        assert_eq!(of(&m, 2).as_ref().map(read).expect("it calls none"), ["f", "l"]);
    }

    #[test]
    fn an_element_of_a_variable_outside_is_known() {
        let m = module(".global .align 8 .b64 g[4];\n.entry k() { .reg .u64 a; mov.u64 a, g[3]; ret; }\n");
        let part = of(&m, 0).expect("it calls none");
        assert_eq!(part.functions[0].invalid, None);
        let mut named = Vec::new();
        for statement in &part.functions[0].body {
            if let Stmt::Instruction(i) = statement {
                named.extend(i.operands.iter().filter(|o| matches!(o, Operand::Element { .. })));
            }
        }
        assert_eq!(named, [&Operand::Element { name: "g".to_string(), register: None, number: 3 }]);
    }

    #[test]
    fn what_is_wrong_with_a_body_is_told_with_its_line_when_it_is_read() {
        let m = module(
            ".entry k() { ret; }\n.entry wrong() {\n// }\n.pragma \"}\"; add.u32 %r1 %r2;\n}\n.entry l() { bra L; }\n",
        );
        let invalid = |kernel: usize| of(&m, kernel).and_then(|part| part.functions[kernel].invalid.clone());
        assert_eq!(invalid(0), None);
        assert!(invalid(1).is_some_and(|why| why.starts_with("line 7: expected ','")), "{:?}", invalid(1));
        assert_eq!(invalid(2).as_deref(), Some("line 9: bra: L is not declared"));
    }
}
