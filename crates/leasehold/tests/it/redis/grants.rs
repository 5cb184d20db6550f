//! The release is the grant: who waits in the queue is told that it holds the lock.

use leasehold::store::Event;
use leasehold_core::Notice;
use leasehold_testkit::{RedisServer, Restart, eventually_async};

use super::event_log::{Asker, calls_of, dead_tokens, lasting, queue_dead, script_calls, wait};
use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_release_grants_to_the_head_and_tells_it() {
    let server = RedisServer::start();
    let [a, b, c] = askers(&server).await;
    let token = a.take("a", 1).await;
    assert_eq!(b.wait("a", 5).await, 0);
    assert_eq!(c.wait("a", 6).await, 1);
    // Whoever asks again keeps its place.
    assert_eq!(b.wait("a", 5).await, 0);
    let (released, now) = applied_at(&*a.store, a.own(release("a", 1, 0))).await;
    assert_eq!(released, Outcome::Released { count: 0 });
    let grant = b.granted("a", 5).await;
    assert!(grant.first.get() > token);
    assert_eq!((grant.ttl, grant.now), (ttl(3_000), now));
    let record = server.cli(&["HGETALL", "app:{t:a}"]);
    assert_eq!(record, format!("{}\n1", b.lease(5)));
    let left: u64 = server.cli(&["PTTL", "app:{t:a}"]).parse().unwrap();
    assert!((2_000..=3_000).contains(&left), "{left}");

    // It says that it has heard, and is not told again.
    assert_eq!(b.take("a", 5).await, grant.first.get());
    let left: u64 = server.cli(&["PTTL", "app:{t:a}"]).parse().unwrap();
    assert!(left > 29_000, "{left}");
    b.release("a", 5).await;
    let next = c.granted("a", 6).await;
    assert!(next.first > grant.first);
    c.release("a", 6).await;
    assert_eq!(server.cli(&["KEYS", "*"]), "app:{t:a}:token");
    for asker in [a, b, c] {
        asker.settle().await;
        let grants = asker.event_log.take().into_iter();
        assert_eq!(
            grants
                .filter(|event| matches!(event, Event::Notice(_, Notice::Granted(_))))
                .count(),
            0
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_overtakes_the_queue() {
    let server = RedisServer::start();
    let [a, b, c] = askers(&server).await;
    a.take("a", 1).await;
    b.wait("a", 2).await;
    // The holder is gone without a word. Whoever asks next, the head is granted the lock.
    server.cli(&["DEL", "app:{t:a}"]);
    let refused = c.ask(acquire("a", 3)).await;
    assert!(
        matches!(refused, Outcome::Refused { queue_position: None, time_left: left } if left.as_millis() <= 3_000),
        "{refused:?}"
    );
    b.granted("a", 2).await;
    assert_eq!(c.wait("a", 3).await, 0);
    // If the head itself asks, its answer is its grant.
    server.cli(&["DEL", "app:{t:a}"]);
    c.take("a", 3).await;
    assert_eq!(server.cli(&["EXISTS", "app:{t:a}:queue"]), "0");
    c.settle().await;
    let told = c.event_log.take();
    assert!(
        !told
            .iter()
            .any(|event| matches!(event, Event::Notice(_, Notice::Granted(_)))),
        "{told:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_finds_the_lock_free_passes_it_on() {
    let server = RedisServer::start();
    let [a, b, c] = askers(&server).await;
    for (nth, found) in [
        renew("a", 9),
        release("a", 9, 0),
        release("a", 9, 1),
        revoke("a"),
    ]
    .into_iter()
    .enumerate()
    {
        let number = u64::try_from(nth).unwrap() + 1;
        a.take("a", number).await;
        b.wait("a", number).await;
        server.cli(&["DEL", "app:{t:a}"]);
        let outcome = c.ask(found).await;
        assert!(
            matches!(
                outcome,
                Outcome::Lost(_) | Outcome::Revoked { cut_off: None }
            ),
            "{outcome:?}"
        );
        b.granted("a", number).await;
        b.release("a", number).await;
    }
    a.take("a", 20).await;
    b.wait("a", 20).await;
    let cut_off = Some(a.lease(20));
    assert_eq!(c.ask(revoke("a")).await, Outcome::Revoked { cut_off });
    b.granted("a", 20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_gives_up_is_not_granted() {
    let server = RedisServer::start();
    let [a, b, c] = askers(&server).await;
    a.take("a", 1).await;
    for number in 1..=4 {
        b.wait("a", number).await;
    }
    assert_eq!(c.wait("a", 1).await, 4);
    assert_eq!(
        b.ask(release("a", 1, 0)).await,
        Outcome::Lost(Loss::TakenOver)
    );
    assert_eq!(b.ask(renew("a", 3)).await, Outcome::Lost(Loss::TakenOver));
    assert_eq!(
        b.ask(release("a", 4, 2)).await,
        Outcome::Lost(Loss::TakenOver)
    );
    assert_eq!(c.wait("a", 1).await, 1);
    a.release("a", 1).await;
    b.granted("a", 2).await;
    b.release("a", 2).await;
    c.granted("a", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_are_served_in_their_order() {
    let server = RedisServer::start();
    let askers = askers(&server).await;
    askers[0].take("a", 1_000).await;
    for number in 0..100 {
        let place = askers[pick(number)].wait("a", number).await;
        assert_eq!(u64::from(place), number);
    }
    askers[0].release("a", 1_000).await;
    let mut last = 0;
    for number in 0..100 {
        let asker = &askers[pick(number)];
        let grant = asker.granted("a", number).await;
        assert!(grant.first.get() > last);
        last = grant.first.get();
        asker.release("a", number).await;
    }
    assert_eq!(server.cli(&["KEYS", "*"]), "app:{t:a}:token");
}

/// Not in turn, so that who is served next cannot be told from who was served last.
fn pick(number: u64) -> usize {
    usize::try_from(number * number / 3 % 3).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn releasing_and_asking_again_in_one_batch_steps_behind_the_others() {
    let server = RedisServer::start();
    let [a, b, _] = askers(&server).await;
    a.take("a", 1).await;
    b.wait("a", 1).await;
    let batch = vec![a.own(release("a", 1, 0)), a.own(wait("a", 2))];
    let replies = a.store.apply(batch).await;
    assert!(
        matches!(
            replies[1],
            Reply::Applied {
                outcome: Outcome::Refused {
                    queue_position: Some(0),
                    ..
                },
                ..
            }
        ),
        "{replies:?}"
    );
    b.granted("a", 1).await;
    b.release("a", 1).await;
    a.granted("a", 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_ttl_is_not_made_longer_and_a_block_is_reserved() {
    let server = RedisServer::start();
    let [a, b, _] = askers(&server).await;
    a.take("a", 1).await;
    let mut asked = lasting(wait("a", 1), 700);
    if let Op::Acquire { tokens, .. } = &mut asked.op {
        *tokens = TokenCount::new(256).unwrap();
    }
    b.ask(asked).await;
    a.release("a", 1).await;
    let grant = b.granted("a", 1).await;
    assert_eq!(grant.ttl, ttl(700));
    let last = (grant.first.get() + 255).to_string();
    assert_eq!(server.cli(&["GET", "app:{t:a}:token"]), last);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_is_gone_is_passed_over_at_once() {
    let server = RedisServer::options()
        .acl("cut", "pw", "~app:* &app:* +@all")
        .start();
    let [a, b, forgotten] = askers(&server).await;
    let cut = Asker::connect(&server.url_of("cut", "pw"), 10).await;
    let dropped = Asker::connect(&server.url(), 11).await;
    let deaf = Asker::on(&open(&server.url()).await, 12);
    let silent = Asker::on(&open(&server.url()).await, 13);
    silent.store.forget(silent.lease(0).client);
    a.take("a", 1).await;
    let gone = [&cut, &dropped, &deaf, &silent, &forgotten];
    for (place, asker) in (0_u32..).zip(gone) {
        assert_eq!(asker.wait("a", 1).await, place);
    }
    assert_eq!(b.wait("a", 1).await, 5);
    server.cli(&["CLIENT", "KILL", "USER", "cut"]);
    drop(dropped);
    forgotten.store.forget(forgotten.lease(0).client);
    // Its listener is gone, and the next batch of its connection notices.
    let Asker {
        store, event_log, ..
    } = deaf;
    drop(event_log);
    let other = Asker::on(&store, 14);
    other.settle().await;
    eventually_async(SOON, async || subscribers(&server) == 3).await;
    a.release("a", 1).await;
    b.granted("a", 1).await;
    assert_eq!(server.cli(&["EXISTS", "app:{t:a}:queue"]), "0");
    cut.hears_of_interruption().await;
}

/// `PUBLISH` counts subscriptions to patterns as well.
#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_to_all_channels_does_not_make_killed_waiters_alive() {
    let server = RedisServer::start();
    let monitor = redis::Client::open(server.url()).unwrap();
    let mut monitor = monitor.get_async_pubsub().await.unwrap();
    monitor.psubscribe("*").await.unwrap();
    let [a, b, c] = askers(&server).await;
    a.take("a", 1).await;
    let mut killed = Vec::new();
    for client in 10..18 {
        let asker = Asker::connect(&server.url(), client).await;
        asker.wait("a", 1).await;
        killed.push(asker);
    }
    assert_eq!(b.wait("a", 1).await, 8);
    for client in 18..20 {
        let asker = Asker::connect(&server.url(), client).await;
        asker.wait("a", 1).await;
        killed.push(asker);
    }
    assert_eq!(c.wait("a", 1).await, 11);
    drop(killed);
    eventually_async(SOON, async || subscribers(&server) == 3).await;
    a.release("a", 1).await;
    b.granted("a", 1).await;
    // The next living waiter looks after the grant.
    let (lease, ttl) = (c.lease(1), ttl(3_000));
    let next = Notice::Next { lease, ttl };
    c.hears(&Event::Notice(key("a"), next)).await;
    assert_eq!(c.wait("a", 1).await, 0);
    b.release("a", 1).await;
    c.granted("a", 1).await;
    assert_eq!(server.cli(&["EXISTS", "app:{t:a}:queue"]), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn if_all_are_gone_the_lock_is_free() {
    let server = RedisServer::start();
    let [a, b, c] = askers(&server).await;
    a.take("a", 1).await;
    for number in 0..10 {
        b.wait("a", number).await;
        c.wait("a", number).await;
    }
    drop((b, c));
    eventually_async(SOON, async || subscribers(&server) == 1).await;
    a.release("a", 1).await;
    assert_eq!(server.cli(&["KEYS", "*"]), "app:{t:a}:token");
    a.take("a", 2).await;
}

/// While a script runs, the server does nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn many_dead_waiters_are_passed_over_in_many_short_calls() {
    let server = RedisServer::start();
    let [a, b, c] = askers(&server).await;
    a.take("a", 1).await;
    queue_dead(&server, "a", 0..3_000);
    assert_eq!(b.wait("a", 1).await, 3_000);
    queue_dead(&server, "a", 3_000..5_000);
    assert_eq!(c.wait("a", 1).await, 5_001);
    server.cli(&["CONFIG", "RESETSTAT"]);
    a.release("a", 1).await;
    b.granted("a", 1).await;
    eventually_async(SOON, async || {
        let next = |event: &Event| matches!(event, Event::Notice(_, Notice::Next { .. }));
        c.event_log.take().iter().any(next)
    })
    .await;
    assert_eq!(c.wait("a", 1).await, 0);
    let calls = script_calls(&server);
    assert!((5..20).contains(&calls), "{calls}");
    for command in ["set", "hset", "publish", "pubsub|numsub"] {
        let calls = calls_of(&server, command);
        assert!(calls < 300, "{command}: {calls}");
    }
    b.release("a", 1).await;
    c.granted("a", 1).await;
    assert_eq!(server.cli(&["EXISTS", "app:{t:a}:queue"]), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_for_a_free_lock_behind_many_dead_waiters_is_granted_it() {
    let server = RedisServer::start();
    let [a, b, _] = askers(&server).await;
    for name in ["a", "b"] {
        queue_dead(&server, name, 0..3_000);
    }
    // Somebody alive may wait behind those that are left, so this one joins the queue.
    a.wait("a", 1).await;
    a.granted("a", 1).await;
    a.take("a", 1).await;
    let refused = b.ask(acquire("b", 1)).await;
    assert!(
        matches!(refused, Outcome::Refused { queue_position: None, time_left: left } if left.is_zero()),
        "{refused:?}"
    );
    b.take("b", 1).await;
    assert_eq!(
        server.cli(&["EXISTS", "app:{t:a}:queue", "app:{t:b}:queue"]),
        "0"
    );
}

/// What was passed over in one call takes as many tokens as the rule says.
#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_dead_waiters_are_passed_over_by_the_rule() {
    let server = RedisServer::start();
    let [a, b, _] = askers(&server).await;
    let token = a.take("a", 1).await;
    let dead = 0..900;
    queue_dead(&server, "a", dead.clone());
    b.wait("a", 1).await;
    // Ahead of the clock, so that only what is reserved moves it.
    let counter = token + 3_600_000_000;
    server.cli(&["SET", "app:{t:a}:token", &counter.to_string()]);
    a.release("a", 1).await;
    let reserved: u64 = dead.map(dead_tokens).sum();
    assert_eq!(b.granted("a", 1).await.first.get(), counter + reserved + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_connection_subscribes_before_it_asks() {
    let server = RedisServer::options()
        .acl("cut", "pw", "~app:* &app:* +@all")
        .start();
    let [a, ..] = askers(&server).await;
    let b = Asker::connect(&server.url_of("cut", "pw"), 10).await;
    a.take("a", 1).await;
    b.wait("a", 1).await;
    for _ in 0..3 {
        server.cli(&["CLIENT", "KILL", "USER", "cut"]);
        b.hears_of_interruption().await;
        // Nobody else asked for it meanwhile, so it still stands in the queue.
        assert_eq!(b.wait("a", 1).await, 0);
    }
    a.release("a", 1).await;
    b.granted("a", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_everybody_asks_again_and_is_served() {
    for memory in [Restart::Kept, Restart::Empty] {
        let mut server = RedisServer::start();
        let [a, b, c] = askers(&server).await;
        a.take("a", 1).await;
        b.wait("a", 1).await;
        c.wait("a", 1).await;
        server.restart(memory);
        for asker in [&a, &b, &c] {
            asker.hears_of_interruption().await;
        }
        let again = b.ask(wait("a", 1)).await;
        match memory {
            Restart::Kept => assert!(
                matches!(
                    again,
                    Outcome::Refused {
                        queue_position: Some(0),
                        ..
                    }
                ),
                "{again:?}"
            ),
            // The lock is forgotten, and the first to ask has it.
            Restart::Empty => assert!(matches!(again, Outcome::Granted { .. }), "{again:?}"),
        }
        let place = c.wait("a", 1).await;
        match memory {
            Restart::Kept => {
                assert_eq!(place, 1);
                a.release("a", 1).await;
                b.granted("a", 1).await;
            }
            Restart::Empty => {
                assert_eq!(place, 0);
                assert_eq!(a.ask(renew("a", 1)).await, Outcome::Lost(Loss::TakenOver));
            }
        }
        b.release("a", 1).await;
        c.granted("a", 1).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_one_store_are_told_apart() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let [a, b, c] = [1, 2, 3].map(|client| Asker::on(&store, client));
    a.take("a", 1).await;
    assert_eq!(b.wait("a", 1).await, 0);
    assert_eq!(c.wait("a", 1).await, 1);
    assert_eq!(a.wait("a", 2).await, 2);
    a.release("a", 1).await;
    b.granted("a", 1).await;
    b.release("a", 1).await;
    c.granted("a", 1).await;
    c.release("a", 1).await;
    a.granted("a", 2).await;
}

/// Anybody may publish anything, who has the right to.
#[tokio::test(flavor = "multi_thread")]
async fn what_others_say_on_the_channel_is_ignored() {
    let server = RedisServer::start();
    let [a, b, _] = askers(&server).await;
    a.take("a", 1).await;
    b.wait("a", 1).await;
    for text in [
        "",
        "x",
        "1 2 3",
        "1 2 3 4 5",
        "1 0 3000 4",
        "1 2 -3 4",
        "+1 2 3000 4",
        "\u{0}",
    ] {
        let heard = server.cli(&["PUBLISH", &b.channel(), text]);
        assert_eq!(heard, "1");
    }
    b.settle().await;
    assert_eq!(b.event_log.take(), []);
    a.release("a", 1).await;
    b.granted("a", 1).await;
}

/// How many connections are subscribed to something.
fn subscribers(server: &RedisServer) -> usize {
    let clients = server.cli(&["CLIENT", "LIST"]);
    let subscribed = clients.lines().filter(|line| !line.contains(" sub=0 "));
    subscribed.count()
}

async fn askers(server: &RedisServer) -> [Asker; 3] {
    let [mut a, mut b, mut c] = [None, None, None];
    for (client, place) in (1..).zip([&mut a, &mut b, &mut c]) {
        let asker = Asker::connect(&server.url(), client).await;
        asker.settle().await;
        *place = Some(asker);
    }
    [a.unwrap(), b.unwrap(), c.unwrap()]
}
