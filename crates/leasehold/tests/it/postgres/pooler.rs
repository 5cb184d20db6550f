//! A pooler that loses its server.

use std::net::Ipv4Addr;
use std::sync::Mutex;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// What PgBouncer sends to a client whose server is lost: a fatal error with the code 08P01.
const SERVER_LOST: &[u8] = b"E\0\0\0\x29SFATAL\0C08P01\0Mserver conn crashed?\0\0";

/// The same for a client with a setting that it does not accept.
const SETTING_REFUSED: &[u8] =
    b"E\0\0\0\x3bSFATAL\0C08P01\0Munsupported startup parameter: options\0\0";

/// A pooler in front of a server.
struct Pooler {
    port: u16,
    fault: Arc<Mutex<Option<Fault>>>,
}

/// How the pooler loses the server once.
#[derive(Clone, Copy)]
struct Fault {
    /// No reply to this request is passed on, nor to those behind it.
    from: &'static str,
    /// The connection ends when the server has replied with this.
    until: &'static str,
}

impl Pooler {
    async fn start(server: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let fault = Arc::default();
        let shared = Arc::clone(&fault);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, server, Arc::clone(&shared)));
            }
        });
        Self { port, fault }
    }

    fn loses_server(&self, from: &'static str, until: &'static str) {
        *self.fault.lock().unwrap() = Some(Fault { from, until });
    }
}

/// Passes on what a client and the server send, until one of them ends.
async fn serve(mut client: TcpStream, server: u16, fault: Arc<Mutex<Option<Fault>>>) -> Option<()> {
    let contains = |bytes: &[u8], text: &str| {
        let mut windows = bytes.windows(text.len());
        windows.any(|window| window == text.as_bytes())
    };
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).await;
    let mut server = server.ok()?;
    let (mut requests, mut replies) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut begun = None::<Fault>;
    loop {
        tokio::select! {
            read = client.read(&mut requests) => {
                let requests = &requests[..read.ok().filter(|length| *length > 0)?];
                let is_begun = |fault: &mut Fault| contains(requests, fault.from);
                begun = begun.or(fault.lock().unwrap().take_if(is_begun));
                server.write_all(requests).await.ok()?;
            }
            read = server.read(&mut replies) => {
                let replies = &replies[..read.ok().filter(|length| *length > 0)?];
                match begun {
                    None => client.write_all(replies).await.ok()?,
                    Some(fault) if contains(replies, fault.until) => break,
                    Some(_) => {}
                }
            }
        }
    }
    client.write_all(SERVER_LOST).await.ok()?;
    client.shutdown().await.ok()?;
    // What is closed with requests unread resets the connection, and the client would not read the error.
    client.read_to_end(&mut requests).await.ok().map(drop)
}

/// What was lost before the commit is sent again, and what was lost with it may have been applied.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_server_is_not_a_refusal_and_leaves_its_commit_unknown() {
    let server = PostgresServer::start();
    let pooler = Pooler::start(server.port()).await;
    let url = format!("postgres://testkit@127.0.0.1:{}/postgres", pooler.port);
    let store = open(&url).await;
    pooler.loses_server("BEGIN ISOLATION", "BEGIN\0");
    granted(&*store, acquire("a", 1)).await;
    pooler.loses_server("INSERT INTO leasehold.heads", "COMMIT\0");
    let error = unknown(&*store, release("a", 1)).await;
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    granted(&*store, acquire("a", 2)).await;
}

#[tokio::test]
async fn a_setting_that_the_pooler_does_not_accept_is_a_lasting_refusal() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let Ok(1..) = client.read(&mut [0; 1024]).await else {
                continue;
            };
            let _ = client.write_all(SETTING_REFUSED).await;
        }
    });
    let error = refused(&format!("postgres://u@127.0.0.1:{port}/d?sslmode=disable")).await;
    assert_error(&error, ErrorKind::InvalidConfig, &["a setting of the URL"]);
}
