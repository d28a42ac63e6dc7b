//! Formats `printf` calls of kernels on the host.

use std::io::Write;
use std::sync::OnceLock;

/// Reads a kernel's memory: bytes at a generic address, or `None` where nothing is mapped.
pub trait Reader {
    fn bytes(&mut self, at: u64, n: usize) -> Option<u64>;
}

pub fn c_string(r: &mut dyn Reader, mut at: u64) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    // The bound is arbitrary; CUDA's own printf buffer holds 1 MiB.
    while out.len() < 1 << 20 {
        let c = r.bytes(at, 1)? as u8;
        if c == 0 {
            return Some(out);
        }
        out.push(c);
        at += 1;
    }
    Some(out)
}

/// Returns the text and the number of arguments used.
pub fn format(r: &mut dyn Reader, format_at: u64, args_at: u64) -> Option<(Vec<u8>, u32)> {
    let f = c_string(r, format_at)?;
    let mut out = Vec::new();
    let (mut i, mut arg, mut count) = (0, args_at, 0);
    let mut take = |r: &mut dyn Reader, n: usize| -> Option<u64> {
        arg = arg.next_multiple_of(n as u64);
        let v = r.bytes(arg, n)?;
        arg += n as u64;
        count += 1;
        Some(v)
    };
    while i < f.len() {
        if f[i] != b'%' {
            out.push(f[i]);
            i += 1;
            continue;
        }
        if f.get(i + 1) == Some(&b'%') {
            out.push(b'%');
            i += 2;
            continue;
        }
        let start = i;
        i += 1;
        let mut s = Spec::default();
        while let Some(&c) = f.get(i) {
            match c {
                b'-' => s.left = true,
                b'+' => s.plus = true,
                b' ' => s.blank = true,
                b'#' => s.alternate = true,
                b'0' => s.zero = true,
                _ => break,
            }
            i += 1;
        }
        let mut number = |i: &mut usize, r: &mut dyn Reader| -> Option<Option<i64>> {
            if f.get(*i) == Some(&b'*') {
                *i += 1;
                return Some(Some(i64::from(take(r, 4)? as i32)));
            }
            let from = *i;
            while f.get(*i).is_some_and(u8::is_ascii_digit) {
                *i += 1;
            }
            Some(std::str::from_utf8(&f[from..*i]).ok().and_then(|t| t.parse().ok()))
        };
        if let Some(w) = number(&mut i, r)? {
            s.left |= w < 0;
            s.width = (w.unsigned_abs() as usize).min(1 << 16);
        }
        if f.get(i) == Some(&b'.') {
            i += 1;
            s.precision = Some((number(&mut i, r)?.unwrap_or(0).max(0) as usize).min(1 << 16));
        }
        let mut size = 4;
        while let Some(&c) = f.get(i) {
            match c {
                b'l' | b'j' | b'z' | b't' => size = 8,
                b'h' => size = if size == 2 { 1 } else { 2 },
                b'L' | b'q' => size = 8,
                _ => break,
            }
            i += 1;
        }
        let Some(&conversion) = f.get(i) else {
            out.extend_from_slice(&f[start..]);
            break;
        };
        i += 1;
        let wide = if size == 8 { 8 } else { 4 };
        match conversion {
            b'd' | b'i' => {
                let v = take(r, wide)?;
                let v = match size {
                    8 => v as i64,
                    2 => i64::from(v as i16),
                    1 => i64::from(v as i8),
                    _ => i64::from(v as i32),
                };
                s.integer(&mut out, v < 0, v.unsigned_abs().to_string(), "");
            }
            b'u' | b'x' | b'X' | b'o' => {
                let v = take(r, wide)?;
                let v = match size {
                    8 => v,
                    2 => v & 0xffff,
                    1 => v & 0xff,
                    _ => v & 0xffff_ffff,
                };
                s.plus = false;
                s.blank = false;
                let (digits, prefix) = match conversion {
                    b'u' => (v.to_string(), ""),
                    b'x' => (format!("{v:x}"), "0x"),
                    b'X' => (format!("{v:X}"), "0X"),
                    _ => (format!("{v:o}"), "0"),
                };
                let prefix = if s.alternate && v != 0 { prefix } else { "" };
                s.integer(&mut out, false, digits, prefix);
            }
            b'c' => {
                let v = take(r, 4)? as u8;
                s.pad(&mut out, "", &[v], false);
            }
            b'p' => {
                let v = take(r, 8)?;
                s.pad(&mut out, "", format!("0x{v:x}").as_bytes(), false);
            }
            b's' => {
                let at = take(r, 8)?;
                let mut text = if at == 0 { b"(null)".to_vec() } else { c_string(r, at)? };
                text.truncate(s.precision.unwrap_or(usize::MAX));
                s.pad(&mut out, "", &text, false);
            }
            b'f' | b'F' | b'e' | b'E' | b'g' | b'G' | b'a' | b'A' => {
                let v = f64::from_bits(take(r, 8)?);
                s.float(&mut out, v, conversion);
            }
            _ => out.extend_from_slice(&f[start..i]),
        }
    }
    Some((out, count))
}

#[derive(Default)]
struct Spec {
    left: bool,
    plus: bool,
    blank: bool,
    alternate: bool,
    zero: bool,
    width: usize,
    precision: Option<usize>,
}

impl Spec {
    fn sign(&self, negative: bool) -> &'static str {
        match (negative, self.plus, self.blank) {
            (true, ..) => "-",
            (_, true, _) => "+",
            (_, _, true) => " ",
            _ => "",
        }
    }

    fn pad(&self, out: &mut Vec<u8>, sign: &str, body: &[u8], zeros: bool) {
        let fill = self.width.saturating_sub(sign.len() + body.len());
        if !self.left && !zeros {
            out.resize(out.len() + fill, b' ');
        }
        out.extend_from_slice(sign.as_bytes());
        if !self.left && zeros {
            out.resize(out.len() + fill, b'0');
        }
        out.extend_from_slice(body);
        if self.left {
            out.resize(out.len() + fill, b' ');
        }
    }

    fn integer(&self, out: &mut Vec<u8>, negative: bool, mut digits: String, prefix: &str) {
        if let Some(p) = self.precision {
            if p == 0 && digits == "0" {
                digits.clear();
            }
            digits = "0".repeat(p.saturating_sub(digits.len())) + &digits;
        }
        let sign = format!("{}{prefix}", self.sign(negative));
        self.pad(out, &sign, digits.as_bytes(), self.zero && self.precision.is_none());
    }

    fn float(&self, out: &mut Vec<u8>, v: f64, conversion: u8) {
        let upper = conversion.is_ascii_uppercase();
        let a = v.abs();
        let finite = v.is_finite();
        let mut text = if v.is_nan() {
            "nan".to_string()
        } else if !finite {
            "inf".to_string()
        } else {
            let p = self.precision.unwrap_or(6);
            match conversion.to_ascii_lowercase() {
                b'f' => format!("{a:.p$}"),
                b'e' => exponent(a, p),
                b'g' => self.general(a, p.max(1)),
                _ => hex_float(a),
            }
        };
        if upper {
            text.make_ascii_uppercase();
        }
        let sign = self.sign(v.is_sign_negative() && !v.is_nan());
        self.pad(out, sign, text.as_bytes(), self.zero && finite);
    }

    fn general(&self, a: f64, p: usize) -> String {
        let e = exponent(a, p - 1);
        let x: i32 = e.split('e').nth(1).and_then(|t| t.parse().ok()).unwrap_or(0);
        let trim = |s: String| {
            if self.alternate || !s.contains('.') {
                s
            } else {
                s.trim_end_matches('0').trim_end_matches('.').to_string()
            }
        };
        if x < -4 || x >= p as i32 {
            let (mantissa, tail) = e.split_once('e').unwrap_or((&e, "+00"));
            format!("{}e{tail}", trim(mantissa.to_string()))
        } else {
            trim(format!("{a:.*}", (p as i32 - 1 - x).max(0) as usize))
        }
    }
}

fn exponent(a: f64, p: usize) -> String {
    let s = format!("{a:.p$e}");
    let (m, e) = s.split_once('e').unwrap_or((&s, "0"));
    let e: i32 = e.parse().unwrap_or(0);
    format!("{m}e{}{:02}", if e < 0 { '-' } else { '+' }, e.abs())
}

fn hex_float(a: f64) -> String {
    if a == 0.0 {
        return "0x0p+0".into();
    }
    let bits = a.to_bits();
    let e = (bits >> 52) as i32;
    let fraction = format!("{:013x}", bits & ((1 << 52) - 1));
    let fraction = fraction.trim_end_matches('0');
    let dot = if fraction.is_empty() { "" } else { "." };
    let (lead, e) = if e == 0 { (0, -1022) } else { (1, e - 1023) };
    format!("0x{lead}{dot}{fraction}p{}{}", if e < 0 { '-' } else { '+' }, e.abs())
}

/// Where kernels' output goes instead of this process's stdout.
pub type Sink = Box<dyn Fn(&[u8]) + Send + Sync>;

static SINK: OnceLock<Sink> = OnceLock::new();

/// Sends kernels' output somewhere else, for a process that runs kernels on behalf of another one. The first call wins.
/// The sink is called from the threads that run blocks.
pub fn redirect(sink: Sink) -> bool {
    SINK.set(sink).is_ok()
}

/// Writes at once: a client that reads the process's output through a pipe must not wait for it to exit.
pub fn emit(text: &[u8]) {
    if let Some(sink) = SINK.get() {
        sink(text);
        return;
    }
    let mut out = std::io::stdout().lock();
    // A closed stdout is the application's choice; a kernel's printf has nowhere to report it.
    let _ = out.write_all(text);
    let _ = out.flush();
}
