//! `leasehold watch`: the events of locks, one in each line.

use std::pin::pin;
use std::time::{Duration, SystemTime};

use leasehold::{Client, ClientInfo, LeaseId, LockEvent, Mutex};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::args::{EventsArgs, StoreArgs};
use crate::connect::connect;
use crate::event_record::EventRecord;
use crate::exit::Failure;
use crate::{json, output};

/// The time limit of a query for the client of a holder: its name must not delay the event.
const QUERY_TIMEOUT: Duration = Duration::from_secs(1);

/// Prints each event, until nobody reads them.
pub(crate) async fn events(args: &EventsArgs, store: &StoreArgs) -> Result<u8, Failure> {
    let client = connect(store, Client::builder()).await?;
    let (sender, mut records) = mpsc::channel(1);
    let mut tasks = JoinSet::new();
    for name in &args.names {
        tasks.spawn(send_events(client.mutex(name)?, sender.clone()));
    }
    let mut no_reader = pin!(output::no_reader());
    while let Some(record) = tokio::select! {
        record = records.recv() => record,
        () = &mut no_reader => None,
    } {
        let record: EventRecord = record?;
        let text = match args.json {
            true => json::to_line(&json::Event::from(&record))?,
            false => text(&record),
        };
        if !output::write_to_reader(format!("{text}\n").as_bytes())? {
            break;
        }
    }
    Ok(0)
}

/// Sends the events of a lock until they fail, or until nobody receives them.
async fn send_events(mutex: Mutex, records: mpsc::Sender<leasehold::Result<EventRecord>>) {
    let mut events = mutex.events();
    loop {
        let event = match events.next().await {
            Ok(event) => event,
            Err(error) => return drop(records.send(Err(error)).await),
        };
        let time = SystemTime::now();
        let client = match &event {
            LockEvent::Held(lease) | LockEvent::Granted(lease) => client_of(&mutex, *lease).await,
            _ => None,
        };
        let name = mutex.name().to_owned();
        let record = EventRecord {
            time,
            name,
            event,
            client,
        };
        if records.send(Ok(record)).await.is_err() {
            return;
        }
    }
}

/// The client of a holder. `None`: it is not known, or the lock has passed on.
async fn client_of(mutex: &Mutex, lease: LeaseId) -> Option<ClientInfo> {
    let info = timeout(QUERY_TIMEOUT, mutex.holder()).await.ok()?.ok()??;
    info.client.filter(|_| info.lease == lease)
}

fn text(record: &EventRecord) -> String {
    let client = || match &record.client {
        Some(it) => output::client(&it.host, it.pid, &it.program, &it.label),
        None => "a client without client info".to_owned(),
    };
    let event = match &record.event {
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
    let time = output::rfc3339(record.time).unwrap_or_default();
    format!("{time}  {}  {event}", output::printable(&record.name))
}
