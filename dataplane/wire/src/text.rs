//! What one party calls itself and another one reads: names of programs, tenants, groups, nodes and GPUs.

/// Whether a character does something to the text around it in place of standing there, so that a log, a table or a
/// terminal shows something else than it was given: controls, ends of lines, and what turns the direction of what
/// follows (the explicit formatting characters of Unicode Standard Annex 9).
#[must_use]
pub fn acts(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') || turns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_call_things_stands_and_what_hides_it_does_not() {
        let named = ["trainer", "模型 7", "été", "مدرب", "a/b (c)", "👩‍🔬"];
        assert!(named.iter().all(|name| !name.chars().any(acts)));
        let hiding = ["\u{1b}[2J", "a\nb", "a\u{85}b", "exe\u{202e}gpj", "\u{2067}a", "a\u{200f}", "a\u{2028}b"];
        assert!(hiding.iter().all(|name| name.chars().any(acts)));
    }
}
