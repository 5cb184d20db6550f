//! Many leases of different lengths, and a client that falls silent again and again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use proptest::prelude::*;

use super::*;

const RETRY_DIVISOR: u32 = 30;

/// A lease, and when the last renewal was sent that the store has done.
struct Kept {
    ttl: Duration,
    renewed: Instant,
    failed: bool,
}

/// A node, a store and a client, on one clock.
struct Play {
    monitor: ClientMonitor<()>,
    leases: Vec<Kept>,
    now: Instant,
    /// Actions in flight: when they get a reply, of which lease, and when they were sent.
    replies: BinaryHeap<Reverse<(Instant, usize, Instant)>>,
    chance: Chance,
}

/// Enough chance for delays and failures.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end.max(1)
    }
}

impl Play {
    fn new(ttls: &[u64], seed: u64) -> Self {
        let now = at(1_000);
        let mut play = Self {
            monitor: ClientMonitor::new(Evidence::Processes, MAX_PAUSE, now),
            leases: Vec::new(),
            now,
            replies: BinaryHeap::new(),
            chance: Chance(seed | 1),
        };
        for (number, ttl) in ttls.iter().enumerate() {
            let ttl = Ttl::from_millis(*ttl).unwrap();
            let span = ttl.as_duration();
            let terms = Terms::new(ttl, span / 3, span / RETRY_DIVISOR, Terms::NO_END);
            play.monitor.register(number as u64, terms, (), now);
            play.leases.push(Kept {
                ttl: span,
                renewed: now,
                failed: false,
            });
        }
        play
    }

    /// The client is well until now: each of its renewals is an interval and a retry old at most.
    fn well(&mut self) {
        self.monitor.message_received(self.now);
        for lease in &mut self.leases {
            let old = (lease.ttl / 3 + lease.ttl / RETRY_DIVISOR).as_millis() as u64;
            let old = Duration::from_millis(self.chance.below(old));
            lease.renewed = lease.renewed.max(self.now.before(old));
        }
    }

    /// It is silent until then.
    fn silent_until(&mut self, end: Instant) {
        loop {
            let late = Duration::from_millis(self.chance.below(5));
            let next = self.monitor.next_event(self.now);
            let next = next.map(|next| next.max(self.now).after(late));
            let reply = self.replies.peek().map(|Reverse((when, ..))| *when);
            let first = [next, reply].into_iter().flatten().min();
            let Some(first) = first.filter(|first| *first <= end) else {
                break;
            };
            self.now = first;
            match reply == Some(first) {
                true => self.handle_reply(),
                false => self.polled(),
            }
        }
        self.now = end;
        for lease in &self.leases {
            assert!(end < lease.renewed.after(lease.ttl), "{:?}", lease.ttl);
        }
    }

    fn polled(&mut self) {
        for (number, action) in self.monitor.poll(self.now) {
            let lease = &self.leases[number as usize];
            assert_eq!(action, WatchdogAction::Renew(Ttl::remainder(lease.ttl)));
            let longest = (lease.ttl / RETRY_DIVISOR).as_millis() as u64;
            let takes = Duration::from_millis(self.chance.below(longest));
            let reply = (self.now.after(takes), number as usize, self.now);
            self.replies.push(Reverse(reply));
        }
        let next = self.monitor.next_event(self.now);
        assert!(next.is_none_or(|next| next > self.now), "busy");
        assert_eq!(self.monitor.poll(self.now), []);
    }

    /// One in eight fails, and its second try does not.
    fn handle_reply(&mut self) {
        let Some(Reverse((_, number, sent))) = self.replies.pop() else {
            return;
        };
        let fails = self.chance.below(8) == 0;
        let lease = &mut self.leases[number];
        let end = match fails && !lease.failed {
            true => ActionResult::Failed,
            false => ActionResult::Renewed,
        };
        lease.failed = end == ActionResult::Failed;
        if end == ActionResult::Renewed {
            assert!(self.now < lease.renewed.after(lease.ttl), "{:?}", lease.ttl);
            lease.renewed = lease.renewed.max(sent);
        }
        let action = WatchdogAction::Renew(Ttl::remainder(lease.ttl));
        self.monitor
            .handle_result(number as u64, action, end, sent, self.now);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn no_lease_ends_while_its_client_is_silent(
        ttls in prop::collection::vec(500..60_000_u64, 1..100),
        spans in prop::collection::vec((0..3_000_u64, 0..20_000_u64), 1..4),
        seed in any::<u64>(),
    ) {
        let mut play = Play::new(&ttls, seed);
        for (well, silent) in spans {
            play.now = play.now.after(Duration::from_millis(well));
            play.well();
            play.silent_until(play.now.after(Duration::from_millis(silent)));
        }
    }

    #[test]
    fn the_dead_are_released_in_bounded_time(
        ttls in prop::collection::vec(500..60_000_u64, 1..100),
        silent in 0..20_000_u64,
        failing in 0..40_u64,
    ) {
        let mut play = Play::new(&ttls, 7);
        play.well();
        play.silent_until(play.now.after(Duration::from_millis(silent)));
        let died = play.now;
        play.monitor.disconnected();
        play.monitor.died(died);
        let mut polls = 0;
        while let Some(next) = play.monitor.next_event(play.now) {
            play.now = next.max(play.now);
            polls += 1;
            for (number, action) in play.monitor.poll(play.now) {
                prop_assert!(matches!(action, WatchdogAction::Release(_)));
                let end = if polls <= failing { ActionResult::Failed } else { ActionResult::NotHeld };
                play.monitor.handle_result(number, action, end, play.now, play.now);
            }
            prop_assert!(polls < 40 * ttls.len() as u64 + 2);
        }
        prop_assert!(play.monitor.is_finished(play.now));
        prop_assert!(play.now <= died.after(Duration::from_secs(60)));
    }
}
