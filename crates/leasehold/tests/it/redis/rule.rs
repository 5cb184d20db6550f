//! Calls of the script, and its tokens. `differential` compares it with the rule.

use leasehold::__private::store::RedisScript;
use leasehold_core::job::{self, Due};
use leasehold_core::{Completion, JobSchedule, Period, Slots, StoreTime};
use redis::{Script, Value};

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_requests_are_four_calls() {
    let (server, store) = server_and_store().await;
    let before = script_calls(&server);
    let batch = (0..1_000).map(|n| acquire(&format!("lock {n}"), n));
    let replies = store.apply(batch.collect()).await;
    assert_eq!(replies.len(), 1_000);
    assert!(replies.iter().all(is_granted), "{replies:?}");
    assert_eq!(script_calls(&server) - before, 4);
    assert_eq!(server.cli(&["DBSIZE"]), "2000");
    assert!(store.apply(Vec::new()).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_grow_without_the_counter_and_against_the_clock() {
    let server = RedisServer::options().clock_shim().start();
    let store = open(&server.url()).await;
    let mut last = 0;
    for round in 0..12 {
        match round % 3 {
            0 => drop(server.cli(&["DEL", "app:{t:a}:token"])),
            1 => server.step_clock(-3_600_000),
            // The counter is ahead of the clock now. Once it is not, either alone is enough.
            _ => server.step_clock(3_600_000),
        }
        let token = granted(&*store, acquire("a", round)).await;
        assert!(token > last, "round {round}: {token} after {last}");
        last = token;
        applied(&*store, release("a", round)).await;
    }
}

/// A time that is exact in a Lua number, near one of these: periods meet at them.
fn exact(near: &[u64], period: Duration) -> u64 {
    let near = near[fastrand::usize(..near.len())].cast_signed();
    let half = i64::try_from(period.as_micros()).unwrap() / 2;
    let time = near + half * fastrand::i64(-4..=4) + fastrand::i64(-1..=1);
    time.unsigned_abs().min((1 << 53) - 1)
}

/// At each microsecond, with a clock that stands still. The histories of `differential` have one that runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_periodic_job_is_due_as_by_the_rule() {
    let text = RedisScript::Mutex.text();
    let script = Script::new(&text.replace("run('TIME')", "run('MGET', 'seconds', 'micros')"));
    let server = RedisServer::start();
    let mut connection = connection(&server.url()).await;
    let mut counts = [0; 2];
    for _ in 0..4_000 {
        let periods = [1, 60, 24 * 60 * 60, 200 * 24 * 60 * 60].map(Duration::from_secs);
        let period = periods[fastrand::usize(..4)] + Duration::from_micros(fastrand::u64(..2));
        let near = [1_700_000_000_000_000, (1 << 53) - 1];
        let near = &near[fastrand::usize(..2)..][..1];
        let time = || StoreTime::from_micros(exact(near, period));
        let period = Period::checked(period).unwrap();
        let run = Completion {
            slots: fastrand::bool().then(|| Slots {
                anchor: time(),
                chosen: fastrand::bool(),
                period,
            }),
            requested_at: time(),
            started_at: time(),
            finished_at: time(),
            keep: None,
            exit_code: 0,
            host: String::new(),
            program: String::new(),
            path: None,
            label: String::new(),
        };
        let (anchor, now) = (fastrand::bool().then(time), time());
        let asked = time().until(now);
        let requested_at = now.before_span(asked);
        let schedule = JobSchedule { period, anchor };
        let due = job::due(Some(&run), schedule, requested_at, now);

        let (seconds, micros) = (now.as_micros() / 1_000_000, now.as_micros() % 1_000_000);
        let text = run.to_text();
        let pairs = [
            ("seconds", seconds.to_string()),
            ("micros", micros.to_string()),
            ("app:{t:a}:completion", format!("{} 1 1 {text}", lease(9))),
        ];
        let anchor = anchor.map(|anchor| format!(" {}", anchor.as_micros()));
        let anchor = anchor.unwrap_or_default();
        let (asked, period) = (asked.as_micros(), period.as_duration().as_micros());
        let verb = format!("acquire 1 1 unless {asked} :completion {period}{anchor}");
        let reply: Vec<Value> = async {
            let mut set = redis::cmd("MSET");
            for (key, value) in &pairs {
                set.arg(key).arg(value);
            }
            set.exec_async(&mut connection).await?;
            redis::cmd("DEL")
                .arg(&["app:{t:a}", "app:{t:a}:token"])
                .exec_async(&mut connection)
                .await?;
            let mut call = script.key("app:{t:a}");
            call.arg(verb).arg(lease(1).to_string()).arg(1_000);
            call.invoke_async(&mut connection).await
        }
        .await
        .unwrap();
        let is_due = matches!(due, Due::Run(_));
        let expected = if is_due { "granted" } else { "complete" };
        let expected = Value::BulkString(expected.into());
        assert_eq!(reply[1], expected, "{now:?} {asked} {schedule:?} {text}");
        counts[usize::from(is_due)] += 1;
    }
    assert!(counts.iter().all(|count| *count > 400), "{counts:?}");
}

/// Operations have different numbers of values, so the number of all values says nothing about the operations.
#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_is_not_admitted_grants_nothing_beside_notes_and_releases() {
    let script = Script::new(RedisScript::Mutex.text());
    let server = RedisServer::start();
    let mut connection = connection(&server.url()).await;
    let [one, other] = [1, 2].map(|number| lease(number).to_string());
    let text = format!("{one} 1 1 text");
    let note = ["note", &one, "1000", ":value", &text];
    let release = ["release", &one];
    let complete = [&["complete"], &note[1..], &[""]].concat();
    let propose = ["propose", &other, "1000", "9000000000000000"];
    for (ops, is_refused) in [
        (vec![&note[..], &propose, &complete], true),
        (vec![&propose], true),
        (vec![&release, &propose], true),
        (vec![&note, &release], false),
        (vec![&release], false),
    ] {
        let mut call = script.prepare_invoke();
        for nth in 0..ops.len() {
            let record = format!("app:{{t:{nth}}}");
            for suffix in ["", ":token", ":queue"] {
                call.key(format!("{record}{suffix}"));
            }
        }
        call.key("app:master");
        for arg in ops.concat() {
            call.arg(arg);
        }
        let reply: Value = call.invoke_async(&mut connection).await.unwrap();
        let refused = ["HMGET", "NOTADMITTED"].map(|word| Value::BulkString(word.into()));
        assert_eq!(
            reply == Value::Array(refused.into()),
            is_refused,
            "{ops:?} {reply:?}"
        );
        assert_eq!(server.cli(&["DBSIZE"]), "0");
    }
}
