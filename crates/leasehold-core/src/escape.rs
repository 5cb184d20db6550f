//! Escaping of free texts inside a line of words.

use std::borrow::Cow;
use std::fmt::Write as _;

/// How far a free text reaches. What would end it is written as the bytes of its UTF-8, such as `%20`, and so is `%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// It is one word: white space and control characters are escaped.
    Word,
    /// It is the rest of a line: control characters are escaped.
    Line,
}

impl Extent {
    /// Appends a text to a line.
    pub fn escape(self, text: &str, line: &mut String) {
        let mut rest = text;
        while let Some(at) = rest.find(|c| self.is_escaped(c)) {
            let (plain, escaped) = rest.split_at(at);
            line.push_str(plain);
            let end = escaped.chars().next().map_or(0, char::len_utf8);
            for byte in &escaped.as_bytes()[..end] {
                // Writing to a string does not fail.
                let _ = write!(line, "%{byte:02X}");
            }
            rest = &escaped[end..];
        }
        line.push_str(rest);
    }

    /// The text that [`Extent::escape`] has written in this form. Each text has one form.
    #[must_use]
    pub fn unescape(self, escaped: &str) -> Option<Cow<'_, str>> {
        let mut pieces = escaped.split('%');
        let first = pieces.next().unwrap_or_default();
        if first.len() == escaped.len() {
            return (!escaped.contains(|c| self.is_escaped(c))).then_some(Cow::Borrowed(escaped));
        }
        let mut bytes = first.as_bytes().to_vec();
        for piece in pieces {
            let (digits, rest) = piece.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            bytes.extend(rest.bytes());
        }
        let text = String::from_utf8(bytes).ok()?;
        let mut again = String::with_capacity(escaped.len());
        self.escape(&text, &mut again);
        (again == escaped).then_some(Cow::Owned(text))
    }

    fn is_escaped(self, c: char) -> bool {
        match self {
            Self::Word => c == '%' || c.is_whitespace() || c.is_control(),
            Self::Line => c == '%' || c.is_control(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_would_end_a_text_is_escaped() {
        for (text, word, line) in [
            ("", "", ""),
            ("ci-7", "ci-7", "ci-7"),
            ("50 %\n", "50%20%25%0A", "50 %25%0A"),
            ("\u{2003}ü\u{85}", "%E2%80%83ü%C2%85", "\u{2003}ü%C2%85"),
        ] {
            for (extent, form) in [(Extent::Word, word), (Extent::Line, line)] {
                let mut escaped = String::new();
                extent.escape(text, &mut escaped);
                assert_eq!(escaped, form);
                assert_eq!(extent.unescape(form).as_deref(), Some(text));
            }
        }
    }

    #[test]
    fn a_text_has_one_form() {
        for escaped in ["%", "%2", "%0a", "%41", "%C2", "%+9", "\n", "%20\t", "%€"] {
            assert_eq!(Extent::Word.unescape(escaped), None, "{escaped:?}");
            assert_eq!(Extent::Line.unescape(escaped), None, "{escaped:?}");
        }
        assert_eq!(Extent::Word.unescape("a b"), None);
        assert_eq!(Extent::Line.unescape("a%20b"), None);
    }
}
