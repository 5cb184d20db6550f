//! `leasehold watch`: the events of locks, one in each line.

use std::fmt;
use std::pin::pin;
use std::time::{Duration, SystemTime};

use leasehold::{Client, ClientInfo, Completion, LeaseId, LockEvent, LockEvents, LockInfo};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::args::{EventsArgs, StoreArgs};
use crate::connect::connect;
use crate::exit::Failure;
use crate::{duration, jobs, json, misplaced, output};

/// The time limit of the queries for a holder or a minimum hold: they must not delay the event.
const QUERY_TIMEOUT: Duration = Duration::from_secs(1);

/// How often client info is queried, and the interval: a client writes it a moment after its first grant.
const QUERIES_MAX: u32 = 5;
const QUERY_INTERVAL: Duration = Duration::from_millis(50);

/// An event of a lock.
struct EventRecord {
    /// When it was noticed, by the clock of this machine.
    time: SystemTime,
    /// The name of the lock.
    name: String,
    event: LockEvent,
    /// The client of the lease that was granted, if its client info is known.
    client: Option<ClientInfo>,
    /// The lock, if nobody holds it and it is in its minimum hold.
    min_hold: Option<LockInfo>,
}

impl EventRecord {
    /// When the lock was observed last, if the event says that it no longer is.
    fn unobserved_since(&self) -> Option<String> {
        match self.event {
            LockEvent::Unobserved(time) => output::rfc3339(self.time.checked_sub(time)?),
            _ => None,
        }
    }
}

/// A line of `watch --json`. `key` is that of the completed runs.
fn line(record: &EventRecord, key: Option<&str>) -> impl Serialize {
    let (event, lease) = match &record.event {
        LockEvent::Held(lease) => ("held", Some(lease)),
        LockEvent::Free => ("free", None),
        LockEvent::Granted(lease) => ("granted", Some(lease)),
        LockEvent::Released(lease) => ("released", Some(lease)),
        LockEvent::Revoked(lease) => ("revoked", Some(lease)),
        LockEvent::Expired(lease) => ("expired", Some(lease)),
        LockEvent::QueueLength(_) => ("queue", None),
        LockEvent::LeaderChanged(_) => ("leader", None),
        LockEvent::Completed(_) => ("completed", None),
        LockEvent::Unobserved(_) => ("unobserved", None),
        LockEvent::Observed => ("observed", None),
        // Of a newer library.
        _ => ("other", None),
    };
    let (mut token, mut waiters, mut leader) = (None, None, None);
    match &record.event {
        LockEvent::QueueLength(length) => waiters = Some(*length),
        LockEvent::LeaderChanged(Some(changed)) => leader = Some(json::leader(changed, None)),
        LockEvent::Completed(completed) => token = Some(completed.get()),
        _ => {}
    }
    json::object! {
        time: output::rfc3339(record.time),
        name: &record.name,
        key: key.filter(|_| token.is_some()),
        event: event,
        lease: lease.map(ToString::to_string),
        token: token,
        holder: record.client.as_ref(),
        waiters: waiters,
        leader: leader,
        since: record.unobserved_since(),
    }
}

/// Prints each event, until nobody reads them.
pub(crate) async fn events(args: &EventsArgs, store: &StoreArgs) -> Result<u8, Failure> {
    let client = connect(store, Client::builder()).await?;
    let (sender, mut records) = mpsc::channel(1);
    let mut tasks = JoinSet::new();
    let key = args.key.as_deref();
    if let Some(message) = key.and_then(|key| misplaced::of_text("the key", key)) {
        note!("leasehold: {message}");
    }
    for name in &args.names {
        misplaced::note_pattern(name);
        if let Some(message) = misplaced::of_text("the name of the lock", name) {
            note!("leasehold: {message}");
        }
        let events = match key {
            Some(key) => {
                let job = client.once(name, key)?;
                // It has no event any longer. A store that fails also fails the events.
                if let Ok(Some(run)) = job.last_run().await {
                    print_completed(&run);
                }
                job.events()
            }
            None => client.mutex(name)?.events(),
        };
        let sender = sender.clone();
        let lock = (name.clone(), !args.json);
        tasks.spawn(send_events(client.clone(), lock, events, sender));
    }
    let mut no_reader = pin!(output::no_reader());
    while let Some(record) = tokio::select! {
        record = records.recv() => record,
        () = &mut no_reader => None,
    } {
        let record: EventRecord = record?;
        let text = match args.json {
            true => json::to_line(&line(&record, key))?,
            false if print_silence(&record, client.store()) => continue,
            false => text(&record, key),
        };
        if !output::write_to_reader(format!("{text}\n").as_bytes())? {
            break;
        }
    }
    Ok(0)
}

/// Prints that the run for a key was complete before the first event.
fn print_completed(run: &Completion) {
    let finished = output::rfc3339(run.finished).unwrap_or_default();
    note!(
        "leasehold: {} was completed at {finished} by {}; only later runs are printed",
        jobs::describe(&run.name, run.key.as_deref()),
        jobs::place(run)
    );
}

/// Sends the events of a lock until they fail, or until nobody receives them. `with_min_hold`: also its minimum holds, which
/// only people are shown.
async fn send_events(
    client: Client,
    (name, with_min_hold): (String, bool),
    mut events: LockEvents,
    records: mpsc::Sender<leasehold::Result<EventRecord>>,
) {
    loop {
        let event = match events.next().await {
            Ok(event) => event,
            Err(error) => return drop(records.send(Err(error)).await),
        };
        let time = SystemTime::now();
        let holder = match &event {
            LockEvent::Held(lease) | LockEvent::Granted(lease) => holder(&client, *lease).await,
            _ => None,
        };
        let min_hold = match &event {
            _ if !with_min_hold => None,
            LockEvent::Free => min_hold(&client, &name, None).await,
            LockEvent::Released(lease) => min_hold(&client, &name, Some(*lease)).await,
            _ => None,
        };
        let record = EventRecord {
            time,
            name: name.clone(),
            event,
            client: holder,
            min_hold,
        };
        if records.send(Ok(record)).await.is_err() {
            return;
        }
    }
}

/// The client info of a holder, which may have released the lock meanwhile. `None`: it is not known.
async fn holder(client: &Client, lease: LeaseId) -> Option<ClientInfo> {
    let queries = async {
        for query in 0..QUERIES_MAX {
            if query > 0 {
                sleep(QUERY_INTERVAL).await;
            }
            let found = client.client_info(lease.client).await.ok()?;
            if found.is_some() {
                return found;
            }
        }
        None
    };
    timeout(QUERY_TIMEOUT, queries).await.ok()?
}

/// The lock, if it is in the minimum hold of this lease, or of any. `None`: it is not, or that is not known.
async fn min_hold(client: &Client, name: &str, released: Option<LeaseId>) -> Option<LockInfo> {
    let mutex = client.mutex(name).ok()?;
    let info = timeout(QUERY_TIMEOUT, mutex.holder()).await.ok()?.ok()??;
    let is_of_lease = released.is_none_or(|lease| lease == info.lease);
    (info.min_hold && is_of_lease).then_some(info)
}

/// Prints that events are missed or no longer missed, as it is not an event of the lock. Returns whether it was that.
fn print_silence(record: &EventRecord, store: &dyn fmt::Display) -> bool {
    let name = &record.name;
    match record.event {
        LockEvent::Unobserved(_) => {
            let since = record.unobserved_since().unwrap_or_default();
            note!(
                "leasehold: lock {name:?} at {store}: not observed since {since}, because the store fails or does not \
                 reply; events are missed meanwhile"
            );
        }
        LockEvent::Observed => note!("leasehold: lock {name:?} at {store}: observed again"),
        _ => return false,
    }
    true
}

/// A line for people. `key` is that of the completed runs.
fn text(record: &EventRecord, key: Option<&str>) -> String {
    let client = || output::client(record.client.as_ref());
    let min_hold = record.min_hold.as_ref();
    let left = min_hold.map(|info| duration::format(info.time_left));
    let free_in = output::optional(", free in ", left);
    let event = match &record.event {
        LockEvent::Held(lease) => format!("held by {}, lease {lease}", client()),
        LockEvent::Free => match min_hold {
            Some(info) => format!("{}{free_in}", output::listed_holder(info)),
            None => "free".to_owned(),
        },
        LockEvent::Granted(lease) => format!("granted to {}, lease {lease}", client()),
        LockEvent::Released(lease) => format!("released, lease {lease}{free_in}"),
        LockEvent::Revoked(lease) => format!("revoked by an operator, lease {lease}"),
        LockEvent::Expired(lease) => format!("expired, lease {lease}"),
        LockEvent::QueueLength(0) => "the queue is empty".to_owned(),
        LockEvent::QueueLength(waiters) => {
            format!("{} in the queue", output::count(*waiters, "waiter"))
        }
        LockEvent::LeaderChanged(Some(leader)) => format!(
            "leader in term {}: {}",
            leader.term,
            output::printable(&leader.value)
        ),
        LockEvent::LeaderChanged(None) => "no leader".to_owned(),
        LockEvent::Completed(token) => {
            let for_key = output::optional(" for ", key.map(output::printable));
            format!("run{for_key} completed, token {token}")
        }
        // Of a newer library.
        other => format!("{other:?}"),
    };
    let time = output::rfc3339(record.time).unwrap_or_default();
    format!("{time}  {}  {event}", output::printable(&record.name))
}
