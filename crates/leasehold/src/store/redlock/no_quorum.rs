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
    let is_known_end = kept_out.is_some() && errors.iter().all(is_not_admitted);
    let until = kept_out.map_or(String::new(), |left| {
        // A master that does not reply may keep them out for longer.
        let at_least = if is_known_end { "" } else { "at least " };
        format!(" for {at_least}another {:.0} s", left.as_secs_f64().ceil())
    });
    let advice = match !is_known_end && errors.iter().any(is_not_admitted) {
        true => "; the first use needs all masters",
        false => "",
    };
    let message = format!(
        "no majority of {} masters{until}: {}{advice}",
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
    use crate::store::redis::errors;

    #[test]
    fn masters_that_are_kept_out_are_named_with_the_end_of_that() {
        let size = Size::new(3).unwrap();
        let kept_out = |master: &str| errors::command("EVAL", "", "NOTADMITTED").at_store(master);
        let new = [kept_out("a"), kept_out("b")];
        let away = Error::new(ErrorKind::Unreachable, "no reply").at_store("c");
        let one_away = [kept_out("a"), away];
        let left = Some(Duration::from_millis(23_400));
        for (errors, left, expected) in [
            (
                &new,
                left,
                "no majority of 3 masters for another 24 s: a, b: may have forgotten locks (new, restarted or \
                 replicated)",
            ),
            (
                &one_away,
                left,
                "no majority of 3 masters for at least another 24 s: a: may have forgotten locks (new, restarted or \
                 replicated); c: no reply; the first use needs all masters",
            ),
            (
                &new,
                None,
                "no majority of 3 masters: a, b: may have forgotten locks (new, restarted or replicated); the first \
                 use needs all masters",
            ),
        ] {
            assert_eq!(no_quorum(size, errors, left).to_string(), expected);
        }
    }

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
