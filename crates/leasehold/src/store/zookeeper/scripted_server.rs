//! A server that replies as a test says.

use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::SERVICE;
use super::jute::{Reader, Writer};
use super::session::Settings;
use crate::store::hub::Hub;
use crate::store::members::Address;
use crate::store::options::OpenOptions;

/// The settings of a session with such a server.
pub(super) fn settings(listener: &TcpListener, hub: &Arc<Hub>) -> Settings {
    let port = listener.local_addr().unwrap().port();
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

/// The transaction of each reply.
pub(super) const TRANSACTION: i64 = 7;

/// Accepts a connection, and gives it a session that lasts so many milliseconds.
pub(super) async fn accept(listener: &TcpListener, millis: i32) -> TcpStream {
    accept_behind(listener, millis).await.0
}

/// The same, with the transaction that its client has seen.
pub(super) async fn accept_behind(listener: &TcpListener, millis: i32) -> (TcpStream, i64) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let request = read(&mut stream).await;
    let mut reader = Reader(&request);
    let (_, seen) = (reader.int(), reader.long());
    let reply = Writer::default().int(0).int(millis).long(1);
    write(&mut stream, &reply.bytes(&[0; 16]).flag(false)).await;
    (stream, seen.unwrap())
}

/// Replies to the next requests with these codes and bodies. Returns the bodies of the requests.
pub(super) async fn reply(
    stream: &mut TcpStream,
    replies: impl IntoIterator<Item = (i32, Writer)>,
) -> Vec<Vec<u8>> {
    let mut requests = Vec::new();
    for (code, body) in replies {
        let request = read(stream).await;
        let mut reader = Reader(&request);
        let (number, _) = (reader.int().unwrap(), reader.int().unwrap());
        requests.push(reader.0.to_vec());
        let mut reply = Writer::default().int(number).long(TRANSACTION).int(code);
        reply.0.extend(body.0);
        write(stream, &reply).await;
    }
    requests
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
