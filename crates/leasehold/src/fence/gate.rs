//! A gate in a process.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Stale;
use crate::Token;

/// Admits a token unless a larger one was admitted before.
///
/// It keeps the largest token in an atomic integer, so a check never blocks. An empty gate admits every
/// token: after a restart, first admit the one that was stored with the data, see [`Gate::newest`].
///
/// The check and the write must be one step, or a holder that is paused between them still writes
/// late. Where a write is not atomic by itself, check under the lock of the data:
///
/// ```
/// use std::sync::Mutex;
/// use leasehold::fence::{Gate, Stale};
/// use leasehold::Token;
///
/// struct Stock {
///     gate: Gate,
///     count: Mutex<u32>,
/// }
///
/// impl Stock {
///     fn set(&self, token: Token, count: u32) -> Result<(), Stale> {
///         let mut current = self.count.lock().unwrap();
///         self.gate.admit(token)?; // after the lock, before the write
///         *current = count;
///         Ok(())
///     }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let client = leasehold::Client::connect("memory:").await?;
/// let stock = Stock { gate: Gate::new(), count: Mutex::new(0) };
/// let early = client.mutex("stock")?.lock().await?.token();
/// let late = client.mutex("stock")?.lock().await?.token();
/// stock.set(late, 5)?;
/// stock.set(late, 6)?; // a holder may write as often as it likes
/// assert!(stock.set(early, 1).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Debug, Default)]
pub struct Gate {
    /// 0: no token was admitted yet. No token is 0.
    largest: AtomicU64,
}

impl Gate {
    /// An empty gate: the first token is admitted.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            largest: AtomicU64::new(0),
        }
    }

    /// Admits a token that is not smaller than any admitted before, and stores it.
    ///
    /// # Errors
    ///
    /// [`Stale`] if a larger token was admitted before.
    pub fn admit(&self, token: Token) -> Result<(), Stale> {
        let before = self.largest.fetch_max(token.get(), Ordering::AcqRel);
        match Token::new(before) {
            Some(newest) if newest > token => Err(Stale { token, newest }),
            _ => Ok(()),
        }
    }

    /// The largest admitted token, to be stored with the data. `None`: the gate is empty.
    #[must_use]
    pub fn newest(&self) -> Option<Token> {
        Token::new(self.largest.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::thread;

    use super::*;

    fn token(value: u64) -> Token {
        Token::new(value).unwrap()
    }

    #[test]
    fn only_what_is_older_is_refused() {
        let gate = Gate::new();
        assert_eq!(gate.newest(), None);
        for value in [3, 3, 7, 7] {
            assert_eq!(gate.admit(token(value)), Ok(()));
        }
        let stale = gate.admit(token(6)).unwrap_err();
        assert_eq!((stale.token, stale.newest), (token(6), token(7)));
        assert!(stale.to_string().contains("6 is stale"), "{stale}");
        assert_eq!(gate.admit(token(7)), Ok(()));
        assert_eq!(gate.newest(), Some(token(7)));
    }

    /// Tokens that are written under the lock of the data never decrease, in any order of the threads.
    #[test]
    fn what_is_admitted_by_many_threads_never_goes_back() {
        let (gate, written) = (Gate::new(), Mutex::new(Vec::new()));
        let admit = |token| {
            let mut written = written.lock().unwrap();
            written.extend(gate.admit(token).map(|()| token));
        };
        thread::scope(|scope| {
            for first in 1..=8 {
                let admit = &admit;
                scope.spawn(move || (0..500).for_each(|round| admit(token(first + round * 8))));
            }
        });
        let written = written.into_inner().unwrap();
        assert!(written.is_sorted());
        assert_eq!(written.last(), Some(&token(4_000)));
    }
}
