//! What a client can hold, for behaviours that do not depend on its kind.

use std::ops::Deref;

use leasehold::__private::store::Feature;
use leasehold::{
    Client, Guard, GuardSet, LeaseOptions, Mutex, Permit, ReadGuard, Result, WriteGuard,
};

use crate::fixture::Fixture;

/// A mutex, the only permit of a semaphore, a reader, a writer, or a set of mutexes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Mutex,
    Permit,
    Reader,
    Writer,
    Set,
}

/// What is held. It derefs to the guard of the name.
#[derive(Debug)]
pub(crate) enum Held {
    Mutex(Guard),
    Permit(Box<Permit>),
    Reader(ReadGuard),
    Writer(WriteGuard),
    Set(GuardSet),
}

impl Kind {
    pub(crate) const ALL: [Self; 5] = [
        Self::Mutex,
        Self::Permit,
        Self::Reader,
        Self::Writer,
        Self::Set,
    ];

    /// Those that a store has.
    pub(crate) async fn all_of(fixture: &Fixture) -> Vec<Self> {
        match fixture.has(Feature::Semaphores).await {
            true => Self::ALL.to_vec(),
            false => vec![Self::Mutex, Self::Set],
        }
    }

    /// A kind that nobody else can hold at the same time.
    pub(crate) const fn rival(self) -> Self {
        match self {
            Self::Reader => Self::Writer,
            same => same,
        }
    }

    /// Acquires it.
    pub(crate) async fn lock(
        self,
        client: &Client,
        name: &str,
        options: LeaseOptions,
    ) -> Result<Held> {
        Ok(match self {
            Self::Mutex => Held::Mutex(client.mutex(name)?.with(options)?.lock().await?),
            Self::Permit => {
                let semaphore = client.semaphore(name, 1)?.with(options)?;
                Held::Permit(Box::new(semaphore.acquire().await?))
            }
            Self::Reader => Held::Reader(client.rw_lock(name)?.with(options)?.read().await?),
            Self::Writer => Held::Writer(client.rw_lock(name)?.with(options)?.write().await?),
            Self::Set => {
                let first = client.mutex(name)?.with(options.clone())?;
                let second = client.mutex(format!("{name}/second"))?.with(options)?;
                let set = client.all([&first, &second].map(Mutex::for_lock))?;
                Held::Set(set.lock().await?)
            }
        })
    }
}

impl Held {
    pub(crate) async fn release(self) -> Result<()> {
        match self {
            Self::Mutex(guard) => guard.release().await,
            Self::Permit(permit) => permit.release().await,
            Self::Reader(guard) => guard.release().await,
            Self::Writer(guard) => guard.release().await,
            Self::Set(guards) => guards.release().await,
        }
    }
}

impl Deref for Held {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        match self {
            Self::Mutex(guard) => guard,
            Self::Permit(permit) => permit,
            Self::Reader(guard) => guard,
            Self::Writer(guard) => guard,
            Self::Set(guards) => &guards[0],
        }
    }
}
