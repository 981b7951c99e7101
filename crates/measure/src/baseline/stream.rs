//! Bulk data over one plain TCP connection: one `write` for each transfer, straight from the source's memory and into the target's.

use super::failed;
use crate::failure::Outcome;
use crate::transfer::{Direction, Slots};
use cci_sys::clock;
use rustix::net::sockopt;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Neither side waits longer for the other.
const LIMIT: Duration = Duration::from_secs(20);

/// What a careful programmer asks for, who moves much: left to itself, the kernel begins with less, and a stream of 1 MiB writes took 1.2
/// times as long. The kernel gives what its limits allow.
const BUFFER_BYTES: usize = 4 << 20;

/// One end of the connection, with its memory.
#[derive(Debug)]
pub struct Stream {
    stream: TcpStream,
    /// What is sent, and what came.
    pub memory: Vec<u8>,
}

impl Stream {
    /// Over a connection, with so many bytes of memory, all of them written.
    ///
    /// # Errors
    /// Those of setting its options.
    pub fn over(stream: TcpStream, len_bytes: usize) -> Outcome<Stream> {
        let limited =
            stream.set_read_timeout(Some(LIMIT)).and_then(|()| stream.set_write_timeout(Some(LIMIT)));
        limited.and_then(|()| stream.set_nodelay(true)).map_err(failed("plain TCP"))?;
        let sized = sockopt::set_socket_send_buffer_size(&stream, BUFFER_BYTES)
            .and_then(|()| sockopt::set_socket_recv_buffer_size(&stream, BUFFER_BYTES));
        sized.map_err(|errno| failed("plain TCP")(errno.into()))?;
        Ok(Stream { stream, memory: vec![1; len_bytes] })
    }

    /// Makes so many transfers with the other end, which calls [`Stream::serve`]: nanoseconds from the first byte to the word
    /// that all has come; or, reading, to the last byte.
    ///
    /// # Errors
    /// The connection's.
    pub fn transfer(&mut self, direction: Direction, slots: &Slots, count: u64) -> Outcome<u64> {
        let begin_ns = clock::now_ns();
        match direction {
            Direction::Write => {
                self.send(slots, count)?;
                self.hear()?;
            }
            Direction::Read => {
                self.say()?;
                self.take(slots, count)?;
            }
        }
        Ok(clock::now_ns() - begin_ns)
    }

    /// Does the other end's part of [`Stream::transfer`].
    ///
    /// # Errors
    /// The connection's.
    pub fn serve(&mut self, direction: Direction, slots: &Slots, count: u64) -> Outcome {
        match direction {
            Direction::Write => {
                self.take(slots, count)?;
                self.say()
            }
            Direction::Read => {
                self.hear()?;
                self.send(slots, count)
            }
        }
    }

    fn say(&mut self) -> Outcome {
        self.stream.write_all(&[1]).map_err(failed("plain TCP"))
    }

    fn hear(&mut self) -> Outcome {
        self.stream.read_exact(&mut [0]).map_err(failed("plain TCP"))
    }

    fn send(&mut self, slots: &Slots, count: u64) -> Outcome {
        for nth in 0..count {
            let at = slots.offset(nth) as usize;
            let chunk = self.memory.get(at..at + slots.len as usize).unwrap_or_default();
            self.stream.write_all(chunk).map_err(failed("plain TCP"))?;
        }
        Ok(())
    }

    /// Reads as much as there is, up to the end of the memory: a `read` for each transfer would be slower where these are
    /// short.
    fn take(&mut self, slots: &Slots, count: u64) -> Outcome {
        let mut nth = 0;
        while nth < count {
            let row = (count - nth).min(slots.count);
            let part = self.memory.get_mut(..row as usize * slots.len as usize).unwrap_or_default();
            self.stream.read_exact(part).map_err(failed("plain TCP"))?;
            nth += row;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_stream_carries_transfers_both_ways() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mine = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut mine = Stream::over(mine, 1 << 20).unwrap();
        let mut theirs = Stream::over(listener.accept().unwrap().0, 1 << 20).unwrap();
        for (at, (direction, len, count)) in [
            (Direction::Write, 8, 10),
            (Direction::Read, 8, 10),
            (Direction::Write, 1 << 20, 1),
            (Direction::Read, 1000, 99),
        ]
        .into_iter()
        .enumerate()
        {
            let slots = Slots { len, count };
            let source = if direction == Direction::Write { &mut mine } else { &mut theirs };
            source.memory[..slots.bytes()].fill(at as u8 + 7);
            // Everything once, and once more from the first place on.
            let took_ns = std::thread::scope(|scope| {
                scope.spawn(|| theirs.serve(direction, &slots, 2 * count).unwrap());
                mine.transfer(direction, &slots, 2 * count).unwrap()
            });
            let target = if direction == Direction::Write { &theirs } else { &mine };
            assert!(target.memory[..slots.bytes()].iter().all(|&byte| byte == at as u8 + 7));
            assert!(took_ns > 0, "{direction:?} {len}");
        }
    }
}
