use super::*;
use crate::fixture::{at, ttl};

type Session = NodeSession<&'static str>;

fn terms() -> Terms {
    let ttl = ttl(3_000);
    let span = ttl.as_duration();
    Terms::new(ttl, span / 3, span / 30, Terms::NO_END)
}

fn connected(mut session: Session) -> Session {
    assert_eq!(session.poll(at(0)), SessionAction::Connect);
    assert_eq!(session.poll(at(0)), SessionAction::Wait);
    assert!(!session.is_connected());
    session.connected(0, at(0));
    assert!(session.is_connected());
    session
}

/// The numbers that are registered and unregistered now.
fn changes(session: &mut Session, now: Instant) -> (Vec<u64>, Vec<u64>) {
    match session.poll(now) {
        SessionAction::Changes(changes) => {
            let register = changes.register.into_iter();
            let numbers = register.map(|(number, ..)| number);
            (numbers.collect(), changes.unregister)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn changes_are_collected_for_a_moment_and_sent_at_once_on_a_new_connection() {
    let mut session = Session::lingering();
    assert!(!session.register(1, terms(), "a"));
    let mut session = connected(session);
    assert_eq!(changes(&mut session, at(0)), (vec![1], vec![]));
    assert_eq!(session.poll(at(0)), SessionAction::Wait);
    assert!(session.register(2, terms(), "b"));
    assert!(session.register(3, terms(), "c"));
    assert_eq!(session.poll(at(1)), SessionAction::Pause(LINGER));
    assert!(session.unregister(3));
    session.end_pause();
    assert_eq!(changes(&mut session, at(11)), (vec![2], vec![]));
    assert_eq!(session.poll(at(11)), SessionAction::Wait);
    session.unregister(2);
    assert_eq!(session.poll(at(12)), SessionAction::Pause(LINGER));
    // Tasks wait for them, or the session ends.
    session.close();
    assert_eq!(changes(&mut session, at(13)), (vec![], vec![2]));
    let mut session = connected(Session::default());
    session.register(1, terms(), "a");
    assert_eq!(changes(&mut session, at(1)), (vec![1], vec![]));
}

#[test]
fn a_node_receives_a_batch_after_all_processes_and_heartbeats_without_changes() {
    let mut session = connected(Session::default());
    session.register(1, terms(), "a");
    for _ in 0..=PROCESSES_IN_FLIGHT {
        session.add_process();
    }
    for process in 0..PROCESSES_IN_FLIGHT {
        assert_eq!(session.poll(at(0)), SessionAction::Process(process));
    }
    assert_eq!(session.poll(at(0)), SessionAction::Wait);
    session.joined();
    let last = SessionAction::Process(PROCESSES_IN_FLIGHT);
    assert_eq!(session.poll(at(0)), last);
    assert_eq!(changes(&mut session, at(0)), (vec![1], vec![]));
    assert_eq!(session.acknowledged(0, &[]), ["a"]);
    assert!(session.is_watched(1));
    let heartbeat = session.next_timeout().unwrap();
    assert_eq!(heartbeat, at(0).after(terms().heartbeat()));
    assert_eq!(session.poll(heartbeat.before(LINGER)), SessionAction::Wait);
    assert_eq!(session.poll(heartbeat), SessionAction::Heartbeat);
    assert_eq!(session.poll(heartbeat), SessionAction::Wait);
    // The next connection knows the processes.
    assert_eq!(session.disconnected(false, at(9_000), 0.0), ["a"]);
    session.connected(PROCESSES_IN_FLIGHT, at(9_100));
    assert_eq!(session.poll(at(9_100)), last);
}

#[test]
fn attempts_to_connect_are_further_and_further_apart() {
    let mut session = Session::default();
    let mut now = at(0);
    let mut intervals = Vec::new();
    for _ in 0..8 {
        assert_eq!(session.poll(now), SessionAction::Connect);
        session.disconnected(true, now, 1.0);
        assert!(session.fails_permanently());
        let next = session.next_timeout().unwrap();
        intervals.push(next.since(now));
        assert_eq!(
            session.poll(next.before(RETRY_MIN / 2)),
            SessionAction::Wait
        );
        now = next;
    }
    assert_eq!((intervals[0], intervals[7]), (RETRY_MIN, RETRY_MAX));
    assert!(intervals.is_sorted());
    assert_eq!(session.poll(now), SessionAction::Connect);
    session.connected(0, now);
    assert!(!session.fails_permanently());
    session.disconnected(false, now, 0.0);
    assert_eq!(session.next_timeout(), Some(now.after(RETRY_MIN / 2)));
}

#[test]
fn a_session_that_is_closed_disconnects_and_ends() {
    let mut session = connected(Session::lingering());
    session.close();
    assert!(!session.has_ended());
    assert_eq!(session.poll(at(1)), SessionAction::Disconnect);
    assert_eq!(session.poll(at(1)), SessionAction::Wait);
    session.disconnected(false, at(2), 0.5);
    assert!(session.has_ended());
    assert_eq!(session.poll(at(3)), SessionAction::End);
    // Without a connection, and during an attempt.
    let mut session = Session::default();
    session.close();
    assert_eq!(session.poll(at(0)), SessionAction::End);
    let mut session = Session::default();
    assert_eq!(session.poll(at(0)), SessionAction::Connect);
    session.close();
    assert_eq!(session.poll(at(0)), SessionAction::Wait);
    session.disconnected(false, at(1), 0.5);
    assert_eq!(session.poll(at(1)), SessionAction::End);
}
