//! A client of a test's own: it asks by hand and notes what it hears.

use std::sync::{Arc, Mutex};

use leasehold::store::{Event, EventScope, Listener, Request, Store};
use leasehold_core::{ClientId, Grant, LeaseId, Notice};
use leasehold_testkit::{RedisServer, eventually_async};

use super::*;

/// What a client heard, in the order in which it came.
#[derive(Debug, Default)]
pub(crate) struct EventLog(Mutex<Vec<Event>>);

impl Listener for EventLog {
    fn notify(&self, event: Event) {
        self.0.lock().unwrap().push(event);
    }
}

impl EventLog {
    /// What was heard since the last question.
    pub(crate) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// A client with a listener.
pub(crate) struct Asker {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) event_log: Arc<EventLog>,
    client: ClientId,
}

impl Asker {
    /// A client of its own connection.
    pub(crate) async fn connect(url: &str, client: u8) -> Self {
        Self::on(&open(url).await, client)
    }

    /// A client that shares the connection of a store.
    pub(crate) fn on(store: &Arc<dyn Store>, client: u8) -> Self {
        Self::in_space(store, &space(), client)
    }

    /// The same, in another namespace or tenant.
    pub(crate) fn in_space(store: &Arc<dyn Store>, space: &Keyspace, client: u8) -> Self {
        let event_log = Arc::new(EventLog::default());
        let client = ClientId::from_random([client; 16]);
        let listener = Arc::downgrade(&event_log) as std::sync::Weak<dyn Listener>;
        store.listen(space, client, listener);
        Self {
            store: Arc::clone(store),
            event_log,
            client,
        }
    }

    pub(crate) fn lease(&self, number: u64) -> LeaseId {
        let client = self.client;
        LeaseId { client, number }
    }

    pub(crate) fn channel(&self) -> String {
        format!("app:client:{}", self.client)
    }

    /// The same request, for a lease of this client.
    pub(crate) fn own(&self, mut request: Request) -> Request {
        match &mut request.op {
            Op::Acquire { lease, .. }
            | Op::Enter { lease, .. }
            | Op::SetToken { lease, .. }
            | Op::Renew { lease, .. }
            | Op::Release { lease, .. } => {
                lease.client = self.client;
            }
            Op::Revoke => {}
        }
        request
    }

    pub(crate) async fn ask(&self, request: Request) -> Outcome {
        applied(&*self.store, self.own(request)).await
    }

    /// Asks for a lock that another holds, and gives the place in its queue.
    pub(crate) async fn wait(&self, name: &str, number: u64) -> u32 {
        match self.ask(wait(name, number)).await {
            Outcome::Refused {
                queue_position: Some(place),
                ..
            } => place,
            other => panic!("{name} {number}: {other:?}"),
        }
    }

    /// Takes a lock that is free and gives its token.
    pub(crate) async fn take(&self, name: &str, number: u64) -> u64 {
        granted(&*self.store, self.own(acquire(name, number))).await
    }

    pub(crate) async fn release(&self, name: &str, number: u64) {
        let released = self.ask(release(name, number, 0)).await;
        assert_eq!(released, Outcome::Released { count: 0 }, "{name} {number}");
    }

    /// Waits until it hears of something. Hints may come twice, and others beside them.
    pub(crate) async fn hears(&self, event: &Event) {
        eventually_async(SOON, async || self.event_log.take().contains(event)).await;
    }

    /// Waits until it hears of an interruption, once.
    pub(crate) async fn hears_of_interruption(&self) {
        let mut heard = Vec::new();
        eventually_async(SOON, async || {
            heard.extend(self.event_log.take());
            heard.retain(|event| !matches!(event, Event::Changed(_)));
            !heard.is_empty()
        })
        .await;
        assert_eq!(heard, [Event::Interrupted(EventScope::Store)]);
    }

    /// The grant of a lease, as the next thing it hears but hints: whoever waits has asked, and so
    /// may be told that the record changed.
    pub(crate) async fn granted(&self, name: &str, number: u64) -> Grant {
        let mut grants = Vec::new();
        eventually_async(SOON, async || {
            grants.extend(
                self.event_log
                    .take()
                    .into_iter()
                    .filter_map(|event| match event {
                        Event::Notice(told, Notice::Granted(grant)) => {
                            assert_eq!(told, key(name));
                            Some(grant)
                        }
                        Event::Notice(_, Notice::Next { .. }) | Event::Changed(_) => None,
                        other => panic!("{other:?}"),
                    }),
            );
            !grants.is_empty()
        })
        .await;
        assert_eq!(grants.len(), 1, "{grants:?}");
        assert_eq!(grants[0].lease, self.lease(number));
        grants.remove(0)
    }

    /// A round trip: what the server sent before is heard by then.
    pub(crate) async fn settle(&self) {
        self.ask(renew("nothing", 0)).await;
    }
}

/// A question for a lock, to wait for it if it is refused.
pub(crate) fn wait(name: &str, number: u64) -> Request {
    let mut request = acquire(name, number);
    if let Op::Acquire { wait, .. } = &mut request.op {
        *wait = true;
    }
    request
}

/// The same request for another ttl.
pub(crate) fn lasting(mut request: Request, millis: u64) -> Request {
    match &mut request.op {
        Op::Acquire { ttl: place, .. }
        | Op::Enter { ttl: place, .. }
        | Op::Renew { ttl: place, .. }
        | Op::Release { ttl: place, .. } => *place = ttl(millis),
        Op::SetToken { .. } | Op::Revoke => {}
    }
    request
}

/// Puts leases of clients into a queue that never were there.
pub(crate) fn queue_dead(server: &RedisServer, name: &str, numbers: std::ops::Range<u64>) {
    let queue = format!("app:{{t:{name}}}:queue");
    for numbers in numbers.collect::<Vec<_>>().chunks(500) {
        let mut push = vec!["RPUSH".to_owned(), queue.clone()];
        for number in numbers {
            let lease = format!("{:032x}:{number}", number + 1_000);
            push.push(format!("{lease} 30000 {}", dead_tokens(*number)));
            push.push(lease);
        }
        let push: Vec<_> = push.iter().map(String::as_str).collect();
        server.cli(&push);
    }
    server.cli(&["PEXPIRE", &queue, "60000"]);
}

/// For how many tokens such a lease asks.
pub(crate) fn dead_tokens(number: u64) -> u64 {
    number % 7 + 1
}

/// How often a command was called, also in scripts.
pub(crate) fn calls_of(server: &RedisServer, command: &str) -> u64 {
    let stats = server.cli(&["INFO", "commandstats"]);
    let prefix = format!("cmdstat_{command}:calls=");
    let line = stats.lines().find_map(|line| line.strip_prefix(&prefix));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

/// How many scripts were called.
pub(crate) fn script_calls(server: &RedisServer) -> u64 {
    calls_of(server, "evalsha") + calls_of(server, "eval")
}

/// How many keys the server watches, for how many connections each.
pub(crate) fn watched(server: &RedisServer) -> usize {
    let stats = server.cli(&["INFO", "stats"]);
    let mut lines = stats.lines();
    let count = lines.find_map(|line| line.strip_prefix("tracking_total_items:"));
    count.unwrap().trim().parse().unwrap()
}
