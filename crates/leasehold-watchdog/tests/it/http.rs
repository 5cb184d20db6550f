//! What a node tells over HTTP.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use leasehold_testkit::eventually;
use leasehold_watchdog::{Node, Settings};

use crate::fixture::{Fixture, SOON};
use crate::raw::Raw;

fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    (code, body.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn it_tells_its_figures_and_how_it_is() {
    let fixture = Fixture::make().await;
    let settings = Settings {
        metrics: Some(([127, 0, 0, 1], 0).into()),
        ..fixture.settings()
    };
    let node = Node::start(settings.clone()).await.unwrap();
    let address = node.metrics_address().unwrap();
    let _client = Raw::client(&fixture, 1);
    let (code, figures) = get(address, "/metrics");
    assert_eq!(code, 200);
    for line in [
        "leasehold_watchdog_clients{condition=\"alive\"} 1",
        "leasehold_watchdog_clients{condition=\"silent\"} 0",
        "leasehold_watchdog_leases 0",
        "# TYPE leasehold_watchdog_connections gauge",
    ] {
        assert!(figures.contains(line), "{line} not in {figures}");
    }
    assert_eq!(get(address, "/healthz"), (200, "alive\n".into()));
    assert_eq!(get(address, "/readyz"), (200, "ready\n".into()));
    assert_eq!(get(address, "/").0, 404);
    fixture.redis.stop();
    eventually(SOON, || {
        get(address, "/readyz") == (503, "no store is reachable\n".into())
    });
    assert_eq!(get(address, "/healthz").0, 200);
    fixture.redis.cont();
    eventually(SOON, || get(address, "/readyz").0 == 200);

    let taken = Settings {
        metrics: Some(address),
        listen: vec![leasehold_watchdog::Listen::Unix(
            fixture.folder.path().join("other"),
        )],
        ..settings
    };
    let error = Node::start(taken).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("cannot tell figures at {address}: the port is taken")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_take_no_room_from_others() {
    const IDLE: usize = 300;
    let fixture = Fixture::make().await;
    let settings = Settings {
        metrics: Some(([127, 0, 0, 1], 0).into()),
        ..fixture.settings()
    };
    let node = Node::start(settings).await.unwrap();
    let address = node.metrics_address().unwrap();
    let idle: Vec<_> = (0..IDLE)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    // Some have begun a request, and never end it.
    for mut stream in idle.iter().step_by(3) {
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: ");
    }
    assert_eq!(get(address, "/healthz"), (200, "alive\n".into()));
    assert_eq!(get(address, "/readyz").0, 200);
    let _client = Raw::client(&fixture, 1);
    // Most of them have been ended for that, and after a while all.
    let is_open = |mut stream: &TcpStream| {
        stream.set_nonblocking(true).unwrap();
        let read = stream.read(&mut [0; 512]);
        matches!(read, Err(error) if error.kind() == ErrorKind::WouldBlock)
    };
    let open = || idle.iter().filter(|stream| is_open(stream)).count();
    eventually(SOON, || open() < IDLE / 5);
    eventually(SOON, || open() == 0);
}
