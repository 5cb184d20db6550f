//! The stores that a node serves.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use leasehold::ErrorKind;
use leasehold::store::{self, Keyspace, OpenOptions, Store};
use leasehold_core::{Name, ScopeName};
use tokio::sync::Notify;

use crate::Error;
use crate::settings::StoreSettings;
use crate::shard_limiter::ShardLimiters;

/// The retry interval of opening a store.
const RETRY: Duration = Duration::from_secs(1);

/// The shortest interval between two log lines about the errors of a store.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// How long the start of a node waits for its stores. Opening them goes on afterwards.
pub(crate) const OPEN_WITHIN: Duration = Duration::from_secs(2);

/// A store that the node serves.
#[derive(Debug)]
pub(crate) struct Served {
    name: Option<String>,
    /// Its URL without a password.
    redacted_url: String,
    url: Url,
    options: OpenOptions,
    opened: OnceLock<Arc<dyn Store>>,
    /// Notified after each attempt to open it.
    tried: Notify,
    pub(crate) limiters: ShardLimiters,
    trouble: Mutex<Trouble>,
}

/// The last logged error of a store, and the time of that log line.
#[derive(Debug, Default)]
struct Trouble {
    kind: Option<ErrorKind>,
    told: Option<Instant>,
}

/// A URL that may contain a password.
struct Url(String);

impl std::fmt::Debug for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Url")
    }
}

impl Served {
    /// # Errors
    ///
    /// If the URL names no store.
    pub(crate) fn new(settings: &StoreSettings) -> Result<Self, Error> {
        let redacted_url = store::redacted_url(&settings.url).map_err(|error| {
            let which = settings.name.as_deref().unwrap_or("without a name");
            Error::new(format!("the store {which} has no valid URL")).with_source(error)
        })?;
        if redacted_url == "memory:" {
            let message =
                "the store memory: exists inside one process only, so a watchdog cannot serve it";
            return Err(Error::new(message));
        }
        let mut options = OpenOptions::default();
        options.password.clone_from(&settings.password);
        options
            .sentinel_password
            .clone_from(&settings.sentinel_password);
        Ok(Self {
            name: settings.name.clone(),
            redacted_url,
            url: Url(settings.url.clone()),
            options,
            opened: OnceLock::new(),
            tried: Notify::new(),
            limiters: ShardLimiters::default(),
            trouble: Mutex::default(),
        })
    }

    /// Whether this is the store's name, or its URL regardless of the user.
    pub(crate) fn is_called(&self, called: &str) -> bool {
        self.name.as_deref() == Some(called)
            || without_user(&self.redacted_url) == without_user(called)
    }

    /// Its URL without a password.
    pub(crate) fn redacted_url(&self) -> &str {
        &self.redacted_url
    }

    pub(crate) fn store(&self) -> Option<&Arc<dyn Store>> {
        self.opened.get()
    }

    /// Opens it, with retries until that succeeds.
    pub(crate) async fn open(self: Arc<Self>) {
        let mut told = None;
        loop {
            match store::open(&self.url.0, &self.options).await {
                Ok(store) => {
                    tracing::info!(store = self.redacted_url, "serving a store");
                    let _ = self.opened.set(store);
                    self.tried.notify_one();
                    return;
                }
                Err(error) => {
                    if told != Some(error.kind()) {
                        tracing::warn!(store = self.redacted_url, %error, "cannot open a store, trying again");
                        told = Some(error.kind());
                    }
                    self.tried.notify_one();
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Waits for the first attempt to open it.
    pub(crate) async fn tried(&self) {
        if self.store().is_none() {
            self.tried.notified().await;
        }
    }

    /// Whether it replies.
    pub(crate) async fn is_reachable(&self) -> bool {
        let Some(store) = self.store() else {
            return false;
        };
        let (Ok(scope), Ok(name)) = (ScopeName::parse("leasehold-watchdog"), Name::parse("ready"))
        else {
            return false;
        };
        let key = Keyspace::new(scope.clone(), scope).key(name);
        match store.inspect(&key).await {
            Ok(_) => true,
            // A permission error is a reply, too: the node may have no access to this key.
            Err(error) => error.kind() != ErrorKind::Unreachable,
        }
    }

    /// Logs when a store begins to fail and when it works again. Rate limited, because one shard may fail while the
    /// others work.
    pub(crate) fn answered(&self, error: Option<&leasehold::Error>) {
        let kind = error.map(leasehold::Error::kind);
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let told = trouble.told.is_some_and(|told| told.elapsed() < TELL_EVERY);
        if trouble.kind == kind || told {
            return;
        }
        match error {
            Some(error) => tracing::warn!(store = self.redacted_url, %error, "a store fails"),
            None => tracing::info!(store = self.redacted_url, "a store answers again"),
        }
        *trouble = Trouble {
            kind,
            told: Some(Instant::now()),
        };
    }
}

/// A URL without its user: the node has another one than its clients.
fn without_user(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        let mut parts = url.splitn(2, '?');
        let path = parts.next().unwrap_or_default();
        let query = parts.next().unwrap_or_default().split('&');
        let others: Vec<_> = query.filter(|part| !part.starts_with("user=")).collect();
        return format!("{path}?{}", others.join("&"));
    };
    let end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(name: Option<&str>, url: &str) -> Served {
        let settings = StoreSettings {
            name: name.map(str::to_owned),
            url: url.to_owned(),
            ..StoreSettings::default()
        };
        Served::new(&settings).unwrap()
    }

    #[test]
    fn a_store_is_known_by_its_name_and_its_url_whoever_comes() {
        let store = served(Some("main"), "redis://watchdog:secret@db/3");
        assert_eq!(store.redacted_url(), "redis://watchdog@db:6379/3");
        assert!(store.is_called("main"));
        assert!(store.is_called("redis://db:6379/3"));
        assert!(store.is_called("redis://app@db:6379/3"));
        for other in [
            "",
            "Main",
            "redis://db:6379/0",
            "rediss://db:6379/3",
            "redis://db2:6379/3",
        ] {
            assert!(!store.is_called(other), "{other}");
        }
        let socket = served(None, "redis+unix:/run/redis.sock?db=1&user=watchdog");
        assert!(socket.is_called("redis+unix:/run/redis.sock?db=1&user=app"));
        assert!(socket.is_called("redis+unix:/run/redis.sock?db=1"));
        assert!(!socket.is_called("redis+unix:/run/redis.sock"));
        assert!(!socket.is_called("main"));
    }

    #[test]
    fn no_password_is_told() {
        let store = served(None, "redis://user:open-sesame@db");
        assert!(!format!("{store:?}").contains("sesame"));
        let settings = StoreSettings {
            url: "http://user:open-sesame@db".into(),
            ..StoreSettings::default()
        };
        let error = Served::new(&settings).unwrap_err();
        assert!(!format!("{error:?}").contains("sesame"));
        let memory = StoreSettings {
            url: "memory:".into(),
            ..StoreSettings::default()
        };
        assert!(Served::new(&memory).is_err());
    }
}
