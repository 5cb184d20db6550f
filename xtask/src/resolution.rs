//! Resolution of the library beside other crates that link SQLite.
//!
//! Cargo allows one package with `links = "sqlite3"` in a program. The table in the documentation of the library states
//! beside which dependencies it resolves; here cargo resolves each row.

use std::fs;
use std::path::{Path, PathBuf};

use crate::registry::{self, CargoOutcome};
use crate::steps::Completion;
use crate::tools::{cargo, root, target};

/// The file with the table.
const TABLE_IN: &str = "crates/leasehold/src/lib.rs";

/// The heading above it.
const HEADING: &str = "//! # Beside other crates that link SQLite";

/// Cargo's words for a second package that links SQLite.
const CONFLICT: &str = "links to the native library `sqlite3`";

/// The oldest rusqlite of the range in `Cargo.toml`.
const OLDEST_RUSQLITE: &str = "0.32";

/// A row of the table.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    /// A line of a manifest.
    dependency: String,
    /// Whether the library resolves beside it with its default features.
    default: bool,
    /// The same with `sqlite`.
    sqlite: bool,
}

/// Checks every row: where it states so, the library resolves, and elsewhere it does not.
pub(crate) fn check() -> Result<Completion, String> {
    let text = fs::read_to_string(root().join(TABLE_IN)).map_err(|error| error.to_string())?;
    let probe = Probe::new()?;
    let (mut skipped, mut reason) = (Vec::new(), String::new());
    for row in rows(&text)? {
        for (feature, stated) in [("tls", row.default), ("sqlite", row.sqlite)] {
            let case = format!("leasehold with {feature} beside {}", row.dependency);
            match probe.resolve(feature, &row.dependency)? {
                Resolution::Resolved(versions) if stated => println!("{case}: {versions}"),
                Resolution::Conflict if !stated => println!("{case}: a conflict, as stated"),
                Resolution::Resolved(_) => {
                    return Err(format!(
                        "{TABLE_IN}: {case} resolves, and the table denies it"
                    ));
                }
                Resolution::Conflict => return Err(format!("{TABLE_IN}: {case} has a conflict")),
                Resolution::Unknown(cause) => {
                    println!("{case}: NOT CHECKED");
                    skipped.push(case);
                    reason = cause;
                }
            }
        }
    }
    Ok(completion(
        skipped.len(),
        "resolutions were not checked",
        &reason,
    ))
}

/// Checks that the library compiles with the oldest rusqlite that it allows. All other steps use the newest.
pub(crate) fn check_oldest() -> Result<Completion, String> {
    let probe = Probe::new()?;
    probe.write("sqlite", &format!("rusqlite = \"~{OLDEST_RUSQLITE}\""))?;
    let mut check = probe.cargo("check");
    check.arg("--target-dir").arg(probe.0.join("target"));
    // Nothing is linked, so SQLite need not be compiled.
    check.env("CC", "true").env("AR", "true");
    for offline in [false, true] {
        if offline {
            check.arg("--offline");
        }
        match registry::run(&mut check)? {
            CargoOutcome::Success => return Ok(Completion::Full),
            CargoOutcome::Failure(message) if !offline => return Err(message),
            CargoOutcome::Failure(_) | CargoOutcome::Unreachable(_) => {}
        }
    }
    let reason = "the registry is unreachable, and rusqlite or a dependency is not in the cache";
    Ok(completion(1, "compilation was not checked", reason))
}

fn completion(skipped: usize, what: &str, reason: &str) -> Completion {
    match skipped {
        0 => Completion::Full,
        count => Completion::Partial(format!("{count} {what}: {reason}")),
    }
}

/// Reads the rows of the table.
fn rows(text: &str) -> Result<Vec<Row>, String> {
    let (_, section) = text.split_once(HEADING).unwrap_or_default();
    let (section, _) = section.split_once("\n//! # ").unwrap_or((section, ""));
    let lines = section
        .lines()
        .filter_map(|line| line.strip_prefix("//! | `"));
    let rows: Vec<_> = lines.map(row).collect::<Result<_, _>>()?;
    match rows.is_empty() {
        true => Err(format!("{TABLE_IN} has no table under {HEADING}")),
        false => Ok(rows),
    }
}

fn row(line: &str) -> Result<Row, String> {
    let cell = |text: &str| match text.trim() {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    };
    let read = || {
        let (dependency, cells) = line.split_once('`')?;
        let mut cells = cells.split('|').skip(1);
        Some(Row {
            dependency: dependency.to_owned(),
            default: cell(cells.next()?)?,
            sqlite: cell(cells.next()?)?,
        })
    };
    read().ok_or_else(|| format!("{TABLE_IN}: not `dependency`, yes or no, yes or no: {line}"))
}

/// How a resolution ended.
#[derive(Debug)]
enum Resolution {
    /// With these versions of the crates for SQLite.
    Resolved(String),
    /// Two packages would link SQLite.
    Conflict,
    /// Cargo cannot decide it here, for this reason.
    Unknown(String),
}

/// A package that depends on the library and on another crate. Nothing runs it.
#[derive(Debug)]
struct Probe(PathBuf);

impl Probe {
    fn new() -> Result<Self, String> {
        let directory = target().join("resolution");
        let source = directory.join("src");
        fs::create_dir_all(&source)
            .and_then(|()| fs::write(source.join("lib.rs"), ""))
            .map_err(|error| format!("{}: {error}", directory.display()))?;
        Ok(Self(directory))
    }

    /// Writes its manifest, and removes its lock file.
    fn write(&self, feature: &str, dependency: &str) -> Result<(), String> {
        let manifest = manifest(&root().join("crates/leasehold"), feature, dependency);
        let lock = self.0.join("Cargo.lock");
        if lock.exists() {
            fs::remove_file(&lock).map_err(|error| error.to_string())?;
        }
        fs::write(self.0.join("Cargo.toml"), manifest).map_err(|error| error.to_string())
    }

    fn cargo(&self, command: &str) -> std::process::Command {
        let mut cargo = cargo();
        cargo
            .args([command, "--quiet", "--manifest-path"])
            .arg(self.0.join("Cargo.toml"));
        cargo
    }

    fn resolve(&self, feature: &str, dependency: &str) -> Result<Resolution, String> {
        self.write(feature, dependency)?;
        let unreachable = match registry::run(&mut self.cargo("generate-lockfile"))? {
            CargoOutcome::Success => return self.versions(),
            CargoOutcome::Failure(message) if message.contains(CONFLICT) => {
                return Ok(Resolution::Conflict);
            }
            CargoOutcome::Failure(message) => return Err(message),
            CargoOutcome::Unreachable(reason) => reason,
        };
        // Without the registry only a success is a proof: a conflict may be due to versions that are not in the cache.
        match registry::run(self.cargo("generate-lockfile").arg("--offline"))? {
            CargoOutcome::Success => self.versions(),
            _ => Ok(Resolution::Unknown(unreachable)),
        }
    }

    /// The versions in the lock file.
    fn versions(&self) -> Result<Resolution, String> {
        let lock = fs::read_to_string(self.0.join("Cargo.lock"));
        let lock = lock.map_err(|error| error.to_string())?;
        Ok(Resolution::Resolved(versions(&lock)))
    }
}

fn manifest(library: &Path, feature: &str, dependency: &str) -> String {
    format!(
        "[package]\nname = \"resolution\"\nedition = \"2024\"\npublish = false\n\n[workspace]\n\n[dependencies]\n\
         leasehold = {{ path = {library:?}, features = [{feature:?}] }}\n{dependency}\n"
    )
}

fn versions(lock: &str) -> String {
    let packages = lock.split("[[package]]\n").skip(1);
    let of_sqlite = packages.filter_map(|package| {
        let mut lines = package.lines();
        let name = lines.next()?.strip_prefix("name = \"")?.strip_suffix('"')?;
        let version = lines.next()?.strip_prefix("version = \"")?;
        let version = version.strip_suffix('"')?;
        ["rusqlite", "libsqlite3-sys"]
            .contains(&name)
            .then(|| format!("{name} {version}"))
    });
    match of_sqlite.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "without SQLite".to_owned(),
        some => some,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read_and_a_row_without_yes_or_no_is_refused() {
        let table =
            format!("{HEADING}\n//!\n//! | dependency | default | `sqlite` |\n//! |---|---|---|\n");
        let row = "//! | `sqlx = \"0.9\"` | yes | no |\n";
        let expected = Row {
            dependency: "sqlx = \"0.9\"".into(),
            default: true,
            sqlite: false,
        };
        assert_eq!(
            rows(&format!("{table}{row}//! # Next\n//! | `x` |\n")),
            Ok(vec![expected])
        );
        assert!(rows(&table).is_err());
        assert!(rows(&format!("{table}//! | `x = \"1\"` | yes | maybe |\n")).is_err());
    }

    #[test]
    fn the_versions_of_a_lock_file_are_read() {
        let package = |name: &str| format!("[[package]]\nname = \"{name}\"\nversion = \"1.2\"\n");
        assert_eq!(versions(&package("tokio")), "without SQLite");
        let lock = package("libsqlite3-sys") + &package("rusqlite");
        assert_eq!(versions(&lock), "libsqlite3-sys 1.2, rusqlite 1.2");
    }

    #[test]
    fn the_oldest_rusqlite_is_that_of_the_range() {
        let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
        assert!(manifest.contains(&format!("rusqlite = {{ version = \">={OLDEST_RUSQLITE}, ")));
    }
}
