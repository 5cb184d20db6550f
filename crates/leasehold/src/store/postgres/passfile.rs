//! The password in the settings of the programs of PostgreSQL: `PGPASSWORD`, or the file that `PGPASSFILE` names, by default
//! `~/.pgpass`.

use std::env;
use std::fs;
use std::io::ErrorKind as IoErrorKind;
use std::path::{Path, PathBuf};

use crate::{Error, ErrorKind, Result, Secret};

/// The permissions of other users, with which libpq ignores the file.
const OTHERS: u32 = 0o077;

/// What a line of the file is compared with. The host of a Unix socket is `localhost`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'a> {
    pub(super) host: &'a str,
    pub(super) port: u16,
    pub(super) database: &'a str,
    pub(super) user: &'a str,
}

/// The password for a database. `None`: there is none.
///
/// # Errors
///
/// If the file cannot be read, or other users may read it.
pub(super) fn password(target: Target<'_>) -> Result<Option<Secret>> {
    let set = |variable| env::var_os(variable).filter(|value| !value.is_empty());
    if let Some(password) = set("PGPASSWORD") {
        let password = password
            .into_string()
            .map_err(|_| wrong("PGPASSWORD is not UTF-8"))?;
        return Ok(Some(password.into()));
    }
    let is_named = set("PGPASSFILE").map(PathBuf::from);
    let of_home = || Some(Path::new(&set("HOME")?).join(".pgpass"));
    match is_named.or_else(of_home) {
        Some(file) => in_file(&file, target),
        None => Ok(None),
    }
}

fn in_file(file: &Path, target: Target<'_>) -> Result<Option<Secret>> {
    use std::os::unix::fs::PermissionsExt as _;
    let path = file.display();
    let unreadable = |error: std::io::Error| {
        wrong(&format!("the password file {path} cannot be read")).with_source(error)
    };
    let meta = match fs::metadata(file) {
        Ok(meta) => meta,
        Err(error) if error.kind() == IoErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    if !meta.is_file() {
        return Ok(None);
    }
    if meta.permissions().mode() & OTHERS != 0 {
        let message =
            format!("other users may read the password file {path}; run `chmod 600 {path}`");
        return Err(wrong(&message));
    }
    let text = fs::read_to_string(file).map_err(unreadable)?;
    Ok(text.lines().find_map(|line| of_line(line, target)))
}

/// The password in a line, if the line is for this database.
fn of_line(line: &str, target: Target<'_>) -> Option<Secret> {
    if line.starts_with('#') {
        return None;
    }
    let (mut fields, mut field) = (Vec::new(), String::new());
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => field.extend(chars.next()),
            ':' if fields.len() < 4 => fields.push(std::mem::take(&mut field)),
            c => field.push(c),
        }
    }
    let port = target.port.to_string();
    let expected = [target.host, &port, target.database, target.user];
    let mut pairs = fields.iter().zip(expected);
    let is_match = fields.len() == 4 && pairs.all(|(field, it)| field == "*" || field == it);
    (is_match && !field.is_empty()).then(|| field.into())
}

fn wrong(message: &str) -> Error {
    Error::new(ErrorKind::InvalidConfig, message)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const TARGET: Target<'_> = Target {
        host: "db:1",
        port: 5432,
        database: "shop",
        user: "app",
    };

    #[test]
    fn the_first_line_for_the_database_counts() {
        for (line, password) in [
            (r"db\:1:5432:shop:app:s3cret", Some("s3cret")),
            (r"*:*:*:*:a\:b\\c:d", Some(r"a:b\c:d")),
            (r"*:*:*:app:", None),
            (r"*:*:*:other:s3cret", None),
            (r"*:6432:*:*:s3cret", None),
            (r"#*:*:*:*:s3cret", None),
            (r"*:*:*:s3cret", None),
            ("", None),
        ] {
            let found = of_line(line, TARGET);
            assert_eq!(found.as_ref().map(Secret::expose), password, "{line}");
        }
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("pgpass");
        assert_eq!(in_file(&file, TARGET).unwrap(), None);
        fs::write(&file, "*:*:*:other:no\n*:*:*:app:s3cret\n").unwrap();
        for (mode, is_refused) in [(0o644, true), (0o640, true), (0o600, false)] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            match in_file(&file, TARGET) {
                Ok(password) => assert_eq!(password.unwrap().expose(), "s3cret"),
                Err(error) => assert!(is_refused && !error.to_string().contains("s3cret")),
            }
        }
    }
}
