//! Splits PTX text into tokens.
//!
//! Dots belong to words (`ld.param.u64`, `%tid.x`), because PTX never uses a dot as an operator; the parser splits
//! opcodes itself.

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tok<'a> {
    Word(&'a str),
    Int(u64),
    F32(u32),
    F64(u64),
    Str(&'a str),
    Punct(char),
}

#[derive(Clone, Copy, Debug)]
pub struct Token<'a> {
    pub tok: Tok<'a>,
    pub line: u32,
}

fn word_start(c: u8) -> bool {
    c.is_ascii_alphabetic() || matches!(c, b'_' | b'$' | b'%' | b'.')
}

fn word_next(c: u8) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, b'_' | b'$' | b'%' | b'.')
}

pub fn lex(text: &str) -> Result<Vec<Token<'_>>, String> {
    let s = text.as_bytes();
    let mut out = Vec::with_capacity(s.len() / 4);
    let (mut i, mut line) = (0usize, 1u32);
    while i < s.len() {
        let c = s[i];
        if c == b'\n' {
            line += 1;
            i += 1;
        } else if c.is_ascii_whitespace() || c == 0 {
            i += 1;
        } else if c == b'/' && s.get(i + 1) == Some(&b'/') {
            while i < s.len() && s[i] != b'\n' {
                i += 1;
            }
        } else if c == b'/' && s.get(i + 1) == Some(&b'*') {
            i += 2;
            while i < s.len() && !(s[i] == b'*' && s.get(i + 1) == Some(&b'/')) {
                line += u32::from(s[i] == b'\n');
                i += 1;
            }
            i += 2;
        } else if c == b'"' {
            let start = i + 1;
            i = start;
            while i < s.len() && s[i] != b'"' {
                line += u32::from(s[i] == b'\n');
                i += 1;
            }
            out.push(Token { tok: Tok::Str(&text[start..i.min(s.len())]), line });
            i += 1;
        } else if c.is_ascii_digit() {
            let (tok, next) = number(s, i).map_err(|e| format!("line {line}: {e}"))?;
            out.push(Token { tok, line });
            i = next;
        } else if word_start(c) {
            let start = i;
            while i < s.len() {
                if s[i] == b'.' && c == b'.' && i > start {
                    // `.reg.b16` is two directives.
                    break;
                } else if word_next(s[i]) {
                    i += 1;
                } else if s[i] == b':' && s.get(i + 1) == Some(&b':') {
                    i += 2;
                } else {
                    break;
                }
            }
            out.push(Token { tok: Tok::Word(&text[start..i]), line });
        } else if c.is_ascii_punctuation() {
            out.push(Token { tok: Tok::Punct(char::from(c)), line });
            i += 1;
        } else {
            return Err(format!("line {line}: unexpected byte 0x{c:02x}"));
        }
    }
    Ok(out)
}

fn number(s: &[u8], i: usize) -> Result<(Tok<'static>, usize), String> {
    let hex = |from: usize, want: usize| -> Option<(u64, usize)> {
        let mut end = from;
        while end < s.len() && s[end].is_ascii_hexdigit() && end - from < want {
            end += 1;
        }
        let text = std::str::from_utf8(&s[from..end]).ok()?;
        Some((u64::from_str_radix(text, 16).ok()?, end))
    };
    let bad = || "malformed number".to_string();
    if s[i] == b'0' && i + 1 < s.len() {
        match s[i + 1] {
            b'f' | b'F' => {
                let (v, end) = hex(i + 2, 8).ok_or_else(bad)?;
                return Ok((Tok::F32(v as u32), end));
            }
            b'd' | b'D' => {
                let (v, end) = hex(i + 2, 16).ok_or_else(bad)?;
                return Ok((Tok::F64(v), end));
            }
            b'x' | b'X' => {
                let (v, end) = hex(i + 2, 16).ok_or_else(bad)?;
                return Ok((Tok::Int(v), skip_u(s, end)));
            }
            b'b' | b'B' => {
                let mut end = i + 2;
                let mut v = 0u64;
                while end < s.len() && matches!(s[end], b'0' | b'1') {
                    v = (v << 1) | u64::from(s[end] - b'0');
                    end += 1;
                }
                return Ok((Tok::Int(v), skip_u(s, end)));
            }
            _ => {}
        }
    }
    let mut end = i;
    let mut float = false;
    while end < s.len() {
        let c = s[end];
        if c.is_ascii_digit() {
            end += 1;
        } else if c == b'.' && s.get(end + 1).is_some_and(|d| d.is_ascii_digit()) {
            float = true;
            end += 1;
        } else if matches!(c, b'e' | b'E') && float {
            end += 1;
            if matches!(s.get(end), Some(b'+' | b'-')) {
                end += 1;
            }
        } else {
            break;
        }
    }
    let text = std::str::from_utf8(&s[i..end]).map_err(|_| bad())?;
    if float {
        let v: f64 = text.parse().map_err(|_| bad())?;
        return Ok((Tok::F64(v.to_bits()), end));
    }
    let v = if text.len() > 1 && text.starts_with('0') {
        u64::from_str_radix(&text[1..], 8).map_err(|_| bad())?
    } else {
        text.parse::<u64>().map_err(|_| bad())?
    };
    Ok((Tok::Int(v), skip_u(s, end)))
}

fn skip_u(s: &[u8], end: usize) -> usize {
    if matches!(s.get(end), Some(b'U' | b'u')) { end + 1 } else { end }
}
