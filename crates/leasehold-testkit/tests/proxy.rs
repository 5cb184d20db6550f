//! The proxy does what the tests of faults build on.

// In a test a panic is the answer, in its helpers too.
#![allow(clippy::unwrap_used)]

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use leasehold_testkit::{Proxy, RedisServer, Then, Way, eventually};

const SOON: Duration = Duration::from_secs(10);

/// Long enough to see that nothing comes.
const A_MOMENT: Duration = Duration::from_millis(50);

/// A connection that writes and reads by hand.
struct Line(TcpStream);

impl Line {
    fn to(proxy: &Proxy) -> Self {
        let address = proxy.url();
        let address = address.strip_prefix("redis://").unwrap();
        let stream = TcpStream::connect(address.strip_suffix("/0").unwrap()).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        Self(stream)
    }

    fn ask(&mut self, words: &str) {
        let words: Vec<_> = words.split(' ').collect();
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.0.write_all(request.as_bytes()).unwrap();
    }

    #[track_caller]
    fn hears(&mut self, answer: &str) {
        let mut bytes = vec![0; answer.len()];
        self.0.read_exact(&mut bytes).unwrap();
        assert_eq!(String::from_utf8(bytes).unwrap(), answer);
    }

    #[track_caller]
    fn is_answered(&mut self, words: &str, answer: &str) {
        self.ask(words);
        self.hears(answer);
    }

    /// Hears something, and at last this.
    fn hears_the_end(&mut self, end: &str) {
        let mut heard = Vec::new();
        while !heard.ends_with(end.as_bytes()) {
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap();
            heard.extend(byte);
        }
    }

    #[track_caller]
    fn hears_nothing(&mut self) {
        self.0.set_read_timeout(Some(A_MOMENT)).unwrap();
        let heard = self.0.read(&mut [0]);
        assert_eq!(heard.unwrap_err().kind(), ErrorKind::WouldBlock);
        self.0.set_read_timeout(Some(SOON)).unwrap();
    }

    #[track_caller]
    fn is_reset(&mut self) {
        let heard = self.0.read(&mut [0]);
        assert_eq!(heard.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
}

fn scene() -> (RedisServer, Proxy) {
    let server = RedisServer::start();
    let proxy = Proxy::before(&server);
    (server, proxy)
}

/// How many connections the server has beside the one that asks.
fn connections(server: &RedisServer) -> usize {
    server.cli(&["CLIENT", "LIST"]).lines().count() - 1
}

#[test]
fn everything_passes_and_takes_as_long_as_it_is_told_to() {
    let (_server, proxy) = scene();
    let mut line = Line::to(&proxy);
    line.is_answered("PING", "+PONG\r\n");
    let delay = Duration::from_millis(40);
    proxy.delay(Way::There, delay..=delay * 2);
    proxy.delay(Way::Back, delay..=delay);
    let begun = Instant::now();
    // In their order, however long each takes.
    for n in 1..=20 {
        line.ask(&format!("INCRBY a {n}"));
    }
    let mut sum = 0;
    for n in 1..=20 {
        sum += n;
        line.hears(&format!(":{sum}\r\n"));
    }
    assert!(begun.elapsed() >= delay * 2, "{:?}", begun.elapsed());
    proxy.delay(Way::Both, Duration::ZERO..=Duration::ZERO);
    line.is_answered("PING", "+PONG\r\n");
}

#[test]
fn what_is_held_comes_later() {
    let (server, proxy) = scene();
    let mut line = Line::to(&proxy);
    line.is_answered("SET a 1", "+OK\r\n");
    proxy.hold(Way::Back);
    line.ask("SET a 2");
    eventually(SOON, || server.cli(&["GET", "a"]) == "2");
    line.hears_nothing();
    proxy.go_on();
    line.hears("+OK\r\n");
    proxy.hold(Way::There);
    line.ask("SET a 3");
    line.hears_nothing();
    assert_eq!(server.cli(&["GET", "a"]), "2");
    // A connection that is made meanwhile stands, as one to a stopped server.
    let mut other = Line::to(&proxy);
    other.ask("PING");
    other.hears_nothing();
    // Also from those who have gone.
    drop(line);
    proxy.go_on();
    eventually(SOON, || server.cli(&["GET", "a"]) == "3");
    other.hears("+PONG\r\n");
}

#[test]
fn what_is_swallowed_never_comes_and_nobody_is_told() {
    let (server, proxy) = scene();
    let mut line = Line::to(&proxy);
    line.is_answered("SET a 1", "+OK\r\n");
    let mut idle = Line::to(&proxy);
    idle.is_answered("PING", "+PONG\r\n");
    proxy.swallow(Way::Both);
    line.ask("SET a 2");
    line.hears_nothing();
    proxy.go_on();
    line.ask("SET a 3");
    line.hears_nothing();
    assert_eq!(server.cli(&["GET", "a"]), "1");
    // Whoever said nothing meanwhile has noticed nothing.
    idle.is_answered("PING", "+PONG\r\n");
    // The server still believes in a client that has gone.
    drop(line);
    drop(idle);
    eventually(SOON, || connections(&server) == 1);
    std::thread::sleep(A_MOMENT);
    assert_eq!(connections(&server), 1);
    proxy.cut();
    eventually(SOON, || connections(&server) == 0);
    assert_eq!(proxy.tally().open, 0);
}

#[test]
fn one_way_may_be_swallowed_alone() {
    let (server, proxy) = scene();
    let mut line = Line::to(&proxy);
    line.is_answered("PING", "+PONG\r\n");
    proxy.swallow(Way::Back);
    line.ask("SET a 1");
    eventually(SOON, || server.cli(&["GET", "a"]) == "1");
    line.hears_nothing();
}

#[test]
fn connections_are_reset_and_refused() {
    let (mut server, proxy) = scene();
    let mut line = Line::to(&proxy);
    line.is_answered("PING", "+PONG\r\n");
    proxy.refuse();
    line.is_answered("PING", "+PONG\r\n");
    Line::to(&proxy).is_reset();
    proxy.cut();
    line.is_reset();
    proxy.go_on();
    Line::to(&proxy).is_answered("PING", "+PONG\r\n");
    assert_eq!(proxy.tally().connections, 3);
    // Nobody is behind it.
    server.kill9();
    Line::to(&proxy).is_reset();
}

#[test]
fn a_connection_is_reset_in_the_middle_of_a_request() {
    let (server, proxy) = scene();
    let mut line = Line::to(&proxy);
    let mut other = Line::to(&proxy);
    other.is_answered("PING", "+PONG\r\n");
    // All of the first, and all but the end of the second.
    let length = "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n".len() as u64;
    proxy.cut_after(Way::There, 2 * length - 1);
    line.ask("SET a 1");
    line.hears("+OK\r\n");
    line.ask("SET a 2");
    line.is_reset();
    other.is_reset();
    assert_eq!(server.cli(&["GET", "a"]), "1");
    Line::to(&proxy).is_answered("SET a 3", "+OK\r\n");
}

#[test]
fn a_request_runs_and_its_reply_is_lost() {
    let (server, proxy) = scene();
    for then in [Then::Silent, Then::Cut] {
        server.cli(&["SET", "a", "0"]);
        let lost = proxy.tally().replies_lost;
        let mut line = Line::to(&proxy);
        proxy.lose_replies("b", 1, then);
        line.is_answered("INCR a", ":1\r\n");
        line.ask("ECHO b");
        eventually(SOON, || proxy.tally().replies_lost == lost + 1);
        match then {
            Then::Silent => {
                // It still hears us.
                line.ask("INCR a");
                eventually(SOON, || server.cli(&["GET", "a"]) == "2");
                line.hears_nothing();
            }
            Then::Cut => line.is_reset(),
        }
        Line::to(&proxy).is_answered("ECHO b", "$1\r\nb\r\n");
    }
}

/// A message between the replies is none.
#[test]
fn the_right_reply_is_lost() {
    let (server, proxy) = scene();
    let mut line = Line::to(&proxy);
    line.ask("HELLO 3");
    line.ask("SUBSCRIBE c");
    line.hears_the_end(">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n");
    line.is_answered("ECHO a", "$1\r\na\r\n");
    proxy.lose_replies("ECHO", 1, Then::Silent);
    server.cli(&["PUBLISH", "c", "x"]);
    line.hears(">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n");
    line.ask("ECHO b");
    eventually(SOON, || proxy.tally().replies_lost == 1);
    line.hears_nothing();
}

#[test]
fn a_request_is_held_back_until_it_is_late() {
    let (server, proxy) = scene();
    let mut line = Line::to(&proxy);
    proxy.hold_requests("late", 1);
    line.is_answered("SET a early", "+OK\r\n");
    line.ask("SET a late");
    line.ask("SET b behind");
    eventually(SOON, || proxy.tally().requests_held == 1);
    drop(line);
    Line::to(&proxy).is_answered("SET a late", "+OK\r\n");
    server.cli(&["SET", "a", "new"]);
    proxy.deliver();
    eventually(SOON, || server.cli(&["GET", "b"]) == "behind");
    assert_eq!(server.cli(&["GET", "a"]), "late");
    eventually(SOON, || connections(&server) == 0);
}

#[test]
fn requests_are_counted_by_a_word() {
    let (_server, proxy) = scene();
    let mut line = Line::to(&proxy);
    line.is_answered("ECHO counted", "$7\r\ncounted\r\n");
    proxy.count("counted");
    for _ in 0..3 {
        line.is_answered("ECHO counted", "$7\r\ncounted\r\n");
        line.is_answered("ECHO other", "$5\r\nother\r\n");
    }
    Line::to(&proxy).is_answered("SET a counted", "+OK\r\n");
    assert_eq!(proxy.counted("counted"), 4);
    assert_eq!(proxy.counted("other"), 0);
}

#[test]
fn another_server_takes_over_the_address() {
    let (one, other) = (RedisServer::start(), RedisServer::start());
    one.cli(&["SET", "server", "one"]);
    other.cli(&["SET", "server", "two"]);
    let proxy = Proxy::before(&one);
    let mut line = Line::to(&proxy);
    line.is_answered("GET server", "$3\r\none\r\n");
    proxy.redirect(other.port());
    line.is_reset();
    Line::to(&proxy).is_answered("GET server", "$3\r\ntwo\r\n");
}
