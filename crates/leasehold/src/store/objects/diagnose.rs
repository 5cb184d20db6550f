//! Facts about a bucket.

use std::time::Duration;

use futures_util::future::join;
use tokio::time::Instant;

use super::Objects;
use super::address::Cloud;
use crate::Result;
use crate::store::diagnose::BucketFacts;
use crate::store::options::OpenOptions;

/// Collects the facts about a bucket. Writes the object by which clients check the service, and no lock.
pub(in crate::store) async fn diagnose(url: &str, options: &OpenOptions) -> Result<BucketFacts> {
    let objects = Objects::new(url, options)?;
    let facts = facts(&objects).await;
    facts.map_err(|error| error.at_store(&objects))
}

async fn facts(objects: &Objects) -> Result<BucketFacts> {
    let ignored_condition = objects.ignored_condition().await?;
    let probe = objects.address.probe()?;
    let (found, read) = timed(objects.get(&probe)).await;
    let version = found?.version;
    // Of two writes at the same time only one may find that version.
    let put = || {
        let text = format!("Clients check the service. {:032x}", fastrand::u128(..));
        objects.put(&probe, text, &version)
    };
    let (puts, write) = timed(join(put(), put())).await;
    let both_written = matches!(puts, (Ok(Some(_)), Ok(Some(_))));
    let ignored_by_one = both_written.then_some("If-Match in one of two writes at the same time");
    let put = match puts {
        (Ok(Some(put)), _) | (_, Ok(Some(put))) => Some(put),
        (Ok(None), Ok(None)) => None,
        (Err(error), _) | (_, Err(error)) => return Err(objects.describe(&error)),
    };
    let keeps_versions = match objects.address.cloud {
        // Each object has a generation, whether or not earlier ones are kept.
        Cloud::Google => None,
        Cloud::Amazon | Cloud::Azure => put.map(|put| {
            let version = put.version.unwrap_or_default();
            !matches!(version.as_str(), "" | "null")
        }),
    };
    Ok(BucketFacts {
        name: objects.to_string(),
        ignored_condition: ignored_condition.or(ignored_by_one),
        read,
        write,
        keeps_versions,
        uses_http: objects.address.uses_http(),
    })
}

async fn timed<T>(request: impl Future<Output = T>) -> (T, Duration) {
    let begun = Instant::now();
    (request.await, begun.elapsed())
}
