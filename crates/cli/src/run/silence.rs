//! Reading from another host, which may vanish without a word.

use super::wire::SILENCE_LIMIT;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read};
use std::os::fd::AsFd;

/// Reads, and fails with `TimedOut` where nothing comes for as long as the other side can't be silent. Only waiting here
/// counts: who waits for something else meanwhile loses nothing.
pub struct Limited<R>(R);

impl<R: Read + AsFd> Limited<R> {
    /// Around a pipe or a socket.
    pub const fn new(inner: R) -> Limited<R> {
        Limited(inner)
    }
}

impl<R: Read + AsFd> Read for Limited<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let limit = Timespec { tv_sec: SILENCE_LIMIT.as_secs().cast_signed(), tv_nsec: 0 };
        match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&limit)) {
            Ok(0) => Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => self.0.read(into),
            Err(error) => Err(error.into()),
        }
    }
}
