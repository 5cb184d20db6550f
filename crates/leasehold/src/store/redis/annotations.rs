//! The annotations of names: texts that holders keep beside the records of their locks.

use std::collections::BTreeSet;

use leasehold_core::annotation::ANNOTATION_BYTES_MAX;
use leasehold_core::{Annotation, Name, Slot, Token};
use redis::Value;

use super::connection_manager::ConnectionManager;
use super::errors;
use super::keys::{annotation_key, completion_pattern, parse_completion};
use super::reader::{READ_MAX, Reader, command, scan};
use crate::Result;
use crate::store::api::{Keyspace, View};

/// Parses an annotation. `None` if the value is not one of this library.
pub(super) fn parse(value: &Value) -> Option<Annotation> {
    let Value::BulkString(value) = value else {
        return None;
    };
    let mut parts = str::from_utf8(value).ok()?.splitn(4, ' ');
    let (lease, token) = (parts.next()?, parts.next()?);
    let (number, text) = (parts.next()?, parts.next()?);
    let first = token.parse().ok().and_then(Token::new)?;
    // A number has one spelling.
    let is_number = number.parse().is_ok_and(|it: u64| it.to_string() == number);
    let is_valid = is_number && first.to_string() == token && text.len() <= ANNOTATION_BYTES_MAX;
    is_valid.then_some(Annotation {
        lease: lease.parse().ok()?,
        token: first,
        text: text.into(),
    })
}

/// The completions of a keyspace on any of these servers, by name and kind.
pub(super) async fn completions(
    reader: &impl Reader,
    servers: Vec<&ConnectionManager>,
    space: &Keyspace,
) -> Result<Vec<View>> {
    let pattern = completion_pattern(space);
    let mut names = BTreeSet::<(Name, Slot)>::new();
    for server in servers {
        let add = |key: &[u8]| names.extend(parse_completion(space, key));
        scan(server, &pattern, add).await?;
    }
    let named = names
        .into_iter()
        .map(|(name, kind)| (space.key(name), kind));
    let named: Vec<_> = named.collect();
    let mut found = Vec::new();
    for part in named.chunks(READ_MAX) {
        let commands = part.iter();
        let commands =
            commands.map(|(key, kind)| command("GET", annotation_key(key, kind).to_string()));
        for ((key, kind), reply) in part.iter().zip(reader.fetch(commands.collect()).await?) {
            match &reply {
                Value::ServerError(error) if error.code() != "WRONGTYPE" => {
                    let name = annotation_key(key, kind).to_string();
                    let error = errors::command_error("GET", &name, error);
                    return Err(reader.name_error(error));
                }
                // One that has expired meanwhile, or a foreign value, is left out.
                reply => {
                    let Some(annotation) = parse(reply) else {
                        continue;
                    };
                    let mut view = View::of(key.clone());
                    view.annotations.push((kind.clone(), annotation));
                    found.push(view);
                }
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::api::fixture::lease;

    #[test]
    fn only_what_this_library_writes_is_an_annotation() {
        let parsed = |text: &str| parse(&Value::BulkString(text.as_bytes().to_vec()));
        let lease = lease(7);
        for text in [
            "",
            " ",
            "a b  c",
            "昼\n\0",
            &"t".repeat(ANNOTATION_BYTES_MAX),
        ] {
            let annotation = parsed(&format!("{lease} 17 0 {text}")).unwrap();
            assert_eq!((annotation.lease, annotation.token.get()), (lease, 17));
            assert_eq!(&*annotation.text, text);
        }
        let long = "t".repeat(ANNOTATION_BYTES_MAX + 1);
        for other in [
            String::new(),
            "text".to_owned(),
            format!("{lease}"),
            format!("{lease} 17 0"),
            format!("{lease} 17 x text"),
            format!("{lease} 17 01 text"),
            format!("{lease}  17 0 text"),
            format!(" {lease} 17 0 text"),
            format!("{lease} 0 0 text"),
            format!("{lease} 017 0 text"),
            format!("{lease} +17 0 text"),
            format!("{lease} 9007199254740992 0 text"),
            format!("{lease}x 17 0 text"),
            format!("{lease} 17 0 {long}"),
        ] {
            assert_eq!(parsed(&other), None, "{other}");
        }
        let invalid = [format!("{lease} 17 0 ").as_bytes(), b"\xff"].concat();
        assert_eq!(parse(&Value::BulkString(invalid)), None);
        assert_eq!(parse(&Value::Nil), None);
    }
}
