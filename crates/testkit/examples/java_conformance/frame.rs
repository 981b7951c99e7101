//! What goes over a line: frames of a length in four bytes and so many bytes; numbers are big-endian, as Java's are.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

/// A frame that is being written.
#[derive(Debug)]
pub struct Request(Vec<u8>);

impl Request {
    /// A call.
    pub fn new(call: u8) -> Request {
        Request(vec![0, 0, 0, 0, call])
    }

    pub fn u8(mut self, number: u8) -> Request {
        self.0.push(number);
        self
    }

    pub fn bool(self, value: bool) -> Request {
        self.u8(value.into())
    }

    pub fn u32(mut self, number: u32) -> Request {
        self.0.extend(number.to_be_bytes());
        self
    }

    pub fn u64(mut self, number: u64) -> Request {
        self.0.extend(number.to_be_bytes());
        self
    }

    /// Bytes whose number both sides know.
    pub fn raw(mut self, bytes: &[u8]) -> Request {
        self.0.extend(bytes);
        self
    }

    /// Bytes behind their length.
    pub fn bytes(self, bytes: &[u8]) -> Request {
        self.u32(u32::try_from(bytes.len()).expect("the suite's lengths fit")).raw(bytes)
    }

    /// Sends it.
    pub fn send(mut self, line: &mut UnixStream) {
        let len = u32::try_from(self.0.len() - 4).expect("the suite's lengths fit");
        self.0[..4].copy_from_slice(&len.to_be_bytes());
        line.write_all(&self.0).expect("the agent lives");
    }
}

/// A frame that is being read.
#[derive(Debug)]
pub struct Reply {
    bytes: Vec<u8>,
    at: usize,
}

impl Reply {
    /// The next one.
    pub fn receive(line: &mut UnixStream) -> Reply {
        let mut len = [0; 4];
        line.read_exact(&mut len).expect("the agent lives");
        let mut bytes = vec![0; u32::from_be_bytes(len) as usize];
        line.read_exact(&mut bytes).expect("the agent lives");
        Reply { bytes, at: 0 }
    }

    fn array<const LEN: usize>(&mut self) -> [u8; LEN] {
        let array = self.bytes[self.at..].first_chunk().expect("as long as agreed");
        self.at += LEN;
        *array
    }

    pub fn u8(&mut self) -> u8 {
        u8::from_be_bytes(self.array())
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.array())
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.array())
    }

    pub fn bytes(&mut self) -> &[u8] {
        let len = self.u32() as usize;
        self.at += len;
        &self.bytes[self.at - len..self.at]
    }

    pub fn text(&mut self) -> String {
        String::from_utf8(self.bytes().to_vec()).expect("UTF-8")
    }
}
