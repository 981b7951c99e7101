//! The second stream in the form that [`ordered_rma`](crate::transport::ordered_rma) writes to and reads from.

use super::super::pipe::{self, Pipe};
use crate::transport::ordered_rma::stream::{ByteStream, Ended};
use cci_memory::bytes::Bytes;
use std::io::ErrorKind;

/// A second stream during one turn.
pub(super) struct Wire<'a> {
    pub stream: &'a mut Pipe,
    /// Whether bytes have come that the peer has not sealed.
    pub forged: bool,
}

impl ByteStream for Wire<'_> {
    fn write(&mut self, head: &[u8], data: Option<&Bytes>) -> Result<usize, Ended> {
        match self.stream.send_memory(head, data) {
            Ok(taken) => Ok(taken),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            Err(_) => Err(Ended),
        }
    }

    fn read(&mut self, to: Option<&Bytes>, tail: &mut [u8]) -> Result<usize, Ended> {
        match self.stream.recv_memory(to, tail) {
            Ok(0) => Err(Ended),
            Ok(got) => Ok(got),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            Err(error) => {
                self.forged = pipe::is_forgery(&error);
                Err(Ended)
            }
        }
    }
}
