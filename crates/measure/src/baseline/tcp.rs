//! A TCP connection without delays: a `write` for each message, both polling. Messages all have one length.

use super::failed;
use crate::channel::{Channel, stamp};
use crate::failure::{Failure, Outcome};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Nothing is waited for longer.
const LIMIT: Duration = Duration::from_secs(20);
/// The most that one `read` takes.
const READ_BYTES: usize = 1 << 16;

/// One end. By hand, one sleeps in a blocking receive.
pub struct PlainTcp<const SLEEPS: bool> {
    stream: TcpStream,
    len: usize,
    /// What came and was not taken: `buffer[taken..filled]`.
    buffer: Box<[u8]>,
    taken: usize,
    filled: usize,
    /// The rest of a message of which the system took only a part.
    rest: Vec<u8>,
}

impl<const SLEEPS: bool> PlainTcp<SLEEPS> {
    /// Messages of `len` bytes over a connection.
    ///
    /// # Errors
    /// Those of setting its options.
    pub fn over(stream: TcpStream, len: u32) -> Outcome<Self> {
        let len = len as usize;
        stream.set_nodelay(true).map_err(failed("plain TCP"))?;
        stream.set_read_timeout(Some(LIMIT)).map_err(failed("plain TCP"))?;
        stream.set_nonblocking(!SLEEPS).map_err(failed("plain TCP"))?;
        let buffer = vec![0; READ_BYTES.max(len)].into_boxed_slice();
        Ok(PlainTcp { stream, len, buffer, taken: 0, filled: 0, rest: Vec::with_capacity(len) })
    }

    /// Writes as much as there is room for.
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> Outcome<usize> {
        match self.stream.write(bytes) {
            Ok(done) => Ok(done),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            Err(error) => Err(failed("sending")(error)),
        }
    }

    #[cold]
    fn write_rest(&mut self) -> Outcome {
        let rest = std::mem::take(&mut self.rest);
        let done = self.write(&rest)?;
        self.rest = rest;
        self.rest.drain(..done);
        Ok(())
    }

    /// One `read`, behind what is there. False: nothing came.
    #[inline]
    fn read(&mut self) -> Outcome<bool> {
        if self.taken > 0 {
            self.buffer.copy_within(self.taken..self.filled, 0);
            (self.taken, self.filled) = (0, self.filled - self.taken);
        }
        match self.stream.read(self.buffer.get_mut(self.filled..).unwrap_or_default()) {
            Ok(0) => Err(Failure::new("the other side closed its TCP connection")),
            Ok(count) => {
                self.filled += count;
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(failed("receiving")(error)),
        }
    }
}

impl<const SLEEPS: bool> Channel for PlainTcp<SLEEPS> {
    const POLLS_PER_LOOK: u32 = if SLEEPS { 1 } else { 1 << 16 };

    #[inline]
    fn try_send(&mut self, message: &[u8]) -> Outcome<bool> {
        if !self.rest.is_empty() {
            self.write_rest()?;
            if !self.rest.is_empty() {
                return Ok(false);
            }
        }
        match self.write(message)? {
            0 => Ok(false),
            done => {
                self.rest.extend_from_slice(message.get(done..).unwrap_or_default());
                Ok(true)
            }
        }
    }

    fn linger(&mut self) {
        // The kernel has it.
    }

    #[inline]
    fn try_receive(&mut self) -> Outcome<Option<u64>> {
        if !self.rest.is_empty() {
            self.write_rest()?;
        }
        if self.filled - self.taken < self.len && (!self.read()? || self.filled < self.len) {
            return Ok(None);
        }
        let message = self.buffer.get(self.taken..self.taken + self.len).unwrap_or_default();
        self.taken += self.len;
        Ok(Some(stamp(message)))
    }
}
