//! More registers than there are rows, and instructions that run once for a launch: kernels made at random, with
//! loops, sides of branches that only some lanes take, and writes under a guard, leave what the same instructions
//! leave that are followed lane by lane.

mod common;

use std::ffi::CString;
use std::fmt::Write as _;

use common::random::Random;
use common::*;

/// Registers of 32 bits; half as many of 64 bits are there too.
const REGISTERS: usize = 160;
const RESULTS: usize = 12;
const KERNELS: u64 = 60;

fn below(r: &mut Random, n: usize) -> usize {
    r.below(n as u64) as usize
}

enum Line {
    /// `d = a op b`, where the guard's bit of the thread's number is as it is to be.
    Do {
        op: usize,
        d: usize,
        a: usize,
        b: usize,
        guard: Option<(usize, bool)>,
        wide: bool,
    },
    /// The lanes whose bit is set leave the next lines out.
    Skip {
        bit: usize,
        lines: usize,
    },
    /// The lines since the loop's begin, three times.
    Begin,
    End,
}

const OPS: [&str; 4] = ["add", "sub", "xor", "mul.lo"];

fn compute(op: usize, a: u64, b: u64) -> u64 {
    match op {
        0 => a.wrapping_add(b),
        1 => a.wrapping_sub(b),
        2 => a ^ b,
        _ => a.wrapping_mul(b),
    }
}

fn lines(r: &mut Random) -> Vec<Line> {
    let mut all = Vec::new();
    for part in 0..6 {
        let looped = part % 2 == 1;
        if looped {
            all.push(Line::Begin);
        }
        for _ in 0..40 {
            if below(r, 12) == 0 {
                all.push(Line::Skip { bit: below(r, 5), lines: 3 });
                all.extend((0..3).map(|_| action(r)));
            }
            all.push(action(r));
        }
        if looped {
            all.push(Line::End);
        }
    }
    all
}

fn action(r: &mut Random) -> Line {
    let wide = below(r, 3) == 0;
    let n = if wide { REGISTERS / 2 } else { REGISTERS };
    // Near each other, so that most are needed for a short while.
    let d = below(r, n);
    let mut near = || (d + n - below(r, 24)) % n;
    let (a, b) = (near(), near());
    let guard = (below(r, 4) == 0).then(|| (below(r, 5), below(r, 2) == 0));
    Line::Do { op: below(r, OPS.len()), d, a, b, guard, wide }
}

fn text(lines: &[Line]) -> String {
    let mut t = format!(
        ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 out) {{\n.reg .pred %p<6>; .reg \
         .pred %q<8>; .reg .u32 %t<3>; .reg .u32 %n<8>; .reg .u64 %o<3>; .reg .u32 %r<{REGISTERS}>; .reg .u64 \
         %w<{}>;\nmov.u32 %t0, %tid.x;\n",
        REGISTERS / 2
    );
    for bit in 0..5 {
        let _ = writeln!(t, "and.b32 %t1, %t0, {}; setp.ne.u32 %p{bit}, %t1, 0;", 1 << bit);
    }
    for i in 0..REGISTERS {
        let _ = writeln!(t, "mad.lo.u32 %r{i}, %t0, {}, {i};", 2 * i + 1);
    }
    for i in 0..REGISTERS / 2 {
        let _ = writeln!(t, "mul.wide.u32 %w{i}, %t0, {};", 7 * i + 3);
    }
    let (mut labels, mut loops, mut pending) = (0, 0, Vec::new());
    for (at, line) in lines.iter().enumerate() {
        pending.retain(|(end, label)| {
            let here = *end == at;
            if here {
                let _ = writeln!(t, "S{label}:");
            }
            !here
        });
        let _ = match line {
            Line::Do { op, d, a, b, guard, wide } => {
                let guard = guard.map_or(String::new(), |(bit, on)| format!("@{}%p{bit} ", if on { "" } else { "!" }));
                let (kind, ty) = match (wide, OPS[*op]) {
                    (true, "xor") => ("%w", ".b64"),
                    (true, _) => ("%w", ".u64"),
                    (false, "xor") => ("%r", ".b32"),
                    _ => ("%r", ".u32"),
                };
                writeln!(t, "{guard}{}{ty} {kind}{d}, {kind}{a}, {kind}{b};", OPS[*op])
            }
            Line::Skip { bit, lines } => {
                labels += 1;
                pending.push((at + 1 + lines, labels));
                writeln!(t, "@%p{bit} bra S{labels};")
            }
            Line::Begin => {
                loops += 1;
                writeln!(t, "mov.u32 %n{loops}, 0;\nL{loops}:")
            }
            Line::End => writeln!(
                t,
                "add.u32 %n{loops}, %n{loops}, 1; setp.lt.u32 %q{loops}, %n{loops}, 3; @%q{loops} bra L{loops};"
            ),
        };
    }
    let _ = writeln!(t, "ld.param.u64 %o0, [out]; mad.wide.u32 %o0, %t0, {}, %o0;", 16 * RESULTS);
    for k in 0..RESULTS {
        let _ = writeln!(t, "cvt.u64.u32 %o1, %r{}; st.global.u64 [%o0+{}], %o1;", result(k, REGISTERS), 16 * k);
        let _ = writeln!(t, "st.global.u64 [%o0+{}], %w{};", 16 * k + 8, result(k, REGISTERS / 2));
    }
    t + "ret; }\n"
}

fn result(k: usize, n: usize) -> usize {
    k * n / RESULTS
}

/// What one lane leaves.
fn follow(lines: &[Line], lane: u32) -> Vec<u64> {
    let mut narrow: Vec<u64> =
        (0..REGISTERS as u32).map(|i| lane.wrapping_mul(2 * i + 1).wrapping_add(i).into()).collect();
    let mut wide: Vec<u64> = (0..REGISTERS as u64 / 2).map(|i| u64::from(lane) * (7 * i + 3)).collect();
    let on = |bit: usize| lane >> bit & 1 != 0;
    let (mut at, mut begin, mut rounds) = (0, 0, 0);
    while let Some(line) = lines.get(at) {
        at += 1;
        match line {
            Line::Do { guard: Some((bit, wanted)), .. } if on(*bit) != *wanted => {}
            Line::Do { op, d, a, b, wide: true, .. } => wide[*d] = compute(*op, wide[*a], wide[*b]),
            Line::Do { op, d, a, b, .. } => narrow[*d] = compute(*op, narrow[*a], narrow[*b]) & 0xffff_ffff,
            Line::Skip { bit, lines } if on(*bit) => at += lines,
            Line::Skip { .. } => {}
            Line::Begin => (begin, rounds) = (at, 1),
            Line::End if rounds < 3 => (at, rounds) = (begin, rounds + 1),
            Line::End => {}
        }
    }
    (0..RESULTS).flat_map(|k| [narrow[result(k, REGISTERS)], wide[result(k, REGISTERS / 2)]]).collect()
}

#[test]
fn registers_that_share_rows_keep_their_values() {
    for seed in 0..KERNELS {
        let mut r = Random(seed);
        let lines = lines(&mut r);
        let image = CString::new(text(&lines)).unwrap();
        let g = Gpu::with(image.as_ptr().cast());
        let out = Buffer::<u64>::zeroed(32 * 2 * RESULTS);
        ok(g.launch("k", 1, 32, 0, &mut args![out.at]));
        for (lane, found) in (0..).zip(out.read().chunks(2 * RESULTS)) {
            assert_eq!(found, follow(&lines, lane), "kernel {seed}, lane {lane}");
        }
    }
}

#[test]
fn what_a_launch_computes_once_is_what_each_thread_would() {
    let text = ".version 8.0\n.target sm_75\n.address_size 64\n\
        .visible .entry once(.param .u64 out, .param .u32 n) {\n\
        .reg .pred %p; .reg .u32 %r<9>; .reg .u64 %o<3>;\n\
        ld.param.u64 %o0, [out]; mov.u32 %r0, %tid.x; mad.wide.u32 %o1, %r0, 4, %o0;\n\
        ld.param.u32 %r1, [n]; add.u32 %r2, %r1, 5; mov.u32 %r3, %ntid.x;\n\
        mov.u32 %r4, %r2; setp.lt.u32 %p, %r0, 7; @%p add.u32 %r4, %r4, %r3;\n\
        @!%p ld.param.u32 %r5, [n]; @%p mov.u32 %r5, 1; mad.lo.u32 %r4, %r4, 3, %r5;\n\
        st.global.u32 [%o1], %r4; ret; }\n\
        .visible .entry again(.param .u64 out, .param .u32 n) {\n\
        .reg .pred %p; .reg .u32 %r<9>; .reg .u64 %o<3>;\n\
        mov.u32 %r1, 0;\nBEGIN: ld.param.u32 %r2, [n]; add.u32 %r1, %r1, %r2; mov.u32 %r0, %tid.x;\n\
        and.b32 %r3, %r0, 3; add.u32 %r3, %r3, 1; mul.lo.u32 %r3, %r3, %r2;\n\
        setp.lt.u32 %p, %r1, %r3; @%p bra BEGIN;\n\
        ld.param.u64 %o0, [out]; mad.wide.u32 %o1, %r0, 4, %o0; st.global.u32 [%o1], %r1; ret; }\n";
    let image = CString::new(text).unwrap();
    let g = Gpu::with(image.as_ptr().cast());
    let out = Buffer::<u32>::zeroed(96);
    for n in [11u32, 1000] {
        ok(g.launch("once", 1, 96, 0, &mut args![out.at, n]));
        let once = |l: u32| if l < 7 { (n + 5 + 96) * 3 + 1 } else { (n + 5) * 3 + n };
        assert!(out.read().into_iter().eq((0..96).map(once)), "{n}");
        ok(g.launch("again", 1, 96, 0, &mut args![out.at, n]));
        assert!(out.read().into_iter().eq((0..96).map(|l| (l % 4 + 1) * n)), "{n}");
    }
}

#[test]
fn branches_find_their_way_past_what_a_launch_computes_once() {
    let text = ".version 8.0\n.target sm_75\n.address_size 64\n\
        .visible .entry k(.param .u64 out, .param .u32 n) {\n\
        .reg .pred %p; .reg .u32 %r<20>; .reg .u64 %o<3>;\n\
        mov.u32 %r0, %tid.x; mov.u32 %r1, 0; setp.lt.u32 %p, %r0, 7; @%p bra SIDE;\n\
        mov.u32 %r2, 40; add.u32 %r1, %r1, %r2; bra JOIN;\n\
        SIDE: mov.u32 %r3, 2; add.u32 %r4, %r3, 5; add.u32 %r1, %r1, %r4;\n\
        JOIN: ld.param.u32 %r5, [n]; mov.u32 %r6, 0;\n\
        LOOP: mov.u32 %r7, 3; mul.lo.u32 %r8, %r5, %r7; add.u32 %r1, %r1, %r8; add.u32 %r6, %r6, 1;\n\
        setp.le.u32 %p, %r6, %r0; @%p bra LOOP;\n\
        and.b32 %r9, %r0, 1; T: .branchtargets EVEN, ODD; brx.idx %r9, T;\n\
        EVEN: mov.u32 %r10, 1000; add.u32 %r1, %r1, %r10; bra END;\n\
        ODD: mov.u32 %r11, 2000; add.u32 %r1, %r1, %r11;\n\
        END: ld.param.u64 %o0, [out]; mad.wide.u32 %o1, %r0, 4, %o0; st.global.u32 [%o1], %r1;\n\
        LAST: mov.u32 %r12, 9; ret; }\n";
    let image = CString::new(text).unwrap();
    let g = Gpu::with(image.as_ptr().cast());
    let out = Buffer::<u32>::zeroed(64);
    for n in [1u32, 500] {
        ok(g.launch("k", 1, 64, 0, &mut args![out.at, n]));
        let sum = |l: u32| if l < 7 { 7 } else { 40 } + 3 * n * (l + 1) + if l.is_multiple_of(2) { 1000 } else { 2000 };
        assert!(out.read().into_iter().eq((0..64).map(sum)), "{n}");
    }
}

/// Blocks run in the memory of blocks that have ended, whose threads left something in every register.
#[test]
fn what_a_thread_has_not_written_is_zero_in_every_block() {
    let text = ".version 8.0\n.target sm_75\n.address_size 64\n\
        .visible .entry k(.param .u64 out) {\n\
        .reg .pred %p; .reg .u32 %r<9>; .reg .u64 %o<3>; .reg .u64 %w<3>;\n\
        mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mad.lo.u32 %r2, %r1, 32, %r0;\n\
        ld.param.u64 %o0, [out]; mad.wide.u32 %o1, %r2, 24, %o0;\n\
        and.b32 %r3, %r0, 1; setp.eq.u32 %p, %r3, 1;\n\
        @%p mov.u32 %r4, 5; @%p mov.u64 %w0, 6; cvt.u64.u32 %w1, %r4;\n\
        st.global.u64 [%o1], %w1; st.global.u64 [%o1+8], %w0; mov.u32 %r4, 99; cvt.u64.u32 %w0, %r4;\n\
        setp.ge.u32 %p, %r0, 16; @%p exit;\n\
        add.u32 %r5, %r0, 100; mov.u32 %r6, 77; add.u32 %r7, %r0, 8;\n\
        shfl.sync.idx.b32 %r8, %r5, %r7, 31, -1; cvt.u64.u32 %w1, %r8;\n\
        shfl.sync.idx.b32 %r8, %r6, %r7, 31, -1; mad.wide.u32 %w1, %r8, 1000, %w1;\n\
        st.global.u64 [%o1+16], %w1; ret; }\n";
    let image = CString::new(text).unwrap();
    let g = Gpu::with(image.as_ptr().cast());
    const BLOCKS: u32 = 100;
    let out = Buffer::<u64>::zeroed(3 * 32 * BLOCKS as usize);
    ok(g.launch("k", BLOCKS, 32, 0, &mut args![out.at]));
    for (at, found) in out.read().chunks(3).enumerate() {
        let lane = at as u64 % 32;
        let odd = lane % 2;
        // Lanes from 16 on are gone when the others ask for what they have.
        let shuffled = if lane < 8 { 77_000 + lane + 108 } else { 0 };
        assert_eq!(found, [5 * odd, 6 * odd, shuffled], "block {}, lane {lane}", at / 32);
    }
}
