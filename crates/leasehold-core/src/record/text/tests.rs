//! Texts of random values, and damaged texts.

use std::num::NonZeroU32;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::fixture;
use crate::id::{ClientId, LeaseId};
use crate::job::{JobSchedule, Period};
use crate::latch::{ArrivalId, LatchCount};
use crate::record::rows::{
    Access, Claim, Condition, Description, End, Holder, Latch, LeaseKind, Leases, Note, Setting,
    Unless, Waiter,
};
use crate::time::{StoreTime, Ttl};
use crate::token::{Token, TokenCount};

fn lease() -> impl Strategy<Value = LeaseId> {
    let client = any::<[u8; 16]>().prop_map(ClientId::from_random);
    (client, any::<u64>()).prop_map(|(client, number)| LeaseId { client, number })
}

fn store_time() -> impl Strategy<Value = StoreTime> {
    any::<u64>().prop_map(StoreTime::from_micros)
}

fn a_token() -> impl Strategy<Value = Token> {
    (1..=Token::MAX.get()).prop_map(|value| Token::new(value).unwrap())
}

fn count() -> impl Strategy<Value = NonZeroU32> {
    (1..=u32::MAX).prop_map(|count| NonZeroU32::new(count).unwrap())
}

fn holder(weight: impl Strategy<Value = u64>) -> impl Strategy<Value = Holder> {
    let requested_at = proptest::option::of(store_time());
    let permits = (weight, a_token(), requested_at, store_time());
    (lease(), any::<bool>(), count(), permits).prop_map(|(lease, is_reserved, count, permits)| {
        let (weight, first, requested_at, end) = permits;
        Holder {
            lease,
            is_reserved,
            count,
            weight,
            number: None,
            first,
            requested_at,
            end: End::At(end),
        }
    })
}

fn mutex() -> impl Strategy<Value = Leases> {
    proptest::option::of(holder(Just(1))).prop_map(|sole| Leases {
        used: u64::from(sole.is_some()),
        earliest: sole.map(|holder| holder.end),
        sole,
        ..Leases::new(LeaseKind::Mutex, 1)
    })
}

fn semaphore() -> impl Strategy<Value = Leases> {
    let setting = (1..=u64::MAX, any::<Duration>(), store_time());
    let setting = setting.prop_map(|(version, keep, until)| Setting {
        version,
        keep,
        until,
    });
    let setting = proptest::option::of(setting);
    (any::<u64>(), any::<u64>(), store_time(), setting).prop_map(|(limit, used, end, setting)| {
        Leases {
            setting,
            used,
            earliest: (used > 0).then_some(End::At(end)),
            ..Leases::new(LeaseKind::Semaphore, limit)
        }
    })
}

fn rw_lock() -> impl Strategy<Value = Leases> {
    let phase = proptest::option::of(a_token());
    (phase, any::<u64>(), store_time()).prop_map(|(phase, used, end)| Leases {
        used,
        earliest: (used > 0).then_some(End::At(end)),
        phase,
        ..Leases::new(LeaseKind::RwLock, Access::LIMIT)
    })
}

fn latch() -> impl Strategy<Value = Latch> {
    let count = (1..=LatchCount::MAX).prop_map(|count| LatchCount::new(count).unwrap());
    (count, any::<u32>(), store_time()).prop_map(|(count, arrived, until)| Latch {
        count,
        arrived: arrived % (count.get() + 1),
        until,
    })
}

fn head() -> impl Strategy<Value = Head> {
    let body = prop_oneof![
        Just(Body::Free),
        mutex().prop_map(Body::Leases),
        semaphore().prop_map(Body::Leases),
        rw_lock().prop_map(Body::Leases),
        latch().prop_map(Body::Latch),
    ];
    let queue = (any::<u32>(), 0..PLACES_END, store_time()).prop_map(|queue| {
        let (len, next_place, until) = queue;
        QueueHead {
            len,
            next_place,
            until,
        }
    });
    let queue = prop_oneof![Just(QueueHead::default()), queue];
    let revoked = proptest::option::of((lease(), store_time()));
    (proptest::option::of(a_token()), body, queue, revoked).prop_map(
        |(counter, body, queue, revoked)| Head {
            counter,
            body,
            queue,
            revoked,
        },
    )
}

fn key() -> impl Strategy<Value = CompletionKey> {
    "[!-~][ -~ü\u{2003}]{0,80}[!-~]".prop_map(|key| CompletionKey::parse(&key).unwrap())
}

fn unless() -> impl Strategy<Value = Unless> {
    let asked = || any::<Duration>();
    let micros = Period::MIN.as_micros() as u64..=Period::MAX.as_micros() as u64;
    let period = micros.prop_map(|micros| Period::checked(Duration::from_micros(micros)).unwrap());
    let schedule = (period, proptest::option::of(store_time()))
        .prop_map(|(period, anchor)| JobSchedule { period, anchor });
    prop_oneof![
        (key(), asked()).prop_map(|(key, asked)| Unless::Key { key, asked }),
        (schedule, asked()).prop_map(|(schedule, asked)| Unless::Period { schedule, asked }),
    ]
}

fn waiter() -> impl Strategy<Value = Waiter> {
    let permits = (count(), count(), any::<bool>());
    let access = prop_oneof![
        Just(Access::Read),
        Just(Access::Upgradable),
        Just(Access::Write)
    ];
    let claim = prop_oneof![
        Just(Claim::Mutex),
        permits.prop_map(|(weight, limit, numbered)| Claim::Permits {
            weight,
            limit,
            numbered,
        }),
        access.prop_map(Claim::Access),
    ];
    let ttl = (1..=Ttl::MAX.as_millis()).prop_map(|millis| Ttl::from_millis(millis).unwrap());
    let condition = (unless(), store_time()).prop_map(|(unless, requested_at)| Condition {
        unless,
        requested_at,
    });
    let request = (claim, ttl, count(), proptest::option::of(condition));
    (lease(), 0..PLACES_END, request).prop_map(|(lease, place, request)| {
        let (claim, ttl, tokens, condition): (_, _, TokenCount, _) = request;
        Waiter {
            lease,
            place,
            claim,
            ttl,
            tokens,
            condition,
        }
    })
}

fn note() -> impl Strategy<Value = Note> {
    (
        lease(),
        a_token(),
        any::<u64>(),
        any::<String>(),
        store_time(),
    )
        .prop_map(|(lease, token, number, text, until)| Note {
            lease,
            token,
            number,
            text: text.into(),
            until,
        })
}

fn slot() -> impl Strategy<Value = Slot> {
    prop_oneof![
        Just(Slot::Value),
        Just(Slot::Period),
        key().prop_map(Slot::Key),
    ]
}

fn row() -> impl Strategy<Value = (Part, Row)> {
    prop_oneof![
        (holder(1..=u64::MAX), proptest::option::of(any::<u32>())).prop_map(|(holder, number)| {
            let holder = Holder { number, ..holder };
            (Part::Holder(holder.lease), Row::Holder(holder))
        }),
        waiter().prop_map(|waiter| (Part::Waiter(waiter.lease), Row::Waiter(waiter))),
        Just((arrival(), Row::Arrival)),
        (slot(), note()).prop_map(|(slot, note)| (Part::Note(slot), Row::Note(note))),
        (any::<String>(), store_time()).prop_map(|(text, until)| {
            let text = text.into();
            (
                Part::Description,
                Row::Description(Description { text, until }),
            )
        }),
    ]
}

fn arrival() -> Part {
    Part::Arrival(ArrivalId::parse("worker 1").unwrap())
}

/// One part of each class.
fn parts() -> [Part; 5] {
    let lease = fixture::lease(1);
    [
        Part::Holder(lease),
        Part::Waiter(lease),
        arrival(),
        Part::Note(Slot::Value),
        Part::Description,
    ]
}

/// A text is damaged, or its value is written as it was read.
fn check(text: &str) {
    if let Ok(head) = Head::from_text(text) {
        assert_eq!(head.to_text(), text);
    }
    for part in parts() {
        if let Ok(row) = Row::from_text(&part, text) {
            assert_eq!(row.to_text(), text);
        }
    }
}

/// Damages each character of a text.
fn check_damaged(text: &str) {
    for (at, c) in text.char_indices() {
        let (start, end) = (&text[..at], &text[at + c.len_utf8()..]);
        check(start);
        check(&format!("{start}{end}"));
        for other in [
            '0', '1', '9', '+', '-', ' ', '%', 'a', 'F', ':', '\n', '\0', 'ü',
        ] {
            check(&format!("{start}{other}{end}"));
            check(&format!("{start}{other}{c}{end}"));
        }
    }
}

/// Words of texts, and numbers and leases in most places.
const WORDS: &str = "(-|free|mutex|semaphore|rwlock|latch|held|reserved|[0-9]{1,17})\
                     ( (-|free|mutex|queue|revoked|held|set|number|permits|numbered|read|key|[0-9]{1,20}|[0-9a-f]{32}:[0-9])){0,12}";

proptest! {
    #[test]
    fn a_head_is_read_as_it_was_written(head in head()) {
        let text = head.to_text();
        prop_assert!(!text.contains(char::is_control));
        prop_assert_eq!(Head::from_text(&text), Ok(head));
    }

    #[test]
    fn a_row_is_read_as_it_was_written((part, row) in row()) {
        let text = row.to_text();
        prop_assert!(!text.contains(char::is_control));
        prop_assert_eq!(Row::from_text(&part, &text), Ok(row));
    }

    #[test]
    fn a_slot_is_found_by_its_id(slot in slot()) {
        prop_assert_eq!(Slot::from_id(&slot.id()), Some(slot.clone()));
    }

    #[test]
    fn any_text_is_read(bytes in any::<Vec<u8>>(), words in WORDS) {
        check(&String::from_utf8_lossy(&bytes));
        check(&words);
        check(&format!("1 {words}"));
    }
}

proptest! {
    // Each case is thousands of texts.
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_damaged_text_is_an_error_or_another_value(head in head(), (_, row) in row()) {
        check_damaged(&head.to_text());
        check_damaged(&row.to_text());
    }
}

#[test]
fn an_uncontended_mutex_is_one_short_text() {
    let text = "1 1763776800000000 mutex 07070707070707070707070707070707:42 held 1 1 \
                1763776800000000 - 1763776830000000";
    let head = Head::from_text(text).unwrap();
    let Body::Leases(leases) = head.body else {
        panic!("{head:?}");
    };
    let (end, sole) = (
        StoreTime::from_micros(1_763_776_830_000_000),
        leases.sole.unwrap(),
    );
    assert_eq!((leases.used, leases.earliest), (1, Some(End::At(end))));
    assert_eq!(
        (sole.lease.number, sole.count.get(), sole.weight),
        (42, 1, 1)
    );
    assert_eq!(Head::default().to_text(), "1 - free");
}

#[test]
fn the_text_of_a_note_is_not_longer_for_its_spaces() {
    let text: std::sync::Arc<str> = "a value of words ".repeat(240).into();
    let note = Note {
        lease: fixture::lease(u64::MAX),
        token: Token::MAX,
        number: u64::MAX,
        text: text.clone(),
        until: StoreTime::from_micros(u64::MAX),
    };
    assert!(Row::Note(note).to_text().len() < text.len() + 160);
}

#[test]
fn an_error_names_the_damaged_word() {
    for (text, word) in [
        ("", "version"),
        ("2 - free", "version"),
        ("1", "counter"),
        ("1 0 free", "counter"),
        ("1 - freed", "kind"),
        ("1 - mutex 42", "lease"),
        ("1 - semaphore 5 3 -", "earliest end"),
        ("1 - semaphore 5 0 7", "earliest end"),
        ("1 - semaphore 5 0 - set 0 7 7", "version of the limit"),
        ("1 - rwlock 0 0 -", "token of the readers"),
        ("1 - rwlock - 1 -", "earliest end"),
        ("1 - rwlock - 0 - set 1 7 7", "last word"),
        ("1 - latch 4 3 0", "count"),
        ("1 - free queue 0 0 0", "queue"),
        ("1 - free queue 1 9007199254740992 0", "place"),
        ("1 - free queue 1 01 0", "place"),
        ("1 - free ", "last word"),
        ("1 - free revoked", "lease"),
    ] {
        assert_eq!(Head::from_text(text), Err(Damaged(word)), "{text:?}");
    }
    for (part, text, word) in [
        (0, "1 lost", "state"),
        (0, "1 held 0", "hold count"),
        (0, "1 held 1 0", "weight"),
        (0, "1 held 1 1 1 - 1 number", "number"),
        (0, "1 held 1 1 1 - 1 named 1", "last word"),
        (1, "1 0 permits 1 0", "number of permits"),
        (1, "1 0 mutex 0", "ttl"),
        (1, "1 0 mutex 100 1 never 0 0", "condition"),
        (1, "1 0 mutex 100 1 key 0 0 a%20b%", "key"),
        (2, "1 1", "last word"),
        (3, "1 07070707070707070707070707070707:1 1 1 1", "text"),
    ] {
        let read = Row::from_text(&parts()[part], text);
        assert_eq!(read, Err(Damaged(word)), "{text:?}");
    }
}
