//! Litmus tests of the memory model: what blocks, warps, lanes and the host may see of each other's accesses, for each
//! order, scope, width and vector form. Each kernel judges what it reads and counts what a GPU never shows.
//!
//! `ORION_LITMUS_ROUNDS` makes a test longer by that factor.

mod common;

use orion_soft::calls::host_memory::{cuMemFreeHost, cuMemHostAlloc};
use std::ffi::CString;
use std::fmt::Write as _;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use common::*;
use portable_atomic::AtomicU128;

/// How often each thread of a kernel does what is tried.
fn steps(n: u32) -> u32 {
    n * std::env::var("ORION_LITMUS_ROUNDS").map_or(1, |v| v.parse::<u32>().expect("a number of rounds"))
}

/// A module with one kernel, `k`, of four parameters that registers a0 to a3 (64 bits) hold at its start. Where a3 is
/// not zero, it is that of a zero at which the blocks of the launch meet first.
fn kernel(body: &str) -> Gpu {
    kernel_with("", body)
}

/// The same, with what is said ahead of a kernel's body.
fn kernel_with(directives: &str, body: &str) -> Gpu {
    let mut text = format!(
        ".version 8.4\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p0, \
         .param .u64 p1, .param .u64 p2, \
         .param .u64 p3)\n{directives}\n{{\n.reg .pred %p<16>;\n\
         .reg .b16 %h<32>;\n.reg .b32 %r<64>;\n.reg .b64 %x<64>, %a<4>;\n\
         .reg .b128 %q<8>;\n"
    );
    for i in 0..4 {
        writeln!(text, "ld.param.u64 %a{i}, [p{i}];").unwrap();
    }
    text.push_str("mov.u32 %r0, %ctaid.x;\nmov.u32 %r1, %tid.x;\n");
    // The blocks meet, so that none has ended before another begins.
    text.push_str(
        "setp.eq.u64 %p0, %a3, 0;\n@%p0 bra BEGUN;\nsetp.ne.u32 %p1, %r1, 0;\n@%p1 bra MET;\nred.add.u64 [%a3], 1;\n\
         mov.u32 %r2, %nctaid.x;\nMEET:\nld.relaxed.gpu.u64 %x0, [%a3];\ncvt.u32.u64 %r3, %x0;\n\
         setp.lt.u32 %p1, %r3, %r2;\n\
         @%p1 bra MEET;\nMET:\nbar.sync 0;\nBEGUN:\n",
    );
    text.push_str(body);
    text.push_str("\nret;\n}\n");
    let text = CString::new(text).unwrap();
    Gpu::with(text.as_ptr().cast())
}

const ORDERS: [(&str, &str); 10] = [
    ("", ""),
    (".weak", ".weak"),
    (".volatile", ".volatile"),
    (".relaxed.cta", ".relaxed.cta"),
    (".relaxed.cluster", ".relaxed.cluster"),
    (".relaxed.gpu", ".relaxed.gpu"),
    (".relaxed.sys", ".relaxed.sys"),
    (".release.gpu", ".acquire.gpu"),
    (".release.sys", ".acquire.sys"),
    (".release.cta", ".acquire.cta"),
];

/// A vector form and the bits and number of its elements.
const FORMS: [(&str, u32, usize); 8] = [
    (".v2.b8", 8, 2),
    (".v4.b8", 8, 4),
    (".v2.b16", 16, 2),
    (".v4.b16", 16, 4),
    (".v2.b32", 32, 2),
    (".v4.b32", 32, 4),
    (".v2.b64", 64, 2),
    (".b128", 64, 2),
];

fn registers(bits: u32, n: usize, first: usize) -> Vec<String> {
    let class = match bits {
        8 | 16 => "h",
        32 => "r",
        _ => "x",
    };
    (0..n).map(|k| format!("%{class}{}", first + k)).collect()
}

/// Block 0 writes the number of each step to all elements of a vector of its lane; block 1 reads until it meets the
/// last, and counts vectors with unlike elements and numbers that go back.
fn pair_body(space: &str, form: &str, bits: u32, n: usize, (store, load): (&str, &str)) -> String {
    let to = registers(bits, n, 20);
    let list = |r: &[String]| format!("{{{}}}", r.join(", "));
    let (mut put, mut get) = (String::new(), String::new());
    // Numbers stay below 128, so that narrow elements hold them.
    let narrow = if bits == 64 { "cvt.u64.u32" } else { "cvt.u16.u32" };
    for r in &to {
        let make = if bits == 32 { format!("mov.b32 {r}, %r3;\n") } else { format!("{narrow} {r}, %r3;\n") };
        put.push_str(&make);
    }
    if form == ".b128" {
        write!(put, "mov.b128 %q0, {};\nst{store}{space}.b128 [%x1], %q0;\n", list(&to)).unwrap();
        write!(get, "ld{load}{space}.b128 %q0, [%x1];\nmov.b128 {}, %q0;\n", list(&to)).unwrap();
    } else {
        writeln!(put, "st{store}{space}{form} [%x1], {};", list(&to)).unwrap();
        writeln!(get, "ld{load}{space}{form} {}, [%x1];", list(&to)).unwrap();
    }
    let mut compare = String::new();
    for r in &to[1..] {
        let ty = if bits == 8 { 16 } else { bits };
        write!(compare, "setp.ne.b{ty} %p1, {}, {r};\n@%p1 add.u32 %r6, %r6, 1;\n", to[0]).unwrap();
    }
    let first = if bits == 32 {
        format!("mov.b32 %r4, {};", to[0])
    } else {
        format!("cvt.u32.u{} %r4, {};", bits.max(16), to[0])
    };
    // Step s writes s % 96 + 1; after the last step 127.
    format!(
        "mul.wide.u32 %x0, %r1, 16;\nadd.u64 %x1, %a0, %x0;\ncvt.u32.u64 %r2, %a2;\nmov.u32 %r5, 0;\nmov.u32 %r6, 0;\n\
         mov.u32 %r7, 0;\nsetp.ne.u32 %p0, %r0, 0;\n@%p0 bra READ;\nmov.u32 %r8, 0;\nWRITE:\nrem.u32 %r3, %r8, 96;\n\
         add.u32 %r3, %r3, 1;\nadd.u32 %r8, %r8, 1;\nsetp.eq.u32 %p2, %r8, %r2;\n@%p2 mov.u32 %r3, 127;\n{put}\
         @!%p2 bra WRITE;\nret;\nREAD:\n{get}{first}\n{compare}setp.ne.u32 %p2, %r4, 127;\n@%p2 bra READ;\n\
         mad.wide.u32 %x2, %r1, 4, %a1;\nst.global.u32 [%x2], %r6;\n"
    )
}

#[test]
fn no_aligned_vector_of_16_bytes_is_torn() {
    for space in [".global", ""] {
        for (form, bits, n) in FORMS {
            let mut wrong = Vec::new();
            for orders in ORDERS {
                let g = kernel(&pair_body(space, form, bits, n, orders));
                let (slots, torn) = (Buffer::<u64>::zeroed(64), Buffer::<u32>::zeroed(32));
                run(&g, 2, slots.at, torn.at, steps(2000));
                let count: u32 = torn.read().iter().sum();
                if count != 0 {
                    wrong.push(format!("st{}{space}{form}: {count}", orders.0));
                }
            }
            assert!(wrong.is_empty(), "torn: {wrong:?}");
        }
    }
}

/// Runs `blocks` of `k` that meet at their start.
fn run(g: &Gpu, blocks: u32, a0: u64, a1: u64, steps: u32) {
    let met = Buffer::<u64>::zeroed(1);
    ok(g.launch("k", blocks, 32, 0, &mut args![a0, a1, u64::from(steps), met.at]));
    ok(g.sync());
}

/// Runs `k` and answers the sum of the 32 counters that its lanes leave at a1. a0 is `words` of zeroed memory and
/// a2 the number of steps.
fn count(g: &Gpu, blocks: u32, words: usize, steps: u32) -> u32 {
    let (memory, counts) = (Buffer::<u64>::zeroed(words), Buffer::<u32>::zeroed(32));
    run(g, blocks, memory.at, counts.at, steps);
    counts.read().iter().sum()
}

const START: &str = "mul.wide.u32 %x0, %r1, 16;\nadd.u64 %x1, %a0, %x0;\nadd.u64 %x2, %x1, 1024;\n\
     cvt.u32.u64 %r2, %a2;\nmov.u32 %r5, 0;\nmov.u32 %r6, 0;\nmov.u32 %r8, 0;\nsetp.ne.u32 %p0, %r0, 0;\n";
const END: &str = "mad.wide.u32 %x5, %r1, 4, %a1;\nst.global.u32 [%x5], %r6;\n";

/// Block 0 writes a step's number and then a flag, block 1 reads the flag and then the number, which is never less.
fn message_body((put, get): (&str, &str), publish: &str, observe: &str) -> String {
    format!(
        "{START}@%p0 bra READ;\nWRITE:\nadd.u32 %r8, %r8, 1;\n{put}\n{publish}\nsetp.lt.u32 %p1, %r8, %r2;\n\
         @%p1 bra WRITE;\nret;\nREAD:\n{observe}\n{get}\nsetp.lt.u32 %p1, %r3, %r4;\n@%p1 add.u32 %r6, %r6, 1;\n\
         setp.lt.u32 %p2, %r4, %r2;\n@%p2 bra READ;\n{END}"
    )
}

#[test]
fn a_flag_that_is_seen_covers_what_was_written_before_it() {
    let mut ways = Vec::new();
    for scope in ["cta", "cluster", "gpu", "sys"] {
        let (flag, release) =
            (format!("st.release.{scope}.u32 [%x2], %r8;"), format!("atom.exch.release.{scope}.b32 %r9, [%x2], %r8;"));
        ways.push((flag, format!("ld.acquire.{scope}.u32 %r4, [%x2];")));
        ways.push((release, format!("atom.add.acquire.{scope}.u32 %r4, [%x2], 0;")));
        ways.push((
            format!("red.release.{scope}.global.max.u32 [%x2], %r8;"),
            format!("atom.cas.acq_rel.{scope}.b32 %r4, [%x2], 0, 0;"),
        ));
        for fence in ["fence.acq_rel", "fence.sc"] {
            ways.push((
                format!("{fence}.{scope};\nst.relaxed.{scope}.u32 [%x2], %r8;"),
                format!("ld.relaxed.{scope}.u32 %r4, [%x2];\n{fence}.{scope};"),
            ));
        }
    }
    for scope in ["cta", "gl", "sys"] {
        ways.push((
            format!("membar.{scope};\nst.volatile.u32 [%x2], %r8;"),
            format!("ld.volatile.u32 %r4, [%x2];\nmembar.{scope};"),
        ));
    }
    let data = [
        ("st.u8 [%x1+3], %r8;", "ld.u8 %r3, [%x1+3];"),
        ("st.u16 [%x1+6], %r8;", "ld.u16 %r3, [%x1+6];"),
        ("st.u32 [%x1+4], %r8;", "ld.u32 %r3, [%x1+4];"),
        ("cvt.u64.u32 %x6, %r8;\nst.u64 [%x1+8], %x6;", "ld.u64 %x6, [%x1+8];\ncvt.u32.u64 %r3, %x6;"),
        ("st.v4.u32 [%x1], {%r8, %r8, %r8, %r8};", "ld.v4.u32 {%r10, %r11, %r12, %r3}, [%x1];"),
        (
            "cvt.u64.u32 %x6, %r8;\nmov.b128 %q0, {%x6, %x6};\nst.b128 [%x1], %q0;",
            "ld.b128 %q0, [%x1];\nmov.b128 {%x7, %x6}, %q0;\ncvt.u32.u64 %r3, %x6;",
        ),
    ];
    for (k, (publish, observe)) in ways.iter().enumerate() {
        // Each way of publishing with two widths, so that all pairs of neighbours occur.
        for (put, get) in [data[k % data.len()], data[(k + 1) % data.len()]] {
            let g = kernel(&message_body((put, get), publish, observe));
            // Numbers that fit into the narrowest datum.
            let n = if put.contains("u8") { 255 } else { steps(1000).min(65535) };
            assert_eq!(count(&g, 2, 512, n), 0, "{put} {publish} / {observe} {get}");
        }
    }
}

#[test]
fn a_location_never_goes_back() {
    for (store, load) in ORDERS {
        let read = |to: &str| format!("ld{load}.u32 {to}, [%x1];");
        let body = format!(
            "{START}@%p0 bra READ;\nWRITE:\nadd.u32 %r8, %r8, 1;\nst{store}.u32 [%x1], %r8;\n\
             setp.lt.u32 %p1, %r8, %r2;\n@%p1 bra WRITE;\nret;\nREAD:\n{}\n{}\nsetp.lt.u32 %p1, %r4, %r3;\n\
             @%p1 add.u32 %r6, %r6, 1;\nsetp.lt.u32 %p2, %r4, %r2;\n@%p2 bra READ;\n{END}",
            read("%r3"),
            read("%r4"),
        );
        assert_eq!(count(&kernel(&body), 2, 512, steps(2000)), 0, "st{store}, ld{load}");
    }
}

/// Who the two or four are that share locations: blocks, blocks of a cluster, or warps of a block, as a scope has it.
#[derive(Clone, Copy)]
struct Among {
    scope: &'static str,
    /// As the older fence has it, which knows no clusters.
    level: Option<&'static str>,
}

const SCOPES: [Among; 4] = [
    Among { scope: "cta", level: Some("cta") },
    Among { scope: "cluster", level: None },
    Among { scope: "gpu", level: Some("gl") },
    Among { scope: "sys", level: Some("sys") },
];

impl Among {
    fn fences(self) -> Vec<String> {
        let old = self.level.map(|level| format!("membar.{level};"));
        old.into_iter().chain([format!("fence.sc.{};", self.scope)]).collect()
    }
}

/// How wide a location is and what its accesses are: a store of ones, and a load that leaves 1 in a register, or 0, or
/// 2 of a vector that is torn.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    U32,
    U64,
    V4U32,
    V2U64,
    B128,
    Atom32,
    Atom64,
}

const FORMS_OF_ONES: [Form; 7] =
    [Form::U32, Form::U64, Form::V4U32, Form::V2U64, Form::B128, Form::Atom32, Form::Atom64];

/// Makes the ones that stores store.
const ONES: &str = "mov.u32 %r20, 1;\nmov.u64 %x20, 1;\nmov.b128 %q0, {%x20, %x20};\n";

impl Form {
    fn bytes(self) -> u32 {
        match self {
            Form::U32 | Form::Atom32 => 4,
            Form::U64 | Form::Atom64 => 8,
            _ => 16,
        }
    }

    fn is_atomic(self) -> bool {
        matches!(self, Form::Atom32 | Form::Atom64)
    }

    fn is_vector(self) -> bool {
        self.bytes() == 16
    }

    /// One instruction.
    fn put(self, order: &str, at: &str) -> String {
        match self {
            Form::U32 => format!("st{order}.u32 [{at}], %r20;"),
            Form::U64 => format!("st{order}.u64 [{at}], %x20;"),
            Form::V4U32 => format!("st{order}.v4.u32 [{at}], {{%r20, %r20, %r20, %r20}};"),
            Form::V2U64 => format!("st{order}.v2.u64 [{at}], {{%x20, %x20}};"),
            Form::B128 => format!("st{order}.b128 [{at}], %q0;"),
            Form::Atom32 => format!("atom.exch{order}.b32 %r26, [{at}], %r20;"),
            Form::Atom64 => format!("atom.exch{order}.b64 %x26, [{at}], %x20;"),
        }
    }

    fn get(self, order: &str, to: &str, at: &str) -> String {
        let narrow = format!("cvt.u32.u64 {to}, %x21;");
        match self {
            Form::U32 => format!("ld{order}.u32 {to}, [{at}];"),
            Form::U64 => format!("ld{order}.u64 %x21, [{at}];\n{narrow}"),
            Form::V4U32 => format!(
                "ld{order}.v4.u32 {{%r21, %r22, %r23, %r24}}, [{at}];\nmov.u32 {to}, %r21;\n\
                 setp.ne.u32 %p7, %r21, %r22;\n@!%p7 setp.ne.u32 %p7, %r21, %r23;\n\
                 @!%p7 setp.ne.u32 %p7, %r21, %r24;\n@%p7 mov.u32 {to}, 2;"
            ),
            Form::V2U64 => format!(
                "ld{order}.v2.u64 {{%x21, %x22}}, [{at}];\n{narrow}\nsetp.ne.u64 %p7, %x21, %x22;\n\
                 @%p7 mov.u32 {to}, 2;"
            ),
            Form::B128 => format!(
                "ld{order}.b128 %q1, [{at}];\nmov.b128 {{%x21, %x22}}, %q1;\n{narrow}\nsetp.ne.u64 %p7, %x21, %x22;\n\
                 @%p7 mov.u32 {to}, 2;"
            ),
            Form::Atom32 => format!("atom.add{order}.u32 {to}, [{at}], 0;"),
            Form::Atom64 => format!("atom.add{order}.u64 %x21, [{at}], 0;\n{narrow}"),
        }
    }
}

/// Each of `actors` does so in each step, with two locations of this form (at x11 and x13) and two places for what it
/// has read (at x12 and x14), which this answers. Its own number is r0, p0 whether it is not 0.
fn buffered_steps(write_and_read: &str, actors: u32, among: Among, form: Form) -> [Vec<u32>; 2] {
    let (n, bytes) = (steps(100), form.bytes());
    let (directives, own) = match among.scope {
        "cta" => (String::new(), "shr.u32 %r0, %r1, 5;\nand.b32 %r1, %r1, 31;\n"),
        "cluster" => (format!(".explicitcluster\n.reqnctapercluster {actors}, 1, 1"), ""),
        _ => (String::new(), ""),
    };
    let g = kernel_with(
        &directives,
        &format!(
            "{own}{START}{ONES}mad.wide.u32 %x11, %r1, {bytes}, %a0;\nmad.wide.u32 %x12, %r1, 4, %a1;\n\
             mad.lo.u64 %x13, %a2, {row}, %x11;\nmad.lo.u64 %x14, %a2, 128, %x12;\nSTEP:\n{write_and_read}\n\
             add.u64 %x11, %x11, {row};\nadd.u64 %x13, %x13, {row};\nadd.u64 %x12, %x12, 128;\n\
             add.u64 %x14, %x14, 128;\nadd.u32 %r8, %r8, 1;\nsetp.lt.u32 %p1, %r8, %r2;\n@%p1 bra STEP;\n",
            row = 32 * bytes,
        ),
    );
    let words = (n * 32) as usize;
    let (memory, seen) = (Buffer::<u32>::zeroed(2 * words * bytes as usize / 4), Buffer::<u32>::zeroed(2 * words));
    let (blocks, threads) = if among.scope == "cta" { (1, 32 * actors) } else { (actors, 32) };
    let met = Buffer::<u64>::zeroed(1);
    ok(g.launch("k", blocks, threads, 0, &mut args![memory.at, seen.at, u64::from(n), met.at]));
    ok(g.sync());
    let seen = seen.read();
    [seen[..words].to_vec(), seen[words..].to_vec()]
}

/// Each of two writes its own location and reads the other's.
#[test]
fn a_fence_between_them_keeps_a_load_behind_a_store() {
    for among in SCOPES {
        let scope = among.scope;
        let relaxed = format!(".relaxed.{scope}");
        let pairs = [("", ""), (".volatile", ".volatile"), (&relaxed, &relaxed)];
        let halves = [format!(".release.{scope}"), format!(".acquire.{scope}")];
        for (fence, form) in among.fences().iter().flat_map(|fence| FORMS_OF_ONES.map(|form| (fence, form))) {
            let of_form = match form {
                _ if form.is_vector() => pairs.to_vec(),
                _ if form.is_atomic() => vec![pairs[2], (&*halves[0], &*halves[1])],
                _ => [&pairs[..], &[(&*halves[0], &*halves[1])]].concat(),
            };
            for (store, load) in of_form {
                let (put, get) = (form.put(store, "%x15"), form.get(load, "%r3", "%x16"));
                let body = format!(
                    "selp.b64 %x15, %x13, %x11, %p0;\nselp.b64 %x16, %x11, %x13, %p0;\n\
                     selp.b64 %x17, %x14, %x12, %p0;\n{put}\n{fence}\n{get}\nst.u32 [%x17], %r3;"
                );
                let [first, second] = buffered_steps(&body, 2, among, form);
                let is_wrong = |(a, b): &(&u32, &u32)| **a > 1 || **b > 1 || (**a, **b) == (0, 0);
                let wrong = first.iter().zip(&second).filter(is_wrong).count();
                assert_eq!(wrong, 0, "{fence} between st{store} and ld{load} of {form:?} in one {scope}");
            }
        }
    }
}

/// Two write a location each, two others read both in opposite order.
#[test]
fn two_readers_agree_on_the_order_of_two_writes() {
    for among in SCOPES {
        let scope = among.scope;
        let (relaxed, acquire) = (format!(".relaxed.{scope}"), format!(".acquire.{scope}"));
        for form in FORMS_OF_ONES {
            let mut ways: Vec<(&str, String)> = among.fences().into_iter().map(|fence| (&*relaxed, fence)).collect();
            if !form.is_atomic() {
                ways.extend(among.fences().into_iter().map(|fence| (".volatile", fence)));
            }
            if !form.is_vector() {
                ways.push((&acquire, String::new()));
            }
            for (load, fence) in ways {
                let (one, other) = (form.put(&relaxed, "%x11"), form.put(&relaxed, "%x13"));
                let (first, second) = (form.get(load, "%r3", "%x15"), form.get(load, "%r4", "%x16"));
                let body = format!(
                    "setp.eq.u32 %p3, %r0, 0;\nsetp.eq.u32 %p4, %r0, 1;\nsetp.eq.u32 %p5, %r0, 2;\n\
                     setp.eq.u32 %p6, %r0, 3;\n@%p3 {one}\n@%p4 {other}\n\
                     selp.b64 %x15, %x11, %x13, %p5;\nselp.b64 %x16, %x13, %x11, %p5;\n{first}\n{fence}\n{second}\n\
                     shl.b32 %r4, %r4, 2;\nor.b32 %r3, %r3, %r4;\n@%p5 st.u32 [%x12], %r3;\n@%p6 st.u32 [%x14], %r3;"
                );
                let [of_one, of_other] = buffered_steps(&body, 4, among, form);
                // First written and second not, for both: each saw the write first that the other saw last.
                let is_wrong = |(a, b): &(&u32, &u32)| {
                    let is_torn = |v: u32| v & 3 > 1 || v >> 2 > 1;
                    is_torn(**a) || is_torn(**b) || (**a, **b) == (1, 1)
                };
                let wrong = of_one.iter().zip(&of_other).filter(is_wrong).count();
                assert_eq!(wrong, 0, "ld{load} {fence} of {form:?} in one {scope}");
            }
        }
    }
}

#[test]
fn atomics_lose_nothing() {
    let n = steps(500);
    // A lock around a vector that is not atomic, a counter, and a pair that is exchanged whole.
    let g = kernel(&format!(
        "{START}add.u64 %x3, %a0, 16;\nadd.u64 %x4, %a0, 32;\nadd.u64 %x5, %a0, 48;\nSTEP:\n\
         red.relaxed.gpu.global.add.u32 [%a0], 1;\nTAKE:\natom.cas.acquire.gpu.b32 %r9, [%a0+4], 0, 1;\n\
         setp.ne.u32 %p1, %r9, 0;\n@%p1 bra TAKE;\n\
         ld.v2.u64 {{%x20, %x21}}, [%x3];\nadd.u64 %x20, %x20, 1;\nadd.u64 %x21, %x21, 1;\n\
         st.v2.u64 [%x3], {{%x20, %x21}};\natom.exch.release.gpu.b32 %r9, [%a0+4], 0;\n\
         ld.relaxed.gpu.b128 %q0, [%x4];\nAGAIN:\nmov.b128 {{%x22, %x23}}, %q0;\nadd.u64 %x22, %x22, 1;\n\
         add.u64 %x23, %x23, 2;\nmov.b128 %q1, {{%x22, %x23}};\natom.cas.acq_rel.gpu.b128 %q2, [%x4], %q0, %q1;\n\
         mov.b128 {{%x24, %x25}}, %q0;\nmov.b128 {{%x26, %x27}}, %q2;\nmov.b128 %q0, %q2;\n\
         setp.ne.u64 %p2, %x24, %x26;\n@%p2 bra AGAIN;\nsetp.ne.u64 %p2, %x25, %x27;\n@%p2 bra AGAIN;\n\
         cvt.u64.u32 %x28, %r8;\nmov.b128 %q3, {{%x28, %x28}};\natom.exch.relaxed.sys.b128 %q4, [%x5], %q3;\n\
         mov.b128 {{%x29, %x30}}, %q4;\nsetp.ne.u64 %p3, %x29, %x30;\n@%p3 add.u32 %r6, %r6, 1;\n\
         add.u32 %r8, %r8, 1;\nsetp.lt.u32 %p1, %r8, %r2;\n@%p1 bra STEP;\n\
         mad.wide.u32 %x6, %r1, 4, %a1;\nred.add.u32 [%x6], %r6;\n"
    ));
    let (memory, torn) = (Buffer::<u64>::zeroed(16), Buffer::<u32>::zeroed(32));
    run(&g, 3, memory.at, torn.at, n);
    let (memory, all) = (memory.read(), u64::from(n) * 96);
    assert_eq!(memory[0], all, "the counter and the lock");
    assert_eq!(memory[2..4], [all, all], "the vector under the lock");
    assert_eq!(memory[4..6], [all, 2 * all], "the pair by compare and swap");
    assert_eq!(torn.read(), [0; 32], "exchanged pairs");
}

/// Memory that host and kernel share, where each sees whole vectors of the other's, and flags that cover data.
#[test]
fn host_and_kernel_see_whole_vectors_and_covered_data() {
    let n = steps(20_000);
    let g = kernel(&format!(
        "{START}setp.ne.u32 %p3, %r1, 0;\n@%p3 bra DONE;\nSTEP:\nadd.u32 %r8, %r8, 1;\ncvt.u64.u32 %x20, %r8;\n\
         st.relaxed.sys.v2.u64 [%a0], {{%x20, %x20}};\nst.u32 [%a0+16], %r8;\nst.release.sys.u32 [%a0+32], %r8;\n\
         ld.relaxed.sys.v4.u32 {{%r20, %r21, %r22, %r23}}, [%a0+64];\nsetp.ne.u32 %p1, %r20, %r23;\n\
         @%p1 add.u32 %r6, %r6, 1;\nld.acquire.sys.u32 %r4, [%a0+96];\nld.u32 %r3, [%a0+80];\n\
         setp.lt.u32 %p1, %r3, %r4;\n@%p1 add.u32 %r6, %r6, 1;\nsetp.lt.u32 %p2, %r8, %r2;\n@%p2 bra STEP;\n\
         setp.lt.u32 %p2, %r4, %r2;\n@%p2 bra STEP;\nDONE:\n{END}"
    ));
    let mut shared = null_mut();
    unsafe { ok(cuMemHostAlloc(&mut shared, 4096, 0)) };
    let base = shared as usize;
    unsafe { std::ptr::write_bytes(shared.cast::<u8>(), 0, 4096) };
    let pair = |at: usize| unsafe { AtomicU128::from_ptr((base + at) as *mut u128) };
    let word = |at: usize| unsafe { AtomicU32::from_ptr((base + at) as *mut u32) };
    let counts = Buffer::<u32>::zeroed(32);
    ok(g.launch("k", 1, 32, 0, &mut args![base as u64, counts.at, u64::from(n), 0u64]));
    let (mut torn, mut late) = (0, 0);
    for i in 1..=n {
        pair(64).store(u128::from(i) * 0x1_0000_0001_0000_0001_0000_0001, Ordering::Release);
        word(80).store(i, Ordering::Release);
        word(96).store(i, Ordering::Release);
        let v = pair(0).load(Ordering::Acquire);
        torn += u32::from(v as u64 != (v >> 64) as u64);
        let flag = word(32).load(Ordering::Acquire);
        late += u32::from(word(16).load(Ordering::Acquire) < flag);
    }
    ok(g.sync());
    assert_eq!((torn, late, counts.read().iter().sum::<u32>()), (0, 0, 0));
    unsafe { ok(cuMemFreeHost(shared)) };
}

/// What waits lets what it waits for run: lanes of a warp, warps of a block, and more blocks than run at once.
#[test]
fn a_chain_of_waits_ends() {
    // Every thread waits for the one before it, of the same warp, block or grid, without a pause.
    let g = kernel(
        "mov.u32 %r2, %ntid.x;\nmad.lo.u32 %r3, %r0, %r2, %r1;\nmad.wide.u32 %x1, %r3, 16, %a0;\nWAIT:\n\
         ld.relaxed.gpu.v2.u64 {%x2, %x3}, [%x1];\nsetp.eq.u64 %p1, %x3, 0;\n@%p1 bra WAIT;\nadd.u64 %x2, %x2, 1;\n\
         st.relaxed.gpu.v2.u64 [%x1+16], {%x2, %x3};\n",
    );
    for (blocks, threads) in [(1, 32), (1, 256), (500, 1), (40, 64)] {
        let n = (blocks * threads) as usize;
        let mut slots = vec![0u64; 2 * n + 2];
        slots[1] = 1;
        let slots = Buffer::new(&slots);
        ok(g.launch("k", blocks, threads, 0, &mut args![slots.at, 0u64, 0u64, 0u64]));
        ok(g.sync());
        assert_eq!(slots.read()[2 * n], n as u64, "{blocks} blocks of {threads}");
    }
}

/// Warps of a block hand each other data through shared memory, whole vectors too.
#[test]
fn warps_of_a_block_see_each_others_shared_memory_in_order() {
    let g = kernel(&format!(
        ".shared .align 16 .b8 s[64];\n{START}shr.u32 %r10, %r1, 5;\n\
         setp.ne.u32 %p0, %r10, 0;\nand.b32 %r11, %r1, 31;\n\
         setp.ne.u32 %p4, %r11, 0;\nst.shared.v4.u32 [s], {{%r8, %r8, %r8, %r8}};\nst.shared.u32 [s+16], 0;\n\
         bar.sync 0;\n@%p4 bra DONE;\n@%p0 bra READ;\nWRITE:\nadd.u32 %r8, %r8, 1;\n\
         st.relaxed.cta.shared.v4.u32 [s], {{%r8, %r8, %r8, %r8}};\nst.release.cta.shared.u32 [s+16], %r8;\n\
         setp.lt.u32 %p1, %r8, %r2;\n@%p1 bra WRITE;\nbra DONE;\nREAD:\nld.acquire.cta.shared.u32 %r4, [s+16];\n\
         ld.relaxed.cta.shared.v4.u32 {{%r20, %r21, %r22, %r23}}, [s];\nsetp.ne.u32 %p1, %r20, %r23;\n\
         @%p1 add.u32 %r6, %r6, 1;\nsetp.lt.u32 %p1, %r20, %r4;\n@%p1 add.u32 %r6, %r6, 1;\n\
         setp.lt.u32 %p2, %r4, %r2;\n@%p2 bra READ;\n\
         st.global.u32 [%a1], %r6;\nDONE:\n"
    ));
    let (memory, wrong) = (Buffer::<u64>::zeroed(1), Buffer::<u32>::new(&[9]));
    ok(g.launch("k", 1, 64, 0, &mut args![memory.at, wrong.at, u64::from(steps(5000)), 0u64]));
    ok(g.sync());
    assert_eq!(wrong.read(), [0]);
}

/// A block copies vectors that another writes, by copies that need not wait, and finds them whole.
#[test]
fn asynchronous_copies_take_whole_vectors() {
    for copy in ["cp.async.ca.shared.global [%r12], [%x1], 16;", "cp.async.cg.shared.global [%r12], [%x1], 16;"] {
        let g = kernel(&format!(
            ".shared .align 16 .b8 s[512];\n{START}mov.u32 %r12, s;\nmad.lo.u32 %r12, %r1, 16, %r12;\n@%p0 bra READ;\n\
             WRITE:\nadd.u32 %r8, %r8, 1;\nst.relaxed.gpu.v4.u32 [%x1], {{%r8, %r8, %r8, %r8}};\n\
             setp.lt.u32 %p1, %r8, %r2;\n@%p1 bra WRITE;\nret;\nREAD:\n{copy}\ncp.async.commit_group;\n\
             cp.async.wait_group 0;\nld.shared.v4.u32 {{%r20, %r21, %r22, %r23}}, [%r12];\n\
             setp.ne.u32 %p1, %r20, %r23;\n\
             @%p1 add.u32 %r6, %r6, 1;\nsetp.lt.u32 %p2, %r20, %r2;\n@%p2 bra READ;\n{END}"
        ));
        assert_eq!(count(&g, 2, 512, steps(2000)), 0, "{copy}");
    }
}
