//! Calls of the JSON gateway of any member.

use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use http_body_util::Full;
use hyper::Request;
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

use super::connection::{Limits, Member, Stream};
use super::error::{Failed, Remedy, not_etcd};
use crate::fork::Process;
use crate::store::lock::lock;
use crate::store::members::Address;
use crate::store::options::OpenOptions;
use crate::store::tls;
use crate::{Error, ErrorKind, Result, Secret};

const RANGE: &str = "/v3/kv/range";
pub(super) const PUT: &str = "/v3/kv/put";
pub(super) const TXN: &str = "/v3/kv/txn";
pub(super) const WATCH: &str = "/v3/watch";
const GRANT: &str = "/v3/lease/grant";
const KEEP_ALIVE: &str = "/v3/lease/keepalive";
const REVOKE: &str = "/v3/lease/revoke";
const AUTHENTICATE: &str = "/v3/auth/authenticate";

/// The operations of a transaction. A server takes 128, by default.
pub(super) const OPERATIONS_MAX: usize = 64;

/// With it a member that has lost the others ends a stream.
const HAS_LEADER: &str = "grpc-metadata-hasleader";

/// The members of a cluster, one of which is used until it fails or is slow.
pub(super) struct Gateway {
    pub(super) address: Address,
    tls: Option<TlsConnector>,
    pub(super) members: Vec<Member>,
    /// The number of the member that is used.
    pub(super) current: watch::Sender<usize>,
    token: Mutex<Option<Secret>>,
    connect_timeout: Duration,
    /// How long a call takes at most.
    limit: Duration,
    process: Process,
}

impl Gateway {
    pub(super) fn new(address: Address, options: &OpenOptions) -> Result<Self> {
        address.credentials()?;
        let files = address.files.as_ref();
        Ok(Self {
            tls: files
                .map(|files| tls::connector(files, options))
                .transpose()?,
            members: address.members.iter().cloned().map(Member::new).collect(),
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
            match timeout(self.connect_timeout, member.connect(self.tls.as_ref())).await {
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
    pub(super) async fn ask(&self, path: &str, body: &Value) -> Result<Value> {
        let called = self.call(path, body, true).await;
        called.map_err(|failed| failed.error)
    }

    /// A call that is never sent again once it may have arrived.
    pub(super) async fn change(&self, path: &str, body: &Value) -> Result<Value, Failed> {
        self.call(path, body, false).await
    }

    /// A call of one member.
    #[cfg(feature = "doctor")]
    pub(super) async fn ask_member(&self, nth: usize, path: &str, body: &Value) -> Result<Value> {
        let end = Instant::now() + self.limit;
        let body = Bytes::from(body.to_string());
        let called = self.call_member(nth, path, &body, true, end).await;
        called.map_err(|failed| failed.error)
    }

    /// A call whose reply is a stream that goes on.
    pub(super) async fn stream(&self, path: &str, body: &Value) -> Result<Stream> {
        let member = self.member(*self.current.borrow());
        let limits = self.limits(Instant::now() + self.limit, false);
        let token = self.token(member, limits).await;
        let token = token.map_err(|failed| failed.error)?;
        let request = request(member, path, token.as_ref(), Bytes::from(body.to_string()))?;
        let stream = member.stream(self.tls.as_ref(), request, limits).await;
        stream.map_err(|failed| failed.error)
    }

    /// Reads a range of keys.
    pub(super) async fn range(&self, body: &Value) -> Result<Value> {
        let reply = self.ask(RANGE, body).await?;
        match reply["header"].is_object() {
            true => Ok(reply),
            false => Err(not_etcd()),
        }
    }

    /// A new lease, which ends after so many seconds without a renewal.
    pub(super) async fn grant(&self, ttl: Duration) -> Result<String> {
        let body = json!({ "TTL": ttl.as_secs().to_string() });
        let reply = self.ask(GRANT, &body).await?;
        reply["ID"].as_str().map(str::to_owned).ok_or_else(not_etcd)
    }

    /// Renews a lease. Returns whether it is there.
    pub(super) async fn keep_alive(&self, lease: &str) -> Result<bool> {
        let reply = self.ask(KEEP_ALIVE, &json!({ "ID": lease })).await?;
        Ok(!reply["result"]["TTL"].is_null())
    }

    pub(super) async fn revoke(&self, lease: &str) -> Result<()> {
        self.ask(REVOKE, &json!({ "ID": lease })).await.map(drop)
    }

    async fn call(&self, path: &str, body: &Value, is_repeatable: bool) -> Result<Value, Failed> {
        self.process.check().map_err(Failed::certain)?;
        let body = Bytes::from(body.to_string());
        let end = Instant::now() + self.limit;
        let mut attempts = self.members.len();
        loop {
            let nth = *self.current.borrow();
            let called = self.call_member(nth, path, &body, is_repeatable, end).await;
            let failed = match called {
                Ok(reply) => return Ok(reply),
                Err(failed) => failed,
            };
            match failed.remedy {
                Remedy::Nothing => return Err(failed),
                Remedy::OtherMember => self.leave(nth),
                Remedy::NewToken => *lock(&self.token) = None,
            }
            let may_repeat = failed.is_certain || is_repeatable;
            if attempts == 0 || !may_repeat || Instant::now() >= end {
                return Err(failed);
            }
            attempts -= 1;
        }
    }

    async fn call_member(
        &self,
        nth: usize,
        path: &str,
        body: &Bytes,
        is_repeatable: bool,
        end: Instant,
    ) -> Result<Value, Failed> {
        let member = self.member(nth);
        let limits = self.limits(end, is_repeatable);
        let token = self.token(member, limits).await?;
        let request = request(member, path, token.as_ref(), body.clone());
        let request = request.map_err(Failed::certain)?;
        member.call(self.tls.as_ref(), request, limits).await
    }

    /// Uses the next member, unless another call did that.
    fn leave(&self, nth: usize) {
        let next = (nth + 1) % self.members.len().max(1);
        self.current.send_if_modified(|current| {
            let is_left = *current == nth && next != nth;
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
        let body = json!({ "name": user, "password": password.expose() });
        let request = request(member, AUTHENTICATE, None, Bytes::from(body.to_string()));
        let request = request.map_err(Failed::certain)?;
        let replied = limits.connected;
        let limits = Limits { replied, ..limits };
        let called = member.call(self.tls.as_ref(), request, limits).await;
        // Whatever became of this call, that for which it is was not sent.
        let reply = called.map_err(|failed| Failed {
            is_certain: true,
            ..failed
        })?;
        let token = reply["token"].as_str().map(Secret::from);
        let token = token.ok_or_else(|| Failed::certain(not_etcd()))?;
        *lock(&self.token) = Some(token.clone());
        Ok(Some(token))
    }
}

fn request(
    member: &Member,
    path: &str,
    token: Option<&Secret>,
    body: Bytes,
) -> Result<Request<Full<Bytes>>> {
    let mut request = Request::post(path)
        .header(HOST, member.address())
        .header(CONTENT_TYPE, "application/json")
        .header(HAS_LEADER, "true");
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, token.expose());
    }
    request.body(Full::new(body)).map_err(|_| not_etcd())
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.address, f)
    }
}
