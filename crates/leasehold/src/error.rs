//! The one error of the public API.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Name;

/// A result whose error is an [`Error`](struct@Error).
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, at which lock and which store.
///
/// A lock that another client holds is not an error: see [`Mutex::try_lock`](crate::Mutex::try_lock).
/// Branch on [`Error::kind`], read the message, look for causes in
/// [`source`](std::error::Error::source). No message contains a password.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # let client = leasehold::Client::connect("memory:").await?;
/// use leasehold::ErrorKind;
///
/// let worked = client.mutex("import")?.run(async |_guard| 42).await;
/// match worked {
///     Ok(rows) => println!("{rows} rows"),
///     Err(error) if error.kind() == ErrorKind::Lost => println!("stopped: {error}"),
///     Err(error) if error.is_transient() => println!("later, in {:?}: {error}", error.retry_after()),
///     Err(error) => return Err(error),
/// }
/// # Ok::<(), leasehold::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    lock: Option<Name>,
    store: Option<String>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
    retry: Retry,
}

/// Whether the same request may succeed later without any change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    Never,
    /// The store did not reply.
    NoReply,
    /// The store replied that it refuses requests for a while.
    #[cfg_attr(
        not(any(feature = "postgres", feature = "redis", feature = "sqlite")),
        expect(dead_code, reason = "memory refuses nothing for a while")
    )]
    Refused {
        /// The rest of that time, if it is known.
        after: Option<Duration>,
    },
}

/// The kind of an [`Error`], which has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The store could not be reached or did not reply in time. Try again later.
    Unreachable,
    /// The user of the store lacks a permission, which the message names.
    Unauthorized,
    /// The store requires a password, and none was given.
    NoPassword,
    /// The store does not accept the user and the password.
    WrongPassword,
    /// The sentinels require a password of their own, or do not accept it.
    SentinelPassword,
    /// The store replied with an error of its own, which the message contains.
    Store,
    /// The name, namespace or tenant is invalid.
    InvalidName,
    /// A setting or a URL is wrong.
    InvalidConfig,
    /// The name is in use as something of another kind, or with another count. The message says which.
    Conflict,
    /// This store, system or build of the crate cannot do that.
    Unsupported,
    /// The lease was lost, or ends too early for the request. Stop the work: another client may hold the lock.
    ///
    /// The message has the cause. [`Guard::state`](crate::Guard::state) has it as a [`Cause`](crate::Cause), which is
    /// `Released` after a shutdown of the client.
    Lost,
    /// Too few of many masters replied or granted the lock. It does not mean that another client holds the lock.
    NoQuorum,
    /// Too few replicas acknowledged. The grant was released.
    NotReplicated,
    /// No node of the watchdog accepts the client or has registered the lease.
    NoWatchdog,
    /// The client was shut down: end the task.
    ShutDown,
}

impl ErrorKind {
    /// The name of the kind, such as `no_quorum`, as the command writes it with `--json`.
    #[doc(hidden)]
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Unauthorized => "unauthorized",
            Self::NoPassword => "no_password",
            Self::WrongPassword => "wrong_password",
            Self::SentinelPassword => "sentinel_password",
            Self::Store => "store",
            Self::InvalidName => "invalid_name",
            Self::InvalidConfig => "invalid_config",
            Self::Conflict => "conflict",
            Self::Unsupported => "unsupported",
            Self::Lost => "lost",
            Self::NoQuorum => "no_quorum",
            Self::NotReplicated => "not_replicated",
            Self::NoWatchdog => "no_watchdog",
            Self::ShutDown => "shut_down",
        }
    }
}

/// The error of settings, of a URL or of a file that cannot be used.
pub(crate) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidConfig, message)
}

impl Error {
    /// An error of this kind. The message is one sentence in lower case without a full stop.
    #[doc(hidden)]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            lock: None,
            store: None,
            source: None,
            retry: match kind {
                ErrorKind::Unreachable | ErrorKind::NoQuorum | ErrorKind::NoWatchdog => {
                    Retry::NoReply
                }
                _ => Retry::Never,
            },
        }))
    }

    /// Replaces what follows from the kind.
    #[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
    pub(crate) fn with_retry(mut self, retry: Retry) -> Self {
        self.0.retry = retry;
        self
    }

    /// Replaces the message by one that contains this error's text, and clears lock and store, which that text has already.
    #[cfg(feature = "redis")]
    pub(crate) fn reworded(mut self, message: impl Into<String>) -> Self {
        self.0.message = message.into();
        (self.0.lock, self.0.store) = (None, None);
        self
    }

    /// Adds the error that caused this one.
    #[must_use]
    pub(crate) fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.0.source = Some(Arc::new(source));
        self
    }

    /// Names the lock, unless one is named already, or this is the name of a client.
    #[must_use]
    pub(crate) fn for_lock(mut self, lock: &Name) -> Self {
        if lock.client().is_none() {
            self.0.lock.get_or_insert_with(|| lock.clone());
        }
        self
    }

    /// Names the store, unless one is named already. It must not contain a password.
    #[must_use]
    pub(crate) fn at_store(mut self, store: impl fmt::Display) -> Self {
        self.0.store.get_or_insert_with(|| store.to_string());
        self
    }

    /// The message alone, and the store that it is about.
    #[cfg(feature = "redis")]
    pub(crate) fn parts(&self) -> (&str, Option<&str>) {
        (&self.0.message, self.0.store.as_deref())
    }

    /// What kind of error this is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The name of the lock that it is about, if it is about one.
    #[must_use]
    pub fn lock(&self) -> Option<&str> {
        self.0.lock.as_ref().map(Name::as_str)
    }

    /// The store that it is about, if it is about one: its URL without a password.
    #[must_use]
    pub fn store(&self) -> Option<&str> {
        self.0.store.as_deref()
    }

    /// Whether the same request may succeed later without any change: the store did not reply, or it refuses requests for a
    /// while. A wait for a lock goes on for a whole ttl of such errors; any other error ends it immediately.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.0.retry != Retry::Never
    }

    /// Whether the store replied that it refuses requests for a while: it loads its data, is busy with a script,
    /// has too few replicas, accepts no more connections, or another process keeps its file locked. Of many
    /// masters, a majority replied. Connecting may also succeed later.
    #[doc(hidden)]
    #[must_use]
    pub fn is_transient_refusal(&self) -> bool {
        matches!(self.0.retry, Retry::Refused { .. })
    }

    /// The time until the store accepts requests again, if it is known: recently started masters
    /// are kept out until leases that they may have forgotten have ended. A wait for a lock goes on through this time,
    /// however long it is.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self.0.retry {
            Retry::Refused { after } => after,
            Retry::Never | Retry::NoReply => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL of a store may end in a colon itself.
        let store = self.0.store.as_deref().map(|url| url.trim_end_matches(':'));
        match (&self.0.lock, store) {
            (Some(lock), Some(store)) => write!(f, "lock {lock:?} at {store}: ")?,
            (Some(lock), None) => write!(f, "lock {lock:?}: ")?,
            (None, Some(store)) => write!(f, "store {store}: ")?,
            (None, None) => {}
        }
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Error");
        debug.field("kind", &self.0.kind);
        debug.field("message", &self.0.message);
        for (name, text) in [("lock", self.lock()), ("store", self.store())] {
            if let Some(text) = text {
                debug.field(name, &text);
            }
        }
        if let Some(source) = &self.0.source {
            debug.field("source", source);
        }
        debug.finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(self.0.source.as_deref()?)
    }
}

#[cfg(all(test, feature = "redis"))]
mod tests {
    use super::*;

    #[test]
    fn a_reworded_error_stays_transient() {
        let refused = Error::new(ErrorKind::Store, "loading")
            .with_retry(Retry::Refused { after: None })
            .at_store("redis://db:6379/0")
            .with_source(fmt::Error)
            .reworded("the master is loading");
        assert!(refused.is_transient_refusal());
        assert_eq!(refused.kind(), ErrorKind::Store);
        assert_eq!(refused.to_string(), "the master is loading");
        assert!(refused.source().unwrap().is::<fmt::Error>());
    }

    #[test]
    fn an_error_names_the_lock_and_the_store_once() {
        let error = Error::new(ErrorKind::Unreachable, "no reply")
            .at_store("redis://db:6379/0")
            .at_store("elsewhere")
            .for_lock(&Name::parse("a").unwrap());
        assert_eq!(error.lock(), Some("a"));
        assert_eq!(error.store(), Some("redis://db:6379/0"));
        let message = r#"lock "a" at redis://db:6379/0: no reply"#;
        assert_eq!(error.to_string(), message);
        let error = Error::new(ErrorKind::Store, "no reply").at_store("memory:");
        assert_eq!(error.to_string(), "store memory: no reply");
    }
}
