//! What the clients of a world did.

/// How often something happened that a run must show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Grants that were told and taken.
    pub accepted: u64,
    /// Grants that were told and came too late to be of use.
    pub too_late: u64,
    /// Grants for which nobody waited any more.
    pub strays: u64,
    /// Questions because a timer rang.
    pub timers: u64,
    /// Questions because the one before must have taken its grant.
    pub looked: u64,
    /// Questions on a new connection.
    pub asked_again: u64,
    /// Questions that were not answered in time.
    pub unanswered: u64,
    /// Lease ids that were given up because nobody knows what becomes of them.
    pub dead: u64,
    /// Waiters that gave up.
    pub gave_up: u64,
}

impl Counts {
    /// What two clients did together.
    #[must_use]
    pub const fn plus(self, other: &Self) -> Self {
        Self {
            accepted: self.accepted + other.accepted,
            too_late: self.too_late + other.too_late,
            strays: self.strays + other.strays,
            timers: self.timers + other.timers,
            looked: self.looked + other.looked,
            asked_again: self.asked_again + other.asked_again,
            unanswered: self.unanswered + other.unanswered,
            dead: self.dead + other.dead,
            gave_up: self.gave_up + other.gave_up,
        }
    }
}
