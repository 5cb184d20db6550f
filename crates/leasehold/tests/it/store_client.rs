//! Requests to a store below the driver, and a client that a test drives request by request.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use leasehold::__private::store::{
    self, Event, EventScope, Key, Keyspace, Listener, Listening, OpenOptions, Reply, Request,
    Store, WakeupMode,
};
use leasehold::{Error, ErrorKind};
use leasehold_core::{
    Access, Acquire, Claim, ClientId, Grant, LeaseId, Loss, Name, Namespace, Notice, Op, Outcome,
    ScopeName, StoreTime, TokenCount, Ttl, Whom,
};
use leasehold_testkit::eventually_async;

use crate::waiters::SOON;

/// The ttl of a request, unless [`lasting`] changes it.
pub(crate) const TTL: Duration = Duration::from_secs(30);

/// How long a reply may take: a busy machine may starve a server for longer than the default. The longest time that the
/// default ttl allows.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// How long an election, or the return of a server, may take on a busy machine.
const RECOVERY: Duration = Duration::from_secs(60);

// Outcomes of requests.
pub(crate) const FREE: Outcome = Outcome::Lost(Loss::Free);
pub(crate) const TAKEN_OVER: Outcome = Outcome::Lost(Loss::TakenOver);

pub(crate) fn keyspace(namespace: &str, tenant: &str) -> Keyspace {
    let namespace = Namespace::parse(namespace).unwrap();
    Keyspace::new(namespace, ScopeName::parse(tenant).unwrap())
}

pub(crate) fn space() -> Keyspace {
    keyspace("app", "t")
}

pub(crate) fn key(name: &str) -> Key {
    space().key(Name::parse(name).unwrap())
}

pub(crate) fn client_id(number: u8) -> ClientId {
    ClientId::from_random([number; 16])
}

/// A lease of the client in the requests below.
pub(crate) fn lease(number: u64) -> LeaseId {
    let client = client_id(7);
    LeaseId { client, number }
}

pub(crate) fn ttl(millis: u64) -> Ttl {
    Ttl::from_millis(millis).unwrap()
}

fn full_ttl() -> Ttl {
    Ttl::checked(TTL).unwrap()
}

pub(crate) fn acquire(name: &str, number: u64) -> Request {
    let acquire = Acquire::mutex(lease(number), full_ttl());
    Request::new(key(name), Op::Acquire(acquire))
}

/// An acquisition that joins the queue if it is refused.
pub(crate) fn wait(name: &str, number: u64) -> Request {
    let mut request = acquire(name, number);
    if let Op::Acquire(acquire) = &mut request.op {
        acquire.wait = true;
    }
    request
}

/// An acquisition of permits of a semaphore.
pub(crate) fn permits(mut request: Request, weight: u32, limit: u32) -> Request {
    if let Op::Acquire(acquire) = &mut request.op {
        let [weight, limit] = [weight, limit].map(|count| NonZeroU32::new(count).unwrap());
        acquire.claim = Claim::Permits {
            weight,
            limit,
            numbered: false,
        };
    }
    request
}

/// An acquisition of a read-write lock.
pub(crate) fn access(mut request: Request, access: Access) -> Request {
    if let Op::Acquire(acquire) = &mut request.op {
        acquire.claim = Claim::Access(access);
    }
    request
}

/// An acquisition that reserves a block of tokens.
pub(crate) fn block(mut request: Request, size: u32) -> Request {
    if let Op::Acquire(acquire) = &mut request.op {
        acquire.tokens = TokenCount::new(size).unwrap();
    }
    request
}

pub(crate) fn renew(name: &str, number: u64) -> Request {
    Request::new(key(name), Op::renew(lease(number), full_ttl()))
}

/// A renewal that sets the hold count.
pub(crate) fn enter(name: &str, number: u64, count: u32) -> Request {
    let (lease, ttl, count) = (lease(number), full_ttl(), NonZeroU32::new(count));
    Request::new(key(name), Op::Renew { lease, ttl, count })
}

pub(crate) fn release(name: &str, number: u64) -> Request {
    Request::new(key(name), Op::release(lease(number)))
}

/// A release after which the lock stays taken for a ttl: see [`lasting`].
pub(crate) fn release_after(name: &str, number: u64) -> Request {
    let op = Op::Release {
        lease: lease(number),
        rest: Some(full_ttl()),
        note: None,
    };
    Request::new(key(name), op)
}

pub(crate) fn revoke(name: &str) -> Request {
    Request::new(key(name), Op::Revoke(Whom::All))
}

/// The same request in another keyspace.
pub(crate) fn within(space: &Keyspace, request: Request) -> Request {
    Request::new(space.key(request.key.name), request.op)
}

/// The same request with another ttl.
pub(crate) fn lasting(mut request: Request, lease: Duration) -> Request {
    match &mut request.op {
        Op::Acquire(Acquire { ttl, .. })
        | Op::Renew { ttl, .. }
        | Op::Release {
            rest: Some(ttl), ..
        } => *ttl = Ttl::checked(lease).unwrap(),
        _ => {}
    }
    request
}

pub(crate) async fn open(url: &str) -> Arc<dyn Store> {
    let options = OpenOptions::default().response_timeout(PATIENCE);
    open_with(url, options).await
}

/// A store whose server may be slow.
pub(crate) async fn open_patient(url: &str) -> Arc<dyn Store> {
    let options = OpenOptions::default().response_timeout(Duration::from_secs(60));
    open_with(url, options).await
}

pub(crate) async fn open_with(url: &str, options: OpenOptions) -> Arc<dyn Store> {
    let opened = store::open_with(url, &options).await;
    opened.unwrap_or_else(|error| panic!("{error}"))
}

/// The error of an address.
pub(crate) async fn refused(url: &str) -> Error {
    let options = OpenOptions::default().response_timeout(PATIENCE);
    let opened = store::open_with(url, &options).await;
    opened.map(|store| store.to_string()).unwrap_err()
}

/// Checks that the error of an address has this kind, this advice, and a store that begins so.
pub(crate) async fn assert_refused(url: &str, kind: ErrorKind, advice: &str, store: &str) {
    let error = refused(url).await;
    assert_eq!(error.kind(), kind, "{url}: {error}");
    assert!(error.to_string().contains(advice), "{url}: {error}");
    let named = error.store();
    assert!(named.is_some_and(|it| it.starts_with(store)), "{error}");
}

/// Checks the kind of an error, and that its message has these parts.
#[track_caller]
pub(crate) fn assert_error(error: &Error, kind: ErrorKind, parts: &[&str]) {
    assert_eq!(error.kind(), kind, "{error}");
    let message = error.to_string();
    for part in parts {
        assert!(message.contains(part), "{part:?}: {message}");
    }
}

/// Waits until a request gets a reply that it was applied.
pub(crate) async fn until_works(store: &dyn Store, name: &str) {
    eventually_async(RECOVERY, async || {
        let replies = store.apply(vec![acquire(name, 1), release(name, 1)]).await;
        replies.iter().all(|reply| outcome(reply).is_some())
    })
    .await;
}

/// Waits until the clients of a store are notified in this way.
pub(crate) async fn until_wakeup(store: &dyn Store, wakeup: WakeupMode) {
    eventually_async(RECOVERY, async || store.capabilities().wakeup == wakeup).await;
}

pub(crate) async fn send(store: &dyn Store, request: Request) -> Reply {
    let mut replies = store.apply(vec![request]).await;
    assert_eq!(replies.len(), 1);
    replies.remove(0)
}

pub(crate) async fn applied(store: &dyn Store, request: Request) -> Outcome {
    match send(store, request.clone()).await {
        Reply::Applied { outcome, .. } => outcome,
        other => panic!("{request:?}: {other:?}"),
    }
}

pub(crate) async fn applied_at(store: &dyn Store, request: Request) -> (Outcome, StoreTime) {
    match send(store, request.clone()).await {
        Reply::Applied {
            outcome,
            now: Some(now),
        } => (outcome, now),
        other => panic!("{request:?}: {other:?}"),
    }
}

pub(crate) async fn rejected(store: &dyn Store, request: Request) -> Error {
    match send(store, request.clone()).await {
        Reply::Rejected(error) => error,
        other => panic!("{request:?}: {other:?}"),
    }
}

pub(crate) async fn unknown(store: &dyn Store, request: Request) -> Error {
    match send(store, request.clone()).await {
        Reply::Unknown(error) => error,
        other => panic!("{request:?}: {other:?}"),
    }
}

/// The error of a request that was rejected, or whose outcome is unknown.
pub(crate) async fn rejected_or_unknown(store: &dyn Store, request: Request) -> Error {
    match send(store, request.clone()).await {
        Reply::Rejected(error) | Reply::Unknown(error) => error,
        other => panic!("{request:?}: {other:?}"),
    }
}

/// Acquires a free lock. Returns the token.
pub(crate) async fn granted(store: &dyn Store, request: Request) -> u64 {
    match applied(store, request.clone()).await {
        Outcome::Granted { first, .. } => first.get(),
        other => panic!("{request:?}: {other:?}"),
    }
}

/// Acquires and releases a lock.
pub(crate) async fn works(store: &dyn Store) {
    granted(store, acquire("works", 1)).await;
    assert_eq!(applied(store, release("works", 1)).await, Outcome::Released);
}

/// Waits until a lock passes from one client to another.
pub(crate) async fn passes_on(holder: &StoreClient, waiter: &StoreClient, name: &str) {
    holder.acquire(name, 1).await;
    assert_eq!(waiter.wait(name, 1).await, 0);
    holder.release(name, 1).await;
    waiter.granted(name, 1).await;
    waiter.release(name, 1).await;
}

/// The outcome in a reply, if the request was applied.
pub(crate) fn outcome(reply: &Reply) -> Option<Outcome> {
    match reply {
        // Over many masters, it is chance whether some of them have granted it.
        Reply::Applied {
            outcome: Outcome::GrantedInPart { time_left },
            ..
        } => Some(Outcome::Refused {
            time_left: *time_left,
            queue_position: None,
        }),
        Reply::Applied { outcome, .. } => Some(outcome.clone()),
        Reply::Rejected(_) | Reply::Unknown(_) => None,
    }
}

/// The outcome of each request, as a word.
pub(crate) fn words(replies: &[Reply]) -> String {
    let word = |reply: &Reply| match reply {
        Reply::Applied { outcome, .. } => match outcome {
            Outcome::Granted { .. } => "granted",
            Outcome::Refused { .. } | Outcome::GrantedInPart { .. } => "refused",
            Outcome::Released => "released",
            Outcome::Revoked(_) => "revoked",
            Outcome::Lost(_) => "lost",
            _ => "applied",
        },
        Reply::Rejected(_) => "rejected",
        Reply::Unknown(_) => "unknown",
    };
    replies.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// The error of a request that was rejected.
#[track_caller]
pub(crate) fn error(reply: &Reply) -> &Error {
    match reply {
        Reply::Rejected(error) => error,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn is_granted(reply: &Reply) -> bool {
    matches!(outcome(reply), Some(Outcome::Granted { .. }))
}

pub(crate) fn is_refused(reply: &Reply) -> bool {
    matches!(outcome(reply), Some(Outcome::Refused { .. }))
}

/// The events of a client, in order.
#[derive(Debug, Default)]
pub(crate) struct EventLog(Mutex<Vec<Event>>);

impl Listener for EventLog {
    fn notify(&self, event: Event) {
        self.0.lock().unwrap().push(event);
    }
}

/// A client of a store, with a listener.
pub(crate) struct StoreClient {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) id: ClientId,
    pub(crate) event_log: Arc<EventLog>,
    listening: Mutex<Option<Listening>>,
}

impl StoreClient {
    /// A client with a connection of its own.
    pub(crate) async fn connect(url: &str, number: u8) -> Self {
        Self::on(&open(url).await, number)
    }

    /// Two clients with a connection each.
    pub(crate) async fn two(url: &str) -> [Self; 2] {
        [Self::connect(url, 1).await, Self::connect(url, 2).await]
    }

    /// Two clients with a connection each, which their stores have subscribed to their events.
    pub(crate) async fn two_listening([one, other]: [&str; 2]) -> [Self; 2] {
        [
            Self::listening(&open(one).await, 11).await,
            Self::listening(&open(other).await, 12).await,
        ]
    }

    /// A client that shares the connection of a store.
    pub(crate) fn on(store: &Arc<dyn Store>, number: u8) -> Self {
        Self::in_space(store, &space(), number)
    }

    /// A client that the store has subscribed to its events.
    pub(crate) async fn listening(store: &Arc<dyn Store>, number: u8) -> Self {
        let client = Self::on(store, number);
        client.settle().await;
        client
    }

    /// A client in another namespace or tenant.
    pub(crate) fn in_space(store: &Arc<dyn Store>, space: &Keyspace, number: u8) -> Self {
        Self::silent(store, number).subscribed(space)
    }

    /// A client with a random id, for servers that tests share.
    pub(crate) fn unique(store: &Arc<dyn Store>) -> Self {
        let mut client = Self::silent(store, 0);
        client.id = ClientId::from_random(fastrand::u128(..).to_be_bytes());
        client
    }

    /// Subscribes the client to its events.
    pub(crate) fn subscribed(self, space: &Keyspace) -> Self {
        let listener = Arc::downgrade(&self.event_log) as Weak<dyn Listener>;
        let listening = self.store.listen(space, self.id, listener);
        *self.listening.lock().unwrap() = Some(listening);
        self
    }

    /// A client that does not subscribe to its events.
    pub(crate) fn silent(store: &Arc<dyn Store>, number: u8) -> Self {
        Self {
            store: Arc::clone(store),
            id: client_id(number),
            event_log: Arc::default(),
            listening: Mutex::default(),
        }
    }

    pub(crate) fn unsubscribe(&self) {
        drop(self.listening.lock().unwrap().take());
    }

    pub(crate) fn lease(&self, number: u64) -> LeaseId {
        let client = self.id;
        LeaseId { client, number }
    }

    pub(crate) fn channel(&self) -> String {
        format!("app:client:{}", self.id)
    }

    /// The same request for a lease of this client.
    pub(crate) fn own(&self, mut request: Request) -> Request {
        match &mut request.op {
            Op::Acquire(Acquire { lease, .. })
            | Op::SetToken { lease, .. }
            | Op::Renew { lease, .. }
            | Op::Convert { lease, .. }
            | Op::Release { lease, .. } => lease.client = self.id,
            _ => {}
        }
        request
    }

    pub(crate) async fn send(&self, request: Request) -> Reply {
        send(&*self.store, self.own(request)).await
    }

    pub(crate) async fn apply(&self, request: Request) -> Outcome {
        applied(&*self.store, self.own(request)).await
    }

    pub(crate) async fn rejected(&self, request: Request) -> Error {
        rejected(&*self.store, self.own(request)).await
    }

    /// Acquires a free lock. Returns the token.
    pub(crate) async fn acquire(&self, name: &str, number: u64) -> u64 {
        granted(&*self.store, self.own(acquire(name, number))).await
    }

    /// Waits for the grant of a lease behind many dead waiters. A call passes over them for a limited time, and the
    /// next request for the lock continues: on a busy machine, one of another client.
    pub(crate) async fn granted_behind_dead(&self, name: &str, number: u64, other: &Self) -> Grant {
        for _ in 0..SOON.as_secs() {
            let granted = self.granted(name, number);
            if let Ok(grant) = tokio::time::timeout(Duration::from_secs(1), granted).await {
                return grant;
            }
            other.apply(renew(name, u64::MAX)).await;
        }
        panic!("{name} is not granted")
    }

    /// Joins the queue of a lock. Returns the position.
    pub(crate) async fn wait(&self, name: &str, number: u64) -> u32 {
        self.join(wait(name, number)).await
    }

    /// Joins the queue with this request. Returns the position.
    pub(crate) async fn join(&self, request: Request) -> u32 {
        let position = self.refused(request).await;
        position.expect("a position in the queue")
    }

    /// Checks that a request is refused, and that it does not join the queue.
    pub(crate) async fn is_not_queued(&self, request: Request) {
        assert_eq!(self.refused(request).await, None);
    }

    async fn refused(&self, request: Request) -> Option<u32> {
        match self.apply(request.clone()).await {
            Outcome::Refused { queue_position, .. } => queue_position,
            other => panic!("{request:?}: {other:?}"),
        }
    }

    pub(crate) async fn release(&self, name: &str, number: u64) {
        let released = self.apply(release(name, number)).await;
        assert_eq!(released, Outcome::Released, "{name} {number}");
    }

    /// Takes the events so far.
    pub(crate) fn events(&self) -> Vec<Event> {
        std::mem::take(&mut self.event_log.0.lock().unwrap())
    }

    /// Checks that no notice of the rule is among the events so far.
    pub(crate) fn no_notices(&self) {
        let mut events = self.events();
        events.retain(|event| matches!(event, Event::Notice(..)));
        assert_eq!(events, []);
    }

    /// Waits for an event. Hints may come twice, and others beside them.
    pub(crate) async fn until_event(&self, event: &Event) {
        eventually_async(SOON, async || self.events().contains(event)).await;
    }

    /// Waits until a lock is reported as changed.
    pub(crate) async fn until_changed(&self, name: &str) {
        self.until_event(&Event::Changed(key(name))).await;
    }

    /// The next events, exactly so many.
    pub(crate) async fn next_events(&self, count: usize) -> Vec<Event> {
        let mut events = Vec::new();
        eventually_async(SOON, async || {
            events.extend(self.events());
            events.len() >= count
        })
        .await;
        assert_eq!(events.len(), count, "{events:?}");
        events
    }

    /// Waits for an interruption of the store, which is reported once.
    pub(crate) async fn until_interrupted(&self) {
        let mut events = Vec::new();
        eventually_async(SOON, async || {
            events.extend(self.events());
            events.retain(|event| !matches!(event, Event::Changed(_)));
            !events.is_empty()
        })
        .await;
        assert_eq!(events, [Event::Interrupted(EventScope::Store)]);
    }

    /// Waits for the grant of a lease: the first one that is notified, beside hints and notices to the waiter behind a
    /// grant. The latter remain in the log.
    pub(crate) async fn granted(&self, name: &str, number: u64) -> Grant {
        let mut grants = Vec::new();
        let mut rest = Vec::new();
        eventually_async(SOON, async || {
            for event in self.events() {
                match event {
                    Event::Notice(granted, Notice::Granted(grant)) => grants.push((granted, grant)),
                    Event::Notice(_, Notice::Next { .. }) => rest.push(event),
                    Event::Changed(_) => {}
                    other => panic!("{other:?}"),
                }
            }
            !grants.is_empty()
        })
        .await;
        self.event_log.0.lock().unwrap().splice(..0, rest);
        let [(granted, grant)] = &grants[..] else {
            panic!("{grants:?}");
        };
        assert_eq!((granted, grant.lease), (&key(name), self.lease(number)));
        grant.clone()
    }

    /// A round trip: events that the store sent before have arrived after it.
    pub(crate) async fn settle(&self) {
        self.apply(renew("nothing", 0)).await;
    }
}
