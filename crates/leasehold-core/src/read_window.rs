//! The readers of a process that share a read lease.
//!
//! For [`SHARE_TIME`] after the grant of a read lease, further readers of its process join it without a request. Later ones
//! request a lease of their own, and so stand behind whoever waits in the store. So any number of reads costs a request for
//! each such time, and a writer elsewhere waits at most that much longer than for the readers that were there.
//!
//! A lease that a second reader has joined is kept until the end of its time, even if nobody reads meanwhile: the next
//! reader comes soon.

use std::time::Duration;

use crate::time::Instant;

/// For how long readers join a read lease.
pub const SHARE_TIME: Duration = Duration::from_millis(20);

/// The time in which readers join a read lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadWindow {
    end: Instant,
    is_shared: bool,
}

/// Whether a reader joins a read lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joining {
    /// It is the first one that does. The host keeps the lease until the end of the window.
    First,
    /// It joins others.
    Joins,
    /// It is too late.
    Over,
}

impl ReadWindow {
    /// The window of a lease whose grant became known at this instant.
    #[must_use]
    pub fn begin(granted: Instant) -> Self {
        Self {
            end: granted.after(SHARE_TIME),
            is_shared: false,
        }
    }

    /// Decides for a reader that comes now. One that does not join after all makes no difference.
    pub fn join(&mut self, now: Instant) -> Joining {
        if now >= self.end {
            return Joining::Over;
        }
        match std::mem::replace(&mut self.is_shared, true) {
            false => Joining::First,
            true => Joining::Joins,
        }
    }

    /// When it ends.
    #[must_use]
    pub const fn end(&self) -> Instant {
        self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_join_until_the_end_of_the_window() {
        let granted = Instant::from_nanos(5);
        let mut window = ReadWindow::begin(granted);
        let last = granted.after(SHARE_TIME).before(Duration::from_nanos(1));
        assert_eq!(window.join(granted), Joining::First);
        assert_eq!(window.join(last), Joining::Joins);
        assert_eq!(window.join(window.end()), Joining::Over);
        assert_eq!(ReadWindow::begin(granted).join(window.end()), Joining::Over);
    }
}
