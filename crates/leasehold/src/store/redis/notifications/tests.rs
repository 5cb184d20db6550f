//! Tests of pushes and their events.

use leasehold_core::Name;

use super::super::fuzzing::EventLog;
use super::*;
use crate::store::api::fixture::space;

fn key(space: &Keyspace) -> Key {
    space.key(Name::parse("n").unwrap())
}

fn client(byte: u8) -> ClientId {
    ClientId::from_random([byte; 16])
}

/// Adds a client and gives its listener.
fn add(notifications: &Notifications, space: &Keyspace, byte: u8) -> Arc<EventLog> {
    let log = Arc::new(EventLog::default());
    let listener = Arc::downgrade(&log) as Weak<dyn Listener>;
    notifications.add(space, client(byte), listener);
    log
}

fn bulk(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

fn push(kind: PushKind, data: Vec<Value>) -> PushInfo {
    PushInfo { kind, data }
}

#[test]
fn a_grant_notifies_only_its_client() {
    let notifications = Notifications::default();
    let space = space("app", "t");
    let [one, two] = [1, 2].map(|byte| add(&notifications, &space, byte));
    let grant = |channel: &str| {
        let message = "7 1700000000000001 3000 1700000000000000 app:{t:n}";
        push(PushKind::Message, vec![bulk(channel), bulk(message)])
    };
    let [to_one, to_three] = [1, 3].map(|byte| format!("app:client:{}", client(byte)));
    notifications.handle_push(&grant(&to_one));
    let expected = Grant {
        lease: LeaseId {
            client: client(1),
            number: 7,
        },
        ttl: Ttl::from_millis(3_000).unwrap(),
        first: Token::new(1_700_000_000_000_001).unwrap(),
        now: StoreTime::from_micros(1_700_000_000_000_000),
    };
    assert_eq!(
        one.take(),
        [Event::Notice(key(&space), Notice::Granted(expected))]
    );
    for channel in [&to_three, &to_one.replace("app", "apq"), "app:client:", ""] {
        notifications.handle_push(&grant(channel));
    }
    assert!(one.take().is_empty() && two.take().is_empty());
}

#[test]
fn the_next_waiter_is_notified_without_a_token() {
    let notifications = Notifications::default();
    let space = space("app", "t");
    let log = add(&notifications, &space, 1);
    let channel = format!("app:client:{}", client(1));
    notifications.handle_message(channel.as_bytes(), b"7 0 3000 1 app:{t:n}");
    let next = Notice::Next {
        lease: LeaseId {
            client: client(1),
            number: 7,
        },
        ttl: Ttl::from_millis(3_000).unwrap(),
    };
    assert_eq!(log.take(), [Event::Notice(key(&space), next)]);
}

/// A message on the channel of all nodes is for a client that missed it on the channel of the node.
#[test]
fn a_message_for_all_nodes_is_not_a_grant() {
    let notifications = Notifications::of_node("4f0c".to_owned());
    let space = space("app", "t");
    let log = add(&notifications, &space, 1);
    let channels = notifications.channels(&space, client(1));
    let common = format!("app:client:{}", client(1));
    assert_eq!(channels, [format!("{common}:4f0c"), common.clone()]);
    let expected = |channel: &str, message: &str| {
        let granted = notifications.handle_message(channel.as_bytes(), message.as_bytes());
        (granted.is_some(), log.take())
    };
    let grant = "7 1 3000 1 app:{t:n}";
    let (granted, events) = expected(&channels[0], grant);
    assert!(granted && matches!(events[..], [Event::Notice(_, Notice::Granted(_))]));
    let moved = Event::Moved(EventScope::Record(key(&space)));
    assert_eq!(expected(&common, grant), (false, vec![moved.clone()]));
    assert_eq!(
        expected(&common, "7 0 3000 1 app:{t:n}"),
        (false, vec![moved])
    );
    let changed = Event::Changed(key(&space));
    assert_eq!(
        expected(&common, "7 0 0 1 app:{t:n}"),
        (false, vec![changed])
    );
    assert_eq!(expected(&common, ""), (false, vec![]));
    assert_eq!(expected(&format!("{common}:4f0d"), grant), (false, vec![]));
    // Without a cluster there is one channel.
    let one = Notifications::default().channels(&space, client(1));
    assert_eq!(one, [common]);
}

#[test]
fn an_invalid_message_notifies_no_client() {
    let notifications = Notifications::default();
    let log = add(&notifications, &space("app", "t"), 1);
    let channel = format!("app:client:{}", client(1));
    for message in [
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
    ] {
        notifications.handle_message(channel.as_bytes(), message.as_bytes());
        assert_eq!(log.take(), [], "{message:?}");
    }
    notifications.handle_message(channel.as_bytes(), b"7 1 3000 1 app:{t:n}");
    assert_eq!(log.take().len(), 1);
}

#[test]
fn a_change_notifies_all_clients_of_its_keyspace() {
    let notifications = Notifications::default();
    let [here, there] = [space("app", "t"), space("app", "u")];
    let [one, two, other] =
        [(&here, 1), (&here, 2), (&there, 3)].map(|(space, byte)| add(&notifications, space, byte));
    let keys = [
        "app:{t:n}",
        "app:{t:n}:token",
        "app:{t:n}:queue",
        "app:{u:",
        "x",
    ];
    let keys = Value::Array(keys.map(bulk).into_iter().chain([Value::Int(1)]).collect());
    notifications.handle_push(&push(PushKind::Invalidate, vec![keys]));
    for log in [&one, &two] {
        assert_eq!(log.take(), [Event::Changed(key(&here))]);
    }
    assert_eq!(other.take(), []);
    notifications.notify_changed(&key(&there));
    assert_eq!(other.take(), [Event::Changed(key(&there))]);
    notifications.handle_push(&push(PushKind::Invalidate, vec![Value::Nil]));
    for log in [&one, &two, &other] {
        assert_eq!(log.take(), [Event::Interrupted(EventScope::Store)]);
    }
    for strange in [
        push(PushKind::Invalidate, vec![]),
        push(PushKind::Message, vec![Value::Nil, Value::Nil]),
        push(PushKind::Other("new".to_owned()), vec![Value::Nil]),
        push(PushKind::PMessage, vec![bulk("a"), bulk("b"), bulk("c")]),
    ] {
        notifications.handle_push(&strange);
        assert_eq!(one.take(), []);
    }
}

#[test]
fn a_client_without_a_listener_is_removed() {
    let notifications = Notifications::default();
    let space = space("app", "t");
    let [one, two, three] = [1, 2, 3].map(|byte| add(&notifications, &space, byte));
    let ids = || -> Vec<_> {
        let mut ids: Vec<_> = notifications
            .clients()
            .into_iter()
            .map(|(id, _)| id)
            .collect();
        ids.sort();
        ids
    };
    assert_eq!(ids(), [client(1), client(2), client(3)]);
    let before = notifications.version();
    drop(one);
    // Noticed at its next event, so that its channel is unsubscribed.
    notifications.notify(client(1), Event::Interrupted(EventScope::Store));
    assert!(notifications.version() > before);
    assert_eq!(ids(), [client(2), client(3)]);
    drop(two);
    assert_eq!(ids(), [client(3)]);
    let before = notifications.version();
    assert!(notifications.remove(client(3)).is_some());
    assert!(notifications.version() > before);
    assert!(notifications.remove(client(3)).is_none());
    notifications.interrupted();
    assert_eq!(three.take(), []);
}
