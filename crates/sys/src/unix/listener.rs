//! Listening on a name, without stealing one that lives and without being stopped by one that died.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::{Name, Stream, seqpacket};
use crate::error::{Result, SysError, Tried};
use crate::process::fork;

/// Connections that may wait to be accepted; the kernel caps it at `net.core.somaxconn`.
const BACKLOG: i32 = 4_096;
/// How long binding a path waits for another process that is binding one in the same folder.
const LOCK_TRIES: u32 = 200;
const LOCK_PAUSE: Duration = Duration::from_millis(1);
const WHAT: &str = "listen on a UNIX socket";

/// Accepts connections made to its name.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    file: Option<File>,
}

/// The socket file we made, to remove it again, and only it.
#[derive(Debug)]
struct File {
    path: PathBuf,
    device: u64,
    inode: u64,
    made_by: fork::Token,
}

impl Listener {
    /// Listens on `name`.
    ///
    /// `AddrInUse`: somebody listens there, or the path is a file that is no socket. A socket file that nobody
    /// listens on any more (its owner was killed) is replaced. May wait up to 0.2 s for another process that is
    /// binding in the same folder.
    pub fn bind(name: &Name) -> Result<Listener> {
        match name {
            Name::Abstract(_) => Ok(Listener { fd: bind_and_listen(name)?, file: None }),
            Name::Path(path) => bind_path(name, path),
        }
        .map_err(|error: SysError| error.on(name))
    }

    /// Takes the next connection; `None` when there is none now. The peer can't send descriptors before [`Stream::trust`], where the
    /// kernel is new enough.
    pub fn accept(&self) -> io::Result<Option<Stream>> {
        #[cfg(feature = "simulated")]
        crate::simulated::fault("accept")?;
        loop {
            match rustix::net::accept_with(&self.fd, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(fd) => return Ok(Some(Stream(fd))),
                Err(Errno::AGAIN) => return Ok(None),
                // Aborted: a client that left before we came; the next one may be waiting.
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // While our socket is open its inode number cannot be given to another file, so equal means ours.
        let Some(file) = self.file.take() else { return };
        if fork::same_process(file.made_by) && identity(&file.path).ok() == Some((file.device, file.inode)) {
            let _ = fs::remove_file(&file.path);
        }
    }
}

fn bind_path(name: &Name, path: &Path) -> Result<Listener> {
    // A socket that is bound but does not listen yet looks exactly like a dead one, and between the probe and the
    // removal it could come alive: so one process at a time per folder does this. The lock leaves no file behind.
    let _lock = lock_folder(path)?;
    if path.symlink_metadata().is_ok() {
        remove_if_dead(name, path)?;
    }
    let fd = bind_and_listen(name)?;
    let (device, inode) = identity(path).tried(WHAT)?;
    Ok(Listener { fd, file: Some(File { path: path.to_owned(), device, inode, made_by: fork::token() }) })
}

fn bind_and_listen(name: &Name) -> Result<OwnedFd> {
    let addr = name.to_addr().tried(WHAT)?;
    let fd = seqpacket().tried("make a UNIX socket")?;
    // Those who connect are not known yet.
    super::rights::take_descriptors(&fd, false);
    rustix::net::bind(&fd, &addr).tried("listen on a UNIX socket (bind)")?;
    rustix::net::listen(&fd, BACKLOG).tried("listen on a UNIX socket (listen)")?;
    Ok(fd)
}

/// Removes the socket file at `path` when its owner is gone; `EADDRINUSE` when it is not, or it is no socket.
fn remove_if_dead(name: &Name, path: &Path) -> Result<()> {
    let in_use = || Err(SysError::new(WHAT, Errno::ADDRINUSE));
    if !path.symlink_metadata().tried(WHAT)?.file_type().is_socket() {
        return in_use();
    }
    match Stream::connect(name) {
        // Anything but a refusal means that somebody holds it: a full backlog, another socket type, no permission.
        Err(error) if error.errno() == Some(libc::ECONNREFUSED) => {}
        _ => return in_use(),
    }
    fs::remove_file(path).tried("remove a socket file whose owner is gone")
}

/// An exclusive lock on the folder of `path`, held until dropped.
fn lock_folder(path: &Path) -> Result<fs::File> {
    const WHAT: &str = "lock the folder of a UNIX socket";
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = fs::File::open(folder).tried(WHAT)?;
    for _ in 0..LOCK_TRIES {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::AGAIN | Errno::INTR) => std::thread::sleep(LOCK_PAUSE),
            Err(error) => return Err(error).tried(WHAT),
        }
    }
    Err(SysError::new(WHAT, Errno::AGAIN))
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let data = path.symlink_metadata()?;
    Ok((data.dev(), data.ino()))
}
