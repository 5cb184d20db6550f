//! Connections to the server, and the schema in it.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::{AsyncMessage, Client, Config, Notification};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::error::{describe, is, no_reply, no_schema};
use super::hosts::Hosts;
use super::rights;
use crate::store::tasks;
use crate::{Error, ErrorKind, Result};

/// The version of the schema.
const VERSION: i32 = 1;

/// A connection, and the task that reads from it.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) client: Client,
    /// How many commits did not wait for the standby.
    pub(super) unreplicated: Arc<AtomicU64>,
    driver: JoinHandle<()>,
}

impl Connection {
    /// Connects to the first host that replies and can be written, within the timeout of its address.
    pub(super) async fn open(
        tls: &MakeRustlsConnect,
        hosts: &Hosts,
        notifications: Option<UnboundedSender<Notification>>,
    ) -> Result<Self> {
        let mut opened = Err(no_reply());
        for (position, config) in hosts.in_order() {
            let mut attempt = hosts.attempt(position);
            opened = Self::open_host(tls, config, notifications.clone()).await;
            if opened.is_ok() {
                attempt.first = position;
                break;
            }
        }
        opened
    }

    async fn open_host(
        tls: &MakeRustlsConnect,
        config: &Config,
        notifications: Option<UnboundedSender<Notification>>,
    ) -> Result<Self> {
        let limit = config.get_connect_timeout().copied();
        let limit = limit.unwrap_or(Duration::MAX);
        let connected = timeout(limit, config.connect(tls.clone())).await;
        let connected = connected.map_err(|_| {
            let message = format!("no connection within {limit:?}; check host, port and firewall");
            Error::new(ErrorKind::Unreachable, message)
        })?;
        let (client, mut connection) = connected.map_err(describe)?;
        let unreplicated = Arc::<AtomicU64>::default();
        let counter = Arc::clone(&unreplicated);
        let driver = tasks::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await
            {
                match message {
                    AsyncMessage::Notification(notification) => {
                        let to = notifications.as_ref();
                        if to.is_some_and(|to| to.send(notification).is_err()) {
                            return;
                        }
                    }
                    // Its text depends on the language of the server.
                    AsyncMessage::Notice(notice)
                        if notice.routine() == Some("SyncRepWaitForLSN") =>
                    {
                        counter.fetch_add(1, Ordering::Release);
                    }
                    _ => {}
                }
            }
        });
        Ok(Self {
            client,
            unreplicated,
            driver,
        })
    }

    /// Runs statements.
    pub(super) async fn execute(&self, sql: &str) -> Result<()> {
        self.client.batch_execute(sql).await.map_err(describe)
    }

    /// Whether it has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed() || self.driver.is_finished()
    }

    /// Makes the schema if it is missing, and checks its version.
    pub(super) async fn prepare(&self) -> Result<()> {
        let found = match self.version().await {
            Err(error) if is(&error, "42P01") || is(&error, "3F000") => {
                let made = self.client.batch_execute(&rights::setup(None)).await;
                made.map_err(no_schema)?;
                self.version().await
            }
            found => found,
        };
        let found = found.map_err(describe)?;
        match found {
            Some(VERSION) => Ok(()),
            Some(newer) if newer > VERSION => {
                let message = format!(
                    "its schema has version {newer}, and this program knows versions up to {VERSION}; update the program"
                );
                Err(Error::new(ErrorKind::Unsupported, message))
            }
            _ => {
                let message = "its schema is incomplete; run `leasehold doctor --setup` as the owner of the database";
                Err(Error::new(ErrorKind::Store, message))
            }
        }
    }

    async fn version(&self) -> Result<Option<i32>, tokio_postgres::Error> {
        let rows = self
            .client
            .query_typed("SELECT version FROM leasehold.version", &[])
            .await?;
        rows.first().map(|row| row.try_get(0)).transpose()
    }
}

impl Drop for Connection {
    /// At once, whatever is under way: what was not committed is undone.
    fn drop(&mut self) {
        self.driver.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;
    use crate::store::options::OpenOptions;
    use crate::store::postgres::address::Address;

    #[tokio::test]
    async fn after_a_caller_that_has_given_up_a_silent_host_the_next_one_is_tried_first() {
        let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("postgres://u@{0},{0}/d", silent.local_addr().unwrap());
        let address = Address::parse(&url, &OpenOptions::default()).unwrap();
        let hosts = &address.hosts;
        let order = || hosts.in_order().map(|(position, _)| position);
        assert!(order().eq([0, 1]));
        let mut opening = Box::pin(Connection::open(&address.tls, hosts, None));
        assert!(timeout(Duration::ZERO, &mut opening).await.is_err());
        // A second connection at the same time begins with the same host.
        assert!(order().eq([0, 1]));
        drop(opening);
        assert!(order().eq([1, 0]));
    }
}
