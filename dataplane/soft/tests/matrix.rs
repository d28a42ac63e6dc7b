//! Matrix instructions, each against plain loops over whole matrices.

mod common;

use std::ffi::CString;

use common::random::Random;
use common::*;
use orion_cuda::sys::{
    CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_MISALIGNED_ADDRESS, CUDA_SUCCESS,
};
use orion_soft::exec::float::f16_from;
use orion_soft::exec::narrow::{e4m3_to, e5m2_to};
use orion_soft::ptx::isa::operand::Round;

/// A code of one sign bit, `exponent_bits` and fraction bits to fill `bits`, by the formula of binary formats.
fn by_formula(code: u32, bits: u32, exponent_bits: u32) -> f64 {
    let fraction_bits = bits - 1 - exponent_bits;
    let bias = (1 << (exponent_bits - 1)) - 1;
    let exponent = (code >> fraction_bits & ((1 << exponent_bits) - 1)) as i32;
    let fraction = f64::from(code & ((1 << fraction_bits) - 1)) / f64::from(1 << fraction_bits);
    let magnitude =
        if exponent == 0 { fraction * 2f64.powi(1 - bias) } else { (1.0 + fraction) * 2f64.powi(exponent - bias) };
    if code >> (bits - 1) & 1 == 1 { -magnitude } else { magnitude }
}

#[test]
fn every_code_of_eight_bits_has_its_value() {
    for code in 0..=255u8 {
        let (x, y) = (f64::from(e4m3_to(code)), f64::from(e5m2_to(code)));
        if code & 0x7f == 0x7f {
            assert!(x.is_nan());
        } else {
            assert_eq!(x.to_bits(), by_formula(code.into(), 8, 4).to_bits(), "e4m3 {code:#x}");
        }
        match code & 0x7f {
            0x7c => assert_eq!(y, if code >> 7 == 1 { f64::NEG_INFINITY } else { f64::INFINITY }),
            0x7d.. => assert!(y.is_nan()),
            _ => assert_eq!(y.to_bits(), by_formula(code.into(), 8, 5).to_bits(), "e5m2 {code:#x}"),
        }
    }
}

/// What the codes of a matrix are.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// Width, bits of exponent, and whether there are infinities.
    Float(u32, u32, bool),
    Integer(u32, bool),
    /// Single precision of which 13 bits are not looked at.
    Tf32,
    Double,
}

const F16: Kind = Kind::Float(16, 5, true);
const BF16: Kind = Kind::Float(16, 8, true);
const F32: Kind = Kind::Float(32, 8, true);
const E4M3: Kind = Kind::Float(8, 4, false);
const E5M2: Kind = Kind::Float(8, 5, true);
const S8: Kind = Kind::Integer(8, true);
const U8: Kind = Kind::Integer(8, false);
const S4: Kind = Kind::Integer(4, true);
const U4: Kind = Kind::Integer(4, false);
const B1: Kind = Kind::Integer(1, false);
const S32: Kind = Kind::Integer(32, true);

/// How wild the numbers of a run are.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wildness {
    /// Around one.
    Tame,
    /// Every finite code.
    Finite,
    /// Among the finite ones a few infinities and NaNs.
    Special,
    /// Zeros of both signs, subnormal numbers and the largest ones.
    Edges,
}

impl Kind {
    fn bits(self) -> u32 {
        match self {
            Self::Float(bits, ..) | Self::Integer(bits, _) => bits,
            Self::Tf32 => 32,
            Self::Double => 64,
        }
    }
    fn random(self, r: &mut Random, wild: Wildness) -> u64 {
        if self == Self::Tf32 {
            return F32.random(r, wild);
        }
        let Self::Float(bits, e, has_infinities) = self else {
            let any = r.next() << 32 ^ r.next();
            return match (self, wild) {
                (Self::Double, Wildness::Tame) => (any as u32 as f64 / 2e9 - 1.0).to_bits(),
                (Self::Double, Wildness::Special) if any.is_multiple_of(50) => f64::INFINITY.to_bits(),
                (Self::Double, _) => ((any >> 20) as f64 * 1e-300).to_bits(),
                // The least, the greatest, and minus one.
                (_, Wildness::Edges) => {
                    [1 << (self.bits() - 1), (1 << (self.bits() - 1)) - 1, u64::MAX][r.below(3) as usize]
                        & (u64::MAX >> (64 - self.bits()))
                }
                _ => any & (u64::MAX >> (64 - self.bits())),
            };
        };
        let fraction = bits - 1 - e;
        let sign = r.below(2) << (bits - 1);
        let greatest = (1 << e) - 1;
        let part = r.next() & ((1 << fraction) - 1);
        let mut code = match wild {
            Wildness::Tame => (greatest / 2 - 1 + r.below(2)) << fraction | part,
            Wildness::Special if r.below(60) == 0 => greatest << fraction | if r.below(2) == 0 { 0 } else { part },
            Wildness::Finite | Wildness::Special => r.below(greatest) << fraction | part,
            Wildness::Edges => match r.below(4) {
                0 => 0,
                1 => part,
                2 => (greatest - 1) << fraction | part,
                _ => 1 << fraction | part,
            },
        };
        if !has_infinities && wild != Wildness::Special && code == (1 << (bits - 1)) - 1 {
            code -= 1;
        }
        sign | code
    }
    /// Value, or what is not finite, as a double.
    fn value(self, code: u64) -> f64 {
        match self {
            Self::Double => f64::from_bits(code),
            Self::Tf32 => F32.value(code & !0x1fff),
            Self::Float(32, ..) => f64::from(f32::from_bits(code as u32)),
            Self::Float(bits, e, has_infinities) => {
                let fraction = bits - 1 - e;
                let magnitude = code as u32 & ((1 << (bits - 1)) - 1);
                let top = ((1 << e) - 1) << fraction;
                if has_infinities && magnitude == top {
                    return if code >> (bits - 1) & 1 == 1 { f64::NEG_INFINITY } else { f64::INFINITY };
                }
                let is_nan = if has_infinities { magnitude > top } else { magnitude == (1 << (bits - 1)) - 1 };
                if is_nan { f64::NAN } else { by_formula(code as u32, bits, e) }
            }
            Self::Integer(bits, true) => ((code << (64 - bits)) as i64 >> (64 - bits)) as f64,
            Self::Integer(..) => code as f64,
        }
    }
    /// The exponent that a product with this number is aligned by, as it is when the number is half precision.
    fn exponent(self, code: u64) -> i32 {
        let v = self.value(code).abs();
        let least = if [BF16, F32, Self::Tf32].contains(&self) { -126 } else { -14 };
        if v == 0.0 { -100_000 } else { ((v.to_bits() >> 52) as i32 - 1023).max(least) }
    }
}

/// A matrix of codes.
#[derive(Clone)]
struct Matrix {
    kind: Kind,
    columns: usize,
    codes: Vec<u64>,
}

impl Matrix {
    fn random(kind: Kind, rows: usize, columns: usize, r: &mut Random, wild: Wildness) -> Self {
        let codes = (0..rows * columns).map(|_| kind.random(r, wild)).collect();
        Self { kind, columns, codes }
    }
    fn zeros(kind: Kind, rows: usize, columns: usize) -> Self {
        Self { kind, columns, codes: vec![0; rows * columns] }
    }
    fn at(&self, row: usize, column: usize) -> u64 {
        self.codes[row * self.columns + column]
    }
}

/// The bits of single precision nearest to `v` and not beyond it.
fn cut(v: f64) -> u32 {
    let near = v as f32;
    if v.is_nan() {
        return 0x7fff_ffff;
    }
    // What is less than the power of two after the largest number is cut off to that.
    let is_beyond = v.abs() < 2f64.powi(128) && f64::from(near).abs() > v.abs();
    near.to_bits() - u32::from(is_beyond)
}

/// A sum of products, cut off 25 places below the leading bit of the largest part and then to the sum's type.
fn sum_of_products(pairs: &[(Kind, u64, Kind, u64)], (c, old): (Kind, u64), sum: Kind) -> u64 {
    let whole = |v: f64, e: i32, top: i32| (v * 2f64.powi(25 - (top - e)) * 2f64.powi(-e)) as i64;
    let loose: f64 = pairs.iter().map(|(x, a, y, b)| x.value(*a) * y.value(*b)).sum::<f64>() + c.value(old);
    let v = if loose.is_finite() {
        let parts = pairs.iter().map(|(x, a, y, b)| (x.value(*a) * y.value(*b), x.exponent(*a) + y.exponent(*b)));
        let parts: Vec<_> = parts.chain([(c.value(old), c.exponent(old).max(-126))]).collect();
        let top = parts.iter().map(|p| p.1).max().unwrap();
        let total: i64 = parts.iter().filter(|p| p.0 != 0.0).map(|(v, e)| whole(*v, *e, top)).sum();
        total as f64 * 2f64.powi(top - 25)
    } else {
        loose
    };
    if sum == F32 {
        return u64::from(cut(v));
    }
    if v.is_nan() { 0x7fff } else { u64::from(f16_from(v, Round::Nearest)) }
}

/// What an instruction is to compute, for whole matrices. `pick` says which products there are.
fn product(form: &Form, a: &Matrix, b: &Matrix, c: &Matrix, pick: &dyn Fn(usize, usize) -> usize) -> Matrix {
    let mut d = Matrix::zeros(form.d, form.m, form.n);
    for i in 0..form.m * form.n {
        let (row, column) = (i / form.n, i % form.n);
        let old = c.codes[i];
        let factors: Vec<(u64, u64)> = (0..a.columns).map(|k| (a.at(row, k), b.at(pick(row, k), column))).collect();
        d.codes[i] = match form.d {
            Kind::Double => {
                let chain = |sum: f64, (x, y): &(u64, u64)| f64::from_bits(*x).mul_add(f64::from_bits(*y), sum);
                factors.iter().fold(f64::from_bits(old), chain).to_bits()
            }
            Kind::Integer(..) => {
                let product = |&(x, y): &(u64, u64)| match (form.a, form.opcode.contains("and")) {
                    (B1, true) => (x & y) as i64,
                    (B1, false) => (x ^ y) as i64,
                    _ => (form.a.value(x) * form.b.value(y)) as i64,
                };
                let sum = i64::from(old as i32) + factors.iter().map(product).sum::<i64>();
                let limited = sum.clamp(i32::MIN.into(), i32::MAX.into());
                u64::from(if form.opcode.contains("satfinite") { limited as u32 } else { sum as u32 })
            }
            Kind::Float(..) | Kind::Tf32 => {
                let pairs: Vec<_> = factors.iter().map(|&(x, y)| (form.a, x, form.b, y)).collect();
                if form.a.bits() == 8 {
                    sum_by_halves(form.d, &pairs, old)
                } else {
                    sum_of_products(&pairs, (form.c, old), form.d)
                }
            }
        };
    }
    d
}

/// An H100 has no unit for eight-bit floats in `mma`: it takes two of every four products, then the two others, and
/// adds the old sum to the result.
fn sum_by_halves(sum: Kind, pairs: &[(Kind, u64, Kind, u64)], old: u64) -> u64 {
    let half = |h: usize| pairs.iter().enumerate().filter(|(k, _)| k % 4 / 2 == h).map(|(_, p)| *p).collect::<Vec<_>>();
    let products = sum_of_products(&half(1), (sum, sum_of_products(&half(0), (sum, 0), sum)), sum);
    if sum == F32 {
        let v = f32::from_bits(old as u32) + f32::from_bits(products as u32);
        return u64::from(if v.is_nan() { 0x7fff_ffff } else { v.to_bits() });
    }
    let v = sum.value(old) + sum.value(products);
    if v.is_nan() { 0x7fff } else { u64::from(f16_from(v, Round::Nearest)) }
}

/// An instruction of `mma`, and the matrices that it multiplies.
struct Form {
    name: String,
    opcode: String,
    m: usize,
    n: usize,
    k: usize,
    a: Kind,
    b: Kind,
    c: Kind,
    d: Kind,
    /// The selector of a sparse form.
    selector: Option<usize>,
}

fn kind(name: &str) -> Kind {
    match name {
        "f16" => F16,
        "bf16" => BF16,
        "f32" => F32,
        "tf32" => Kind::Tf32,
        "f64" => Kind::Double,
        "e4m3" => E4M3,
        "e5m2" => E5M2,
        "s8" => S8,
        "u8" => U8,
        "s4" => S4,
        "u4" => U4,
        "b1" => B1,
        "s32" => S32,
        other => panic!("{other} is no type of these tests"),
    }
}

impl Form {
    /// By the shape, the types of result, factors and old sums, and what else is in the opcode.
    fn new(shape: [usize; 3], types: &str, more: &str, selector: Option<usize>) -> Self {
        let [m, n, k] = shape;
        let [d, a, b, c] = types.split('.').collect::<Vec<_>>()[..] else { panic!("four types are needed") };
        let sparse = if selector.is_some() { ".sp::ordered_metadata" } else { "" };
        let (before, after) = if more == ".satfinite" { (more, "") } else { ("", more) };
        let opcode = format!("mma{sparse}.sync.aligned.m{m}n{n}k{k}.row.col{before}.{types}{after}");
        let name = opcode.replace(['.', ':'], "_") + &selector.map_or(String::new(), |s| format!("_{s}"));
        Self { name, opcode, m, n, k, a: kind(a), b: kind(b), c: kind(c), d: kind(d), selector }
    }
    fn stored_k(&self) -> usize {
        if self.selector.is_some() { self.k / 2 } else { self.k }
    }
    /// Registers of result, factors and old sums, and the bits of one.
    fn registers(&self) -> ([usize; 4], usize) {
        let bits = if self.a == Kind::Double { 64 } else { 32 };
        let of = |elements: usize, kind: Kind| elements * kind.bits() as usize / bits / 32;
        let sums = self.m * self.n;
        ([of(sums, self.d), of(self.m * self.stored_k(), self.a), of(self.n * self.k, self.b), of(sums, self.c)], bits)
    }
    fn kernel(&self) -> String {
        let (counts, bits) = self.registers();
        self.kernel_with(counts, bits)
    }
    fn kernel_with(&self, [d, a, b, c]: [usize; 4], bits: usize) -> String {
        let mut text = format!(".visible .entry {}(.param .u64 in, .param .u64 out)\n{{\n", self.name);
        text += ".reg .b64 %at<4>;\n.reg .b32 %l;\n.reg .b32 %meta;\n";
        let mut names = Vec::new();
        for (letter, count) in [("d", d), ("a", a), ("b", b), ("c", c)] {
            text += &format!(".reg .b{bits} %{letter}<{count}>;\n");
            names.push((0..count).map(|i| format!("%{letter}{i}")).collect::<Vec<_>>());
        }
        let bytes = bits / 8;
        text += "ld.param.u64 %at0, [in];\nld.param.u64 %at1, [out];\nmov.u32 %l, %laneid;\n";
        text += &format!("mul.wide.u32 %at2, %l, {bytes};\nadd.s64 %at0, %at0, %at2;\nadd.s64 %at1, %at1, %at2;\n");
        for (i, r) in names[1..].iter().flatten().enumerate() {
            text += &format!("ld.global.b{bits} {r}, [%at0+{}];\n", 32 * bytes * i);
        }
        text += &format!("ld.global.b32 %meta, [%at0+{}];\n", 32 * bytes * (a + b + c));
        let list: Vec<String> = names.iter().map(|n| format!("{{{}}}", n.join(", "))).collect();
        let extra = self.selector.map_or(String::new(), |s| format!(", %meta, {s:#x}"));
        text += &format!("{} {}{extra};\n", self.opcode, list.join(", "));
        for (i, r) in names[0].iter().enumerate() {
            text += &format!("st.global.b{bits} [%at1+{}], {r};\n", 32 * bytes * i);
        }
        text + "ret;\n}\n"
    }
}

/// Row and column of element `i` of a thread's part of the first factor, as PTX's document gives them.
fn a_element(m: usize, per_register: usize, lane: usize, i: usize) -> (usize, usize) {
    let (group, thread) = (lane >> 2, lane & 3);
    let e = per_register;
    if m == 8 {
        return (group, thread * e + i);
    }
    (group + 8 * (i / e % 2), thread * e + i % e + if i >= 2 * e { 4 * e * (i / (2 * e)) } else { 0 })
}

fn b_element(per_register: usize, lane: usize, i: usize) -> (usize, usize) {
    let e = per_register;
    ((lane & 3) * e + i % e + 4 * e * (i / e), lane >> 2)
}

fn c_element(lane: usize, i: usize) -> (usize, usize) {
    ((lane >> 2) + if i >= 2 { 8 } else { 0 }, (lane & 3) * 2 + (i & 1))
}

/// A matrix as registers of 32 lanes, by the place of each lane's elements.
fn scatter(m: &Matrix, registers: usize, bits: usize, place: impl Fn(usize, usize) -> (usize, usize)) -> Vec<u64> {
    let width = m.kind.bits() as usize;
    let per_register = bits / width;
    let mut words = vec![0u64; registers * 32];
    for lane in 0..32 {
        for i in 0..registers * per_register {
            let (row, column) = place(lane, i);
            words[i / per_register * 32 + lane] |= m.at(row, column) << (width * (i % per_register));
        }
    }
    words
}

fn gather(words: &[u64], to: &mut Matrix, bits: usize, place: impl Fn(usize, usize) -> (usize, usize)) {
    let width = to.kind.bits() as usize;
    let per_register = bits / width;
    for lane in 0..32 {
        for i in 0..words.len() / 32 * per_register {
            let (row, column) = place(lane, i);
            let code = words[i / per_register * 32 + lane] >> (width * (i % per_register));
            to.codes[row * to.columns + column] = code & (u64::MAX >> (64 - width));
        }
    }
}

/// The places of a sparse factor's elements in its rows, and the metadata that says so.
struct Sparsity {
    index: Vec<Vec<usize>>,
    words: [u32; 32],
}

impl Sparsity {
    fn random(form: &Form, selector: usize, r: &mut Random) -> Self {
        let bits = form.a.bits();
        let (mut index, mut words) = (vec![Vec::new(); 16], [0u32; 32]);
        for (row, index) in index.iter_mut().enumerate() {
            let mut code = 0u64;
            let chunks = if bits == 32 {
                form.k / 2
            } else if bits == 4 {
                form.k / 8
            } else {
                form.k / 4
            };
            for chunk in 0..chunks {
                let [first, second] = [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]][r.below(6) as usize];
                let nibble = match bits {
                    32 => {
                        let which = r.below(2) as usize;
                        index.push(2 * chunk + which);
                        [0b0100, 0b1110][which]
                    }
                    4 => {
                        let pairs = [first, second].map(|p| 8 * chunk + 2 * p);
                        index.extend(pairs.iter().flat_map(|p| [*p, p + 1]));
                        first | second << 2
                    }
                    _ => {
                        index.extend([4 * chunk + first, 4 * chunk + second]);
                        first | second << 2
                    }
                };
                code |= (nibble as u64) << (4 * chunk);
            }
            let (group, upper) = (row % 8, row / 8);
            let mut put = |thread: usize, shift: usize, part: u64| words[4 * group + thread] |= (part as u32) << shift;
            match (bits >= 16, chunks) {
                (true, 4) => put(selector, 16 * upper, code),
                (true, _) => {
                    put(2 * selector, 16 * upper, code & 0xffff);
                    put(2 * selector + 1, 16 * upper, code >> 16);
                }
                (false, 8) => put(2 * selector + upper, 0, code),
                (false, _) => {
                    put(upper, 0, code & 0xffff_ffff);
                    put(2 + upper, 0, code >> 32);
                }
            }
        }
        Self { index, words }
    }
}

/// A module of kernels for these forms.
fn module(forms: &[Form]) -> Gpu {
    let text = ".version 9.0\n.target sm_90\n.address_size 64\n".to_string();
    let text = forms.iter().fold(text, |text, f| text + &f.kernel());
    let text = CString::new(text).unwrap();
    Gpu::with(text.as_ptr().cast())
}

fn run(g: &Gpu, form: &Form, r: &mut Random, wild: Wildness) {
    let ([d_count, a_count, b_count, c_count], bits) = form.registers();
    let a = Matrix::random(form.a, form.m, form.stored_k(), r, wild);
    let b = Matrix::random(form.b, form.k, form.n, r, wild);
    let c = Matrix::random(form.c, form.m, form.n, r, wild);
    let sparsity = form.selector.map(|s| Sparsity::random(form, s, r));
    let of_a = bits / form.a.bits() as usize;
    let of_b = bits / form.b.bits() as usize;
    let mut words = scatter(&a, a_count, bits, |lane, i| a_element(form.m, of_a, lane, i));
    words.extend(scatter(&b, b_count, bits, |lane, i| b_element(of_b, lane, i)));
    words.extend(scatter(&c, c_count, bits, c_element));
    words.extend(sparsity.as_ref().map_or([0; 32], |s| s.words).map(u64::from));
    let out: Vec<u64> = if bits == 64 {
        let (input, out) = (Buffer::new(&words), Buffer::<u64>::zeroed(32 * d_count));
        ok(g.launch(&form.name, 1, 32, 0, &mut args![input.at, out.at]));
        out.read()
    } else {
        let words: Vec<u32> = words.iter().map(|w| *w as u32).collect();
        let (input, out) = (Buffer::new(&words), Buffer::<u32>::zeroed(32 * d_count));
        ok(g.launch(&form.name, 1, 32, 0, &mut args![input.at, out.at]));
        out.read().into_iter().map(u64::from).collect()
    };
    let mut d = Matrix::zeros(form.d, form.m, form.n);
    gather(&out, &mut d, bits, c_element);
    let want = product(form, &a, &b, &c, &|row, k| sparsity.as_ref().map_or(k, |s| s.index[row][k]));
    for i in 0..form.m * form.n {
        let (x, y) = (d.codes[i], want.codes[i]);
        let same = x == y || form.d == Kind::Double && f64::from_bits(x).is_nan() && f64::from_bits(y).is_nan();
        assert!(same, "{} {wild:?}: element {},{} is {x:#x}, not {y:#x}", form.opcode, i / form.n, i % form.n);
    }
}

fn check(forms: &[Form]) {
    let g = module(forms);
    let mut r = Random(0x9e37_79b9_7f4a_7c15);
    for form in forms {
        for wild in [Wildness::Tame, Wildness::Finite, Wildness::Special, Wildness::Edges] {
            for _ in 0..6 {
                run(&g, form, &mut r, wild);
            }
        }
    }
}

#[test]
fn products_of_half_precision() {
    let forms = |shape| ["f32.f16.f16.f32", "f16.f16.f16.f16"].map(|types| Form::new(shape, types, "", None));
    check(&[forms([16, 8, 8]), forms([16, 8, 16])].into_iter().flatten().collect::<Vec<_>>());
}

#[test]
fn products_of_brain_floats_and_shortened_single_precision() {
    check(&[
        Form::new([16, 8, 8], "f32.bf16.bf16.f32", "", None),
        Form::new([16, 8, 16], "f32.bf16.bf16.f32", "", None),
        Form::new([16, 8, 4], "f32.tf32.tf32.f32", "", None),
        Form::new([16, 8, 8], "f32.tf32.tf32.f32", "", None),
    ]);
}

#[test]
fn products_of_eight_bit_floats() {
    let mut forms = Vec::new();
    for (a, b) in [("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3"), ("e5m2", "e5m2")] {
        for (k, sum) in [(16, "f32"), (32, "f32"), (16, "f16"), (32, "f16")] {
            forms.push(Form::new([16, 8, k], &format!("{sum}.{a}.{b}.{sum}"), "", None));
        }
    }
    check(&forms);
}

#[test]
fn products_of_integers_wrap_or_saturate() {
    let mut forms = Vec::new();
    for (a, b) in [("s8", "s8"), ("s8", "u8"), ("u8", "s8"), ("u8", "u8")] {
        let narrow = |t: &str| t.replace('8', "4");
        for more in ["", ".satfinite"] {
            for shape in [[8, 8, 16], [16, 8, 16], [16, 8, 32]] {
                forms.push(Form::new(shape, &format!("s32.{a}.{b}.s32"), more, None));
            }
            for shape in [[8, 8, 32], [16, 8, 32], [16, 8, 64]] {
                forms.push(Form::new(shape, &format!("s32.{}.{}.s32", narrow(a), narrow(b)), more, None));
            }
        }
    }
    check(&forms);
}

#[test]
fn products_of_single_bits() {
    let shapes = [[8, 8, 128], [16, 8, 128], [16, 8, 256]];
    let forms = |op| shapes.map(|shape| Form::new(shape, "s32.b1.b1.s32", op, None));
    check(&[forms(".xor.popc"), forms(".and.popc")].into_iter().flatten().collect::<Vec<_>>());
}

#[test]
fn products_of_double_precision_are_chains() {
    check(&[[8, 8, 4], [16, 8, 4], [16, 8, 8], [16, 8, 16]].map(|s| Form::new(s, "f64.f64.f64.f64", "", None)));
}

#[test]
fn products_of_sparse_matrices() {
    let mut forms = Vec::new();
    for selector in 0..4 {
        for types in ["f32.f16.f16.f32", "f16.f16.f16.f16", "f32.bf16.bf16.f32"] {
            forms.push(Form::new([16, 8, 16], types, "", Some(selector)));
        }
        forms.push(Form::new([16, 8, 8], "f32.tf32.tf32.f32", "", Some(selector)));
    }
    for selector in 0..2 {
        for types in ["f32.f16.f16.f32", "f16.f16.f16.f16", "f32.bf16.bf16.f32"] {
            forms.push(Form::new([16, 8, 32], types, "", Some(selector)));
        }
        forms.push(Form::new([16, 8, 16], "f32.tf32.tf32.f32", "", Some(selector)));
        forms.push(Form::new([16, 8, 32], "s32.s8.u8.s32", "", Some(selector)));
        forms.push(Form::new([16, 8, 64], "s32.s4.u4.s32", ".satfinite", Some(selector)));
    }
    forms.push(Form::new([16, 8, 64], "s32.u8.s8.s32", ".satfinite", Some(0)));
    forms.push(Form::new([16, 8, 128], "s32.s4.s4.s32", "", Some(0)));
    forms.push(Form::new([16, 8, 64], "f32.e4m3.e5m2.f32", "", Some(0)));
    forms.push(Form::new([16, 8, 64], "f16.e5m2.e4m3.f16", "", Some(0)));
    check(&forms);
}

/// Kernels written by hand: `body` between what names the lane, the addresses of two buffers and shared memory.
fn kernels(bodies: &[(&str, &str)]) -> Gpu {
    let mut text = ".version 9.0\n.target sm_90\n.address_size 64\n".to_string();
    for (name, body) in bodies {
        text += &format!(
            ".visible .entry {name}(.param .u64 in, .param .u64 out)\n{{\n.reg .b64 %at<9>;\n.reg .b32 %r<40>;\n\
             .reg .pred %p;\n.shared .align 16 .b8 memory[4096];\nld.param.u64 %at0, [in];\nld.param.u64 %at1, [out];\n\
             mov.u32 %r0, %laneid;\nmul.wide.u32 %at2, %r0, 4;\nadd.s64 %at0, %at0, %at2;\nadd.s64 %at1, %at1, %at2;\n\
             {body}\nret;\n}}\n"
        );
    }
    let text = CString::new(text).unwrap();
    Gpu::with(text.as_ptr().cast())
}

/// Rows of a matrix of 8x8 in shared memory stand 32 bytes apart, in an order of their own.
const TO_SHARED: &str = "mov.u32 %r1, memory;
    mul.lo.u32 %r2, %r0, 29;
    and.b32 %r2, %r2, 31;
    shl.b32 %r2, %r2, 5;
    add.s32 %r1, %r1, %r2;
    ld.global.b32 %r3, [%at0];
    ld.global.b32 %r4, [%at0+128];
    ld.global.b32 %r5, [%at0+256];
    ld.global.b32 %r6, [%at0+384];
    st.shared.v4.b32 [%r1], {%r3, %r4, %r5, %r6};
    bar.warp.sync -1;";

#[test]
fn matrices_are_loaded_by_rows_and_by_columns() {
    let mut bodies = Vec::new();
    let forms = [
        ("x1", "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r10}, [%r1];"),
        ("x2", "ldmatrix.sync.aligned.m8n8.x2.shared::cta.b16 {%r10, %r11}, [%r1];"),
        ("x4", "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r1];"),
        ("x1_trans", "ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%r10}, [%r1];"),
        ("x2_trans", "ldmatrix.sync.aligned.x2.trans.m8n8.shared.b16 {%r10, %r11}, [%r1+0];"),
        (
            "x4_trans",
            "cvt.u64.u32 %at3, %r1; cvta.shared.u64 %at3, %at3; add.s64 %at3, %at3, -16;
             ldmatrix.sync.aligned.m8n8.x4.trans.b16 {%r1, %r11, %r12, %r13}, [%at3+16]; mov.u32 %r10, %r1;",
        ),
    ];
    for (name, load) in forms {
        let store = "st.global.b32 [%at1], %r10; st.global.b32 [%at1+128], %r11;
                     st.global.b32 [%at1+256], %r12; st.global.b32 [%at1+384], %r13;";
        bodies.push((name, format!("{TO_SHARED}\n{load}\n{store}")));
    }
    let g = kernels(&bodies.iter().map(|(n, b)| (*n, b.as_str())).collect::<Vec<_>>());
    // Element c of row r of matrix m: what its lane stored as the c-th half.
    let element = |m: usize, r: usize, c: usize| (1000 * (8 * m + r) + c) as u16;
    let words: Vec<u32> = (0..128)
        .map(|i| {
            let (word, lane) = (i / 32, i % 32);
            let half = |c| u32::from(element(lane / 8, lane % 8, c));
            half(2 * word) | half(2 * word + 1) << 16
        })
        .collect();
    for (name, _) in forms {
        let (input, out) = (Buffer::new(&words), Buffer::<u32>::zeroed(128));
        ok(g.launch(name, 1, 32, 0, &mut args![input.at, out.at]));
        let out = out.read();
        let count = 32 * name[1..2].parse::<usize>().unwrap();
        for (i, word) in out.into_iter().enumerate().take(count) {
            let (m, lane) = (i / 32, i % 32);
            let half = |h: usize| {
                if name.contains("trans") {
                    element(m, lane % 4 * 2 + h, lane / 4)
                } else {
                    element(m, lane / 4, lane % 4 * 2 + h)
                }
            };
            assert_eq!(word, u32::from(half(0)) | u32::from(half(1)) << 16, "{name}: matrix {m}, lane {lane}");
        }
    }
}

#[test]
fn stored_and_moved_matrices_are_what_a_load_gives() {
    let load = "ld.global.b32 %r10, [%at0]; ld.global.b32 %r11, [%at0+128];
                ld.global.b32 %r12, [%at0+256]; ld.global.b32 %r13, [%at0+384];
                mov.u32 %r1, memory; shl.b32 %r2, %r0, 4; add.s32 %r1, %r1, %r2;";
    let read = "bar.warp.sync -1; ld.shared.v4.b32 {%r10, %r11, %r12, %r13}, [%r1];
                st.global.b32 [%at1], %r10; st.global.b32 [%at1+128], %r11;
                st.global.b32 [%at1+256], %r12; st.global.b32 [%at1+384], %r13;";
    let stored = format!("{load} stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r1], {{%r10, %r11, %r12, %r13}}; {read}");
    let turned =
        format!("{load} stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%r1], {{%r10, %r11, %r12, %r13}}; {read}");
    let one = format!("{load} stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r1], {{%r11}}; {read}");
    let moved = "ld.global.b32 %r10, [%at0]; movmatrix.sync.aligned.m8n8.trans.b16 %r10, %r10;
                 st.global.b32 [%at1], %r10;";
    let g = kernels(&[("stored", &stored), ("turned", &turned), ("one", &one), ("moved", moved)]);
    let mut r = Random(5);
    let fragments: Vec<u32> = (0..128).map(|_| r.next() as u32).collect();
    // Element c of row r of matrix m.
    let element = |m: usize, r: usize, c: usize| fragments[32 * m + 4 * r + c / 2] >> (16 * (c % 2)) & 0xffff;
    let run = |name| {
        let (input, out) = (Buffer::new(&fragments), Buffer::<u32>::zeroed(128));
        ok(g.launch(name, 1, 32, 0, &mut args![input.at, out.at]));
        out.read()
    };
    let (stored, turned, one, moved) = (run("stored"), run("turned"), run("one"), run("moved"));
    for i in 0..128 {
        let (word, lane) = (i / 32, i % 32);
        let (m, r) = (lane / 8, lane % 8);
        assert_eq!(stored[i], element(m, r, 2 * word) | element(m, r, 2 * word + 1) << 16);
        assert_eq!(turned[i], element(m, 2 * word, r) | element(m, 2 * word + 1, r) << 16);
        let only = if m == 0 { element(1, r, 2 * word) | element(1, r, 2 * word + 1) << 16 } else { 0 };
        assert_eq!(one[i], only);
    }
    for (lane, word) in moved.into_iter().enumerate().take(32) {
        let (r, c) = (lane / 4, lane % 4 * 2);
        assert_eq!(word, element(0, c, r) | element(0, c + 1, r) << 16);
    }
}

#[test]
fn products_of_quarter_warps() {
    let mut text = ".version 7.0\n.target sm_70\n.address_size 64\n".to_string();
    let mut forms = Vec::new();
    for layouts in ["row.col", "row.row", "col.col", "col.row"] {
        for types in ["f32.f16.f16.f32", "f16.f16.f16.f16", "f32.f16.f16.f16"] {
            let mut form = Form::new([8, 8, 4], types, "", None);
            form.opcode = form.opcode.replace("row.col", layouts);
            form.name = form.opcode.replace('.', "_");
            let counts = [form.d, F16, F16, form.c].map(|kind| kind.bits() as usize / 4);
            let counts = [counts[0], 2, 2, counts[3]];
            text += &form.kernel_with(counts, 32);
            forms.push((form, counts, layouts.starts_with("row"), layouts.ends_with("row")));
        }
    }
    let text = CString::new(text).unwrap();
    let g = Gpu::with(text.as_ptr().cast());
    let mut r = Random(77);
    for (form, counts, a_rows, b_rows) in &forms {
        for wild in [Wildness::Tame, Wildness::Finite, Wildness::Special, Wildness::Edges] {
            run_quarters(&g, form, *counts, [*a_rows, *b_rows], &mut r, wild);
        }
    }
}

/// Four products of 8x8x4, of which each is the matter of eight lanes.
fn run_quarters(g: &Gpu, form: &Form, counts: [usize; 4], rows: [bool; 2], r: &mut Random, wild: Wildness) {
    // Lane 4q to 4q + 3 and the same 16 lanes above.
    let quarter = |lane: usize| lane % 16 / 4;
    let four = |lane: usize| lane % 4 + if lane < 16 { 0 } else { 4 };
    let a_place = |lane: usize, i: usize| if rows[0] { (four(lane), i) } else { (i + four(lane) / 4 * 4, lane % 4) };
    let b_place = |lane: usize, i: usize| if rows[1] { (lane % 4, i + four(lane) / 4 * 4) } else { (i, four(lane)) };
    let sum_place = |kind: Kind| {
        move |lane: usize, i: usize| {
            let upper = if lane < 16 { 0 } else { 4 };
            if kind == F16 {
                (lane % 4 + upper, i)
            } else {
                ((lane & 1) + (i & 2) + upper, (i & 4) + (lane & 2) + (i & 1))
            }
        }
    };
    let matrices: Vec<_> = (0..4)
        .map(|_| {
            let mut random = |kind, m, n| Matrix::random(kind, m, n, r, wild);
            (random(F16, 8, 4), random(F16, 4, 8), random(form.c, 8, 8))
        })
        .collect();
    let mut words = Vec::new();
    for (which, count) in counts[1..].iter().enumerate() {
        let mut all = vec![0u32; 32 * count];
        for (q, (a, b, c)) in matrices.iter().enumerate() {
            let part = match which {
                0 => scatter(a, *count, 32, a_place),
                1 => scatter(b, *count, 32, b_place),
                _ => scatter(c, *count, 32, sum_place(form.c)),
            };
            for (i, word) in part.into_iter().enumerate().filter(|(i, _)| quarter(i % 32) == q) {
                all[i] = word as u32;
            }
        }
        words.extend(all);
    }
    words.extend([0; 32]);
    let (input, out) = (Buffer::new(&words), Buffer::<u32>::zeroed(32 * counts[0]));
    ok(g.launch(&form.name, 1, 32, 0, &mut args![input.at, out.at]));
    let out: Vec<u64> = out.read().into_iter().map(u64::from).collect();
    for (q, (a, b, c)) in matrices.iter().enumerate() {
        let mut d = Matrix::zeros(form.d, 8, 8);
        let own = |lane: usize, i: usize| sum_place(form.d)(lane % 4 + 4 * q + lane / 16 * 16, i);
        let of_quarter: Vec<u64> =
            (0..out.len()).map(|i| out[i / 32 * 32 + i % 4 + 4 * q + i % 32 / 16 * 16]).collect();
        gather(&of_quarter, &mut d, 32, own);
        let want = product(form, a, b, c, &|_, k| k);
        for i in 0..64 {
            let (x, y) = (d.codes[i], want.codes[i]);
            assert_eq!(x, y, "{} {wild:?}: product {q}, element {},{}: {x:#x} {y:#x}", form.opcode, i / 8, i % 8);
        }
    }
}

/// A program of `wmma` instructions, and how its matrices lie in memory.
struct Fragments {
    form: Form,
    /// Whether each of A, B and the sums is in row order.
    rows: [bool; 3],
    space: &'static str,
    /// Elements between rows or columns that are not the matrix's, or `None` without a stride in the instructions.
    padding: Option<usize>,
}

/// Bytes from one matrix in memory to the next.
const APART: usize = 4096;

impl Fragments {
    fn new(number: usize, shape: [usize; 3], types: &str, more: &str) -> Self {
        let [m, n, k] = shape;
        let [d, a, b, c] = types.split('.').collect::<Vec<_>>()[..] else { panic!("four types are needed") };
        let narrow = a.ends_with('4') && a != "f64" || a == "b1";
        let rows =
            if narrow { [true, false, number.is_multiple_of(2)] } else { [1, 2, 4].map(|bit| number & bit == 0) };
        let order = |row: bool| if row { "row" } else { "col" };
        let shape_name = format!("m{m}n{n}k{k}");
        let types = if a == "f16" { format!("{d}.{c}") } else { types.into() };
        let (before, after) = if a == "b1" { (more, "") } else { ("", more) };
        let opcode =
            format!("wmma.mma{before}.sync.aligned.{}.{}.{shape_name}.{types}{after}", order(rows[0]), order(rows[1]));
        let name = format!("wmma_{number}_{}", opcode.replace('.', "_"));
        let form = Form { name, opcode, m, n, k, a: kind(a), b: kind(b), c: kind(c), d: kind(d), selector: None };
        let padding = (number / 8 % 2 == 1).then_some(if narrow { 128 } else { 8 });
        Self { form, rows, space: ["", ".global", ".shared"][number / 3 % 3], padding }
    }
    fn size(&self, part: usize) -> [usize; 2] {
        let Form { m, n, k, .. } = self.form;
        [[m, k], [k, n], [m, n], [m, n]][part]
    }
    fn stride(&self, part: usize) -> usize {
        let [rows, columns] = self.size(part);
        self.padding.unwrap_or(0) + if self.rows[part.min(2)] { columns } else { rows }
    }
    /// Where an element's bits begin.
    fn place(&self, part: usize, row: usize, column: usize) -> usize {
        let kind = [self.form.a, self.form.b, self.form.c, self.form.d][part];
        let (major, minor) = if self.rows[part.min(2)] { (row, column) } else { (column, row) };
        8 * part * APART + (major * self.stride(part) + minor) * kind.bits() as usize
    }
    fn kernel(&self) -> String {
        let Form { m, n, k, a, b, c, d, ref opcode, ref name, .. } = self.form;
        let bits = if a == Kind::Double { 64 } else { 32 };
        let of = |elements: usize, kind: Kind, is_factor: bool| {
            if kind == F16 && is_factor { 8 } else { elements * kind.bits() as usize / bits / 32 }
        };
        let counts = [of(m * k, a, true), of(k * n, b, true), of(m * n, c, false), of(m * n, d, false)];
        let list = |part: usize| {
            let names = (0..counts[part]).map(|i| format!("%v{}", 8 * part + i));
            format!("{{{}}}", names.collect::<Vec<_>>().join(", "))
        };
        let mut text = format!(".visible .entry {name}(.param .u64 memory)\n{{\n");
        text += &format!(".reg .b64 %at<4>; .reg .b32 %r<9>; .reg .b{bits} %v<32>;\n");
        text += &format!(".shared .align 128 .b8 copy[{}];\nld.param.u64 %at0, [memory];\n", 4 * APART);
        if self.space == ".shared" {
            text += &copies(4 * APART, ".global", "%at1", ".shared", "%at2");
            text += "mov.u64 %at0, copy;\nbar.warp.sync -1;\n";
        }
        // Every type of PTX has its own name, of which the kind here is one.
        let types: Vec<&str> = opcode.split('.').filter(|t| TYPES.contains(t)).collect();
        let types =
            if let [d, c] = types[..] { [d, "f16", "f16", c] } else { [types[0], types[1], types[2], types[3]] };
        let shape = format!("m{m}n{n}k{k}");
        for (part, letter) in ["a", "b", "c", "d"].into_iter().enumerate() {
            let order = if self.rows[part.min(2)] { "row" } else { "col" };
            let ty = [types[1], types[2], types[3], types[0]][part];
            let stride = self.padding.map_or(String::new(), |_| format!(", {}", self.stride(part)));
            let space = self.space;
            let place = format!("[%at0+{}]", part * APART);
            if part < 3 {
                let load = format!("wmma.load.{letter}.sync.aligned.{order}.{shape}{space}.{ty}");
                text += &format!("{load} {}, {place}{stride};\n", list(part));
                continue;
            }
            text += &format!("{opcode} {}, {}, {}, {};\n", list(3), list(0), list(1), list(2));
            let store = format!("wmma.store.{letter}.sync.aligned.{order}.{shape}{space}.{ty}");
            text += &format!("{store} {place}, {}{stride};\n", list(3));
        }
        if self.space == ".shared" {
            text += "bar.warp.sync -1;\n";
            text += &copies(4 * APART, ".shared", "%at2", ".global", "%at1");
        }
        text + "ret;\n}\n"
    }
}

const TYPES: [&str; 12] = ["f16", "bf16", "tf32", "f32", "f64", "s8", "u8", "s4", "u4", "b1", "s32", "e4m3"];

/// Copies between the kernel's memory at `%at1` and its shared memory at `%at2`, sixteen bytes for each lane at a time.
fn copies(bytes: usize, from: &str, from_at: &str, to: &str, to_at: &str) -> String {
    let mut text = "mov.u32 %r0, %laneid;\nmul.wide.u32 %at1, %r0, 16;\n".to_string();
    text += "mov.u64 %at2, copy;\nadd.s64 %at2, %at2, %at1;\nld.param.u64 %at3, [memory];\nadd.s64 %at1, %at1, %at3;\n";
    for at in (0..bytes).step_by(512) {
        text += &format!("ld{from}.v4.b32 {{%r1, %r2, %r3, %r4}}, [{from_at}+{at}];\n");
        text += &format!("st{to}.v4.b32 [{to_at}+{at}], {{%r1, %r2, %r3, %r4}};\n");
    }
    text
}

fn put_bits(memory: &mut [u8], at: usize, width: usize, code: u64) {
    for bit in 0..width {
        memory[(at + bit) / 8] |= ((code >> bit & 1) as u8) << ((at + bit) % 8);
    }
}

fn bits_at(memory: &[u8], at: usize, width: usize) -> u64 {
    (0..width).map(|bit| u64::from(memory[(at + bit) / 8] >> ((at + bit) % 8) & 1) << bit).sum()
}

fn run_fragments(g: &Gpu, f: &Fragments, r: &mut Random, wild: Wildness) {
    let form = &f.form;
    let a = Matrix::random(form.a, form.m, form.k, r, wild);
    let b = Matrix::random(form.b, form.k, form.n, r, wild);
    let c = Matrix::random(form.c, form.m, form.n, r, wild);
    let mut memory = vec![0u8; 4 * APART];
    for (part, matrix) in [&a, &b, &c].into_iter().enumerate() {
        for (i, code) in matrix.codes.iter().enumerate() {
            let at = f.place(part, i / matrix.columns, i % matrix.columns);
            put_bits(&mut memory, at, matrix.kind.bits() as usize, *code);
        }
    }
    let buffer = Buffer::new(&memory);
    ok(g.launch(&form.name, 1, 32, 0, &mut args![buffer.at]));
    let after = buffer.read();
    let want = product(form, &a, &b, &c, &|_, k| k);
    let mut expected = memory;
    for (i, code) in want.codes.iter().enumerate() {
        let (row, column) = (i / form.n, i % form.n);
        let (at, width) = (f.place(3, row, column), form.d.bits() as usize);
        let got = bits_at(&after, at, width);
        let both_nan = form.d == Kind::Double && f64::from_bits(got).is_nan() && f64::from_bits(*code).is_nan();
        assert!(got == *code || both_nan, "{} {wild:?}: {row},{column}: {got:#x}, not {code:#x}", form.name);
        put_bits(&mut expected, at, width, got);
    }
    assert!(after == expected, "{}: bytes outside the result have changed", form.name);
}

#[test]
fn fragments_in_every_shape_order_and_place() {
    let mut cases = Vec::new();
    let mut add = |shape, types: &str, more| {
        for _ in 0..8 {
            cases.push(Fragments::new(cases.len(), shape, types, more));
        }
    };
    for shape in [[16, 16, 16], [32, 8, 16], [8, 32, 16]] {
        for types in ["f32.f16.f16.f32", "f16.f16.f16.f16", "f16.f16.f16.f32", "f32.f16.f16.f16"] {
            add(shape, types, "");
        }
        add(shape, "f32.bf16.bf16.f32", "");
        add(shape, "s32.s8.s8.s32", "");
        add(shape, "s32.u8.u8.s32", ".satfinite");
    }
    add([16, 16, 8], "f32.tf32.tf32.f32", "");
    add([8, 8, 4], "f64.f64.f64.f64", "");
    add([8, 8, 32], "s32.s4.s4.s32", "");
    add([8, 8, 32], "s32.u4.u4.s32", ".satfinite");
    add([8, 8, 128], "s32.b1.b1.s32", ".xor.popc");
    add([8, 8, 128], "s32.b1.b1.s32", ".and.popc");
    let text = ".version 9.0\n.target sm_90\n.address_size 64\n".to_string();
    let text = cases.iter().fold(text, |text, f| text + &f.kernel());
    let text = CString::new(text).unwrap();
    let g = Gpu::with(text.as_ptr().cast());
    let mut r = Random(1234);
    for f in &cases {
        for wild in [Wildness::Tame, Wildness::Special] {
            run_fragments(&g, f, &mut r, wild);
        }
    }
}

/// What ends in words instead of numbers: threads that do not take part, or memory that is not a matrix's.
#[test]
fn part_of_a_warp_cannot_multiply() {
    let multiply = "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%r4, %r5}, {%r6}, {%r7}, {%r4, %r5};";
    let guarded = format!("setp.lt.u32 %p, %r0, 31;\n@%p {multiply}");
    let left = format!("setp.eq.u32 %p, %r0, 7;\n@%p exit;\n{multiply}");
    let waiting = format!("setp.lt.u32 %p, %r0, 31;\n@%p bra done;\n{multiply}\ndone:\nbar.sync 0;");
    let stray = "mov.u32 %r1, memory; mad.lo.u32 %r1, %r0, 65536, %r1;
                 ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r1];";
    let misaligned = "mov.u32 %r1, memory; add.u32 %r1, %r1, 8; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r1];";
    let elsewhere = "ldmatrix.sync.aligned.m8n8.x1.b16 {%r2}, [%at0];";
    let apart = "wmma.load.a.sync.aligned.row.m8n8k32.global.s4 {%r2}, [%at0];";
    let cases = [
        ("whole", multiply, 32, CUDA_SUCCESS),
        ("short", multiply, 16, CUDA_ERROR_LAUNCH_FAILED),
        ("guarded", &guarded, 32, CUDA_ERROR_LAUNCH_FAILED),
        ("left", &left, 32, CUDA_ERROR_LAUNCH_FAILED),
        ("waiting", &waiting, 32, CUDA_ERROR_LAUNCH_FAILED),
        ("stray", stray, 32, CUDA_ERROR_ILLEGAL_ADDRESS),
        ("misaligned", misaligned, 32, CUDA_ERROR_MISALIGNED_ADDRESS),
        ("elsewhere", elsewhere, 32, CUDA_ERROR_ILLEGAL_ADDRESS),
        ("apart", apart, 32, CUDA_ERROR_LAUNCH_FAILED),
    ];
    for (name, body, threads, want) in cases {
        let g = kernels(&[(name, body)]);
        let out = Buffer::<u32>::zeroed(1024);
        ok(g.launch(name, 1, threads, 0, &mut args![out.at, out.at]));
        assert_eq!(g.sync(), want, "{name}");
    }
}

/// Lanes that ran apart for long are together again for the product, as they are on a GPU.
#[test]
fn lanes_that_ran_apart_multiply_together() {
    let body = "mov.u32 %r1, 0;
        mul.lo.u32 %r2, %r0, 100;
        turn: setp.ge.u32 %p, %r1, %r2;
        @%p bra done;
        add.u32 %r1, %r1, 1;
        bra turn;
        done: mov.u32 %r4, 0; mov.u32 %r5, 0; mov.u32 %r6, 0x01010101;
        mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%r4, %r5}, {%r6}, {%r6}, {%r4, %r5};
        st.global.b32 [%at1], %r4; st.global.b32 [%at1+128], %r5;";
    let g = kernels(&[("apart", body)]);
    let out = Buffer::<u32>::zeroed(64);
    ok(g.launch("apart", 1, 32, 0, &mut args![out.at, out.at]));
    assert_eq!(out.read(), [16; 64]);
}

#[test]
fn products_that_are_not_there_are_refused_in_words() {
    let scaled = "mma.sync.aligned.kind::mxf8f6f4.block_scale.m16n8k32.row.col.f32.e4m3.e4m3.f32.ue8m0 \
                  {%r1, %r2, %r3, %r4}, {%r1, %r2, %r3, %r4}, {%r1, %r2}, {%r1, %r2, %r3, %r4}, \
                  %r1, {0, 0}, %r1, {0, 0};";
    let cases = [
        (scaled, "factors with scales"),
        ("wgmma.fence.sync.aligned;", "an instruction that it does not know"),
        ("ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r1, %r2}, [%r3];", "matrices other than 8x8 of 16 bits"),
        ("mma.sync.aligned.m16n8k12.row.col.f32.f16.f16.f32 {%r1}, {%r1}, {%r1}, {%r1};", "16x8x12 of F16 and F16"),
        (
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1}, {%r1}, {%r1}, {%r1};",
            "[1, 1, 1, 1] registers, not [4, 4, 2, 4]",
        ),
        (
            "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e4m3.f32 {%r1}, {%r1}, {%r1}, {%r1};",
            "elements of type e2m1",
        ),
    ];
    for (instruction, reason) in cases {
        let text = format!(
            ".version 9.0\n.target sm_120a\n.address_size 64\n.visible .entry k()\n\
             {{\n.reg .b32 %r<9>;\n{instruction}\nret;\n}}\n"
        );
        let module = orion_soft::ptx::parse::parse(&text).unwrap();
        let program = orion_soft::ptx::decode::program::decode(&module, &Default::default());
        let why = program.funcs[0].unsupported.as_deref().unwrap_or("it runs");
        assert!(why.contains(reason), "{instruction}: {why}");
    }
}
