//! The unix socket for processes on this machine.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::UnixStream;

use super::pause;
use crate::Error;
use crate::connection::{Connection, Link};
use crate::process::{Owner, Process};
use crate::session::Peer;
use crate::settings::Listen;
use crate::shared::{ConnectionPermit, Shared};

/// How many connections may wait to be accepted. The kernel caps it at `net.core.somaxconn`.
const BACKLOG: i32 = 4_096;

/// How many descriptors may wait for the message that they belong to. The kernel never joins two messages
/// with descriptors, and each is handled before the next is read.
const DESCRIPTORS_MAX: usize = 1;

/// A unix socket and its file.
pub(crate) struct UnixListener {
    socket: tokio::net::UnixListener,
    file: File,
}

/// The file of a socket. It is removed when this is dropped, unless another process has replaced it.
struct File {
    path: PathBuf,
    /// Device and inode. `None`: the service manager owns the file.
    own: Option<(u64, u64)>,
}

impl UnixListener {
    /// Listens at a path. Replaces a socket without a listener.
    pub(crate) fn bind(path: &Path, mode: u32) -> Result<Self, Error> {
        let failed = |what: &str, error: io::Error| {
            let message = format!("cannot listen at unix:{}: {what}", path.display());
            Error::new(message).with_source(error)
        };
        make_folder(path).map_err(|error| failed("its folder cannot be made", error))?;
        look_for_others(path)?;
        // Renamed into place when its mode is set: it is never open to others, and the path is never without a socket.
        let new = beside(path);
        let _ = fs::remove_file(&new);
        let socket = open(&new).map_err(|error| failed(&reason(&error), error))?;
        let moved = fs::set_permissions(&new, fs::Permissions::from_mode(mode))
            .and_then(|()| socket.listen(BACKLOG))
            .and_then(|()| fs::symlink_metadata(&new))
            .and_then(|about| fs::rename(&new, path).map(|()| about));
        let about = moved.map_err(|error| {
            let _ = fs::remove_file(&new);
            failed(&reason(&error), error)
        })?;
        let file = File {
            path: path.to_owned(),
            own: Some((about.dev(), about.ino())),
        };
        let socket = std::os::unix::net::UnixListener::from(OwnedFd::from(socket));
        let socket = tokio::net::UnixListener::from_std(socket);
        let socket = socket.map_err(|error| failed("the socket cannot be used", error))?;
        Ok(Self { socket, file })
    }

    /// Listens at a socket that the service manager has opened, and leaves its file alone.
    pub(super) fn given(socket: Socket) -> Result<Self, Error> {
        let failed = |error: io::Error| {
            Error::new("cannot listen at a given socket: it cannot be used").with_source(error)
        };
        let socket = std::os::unix::net::UnixListener::from(OwnedFd::from(socket));
        let address = socket.local_addr().map_err(failed)?;
        let path = address.as_pathname().unwrap_or(Path::new("(no path)"));
        let file = File {
            path: path.to_owned(),
            own: None,
        };
        let socket = tokio::net::UnixListener::from_std(socket).map_err(failed)?;
        Ok(Self { socket, file })
    }

    pub(crate) fn address(&self) -> Listen {
        Listen::Unix(self.file.path.clone())
    }

    pub(crate) async fn run(self, shared: Arc<Shared>) {
        loop {
            match self.socket.accept().await {
                Ok((stream, _)) => {
                    let seat = shared.seat();
                    shared.tasks.spawn(serve(stream, seat, Arc::clone(&shared)));
                }
                Err(error) => pause(&self.address(), &error).await,
            }
        }
    }
}

async fn serve(stream: UnixStream, seat: Option<ConnectionPermit>, shared: Arc<Shared>) {
    let Some(mut seat) = seat else {
        tracing::warn!("too many connections, refused a connection");
        return;
    };
    let peer = Owner::of(&stream).and_then(|owner| {
        let process = Process::of_peer(&stream, owner, seat.process_file())?;
        Ok(Peer::Local(Arc::new(process), owner))
    });
    match peer {
        Ok(peer) => {
            let link = UnixLink::new(stream);
            Connection::new(&shared, peer, link).run(shared, seat).await;
        }
        Err(error) => tracing::warn!(%error, "cannot identify the process that has connected"),
    }
}

/// Creates the directory of a socket if it is missing, with access for its owner only.
fn make_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() && !folder.exists() => {
            let mut builder = fs::DirBuilder::new();
            builder.recursive(true).mode(0o700).create(folder)
        }
        _ => Ok(()),
    }
}

/// Fails if another process listens at the path, or if there is a file that is not a socket.
fn look_for_others(path: &Path) -> Result<(), Error> {
    let at = path.display();
    match fs::symlink_metadata(path) {
        Err(_) => Ok(()),
        Ok(about) if !about.file_type().is_socket() => Err(Error::new(format!(
            "cannot listen at unix:{at}: there is a file that is not a socket"
        ))),
        Ok(_) => match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) => Err(Error::new(format!(
                "cannot listen at unix:{at}: somebody listens there already"
            ))),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(Error::new(format!(
                "cannot listen at unix:{at}: cannot find out whether another process listens there"
            ))
            .with_source(error)),
        },
    }
}

/// A path in the same directory that no other process uses.
fn beside(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    path.with_file_name(name)
}

fn open(path: &Path) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::unix(path)?)?;
    Ok(socket)
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            "this user may not write into its folder".into()
        }
        ErrorKind::InvalidInput => "the path is too long for a socket".into(),
        _ => error.to_string(),
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let here = fs::symlink_metadata(&self.path);
        let here = here.ok().map(|about| (about.dev(), about.ino()));
        if self.own.is_some() && here == self.own {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A connection of a process of this machine.
struct UnixLink {
    stream: UnixStream,
    descriptors: VecDeque<OwnedFd>,
}

impl UnixLink {
    fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            descriptors: VecDeque::new(),
        }
    }

    fn receive(&mut self, buffer: &mut ReadBuf<'_>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let target = buffer.initialize_unfilled();
        let received = self.stream.try_io(Interest::READABLE, || {
            let mut parts = [IoSliceMut::new(target)];
            let received = recvmsg(
                &self.stream,
                &mut parts,
                &mut control,
                RecvFlags::CMSG_CLOEXEC,
            );
            Ok(received?.bytes)
        })?;
        buffer.advance(received);
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors);
            }
        }
        self.descriptors.truncate(DESCRIPTORS_MAX);
        Ok(())
    }
}

impl Link for UnixLink {
    fn take_descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptors.pop_front()
    }
}

impl AsyncRead for UnixLink {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(context))?;
            match self.receive(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                received => return Poll::Ready(received),
            }
        }
    }
}

impl AsyncWrite for UnixLink {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
