//! The HTTP endpoints of a node.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;

use leasehold_testkit::eventually;
use leasehold_watchdog::{Listen, Node};

use crate::fixture::{Fixture, SOON};
use crate::peer::Peer;

fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    (code, body.to_owned())
}

async fn node() -> (Fixture, Node, SocketAddr) {
    let metrics = Some(([127, 0, 0, 1], 0).into());
    let (fixture, node) = Fixture::with_settings(|it| it.metrics = metrics).await;
    let address = node.metrics_address().unwrap();
    (fixture, node, address)
}

/// A peer that is refused, reads the reason and leaves.
fn refused_peer(fixture: &Fixture) {
    let mut peer = UnixStream::connect(&fixture.socket).unwrap();
    peer.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    peer.read_to_end(&mut Vec::new()).unwrap();
}

/// The recorder belongs to the process, so only one test reads the metrics.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_serves_metrics_and_health_checks() {
    let (fixture, _node, address) = node().await;
    let _client = Peer::client(&fixture, 1);
    let (code, metrics) = get(address, "/metrics");
    assert_eq!(code, 200);
    for line in [
        "leasehold_watchdog_clients{state=\"alive\"} 1",
        "leasehold_watchdog_clients{state=\"silent\"} 0",
        "leasehold_watchdog_leases 0",
        "leasehold_watchdog_clients_limit 10000",
        "# TYPE leasehold_watchdog_deaths_total counter",
        "leasehold_watchdog_actions_total{action=\"release\",result=\"failed\"}",
        "# TYPE leasehold_watchdog_connections gauge",
    ] {
        assert!(metrics.contains(line), "{line} not in {metrics}");
    }
    let refused = || {
        let (_, metrics) = get(address, "/metrics");
        let mut lines = metrics.lines().map(str::to_owned);
        lines.find(|line| line.starts_with("leasehold_watchdog_refused_total "))
    };
    let before = refused();
    refused_peer(&fixture);
    eventually(SOON, || refused() != before);
    assert_eq!(get(address, "/healthz"), (200, "alive\n".into()));
    eventually(SOON, || get(address, "/readyz") == (200, "ready\n".into()));
    assert_eq!(get(address, "/").0, 404);
    fixture.redis.stop();
    eventually(SOON, || {
        get(address, "/readyz") == (503, "no store is reachable\n".into())
    });
    assert_eq!(get(address, "/healthz").0, 200);
    let store = |reachable: u8| {
        let line = format!("leasehold_watchdog_store_reachable{{store=\"main\"}} {reachable}");
        get(address, "/metrics")
            .1
            .lines()
            .any(|found| found == line)
    };
    assert!(store(0));
    fixture.redis.cont();
    eventually(SOON, || store(1));
    eventually(SOON, || get(address, "/readyz").0 == 200);

    let mut taken = fixture.settings();
    taken.metrics = Some(address);
    taken.listen = vec![Listen::Unix(fixture.directory.path().join("other"))];
    let error = Node::start(taken).await.unwrap_err();
    let expected = format!("cannot serve metrics at {address}: the port is taken");
    assert_eq!(error.to_string(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_keep_no_request_out() {
    const IDLE: usize = 300;
    let (fixture, _node, address) = node().await;
    let idle: Vec<_> = (0..IDLE)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    // Some begin a request and never end it.
    for mut stream in idle.iter().step_by(3) {
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: ");
    }
    assert_eq!(get(address, "/healthz"), (200, "alive\n".into()));
    eventually(SOON, || get(address, "/readyz").0 == 200);
    let _client = Peer::client(&fixture, 1);
    // Most of them have ended by now, and after a while all have.
    let is_open = |mut stream: &TcpStream| {
        stream.set_nonblocking(true).unwrap();
        let read = stream.read(&mut [0; 512]);
        matches!(read, Err(error) if error.kind() == ErrorKind::WouldBlock)
    };
    let open = || idle.iter().filter(|stream| is_open(stream)).count();
    eventually(SOON, || open() < IDLE / 5);
    eventually(SOON, || open() == 0);
    // Nor do requests that have ended end one that takes its time.
    for _ in 0..IDLE / 5 {
        assert_eq!(get(address, "/healthz").0, 200);
    }
    let mut slow = TcpStream::connect(address).unwrap();
    slow.write_all(b"GET /healthz HTTP/1.1\r\n").unwrap();
    assert_eq!(get(address, "/healthz").0, 200);
    slow.write_all(b"Host: node\r\n\r\n").unwrap();
    let mut response = String::new();
    slow.read_to_string(&mut response).unwrap();
    assert!(response.ends_with("alive\n"), "{response:?}");
}
