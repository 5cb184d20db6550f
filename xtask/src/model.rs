//! `cargo xtask model`: every state of the models, and the table of them in `docs/model.md`.

use std::fs;

use crate::tools::{cargo, root};

const DOCUMENT: &str = "docs/model.md";

/// The lines around the table.
const BEGIN: &str = "<!-- model: begin, written by cargo xtask model -->\n";
const END: &str = "<!-- model: end -->\n";

/// Explores the models with these options. The complete run replaces the table if every result has the expected
/// properties. The row of a new variant is first added by hand.
pub(crate) fn explore(args: &[String]) -> Result<(), String> {
    let package = ["run", "--quiet", "--release", "--package", "leasehold-sim"];
    let mut program = cargo();
    program
        .args(package)
        .args(["--locked", "--bin", "model", "--"]);
    let output = program.args(args).stderr(std::process::Stdio::inherit());
    let output = output.output().map_err(|error| error.to_string())?;
    let table = String::from_utf8_lossy(&output.stdout);
    print!("{table}");
    if !output.status.success() {
        return Err("a row did not come out as it must".into());
    }
    if args.iter().any(|arg| arg != "--traces") {
        return Ok(());
    }
    let path = root().join(DOCUMENT);
    let text = fs::read_to_string(&path).map_err(|error| format!("{DOCUMENT}: {error}"))?;
    let text = replaced(&text, &table).ok_or(format!("{DOCUMENT} has no place for the table"))?;
    fs::write(&path, text).map_err(|error| format!("{DOCUMENT}: {error}"))
}

/// The document with another table.
fn replaced(text: &str, table: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{table}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_a_place_for_it() {
        let text = fs::read_to_string(root().join(DOCUMENT)).unwrap();
        let new = replaced(&text, "new table").unwrap();
        let (before, _) = text.split_once(BEGIN).unwrap();
        let (_, after) = text.split_once(END).unwrap();
        let table = format!("{BEGIN}\nnew table\n{END}");
        assert_eq!(new, [before, &*table, after].concat());
    }
}
