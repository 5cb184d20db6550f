//! `ls --watch` for programs and at a terminal.

use std::io::{BufRead, Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use leasehold::{Client, Guard};
use leasehold_testkit::eventually;

use crate::schema::checked;
use crate::tools::{
    Fixture, Running, SOON, assert_like, at_terminal, finish, through, within_deadline,
};

/// Locks with long holders. They are held while the guards live.
async fn many_locks(url: &str, number: usize) -> Vec<Guard> {
    let client = Client::builder().label("a label ".repeat(9)).ttl(SOON * 30);
    let client = client.connect(url).await.unwrap();
    let mut guards = Vec::new();
    for number in 0..number {
        let mutex = client.mutex(format!("job/{number}")).unwrap();
        guards.push(mutex.try_lock().await.unwrap().unwrap());
    }
    guards
}

/// Starts a command at a terminal of a size, which writes what it shows to stdout, and whose keys are stdin.
fn start_at_terminal(command: &Command, size: &str) -> Child {
    let resize = format!("stty {size}; exec \"$@\"");
    let command = through(&["sh", "-c", &resize, "sh"], command);
    at_terminal(&command)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn each_line_is_a_listing_until_the_reader_has_gone() {
    let fixture = Fixture::new();
    let mut watch = Running::start(fixture.leasehold(["ls", "--watch", "100ms", "--json"]));
    let pid = watch.process.id();
    for held in [1, 0] {
        let run = (held == 1).then(|| fixture.hold(&["job"]));
        let mut lines = watch.lines;
        watch.lines = within_deadline(pid, move || {
            let mut line = String::new();
            while {
                line.clear();
                lines.read_line(&mut line).unwrap()
            } > 0
            {
                if checked("ls", &line)["locks"].as_array().unwrap().len() == held {
                    return lines;
                }
            }
            panic!("the watch has ended");
        });
        if let Some(run) = run {
            run.terminate();
        }
    }
    watch.ends_with(0);
}

/// Two listings with the same locks differ by their times.
#[test]
fn each_table_in_a_pipe_has_its_time() {
    let fixture = Fixture::new();
    let run = fixture.hold(&["job"]);
    let mut watch = Running::start(fixture.leasehold(["ls", "--watch", "100ms"]));
    let mut lines = watch.lines;
    let (lines, heads) = within_deadline(watch.process.id(), move || {
        let mut heads = Vec::new();
        while heads.len() < 2 {
            let mut line = String::new();
            assert!(lines.read_line(&mut line).unwrap() > 0);
            heads.extend(
                line.strip_suffix("Z  1 lock, 0 waiters\n")
                    .map(str::to_owned),
            );
        }
        (lines, heads)
    });
    watch.lines = lines;
    assert!(heads[0] < heads[1], "{heads:?}");
    assert_eq!(heads[0].len(), "2026-11-22T16:25:35.368".len());
    watch.ends_with(0);
    run.terminate();
}

/// A screen of 8 lines and 80 columns. Ctrl-C restores what was there before.
#[test]
fn a_terminal_shows_as_many_locks_as_it_has_lines() {
    let fixture = Fixture::new();
    let file = fixture.path("locks.db");
    let url = format!("sqlite:{}", file.display());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let guards = runtime.block_on(many_locks(&url, 10));
    let watch = fixture.leasehold(["--store", &url, "ls", "--watch", "100ms"]);
    let mut process = start_at_terminal(&watch, "rows 8 cols 80");
    let mut output = process.stdout.take().unwrap();
    let screen = Arc::new(Mutex::new(String::new()));
    let written = Arc::clone(&screen);
    let reader = thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(read @ 1..) = output.read(&mut bytes) {
            let text = String::from_utf8_lossy(&bytes[..read]);
            written.lock().unwrap().push_str(&text);
        }
    });
    let count = |part: &str| screen.lock().unwrap().matches(part).count();
    eventually(SOON, || count("\x1b[H") > 2);
    process.stdin.as_mut().unwrap().write_all(b"\x03").unwrap();
    let status = finish(process).status;
    reader.join().unwrap();
    assert_eq!(status.code(), Some(130));
    let screen = screen.lock().unwrap();
    let frame = screen.split("\x1b[H").nth(1).unwrap();
    let lines: Vec<_> = frame
        .split("\x1b[K")
        .map(|line| line.trim_start_matches("\x1b[?7l").trim())
        .collect();
    let [summary, "", head, first, .., last, "\x1b[J"] = &*lines else {
        panic!("{lines:?}");
    };
    assert!(summary.contains("10 locks, 0 waiters"), "{summary}");
    assert_like(head, "NAME[..]");
    assert_like(first, "job/0 [..]");
    assert_eq!((lines.len(), *last), (9, "and 6 more"));
    let fits = |line: &&str| line.chars().count() <= 80;
    assert!(lines.iter().all(fits), "{lines:?}");
    assert!(first.contains('…'), "{first}");
    assert_like(&screen, "\x1b[?1049h[..]\x1b[?1049l");
    drop((guards, runtime));
}
