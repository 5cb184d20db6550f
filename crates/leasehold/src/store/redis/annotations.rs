//! The annotations of names: texts that holders keep beside the records of their locks.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold_core::annotation::ANNOTATION_BYTES_MAX;
use leasehold_core::{Annotation, AnnotationKind, Loss, Name, Token};
use redis::{Cmd, RedisWrite as _, Value};

use super::codec;
use super::connection_manager::ConnectionManager;
use super::errors;
use super::keys::{annotation_key, completion_pattern, parse_completion, record_key};
use super::reader::{READ_MAX, Reader, command, scan};
use crate::Result;
use crate::store::api::{Key, Keyspace, View};

/// The script that stores an annotation.
pub(super) const ANNOTATE: &str = include_str!("scripts/annotate.lua");

/// The longest time for which an annotation is kept in ms: servers add it to their time in a number of 64 bits.
const KEEP_MAX: u128 = 1 << 53;

/// An annotation of a name, to be stored for a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Storing<'a> {
    pub(super) key: &'a Key,
    pub(super) kind: &'a AnnotationKind,
    pub(super) annotation: &'a Annotation,
    pub(super) keep: Duration,
}

/// A call of [`ANNOTATE`].
pub(super) fn encode(verb: &str, script: &str, storing: &Storing<'_>) -> Cmd {
    let Storing {
        key,
        kind,
        annotation: Annotation { lease, token, text },
        keep,
    } = storing;
    let mut cmd = Cmd::new();
    cmd.arg(verb).arg(script).arg(2);
    cmd.write_arg_fmt(record_key(key));
    cmd.write_arg_fmt(annotation_key(key, kind));
    cmd.write_arg_fmt(lease);
    cmd.write_arg_fmt(format_args!("{lease} {token} {text}"));
    cmd.write_arg_fmt(keep.as_millis().clamp(1, KEEP_MAX));
    cmd
}

/// The result of a call of [`ANNOTATE`].
pub(super) fn stored(reply: Value) -> Result<Result<(), Loss>> {
    Err(match reply {
        Value::Int(0) => return Ok(Ok(())),
        Value::Int(1) => return Ok(Err(Loss::Free)),
        Value::Int(2) => return Ok(Err(Loss::TakenOver)),
        Value::ServerError(error) => errors::call(&error).0,
        reply => codec::failed(&reply).unwrap_or_else(errors::invalid_reply),
    })
}

/// Parses an annotation. `None` if the value is not one of this library.
pub(super) fn parse(value: &Value) -> Option<Annotation> {
    let Value::BulkString(value) = value else {
        return None;
    };
    let mut parts = str::from_utf8(value).ok()?.splitn(3, ' ');
    let (lease, token, text) = (parts.next()?, parts.next()?, parts.next()?);
    let number = token.parse().ok().and_then(Token::new)?;
    // A number has one spelling.
    let is_valid = number.to_string() == token && text.len() <= ANNOTATION_BYTES_MAX;
    is_valid.then_some(Annotation {
        lease: lease.parse().ok()?,
        token: number,
        text: text.into(),
    })
}

/// Removes an annotation, and any other value that its key has. Returns whether there was one.
pub(super) async fn remove(reader: &impl Reader, key: &Key, kind: &AnnotationKind) -> Result<bool> {
    let name = annotation_key(key, kind).to_string();
    let mut replies = reader.fetch(vec![command("DEL", name.clone())]).await?;
    match replies.pop() {
        Some(Value::Int(removed)) => Ok(removed > 0),
        Some(Value::ServerError(error)) => Err(errors::command_error("DEL", &name, &error)),
        _ => Err(errors::invalid_reply()),
    }
}

/// The completions of a keyspace on any of these servers, by name and kind.
pub(super) async fn completions(
    reader: &impl Reader,
    servers: Vec<&ConnectionManager>,
    space: &Keyspace,
) -> Result<Vec<View>> {
    let pattern = completion_pattern(space);
    let mut names = BTreeSet::<(Name, AnnotationKind)>::new();
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
            let annotation = parsed(&format!("{lease} 17 {text}")).unwrap();
            assert_eq!((annotation.lease, annotation.token.get()), (lease, 17));
            assert_eq!(&*annotation.text, text);
        }
        let long = "t".repeat(ANNOTATION_BYTES_MAX + 1);
        for other in [
            String::new(),
            "text".to_owned(),
            format!("{lease}"),
            format!("{lease} 17"),
            format!("{lease}  17 text"),
            format!(" {lease} 17 text"),
            format!("{lease} 0 text"),
            format!("{lease} 017 text"),
            format!("{lease} +17 text"),
            format!("{lease} 9007199254740992 text"),
            format!("{lease}x 17 text"),
            format!("{lease} 17 {long}"),
        ] {
            assert_eq!(parsed(&other), None, "{other}");
        }
        let invalid = [format!("{lease} 17 ").as_bytes(), b"\xff"].concat();
        assert_eq!(parse(&Value::BulkString(invalid)), None);
        assert_eq!(parse(&Value::Nil), None);
    }
}
