//! The session of this process: one connection at a time, on which requests are sent and replied to in order.
//!
//! A connection that is lost is replaced by one that continues the session. Requests without a reply may have been applied, and
//! are not sent again. If the session has ended meanwhile, another one begins, and its nodes are made anew.
//!
//! The task of a session ends with the runtime in which the store was opened. The next request begins another one, which
//! receives no messages: the releases of a program that has returned from `main` still arrive.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_rustls::TlsConnector;

use super::connection::{Connection, SessionId};
use super::error;
use super::jute::{Reader, Writer};
use super::request::{Request, code};
use crate::store::hub::Hub;
use crate::store::lock::lock;
use crate::store::members::Address;
use crate::store::tasks;
use crate::{Error, Result};

const PING: i32 = 11;

/// The numbers of frames that reply to no request.
const EVENT_NUMBER: i32 = -1;
const PING_NUMBER: i32 = -2;

/// The times between attempts to connect.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// A connection that breaks sooner counts as a failed attempt: the server may close each at its first request.
const USABLE_MIN: Duration = Duration::from_secs(1);

/// A request that waits for its reply.
struct Call {
    request: Request,
    reply: ReplySender,
}

/// Takes the reply to a request.
type ReplySender = oneshot::Sender<Result<Vec<u8>, Failed>>;

/// Why a request has no reply.
#[derive(Debug)]
pub(super) enum Failed {
    /// The server has refused it, with this code. Nothing was applied.
    Refused(i32),
    /// It may have been applied.
    Lost(Error),
}

/// The reply to a request about a node. `None`: the node does not exist.
pub(super) fn of_node(reply: Result<Vec<u8>, Failed>) -> Result<Option<Vec<u8>>> {
    match reply {
        Ok(reply) => Ok(Some(reply)),
        Err(Failed::Refused(code::NO_NODE)) => Ok(None),
        Err(failed) => Err(failed.into()),
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Refused(code) => error::described(code),
            Failed::Lost(error) => error,
        }
    }
}

/// The requests that are not sent yet.
struct Calls {
    received: mpsc::UnboundedReceiver<Call>,
    /// Those that came while there was no connection.
    delayed: VecDeque<Call>,
}

impl Calls {
    const fn new(received: mpsc::UnboundedReceiver<Call>) -> Self {
        Self {
            received,
            delayed: VecDeque::new(),
        }
    }

    /// The next request. `None`: the store was dropped. A call that is dropped loses no request.
    async fn next(&mut self) -> Option<Call> {
        match self.delayed.pop_front() {
            Some(call) => Some(call),
            None => self.received.recv().await,
        }
    }

    /// Forgets the requests whose callers have given up.
    fn forget_abandoned(&mut self) {
        while let Ok(call) = self.received.try_recv() {
            self.delayed.push_back(call);
        }
        self.delayed.retain(|call| !call.reply.is_closed());
    }
}

/// The session, as the store uses it. Dropped, the session ends.
pub(super) struct Session {
    calls: Mutex<mpsc::UnboundedSender<Call>>,
    shared: Arc<Shared>,
}

/// What the tasks of a session share with the store.
struct Shared {
    settings: Settings,
    changed: mpsc::UnboundedSender<Option<String>>,
    /// The number of the session, while it is connected.
    connected: watch::Sender<Option<u64>>,
    /// How many sessions there were.
    sessions: AtomicU64,
}

/// What the task of a session needs.
pub(super) struct Settings {
    pub(super) address: Arc<Address>,
    pub(super) tls: Option<TlsConnector>,
    pub(super) connect_timeout: Duration,
    pub(super) hub: Arc<Hub>,
}

impl Session {
    /// Connects to the first server that replies. The paths of nodes whose children have changed are sent to `changed`.
    pub(super) async fn open(
        settings: Settings,
        changed: mpsc::UnboundedSender<Option<String>>,
    ) -> Result<Self> {
        let first = settings.connect(&SessionId::default()).await?;
        let (calls, received) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            settings,
            changed,
            connected: watch::Sender::new(Some(1)),
            sessions: AtomicU64::new(1),
        });
        let task = Arc::clone(&shared);
        tasks::spawn(async move { task.run(first, Calls::new(received)).await });
        Ok(Self {
            calls: Mutex::new(calls),
            shared,
        })
    }

    /// The number of the session, while it is connected and messages are received.
    pub(super) fn number(&self) -> Option<u64> {
        let number = *self.shared.connected.borrow();
        number.filter(|_| !self.shared.changed.is_closed())
    }

    /// Sends a request. It is sent when this is called, not only when the result is polled.
    pub(super) fn call(
        &self,
        request: Request,
    ) -> impl Future<Output = Result<Vec<u8>, Failed>> + Send + 'static {
        let (reply, received) = oneshot::channel();
        self.send(Call { request, reply });
        async move {
            let replied = received.await;
            replied.unwrap_or_else(|_| Err(Failed::Lost(error::no_session())))
        }
    }

    fn send(&self, call: Call) {
        let mut calls = lock(&self.calls);
        let Err(mpsc::error::SendError(call)) = calls.send(call) else {
            return;
        };
        // The task has ended with its runtime.
        if Handle::try_current().is_err() {
            return;
        }
        let (sender, received) = mpsc::unbounded_channel();
        let _ = sender.send(call);
        *calls = sender;
        let shared = Arc::clone(&self.shared);
        tasks::spawn(async move { shared.restart(Calls::new(received)).await });
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({:?})", self.number())
    }
}

impl Shared {
    /// Connects anew after the end of another task.
    async fn restart(&self, mut calls: Calls) {
        let (new, mut wait) = (SessionId::default(), Duration::ZERO);
        let connected = self.reconnect(&new, &mut calls, &mut wait).await;
        if let Some(connection) = connected {
            self.run(connection, calls).await;
        }
    }

    /// Has connections until the store is dropped.
    async fn run(&self, mut connection: Connection, mut calls: Calls) {
        let mut wait = Duration::ZERO;
        loop {
            let begun = Instant::now();
            let Some(error) = self.serve(&mut connection, &mut calls).await else {
                return;
            };
            let store = &self.settings.address;
            tracing::debug!(%error, %store, "the connection is replaced");
            if begun.elapsed() >= USABLE_MIN {
                wait = Duration::ZERO;
            }
            let session = connection.session.clone();
            let Some(next) = self.reconnect(&session, &mut calls, &mut wait).await else {
                return;
            };
            connection = next;
        }
    }

    /// A connection that continues a session or begins another, after a `wait` that each attempt makes longer. `None`: the
    /// store was dropped.
    async fn reconnect(
        &self,
        session: &SessionId,
        calls: &mut Calls,
        wait: &mut Duration,
    ) -> Option<Connection> {
        self.connected.send_replace(None);
        self.settings.hub.interrupted();
        let connection = loop {
            sleep(wait.mul_f64(0.5 + fastrand::f64())).await;
            *wait = (*wait * 2).clamp(BACKOFF.0, BACKOFF.1);
            match self.settings.connect(session).await {
                Ok(connection) => break connection,
                Err(error) => tracing::debug!(%error, "no connection"),
            }
            calls.forget_abandoned();
            if calls.received.is_closed() {
                return None;
            }
        };
        if connection.session.id != session.id {
            self.sessions.fetch_add(1, Ordering::Relaxed);
        }
        let number = self.sessions.load(Ordering::Relaxed);
        self.connected.send_replace(Some(number));
        self.settings.hub.interrupted();
        // Watches ended with the connection.
        let _ = self.changed.send(None);
        Some(connection)
    }

    /// Sends requests and passes replies on until the connection is lost. `None`: the store was dropped.
    async fn serve(&self, connection: &mut Connection, calls: &mut Calls) -> Option<Error> {
        let mut waiting = VecDeque::new();
        let (tick, silence) = (connection.timeout / 3, connection.timeout * 2 / 3);
        let mut pinged = Instant::now();
        let error = loop {
            let received = connection.input.received;
            let (has_room, is_sent) = (connection.output.has_room(), connection.output.is_sent());
            let ended = tokio::select! {
                call = calls.next(), if has_room => match call {
                    None => {
                        let _ = timeout(silence, connection.close()).await;
                        return None;
                    }
                    // Its caller has given up.
                    Some(call) if call.reply.is_closed() => Ok(()),
                    Some(call) => {
                        let number = connection.session.next_number();
                        let mut frame = Writer::default().int(number).int(call.request.kind);
                        frame.0.extend(&call.request.body);
                        waiting.push_back((number, call.reply));
                        connection.output.add(&frame.0);
                        Ok(())
                    }
                },
                sent = connection.output.send(), if !is_sent => sent,
                frame = connection.input.frame() => {
                    let seen = &mut connection.session.seen;
                    frame.and_then(|frame| receive(&frame, seen, &mut waiting, &self.changed))
                }
                () = sleep_until(pinged + tick) => {
                    pinged = Instant::now();
                    connection.output.add(&Writer::default().int(PING_NUMBER).int(PING).0);
                    Ok(())
                }
                () = sleep_until(received + silence) => Ok(()),
            };
            if let Err(error) = ended {
                break error;
            } else if connection.input.received + silence <= Instant::now() {
                break error::no_session();
            }
        };
        for (_, reply) in waiting {
            let _ = reply.send(Err(Failed::Lost(error.clone())));
        }
        Some(error)
    }
}

impl Settings {
    /// A connection to the first server that accepts one, which continues a session or begins another.
    pub(super) async fn connect(&self, session: &SessionId) -> Result<Connection> {
        let user = self.address.credentials()?;
        let mut failure = error::no_session();
        let first = fastrand::usize(..self.address.members.len().max(1));
        let members = self.address.members.iter().cycle().skip(first);
        for member in members.take(self.address.members.len()) {
            for session in [session, &session.anew()] {
                let open = Connection::open(member, self.tls.as_ref(), session, user);
                match timeout(self.connect_timeout, open).await {
                    Ok(Ok(connection)) if connection.session.id != 0 => return Ok(connection),
                    // It has ended.
                    Ok(Ok(_)) => {}
                    Ok(Err(error)) => {
                        failure = error;
                        break;
                    }
                    Err(_) => {
                        failure = error::no_session();
                        break;
                    }
                }
            }
        }
        Err(failure)
    }
}

/// Passes a frame on.
fn receive(
    frame: &[u8],
    seen: &mut i64,
    waiting: &mut VecDeque<(i32, ReplySender)>,
    changed: &mpsc::UnboundedSender<Option<String>>,
) -> Result<()> {
    let mut reader = Reader(frame);
    let header = (reader.int(), reader.long(), reader.int());
    let (Some(number), Some(transaction), Some(code)) = header else {
        return Err(error::not_zookeeper());
    };
    *seen = transaction.max(*seen);
    match number {
        EVENT_NUMBER => {
            let event = (reader.int(), reader.int(), reader.text());
            if let (_, _, Some(path)) = event {
                let _ = changed.send(Some(path.to_owned()));
            }
        }
        PING_NUMBER => {}
        number => {
            let Some((_, reply)) = waiting.pop_front().filter(|(sent, _)| *sent == number) else {
                return Err(error::out_of_order());
            };
            let _ = reply.send(match code {
                0 => Ok(reader.0.to_vec()),
                code => Err(Failed::Refused(code)),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use crate::store::zookeeper::scripted_server::{ScriptedServer, TRANSACTION};

    /// Also one that does not read what was sent, so that nothing more can be sent.
    #[tokio::test]
    async fn a_server_that_is_silent_for_two_thirds_of_a_session_is_lost() {
        let mut server = ScriptedServer::new().await;
        let session = server.session(&Arc::default(), 600).await;
        assert_eq!(session.number(), Some(1));
        let data = vec![0; 1024 * 1024];
        let calls: Vec<_> = (0..32)
            .map(|_| session.call(Request::set("/a", &data, 0)))
            .collect();
        let lost = async {
            while session.number().is_some() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(20), lost).await.unwrap();
        let mut calls = calls.into_iter();
        let first = calls.next().unwrap().await;
        assert!(matches!(first, Err(Failed::Lost(_))), "{first:?}");
    }

    /// The names of all documents are one frame.
    #[tokio::test]
    async fn a_long_list_ends_no_session() {
        const BYTES: usize = 40_000_000;
        let mut server = ScriptedServer::new().await;
        let session = server.session(&Arc::default(), 10_000).await;
        let list = Writer::default().int(1).bytes(&vec![b'a'; BYTES]);
        let call = session.call(Request::children("/a", false));
        let (listed, _) = tokio::join!(call, server.reply([(0, list)]));
        assert_eq!(listed.unwrap().len(), BYTES + 8);
        assert_eq!(session.number(), Some(1));
    }

    /// It would show an older state.
    #[tokio::test]
    async fn a_server_is_told_which_transaction_it_must_have() {
        let mut server = ScriptedServer::new().await;
        let session = server.session(&Arc::default(), 10_000).await;
        let call = session.call(Request::exists("/a"));
        let (exists, _) = tokio::join!(call, server.reply([(0, Writer::default())]));
        exists.unwrap();
        server.stream = None;
        assert_eq!(server.accept(10_000).await, TRANSACTION);
    }

    #[tokio::test]
    async fn the_numbers_of_requests_go_on_in_the_next_connection() {
        let mut server = ScriptedServer::new().await;
        let session = server.session(&Arc::default(), 10_000).await;
        for number in 1..=3 {
            let call = session.call(Request::exists("/a"));
            let (exists, _) = tokio::join!(call, server.reply([(0, Writer::default())]));
            exists.unwrap();
            assert_eq!(server.number, number);
            server.stream = None;
            server.accept(10_000).await;
        }
    }

    #[test]
    fn a_reply_out_of_order_ends_the_connection() {
        let (sent, mut reply) = oneshot::channel();
        let (mut waiting, (changed, _)) = (VecDeque::from([(1, sent)]), mpsc::unbounded_channel());
        let frame = Writer::default().int(2).long(TRANSACTION).int(0);
        let error = receive(&frame.0, &mut 0, &mut waiting, &changed).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        assert!(reply.try_recv().is_err(), "a reply to another request");
    }

    #[test]
    fn requests_that_were_given_up_are_forgotten() {
        let (sender, received) = mpsc::unbounded_channel();
        let mut calls = Calls::new(received);
        let send = || {
            let (reply, caller) = oneshot::channel();
            let request = Request::exists("/a");
            let _ = sender.send(Call { request, reply });
            caller
        };
        let waits = send();
        drop(send());
        calls.forget_abandoned();
        assert_eq!(calls.delayed.len(), 1);
        drop(waits);
        calls.forget_abandoned();
        assert_eq!(calls.delayed.len(), 0);
    }
}
