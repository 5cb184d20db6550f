//! Rules for documents.

use std::path::Path;

/// A document has one title, in its first line, and its links lead to existing files.
pub(super) fn faults(path: &Path, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let prose = prose(text);
    let titles = prose.iter().filter(|(_, line)| line.starts_with("# "));
    match titles.clone().count() {
        1 if text.starts_with("# ") => {}
        1 => faults.push("its title is not its first line".into()),
        count => faults.push(format!("{count} titles, not one")),
    }
    let directory = path.parent().unwrap_or(path);
    for (at, line) in prose {
        for target in links(line) {
            let (file, _) = target.split_once('#').unwrap_or((target, ""));
            let is_url = file.contains("://") || file.starts_with("mailto:");
            if !is_url && !directory.join(file).exists() {
                faults.push(format!(
                    "line {at}: a link leads to {target}, which does not exist"
                ));
            }
        }
    }
    faults
}

/// The lines outside code blocks, with their numbers.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut code = false;
    let mut prose = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            code = !code;
        } else if !code {
            prose.push((at + 1, line));
        }
    }
    prose
}

/// The targets of the links in a line.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let starts = line.split("](").skip(1);
    starts.filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> usize {
        faults(
            Path::new(env!("CARGO_MANIFEST_DIR")).join("a.md").as_path(),
            text,
        )
        .len()
    }

    #[test]
    fn a_document_has_one_title() {
        assert_eq!(count("# One\n\n## Two\n\n```sh\n# comment\n```\n"), 0);
        assert_eq!(count("# One\n# Two\n"), 1);
        assert_eq!(count("One\n"), 1);
        assert_eq!(count("\n# One\n"), 1);
    }

    #[test]
    fn links_lead_to_files() {
        assert_eq!(
            count("# One\n[x](Cargo.toml#a), [y](https://a/b), [z](#one)\n"),
            0
        );
        assert_eq!(count("# One\n[x](missing.md)\n"), 1);
    }
}
