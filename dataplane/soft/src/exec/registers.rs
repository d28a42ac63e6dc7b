//! Registers of a warp, and rows of 32 lanes.
//!
//! Results are computed for 32 lanes and written under the mask: loops of constant length over plain arrays are what
//! the compiler turns into vector code.

use crate::clock::now_ns;
use crate::device;
use crate::exec::state::{Env, Frame, Warp};
use crate::ptx::isa::instruction::Instr;
use crate::ptx::isa::operand::{RESERVED_SHARED, Reg, Special, Src};

/// A value of a lane, however its register is stored.
pub trait Lane: Copy + Default {
    fn from64(v: u64) -> Self;
    fn to64(self) -> u64;
}

macro_rules! lane_int {
    ($($t:ty),*) => {$(
        impl Lane for $t {
            #[inline(always)]
            fn from64(v: u64) -> Self { v as $t }
            #[inline(always)]
            fn to64(self) -> u64 { self as u64 }
        }
    )*};
}

lane_int!(u8, i8, u16, i16, u32, i32, u64, i64);

impl Lane for f32 {
    #[inline(always)]
    fn from64(v: u64) -> Self {
        Self::from_bits(v as u32)
    }
    #[inline(always)]
    fn to64(self) -> u64 {
        u64::from(self.to_bits())
    }
}

impl Lane for f64 {
    #[inline(always)]
    fn from64(v: u64) -> Self {
        Self::from_bits(v)
    }
    #[inline(always)]
    fn to64(self) -> u64 {
        self.to_bits()
    }
}

pub type Row<T> = [T; 32];

/// Functions of as many rows, lane by lane.
macro_rules! maps {
    ($($name:ident: $($t:ident $v:ident),+;)*) => {$(
        #[inline(always)]
        pub fn $name<$($t: Copy,)+ R: Copy + Default>($($v: &Row<$t>,)+ f: impl Fn($($t),+) -> R) -> Row<R> {
            let mut row = [R::default(); 32];
            for l in 0..32 {
                row[l] = f($($v[l]),+);
            }
            row
        }
    )*};
}

maps! {
    map1: A a;
    map2: A a, B b;
    map3: A a, B b, C c;
}

#[inline(always)]
pub fn bits<T: Copy>(v: &Row<T>, f: impl Fn(T) -> bool) -> u32 {
    let mut p = 0;
    for (l, x) in v.iter().enumerate() {
        p |= u32::from(f(*x)) << l;
    }
    p
}

/// Runs `$body` with `$t` bound to the Rust type of an integer PTX type.
macro_rules! by_int {
    ($ty:expr, $t:ident => $body:expr) => {
        match $ty {
            Ty::S16 => by_int!(i16, $t, $body),
            Ty::U16 | Ty::B16 => by_int!(u16, $t, $body),
            Ty::S32 => by_int!(i32, $t, $body),
            Ty::S64 => by_int!(i64, $t, $body),
            Ty::U64 | Ty::B64 => by_int!(u64, $t, $body),
            Ty::S8 => by_int!(i8, $t, $body),
            Ty::U8 | Ty::B8 => by_int!(u8, $t, $body),
            _ => by_int!(u32, $t, $body),
        }
    };
    ($int:ident, $t:ident, $body:expr) => {{
        type $t = $int;
        $body
    }};
}
pub(crate) use by_int;

impl Warp {
    pub fn three<T: Lane>(&self, ins: &Instr, f: &Frame, env: &Env) -> (Row<T>, Row<T>, Row<T>) {
        (self.read(ins.a, f, env), self.read(ins.b, f, env), self.read(ins.c, f, env))
    }

    #[inline]
    pub fn read<T: Lane>(&self, s: Src, f: &Frame, env: &Env) -> Row<T> {
        match s {
            Src::R32(i) => map1(&self.r32[(f.r32 + i) as usize], |v| T::from64(u64::from(v))),
            Src::R64(i) => map1(&self.r64[(f.r64 + i) as usize], T::from64),
            Src::Imm(v) => [T::from64(v); 32],
            other => self.read_slow(other, f, env),
        }
    }

    fn read_slow<T: Lane>(&self, s: Src, f: &Frame, env: &Env) -> Row<T> {
        match s {
            Src::Local(at) => [T::from64(u64::from(f.sp + at)); 32],
            Src::DynShared(at) => [T::from64(u64::from(env.launch.dynamic_base + at)); 32],
            Src::P(..) => {
                let p = self.read_pred(s, f, env);
                std::array::from_fn(|l| T::from64(u64::from(p >> l & 1)))
            }
            Src::Special(s) => self.special(s, env),
            _ => [T::from64(0); 32],
        }
    }

    fn special<T: Lane>(&self, s: Special, env: &Env) -> Row<T> {
        let uniform = match s {
            Special::Tid(a) => {
                let row = &self.tid[a as usize];
                return std::array::from_fn(|l| T::from64(u64::from(row[l])));
            }
            Special::LaneId => return std::array::from_fn(|l| T::from64(l as u64)),
            Special::LaneMaskEq => return std::array::from_fn(|l| T::from64(1 << l)),
            Special::LaneMaskLt => return std::array::from_fn(|l| T::from64((1 << l) - 1)),
            Special::LaneMaskLe => return std::array::from_fn(|l| T::from64((2 << l) - 1)),
            Special::LaneMaskGt => {
                return std::array::from_fn(|l| T::from64(u64::from(!((2u64 << l) - 1) as u32)));
            }
            Special::LaneMaskGe => {
                return std::array::from_fn(|l| T::from64(u64::from(!((1u64 << l) - 1) as u32)));
            }
            Special::Ntid(a) => u64::from(env.launch.block[a as usize]),
            Special::Ctaid(a) => u64::from(env.ctaid[a as usize]),
            Special::Nctaid(a) => u64::from(env.launch.grid[a as usize]),
            Special::WarpId => u64::from(self.index),
            Special::NwarpId => u64::from(env.launch.threads().div_ceil(32)),
            Special::SmId => u64::from(env.block_index as u32 % device::SM_COUNT),
            Special::NsmId => u64::from(device::SM_COUNT),
            Special::GridId => env.launch.id,
            Special::Clock | Special::Clock64 | Special::ClockHi | Special::GlobalTimer | Special::GlobalTimerLo => {
                let now = now_ns();
                if s == Special::ClockHi { now >> 32 } else { now }
            }
            Special::GlobalTimerHi => now_ns() >> 32,
            Special::DynamicSmem => u64::from(env.launch.dynamic_shared),
            Special::TotalSmem => env.shared.len() as u64 - u64::from(RESERVED_SHARED),
            Special::ReservedSmem(at) => env.shared.len() as u64 - u64::from(RESERVED_SHARED) + u64::from(at),
            // Cooperative groups find the grid's barrier here: low word in register 2, high word in register 1.
            Special::EnvReg(2) => env.launch.workspace & 0xffff_ffff,
            Special::EnvReg(1) => env.launch.workspace >> 32,
            Special::EnvReg(_) | Special::Zero => 0,
            cluster => env.cluster_register(cluster),
        };
        [T::from64(uniform); 32]
    }

    pub fn read_pred(&self, s: Src, f: &Frame, env: &Env) -> u32 {
        match s {
            Src::P(i, negated) => {
                let p = self.preds[(f.preds + i) as usize];
                if negated { !p } else { p }
            }
            Src::Imm(v) if v != 0 => u32::MAX,
            Src::Special(s) => bits(&self.special::<u32>(s, env), |v| v != 0),
            _ => 0,
        }
    }

    #[inline]
    pub fn write<T: Lane>(&mut self, d: Reg, mask: u32, v: &Row<T>, f: &Frame) {
        match d {
            Reg::R32(i) => {
                let row = &mut self.r32[(f.r32 + i) as usize];
                if mask == u32::MAX {
                    for l in 0..32 {
                        row[l] = v[l].to64() as u32;
                    }
                } else {
                    for l in 0..32 {
                        row[l] = if mask >> l & 1 != 0 { v[l].to64() as u32 } else { row[l] };
                    }
                }
            }
            Reg::R64(i) => {
                let row = &mut self.r64[(f.r64 + i) as usize];
                if mask == u32::MAX {
                    for l in 0..32 {
                        row[l] = v[l].to64();
                    }
                } else {
                    for l in 0..32 {
                        row[l] = if mask >> l & 1 != 0 { v[l].to64() } else { row[l] };
                    }
                }
            }
            Reg::P(_) => self.write_pred(d, mask, bits(v, |x| x.to64() != 0), f),
            Reg::None => {}
        }
    }

    pub fn write_pred(&mut self, d: Reg, mask: u32, v: u32, f: &Frame) {
        if let Reg::P(i) = d {
            let p = &mut self.preds[(f.preds + i) as usize];
            *p = (*p & !mask) | (v & mask);
        } else if d != Reg::None {
            self.write::<u32>(d, mask, &std::array::from_fn(|l| v >> l & 1), f);
        }
    }
}
