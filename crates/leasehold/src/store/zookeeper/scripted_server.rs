//! A server that replies as a test says.

use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::SERVICE;
use super::jute::{Reader, Writer};
use super::session::{Session, Settings};
use crate::store::hub::Hub;
use crate::store::members::Address;
use crate::store::options::OpenOptions;

/// The transaction of each reply.
pub(super) const TRANSACTION: i64 = 7;

/// A server of one client.
pub(super) struct ScriptedServer {
    listener: TcpListener,
    pub(super) stream: Option<TcpStream>,
    /// Of the last request.
    pub(super) number: i32,
    changed: (Sender, mpsc::UnboundedReceiver<Option<String>>),
}

/// Of the paths of nodes whose children have changed.
type Sender = mpsc::UnboundedSender<Option<String>>;

impl ScriptedServer {
    pub(super) async fn new() -> Self {
        Self {
            listener: TcpListener::bind("127.0.0.1:0").await.unwrap(),
            stream: None,
            number: 0,
            changed: mpsc::unbounded_channel(),
        }
    }

    /// The settings of a session with it.
    pub(super) fn settings(&self, hub: &Arc<Hub>) -> Settings {
        let port = self.listener.local_addr().unwrap().port();
        let (url, options) = (
            format!("zookeeper://127.0.0.1:{port}"),
            OpenOptions::default(),
        );
        Settings {
            address: Arc::new(Address::parse(SERVICE, &url, &options).unwrap()),
            tls: None,
            connect_timeout: options.connect_timeout,
            hub: Arc::clone(hub),
        }
    }

    /// A session with it that lasts so many milliseconds.
    pub(super) async fn session(&mut self, hub: &Arc<Hub>, millis: i32) -> Session {
        let opened = Session::open(self.settings(hub), self.changed.0.clone());
        let (session, seen) = tokio::join!(opened, self.accept(millis));
        assert_eq!(seen, 0);
        session.unwrap()
    }

    /// Accepts a connection. Returns the transaction that its client has seen.
    pub(super) async fn accept(&mut self, millis: i32) -> i64 {
        let (mut stream, _) = self.listener.accept().await.unwrap();
        let request = read(&mut stream).await;
        let mut reader = Reader(&request);
        let (_, seen) = (reader.int(), reader.long());
        let reply = Writer::default().int(0).int(millis).long(1);
        write(&mut stream, &reply.bytes(&[0; 16]).flag(false)).await;
        self.stream = Some(stream);
        seen.unwrap()
    }

    /// Replies to the next requests with these codes and bodies. Returns the bodies of the requests.
    pub(super) async fn reply(
        &mut self,
        replies: impl IntoIterator<Item = (i32, Writer)>,
    ) -> Vec<Vec<u8>> {
        let stream = self.stream.as_mut().unwrap();
        let mut requests = Vec::new();
        for (code, body) in replies {
            let request = read(stream).await;
            let mut reader = Reader(&request);
            let (number, _) = (reader.int().unwrap(), reader.int().unwrap());
            self.number = number;
            requests.push(reader.0.to_vec());
            let mut reply = Writer::default().int(number).long(TRANSACTION).int(code);
            reply.0.extend(body.0);
            write(stream, &reply).await;
        }
        requests
    }
}

async fn read(stream: &mut TcpStream) -> Vec<u8> {
    let length = stream.read_i32().await.unwrap();
    let mut frame = vec![0; usize::try_from(length).unwrap()];
    stream.read_exact(&mut frame).await.unwrap();
    frame
}

async fn write(stream: &mut TcpStream, body: &Writer) {
    let frame = Writer::default().bytes(&body.0);
    stream.write_all(&frame.0).await.unwrap();
}
