//! The code of a module's kernels, made when a program asks for what depends on it.

use std::sync::{Arc, OnceLock};

use crate::exec::state::Table;
use crate::ptx::decode::decoder::Globals;
use crate::ptx::decode::program::decode;
use crate::ptx::isa::program::Program;
use crate::ptx::{parse, part};

/// What the executor runs.
#[derive(Clone)]
pub struct Code {
    pub program: Arc<Program>,
    pub table: Arc<Table>,
}

/// A module's text and addresses in a context, of which code is made as soon as it is needed.
pub struct Source {
    pub ast: Arc<parse::Module>,
    /// Of variables and functions.
    addresses: Globals,
    /// Of all functions, where they were read when the module was loaded or a kernel may call any of them.
    whole: OnceLock<Code>,
}

impl Code {
    fn new(ast: &parse::Module, addresses: &Globals) -> Self {
        let program = Arc::new(decode(ast, addresses));
        let table = Arc::new(Table::new(&program.code));
        Self { program, table }
    }
}

impl Source {
    pub fn new(ast: Arc<parse::Module>, addresses: Globals) -> Self {
        Self { ast, addresses, whole: OnceLock::new() }
    }

    /// A program with this kernel in its place, whatever else is in it.
    pub fn code(&self, kernel: usize) -> Code {
        let new = |ast: &parse::Module| Code::new(ast, &self.addresses);
        if self.ast.functions[kernel].unread.is_none() {
            return self.whole.get_or_init(|| new(&self.ast)).clone();
        }
        match part::of(&self.ast, kernel) {
            Some(part) => new(&part),
            None => self.whole.get_or_init(|| new(&part::whole(&self.ast))).clone(),
        }
    }
}
