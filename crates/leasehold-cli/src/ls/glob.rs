//! Patterns for names.

/// Whether a whole text matches a pattern, in which `*` stands for any text and `?` for one character.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let pattern: Vec<_> = pattern.chars().collect();
    let text: Vec<_> = text.chars().collect();
    let (mut at, mut matched) = (0, 0);
    // The part of the pattern behind the last star, and where the text that the star stands for may end.
    let mut star = None;
    while matched < text.len() {
        match pattern.get(at) {
            Some('*') => {
                at += 1;
                star = Some((at, matched));
            }
            Some(&c) if c == '?' || c == text[matched] => {
                at += 1;
                matched += 1;
            }
            _ => {
                let Some((behind, end)) = star else {
                    return false;
                };
                star = Some((behind, end + 1));
                (at, matched) = (behind, end + 1);
            }
        }
    }
    pattern[at..].iter().all(|c| *c == '*')
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
