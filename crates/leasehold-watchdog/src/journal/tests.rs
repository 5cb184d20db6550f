use super::*;

fn known(label: &str) -> Box<Known> {
    Box::new(Known {
        process_nonce: [7; 16],
        drawn: Some(1),
        store: "redis://db:6379/0".into(),
        namespace: "test".into(),
        tenant: "default".into(),
        host: "host".into(),
        pid: 1,
        program: "program".into(),
        label: label.into(),
        since: 5,
    })
}

fn lease(name: &str) -> Lease {
    Lease {
        name: name.into(),
        ttl_ms: 30_000,
        patience_ms: 9_500,
        keep_until: u64::MAX,
    }
}

fn written(entries: &[Entry]) -> Journal {
    let journal = Journal::new(1).unwrap();
    for entry in entries {
        journal.write(entry);
    }
    journal
}

fn read_back(journal: &Journal) -> BTreeMap<Id, Saved> {
    read(journal.is_whole().unwrap().1)
}

#[test]
fn what_was_written_is_known_to_the_next() {
    let (a, b, c) = ([1; 16], [2; 16], [3; 16]);
    let clients = read_back(&written(&[
        Entry::Client(a, known("a")),
        Entry::Process(a, 4),
        Entry::Lease(a, 1, lease("one")),
        Entry::Client(b, known("b")),
        Entry::Lease(a, 2, lease("two")),
        Entry::Lease(b, 2, lease("three")),
        Entry::Left(a, 1),
        Entry::Silent(a, 77),
        Entry::Over(b),
        Entry::Lease(c, 1, lease("of nobody")),
    ]));
    assert_eq!(clients.len(), 1);
    let saved = &clients[&a];
    assert_eq!((&*saved.known.label, &saved.processes[..]), ("a", &[4][..]));
    assert_eq!(saved.leases.keys().copied().collect::<Vec<_>>(), [2]);
    assert_eq!(saved.silent_since, Some(77));
}

#[test]
fn a_client_that_is_written_anew_has_nothing_from_before() {
    let id = [1; 16];
    let clients = read_back(&written(&[
        Entry::Client(id, known("a")),
        Entry::Process(id, 4),
        Entry::Lease(id, 1, lease("one")),
        Entry::Client(id, known("b")),
        Entry::Process(id, 4),
    ]));
    assert!(clients[&id].leases.is_empty());
    assert_eq!(clients[&id].processes, [4]);
}

#[test]
fn an_entry_that_is_cut_off_is_the_last() {
    let id = [1; 16];
    let whole = encode(&Entry::Lease(id, 1, lease("one"))).unwrap();
    for cut in 0..whole.len() {
        let journal = written(&[Entry::Client(id, known("a"))]);
        let (_, file) = journal.is_whole().unwrap();
        File::from(file).write_all(&whole[..cut]).unwrap();
        let clients = read_back(&journal);
        assert!(clients[&id].leases.is_empty());
    }
}

#[test]
fn it_is_long_when_most_of_it_does_not_count() {
    let id = [1; 16];
    let journal = written(&[Entry::Client(id, known("a"))]);
    let _ = journal.is_whole().unwrap();
    assert!(!journal.is_long());
    for number in 0..30_000 {
        journal.write(&Entry::Lease(id, number, lease("one of many locks")));
    }
    assert!(journal.is_long());
    let before = journal.is_whole().unwrap().0;
    assert!(!journal.is_long());
    journal.begin_anew().unwrap();
    assert_eq!(journal.is_whole().unwrap().0, before + 1);
    assert!(read_back(&journal).is_empty());
}
