//! Which listener is notified of a message.

use std::sync::Weak;

use leasehold_core::Name;

use super::*;
use crate::store::api::Listener;
use crate::store::api::fixture::{key, space};
use crate::store::redis::fuzzing::EventLog;

/// The shard that has every name.
#[derive(Debug)]
struct Owner(Mutex<Shard>);

impl Owners for Owner {
    fn shard(&self, _: &Key) -> Option<Shard> {
        Some(*lock(&self.0))
    }
}

fn client(byte: u8) -> ClientId {
    ClientId::from_random([byte; 16])
}

fn add(notifications: &Notifications, space: &Keyspace, byte: u8) -> Arc<EventLog> {
    let log = Arc::new(EventLog::default());
    let listener = Arc::downgrade(&log) as Weak<dyn Listener>;
    notifications.clients.add(space, client(byte), listener);
    log
}

/// Messages that no script sends.
const NO_GRANTS: [&str; 18] = [
    "",
    "7",
    "7 1 3000 1",
    "7 1 3000 1 app:{u:n}",
    "7 1 3000 1 app:{t:n}:token",
    "7 1 3000 1 app:{t:n} ",
    "7 0 0 1 app:{u:n}",
    "7 9007199254740992 3000 1 app:{t:n}",
    "7 1 0 1 app:{t:n}",
    "7 1 90000000000 1 app:{t:n}",
    "+7 1 3000 1 app:{t:n}",
    "99999999999999999999 1 3000 1 app:{t:n}",
    " 7 1 3000 1 app:{t:n}",
    "7 1x 3000 1 app:{t:n}",
    "7 1x-1 3000 1 app:{t:n}",
    "7 1x1#0 3000 1 app:{t:n}",
    "7 1x1#0#0 3000 1 app:{t:n}",
    "7 1y1#0#1#1 3000 1 app:{t:n}",
];

#[test]
fn a_message_notifies_its_client_and_is_a_grant_only_from_its_node() {
    const GRANT: &str = "7 17 3000 1 app:{t:n}";
    const NEXT: &str = "7 0 3000 1 app:{t:n}";
    const REVOKED: &str = "7 0 0 1 app:{t:n}";
    let owner = Arc::new(Owner(Mutex::new(Shard(3))));
    let identity = NodeIdentity {
        id: "4f0c".to_owned(),
        shard: Shard(3),
        owners: Arc::clone(&owner) as _,
    };
    let notifications = Notifications::of_node(identity, &Arc::default());
    let [log, other] = [1, 2].map(|byte| add(&notifications, &space("app", "t"), byte));
    let common = format!("app:client:{}", client(1));
    let own = format!("{common}:4f0c");
    let channels = notifications.channels(&space("app", "t"), client(1));
    assert_eq!(channels, [&*own, &*common]);
    let channels = Notifications::default().channels(&space("app", "t"), client(1));
    assert_eq!(channels, [&*common]);

    let ttl = Ttl::from_millis(3_000).unwrap();
    let lease = LeaseId {
        client: client(1),
        number: 7,
    };
    let granted = Notice::Granted(Grant {
        lease,
        ttl,
        first: Token::new(17).unwrap(),
        number: None,
        floor: None,
        now: StoreTime::from_micros(1),
        run: None,
    });
    let notice = |notice| vec![Event::Notice(key("n"), notice)];
    let granted = notice(granted);
    let moved = vec![Event::Moved(EventScope::Record(key("n")))];
    let interrupted = vec![Event::Interrupted(EventScope::Record(key("n")))];
    let check = |channel: &str, message: &str, events: Vec<Event>| {
        let found = notifications.handle_message(channel.as_bytes(), message.as_bytes());
        assert_eq!(found.is_some(), events == granted);
        assert_eq!(log.take(), events, "{message:?} on {channel:?}");
        assert!(other.take().is_empty());
    };
    check(&own, GRANT, granted.clone());
    check(&own, NEXT, notice(Notice::Next { lease, ttl }));
    check(&own, REVOKED, notice(Notice::Revoked { lease }));
    check(&common, GRANT, moved.clone());
    check(&common, NEXT, moved);
    check(&common, REVOKED, interrupted);
    for channel in [
        &format!("{common}:4f0d"),
        &format!("app:client:{}:4f0c", client(3)),
        &own.replace("app", "apq"),
        "app:client:",
        "",
    ] {
        check(channel, GRANT, vec![]);
    }
    // Its slot has another owner by now.
    *lock(&owner.0) = Shard(4);
    assert!(
        notifications
            .handle_message(own.as_bytes(), GRANT.as_bytes())
            .is_some()
    );
    assert_eq!(log.take(), [Event::Moved(EventScope::Record(key("n")))]);
    for message in NO_GRANTS {
        check(&own, message, vec![]);
    }
}

#[test]
fn a_change_notifies_all_clients_of_its_keyspace() {
    let notifications = Notifications::default();
    let [here, there] = [space("app", "t"), space("app", "u")];
    let logs =
        [(&here, 1), (&here, 2), (&there, 3)].map(|(space, byte)| add(&notifications, space, byte));
    let invalidated = |data: Vec<Value>| {
        let kind = PushKind::Invalidate;
        notifications.handle_push(&PushInfo { kind, data });
        logs.each_ref().map(|log| log.take())
    };
    let keys = ["app:{t:n}", "app:{t:n}:token", "app:{u:", "x"];
    let keys = keys.map(|key| Value::BulkString(key.into())).into_iter();
    let keys = keys.chain([Value::Int(1)]).collect();
    let changed = || vec![Event::Changed(key("n"))];
    let events = invalidated(vec![Value::Array(keys)]);
    assert_eq!(events, [changed(), changed(), vec![]]);

    let of_store = || vec![Event::Interrupted(EventScope::Store)];
    let events = invalidated(vec![Value::Nil]);
    assert_eq!(events, [of_store(), of_store(), of_store()]);
    assert_eq!(invalidated(vec![]), [vec![], vec![], vec![]]);

    let name = Name::parse("n").unwrap();
    notifications.notify_changed(&there.key(name.clone()));
    assert_eq!(logs[0].take(), []);
    assert_eq!(logs[2].take(), [Event::Changed(there.key(name))]);
}

#[test]
fn a_client_without_a_listener_is_removed() {
    let notifications = Notifications::default();
    let space = space("app", "t");
    let [one, two, three] = [1, 2, 3].map(|byte| add(&notifications, &space, byte));
    let clients = &notifications.clients;
    let count = || clients.all().len();
    assert_eq!((count(), notifications.version()), (3, 3));
    drop(one);
    clients.notify(client(1), Event::Interrupted(EventScope::Store));
    assert_eq!((count(), notifications.version()), (2, 4));
    drop(two);
    assert_eq!(count(), 1);

    clients.remove(client(3));
    assert_eq!(notifications.version(), 5);
    clients.remove(client(3));
    assert_eq!(notifications.version(), 5);
    notifications.interrupted();
    assert_eq!(three.take(), []);
}
