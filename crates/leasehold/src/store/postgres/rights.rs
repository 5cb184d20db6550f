//! The rights of a user that only locks, and the statements that an owner of the database runs for it.

/// The rights, as they stand between `GRANT` and `TO`: the privileges, and what they are on.
pub(super) const RIGHTS: [(&str, &str); 4] = [
    ("USAGE", "SCHEMA leasehold"),
    ("SELECT", "leasehold.version"),
    ("SELECT, INSERT, UPDATE, DELETE", "leasehold.heads"),
    ("SELECT, INSERT, UPDATE, DELETE", "leasehold.members"),
];

/// The tables and functions.
const SCHEMA: &str = include_str!("schema.sql");

/// The advisory lock under which the schema is made.
const SCHEMA_LOCK: i64 = 5_498_968_541_953_545_298;

/// The statements, in one transaction, that create the schema and grant a role the rights that locks need. They can be run
/// again.
pub(crate) fn setup(role: Option<&str>) -> String {
    let role = role.map(|role| format!("\"{}\"", role.replace('"', "\"\"")));
    let grants = role.iter().flat_map(|role| {
        let grant = move |(privileges, target): (&str, &str)| {
            format!("GRANT {privileges} ON {target} TO {role};\n")
        };
        RIGHTS.into_iter().map(grant)
    });
    let grants: String = grants.collect();
    // Whatever the default is: after the wait for another client, the row that it has written must be visible.
    format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED;\nSELECT pg_advisory_xact_lock({SCHEMA_LOCK});\n\n\
         {SCHEMA}\n{grants}COMMIT;\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_comment_of_the_schema_has_the_same_rights() {
        for (privileges, target) in RIGHTS {
            let on = target.trim_start_matches("SCHEMA ");
            let mut lines = SCHEMA.lines();
            let is_documented = |line: &str| {
                line.starts_with("--     GRANT") && line.contains(privileges) && line.contains(on)
            };
            assert!(lines.any(is_documented), "{target}");
        }
    }

    #[test]
    fn a_role_is_quoted() {
        let setup = setup(Some("a\"b"));
        assert!(setup.contains("\nGRANT USAGE ON SCHEMA leasehold TO \"a\"\"b\";\n"));
        assert!(setup.starts_with("BEGIN ") && setup.ends_with("COMMIT;\n"));
        assert!(!super::setup(None).contains("\nGRANT"));
    }
}
