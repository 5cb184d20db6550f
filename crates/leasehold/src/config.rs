//! Settings, checked once when a client is built.

use std::time::Duration;

use leasehold_core::time::in_units;
use leasehold_core::{Handoff, MinHold, Name, NameError, Namespace, Policy, ScopeName, Ttl};

pub(crate) use crate::error::invalid;
use crate::store::{Keyspace, OpenOptions};
use crate::{Durability, Error, ErrorKind, Result, Secret};

/// The default ttl.
const TTL: Duration = Duration::from_secs(30);

/// The shortest default time for a connection: TLS over a wide network takes a few round trips.
const CONNECT_TIMEOUT_MIN: Duration = Duration::from_millis(250);

/// What a user may set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Config {
    pub(crate) ttl: Option<Duration>,
    pub(crate) renew_every: Option<Duration>,
    pub(crate) margin: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) namespace: Option<String>,
    pub(crate) tenant: Option<String>,
    pub(crate) label: String,
    pub(crate) program: Option<String>,
    pub(crate) username: Option<String>,
    pub(crate) password: Option<Secret>,
    pub(crate) sentinel_password: Option<Secret>,
    pub(crate) tls_ca: Option<String>,
    pub(crate) tls_identity: Option<(String, Secret)>,
    pub(crate) connect_timeout: Option<Duration>,
    pub(crate) response_timeout: Option<Duration>,
    pub(crate) handoff: Handoff,
    pub(crate) durability: Durability,
}

impl Config {
    pub(crate) fn policy(&self) -> Result<Policy> {
        let default = Policy::of(ttl("ttl", self.ttl.unwrap_or(TTL))?);
        let policy = Policy {
            interval: self.renew_every.unwrap_or(default.interval),
            margin: self.margin.unwrap_or(default.margin),
            max_hold: self.max_hold,
            ..default
        };
        match policy.check() {
            Ok(()) => Ok(policy),
            Err(error) => Err(invalid(error.to_string())),
        }
    }

    pub(crate) fn space(&self) -> Result<Keyspace> {
        let namespace = self.namespace.as_deref().unwrap_or("leasehold");
        let tenant = self.tenant.as_deref().unwrap_or("default");
        Ok(Keyspace::new(
            scope("namespace", namespace, Namespace::parse)?,
            scope("tenant", tenant, ScopeName::parse)?,
        ))
    }

    pub(crate) fn open_options(&self) -> Result<OpenOptions> {
        let policy = self.policy()?;
        let (ttl, interval, margin) = (policy.ttl, policy.interval, policy.margin);
        let response_max = reply_max(&policy);
        let response_timeout = self
            .response_timeout
            .unwrap_or_else(|| (response_max / 2).min(OpenOptions::default().response_timeout));
        // A renewal may have to connect first, and must still be able to fail in time.
        let connect_timeout = self.connect_timeout.unwrap_or_else(|| {
            interval.clamp(CONNECT_TIMEOUT_MIN, OpenOptions::default().connect_timeout)
        });
        if response_timeout.is_zero() || connect_timeout.is_zero() {
            return Err(invalid("a timeout must be longer than zero"));
        }
        if response_timeout > response_max {
            return Err(invalid(format!(
                "the response timeout of {response_timeout:?} must not be longer than \
                 {response_max:?}, which is the interval of renewals ({interval:?}), or what a ttl of \
                 {ttl:?} leaves beside it and the margin ({margin:?}): a renewal could not fail in time"
            )));
        }
        Ok(OpenOptions {
            connect_timeout,
            response_timeout,
            username: self.username.clone(),
            password: self.password.clone(),
            sentinel_password: self.sentinel_password.clone(),
            tls_ca: self.tls_ca.clone(),
            tls_identity: self.tls_identity.clone(),
            clock: None,
        })
    }
}

/// The longest time for a renewal, so that its failure is known before the lease is given up.
fn reply_max(policy: &Policy) -> Duration {
    let left = policy.ttl.as_duration();
    let left = left.saturating_sub(policy.interval + policy.margin);
    left.min(policy.interval)
}

/// Checks the timeout of the replicas.
pub(crate) fn check_durability(durability: Durability, policy: &Policy) -> Result<()> {
    let Durability::Replicas { timeout, .. } = durability else {
        return Ok(());
    };
    let max = reply_max(policy);
    if timeout < Duration::from_millis(1) {
        return Err(invalid("the timeout of replicas must be 1 ms or longer"));
    }
    if timeout > max {
        return Err(invalid(format!(
            "the timeout of replicas of {} must not be longer than {}, which is the interval of \
             renewals, or what the ttl leaves beside it and the margin: a renewal could not fail in \
             time",
            in_units(timeout),
            in_units(max),
        )));
    }
    Ok(())
}

/// A ttl or lease of a user's choice.
pub(crate) fn ttl(what: &str, duration: Duration) -> Result<Ttl> {
    Ttl::checked(duration).ok_or_else(|| {
        invalid(format!(
            "the {what} must be from 100 ms to 24 h, not {}",
            in_units(duration)
        ))
    })
}

/// A minimum hold of a user's choice, at a store that keeps no record longer than `longest` without a renewal.
pub(crate) fn min_hold(duration: Duration, longest: Ttl) -> Result<Duration> {
    if duration > MinHold::MAX {
        let message = format!(
            "the minimum hold must be at most 24 h, not {}",
            in_units(duration)
        );
        return Err(invalid(message));
    }
    if duration > longest.as_duration() {
        return Err(invalid(format!(
            "a minimum hold of {} is longer than the longest ttl that this store takes, {longest}; a master that was \
             started again takes part again after that time. Set ?longest-ttl= in the store URL, the same for all \
             programs",
            in_units(duration)
        )));
    }
    Ok(duration)
}

/// A name of a user's choice.
pub(crate) fn name(name: &str) -> Result<Name> {
    let what = "the name of a lock";
    Name::parse(name).map_err(|error| invalid_name(name, &format!("{what}: {error}")))
}

fn scope<T>(what: &str, text: &str, parse: impl FnOnce(&str) -> Result<T, NameError>) -> Result<T> {
    parse(text).map_err(|error| {
        let allowed = match error {
            NameError::Forbidden(_) => "; letters, digits, '.', '_' and '-' can",
            _ => "",
        };
        invalid_name(text, &format!("a {what}: {error}{allowed}"))
    })
}

fn invalid_name(text: &str, why: &str) -> Error {
    let excerpt: String = text.chars().take(40).collect();
    let message = format!("{excerpt:?} cannot be {why}");
    Error::new(ErrorKind::InvalidName, message)
}
