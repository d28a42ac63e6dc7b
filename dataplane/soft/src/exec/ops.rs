//! Data instructions, each over all lanes of a warp at once.
//!
//! Results are computed for 32 lanes and written under the mask: loops of constant length over plain arrays are what
//! the compiler turns into vector code.

use crate::exec::fault::{Fault, FaultKind};
use crate::exec::lanes::lanes;
use crate::exec::registers::{Lane, Row, bits, map1, map2, map3};
use crate::exec::state::{Env, Frame, Warp};
use crate::exec::{float, heap};
use crate::ptx::isa::instruction::{Call, Instr, Op};
use crate::ptx::isa::operand::*;
use crate::{condition, printf, say};

/// Runs `$body` with `$t` bound to the Rust type of an integer PTX type.
macro_rules! by_int {
    ($ty:expr, $t:ident => $body:expr) => {
        match $ty {
            Ty::S16 => {
                type $t = i16;
                $body
            }
            Ty::U16 | Ty::B16 => {
                type $t = u16;
                $body
            }
            Ty::S32 => {
                type $t = i32;
                $body
            }
            Ty::S64 => {
                type $t = i64;
                $body
            }
            Ty::U64 | Ty::B64 => {
                type $t = u64;
                $body
            }
            Ty::S8 => {
                type $t = i8;
                $body
            }
            Ty::U8 | Ty::B8 => {
                type $t = u8;
                $body
            }
            _ => {
                type $t = u32;
                $body
            }
        }
    };
}

impl Warp {
    pub fn data(&mut self, ins: &Instr, m: u32, f: &Frame, env: &mut Env) -> Result<(), Fault> {
        match &ins.op {
            Op::Mov => {
                let v = self.read::<u64>(ins.a, f, env);
                self.write(ins.d, m, &v, f);
            }
            Op::Ld { space, ty, offset } => {
                // Kernel parameters are the same for every lane.
                if *space == Space::Param
                    && let Src::Imm(at) = ins.a
                {
                    let v = self.load(env, 0, Space::Param, at.wrapping_add(*offset as u64), ty.bytes())?;
                    self.write(ins.d, m, &[extend(*ty, v); 32], f);
                    return Ok(());
                }
                let at = self.addresses(ins, f, env, *offset);
                let v = match self.load_row(env, m, *space, &at, ty.bytes()) {
                    Some(v) => v,
                    None => {
                        let mut v = [0u64; 32];
                        for l in lanes(m) {
                            v[l] = self.load(env, l, *space, at[l], ty.bytes())?;
                        }
                        v
                    }
                };
                self.write(ins.d, m, &sign_extended(*ty, v), f);
            }
            Op::LdVec { space, ty, offset, regs } => {
                let at = self.addresses(ins, f, env, *offset);
                let bytes = ty.bytes() * regs.len() as u32;
                self.check_vector(&at, m, u64::from(bytes))?;
                let mut vectors = [[0u64; 4]; 32];
                for l in lanes(m) {
                    vectors[l] = self.load_vector(env, l, *space, at[l], bytes)?;
                }
                for (k, r) in regs.iter().enumerate() {
                    let (word, shift) = part_of_vector(*ty, k);
                    self.write::<u64>(*r, m, &map1(&vectors, |v| extend(*ty, v[word] >> shift)), f);
                }
            }
            Op::St { space, ty, offset } => {
                let at = self.addresses(ins, f, env, *offset);
                let v = self.read::<u64>(ins.b, f, env);
                if self.store_row(env, m, *space, &at, ty.bytes(), &v).is_some() {
                    return Ok(());
                }
                for l in lanes(m) {
                    self.store(env, l, *space, at[l], ty.bytes(), v[l])?;
                }
            }
            Op::StVec { space, ty, offset, regs } => {
                let at = self.addresses(ins, f, env, *offset);
                let bytes = ty.bytes() * regs.len() as u32;
                self.check_vector(&at, m, u64::from(bytes))?;
                let mut vectors = [[0u64; 4]; 32];
                for (k, r) in regs.iter().enumerate() {
                    let v = self.read::<u64>(*r, f, env);
                    let (word, shift) = part_of_vector(*ty, k);
                    let ones = u64::MAX >> (64 - 8 * ty.bytes());
                    for l in 0..32 {
                        vectors[l][word] |= (v[l] & ones) << shift;
                    }
                }
                for l in lanes(m) {
                    self.store_vector(env, l, *space, at[l], bytes, vectors[l])?;
                }
            }
            Op::ExchangePair { space, offset, old, new, expected } => {
                let at = self.addresses(ins, f, env, *offset);
                let read = |me: &Self, s: [Src; 2]| s.map(|s| me.read::<u64>(s, f, env));
                let [low, high] = read(self, *new);
                let expected = expected.map(|e| read(self, e));
                let mut was = [[0u64; 32]; 2];
                for l in lanes(m) {
                    let only_if = expected.map(|[low, high]| [low[l], high[l]]);
                    let [a, b] = self.exchange_pair(env, l, *space, at[l], only_if, [low[l], high[l]])?;
                    (was[0][l], was[1][l]) = (a, b);
                }
                self.write(old[0], m, &was[0], f);
                self.write(old[1], m, &was[1], f);
            }
            Op::Atom { space, op, ty, offset } => {
                let at = self.addresses(ins, f, env, *offset);
                let b = self.read::<u64>(ins.b, f, env);
                let c = self.read::<u64>(ins.c, f, env);
                let mut old = [0u64; 32];
                for l in lanes(m) {
                    old[l] = self.atomic(env, l, *space, (*op, *ty), at[l], (b[l], c[l]))?;
                }
                self.write(ins.d, m, &old, f);
            }
            Op::CpAsync { bytes, to, from } => {
                let to_at = self.addresses(ins, f, env, *to);
                let from_at = self.read::<u64>(ins.b, f, env);
                let sizes = if ins.c == Src::None { [*bytes; 32] } else { self.read::<u32>(ins.c, f, env) };
                for l in lanes(m) {
                    let from = from_at[l].wrapping_add(*from as u64);
                    if !(from | to_at[l]).is_multiple_of(u64::from(*bytes)) {
                        let what = format!("copy of {bytes} bytes from {from:#x} to {:#x}", to_at[l]);
                        return Err(Fault::new(FaultKind::Misaligned, &what));
                    }
                    // Bytes beyond the source's are zeroes, and are not read.
                    let mut v = [0; 4];
                    if sizes[l] >= *bytes {
                        v = self.load_vector(env, l, Space::Generic, from, *bytes)?;
                    } else {
                        for k in 0..sizes[l] {
                            let byte = self.load(env, l, Space::Generic, from.wrapping_add(u64::from(k)), 1)?;
                            v[k as usize / 8] |= byte << (8 * (k % 8));
                        }
                    }
                    self.store_vector(env, l, Space::Shared, to_at[l], *bytes, v)?;
                }
            }
            Op::Setp { cmp, ty, logic, ftz } => {
                let (mut p, mut q) = if matches!(ty, Ty::F16x2 | Ty::Bf16x2) {
                    self.compare_pair(*cmp, *ty, *ftz, ins, f, env)
                } else {
                    let p = self.compare(*cmp, *ty, *ftz, ins, f, env);
                    (p, !p)
                };
                if let Some(logic) = logic {
                    let c = self.read_pred(ins.c, f, env);
                    p = combine_pred(*logic, p, c);
                    q = combine_pred(*logic, q, c);
                }
                self.write_pred(ins.d, m, p, f);
                self.write_pred(ins.d2, m, q, f);
            }
            Op::Set { cmp, to, ty, logic, ftz } => {
                if matches!(ty, Ty::F16x2 | Ty::Bf16x2) {
                    return self.set_pair(*cmp, *to, (*ty, *ftz), ins, m, f, env);
                }
                let mut p = self.compare(*cmp, *ty, *ftz, ins, f, env);
                if let Some(logic) = logic {
                    p = combine_pred(*logic, p, self.read_pred(ins.c, f, env));
                }
                let yes = match to {
                    Ty::F32 => 0x3f80_0000,
                    Ty::F16 => 0x3c00,
                    Ty::Bf16 => 0x3f80,
                    _ => u64::MAX,
                };
                self.write::<u64>(ins.d, m, &std::array::from_fn(|l| if p >> l & 1 != 0 { yes } else { 0 }), f);
            }
            Op::PredBin(logic) => {
                let v = combine_pred(*logic, self.read_pred(ins.a, f, env), self.read_pred(ins.b, f, env));
                self.write_pred(ins.d, m, v, f);
            }
            Op::PredNot => {
                let v = !self.read_pred(ins.a, f, env);
                self.write_pred(ins.d, m, v, f);
            }
            Op::PredMov => {
                let v = self.read_pred(ins.a, f, env);
                self.write_pred(ins.d, m, v, f);
            }
            Op::Selp(_) => {
                let p = self.read_pred(ins.c, f, env);
                let (a, b) = (self.read::<u64>(ins.a, f, env), self.read::<u64>(ins.b, f, env));
                self.write::<u64>(ins.d, m, &std::array::from_fn(|l| if p >> l & 1 != 0 { a[l] } else { b[l] }), f);
            }
            Op::IntBin(op, ty) => self.int_bin(*op, *ty, ins, m, f, env),
            Op::FloatBin(op, ty, fp) => self.float_bin(*op, *ty, *fp, ins, m, f, env),
            Op::Fma(ty, fp) => self.fma(*ty, *fp, ins, m, f, env),
            Op::Cvt { to, from, round, integer, fp } => {
                self.convert((*to, *from), *round, *integer, *fp, ins, m, f, env);
            }
            _ => return self.rare(ins, m, f, env),
        }
        Ok(())
    }

    fn check_vector(&self, at: &Row<u64>, m: u32, bytes: u64) -> Result<(), Fault> {
        match lanes(m).find(|&l| !at[l].is_multiple_of(bytes)) {
            None => Ok(()),
            Some(l) => Err(Fault::new(
                FaultKind::Misaligned,
                &format!("misaligned vector access of {bytes} bytes at {:#x}", at[l]),
            )),
        }
    }

    fn rare(&mut self, ins: &Instr, m: u32, f: &Frame, env: &mut Env) -> Result<(), Fault> {
        match &ins.op {
            Op::Nop => {}
            Op::Texture(op) => self.texture(op, ins, m, f, env)?,
            Op::Narrow(op) => self.narrow(*op, ins, m, f, env),
            Op::Video(op) => self.video(op, ins, m, f, env),
            Op::Fence => std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst),
            Op::Activemask => self.write::<u32>(ins.d, m, &[m; 32], f),
            Op::Cvta { window } => {
                // A generic null stays null only for plain memory; windows start above zero on purpose.
                let a = self.read::<u64>(ins.a, f, env);
                let generic = |v| if *window == SHARED_WINDOW { env.generic_shared(v) } else { v | window };
                self.write(ins.d, m, &map1(&a, generic), f);
            }
            Op::CvtaTo { .. } => {
                let a = self.read::<u64>(ins.a, f, env);
                let v = map1(&a, |v| if v & WINDOW_MASK == 0 { v } else { v & !WINDOW_MASK });
                self.write(ins.d, m, &v, f);
            }
            Op::IsSpace(space) => {
                let a = self.read::<u64>(ins.a, f, env);
                let window = match space {
                    Space::Local => LOCAL_WINDOW,
                    Space::Param => PARAM_WINDOW,
                    _ => 0,
                };
                let is_const = *space == Space::Const;
                let p = match space {
                    Space::Shared => bits(&a, |v| env.is_own_shared(v)),
                    _ => bits(&a, |v| v & WINDOW_MASK == window && !is_const),
                };
                self.write_pred(ins.d, m, p, f);
            }
            Op::Cluster(op) => self.cluster_op(ins, *op, m, f, env)?,
            Op::Mbarrier { op, space, offset } => self.mbarrier(ins, *op, *space, *offset, m, f, env)?,
            Op::BulkCopy { to, from } => self.bulk_copy(ins, *to, *from, m, f, env)?,
            Op::Pack(ty, parts) => {
                let width = 8 * ty.bytes();
                let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
                let mut v = [0u64; 32];
                for (k, s) in parts.iter().enumerate() {
                    let row = self.read::<u64>(*s, f, env);
                    for l in 0..32 {
                        v[l] |= (row[l] & mask) << ((k as u32 * width) & 63);
                    }
                }
                self.write(ins.d, m, &v, f);
            }
            Op::Unpack(ty, regs) => {
                let width = 8 * ty.bytes();
                let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
                let a = self.read::<u64>(ins.a, f, env);
                for (k, d) in regs.iter().enumerate() {
                    self.write(*d, m, &map1(&a, |v| v >> ((k as u32 * width) & 63) & mask), f);
                }
            }
            Op::IntUn(op, ty) => self.int_un(*op, *ty, ins, m, f, env),
            Op::MulWide(ty) | Op::MadWide(ty) => {
                let a = self.read::<u64>(ins.a, f, env);
                let b = self.read::<u64>(ins.b, f, env);
                let w = map2(&a, &b, |x, y| extend(*ty, x).wrapping_mul(extend(*ty, y)));
                let w =
                    if ins.c == Src::None { w } else { map2(&w, &self.read::<u64>(ins.c, f, env), u64::wrapping_add) };
                self.write(ins.d, m, &w, f);
            }
            Op::MadLo(ty) => by_int!(ty, T => {
                let (a, b, c) = self.three::<T>(ins, f, env);
                self.write(ins.d, m, &map3(&a, &b, &c, |x, y, z| x.wrapping_mul(y).wrapping_add(z)), f);
            }),
            Op::MadHi(ty) => {
                let (a, b, c) = self.three::<u64>(ins, f, env);
                let v = map3(&a, &b, &c, |x, y, z| mul_hi(*ty, x, y).wrapping_add(z));
                self.write(ins.d, m, &v, f);
            }
            Op::Mad24(ty) => {
                let (a, b, c) = self.three::<u64>(ins, f, env);
                let v = map3(&a, &b, &c, |x, y, z| low24(*ty, x).wrapping_mul(low24(*ty, y)).wrapping_add(z));
                self.write(ins.d, m, &v, f);
            }
            Op::Sad(ty) => {
                let (a, b, c) = self.three::<u64>(ins, f, env);
                let v = map3(&a, &b, &c, |x, y, z| {
                    let (x, y) = (extend(*ty, x), extend(*ty, y));
                    z.wrapping_add(if ty.is_signed() { (x as i64).abs_diff(y as i64) } else { x.abs_diff(y) })
                });
                self.write(ins.d, m, &v, f);
            }
            Op::Carry { ty, sub, cin, cout } => {
                let (a, b) = (self.read::<u64>(ins.a, f, env), self.read::<u64>(ins.b, f, env));
                self.carry_chain(*ty, &a, &b, *sub, *cin, *cout, ins.d, m, f);
            }
            Op::MadCarry { ty, hi, cin, cout } => {
                let (a, b, c) = self.three::<u64>(ins, f, env);
                let p = map2(&a, &b, |x, y| if *hi { mul_hi(*ty, x, y) } else { x.wrapping_mul(y) });
                self.carry_chain(*ty, &p, &c, false, *cin, *cout, ins.d, m, f);
            }
            Op::Bfe(ty) => {
                let (a, b, c) = self.three::<u64>(ins, f, env);
                self.write(ins.d, m, &map3(&a, &b, &c, |x, p, n| bfe(*ty, x, p as u8, n as u8)), f);
            }
            Op::Bfi(ty) => {
                let (a, b, c) = self.three::<u64>(ins, f, env);
                let e = self.read::<u64>(ins.e, f, env);
                let width = 8 * ty.bytes();
                let v = std::array::from_fn(|l| {
                    let (pos, len) = (c[l] as u8 as u32, e[l] as u8 as u32);
                    if pos >= width || len == 0 {
                        return b[l];
                    }
                    let mask = (if len >= 64 { u64::MAX } else { (1u64 << len) - 1 }) << pos;
                    (b[l] & !mask) | ((a[l] << pos) & mask)
                });
                self.write::<u64>(ins.d, m, &v, f);
            }
            Op::Bmsk => {
                let (a, b) = (self.read::<u32>(ins.a, f, env), self.read::<u32>(ins.b, f, env));
                let v = map2(&a, &b, |pos, len| {
                    let ones = if len >= 32 { u64::from(u32::MAX) } else { (1u64 << len) - 1 };
                    (ones << pos.min(32)) as u32
                });
                self.write(ins.d, m, &v, f);
            }
            Op::Szext(signed) => {
                let (a, b) = (self.read::<u32>(ins.a, f, env), self.read::<u32>(ins.b, f, env));
                let v = map2(&a, &b, |x, n| match n {
                    0 => 0,
                    32.. => x,
                    n if *signed => ((x << (32 - n)) as i32 >> (32 - n)) as u32,
                    n => x & ((1 << n) - 1),
                });
                self.write(ins.d, m, &v, f);
            }
            Op::Fns => {
                let (a, b, c) = self.three::<u32>(ins, f, env);
                self.write(ins.d, m, &map3(&a, &b, &c, |x, base, n| find_nth(x, base, n as i32)), f);
            }
            Op::Shf { left, wrap } => {
                let (a, b, c) = self.three::<u32>(ins, f, env);
                let v = map3(&a, &b, &c, |lo, hi, n| {
                    let n = if *wrap { n & 31 } else { n.min(32) };
                    let both = (u64::from(hi) << 32) | u64::from(lo);
                    if *left { ((both << n) >> 32) as u32 } else { (both >> n) as u32 }
                });
                self.write(ins.d, m, &v, f);
            }
            Op::Prmt(mode) => {
                let (a, b, c) = self.three::<u32>(ins, f, env);
                self.write(ins.d, m, &map3(&a, &b, &c, |x, y, s| prmt(*mode, x, y, s)), f);
            }
            Op::Lop3(table) => {
                let (a, b, c) = self.three::<u32>(ins, f, env);
                self.write(ins.d, m, &map3(&a, &b, &c, |x, y, z| lop3(*table, x, y, z)), f);
            }
            Op::Dp4a(s, t) => {
                let (a, b, c) = self.three::<u32>(ins, f, env);
                let byte = |v: u32, k: u32, signed: bool| {
                    let v = (v >> (8 * k)) as u8;
                    if signed { i32::from(v as i8) } else { i32::from(v) }
                };
                let v = map3(&a, &b, &c, |x, y, z| {
                    (0..4).fold(z, |sum, k| sum.wrapping_add((byte(x, k, *s) * byte(y, k, *t)) as u32))
                });
                self.write(ins.d, m, &v, f);
            }
            Op::Dp2a(s, t, hi) => {
                let (a, b, c) = self.three::<u32>(ins, f, env);
                let base = if *hi { 16 } else { 0 };
                let v = map3(&a, &b, &c, |x, y, z| {
                    (0..2).fold(z, |sum, k| {
                        let p = (x >> (16 * k)) as u16;
                        let q = (y >> (base + 8 * k)) as u8;
                        let p = if *s { i32::from(p as i16) } else { i32::from(p) };
                        let q = if *t { i32::from(q as i8) } else { i32::from(q) };
                        sum.wrapping_add(p.wrapping_mul(q) as u32)
                    })
                });
                self.write(ins.d, m, &v, f);
            }
            Op::FloatUn(op, ty, fp) => self.float_un(*op, *ty, *fp, ins, m, f, env),
            Op::Testp(kind, ty) => {
                let a = self.read::<u64>(ins.a, f, env);
                let kind = *kind;
                let p = bits(&a, |v| {
                    let (x, subnormal) = if *ty == Ty::F64 {
                        (f64::from_bits(v), f64::from_bits(v).is_subnormal())
                    } else {
                        (f64::from(f32::from_bits(v as u32)), f32::from_bits(v as u32).is_subnormal())
                    };
                    match kind {
                        0 => x.is_finite(),
                        1 => x.is_infinite(),
                        2 => !x.is_nan(),
                        3 => x.is_nan(),
                        4 => x.is_finite() && x != 0.0 && !subnormal,
                        _ => subnormal,
                    }
                });
                self.write_pred(ins.d, m, p, f);
            }
            Op::CvtPair { to, fp } => {
                let (a, b) = (self.read::<f32>(ins.a, f, env), self.read::<f32>(ins.b, f, env));
                let one = |v: f32| {
                    let v = if fp.relu && v <= 0.0 { 0.0 } else { f64::from(v) };
                    let bits =
                        if *to == Ty::F16x2 { float::f16_from(v, fp.round) } else { float::bf16_from(v, fp.round) };
                    if fp.finite { finite(*to, bits.into()) } else { u32::from(bits) }
                };
                self.write(ins.d, m, &map2(&a, &b, |hi, lo| (one(hi) << 16) | one(lo)), f);
            }
            Op::CvtPack { to, from, merge } => {
                let (a, b) = (self.read::<u64>(ins.a, f, env), self.read::<u64>(ins.b, f, env));
                let c = self.read::<u32>(ins.c, f, env);
                let width = 8 * to.bytes();
                let clamp = |v: u64| (saturate(*to, i128::from(extend(*from, v) as i64)) & ((1 << width) - 1)) as u32;
                let v = std::array::from_fn(|l| {
                    let both = (clamp(a[l]) << width) | clamp(b[l]);
                    if *merge { both | c[l].checked_shl(2 * width).unwrap_or(0) } else { both }
                });
                self.write::<u32>(ins.d, m, &v, f);
            }
            Op::Slct(_, by_float) => {
                let (a, b) = (self.read::<u64>(ins.a, f, env), self.read::<u64>(ins.b, f, env));
                let c = self.read::<u32>(ins.c, f, env);
                let v = std::array::from_fn(|l| {
                    let first = if *by_float { f32::from_bits(c[l]) >= 0.0 } else { c[l] as i32 >= 0 };
                    if first { a[l] } else { b[l] }
                });
                self.write::<u64>(ins.d, m, &v, f);
            }
            _ => return Err(Fault::new(FaultKind::Unsupported, "instruction out of place")),
        }
        Ok(())
    }

    fn three<T: Lane>(&self, ins: &Instr, f: &Frame, env: &Env) -> (Row<T>, Row<T>, Row<T>) {
        (self.read(ins.a, f, env), self.read(ins.b, f, env), self.read(ins.c, f, env))
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of one instruction")]
    fn carry_chain(
        &mut self,
        ty: Ty,
        a: &Row<u64>,
        b: &Row<u64>,
        sub: bool,
        cin: bool,
        cout: bool,
        d: Reg,
        m: u32,
        f: &Frame,
    ) {
        let width = 8 * ty.bytes();
        let mask = (1u128 << width) - 1;
        let mut v = [0u64; 32];
        let mut carry = 0;
        for l in 0..32 {
            // Subtraction adds the complement, as the hardware does: nvcc's 128-bit division reads the carry of a
            // sub.cc with addc and finds one when nothing was borrowed.
            let c = if cin { u128::from(self.carry >> l & 1) } else { u128::from(sub) };
            let (x, y) = (u128::from(a[l]) & mask, u128::from(b[l]) & mask);
            let sum = x + if sub { !y & mask } else { y } + c;
            v[l] = (sum & mask) as u64;
            carry |= u32::from(sum & !mask != 0) << l;
        }
        if cout {
            self.carry = (self.carry & !m) | (carry & m);
        }
        self.write(d, m, &v, f);
    }

    fn int_bin(&mut self, op: IntBin, ty: Ty, ins: &Instr, m: u32, f: &Frame, env: &Env) {
        match op {
            IntBin::Shl | IntBin::Shr => {
                let b = self.read::<u32>(ins.b, f, env);
                by_int!(ty, T => {
                    let a = self.read::<T>(ins.a, f, env);
                    let v = map2(&a, &b, |x, n| {
                        if op == IntBin::Shl {
                            x.checked_shl(n).unwrap_or(0)
                        } else {
                            // Arithmetic shifts past the width leave the sign, logical ones leave zero.
                            #[allow(
                                unused_comparisons,
                                clippy::absurd_extreme_comparisons,
                                reason = "the unsigned types share this code"
                            )]
                            x.checked_shr(n).unwrap_or(if x < 0 { !0 } else { 0 })
                        }
                    });
                    self.write(ins.d, m, &v, f);
                });
            }
            IntBin::MulHi => {
                let (a, b) = (self.read::<u64>(ins.a, f, env), self.read::<u64>(ins.b, f, env));
                self.write(ins.d, m, &map2(&a, &b, |x, y| mul_hi(ty, x, y)), f);
            }
            IntBin::Mul24Lo | IntBin::Mul24Hi => {
                let (a, b) = (self.read::<u64>(ins.a, f, env), self.read::<u64>(ins.b, f, env));
                let shift = if op == IntBin::Mul24Hi { 16 } else { 0 };
                let v = map2(&a, &b, |x, y| low24(ty, x).wrapping_mul(low24(ty, y)) >> shift);
                self.write(ins.d, m, &v, f);
            }
            _ => by_int!(ty, T => {
                let (a, b) = (self.read::<T>(ins.a, f, env), self.read::<T>(ins.b, f, env));
                let v: Row<T> = match op {
                    IntBin::Add => map2(&a, &b, T::wrapping_add),
                    IntBin::Sub => map2(&a, &b, T::wrapping_sub),
                    IntBin::MulLo => map2(&a, &b, T::wrapping_mul),
                    // Division by zero gives all ones on the hardware.
                    IntBin::Div => map2(&a, &b, |x, y| if y == 0 { !0 } else { x.wrapping_div(y) }),
                    IntBin::Rem => map2(&a, &b, |x, y| if y == 0 { x } else { x.wrapping_rem(y) }),
                    IntBin::Min => map2(&a, &b, T::min),
                    IntBin::Max => map2(&a, &b, T::max),
                    IntBin::And => map2(&a, &b, |x, y| x & y),
                    IntBin::Or => map2(&a, &b, |x, y| x | y),
                    IntBin::AddSat => map2(&a, &b, T::saturating_add),
                    IntBin::SubSat => map2(&a, &b, T::saturating_sub),
                    _ => map2(&a, &b, |x, y| x ^ y),
                };
                self.write(ins.d, m, &v, f);
            }),
        }
    }

    fn int_un(&mut self, op: IntUn, ty: Ty, ins: &Instr, m: u32, f: &Frame, env: &Env) {
        let width = 8 * ty.bytes();
        let a = self.read::<u64>(ins.a, f, env);
        let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
        let v = map1(&a, |x| {
            let z = x & mask;
            match op {
                IntUn::Not => !x,
                IntUn::Neg => x.wrapping_neg(),
                IntUn::Abs => (extend_signed(ty, x)).unsigned_abs(),
                IntUn::Popc => u64::from(z.count_ones()),
                IntUn::Clz => u64::from(z.leading_zeros() - (64 - width)),
                IntUn::Brev => x.reverse_bits() >> (64 - width),
                IntUn::Cnot => u64::from(z == 0),
                IntUn::Bfind | IntUn::BfindShift => {
                    let y = if ty.is_signed() && extend_signed(ty, x) < 0 { !x & mask } else { z };
                    if y == 0 {
                        return u64::from(u32::MAX);
                    }
                    let top = 63 - y.leading_zeros();
                    u64::from(if op == IntUn::Bfind { top } else { width - 1 - top })
                }
            }
        });
        self.write(ins.d, m, &v, f);
    }

    fn compare(&self, cmp: Cmp, ty: Ty, ftz: bool, ins: &Instr, f: &Frame, env: &Env) -> u32 {
        match ty {
            Ty::F32 => {
                let (mut a, mut b) = (self.read::<f32>(ins.a, f, env), self.read::<f32>(ins.b, f, env));
                if ftz {
                    (a, b) = (map1(&a, float::flush32), map1(&b, float::flush32));
                }
                compare_rows(&a, &b, cmp, |x| x.is_nan())
            }
            Ty::F64 => {
                let (a, b) = (self.read::<f64>(ins.a, f, env), self.read::<f64>(ins.b, f, env));
                compare_rows(&a, &b, cmp, |x| x.is_nan())
            }
            Ty::F16 | Ty::Bf16 => {
                let (a, b) = (self.read::<u16>(ins.a, f, env), self.read::<u16>(ins.b, f, env));
                compare_halves(&a, &b, cmp, ty, ftz)
            }
            _ => by_int!(ty, T => {
                let (a, b) = (self.read::<T>(ins.a, f, env), self.read::<T>(ins.b, f, env));
                compare_rows(&a, &b, cmp, |_| false)
            }),
        }
    }

    /// Comparisons of the lower and of the upper halves.
    fn compare_pair(&self, cmp: Cmp, ty: Ty, ftz: bool, ins: &Instr, f: &Frame, env: &Env) -> (u32, u32) {
        let (a, b) = (self.read::<u32>(ins.a, f, env), self.read::<u32>(ins.b, f, env));
        let half = |shift: u32| {
            let part = |v: &Row<u32>| map1(v, |v| (v >> shift) as u16);
            compare_halves(&part(&a), &part(&b), cmp, ty, ftz)
        };
        (half(0), half(16))
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of one instruction")]
    fn set_pair(
        &mut self,
        cmp: Cmp,
        to: Ty,
        (ty, ftz): (Ty, bool),
        ins: &Instr,
        m: u32,
        f: &Frame,
        env: &Env,
    ) -> Result<(), Fault> {
        let (lo, hi) = self.compare_pair(cmp, ty, ftz, ins, f, env);
        let yes = match to {
            Ty::F16x2 => 0x3c00,
            Ty::Bf16x2 => 0x3f80,
            _ => 0xffff,
        };
        let v = std::array::from_fn(|l| ((lo >> l & 1) * yes) | ((hi >> l & 1) * yes) << 16);
        self.write::<u32>(ins.d, m, &v, f);
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of one instruction")]
    fn float_bin(&mut self, op: FloatBin, ty: Ty, fp: Fp, ins: &Instr, m: u32, f: &Frame, env: &Env) {
        match ty {
            Ty::F32 => {
                let (mut a, mut b) = (self.read::<f32>(ins.a, f, env), self.read::<f32>(ins.b, f, env));
                if fp.ftz {
                    (a, b) = (map1(&a, float::flush32), map1(&b, float::flush32));
                }
                let r = fp.round;
                let v = match op {
                    FloatBin::Add if r == Round::Nearest => map2(&a, &b, |x, y| x + y),
                    FloatBin::Mul if r == Round::Nearest => map2(&a, &b, |x, y| x * y),
                    FloatBin::Add => map2(&a, &b, |x, y| float::add32(x, y, r)),
                    FloatBin::Sub => map2(&a, &b, |x, y| float::add32(x, -y, r)),
                    FloatBin::Mul => map2(&a, &b, |x, y| float::mul32(x, y, r)),
                    FloatBin::Div => map2(&a, &b, |x, y| float::div32(x, y, r)),
                    FloatBin::Min => map2(&a, &b, |x, y| min_max(x, y, true)),
                    FloatBin::Max => map2(&a, &b, |x, y| min_max(x, y, false)),
                    FloatBin::MinNan => map2(&a, &b, |x, y| nan_or(x, y, min_max(x, y, true))),
                    FloatBin::MaxNan => map2(&a, &b, |x, y| nan_or(x, y, min_max(x, y, false))),
                    // The sign comes from the first operand.
                    FloatBin::CopySign => map2(&a, &b, |x, y| y.copysign(x)),
                };
                self.write(ins.d, m, &map1(&v, |x| finish32(x, fp)), f);
            }
            Ty::F64 => {
                let (a, b) = (self.read::<f64>(ins.a, f, env), self.read::<f64>(ins.b, f, env));
                let r = fp.round;
                let v = match op {
                    FloatBin::Add => map2(&a, &b, |x, y| float::add64(x, y, r)),
                    FloatBin::Sub => map2(&a, &b, |x, y| float::add64(x, -y, r)),
                    FloatBin::Mul => map2(&a, &b, |x, y| float::mul64(x, y, r)),
                    FloatBin::Div => map2(&a, &b, |x, y| float::div64(x, y, r)),
                    FloatBin::Min | FloatBin::MinNan => map2(&a, &b, |x, y| min_max64(x, y, true)),
                    FloatBin::Max | FloatBin::MaxNan => map2(&a, &b, |x, y| min_max64(x, y, false)),
                    FloatBin::CopySign => map2(&a, &b, |x, y| y.copysign(x)),
                };
                self.write(ins.d, m, &v, f);
            }
            _ => {
                let (a, b) = (self.read::<u32>(ins.a, f, env), self.read::<u32>(ins.b, f, env));
                let v = map2(&a, &b, |x, y| {
                    halves(ty, [x, y, 0], fp, |[x, y, _]| match op {
                        FloatBin::Add => x + y,
                        FloatBin::Sub => x - y,
                        FloatBin::Mul => x * y,
                        FloatBin::Div => x / y,
                        FloatBin::Min => min_max(x as f32, y as f32, true).into(),
                        FloatBin::Max => min_max(x as f32, y as f32, false).into(),
                        FloatBin::MinNan => nan_or(x as f32, y as f32, min_max(x as f32, y as f32, true)).into(),
                        FloatBin::MaxNan => nan_or(x as f32, y as f32, min_max(x as f32, y as f32, false)).into(),
                        FloatBin::CopySign => y.copysign(x),
                    })
                });
                self.write(ins.d, m, &v, f);
            }
        }
    }

    fn fma(&mut self, ty: Ty, fp: Fp, ins: &Instr, m: u32, f: &Frame, env: &Env) {
        match ty {
            Ty::F32 => {
                let (mut a, mut b, mut c) = self.three::<f32>(ins, f, env);
                if fp.ftz {
                    (a, b, c) = (map1(&a, float::flush32), map1(&b, float::flush32), map1(&c, float::flush32));
                }
                let v = match fp.round {
                    Round::Nearest => float::fma_row32(&a, &b, &c),
                    round => map3(&a, &b, &c, |x, y, z| float::fma32(x, y, z, round)),
                };
                self.write(ins.d, m, &map1(&v, |x| finish32(x, fp)), f);
            }
            Ty::F64 => {
                let (a, b, c) = self.three::<f64>(ins, f, env);
                self.write(ins.d, m, &map3(&a, &b, &c, |x, y, z| float::fma64(x, y, z, fp.round)), f);
            }
            _ => {
                let (a, b, c) = self.three::<u32>(ins, f, env);
                let v = map3(&a, &b, &c, |x, y, z| halves(ty, [x, y, z], fp, |[x, y, z]| float::sum_to_odd(x * y, z)));
                self.write(ins.d, m, &v, f);
            }
        }
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of one instruction")]
    fn float_un(&mut self, op: FloatUn, ty: Ty, fp: Fp, ins: &Instr, m: u32, f: &Frame, env: &Env) {
        match ty {
            Ty::F32 => {
                let mut a = self.read::<f32>(ins.a, f, env);
                if fp.ftz {
                    a = map1(&a, float::flush32);
                }
                let v = match op {
                    FloatUn::Neg => map1(&a, |x: f32| -x),
                    FloatUn::Abs => map1(&a, f32::abs),
                    FloatUn::Sqrt => map1(&a, |x| float::sqrt32(x, fp.round)),
                    FloatUn::Rcp => map1(&a, |x| float::div32(1.0, x, fp.round)),
                    _ => map1(&a, |x| transcendental(op, f64::from(x)) as f32),
                };
                if matches!(op, FloatUn::Neg | FloatUn::Abs) {
                    self.write(ins.d, m, &v, f);
                } else {
                    self.write(ins.d, m, &map1(&v, |x| finish32(x, fp)), f);
                }
            }
            Ty::F64 => {
                let a = self.read::<f64>(ins.a, f, env);
                let v = map1(&a, |x| match op {
                    FloatUn::Neg => -x,
                    FloatUn::Abs => x.abs(),
                    FloatUn::Sqrt => float::sqrt64(x, fp.round),
                    FloatUn::Rcp => float::div64(1.0, x, fp.round),
                    _ => transcendental(op, x),
                });
                self.write(ins.d, m, &v, f);
            }
            _ => {
                let a = self.read::<u32>(ins.a, f, env);
                let a = if fp.ftz { map1(&a, |x| flush_halves(ty, x)) } else { a };
                let v = map1(&a, |x| match op {
                    FloatUn::Neg => x ^ if matches!(ty, Ty::F16 | Ty::Bf16) { 0x8000 } else { 0x8000_8000 },
                    FloatUn::Abs => x & 0x7fff_7fff,
                    _ => halves(ty, [x, 0, 0], fp, |[x, ..]| transcendental(op, x)),
                });
                self.write(ins.d, m, &v, f);
            }
        }
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of one instruction")]
    fn convert(
        &mut self,
        (to, from): (Ty, Ty),
        round: Round,
        integer: bool,
        fp: Fp,
        ins: &Instr,
        m: u32,
        f: &Frame,
        env: &Env,
    ) {
        if !to.is_float() && !from.is_float() {
            let a = self.read::<u64>(ins.a, f, env);
            let v = map1(&a, |x| {
                let x = extend(from, x);
                if fp.sat {
                    let wide = if from.is_signed() { i128::from(x as i64) } else { i128::from(x) };
                    saturate(to, wide)
                } else {
                    extend(to, x)
                }
            });
            self.write(ins.d, m, &v, f);
            return;
        }
        let plain = !fp.sat && !fp.ftz && round == Round::Nearest;
        match (to, from) {
            (Ty::F32, Ty::S32) if plain => {
                let v = map1(&self.read::<i32>(ins.a, f, env), |x| x as f32);
                self.write(ins.d, m, &v, f);
            }
            (Ty::F32, Ty::U32) if plain => {
                let v = map1(&self.read::<u32>(ins.a, f, env), |x| x as f32);
                self.write(ins.d, m, &v, f);
            }
            (Ty::F64, Ty::F32) if plain && !integer => {
                let v = map1(&self.read::<f32>(ins.a, f, env), f64::from);
                self.write(ins.d, m, &v, f);
            }
            (Ty::F32, Ty::F64) if plain && !integer => {
                let v = map1(&self.read::<f64>(ins.a, f, env), |x| x as f32);
                self.write(ins.d, m, &v, f);
            }
            _ => {
                let a = self.read::<u64>(ins.a, f, env);
                self.write(ins.d, m, &map1(&a, |x| convert_lane(x, to, from, round, integer, fp)), f);
            }
        }
    }

    pub fn builtin(&mut self, b: Builtin, call: &Call, mask: u32, f: &Frame, env: &mut Env) -> Result<(), Fault> {
        for l in lanes(mask) {
            let mut args = [0u64; 8];
            for (a, slot) in args.iter_mut().zip(&call.args) {
                *a = self.load(env, l, Space::Local, u64::from(f.sp + slot.offset), slot.bytes.clamp(1, 8))?;
            }
            let result = match b {
                Builtin::Vprintf => {
                    let mut reader = LaneReader { warp: self, env, lane: l };
                    match printf::format(&mut reader, args[0], args[1]) {
                        Some((text, count)) => {
                            printf::emit(&text);
                            u64::from(count)
                        }
                        None => return Err(Fault::new(FaultKind::IllegalAddress, "printf argument")),
                    }
                }
                Builtin::AssertFail => {
                    let mut reader = LaneReader { warp: self, env, lane: l };
                    let mut text = |at| {
                        printf::c_string(&mut reader, at)
                            .map_or("?".into(), |s| String::from_utf8_lossy(&s).into_owned())
                    };
                    let (message, file, function) = (text(args[0]), text(args[1]), text(args[3]));
                    let [x, y, z] = env.ctaid;
                    say::put(&format!(
                        "{file}:{}: {function}: block: [{x},{y},{z}], thread: [{},{},{}] \
                         Assertion `{message}` failed.\n",
                        args[2], self.tid[0][l], self.tid[1][l], self.tid[2][l]
                    ));
                    return Err(Fault::new(FaultKind::Assert, "device-side assert"));
                }
                Builtin::Malloc => heap::heap_allocate(env.launch, args[0]),
                Builtin::Free => {
                    heap::heap_free(env.launch, args[0]);
                    0
                }
                Builtin::SetConditional => {
                    if !condition::set(env.launch.context, args[0], args[1] as u32) {
                        let what = "cudaGraphSetConditional of a handle that its context does not have";
                        return Err(Fault::new(FaultKind::IllegalAddress, what));
                    }
                    0
                }
            };
            if let Some(slot) = call.returns.first() {
                self.store(env, l, Space::Local, u64::from(f.sp + slot.offset), slot.bytes.clamp(1, 8), result)?;
            }
        }
        Ok(())
    }
}

struct LaneReader<'a, 'b> {
    warp: &'a mut Warp,
    env: &'a mut Env<'b>,
    lane: usize,
}

impl printf::Reader for LaneReader<'_, '_> {
    fn bytes(&mut self, at: u64, n: usize) -> Option<u64> {
        self.warp.load(self.env, self.lane, Space::Generic, at, n as u32).ok()
    }
}

#[inline(always)]
fn compare_rows<T: Copy + PartialOrd>(a: &Row<T>, b: &Row<T>, cmp: Cmp, nan: impl Fn(T) -> bool) -> u32 {
    let rows = |f: fn(T, T) -> bool| {
        let mut p = 0;
        for l in 0..32 {
            p |= u32::from(f(a[l], b[l])) << l;
        }
        p
    };
    let unordered = || bits(a, &nan) | bits(b, &nan);
    match cmp {
        Cmp::Eq => rows(|x, y| x == y),
        Cmp::Ne => rows(|x, y| x != y) & !unordered(),
        Cmp::Lt => rows(|x, y| x < y),
        Cmp::Le => rows(|x, y| x <= y),
        Cmp::Gt => rows(|x, y| x > y),
        Cmp::Ge => rows(|x, y| x >= y),
        Cmp::Equ => rows(|x, y| x == y) | unordered(),
        Cmp::Neu => rows(|x, y| x != y),
        Cmp::Ltu => rows(|x, y| x < y) | unordered(),
        Cmp::Leu => rows(|x, y| x <= y) | unordered(),
        Cmp::Gtu => rows(|x, y| x > y) | unordered(),
        Cmp::Geu => rows(|x, y| x >= y) | unordered(),
        Cmp::Num => !unordered(),
        Cmp::Nan => unordered(),
    }
}

fn combine_pred(logic: Logic, a: u32, b: u32) -> u32 {
    match logic {
        Logic::And => a & b,
        Logic::Or => a | b,
        Logic::Xor => a ^ b,
    }
}

/// The 64-bit word of a vector that holds its element `k`, and the bits below it there.
fn part_of_vector(ty: Ty, k: usize) -> (usize, u32) {
    let bits = 8 * ty.bytes() * k as u32;
    (bits as usize / 64, bits % 64)
}

/// What was loaded, as its type is kept in a register.
#[inline(always)]
fn sign_extended(ty: Ty, v: Row<u64>) -> Row<u64> {
    match ty {
        Ty::S8 => map1(&v, |v| i64::from(v as i8) as u64),
        Ty::S16 => map1(&v, |v| i64::from(v as i16) as u64),
        Ty::S32 => map1(&v, |v| i64::from(v as i32) as u64),
        _ => v,
    }
}

/// Sign- or zero-extends the value of a type to 64 bits.
#[inline(always)]
pub fn extend(ty: Ty, v: u64) -> u64 {
    match ty {
        Ty::S8 => i64::from(v as i8) as u64,
        Ty::S16 => i64::from(v as i16) as u64,
        Ty::S32 => i64::from(v as i32) as u64,
        Ty::U8 | Ty::B8 => v & 0xff,
        Ty::U16 | Ty::B16 | Ty::F16 | Ty::Bf16 => v & 0xffff,
        Ty::U32 | Ty::B32 | Ty::F32 | Ty::F16x2 | Ty::Bf16x2 => v & 0xffff_ffff,
        _ => v,
    }
}

fn extend_signed(ty: Ty, v: u64) -> i64 {
    match ty.bytes() {
        1 => i64::from(v as i8),
        2 => i64::from(v as i16),
        4 => i64::from(v as i32),
        _ => v as i64,
    }
}

fn low24(ty: Ty, v: u64) -> u64 {
    if ty.is_signed() { (((v as i64) << 40) >> 40) as u64 } else { v & 0xff_ffff }
}

fn mul_hi(ty: Ty, a: u64, b: u64) -> u64 {
    let width = 8 * ty.bytes();
    if ty.is_signed() {
        ((i128::from(extend_signed(ty, a)) * i128::from(extend_signed(ty, b))) >> width) as u64
    } else {
        ((u128::from(extend(ty, a)) * u128::from(extend(ty, b))) >> width) as u64
    }
}

fn bfe(ty: Ty, a: u64, pos: u8, len: u8) -> u64 {
    let width = 8 * ty.bytes();
    let (pos, len) = (u32::from(pos), u32::from(len));
    if len == 0 {
        return 0;
    }
    let a = extend(ty, a);
    let top = (pos + len - 1).min(width - 1);
    let sign = ty.is_signed() && a >> top & 1 != 0;
    let field = if pos >= width { 0 } else { (a & if width == 64 { u64::MAX } else { (1 << width) - 1 }) >> pos };
    let taken = len.min(width.saturating_sub(pos));
    let mask = if taken >= 64 { u64::MAX } else { (1u64 << taken) - 1 };
    (field & mask) | if sign { !mask } else { 0 }
}

fn find_nth(mask: u32, base: u32, offset: i32) -> u32 {
    if offset == 0 {
        return if mask >> (base & 31) & 1 != 0 { base } else { u32::MAX };
    }
    let mut left = offset.unsigned_abs();
    let mut at = base as i32;
    while (0..32).contains(&at) {
        left -= mask >> at & 1;
        if left == 0 {
            return at as u32;
        }
        at += offset.signum();
    }
    u32::MAX
}

fn prmt(mode: u8, a: u32, b: u32, c: u32) -> u32 {
    let both = (u64::from(b) << 32) | u64::from(a);
    let s = c & 3;
    let selector = match mode {
        0 => c,
        1 => [0x3210, 0x4321, 0x5432, 0x6543][s as usize],
        2 => [0x5670, 0x6701, 0x7012, 0x0123][s as usize],
        3 => [0x0000, 0x1111, 0x2222, 0x3333][s as usize],
        4 => [0x3210, 0x3211, 0x3222, 0x3333][s as usize],
        5 => [0x0000, 0x1110, 0x2210, 0x3210][s as usize],
        _ => [0x1010, 0x3232, 0x1010, 0x3232][s as usize],
    };
    (0..4).fold(0, |d, k| {
        let n = selector >> (4 * k) & 0xf;
        let byte = (both >> (8 * (n & 7))) as u8;
        let byte = if n & 8 != 0 { ((byte as i8) >> 7) as u8 } else { byte };
        d | u32::from(byte) << (8 * k)
    })
}

fn lop3(table: u8, a: u32, b: u32, c: u32) -> u32 {
    (0..8u32).filter(|k| table >> k & 1 != 0).fold(0, |d, k| {
        let pick = |v: u32, on: bool| if on { v } else { !v };
        d | (pick(a, k & 4 != 0) & pick(b, k & 2 != 0) & pick(c, k & 1 != 0))
    })
}

fn min_max(a: f32, b: f32, min: bool) -> f32 {
    if a.is_nan() {
        return if b.is_nan() { f32::from_bits(0x7fff_ffff) } else { b };
    }
    if b.is_nan() {
        return a;
    }
    if a == b {
        // Minus zero is less than plus zero.
        return if a.is_sign_negative() == min { a } else { b };
    }
    if (a < b) == min { a } else { b }
}

/// As [`min_max`], but that a NaN is the host's.
fn min_max64(a: f64, b: f64, min: bool) -> f64 {
    if a == b {
        return if a.is_sign_negative() == min { a } else { b };
    }
    if min { a.min(b) } else { a.max(b) }
}

/// The smallest or greatest of a warp's floats; a NaN if all are, or with `nan` if one is.
pub fn extreme_of(values: impl Iterator<Item = f32>, max: bool, abs: bool, nan: bool) -> f32 {
    let values = values.map(|v| if abs { v.abs() } else { v });
    let both = |a, b| if nan { nan_or(a, b, min_max(a, b, !max)) } else { min_max(a, b, !max) };
    let v = values.reduce(both).unwrap_or(0.0);
    nan_or(v, v, v)
}

fn nan_or(a: f32, b: f32, v: f32) -> f32 {
    if a.is_nan() || b.is_nan() { f32::from_bits(0x7fff_ffff) } else { v }
}

#[inline(always)]
fn finish32(x: f32, fp: Fp) -> f32 {
    let mut x = float::canonical(x);
    if fp.ftz {
        x = float::flush32(x);
    }
    if fp.sat {
        x = if x.is_nan() { 0.0 } else { x.clamp(0.0, 1.0) };
    }
    x
}

/// Applies `op` to one or both halves of half-precision operands.
fn halves(ty: Ty, v: [u32; 3], fp: Fp, op: impl Fn([f64; 3]) -> f64) -> u32 {
    let brain = matches!(ty, Ty::Bf16 | Ty::Bf16x2);
    let one = |shift: u32| {
        let x = v.map(|v| {
            let h = if fp.ftz { flush_halves(ty, v >> shift) } else { v >> shift } as u16;
            f64::from(if brain { float::bf16_to(h) } else { float::f16_to(h) })
        });
        let mut r = op(x);
        if fp.sat {
            r = if r.is_nan() { 0.0 } else { r.clamp(0.0, 1.0) };
        }
        if fp.relu && r <= 0.0 {
            r = 0.0;
        }
        let h = u32::from(if brain { float::bf16_from(r, fp.round) } else { float::f16_from(r, fp.round) });
        if fp.ftz { flush_halves(ty, h) } else { h }
    };
    if matches!(ty, Ty::F16x2 | Ty::Bf16x2) { one(0) | one(16) << 16 } else { one(0) }
}

/// Zeroes for the subnormals among one or two halves.
fn flush_halves(ty: Ty, v: u32) -> u32 {
    let exponent = if matches!(ty, Ty::Bf16 | Ty::Bf16x2) { 0x7f80 } else { 0x7c00 };
    let kept = |shift: u32| if v >> shift & exponent == 0 { 0x8000 } else { 0xffff };
    v & (kept(0) | kept(16) << 16)
}

fn compare_halves(a: &Row<u16>, b: &Row<u16>, cmp: Cmp, ty: Ty, ftz: bool) -> u32 {
    let to = if matches!(ty, Ty::F16 | Ty::F16x2) { float::f16_to } else { float::bf16_to };
    let wide = |h: u16| to(if ftz { flush_halves(ty, h.into()) as u16 } else { h });
    compare_rows(&map1(a, wide), &map1(b, wide), cmp, |x| x.is_nan())
}

/// The greatest number instead of an infinity of `ty`.
fn finite(ty: Ty, bits: u32) -> u32 {
    let (magnitude, infinity, step) = match ty {
        Ty::F16 | Ty::F16x2 => (0x7fff, 0x7c00, 1),
        Ty::Bf16 | Ty::Bf16x2 => (0x7fff, 0x7f80, 1),
        // Single precision without the lower 13 bits.
        _ => (0x7fff_ffff, 0x7f80_0000, 0x2000),
    };
    if bits & magnitude == infinity { bits - step } else { bits }
}

fn transcendental(op: FloatUn, x: f64) -> f64 {
    match op {
        FloatUn::Rsqrt => 1.0 / x.sqrt(),
        FloatUn::Sin => x.sin(),
        FloatUn::Cos => x.cos(),
        FloatUn::Ex2 => x.exp2(),
        FloatUn::Lg2 => x.log2(),
        FloatUn::Tanh => x.tanh(),
        FloatUn::Sqrt => x.sqrt(),
        FloatUn::Rcp => 1.0 / x,
        FloatUn::Neg => -x,
        FloatUn::Abs => x.abs(),
    }
}

fn limits(ty: Ty) -> (i128, i128) {
    let width = 8 * ty.bytes();
    if ty.is_signed() { (-(1i128 << (width - 1)), (1i128 << (width - 1)) - 1) } else { (0, (1i128 << width) - 1) }
}

fn saturate(ty: Ty, v: i128) -> u64 {
    let (lo, hi) = limits(ty);
    v.clamp(lo, hi) as u64
}

fn convert_lane(v: u64, to: Ty, from: Ty, round: Round, integer: bool, fp: Fp) -> u64 {
    if !from.is_float() {
        let x = extend(from, v);
        let wide = if from.is_signed() { i128::from(x as i64) } else { i128::from(x) };
        return float_from_int(wide, to, round, fp);
    }
    let x = match from {
        Ty::F64 => f64::from_bits(v),
        Ty::F16 => f64::from(float::f16_to(v as u16)),
        Ty::Bf16 => f64::from(float::bf16_to(v as u16)),
        _ => {
            let x = f32::from_bits(v as u32);
            f64::from(if fp.ftz { float::flush32(x) } else { x })
        }
    };
    if !to.is_float() {
        if x.is_nan() {
            return if to.bytes() == 8 { 1 << 63 } else { 0 };
        }
        let r = float::round_integer(x, round);
        let (lo, hi) = limits(to);
        // The casts saturate, so values beyond 128 bits end at a limit as well.
        return (r as i128).clamp(lo, hi) as u64;
    }
    let mut x = if integer { float::round_integer(x, round) } else { x };
    if fp.sat {
        x = if x.is_nan() { 0.0 } else { x.clamp(0.0, 1.0) };
    }
    if fp.relu && x <= 0.0 {
        x = 0.0;
    }
    match to {
        Ty::F64 => x.to_bits(),
        Ty::F16 | Ty::Bf16 => {
            let h = if to == Ty::F16 { float::f16_from(x, round) } else { float::bf16_from(x, round) };
            u64::from(if fp.finite { finite(to, h.into()) } else { h.into() })
        }
        Ty::Tf32 => {
            // 10 fraction bits are kept; the nearest step of the dropped 13 decides.
            let b = (x as f32).to_bits();
            let half = match round {
                Round::Away => 1 << 12,
                Round::Zero => 0,
                _ => (1 << 12) - 1 + (b >> 13 & 1),
            };
            let b = if x.is_finite() { b.wrapping_add(half) & !0x1fff } else { b };
            u64::from(if fp.finite { finite(to, b) } else { b })
        }
        _ => {
            let y = float::direct32(x, 0.0, round);
            u64::from(if y.is_nan() {
                0x7fff_ffff
            } else if fp.ftz {
                float::flush32(y).to_bits()
            } else {
                y.to_bits()
            })
        }
    }
}

fn float_from_int(v: i128, to: Ty, round: Round, fp: Fp) -> u64 {
    let sat = |x: f64| if fp.sat { x.clamp(0.0, 1.0) } else { x };
    match to {
        Ty::F64 => {
            let y = v as f64;
            let rest = v - y as i128;
            sat(float::direct64(y, rest as f64, round)).to_bits()
        }
        Ty::F16 => u64::from(float::f16_from(sat(float::integer_to_odd(v)), round)),
        Ty::Bf16 => u64::from(float::bf16_from(sat(float::integer_to_odd(v)), round)),
        _ => {
            let y = v as f32;
            let rest = v - y as i128;
            let y = if rest == 0 {
                y
            } else {
                match round {
                    Round::Up if rest > 0 => y.next_up(),
                    Round::Down if rest < 0 => y.next_down(),
                    Round::Zero if v > 0 && rest < 0 => y.next_down(),
                    Round::Zero if v < 0 && rest > 0 => y.next_up(),
                    _ => y,
                }
            };
            u64::from((sat(f64::from(y)) as f32).to_bits())
        }
    }
}
