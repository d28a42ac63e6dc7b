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
    let mut arguments = Arguments { reader: r, at: args_at, count: 0 };
    let mut i = 0;
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
        s.scan(&f, &mut i, &mut arguments)?;
        let size = size(&f, &mut i);
        let Some(&conversion) = f.get(i) else {
            out.extend_from_slice(&f[start..]);
            break;
        };
        i += 1;
        if !convert(&mut out, s, size, conversion, &mut arguments)? {
            out.extend_from_slice(&f[start..i]);
        }
    }
    Some((out, arguments.count))
}

/// The arguments of one call, one behind the other.
struct Arguments<'a> {
    reader: &'a mut dyn Reader,
    at: u64,
    count: u32,
}

impl Arguments<'_> {
    fn take(&mut self, n: usize) -> Option<u64> {
        self.at = self.at.checked_next_multiple_of(n as u64)?;
        let v = self.reader.bytes(self.at, n)?;
        self.at += n as u64;
        self.count += 1;
        Some(v)
    }
}

/// A width or precision: digits, or an argument. `None` inside where there is neither.
fn number(f: &[u8], i: &mut usize, arguments: &mut Arguments) -> Option<Option<i64>> {
    if f.get(*i) == Some(&b'*') {
        *i += 1;
        return Some(Some(i64::from(arguments.take(4)? as i32)));
    }
    let from = *i;
    while f.get(*i).is_some_and(u8::is_ascii_digit) {
        *i += 1;
    }
    Some(std::str::from_utf8(&f[from..*i]).ok().and_then(|t| t.parse().ok()))
}

/// Bytes of an integer, as the modifiers have it.
fn size(f: &[u8], i: &mut usize) -> usize {
    let mut size = 4;
    while let Some(&c) = f.get(*i) {
        match c {
            b'l' | b'j' | b'z' | b't' => size = 8,
            b'h' => size = if size == 2 { 1 } else { 2 },
            b'L' | b'q' => size = 8,
            _ => break,
        }
        *i += 1;
    }
    size
}

/// Writes the next argument. False for a conversion that there is not.
fn convert(out: &mut Vec<u8>, s: Spec, size: usize, conversion: u8, arguments: &mut Arguments) -> Option<bool> {
    match conversion {
        b'd' | b'i' | b'u' | b'x' | b'X' | b'o' => {
            let v = arguments.take(if size == 8 { 8 } else { 4 })?;
            if matches!(conversion, b'd' | b'i') {
                signed(out, s, size, v)
            } else {
                unsigned(out, s, size, conversion, v)
            }
        }
        b'c' => {
            let v = arguments.take(4)? as u8;
            s.pad(out, "", &[v], false);
        }
        b'p' => {
            let v = arguments.take(8)?;
            s.pad(out, "", format!("0x{v:x}").as_bytes(), false);
        }
        b's' => {
            let at = arguments.take(8)?;
            let mut text = if at == 0 { b"(null)".to_vec() } else { c_string(arguments.reader, at)? };
            text.truncate(s.precision.unwrap_or(usize::MAX));
            s.pad(out, "", &text, false);
        }
        b'f' | b'F' | b'e' | b'E' | b'g' | b'G' | b'a' | b'A' => {
            let v = f64::from_bits(arguments.take(8)?);
            s.float(out, v, conversion);
        }
        _ => return Some(false),
    }
    Some(true)
}

fn signed(out: &mut Vec<u8>, s: Spec, size: usize, v: u64) {
    let v = match size {
        8 => v as i64,
        2 => i64::from(v as i16),
        1 => i64::from(v as i8),
        _ => i64::from(v as i32),
    };
    s.integer(out, v < 0, v.unsigned_abs().to_string(), "");
}

fn unsigned(out: &mut Vec<u8>, mut s: Spec, size: usize, conversion: u8, v: u64) {
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
    s.integer(out, false, digits, prefix);
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
    /// Flags, width and precision.
    fn scan(&mut self, f: &[u8], i: &mut usize, arguments: &mut Arguments) -> Option<()> {
        while let Some(&c) = f.get(*i) {
            match c {
                b'-' => self.left = true,
                b'+' => self.plus = true,
                b' ' => self.blank = true,
                b'#' => self.alternate = true,
                b'0' => self.zero = true,
                _ => break,
            }
            *i += 1;
        }
        if let Some(w) = number(f, i, arguments)? {
            self.left |= w < 0;
            self.width = (w.unsigned_abs() as usize).min(1 << 16);
        }
        if f.get(*i) == Some(&b'.') {
            *i += 1;
            self.precision = Some((number(f, i, arguments)?.unwrap_or(0).max(0) as usize).min(1 << 16));
        }
        Some(())
    }

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
