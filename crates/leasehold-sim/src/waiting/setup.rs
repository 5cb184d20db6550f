//! What a world of waiters is like.

/// A world to run.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// How many clients want the lock.
    pub clients: usize,
    /// What befalls them.
    pub story: Story,
    /// The part that is taken out, to show that somebody notices.
    pub broken: Option<Broken>,
}

/// What happens in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Story {
    /// Everything, at random, for so many events; then calm, in which everybody must be served.
    Chaos(usize),
    /// The first in the queue are killed, and the store sees it; then the holder releases.
    DeadHeads,
    /// The first in the queue is stopped, or cut off unseen; then the holder releases.
    DeafHead,
    /// The same, and the second in the queue is killed, which the store sees.
    DeafHeadDeadSecond,
    /// The holder is killed.
    DeadHolder,
    /// The connection of the first in the queue breaks when its grant is under way.
    LostGrant,
    /// The first in the queue gives up; then the holder releases.
    LeavingHead,
    /// A question of one that gave up reaches the store after its farewell; then the holder
    /// releases.
    LateQuestion,
}

/// A part of the protocol that is taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The store takes every waiter for a living one, as by counting subscriptions to patterns.
    NoSkip,
    /// The store notifies a grant to the waiter right behind it, whether that lives or not.
    NextMayBeDead,
    /// A grant that was told lasts until it is released.
    NoAcceptance,
    /// A grant that was told lasts for all the ttl that was asked for.
    FullAcceptance,
    /// The next in the queue does not look after the grant of the one before.
    NoNext,
    /// Waiters have no timer.
    NoTimer,
    /// Waiters do not ask again on a new connection.
    NoQuestionAfterReconnect,
    /// Waiters that give up do not say so.
    NoLeave,
    /// A grant for which nobody waits any more is kept.
    KeepsStrays,
    /// A grant counts although the lease was refused since.
    TakesOldGrants,
    /// A grant counts for all the ttl that was asked for.
    TakesFullTtl,
    /// The deadline of a grant counts from the arrival of its message.
    DeadlineFromMessage,
}

impl Broken {
    /// Whether it is the store that is broken. Its judge would see that at once; here it is to be
    /// missed by those who wait.
    pub(super) const fn is_of_store(self) -> bool {
        matches!(
            self,
            Self::NoSkip | Self::NextMayBeDead | Self::NoAcceptance | Self::FullAcceptance
        )
    }
}
