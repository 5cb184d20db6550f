//! Calls of any member.

use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use hyper::body::Bytes;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::connection::{ClusterId, Limits, Member, Stream, framed};
use super::error::{Failed, Remedy};
use super::keys::Keys;
use super::messages::{
    Authenticate, Call, EventsRequest, LeaseGrant, LeaseKeepAlive, LeaseReply, LeaseRevoke, Pair,
    Transaction, range,
};
use crate::fork::Process;
use crate::store::lock::lock;
use crate::store::members::Address;
use crate::store::options::OpenOptions;
use crate::{Error, ErrorKind, Result, Secret};

/// The operations of a transaction. A server takes 128, by default.
pub(super) const OPERATIONS_MAX: usize = 64;

/// The time between two attempts during an election. They stay at their member, because sessions end when it is left.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// The members of a cluster, one of which is used until it fails or is slow.
pub(super) struct Cluster {
    pub(super) address: Address,
    pub(super) keys: Keys,
    pub(super) members: Vec<Member>,
    /// The number of the member that is used.
    pub(super) current: watch::Sender<usize>,
    token: Mutex<Option<Secret>>,
    connect_timeout: Duration,
    /// How long a call takes at most.
    limit: Duration,
    process: Process,
}

impl Cluster {
    pub(super) fn new(address: Address, options: &OpenOptions) -> Result<Self> {
        address.credentials()?;
        let tls = address.tls(options, Some("h2"))?;
        let id = ClusterId::default();
        let members = address.members.iter().cloned();
        let members = members.map(|at| Member::new(at, tls.clone(), &id));
        Ok(Self {
            members: members.collect(),
            keys: Keys(address.prefix.clone()),
            address,
            current: watch::Sender::new(0),
            token: Mutex::default(),
            connect_timeout: options.connect_timeout,
            // Its result arrives before the caller gives up.
            limit: options.response_timeout / 4 * 3,
            process: Process::current(),
        })
    }

    /// Connects to the first member that can be reached.
    pub(super) async fn connect(&self) -> Result<()> {
        let mut failed = None;
        for (nth, member) in self.members.iter().enumerate() {
            match timeout(self.connect_timeout, member.connect()).await {
                Ok(Ok(())) => {
                    self.current.send_replace(nth);
                    return Ok(());
                }
                Ok(Err(error)) => failed = Some(error),
                Err(_) => {
                    let within = self.connect_timeout;
                    let message =
                        format!("no connection within {within:?}; check host, port and firewall");
                    failed = Some(Error::new(ErrorKind::Unreachable, message));
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// A call that may be repeated: it is sent to the next member if one fails or is slow.
    pub(super) async fn ask<C: Call>(&self, request: &C) -> Result<C::Reply> {
        let called = self.call(request, true).await;
        called.map_err(|failed| failed.error)
    }

    /// A call that is never sent again once it may have arrived.
    pub(super) async fn change<C: Call>(&self, request: &C) -> Result<C::Reply, Failed> {
        self.call(request, false).await
    }

    /// A call of one member.
    #[cfg(feature = "doctor")]
    pub(super) async fn ask_member<C: Call>(
        &self,
        nth: usize,
        request: &C,
    ) -> Result<C::Reply, Failed> {
        let end = Instant::now() + self.limit;
        self.call_member::<C>(nth, &framed(request), true, end)
            .await
    }

    /// What each of these keys has, if it exists.
    pub(super) async fn read(&self, keys: Vec<String>) -> Result<Vec<Option<Pair>>> {
        let mut found = Vec::with_capacity(keys.len());
        for part in keys.chunks(OPERATIONS_MAX) {
            let ranges = part.iter().map(|key| range(key)).collect();
            let reply = self.ask(&Transaction::of(ranges)).await?;
            for nth in 0..part.len() {
                found.push(reply.found(nth)?.cloned());
            }
        }
        Ok(found)
    }

    /// A call whose replies go on.
    pub(super) async fn watch(&self, request: &EventsRequest) -> Result<Stream> {
        let member = self.member(*self.current.borrow());
        let limits = self.limits(Instant::now() + self.limit, false);
        let stream = async {
            let token = self.token(member, limits).await?;
            let request = member.request::<EventsRequest>(token.as_ref(), framed(request))?;
            member.stream(request, limits).await
        };
        stream.await.map_err(|failed| failed.error)
    }

    /// A new lease, which ends after this time without a renewal, or later if the cluster allows no lease as short as that.
    pub(super) async fn grant(&self, ttl: Duration) -> Result<LeaseReply> {
        let ttl = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX);
        self.ask(&LeaseGrant { ttl }).await
    }

    /// Renews a lease. Returns whether it is there.
    pub(super) async fn keep_alive(&self, id: i64) -> Result<bool> {
        Ok(self.ask(&LeaseKeepAlive { id }).await?.ttl > 0)
    }

    pub(super) async fn revoke(&self, id: i64) -> Result<()> {
        self.ask(&LeaseRevoke { id }).await
    }

    async fn call<C: Call>(&self, request: &C, is_repeatable: bool) -> Result<C::Reply, Failed> {
        self.process.check().map_err(Failed::certain)?;
        let body = framed(request);
        let end = Instant::now() + self.limit;
        let mut stay_until = self.limits(end, true).replied;
        let mut attempts = self.members.len();
        loop {
            let nth = *self.current.borrow();
            let called = self.call_member::<C>(nth, &body, is_repeatable, end).await;
            let failed = match called {
                Ok(reply) => return Ok(reply),
                Err(failed) => failed,
            };
            match failed.remedy {
                Remedy::Nothing => return Err(failed),
                Remedy::Retry => {
                    let now = Instant::now();
                    // What is sent just before the end may get no reply in time.
                    let is_last = now + RETRY_INTERVAL * 2 >= end;
                    if is_last || now >= stay_until {
                        self.leave(nth);
                        stay_until = self.limits(end, true).replied;
                    }
                    if is_last {
                        return Err(failed);
                    }
                    sleep(RETRY_INTERVAL).await;
                    continue;
                }
                Remedy::OtherCluster => {
                    self.leave(nth);
                    return Err(failed);
                }
                Remedy::OtherMember => self.leave(nth),
                // The next attempt authenticates.
                Remedy::NewToken => {}
            }
            let may_repeat = failed.is_certain || is_repeatable;
            if attempts == 0 || !may_repeat || Instant::now() >= end {
                return Err(failed);
            }
            attempts -= 1;
        }
    }

    async fn call_member<C: Call>(
        &self,
        nth: usize,
        body: &Bytes,
        is_repeatable: bool,
        end: Instant,
    ) -> Result<C::Reply, Failed> {
        let member = self.member(nth);
        let limits = self.limits(end, is_repeatable);
        let token = self.token(member, limits).await?;
        let request = member.request::<C>(token.as_ref(), body.clone())?;
        let called = member.call(request, limits).await;
        if let Err(failed) = &called
            && failed.remedy == Remedy::NewToken
        {
            self.forget_token(token.as_ref());
        }
        called
    }

    /// Forgets a token that was refused, unless another call has renewed it.
    fn forget_token(&self, refused: Option<&Secret>) {
        lock(&self.token).take_if(|known| Some(&*known) == refused);
    }

    /// Uses the next member, unless another call did that. The only one is used again.
    fn leave(&self, nth: usize) {
        let next = (nth + 1) % self.members.len().max(1);
        self.current.send_if_modified(|current| {
            let is_left = *current == nth;
            if is_left {
                *current = next;
            }
            is_left
        });
    }

    fn member(&self, nth: usize) -> &Member {
        // The number is one of them.
        &self.members[nth]
    }

    /// There is time for another member, if a call may be repeated there.
    fn limits(&self, end: Instant, is_repeatable: bool) -> Limits {
        let share = match self.members.len() {
            1 => self.limit,
            _ => self.limit / 3,
        };
        let soon = end.min(Instant::now() + share);
        Limits {
            connected: soon,
            replied: if is_repeatable { soon } else { end },
        }
    }

    /// The token of the user, if one was given.
    async fn token(&self, member: &Member, limits: Limits) -> Result<Option<Secret>, Failed> {
        let credentials = self.address.credentials().map_err(Failed::certain)?;
        let Some((user, password)) = credentials else {
            return Ok(None);
        };
        let known = lock(&self.token).clone();
        if known.is_some() {
            return Ok(known);
        }
        let body = framed(&Authenticate {
            name: user.to_owned(),
            password: password.expose().to_owned(),
        });
        let request = member.request::<Authenticate>(None, body)?;
        let replied = limits.connected;
        let limits = Limits { replied, ..limits };
        let called = member.call(request, limits).await;
        // Whatever became of this call, that for which it is was not sent.
        let reply: <Authenticate as Call>::Reply = called.map_err(|failed| Failed {
            is_certain: true,
            ..failed
        })?;
        let token = Secret::from(reply.token);
        *lock(&self.token) = Some(token.clone());
        Ok(Some(token))
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.address, f)
    }
}

#[cfg(test)]
mod tests {
    use super::super::SERVICE;
    use super::*;

    fn cluster(url: &str) -> Cluster {
        let options = OpenOptions::default();
        let address = Address::parse(SERVICE, url, &options).unwrap();
        Cluster::new(address, &options).unwrap()
    }

    /// The watch of a session may be on a connection that was given up.
    #[test]
    fn a_session_ends_when_its_member_is_left_even_if_it_is_the_only_one() {
        for (url, next) in [("etcd://a,b", 1), ("etcd://a", 0)] {
            let cluster = cluster(url);
            let used = cluster.current.subscribe();
            cluster.leave(0);
            assert!(used.has_changed().unwrap(), "{url}");
            assert_eq!(*used.borrow(), next);
        }
    }

    #[test]
    fn a_token_that_was_renewed_is_kept() {
        let cluster = cluster("etcd://a");
        let [old, new] = ["old", "new"].map(Secret::from);
        *lock(&cluster.token) = Some(new.clone());
        cluster.forget_token(Some(&old));
        assert_eq!(*lock(&cluster.token), Some(new.clone()));
        cluster.forget_token(Some(&new));
        assert_eq!(*lock(&cluster.token), None);
    }
}
