//! Checks of a bucket of an object store.

use leasehold_core::Ttl;

use super::Finding;
use crate::store::diagnose::BucketFacts;

/// The part of a ttl that a request may take: a renewal is a read and a write, and has to leave time for a second one.
const REQUESTS: u32 = 12;

pub(super) fn check(facts: &BucketFacts, ttl: Ttl) -> Vec<Finding> {
    let mut findings = vec![conditions(facts), latency(facts, ttl), versions(facts)];
    if facts.uses_http {
        findings.push(
            Finding::warning("endpoint", "requests are not encrypted")
                .because("others on the network can read and change the locks")
                .fix("use an https:// endpoint, unless the network is trusted"),
        );
    }
    findings
}

fn conditions(facts: &BucketFacts) -> Finding {
    const CHECK: &str = "conditions";
    let fix = "use Amazon S3, Google Cloud Storage, Azure Blob Storage, Cloudflare R2 or MinIO of one pool";
    match facts.ignored_condition {
        None => Finding::ok(CHECK, "the service honours conditions of writes"),
        Some(condition) => Finding::danger(CHECK, format!("the service ignores {condition}"))
            .because("two clients would hold one lock")
            .fix(fix),
    }
}

fn latency(facts: &BucketFacts, ttl: Ttl) -> Finding {
    const CHECK: &str = "latency";
    let (read, write) = (facts.read.as_millis(), facts.write.as_millis());
    let observed = format!("a read took {read} ms, a write {write} ms");
    match facts.read.max(facts.write) * REQUESTS > ttl.as_duration() {
        true => Finding::warning(CHECK, observed)
            .because(format!("with a ttl of {ttl} a slow renewal loses the lock"))
            .fix("choose a longer ttl, or a bucket that is nearer"),
        false => Finding::ok(CHECK, observed),
    }
}

fn versions(facts: &BucketFacts) -> Finding {
    const CHECK: &str = "versions";
    let fix = "let a lifecycle rule delete noncurrent versions after a day, or use a bucket without versioning";
    let because = "each acquire, release and renewal adds one, which is stored and paid";
    match facts.keeps_versions {
        Some(true) => Finding::note(CHECK, "the bucket keeps earlier versions of objects")
            .because(because)
            .fix(fix),
        Some(false) => Finding::ok(CHECK, "the bucket keeps no earlier versions of objects"),
        None => Finding::note(
            CHECK,
            "it is unknown whether the bucket keeps earlier versions",
        )
        .because(format!("if it does, {because}"))
        .fix(fix),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::doctor::Severity::{Danger, Note, Ok, Warning};
    use crate::doctor::finding::{ChangeOf, assert_severities};

    fn healthy() -> BucketFacts {
        BucketFacts {
            name: "s3://b".into(),
            ignored_condition: None,
            read: Duration::from_millis(20),
            write: Duration::from_millis(30),
            keeps_versions: Some(false),
            uses_http: false,
        }
    }

    const CHANGES: [ChangeOf<BucketFacts>; 5] = [
        (Ok, "", |_| {}),
        (Danger, "conditions", |it| {
            it.ignored_condition = Some("If-Match");
        }),
        (Warning, "latency", |it| it.write = Duration::from_secs(1)),
        (Note, "versions", |it| it.keeps_versions = None),
        (Warning, "endpoint", |it| it.uses_http = true),
    ];

    #[test]
    fn what_is_wrong_with_a_bucket_is_found() {
        let ttl = Ttl::from_millis(10_000).unwrap();
        assert_severities(healthy, |facts| check(facts, ttl), &CHANGES);
    }
}
