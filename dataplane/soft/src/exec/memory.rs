//! Loads, stores and atomics of a warp: address windows, validity, alignment.

// UNSAFETY: kernels address host memory by number. Every pointer made here was found in the range table first, and is
// used through atomics because other blocks, streams and the host may touch the same bytes.
//
// Whatever order and scope an access names, it is a host's atomic access of its whole width: a GPU does not tear
// aligned accesses of up to 16 bytes, and programs rest on it (CUB's blocks hand each other a sum and its state in one
// vector). Every load acquires and every store releases, which costs x86-64 nothing; what it lacks for PTX's strongest
// order, a load that passes an earlier store, fences add.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use portable_atomic::AtomicU128;

use crate::exec::fault::{Fault, FaultKind, fault};
use crate::exec::float;
use crate::exec::lanes::lanes;
use crate::exec::state::{Env, Frame, Warp};
use crate::ptx::isa::instruction::Instr;
use crate::ptx::isa::operand::{AtomOp, LOCAL_WINDOW, PARAM_WINDOW, Round, SHARED_WINDOW, Space, Src, Ty, WINDOW_MASK};

fn load_raw(p: u64, bytes: u32) -> u64 {
    // SAFETY: the caller checked that the bytes are in a live range and aligned to their size.
    unsafe {
        // Pairs with the stores of store_raw, store_raw16 and of the host.
        match bytes {
            1 => u64::from(AtomicU8::from_ptr(p as *mut u8).load(Ordering::Acquire)),
            2 => u64::from(AtomicU16::from_ptr(p as *mut u16).load(Ordering::Acquire)),
            4 => u64::from(AtomicU32::from_ptr(p as *mut u32).load(Ordering::Acquire)),
            _ => AtomicU64::from_ptr(p as *mut u64).load(Ordering::Acquire),
        }
    }
}

fn store_raw(p: u64, bytes: u32, v: u64) {
    // SAFETY: as in load_raw, and the range is writable.
    unsafe {
        // Pairs with the loads of load_raw, load_raw16 and of the host.
        match bytes {
            1 => AtomicU8::from_ptr(p as *mut u8).store(v as u8, Ordering::Release),
            2 => AtomicU16::from_ptr(p as *mut u16).store(v as u16, Ordering::Release),
            4 => AtomicU32::from_ptr(p as *mut u32).store(v as u32, Ordering::Release),
            _ => AtomicU64::from_ptr(p as *mut u64).store(v, Ordering::Release),
        }
    }
}

/// A CPU without AVX writes what it reads here, which memory that may only be read does not bear.
fn load_raw16(p: u64) -> [u64; 2] {
    // SAFETY: as in load_raw. The order pairs with the stores of store_raw and store_raw16.
    let v = unsafe { AtomicU128::from_ptr(p as *mut u128) }.load(Ordering::Acquire);
    [v as u64, (v >> 64) as u64]
}

fn wide([low, high]: [u64; 2]) -> u128 {
    u128::from(low) | u128::from(high) << 64
}

fn store_raw16(p: u64, v: [u64; 2]) {
    // SAFETY: as in store_raw. The order pairs with the loads of load_raw and load_raw16.
    unsafe { AtomicU128::from_ptr(p as *mut u128) }.store(wide(v), Ordering::Release);
}

pub fn load_slice(s: &[u8], at: u64, bytes: u32) -> Option<u64> {
    let at = usize::try_from(at).ok()?;
    let b = s.get(at..at.checked_add(bytes as usize)?)?;
    Some(match bytes {
        1 => u64::from(b[0]),
        2 => u64::from(u16::from_le_bytes(b.try_into().ok()?)),
        4 => u64::from(u32::from_le_bytes(b.try_into().ok()?)),
        _ => u64::from_le_bytes(b.try_into().ok()?),
    })
}

pub fn store_slice(s: &mut [u8], at: u64, bytes: u32, v: u64) -> Option<()> {
    let at = usize::try_from(at).ok()?;
    let b = s.get_mut(at..at.checked_add(bytes as usize)?)?;
    b.copy_from_slice(&v.to_le_bytes()[..bytes as usize]);
    Some(())
}

/// The lowest address and the bytes from there to the end of the highest access, if all are aligned and lie in one
/// address window.
fn span<const N: usize>(at: &[u64; 32], m: u32) -> Option<(u64, u64)> {
    let (mut low, mut high, mut bits) = (u64::MAX, 0, 0);
    for (l, at) in at.iter().enumerate() {
        let is_on = 0u64.wrapping_sub(u64::from(m >> l & 1));
        low = low.min(at | !is_on);
        high = high.max(at & is_on);
        bits |= at & is_on;
    }
    (bits % N as u64 == 0 && (low ^ high) & WINDOW_MASK == 0).then(|| (low, high - low + N as u64))
}

impl Warp {
    /// A load of all lanes at once, if they touch one range of global memory or the block's shared memory. Whatever
    /// else there is to it, a fault too, is left to a load lane by lane.
    #[inline]
    pub fn load_row(&mut self, env: &Env, m: u32, space: Space, at: &[u64; 32], bytes: u32) -> Option<[u64; 32]> {
        match bytes {
            4 => self.load_row_of::<4>(env, m, space, at),
            8 => self.load_row_of::<8>(env, m, space, at),
            1 => self.load_row_of::<1>(env, m, space, at),
            2 => self.load_row_of::<2>(env, m, space, at),
            _ => None,
        }
    }

    fn load_row_of<const N: usize>(&mut self, env: &Env, m: u32, space: Space, at: &[u64; 32]) -> Option<[u64; 32]> {
        let (low, bytes) = span::<N>(at, m)?;
        let mut v = [0; 32];
        match (space, low & WINDOW_MASK) {
            (Space::Generic, 0) | (Space::Global | Space::Const, _) => {
                if !self.cache.check(low, bytes, false) {
                    return None;
                }
                for l in lanes(m) {
                    v[l] = load_raw(at[l], N as u32);
                }
            }
            (Space::Generic, SHARED_WINDOW) | (Space::Shared, _) => {
                let low = low & !WINDOW_MASK;
                let part = env.shared.get(low as usize..(low + bytes) as usize)?;
                for l in lanes(m) {
                    let i = ((at[l] & !WINDOW_MASK) - low) as usize;
                    let mut word = [0; 8];
                    word[..N].copy_from_slice(&part[i..i + N]);
                    v[l] = u64::from_le_bytes(word);
                }
            }
            _ => return None,
        }
        Some(v)
    }

    /// A store of all lanes at once, as [`Self::load_row`], or of none.
    #[inline]
    pub fn store_row(
        &mut self,
        env: &mut Env,
        m: u32,
        space: Space,
        at: &[u64; 32],
        bytes: u32,
        v: &[u64; 32],
    ) -> Option<()> {
        match bytes {
            4 => self.store_row_of::<4>(env, m, space, at, v),
            8 => self.store_row_of::<8>(env, m, space, at, v),
            1 => self.store_row_of::<1>(env, m, space, at, v),
            2 => self.store_row_of::<2>(env, m, space, at, v),
            _ => None,
        }
    }

    fn store_row_of<const N: usize>(
        &mut self,
        env: &mut Env,
        m: u32,
        space: Space,
        at: &[u64; 32],
        v: &[u64; 32],
    ) -> Option<()> {
        let (low, bytes) = span::<N>(at, m)?;
        match (space, low & WINDOW_MASK) {
            (Space::Generic, 0) | (Space::Global, _) => {
                if !self.cache.check(low, bytes, true) {
                    return None;
                }
                for l in lanes(m) {
                    store_raw(at[l], N as u32, v[l]);
                }
            }
            (Space::Generic, SHARED_WINDOW) | (Space::Shared, _) => {
                let low = low & !WINDOW_MASK;
                let part = env.shared.get_mut(low as usize..(low + bytes) as usize)?;
                for l in lanes(m) {
                    let i = ((at[l] & !WINDOW_MASK) - low) as usize;
                    part[i..i + N].copy_from_slice(&v[l].to_le_bytes()[..N]);
                }
            }
            _ => return None,
        }
        Some(())
    }

    #[inline]
    pub fn load(&mut self, env: &mut Env, lane: usize, space: Space, at: u64, bytes: u32) -> Result<u64, Fault> {
        match self.load_own(env, lane, space, at, bytes) {
            Some(v) => Ok(v),
            None => env.load_in_cluster(space, at, bytes),
        }
    }

    /// A load from what the block itself has.
    fn load_own(&mut self, env: &Env, lane: usize, space: Space, at: u64, bytes: u32) -> Option<u64> {
        if !at.is_multiple_of(u64::from(bytes)) {
            return None;
        }
        match space {
            Space::Generic => match at & WINDOW_MASK {
                0 => self.load_global(at, bytes),
                SHARED_WINDOW => load_slice(env.shared, at - SHARED_WINDOW, bytes),
                LOCAL_WINDOW => load_slice(&self.local[lane], at - LOCAL_WINDOW, bytes),
                PARAM_WINDOW => load_slice(&env.launch.params, at - PARAM_WINDOW, bytes),
                _ => None,
            },
            Space::Global | Space::Const => self.load_global(at, bytes),
            Space::Shared => load_slice(env.shared, at & !WINDOW_MASK, bytes),
            Space::Local => load_slice(&self.local[lane], at & !WINDOW_MASK, bytes),
            Space::Param => load_slice(&env.launch.params, at & !WINDOW_MASK, bytes),
        }
    }

    #[inline]
    fn load_global(&mut self, at: u64, bytes: u32) -> Option<u64> {
        self.cache.check(at, u64::from(bytes), false).then(|| load_raw(at, bytes))
    }

    #[inline]
    pub fn store(
        &mut self,
        env: &mut Env,
        lane: usize,
        space: Space,
        at: u64,
        bytes: u32,
        v: u64,
    ) -> Result<(), Fault> {
        match self.store_own(env, lane, space, at, bytes, v) {
            Some(()) => Ok(()),
            None => env.store_in_cluster(space, at, bytes, v),
        }
    }

    fn store_own(&mut self, env: &mut Env, lane: usize, space: Space, at: u64, bytes: u32, v: u64) -> Option<()> {
        if !at.is_multiple_of(u64::from(bytes)) {
            return None;
        }
        match (space, at & WINDOW_MASK) {
            (Space::Generic, 0) | (Space::Global, _) => {
                if self.cache.check(at, u64::from(bytes), true) {
                    store_raw(at, bytes, v);
                    Some(())
                } else {
                    None
                }
            }
            (Space::Generic, SHARED_WINDOW) | (Space::Shared, _) => {
                store_slice(env.shared, at & !WINDOW_MASK, bytes, v)
            }
            (Space::Generic, LOCAL_WINDOW) | (Space::Local, _) => {
                store_slice(&mut self.local[lane], at & !WINDOW_MASK, bytes, v)
            }
            _ => None,
        }
    }

    /// A vector of up to 32 bytes, each 16 of them in one access. The caller has checked the alignment.
    #[inline]
    pub fn load_vector(
        &mut self,
        env: &mut Env,
        lane: usize,
        space: Space,
        at: u64,
        bytes: u32,
    ) -> Result<[u64; 4], Fault> {
        Ok(match bytes {
            ..16 => [self.load(env, lane, space, at, bytes)?, 0, 0, 0],
            16 => {
                let [a, b] = self.load_pair(env, lane, space, at)?;
                [a, b, 0, 0]
            }
            _ => {
                let [a, b] = self.load_pair(env, lane, space, at)?;
                let [c, d] = self.load_pair(env, lane, space, at.wrapping_add(16))?;
                [a, b, c, d]
            }
        })
    }

    #[inline]
    pub fn store_vector(
        &mut self,
        env: &mut Env,
        lane: usize,
        space: Space,
        at: u64,
        bytes: u32,
        [a, b, c, d]: [u64; 4],
    ) -> Result<(), Fault> {
        if bytes < 16 {
            return self.store(env, lane, space, at, bytes, a);
        }
        self.store_pair(env, lane, space, at, [a, b])?;
        if bytes > 16 { self.store_pair(env, lane, space, at.wrapping_add(16), [c, d]) } else { Ok(()) }
    }

    fn load_pair(&mut self, env: &mut Env, lane: usize, space: Space, at: u64) -> Result<[u64; 2], Fault> {
        let global = is_global(space, at) || space == Space::Const;
        if global && at.is_multiple_of(16) && self.cache.check(at, 16, false) {
            return Ok(load_raw16(at));
        }
        // No other host thread reaches what else there is; or it is a fault.
        let second = at.wrapping_add(8);
        Ok([self.load(env, lane, space, at, 8)?, self.load(env, lane, space, second, 8)?])
    }

    fn store_pair(&mut self, env: &mut Env, lane: usize, space: Space, at: u64, v: [u64; 2]) -> Result<(), Fault> {
        if is_global(space, at) && at.is_multiple_of(16) && self.cache.check(at, 16, true) {
            store_raw16(at, v);
            return Ok(());
        }
        self.store(env, lane, space, at, 8, v[0])?;
        self.store(env, lane, space, at.wrapping_add(8), 8, v[1])
    }

    /// An exchange of 16 bytes, or one that happens only if they are `expected`. Answers what was there.
    pub fn exchange_pair(
        &mut self,
        env: &mut Env,
        lane: usize,
        space: Space,
        at: u64,
        expected: Option<[u64; 2]>,
        new: [u64; 2],
    ) -> Result<[u64; 2], Fault> {
        if !at.is_multiple_of(16) {
            return Err(fault(FaultKind::Misaligned, "misaligned atomic", at, 16));
        }
        if !is_global(space, at) {
            let old = self.load_pair(env, lane, space, at)?;
            if expected.is_none_or(|e| e == old) {
                self.store_pair(env, lane, space, at, new)?;
            }
            return Ok(old);
        }
        if !self.cache.check(at, 16, true) {
            return Err(fault(FaultKind::IllegalAddress, "atomic", at, 16));
        }
        // SAFETY: the address was just found in a live, writable range and is aligned.
        let p = unsafe { AtomicU128::from_ptr(at as *mut u128) };
        let old = match expected {
            None => p.swap(wide(new), Ordering::SeqCst),
            Some(e) => match p.compare_exchange(wide(e), wide(new), Ordering::SeqCst, Ordering::SeqCst) {
                Ok(old) | Err(old) => old,
            },
        };
        Ok([old as u64, (old >> 64) as u64])
    }

    pub fn atomic(
        &mut self,
        env: &mut Env,
        lane: usize,
        space: Space,
        (op, ty): (AtomOp, Ty),
        at: u64,
        (b, c): (u64, u64),
    ) -> Result<u64, Fault> {
        let bytes = ty.bytes();
        if !is_global(space, at) {
            let old = self.load(env, lane, space, at, bytes)?;
            self.store(env, lane, space, at, bytes, combine(op, ty, old, b, c))?;
            return Ok(old);
        }
        if !at.is_multiple_of(u64::from(bytes)) {
            return Err(fault(FaultKind::Misaligned, "misaligned atomic", at, bytes));
        }
        if !self.cache.check(at, u64::from(bytes), true) {
            return Err(fault(FaultKind::IllegalAddress, "atomic", at, bytes));
        }
        // SAFETY: the address was just found in a live, writable range and is aligned.
        let old = unsafe {
            match bytes {
                2 => {
                    let p = AtomicU16::from_ptr(at as *mut u16);
                    let f = |v| Some(combine(op, ty, u64::from(v), b, c) as u16);
                    p.fetch_update(Ordering::SeqCst, Ordering::SeqCst, f).map_or(0, u64::from)
                }
                4 => {
                    let p = AtomicU32::from_ptr(at as *mut u32);
                    if op == AtomOp::Add && !ty.is_float() {
                        return Ok(u64::from(p.fetch_add(b as u32, Ordering::SeqCst)));
                    }
                    let f = |v| Some(combine(op, ty, u64::from(v), b, c) as u32);
                    p.fetch_update(Ordering::SeqCst, Ordering::SeqCst, f).map_or(0, u64::from)
                }
                _ => {
                    let p = AtomicU64::from_ptr(at as *mut u64);
                    let f = |v| Some(combine(op, ty, v, b, c));
                    p.fetch_update(Ordering::SeqCst, Ordering::SeqCst, f).unwrap_or(0)
                }
            }
        };
        Ok(old)
    }

    /// The addresses of a memory instruction's lanes.
    pub fn addresses(&self, ins: &Instr, f: &Frame, env: &Env, offset: i64) -> [u64; 32] {
        let mut at: [u64; 32] = self.read::<u64>(ins.a, f, env);
        // A register of 32 bits holds an offset in shared or local memory, and its sum is one: -8 and 8 are 0.
        let mask = if matches!(ins.a, Src::R32(_)) { u64::from(u32::MAX) } else { u64::MAX };
        if offset != 0 {
            for a in &mut at {
                *a = a.wrapping_add(offset as u64) & mask;
            }
        }
        at
    }
}

/// Whether an access reaches memory that other host threads reach too.
#[inline]
fn is_global(space: Space, at: u64) -> bool {
    space == Space::Global || space == Space::Generic && at & WINDOW_MASK == 0
}

fn pair(old: u64, b: u64, f: impl Fn(u16, u16) -> u16) -> u64 {
    let lo = f(old as u16, b as u16);
    let hi = f((old >> 16) as u16, (b >> 16) as u16);
    u64::from(lo) | (u64::from(hi) << 16)
}

/// The value an atomic leaves behind.
pub fn combine(op: AtomOp, ty: Ty, old: u64, b: u64, c: u64) -> u64 {
    let wide = ty.bytes() == 8;
    let (x, y) = if wide { (old, b) } else { (old & 0xffff_ffff, b & 0xffff_ffff) };
    let h = |v: u16| f64::from(float::f16_to(v));
    let bf = |v: u16| f64::from(float::bf16_to(v));
    match op {
        AtomOp::Add => match ty {
            Ty::F32 => u64::from((f32::from_bits(x as u32) + f32::from_bits(y as u32)).to_bits()),
            Ty::F64 => (f64::from_bits(x) + f64::from_bits(y)).to_bits(),
            Ty::F16x2 => pair(x, y, |p, q| float::f16_from(h(p) + h(q), Round::Nearest)),
            Ty::Bf16x2 => pair(x, y, |p, q| float::bf16_from(bf(p) + bf(q), Round::Nearest)),
            Ty::F16 => u64::from(float::f16_from(h(x as u16) + h(y as u16), Round::Nearest)),
            Ty::Bf16 => u64::from(float::bf16_from(bf(x as u16) + bf(y as u16), Round::Nearest)),
            _ => x.wrapping_add(y),
        },
        AtomOp::And => x & y,
        AtomOp::Or => x | y,
        AtomOp::Xor => x ^ y,
        AtomOp::Exch => y,
        AtomOp::Cas => {
            let mask = if wide { u64::MAX } else { (1u64 << (8 * ty.bytes())) - 1 };
            if x & mask == y & mask { c } else { x }
        }
        AtomOp::Inc => {
            if x >= y {
                0
            } else {
                x + 1
            }
        }
        AtomOp::Dec => {
            if x == 0 || x > y {
                y
            } else {
                x - 1
            }
        }
        AtomOp::Min | AtomOp::Max => {
            let take = |less: bool| if less == (op == AtomOp::Min) { x } else { y };
            match ty {
                Ty::S32 => take((x as i32) < (y as i32)),
                Ty::S64 => take((x as i64) < (y as i64)),
                Ty::F32 => take(f32::from_bits(x as u32) < f32::from_bits(y as u32)),
                Ty::F64 => take(f64::from_bits(x) < f64::from_bits(y)),
                Ty::F16x2 => pair(x, y, |p, q| if (h(p) < h(q)) == (op == AtomOp::Min) { p } else { q }),
                _ => take(x < y),
            }
        }
    }
}
