//! As much JSON as a controller's answer is: one object of texts, numbers and yes or no.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::str::Chars;

/// Each value as text.
pub type Object = BTreeMap<String, String>;

/// Writes a text with its quotes.
pub fn quoted(text: &str) -> String {
    let mut out = "\"".to_owned();
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Nothing if it is anything else.
pub fn object(text: &str) -> Option<Object> {
    let mut rest = text.chars().peekable();
    let mut object = Object::new();
    next(&mut rest, '{')?;
    if next(&mut rest, '}').is_some() {
        return ended(rest, object);
    }
    loop {
        space(&mut rest);
        let key = string(&mut rest)?;
        next(&mut rest, ':')?;
        space(&mut rest);
        let value = match rest.peek()? {
            '"' => string(&mut rest)?,
            _ => word(&mut rest)?,
        };
        object.insert(key, value);
        if next(&mut rest, ',').is_none() {
            next(&mut rest, '}')?;
            return ended(rest, object);
        }
    }
}

type Rest<'a> = Peekable<Chars<'a>>;

fn ended(mut rest: Rest<'_>, object: Object) -> Option<Object> {
    space(&mut rest);
    rest.peek().is_none().then_some(object)
}

fn space(rest: &mut Rest<'_>) {
    while rest.next_if(|c| matches!(c, ' ' | '\t' | '\n' | '\r')).is_some() {}
}

fn next(rest: &mut Rest<'_>, wanted: char) -> Option<()> {
    space(rest);
    rest.next_if_eq(&wanted).map(drop)
}

/// A number, `true`, `false` or `null`.
fn word(rest: &mut Rest<'_>) -> Option<String> {
    let mut word = String::new();
    while let Some(c) = rest.next_if(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+')) {
        word.push(c);
    }
    // Rust knows numbers that JSON does not, and they are written with letters.
    let is_number = !word.contains(|c: char| c.is_ascii_alphabetic() && !matches!(c, 'e' | 'E'));
    let is_one = matches!(word.as_str(), "true" | "false" | "null") || is_number && word.parse::<f64>().is_ok();
    is_one.then_some(word)
}

fn string(rest: &mut Rest<'_>) -> Option<String> {
    rest.next_if_eq(&'"')?;
    let mut text = String::new();
    loop {
        match rest.next()? {
            '"' => return Some(text),
            '\\' => text.push(escaped(rest)?),
            c if c.is_control() => return None,
            c => text.push(c),
        }
    }
}

fn escaped(rest: &mut Rest<'_>) -> Option<char> {
    Some(match rest.next()? {
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'u' => match unit(rest)? {
            // Half of a character; the other half follows.
            high @ 0xd800..0xdc00 => {
                rest.next_if_eq(&'\\')?;
                rest.next_if_eq(&'u')?;
                let low = unit(rest).filter(|low| (0xdc00..0xe000).contains(low))?;
                char::from_u32(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00))?
            }
            unit => char::from_u32(unit)?,
        },
        c @ ('"' | '\\' | '/') => c,
        _ => return None,
    })
}

fn unit(rest: &mut Rest<'_>) -> Option<u32> {
    (0..4).try_fold(0, |number, _| Some(number << 4 | rest.next()?.to_digit(16)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_of_plain_values_is_read() {
        let text = "{ \"a\" : \"x\\\"\\n\\u00e9\\ud83d\\ude00/\", \"b\":-1.5e3,\n\"c\":true, \"d\": null }";
        let object = object(text).expect("an object");
        let values: Vec<&str> = object.values().map(String::as_str).collect();
        assert_eq!(values, ["x\"\né😀/", "-1.5e3", "true", "null"]);
        assert_eq!(super::object("{}"), Some(Object::new()));
    }

    #[test]
    fn what_is_quoted_comes_back() {
        for text in ["", "plain", "\"\\\n\t\u{1}", "größer 😀"] {
            let object = object(&format!("{{\"text\":{}}}", quoted(text))).expect("an object");
            assert_eq!(object["text"], text);
        }
    }

    #[test]
    fn nothing_else_is_an_object() {
        let whole = "{\"a\":\"b\",\"c\":1}";
        assert!(object(whole).is_some());
        assert!((0..whole.len()).all(|cut| object(&whole[..cut]).is_none()));
        for text in [
            "[]",
            "{\"a\":{}}",
            "{\"a\":[1]}",
            "{a:1}",
            "{\"a\":1}x",
            "{\"a\":nan}",
            "{\"a\":\"\\x\"}",
            "{\"a\":1,}",
            "{\"a\":\"\\ud800\"}",
            "{\"a\":\"\n\"}",
            "{\"a\":\"\\u00g0\"}",
        ] {
            assert!(object(text).is_none(), "{text}");
        }
    }
}
