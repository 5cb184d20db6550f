//! Clients over TLS, and their tokens. The fault campaign stops them and cuts them off from their nodes.

use std::io::Read as _;
use std::net::TcpStream;
use std::sync::Arc;

use leasehold::__private::wire::{Refusal, Role, ToClient, ToNode};
use leasehold_testkit::Certs;
use leasehold_watchdog::{Listen, Node, TlsFiles, Token};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::fixture::{Fixture, LONG, SOON};
use crate::peer::{Peer, client_id, hello, hello_with, registration, role, role_with};

const TOKEN: &str = "0123456789abcdef";
/// A token with limits.
const LIMITED: &str = "fedcba9876543210";

type Tls = StreamOwned<ClientConnection, TcpStream>;

/// A node that listens over TLS.
struct RemoteNode {
    fixture: Fixture,
    certs: Certs,
    node: Node,
    port: u16,
}

impl RemoteNode {
    async fn new() -> Self {
        let certs = Certs::make();
        let tokens =
            format!("{TOKEN} name=team-a\n{LIMITED} clients=1 leases=2 namespaces=test,ci\n");
        let (fixture, node) = Fixture::with_settings(|settings| {
            settings.tls = Some(TlsFiles::new(&certs.server, &certs.server_key));
            settings.tokens = Token::parse_file(&tokens).unwrap();
            let listen = Listen::parse("tcp://localhost:0").unwrap();
            settings.listen.push(listen);
        })
        .await;
        let Listen::Tcp { port, .. } = node.addresses()[1] else {
            panic!("{:?}", node.addresses());
        };
        Self {
            fixture,
            certs,
            node,
            port,
        }
    }

    fn tcp(&self) -> TcpStream {
        let stream = TcpStream::connect(("localhost", self.port)).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream
    }

    fn connect(&self) -> Peer<Tls> {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_file(&self.certs.ca).unwrap();
        roots.add(ca).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = "localhost".try_into().unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        Peer::new(StreamOwned::new(connection, self.tcp()))
    }

    fn client(&self, client: u128) -> Peer<Tls> {
        let mut peer = self.connect();
        peer.expect_welcome(&self.hello(TOKEN, client));
        peer
    }

    fn hello(&self, token: &str, client: u128) -> ToNode {
        hello_with(token, role(&self.fixture, client))
    }

    #[track_caller]
    fn expect_refusal(&self, hello: &ToNode, refusal: Refusal) {
        let mut peer = self.connect();
        peer.send(hello);
        peer.expect_refusal(refusal);
    }
}

fn register(client: &mut Peer<Tls>, count: u64) -> Vec<(u64, Refusal)> {
    client.register((1..=count).map(|number| registration(number, "lock", LONG)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_without_a_known_token_is_refused() {
    let node = RemoteNode::new().await;
    let client = || role(&node.fixture, 1);
    for hello in [
        hello(client()),
        hello(Role::Observer),
        hello_with("", client()),
        hello_with("0123456789abcdeF", client()),
        hello_with(&TOKEN[..15], client()),
        hello_with("0123456789abcdef0", Role::Observer),
    ] {
        node.expect_refusal(&hello, Refusal::Token);
    }
    let observer = hello_with(TOKEN, Role::Observer);
    node.connect().expect_welcome(&observer);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_without_tls_is_refused() {
    let node = RemoteNode::new().await;
    let mut plain = Peer::new(node.tcp());
    plain.send(&node.hello(TOKEN, 1));
    let mut reply = Vec::new();
    let _ = plain.stream.read_to_end(&mut reply);
    // At most an alert of TLS.
    assert!(reply.len() <= 7, "{reply:?}");
    assert_eq!(Peer::observer(&node.fixture).status_of(1), None);
    let _ = node.client(1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_port_of_a_stopped_node_is_free_at_once() {
    let remote = RemoteNode::new().await;
    let _client = remote.client(1);
    let certs = &remote.certs;
    let address = format!("tcp://localhost:{}", remote.port);
    let mut settings = remote.fixture.settings();
    settings.listen = vec![Listen::parse(&address).unwrap()];
    settings.tls = Some(TlsFiles::new(&certs.server, &certs.server_key));
    Node::start(settings.clone()).await.unwrap_err();
    remote.node.stop().await;
    Node::start(settings).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_another_program_or_token_is_refused() {
    let node = RemoteNode::new().await;
    let mut first = node.client(1);
    let other_nonce = role_with(&node.fixture, 1, |info| info.process_nonce = [9; 16]);
    node.expect_refusal(&hello_with(TOKEN, other_nonce), Refusal::Foreign);
    node.expect_refusal(&node.hello(LIMITED, 1), Refusal::Foreign);
    let mut local = Peer::connect(&node.fixture.socket);
    local.send(&hello(role(&node.fixture, 1)));
    local.expect_refusal(Refusal::Foreign);
    // The client stays, and another connection of it replaces the first one.
    assert_eq!(register(&mut first, 1), []);
    let _again = node.client(1);
    assert_eq!(first.receive(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_has_limits_and_namespaces() {
    let node = RemoteNode::new().await;
    let mut first = node.connect();
    first.expect_welcome(&node.hello(LIMITED, 1));
    node.expect_refusal(&node.hello(LIMITED, 2), Refusal::Clients);
    let _other = node.client(2);
    assert_eq!(register(&mut first, 3), [(3, Refusal::Leases)]);
    let elsewhere = role_with(&node.fixture, 3, |info| info.namespace = "another".into());
    let forbidden = hello_with(LIMITED, elsewhere.clone());
    node.expect_refusal(&forbidden, Refusal::Namespace);
    node.connect().expect_welcome(&hello_with(TOKEN, elsewhere));
    // A remote peer has another clock, and cannot send the descriptor of a process.
    let (client, number) = (client_id(1).to_bytes(), 1);
    let renewed = first.request(&ToNode::LeaseQuery { client, number });
    assert_eq!(renewed, Some(ToClient::LeaseStatus(None)));
    first.send(&ToNode::Process);
    first.expect_refusal(Refusal::Process);
}
