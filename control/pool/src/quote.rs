//! What somebody else has written, in our messages.

/// No more of it than says what it is.
const CHARACTERS_MAX: usize = 64;

/// With quotes, and cut if it is long.
pub fn quoted(text: &str) -> String {
    match text.char_indices().nth(CHARACTERS_MAX) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}… ({} bytes)", &text[..end], text.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_where_a_character_ends() {
        assert_eq!(quoted("a\nb"), "\"a\\nb\"");
        let long = quoted(&"ä".repeat(1 << 20));
        assert!(long.len() < 200 && long.ends_with("ä\"… (2097152 bytes)"), "{long}");
    }
}
