//! The proxy does what the tests of faults build on.

// In a test and its helpers a panic is the answer.
#![allow(clippy::unwrap_used)]

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use leasehold_testkit::{AfterLoss, Proxy, RedisServer, Way, eventually};

const SOON: Duration = Duration::from_secs(10);

/// Long enough to see that nothing arrives.
const A_MOMENT: Duration = Duration::from_millis(50);

/// A connection that writes and reads by hand.
struct Connection(TcpStream);

impl Connection {
    fn to(proxy: &Proxy) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        Self(stream)
    }

    fn send(&mut self, words: &str) {
        let words: Vec<_> = words.split(' ').collect();
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.0.write_all(request.as_bytes()).unwrap();
    }

    #[track_caller]
    fn receives(&mut self, reply: &str) {
        let mut bytes = vec![0; reply.len()];
        self.0.read_exact(&mut bytes).unwrap();
        assert_eq!(String::from_utf8(bytes).unwrap(), reply);
    }

    #[track_caller]
    fn request(&mut self, words: &str, reply: &str) {
        self.send(words);
        self.receives(reply);
    }

    #[track_caller]
    fn receives_nothing(&mut self) {
        self.0.set_read_timeout(Some(A_MOMENT)).unwrap();
        let read = self.0.read(&mut [0]);
        assert_eq!(read.unwrap_err().kind(), ErrorKind::WouldBlock);
        self.0.set_read_timeout(Some(SOON)).unwrap();
    }

    #[track_caller]
    fn is_reset(&mut self) {
        let read = self.0.read(&mut [0]);
        assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
}

/// A server, a proxy, and a connection that has made a request.
fn start() -> (RedisServer, Proxy, Connection) {
    let server = RedisServer::start();
    let proxy = Proxy::before(&server);
    let mut connection = Connection::to(&proxy);
    connection.request("SET a 1", "+OK\r\n");
    (server, proxy, connection)
}

/// How many connections the server has beside that of this command.
fn connections(server: &RedisServer) -> usize {
    server.cli(&["CLIENT", "LIST"]).lines().count() - 1
}

#[test]
fn everything_passes_in_order() {
    let (_server, _proxy, mut connection) = start();
    (1..=20).for_each(|_| connection.send("INCR a"));
    (2..=21).for_each(|n| connection.receives(&format!(":{n}\r\n")));
}

#[test]
fn held_bytes_arrive_later() {
    let (server, proxy, mut connection) = start();
    proxy.hold(Way::ToClient);
    connection.send("SET a 2");
    eventually(SOON, || server.cli(&["GET", "a"]) == "2");
    connection.receives_nothing();
    proxy.go_on();
    connection.receives("+OK\r\n");
    proxy.hold(Way::ToServer);
    connection.send("SET a 3");
    connection.receives_nothing();
    assert_eq!(server.cli(&["GET", "a"]), "2");
    // A connection that is made meanwhile waits, as one to a stopped server.
    let mut other = Connection::to(&proxy);
    other.send("PING");
    other.receives_nothing();
    // Also bytes of a client that has gone.
    drop(connection);
    proxy.go_on();
    eventually(SOON, || server.cli(&["GET", "a"]) == "3");
    other.receives("+PONG\r\n");
}

#[test]
fn swallowed_bytes_never_arrive_and_no_side_is_notified() {
    let (server, proxy, mut connection) = start();
    let mut idle = Connection::to(&proxy);
    idle.request("PING", "+PONG\r\n");
    proxy.swallow(Way::ToClient);
    let mut one_way = Connection::to(&proxy);
    one_way.send("SET b 1");
    eventually(SOON, || server.cli(&["GET", "b"]) == "1");
    one_way.receives_nothing();
    proxy.swallow(Way::Both);
    proxy.count("2");
    connection.send("SET a 2");
    eventually(SOON, || proxy.counted("2") == 1);
    connection.receives_nothing();
    proxy.go_on();
    connection.send("SET a 3");
    connection.receives_nothing();
    assert_eq!(server.cli(&["GET", "a"]), "1");
    // A connection without traffic meanwhile has noticed nothing.
    idle.request("PING", "+PONG\r\n");
    // The server does not know that the client has gone.
    drop((connection, idle, one_way));
    eventually(SOON, || connections(&server) == 1);
    std::thread::sleep(A_MOMENT);
    assert_eq!(connections(&server), 1);
    proxy.cut();
    eventually(SOON, || connections(&server) == 0);
}

#[test]
fn connections_are_reset_and_refused() {
    let (mut server, proxy, mut connection) = start();
    proxy.refuse();
    connection.request("PING", "+PONG\r\n");
    Connection::to(&proxy).is_reset();
    proxy.cut();
    connection.is_reset();
    proxy.go_on();
    Connection::to(&proxy).request("PING", "+PONG\r\n");
    assert_eq!(proxy.stats().connections, 3);
    server.kill9();
    Connection::to(&proxy).is_reset();
}

#[test]
fn a_connection_is_reset_in_the_middle_of_a_request() {
    let (server, proxy, mut connection) = start();
    let mut other = Connection::to(&proxy);
    other.request("PING", "+PONG\r\n");
    // All of the first, and all but the end of the second.
    let length = "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n2\r\n".len() as u64;
    proxy.cut_after(Way::ToServer, 2 * length - 1);
    connection.request("SET a 2", "+OK\r\n");
    connection.send("SET a 3");
    connection.is_reset();
    other.is_reset();
    assert_eq!(server.cli(&["GET", "a"]), "2");
    Connection::to(&proxy).request("SET a 4", "+OK\r\n");
}

#[test]
fn a_request_runs_and_its_reply_is_lost() {
    let (server, proxy, mut connection) = start();
    proxy.lose_replies("b", 2, AfterLoss::Silent);
    connection.request("INCR a", ":2\r\n");
    connection.send("ECHO b");
    eventually(SOON, || proxy.stats().replies_lost == 1);
    // The server still receives requests.
    connection.send("INCR a");
    eventually(SOON, || server.cli(&["GET", "a"]) == "3");
    connection.receives_nothing();
    // The second plan applies when the first is done.
    proxy.lose_replies("b", 1, AfterLoss::Cut);
    Connection::to(&proxy).send("ECHO b");
    eventually(SOON, || proxy.stats().replies_lost == 2);
    let mut cut = Connection::to(&proxy);
    cut.send("ECHO b");
    cut.is_reset();
    Connection::to(&proxy).request("ECHO b", "$1\r\nb\r\n");
}

/// A message between the replies is not a reply.
#[test]
fn the_right_reply_is_lost() {
    let (server, proxy, mut connection) = start();
    connection.send("HELLO 3");
    connection.send("SUBSCRIBE c");
    let subscribed = ">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n";
    let mut received = Vec::new();
    while !received.ends_with(subscribed.as_bytes()) {
        let mut byte = [0];
        connection.0.read_exact(&mut byte).unwrap();
        received.extend(byte);
    }
    connection.request("ECHO a", "$1\r\na\r\n");
    proxy.lose_replies("ECHO", 1, AfterLoss::Silent);
    server.cli(&["PUBLISH", "c", "x"]);
    connection.receives(">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n");
    connection.send("ECHO b");
    eventually(SOON, || proxy.stats().replies_lost == 1);
    connection.receives_nothing();
}

#[test]
fn a_request_is_held_back_until_it_is_late() {
    let (server, proxy, mut connection) = start();
    proxy.hold_requests("late", 1);
    connection.request("SET a early", "+OK\r\n");
    connection.send("SET a late");
    connection.send("SET b behind");
    eventually(SOON, || proxy.stats().requests_held == 1);
    drop(connection);
    Connection::to(&proxy).request("SET a late", "+OK\r\n");
    server.cli(&["SET", "a", "new"]);
    proxy.deliver();
    eventually(SOON, || server.cli(&["GET", "b"]) == "behind");
    assert_eq!(server.cli(&["GET", "a"]), "late");
    eventually(SOON, || connections(&server) == 0);
}

#[test]
fn requests_are_counted_by_a_word() {
    let (_server, proxy, mut connection) = start();
    connection.request("ECHO counted", "$7\r\ncounted\r\n");
    proxy.count("counted");
    connection.request("ECHO counted", "$7\r\ncounted\r\n");
    connection.request("ECHO other", "$5\r\nother\r\n");
    Connection::to(&proxy).request("SET a counted", "+OK\r\n");
    assert_eq!((proxy.counted("counted"), proxy.counted("other")), (2, 0));
}

#[test]
fn another_server_takes_over_the_address() {
    let (_server, proxy, mut connection) = start();
    let other = RedisServer::start();
    other.cli(&["SET", "a", "2"]);
    proxy.redirect(other.port());
    connection.is_reset();
    Connection::to(&proxy).request("GET a", "$1\r\n2\r\n");
}
