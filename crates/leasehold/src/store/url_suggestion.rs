//! The URL that a user may have meant by a text that names no store.

/// The schemes that a typo is compared with, as they stand before an address.
const SCHEMES: &str = "sqlite: postgres:// etcd:// etcds:// zookeeper:// zookeepers:// redis:// rediss:// \
                       redis+unix: redis+sentinel:// redis+cluster:// redlock:// redlocks:// memory:";

/// Schemes of other programs for the same servers and files.
const SYNONYMS: [(&str, &str); 16] = [
    ("file", "sqlite"),
    ("sqlite3", "sqlite"),
    ("postgresql", "postgres"),
    ("pgsql", "postgres"),
    ("psql", "postgres"),
    ("pg", "postgres"),
    ("zk", "zookeeper"),
    ("tcp", "redis"),
    ("valkey", "redis"),
    ("valkeys", "rediss"),
    ("unix", "redis+unix"),
    ("redis-socket", "redis+unix"),
    ("redis-sentinel", "redis+sentinel"),
    ("sentinel", "redis+sentinel"),
    ("redis-cluster", "redis+cluster"),
    ("cluster", "redis+cluster"),
];

/// How many letters of a scheme may be wrong.
const TYPOS_MAX: usize = 2;

/// The URL that a user may have meant. Quotes the text only if it can contain no password.
pub(super) fn suggest(text: &str) -> Option<String> {
    if text.starts_with(['/', '.']) || is_database_file(text) {
        return Some(format!("sqlite:{text}"));
    }
    if is_server(text) {
        return Some(format!("redis://{text}"));
    }
    let (scheme, rest) = text.split_once(':')?;
    let scheme = similar_scheme(scheme)?;
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    let rest = if is_public(rest) { rest } else { "" };
    Some(format!("{scheme}{rest}"))
}

/// The scheme of a store that was misspelt, or that another program writes in another way.
fn similar_scheme(text: &str) -> Option<&'static str> {
    let text = text.to_lowercase();
    let synonym = SYNONYMS.iter().find(|(other, _)| *other == text);
    let text = synonym.map_or(text.as_str(), |(_, scheme)| scheme);
    let typos = |scheme: &str| distance(text, scheme.trim_end_matches([':', '/']));
    let schemes = SCHEMES.split(' ').map(|scheme| (typos(scheme), scheme));
    let (typos, scheme) = schemes.min_by_key(|(typos, _)| *typos)?;
    (typos <= TYPOS_MAX).then_some(scheme)
}

/// How many letters must be inserted, removed, replaced or swapped with the next one to turn one text into another.
#[must_use]
pub fn distance(from: &str, to: &str) -> usize {
    let (from, to) = (from.as_bytes(), to.as_bytes());
    let mut rows = vec![(0..=to.len()).collect::<Vec<_>>()];
    for at in 1..=from.len() {
        let mut row = vec![at];
        for column in 1..=to.len() {
            let above = &rows[at - 1];
            let replaced = above[column - 1] + usize::from(from[at - 1] != to[column - 1]);
            let mut edits = replaced.min(above[column] + 1).min(row[column - 1] + 1);
            let is_swap =
                at > 1 && column > 1 && from[at - 2..at] == [to[column - 1], to[column - 2]];
            if is_swap {
                edits = edits.min(rows[at - 2][column - 2] + 1);
            }
            row.push(edits);
        }
        rows.push(row);
    }
    rows[from.len()][to.len()]
}

/// Whether a text is a host, which is recognized by a dot or by its port, with or without a database.
fn is_server(text: &str) -> bool {
    let (server, db) = text.split_once('/').unwrap_or((text, "0"));
    let (host, port) = server.rsplit_once(':').unwrap_or((server, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_host = !host.is_empty()
        && host.split('.').all(|label| {
            let mut bytes = label.bytes();
            !label.is_empty() && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        });
    let is_recognized = host == "localhost" || host.contains('.') || !port.is_empty();
    is_host && is_recognized && is_number(port) && is_number(db)
}

fn is_database_file(text: &str) -> bool {
    let has_ending = |ending| text.len() > 1 && text.ends_with(ending);
    [".db", ".sqlite", ".sqlite3"].into_iter().any(has_ending) && is_public(text)
}

/// Whether a text has only characters of servers, paths and database numbers. Credentials need an `@`.
pub(super) fn is_public(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.all(|byte| byte.is_ascii_alphanumeric() || b".-_:[],/".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_url_has_a_suggestion() {
        for (text, url) in [
            ("reds://127.0.0.1:7400", "redis://127.0.0.1:7400"),
            ("rdeis+clusetr://a", "redis+cluster://a"),
            ("Redis://h/0", "redis://h/0"),
            ("redis-sentinel://a,b/m", "redis+sentinel://a,b/m"),
            ("reddlock://a,b,c", "redlock://a,b,c"),
            ("valkey://h", "redis://h"),
            ("postgre://h/d", "postgres://h/d"),
            ("pg://h/d", "postgres://h/d"),
            ("unix:/run/redis.sock", "redis+unix:/run/redis.sock"),
            ("127.0.0.1:6379", "redis://127.0.0.1:6379"),
            ("cache:6379/2", "redis://cache:6379/2"),
            ("reds:6379", "redis://reds:6379"),
            ("localhost", "redis://localhost"),
            ("redis.example.org", "redis://redis.example.org"),
            ("/var/lib/locks", "sqlite:/var/lib/locks"),
            ("./a b", "sqlite:./a b"),
            ("locks.db", "sqlite:locks.db"),
            ("sqlite3:///srv/x", "sqlite:/srv/x"),
        ] {
            assert_eq!(suggest(text).as_deref(), Some(url), "{text}");
        }
        for text in ["", "nonsense", "http://h", "a:b", "h:1:2"] {
            assert_eq!(suggest(text), None, "{text}");
        }
    }

    #[test]
    fn no_suggestion_quotes_a_password() {
        for text in [
            "reds://:s3cret@h",
            "reds://u:s3cret/@h",
            "u:s3cret@h:6379",
            "u:s3cret",
            "s3cret@h.example.org",
            "reds://h?password=s3cret",
            "pg://u:s3cret@h/d",
        ] {
            let suggestion = suggest(text).unwrap_or_default();
            assert!(!suggestion.contains("s3cret"), "{text}: {suggestion}");
        }
    }
}
