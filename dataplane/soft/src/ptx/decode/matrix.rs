//! Instructions by which a warp multiplies matrices: `mma`, `wmma`, and the loads and stores of their fragments.

use crate::ptx::decode::decoder::{Decoder, Mods, Result, unsupported};
use crate::ptx::isa::instruction::Op;
use crate::ptx::isa::matrix::{Element, Fragment, MatrixOp, Multiply, Part, Shape, Sparse};
use crate::ptx::isa::operand::{Reg, Round, Src, Ty};
use crate::ptx::syntax::Operand;

impl Element {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "f16" => Self::F16,
            "bf16" => Self::Bf16,
            "tf32" => Self::Tf32,
            "f64" => Self::F64,
            "e4m3" => Self::E4m3,
            "e5m2" => Self::E5m2,
            "s8" => Self::S8,
            "u8" => Self::U8,
            "s4" => Self::S4,
            "u4" => Self::U4,
            "b1" => Self::B1,
            _ => return None,
        })
    }
}

fn number(name: &str) -> Option<(usize, &str)> {
    let digits = name.len() - name.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    Some((name[..digits].parse().ok()?, &name[digits..]))
}

fn shape(mods: &Mods) -> Result<Shape> {
    let parsed = mods.0.iter().find_map(|name| {
        let (m, rest) = number(name.strip_prefix('m')?)?;
        let (n, rest) = number(rest.strip_prefix('n')?)?;
        let (k, rest) = number(rest.strip_prefix('k')?)?;
        rest.is_empty().then_some(Shape { m, n, k })
    });
    parsed.ok_or_else(|| "no shape".into())
}

/// The types in the opcode, the result's first.
fn types<'a>(mods: &Mods<'a>) -> Vec<&'a str> {
    let is_type = |m: &&str| Element::of(m).is_some() || matches!(*m, "f32" | "s32" | "e3m2" | "e2m3" | "e2m1");
    mods.0.iter().copied().filter(|m| is_type(m)).collect()
}

fn element(name: &str) -> Result<Element> {
    Element::of(name).ok_or_else(|| format!("elements of type {name}"))
}

fn sum_type(name: &str, of: Element) -> Result<Ty> {
    let ty = match (name, of.family()) {
        ("f16", Element::F16 | Element::E4m3) => Ty::F16,
        ("f32", Element::F16 | Element::E4m3 | Element::Bf16 | Element::Tf32) => Ty::F32,
        ("f64", Element::F64) => Ty::F64,
        ("s32", Element::S8 | Element::S4 | Element::B1) => Ty::S32,
        _ => return Err(format!("sums of type {name} of products of {of:?}")),
    };
    Ok(ty)
}

/// Whether PTX has the shape for these elements.
fn is_mma_shape(Shape { m, n, k }: Shape, of: Element, is_sparse: bool) -> bool {
    let of = of.family();
    // Bits of a row of the first factor as it lies in registers.
    let bits = of.bits() * k / if is_sparse { 2 } else { 1 };
    n == 8
        && match (m, of) {
            (16, Element::F64) => !is_sparse && matches!(k, 4 | 8 | 16),
            (16, Element::B1) if is_sparse => false,
            (16, Element::E4m3) if is_sparse => k == 64,
            (16, _) => bits == 128 || bits == 256,
            (8, Element::S8 | Element::S4 | Element::B1) => !is_sparse && bits == 128,
            (8, Element::F64 | Element::F16) => !is_sparse && k == 4,
            _ => false,
        }
}

fn is_wmma_shape(Shape { m, n, k }: Shape, of: Element) -> bool {
    match of.family() {
        Element::F16 | Element::Bf16 | Element::S8 => k == 16 && matches!((m, n), (16, 16) | (32, 8) | (8, 32)),
        Element::Tf32 => (m, n, k) == (16, 16, 8),
        Element::F64 => (m, n, k) == (8, 8, 4),
        Element::S4 => (m, n, k) == (8, 8, 32),
        Element::B1 => (m, n, k) == (8, 8, 128),
        Element::E4m3 | Element::E5m2 | Element::U8 | Element::U4 => false,
    }
}

/// Registers of a fragment, as wmma has them and as many of those as hold different elements.
fn wmma_registers(part: Part, Shape { m, n, k }: Shape, bits: usize, is_half: bool) -> (usize, usize) {
    let elements = match part {
        Part::A => m * k,
        Part::B => k * n,
        Part::Sum => m * n,
    };
    let register = if bits == 64 { 64 } else { 32 };
    let distinct = elements * bits / register / 32;
    (if is_half && part != Part::Sum { 8 } else { distinct }, distinct)
}

impl Decoder<'_> {
    /// `None` when the mnemonic is none of these.
    pub(super) fn matrix(&mut self, base: &str, mods: &Mods, ops: &[Operand]) -> Option<Result<()>> {
        Some(match base {
            "ldmatrix" => self.load_matrix(mods, ops),
            "stmatrix" => self.store_matrix(mods, ops),
            "movmatrix" => self.transpose_matrix(mods, ops),
            "mma" => self.multiply(mods, ops),
            "wmma" if mods.has("mma") => self.multiply_fragments(mods, ops),
            "wmma" if mods.has("load") => self.load_fragment(mods, ops),
            "wmma" if mods.has("store") => self.store_fragment(mods, ops),
            _ => return None,
        })
    }

    fn emit_matrix(&mut self, op: MatrixOp, address: Src) -> Result<()> {
        self.emit(Op::Matrix(Box::new(op))).a = address;
        Ok(())
    }

    fn registers(&self, o: &Operand) -> Result<Vec<Reg>> {
        match o {
            Operand::Vec(v) => v.iter().map(|d| self.dst(d)).collect(),
            d => Ok(vec![self.dst(d)?]),
        }
    }

    fn values(&self, o: &Operand, ty: Ty) -> Result<Vec<Src>> {
        match o {
            Operand::Vec(v) => v.iter().map(|s| self.src(s, ty)).collect(),
            s => Ok(vec![self.src(s, ty)?]),
        }
    }

    /// How many matrices of 8x8 are moved, and whether each is turned over its diagonal.
    fn matrices(mods: &Mods) -> Result<(usize, bool)> {
        if !mods.has("m8n8") || !mods.has("b16") {
            return unsupported("matrices other than 8x8 of 16 bits");
        }
        let count = [("x1", 1), ("x2", 2), ("x4", 4)].into_iter().find(|(name, _)| mods.has(name));
        let (_, count) = count.ok_or("no number of matrices")?;
        Ok((count, mods.has("trans")))
    }

    fn load_matrix(&mut self, mods: &Mods, ops: &[Operand]) -> Result<()> {
        let [to, from] = ops else { return unsupported("two operands are needed") };
        let (count, is_transposed) = Self::matrices(mods)?;
        let regs = self.registers(to)?;
        let (address, offset, space) = self.access(mods, from)?;
        if regs.len() != count {
            return Err(format!("{} registers for {count} matrices", regs.len()));
        }
        self.emit_matrix(MatrixOp::Load { space, offset, is_transposed, regs: regs.into() }, address)
    }

    fn store_matrix(&mut self, mods: &Mods, ops: &[Operand]) -> Result<()> {
        let [to, from] = ops else { return unsupported("two operands are needed") };
        let (count, is_transposed) = Self::matrices(mods)?;
        let values = self.values(from, Ty::B32)?;
        let (address, offset, space) = self.access(mods, to)?;
        if values.len() != count {
            return Err(format!("{} registers for {count} matrices", values.len()));
        }
        self.emit_matrix(MatrixOp::Store { space, offset, is_transposed, values: values.into() }, address)
    }

    fn transpose_matrix(&mut self, mods: &Mods, ops: &[Operand]) -> Result<()> {
        let [d, a] = ops else { return unsupported("two operands are needed") };
        if !mods.has("m8n8") || !mods.has("trans") || !mods.has("b16") {
            return unsupported("matrices other than 8x8 of 16 bits");
        }
        let op = MatrixOp::Transpose(self.dst(d)?, self.src(a, Ty::B32)?);
        self.emit_matrix(op, Src::None)
    }

    fn multiply(&mut self, mods: &Mods, ops: &[Operand]) -> Result<()> {
        if let Some(scaled) = mods.0.iter().find(|m| m.starts_with("kind::mx") || **m == "block_scale") {
            return Err(format!("{scaled}: factors with scales"));
        }
        let is_sparse = mods.has("sp") || mods.has("sp::ordered_metadata");
        let shape = shape(mods)?;
        let [d, a, b, c] = types(mods)[..] else { return unsupported("four types are needed") };
        let (a, b) = (element(a)?, element(b)?);
        if a.family() != b.family() || !is_mma_shape(shape, a, is_sparse) {
            return Err(format!("{}x{}x{} of {a:?} and {b:?}", shape.m, shape.n, shape.k));
        }
        let is_quads = (shape.m, a) == (8, Element::F16);
        let layouts: Vec<bool> = mods.0.iter().filter(|m| matches!(**m, "row" | "col")).map(|m| *m == "row").collect();
        let [a_rows, b_rows] = layouts[..] else { return unsupported("two layouts are needed") };
        if !is_quads && (!a_rows || b_rows) {
            return unsupported("layouts other than .row.col");
        }
        let mut m = product(mods, shape, [a, b], [sum_type(c, a)?, sum_type(d, a)?]);
        m.quads = is_quads.then_some([a_rows, b_rows]);
        check_operation(mods, a)?;
        let needed = if is_sparse { 6 } else { 4 };
        if ops.len() != needed {
            return Err(format!("{} operands, not {needed}", ops.len()));
        }
        if is_sparse {
            let Operand::Int(selector) = ops[5] else { return unsupported("a selector that is no constant") };
            m.sparse = Some(Sparse { metadata: self.src(&ops[4], Ty::B32)?, selector: selector as usize & 3 });
        }
        self.factors_and_sums(&mut m, ops)?;
        let register = if a.bits() == 64 { 64 } else { 32 };
        // Each of four products of 8x8x4 has 8 threads for its 64 sums.
        let threads = if is_quads { 8 } else { 32 };
        let sums = |ty: Ty| shape.m * shape.n * ty.bytes() as usize / (register / 8) / threads;
        let compressed = if is_sparse { 2 } else { 1 };
        let expected = [
            sums(m.d),
            shape.m * shape.k / compressed * a.bits() / register / threads,
            shape.n * shape.k * a.bits() / register / threads,
            sums(m.c),
        ];
        check_counts(&m, expected)?;
        self.emit_matrix(MatrixOp::Multiply(m), Src::None)
    }

    fn factors_and_sums(&mut self, m: &mut Multiply, ops: &[Operand]) -> Result<()> {
        let factor = if m.a == Element::F64 { Ty::F64 } else { Ty::B32 };
        m.d_regs = self.registers(&ops[0])?.into();
        m.a_regs = self.rows(&ops[1], factor)?;
        m.b_regs = self.rows(&ops[2], factor)?;
        m.c_regs = self.rows(&ops[3], if m.c == Ty::F16 { Ty::B32 } else { m.c })?;
        Ok(())
    }

    /// The operand's registers; what is none is moved to one, so that a product finds rows of lanes only.
    fn rows(&mut self, o: &Operand, ty: Ty) -> Result<Box<[Src]>> {
        let mut rows = self.values(o, ty)?;
        for s in &mut rows {
            if !matches!(s, Src::R32(_) | Src::R64(_)) {
                let (row, d) = if ty == Ty::F64 {
                    let row = self.new_reg(Ty::F64, 1);
                    (Src::R64(row), Reg::R64(row))
                } else {
                    let row = self.new_reg(Ty::B32, 1);
                    (Src::R32(row), Reg::R32(row))
                };
                let i = self.emit(Op::Mov);
                (i.d, i.a) = (d, *s);
                *s = row;
            }
        }
        Ok(rows.into())
    }

    fn multiply_fragments(&mut self, mods: &Mods, ops: &[Operand]) -> Result<()> {
        let shape = shape(mods)?;
        let (d, a, b, c) = match types(mods)[..] {
            [d, c] => (d, "f16", "f16", c),
            [d, a, b, c] => (d, a, b, c),
            _ => return unsupported("two or four types are needed"),
        };
        let (a, b) = (element(a)?, element(b)?);
        if a.family() != b.family() || !is_wmma_shape(shape, a) {
            return Err(format!("{}x{}x{} of {a:?} and {b:?}", shape.m, shape.n, shape.k));
        }
        check_operation(mods, a)?;
        if ops.len() != 4 {
            return Err(format!("{} operands, not 4", ops.len()));
        }
        let mut m = product(mods, shape, [a, b], [sum_type(c, a)?, sum_type(d, a)?]);
        m.round = mods.round().unwrap_or(Round::Nearest);
        self.factors_and_sums(&mut m, ops)?;
        let is_half = a == Element::F16;
        let (a_all, a_distinct) = wmma_registers(Part::A, shape, a.bits(), is_half);
        let (b_all, b_distinct) = wmma_registers(Part::B, shape, b.bits(), is_half);
        let sums = |ty: Ty| wmma_registers(Part::Sum, shape, 8 * ty.bytes() as usize, is_half).0;
        check_counts(&m, [sums(m.d), a_all, b_all, sums(m.c)])?;
        m.a_regs = m.a_regs[..a_distinct].into();
        m.b_regs = m.b_regs[..b_distinct].into();
        self.emit_matrix(MatrixOp::Multiply(m), Src::None)
    }

    fn fragment(&mut self, mods: &Mods, place: &Operand, stride: Option<&Operand>) -> Result<(Fragment, Src, usize)> {
        let shape = shape(mods)?;
        let [ty] = types(mods)[..] else { return unsupported("one type is needed") };
        let part = match mods.0.get(1) {
            Some(&"a") => Part::A,
            Some(&"b") => Part::B,
            _ => Part::Sum,
        };
        let (bits, known) = match ty {
            "f32" | "s32" => (32, part == Part::Sum && shape.m * shape.n >= 64),
            ty => {
                let e = element(ty)?;
                let is_sum = matches!(e, Element::F16 | Element::F64);
                (e.bits(), is_wmma_shape(shape, e) && (part != Part::Sum || is_sum))
            }
        };
        let row = mods.has("row");
        if !known || row == mods.has("col") {
            return Err(format!("a fragment of {}x{}x{} of {ty}", shape.m, shape.n, shape.k));
        }
        if bits < 8 && row != (part == Part::A) {
            return unsupported("elements narrower than a byte in this order");
        }
        let (address, offset, space) = self.access(mods, place)?;
        let (rows, columns) = match part {
            Part::A => (shape.m, shape.k),
            Part::B => (shape.k, shape.n),
            Part::Sum => (shape.m, shape.n),
        };
        let stride = match stride {
            Some(o) => self.src(o, Ty::U32)?,
            None => Src::Imm(if row { columns } else { rows } as u64),
        };
        let count = wmma_registers(part, shape, bits, ty == "f16").0;
        Ok((Fragment { part, shape, bits, is_row_major: row, space, offset, stride }, address, count))
    }

    fn load_fragment(&mut self, mods: &Mods, ops: &[Operand]) -> Result<()> {
        let [to, from, rest @ ..] = ops else { return unsupported("two operands are needed") };
        let (fragment, address, count) = self.fragment(mods, from, rest.first())?;
        let regs = self.registers(to)?;
        if regs.len() != count {
            return Err(format!("{} registers, not {count}", regs.len()));
        }
        self.emit_matrix(MatrixOp::LoadFragment(fragment, regs.into()), address)
    }

    fn store_fragment(&mut self, mods: &Mods, ops: &[Operand]) -> Result<()> {
        let [to, from, rest @ ..] = ops else { return unsupported("two operands are needed") };
        let (fragment, address, count) = self.fragment(mods, to, rest.first())?;
        let values = self.values(from, Ty::B32)?;
        if values.len() != count {
            return Err(format!("{} registers, not {count}", values.len()));
        }
        self.emit_matrix(MatrixOp::StoreFragment(fragment, values.into()), address)
    }
}

/// A product whose registers are not known yet.
fn product(mods: &Mods, shape: Shape, [a, b]: [Element; 2], [c, d]: [Ty; 2]) -> Multiply {
    Multiply {
        shape,
        a,
        b,
        c,
        d,
        a_regs: Box::default(),
        b_regs: Box::default(),
        c_regs: Box::default(),
        d_regs: Box::default(),
        sparse: None,
        quads: None,
        saturates: mods.has("satfinite"),
        is_and: mods.has("and"),
        round: Round::Nearest,
    }
}

/// Single bits are counted where both factors have them, or where they differ.
fn check_operation(mods: &Mods, of: Element) -> Result<()> {
    if of == Element::B1 && !(mods.has("popc") && (mods.has("xor") || mods.has("and"))) {
        return unsupported("the operation on single bits");
    }
    Ok(())
}

fn check_counts(m: &Multiply, expected: [usize; 4]) -> Result<()> {
    if m.saturates && m.d != Ty::S32 {
        return Err(format!(".satfinite for sums of type {:?}", m.d));
    }
    let found = [m.d_regs.len(), m.a_regs.len(), m.b_regs.len(), m.c_regs.len()];
    if found != expected {
        return Err(format!("{found:?} registers, not {expected:?}"));
    }
    Ok(())
}
