//! Constant expressions: integers and C's operators between them, `~0x2` or `(N<<3)+4`.

use super::lex::{Tok, Token};

/// Operators of two operands and how strongly they bind, the longer of two that begin alike first.
const BINARY: [(&str, u8); 19] = [
    ("||", 1),
    ("&&", 2),
    ("==", 6),
    ("!=", 6),
    ("<=", 7),
    (">=", 7),
    ("<<", 8),
    (">>", 8),
    ("|", 3),
    ("^", 4),
    ("&", 5),
    ("<", 7),
    (">", 7),
    ("+", 9),
    ("-", 9),
    ("*", 10),
    ("/", 10),
    ("%", 10),
    ("?", 0),
];

/// Whether an expression begins there. A bracket alone does not begin one: that may be a list of arguments.
pub fn begins(tokens: &[Token], at: usize) -> bool {
    let is_sign = |t: &&Token| matches!(t.tok, Tok::Punct('-' | '+' | '~' | '!'));
    let signs = tokens.iter().skip(at).take_while(is_sign).count();
    match tok(tokens, at + signs) {
        Some(Tok::Int(_)) => true,
        Some(Tok::Punct('(')) => signs > 0,
        _ => false,
    }
}

/// The value of the expression that begins there; `at` comes to its end.
pub fn value(tokens: &[Token], at: &mut usize) -> Result<u64, String> {
    expression(tokens, at, 0)
}

fn tok<'a>(tokens: &[Token<'a>], at: usize) -> Option<Tok<'a>> {
    tokens.get(at).map(|t| t.tok)
}

/// Of operators that bind at least so strongly.
fn expression(tokens: &[Token], at: &mut usize, least: u8) -> Result<u64, String> {
    let mut left = part(tokens, at)?;
    while let Some((symbol, strength)) = BINARY.iter().find(|(s, _)| is(tokens, *at, s))
        && *strength >= least
    {
        *at += symbol.len();
        if *symbol == "?" {
            let yes = expression(tokens, at, 0)?;
            expect(tokens, at, ':')?;
            let no = expression(tokens, at, 0)?;
            return Ok(if left != 0 { yes } else { no });
        }
        let right = expression(tokens, at, strength + 1)?;
        left = binary(symbol, left, right)?;
    }
    Ok(left)
}

fn is(tokens: &[Token], at: usize, symbol: &str) -> bool {
    // A percent sign begins a name.
    symbol.chars().enumerate().all(|(i, c)| match tok(tokens, at + i) {
        Some(Tok::Punct(p)) => p == c,
        Some(Tok::Word("%")) => c == '%',
        _ => false,
    })
}

fn expect(tokens: &[Token], at: &mut usize, c: char) -> Result<(), String> {
    let found = tok(tokens, *at) == Some(Tok::Punct(c));
    *at += usize::from(found);
    if found { Ok(()) } else { Err(format!("expected '{c}' in a constant expression")) }
}

fn part(tokens: &[Token], at: &mut usize) -> Result<u64, String> {
    let here = tok(tokens, *at);
    *at += 1;
    match here {
        Some(Tok::Int(v)) => Ok(v),
        Some(Tok::Punct('+')) => part(tokens, at),
        Some(Tok::Punct('-')) => Ok(part(tokens, at)?.wrapping_neg()),
        Some(Tok::Punct('~')) => Ok(!part(tokens, at)?),
        Some(Tok::Punct('!')) => Ok(u64::from(part(tokens, at)? == 0)),
        Some(Tok::Punct('(')) => {
            let v = expression(tokens, at, 0)?;
            expect(tokens, at, ')')?;
            Ok(v)
        }
        _ => {
            *at -= 1;
            Err("expected an integer".into())
        }
    }
}

/// Integers are signed unless one is too large for that.
fn binary(symbol: &str, a: u64, b: u64) -> Result<u64, String> {
    let (x, y) = (a as i64, b as i64);
    Ok(match symbol {
        "||" => u64::from(a != 0 || b != 0),
        "&&" => u64::from(a != 0 && b != 0),
        "==" => u64::from(a == b),
        "!=" => u64::from(a != b),
        "<=" => u64::from(x <= y),
        ">=" => u64::from(x >= y),
        "<" => u64::from(x < y),
        ">" => u64::from(x > y),
        "<<" => a.checked_shl(b.min(64) as u32).unwrap_or(0),
        ">>" => (x >> b.min(63)) as u64,
        "|" => a | b,
        "^" => a ^ b,
        "&" => a & b,
        "+" => a.wrapping_add(b),
        "-" => a.wrapping_sub(b),
        "*" => a.wrapping_mul(b),
        "/" => x.checked_div(y).ok_or("a constant is divided by zero")? as u64,
        _ => x.checked_rem(y).ok_or("a constant is divided by zero")? as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::super::lex::lex;
    use super::*;

    fn evaluated(text: &str) -> Result<i64, String> {
        let tokens = lex(text, 1)?;
        let mut at = 0;
        let v = value(&tokens, &mut at)?;
        if at == tokens.len() { Ok(v as i64) } else { Err(format!("{:?} is left", tokens[at].tok)) }
    }

    #[test]
    fn constants_are_computed_as_in_c() {
        let cases = [
            ("~0x2", !2),
            ("-(3)", -3),
            ("1+2*3", 7),
            ("(1+2)*3", 9),
            ("10-4-3", 3),
            ("-7/2", -3),
            ("-7 % 4", -3),
            ("1<<4|1", 17),
            ("0xff00>>8&0x7f", 0x7f),
            ("2<3==1", 1),
            ("1?2:0?3:4", 2),
            ("!5||~0&&2>=2", 1),
            ("1<<64", 0),
            ("-16>>2", -4),
            ("3!=3^6", 6),
        ];
        for (text, want) in cases {
            assert_eq!(evaluated(text), Ok(want), "{text}");
        }
        for text in ["1/0", "5 % 0", "1+", "(1", "1?2"] {
            assert!(evaluated(text).is_err(), "{text}");
        }
    }
}
