//! A stream as the transport uses it: plain, or sealed before its bytes go to the kernel.
//!
//! A sealed pipe does its handshake by itself whenever it is asked to send or to receive. Until that is over it takes nothing
//! and has nothing to read. It seals what it is given into records, in a borrowed buffer, where it keeps what the kernel does
//! not take at once ([`Pipe::has_unsent`]). Reading takes bytes out of the kernel only if they can be passed on at once, or
//! are parts of a record, so that the kernel always knows whether there is something to be read. Buffers are few ([`pool`]):
//! a stream that may keep none leaves parts of records in the kernel ([`input`]), and seals short records.

mod input;
mod pool;
mod sealed;
#[cfg(test)]
mod tests;

use self::pool::Pool;
use self::sealed::Sealed;
use super::counts::Fault;
use crate::engine::peer::Peer;
use crate::sealing::Sealing;
use crate::transport::quota::Host;
use crate::{ConnectFailure, DisconnectReason};
use cci_memory::bytes::Bytes;
use cci_secure::limits::{HANDSHAKE_MEMORY_BYTES, RECORD_BODY_BYTES_MAX, RECORD_OVERHEAD_BYTES};
use cci_secure::{EndpointId, Failure, StreamConfig, UpdateLimits};
use cci_sys::tcp::{Info, Stream};
use cci_sys::{SysError, random, tcp_memory};
use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// The most memory that a client's handshake takes: its state at the end, and the part that is being read.
pub(super) const HANDSHAKE_BYTES: u64 =
    (HANDSHAKE_MEMORY_BYTES + RECORD_BODY_BYTES_MAX + RECORD_OVERHEAD_BYTES) as u64;
/// The least number of clients whose handshakes may be in progress at a time, however little memory there is.
const HANDSHAKES_MIN: u64 = 4;

/// What an endpoint needs to seal its streams.
pub(super) struct Security {
    pub sealing: Sealing,
    pool: Arc<Pool>,
    config: StreamConfig,
    handshakes_max: usize,
}

impl Security {
    /// The least memory that buffers and handshakes take.
    pub const BYTES_MIN: u64 = Pool::BYTES_MIN + HANDSHAKES_MIN * HANDSHAKE_BYTES;

    /// `bytes_max` is for buffers that streams keep, and `handshake_bytes_max` for handshakes, both beside
    /// [`Security::BYTES_MIN`].
    pub fn new(sealing: Sealing, bytes_max: u64, handshake_bytes_max: u64) -> Result<Security, SysError> {
        let mut secret = [0; 32];
        random::fill(&mut secret)?;
        let config = StreamConfig {
            credentials: sealing.credentials.clone(),
            authorisation: sealing.authorisation.clone(),
            update: UpdateLimits::default(),
            own: EndpointId::of_secret(&secret),
        };
        let handshakes_max = (handshake_bytes_max / HANDSHAKE_BYTES).max(HANDSHAKES_MIN);
        let handshakes_max = usize::try_from(handshakes_max).unwrap_or(usize::MAX);
        Ok(Security { sealing, pool: Arc::new(Pool::new(bytes_max)), config, handshakes_max })
    }

    /// The most clients whose handshakes may be in progress at a time.
    pub fn handshakes_max(&self) -> usize {
        self.handshakes_max
    }

    /// Bytes of all buffers that were allocated.
    pub fn bytes(&self) -> u64 {
        self.pool.bytes()
    }
}

/// A stream, plain or sealed.
pub(super) struct Pipe {
    stream: Stream,
    sealed: Option<Box<Sealed>>,
}

impl Pipe {
    /// Wraps the stream of the side that dialled. `expected` is the name that the peer, which is at `host`, must prove. The only
    /// error is a lack of randomness.
    pub fn dialled(
        stream: Stream,
        security: Option<&Security>,
        expected: Option<&str>,
        host: Host,
    ) -> Result<Pipe, Failure> {
        let sealed = security.map(|security| Sealed::dial(security, expected, host)).transpose()?;
        Ok(Pipe { stream, sealed: sealed.map(Box::new) })
    }

    /// Wraps the stream of the side that was dialled, from `host`. It keeps next to nothing until it is [wanted](Pipe::want).
    pub fn accepted(stream: Stream, security: Option<&Security>, host: Host) -> Pipe {
        Pipe { stream, sealed: security.map(|security| Box::new(Sealed::answer(security, host))) }
    }

    /// Marks the stream as wanted: the program has accepted its connection, or had it already.
    pub fn want(&mut self) {
        if let Some(sealed) = &mut self.sealed {
            sealed.want();
        }
    }

    /// The peer, once it is proved. A plain stream has none.
    pub fn peer(&self) -> Option<Peer> {
        let (identity, rights) = self.sealed.as_ref()?.peer()?;
        Some(Peer { identity: Some(identity.clone()), rights })
    }

    /// Whether both streams lead to the same endpoint of the same peer, or both are plain.
    pub fn has_endpoint_of(&self, other: &Pipe) -> bool {
        let of = |pipe: &Pipe| pipe.sealed.as_ref().and_then(|sealed| sealed.peer_endpoint());
        of(self) == of(other)
    }

    /// Whether both streams are between the same two endpoints, or both are plain.
    pub fn has_peer_of(&self, other: &Pipe) -> bool {
        let of = |pipe: &Pipe| pipe.peer().map(|peer| peer.identity);
        of(self) == of(other)
    }

    #[inline]
    pub fn is_sealed(&self) -> bool {
        self.sealed.is_some()
    }

    /// Whether there is input that has left the kernel and was not passed on.
    pub fn has_input(&self) -> bool {
        self.sealed.as_ref().is_some_and(|sealed| sealed.input().has_input())
    }

    /// Whether there is content to read that the kernel does not report.
    pub fn has_content(&self) -> bool {
        self.sealed.as_ref().is_some_and(|sealed| sealed.input().has_content())
    }

    /// Whether a part of a sealed record had come at the last read.
    #[inline]
    pub fn has_part(&self) -> bool {
        self.sealed.as_ref().is_some_and(|sealed| sealed.input().has_part())
    }

    /// Whether sending waits for a buffer. No event reports when one is free.
    pub fn lacks_buffer(&self) -> bool {
        self.sealed.as_ref().is_some_and(|sealed| sealed.lacks_buffer())
    }

    /// Whether the handshake is in progress.
    pub fn is_in_handshake(&self) -> bool {
        self.sealed.as_ref().is_some_and(|sealed| !sealed.is_open())
    }

    /// Whether output waits for space in the kernel, and not for the peer's part of the handshake.
    pub fn waits_for_space(&self) -> bool {
        self.sealed.as_ref().is_none_or(|sealed| sealed.is_open() || sealed.has_unsent())
    }

    /// Whether the pipe has taken bytes that the kernel has not taken yet.
    #[inline]
    pub fn has_unsent(&self) -> bool {
        self.sealed.as_ref().is_some_and(|sealed| sealed.has_unsent())
    }

    /// Gives waiting bytes to the kernel. Returns false if the kernel has no space for all of them.
    #[inline]
    pub fn flush(&mut self) -> io::Result<bool> {
        match &mut self.sealed {
            None => Ok(true),
            Some(sealed) => sealed.flush(&self.stream),
        }
    }

    /// Sends what there is space for, and returns how much.
    #[inline]
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.sealed {
            None => self.stream.send(bytes),
            Some(sealed) => sealed.send(&self.stream, &[bytes]),
        }
    }

    /// Sends the parts in order, as far as there is space, and returns how many bytes were sent.
    pub fn send_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match &mut self.sealed {
            None => self.stream.send_vectored(parts),
            Some(sealed) => sealed.send(&self.stream, parts),
        }
    }

    /// Sends `head`, then `data` directly from memory, as far as there is space, and returns how many bytes were sent.
    pub fn send_memory(&mut self, head: &[u8], data: Option<&Bytes>) -> io::Result<usize> {
        match &mut self.sealed {
            None => tcp_memory::send(self.stream.as_fd(), head, data),
            Some(sealed) => sealed.send_memory(&self.stream, head, data),
        }
    }

    /// Receives what has come and fits, and returns how much. 0 means that the peer has closed.
    #[inline]
    pub fn recv(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.sealed {
            None => self.stream.recv(buffer),
            Some(sealed) => sealed.recv(&self.stream, buffer),
        }
    }

    /// Receives what has come and fits, and returns how much. `None` means that nothing has come.
    #[inline(always)]
    pub fn recv_now(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match &mut self.sealed {
            None => self.stream.recv_now(buffer),
            Some(sealed) => or_none(sealed.recv(&self.stream, buffer)),
        }
    }

    /// Reads what has come without taking it, where [`Pipe::has_input`] is false; [`Pipe::take`] takes what was used.
    pub fn peek_now(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        or_none(match self.records() {
            Some((sealed, stream)) => sealed.peek(stream, buffer),
            None => self.stream.peek(buffer),
        })
    }

    /// Takes the first bytes that [`Pipe::peek_now`] gave. The others can't be used before more has come. Returns false if the
    /// stream has failed.
    pub fn take(&mut self, bytes: &mut [u8]) -> bool {
        match self.records() {
            Some((sealed, stream)) => sealed.take_peeked(stream, bytes.len()).is_ok(),
            None if bytes.is_empty() => true,
            // All these bytes are in the kernel's buffer.
            None => self.stream.recv(bytes).is_ok_and(|len| len == bytes.len()),
        }
    }

    /// The sealed state and the stream, if its input is sealed records.
    fn records(&mut self) -> Option<(&mut Sealed, &Stream)> {
        let sealed = self.sealed.as_deref_mut().filter(|sealed| !sealed.is_plain())?;
        Some((sealed, &self.stream))
    }

    /// Receives into memory first, then into `tail`, and returns how much. 0 means that the peer has closed.
    pub fn recv_memory(&mut self, to: Option<&Bytes>, tail: &mut [u8]) -> io::Result<usize> {
        match &mut self.sealed {
            None => tcp_memory::recv(self.stream.as_fd(), to, tail),
            Some(sealed) => sealed.recv_memory(&self.stream, to, tail),
        }
    }

    /// Reads input without taking it. Of a sealed stream it shows only whether there is input, or that the stream has ended.
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.sealed {
            Some(sealed) if sealed.input().has_input() => Ok(1),
            _ => self.stream.peek(buffer),
        }
    }

    pub fn take_error(&self) -> io::Result<()> {
        self.stream.take_error()
    }

    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    pub fn shutdown_write(&self) -> io::Result<()> {
        self.stream.shutdown_write()
    }

    pub fn set_keepalive(&self, idle: Duration, interval: Duration, tries: u32) -> io::Result<()> {
        self.stream.set_keepalive(idle, interval, tries)
    }

    pub fn set_user_timeout_ms(&self, timeout_ms: u32) -> io::Result<()> {
        self.stream.set_user_timeout_ms(timeout_ms)
    }

    pub fn set_unsent_bytes_max(&self, bytes: u32) -> io::Result<()> {
        self.stream.set_unsent_bytes_max(bytes)
    }

    /// Has the kernel report the stream only once so many bytes have come. A sealed stream does that by itself.
    pub fn set_wakeup_bytes(&self, bytes: u32) -> io::Result<()> {
        match &self.sealed {
            Some(sealed) if !sealed.is_plain() => Ok(()),
            _ => self.stream.set_wakeup_bytes(bytes),
        }
    }

    /// Makes space in the kernel for the rest of an incomplete record that stays there. A sealed stream does that by itself.
    pub fn make_space_behind_parts(&self) {
        if self.sealed.as_ref().is_none_or(|sealed| sealed.is_plain()) {
            self.stream.make_space_behind_parts();
        }
    }

    pub fn info(&self) -> Option<Info> {
        self.stream.info()
    }
}

impl AsFd for Pipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn or_none(done: io::Result<usize>) -> io::Result<Option<usize>> {
    match done {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        other => other.map(Some),
    }
}

/// A failed handshake: the peer did not prove that it may connect, or this side did not prove it to the peer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The fault to count.
    pub fault: Fault,
    /// The failure of the attempt to connect.
    pub why: ConnectFailure,
}

/// The refusal that an error of a stream carries, if any.
pub(super) fn refusal(error: &io::Error) -> Option<Refusal> {
    let (fault, why) = match error.get_ref()?.downcast_ref::<Failure>()? {
        Failure::NotExpected(..) => (Fault::Refused, ConnectFailure::WrongPeer),
        Failure::Version(theirs) => (Fault::Version, ConnectFailure::Version { theirs: *theirs }),
        Failure::Own => (Fault::Own, ConnectFailure::NotPermitted),
        _ => (Fault::Refused, ConnectFailure::NotPermitted),
    };
    Some(Refusal { fault, why })
}

/// Whether an error of a stream means that somebody other than the peer has sent something.
pub(super) fn is_forgery(error: &io::Error) -> bool {
    error.kind() == ErrorKind::InvalidData
}

/// Why a connection ended, by its stream's error: the peer did not answer for too long, or has gone.
pub(super) fn reason(error: &io::Error) -> DisconnectReason {
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
            DisconnectReason::TimedOut
        }
        _ => DisconnectReason::Died,
    }
}
