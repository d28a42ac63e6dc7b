//! Makes one module of several PTX texts: declarations meet the definitions of other texts, of weak definitions one
//! stays, and what two texts each have for themselves stays apart.

use std::collections::{HashMap, HashSet};

use super::check::Names;
use super::parse::{Function, Module};
use super::syntax::{Init, Linkage, Operand, Stmt, Variable};

type Result<T> = core::result::Result<T, String>;

/// Stands between texts that are to be linked; to all others it is a comment.
pub const NEXT: &str = "\n// Linked with the text that follows.\n";

pub fn link(mut texts: Vec<Module>) -> Result<Module> {
    if texts.len() < 2 {
        return Ok(texts.pop().unwrap_or_default());
    }
    set_apart(&mut texts);
    let mut linked = Module::default();
    for text in texts {
        linked.version = linked.version.max(text.version);
        linked.target = linked.target.max(text.target);
        linked.aliases.extend(text.aliases);
        linked.variables.extend(text.variables);
        linked.functions.extend(text.functions);
    }
    linked.variables = resolve(linked.variables, |v| &v.name, Variable::strength, Variable::bytes)?;
    linked.functions = resolve(linked.functions, |f| &f.name, Function::strength, |_| 0)?;
    Ok(linked)
}

/// What a name means where several texts have it, the strongest last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Strength {
    Declared,
    Common,
    Weak,
    Defined,
}

impl Linkage {
    fn strength(self) -> Strength {
        match self {
            Linkage::Extern => Strength::Declared,
            Linkage::Common => Strength::Common,
            Linkage::Weak => Strength::Weak,
            Linkage::Local | Linkage::Visible => Strength::Defined,
        }
    }
}

impl Variable {
    fn strength(&self) -> Strength {
        self.linkage.strength()
    }
}

impl Function {
    fn strength(&self) -> Strength {
        if self.has_body { self.linkage.strength() } else { Strength::Declared }
    }
}

/// One of each name, in the order in which the names come first.
fn resolve<T>(
    all: Vec<T>,
    name: impl Fn(&T) -> &str,
    strength: impl Fn(&T) -> Strength,
    bytes: impl Fn(&T) -> u64,
) -> Result<Vec<T>> {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut kept: Vec<T> = Vec::new();
    for new in all {
        let Some(&place) = places.get(name(&new)) else {
            places.insert(name(&new).to_string(), kept.len());
            kept.push(new);
            continue;
        };
        let old = &mut kept[place];
        let (was, is) = (strength(old), strength(&new));
        if was == Strength::Defined && is == Strength::Defined {
            return Err(format!("{} is defined twice", name(&new)));
        }
        if is > was || (is == Strength::Common && was == Strength::Common && bytes(&new) > bytes(old)) {
            *old = new;
        }
    }
    Ok(kept)
}

/// Renames what a text has for itself if another text has something of that name, but no more than that: programs may
/// ask for a name.
fn set_apart(texts: &mut [Module]) {
    let mut taken: HashSet<String> =
        texts.iter().flat_map(names).filter(|(_, is_own)| !is_own).map(|(name, _)| name.to_string()).collect();
    for (i, text) in texts.iter_mut().enumerate() {
        let own = names(text).filter(|(_, is_own)| *is_own).map(|(name, _)| name.to_string());
        // No name of PTX has such a character.
        let new_names = own.filter(|name| !taken.insert(name.clone())).map(|name| (format!("{name}@{i}"), name));
        let renames = Renames(new_names.map(|(new, old)| (old, new)).collect());
        if !renames.0.is_empty() {
            renames.module(text);
        }
    }
}

/// The names at the outermost level of a text, and whether it has them for itself.
fn names(text: &Module) -> impl Iterator<Item = (&str, bool)> {
    let variables = text.variables.iter().map(|v| (v.name.as_str(), v.linkage == Linkage::Local));
    let is_alias = |f: &Function| text.aliases.iter().any(|(alias, _)| *alias == f.name);
    // Some texts declare `vprintf` without saying that it is elsewhere.
    let is_own = move |f: &Function| f.linkage == Linkage::Local && (f.has_body || is_alias(f));
    variables.chain(text.functions.iter().map(move |f| (f.name.as_str(), is_own(f))))
}

/// New names by old ones.
struct Renames(HashMap<String, String>);

impl Renames {
    fn name(&self, name: &mut String) {
        if let Some(new) = self.0.get(name) {
            name.clone_from(new);
        }
    }

    fn module(&self, text: &mut Module) {
        for v in &mut text.variables {
            self.name(&mut v.name);
            for init in &mut v.init {
                if let Init::Symbol { name, .. } = init {
                    self.name(name);
                }
            }
        }
        for (alias, target) in &mut text.aliases {
            self.name(alias);
            self.name(target);
        }
        for f in &mut text.functions {
            self.name(&mut f.name);
            self.body(f);
        }
    }

    /// What a function declares itself keeps its name.
    fn body(&self, f: &mut Function) {
        let outside = HashSet::new();
        let own = Names::new(f, &outside);
        let free = self.0.iter().filter(|(old, _)| !own.knows(old));
        let renames = Renames(free.map(|(old, new)| (old.clone(), new.clone())).collect());
        for statement in &mut f.body {
            match statement {
                Stmt::Instruction(i) => i.operands.iter_mut().for_each(|o| renames.operand(o)),
                Stmt::Targets(_, targets) => targets.iter_mut().for_each(|name| renames.name(name)),
                Stmt::Open | Stmt::Close | Stmt::Reg { .. } | Stmt::Var(_) | Stmt::Label(_) => {}
            }
        }
    }

    fn operand(&self, o: &mut Operand) {
        match o {
            Operand::Name(name) | Operand::Offset(name, _) | Operand::Element { name, .. } => self.name(name),
            Operand::Addr(inner, _) | Operand::Not(inner) | Operand::Negated(inner) => self.operand(inner),
            Operand::Vec(all) | Operand::Paren(all) => all.iter_mut().for_each(|o| self.operand(o)),
            Operand::Pair(a, b) => {
                self.operand(a);
                self.operand(b);
            }
            Operand::Int(_) | Operand::F32(_) | Operand::F64(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::check;
    use super::super::decode::program::decode;
    use super::super::parse::parse;
    use super::*;

    fn linked(texts: &[&str]) -> Result<Module> {
        let parse_one = |text: &&str| {
            let module = parse(&format!(".version 8.0\n.target sm_75\n.address_size 64\n{text}"))?;
            check(&module).map(|()| module)
        };
        link(texts.iter().map(parse_one).collect::<Result<_>>()?)
    }

    /// Everything at the outermost level: functions with a body and variables that are not declarations.
    fn defined(module: &Module) -> Vec<&str> {
        let functions = module.functions.iter().filter(|f| f.has_body).map(|f| f.name.as_str());
        let variables = module.variables.iter().filter(|v| v.linkage != Linkage::Extern).map(|v| v.name.as_str());
        functions.chain(variables).collect()
    }

    fn operands<'a>(module: &'a Module, function: &str) -> Vec<&'a Operand> {
        let f = module.functions.iter().find(|f| f.name == function).expect("it is defined");
        let instructions = f.body.iter().filter_map(|s| match s {
            Stmt::Instruction(i) => Some(&i.operands),
            _ => None,
        });
        instructions.flatten().collect()
    }

    fn refusals(module: &Module) -> Vec<(String, Option<String>)> {
        let globals = module.variables.iter().filter(|v| v.linkage != Linkage::Extern).map(|v| (v.name.clone(), 64));
        let program = decode(module, &globals.collect());
        program.funcs.into_iter().filter(|f| f.is_entry).map(|f| (f.name, f.unsupported)).collect()
    }

    const CALLER: &str = ".extern .func f;\n.extern .global .u32 g;\n.extern .const .u32 c;\n\
        .visible .entry k() { .reg .u32 %r<3>; call f; ld.global.u32 %r1, [g]; ld.const.u32 %r2, [c]; ret; }\n";
    const CALLED: &str = ".visible .func f { ret; }\n.visible .global .u32 g = 7;\n.visible .const .u32 c = 8;\n";

    #[test]
    fn declarations_meet_definitions_in_either_order() {
        for texts in [[CALLER, CALLED], [CALLED, CALLER]] {
            let module = linked(&texts).expect("they fit");
            assert_eq!((module.functions.len(), module.variables.len()), (2, 2), "{module:?}");
            assert_eq!(refusals(&module), [("k".to_string(), None)]);
        }
    }

    #[test]
    fn what_no_text_defines_is_missing_in_the_kernels_that_use_it() {
        let other = ".visible .entry other() { ret; }\n";
        let missing = Some("f is not defined".to_string());
        let module = linked(&[CALLER, other, ".visible .const .u32 c;\n.visible .global .u32 g;\n"]).expect("they fit");
        assert_eq!(refusals(&module), [("k".to_string(), missing), ("other".to_string(), None)]);
    }

    #[test]
    fn the_device_runtime_is_named_as_dynamic_parallelism() {
        let parent = ".extern .func (.param .b32 r) cudaLaunchDeviceV2(.param .b64 p);\n\
            .visible .entry k() { .param .b64 p; .param .b32 r; call (r), cudaLaunchDeviceV2, (p); ret; }\n";
        let why = Some("dynamic parallelism (cudaLaunchDeviceV2)".to_string());
        assert_eq!(refusals(&linked(&[CALLED, parent]).expect("they fit")), [("k".to_string(), why)]);
    }

    #[test]
    fn weak_definitions_give_way() {
        let weak = ".weak .func f { .reg .u32 %r<2>; mov.u32 %r1, 1; ret; }\n.weak .global .u32 g = 1;\n";
        for texts in [[weak, CALLED], [CALLED, weak]] {
            let module = linked(&texts).expect("they fit");
            assert!(operands(&module, "f").is_empty());
            assert!(matches!(module.variables[0].init[..], [Init::Int(7)]), "{:?}", module.variables);
        }
        let module = linked(&[weak, ".weak .func f { ret; }\n"]).expect("they fit");
        assert_eq!(operands(&module, "f").len(), 2, "the first stays");
    }

    #[test]
    fn the_largest_common_variable_counts() {
        let (small, large) = (".common .global .b8 g[4];\n", ".common .global .b8 g[16];\n");
        for texts in [[small, large], [large, small]] {
            let module = linked(&texts).expect("they fit");
            assert_eq!(module.variables.iter().map(Variable::bytes).collect::<Vec<_>>(), [16]);
        }
        assert_eq!(linked(&[large, CALLED]).expect("they fit").variables[0].bytes(), 4);
    }

    #[test]
    fn two_definitions_are_refused() {
        assert_eq!(linked(&[CALLED, CALLED]).err().as_deref(), Some("g is defined twice"));
        let kernel = ".visible .entry k() { ret; }\n";
        assert_eq!(linked(&[kernel, kernel]).err().as_deref(), Some("k is defined twice"));
    }

    #[test]
    fn names_of_one_text_stay_apart() {
        let text = |kernel| {
            format!(
                ".global .u32 own = 3;\n.global .u64 to_own = own;\n.func help {{ ret; }}\n\
                 .visible .entry {kernel}() {{\n.reg .u32 %r<2>; .reg .b64 t; call help;\n\
                 ld.global.u32 %r1, [own+4]; mov.u64 t, help; ret; }}\n"
            )
        };
        let module = linked(&[&text("a"), &text("b")]).expect("they fit");
        let names = ["help", "a", "help@1", "b", "own", "to_own", "own@1", "to_own@1"];
        assert_eq!(defined(&module), names);
        let name = |name: &str| Operand::Name(name.to_string());
        let own = |name: &str| Operand::Addr(Box::new(Operand::Name(name.to_string())), 4);
        for (kernel, help, variable) in [("a", "help", "own"), ("b", "help@1", "own@1")] {
            let operands = operands(&module, kernel);
            assert!([&name(help), &own(variable)].iter().all(|o| operands.contains(o)), "{operands:?}");
        }
        let pointer = module.variables.iter().find(|v| v.name == "to_own@1").expect("renamed");
        assert!(matches!(&pointer.init[..], [Init::Symbol { name, .. }] if name == "own@1"), "{pointer:?}");
        assert!(refusals(&module).iter().all(|(_, why)| why.is_none()));
    }

    #[test]
    fn aliases_lead_to_the_functions_of_their_text() {
        let text = |kernel| {
            format!(
                ".func other;\n.func help {{ ret; }}\n.alias other, help;\n\
                 .visible .entry {kernel}() {{ call other; ret; }}\n"
            )
        };
        let module = linked(&[&text("a"), &text("b")]).expect("they fit");
        let pair = |alias: &str, of: &str| (alias.to_string(), of.to_string());
        assert_eq!(module.aliases, [pair("other", "help"), pair("other@1", "help@1")]);
        assert!(refusals(&module).iter().all(|(_, why)| why.is_none()));
    }

    #[test]
    fn a_name_of_one_text_does_not_take_the_place_of_a_shared_one() {
        let module = linked(&[".func f { trap; }\n.visible .entry a() { call f; ret; }\n", CALLER, CALLED]);
        let module = module.expect("they fit");
        assert_eq!(operands(&module, "a"), [&Operand::Name("f@0".to_string())]);
        assert_eq!(operands(&module, "k")[0], &Operand::Name("f".to_string()));
    }

    #[test]
    fn what_a_function_declares_itself_keeps_its_name() {
        let text = ".global .u32 x;\n.func f(.param .u32 x) { .reg .u32 r; ld.param.u32 r, [x]; ret; }\n";
        let module = linked(&[text, text]).expect("they fit");
        let x = Operand::Addr(Box::new(Operand::Name("x".to_string())), 0);
        assert_eq!(operands(&module, "f@1")[1], &x);
    }

    #[test]
    fn the_newest_version_and_target_count() {
        let old = parse(".version 7.5\n.target sm_70\n").expect("valid");
        let new = parse(".version 9.0\n.target sm_90\n").expect("valid");
        let module = link(vec![new, old]).expect("they fit");
        assert_eq!((module.version, module.target), ((9, 0), 90));
    }
}
