//! SEQPACKET UNIX sockets, by which two processes of one machine meet, prove who they are and exchange descriptors.
//!
//! Everything is non-blocking and close-on-exec. `ErrorKind::WouldBlock` means: nothing to take, or no space, now.

use std::io;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags,
};

use crate::error::{Result, SysError, Tried};

mod listener;
mod name;
mod rights;

pub use listener::Listener;
pub use name::Name;

/// Descriptors one message can carry.
pub const FDS_MAX: usize = 8;
const SEND_SPACE_BYTES: usize = rustix::cmsg_space!(ScmRights(FDS_MAX));
/// Room for twice as many, so that too many are seen, counted and closed rather than cut off by the kernel.
const RECV_SPACE_BYTES: usize = rustix::cmsg_space!(ScmRights(2 * FDS_MAX));

/// One end of a connection between two processes.
#[derive(Debug)]
pub struct Stream(OwnedFd);

/// Who was at the other end when the connection was made (`SO_PEERCRED`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Process, in our PID namespace; `None` where it is not visible from ours (another container).
    pub pid: Option<u32>,
    /// Effective user, in our user namespace.
    pub uid: u32,
    /// Effective group, in our user namespace.
    pub gid: u32,
}

/// Descriptors that came with a message; those not taken are closed.
#[derive(Debug, Default)]
pub struct ReceivedFds {
    fds: [Option<OwnedFd>; FDS_MAX],
    len: usize,
}

impl ReceivedFds {
    /// How many have not been taken yet.
    pub fn len(&self) -> usize {
        self.fds.iter().flatten().count()
    }

    /// Whether none is left (or came).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the descriptor that the peer sent at position `index`.
    pub fn take(&mut self, index: usize) -> Option<OwnedFd> {
        self.fds.get_mut(index)?.take()
    }

    /// Keeps `fd`; gives it back when there are as many as can be.
    fn push(&mut self, fd: OwnedFd) -> std::result::Result<(), OwnedFd> {
        match self.fds.get_mut(self.len) {
            Some(slot) => {
                *slot = Some(fd);
                self.len += 1;
                Ok(())
            }
            None => Err(fd),
        }
    }
}

/// What [`Stream::recv`] took.
#[derive(Debug)]
pub struct Received {
    /// Bytes of the message, at the front of the buffer given. 0: the peer has closed or died.
    pub len: usize,
    /// Descriptors that came with it.
    pub fds: ReceivedFds,
}

impl Stream {
    /// Connects to a listener. Refused, missing or full (`WouldBlock`: the listener's backlog) is an error.
    pub fn connect(to: &Name) -> Result<Stream> {
        let stream = Stream::connect_warily(to)?;
        stream.trust();
        Ok(stream)
    }

    /// Connects to a listener that is not known yet, and may be anybody's: it can't send descriptors before [`trust`](Stream::trust).
    pub fn connect_warily(to: &Name) -> Result<Stream> {
        const WHAT: &str = "connect to a process on this machine";
        let on = |error: SysError| error.on(to);
        #[cfg(feature = "simulated")]
        if !crate::simulated::reaches_others() {
            return Err(on(SysError::new(WHAT, Errno::CONNREFUSED)));
        }
        let addr = to.to_addr().tried(WHAT).map_err(on)?;
        let fd = seqpacket().tried("make a UNIX socket").map_err(on)?;
        rights::take_descriptors(&fd, false);
        loop {
            match rustix::net::connect(&fd, &addr) {
                Ok(()) => return Ok(Stream(fd)),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error).tried(WHAT).map_err(on),
            }
        }
    }

    /// From now on the peer may send descriptors. It could not where this end was made by a listener, or warily.
    pub fn trust(&self) {
        rights::take_descriptors(&self.0, true);
    }

    /// Two connected ends, for tests and for processes that are parent and child.
    pub fn pair() -> Result<(Stream, Stream)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (family, kind) = (rustix::net::AddressFamily::UNIX, rustix::net::SocketType::SEQPACKET);
        let (one, other) =
            rustix::net::socketpair(family, kind, flags, None).tried("make a pair of UNIX sockets")?;
        Ok((Stream(one), Stream(other)))
    }

    /// Sends one message whole, with copies of up to [`FDS_MAX`] descriptors (`InvalidInput` above that).
    ///
    /// `WouldBlock`: the peer does not read, nothing was sent. `BrokenPipe`, `ConnectionReset`: it is gone.
    pub fn send(&self, message: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        if fds.len() > FDS_MAX || message.is_empty() {
            // An empty message would look like a closed connection at the other end.
            return Err(io::ErrorKind::InvalidInput.into());
        }
        #[cfg(feature = "simulated")]
        if !crate::simulated::reaches_others() {
            return Ok(());
        }
        let mut space = [MaybeUninit::uninit(); SEND_SPACE_BYTES];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let sent_bytes =
            again(|| rustix::net::sendmsg(&self.0, &[IoSlice::new(message)], &mut control, flags))?;
        debug_assert_eq!(sent_bytes, message.len(), "SEQPACKET sends whole messages");
        Ok(())
    }

    /// Takes one message and at most `fds_max` descriptors (not above [`FDS_MAX`]).
    ///
    /// A message longer than `buffer`, or with more descriptors, is an error (`InvalidData`): the message is gone
    /// and every descriptor that came with it is closed. `EMFILE`: the same, because this process may not have so many.
    /// `WouldBlock`: nothing there.
    pub fn recv(&self, buffer: &mut [u8], fds_max: usize) -> io::Result<Received> {
        let mut space = [MaybeUninit::uninit(); RECV_SPACE_BYTES];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let mut take =
            || again(|| rustix::net::recvmsg(&self.0, &mut [IoSliceMut::new(buffer)], &mut control, flags));
        let mut got = take();
        if matches!(&got, Err(error) if error.kind() == io::ErrorKind::ConnectionReset) {
            // It closed with messages of ours unread. The kernel says so once, before what the peer had sent.
            got = take();
        }
        let got = match got {
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                return Ok(Received { len: 0, fds: ReceivedFds::default() });
            }
            other => other?,
        };
        let mut fds = ReceivedFds::default();
        let (mut too_many, mut came) = (false, 0);
        // To the end, whatever comes: an unread descriptor would be a leaked one.
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                for fd in received {
                    came += 1;
                    too_many |= fds.len >= fds_max || fds.push(fd).is_err();
                }
            }
        }
        let truncated = got.flags.contains(ReturnFlags::CTRUNC);
        if too_many || truncated && came >= FDS_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "more descriptors than expected"));
        }
        if truncated {
            // They would fit in the message, but not in this process.
            return Err(Errno::MFILE.into());
        }
        if got.flags.contains(ReturnFlags::TRUNC) || got.bytes > buffer.len() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "message longer than expected"));
        }
        Ok(Received { len: got.bytes, fds })
    }

    /// Who is at the other end, as the kernel saw it when the connection was made.
    pub fn peer_credentials(&self) -> Result<Credentials> {
        let mut cred = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
        let mut len = size_of::<libc::ucred>() as libc::socklen_t;
        // Not by rustix: its `Pid` cannot be 0, which is what the kernel says of a process in another container.
        // SAFETY: writes at most `len` bytes to `cred`, any bytes make a ucred, and both outlive the call.
        let done = unsafe {
            let to = (&raw mut cred).cast();
            libc::getsockopt(self.0.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, to, &mut len)
        };
        if done != 0 {
            return Err(SysError::last("ask who the peer is (SO_PEERCRED)"));
        }
        let pid = u32::try_from(cred.pid).ok().filter(|&pid| pid != 0);
        Ok(Credentials { pid, uid: cred.uid, gid: cred.gid })
    }

    /// Whether the peer has closed or died. Messages it sent before may still be there to take.
    pub fn hung_up(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, poll};
        let mut fds = [PollFd::new(&self.0, PollFlags::RDHUP)];
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut fds, Some(&now)) {
            Ok(_) => fds.iter().any(|fd| {
                fd.revents().intersects(PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR | PollFlags::NVAL)
            }),
            Err(_) => false,
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Repeats a call that a signal interrupted.
fn again<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return Ok(done?),
        }
    }
}

fn seqpacket() -> rustix::io::Result<OwnedFd> {
    #[cfg(feature = "simulated")]
    crate::simulated::fault("socket")?;
    let (family, kind) = (rustix::net::AddressFamily::UNIX, rustix::net::SocketType::SEQPACKET);
    rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
}

#[cfg(test)]
mod tests;
