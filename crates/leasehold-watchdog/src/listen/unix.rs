//! The unix socket for processes on this machine.

use std::fs;
use std::io::{self, ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::io::{Interest, ReadBuf};
use tokio::net::UnixStream;

use super::BACKLOG;
use crate::Error;
use crate::connection::{Connection, Transport};
use crate::permits::ConnectionPermit;
use crate::process::{Owner, Process};
use crate::session::Peer;
use crate::settings::Listen;
use crate::shared::Shared;

/// A unix socket and its file.
pub(crate) struct UnixListener {
    socket: tokio::net::UnixListener,
    file: SocketFile,
}

/// The file of a socket. It is removed when this is dropped, unless another process has replaced it.
struct SocketFile {
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
        create_directory(path).map_err(|error| failed("its directory cannot be created", error))?;
        check_path_is_free(path)?;
        // Renamed into place when its mode is set: it is never open to others, and the path is never without a socket.
        let new = temporary_path(path);
        let _ = fs::remove_file(&new);
        let socket = open(&new).map_err(|error| failed(&reason(&error), error))?;
        let moved = fs::set_permissions(&new, fs::Permissions::from_mode(mode))
            .and_then(|()| socket.listen(BACKLOG.cast_signed()))
            .and_then(|()| fs::symlink_metadata(&new))
            .and_then(|metadata| fs::rename(&new, path).map(|()| metadata));
        let metadata = moved.map_err(|error| {
            let _ = fs::remove_file(&new);
            failed(&reason(&error), error)
        })?;
        let file = SocketFile {
            path: path.to_owned(),
            own: Some((metadata.dev(), metadata.ino())),
        };
        let socket = std::os::unix::net::UnixListener::from(OwnedFd::from(socket));
        let socket = tokio::net::UnixListener::from_std(socket);
        let socket = socket.map_err(|error| failed("the socket cannot be used", error))?;
        Ok(Self { socket, file })
    }

    /// Listens at a socket that the service manager has opened, and leaves its file alone.
    pub(super) fn from_inherited(socket: Socket) -> io::Result<Self> {
        let socket = std::os::unix::net::UnixListener::from(OwnedFd::from(socket));
        let address = socket.local_addr()?;
        let path = address.as_pathname().unwrap_or(Path::new("(no path)"));
        let file = SocketFile {
            path: path.to_owned(),
            own: None,
        };
        let socket = tokio::net::UnixListener::from_std(socket)?;
        Ok(Self { socket, file })
    }

    pub(super) fn address(&self) -> Listen {
        Listen::Unix(self.file.path.clone())
    }

    pub(super) async fn accept(&self, shared: &Arc<Shared>) -> io::Result<()> {
        let (stream, _) = self.socket.accept().await?;
        let permit = shared.permits.connection();
        shared
            .tasks
            .spawn(serve(stream, permit, Arc::clone(shared)));
        Ok(())
    }
}

async fn serve(stream: UnixStream, permit: Option<ConnectionPermit>, shared: Arc<Shared>) {
    let Some(mut permit) = permit else {
        tracing::warn!("too many connections, refused a connection");
        return;
    };
    let peer = Owner::of(&stream).and_then(|owner| {
        let process = Process::of_peer(&stream, owner, permit.process_file())?;
        Ok(Peer::Local(Arc::new(process), owner))
    });
    match peer {
        Ok(peer) => {
            let transport = UnixTransport {
                stream,
                descriptor: None,
            };
            let connection = Connection::new(&shared, peer, transport);
            connection.run(shared, permit).await;
        }
        Err(error) => tracing::warn!(%error, "cannot identify the process that has connected"),
    }
}

/// Creates the directory of a socket if it is missing, with access for its owner only.
fn create_directory(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() && !directory.exists() => {
            let mut builder = fs::DirBuilder::new();
            builder.recursive(true).mode(0o700).create(directory)
        }
        _ => Ok(()),
    }
}

/// Fails if another process listens at the path, or if there is a file that is not a socket.
fn check_path_is_free(path: &Path) -> Result<(), Error> {
    let failed =
        |what: &str| Error::new(format!("cannot listen at unix:{}: {what}", path.display()));
    match fs::symlink_metadata(path) {
        Err(_) => return Ok(()),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(failed(
                "there is a file that is not a socket; choose another path",
            ));
        }
        Ok(_) => {}
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => Err(failed("another process listens there already")),
        Err(error) => match error.kind() {
            ErrorKind::ConnectionRefused | ErrorKind::NotFound => Ok(()),
            _ => {
                let what = "cannot find out whether another process listens there";
                Err(failed(what).with_source(error))
            }
        },
    }
}

/// A path in the same directory that no other process uses.
fn temporary_path(path: &Path) -> PathBuf {
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
            "this user may not write into its directory".into()
        }
        ErrorKind::InvalidInput => "the path is too long for a socket".into(),
        _ => error.to_string(),
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let present = fs::symlink_metadata(&self.path).ok();
        let present = present.map(|metadata| (metadata.dev(), metadata.ino()));
        if self.own.is_some() && present == self.own {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A connection of a process of this machine.
struct UnixTransport {
    stream: UnixStream,
    /// The descriptor that waits for the message that it belongs to. The kernel never joins two messages with
    /// descriptors, and each is handled before the next is read.
    descriptor: Option<OwnedFd>,
}

impl UnixTransport {
    fn receive(&mut self, buffer: &mut ReadBuf<'_>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let target = buffer.initialize_unfilled();
        let received = self.stream.try_io(Interest::READABLE, || {
            let mut parts = [IoSliceMut::new(target)];
            let flags = RecvFlags::CMSG_CLOEXEC;
            Ok(recvmsg(&self.stream, &mut parts, &mut control, flags)?.bytes)
        })?;
        buffer.advance(received);
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
                self.descriptor = self.descriptor.take().or_else(|| descriptors.next());
            }
        }
        Ok(())
    }
}

impl Transport for UnixTransport {
    type Writer = UnixStream;

    fn writer(&mut self) -> &mut UnixStream {
        &mut self.stream
    }

    fn poll_read(
        &mut self,
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

    fn take_descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptor.take()
    }
}
