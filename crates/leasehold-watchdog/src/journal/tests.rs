use super::*;
use crate::fuzzing::tests::client_info;

fn record(label: &str) -> Change {
    let info = ClientInfo {
        label: label.into(),
        ..client_info()
    };
    Change::Client(Box::new(ClientRecord {
        info,
        address_hash: Some(1),
        since: 5,
    }))
}

fn lease(name: &str) -> Lease {
    Lease {
        name: name.into(),
        ttl_ms: 30_000,
        silence_timeout_ms: 9_500,
        keep_until: u64::MAX,
    }
}

fn written(entries: &[(Id, Change)]) -> Journal {
    let journal = Journal::new(1).unwrap();
    for (client, change) in entries {
        journal.write(*client, change);
    }
    journal
}

fn read_back(journal: &Journal) -> BTreeMap<Id, SavedClient> {
    read(journal.finish_rewrite().unwrap().1)
}

#[test]
fn the_next_node_reads_the_state_of_all_clients() {
    let (a, b, c) = ([1; 16], [2; 16], [3; 16]);
    let clients = read_back(&written(&[
        (a, record("a")),
        (a, Change::Process(4)),
        (a, Change::Lease(1, lease("one"))),
        (b, record("b")),
        (a, Change::Lease(2, lease("two"))),
        (b, Change::Lease(2, lease("three"))),
        (a, Change::Unregistered(1)),
        (a, Change::Silent(77)),
        (b, Change::Ended),
        (c, Change::Lease(1, lease("of an unknown client"))),
    ]));
    assert_eq!(clients.len(), 1);
    let saved = &clients[&a];
    assert_eq!(
        (&*saved.record.info.label, &saved.processes[..]),
        ("a", &[4][..])
    );
    assert_eq!(saved.leases.keys().copied().collect::<Vec<_>>(), [2]);
    assert_eq!(saved.silent_since, Some(77));
}

#[test]
fn a_new_client_record_replaces_the_earlier_entries() {
    let id = [1; 16];
    let clients = read_back(&written(&[
        (id, record("a")),
        (id, Change::Process(4)),
        (id, Change::Lease(1, lease("one"))),
        (id, record("b")),
        (id, Change::Process(4)),
    ]));
    assert!(clients[&id].leases.is_empty());
    assert_eq!(clients[&id].processes, [4]);
}

#[test]
fn an_incomplete_entry_at_the_end_is_ignored() {
    let id = [1; 16];
    let whole = encode(&(id, Change::Lease(1, lease("one")))).unwrap();
    for cut in 0..whole.len() {
        let journal = written(&[(id, record("a"))]);
        let (_, file) = journal.finish_rewrite().unwrap();
        File::from(file).write_all(&whole[..cut]).unwrap();
        let clients = read_back(&journal);
        assert!(clients[&id].leases.is_empty());
    }
}

#[test]
fn a_journal_of_mostly_obsolete_entries_needs_a_rewrite() {
    let id = [1; 16];
    let journal = written(&[(id, record("a"))]);
    let _ = journal.finish_rewrite().unwrap();
    assert!(!journal.needs_rewrite());
    for number in 0..30_000 {
        journal.write(id, &Change::Lease(number, lease("one of many locks")));
    }
    assert!(journal.needs_rewrite());
    let before = journal.finish_rewrite().unwrap().0;
    assert!(!journal.needs_rewrite());
    journal.begin_rewrite().unwrap();
    assert_eq!(journal.finish_rewrite().unwrap().0, before + 1);
    assert!(read_back(&journal).is_empty());
}
