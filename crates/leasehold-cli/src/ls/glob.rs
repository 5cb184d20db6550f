//! Patterns for names.

use std::iter;

/// Whether a whole text matches a pattern, in which `*` stands for any text and `?` for one character.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let text: Vec<_> = text.chars().collect();
    // Whether the pattern so far matches the first characters of the text, by their number.
    let mut matched = vec![false; text.len() + 1];
    matched[0] = true;
    for c in pattern.chars() {
        if c == '*' {
            let shortest = matched.iter().position(|it| *it);
            matched[shortest.unwrap_or(text.len() + 1)..].fill(true);
        } else {
            let before = matched.iter().zip(&text);
            let after = before.map(|(matched, next)| *matched && (c == '?' || c == *next));
            matched = iter::once(false).chain(after).collect();
        }
    }
    matched[text.len()]
}

/// Whether a pattern can match more than one text.
pub(super) fn is_pattern(pattern: &str) -> bool {
    pattern.contains(['*', '?'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_the_whole_text() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("deploy", "deploy", true),
            ("deploy", "deploy/web", false),
            ("deploy*", "deploy", true),
            ("deploy/*", "deploy/web/1", true),
            ("*web*", "deploy/web/1", true),
            ("*web", "deploy/web/1", false),
            ("*/1", "a/1/1", true),
            ("*ab*ab", "abab", true),
            ("*ab*ab", "ab", false),
            ("a?c", "a\u{e9}c", true),
            ("a?c", "ac", false),
            ("?", "", false),
            ("**", "", true),
            ("[a]", "a", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern:?} {text:?}");
        }
    }

    #[test]
    fn many_stars_take_no_more_than_quadratic_time() {
        let (pattern, text) = (format!("{}b", "a*".repeat(200)), "a".repeat(512));
        assert!(!matches(&pattern, &text));
    }
}
