//! Two UDP sockets, each connected to the other: a system call for each message, both polling.

use super::failed;
use crate::channel::{Channel, stamp};
use crate::failure::Outcome;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::Duration;

/// Nothing is waited for longer.
const LIMIT: Duration = Duration::from_secs(20);

/// One end. By hand, one sleeps in a blocking receive.
pub struct PlainUdp<const SLEEPS: bool> {
    socket: UdpSocket,
    buffer: Box<[u8]>,
}

impl<const SLEEPS: bool> PlainUdp<SLEEPS> {
    /// Over a socket that is connected to its peer.
    ///
    /// # Errors
    /// Those of setting its options.
    pub fn over(socket: UdpSocket) -> Outcome<Self> {
        socket.set_read_timeout(Some(LIMIT)).map_err(failed("plain UDP"))?;
        socket.set_nonblocking(!SLEEPS).map_err(failed("plain UDP"))?;
        Ok(PlainUdp { socket, buffer: vec![0; 1 << 16].into_boxed_slice() })
    }
}

impl<const SLEEPS: bool> Channel for PlainUdp<SLEEPS> {
    const POLLS_PER_LOOK: u32 = if SLEEPS { 1 } else { 1 << 16 };
    const RELIABLE: bool = false;

    #[inline]
    fn try_send(&mut self, message: &[u8]) -> Outcome<bool> {
        match self.socket.send(message) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            // About a message before: nobody was there any more.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(true),
            Err(error) => Err(failed("sending")(error)),
        }
    }

    fn linger(&mut self) {
        // The kernel has it.
    }

    #[inline]
    fn try_receive(&mut self) -> Outcome<Option<u64>> {
        match self.socket.recv(&mut self.buffer) {
            Ok(len) => Ok(Some(stamp(self.buffer.get(..len).unwrap_or_default()))),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionRefused) => {
                Ok(None)
            }
            Err(error) => Err(failed("receiving")(error)),
        }
    }
}
