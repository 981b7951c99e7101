//! One TCP stream of a hostile peer: it never waits, neither for data nor for space.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// What is read of a stream in one turn, at most.
const READ_BYTES: usize = 1 << 16;
/// Input that waits to be taken, at most: then nothing more is read.
const INPUT_BYTES_MAX: usize = 1 << 20;

/// One TCP stream to the victim, which neither side waits for.
#[derive(Default)]
pub struct Stream {
    socket: Option<TcpStream>,
    /// What came and was not taken.
    pub(super) input: Vec<u8>,
    output: Vec<u8>,
    has_ended: bool,
    /// Reads nothing from now on: the victim's sends fill the kernel's buffers.
    pub is_deaf: bool,
}

impl Stream {
    /// No stream at all.
    pub fn none() -> Stream {
        Stream::default()
    }

    /// Of a socket.
    pub fn of(socket: TcpStream) -> Stream {
        let set = socket.set_nonblocking(true).and_then(|()| socket.set_nodelay(true));
        Stream { socket: set.is_ok().then_some(socket), ..Stream::default() }
    }

    /// Connects. The victim's listener is in this thread, but the kernel accepts on its behalf.
    pub fn dial(to: SocketAddr) -> Stream {
        TcpStream::connect(to).map_or_else(|_| Stream::none(), Stream::of)
    }

    /// There is no stream.
    pub fn is_none(&self) -> bool {
        self.socket.is_none()
    }

    /// Takes what came into the input.
    pub(super) fn read(&mut self) {
        let Some(socket) = self.socket.as_mut().filter(|_| !self.is_deaf && !self.has_ended) else { return };
        if self.input.len() > INPUT_BYTES_MAX {
            return;
        }
        let mut buffer = [0; READ_BYTES];
        match socket.read(&mut buffer) {
            Ok(len) => {
                self.has_ended = len == 0;
                self.input.extend_from_slice(&buffer[..len]);
            }
            Err(error) => self.has_ended = error.kind() != ErrorKind::WouldBlock,
        }
    }

    /// Takes so many bytes of the input, once they are all there.
    pub(super) fn take(&mut self, len: usize) -> Option<Vec<u8>> {
        (self.input.len() >= len).then(|| self.input.drain(..len).collect())
    }

    /// The victim has closed the stream, or cut it. True once.
    pub(super) fn take_end(&mut self) -> bool {
        let ended = self.has_ended;
        if ended {
            *self = Stream::none();
        }
        ended
    }

    /// Gives another stream what came on this one, and ends it with this one. Whether anything came.
    pub fn pass_to(&mut self, other: &mut Stream) -> bool {
        self.read();
        let bytes = std::mem::take(&mut self.input);
        other.write(&bytes);
        if self.take_end() {
            *other = Stream::none();
        }
        !bytes.is_empty()
    }

    /// Sends this.
    pub fn write(&mut self, bytes: &[u8]) {
        self.output.extend_from_slice(bytes);
        self.flush();
    }

    /// Writes what there is space for.
    pub(super) fn flush(&mut self) {
        let Some(socket) = self.socket.as_mut().filter(|_| !self.output.is_empty()) else { return };
        match socket.write(&self.output) {
            Ok(len) => drop(self.output.drain(..len)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => self.output.clear(),
        }
    }
}
