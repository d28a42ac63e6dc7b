//! Parses tokens into a module: variables, functions, and instructions with unresolved names.
//!
//! Names are resolved in `decode`, because addresses of globals differ between the contexts a module is loaded in.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::constant;
use super::isa::operand::{Space, Ty};
use super::lex::{self, Tok, Token};
use super::syntax::{Init, Instruction, Linkage, Operand, Stmt, Variable};
use super::vectors;

/// Variables that are declared by one name and how many there are of it (`.param .u64 %P<2>;`).
const NUMBERED_MAX: u64 = 1 << 16;

/// A function's body in the text of its module.
#[derive(Clone, Debug)]
pub struct Unread {
    /// Bytes of the text, braces and all.
    place: Range<usize>,
    line: u32,
}

impl Unread {
    pub fn read(&self, module: &Module) -> Result<Vec<Stmt>> {
        let mut parser = Parser::new(lex::lex(&module.text[self.place.clone()], self.line)?);
        let body = parser.body()?;
        if parser.peek().is_some() { parser.fail("expected the end of a function") } else { Ok(body) }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Function {
    pub name: String,
    pub linkage: Linkage,
    pub is_entry: bool,
    pub has_body: bool,
    pub params: Vec<Variable>,
    pub returns: Vec<Variable>,
    pub body: Vec<Stmt>,
    /// Where the body is that has not been read.
    pub unread: Option<Unread>,
    /// Why the body, which was read late, cannot be run.
    pub invalid: Option<String>,
    pub max_ntid: Option<[u32; 3]>,
    pub req_ntid: Option<[u32; 3]>,
    pub req_cluster: Option<[u32; 3]>,
    pub explicit_cluster: bool,
    pub blocks_are_clusters: bool,
    pub max_cluster: Option<u32>,
    pub min_ctas: u32,
}

#[derive(Clone, Debug, Default)]
pub struct Module {
    pub version: (u32, u32),
    pub target: u32,
    pub variables: Vec<Variable>,
    pub functions: Vec<Function>,
    pub aliases: Vec<(String, String)>,
    /// The text of which bodies have not been read.
    pub text: Arc<String>,
    /// The name of the file that the program has it in, as far as that is known.
    pub owner: String,
}

impl Module {
    /// Where the function of a name is, or the one that a name is an alias of.
    pub fn places(&self) -> HashMap<&str, usize> {
        let mut places: HashMap<&str, usize> =
            self.functions.iter().enumerate().map(|(i, f)| (f.name.as_str(), i)).collect();
        for (alias, target) in &self.aliases {
            if let Some(&i) = places.get(target.as_str()) {
                places.insert(alias, i);
            }
        }
        places
    }
}

/// The whole of a text.
pub fn parse(text: &str) -> Result<Module> {
    Parser::new(lex::lex(text, 1)?).module()
}

/// A text without the bodies of its functions, which are left to be read when they are needed.
pub fn outline(text: &Arc<String>) -> Result<Module> {
    let module = Parser::new(lex::outline(text)?).module()?;
    Ok(Module { text: text.clone(), ..module })
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
}

type Result<T, E = String> = core::result::Result<T, E>;

impl<'a> Parser<'a> {
    fn new(tokens: Vec<Token<'a>>) -> Parser<'a> {
        Parser { tokens, at: 0 }
    }

    fn peek(&self) -> Option<Tok<'a>> {
        self.tokens.get(self.at).map(|t| t.tok)
    }
    fn line(&self) -> u32 {
        self.tokens.get(self.at.min(self.tokens.len().saturating_sub(1))).map_or(0, |t| t.line)
    }
    fn fail<T>(&self, what: &str) -> Result<T> {
        let near = match self.peek() {
            Some(t) => format!("{t:?}"),
            None => "end of text".into(),
        };
        Err(format!("line {}: {what} near {near}", self.line()))
    }
    fn next(&mut self) -> Result<Tok<'a>> {
        match self.tokens.get(self.at) {
            Some(t) => {
                self.at += 1;
                Ok(t.tok)
            }
            None => Err("unexpected end of text".into()),
        }
    }
    fn is(&self, c: char) -> bool {
        self.peek() == Some(Tok::Punct(c))
    }
    fn eat(&mut self, c: char) -> bool {
        let hit = self.is(c);
        self.at += usize::from(hit);
        hit
    }
    fn expect(&mut self, c: char) -> Result<()> {
        if self.eat(c) { Ok(()) } else { self.fail(&format!("expected '{c}'")) }
    }
    fn word(&mut self) -> Result<String> {
        match self.peek() {
            Some(Tok::Word(w)) => {
                self.at += 1;
                Ok(w.into())
            }
            _ => self.fail("expected a name"),
        }
    }
    fn peek_word(&self) -> Option<&'a str> {
        match self.peek() {
            Some(Tok::Word(w)) => Some(w),
            _ => None,
        }
    }
    fn int(&mut self) -> Result<u64> {
        let negative = self.eat('-');
        match self.next()? {
            Tok::Int(v) => Ok(if negative { v.wrapping_neg() } else { v }),
            _ => {
                self.at -= 1;
                self.fail("expected an integer")
            }
        }
    }
    fn constant(&mut self) -> Result<u64> {
        constant::value(&self.tokens, &mut self.at).or_else(|what| self.fail(&what))
    }
    fn skip_line(&mut self) {
        let line = self.line();
        while self.at < self.tokens.len() && self.tokens[self.at].line == line {
            self.at += 1;
        }
    }
    fn skip_braces(&mut self) -> Result<()> {
        let mut depth = 0;
        loop {
            match self.next()? {
                Tok::Unread(..) => return Ok(()),
                Tok::Punct('{') => depth += 1,
                Tok::Punct('}') => {
                    depth -= 1;
                    if depth == 0 {
                        return Ok(());
                    }
                }
                _ => {}
            }
        }
    }

    fn module(&mut self) -> Result<Module> {
        let mut m = Module::default();
        let mut seen_version = false;
        while let Some(tok) = self.peek() {
            let Tok::Word(w) = tok else {
                if self.eat(';') {
                    continue;
                }
                return self.fail("expected a directive");
            };
            match w {
                ".version" => {
                    self.at += 1;
                    m.version = match self.next()? {
                        Tok::F64(v) => {
                            let v = (f64::from_bits(v) * 10.0).round() as u32;
                            (v / 10, v % 10)
                        }
                        Tok::Int(v) => (v as u32, 0),
                        _ => return self.fail("malformed .version"),
                    };
                    seen_version = true;
                }
                ".target" => {
                    self.at += 1;
                    let target = self.word()?;
                    let digits: String =
                        target.trim_start_matches("sm_").chars().take_while(char::is_ascii_digit).collect();
                    m.target = digits.parse().map_err(|_| format!("line {}: unknown .target {target}", self.line()))?;
                    while self.eat(',') {
                        self.word()?;
                    }
                }
                ".address_size" => {
                    self.at += 1;
                    if self.int()? != 64 {
                        return self.fail("only .address_size 64 is known");
                    }
                }
                ".file" | ".loc" => self.skip_line(),
                ".section" => {
                    self.at += 1;
                    self.skip_braces()?;
                }
                ".pragma" => {
                    while !self.eat(';') {
                        self.next()?;
                    }
                }
                ".alias" => {
                    self.at += 1;
                    let a = self.word()?;
                    self.expect(',')?;
                    let b = self.word()?;
                    self.expect(';')?;
                    m.aliases.push((a, b));
                }
                _ => {
                    if !seen_version {
                        return self.fail("missing .version directive");
                    }
                    self.top_level(&mut m)?;
                }
            }
        }
        if !seen_version {
            return Err("not PTX: no .version directive".into());
        }
        Ok(m)
    }

    fn top_level(&mut self, m: &mut Module) -> Result<()> {
        let mut linkage = Linkage::Local;
        loop {
            let Some(directive) = self.peek_word() else { return self.fail("unknown directive") };
            linkage = match directive {
                ".visible" => Linkage::Visible,
                ".weak" => Linkage::Weak,
                ".common" => Linkage::Common,
                ".extern" => Linkage::Extern,
                ".entry" | ".func" => {
                    let is_entry = directive == ".entry";
                    self.at += 1;
                    let f = self.function(is_entry)?;
                    add_function(m, Function { linkage, ..f });
                    return Ok(());
                }
                ".global" | ".const" | ".shared" | ".tex" => {
                    for v in self.variables()? {
                        m.variables.push(Variable { linkage, ..v });
                    }
                    return Ok(());
                }
                _ => return self.fail("unknown directive"),
            };
            self.at += 1;
        }
    }

    fn function(&mut self, is_entry: bool) -> Result<Function> {
        let mut f = Function { is_entry, ..Function::default() };
        while self.peek_word().is_some_and(|w| w.starts_with('.')) {
            self.attribute(&mut f)?;
        }
        if self.is('(') {
            f.returns = self.formals()?;
        }
        while self.peek_word().is_some_and(|w| w.starts_with('.')) {
            self.attribute(&mut f)?;
        }
        f.name = self.word()?;
        if self.is('(') {
            f.params = self.formals()?;
        }
        while let Some(w) = self.peek_word() {
            if matches!(w, ".loc" | ".file") {
                self.skip_line();
            } else if w.starts_with('.') {
                self.attribute(&mut f)?;
            } else {
                break;
            }
        }
        if self.eat(';') {
            return Ok(f);
        }
        f.has_body = true;
        match self.peek() {
            Some(Tok::Unread(from, to)) => {
                f.unread = Some(Unread { place: from..to, line: self.line() });
                self.at += 1;
            }
            Some(Tok::Punct('{')) => f.body = self.body()?,
            _ => return self.fail("expected a function body"),
        }
        Ok(f)
    }

    fn body(&mut self) -> Result<Vec<Stmt>> {
        self.expect('{')?;
        let mut body = Vec::new();
        let mut depth = 1;
        while depth > 0 {
            if self.eat('{') {
                depth += 1;
                body.push(Stmt::Open);
            } else if self.eat('}') {
                depth -= 1;
                if depth > 0 {
                    body.push(Stmt::Close);
                }
            } else if !self.eat(';') {
                self.statement(&mut body)?;
            }
        }
        Ok(vectors::split(body))
    }

    fn attribute(&mut self, f: &mut Function) -> Result<()> {
        let w = self.word()?;
        let dims = |p: &mut Self| -> Result<[u32; 3]> {
            let mut d = [1u32; 3];
            d[0] = p.int()? as u32;
            for slot in &mut d[1..] {
                if p.eat(',') {
                    *slot = p.int()? as u32;
                }
            }
            Ok(d)
        };
        match w.as_str() {
            ".maxntid" => f.max_ntid = Some(dims(self)?),
            ".reqntid" => f.req_ntid = Some(dims(self)?),
            ".reqnctapercluster" => f.req_cluster = Some(dims(self)?),
            ".minnctapersm" => f.min_ctas = self.int()? as u32,
            ".maxclusterrank" => f.max_cluster = Some(self.int()? as u32),
            ".explicitcluster" => f.explicit_cluster = true,
            ".maxnreg" | ".maxnctapersm" | ".abi_preserve" | ".abi_preserve_control" => {
                self.int()?;
            }
            ".blocksareclusters" => f.blocks_are_clusters = true,
            ".noreturn" => {}
            ".pragma" => {
                while !self.eat(';') {
                    self.next()?;
                }
            }
            ".attribute" => {
                self.expect('(')?;
                while !self.eat(')') {
                    self.next()?;
                }
            }
            ".unified" => {
                self.expect('(')?;
                while !self.eat(')') {
                    self.next()?;
                }
            }
            _ => {
                self.at -= 1;
                return self.fail("unknown function directive");
            }
        }
        Ok(())
    }

    fn formals(&mut self) -> Result<Vec<Variable>> {
        self.expect('(')?;
        let mut out = Vec::new();
        while !self.eat(')') {
            let v = self.variable_head()?;
            out.push(v);
            self.eat(',');
        }
        Ok(out)
    }

    /// `.space .align n .ty name[count]`, without initialiser and terminator. `.reg` formals count as parameters.
    fn variable_head(&mut self) -> Result<Variable> {
        let mut v = Variable {
            space: Space::Param,
            name: String::new(),
            ty: Ty::B32,
            vector: 1,
            align: 0,
            count: Some(1),
            init: Vec::new(),
            linkage: Linkage::Local,
            is_managed: false,
        };
        loop {
            let w = self.word()?;
            match w.as_str() {
                ".global" => v.space = Space::Global,
                ".const" => v.space = Space::Const,
                ".shared" => v.space = Space::Shared,
                ".local" => v.space = Space::Local,
                ".param" | ".reg" => v.space = Space::Param,
                ".tex" => v.space = Space::Global,
                ".align" => v.align = self.int()? as u32,
                ".ptr" => {
                    // `.ptr .global .align 8` describes what the parameter points to.
                    while let Some(w) = self.peek_word() {
                        match w {
                            ".global" | ".const" | ".shared" | ".local" | ".generic" => self.at += 1,
                            ".align" => {
                                self.at += 1;
                                self.int()?;
                                break;
                            }
                            _ => break,
                        }
                    }
                }
                ".attribute" => {
                    self.expect('(')?;
                    while !self.eat(')') {
                        if let Tok::Word(w) = self.next()? {
                            v.is_managed |= w == ".managed";
                        }
                    }
                }
                ".v2" => v.vector = 2,
                ".v4" => v.vector = 4,
                ".texref" | ".samplerref" | ".surfref" => v.ty = Ty::B64,
                w if w.starts_with('.') => match Ty::from_name(&w[1..]) {
                    Some(ty) => v.ty = ty,
                    None => {
                        self.at -= 1;
                        return self.fail("unknown type");
                    }
                },
                _ => {
                    v.name = w;
                    break;
                }
            }
        }
        while self.eat('[') {
            if self.eat(']') {
                v.count = None;
            } else {
                let n = self.constant()?;
                v.count = v.count.map(|c| c.saturating_mul(n));
                self.expect(']')?;
            }
        }
        if v.align == 0 {
            v.align = v.element_bytes() as u32;
        }
        Ok(v)
    }

    fn variables(&mut self) -> Result<Vec<Variable>> {
        let mut out = Vec::new();
        let mut v = self.variable_head()?;
        loop {
            if self.eat('=') {
                self.initialiser(&mut v.init)?;
                if v.count.is_none() {
                    v.count = Some(v.init.len() as u64);
                }
            }
            let template = Variable { init: Vec::new(), count: Some(1), ..v.clone() };
            if self.eat('<') {
                let count = self.int()?;
                self.expect('>')?;
                if count > NUMBERED_MAX {
                    return self.fail(&format!("more than {NUMBERED_MAX} variables of one name"));
                }
                out.extend((0..count).map(|i| Variable { name: format!("{}{i}", v.name), ..template.clone() }));
            } else {
                out.push(v);
            }
            if !self.eat(',') {
                break;
            }
            v = template;
            v.name = self.word()?;
            while self.eat('[') {
                let n = self.constant()?;
                v.count = v.count.map(|c| c.saturating_mul(n));
                self.expect(']')?;
            }
        }
        self.expect(';')?;
        Ok(out)
    }

    fn initialiser(&mut self, out: &mut Vec<Init>) -> Result<()> {
        if self.eat('{') {
            while !self.eat('}') {
                self.initialiser(out)?;
                self.eat(',');
            }
            return Ok(());
        }
        if constant::begins(&self.tokens, self.at) {
            let value = self.constant()?;
            out.push(if self.eat('(') {
                let (name, addend) = self.symbol_expression()?;
                self.expect(')')?;
                Init::Symbol { name, addend, mask: value }
            } else {
                Init::Int(value)
            });
            return Ok(());
        }
        let negative = self.eat('-');
        let init = match self.next()? {
            Tok::F32(v) => Init::F32(if negative { v ^ 0x8000_0000 } else { v }),
            Tok::F64(v) => Init::F64(if negative { v ^ (1 << 63) } else { v }),
            Tok::Word(_) => {
                self.at -= 1;
                let (name, addend) = self.symbol_expression()?;
                Init::Symbol { name, addend, mask: u64::MAX }
            }
            _ => return self.fail("malformed initialiser"),
        };
        out.push(init);
        Ok(())
    }

    fn symbol_expression(&mut self) -> Result<(String, i64)> {
        let mut name = self.word()?;
        if name == "generic" && self.eat('(') {
            let (inner, addend) = self.symbol_expression()?;
            self.expect(')')?;
            name = inner;
            return Ok((name, addend + self.addend()?));
        }
        Ok((name, self.addend()?))
    }

    fn addend(&mut self) -> Result<i64> {
        let mut sum = 0i64;
        loop {
            if self.eat('+') {
                sum = sum.wrapping_add(self.int()? as i64);
            } else if self.eat('-') {
                sum = sum.wrapping_sub(self.int()? as i64);
            } else {
                return Ok(sum);
            }
        }
    }

    fn statement(&mut self, body: &mut Vec<Stmt>) -> Result<()> {
        let line = self.line();
        if self.eat('@') {
            let negated = self.eat('!');
            let p = self.word()?;
            let opcode = self.word()?;
            return self.instruction(body, Some((p, negated)), opcode, line);
        }
        let w = self.word()?;
        match w.as_str() {
            ".loc" | ".file" => {
                self.at -= 1;
                self.skip_line();
                return Ok(());
            }
            ".pragma" => {
                while !self.eat(';') {
                    self.next()?;
                }
                return Ok(());
            }
            ".section" => return self.skip_braces(),
            ".reg" => return self.registers(body),
            ".local" | ".shared" | ".param" | ".global" | ".const" => {
                self.at -= 1;
                for v in self.variables()? {
                    body.push(Stmt::Var(v));
                }
                return Ok(());
            }
            _ => {}
        }
        if self.eat(':') {
            match self.peek_word() {
                Some(".callprototype") => {
                    while !self.eat(';') {
                        self.next()?;
                    }
                }
                Some(".branchtargets" | ".calltargets") => {
                    self.at += 1;
                    let mut names = Vec::new();
                    while !self.eat(';') {
                        names.push(self.word()?);
                        self.eat(',');
                    }
                    body.push(Stmt::Targets(w, names));
                }
                _ => body.push(Stmt::Label(w)),
            }
            return Ok(());
        }
        self.instruction(body, None, w, line)
    }

    fn registers(&mut self, body: &mut Vec<Stmt>) -> Result<()> {
        let mut vector = 1;
        let mut ty = None;
        while let Some(w) = self.peek_word().filter(|w| w.starts_with('.')).map(str::to_string) {
            self.at += 1;
            match w.as_str() {
                ".v2" => vector = 2,
                ".v4" => vector = 4,
                w => ty = Ty::from_name(&w[1..]),
            }
        }
        let Some(ty) = ty else { return self.fail("unknown register type") };
        loop {
            let name = self.word()?;
            let mut count = None;
            if self.eat('<') {
                count = Some(self.int()? as u32);
                self.expect('>')?;
            }
            body.push(Stmt::Reg { ty, vector, name, count });
            if !self.eat(',') {
                break;
            }
        }
        self.expect(';')
    }

    fn instruction(
        &mut self,
        body: &mut Vec<Stmt>,
        guard: Option<(String, bool)>,
        opcode: String,
        line: u32,
    ) -> Result<()> {
        if !opcode.starts_with(|c: char| c.is_ascii_lowercase()) {
            self.at -= 1;
            return self.fail("expected an instruction");
        }
        let mut operands = Vec::new();
        while !self.eat(';') {
            operands.push(self.operand()?);
            if !self.eat(',') && !self.is(';') {
                return self.fail("expected ',' or ';'");
            }
        }
        body.push(Stmt::Instruction(Instruction { guard, opcode, operands, line }));
        Ok(())
    }

    fn operand(&mut self) -> Result<Operand> {
        let first = self.simple_operand()?;
        if self.eat('|') {
            let second = self.simple_operand()?;
            return Ok(Operand::Pair(Box::new(first), Box::new(second)));
        }
        Ok(first)
    }

    /// What is in the brackets of `name[2]` or `name[%r1-2]`.
    fn element(&mut self, name: &str) -> Result<Operand> {
        let (register, number) = match self.peek_word() {
            Some(register) => {
                self.at += 1;
                (Some(register.into()), self.addend()?)
            }
            None => (None, self.constant()? as i64),
        };
        self.expect(']')?;
        Ok(Operand::Element { name: name.into(), register, number })
    }

    fn list(&mut self, close: char) -> Result<Vec<Operand>> {
        let mut out = Vec::new();
        while !self.eat(close) {
            out.push(self.operand()?);
            if !self.eat(',') && !self.is(close) {
                return self.fail("malformed operand list");
            }
        }
        Ok(out)
    }

    fn simple_operand(&mut self) -> Result<Operand> {
        if constant::begins(&self.tokens, self.at) {
            return Ok(Operand::Int(self.constant()?));
        }
        if self.eat('!') {
            return Ok(Operand::Not(Box::new(self.simple_operand()?)));
        }
        if self.eat('{') {
            return Ok(Operand::Vec(self.list('}')?));
        }
        if self.eat('(') {
            return Ok(Operand::Paren(self.list(')')?));
        }
        if self.eat('[') {
            let base = self.simple_operand()?;
            let (base, mut offset) = match base {
                Operand::Offset(n, o) => (Operand::Name(n), o),
                b => (b, 0),
            };
            offset += self.addend()?;
            if self.eat(',') {
                // `[object, {coordinates}]` of textures, surfaces and tensor maps.
                let mut parts = vec![base];
                parts.extend(self.list(']')?);
                return Ok(Operand::Vec(parts));
            }
            self.expect(']')?;
            return Ok(Operand::Addr(Box::new(base), offset));
        }
        let negative = self.eat('-');
        match self.next()? {
            Tok::F32(v) => Ok(Operand::F32(if negative { v ^ 0x8000_0000 } else { v })),
            Tok::F64(v) => Ok(Operand::F64(if negative { v ^ (1 << 63) } else { v })),
            Tok::Word(w) if self.eat('[') && !negative => self.element(w),
            Tok::Word(w) => {
                let offset = self.addend()?;
                let o = if offset != 0 { Operand::Offset(w.into(), offset) } else { Operand::Name(w.into()) };
                Ok(if negative { Operand::Negated(Box::new(o)) } else { o })
            }
            _ => {
                self.at -= 1;
                self.fail("malformed operand")
            }
        }
    }
}

/// A definition replaces an earlier forward declaration of the same name, and never the other way round.
fn add_function(m: &mut Module, f: Function) {
    match m.functions.iter_mut().find(|g| g.name == f.name) {
        Some(g) if f.has_body => *g = f,
        Some(_) => {}
        None => m.functions.push(f),
    }
}
