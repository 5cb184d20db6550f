//! `leasehold watch`: the events of locks, one in each line.

use std::time::{Duration, SystemTime};

use leasehold::{Client, ClientInfo, LeaseId, LockEvent, Mutex};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::args::{StoreArgs, WatchArgs};
use crate::connect::connect;
use crate::exit::Failure;
use crate::{json, output};

/// The time limit of a query for the client of a holder: its name must not delay the event.
const QUERY_TIMEOUT: Duration = Duration::from_secs(1);

/// An event as it is printed.
pub(crate) struct Line {
    pub(crate) time: SystemTime,
    pub(crate) name: String,
    pub(crate) event: LockEvent,
    /// The client of the lease that was granted, if its client info is known.
    pub(crate) client: Option<ClientInfo>,
}

/// Prints each event, until nobody reads them.
pub(crate) async fn watch(args: &WatchArgs, store: &StoreArgs) -> Result<u8, Failure> {
    let client = connect(store, Client::builder()).await?;
    let (sender, mut lines) = mpsc::channel(1);
    let mut tasks = JoinSet::new();
    for name in &args.names {
        tasks.spawn(watch_lock(client.mutex(name)?, sender.clone()));
    }
    while let Some(line) = lines.recv().await {
        let line: Line = line?;
        let text = match args.json {
            true => json::to_line(&json::Event::from(&line))?,
            false => text(&line),
        };
        if !output::write_to_reader(format!("{text}\n").as_bytes())? {
            break;
        }
    }
    Ok(0)
}

async fn watch_lock(mutex: Mutex, lines: mpsc::Sender<leasehold::Result<Line>>) {
    let mut events = mutex.events();
    loop {
        let event = events.next().await;
        let time = SystemTime::now();
        let (line, failed) = match event {
            Ok(event) => {
                let client = match &event {
                    LockEvent::Held(lease) | LockEvent::Granted(lease) => {
                        client_of(&mutex, *lease).await
                    }
                    _ => None,
                };
                let name = mutex.name().to_owned();
                let line = Line {
                    time,
                    name,
                    event,
                    client,
                };
                (Ok(line), false)
            }
            Err(error) => (Err(error), true),
        };
        if lines.send(line).await.is_err() || failed {
            return;
        }
    }
}

/// The client of a holder. `None`: it is not known, or the lock has passed on.
async fn client_of(mutex: &Mutex, lease: LeaseId) -> Option<ClientInfo> {
    let info = timeout(QUERY_TIMEOUT, mutex.holder()).await.ok()?.ok()??;
    info.client.filter(|_| info.lease == lease)
}

fn text(line: &Line) -> String {
    let client = || match &line.client {
        Some(it) => output::client(&it.host, it.pid, &it.program, &it.label),
        None => "a client without client info".to_owned(),
    };
    let event = match &line.event {
        LockEvent::Held(lease) => format!("held by {}, lease {lease}", client()),
        LockEvent::Free => "free".to_owned(),
        LockEvent::Granted(lease) => format!("granted to {}, lease {lease}", client()),
        LockEvent::Released(lease) => format!("released by lease {lease}, or freed by force"),
        LockEvent::Expired(lease) => format!("expired, lease {lease}"),
        LockEvent::QueueLength(waiters) => {
            format!("{} in the queue", output::count(*waiters, "waiter"))
        }
        LockEvent::LeaderChanged(Some(leader)) => format!(
            "leader in term {}: {}",
            leader.term,
            output::printable(&leader.value)
        ),
        LockEvent::LeaderChanged(None) => "no leader".to_owned(),
        LockEvent::Completed(token) => format!("run completed, token {token}"),
        // Of a newer library.
        other => format!("{other:?}"),
    };
    let time = output::rfc3339(line.time).unwrap_or_default();
    format!("{time}  {}  {event}", output::printable(&line.name))
}
