//! The stores that a node serves.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use leasehold::__private::store::{self, Keyspace, OpenOptions, Parts, Store};
use leasehold::ErrorKind;
use leasehold_core::{Name, Namespace, ScopeName};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::Error;
use crate::settings::StoreSettings;

/// The retry interval of opening a store.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The shortest interval between two log lines about the errors of a store.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// How long the result of a check is reused, so that frequent checks do not load the store.
const CHECK_TTL: Duration = Duration::from_secs(1);

/// The time in which a store must reply to a check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the start of a node waits for its stores. Opening them goes on afterwards.
pub(crate) const OPEN_TIMEOUT: Duration = Duration::from_secs(2);

/// A store that the node serves.
#[derive(Debug)]
pub(crate) struct ServedStore {
    /// Its index in the settings.
    pub(crate) index: usize,
    settings: StoreSettings,
    /// Its URL without a password.
    redacted_url: String,
    opened: OnceLock<Arc<dyn Store>>,
    /// Notified after each attempt to open it.
    attempted: Notify,
    /// The last check: its time, and whether the store replied.
    checked: tokio::sync::Mutex<Option<(Instant, bool)>>,
    logged: Mutex<LoggedError>,
}

/// The last logged error of a store, and the time of that log line.
#[derive(Debug, Default)]
struct LoggedError {
    kind: Option<ErrorKind>,
    logged_at: Option<Instant>,
}

impl ServedStore {
    /// # Errors
    ///
    /// If the URL names no store.
    pub(crate) fn new(index: usize, settings: &StoreSettings) -> Result<Self, Error> {
        let redacted_url = store::redacted_url(&settings.url).map_err(|error| {
            let which = settings.name.as_deref().unwrap_or("without a name");
            Error::new(format!("the store {which} has no valid URL")).with_source(error)
        })?;
        if redacted_url == "memory:" {
            let message =
                "the store memory: exists inside one process only, so a watchdog cannot serve it";
            return Err(Error::new(message));
        }
        Ok(Self {
            index,
            settings: settings.clone(),
            redacted_url,
            opened: OnceLock::new(),
            attempted: Notify::new(),
            checked: tokio::sync::Mutex::default(),
            logged: Mutex::default(),
        })
    }

    /// Whether this is the store's name, or its URL regardless of the user.
    pub(crate) fn matches(&self, name_or_url: &str) -> bool {
        self.settings.name.as_deref() == Some(name_or_url)
            || store::without_user(&self.redacted_url) == store::without_user(name_or_url)
    }

    /// Its URL without a password.
    pub(crate) fn redacted_url(&self) -> &str {
        &self.redacted_url
    }

    /// Its URL without users and files, behind its name if it has one.
    pub(crate) fn public_name(&self) -> String {
        let url = public_url(&self.redacted_url);
        match &self.settings.name {
            Some(name) => format!("{name}={url}"),
            None => url,
        }
    }

    /// Its name, or its URL without users and files.
    pub(crate) fn label(&self) -> String {
        let name = self.settings.name.clone();
        name.unwrap_or_else(|| public_url(&self.redacted_url))
    }

    pub(crate) fn store(&self) -> Option<&Arc<dyn Store>> {
        self.opened.get()
    }

    /// Opens it, with retries until that succeeds.
    pub(crate) async fn open(self: Arc<Self>) {
        let mut options = OpenOptions::default();
        options.password.clone_from(&self.settings.password);
        options
            .sentinel_password
            .clone_from(&self.settings.sentinel_password);
        let mut logged = None;
        loop {
            let opened = store::open_with(&self.settings.url, &options).await;
            let result = opened.map(|store| self.opened.set(store));
            self.attempted.notify_one();
            let Err(error) = result else {
                tracing::info!(store = self.redacted_url, "serving a store");
                return;
            };
            if logged.replace(error.kind()) != Some(error.kind()) {
                tracing::warn!(store = self.redacted_url, %error, "cannot open a store, trying again");
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// Waits for the first attempt to open it.
    pub(crate) async fn attempted(&self) {
        if self.store().is_none() {
            self.attempted.notified().await;
        }
    }

    /// Whether it replies in time, or did a moment ago.
    pub(crate) async fn is_reachable(&self) -> bool {
        let mut last = self.checked.lock().await;
        if let Some((when, replied)) = *last
            && when.elapsed() < CHECK_TTL
        {
            return replied;
        }
        let replied = timeout(CHECK_TIMEOUT, self.replies())
            .await
            .unwrap_or(false);
        *last = Some((Instant::now(), replied));
        replied
    }

    async fn replies(&self) -> bool {
        let Some(store) = self.store() else {
            return false;
        };
        let scope = "leasehold-watchdog";
        let (Ok(namespace), Ok(tenant), Ok(name)) = (
            Namespace::parse(scope),
            ScopeName::parse(scope),
            Name::parse("ready"),
        ) else {
            return false;
        };
        let key = Keyspace::new(namespace, tenant).key(name);
        match store.view(&key, Parts::Lease).await {
            Ok(_) => true,
            // A permission error is also a reply: the node may have no access to this key.
            Err(error) => error.kind() != ErrorKind::Unreachable,
        }
    }

    /// Logs when a store begins to fail and when it works again. Rate limited, because one shard may fail while the
    /// others work.
    pub(crate) fn log_result(&self, error: Option<&leasehold::Error>) {
        let kind = error.map(leasehold::Error::kind);
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = |at: Instant| at.elapsed() < LOG_INTERVAL;
        if logged.kind == kind || logged.logged_at.is_some_and(is_recent) {
            return;
        }
        match error {
            Some(error) => tracing::warn!(store = self.redacted_url, %error, "a store fails"),
            None => tracing::info!(store = self.redacted_url, "a store replies again"),
        }
        *logged = LoggedError {
            kind,
            logged_at: Some(Instant::now()),
        };
    }
}

/// A URL without a user, and with those settings only that tell stores apart.
fn public_url(url: &str) -> String {
    let url = store::without_user(url);
    let Some((url, query)) = url.split_once('?') else {
        return url;
    };
    let is_public = |part: &&str| part.starts_with("db=") || part.starts_with("longest-ttl=");
    let query: Vec<_> = query.split('&').filter(is_public).collect();
    match query.is_empty() {
        true => url.to_owned(),
        false => format!("{url}?{}", query.join("&")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(name: Option<&str>, url: &str) -> Result<ServedStore, Error> {
        let mut settings = StoreSettings::new(url);
        settings.name = name.map(str::to_owned);
        ServedStore::new(0, &settings)
    }

    #[test]
    fn a_store_is_found_by_its_name_or_its_url_with_any_user() {
        let store = served(Some("main"), "redis://watchdog:secret@db/3").unwrap();
        assert_eq!(store.redacted_url(), "redis://watchdog@db:6379/3");
        assert_eq!(store.public_name(), "main=redis://db:6379/3");
        assert!(store.matches("main"));
        assert!(store.matches("redis://db:6379/3"));
        assert!(store.matches("redis://app@db:6379/3"));
        for other in [
            "",
            "Main",
            "redis://db:6379/0",
            "rediss://db:6379/3",
            "redis://db2:6379/3",
        ] {
            assert!(!store.matches(other), "{other}");
        }
        let socket = served(None, "redis+unix:/run/redis.sock?db=1&user=watchdog").unwrap();
        assert_eq!(socket.public_name(), "redis+unix:/run/redis.sock?db=1");
        let sentinels = "redis+sentinel://app@a:1,b:2/main/3?sentinel-user=observer";
        let sentinels = served(None, sentinels).unwrap();
        assert_eq!(sentinels.label(), "redis+sentinel://a:1,b:2/main/3");
        assert_eq!(store.label(), "main");
        let file = served(None, "sqlite:/var/lib/locks.db").unwrap();
        assert_eq!(file.public_name(), "sqlite:/var/lib/locks.db");
        assert!(socket.matches("redis+unix:/run/redis.sock?db=1&user=app"));
        assert!(socket.matches("redis+unix:/run/redis.sock?db=1"));
        assert!(!socket.matches("redis+unix:/run/redis.sock"));
        assert!(!socket.matches("main"));
    }

    #[test]
    fn no_password_is_in_debug_output_or_errors() {
        let store = served(None, "redis://user:open-sesame@db").unwrap();
        assert!(!format!("{store:?}").contains("sesame"));
        let error = served(None, "http://user:open-sesame@db").unwrap_err();
        assert!(!format!("{error:?}").contains("sesame"));
        assert!(served(None, "memory:").is_err());
    }
}
