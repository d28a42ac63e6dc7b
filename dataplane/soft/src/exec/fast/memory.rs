//! Loads and stores of a whole warp.
//!
//! Global memory is other blocks', streams' and the host's too, so it is reached by instructions that the compiler does
//! not look into, in accesses that this processor does not tear: each element of a vector is aligned to its own size
//! and lies in one line of the cache, and 16 aligned bytes are one access where there is AVX. A load acquires and a
//! store releases, as everything on x86-64 does. Shared memory is reached by one host thread at a time.

// UNSAFETY: kernels address host memory by number, and every address was found in the range table first; rows as in
// `row`.

use std::arch::asm;
use std::arch::x86_64::{
    __m128i, __m256i, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm_storeu_si128, _mm_unpackhi_epi32,
    _mm_unpackhi_epi64, _mm_unpacklo_epi32, _mm_unpacklo_epi64, _mm256_add_epi32, _mm256_add_epi64, _mm256_and_si256,
    _mm256_andnot_si256, _mm256_blendv_epi8, _mm256_blendv_ps, _mm256_castps_si256, _mm256_castsi256_ps,
    _mm256_cmpgt_epi32, _mm256_loadu_si256, _mm256_movemask_ps, _mm256_or_si256, _mm256_permutevar8x32_epi32,
    _mm256_set_epi32, _mm256_set_epi64x, _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_slli_epi32, _mm256_srli_epi32,
    _mm256_storeu_si256, _mm256_sub_epi32, _mm256_testz_si256, _mm256_unpackhi_epi32, _mm256_unpackhi_epi64,
    _mm256_unpacklo_epi32, _mm256_unpacklo_epi64, _mm256_xor_si256,
};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use crate::exec::fast::row::{Cell, PART, put_bits, rows_of};
use crate::exec::state::{Env, Line, Rows, Step, Warp};
use crate::ptx::isa::operand::{PARAM_WINDOW, SHARED_WINDOW, Special, WINDOW_MASK};

pub const GENERIC: u64 = 0;
pub const GLOBAL: u64 = 1;
pub const SHARED: u64 = 2;

/// Where a warp's accesses lie.
enum Place {
    /// At these addresses of the host's.
    Global,
    /// In the block's shared memory, which begins there.
    Shared(*mut u8),
}

/// Does it for one warp after the other, up to one that has to take the long way; answers for how many it did.
///
/// # Safety
///
/// There are as many warps as rows of theirs.
#[inline(always)]
unsafe fn each(all: &[Rows], warps: *mut Warp, mut f: impl FnMut(&Rows, &mut Warp) -> bool) -> usize {
    for (k, r) in all.iter().enumerate() {
        // SAFETY: the caller's promise.
        if !f(r, unsafe { &mut *warps.add(k) }) {
            return k;
        }
    }
    all.len()
}

/// The addresses of all lanes; those that the mask leaves out repeat one that it has.
#[inline(always)]
unsafe fn addresses<const HOW: u8>(r: &Rows, x: &Step, m: u32) -> [u64; 32] {
    let mut at = [0u64; 32];
    // SAFETY: rows of the frame or constants, as `bind` resolved them: `b` says how wide they are.
    unsafe {
        if x.b == 0 {
            let row = *u32::row(r, x.a);
            let offset = x.extra as u32;
            // A register of 32 bits holds an offset in shared memory, and its sum is one.
            for l in 0..32 {
                at[l] = u64::from(row[l].wrapping_add(offset));
            }
        } else {
            let row = *u64::row(r, x.a);
            for l in 0..32 {
                at[l] = row[l].wrapping_add(x.extra);
            }
        }
    }
    if HOW == PART {
        let some = at[m.trailing_zeros() as usize & 31];
        for l in 0..32 {
            at[l] = if m >> l & 1 != 0 { at[l] } else { some };
        }
    }
    at
}

/// Whether all lanes' accesses lie in one range that may be reached so, each aligned; the addresses become offsets
/// where it is shared memory.
#[inline(always)]
fn place<const BYTES: u64, const WRITE: bool>(
    w: &mut Warp,
    env: &mut Env,
    space: u64,
    at: &mut [u64; 32],
) -> Option<Place> {
    let (mut low, mut high, mut bits) = (at[0], at[0], 0);
    for l in 0..32 {
        low = low.min(at[l]);
        high = high.max(at[l]);
        bits |= at[l];
    }
    if bits & (BYTES - 1) != 0 {
        return None;
    }
    let window = low & WINDOW_MASK;
    if space == GLOBAL || space == GENERIC && window == 0 {
        if high & WINDOW_MASK != window {
            return None;
        }
        return w.cache.check(low, high - low + BYTES, WRITE).then_some(Place::Global);
    }
    if space == GENERIC && (window != SHARED_WINDOW || high & WINDOW_MASK != window) {
        return None;
    }
    let bytes = env.shared.len() as u64;
    if high & !WINDOW_MASK > bytes.checked_sub(BYTES)? {
        return None;
    }
    if window != 0 {
        // The same window for all, or the highest would be out of reach.
        if high & WINDOW_MASK != window {
            return None;
        }
        for a in at.iter_mut() {
            *a &= !WINDOW_MASK;
        }
    }
    Some(Place::Shared(env.shared.as_mut_ptr()))
}

/// As `addresses` and `place` for offsets in shared memory in a row of 32 bits, which most are.
#[inline(always)]
unsafe fn shared_offsets<const HOW: u8, const BYTES: u32>(
    r: &Rows,
    env: &mut Env,
    x: &Step,
    m: u32,
) -> Option<([u32; 32], *mut u8)> {
    let mut at = [0u32; 32];
    // SAFETY: a row of the frame, as `bind` resolved it.
    let row = unsafe { *u32::row(r, x.a) };
    for l in 0..32 {
        at[l] = row[l].wrapping_add(x.extra as u32);
    }
    if HOW == PART {
        let some = at[m.trailing_zeros() as usize & 31];
        for l in 0..32 {
            at[l] = if m >> l & 1 != 0 { at[l] } else { some };
        }
    }
    let (mut high, mut bits) = (0, 0);
    for l in 0..32 {
        high = high.max(at[l]);
        bits |= at[l];
    }
    let is_inside = u64::from(high) + u64::from(BYTES) <= env.shared.len() as u64;
    (is_inside && bits & (BYTES - 1) == 0).then_some((at, env.shared.as_mut_ptr()))
}

/// Whether lane after lane lies `step` bytes behind the one before.
#[target_feature(enable = "avx2")]
#[inline]
fn in_order(at: &[u64; 32], step: u64) -> bool {
    let step = step as i64;
    let mut off = _mm256_set1_epi64x(0);
    let mut want = _mm256_add_epi64(_mm256_set1_epi64x(at[0] as i64), _mm256_set_epi64x(3 * step, 2 * step, step, 0));
    for four in at.chunks_exact(4) {
        // SAFETY: four lanes are 32 bytes.
        let four = unsafe { _mm256_loadu_si256(four.as_ptr().cast()) };
        off = _mm256_or_si256(off, _mm256_xor_si256(four, want));
        want = _mm256_add_epi64(want, _mm256_set1_epi64x(4 * step));
    }
    _mm256_testz_si256(off, off) != 0
}

/// Copies 128 bytes, none of them torn within an aligned element of up to 8.
///
/// # Safety
///
/// Both are live; the destination is nobody else's or written as a GPU writes.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn copy_128(to: *mut u8, from: *const u8) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "vmovdqu {a}, [{from}]", "vmovdqu {b}, [{from} + 32]",
            "vmovdqu {c}, [{from} + 64]", "vmovdqu {d}, [{from} + 96]",
            "vmovdqu [{to}], {a}", "vmovdqu [{to} + 32], {b}",
            "vmovdqu [{to} + 64], {c}", "vmovdqu [{to} + 96], {d}",
            from = in(reg) from, to = in(reg) to,
            a = out(ymm_reg) _, b = out(ymm_reg) _, c = out(ymm_reg) _, d = out(ymm_reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// The address of the first lane, if the whole warp's accesses to global memory lie one behind the other in a range
/// that may be reached so: what most loads and stores are.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn block_of<const BYTES: u64, const WRITE: bool>(r: &Rows, w: &mut Warp, x: &Step, space: u64) -> Option<u64> {
    if x.b == 0 || space == SHARED {
        return None;
    }
    // SAFETY: a row of the frame or of the constants, as `bind` resolved it.
    let at = unsafe { &*u64::row(r, x.a) };
    let first = at[0].wrapping_add(x.extra);
    let is_block = first & (BYTES - 1) == 0 && first & WINDOW_MASK == 0 && in_order(at, BYTES);
    if !is_block || !w.cache.check(first, 32 * BYTES, WRITE) {
        return None;
    }
    for line in (0..32 * BYTES).step_by(64) {
        // SAFETY: fetching ahead touches no memory, wherever the address leads.
        _mm_prefetch::<_MM_HINT_T0>((first + 32 * BYTES + line) as *const i8);
    }
    Some(first)
}

/// A load or store of a whole number of bytes that a general register holds.
pub trait Word: Copy {
    /// # Safety
    ///
    /// The address is live and aligned; `T` as in [`std::sync::atomic`], other threads may write it.
    unsafe fn load(at: u64) -> Self;
    /// # Safety
    ///
    /// As for `load`, and writable.
    unsafe fn store(at: u64, v: Self);
}

macro_rules! word {
    ($($t:ty, $atomic:ident;)*) => {$(
        impl Word for $t {
            #[inline(always)]
            unsafe fn load(at: u64) -> $t {
                // SAFETY: the caller's promise. Pairs with the Release of whoever stores there: `store`, the host.
                unsafe { $atomic::from_ptr(at as *mut $t) }.load(Ordering::Acquire)
            }
            #[inline(always)]
            unsafe fn store(at: u64, v: $t) {
                // SAFETY: the caller's promise. Pairs with the Acquire of whoever loads there: `load`, the host.
                unsafe { $atomic::from_ptr(at as *mut $t) }.store(v, Ordering::Release)
            }
        }
    )*};
}

word! {
    u8, AtomicU8;
    u16, AtomicU16;
    u32, AtomicU32;
    u64, AtomicU64;
}

/// Loads an element of `W` into a row of `D`, each extended by `f`.
#[inline(always)]
unsafe fn load<const HOW: u8, W: Word, D: Cell>(
    r: &Rows,
    w: &mut Warp,
    env: &mut Env,
    x: &Step,
    m: u32,
    f: impl Fn(W) -> D::Stored,
) -> bool {
    // SAFETY: rows as `bind` resolved them; `block_of` or `place` found all addresses.
    unsafe {
        let to = D::row(r, x.d);
        if HOW != PART && size_of::<W>() == size_of::<D::Stored>() {
            let first = match size_of::<W>() {
                4 => block_of::<4, false>(r, w, x, x.rows[0].into()),
                _ => block_of::<8, false>(r, w, x, x.rows[0].into()),
            };
            if let Some(first) = first {
                copy_128(to.cast(), first as *const u8);
                if size_of::<W>() == 8 {
                    copy_128(to.cast::<u8>().add(128), (first + 128) as *const u8);
                }
                return true;
            }
        }
        let mut at = addresses::<HOW>(r, x, m);
        let space = x.rows[0].into();
        let place = match size_of::<W>() {
            1 => place::<1, false>(w, env, space, &mut at),
            2 => place::<2, false>(w, env, space, &mut at),
            4 => place::<4, false>(w, env, space, &mut at),
            _ => place::<8, false>(w, env, space, &mut at),
        };
        match place {
            None => return false,
            Some(Place::Global) => {
                let mut v = [D::Stored::default(); 32];
                for l in 0..32 {
                    v[l] = f(W::load(at[l]));
                }
                keep::<HOW, D>(to, m, &v);
            }
            Some(Place::Shared(base)) => {
                let mut v = [D::Stored::default(); 32];
                for l in 0..32 {
                    v[l] = f(base.add(at[l] as usize).cast::<W>().read_unaligned());
                }
                keep::<HOW, D>(to, m, &v);
            }
        }
    }
    true
}

#[inline(always)]
unsafe fn keep<const HOW: u8, D: Cell>(to: *mut [D::Stored; 32], m: u32, v: &[D::Stored; 32]) {
    // SAFETY: a row of the frame.
    unsafe {
        if HOW != PART {
            *to = *v;
        } else {
            for l in 0..32 {
                (*to)[l] = if m >> l & 1 != 0 { v[l] } else { (*to)[l] };
            }
        }
    }
}

#[inline(always)]
unsafe fn store<const HOW: u8, W: Word, A: Cell>(
    r: &Rows,
    w: &mut Warp,
    env: &mut Env,
    x: &Step,
    m: u32,
    f: impl Fn(A::Stored) -> W,
) -> bool {
    // SAFETY: as in load.
    unsafe {
        let from = A::row(r, x.c);
        if HOW != PART && size_of::<W>() == size_of::<A::Stored>() {
            let first = match size_of::<W>() {
                4 => block_of::<4, true>(r, w, x, x.rows[0].into()),
                _ => block_of::<8, true>(r, w, x, x.rows[0].into()),
            };
            if let Some(first) = first {
                copy_128(first as *mut u8, from.cast());
                if size_of::<W>() == 8 {
                    copy_128((first + 128) as *mut u8, from.cast::<u8>().add(128));
                }
                return true;
            }
        }
        let mut at = addresses::<HOW>(r, x, m);
        let space = x.rows[0].into();
        let place = match size_of::<W>() {
            1 => place::<1, true>(w, env, space, &mut at),
            2 => place::<2, true>(w, env, space, &mut at),
            4 => place::<4, true>(w, env, space, &mut at),
            _ => place::<8, true>(w, env, space, &mut at),
        };
        match place {
            None => return false,
            Some(Place::Global) => {
                for l in 0..32 {
                    if HOW != PART || m >> l & 1 != 0 {
                        W::store(at[l], f((*from)[l]));
                    }
                }
            }
            Some(Place::Shared(base)) => {
                for l in 0..32 {
                    if HOW != PART || m >> l & 1 != 0 {
                        base.add(at[l] as usize).cast::<W>().write_unaligned(f((*from)[l]));
                    }
                }
            }
        }
    }
    true
}

macro_rules! loads {
    ($($name:ident: $w:ty => $d:ty, |$v:ident| $f:expr;)*) => {$(
        #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
        pub unsafe fn $name<const HOW: u8>(all: &[Rows], warps: *mut Warp, env: &mut Env, x: &Step, m: u32) -> usize {
            // SAFETY: the caller's rows, of this width, and as many warps.
            unsafe { each(rows_of::<HOW>(all), warps, |r, w| load::<HOW, $w, $d>(r, w, env, x, m, |$v| $f)) }
        }
    )*};
}

loads! {
    load_u8: u8 => u32, |v| u32::from(v);
    load_s8: u8 => u32, |v| v as i8 as u32;
    load_u16: u16 => u32, |v| u32::from(v);
    load_s16: u16 => u32, |v| v as i16 as u32;
    load_32: u32 => u32, |v| v;
    load_u32_wide: u32 => u64, |v| u64::from(v);
    load_s32_wide: u32 => u64, |v| v as i32 as u64;
    load_64: u64 => u64, |v| v;
}

macro_rules! stores {
    ($($name:ident: $a:ty => $w:ty;)*) => {$(
        #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
        pub unsafe fn $name<const HOW: u8>(all: &[Rows], warps: *mut Warp, env: &mut Env, x: &Step, m: u32) -> usize {
            // SAFETY: the caller's rows, of this width, and as many warps.
            unsafe { each(rows_of::<HOW>(all), warps, |r, w| store::<HOW, $w, $a>(r, w, env, x, m, |v| v as $w)) }
        }
    )*};
}

stores! {
    store_8: u32 => u8;
    store_16: u32 => u16;
    store_32: u32 => u32;
    store_64: u64 => u64;
}

/// Sixteen aligned bytes, in one access.
///
/// # Safety
///
/// The address is live and aligned.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn load_16(at: u64) -> __m128i {
    let v: __m128i;
    // SAFETY: the caller's promise.
    unsafe {
        asm!("vmovdqa {v}, [{at}]", at = in(reg) at, v = out(xmm_reg) v, options(nostack, preserves_flags, readonly));
    }
    v
}

/// # Safety
///
/// The address is live, aligned and writable.
#[inline(always)]
unsafe fn store_16_bytes(at: u64, v: [u32; 4]) {
    // SAFETY: the caller's promise.
    unsafe {
        let v: __m128i = std::mem::transmute(v);
        asm!("vmovdqa [{at}], {v}", at = in(reg) at, v = in(xmm_reg) v, options(nostack, preserves_flags));
    }
}

/// Two times sixteen aligned bytes, each in one access: those at the address, and those 64 bytes behind it.
///
/// # Safety
///
/// Both are live and aligned.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn load_two_16(at: u64) -> __m256i {
    let v: __m256i;
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "vmovdqa {v:x}, [{at}]", "vinserti128 {v}, {v}, [{at} + 64], 1",
            at = in(reg) at, v = out(ymm_reg) v, options(nostack, preserves_flags, readonly),
        );
    }
    v
}

/// As `load_two_16`.
///
/// # Safety
///
/// Both are live, aligned and writable.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn store_two_16(at: u64, v: __m256i) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "vmovdqa [{at}], {v:x}", "vextracti128 [{at} + 64], {v}, 1",
            at = in(reg) at, v = in(ymm_reg) v, options(nostack, preserves_flags),
        );
    }
}

/// Rows of four elements to columns, in each half by itself.
#[target_feature(enable = "avx2")]
#[inline]
fn transposed([a, b, c, d]: [__m256i; 4]) -> [__m256i; 4] {
    let (ab, cd) = (_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d));
    let (ab_high, cd_high) = (_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d));
    [
        _mm256_unpacklo_epi64(ab, cd),
        _mm256_unpackhi_epi64(ab, cd),
        _mm256_unpacklo_epi64(ab_high, cd_high),
        _mm256_unpackhi_epi64(ab_high, cd_high),
    ]
}

/// Vectors of lanes to rows of elements, four by four.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn scatter<const HOW: u8, A: Copy>(r: &Rows, x: &Step, m: u32, at: &[A; 32], one: impl Fn(A) -> __m128i) {
    // SAFETY: the four rows are the frame's.
    unsafe {
        let to = x.rows.map(|row| u32::row(r, row));
        for l in (0..32).step_by(4) {
            let [a, b, c, d] = [one(at[l]), one(at[l + 1]), one(at[l + 2]), one(at[l + 3])];
            let (ab, cd) = (_mm_unpacklo_epi32(a, b), _mm_unpacklo_epi32(c, d));
            let (ab_high, cd_high) = (_mm_unpackhi_epi32(a, b), _mm_unpackhi_epi32(c, d));
            let elements = [
                _mm_unpacklo_epi64(ab, cd),
                _mm_unpackhi_epi64(ab, cd),
                _mm_unpacklo_epi64(ab_high, cd_high),
                _mm_unpackhi_epi64(ab_high, cd_high),
            ];
            for k in 0..4 {
                let to = to[k].cast::<u32>().add(l);
                if HOW != PART {
                    _mm_storeu_si128(to.cast(), elements[k]);
                } else {
                    let v: [u32; 4] = std::mem::transmute(elements[k]);
                    for lane in 0..4 {
                        if m >> (l + lane) & 1 != 0 {
                            *to.add(lane) = v[lane];
                        }
                    }
                }
            }
        }
    }
}

/// Four elements of 32 bits to as many rows, from shared memory by a row of 32 bits.
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
pub unsafe fn load_v4_shared<const HOW: u8>(all: &[Rows], warps: *mut Warp, env: &mut Env, x: &Step, m: u32) -> usize {
    let one = |r: &Rows, _: &mut Warp| {
        // SAFETY: the offsets are inside; the four rows are the frame's.
        unsafe {
            let Some((at, base)) = shared_offsets::<HOW, 16>(r, env, x, m) else { return false };
            scatter::<HOW, _>(r, x, m, &at, |at| _mm_loadu_si128(base.add(at as usize).cast()));
        }
        true
    };
    // SAFETY: the caller has as many warps as rows of theirs.
    unsafe { each(rows_of::<HOW>(all), warps, one) }
}

#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
pub unsafe fn load_32_shared<const HOW: u8>(all: &[Rows], warps: *mut Warp, env: &mut Env, x: &Step, m: u32) -> usize {
    let one = |r: &Rows, _: &mut Warp| {
        // SAFETY: as in load_v4_shared.
        unsafe {
            let Some((at, base)) = shared_offsets::<HOW, 4>(r, env, x, m) else { return false };
            let mut v = [0u32; 32];
            for l in 0..32 {
                v[l] = base.add(at[l] as usize).cast::<u32>().read_unaligned();
            }
            keep::<HOW, u32>(u32::row(r, x.d), m, &v);
        }
        true
    };
    // SAFETY: the caller has as many warps as rows of theirs.
    unsafe { each(rows_of::<HOW>(all), warps, one) }
}

#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
pub unsafe fn store_32_shared<const HOW: u8>(all: &[Rows], warps: *mut Warp, env: &mut Env, x: &Step, m: u32) -> usize {
    let one = |r: &Rows, _: &mut Warp| {
        // SAFETY: as in load_v4_shared.
        unsafe {
            let Some((at, base)) = shared_offsets::<HOW, 4>(r, env, x, m) else { return false };
            let from = u32::row(r, x.c);
            for l in 0..32 {
                if HOW != PART || m >> l & 1 != 0 {
                    base.add(at[l] as usize).cast::<u32>().write_unaligned((*from)[l]);
                }
            }
        }
        true
    };
    // SAFETY: the caller has as many warps as rows of theirs.
    unsafe { each(rows_of::<HOW>(all), warps, one) }
}

/// Loads a row for each warp, all of them one behind the other.
///
/// # Safety
///
/// The memory may be read, and is aligned to its elements; the row is one of each warp's frame.
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
pub unsafe fn load_block<D: Cell>(all: &[Rows], d: u32, first: u64) {
    let mut at = first as *const u8;
    let bytes = 32 * size_of::<D::Stored>();
    for r in all {
        // SAFETY: the caller's promise.
        unsafe {
            let to = D::row(r, d).cast::<u8>();
            for part in (0..bytes).step_by(128) {
                copy_128(to.add(part), at.add(part));
            }
            at = at.add(bytes);
        }
    }
}

/// As `load_block`.
///
/// # Safety
///
/// The memory may be written, and is aligned to its elements; the row is one of each warp's frame, or a constant.
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
pub unsafe fn store_block<D: Cell>(all: &[Rows], from: u32, first: u64) {
    let mut at = first as *mut u8;
    let bytes = 32 * size_of::<D::Stored>();
    for r in all {
        // SAFETY: the caller's promise.
        unsafe {
            let from = D::row(r, from).cast::<u8>();
            for part in (0..bytes).step_by(128) {
                copy_128(at.add(part), from.add(part));
            }
            at = at.add(bytes);
        }
    }
}

/// Vectors of four that lie one behind the other, to four rows.
///
/// # Safety
///
/// The memory may be read, and is aligned to the vectors; the rows are those of a frame.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn load_vectors_of(r: &Rows, rows: [u32; 4], first: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        let to = rows.map(|row| u32::row(r, row));
        for l in (0..32).step_by(8) {
            let at = first + 16 * l as u64;
            let lanes = [load_two_16(at), load_two_16(at + 16), load_two_16(at + 32), load_two_16(at + 48)];
            let elements = transposed(lanes);
            for k in 0..4 {
                _mm256_storeu_si256(to[k].cast::<u32>().add(l).cast(), elements[k]);
            }
        }
    }
}

/// The other way round.
///
/// # Safety
///
/// The memory may be written, and is aligned to the vectors; the rows are those of a frame, or constants.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn store_vectors_of(r: &Rows, rows: [u32; 4], first: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        let from = rows.map(|row| u32::row(r, row));
        for l in (0..32).step_by(8) {
            let at = first + 16 * l as u64;
            let lanes = transposed(from.map(|row| _mm256_loadu_si256(row.cast::<u32>().add(l).cast())));
            for k in 0..4 {
                store_two_16(at + 16 * k as u64, lanes[k]);
            }
        }
    }
}

/// Loads four rows for each warp, of vectors that lie one behind the other.
///
/// # Safety
///
/// As for `load_vectors_of`, for all of them.
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
pub unsafe fn load_vectors(all: &[Rows], rows: [u32; 4], first: u64) {
    for (k, r) in all.iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe { load_vectors_of(r, rows, first + 512 * k as u64) };
    }
}

/// Stores four rows of each warp, as vectors that lie one behind the other.
///
/// # Safety
///
/// As for `store_vectors_of`, for all of them.
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
pub unsafe fn store_vectors(all: &[Rows], rows: [u32; 4], first: u64) {
    for (k, r) in all.iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe { store_vectors_of(r, rows, first + 512 * k as u64) };
    }
}

/// Four elements of 32 bits to as many rows.
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
pub unsafe fn load_v4<const HOW: u8>(all: &[Rows], warps: *mut Warp, env: &mut Env, x: &Step, m: u32) -> usize {
    let one = |r: &Rows, w: &mut Warp| {
        // SAFETY: as in load; the four rows are the frame's.
        unsafe {
            if HOW != PART
                && let Some(first) = block_of::<16, false>(r, w, x, x.c.into())
            {
                load_vectors_of(r, x.rows, first);
                return true;
            }
            let mut at = addresses::<HOW>(r, x, m);
            let Some(place) = place::<16, false>(w, env, u64::from(x.c), &mut at) else { return false };
            match place {
                Place::Global => scatter::<HOW, _>(r, x, m, &at, |at| load_16(at)),
                Place::Shared(base) => {
                    scatter::<HOW, _>(r, x, m, &at, |at| _mm_loadu_si128(base.add(at as usize).cast()));
                }
            }
        }
        true
    };
    // SAFETY: the caller has as many warps as rows of theirs.
    unsafe { each(rows_of::<HOW>(all), warps, one) }
}

/// Two elements of 32 bits, as one of 64.
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
pub unsafe fn load_v2<const HOW: u8>(all: &[Rows], warps: *mut Warp, env: &mut Env, x: &Step, m: u32) -> usize {
    let one = |r: &Rows, w: &mut Warp| {
        // SAFETY: as in load; the two rows are the frame's.
        unsafe {
            let mut at = addresses::<HOW>(r, x, m);
            let Some(place) = place::<8, false>(w, env, u64::from(x.c), &mut at) else { return false };
            let mut v = [[0u32; 32]; 2];
            for l in 0..32 {
                let e: u64 = match place {
                    Place::Global => Word::load(at[l]),
                    Place::Shared(base) => base.add(at[l] as usize).cast::<u64>().read_unaligned(),
                };
                (v[0][l], v[1][l]) = (e as u32, (e >> 32) as u32);
            }
            for k in 0..2 {
                keep::<HOW, u32>(u32::row(r, x.rows[k]), m, &v[k]);
            }
        }
        true
    };
    // SAFETY: the caller has as many warps as rows of theirs.
    unsafe { each(rows_of::<HOW>(all), warps, one) }
}

#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
pub unsafe fn store_v4<const HOW: u8>(all: &[Rows], warps: *mut Warp, env: &mut Env, x: &Step, m: u32) -> usize {
    let one = |r: &Rows, w: &mut Warp| {
        // SAFETY: as in load; the four rows are the frame's or constants.
        unsafe {
            if HOW != PART
                && let Some(first) = block_of::<16, true>(r, w, x, x.c.into())
            {
                store_vectors_of(r, x.rows, first);
                return true;
            }
            let mut at = addresses::<HOW>(r, x, m);
            let Some(place) = place::<16, true>(w, env, u64::from(x.c), &mut at) else { return false };
            let from = [0, 1, 2, 3].map(|k| u32::row(r, x.rows[k]));
            for l in 0..32 {
                if HOW != PART || m >> l & 1 != 0 {
                    let v = from.map(|row| (*row)[l]);
                    match place {
                        Place::Global => store_16_bytes(at[l], v),
                        Place::Shared(base) => base.add(at[l] as usize).cast::<[u32; 4]>().write_unaligned(v),
                    }
                }
            }
        }
        true
    };
    // SAFETY: the caller has as many warps as rows of theirs.
    unsafe { each(rows_of::<HOW>(all), warps, one) }
}

#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
pub unsafe fn store_v2<const HOW: u8>(all: &[Rows], warps: *mut Warp, env: &mut Env, x: &Step, m: u32) -> usize {
    let one = |r: &Rows, w: &mut Warp| {
        // SAFETY: as in load; the two rows are the frame's or constants.
        unsafe {
            let mut at = addresses::<HOW>(r, x, m);
            let Some(place) = place::<8, true>(w, env, u64::from(x.c), &mut at) else { return false };
            let from = [0, 1].map(|k| u32::row(r, x.rows[k]));
            for l in 0..32 {
                if HOW != PART || m >> l & 1 != 0 {
                    let v = u64::from((*from[0])[l]) | u64::from((*from[1])[l]) << 32;
                    match place {
                        Place::Global => Word::store(at[l], v),
                        Place::Shared(base) => base.add(at[l] as usize).cast::<u64>().write_unaligned(v),
                    }
                }
            }
        }
        true
    };
    // SAFETY: the caller has as many warps as rows of theirs.
    unsafe { each(rows_of::<HOW>(all), warps, one) }
}

/// A kernel's parameter: the same for every lane. `c` is its bytes, and whether it is signed.
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
pub unsafe fn parameter<const WIDE: bool, const HOW: u8>(
    all: &[Rows],
    warps: *mut Warp,
    env: &mut Env,
    x: &Step,
    m: u32,
) -> usize {
    let one = |r: &Rows, _: &mut Warp| {
        let (bytes, signed) = ((x.c & 0xff) as usize, x.c >> 8 != 0);
        let at = (x.extra & !PARAM_WINDOW) as usize;
        let Some(part) = at.checked_add(bytes).and_then(|end| env.launch.params.get(at..end)) else { return false };
        let mut word = [0u8; 8];
        word[..bytes].copy_from_slice(part);
        let free = 64 - 8 * bytes as u32;
        let v = u64::from_le_bytes(word) << free;
        let v = if signed { ((v as i64) >> free) as u64 } else { v >> free };
        // SAFETY: a row of the frame.
        unsafe {
            if WIDE {
                keep::<HOW, u64>(u64::row(r, x.d), m, &[v; 32])
            } else {
                keep::<HOW, u32>(u32::row(r, x.d), m, &[v as u32; 32])
            }
        }
        true
    };
    // SAFETY: the caller has as many warps as rows of theirs.
    unsafe { each(rows_of::<HOW>(all), warps, one) }
}

/// The registers that say where a thread is. `a` says which.
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
pub unsafe fn position<const HOW: u8>(all: &[Rows], warps: *mut Warp, env: &mut Env, x: &Step, m: u32) -> usize {
    let one = |r: &Rows, w: &mut Warp| {
        let axis = (x.a & 3) as usize;
        // SAFETY: a row of the frame.
        let to = unsafe { u32::row(r, x.d) };
        let same = match x.a >> 2 {
            TID => {
                // SAFETY: as above.
                unsafe { keep::<HOW, u32>(to, m, &w.tid[axis]) };
                return true;
            }
            NTID => env.launch.block[axis],
            CTAID => env.ctaid[axis],
            _ => env.launch.grid[axis],
        };
        // SAFETY: as above.
        unsafe { keep::<HOW, u32>(to, m, &[same; 32]) };
        true
    };
    // SAFETY: the caller has as many warps as rows of theirs.
    unsafe { each(rows_of::<HOW>(all), warps, one) }
}

/// What `position` would write for warps that run together, if it is a line.
pub fn position_line(which: u32, warps: &[Warp], env: &Env) -> Option<Line<u32>> {
    let axis = (which & 3) as usize;
    Some(match which >> 2 {
        TID => {
            let (first, end) = (warps.first()?.tid.map(|row| row[0]), warps.last()?.tid.map(|row| row[31]));
            // Of threads that lie in one row of the block one axis counts up, and the others stay.
            let in_row = first[1] == end[1] && first[2] == end[2];
            Line { start: first[axis], step: u32::from(in_row.then_some(axis == 0)?) }
        }
        NTID => Line { start: env.launch.block[axis], step: 0 },
        CTAID => Line { start: env.ctaid[axis], step: 0 },
        _ => Line { start: env.launch.grid[axis], step: 0 },
    })
}

const TID: u32 = 0;
const NTID: u32 = 1;
const CTAID: u32 = 2;
const NCTAID: u32 = 3;

pub fn position_of(s: Special) -> Option<u32> {
    Some(match s {
        Special::Tid(axis) => TID << 2 | u32::from(axis),
        Special::Ntid(axis) => NTID << 2 | u32::from(axis),
        Special::Ctaid(axis) => CTAID << 2 | u32::from(axis),
        Special::Nctaid(axis) => NCTAID << 2 | u32::from(axis),
        _ => return None,
    })
}

pub const UP: u8 = 0;
pub const DOWN: u8 = 1;
pub const ACROSS: u8 = 2;
pub const BY_NUMBER: u8 = 3;

/// A shuffle of the whole warp, if each lane names the same members. `rows` has the predicate and the members. What
/// `shuffled` does lane by lane, eight lanes at once.
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
pub unsafe fn shuffle<const MODE: u8, const HOW: u8>(
    all: &[Rows],
    warps: *mut Warp,
    _: &mut Env,
    x: &Step,
    m: u32,
) -> usize {
    let one = |r: &Rows, _: &mut Warp| {
        // SAFETY: rows of the frame or constants, as `bind` resolved them, and a predicate of the frame.
        unsafe {
            if HOW == PART || !is_uniform(&*u32::row(r, x.rows[1])) {
                return false;
            }
            let eight = |row: *const [u32; 32], at: usize| _mm256_loadu_si256(row.cast::<u32>().add(at).cast());
            let all = |v: i32| _mm256_set1_epi32(v);
            let (b, c, d) = (u32::row(r, x.b), u32::row(r, x.c), u32::row(r, x.d));
            let a = [0, 8, 16, 24].map(|at| eight(u32::row(r, x.a), at));
            let (mut lane, mut out_of_range) = (_mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0), 0);
            for at in (0..32).step_by(8) {
                let (b, c) = (_mm256_and_si256(eight(b, at), all(31)), eight(c, at));
                let segment = _mm256_and_si256(_mm256_srli_epi32(c, 8), all(31));
                let in_segment = |of: __m256i| {
                    _mm256_or_si256(
                        _mm256_and_si256(lane, segment),
                        _mm256_and_si256(_mm256_andnot_si256(segment, of), all(31)),
                    )
                };
                let most = in_segment(c);
                let from = match MODE {
                    UP => _mm256_sub_epi32(lane, b),
                    DOWN => _mm256_add_epi32(lane, b),
                    ACROSS => _mm256_xor_si256(lane, b),
                    _ => in_segment(b),
                };
                let out = if MODE == UP { _mm256_cmpgt_epi32(most, from) } else { _mm256_cmpgt_epi32(from, most) };
                let from = _mm256_blendv_epi8(from, lane, out);
                out_of_range |= (_mm256_movemask_ps(_mm256_castsi256_ps(out)) as u32) << at;
                // Three bits of a lane's number choose within eight, the fourth and the fifth among four times eight.
                let found = a.map(|eight| _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(eight, from)));
                let fourth = _mm256_castsi256_ps(_mm256_slli_epi32(from, 28));
                let fifth = _mm256_castsi256_ps(_mm256_slli_epi32(from, 27));
                let low = _mm256_blendv_ps(found[0], found[1], fourth);
                let high = _mm256_blendv_ps(found[2], found[3], fourth);
                let v = _mm256_castps_si256(_mm256_blendv_ps(low, high, fifth));
                _mm256_storeu_si256(d.cast::<u32>().add(at).cast(), v);
                lane = _mm256_add_epi32(lane, all(8));
            }
            put_bits(r, x.rows[0], m, !out_of_range);
        }
        true
    };
    // SAFETY: the caller has as many warps as rows of theirs.
    unsafe { each(rows_of::<HOW>(all), warps, one) }
}

/// Whether all lanes have the same.
#[target_feature(enable = "avx2")]
#[inline]
fn is_uniform(row: &[u32; 32]) -> bool {
    let first = _mm256_set1_epi32(row[0] as i32);
    let mut off = _mm256_set1_epi32(0);
    for eight in row.chunks_exact(8) {
        // SAFETY: eight lanes are 32 bytes.
        let eight = unsafe { _mm256_loadu_si256(eight.as_ptr().cast()) };
        off = _mm256_or_si256(off, _mm256_xor_si256(eight, first));
    }
    _mm256_testz_si256(off, off) != 0
}
