//! Slots, the text form, and when a job is run again.

use proptest::prelude::*;

use super::*;
use crate::annotation::ANNOTATION_BYTES_MAX;

const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;

/// A time in seconds of a store's clock, long after its epoch.
fn at(seconds: u64) -> StoreTime {
    StoreTime::from_micros((1_000 * DAY + seconds) * 1_000_000)
}

fn period(seconds: u64) -> Period {
    Period::checked(Duration::from_secs(seconds)).unwrap()
}

fn every(seconds: u64) -> JobSchedule {
    let anchor = None;
    JobSchedule {
        period: period(seconds),
        anchor,
    }
}

/// A run of ten minutes for a request that did not wait.
fn run(requested: u64, schedule: JobSchedule, anchor: u64) -> Completion {
    Completion {
        slots: Some(Slots {
            anchor: at(anchor),
            chosen: schedule.anchor.is_some(),
            period: schedule.period,
        }),
        requested_at: at(requested),
        started_at: at(requested),
        finished_at: at(requested + 600),
        keep: None,
        exit_code: 0,
        host: "ci-7".into(),
        program: "backup.sh".into(),
        path: None,
        label: String::new(),
    }
}

/// A run in the slots of the first run.
fn runs(anchor: u64, schedule: JobSchedule) -> Due {
    Due::Run(Slots {
        anchor: at(anchor),
        chosen: schedule.anchor.is_some(),
        period: schedule.period,
    })
}

fn is_due(stored: &Completion, schedule: JobSchedule, requested: u64) -> Due {
    due(
        Some(stored),
        schedule,
        at(requested),
        at(requested).max(stored.finished_at),
    )
}

#[test]
fn a_period_has_limits() {
    let checked = |span| Period::checked(span).map(Period::as_duration);
    let step = Duration::from_micros(1);
    for span in [Period::MIN, Period::MAX] {
        assert_eq!(checked(span), Some(span));
    }
    assert_eq!(checked(Period::MIN - step), None);
    assert_eq!(checked(Period::MAX + step), None);
    assert_eq!(checked(Duration::MAX), None);
    let month = Duration::from_secs(30 * DAY);
    assert_eq!(period(DAY).keep(month), month);
    assert_eq!(period(DAY).keep(KEEP_MIN), Duration::from_secs(3 * DAY));
    assert!(period(365 * DAY).keep(KEEP_MAX) == KEEP_MAX);
}

#[test]
fn the_first_run_is_the_anchor_and_machines_on_both_sides_of_midnight_have_one_slot() {
    let daily = every(DAY);
    let first = due(None, daily, at(DAY), at(DAY));
    assert_eq!(first, runs(DAY, daily));
    let stored = run(DAY, daily, DAY);
    for (requested, completed) in [
        (DAY - 1, true),
        (DAY + 1, true),
        // Up to half a period later, and earlier.
        (DAY + 12 * HOUR - 1, true),
        (DAY + 12 * HOUR, false),
        (DAY - 12 * HOUR, true),
        (2 * DAY, false),
    ] {
        let expected = match completed {
            true => Due::Completed,
            false => runs(DAY, daily),
        };
        assert_eq!(is_due(&stored, daily, requested), expected, "{requested}");
    }
}

#[test]
fn a_late_run_belongs_to_the_slot_it_is_late_for() {
    let daily = every(DAY);
    // Requested for the second day, begun by a waiter 23 hours later.
    let late = Completion {
        started_at: at(2 * DAY + 23 * HOUR),
        finished_at: at(2 * DAY + 23 * HOUR + 60),
        ..run(2 * DAY, daily, DAY)
    };
    assert_eq!(is_due(&late, daily, 3 * DAY), runs(DAY, daily));
    // Begun after the time of the next slot, it is also enough for that one.
    let later = Completion {
        started_at: at(3 * DAY + 1),
        ..late
    };
    assert_eq!(is_due(&later, daily, 3 * DAY), Due::Completed);
    assert_eq!(is_due(&later, daily, 4 * DAY), runs(DAY, daily));
}

/// A run that takes longer than half a period ends in the slot after its own.
#[test]
fn a_request_that_has_waited_for_a_long_run_is_completed_by_it() {
    let daily = every(DAY);
    let long = Completion {
        finished_at: at(DAY + 20 * HOUR),
        ..run(DAY, daily, DAY)
    };
    assert_eq!(is_due(&long, daily, DAY + 60), Due::Completed);
    let minutely = every(60);
    let longer = Completion {
        finished_at: at(DAY + HOUR),
        ..run(DAY, minutely, DAY)
    };
    assert_eq!(is_due(&longer, minutely, DAY + 1), Due::Completed);
    // 59 requests have waited. One run is enough for them.
    assert_eq!(is_due(&longer, minutely, DAY + 60), runs(DAY, minutely));
    let next = Completion {
        started_at: at(DAY + HOUR + 1),
        finished_at: at(DAY + HOUR + 2),
        ..run(DAY + 60, minutely, DAY)
    };
    for minute in 1..=60 {
        assert_eq!(
            is_due(&next, minutely, DAY + minute * 60),
            Due::Completed,
            "{minute}"
        );
    }
}

#[test]
fn an_anchor_is_forgotten_after_two_periods_and_a_chosen_one_stays() {
    let daily = every(DAY);
    let stored = run(DAY, daily, 0);
    let end = DAY + 600;
    assert_eq!(is_due(&stored, daily, end + 2 * DAY), runs(0, daily));
    let later = end + 2 * DAY + 1;
    assert_eq!(is_due(&stored, daily, later), runs(later, daily));
    let chosen = JobSchedule {
        anchor: Some(at(6 * HOUR)),
        ..daily
    };
    assert_eq!(is_due(&stored, chosen, later), runs(6 * HOUR, chosen));
}

#[test]
fn with_another_period_the_run_counts_by_its_times() {
    let stored = run(DAY, every(DAY), DAY);
    let hourly = every(HOUR);
    assert_eq!(is_due(&stored, hourly, DAY + HOUR / 2 - 1), Due::Completed);
    assert_eq!(is_due(&stored, hourly, DAY + HOUR), runs(DAY, hourly));
    let weekly = every(7 * DAY);
    assert_eq!(is_due(&stored, weekly, 2 * DAY), Due::Completed);
}

#[test]
fn a_completion_of_the_distant_future_is_not_believed() {
    let hourly = every(HOUR);
    let stored = run(DAY, hourly, DAY);
    let ask = |now| due(Some(&stored), hourly, at(now), at(now));
    // A clock that was set back a little must not run the job again.
    assert_eq!(ask(DAY - 2 * HOUR), Due::Completed);
    let now = DAY - 2 * HOUR - 1;
    assert_eq!(ask(now), runs(now, hourly));
}

#[test]
fn the_text_form_is_read_by_people_and_refused_if_it_is_another() {
    let stored = Completion {
        label: "50 %\n".into(),
        ..run(DAY, every(DAY), DAY)
    };
    let text = stored.to_text();
    assert_eq!(
        text,
        "1 requested=86486400.000000 started=86486400.000000 finished=86487000.000000 exit=0 period=86400.000000 \
         anchor=86486400.000000 host=ci-7 program=backup.sh label=50%20%25%0A"
    );
    assert_eq!(Completion::parse(&text), Ok(stored.clone()));
    // A later version may add fields.
    assert_eq!(
        Completion::parse(&format!("{text} attempts=3")),
        Ok(stored.clone())
    );
    let chosen = text.replace(" anchor=", " chosen-anchor=");
    let both = format!("{text} chosen-anchor=0.000000");
    assert_eq!(
        Completion::parse(&both),
        Err(CompletionError::Field("anchor"))
    );
    let read = Completion::parse(&chosen).unwrap();
    assert!(read.slots.unwrap().chosen && read.to_text() == chosen);
    let keyed = Completion {
        slots: None,
        keep: Some(Duration::from_secs(DAY)),
        path: Some("/opt/backup tool.sh".into()),
        ..stored
    };
    let text_of_key = keyed.to_text();
    let expected =
        " exit=0 keep=86400.000000 host=ci-7 program=backup.sh path=/opt/backup%20tool.sh label=";
    assert!(text_of_key.contains(expected), "{text_of_key}");
    let long = Completion {
        path: Some("p".repeat(PATH_BYTES_MAX + 1)),
        ..keyed.clone()
    };
    assert_eq!(Completion::parse(&long.to_text()).unwrap().path, None);
    assert_eq!(Completion::parse(&keyed.to_text()), Ok(keyed));
    for (from, to, error) in [
        ("1 req", "2 req", CompletionError::Version),
        (" exit=0", "", CompletionError::Field("exit")),
        (" exit=0", " exit=00", CompletionError::Field("exit")),
        (" exit=0", " exit=0 exit=0", CompletionError::Field("exit")),
        (" exit=0", " exit", CompletionError::Malformed),
        (" exit=0", "  exit=0", CompletionError::Malformed),
        (
            "period=86400.",
            "period=0.",
            CompletionError::Field("period"),
        ),
        (" period=86400.000000", "", CompletionError::Field("period")),
        ("anchor=8", "anchor=-8", CompletionError::Field("anchor")),
        (
            ".000000 started",
            ".0 started",
            CompletionError::Field("requested"),
        ),
        ("=50%20", "=50%2", CompletionError::Field("label")),
        ("%0A", "%0a", CompletionError::Field("label")),
        ("%0A", "%FF", CompletionError::Field("label")),
    ] {
        let other = text.replacen(from, to, 1);
        assert_ne!(other, text, "{from}");
        assert_eq!(Completion::parse(&other), Err(error), "{other}");
    }
    let long = format!("{text} more={}", "x".repeat(ANNOTATION_BYTES_MAX));
    assert_eq!(Completion::parse(&long), Err(CompletionError::TooLong));
    assert_eq!(Completion::parse(""), Err(CompletionError::Version));
}

/// Any time that a store may report.
fn time() -> impl Strategy<Value = StoreTime> {
    let micros = prop_oneof![
        any::<u64>(),
        0..4 * DAY * 1_000_000,
        Just(0),
        Just(u64::MAX)
    ];
    micros.prop_map(StoreTime::from_micros)
}

fn any_period() -> impl Strategy<Value = Period> {
    let micros = 1_000_000..=365 * DAY * 1_000_000;
    let short = 1_000_000..=3_000_000_u64;
    prop_oneof![micros, short].prop_map(Period)
}

fn any_run() -> impl Strategy<Value = Completion> {
    let slots = proptest::option::of((time(), any::<bool>(), any_period()).prop_map(
        |(anchor, chosen, period)| Slots {
            anchor,
            chosen,
            period,
        },
    ));
    let texts = (".{0,700}", ".{0,700}", ".{0,700}");
    let keep = proptest::option::of(any::<u64>().prop_map(Duration::from_micros));
    let path = proptest::option::of("[/a ü]{0,260}");
    let texts = (texts, keep, path);
    (slots, time(), time(), time(), any::<u8>(), texts).prop_map(
        |(slots, requested_at, started_at, finished_at, exit_code, (texts, keep, path))| {
            let (host, program, label) = texts;
            Completion {
                slots,
                requested_at,
                started_at,
                finished_at,
                keep,
                exit_code,
                host,
                program,
                path,
                label,
            }
        },
    )
}

proptest! {
    #[test]
    fn each_time_has_one_slot_and_is_only_a_little_before_its_time(
        anchor in time(), chosen in any::<bool>(), period in any_period(), time in time()
    ) {
        let slots = Slots { anchor, chosen, period };
        let slot = slots.slot(time);
        let of = |slot: i64| i128::from(anchor.as_micros()) + i128::from(slot) * i128::from(period.0);
        let late = i128::from(time.as_micros()) - of(slot);
        let period = i128::from(period.0);
        // Without a chosen anchor it is the nearest slot, and the later of two that are equally near.
        prop_assert!(2 * late >= -period && late < period);
        prop_assert!(chosen || 2 * late < period);
        let early_max = 195 * 60 * 1_000_000;
        prop_assert!(!chosen || late >= -early_max && (late < period - early_max || 2 * late < period));
        let begun = slots.last_begun(time);
        prop_assert!(of(begun) <= i128::from(time.as_micros()));
        prop_assert!(of(begun + 1) > i128::from(time.as_micros()));
        prop_assert!(begun <= slot && slot <= begun + 1);
        if let Some(time) = slots.time(slot) {
            prop_assert_eq!(slots.slot(time), slot);
            prop_assert_eq!(slots.last_begun(time), slot);
        }
        if let Some(begin) = slots.start_of(slot) {
            prop_assert!(begin <= time && slots.slot(begin) == slot);
        }
        if let Some(end) = slots.start_of(slot + 1) {
            prop_assert!(end > time && slots.slot(end) == slot + 1);
        }
    }

    #[test]
    fn a_text_is_short_and_read_back(run in any_run()) {
        let text = run.to_text();
        prop_assert!(text.len() <= ANNOTATION_BYTES_MAX, "{}", text.len());
        prop_assert!(!text.contains(char::is_control));
        let read = Completion::parse(&text);
        prop_assert!(read.is_ok(), "{read:?}");
        let read = read.unwrap();
        prop_assert_eq!(read.to_text(), text);
        prop_assert!(run.label.starts_with(&read.label));
        let (label, host) = (read.label.clone(), read.host.clone());
        let (program, path) = (read.program.clone(), read.path.clone());
        prop_assert!(path.is_none() || path == run.path);
        prop_assert_eq!(read, Completion { label, host, program, path, ..run });
    }

    #[test]
    fn a_text_of_any_kind_is_refused_without_a_panic(text in ".{0,200}", start in "(1 )?") {
        let _ = Completion::parse(&format!("{start}{text}"));
    }

    /// Whatever the settings are. The run counts by its times in the slots that the user has chosen, else in those of
    /// its record, and for no longer than that is known.
    #[test]
    fn a_run_completes_its_slot_and_no_later_one(
        stored in any_run(), chosen in proptest::option::of(time()), period in any_period(), requested in time()
    ) {
        let schedule = JobSchedule { period, anchor: chosen };
        let now = requested.max(stored.finished_at).max(stored.started_at);
        let is_known = requested <= stored.finished_at.after_span(period.as_duration() * 2);
        let of_record = stored.slots.filter(|_| is_known);
        let of_record = of_record.map(|slots| (slots.anchor, slots.chosen));
        let of_user = chosen.map(|anchor| (anchor, true));
        let (anchor, chosen) = of_user.or(of_record).unwrap_or((requested, false));
        let slots = Slots { anchor, chosen, period };
        let expected = match is_known && slots.slot_of(&stored) >= slots.slot(requested) {
            true => Due::Completed,
            false => Due::Run(slots),
        };
        prop_assert_eq!(due(Some(&stored), schedule, requested, now), expected);
    }
}
