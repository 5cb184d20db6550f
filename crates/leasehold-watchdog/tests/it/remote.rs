//! Others, over TLS: their leases are renewed as long as their machine is there, and never released.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::__private::wire::{Changes, Refusal, Role, ToClient, ToNode};
use leasehold_testkit::eventually;
use leasehold_watchdog::{Listen, Node, Settings, TlsFiles, Token};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::fixture::{Fixture, SOON};
use crate::raw::{Raw, client_id, hello, hello_with, introduction, registration, role, secret};

const TOKEN: &str = "0123456789abcdef";
const FEW: &str = "fedcba9876543210";
const TTL: Duration = Duration::from_millis(1_500);

type Tls = StreamOwned<ClientConnection, TcpStream>;

struct Place {
    fixture: Fixture,
    cert: PathBuf,
    node: Node,
    port: u16,
}

impl Place {
    async fn make() -> Self {
        Self::until(2100).await
    }

    /// With a certificate that ends with a year.
    async fn until(year: i32) -> Self {
        let fixture = Fixture::make().await;
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        let pair = KeyPair::generate().unwrap();
        let signed = params.self_signed(&pair).unwrap();
        let (cert, key) = (
            fixture.folder.path().join("cert"),
            fixture.folder.path().join("key"),
        );
        fs::write(&cert, signed.pem()).unwrap();
        fs::write(&key, pair.serialize_pem()).unwrap();
        let tokens = format!("{TOKEN} name=team-a\n{FEW} clients=1 leases=2 namespaces=test,ci\n");
        let mut settings = Settings {
            tls: Some(TlsFiles {
                cert: cert.clone(),
                key,
            }),
            tokens: Token::parse_file(&tokens).unwrap(),
            ..fixture.settings()
        };
        settings
            .listen
            .push(Listen::parse("tcp://localhost:0").unwrap());
        let node = Node::start(settings).await.unwrap();
        let Listen::Tcp { port, .. } = node.addresses()[1] else {
            panic!("{:?}", node.addresses());
        };
        Self {
            fixture,
            cert,
            node,
            port,
        }
    }

    fn tcp(&self) -> TcpStream {
        let stream = TcpStream::connect(("localhost", self.port)).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream
    }

    fn connect(&self) -> Raw<Tls> {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_file(&self.cert).unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = "localhost".try_into().unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        Raw::over(StreamOwned::new(connection, self.tcp()))
    }

    fn client(&self, client: u128) -> Raw<Tls> {
        let mut raw = self.connect();
        raw.welcomed(self.hello(TOKEN, client));
        raw
    }

    fn hello(&self, token: &str, client: u128) -> ToNode {
        hello_with(token, role(&self.fixture, client))
    }
}

fn register(client: &mut Raw<Tls>, batch: u64, count: u64) -> Vec<(u64, Refusal)> {
    let ttl = u32::try_from(TTL.as_millis()).unwrap();
    let register = (1..=count).map(|number| registration(number, "lock", ttl));
    let answer = client.asks(&ToNode::Changes(Changes {
        batch,
        register: register.collect(),
        unregister: vec![],
    }));
    match answer {
        Some(ToClient::Acknowledged { refused, .. }) => refused,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connected_and_silent_its_leases_are_renewed_and_then_left_to_end() {
    let place = Place::make().await;
    let fixture = &place.fixture;
    let mut client = place.client(1);
    fixture.acquire(1, 1, "lock", TTL).await;
    assert_eq!(register(&mut client, 0, 1), []);
    let start = Instant::now();
    while start.elapsed() < TTL * 3 {
        assert!(fixture.held(1, 1, "lock").await.is_some());
        tokio::time::sleep(TTL / 50).await;
    }
    let status = Raw::observer(fixture).status_of(1).unwrap();
    assert_eq!(status.processes, 0);
    // That it goes proves nothing: what it had is not released, and ends by itself.
    let long = Duration::from_secs(600);
    fixture.acquire(1, 2, "long", long).await;
    let answer = client.asks(&ToNode::Changes(Changes {
        batch: 1,
        register: vec![registration(2, "long", 600_000)],
        unregister: vec![],
    }));
    assert!(matches!(answer, Some(ToClient::Acknowledged { .. })));
    drop(client);
    eventually(SOON, || Raw::observer(fixture).status_of(1).is_none());
    fixture.is_free("lock").await;
    assert!(fixture.held(1, 2, "long").await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_right_token_nobody_is_let_in() {
    let place = Place::make().await;
    let client = || role(&place.fixture, 1);
    for word in [
        hello(client()),
        hello(Role::Observer),
        hello_with("", client()),
        hello_with("0123456789abcdeF", client()),
        hello_with(&TOKEN[..15], client()),
        hello_with("0123456789abcdef0", Role::Observer),
    ] {
        let mut raw = place.connect();
        assert_eq!(raw.asks(&word), Some(ToClient::Refused(Refusal::Token)));
        assert_eq!(raw.hears(), None);
    }
    place.connect().welcomed(hello_with(TOKEN, Role::Observer));
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_words_are_not_heard() {
    let place = Place::make().await;
    let mut plain = Raw::over(place.tcp());
    plain.says(&place.hello(TOKEN, 1));
    let mut answer = Vec::new();
    let _ = plain.stream.read_to_end(&mut answer);
    // At most an alert of TLS.
    assert!(answer.len() <= 7, "{answer:?}");
    assert_eq!(Raw::observer(&place.fixture).status_of(1), None);
    let _ = place.client(1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_certificate_is_not_trusted() {
    let place = Place::until(2002).await;
    let mut raw = place.connect();
    let error = raw.stream.write_all(b"hello").unwrap_err();
    assert!(error.to_string().contains("expired"), "{error}");
    // The node goes on.
    let _ = Raw::client(&place.fixture, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_another_program_or_token_is_refused() {
    let place = Place::make().await;
    let mut first = place.client(1);
    let mut other_nonce = introduction(&place.fixture);
    other_nonce.process_nonce = [9; 16];
    for word in [
        hello_with(TOKEN, Role::Client(secret(1), other_nonce)),
        place.hello(FEW, 1),
    ] {
        let refused = Some(ToClient::Refused(Refusal::Foreign));
        assert_eq!(place.connect().asks(&word), refused);
    }
    let mut near = Raw::connect(&place.fixture.socket);
    let word = hello(role(&place.fixture, 1));
    assert_eq!(near.asks(&word), Some(ToClient::Refused(Refusal::Foreign)));
    // It is still there, and may come by another connection.
    assert_eq!(register(&mut first, 0, 1), []);
    let _again = place.client(1);
    assert_eq!(first.hears(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_has_limits() {
    let place = Place::make().await;
    let mut first = place.connect();
    first.welcomed(place.hello(FEW, 1));
    let refused = Some(ToClient::Refused(Refusal::Clients));
    assert_eq!(place.connect().asks(&place.hello(FEW, 2)), refused);
    let _other = place.client(2);
    assert_eq!(register(&mut first, 0, 3), [(3, Refusal::Leases)]);
    // Nobody asks for a clock that is not his, or hands over a process from afar.
    let (client, number) = (client_id(1).to_bytes(), 1);
    let kept = first.asks(&ToNode::LeaseQuery { client, number });
    assert_eq!(kept, Some(ToClient::LeaseStatus(None)));
    let refused = Some(ToClient::Refused(Refusal::Process));
    assert_eq!(first.asks(&ToNode::Process), refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_has_namespaces() {
    let place = Place::make().await;
    let mut elsewhere = introduction(&place.fixture);
    elsewhere.namespace = "another".into();
    let word = |token| hello_with(token, Role::Client(secret(1), elsewhere.clone()));
    let refused = Some(ToClient::Refused(Refusal::Namespace));
    assert_eq!(place.connect().asks(&word(FEW)), refused);
    place.connect().welcomed(word(TOKEN));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_is_taken_is_told() {
    let place = Place::make().await;
    let port = place.port;
    let settings = Settings {
        listen: vec![Listen::parse(&format!("tcp://localhost:{port}")).unwrap()],
        tls: Some(TlsFiles {
            cert: place.cert.clone(),
            key: place.fixture.folder.path().join("key"),
        }),
        ..place.fixture.settings()
    };
    let error = Node::start(settings.clone()).await.unwrap_err();
    let at = format!("cannot listen at tcp://localhost:{port}");
    assert_eq!(error.to_string(), format!("{at}: the port is taken"));
    place.node.stop().await;
    let _ = Node::start(settings.clone()).await.unwrap();
    let swapped = Settings {
        tls: Some(TlsFiles {
            cert: place.fixture.folder.path().join("key"),
            key: place.cert.clone(),
        }),
        ..settings
    };
    let error = Node::start(swapped).await.unwrap_err().to_string();
    assert!(
        error.ends_with("as a certificate: there is none in it"),
        "{error}"
    );
}
