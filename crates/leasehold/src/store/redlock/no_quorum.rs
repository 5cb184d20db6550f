//! The error of a request that too few masters have decided.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::quorum::Size;

use crate::error::Retry;
use crate::store::redis::errors::is_not_admitted;
use crate::{Error, ErrorKind};

/// Too few masters have replied. If all that failed did so for one reason that does not pass, that is it.
/// `kept_out` is how long until enough of them are admitted, if that is all that is missing.
pub(super) fn no_quorum(size: Size, errors: &[Error], kept_out: Option<Duration>) -> Error {
    let mut kinds = errors.iter().map(Error::kind);
    let kind = match kinds.next() {
        Some(ErrorKind::Unreachable | ErrorKind::Store) | None => ErrorKind::NoQuorum,
        Some(kind) if kinds.all(|other| other == kind) => kind,
        Some(_) => ErrorKind::NoQuorum,
    };
    // Several errors may have the same text.
    let mut messages = BTreeMap::<&str, Vec<&str>>::new();
    for error in errors {
        let (message, store) = error.parts();
        messages.entry(message).or_default().extend(store);
    }
    let messages = messages.into_iter().map(|(message, mut stores)| {
        stores.sort_unstable();
        stores.dedup();
        match stores.is_empty() {
            true => message.to_owned(),
            false => format!("{}: {message}", stores.join(", ")),
        }
    });
    let messages: Vec<_> = messages.collect();
    // A master that does not reply may keep them out for longer.
    let at_least = match errors.iter().all(is_not_admitted) {
        true => "",
        false => "at least ",
    };
    let until = kept_out.map_or(String::new(), |left| {
        let left = left.as_secs_f64().ceil();
        format!(", kept out for {at_least}another {left:.0} s")
    });
    let message = format!(
        "no majority of {} masters{until}: {}",
        size.masters(),
        messages.join("; ")
    );
    Error::new(kind, message).with_retry(retry(size, errors, kept_out))
}

/// Whether a majority of the masters replied, and will serve when those that refuse for a while do.
fn retry(size: Size, errors: &[Error], kept_out: Option<Duration>) -> Retry {
    let count = |matches: fn(&Error) -> bool| errors.iter().filter(|error| matches(error)).count();
    let lacking = |missing: usize| missing > size.masters() - size.majority();
    let permanent = count(|error| !error.is_transient());
    let refused = count(Error::is_transient_refusal);
    match kept_out {
        None if lacking(permanent) => Retry::Never,
        None if refused == 0 || lacking(errors.len() - refused) => Retry::NoReply,
        after => Retry::Refused { after },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_that_replies_refuses_for_a_while_and_one_that_does_not_is_silent() {
        let size = Size::new(3).unwrap();
        let error = |retry| Error::new(ErrorKind::Store, "it failed").with_retry(retry);
        let [never, no_reply, refused] =
            [Retry::Never, Retry::NoReply, Retry::Refused { after: None }];
        for (errors, expected) in [
            (&[refused, refused, refused][..], refused),
            (&[refused, refused, no_reply], refused),
            (&[refused, refused, never], refused),
            (&[refused, no_reply], refused),
            (&[refused, no_reply, no_reply], no_reply),
            (&[refused, no_reply, never], no_reply),
            (&[no_reply], no_reply),
            (&[no_reply, no_reply, never], no_reply),
            (&[refused, never, never], never),
        ] {
            let errors: Vec<_> = errors.iter().copied().map(error).collect();
            assert_eq!(retry(size, &errors, None), expected, "{errors:?}");
        }
        let after = Some(Duration::from_secs(1));
        assert_eq!(retry(size, &[], after), Retry::Refused { after });
    }
}
