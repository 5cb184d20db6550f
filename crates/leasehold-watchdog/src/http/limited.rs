//! A listener for few and short connections.
//!
//! The clients of a node and its stores need the file descriptors. So the connections here take only a few of
//! them, and idle connections keep no request out: one connection too many ends the oldest.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Sleep;

/// How many connections may be open at once.
const CONNECTIONS_MAX: usize = 32;

/// The longest time that a connection stays open. Each carries one request.
const CONNECTION_MAX: Duration = Duration::from_secs(10);

/// The backoff after an error of accepting a connection, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// A listener with limits.
pub(super) struct Limited {
    listener: TcpListener,
    free: Arc<Semaphore>,
    /// The open connections, the oldest first. A connection ends when its sender is dropped.
    open: VecDeque<oneshot::Sender<()>>,
}

impl Limited {
    pub(super) fn new(listener: TcpListener) -> Self {
        Self {
            listener,
            free: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            open: VecDeque::new(),
        }
    }

    /// Waits for the permit of one more connection, after ending the oldest if there are too many.
    async fn room(&mut self) -> Option<OwnedSemaphorePermit> {
        self.open.retain(|connection| !connection.is_closed());
        if self.open.len() >= CONNECTIONS_MAX {
            self.open.pop_front();
        }
        // The semaphore is never closed.
        Arc::clone(&self.free).acquire_owned().await.ok()
    }
}

impl Listener for Limited {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    let permit = self.room().await;
                    let (sender, ended) = oneshot::channel();
                    self.open.push_back(sender);
                    let connection = Connection {
                        stream,
                        ended,
                        late: Box::pin(tokio::time::sleep(CONNECTION_MAX)),
                        _permit: permit,
                    };
                    return (connection, address);
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept an HTTP connection");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that ends when its time is up or another one needs its permit.
pub(super) struct Connection {
    stream: TcpStream,
    ended: oneshot::Receiver<()>,
    late: Pin<Box<Sleep>>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Connection {
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let ended = Pin::new(&mut self.ended).poll(context).is_ready();
        match ended || self.late.as_mut().poll(context).is_ready() {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(()),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
