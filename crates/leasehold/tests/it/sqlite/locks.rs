//! Who holds what, through one file.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use leasehold::clock::ManualClock;
use leasehold::store::{ClientInfo, Event};
use leasehold_core::{Record, mutex};

use super::event_log::Asker;
use super::*;

#[tokio::test]
async fn two_stores_on_one_file_exclude_each_other() {
    let place = Place::new();
    let (one, other) = (place.open().await, place.open().await);
    let first = token(&*one, acquire("a", lease(1), LONG)).await;

    let (refused, _) = outcome(&*other, acquire("a", lease(2), LONG)).await;
    assert!(
        matches!(refused, Outcome::Refused { time_left: left, .. } if left <= LONG && left > LONG / 2)
    );
    let (stranger, _) = outcome(&*other, release("a", lease(2))).await;
    assert_eq!(stranger, Outcome::Lost(Loss::TakenOver));
    let entry = other.inspect(&key("a")).await.unwrap().unwrap();
    assert_eq!((entry.lease, entry.count), (lease(1), 1));
    assert_eq!(entry.token.unwrap().get(), first);

    let (released, _) = outcome(&*one, release("a", lease(1))).await;
    assert_eq!(released, Outcome::Released { count: 0 });
    assert_eq!(one.inspect(&key("a")).await.unwrap(), None);
    let second = token(&*other, acquire("a", lease(2), LONG)).await;
    assert!(second > first);
}

/// Every answer of the file is the answer of the rule, at the time that the file says, and everybody
/// is told what the rule tells.
#[tokio::test]
async fn a_random_history_follows_the_rule() {
    let place = Place::new();
    let clock = ManualClock::new();
    let open = async || {
        let store = SqliteStore::open_with_clock(place.path(), Arc::new(clock.clone())).await;
        Arc::new(store.unwrap()) as Arc<dyn Store>
    };
    let (store, other) = (open().await, open().await);
    // Two clients of the store, and one of the other. The last one of `CLIENTS` does not listen.
    let listening = [
        Asker::on(&store, CLIENTS[0]).await,
        Asker::on(&store, CLIENTS[1]).await,
        Asker::on(&other, CLIENTS[2]).await,
    ];
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut model: HashMap<Key, Record> = HashMap::new();
    let mut time = StoreTime::default();
    let mut grants = 0;
    for _ in 0..400 {
        clock.advance(Duration::from_millis(random.u64(0..40)));
        let batch: Vec<_> = (0..random.usize(1..8))
            .map(|_| any_request(&mut random))
            .collect();
        let mut told: HashMap<ClientId, Vec<Event>> = HashMap::new();
        let mut tell = |client, event| {
            let listens = listening.iter().any(|asker| asker.client == client);
            if listens {
                told.entry(client).or_default().push(event);
            }
            listens
        };
        let replies = store.apply(batch.clone()).await;
        for (request, reply) in batch.iter().zip(replies) {
            let Reply::Applied { outcome, now } = reply else {
                panic!("{reply:?}, seed {seed}");
            };
            assert!(now >= time, "seed {seed}");
            time = now;
            let record = model.entry(request.key.clone()).or_default();
            let expected = mutex::apply(record, &request.op, now, |notice| {
                tell(
                    notice.lease().client,
                    Event::Notice(request.key.clone(), *notice),
                )
            });
            assert_eq!(outcome, expected, "{request:?}, seed {seed}");
        }
        for asker in &listening {
            let expected = told.remove(&asker.client).unwrap_or_default();
            grants += expected.len();
            let heard = asker.hears(expected.len()).await;
            assert_eq!(heard, expected, "seed {seed}");
        }
        for (key, record) in &model {
            let entry = store.inspect(key).await.unwrap();
            let found = entry.map(|entry| (entry.lease, entry.count, entry.time_left, entry.token));
            let expected = record.holder(time).map(|hold| {
                let left = time.until(hold.expires_at);
                (hold.lease, hold.count.get(), left, record.last_token)
            });
            assert_eq!(found, expected, "seed {seed}");
        }
    }
    assert!(grants > 100, "only {grants}, seed {seed}");
}

const CLIENTS: [u8; 4] = [1, 2, 3, 4];

fn any_request(random: &mut fastrand::Rng) -> Request {
    let lease = LeaseId {
        client: client(CLIENTS[random.usize(0..CLIENTS.len())]),
        number: match random.u64(0..4) {
            // Numbers that a signed column could spoil.
            3 => u64::MAX,
            number => number,
        },
    };
    let ttl = Ttl::remainder(Duration::from_millis(random.u64(1..200)));
    let count = random.u32(0..4);
    let op = match random.u8(0..14) {
        0..=6 => Op::Acquire {
            lease,
            count: NonZeroU32::MIN.saturating_add(count),
            ttl,
            tokens: TokenCount::MIN.saturating_add(count),
            wait: random.u8(0..4) > 0,
        },
        7..=8 => Op::Renew { lease, ttl },
        9..=12 => Op::Release {
            lease,
            count: count.saturating_sub(1),
            ttl,
        },
        _ => Op::Revoke,
    };
    Request::new(key(["a", "b", "c"][random.usize(0..3)]), op)
}

#[tokio::test]
async fn a_list_is_ordered_whatever_its_length_and_joined_with_the_clients() {
    let place = Place::new();
    let store = place.open().await;
    let mut info = ClientInfo::default();
    info.host = "db-1".into();
    info.pid = 4_294_967_295;
    info.program = "backup".into();
    info.label = "nightly \"run\"".into();
    info.since = UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
    let space = space("main");
    store
        .register_client(&space, client(1), &info, LONG)
        .await
        .unwrap();
    // More than two pages, in no order, every third one free again.
    let mut names: Vec<_> = (0..2_500).map(|number| format!("n{number:04}")).collect();
    fastrand::shuffle(&mut names);
    let batch = |name: &String| acquire(name, lease(7), LONG);
    store.apply(names.iter().map(batch).collect()).await;
    names.sort();
    let free = |name: &String| release(name, lease(7));
    store
        .apply(names.iter().step_by(3).map(free).collect())
        .await;
    let elsewhere = Request::new(
        super::space("other").key(Name::parse("n0001").unwrap()),
        acquire("n0001", lease(8), LONG).op,
    );
    token(&*store, elsewhere).await;

    let entries = store.list(&space).await.unwrap();
    let found: Vec<_> = entries
        .iter()
        .map(|entry| entry.key.name.as_str())
        .collect();
    let held = names.iter().enumerate().filter(|(at, _)| at % 3 != 0);
    let held: Vec<_> = held.map(|(_, name)| name.as_str()).collect();
    assert_eq!(found, held);
    assert!(
        entries
            .iter()
            .all(|entry| entry.client.as_ref() == Some(&info))
    );
    assert!(entries.iter().all(|entry| entry.lease == lease(7)));
    let other = store.list(&super::space("other")).await.unwrap();
    assert_eq!(other.len(), 1);
}

#[tokio::test]
async fn a_client_that_announces_no_more_is_forgotten() {
    let place = Place::new();
    let clock = ManualClock::new();
    let store = SqliteStore::open_with_clock(place.path(), Arc::new(clock.clone()))
        .await
        .unwrap();
    let info = ClientInfo::default();
    let ttl = Duration::from_secs(60);
    store
        .register_client(&space("main"), client(1), &info, ttl)
        .await
        .unwrap();
    token(&store, acquire("a", lease(1), LONG)).await;
    clock.advance(Duration::from_secs(59));
    let entry = store.inspect(&key("a")).await.unwrap().unwrap();
    assert_eq!(entry.client, Some(info));
    clock.advance(Duration::from_secs(1));
    let entry = store.inspect(&key("a")).await.unwrap().unwrap();
    assert_eq!(entry.client, None);
}
