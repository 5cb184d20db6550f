//! Lengths of functions, by the indentation that rustfmt gives them.

/// The functions with more than `lines_max` lines between their braces.
pub(super) fn longer_than(text: &str, lines_max: usize) -> Vec<String> {
    let lines: Vec<_> = text.lines().collect();
    let mut long = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = name(line.trim_start()) else {
            continue;
        };
        let indent = &line[..line.len() - line.trim_start().len()];
        let Some(open) = (at..lines.len()).find(|at| ends_head(lines[*at])) else {
            continue;
        };
        let close = format!("{indent}}}");
        let body = lines[open..].iter().position(|line| *line == close);
        if let (true, Some(body)) = (lines[open].ends_with('{'), body)
            && body - 1 > lines_max
        {
            let line = at + 1;
            long.push(format!("line {line}: {name} has {} lines", body - 1));
        }
    }
    long
}

/// Whether a line ends the head of a function: by its body, on one line or on more, or without one.
fn ends_head(line: &str) -> bool {
    line.ends_with(['{', '}', ';'])
}

/// The name of the function that begins with a line.
fn name(line: &str) -> Option<&str> {
    let mut rest = line;
    loop {
        if let Some(after) = rest.strip_prefix("fn ") {
            return after.split(['(', '<']).next();
        }
        let (word, after) = rest.split_once(' ')?;
        let modifier = ["const", "async", "unsafe", "extern", "\"C\"", "pub"].contains(&word)
            || word.starts_with("pub(");
        rest = modifier.then_some(after)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_lines_between_the_braces_count() {
        let text = "\
impl A {
    pub(crate) const fn one(
        self,
    ) -> u8 {
        if true {
        }
        3
    }

    fn empty() {}
    fn none();
}
";
        assert_eq!(longer_than(text, 2), ["line 2: one has 3 lines"]);
        assert!(longer_than(text, 3).is_empty());
    }

    #[test]
    fn a_function_is_known_by_its_head() {
        assert_eq!(name("pub(super) async fn b<T>(t: T)"), Some("b"));
        assert_eq!(name("let f = fn x()"), None);
        assert_eq!(name("// the fn x()"), None);
    }
}
