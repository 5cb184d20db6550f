//! The store in a bucket of Amazon S3, Google Cloud Storage or Azure Blob Storage: each name is an object, which is replaced
//! only if its version is the one that was read.
//!
//! The version is the ETag, with Google the generation. An ETag may be a hash of the text and repeat, but texts do not: each
//! has a larger number than the one before. So no object is ever removed. Nobody is notified: waiters poll, and a holder is
//! taken for dead only by a client that has seen it for its ttl without a renewal.

mod address;
mod connector;
#[cfg(feature = "doctor")]
mod diagnose;
mod error;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{ready, try_join};
use futures_util::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use leasehold_core::{ClientId, Name};
use object_store::path::Path;
use object_store::{GetOptions, ObjectMeta, ObjectStore, PutMode, PutResult, UpdateVersion};

use self::address::{Address, Cloud, escaped, path, unescaped};
use self::connector::Connector;
#[cfg(feature = "doctor")]
pub(super) use self::diagnose::diagnose;
use crate::error::invalid;
use crate::fork::Process;
use crate::store::api::{Capabilities, Key, Keyspace, StoreKind, WakeupMode};
use crate::store::optimistic::Optimistic;
use crate::store::optimistic::documents::{Document, Documents, Replaced, Version, Write};
use crate::store::options::OpenOptions;
use crate::store::records::ListPart;
use crate::store::rule_store::RuleStore;
use crate::{Error, ErrorKind, Result};

/// How many requests of a call are under way at a time.
const PARALLEL: usize = 16;

/// How long a waiter sleeps at most: each of its requests is paid.
const POLL_MAX: Duration = Duration::from_secs(1);

/// The number of objects in a page of a list.
const PAGE: usize = 1_000;

/// The version of an object that does not exist.
const ABSENT: &str = "";

/// Lock records in a bucket.
pub(in crate::store) type ObjectsStore = RuleStore<Optimistic<Objects>>;

impl ObjectsStore {
    /// Checks that the service keeps locks.
    #[doc(hidden)]
    pub async fn open_url(url: &str, options: &OpenOptions) -> Result<Self> {
        let objects = Objects::new(url, options)?;
        let checked = match objects.ignored_condition().await {
            Ok(Some(condition)) => Err(error::ignored(condition)),
            checked => checked.map(drop),
        };
        checked.map_err(|error| error.at_store(&objects))?;
        let hub = Arc::default();
        let optimistic = Optimistic::new(objects, &hub, options)?;
        Ok(Self::with_hub(optimistic, hub))
    }
}

/// The objects of a bucket.
pub struct Objects {
    address: Address,
    client: Arc<dyn ObjectStore>,
    process: Process,
}

impl Objects {
    fn new(url: &str, options: &OpenOptions) -> Result<Self> {
        let address = Address::parse(url)?.with_environment()?;
        if options.username.is_some() || options.password.is_some() {
            let message = format!(
                "an object store has no user and password; set {}",
                address.cloud.variables()
            );
            return Err(invalid(message).at_store(address));
        }
        let client = Connector::new(options).and_then(|connector| address.client(connector));
        Ok(Self {
            client: client.map_err(|error| error.at_store(&address))?,
            address,
            process: Process::current(),
        })
    }

    /// The condition of a write that the service ignores, by an object that stays there. Google limits the writes of an
    /// object, so its own service is only reached, not checked.
    async fn ignored_condition(&self) -> Result<Option<&'static str>> {
        let probe = self.address.probe()?;
        if self.address.cloud == Cloud::Google && self.address.endpoint.is_none() {
            return self.get(&probe).await.map(|_| None);
        }
        let other = match self.address.cloud {
            Cloud::Google => "1",
            Cloud::Amazon | Cloud::Azure => "\"00000000000000000000000000000000\"",
        };
        let both = try_join(self.check(&probe, ABSENT), self.check(&probe, other));
        let (created, updated) = both.await?;
        let ignores_creation = created && self.check(&probe, ABSENT).await?;
        Ok(match (ignores_creation, updated) {
            (true, _) => Some("If-None-Match"),
            (false, true) => Some("If-Match"),
            (false, false) => None,
        })
    }

    /// Whether the service writes the object of the check on a condition.
    async fn check(&self, probe: &Path, seen: &str) -> Result<bool> {
        let text = "Clients check here that the service honours conditions.".to_owned();
        let put = self.put(probe, text, &Version(seen.to_owned())).await;
        let put = put.map_err(|error| self.describe(&error))?;
        Ok(put.is_some())
    }

    /// A name that is too long for a key has no document, so that it affects no other one. Its write is rejected.
    async fn document(&self, key: Key) -> Result<Document> {
        match self.address.object(&key) {
            Ok(object) => self.get(&object).await,
            Err(_) => Ok(absent()),
        }
    }

    async fn get(&self, object: &Path) -> Result<Document> {
        let found = match self.client.get_opts(object, GetOptions::default()).await {
            Ok(found) => found,
            Err(object_store::Error::NotFound { .. }) => return Ok(absent()),
            Err(error) => return Err(self.describe(&error)),
        };
        let version = self.version(found.meta.e_tag.clone(), found.meta.version.clone())?;
        let bytes = found.bytes().await.map_err(|error| self.describe(&error))?;
        Ok(Document {
            version,
            text: Some(String::from_utf8_lossy(&bytes).into_owned()),
            age: Duration::ZERO,
        })
    }

    /// Writes an object if its version is the one that was seen. `None`: it is not.
    async fn put(
        &self,
        object: &Path,
        text: String,
        seen: &Version,
    ) -> object_store::Result<Option<PutResult>> {
        let seen = &seen.0;
        let mode = match self.address.cloud {
            _ if seen == ABSENT => PutMode::Create,
            Cloud::Google => PutMode::Update(UpdateVersion {
                e_tag: None,
                version: Some(seen.clone()),
            }),
            Cloud::Amazon | Cloud::Azure => PutMode::Update(UpdateVersion {
                e_tag: Some(seen.clone()),
                version: None,
            }),
        };
        match self.client.put_opts(object, text.into(), mode.into()).await {
            Ok(put) => Ok(Some(put)),
            Err(
                object_store::Error::AlreadyExists { .. }
                | object_store::Error::Precondition { .. },
            ) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn write(&self, write: Write) -> Replaced {
        let Some(text) = write.text else {
            let message = "no object is ever removed";
            return Replaced::Rejected(Error::new(ErrorKind::Unsupported, message));
        };
        let object = match self.address.object(&write.key) {
            Ok(object) => object,
            Err(error) => return Replaced::Rejected(error),
        };
        match self.put(&object, text, &write.seen).await {
            Ok(Some(put)) => match self.version(put.e_tag, put.version) {
                Ok(version) => Replaced::Done(version),
                Err(error) => Replaced::Unknown(error),
            },
            Ok(None) => Replaced::Conflict(None),
            Err(error) => match error::describe(&error, self.address.cloud) {
                (error, true) => Replaced::Rejected(error),
                (error, false) => Replaced::Unknown(error),
            },
        }
    }

    fn version(&self, e_tag: Option<String>, generation: Option<String>) -> Result<Version> {
        let version = match self.address.cloud {
            Cloud::Google => generation,
            Cloud::Amazon | Cloud::Azure => e_tag,
        };
        let version = version.filter(|version| version != ABSENT);
        version.map(Version).ok_or_else(|| {
            let message = "the service gives an object no version, so it keeps no locks";
            Error::new(ErrorKind::Unsupported, message)
        })
    }

    fn describe(&self, error: &object_store::Error) -> Error {
        error::describe(error, self.address.cloud).0
    }
}

impl Documents for Objects {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            longest_poll: POLL_MAX,
            ..Capabilities::new(StoreKind::Objects, WakeupMode::Nothing)
        }
    }

    async fn read(&self, keys: Vec<Key>) -> Result<Vec<Document>> {
        self.process.check()?;
        let documents = stream::iter(keys).map(|key| self.document(key));
        documents.buffered(PARALLEL).try_collect().await
    }

    async fn replace(&self, writes: Vec<Write>) -> Vec<Replaced> {
        if let Err(error) = self.process.check() {
            let rejected = writes.iter().map(|_| Replaced::Rejected(error.clone()));
            return rejected.collect();
        }
        let replaced = stream::iter(writes).map(|write| self.write(write));
        replaced.buffered(PARALLEL).collect().await
    }

    /// In the order of their keys.
    async fn names(&self, space: &Keyspace, after: &str) -> Result<ListPart<Name>> {
        self.process.check()?;
        let directory = self.address.directory(space);
        let at = |name: &str| path(&format!("{directory}/{}", escaped(name)));
        let prefix = path(&directory)?;
        // The records of clients, which stay, are all in this range of keys. Their ids are hexadecimal.
        let (first_client, behind) = (at("{")?, at("{z")?);
        // Not every service honours where a list begins, so what is not behind is left out here.
        let from = |last: &Path| {
            let listed = self.client.list_with_offset(Some(&prefix), last);
            let last = last.clone();
            let is_behind = move |found: &ObjectMeta| ready(found.location > last);
            listed.try_filter(is_behind).boxed()
        };
        let before_clients = |listed: BoxStream<'static, object_store::Result<ObjectMeta>>| {
            let first_client = first_client.clone();
            let before = move |found: &ObjectMeta| ready(Ok(found.location < first_client));
            listed.try_take_while(before).chain(from(&behind)).boxed()
        };
        let listed = match after.is_empty() {
            true => before_clients(self.client.list(Some(&prefix))),
            false => match at(after)? {
                last if last < first_client => before_clients(from(&last)),
                last => from(&last),
            },
        };
        // Without what others keep there, such as a store with a longer prefix.
        let depth = prefix.parts_count() + 1;
        let names = listed.try_filter_map(move |found| {
            let own = Some(found.location).filter(|object| object.parts_count() == depth);
            ready(Ok(own.and_then(|object| name(&object))))
        });
        let names: Result<Vec<_>, _> = names.take(PAGE).try_collect().await;
        let names = names.map_err(|error| self.describe(&error))?;
        Ok(ListPart::limited(PAGE, names))
    }

    async fn alive(&self, _: Vec<ClientId>) -> Result<HashSet<ClientId>> {
        Ok(HashSet::new())
    }
}

impl fmt::Display for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.address, f)
    }
}

impl fmt::Debug for Objects {
    /// The client of the service would show its credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.address, f)
    }
}

/// The name of a lock whose object this is.
fn name(object: &Path) -> Option<Name> {
    Name::parse(&unescaped(object.filename()?)?).ok()
}

fn absent() -> Document {
    Document {
        version: Version(ABSENT.to_owned()),
        text: None,
        age: Duration::ZERO,
    }
}

/// The URL of a store as its `Display`.
pub(super) fn redacted_url(url: &str) -> Result<String> {
    Address::parse(url).map(|address| address.to_string())
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;
    use crate::store::api::fixture::key;

    #[tokio::test]
    async fn a_listing_has_the_names_of_its_keyspace_only() {
        let objects = Objects {
            address: Address::parse("s3://b/locks").unwrap(),
            client: Arc::new(InMemory::new()),
            process: Process::current(),
        };
        let client = ClientId::from_random([0xff; 16]);
        for object in [
            "locks/app/t/a".to_owned(),
            "locks/app/t/%2Eb".to_owned(),
            "locks/app/t/%7Cc".to_owned(),
            // Of a store with the prefix `locks/app`.
            "locks/app/t/a/d".to_owned(),
            "locks/app/tt/e".to_owned(),
            format!("locks/app/t/{}", escaped(Name::of_client(client).as_str())),
        ] {
            let object = path(&object).unwrap();
            let put =
                objects
                    .client
                    .put_opts(&object, String::new().into(), PutMode::Overwrite.into());
            put.await.unwrap();
        }
        for (after, expected) in [
            ("", &[".b", "|c", "a"][..]),
            (".b", &["|c", "a"][..]),
            ("|c", &["a"][..]),
            ("a", &[][..]),
        ] {
            let part = objects.names(&key("x").space, after).await.unwrap();
            let names: Vec<_> = part.entries.iter().map(Name::as_str).collect();
            assert_eq!(names, expected, "behind {after:?}");
            assert!(part.is_last);
        }
    }
}
