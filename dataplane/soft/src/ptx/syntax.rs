//! What a function and a module are made of: statements, instructions with unresolved names, variables.

use super::isa::operand::{Space, Ty};

#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    Name(String),
    Int(u64),
    F32(u32),
    F64(u64),
    /// `[base+offset]`; the base is a name or an integer.
    Addr(Box<Operand>, i64),
    /// `name+offset` outside brackets.
    Offset(String, i64),
    /// `name[register+number]`: an element of an array, or where it lies. There may be no register.
    Element {
        name: String,
        register: Option<String>,
        number: i64,
    },
    Vec(Vec<Operand>),
    /// `a|b`, as in `setp` and `shfl`.
    Pair(Box<Operand>, Box<Operand>),
    Not(Box<Operand>),
    /// `-a`, as in `vmad`.
    Negated(Box<Operand>),
    Paren(Vec<Operand>),
}

#[derive(Clone, Debug)]
pub struct Instruction {
    pub guard: Option<(String, bool)>,
    pub opcode: String,
    pub operands: Vec<Operand>,
    pub line: u32,
}

#[derive(Clone, Debug)]
pub enum Init {
    Int(u64),
    F32(u32),
    F64(u64),
    /// Address of a symbol; `mask` is the byte selected by `0xFF00(sym)` forms, or all ones.
    Symbol {
        name: String,
        addend: i64,
        mask: u64,
    },
}

/// Who may mean something by its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Linkage {
    /// The text it is in.
    #[default]
    Local,
    Visible,
    /// Gives way to another definition.
    Weak,
    /// As weak; of several the largest counts.
    Common,
    /// Another text defines it.
    Extern,
}

#[derive(Clone, Debug)]
pub struct Variable {
    pub space: Space,
    pub name: String,
    pub ty: Ty,
    pub vector: u32,
    pub align: u32,
    /// Element count of a plain array; `None` for `name[]`.
    pub count: Option<u64>,
    pub init: Vec<Init>,
    pub linkage: Linkage,
    pub is_managed: bool,
}

impl Variable {
    pub fn element_bytes(&self) -> u64 {
        u64::from(self.ty.bytes()) * u64::from(self.vector)
    }
    pub fn bytes(&self) -> u64 {
        self.element_bytes() * self.count.unwrap_or(0)
    }
}

#[derive(Clone, Debug)]
pub enum Stmt {
    Open,
    Close,
    Reg { ty: Ty, vector: u32, name: String, count: Option<u32> },
    Var(Variable),
    Label(String),
    Targets(String, Vec<String>),
    Instruction(Instruction),
}
