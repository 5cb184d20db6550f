//! The session of this process: one connection at a time, on which requests are sent and replied to in order.
//!
//! A connection that is lost is replaced by one that continues the session. Requests without a reply may have been applied, and
//! are not sent again. If the session has ended meanwhile, another one begins, and its nodes are made anew.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_rustls::TlsConnector;

use super::connection::{Connection, SessionId};
use super::error;
use super::jute::{Reader, Writer};
use super::request::Request;
use crate::store::hub::Hub;
use crate::store::members::Address;
use crate::{Error, Result};

const PING: i32 = 11;
const CLOSE: i32 = -11;

/// The numbers of frames that reply to no request.
const EVENT_NUMBER: i32 = -1;
const PING_NUMBER: i32 = -2;

/// The times between attempts to connect.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

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

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Refused(code) => error::described(code),
            Failed::Lost(error) => error,
        }
    }
}

/// The session, as the store uses it. Dropped, the session ends.
#[derive(Debug)]
pub(super) struct Session {
    calls: mpsc::UnboundedSender<Call>,
    /// The number of the session, while it is connected.
    connected: watch::Receiver<Option<u64>>,
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
        let (shown, connected) = watch::channel(Some(1));
        tokio::spawn(async move {
            settings.run(first, received, &shown, &changed).await;
            shown.send_replace(None);
        });
        Ok(Self { calls, connected })
    }

    /// The number of the session, while it is connected.
    pub(super) fn number(&self) -> Option<u64> {
        *self.connected.borrow()
    }

    /// Sends a request. It is sent when this is called, not only when the result is polled.
    pub(super) fn call(
        &self,
        request: Request,
    ) -> impl Future<Output = Result<Vec<u8>, Failed>> + Send + 'static {
        let (reply, received) = oneshot::channel();
        let is_sent = self.calls.send(Call { request, reply }).is_ok();
        async move {
            match received.await {
                Ok(replied) if is_sent => replied,
                _ => Err(Failed::Lost(error::no_session())),
            }
        }
    }
}

/// How a connection ended.
enum End {
    /// The store was dropped.
    Closed,
    Lost(Error),
}

impl Settings {
    /// Has connections until the store is dropped.
    async fn run(
        &self,
        first: Connection,
        mut calls: mpsc::UnboundedReceiver<Call>,
        shown: &watch::Sender<Option<u64>>,
        changed: &mpsc::UnboundedSender<Option<String>>,
    ) {
        let (mut connection, mut number) = (first, 1);
        loop {
            let End::Lost(error) = self.serve(&mut connection, &mut calls, changed).await else {
                return;
            };
            tracing::debug!(%error, store = %self.address, "the connection is replaced");
            shown.send_replace(None);
            self.hub.interrupted();
            let session = connection.session.clone();
            let mut wait = BACKOFF.0;
            connection = loop {
                match self.connect(&session).await {
                    Ok(connection) => break connection,
                    Err(error) => tracing::debug!(%error, "no connection"),
                }
                if calls.is_closed() {
                    return;
                }
                sleep(wait.mul_f64(0.5 + fastrand::f64())).await;
                wait = (wait * 2).min(BACKOFF.1);
            };
            number += u64::from(connection.session.id != session.id);
            shown.send_replace(Some(number));
            self.hub.interrupted();
            // Watches ended with the connection.
            let _ = changed.send(None);
        }
    }

    /// A connection to the first server that accepts one, which continues a session or begins another.
    pub(super) async fn connect(&self, session: &SessionId) -> Result<Connection> {
        let user = self.address.credentials()?;
        let mut failure = error::no_session();
        let first = fastrand::usize(..self.address.members.len().max(1));
        let members = self.address.members.iter().cycle().skip(first);
        for member in members.take(self.address.members.len()) {
            for session in [session, &SessionId::default()] {
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

    /// Sends requests and passes replies on until the connection ends.
    async fn serve(
        &self,
        connection: &mut Connection,
        calls: &mut mpsc::UnboundedReceiver<Call>,
        changed: &mpsc::UnboundedSender<Option<String>>,
    ) -> End {
        let mut waiting = VecDeque::new();
        let (tick, silence) = (connection.timeout / 3, connection.timeout * 2 / 3);
        let (mut heard, mut pinged, mut number) = (Instant::now(), Instant::now(), 0_i32);
        let error = loop {
            let ended = tokio::select! {
                call = calls.recv() => match call {
                    None => {
                        let close = Writer::default().int(number.wrapping_add(1)).int(CLOSE);
                        let _ = connection.send(&close.0).await;
                        return End::Closed;
                    }
                    // Its caller has given up.
                    Some(call) if call.reply.is_closed() => Ok(()),
                    Some(call) => {
                        number = number.checked_add(1).unwrap_or(1);
                        let mut frame = Writer::default().int(number).int(call.request.kind);
                        frame.0.extend(&call.request.body);
                        waiting.push_back((number, call.reply));
                        connection.send(&frame.0).await
                    }
                },
                frame = connection.frame() => {
                    heard = Instant::now();
                    frame.and_then(|frame| receive(&frame, &mut waiting, changed))
                }
                () = sleep_until(pinged + tick) => {
                    pinged = Instant::now();
                    connection.send(&Writer::default().int(PING_NUMBER).int(PING).0).await
                }
                () = sleep_until(heard + silence) => Err(error::no_session()),
            };
            if let Err(error) = ended {
                break error;
            }
        };
        for (_, reply) in waiting {
            let _ = reply.send(Err(Failed::Lost(error.clone())));
        }
        End::Lost(error)
    }
}

/// Passes a frame on.
fn receive(
    frame: &[u8],
    waiting: &mut VecDeque<(i32, ReplySender)>,
    changed: &mpsc::UnboundedSender<Option<String>>,
) -> Result<()> {
    let mut reader = Reader(frame);
    let header = (reader.int(), reader.long(), reader.int());
    let (Some(number), Some(_), Some(code)) = header else {
        return Err(error::not_zookeeper());
    };
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
                return Err(error::not_zookeeper());
            };
            let _ = reply.send(match code {
                0 => Ok(reader.0.to_vec()),
                code => Err(Failed::Refused(code)),
            });
        }
    }
    Ok(())
}
