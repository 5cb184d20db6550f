//! Licence expressions, as manifests have them: `(MIT OR Apache-2.0) AND Unicode-3.0`.

/// Whether an expression is satisfied by licences that are allowed. An exception counts as part of
/// its licence: `Apache-2.0 WITH LLVM-exception` must be allowed as such, or `Apache-2.0` alone,
/// to which it only adds permissions. Old manifests write `MIT/Apache-2.0` for OR.
pub(crate) fn satisfied(
    expression: &str,
    allowed: &dyn Fn(&str) -> bool,
) -> Result<bool, &'static str> {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let mut parser = Parser {
        words: spaced.split_whitespace().collect(),
        next: 0,
        allowed,
    };
    let satisfied = parser.any()?;
    match parser.peek() {
        None => Ok(satisfied),
        Some(_) => Err("it goes on after its end"),
    }
}

struct Parser<'a> {
    words: Vec<&'a str>,
    next: usize,
    allowed: &'a dyn Fn(&str) -> bool,
}

impl<'a> Parser<'a> {
    fn any(&mut self) -> Result<bool, &'static str> {
        let mut satisfied = self.all()?;
        while self.take("OR") {
            satisfied |= self.all()?;
        }
        Ok(satisfied)
    }

    fn all(&mut self) -> Result<bool, &'static str> {
        let mut satisfied = self.one()?;
        while self.take("AND") {
            satisfied &= self.one()?;
        }
        Ok(satisfied)
    }

    fn one(&mut self) -> Result<bool, &'static str> {
        if self.take("(") {
            let satisfied = self.any()?;
            return match self.take(")") {
                true => Ok(satisfied),
                false => Err("a bracket is not closed"),
            };
        }
        let licence = self.word()?;
        let mut satisfied = (self.allowed)(licence);
        if self.take("WITH") {
            let exception = self.word()?;
            satisfied |= (self.allowed)(&format!("{licence} WITH {exception}"));
        }
        Ok(satisfied)
    }

    fn word(&mut self) -> Result<&'a str, &'static str> {
        match self.peek() {
            Some(word) if !["(", ")", "AND", "OR", "WITH"].contains(&word) => {
                self.next += 1;
                Ok(word)
            }
            _ => Err("a licence is missing"),
        }
    }

    fn take(&mut self, word: &str) -> bool {
        let found = self.peek() == Some(word);
        self.next += usize::from(found);
        found
    }

    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.next).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ok(expression: &str) -> Result<bool, &'static str> {
        satisfied(expression, &|licence| {
            ["MIT", "Unicode-3.0", "Zlib WITH x"].contains(&licence)
        })
    }

    #[test]
    fn and_binds_closer_than_or() {
        assert_eq!(ok("MIT"), Ok(true));
        assert_eq!(ok("GPL-3.0"), Ok(false));
        assert_eq!(ok("GPL-3.0 OR MIT"), Ok(true));
        assert_eq!(ok("GPL-3.0/MIT"), Ok(true));
        assert_eq!(ok("MIT AND GPL-3.0"), Ok(false));
        assert_eq!(ok("MIT OR GPL-3.0 AND GPL-2.0"), Ok(true));
        assert_eq!(ok("(MIT OR GPL-3.0) AND GPL-2.0"), Ok(false));
        assert_eq!(ok("(MIT OR GPL-3.0) AND Unicode-3.0"), Ok(true));
        assert_eq!(ok("MIT WITH x"), Ok(true));
        assert_eq!(ok("Zlib WITH x"), Ok(true));
        assert_eq!(ok("Zlib"), Ok(false));
    }

    #[test]
    fn what_is_no_expression_satisfies_nothing() {
        for text in ["", "MIT OR", "(MIT", "MIT)", "MIT MIT", "AND", "WITH x"] {
            assert!(ok(text).is_err(), "{text}");
        }
    }
}
