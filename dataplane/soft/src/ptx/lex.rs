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
    /// What stands in the braces of a function or section and has not been read: bytes of the text, braces and all.
    Unread(usize, usize),
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

/// The tokens of a text, or of a part of one that begins in this line.
pub fn lex(text: &str, line: u32) -> Result<Vec<Token<'_>>, String> {
    let mut lexer = Lexer { text, at: 0, line };
    let mut out = Vec::with_capacity(text.len() / 4);
    while let Some(token) = lexer.next()? {
        out.push(token);
    }
    Ok(out)
}

/// The tokens outside of functions and sections; the inside of each is one that says where it is.
pub fn outline(text: &str) -> Result<Vec<Token<'_>>, String> {
    let mut lexer = Lexer { text, at: 0, line: 1 };
    let mut out = Vec::new();
    let mut has_inside = false;
    while let Some(mut token) = lexer.next()? {
        match token.tok {
            Tok::Word(".entry" | ".func" | ".section") => has_inside = true,
            Tok::Punct(';') => has_inside = false,
            Tok::Punct('{') if std::mem::take(&mut has_inside) => {
                let from = lexer.at - 1;
                lexer.skip_inside()?;
                token.tok = Tok::Unread(from, lexer.at);
            }
            _ => {}
        }
        out.push(token);
    }
    Ok(out)
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: u32,
}

impl<'a> Lexer<'a> {
    fn next(&mut self) -> Result<Option<Token<'a>>, String> {
        self.skip_blank();
        let s = self.text.as_bytes();
        let Some(&c) = s.get(self.at) else { return Ok(None) };
        let start = self.at;
        let tok = if c == b'"' {
            self.at = memchr::memchr(b'"', &s[start + 1..]).map_or(s.len(), |n| start + 1 + n);
            let inside = &self.text[start + 1..self.at];
            self.count_lines(start, self.at);
            self.at += 1;
            Tok::Str(inside)
        } else if c.is_ascii_digit() {
            let (tok, next) = number(s, start).map_err(|e| format!("line {}: {e}", self.line))?;
            self.at = next;
            tok
        } else if word_start(c) {
            self.at = word_end(s, start);
            Tok::Word(&self.text[start..self.at])
        } else if c.is_ascii_punctuation() {
            self.at += 1;
            Tok::Punct(char::from(c))
        } else {
            return Err(format!("line {}: unexpected byte 0x{c:02x}", self.line));
        };
        Ok(Some(Token { tok, line: self.line }))
    }

    /// What stands between tokens.
    fn skip_blank(&mut self) {
        let s = self.text.as_bytes();
        while let Some(&c) = s.get(self.at) {
            let start = self.at;
            if c.is_ascii_whitespace() || c == 0 {
                self.at += 1;
                self.line += u32::from(c == b'\n');
            } else if let Some(end) = comment_end(s, start) {
                self.at = end;
                self.count_lines(start, end.min(s.len()));
            } else {
                return;
            }
        }
    }

    /// From behind an opening brace to behind the one that closes it.
    fn skip_inside(&mut self) -> Result<(), String> {
        let s = self.text.as_bytes();
        let (start, mut depth) = (self.at, 1);
        while depth > 0 {
            let rest = s.get(self.at..).unwrap_or_default();
            let Some(n) = rest.iter().position(|c| matches!(c, b'{' | b'}' | b'"' | b'/')) else {
                return Err(format!("line {}: unexpected end of text", self.line));
            };
            self.at += n;
            match s[self.at] {
                b'{' => depth += 1,
                b'}' => depth -= 1,
                b'"' => self.at += 1 + memchr::memchr(b'"', &s[self.at + 1..]).unwrap_or(s.len()),
                _ => self.at = comment_end(s, self.at).map_or(self.at, |end| end - 1),
            }
            self.at += 1;
        }
        self.count_lines(start, self.at);
        Ok(())
    }

    fn count_lines(&mut self, from: usize, to: usize) {
        self.line += memchr::memchr_iter(b'\n', &self.text.as_bytes()[from..to]).count() as u32;
    }
}

/// Where a comment ends, if one begins there. Of one of a line that is before the line's end.
fn comment_end(s: &[u8], at: usize) -> Option<usize> {
    let inside = s.get(at + 2..)?;
    match (s[at], s[at + 1]) {
        (b'/', b'/') => Some(memchr::memchr(b'\n', inside).map_or(s.len(), |n| at + 2 + n)),
        (b'/', b'*') => Some(memchr::memmem::find(inside, b"*/").map_or(s.len(), |n| at + 4 + n)),
        _ => None,
    }
}

fn word_end(s: &[u8], start: usize) -> usize {
    let mut i = start;
    while i < s.len() {
        if s[i] == b'.' && s[start] == b'.' && i > start {
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
    i
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outline_is_of_what_is_outside_of_functions() {
        let text = ".global .u32 g[2] = {1, 2};\n.func f(.param .u32 p);\n.entry k() .maxntid 32\n\
                    { { /* } */ } \"}\"\n// }\n}\n.section .debug { .b8 1\n}\n.entry l() {}";
        let tokens = outline(text).expect("it ends");
        let unread = tokens.iter().filter_map(|t| match t.tok {
            Tok::Unread(from, to) => Some((&text[from..to], t.line)),
            _ => None,
        });
        let inside = [("{ { /* } */ } \"}\"\n// }\n}", 4), ("{ .b8 1\n}", 7), ("{}", 9)];
        assert_eq!(unread.collect::<Vec<_>>(), inside);
        assert_eq!(tokens.iter().filter(|t| t.tok == Tok::Punct('{')).count(), 1);
        assert_eq!(tokens.last().map(|t| t.line), Some(9));
    }

    #[test]
    fn a_function_without_its_end_is_told_with_its_line() {
        for text in
            [".entry k()\n{ ret;", ".entry k()\n{ // }", ".entry k()\n{ \"}", ".entry k()\n{ /* }", ".entry k()\n{ /"]
        {
            assert_eq!(outline(text).err().as_deref(), Some("line 2: unexpected end of text"), "{text}");
        }
    }
}
